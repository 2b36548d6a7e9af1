"""A driver that called more than once hands over every answer with other bits, and each of them is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from optest.api import cases
from optest.backends import BackendDriver, FurtherAnswer
from optest.core.runner import execute
from optest.spec import Fault, Reason, Status, TestCase, Verdict


class Again(BackendDriver):
    """Adds, and says that further calls gave the sum with something added."""

    name, kind = "again", "cpu"

    def __init__(self, *off: float, reason: Reason | None = None, first: float = 0.0, output: str = "out") -> None:
        self.off, self.reason, self.first, self.output = off, reason, first, output
        self.sum: Any = None

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Mapping[str, Any]:
        self.sum = np.add(*inputs)
        return {"out": self.sum + np.float32(self.first)}

    def further(self, case: TestCase) -> Sequence[FurtherAnswer]:
        return [
            FurtherAnswer(outputs={self.output: self.sum + np.float32(off)}, how=f"in call {n}", reason=self.reason)
            for n, off in enumerate(self.off, 2)
        ]


def judged(driver: BackendDriver) -> Verdict:
    (case,) = cases(op="add", dtype="float32", shape=("input0=4", "input1=4"))
    return execute([case], driver).verdicts[0]


def test_answers_inside_the_rule_change_nothing() -> None:
    found = judged(Again(0.0, 0.0))
    assert (found.status, found.message) == (Status.PASSED, "")


@pytest.mark.parametrize("reason", [None, Reason.NONDETERMINISTIC])
def test_the_first_that_leaves_the_rule_is_the_verdict(reason: Reason | None) -> None:
    found = judged(Again(0.0, 1.0, 2.0, reason=reason))
    assert (found.status, found.reason) == (Status.FAILED, reason or Reason.VALUE)
    assert found.message.startswith("in call 3: out: 4 of 4 elements are off")
    assert found.measures[0].mismatched == 4


def test_a_first_answer_that_is_wrong_keeps_its_own_words() -> None:
    found = judged(Again(2.0, first=1.0, reason=Reason.NONDETERMINISTIC))
    assert found.reason is Reason.VALUE
    assert found.message.startswith("out: 4 of 4")


def test_an_answer_without_the_output_is_no_answer() -> None:
    assert judged(Again(0.0, output="other")).reason is Reason.EXTRA_OUTPUT


def test_a_driver_that_breaks_when_it_is_asked_is_at_fault() -> None:
    class Breaks(Again):
        def further(self, case: TestCase) -> Sequence[FurtherAnswer]:
            raise ZeroDivisionError

    assert judged(Breaks()).reason is Reason.RAISED


def test_a_fault_of_the_driver_is_the_verdict() -> None:
    class Refuses(Again):
        def further(self, case: TestCase) -> Sequence[FurtherAnswer]:
            raise Fault(Reason.STATE, "no")

    assert judged(Refuses()).reason is Reason.STATE
