"""Quotients rounded to whole numbers, and what they leave: exact, because ``fmod`` is."""

from __future__ import annotations

import numpy as np

from optest.operators.arrays import Array
from optest.spec import Fault, Reason

__all__ = ["floor_quotient", "floor_remainder", "trunc_quotient", "trunc_remainder"]


def floor_quotient(a: Array, b: Array) -> Array:
    """⌊a / b⌋ of floats or integers; NaN where a is infinite, the sign's infinity where only b is 0."""
    if a.dtype.kind in "iu":
        _require_divisible(a, b)
        return np.asarray(np.floor_divide(a, b))
    left = np.fmod(a, b)
    whole = np.rint((a - left) / b)
    return np.where(b == 0, a / b, np.where(_crosses(left, b), whole - 1, _signed(whole, a / b)))


def trunc_quotient(a: Array, b: Array) -> Array:
    """a / b without its fraction."""
    if a.dtype.kind in "iu":
        _require_divisible(a, b)
        return np.asarray((a - np.fmod(a, b)) // b)
    quotient = a / b
    return np.where((b == 0) | np.isinf(a), quotient, _signed(np.rint((a - np.fmod(a, b)) / b), quotient))


def _signed(whole: Array, quotient: Array) -> Array:
    """A quotient that is rounded to 0 keeps its sign: IEEE 754-2019 §5.9."""
    return np.asarray(np.where(whole == 0, np.copysign(whole, quotient), whole))


def floor_remainder(a: Array, b: Array) -> Array:
    """a - b·⌊a / b⌋, of the sign of b."""
    if a.dtype.kind in "iu":
        _require_divisor(b)
        return np.asarray(np.remainder(a, b))
    left = np.fmod(a, b)
    return np.where(_crosses(left, b), left + b, left)


def trunc_remainder(a: Array, b: Array) -> Array:
    """a - b·trunc(a / b), of the sign of a."""
    if a.dtype.kind in "iu":
        _require_divisor(b)
    return np.asarray(np.fmod(a, b))


def _crosses(left: Array, b: Array) -> Array:
    """Where rounding towards zero is not rounding downwards."""
    return np.asarray((left != 0) & ((left < 0) != (b < 0)))


def _require_divisor(b: Array) -> None:
    if (b == 0).any():
        raise Fault(
            Reason.BAD_CASE,
            "other holds 0, but should not: an integer divided by 0 is an error in torch; choose another fill or range",
        )


def _require_divisible(a: Array, b: Array) -> None:
    _require_divisor(b)
    if a.dtype.kind == "i" and bool(((a == np.iinfo(a.dtype).min) & (b == -1)).any()):
        raise Fault(
            Reason.BAD_CASE,
            f"input holds {np.iinfo(a.dtype).min} over -1, but should not: no {a.dtype} holds the quotient, and C "
            "leaves it undefined; choose another fill or range",
        )
