"""Below the normal numbers of a dtype a step is off by half of its smallest number, and by no share of itself."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")


from torch_kit import Wrong, case, element, tensor, verdict, zeros  # noqa: E402

from optest.spec import Reason, Status  # noqa: E402
from optest.torch.calls.rounded_steps import RoundedSteps  # noqa: E402

pytestmark = pytest.mark.torch

SINGLE, LEAST = 2.0**-24, 2.0**-150


def off(value: float, least: float = LEAST) -> float:
    """How far a product is off at most, of nine draws, in halves of float32's smallest number."""
    exact = torch.tensor([value], dtype=torch.float64)
    found = []
    for time in range(9):
        with RoundedSteps(SINGLE, str(time), takes_apart=False, least=least):
            made = exact * 1.0
        found.append(abs(made.item() - value))
    return max(found) / LEAST


@pytest.mark.parametrize("value", [1.1e-40, 1e-42 / 3.0, -1.1e-40])
def test_a_tiny_number_is_off_by_half_of_the_smallest(value: float) -> None:
    assert 0.5 <= off(value) <= 1.5
    assert off(value, least=0.0) <= 2.0 * SINGLE * abs(value) / LEAST


@pytest.mark.parametrize("value", [0.0, 2.0**-149, -3.0 * 2.0**-149, 2.0**-126, 1.5 * 2.0**-130, 1.0])
def test_what_the_dtype_holds_is_not_off(value: float) -> None:
    assert off(value) == 0.0


@pytest.mark.parametrize("value", [1e-60, 1e-290])
def test_what_is_lost_altogether_is_off_by_all_that_it_is(value: float) -> None:
    assert 0.0 < off(value) <= 1.5 * value / LEAST


def test_numbers_that_are_not_tiny_are_off_by_what_they_were() -> None:
    assert off(1.0 / 3.0) == off(1.0 / 3.0, least=0.0) > 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("torch.nn.functional.normalize(input0, eps=0.0)", 1),
        ("torch.nn.functional.cosine_similarity(input0, input1, eps=1e-45)", 2),
    ],
)
def test_sums_of_tiny_squares_lose_what_torch_loses_and_no_more(text: str, count: int) -> None:
    """Squares of 1e-21 have three digits in float32, and results around 1 do not have more."""
    of = case(text, *[tensor((5, 4), fill="uniform", low=1e-21, high=2e-21)] * count)
    found = verdict(of)
    assert found.status is Status.PASSED, found
    for wrong in (
        zeros(),
        element(3, lambda _: 0.0),
        Wrong(lambda outputs: [outputs[0] * np.float32(1.001)]),
        Wrong(lambda outputs: [-outputs[0]]),
        Wrong(lambda outputs: [outputs[0][::-1].copy()]),
    ):
        assert verdict(of, wrong).reason is Reason.VALUE
