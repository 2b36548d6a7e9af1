"""An answer to other inputs than the case's is judged by what the reference expects for these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from optest.backends import BackendDriver, FurtherAnswer
from optest.core.runner import execute
from optest.operators import operators
from optest.spec import Argument, Fill, Reason, Status, TensorSpec, TestCase, Verdict, dtype

OTHER = np.full(5, 3.0, np.float32)


class Asked(BackendDriver):
    """Doubles, and says that it was asked with other values, too, for which ``answer`` came."""

    name = kind = "asked-again"

    def __init__(self, answer: float, known: Sequence[Any] | None = None) -> None:
        self._answer = answer
        self._known = known

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Any:
        return [inputs[0] * inputs[1]]

    def golden(self, case: TestCase) -> Sequence[Any] | None:
        return self._known

    def further(self, case: TestCase) -> Sequence[FurtherAnswer]:
        outputs = [np.full(5, self._answer, np.float32)]
        return [FurtherAnswer(outputs=outputs, how="with threes", reason=Reason.STATE, inputs={"input": OTHER})]


def judged(driver: BackendDriver, **further: Any) -> Verdict:
    spec, ones, twos = TensorSpec(dtype=dtype("float32"), shape=(5,)), Fill(kind="ones"), [2.0] * 5
    inputs = (
        Argument(name="input", path="input0", spec=spec, fill=ones),
        Argument(name="other", path="input1", spec=spec, fill=Fill(kind="data", parameters={"values": twos})),
    )
    return execute([TestCase(descriptor=operators.get("mul"), inputs=inputs, **further)], driver).verdicts[0]


def test_the_right_answer_to_other_inputs_passes() -> None:
    assert judged(Asked(6.0)).status is Status.PASSED


def test_the_answer_of_the_cases_own_inputs_is_a_failure_there() -> None:
    found = judged(Asked(2.0))
    assert (found.status, found.reason) == (Status.FAILED, Reason.STATE), found
    assert found.message.startswith("with threes: out: 5 of 5 elements are off")


def of_ones_alone(inputs: Sequence[Any], attributes: Any) -> Any:
    if inputs[0][0] != 1:
        raise ValueError("these values alone")
    return [inputs[0] * np.float64(2.0)]


@pytest.mark.parametrize("refuses", [False, True])
def test_nothing_is_said_where_nobody_knows_what_is_right(refuses: bool) -> None:
    """A reference may refuse the other values, and a backend may keep what it expects for the case's own alone."""
    own = [np.full(5, 2.0, np.float32)]
    found = judged(Asked(-1.0), reference=of_ones_alone) if refuses else judged(Asked(-1.0, known=own))
    assert found.status is Status.PASSED, found
