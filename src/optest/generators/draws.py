"""Random values of an element type from random bits: normal, uniform, integers, special values."""

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
# 0-d arrays: as operands they take a third of the time of Python's integers.
_ONE, _EIGHT, _SIXTY_THREE, _BYTE, _SIGN = (np.array(value, np.uint64) for value in (1, 8, 63, 0xFF, 0x100))
_HALF, _LOW_HALF = np.array(32, np.uint64), np.array(2**32 - 1, np.uint64)
_ONE_32 = np.array(1, np.uint32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Conversion of random words to elements: each uses ``width`` bits (16, 32 or 64), in order, lowest bits first."""

    width: int
    dtype: DType
    of: Callable[[Array], Array]


_LANES = Draw(width=32, dtype=dtype_called("uint32"), of=lambda block: block.view(_U32))


def drawn(draw: Draw, stream: Stream, count: int) -> Array:
    """Return the first ``count`` elements drawn from ``stream``, one-dimensional."""
    needed = -(-count * draw.width // 64)
    if needed <= SMALL_WORDS:
        return draw.of(stream.head(needed))[:count]
    out = np.empty(needed * (64 // draw.width), numpy_dtype(draw.dtype))
    start = 0
    for block in words(stream, needed):
        elements = draw.of(block)
        out[start : start + elements.size] = elements
        start += elements.size
    return out[:count]


def normal(dtype: DType, mean: float | None, std: float | None, pieces: Pieces | None) -> Draw:
    """Return a draw of normal values with |x - mean| <= 4.33 std, rounded to integers for an integer type.

    16 bits select one of 65,536 quantiles. In float32 and float64 the reversed bytes of a neighbour in the same word
    shift it by less than a cell, so that values hardly repeat. The standard normal of 16- and 8-bit types comes from a
    table in that type. With ``pieces`` None there are no limits.
    """
    if mean is None and std is None and pieces is None:
        if dtype.bits < 32:
            table = normal_table(dtype.name)
            return Draw(width=16, dtype=dtype, of=lambda block: table.take(block.view(_U16), mode="wrap"))
        return Draw(width=16, dtype=dtype, of=_standard(dtype.name))
    standard = _standard("float64")
    centre, scale = float(mean or 0), float(1 if std is None else std)

    def values(block: Array) -> Array:
        scaled = standard(block)
        scaled *= scale
        scaled += centre
        return scaled

    return Draw(width=16, dtype=dtype, of=lambda block: _legal(values(block), dtype, pieces))


@cache
def _standard(name: str) -> Callable[[Array], Array]:
    """Return the function from words to standard normal values of the dtype ``name``, float32 or float64."""
    table = normal_table(name)
    cell = np.array(2.0**-31, table.dtype)

    def of(block: Array) -> Array:
        values: Array = table.take(block.view(_U16), mode="wrap")
        values += block.byteswap().view(_U16) * cell
        return values

    return of


def _legal(values: Array, dtype: DType, pieces: Pieces | None) -> Array:
    """Map finite float64 values into ``pieces`` and round them to ``dtype``; with None only round them."""
    legal = values if pieces is None else fold(values, pieces)
    return round_to(np.rint(legal) if dtype.is_integer else legal, dtype)


def uniform(dtype: DType, low: float, high: float, pieces: Pieces | None) -> Draw:
    """Return a draw of uniform values from ``low`` to ``high``, 32 bits each, 53 in float64; rounding may reach high.

    Values outside ``pieces`` are mirrored into them.
    """
    width = 64 if dtype.bits == 64 else 32
    scale = np.array((high - low) * (2.0**-53 if width == 64 else 2.0**-32))

    def values(block: Array) -> Array:
        scaled: Array = (block >> 11 if width == 64 else block.view(_U32)) * scale
        scaled += low
        return scaled

    return Draw(width=width, dtype=dtype, of=lambda block: _legal(values(block), dtype, pieces))


def integers(dtype: DType, ranges: Pieces) -> Draw:
    """Return a draw of integers from one or two closed ``ranges``, equally likely up to one part in 2**32 (2**64).

    A float ``dtype`` has to hold them exactly.
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
    """Return random integers from 0 to ``total - 1``: the upper half of word * ``total``, for 32- or 64-bit words."""
    if total <= 2**32:
        return (block.view(_U32) * np.array(total, np.uint64)) >> _HALF
    if total == 2**64:
        return np.array(block)
    upper, lower = np.array(total >> 32, np.uint64), np.array(total & (2**32 - 1), np.uint64)
    high_half, low_half = block >> _HALF, block & _LOW_HALF
    middle = high_half * lower + ((low_half * lower) >> _HALF)
    low_middle = low_half * upper + (middle & _LOW_HALF)
    product: Array = high_half * upper + (middle >> _HALF) + (low_middle >> _HALF)
    return product


def _stored(values: Array, dtype: DType) -> Array:
    """Convert integers modulo 2**64, which ``dtype`` can hold, to that type."""
    stored: Array = values if dtype.kind is Kind.UINT else values.view(np.int64)
    if dtype.bits == 4:
        stored = stored.astype(np.int8)
    elif dtype.is_float:
        stored = stored.astype(np.float64)
    return np.asarray(stored, numpy_dtype(dtype))


def integers_by_bits(dtype: DType, largest: int, pieces: Pieces | None) -> Draw:
    """Return a draw of integers with a uniform number of bits, from 0 to that of ``largest`` (below 2**63).

    The sign is random for signed types. Numbers outside ``pieces`` are mapped into the piece of their sign, counted
    from its end next to 0.
    """
    # So small numbers (equal ones, zeros) are as frequent as those that a narrower type would lose.
    lengths = np.array(largest.bit_length() + 1, np.uint64)
    modulus = np.array(largest + 1, np.uint64)
    signed = dtype.kind is not Kind.UINT

    def of(block: Array) -> Array:
        length = ((block & _BYTE) * lengths) >> _EIGHT
        uncut = (block >> _ONE) >> (_SIXTY_THREE - length)
        magnitude = (uncut % modulus).view(np.int64)
        values = np.where(block & _SIGN, -magnitude, magnitude) if signed else magnitude
        mapped = []
        for low, high in pieces or ():
            distance = np.abs(values) % np.array(min(high - low + 1, 2**63 - 1))
            inside = high - distance if high <= 0 else low + distance
            mapped.append(np.where((values >= low) & (values <= high), values, inside))
        if mapped:
            values = mapped[0] if len(mapped) == 1 else np.where(values < 0, mapped[0], mapped[1])
        return _stored(values.view(np.uint64), dtype)

    return Draw(width=64, dtype=dtype, of=of)


def nonzero_integers(dtype: DType, largest: int, signs: tuple[bool, bool]) -> Draw:
    """Return a draw of integers with uniform magnitudes from 1 to ``largest``.

    ``signs`` are whether negative and positive integers are legal.
    """
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
    """Return a draw of both truth values with equal probability, or only of True."""
    mask = np.array(not only_true, np.uint16)
    return Draw(width=16, dtype=dtype, of=lambda block: (block.view(_U16) & mask) == 0)


def sprinkled(base: Array, stream: Stream, values: Array, rate: float) -> Array:
    """Replace a share ``rate`` of the elements of ``base``, in place, by ``values`` of the same type; return ``base``.

    From a random one on, every value is used once before one is repeated.
    """
    choice = drawn(_LANES, stream, base.size)
    indices = np.flatnonzero((choice >> 16) < round(rate * 65536))
    if indices.size:
        first = int(choice[indices[0]] & 0xFFFF)
        # The step reaches every value, with neighbours far apart: near the golden section, and coprime.
        steps = range(max(1, round(0.618 * values.size)), 2 * values.size + 1)
        step = next(step for step in steps if math.gcd(step, values.size) == 1)
        base[indices] = values[(first + step * np.arange(indices.size)) % values.size]
    return base
