"""A wrong result of an elementwise operator is reported with its operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from core_kit import Calls, Kernel

from optest.backends import ExtraOutput
from optest.spec import Reason, TestCase, Verdict

NAN = float("nan")


class Device(Calls):
    def __init__(self, kernel: Kernel, *, later: Sequence[Any] | None = None) -> None:
        super().__init__(kernel)
        self.later = later

    def further(self, case: TestCase) -> Sequence[ExtraOutput]:
        if self.later is None:
            return []
        other = np.asarray(self.later, dtype=np.float32)
        return [ExtraOutput(outputs={"out": other}, how="in call 2", inputs={"input": other})]


Judge = Callable[..., Verdict]


def test_the_operand_of_a_wrong_result_is_told(verdict_of: Judge) -> None:
    verdict = verdict_of(Device(np.sign), "sign", [1.0, -2.0, NAN])
    assert verdict.reason is Reason.NAN
    assert verdict.details["operands_there"] == "input nan"


def test_each_operand_is_told_as_it_is_broadcast(verdict_of: Judge) -> None:
    def wrong(left: Any, right: Any) -> Any:
        return left / right + np.asarray([[0, 0, 0], [0, 1, 0]], np.float32)

    verdict = verdict_of(Device(wrong), "div", [[2.0], [6.0]], [3.0, 4.0, 5.0])
    assert verdict.details["operands_there"] == "input 6.0, other 4.0"


def test_numbers_have_the_digits_of_their_dtype(verdict_of: Judge) -> None:
    verdict = verdict_of(Device(lambda x: np.exp(x) + np.float16(1)), "exp", [0.1], dtypes="float16")
    assert verdict.details["operands_there"] == "input 0.1"


def operands_of(verdict: Verdict) -> str:
    return str(verdict.details.get("definition", ""))


def test_definition_is_shown_if_numbers_do_not_explain(verdict_of: Judge) -> None:
    assert "0 for NaN" in operands_of(verdict_of(Device(np.sign), "sign", [1.0, NAN]))
    assert "Largest element" in operands_of(verdict_of(Device(np.fmax.reduce), "amax", [1.0, NAN]))
    assert "uint8 for uint8" in operands_of(verdict_of(Device(np.all), "all", [0, 1], dtypes="uint8"))
    assert "give 0" in operands_of(verdict_of(Device(lambda x, y: x + y), "pow", [2, 3], [-1, 2], dtypes="int32"))


def test_numeric_error_has_no_definition(verdict_of: Judge) -> None:
    wrong = verdict_of(Device(lambda x: np.exp(x) + np.float32(1)), "exp", [1.0, 2.0])
    assert wrong.reason is Reason.VALUE
    assert not operands_of(wrong)
    assert not operands_of(verdict_of(Device(lambda x: x.astype(np.float64)), "exp", [1.0, 2.0]))
    assert not operands_of(verdict_of(Device(np.abs), "abs", [1.0, -2.0]))


def test_a_pass_is_told_nothing_of(verdict_of: Judge) -> None:
    assert "operands_there" not in verdict_of(Device(np.abs), "abs", [1.0, -2.0]).details


def test_further_outputs_report_their_inputs(verdict_of: Judge) -> None:
    verdict = verdict_of(Device(np.exp, later=[5.0, 5.0]), "exp", [1.0, 2.0])
    assert verdict.details["operands_there"] == "input 5.0"


def test_sums_have_no_single_worst_operand(verdict_of: Judge) -> None:
    rows = [[1.0, 2.0], [3.0, 4.0]]
    summed = verdict_of(Device(lambda x: x.sum(1) + 1), "sum", rows, attributes={"dim": 1})
    halves = verdict_of(Device(lambda x: x[:, :1]), "swiglu", rows)
    for verdict in (summed, halves):
        assert verdict.reason is Reason.VALUE
        assert "operands_there" not in verdict.details
