"""What roundings of the inputs and steps allow is asked of each element: a large neighbour excuses nothing."""

from __future__ import annotations

import numpy as np
import pytest
from torch_kit import Wrong, case, element, tensor, verdict, zeros

from optest.spec import Reason, Status, TestCase

pytestmark = pytest.mark.torch

POWERS = case("torch.exp2(input0)", tensor(60, fill="arange"))
PRODUCTS = case("torch.cumprod(input0, 0)", tensor(60, fill="uniform", low=1.5, high=2.5))


@pytest.mark.parametrize("of", [POWERS, PRODUCTS], ids=["exp2", "cumprod"])
@pytest.mark.parametrize("place", [0, 1, 20, 59])
def test_one_wrong_element_beside_much_larger_ones_is_found(of: TestCase, place: int) -> None:
    """The largest is 2^59, and a rounding of it is as large as the element 2^35."""
    assert verdict(of).status is Status.PASSED
    found = verdict(of, element(place, lambda value: value * 2))
    assert found.reason is Reason.VALUE, found


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    "text",
    [
        "torch.nn.functional.tanhshrink(input0)",
        "torch.nn.functional.binary_cross_entropy_with_logits(input0, input1, reduction='none')",
        "torch.nn.functional.poisson_nll_loss(input0, input1, reduction='none')",
        "torch.nn.functional.interpolate(input0, size=[7, 8], mode='bicubic')",
        "torch.nn.functional.grid_sample(input0, input2, align_corners=False)",
    ],
)
def test_terms_that_cancel_on_the_way_leave_what_was_rounded(text: str, kind: str) -> None:
    """``x - tanh(x)`` of a small x in 16 bits: tanh(x) is rounded, and more is not left."""
    pictures, places = tensor((2, 3, 8, 9), kind), tensor((2, 5, 6, 2), kind, "uniform", low=-0.9, high=0.9)
    shown = (pictures, tensor((2, 3, 8, 9), kind, "uniform", low=0.1, high=1.0), places)
    found = verdict(case(text, *shown[: 1 + sum(f"input{number}" in text for number in (1, 2)) * 2]))
    assert found.status is Status.PASSED, found


def test_what_a_rounding_of_a_step_does_not_explain_is_wrong() -> None:
    of = case("torch.nn.functional.tanhshrink(input0)", tensor(200, "bfloat16"))
    assert verdict(of, Wrong(lambda outputs: [outputs[0] * outputs[0].dtype.type(1.2)])).reason is Reason.VALUE


def test_answers_that_any_number_would_pass_for_are_suspect() -> None:
    """One rounding of 1e8 is a whole period."""
    of = case("torch.special.bessel_j0(input0)", tensor(50, fill="uniform", low=1e8, high=2e8))
    assert verdict(of, zeros()).status is Status.SUSPECT
    found = verdict(of, Wrong(lambda outputs: [-outputs[0]]))
    assert found.status is Status.SUSPECT
    assert "any answer between passes there" in found.message


def test_beside_a_jump_one_of_its_sides_is_right_and_what_lies_between_is_doubted() -> None:
    of = case("torch.frac(input0)", tensor(60, fill="arange", start=1))
    assert verdict(of).status is Status.PASSED
    half = verdict(of, Wrong(lambda outputs: [outputs[0] + np.float32(0.5)]))
    assert (half.status, "60 of 60 elements jump" in half.message) == (Status.SUSPECT, True)
    assert verdict(of, Wrong(lambda outputs: [outputs[0] + np.float32(20)])).reason is Reason.VALUE


def test_results_that_are_all_noise_are_suspect() -> None:
    """Differences of numbers that are one rounding apart: zeros are as good an answer."""
    of = case("torch.sinc(input0)", tensor(40, fill="data", values=[float(1 << 20)] * 40))
    assert verdict(of).status in (Status.PASSED, Status.SUSPECT)
    assert verdict(of, Wrong(lambda outputs: [outputs[0] * 3 + np.float32(1e-8)])).status is not Status.PASSED
