"""Counter-based random bits: word ``i`` of an argument depends only on (case key, argument path, i).

The bits are guaranteed: a case draws the same tensors in every version of optest and NumPy, on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np

from optest.numerics import Array

# Words computed at a time: 128 KiB, so that they and the values drawn from them stay in the second-level cache.
BLOCK_WORDS = 1 << 14

# Words that come from one hash, so that a small tensor costs no mixing.
SMALL_WORDS = 8

_WORD = np.dtype("<u8")

# The finaliser "variant 13" of Stafford and the increment of SplitMix64 (Steele, Lea, Flood 2014). The second
# half of the key is added between the two multiplications, so that streams are not parts of one sequence.
_INCREMENT = 0x9E37_79B9_7F4A_7C15
_FIRST = np.array(0xBF58_476D_1CE4_E5B9, np.uint64)
_SECOND = np.array(0x94D0_49BB_1331_11EB, np.uint64)
_SHIFTS = tuple(np.array(shift, np.uint64) for shift in (30, 27, 31))


# Differences of the counters of a block's words from that of the first word.
_STEPS = np.arange(BLOCK_WORDS, dtype=np.uint64) * np.array(_INCREMENT, np.uint64)


class Stream:
    """Random bits of one argument: the first eight words are a BLAKE2b hash, the others are mixed from a second one."""

    __slots__ = ("_head", "_name", "_tail")

    def __init__(self, case_key: str, path: str) -> None:
        self._name = f"{case_key}/{path}".encode()
        self._head = blake2b(self._name).digest()
        self._tail: tuple[int, int] | None = None

    def head(self, count: int) -> Array:
        """Return the first ``count`` words, at most eight, as a read-only array."""
        return np.frombuffer(self._head, _WORD, count)

    def tail(self) -> tuple[int, int]:
        """Return the 128-bit key of the words after the eighth, as two integers."""
        if self._tail is None:
            digest = blake2b(self._name, digest_size=16, person=b"optest tail").digest()
            self._tail = (int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little"))
        return self._tail


def words(stream: Stream, count: int) -> Iterator[Array]:
    """Yield the first ``count`` words as blocks of uint64, the last one shorter.

    Each block is valid until the next one is computed: both use the same memory.
    """
    block = np.empty(min(count, BLOCK_WORDS), np.uint64)
    scratch = np.empty_like(block)
    for start in range(0, count, BLOCK_WORDS):
        size = min(BLOCK_WORDS, count - start)
        out, shifted = block[:size], scratch[:size]
        # Words ``start``, ``start + 1``, …; arithmetic is modulo 2**64.
        first, second = stream.tail()
        np.add(_STEPS[:size], np.array((first + start * _INCREMENT) % 2**64, np.uint64), out=out)
        np.right_shift(out, _SHIFTS[0], out=shifted)
        np.bitwise_xor(out, shifted, out=out)
        np.multiply(out, _FIRST, out=out)
        np.add(out, np.array(second, np.uint64), out=out)
        np.right_shift(out, _SHIFTS[1], out=shifted)
        np.bitwise_xor(out, shifted, out=out)
        np.multiply(out, _SECOND, out=out)
        np.right_shift(out, _SHIFTS[2], out=shifted)
        np.bitwise_xor(out, shifted, out=out)
        if start == 0:
            out[:SMALL_WORDS] = stream.head(min(SMALL_WORDS, size))
        yield out
