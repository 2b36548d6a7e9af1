"""Python numbers as operands are those that torch computes with: float32 for float32 and 16-bit tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402

from optest.torch.calls.reference import expected  # noqa: E402

pytestmark = pytest.mark.torch

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
