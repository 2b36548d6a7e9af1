"""Outputs of further calls that a driver reports: each of them is compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import core_kit
import numpy as np
import pytest
from core_kit import case_of, spec_of

from optest.backends import BackendDriver, ExtraOutput
from optest.spec import Fault, Reason, Status, TestCase, Verdict


class Again(BackendDriver):
    """Driver that adds and reports further outputs that differ by given amounts."""

    name, kind = "again", "cpu"

    def __init__(self, *off: float, reason: Reason | None = None, first: float = 0.0, output: str = "out") -> None:
        self.off, self.reason, self.first, self.output = off, reason, first, output
        self.sum: Any = None

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Mapping[str, Any]:
        self.sum = np.add(*inputs)
        return {"out": self.sum + np.float32(self.first)}

    def further(self, case: TestCase) -> Sequence[ExtraOutput]:
        return [
            ExtraOutput(outputs={self.output: self.sum + np.float32(off)}, how=f"in call {n}", reason=self.reason)
            for n, off in enumerate(self.off, 2)
        ]


def verdict_of(driver: BackendDriver) -> Verdict:
    return core_kit.verdict_of(driver, case_of("add", spec_of(4), spec_of(4)))


def test_outputs_within_rule_change_nothing() -> None:
    verdict = verdict_of(Again(0.0, 0.0))
    assert (verdict.status, verdict.message) == (Status.PASSED, "")


THIRD = "in call 3: out: 4 of 4 elements are off"


@pytest.mark.parametrize(
    ("driver", "reason", "message"),
    [
        (Again(0.0, 1.0, 2.0), Reason.VALUE, THIRD),
        (Again(0.0, 1.0, 2.0, reason=Reason.NONDETERMINISTIC), Reason.NONDETERMINISTIC, THIRD),
        (Again(2.0, first=1.0, reason=Reason.NONDETERMINISTIC), Reason.VALUE, "out: 4 of 4"),
    ],
)
def test_first_violation_is_the_verdict(driver: Again, reason: Reason, message: str) -> None:
    verdict = verdict_of(driver)
    assert (verdict.status, verdict.reason) == (Status.FAILED, reason)
    assert verdict.message.startswith(message)
    assert verdict.measures[0].mismatched == 4


def test_further_output_of_unknown_name_is_extra() -> None:
    assert verdict_of(Again(0.0, output="other")).reason is Reason.EXTRA_OUTPUT


@pytest.mark.parametrize(
    ("error", "reason"), [(ZeroDivisionError(), Reason.RAISED), (Fault(Reason.STATE, "no"), Reason.STATE)]
)
def test_error_in_further_blames_driver(error: Exception, reason: Reason) -> None:
    class Breaks(Again):
        def further(self, case: TestCase) -> Sequence[ExtraOutput]:
            raise error

    assert verdict_of(Breaks()).reason is reason
