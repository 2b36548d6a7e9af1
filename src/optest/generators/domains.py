"""Legal ranges of inputs, mirroring of draws outside them, and special values.

Special values are not finite, zero, subnormal, smallest, largest, and powers of two: values that break kernels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from optest.numerics import Array, bits, numpy_dtype, round_to
from optest.registry import load_object
from optest.spec import DType, Fault, Interval, Kind, Reason, TensorSpec, TestCase

# One closed range, or two in ascending order: below and above the values that an interval's `avoid` excludes.
Pieces = tuple[tuple[Any, Any], ...]

_EVERYTHING = Interval()


def domain_of(case: TestCase) -> Mapping[str, Interval]:
    """Return the ranges of the inputs by name; call the operator's domain function if it has one."""
    domain = case.descriptor.domain
    if isinstance(domain, Mapping):
        return domain
    hook = load_object(domain)
    intervals: Mapping[str, Interval] = hook(input_specs(case), case.attributes)
    return intervals


def input_specs(case: TestCase) -> Sequence[TensorSpec | None]:
    """Return the specs of the inputs in the signature's order, with None for a missing optional input."""
    signature = case.descriptor.tensors
    if signature.is_variadic:
        return [argument.spec for argument in case.inputs]
    by_name = {argument.name: argument.spec for argument in case.inputs}
    return [by_name.get(parameter.name) for parameter in signature.inputs]


@lru_cache(maxsize=256)
def real_pieces(interval: Interval | None, dtype: DType) -> Pieces:
    """Return the legal ranges with finite limits that ``dtype`` can represent, so that rounding stays inside.

    Raises:
        Fault: BAD_CASE, if the interval contains no number of ``dtype``.
    """
    top = dtype.max_finite
    ranges = _ranges(interval or _EVERYTHING, -top, top)
    held = [(_at_least(low, dtype), -_at_least(-high, dtype)) for low, high in ranges if low <= high]
    return _require_pieces(held, interval, dtype)


@lru_cache(maxsize=256)
def integer_pieces(interval: Interval | None, dtype: DType) -> Pieces:
    """Return the legal ranges of an integer type as Python integers.

    Raises:
        Fault: BAD_CASE, if the interval contains no integer of ``dtype``.
    """
    ranges = _ranges(interval or _EVERYTHING, dtype.min_int, dtype.max_int)
    held = [(math.ceil(low), math.floor(high)) for low, high in ranges]
    return _require_pieces(held, interval, dtype)


def _ranges(interval: Interval, bottom: Any, top: Any) -> list[tuple[Any, Any]]:
    """Return the part of ``interval`` from ``bottom`` to ``top``, in two ranges if it avoids values near 0."""
    low, high = max(interval.low, bottom), min(interval.high, top)
    if interval.avoid <= 0:
        return [(low, high)]
    return [(low, min(high, -interval.avoid)), (max(low, interval.avoid), high)]


def _require_pieces(ranges: list[tuple[Any, Any]], interval: Interval | None, dtype: DType) -> Pieces:
    """Return the ranges that are not empty; raise Fault (BAD_CASE) if all are."""
    pieces = tuple([piece for piece in ranges if piece[0] <= piece[1]])
    if not pieces:
        raise Fault(Reason.BAD_CASE, f"the domain {interval} contains no {dtype}, so nothing legal can be drawn")
    return pieces


def integers_within(low: int, high: int, pieces: Pieces) -> Pieces:
    """Return the integers from ``low`` to ``high`` within ``pieces``.

    If there are none, return as many integers of each piece, from its end next to 0 on.

    Raises:
        Fault: BAD_CASE, if the pieces contain no integer, or ``low`` is above ``high``.
    """
    integral = [(math.ceil(first), math.floor(last)) for first, last in pieces]
    integral = [piece for piece in integral if piece[0] <= piece[1]]
    if not integral or low > high:
        raise Fault(Reason.BAD_CASE, f"there is no integer from {low} to {high} within {list(pieces)}")
    common = [(max(low, first), min(high, last)) for first, last in integral]
    common = [piece for piece in common if piece[0] <= piece[1]]
    return tuple(common or [_next_to_zero(piece, high - low) for piece in integral])


def _next_to_zero(piece: tuple[int, int], length: int) -> tuple[int, int]:
    """Shorten ``piece`` to at most ``length + 1`` integers at its end next to 0."""
    first, last = piece
    return (max(first, last - length), last) if last <= 0 else (first, min(last, first + length))


def legal_signs(interval: Interval | None, dtype: DType) -> tuple[bool, bool]:
    """Return whether integers below 0, and above 0, are legal.

    Raises:
        Fault: BAD_CASE, if 0 is the only legal integer.
    """
    low, high = (0.0 if dtype.kind is Kind.UINT else -math.inf), math.inf
    if interval is not None:
        low, high = max(low, interval.low), min(high, interval.high)
    if low > -1 and high < 1:
        raise Fault(Reason.BAD_CASE, f"the domain {interval} contains no integer of {dtype} except 0")
    return low <= -1, high >= 1


def _at_least(value: float, dtype: DType) -> float:
    """Return the smallest number of ``dtype`` that is ``value`` or more; ``value`` is in the range of the type."""
    rounded = round_to(np.array([value]), dtype, overflow="saturate")
    if float(rounded[0]) < value:
        codes = bits(rounded).astype(np.int64)
        above = codes - 1 if np.signbit(rounded[0]) else codes + 1
        rounded = above.astype(bits(rounded).dtype).view(numpy_dtype(dtype))
    return float(rounded[0])


def fold(values: Array, pieces: Pieces) -> Array:
    """Map float64 values into ``pieces``: mirror values outside at the borders, repeatedly if necessary.

    Legal values are unchanged. With two pieces a value is mapped to the piece of its sign.
    """
    # Clipping instead would give many values equal to the border.
    if len(pieces) == 1:
        return _mirror(values, *pieces[0])
    return np.where(np.signbit(values), _mirror(values, *pieces[0]), _mirror(values, *pieces[1]))


def _mirror(values: Array, low: float, high: float) -> Array:
    """Mirror values outside ``low`` to ``high`` at the borders until they are inside."""
    below, above = values < low, values > high
    if not (below.any() or above.any()):
        return values
    width = high - low
    if width == 0:
        return np.full_like(values, low)
    beyond = np.where(below, low - values, np.where(above, values - high, 0.0))
    inward = np.fmod(beyond, 2 * width)
    inward = np.where(inward > width, 2 * width - inward, inward)
    mirrored = np.where(below, low + inward, np.where(above, high - inward, values))
    # low + width may round to just above high
    return np.clip(mirrored, low, high)


@lru_cache(maxsize=256)
def special_values(dtype: DType, interval: Interval | None, largest: int = 0) -> Array:
    """Return the special values of ``dtype``; those of integers are limited to ``interval``, those of floats are not.

    ``largest``, unless it is 0, replaces larger finite magnitudes of floats.
    """
    if dtype.kind is Kind.BOOL:
        return np.array([False, True])
    if dtype.is_integer:
        pieces = integer_pieces(interval, dtype)
        ends = {end for piece in pieces for end in piece}
        powers_of_two = {sign * 2**power for power in range(dtype.bits) for sign in (1, -1)}
        numbers = sorted(ends | powers_of_two | {0, dtype.min_int, dtype.max_int})
        legal = [value for value in numbers if any(low <= value <= high for low, high in pieces)]
        return round_to(np.array(legal, dtype=object), dtype)
    smallest_normal = 2.0**dtype.emin
    smallest = smallest_normal * 2.0 ** (1 - dtype.precision)
    powers = [2.0**power for power in (dtype.emin // 2, -1, 0, 1, dtype.precision - 1, dtype.precision, dtype.emax)]
    finite = [0.0, smallest, smallest_normal - smallest, smallest_normal, dtype.max_finite, *powers]
    infinite = [np.inf] if dtype.has_infinity else []
    values = np.array([np.nan, *(sign * value for value in (*infinite, *finite) for sign in (1.0, -1.0))])
    if largest:
        values = np.where(np.isfinite(values), np.clip(values, -float(largest), float(largest)), values)
    # A kernel that rounds the NaN with all bits set as if it were a number gets 0.
    kind = numpy_dtype(dtype)
    all_bits: Array = np.array([2 ** (dtype.bits - 1) - 1], f"u{kind.itemsize}").view(kind)
    return np.concatenate((round_to(values, dtype), all_bits[np.isnan(all_bits)]))
