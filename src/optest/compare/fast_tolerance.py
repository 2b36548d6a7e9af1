"""A fast sufficient test for large tensors in one dtype: what it accepts meets rtol and atol; the rest is asked again.

It computes in float32 with a tolerance that is smaller by more than the rounding of the test itself, on NumPy's
vector loops alone, with buffers that are made once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optest.compare.policy import Allowance, Method
from optest.numerics import Array, Quiet
from optest.numerics.widening import HALF_INFINITY, LOADERS
from optest.spec import DType

WIDEST = 1 << 16
"""Elements of a block: 256 KB in float32, so that three buffers stay in the second-level cache."""

_MARGIN = 1.0 - 2.0**-20
"""Relative: four roundings in float32, 2^-24 each, are far below it."""

_LEAST_ATOL = 2.0**-100
"""Below, products of rtol may be subnormal, whose rounding the relative margin does not cover."""

Within = Callable[[Array, Array], bool]


def within_for(dtype: DType, rtol: float, atol: float) -> Within | None:
    """Return a test for blocks of up to ``WIDEST`` elements of ``dtype``, None where none is safe.

    A bound below the next power of two keeps a float16 that was infinity or NaN out, which loads as 65536 or more.
    The test answers True only if every element is finite and |actual - expected| <= atol + rtol·|expected|.
    """
    load = LOADERS.get(dtype.name)
    if load is None or not _LEAST_ATOL <= atol < 1e30 or rtol >= 1e6:
        return None
    first, second = np.empty(WIDEST, np.float32), np.empty(WIDEST, np.float32)
    scaled_rtol, scaled_atol = np.float32(rtol * _MARGIN), np.float32(atol * _MARGIN)
    half = dtype.name == "float16"
    top = (HALF_INFINITY - atol) / (1.0 + rtol) * _MARGIN

    def within(actual: Array, expected: Array) -> bool:
        size = actual.size
        error, bound = first[:size], second[:size]
        load(actual, error)
        load(expected, bound)
        np.subtract(error, bound, out=error)
        np.abs(error, out=error)
        np.abs(bound, out=bound)
        if half and not bound.max() < top:
            return False
        np.multiply(bound, scaled_rtol, out=bound)
        np.add(bound, scaled_atol, out=bound)
        np.subtract(error, bound, out=error)
        return bool(error.max() <= 0.0)  # NaN wins every maximum, and is not <= 0

    return within


def meets_tolerance(actual: Array, reference: Array, dtype: DType, allowance: Allowance) -> bool:
    """Whether a same-dtype pair meets rtol and atol by the fast test; False is "not known"."""
    if allowance.method is not Method.TOLERANCE or reference.dtype != actual.dtype:
        return False
    within = within_for(dtype, allowance.rtol, allowance.atol)
    if within is None or not (actual.flags.c_contiguous and reference.flags.c_contiguous):
        return False
    left, right = actual.reshape(-1), reference.reshape(-1)
    with Quiet():
        starts = range(0, actual.size, WIDEST)
        return all(within(left[start : start + WIDEST], right[start : start + WIDEST]) for start in starts)
