"""Poisons: patterns in memory that kernels must not read or write, which reveal it if they do."""

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
    """Byte pattern for every element type.

    NAN, HIGH and LOW reveal *reads*: a sum becomes NaN, a maximum the largest finite number, a minimum the smallest;
    NAN of a type without NaN is a value far from both. A5 and X5A reveal *writes*: bytes that kernels rarely write,
    each the complement of the other, so that no value equals both. FF is NaN in every float type and -1 in every signed
    integer, and shares no byte with the other two.
    """

    NAN = "nan"
    HIGH = "high"
    LOW = "low"
    A5 = "a5"
    X5A = "5a"
    FF = "ff"

    def pattern(self, dtype: DType) -> bytes:
        """Return the bytes of one element of ``dtype``."""
        return _poison_bytes(self, dtype)


# A result that is the same, bit for bit, under all three does not depend on memory that it must not read. Two are not
# enough: a minimum that skips NaN changes only under LOW.
READ_POISONS = (Poison.NAN, Poison.HIGH, Poison.LOW)

# X5A first: as a float it is large (1.5e16 in float32, 203 in float16), so that a sum into memory that was not set to
# zero is wrong. A5 is 2.9e-16, which any sum absorbs.
WRITE_POISONS = (Poison.X5A, Poison.A5)


@cache
def _poison_bytes(poison: Poison, dtype: DType) -> bytes:
    """Return the bytes of one element; NAN of integers is the pattern of A5."""
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
    """Return the bits of the largest (HIGH) or smallest (LOW) finite number, or of a quiet NaN with an odd payload."""
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


# Blocks to fill per size: a function allocates arrays for steps before that for its result.
_BLOCKS = 4
_PROBES = 16
# NumPy caches freed blocks below this size, and reuses the one that was freed last.
_KEPT_BYTES = 1024
_MOST_BYTES = 1 << 24
_MOST_RETRIED_BYTES = 1 << 20
_SMALL_BYTES = 1 << 14


def fill_freed_blocks(sizes: Sequence[int], poison: Poison) -> None:
    """Allocate, fill and free blocks of each size in bytes, until new ones of that size hold the poison, A5 or X5A.

    Blocks above 16 MiB are skipped: the system returns them zeroed.
    """
    # A collection between here and the call would free arrays that malloc reuses before these.
    gc.collect(0)
    byte = 0xA5 if poison is Poison.A5 else 0x5A
    for size in sizes:
        count = _BLOCKS if 0 < size <= _MOST_BYTES else 0
        while count:
            for block in [np.empty(size, np.uint8) for _ in range(count)]:
                block.fill(byte)
            del block
            # Of blocks that NumPy does not cache, malloc reuses the one that was freed first: fill all of them.
            count = 2 * count if size >= _KEPT_BYTES and 2 * count * size <= _MOST_RETRIED_BYTES else 0
            if count and all(block[-1] == byte for block in [np.empty(size, np.uint8) for _ in range(_PROBES)]):
                break


def holding(output: Array, poison: Poison) -> Array:
    """Return a mask of the elements of ``output`` that equal the poison, byte for byte."""
    pattern = np.frombuffer(poison.pattern(dtype_of(output.dtype)), np.uint8)
    packed = np.ascontiguousarray(output).reshape(-1).view(np.uint8).reshape(-1, pattern.size)
    mask: Array = (packed == pattern).all(axis=1).reshape(output.shape)
    return mask


def may_hold(output: Array, poison: Poison) -> bool:
    """Return whether any element may equal the poison; never False if one does."""
    # In a small output the pattern is searched at any byte, which is faster, but also finds parts of two elements.
    if output.nbytes <= _SMALL_BYTES:
        return poison.pattern(dtype_of(output.dtype)) in output.tobytes()
    return bool(holding(output, poison).any())
