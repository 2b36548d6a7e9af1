"""References and inference of pooling against torch: in float64 and for special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from references import drawn, expected, expected_sum

from optest.numerics import widen

Array = np.ndarray[Any, Any]


def pooled(operator: str, x: Array, **attributes: Any) -> Array:
    return (expected if operator == "max_pool2d" else expected_sum)(operator, x, **attributes)


def of_torch(operator: str, x: Array, **attributes: Any) -> Array:
    torch = pytest.importorskip("torch")
    source = torch.from_numpy(widen(x).astype(np.float64) if x.dtype.kind not in "iu" else x.copy())
    return np.asarray(getattr(torch.nn.functional, operator)(source, **attributes).numpy())


@pytest.mark.torch
@pytest.mark.parametrize("operator", ["max_pool2d", "avg_pool2d"])
def test_special_values_equal_torch(operator: str) -> None:
    x = drawn((1, 3, 9, 9))
    x[0, 0, 4, 4], x[0, 1, 2, 3], x[0, 2, 5, 6], x[0, 1, 7, 7] = np.nan, np.inf, -np.inf, -np.inf
    attributes = {"kernel_size": 3, "padding": 1, "stride": 1}
    np.testing.assert_allclose(pooled(operator, x, **attributes), of_torch(operator, x, **attributes), rtol=1e-12)


@pytest.mark.torch
def test_window_of_padding_is_minus_infinity() -> None:
    x = np.ones((1, 1, 1, 4), np.float32)
    attributes = {"kernel_size": 2, "padding": 1, "dilation": 2}
    got = expected("max_pool2d", x, **attributes)
    assert np.isneginf(got).any()
    assert np.array_equal(got, of_torch("max_pool2d", x, **attributes))


def test_averages_of_cancelling_doubles_are_exact() -> None:
    x = np.array([1e16, 1.0, -1e16, 1.0]).reshape(1, 1, 2, 2)
    assert expected_sum("avg_pool2d", x, kernel_size=2).item() == 0.5
    assert expected_sum("adaptive_avg_pool2d", x, output_size=1).item() == 0.5
