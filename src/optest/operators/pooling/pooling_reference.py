"""References of pooling, and error terms of its means."""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, quiet_hooks, spec_of, widen, widen_further
from optest.operators.budgets import terms_of_products
from optest.operators.pooling.pooling import AdaptiveWindows, Windows, adaptive_windows_of, windows_of
from optest.spec import Terms

# Elements of a window along one dimension from which NumPy's loop over the window is faster than one step per element.
_MANY = 32


def max_pool2d_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the maximum of each window, with padding of −∞ or the smallest integer; NaN if the window has one."""
    array = np.asarray(inputs[0])
    x = widen(array)
    lowest = np.iinfo(x.dtype).min if x.dtype.kind in "iu" else -np.inf
    return (_along_both(x, windows_of(spec_of(array), attributes), np.maximum, lowest),)


def avg_pool2d_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the mean of each window."""
    array = np.asarray(inputs[0])
    windows = windows_of(spec_of(array), attributes)
    total = window_sums(widen_further(array), windows)
    return ((total / divisors(windows, attributes)).astype(np.float64),)


def adaptive_avg_pool2d_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the mean of each adaptive window."""
    array = np.asarray(inputs[0])
    windows = adaptive_windows_of(spec_of(array), attributes)
    total, count = adaptive_sums(widen_further(array), windows)
    return ((total / count).astype(np.float64),)


def window_sums(x: Array, windows: Windows) -> Array:
    """Return the sum of each window, with padding of 0."""
    return _along_both(x, windows, np.add, 0)


def divisors(windows: Windows, attributes: Attributes) -> Any:
    """Return the divisor of the sums: ``divisor_override``, or an array with the number of elements of each window."""
    override = attributes.get("divisor_override")
    if override is not None:
        return float(override)
    include = bool(attributes.get("count_include_pad", True))
    rows, columns = (np.array(windows.counts(axis, with_padding=include), np.float64) for axis in (0, 1))
    return np.multiply.outer(rows, columns)


def _along_both(x: Array, windows: Windows, combine: np.ufunc, filling: Any) -> Array:
    """Reduce each window with ``combine``, first along the width, then along the height; pad with ``filling``."""
    # Two passes take height + width steps per window, one pass height · width.
    filled = np.pad(x, (*((0, 0),) * (x.ndim - 2), *windows.filling()), constant_values=filling)
    for axis in (1, 0):
        filled = _reduce_windows(filled, windows, axis, combine)
    return filled


def _reduce_windows(x: Array, windows: Windows, axis: int, combine: np.ufunc) -> Array:
    """Reduce each window along one dimension: 0 is the height, 1 the width."""
    moved = np.moveaxis(x, axis - 2, -1)
    stride, dilation, out = windows.stride[axis], windows.dilation[axis], windows.out[axis]
    reach = (out - 1) * stride + 1
    if windows.kernel[axis] > _MANY:
        span = dilation * (windows.kernel[axis] - 1) + 1
        seen = np.lib.stride_tricks.sliding_window_view(moved, span, axis=-1)[..., :reach:stride, ::dilation]
        return np.moveaxis(combine.reduce(seen, axis=-1), -1, axis - 2)
    total = moved[..., :reach:stride].copy()
    for tap in range(1, windows.kernel[axis]):
        start = tap * dilation
        combine(total, moved[..., start : start + reach : stride], out=total)
    return np.moveaxis(total, -1, axis - 2)


def adaptive_sums(x: Array, windows: AdaptiveWindows) -> tuple[Array, Array]:
    """Return the sum of each adaptive window, and its number of elements."""
    counts = []
    for axis in (1, 0):
        starts, ends = np.array(windows.starts[axis], np.intp), np.array(windows.ends[axis], np.intp)
        counts.append((ends - starts).astype(np.float64))
        x = np.moveaxis(_sums_between(np.moveaxis(x, axis - 2, -1), starts, ends), -1, axis - 2)
    return x, np.multiply.outer(counts[1], counts[0])


def _sums_between(x: Array, starts: Array, ends: Array) -> Array:
    """Return Σ x[start:end] along the last dimension for each pair, none of which is empty."""
    if not starts.size:
        return x[..., :0]
    # reduceat needs an element at every index, also at an end.
    closed = np.concatenate([x, np.zeros((*x.shape[:-1], 1), x.dtype)], axis=-1)
    borders = np.stack([starts, ends], axis=-1).reshape(-1)
    return np.asarray(np.add.reduceat(closed, borders, axis=-1)[..., ::2])


def avg_pool2d_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """Return the terms of a mean: the window's elements, divided. The division's rounding is one term more."""
    x = np.abs(as_float64(inputs[0]))
    windows = windows_of(spec_of(np.asarray(inputs[0])), attributes)
    divisor = np.abs(divisors(windows, attributes))
    absolute, squared = window_sums(x, windows) / divisor, window_sums(x * x, windows) / (divisor * divisor)
    terms = terms_of_products(absolute, squared, windows.elements + 1, np.asarray(inputs[0]))
    return (terms._replace(divided=True),)


def adaptive_avg_pool2d_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """Return the terms of a mean, as for avg_pool2d; the count is that of the largest window."""
    x = np.abs(as_float64(inputs[0]))
    windows = adaptive_windows_of(spec_of(np.asarray(inputs[0])), attributes)
    absolute, count = adaptive_sums(x, windows)
    squared, _ = adaptive_sums(x * x, windows)
    terms, first = windows.elements + 1, np.asarray(inputs[0])
    return (terms_of_products(absolute / count, squared / (count * count), terms, first)._replace(divided=True),)


quiet_hooks(globals())
