"""A fast test whether two large tensors of one dtype meet rtol and atol; False means that the exact comparison decides.

It computes in float32 with a tolerance that is smaller by more than the rounding errors of the test, with NumPy's
vector loops only and buffers that are allocated once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optest.compare.policy import Allowance, Method
from optest.numerics import Array, Quiet
from optest.numerics.widening import HALF_INFINITY, LOADERS
from optest.spec import DType

# Elements of a block: 256 KB in float32, so that three buffers stay in the second-level cache.
WIDEST = 1 << 16

# Relative: four roundings in float32, 2^-24 each, are far below it.
_MARGIN = 1.0 - 2.0**-20

# Below, products of rtol may be subnormal, whose rounding the relative margin does not cover.
_LEAST_ATOL = 2.0**-100

Within = Callable[[Array, Array], bool]


def within_for(dtype: DType, rtol: float, atol: float) -> Within | None:
    """Return a test for blocks of up to ``WIDEST`` elements of ``dtype``; None if no safe test exists.

    The test returns True only if every element is finite and |actual - expected| <= atol + rtol·|expected|.
    """
    load = LOADERS.get(dtype.name)
    if load is None or not _LEAST_ATOL <= atol < 1e30 or rtol >= 1e6:
        return None
    first, second = np.empty(WIDEST, np.float32), np.empty(WIDEST, np.float32)
    scaled_rtol, scaled_atol = np.float32(rtol * _MARGIN), np.float32(atol * _MARGIN)
    half = dtype.name == "float16"
    # A float16 infinity or NaN loads as 65536 or more, so expected values must stay below it by their tolerance.
    top = (HALF_INFINITY - atol) / (1.0 + rtol) * _MARGIN

    def within(actual: Array, expected: Array) -> bool:
        """Return True only if every element of a block is finite and within the tolerance."""
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
    """Return whether arrays of one dtype meet rtol and atol by the fast test; False means "not known"."""
    if allowance.method is not Method.TOLERANCE or reference.dtype != actual.dtype:
        return False
    within = within_for(dtype, allowance.rtol, allowance.atol)
    if within is None or not (actual.flags.c_contiguous and reference.flags.c_contiguous):
        return False
    left, right = actual.reshape(-1), reference.reshape(-1)
    with Quiet():
        starts = range(0, actual.size, WIDEST)
        return all(within(left[start : start + WIDEST], right[start : start + WIDEST]) for start in starts)
