"""What sums of products, LAPACK, recurrences and tiny numbers lose on the way is no multiple of each element."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_kit import Wrong, case, element, tensor, verdict, zeros  # noqa: E402

from optest.spec import Reason, Status  # noqa: E402
from optest.torch.calls.rounded_steps import RoundedSteps  # noqa: E402

pytestmark = pytest.mark.torch

SINGLE, HALF, LEAST = 2.0**-24, 2.0**-11, 2.0**-150


def double(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def off(call: object, unit: float) -> torch.Tensor:
    """How far the call is off, the farthest of nine draws."""
    exact = call()  # type: ignore[operator]
    found = []
    for time in range(9):
        with RoundedSteps(unit, str(time), takes_apart=False):
            found.append((call() - exact).abs())  # type: ignore[operator]
    return torch.stack(found).amax(0)


@pytest.mark.parametrize(("unit", "term"), [(SINGLE, SINGLE), (HALF, SINGLE)])
def test_products_that_cancel_leave_roundings_of_products(unit: float, term: float) -> None:
    """1000·1000.1 and as much less: the sum is 0.1 and knows what float32 knows of a million."""
    left, right = double([1000.0, -1000.0]), double([1000.1], [1000.0])
    (lost,) = off(lambda: left @ right, unit).flatten().tolist()
    assert lost >= 0.5 * term * 1e6
    assert lost <= 3.0 * (term * 1.5e6 + unit * 100.0)


def test_a_small_element_of_an_inverse_is_off_by_roundings_of_the_largest() -> None:
    matrix = double([1.0, 1e-6], [0.0, 1.0])
    lost = off(lambda: torch.linalg.pinv(matrix), SINGLE)
    assert lost[0, 1] >= 0.5 * SINGLE
    assert lost.max() <= 4.0 * SINGLE


def test_elements_of_other_results_are_off_by_roundings_of_their_own() -> None:
    values = double([1.0 / 3.0, 1e-6 / 3.0])
    lost = off(lambda: values.exp() - 1.0, SINGLE)
    assert off(lambda: values.tan(), SINGLE)[0, 1] <= 2.0 * SINGLE * 1e-6
    assert lost[0, 0] > 0.0


def test_a_recurrence_rounds_once_a_step() -> None:
    moments = 64
    probabilities = torch.full((moments, 1, 3), 1.0 / 3.0, dtype=torch.float64).log()
    lengths = (torch.tensor([moments]), torch.tensor([2]))

    def loss() -> torch.Tensor:
        return torch.nn.functional.ctc_loss(probabilities, torch.tensor([[1, 2]]), *lengths, reduction="none")

    relative = (off(loss, SINGLE) / loss().abs()).item() / SINGLE
    assert 4.0 <= relative <= 16.0


# Below the normal numbers of a dtype a step is off by half of its smallest number, and by no share of itself.


def off_tiny(value: float, least: float = LEAST) -> float:
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
    assert 0.5 <= off_tiny(value) <= 1.5
    assert off_tiny(value, least=0.0) <= 2.0 * SINGLE * abs(value) / LEAST


@pytest.mark.parametrize("value", [0.0, 2.0**-149, -3.0 * 2.0**-149, 2.0**-126, 1.5 * 2.0**-130, 1.0])
def test_what_the_dtype_holds_is_not_off_tiny(value: float) -> None:
    assert off_tiny(value) == 0.0


@pytest.mark.parametrize("value", [1e-60, 1e-290])
def test_what_is_lost_altogether_is_off_by_all_that_it_is(value: float) -> None:
    assert 0.0 < off_tiny(value) <= 1.5 * value / LEAST


def test_numbers_that_are_not_tiny_are_off_by_what_they_were() -> None:
    assert off_tiny(1.0 / 3.0) == off_tiny(1.0 / 3.0, least=0.0) > 0.0


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
