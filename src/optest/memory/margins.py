"""Copies of inputs between margins: memory adjacent to a tensor, which a kernel must neither read nor write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from optest.memory.buffers import Change, written_beside
from optest.memory.poisons import Poison
from optest.memory.regions import address_of
from optest.numerics import Array, copy_between, dtype_of, widen

_ALIGNMENT_BYTES = 64
SIDES = ("before", "behind")


class Margins(NamedTuple):
    """Margins of ``nbytes`` on each side of every input, with values that change a result if they are read.

    These are NaN, and for integers the largest and the smallest number. ``others`` are the margins with different
    values, as (index of the input, side): a correct result is the same for both, bit for bit.
    """

    nbytes: int
    others: frozenset[tuple[int, str]] = frozenset()
    # Called last, after the inputs were copied.
    before_call: Callable[[], object] | None = None

    def all_others(self, count: int) -> Margins:
        """Return margins with the different values on both sides of all ``count`` inputs."""
        return self._replace(others=_everywhere(count))

    def around(self, array: Array, place: int, *, before: int = 0) -> Padded:
        """Copy the input with index ``place`` into new writeable memory between margins, with its strides and gaps.

        ``before`` is the number of elements of its storage below its lowest one; it determines the alignment.
        """
        contents = [
            _content(array.dtype, self.nbytes, bool(self.others) and (place, side) in self.others) for side in SIDES
        ]
        first = before * array.itemsize
        copy, storage, start, end = copy_between(array, _aligned, self.nbytes + first, self.nbytes)
        storage[: self.nbytes], storage[end:] = (np.frombuffer(content, np.uint8) for content in contents)
        if first:
            # These slots are no elements either.
            storage[self.nbytes : start] = 0xFF
        return Padded(copy, storage, end, contents)


@dataclass(slots=True)
class Padded:
    """A tensor ``array`` in ``storage`` between margins; ``contents`` are the expected bytes of both margins."""

    array: Array
    storage: Array = field(repr=False)
    end: int
    contents: list[bytes] = field(repr=False)

    def written(self, name: str) -> Change | None:
        """Return the write into a margin that is nearest to the tensor, or None."""
        zones = (self.storage[: len(self.contents[0])], self.storage[self.end :])
        return written_beside(name, zones, self.contents, self.array.itemsize, self.array.nbytes)


def storage_around(array: Array) -> tuple[Array, int]:
    """Return the bytes of the array that owns the tensor's memory, from an aligned address on, and the tensor's offset.

    If the memory is not NumPy's, or not contiguous, return those of a copy.
    """
    owner: Any = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    skipped = -address_of(owner) % _ALIGNMENT_BYTES
    offset = address_of(array) - address_of(owner) - skipped
    if offset < 0 or owner.base is not None or not owner.flags.c_contiguous:
        copy, storage, _, _ = copy_between(array, _aligned, 0, 0)
        return storage, address_of(copy) - address_of(storage)
    return owner.reshape(-1).view(np.uint8)[skipped:], offset


def _aligned(size: int, dtype: Any) -> Array:
    """Return an uninitialised array whose address is a multiple of 64; ``dtype`` has elements of one byte."""
    block = np.empty(size + _ALIGNMENT_BYTES, dtype)
    first = -address_of(block) % _ALIGNMENT_BYTES
    return block[first : first + size]


@cache
def _everywhere(count: int) -> frozenset[tuple[int, str]]:
    return frozenset(product(range(count), SIDES))


@lru_cache(maxsize=64)
def _content(dtype: np.dtype[Any], nbytes: int, is_other: bool) -> bytes:
    """Return the bytes of a margin: NaN for floats, else two alternating values; ``is_other`` selects other ones."""
    # Two values, because one of them changes a maximum and the other one a minimum.
    kind = dtype_of(dtype)
    values: list[float]
    if is_other and kind.is_inexact:
        largest = np.frombuffer(Poison.HIGH.pattern(kind), dtype)[:1]
        # The square of the root, and the sum of some thousand roots, are finite.
        root = float(np.sqrt(widen(largest).real[0]))
        values = [root, -root]
    elif kind.is_inexact:
        return b"\xff" * nbytes
    elif kind.name == "bool":
        values = [not is_other]
    else:
        values = [1, 0] if is_other else [kind.max_int, kind.min_int]
    narrow = np.array(values, np.uint64 if kind.name == "uint64" else None)
    return np.resize(narrow.astype(dtype).view(np.uint8), nbytes).tobytes()
