"""A wrong result of an elementwise operator is reported with its operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from optest.api import cases
from optest.backends import BackendDriver, ExtraOutput
from optest.core.runner import execute
from optest.spec import Reason, TestCase, Verdict

NAN = float("nan")


class Device(BackendDriver):
    name, kind = "device", "cpu"

    def __init__(self, function: Callable[..., Any], *, later: Sequence[Any] | None = None) -> None:
        self.function, self.later = function, later

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Mapping[str, Any]:
        with np.errstate(all="ignore"):
            return {"out": self.function(*inputs)}

    def further(self, case: TestCase) -> Sequence[ExtraOutput]:
        if self.later is None:
            return []
        other = np.asarray(self.later, dtype=np.float32)
        return [ExtraOutput(outputs={"out": other}, how="in call 2", inputs={"input": other})]


Judge = Callable[..., Verdict]


@pytest.fixture
def verdict_of(tmp_path: Path) -> Judge:
    def judge(driver: BackendDriver, op: str, *values: Any, dtype: str = "float32", **more: Any) -> Verdict:
        names = [f"input{index}" for index in range(len(values))]
        data = {name: {"fill": "data", "values": each} for name, each in zip(names, values, strict=True)}
        shapes = {name: list(np.shape(each)) for name, each in zip(names, values, strict=True)}
        plan = tmp_path / "plan.yaml"
        entry = {"op": op, "dtypes": dtype, "shapes": shapes, "generator": data, **more}
        plan.write_text(yaml.safe_dump({"version": 1, "cases": [entry]}))
        (case,) = cases(plan=str(plan))
        return execute([case], driver).verdicts[0]

    return judge


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
    verdict = verdict_of(Device(lambda x: np.exp(x) + np.float16(1)), "exp", [0.1], dtype="float16")
    assert verdict.details["operands_there"] == "input 0.1"


def operands_of(verdict: Verdict) -> str:
    return str(verdict.details.get("definition", ""))


def test_definition_is_shown_if_numbers_do_not_explain(verdict_of: Judge) -> None:
    assert "0 for NaN" in operands_of(verdict_of(Device(np.sign), "sign", [1.0, NAN]))
    assert "Largest element" in operands_of(verdict_of(Device(np.fmax.reduce), "amax", [1.0, NAN]))
    assert "uint8 for uint8" in operands_of(verdict_of(Device(np.all), "all", [0, 1], dtype="uint8"))
    assert "give 0" in operands_of(verdict_of(Device(lambda x, y: x + y), "pow", [2, 3], [-1, 2], dtype="int32"))


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
