"""Tolerances of ``torch.testing.assert_close`` by dtype, and constants that a tolerance accepts."""

from __future__ import annotations

from math import isinf
from typing import Any

import numpy as np

from optest.numerics import Array, widen
from optest.spec import DType

_HALF, _SINGLE, _DOUBLE = (1e-3, 1e-5), (1.3e-6, 1e-5), (1e-7, 1e-7)
_BY_DTYPE = {
    "float16": _HALF,
    "bfloat16": (1.6e-2, 1e-5),
    "float32": _SINGLE,
    "float64": _DOUBLE,
    "complex32": _HALF,
    "complex64": _SINGLE,
    "complex128": _DOUBLE,
    **dict.fromkeys(("quint8", "qint8", "qint32", "quint4x2", "quint2x4"), _SINGLE),  # of their dequantised values
}


def close_tolerance(output: DType | str) -> tuple[float, float] | None:
    """Return rtol and atol for an output of this dtype, or of one of torch's; None if torch has none (float8)."""
    return _BY_DTYPE.get(str(output))


def fitting_tolerance(
    output: DType, expected: Any, explicit: tuple[float, float] | None = None
) -> tuple[float, float] | None:
    """Return rtol and atol for an output with these expected values; None if the dtype has no tolerance.

    They are ``explicit`` or torch's. If zeros would pass for the expected values, atol becomes rtol times the largest
    one.
    """
    # torch's atol is made for numbers around 1: every result that is smaller than it would pass.
    tolerance = explicit or close_tolerance(output)
    if tolerance is None or expected is None or not zeros_are_within(np.asarray(expected), *tolerance):
        return tolerance
    magnitude = np.abs(widen(np.asarray(expected)))
    largest = float(np.max(magnitude, where=np.isfinite(magnitude), initial=0.0))
    return tolerance[0], tolerance[0] * largest


_BLOCK = 1 << 16
_SAMPLE = 64

# The mean is a clearly wrong output if some value is off it by this share of the largest value, and by this many steps
# of the dtype: values close to each other pass by any tolerance.
_LEAST_DEVIATION = 0.05
_LEAST_STEPS = 8


def zeros_are_within(expected: Array, rtol: float, atol: float, mismatch_ratio: float = 0.0) -> bool:
    """Return whether zeros pass by this tolerance although some expected value is not zero."""
    return _deviation_within(expected, 0.0, rtol, atol, mismatch_ratio) is not None and bool(np.count_nonzero(expected))


def mean_within(
    expected: Array, output: DType, rtol: float, atol: float, mismatch_ratio: float = 0.0
) -> float | complex | None:
    """Return the mean of the expected values if it passes for all of them although they clearly differ, else None.

    They clearly differ if there are at least three, and one is off the mean by 5 % of the largest and by 8 steps of the
    output's dtype.
    """
    flat = expected.reshape(-1)
    if flat.size < 3 or flat.dtype.kind == "b":
        return None
    sample = _inexact(flat[:: -(-flat.size // _SAMPLE) | 1])  # an odd step, since an even one may stay in one column
    with np.errstate(invalid="ignore", over="ignore"):
        size, spread = np.abs(sample).max(), np.abs(sample - sample.mean()).max()
        if not spread > _LEAST_DEVIATION * size or (spread > 2 * (atol + rtol * size) and not mismatch_ratio):
            return None  # nearly always: a sample is enough, so that the whole tensor is rarely read
        total = sum(_inexact(flat[start : start + _BLOCK]).sum() for start in range(0, flat.size, _BLOCK))
    mean = (total / flat.size).item()
    deviation = _deviation_within(expected, mean, rtol, atol, mismatch_ratio)
    if deviation is None:
        return None
    largest = abs(mean) + deviation
    step = 2.0 * output.unit_roundoff * largest if output.is_inexact else 1.0
    return mean if deviation > max(_LEAST_DEVIATION * largest, _LEAST_STEPS * step) else None


def _deviation_within(
    expected: Array, constant: complex, rtol: float, atol: float, mismatch_ratio: float
) -> float | None:
    """Return the largest distance from a constant to the values that accept it; None if the constant does not pass."""
    flat = expected.reshape(-1)
    may_miss = mismatch_ratio * flat.size
    farthest, missed = 0.0, 0
    if may_miss < 1.0 and flat.size and flat.dtype.kind != "c":
        middle = float(flat[flat.size // 2])
        if not abs(middle - constant) <= atol + rtol * abs(middle) or isinf(middle):
            return None  # one element is enough, and nearly every one is too far off
    for start in range(0, flat.size, _BLOCK):
        block = _inexact(flat[start : start + _BLOCK])
        with np.errstate(invalid="ignore"):  # 0 times infinity: no constant is within that
            deviation = np.abs(block - constant)
            within = (deviation <= atol + rtol * np.abs(block)) & np.isfinite(block)
        missed += within.size - int(np.count_nonzero(within))
        if missed > may_miss:
            return None
        farthest = max(farthest, float(np.max(deviation, where=within, initial=0.0)))
    return farthest


def _inexact(values: Array) -> Array:
    """Convert values to float64 or complex128."""
    wide = widen(values)
    return wide if wide.dtype.kind in "fc" else wide.astype(np.float64)
