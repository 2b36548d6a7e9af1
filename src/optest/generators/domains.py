"""Which values an input may take, how a draw that falls outside is brought back (mirrored, never clipped), and which
values break kernels: not finite, zero, subnormal, smallest, largest, powers of two."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from optest.numerics import Array, bits, numpy_dtype, round_to
from optest.registry import load_object
from optest.spec import DType, Fault, Interval, Kind, Reason, TensorSpec, TestCase

Pieces = tuple[tuple[Any, Any], ...]
"""Closed ranges, one below and one above the gap that an interval's ``avoid`` leaves, or just one; ascending."""

_EVERYTHING = Interval()


def domain_of(case: TestCase) -> Mapping[str, Interval]:
    """The ranges of the inputs by name; of indices they depend on what is indexed."""
    domain = case.descriptor.domain
    if isinstance(domain, Mapping):
        return domain
    hook = load_object(domain)
    intervals: Mapping[str, Interval] = hook(input_specs(case), case.attributes)
    return intervals


def input_specs(case: TestCase) -> Sequence[TensorSpec | None]:
    """The specs of the inputs in the signature's order, None for one that is left out."""
    signature = case.descriptor.tensors
    if signature.is_variadic:
        return [argument.spec for argument in case.inputs]
    by_name = {argument.name: argument.spec for argument in case.inputs}
    return [by_name.get(parameter.name) for parameter in signature.inputs]


@lru_cache(maxsize=256)
def real_pieces(interval: Interval | None, dtype: DType) -> Pieces:
    """The legal ranges as finite float64 limits that ``dtype`` holds itself, so that rounding stays inside.

    Raises:
        Fault: BAD_CASE, if the interval holds no number of ``dtype``.
    """
    top = dtype.max_finite
    ranges = _ranges(interval or _EVERYTHING, -top, top)
    held = [(_at_least(low, dtype), -_at_least(-high, dtype)) for low, high in ranges if low <= high]
    return _not_empty([piece for piece in held if piece[0] <= piece[1]], interval, dtype)


@lru_cache(maxsize=256)
def integer_pieces(interval: Interval | None, dtype: DType) -> Pieces:
    """The legal ranges of an integer type as Python integers.

    Raises:
        Fault: BAD_CASE, if the interval holds no integer of ``dtype``.
    """
    ranges = _ranges(interval or _EVERYTHING, dtype.min_int, dtype.max_int)
    held = [(math.ceil(low), math.floor(high)) for low, high in ranges]
    return _not_empty([piece for piece in held if piece[0] <= piece[1]], interval, dtype)


def _ranges(interval: Interval, bottom: Any, top: Any) -> list[tuple[Any, Any]]:
    low, high = max(interval.low, bottom), min(interval.high, top)
    if interval.avoid <= 0:
        return [(low, high)]
    return [(low, min(high, -interval.avoid)), (max(low, interval.avoid), high)]


def _not_empty(pieces: list[tuple[Any, Any]], interval: Interval | None, dtype: DType) -> Pieces:
    if not pieces:
        raise Fault(Reason.BAD_CASE, f"the domain {interval} holds no {dtype}, so nothing legal can be drawn")
    return tuple(pieces)


def integers_within(low: int, high: int, pieces: Pieces) -> Pieces:
    """The integers from ``low`` to ``high`` that lie in ``pieces``; where none does, as many from each piece.

    Those are counted from the end of the piece that lies next to 0.

    Raises:
        Fault: BAD_CASE, if the pieces hold no integer.
    """
    whole = [(math.ceil(first), math.floor(last)) for first, last in pieces]
    whole = [piece for piece in whole if piece[0] <= piece[1]]
    if not whole or low > high:
        raise Fault(Reason.BAD_CASE, f"there is no integer from {low} to {high} within {list(pieces)}")
    common = [(max(low, first), min(high, last)) for first, last in whole]
    common = [piece for piece in common if piece[0] <= piece[1]]
    return tuple(common or [_next_to_zero(piece, high - low) for piece in whole])


def _next_to_zero(piece: tuple[int, int], length: int) -> tuple[int, int]:
    first, last = piece
    return (max(first, last - length), last) if last <= 0 else (first, min(last, first + length))


def legal_signs(interval: Interval | None, dtype: DType) -> tuple[bool, bool]:
    """Whether whole numbers below 0, and above 0, are legal.

    Raises:
        Fault: BAD_CASE, if neither is.
    """
    low, high = (0.0 if dtype.kind is Kind.UINT else -math.inf), math.inf
    if interval is not None:
        low, high = max(low, interval.low), min(high, interval.high)
    if low > -1 and high < 1:
        raise Fault(Reason.BAD_CASE, f"the domain {interval} holds no integer of {dtype} but 0")
    return low <= -1, high >= 1


def _at_least(value: float, dtype: DType) -> float:
    """The smallest number of ``dtype`` that is not below ``value``, which lies in its range."""
    rounded = round_to(np.array([value]), dtype, overflow="saturate")
    if float(rounded[0]) < value:
        codes = bits(rounded).astype(np.int64)
        above = codes - 1 if np.signbit(rounded[0]) else codes + 1
        rounded = above.astype(bits(rounded).dtype).view(numpy_dtype(dtype))
    return float(rounded[0])


def fold(values: Array, pieces: Pieces) -> Array:
    """Bring float64 values into ``pieces``: what lies beyond a border is mirrored at it, as often as it takes.

    Values that are legal stay as they are, and those that are not spread over the range next to the border
    instead of piling up on it. With two pieces a value goes to the one of its own sign.
    """
    if len(pieces) == 1:
        return _mirror(values, *pieces[0])
    return np.where(np.signbit(values), _mirror(values, *pieces[0]), _mirror(values, *pieces[1]))


def _mirror(values: Array, low: float, high: float) -> Array:
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
    return np.clip(mirrored, low, high)  # low + width may round to just above high


@lru_cache(maxsize=256)
def special_values(dtype: DType, interval: Interval | None, largest: int = 0) -> Array:
    """What ``dtype`` has of them, in that type. Integers keep to ``interval``, floats are asked about all.

    ``largest``, unless it is 0, takes the place of larger finite magnitudes.
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
    # The NaN whose significand is all ones becomes 0 if it is rounded to fewer bits as a number is.
    kind = numpy_dtype(dtype)
    all_bits: Array = np.array([2 ** (dtype.bits - 1) - 1], f"u{kind.itemsize}").view(kind)
    return np.concatenate((round_to(values, dtype), all_bits[np.isnan(all_bits)]))
