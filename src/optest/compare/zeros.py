"""Whether nothing but zeros would be within rtol and atol of what is expected, though something else is."""

from __future__ import annotations

from math import isinf

import numpy as np

from optest.numerics import Array, widen

__all__ = ["zeros_are_within"]

_BLOCK = 1 << 16


def zeros_are_within(expected: Array, rtol: float, atol: float, mismatch_ratio: float = 0.0) -> bool:
    """True if zeros pass and are not what is expected."""
    flat = expected.reshape(-1)
    may_miss = mismatch_ratio * flat.size
    nonzero, missed = False, 0
    if may_miss < 1.0 and flat.size and flat.dtype.kind != "c":
        middle = float(flat[flat.size // 2])
        if not abs(middle) <= atol + rtol * abs(middle) or isinf(middle):
            return False  # one element is enough, and nearly every one says so
    for start in range(0, flat.size, _BLOCK):
        block = widen(flat[start : start + _BLOCK])
        magnitude = np.abs(block if block.dtype.kind in "fc" else block.astype(np.float64))
        with np.errstate(invalid="ignore"):  # 0 times infinity: zeros are not within that
            within = (magnitude <= atol + rtol * magnitude) & np.isfinite(magnitude)
        missed += within.size - int(np.count_nonzero(within))
        if missed > may_miss:
            return False
        nonzero = nonzero or bool(magnitude.any())
    return nonzero
