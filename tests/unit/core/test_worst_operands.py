"""A wrong result of an elementwise operator is told with what it was made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from optest.api import cases
from optest.backends import BackendDriver, FurtherAnswer
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

    def further(self, case: TestCase) -> Sequence[FurtherAnswer]:
        if self.later is None:
            return []
        other = np.asarray(self.later, dtype=np.float32)
        return [FurtherAnswer(outputs={"out": other}, how="in call 2", inputs={"input": other})]


Judge = Callable[..., Verdict]


@pytest.fixture
def judged(tmp_path: Path) -> Judge:
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


def test_the_operand_of_a_wrong_result_is_told(judged: Judge) -> None:
    verdict = judged(Device(np.sign), "sign", [1.0, -2.0, NAN])
    assert verdict.reason is Reason.NAN
    assert verdict.details["operands_there"] == "input nan"


def test_each_operand_is_told_as_it_is_broadcast(judged: Judge) -> None:
    def wrong(left: Any, right: Any) -> Any:
        return left / right + np.asarray([[0, 0, 0], [0, 1, 0]], np.float32)

    verdict = judged(Device(wrong), "div", [[2.0], [6.0]], [3.0, 4.0, 5.0])
    assert verdict.details["operands_there"] == "input 6.0, other 4.0"


def test_numbers_have_the_digits_of_their_dtype(judged: Judge) -> None:
    verdict = judged(Device(lambda x: np.exp(x) + np.float16(1)), "exp", [0.1], dtype="float16")
    assert verdict.details["operands_there"] == "input 0.1"


def told(verdict: Verdict) -> str:
    return str(verdict.details.get("definition", ""))


def test_the_operator_says_what_it_is_where_a_number_does_not(judged: Judge) -> None:
    assert "0 for NaN" in told(judged(Device(np.sign), "sign", [1.0, NAN]))
    assert "Largest element" in told(judged(Device(np.fmax.reduce), "amax", [1.0, NAN]))
    assert "uint8 for uint8" in told(judged(Device(np.all), "all", [0, 1], dtype="uint8"))
    assert "give 0" in told(judged(Device(lambda x, y: x + y), "pow", [2, 3], [-1, 2], dtype="int32"))


def test_a_number_that_is_off_has_no_definition_beside_it(judged: Judge) -> None:
    wrong = judged(Device(lambda x: np.exp(x) + np.float32(1)), "exp", [1.0, 2.0])
    assert wrong.reason is Reason.VALUE
    assert not told(wrong)
    assert not told(judged(Device(lambda x: x.astype(np.float64)), "exp", [1.0, 2.0]))
    assert not told(judged(Device(np.abs), "abs", [1.0, -2.0]))


def test_a_pass_is_told_nothing_of(judged: Judge) -> None:
    assert "operands_there" not in judged(Device(np.abs), "abs", [1.0, -2.0]).details


def test_a_further_answer_is_told_with_its_own_inputs(judged: Judge) -> None:
    verdict = judged(Device(np.exp, later=[5.0, 5.0]), "exp", [1.0, 2.0])
    assert verdict.details["operands_there"] == "input 5.0"


def test_sums_and_halves_have_no_operand_at_that_place(judged: Judge) -> None:
    rows = [[1.0, 2.0], [3.0, 4.0]]
    summed = judged(Device(lambda x: x.sum(1) + 1), "sum", rows, attributes={"dim": 1})
    halves = judged(Device(lambda x: x[:, :1]), "swiglu", rows)
    for verdict in (summed, halves):
        assert verdict.reason is Reason.VALUE
        assert "operands_there" not in verdict.details
