"""What roundings of inputs and steps allow is asked of each element, and a pass that shows nothing is doubted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from texts import says
from torch_kit import Wrong, case, element, fails, passes, separates, tensor, verdict, zeros

from optest.spec import Status, TestCase
from optest.torch.calls.rounded_steps import RoundedSteps

POWERS = case("torch.exp2(input0)", tensor(60, fill="arange"))
PRODUCTS = case("torch.cumprod(input0, 0)", tensor(60, fill="uniform", low=1.5, high=2.5))


@pytest.mark.parametrize("of", [POWERS, PRODUCTS], ids=["exp2", "cumprod"])
@pytest.mark.parametrize("place", [0, 1, 20, 59])
def test_wrong_element_among_larger_ones_fails(of: TestCase, place: int) -> None:
    """The largest is 2^59, and a rounding of it is as large as the element 2^35."""
    separates(of, element(place, lambda value: value * 2))


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
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
def test_cancellation_leaves_rounding_errors(text: str, kind: str) -> None:
    """``x - tanh(x)`` of a small x in 16 bits: tanh(x) is rounded, and more is not left."""
    pictures, places = tensor((2, 3, 8, 9), kind), tensor((2, 5, 6, 2), kind, "uniform", low=-0.9, high=0.9)
    shown = (pictures, tensor((2, 3, 8, 9), kind, "uniform", low=0.1, high=1.0), places)
    passes(case(text, *shown[: 1 + sum(f"input{number}" in text for number in (1, 2)) * 2]))


def plus(difference: float) -> Wrong:
    return Wrong(lambda outputs: [np.asarray(outputs[0] + outputs[0].dtype.type(difference))])


def times(factor: float) -> Wrong:
    return Wrong(lambda outputs: [outputs[0] * outputs[0].dtype.type(factor)])


def is_suspect(of: TestCase, driver: Wrong) -> str:
    """Return the message of the verdict."""
    found = verdict(of, driver)
    assert found.status is Status.SUSPECT, found
    return found.message


def test_error_beyond_step_rounding_fails() -> None:
    fails(case("torch.nn.functional.tanhshrink(input0)", tensor(200, "bfloat16")), times(1.2))


def test_undecidable_results_are_suspect() -> None:
    """One rounding of 1e8 is a whole period."""
    of = case("torch.special.bessel_j0(input0)", tensor(50, fill="uniform", low=1e8, high=2e8))
    is_suspect(of, zeros())
    assert says(is_suspect(of, times(-1)), "torch_calls.any_output_between_passes")


def test_value_between_sides_of_jump_is_doubted() -> None:
    of = case("torch.frac(input0)", tensor(60, fill="arange", start=1))
    separates(of, plus(20))
    assert "60 of 60 elements jump" in is_suspect(of, plus(0.5))


def test_results_that_are_all_noise_are_suspect() -> None:
    """Differences of numbers that are one rounding apart: zeros are as good an answer."""
    of = case("torch.sinc(input0)", tensor(40, fill="data", values=[float(1 << 20)] * 40))
    assert verdict(of).status in (Status.PASSED, Status.SUSPECT)
    assert verdict(of, Wrong(lambda outputs: [outputs[0] * 3 + np.float32(1e-8)])).status is not Status.PASSED


def data(shape: tuple[int, ...], kind: str, values: Sequence[float]) -> Any:
    return tensor(shape, kind, "data", values=np.array(values).reshape(shape).tolist())


LABELS = data((5, 5), "bfloat16", [1.0, -1.0, 1.0, 1.0, -1.0] * 5)


HINGE = case(
    "torch.nn.functional.hinge_embedding_loss(input0, input1, margin=5.108374602625908, reduction='none')",
    tensor((5, 5), "bfloat16", "uniform", low=4.5, high=5.5),
    LABELS,
)


def test_a_label_that_decides_is_no_measured_number() -> None:
    """A label that is a rounding off is none, and every element would leap."""
    separates(HINGE, times(0.5))
    is_suspect(HINGE, element(1, lambda _: 20.0))


def mean(shape: tuple[int, int], logarithms: Sequence[float], classes: Sequence[int]) -> TestCase:
    """Three of the logarithms are chosen, and add up to nearly nothing."""
    text = "torch.nn.functional.nll_loss(input0, input1)"
    return case(text, data(shape, "bfloat16", logarithms), data((3,), "int64", classes))


CANCELS = mean((3, 3), [5.3125, 1.0, -8.0, 2.0, -7.21875, -3.0, 6.0, 4.0, 1.921875], [0, 1, 2])
ONE_CLASS = mean((3, 1), [5.3125, -7.21875, 1.890625], [0, 0, 0])


def test_cancelled_terms_have_to_be_small() -> None:
    passes(CANCELS, plus(0.01))
    fails(CANCELS, plus(0.5))


def test_what_no_other_inputs_change_either_stays_doubted() -> None:
    """Wherever its elements stand the sum is the same, so nothing says that it was looked at."""
    is_suspect(ONE_CLASS, plus(0.03))


@pytest.mark.parametrize(("answer", "status"), [(0.007, Status.PASSED), (0.01, Status.SUSPECT), (0.0, Status.SUSPECT)])
def test_result_within_half_of_value_is_not_doubted(answer: float, status: Status) -> None:
    """The truth is 1/192; 8 roundings of the terms are more than that."""
    found = verdict(ONE_CLASS, Wrong(lambda outputs: [np.full_like(outputs[0], answer)]))
    assert found.status is status, found


@pytest.mark.parametrize(
    ("text", "given", "kind", "grad"),
    [
        ("torch.linspace(input0, -3, 50, dtype=torch.{})", ("float32", [4.3]), "float16", False),
        ("torch.linspace(input0, -3, 50, dtype=torch.{})", ("float32", [4.3]), "bfloat16", True),
        ("torch.linspace(4.3, input0, 50, dtype=torch.{})", ("int64", [-3]), "bfloat16", False),
    ],
)
def test_explicit_dtype_rounds_intermediate_values(
    text: str, given: tuple[str, list[float]], kind: str, grad: bool
) -> None:
    """Near the middle, where end and start cancel, steps in 16 bits are far off; torch documents that it takes them."""
    of = case(text.format(kind), data((), *given), grad=grad)
    separates(of, element(0, lambda value: value * value.dtype.type(1.1)))
    assert verdict(of, zeros()).reason is not None


def test_gradient_of_sign_is_readable() -> None:
    separates(case("torch.sgn(input0)", tensor((3, 4)), grad=True), element(0, lambda _: 1.0, output=2))


# What sums of products, LAPACK, recurrences and tiny numbers lose on the way is no multiple of each element.


SINGLE, HALF, LEAST = 2.0**-24, 2.0**-11, 2.0**-150


def double(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def off(call: Callable[[], torch.Tensor], unit: float, least: float = 0.0) -> torch.Tensor:
    """How far the call is off, the farthest of nine draws."""
    exact, found = call(), []
    for time in range(9):
        with RoundedSteps(unit, str(time), takes_apart=False, least=least):
            rounded = call()
        found.append((rounded - exact).abs())
    return torch.stack(found).amax(0)


@pytest.mark.parametrize("unit", [SINGLE, HALF])
def test_products_that_cancel_leave_roundings_of_products(unit: float) -> None:
    """1000·1000.1 and as much less: the sum is 0.1 and knows what float32 knows of a million."""
    left, right = double([1000.0, -1000.0]), double([1000.1], [1000.0])
    (lost,) = off(lambda: left @ right, unit).flatten().tolist()
    assert 0.5 * SINGLE * 1e6 <= lost <= 3.0 * (SINGLE * 1.5e6 + unit * 100.0)


def test_small_inverse_element_has_error_of_largest() -> None:
    matrix = double([1.0, 1e-6], [0.0, 1.0])
    lost = off(lambda: torch.linalg.pinv(matrix), SINGLE)
    assert lost[0, 1] >= 0.5 * SINGLE
    assert lost.max() <= 4.0 * SINGLE


def test_elements_of_other_results_have_own_error() -> None:
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
    return off(lambda: exact * 1.0, SINGLE, least).item() / LEAST


@pytest.mark.parametrize("value", [1.1e-40, 1e-42 / 3.0, -1.1e-40])
def test_subnormal_error_is_half_smallest_number(value: float) -> None:
    assert 0.5 <= off_tiny(value) <= 1.5
    assert off_tiny(value, least=0.0) <= 2.0 * SINGLE * abs(value) / LEAST


def test_other_tiny_numbers_keep_their_error() -> None:
    """The dtype holds the first, so they are not off; a value that underflows is off by itself at most."""
    for value in (0.0, 2.0**-149, -3.0 * 2.0**-149, 2.0**-126, 1.5 * 2.0**-130, 1.0):
        assert (value, off_tiny(value)) == (value, 0.0)
    for value in (1e-60, 1e-290):
        assert 0.0 < off_tiny(value) <= 1.5 * value / LEAST, value
    assert off_tiny(1.0 / 3.0) == off_tiny(1.0 / 3.0, least=0.0) > 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("torch.nn.functional.normalize(input0, eps=0.0)", 1),
        ("torch.nn.functional.cosine_similarity(input0, input1, eps=1e-45)", 2),
    ],
)
def test_tiny_square_sums_lose_as_in_torch(text: str, count: int) -> None:
    """Squares of 1e-21 have three digits in float32, and results around 1 do not have more."""
    of = case(text, *[tensor((5, 4), fill="uniform", low=1e-21, high=2e-21)] * count)
    passes(of)
    for wrong in (
        zeros(),
        element(3, lambda _: 0.0),
        times(1.001),
        times(-1),
        Wrong(lambda outputs: [outputs[0][::-1].copy()]),
    ):
        fails(of, wrong)
