"""What stands in memory that is nobody's to read or write: patterns that show when either happens."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from enum import Enum
from functools import cache

import numpy as np

from optest.numerics import Array, dtype_of, numpy_dtype
from optest.spec import DType, Kind

_ODD = 0xA5A5A5A5A5A5A5A5


class Poison(Enum):
    """A pattern for every element type.

    NAN, HIGH and LOW show that memory was *read*: a sum becomes NaN, a maximum the largest finite number, a minimum
    the smallest; where a type has no NaN, a value far from both. A5 and 5A show that memory was *written*: bytes that
    no kernel writes by habit, each the complement of the other, so that no value looks like both. FF is NaN in every
    float type and -1 in every integer, and shares no byte with the other two.
    """

    NAN = "nan"
    HIGH = "high"
    LOW = "low"
    A5 = "a5"
    X5A = "5a"
    FF = "ff"

    def pattern(self, dtype: DType) -> bytes:
        """The bytes of one element."""
        return _pattern(self, dtype)


READ_POISONS = (Poison.NAN, Poison.HIGH, Poison.LOW)
"""A result that is the same, bit for bit, under all three does not depend on what it should not read.

Two are not enough: a minimum that skips NaN shows LOW alone.
"""

WRITE_POISONS = (Poison.X5A, Poison.A5)
"""5A first: as a float it is large (1.5e16 in float32, 203 in float16), so that a sum into memory that nobody set to
zero is wrong. A5 is 2.9e-16, which any sum absorbs."""


@cache
def _pattern(poison: Poison, dtype: DType) -> bytes:
    size = dtype.itemsize_bytes
    if poison is Poison.A5 or (poison is Poison.NAN and not dtype.is_inexact):
        return b"\xa5" * size
    if poison is Poison.X5A:
        return b"\x5a" * size
    if poison is Poison.FF:
        return b"\xff" * size
    if dtype.kind is Kind.COMPLEX:
        return _float_code(poison, dtype, dtype.bits // 2).to_bytes(size // 2, "little") * 2
    if dtype.kind is Kind.FLOAT:
        return _float_code(poison, dtype, dtype.bits).to_bytes(size, "little")
    extreme = (1 if dtype.kind is Kind.BOOL else dtype.max_int) if poison is Poison.HIGH else dtype.min_int
    narrow = np.int64 if dtype.kind is Kind.INT else np.uint64
    return np.array([extreme], narrow).astype(numpy_dtype(dtype)).tobytes()


def _float_code(poison: Poison, dtype: DType, bits: int) -> int:
    """The bits of a quiet NaN with a payload of our own, or of the largest or smallest finite number."""
    mantissa = dtype.precision - 1
    infinity = (1 << (bits - 1)) - (1 << mantissa)
    largest = infinity - 1 if dtype.has_infinity else (1 << (bits - 1)) - 2
    match poison:
        case Poison.HIGH:
            return largest
        case Poison.LOW:
            return largest | 1 << (bits - 1)
    if not dtype.has_infinity:
        return (1 << (bits - 1)) - 1
    quiet = 1 << (mantissa - 1)
    return infinity | quiet | (_ODD & (quiet - 1))


_BLOCKS = 4
"""Of each size: a function has arrays for steps before that for its result."""
_PROBES = 16
_KEPT_BYTES = 1024
"""NumPy keeps freed blocks below this size, and hands out the one that was freed last."""
_MOST_BYTES = 1 << 24
_MOST_RETRIED_BYTES = 1 << 20
_SMALL_BYTES = 1 << 14


def fill_freed_blocks(sizes: Sequence[int], poison: Poison) -> None:
    """Take, fill and free blocks of each size in bytes, until the next ones of that size hold the poison. The largest
    blocks are zeros of the system."""
    gc.collect(0)  # a collection between here and the call would free arrays that malloc hands out before these
    byte = 0xA5 if poison is Poison.A5 else 0x5A
    for size in sizes:
        count = _BLOCKS if 0 < size <= _MOST_BYTES else 0
        while count:
            for block in [np.empty(size, np.uint8) for _ in range(count)]:
                block.fill(byte)
            del block
            # Of blocks that NumPy does not keep, malloc hands out the one that was freed first: all of them are filled.
            count = 2 * count if size >= _KEPT_BYTES and 2 * count * size <= _MOST_RETRIED_BYTES else 0
            if count and all(block[-1] == byte for block in [np.empty(size, np.uint8) for _ in range(_PROBES)]):
                break


def holding(output: Array, poison: Poison) -> Array:
    """Which elements hold the poison, byte for byte."""
    pattern = np.frombuffer(poison.pattern(dtype_of(output.dtype)), np.uint8)
    packed = np.ascontiguousarray(output).reshape(-1).view(np.uint8).reshape(-1, pattern.size)
    found: Array = (packed == pattern).all(axis=1).reshape(output.shape)
    return found


def may_hold(output: Array, poison: Poison) -> bool:
    """Whether any element holds the poison; it may be bytes of two, where that is cheaper to say."""
    if output.nbytes <= _SMALL_BYTES:
        return poison.pattern(dtype_of(output.dtype)) in output.tobytes()
    return bool(holding(output, poison).any())
