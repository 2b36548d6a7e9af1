"""What torch leaves undefined has several right answers: collided writes, conversions out of range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from torch_kit import Outputs, Wrong, case, element, tensor, verdict

from optest.core.runner import execute
from optest.spec import Reason, Status, TestCase, Verdict
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch

ROWS, MORE = tensor((3, 4)), tensor((5, 4))
TWICE = tensor(5, "int64", "data", values=[2, 0, 2, -3, 1])
TWICE_EACH = tensor((5, 4), "int64", "data", values=[[2] * 4, [0] * 4, [2] * 4, [0] * 4, [1] * 4])
ONCE = tensor(3, "int64", "data", values=[2, 0, 1])
PUT = "torch.index_put(input0, (input1,), input2)"
CALLS = [
    (PUT, TWICE),
    ("torch.index_put_(input0, (input1,), input2)", TWICE),
    ("torch.ops.aten.index_put.default(input0, [input1], input2)", TWICE),
    ("torch.setitem(input0, input1, input2)", TWICE),
    ("torch.setitem(input0, (input1, slice(None)), input2)", TWICE),
    ("torch.scatter(input0, 0, input1, input2)", TWICE_EACH),
    ("torch.Tensor.scatter_(input0, 0, input1, src=input2)", TWICE_EACH),
]


class FirstStays(TorchBackend):
    """Writes the values the other way round; ``harm`` changes what it then has."""

    def __init__(self, harm: float = 0.0) -> None:
        super().__init__()
        self._harm = harm

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        target, places, values = inputs
        backwards = [target, np.ascontiguousarray(places[::-1]), np.ascontiguousarray(values[::-1])]
        found = super().run(case, backwards)
        for each in found:
            each[2, 1] += self._harm
        return found


def judged(asked: TestCase, driver: TorchBackend) -> Verdict:
    return execute([asked], driver).verdicts[0]


@pytest.mark.parametrize(("text", "places"), CALLS)
def test_any_of_the_values_may_stay(text: str, places: Any) -> None:
    asked = case(text, ROWS, places, MORE)
    assert judged(asked, TorchBackend()).status is Status.PASSED
    assert judged(asked, FirstStays()).status is Status.PASSED
    assert judged(asked, FirstStays(harm=0.25)).status is Status.FAILED


def test_index_copy_may_keep_any() -> None:
    class Dropped(TorchBackend):
        def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
            return [inputs[0].copy()]

    twice = tensor(5, "int64", "data", values=[2, 0, 2, 0, 1])
    asked = case("torch.index_copy(input0, 0, input1, input2)", ROWS, twice, MORE)
    assert judged(asked, FirstStays()).status is Status.PASSED
    assert judged(asked, Dropped()).status is Status.FAILED


def test_what_is_added_up_counts_whole() -> None:
    class LastAlone(TorchBackend):
        def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
            found = inputs[0].copy()
            found[inputs[1]] = inputs[2]
            return [found]

    added = case(f"{PUT[:-1]}, accumulate=True)", ROWS, TWICE, MORE)
    assert judged(added, LastAlone()).status is Status.FAILED


def test_one_value_for_each_place_has_to_stand_there() -> None:
    class Turned(TorchBackend):
        def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
            return super().run(case, [inputs[0], inputs[1], np.ascontiguousarray(inputs[2][::-1])])

    assert judged(case(PUT, ROWS, ONCE, ROWS), TorchBackend()).status is Status.PASSED
    assert judged(case(PUT, ROWS, ONCE, ROWS), Turned()).status is Status.FAILED


@pytest.mark.parametrize("text", ["torch.setitem(input0, input1, 7)", "torch.setitem(input0, input1, 7.0)"])
def test_a_number_at_one_place_twice_has_to_stand_there(text: str) -> None:
    class Missed(TorchBackend):
        def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
            found = super().run(case, inputs)
            for each in found:
                each[2, 1] = 6.0
            return found

    asked = case(text, ROWS, TWICE)
    assert judged(asked, TorchBackend()).status is Status.PASSED
    assert judged(asked, Missed()).status is Status.FAILED


BYTES = "torch.Tensor.to(input0, torch.int8)"
SOME = [1.5, 127.9, 128.0, -128.9, -129.0, float("nan"), float("inf"), 3e9]
WITHIN = (0, 1, 3)


def of(values: list[float], kind: str = "float32") -> Any:
    return tensor(len(values), kind, "data", values=values)


@pytest.mark.parametrize("place", range(len(SOME)))
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_only_numbers_that_fit_have_one_answer(place: int, kind: str) -> None:
    values = SOME if kind == "float32" else [1.5, 127.0, 128.0, -128.0, -129.0, *SOME[5:]]
    found = verdict(case(BYTES, of(values, kind)), element(place, lambda was: was ^ 5))
    if place in WITHIN:
        assert found.reason is Reason.VALUE, found
        assert "1 of 8 elements is off" in found.message
    else:
        assert found.status is Status.PASSED, found


@pytest.mark.parametrize(
    "text", ["torch.Tensor.long(input0)", "torch.ops.aten._to_copy.default(input0, dtype=torch.int64)"]
)
def test_the_largest_integers_are_not_held_by_a_float(text: str) -> None:
    last = case(text, of([1.0, 2.0**63, -(2.0**63)]))
    assert verdict(last, element(1, lambda was: was ^ 1)).status is Status.PASSED
    assert verdict(last, element(2, lambda was: was ^ 1)).reason is Reason.VALUE


def test_a_pass_where_no_number_fits_is_suspect() -> None:
    def zeros(outputs: Outputs) -> Outputs:
        return [np.zeros_like(each) for each in outputs]

    found = verdict(case(BYTES, of([300.0, -1000.0])), Wrong(zeros))
    assert found.status is Status.SUSPECT, found
    assert found.message.startswith("output0: no number lies within int8, and torch leaves open what becomes of others")


def test_integers_and_bool_have_one_answer() -> None:
    wide = tensor(2, "int64", "data", values=[300, 1])
    assert verdict(case(BYTES, wide), element(0, lambda was: was ^ 1)).reason is Reason.VALUE
    truth = case("torch.Tensor.bool(input0)", of([300.0, 0.0]))
    assert verdict(truth, element(0, lambda was: not was)).reason is Reason.VALUE
