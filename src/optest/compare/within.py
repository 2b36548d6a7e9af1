"""A fast sufficient test for large tensors in one dtype: what it accepts meets rtol and atol; the rest is asked again.

It computes in float32 with a tolerance that is smaller by more than the rounding of the test itself, on NumPy's
vector loops alone, with buffers that are made once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optest.numerics import Array
from optest.spec import DType

__all__ = ["WIDEST", "Within", "widen_bfloat16", "widen_half", "within_for"]

WIDEST = 1 << 16
"""Elements of a block: 256 KB in float32, so that three buffers stay in the second-level cache."""

_MARGIN = 1.0 - 2.0**-20
"""Relative: four roundings in float32, 2^-24 each, are far below it."""

_LEAST_ATOL = 2.0**-100
"""Below, products of rtol may be subnormal, whose rounding the relative margin does not cover."""

_HALF_MAGIC = np.float32(2.0**112)
_HALF_INFINITY = 65536.0
_HALF_MASK = np.int32(-0x70002000)
"""Sign, exponent and fraction of a float16 that was shifted to the place of a float32's."""

Within = Callable[[Array, Array], bool]
_Load = Callable[[Array, Array], None]


def within_for(dtype: DType, rtol: float, atol: float) -> Within | None:
    """Return a test for blocks of up to ``WIDEST`` elements of ``dtype``, None where none is safe.

    A bound below the next power of two keeps a float16 that was infinity or NaN out, which loads as 65536 or more.
    The test answers True only if every element is finite and |actual - expected| <= atol + rtol·|expected|.
    """
    load = _LOADERS.get(dtype.name)
    if load is None or not _LEAST_ATOL <= atol < 1e30 or rtol >= 1e6:
        return None
    first, second = np.empty(WIDEST, np.float32), np.empty(WIDEST, np.float32)
    scaled_rtol, scaled_atol = np.float32(rtol * _MARGIN), np.float32(atol * _MARGIN)
    half = dtype.name == "float16"
    top = (_HALF_INFINITY - atol) / (1.0 + rtol) * _MARGIN

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


def _load_single(block: Array, into: Array) -> None:
    np.copyto(into, block)


def _load_bfloat16(block: Array, into: Array) -> None:
    """A bfloat16 is the upper half of a float32."""
    words = into.view(np.uint32)
    np.copyto(words, block.view(np.uint16))
    np.left_shift(words, 16, out=words)


def load_half(block: Array, into: Array) -> None:
    """Move the bits to their place in a float32 and multiply by 2^112, which is exact, subnormals included.

    NumPy's own conversion takes one element at a time. Infinity and NaN become numbers of 65536 and more.
    """
    words = into.view(np.int32)
    np.copyto(words, block.view(np.int16))
    np.left_shift(words, 13, out=words)
    np.bitwise_and(words, _HALF_MASK, out=words)
    np.multiply(into, _HALF_MAGIC, out=into)


_LOADERS: dict[str, _Load] = {"float32": _load_single, "bfloat16": _load_bfloat16, "float16": load_half}


def widen_half(block: Array) -> Array | None:
    """A float16 block as float64 through float32, faster than NumPy's cast; None with NaN or infinity."""
    single = np.empty(block.size, np.float32)
    load_half(block, single)
    if single.max(initial=0.0) >= _HALF_INFINITY or single.min(initial=0.0) <= -_HALF_INFINITY:
        return None
    return single.astype(np.float64)


def widen_bfloat16(block: Array) -> Array:
    """A bfloat16 block as float64, through float32."""
    single = np.empty(block.size, np.float32)
    _load_bfloat16(block, single)
    return single.astype(np.float64)
