"""Output buffers that optest owns: poisoned before the call, with guard zones around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optest.numerics import bits, numpy_dtype
from optest.spec import TensorSpec

__all__ = ["POISONS", "GuardedBuffer", "unwritten"]

POISONS = (0xA5, 0x5A)
"""Byte patterns whose repetition no kernel writes by habit, each the complement of the other."""

_GUARD_BYTES = 256


@dataclass(frozen=True, slots=True)
class GuardedBuffer:
    """One dense output between two guard zones of 256 bytes that all hold the poison."""

    memory: np.ndarray[Any, np.dtype[np.uint8]]
    array: np.ndarray[Any, Any]
    poison: int

    @classmethod
    def make(cls, spec: TensorSpec, poison: int) -> GuardedBuffer:
        """A buffer for the elements of ``spec`` in row-major order, filled with the byte ``poison``."""
        memory = np.full(spec.nbytes + 2 * _GUARD_BYTES, poison, dtype=np.uint8)
        inside = memory[_GUARD_BYTES : _GUARD_BYTES + spec.nbytes]
        return cls(memory, inside.view(numpy_dtype(spec.dtype)).reshape(spec.shape), poison)

    def overrun(self) -> str | None:
        """Which guard zone was written, and how far from the buffer; None if both are intact."""
        before = np.flatnonzero(self.memory[:_GUARD_BYTES] != self.poison)
        if before.size:
            return f"{_GUARD_BYTES - int(before[-1])} bytes before its start"
        after = np.flatnonzero(self.memory[self.memory.size - _GUARD_BYTES :] != self.poison)
        if after.size:
            return f"{int(after[0])} bytes behind its end"
        return None

    def untouched(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which elements still hold the poison, bit for bit."""
        pattern = np.full(self.array.dtype.itemsize, self.poison, dtype=np.uint8)
        element = bits(pattern.view(self.array.dtype))[0]
        return np.asarray(bits(self.array) == element)


def unwritten(first: GuardedBuffer, second: GuardedBuffer) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which elements were never written: they hold each of two poisons after two calls."""
    return first.untouched() & second.untouched()
