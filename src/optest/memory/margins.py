"""Private copies of inputs between margins: memory beside a tensor, which nobody should read and nobody may write."""

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
    """``nbytes`` on each side of every input, which hold what shows in a result when it is read: NaN, and for integers
    the largest and the smallest number. ``others`` are the margins with other numbers, as (place of the input, side):
    a right result is the same for both, bit for bit.
    """

    nbytes: int
    others: frozenset[tuple[int, str]] = frozenset()
    before_call: Callable[[], object] | None = None
    """What is done last, when the inputs are where they should be."""

    def all_others(self, count: int) -> Margins:
        return self._replace(others=_everywhere(count))

    def around(self, array: Array, place: int, *, before: int = 0) -> Padded:
        """A writeable copy of the input at ``place``, strides and gaps included, in memory of its own.

        ``before`` is how many elements of its storage lie below the lowest one, which decides how it is aligned.
        """
        contents = [
            _content(array.dtype, self.nbytes, bool(self.others) and (place, side) in self.others) for side in SIDES
        ]
        first = before * array.itemsize
        copy, storage, start, end = copy_between(array, _aligned, self.nbytes + first, self.nbytes)
        storage[: self.nbytes], storage[end:] = (np.frombuffer(each, np.uint8) for each in contents)
        if first:
            storage[self.nbytes : start] = 0xFF  # nobody's elements either
        return Padded(copy, storage, end, contents)


@dataclass(slots=True)
class Padded:
    """``array`` lies in ``storage``, between ``contents``, the bytes of both sides."""

    array: Array
    storage: Array = field(repr=False)
    end: int
    contents: list[bytes] = field(repr=False)

    def written(self, name: str) -> Change | None:
        """The write into a margin that is nearest to the tensor."""
        zones = (self.storage[: len(self.contents[0])], self.storage[self.end :])
        return written_beside(name, zones, self.contents, self.array.itemsize, self.array.nbytes)


def storage_around(array: Array) -> tuple[Array, int]:
    """The bytes that the tensor's memory is part of, from a multiple of the alignment on, and where among them element
    [0, 0, …] lies; those of a copy where the memory is not NumPy's own."""
    owner: Any = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    skipped = -address_of(owner) % _ALIGNMENT_BYTES
    at = address_of(array) - address_of(owner) - skipped
    if at < 0 or owner.base is not None or not owner.flags.c_contiguous:
        copy, storage, _, _ = copy_between(array, _aligned, 0, 0)
        return storage, address_of(copy) - address_of(storage)
    return owner.reshape(-1).view(np.uint8)[skipped:], at


def _aligned(size: int, dtype: Any) -> Array:
    whole = np.empty(size + _ALIGNMENT_BYTES, dtype)
    first = -address_of(whole) % _ALIGNMENT_BYTES
    return whole[first : first + size]


@cache
def _everywhere(count: int) -> frozenset[tuple[int, str]]:
    return frozenset(product(range(count), SIDES))


@lru_cache(maxsize=64)
def _content(dtype: np.dtype[Any], nbytes: int, is_other: bool) -> bytes:
    """The bytes of a margin: elements of two values in turn, so that either of a maximum and a minimum shows."""
    kind = dtype_of(dtype)
    values: list[float]
    if is_other and kind.is_inexact:
        largest = np.frombuffer(Poison.HIGH.pattern(kind), dtype)[:1]
        root = float(np.sqrt(widen(largest).real[0]))  # its square and the sum of some thousand are finite
        values = [root, -root]
    elif kind.is_inexact:
        return b"\xff" * nbytes
    elif kind.name == "bool":
        values = [not is_other]
    else:
        values = [1, 0] if is_other else [kind.max_int, kind.min_int]
    narrow = np.array(values, np.uint64 if kind.name == "uint64" else None)
    return np.resize(narrow.astype(dtype).view(np.uint8), nbytes).tobytes()
