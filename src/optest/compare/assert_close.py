"""The tolerances of ``torch.testing.assert_close`` by dtype, and whether nothing but zeros would meet a tolerance."""

from __future__ import annotations

from math import isinf
from typing import Any

import numpy as np

from optest.numerics import Array, widen
from optest.spec import DType

__all__ = ["close_tolerance", "fitting_tolerance", "zeros_are_within"]

_HALF, _SINGLE, _DOUBLE = (1e-3, 1e-5), (1.3e-6, 1e-5), (1e-7, 1e-7)
_BY_DTYPE = {
    "float16": _HALF,
    "bfloat16": (1.6e-2, 1e-5),
    "float32": _SINGLE,
    "float64": _DOUBLE,
    "complex32": _HALF,
    "complex64": _SINGLE,
    "complex128": _DOUBLE,
}


def close_tolerance(output: DType) -> tuple[float, float] | None:
    """rtol and atol for an output of this dtype, None where torch states none (float8)."""
    return _BY_DTYPE.get(output.name)


def fitting_tolerance(
    output: DType, expected: Any, stated: tuple[float, float] | None = None
) -> tuple[float, float] | None:
    """The same for an output that is expected to be so: where atol would let zeros pass, atol is rtol of the largest.

    torch's atol is made for numbers around 1, and so is one that is ``stated`` in its place. A result that is all
    smaller than it would not be looked at.
    """
    tolerance = stated or close_tolerance(output)
    if tolerance is None or expected is None or not zeros_are_within(np.asarray(expected), *tolerance):
        return tolerance
    magnitude = np.abs(widen(np.asarray(expected)))
    largest = float(np.max(magnitude, where=np.isfinite(magnitude), initial=0.0))
    return tolerance[0], tolerance[0] * largest


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
