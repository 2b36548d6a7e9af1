"""What becomes of numbers that an integer dtype does not hold is left open by torch; all others have one answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_kit import Outputs, Wrong, case, element, tensor, verdict

from optest.spec import Reason, Status

pytestmark = pytest.mark.torch

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
