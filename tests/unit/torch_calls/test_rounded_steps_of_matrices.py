"""What sums of products, LAPACK and recurrences lose on the way is no multiple of each element of their results."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from optest.torch.calls.rounded_steps import RoundedSteps  # noqa: E402

pytestmark = pytest.mark.torch

SINGLE, HALF = 2.0**-24, 2.0**-11


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
