"""Quotients rounded to whole numbers, and what they leave: exact, because ``fmod`` is."""

from __future__ import annotations

import numpy as np

from optest.operators.arrays import Array

__all__ = ["floor_quotient", "floor_remainder", "is_undefined", "trunc_quotient", "trunc_remainder"]


def floor_quotient(a: Array, b: Array) -> Array:
    """⌊a / b⌋ of floats or integers; NaN where a is infinite, the sign's infinity where only b is 0."""
    if a.dtype.kind in "iu":
        return np.asarray(np.floor_divide(a, _divisor(a, b)))
    left = np.fmod(a, b)
    whole = np.rint((a - left) / b)
    return np.where(b == 0, a / b, np.where(_crosses(left, b), whole - 1, _signed(whole, a / b)))


def trunc_quotient(a: Array, b: Array) -> Array:
    """a / b without its fraction."""
    if a.dtype.kind in "iu":
        divisor = _divisor(a, b)
        return np.asarray((a - np.fmod(a, divisor)) // divisor)
    quotient = a / b
    return np.where((b == 0) | np.isinf(a), quotient, _signed(np.rint((a - np.fmod(a, b)) / b), quotient))


def _signed(whole: Array, quotient: Array) -> Array:
    """A quotient that is rounded to 0 keeps its sign: IEEE 754-2019 §5.9."""
    return np.asarray(np.where(whole == 0, np.copysign(whole, quotient), whole))


def floor_remainder(a: Array, b: Array) -> Array:
    """a - b·⌊a / b⌋, of the sign of b."""
    if a.dtype.kind in "iu":
        return np.asarray(np.remainder(a, _divisor(a, b)))
    left = np.fmod(a, b)
    return np.where(_crosses(left, b), left + b, left)


def trunc_remainder(a: Array, b: Array) -> Array:
    """a - b·trunc(a / b), of the sign of a."""
    return np.asarray(np.fmod(a, _divisor(a, b) if a.dtype.kind in "iu" else b))


def _crosses(left: Array, b: Array) -> Array:
    """Where rounding towards zero is not rounding downwards."""
    return np.asarray((left != 0) & ((left < 0) != (b < 0)))


def is_undefined(a: Array, b: Array, *, overflows: bool) -> Array:
    """Where C leaves the quotient of integers undefined (C17 6.5.5): a divisor of 0; where it ``overflows``, as a
    quotient does and a remainder does not, also the smallest number over -1."""
    undefined = np.asarray(b == 0)
    if overflows and a.dtype.kind == "i":
        undefined = undefined | ((a == np.iinfo(a.dtype).min) & (b == -1))
    return undefined


def _divisor(a: Array, b: Array) -> Array:
    """1 where the quotient is undefined: NumPy would warn. It leaves the remainder that -1 leaves, 0."""
    return np.where(is_undefined(a, b, overflows=True), np.ones_like(b), b)
