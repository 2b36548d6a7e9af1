"""Python numbers as operands: rounded to float32, or by torch's CPU kernels to 16 bits; both are right."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch_kit  # noqa: E402
from torch_kit import case, tensor  # noqa: E402

from optest.spec import Reason, Status, TestCase, Verdict  # noqa: E402
from optest.torch.calls.other_right_results import with_scalars_of_16_bits  # noqa: E402
from optest.torch.calls.reference import expected  # noqa: E402
from optest.torch.eager import TorchBackend  # noqa: E402

pytestmark = pytest.mark.torch

CALLS = {
    "torch.add(input0, 0.3)": lambda x, s: x + s,
    "torch.Tensor.__rsub__(input0, 0.3)": lambda x, s: s - x,
    "torch.ops.aten.sub.Tensor(input0, 0.3)": lambda x, s: x - s,
    "torch.remainder(input0, 0.1)": lambda x, s: torch.remainder(x, s),
    "torch.fmod(input0, 0.1)": lambda x, s: torch.fmod(x, s),
    "torch.pow(input0, 0.3)": lambda x, s: x**s,
    "torch.Tensor.add_(input0, 0.3)": lambda x, s: x + s,
}


def numbers(kind: str, shape: Any = 999) -> Any:
    return tensor(shape, kind, "uniform", low=0.01, high=0.19)


def verdict(text: str, kind: str, driver: TorchBackend | None = None) -> Verdict:
    return torch_kit.verdict(case(text, numbers(kind)), driver)


class Computed(TorchBackend):
    """A backend that answers by a formula on the input in float32, given the number as float32 and rounded."""

    def __init__(self, formula: Any) -> None:
        super().__init__()
        self._formula = formula

    def run(self, case: TestCase, inputs: Any) -> Any:
        whole = super().run(case, inputs)
        number = 0.1 if "0.1" in case.attributes["call"] else 0.3
        x = torch.from_numpy(np.asarray(inputs[0], dtype=np.float32))
        rounded = float(np.asarray(number).astype(inputs[0].dtype).astype(np.float32))
        answer = self._formula(x, float(np.float32(number)), rounded).numpy().astype(inputs[0].dtype)
        return [answer for _ in whole]


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("text", CALLS)
def test_both_readings_pass(text: str, kind: str) -> None:
    formula = CALLS[text]
    assert verdict(text, kind).status is Status.PASSED
    assert verdict(text, kind, Computed(lambda x, wide, narrow: formula(x, wide))).status is Status.PASSED
    assert verdict(text, kind, Computed(lambda x, wide, narrow: formula(x, narrow))).status is Status.PASSED


@pytest.mark.parametrize("text", CALLS)
def test_another_number_fails(text: str) -> None:
    formula = CALLS[text]
    assert verdict(text, "bfloat16", Computed(lambda x, wide, narrow: formula(x, narrow * 1.05))).reason is Reason.VALUE


@pytest.mark.parametrize("text", [each for each in CALLS if "fmod" not in each])
def test_now_the_one_reading_and_now_the_other_fails(text: str) -> None:
    """Where the catalogue has a rule: torch.testing's tolerance sees no such difference."""
    formula = CALLS[text]

    def mixed(x: torch.Tensor, wide: float, narrow: float) -> torch.Tensor:
        return torch.where(torch.arange(len(x)) % 2 == 0, formula(x, wide), formula(x, narrow))

    assert verdict(text, "float16", Computed(mixed)).reason is Reason.VALUE


@pytest.mark.parametrize(
    ("text", "of", "narrow"),
    [
        ("torch.add(input0, 0.5)", np.float16, None),
        ("torch.add(input0, 0.3)", np.float32, None),
        ("torch.mul(input0, 0.3)", np.float16, None),
        ("torch.add(input0, 0.3)", np.float16, "torch.add(input0, 0.300048828125)"),
        ("torch.add(input0, 1e-08)", np.float16, "torch.add(input0, 0.0)"),
        ("torch.add(input0, 2, alpha=0.3)", np.float16, None),
    ],
)
def test_where_there_is_another_reading(text: str, of: Any, narrow: str | None) -> None:
    found = with_scalars_of_16_bits(text, [np.ones(3, of)])
    assert (found and found[0]) == narrow


def test_tensors_without_dimensions_are_numbers_too() -> None:
    x, number = np.ones(3, np.float16), np.asarray(0.3, np.float32)
    found = with_scalars_of_16_bits("torch.add(input0, input1)", [x, number])
    assert found is not None
    assert found[1][0] is x
    assert (found[1][1].dtype, float(found[1][1])) == (np.float32, 0.300048828125)
    assert with_scalars_of_16_bits("torch.add(input0, input1)", [x, x]) is None
    assert with_scalars_of_16_bits("torch.add(input0, input1)", [x, np.ones(3, np.float32)]) is None


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_torch_itself_rounds_a_tensor_without_dimensions(kind: str) -> None:
    asked = case("torch.add(input0, input1)", numbers(kind), numbers("float32", ()))
    assert torch_kit.verdict(asked).status is Status.PASSED


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("text", ["torch.truediv(0.3, input0)", "torch.Tensor.__rtruediv__(input0, 0.3)"])
def test_a_number_is_divided_or_multiplied_by_the_rounded_reciprocal(text: str, kind: str) -> None:
    """As torch's own method does it, and as its compiler does."""
    assert verdict(text, kind).status is Status.PASSED
    assert verdict(text, kind, Computed(lambda x, wide, narrow: wide / x)).status is Status.PASSED
    wrong = Computed(lambda x, wide, narrow: wide / x * (1 + 2.0**-6))
    assert verdict(text, kind, wrong).reason is Reason.VALUE


X = np.array([1.0, 3.0, -0.7], dtype=np.float32)


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("torch.mul(input0, 1.702)", X.astype(np.float64) * np.float64(np.float32(1.702))),
        ("torch.Tensor.mul(input0, 1.702)", X.astype(np.float64) * np.float64(np.float32(1.702))),
        ("torch.ops.aten.mul.Tensor(input0, 1.702)", X.astype(np.float64) * np.float64(np.float32(1.702))),
        ("torch.div(input0, 0.3)", X.astype(np.float64) / np.float64(np.float32(0.3))),
        ("torch.add(input0, input0, alpha=0.1)", X.astype(np.float64) * (1 + np.float64(np.float32(0.1)))),
        ("torch.truediv(0.3, input0)", np.float64(np.float32(0.3)) / X.astype(np.float64)),
        ("torch.mul(input0, 1e300)", X.astype(np.float64) * 1e300),
    ],
)
def test_a_number_is_rounded_to_what_torch_computes_in(call: str, wanted: np.ndarray) -> None:
    (found,) = expected([X], {"call": call})
    np.testing.assert_allclose(np.asarray(found.values), wanted, rtol=1e-15)


def test_16_bit_tensors_are_computed_in_float32_too() -> None:
    x = X.astype(ml_dtypes.bfloat16)
    (found,) = expected([x], {"call": "torch.mul(input0, 1.702)"})
    wanted = x.astype(np.float64) * np.float64(np.float32(1.702))
    np.testing.assert_allclose(np.asarray(found.values), wanted, rtol=1e-15)


def test_float64_keeps_the_number_and_sizes_are_no_operands() -> None:
    (wide,) = expected([X.astype(np.float64)], {"call": "torch.mul(input0, 1.702)"})
    np.testing.assert_array_equal(np.asarray(getattr(wide, "values", wide)), X.astype(np.float64) * 1.702)
    image = np.ones((1, 1, 10), dtype=np.float32)
    (larger,) = expected([image], {"call": "torch.nn.functional.interpolate(input0, scale_factor=1.3)"})
    assert np.asarray(getattr(larger, "values", larger)).shape == (1, 1, 13)


def test_torch_itself_agrees() -> None:
    """A correctly rounded product is what torch gives, which it is only with the number rounded first."""
    x = np.linspace(-3, 3, 1001, dtype=np.float32)
    (found,) = expected([x], {"call": "torch.mul(input0, 1.702)"})
    np.testing.assert_array_equal(np.asarray(found.values).astype(np.float32), (torch.from_numpy(x) * 1.702).numpy())
