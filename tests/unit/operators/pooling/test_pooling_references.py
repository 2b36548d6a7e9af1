"""References and inference of pooling against torch: in float64 and for special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import drawn, expected, expected_sum

from optest.numerics import widen

Array = np.ndarray[Any, Any]


def pooled(operator: str, x: Array, **attributes: Any) -> Array:
    return (expected if operator == "max_pool2d" else expected_sum)(operator, x, **attributes)


def of_torch(operator: str, x: Array, **attributes: Any) -> Array:
    torch = pytest.importorskip("torch")
    source = torch.from_numpy(widen(x).astype(np.float64) if x.dtype.kind not in "iu" else x.copy())
    return np.asarray(getattr(torch.nn.functional, operator)(source, **attributes).numpy())


pair = st.tuples(st.integers(1, 4), st.integers(1, 4))


@st.composite
def poolings(draw: Any, *, dilated: bool) -> tuple[tuple[int, ...], dict[str, Any]]:
    kernel = draw(pair)
    attributes: dict[str, Any] = {"kernel_size": kernel, "ceil_mode": draw(st.booleans())}
    if draw(st.booleans()):
        attributes["stride"] = draw(pair)
    dilation = draw(pair) if dilated else (1, 1)
    attributes["padding"] = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    if dilated:
        attributes["dilation"] = dilation
    else:
        attributes["count_include_pad"] = draw(st.booleans())
        attributes["divisor_override"] = draw(st.sampled_from([None, 3, -2]))
    rows = zip(kernel, dilation, attributes["padding"], strict=True)
    sizes = tuple(max(1, d * (k - 1) + 1 - 2 * p) + draw(st.integers(0, 6)) for k, d, p in rows)
    return (*draw(st.sampled_from([(2,), (2, 3), (0, 2)])), *sizes), attributes


@pytest.mark.torch
@pytest.mark.parametrize("operator", ["max_pool2d", "avg_pool2d"])
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_pooling_equals_torch(operator: str, data: Any) -> None:
    shape, attributes = data.draw(poolings(dilated=operator == "max_pool2d"))
    x = drawn(shape)
    want = of_torch(operator, x, **attributes)
    np.testing.assert_allclose(pooled(operator, x, **attributes), want, rtol=1e-13, atol=1e-13)


@pytest.mark.torch
@settings(max_examples=30, deadline=None)
@given(st.sampled_from([(2,), (2, 3), (0, 2)]), pair, st.tuples(st.integers(0, 7), st.integers(0, 7)))
def test_adaptive_avg_pool2d(lead: Any, sizes: Any, output_size: Any) -> None:
    x = drawn((*lead, sizes[0] * 2, sizes[1] * 3))
    want = of_torch("adaptive_avg_pool2d", x, output_size=output_size)
    np.testing.assert_allclose(
        expected_sum("adaptive_avg_pool2d", x, output_size=output_size), want, rtol=1e-13, atol=1e-13
    )


@pytest.mark.torch
@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "int32", "int64"])
def test_integers_are_padded_with_smallest_value(name: str) -> None:
    x = drawn((1, 2, 5, 6), name)
    attributes = {"kernel_size": 3, "padding": 1, "stride": 2}
    assert np.array_equal(expected("max_pool2d", x, **attributes), of_torch("max_pool2d", x, **attributes))


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


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float64"])
def test_every_float(name: str) -> None:
    x = drawn((2, 3, 8, 9), name)
    for operator in ("max_pool2d", "avg_pool2d"):
        want = of_torch(operator, x, kernel_size=(3, 2), stride=2, padding=1)
        np.testing.assert_allclose(
            pooled(operator, x, kernel_size=(3, 2), stride=2, padding=1), want, rtol=1e-13, atol=1e-15
        )


def test_averages_of_cancelling_doubles_are_exact() -> None:
    x = np.array([1e16, 1.0, -1e16, 1.0]).reshape(1, 1, 2, 2)
    assert expected_sum("avg_pool2d", x, kernel_size=2).item() == 0.5
    assert expected_sum("adaptive_avg_pool2d", x, output_size=1).item() == 0.5
