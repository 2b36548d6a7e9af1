"""What fresh memory of NumPy's holds: a poison, where it is a block that was freed a moment ago.

NumPy keeps small blocks of each size for itself, and malloc hands out the larger ones again, the last freed first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optest.memory.poisons import Poison
from optest.numerics import Array, dtype_of

__all__ = ["fill_freed_blocks", "holding", "may_hold"]

_BLOCKS = 4
"""Of each size: a function has arrays for steps before that for its result."""
_MOST_BYTES = 1 << 24
_SMALL_BYTES = 1 << 14


def fill_freed_blocks(sizes: Sequence[int], poison: Poison) -> None:
    """Take, fill and free some blocks of each size in bytes. Larger ones come from the system, as zeros."""
    byte = 0xA5 if poison is Poison.A5 else 0x5A
    taken = [np.empty(size, np.uint8) for size in sizes if 0 < size <= _MOST_BYTES for _ in range(_BLOCKS)]
    for each in taken:
        each.fill(byte)


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
