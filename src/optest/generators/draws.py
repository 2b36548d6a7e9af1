"""From random bits to values of an element type: normal, uniform, integers, special values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from optest.generators.counter import SMALL_WORDS, Stream, words
from optest.generators.domains import Pieces, fold
from optest.generators.normal import normal_table
from optest.numerics import Array, numpy_dtype, round_to
from optest.spec import DType, Kind
from optest.spec import dtype as dtype_called

_U16, _U32, _U64 = np.dtype("<u2"), np.dtype("<u4"), np.dtype("<u8")
# Arrays without dimensions: as operands they cost a third of what Python's integers do.
_ONE, _EIGHT, _SIXTY_THREE, _BYTE, _SIGN = (np.array(value, np.uint64) for value in (1, 8, 63, 0xFF, 0x100))
_HALF, _LOW_HALF = np.array(32, np.uint64), np.array(2**32 - 1, np.uint64)
_ONE_32 = np.array(1, np.uint32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How elements are made of words: each takes ``width`` bits (16, 32 or 64), in order, lowest bits first."""

    width: int
    dtype: DType
    of: Callable[[Array], Array]


_LANES = Draw(width=32, dtype=dtype_called("uint32"), of=lambda block: block.view(_U32))


def drawn(draw: Draw, stream: Stream, count: int) -> Array:
    """The first ``count`` elements of ``stream``, one-dimensional."""
    needed = -(-count * draw.width // 64)
    if needed <= SMALL_WORDS:
        return draw.of(stream.head(needed))[:count]
    out = np.empty(needed * (64 // draw.width), numpy_dtype(draw.dtype))
    start = 0
    for block in words(stream, needed):
        made = draw.of(block)
        out[start : start + made.size] = made
        start += made.size
    return out[:count]


def normal(dtype: DType, mean: float | None, std: float | None, pieces: Pieces | None) -> Draw:
    """Normal values, |x - mean| <= 4.33 std; in an integer type the nearest integers.

    16 bits choose one of 65,536 quantiles. In float32 and float64 the bits of another element of the same word,
    turned around, move it by less than a cell, so that values hardly repeat. The standard normal of 16- and 8-bit
    types comes from a table in that type. ``pieces`` None is "no limits".
    """
    if mean is None and std is None and pieces is None:
        if dtype.bits < 32:
            table = normal_table(dtype.name)
            return Draw(width=16, dtype=dtype, of=lambda block: table.take(block.view(_U16), mode="wrap"))
        return Draw(width=16, dtype=dtype, of=_standard(dtype.name))
    standard = _standard("float64")
    centre, scale = float(mean or 0), float(1 if std is None else std)

    def values(block: Array) -> Array:
        made = standard(block)
        made *= scale
        made += centre
        return made

    return Draw(width=16, dtype=dtype, of=lambda block: _legal(values(block), dtype, pieces))


@cache
def _standard(name: str) -> Callable[[Array], Array]:
    """The standard normal in float32 or float64."""
    table = normal_table(name)
    cell = np.array(2.0**-31, table.dtype)

    def of(block: Array) -> Array:
        values: Array = table.take(block.view(_U16), mode="wrap")
        values += block.byteswap().view(_U16) * cell
        return values

    return of


def _legal(values: Array, dtype: DType, pieces: Pieces | None) -> Array:
    """Finite float64 values in ``pieces`` and in ``dtype``; None if they are small enough for every type."""
    legal = values if pieces is None else fold(values, pieces)
    return round_to(np.rint(legal) if dtype.is_integer else legal, dtype)


def uniform(dtype: DType, low: float, high: float, pieces: Pieces | None) -> Draw:
    """Evenly from ``low`` to ``high``, 32 bits for each element, 53 in float64; rounding may reach ``high``."""
    width = 64 if dtype.bits == 64 else 32
    scale = np.array((high - low) * (2.0**-53 if width == 64 else 2.0**-32))

    def values(block: Array) -> Array:
        made: Array = (block >> 11 if width == 64 else block.view(_U32)) * scale
        made += low
        return made

    return Draw(width=width, dtype=dtype, of=lambda block: _legal(values(block), dtype, pieces))


def integers(dtype: DType, ranges: Pieces) -> Draw:
    """Every integer of the closed ``ranges`` (one or two) equally often, up to one part in 2**32 (2**64).

    A float type has to hold the integers.
    """
    counts = [high - low + 1 for low, high in ranges]
    total = sum(counts)
    starts = [np.array(low % 2**64, np.uint64) for low, _ in ranges]

    def of(block: Array) -> Array:
        offset = _below(total, block)
        values = starts[0] + offset
        if len(ranges) == 2:
            first = np.array(counts[0], np.uint64)
            values = np.where(offset < first, values, starts[1] + (offset - first))
        return _stored(values, dtype)

    return Draw(width=32 if total <= 2**32 else 64, dtype=dtype, of=of)


def _below(total: int, block: Array) -> Array:
    """Numbers from 0 to ``total - 1``: the upper half of word times ``total``, for 32- or 64-bit words."""
    if total <= 2**32:
        return (block.view(_U32) * np.array(total, np.uint64)) >> _HALF
    if total == 2**64:
        return np.array(block)
    upper, lower = np.array(total >> 32, np.uint64), np.array(total & (2**32 - 1), np.uint64)
    high_half, low_half = block >> _HALF, block & _LOW_HALF
    middle = high_half * lower + ((low_half * lower) >> _HALF)
    other = low_half * upper + (middle & _LOW_HALF)
    product: Array = high_half * upper + (middle >> _HALF) + (other >> _HALF)
    return product


def _stored(values: Array, dtype: DType) -> Array:
    """Integers modulo 2**64, each one that ``dtype`` holds, as that type."""
    stored: Array = values if dtype.kind is Kind.UINT else values.view(np.int64)
    if dtype.bits == 4:
        stored = stored.astype(np.int8)
    elif dtype.is_float:
        stored = stored.astype(np.float64)
    return np.asarray(stored, numpy_dtype(dtype))


def integers_by_bits(dtype: DType, largest: int, pieces: Pieces | None) -> Draw:
    """Integers of either sign whose number of bits is even from 0 to that of ``largest``, which is below 2**63.

    So small numbers (equal ones, zeros) come as often as those that a narrower type would lose. Numbers outside
    ``pieces`` are counted from the end that lies next to 0 of the piece of their sign.
    """
    lengths = np.array(largest.bit_length() + 1, np.uint64)
    modulus = np.array(largest + 1, np.uint64)
    signed = dtype.kind is not Kind.UINT

    def of(block: Array) -> Array:
        length = ((block & _BYTE) * lengths) >> _EIGHT
        uncut = (block >> _ONE) >> (_SIXTY_THREE - length)
        magnitude = (uncut % modulus).view(np.int64)
        values = np.where(block & _SIGN, -magnitude, magnitude) if signed else magnitude
        laid = []
        for low, high in pieces or ():
            distance = np.abs(values) % np.array(min(high - low + 1, 2**63 - 1))
            inside = high - distance if high <= 0 else low + distance
            laid.append(np.where((values >= low) & (values <= high), values, inside))
        if laid:
            values = laid[0] if len(laid) == 1 else np.where(values < 0, laid[0], laid[1])
        return _stored(values.view(np.uint64), dtype)

    return Draw(width=64, dtype=dtype, of=of)


def nonzero_integers(dtype: DType, largest: int, signs: tuple[bool, bool]) -> Draw:
    """Integers with magnitudes even from 1 to ``largest``; ``signs`` says whether negative and positive are legal."""
    negative_legal, positive_legal = signs
    count, shift = np.array(largest, np.uint64), np.array(31, np.uint64)

    def of(block: Array) -> Array:
        lanes = block.view(_U32)
        magnitude = (((lanes >> _ONE_32) * count) >> shift) + _ONE
        if not negative_legal:
            return _stored(magnitude, dtype)
        negated = ~magnitude + _ONE
        return _stored(np.where(lanes & _ONE_32, negated, magnitude) if positive_legal else negated, dtype)

    return Draw(width=32, dtype=dtype, of=of)


def booleans(dtype: DType, *, only_true: bool) -> Draw:
    """Both truth values equally often, or True alone."""
    chosen = np.array(not only_true, np.uint16)  # True where the lowest bit is not the one to leave out
    return Draw(width=16, dtype=dtype, of=lambda block: (block.view(_U16) & chosen) == 0)


def sprinkled(base: Array, stream: Stream, values: Array, rate: float) -> Array:
    """Replace a share ``rate`` of ``base``, in place, by members of ``values`` of the same type.

    They take turns, from a drawn one on, so that each comes up before one comes again.
    """
    choice = drawn(_LANES, stream, base.size)
    places = np.flatnonzero((choice >> 16) < round(rate * 65536))
    if places.size:
        first = int(choice[places[0]] & 0xFFFF)
        # The step reaches every value, with neighbours far apart: near the golden section, and coprime.
        steps = range(max(1, round(0.618 * values.size)), 2 * values.size + 1)
        step = next(step for step in steps if math.gcd(step, values.size) == 1)
        base[places] = values[(first + step * np.arange(places.size)) % values.size]
    return base
