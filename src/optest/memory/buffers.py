"""Buffers that optest owns, for any layout: whatever is not an element is poisoned and watched."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from optest.errors import plural
from optest.memory.poisons import Poison
from optest.memory.regions import Placement, Region, heap_region, page_region
from optest.numerics import Array, numpy_dtype, view
from optest.spec import DType, Fault, Reason, TensorSpec, contiguous_strides, format_shape

_GUARD_BYTES = 256
_ALIGNMENT_BYTES = 64
_CACHED_ELEMENTS = 1 << 20
_SMALL_BYTES = 1 << 14
_PIECE = 1 << 18
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Bytes of a buffer that are not what they were.

    ``place`` is ``element``, ``gap`` (between elements), ``before`` or ``behind``. ``byte`` counts from the pointer
    that was handed over; ``distance`` from the nearer end of the storage, for ``before`` and ``behind``. ``index`` is
    that of the element, or of the nearest: for a gap of the last element in memory before it, outside of the first or
    the last in memory; None where there is none. ``slots`` counts changed element-sized
    pieces of the same kind, inside or outside the elements.
    """

    buffer: str
    place: str
    byte: int
    slots: int
    distance: int = 0
    index: tuple[int, ...] | None = None
    was: bytes = b""
    became: bytes = b""

    def __str__(self) -> str:
        of = f" of {self.buffer}" if self.buffer else ""
        more = f" ({self.slots} places in all)" if self.slots > 1 else ""
        match self.place:
            case "element":
                where = f"in element {list(self.index or ())}{of}, at byte {self.byte}"
            case "gap":
                after = f"behind element {list(self.index)}" if self.index is not None else "before the first element"
                where = f"in a gap between the elements{of}, {after}, at byte {self.byte}"
            case "before":
                where = f"{plural(self.distance, 'byte')} before the start{of}{self._beside('before')}"
            case _:
                where = f"{plural(self.distance, 'byte')} behind the end{of}{self._beside('behind')}"
        return f"memory was written {where}: {self.was.hex(' ')} became {self.became.hex(' ')}{more}"

    def in_plain_bytes(self) -> Change:
        """The same of memory whose bytes are nobody's elements, as those of a workspace."""
        return replace(self, index=None)

    def fault(self, reason: Reason) -> Fault:
        """What it is to a case."""
        return Fault(reason, str(self), details={"buffer": self.buffer, "place": self.place, "byte": self.byte})

    def _beside(self, side: str) -> str:
        """A tensor of one element needs no index."""
        return f", {side} element {list(self.index)}" if self.index else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """The storage of one tensor between guard zones or forbidden pages.

    ``address`` is that of element [0, 0, …]: the pointer that a library gets. At first every byte holds the poison,
    the elements too. ``array`` is the tensor itself; what is written into it is
    never reported by :meth:`outside`, whatever the strides, and any other byte always is.
    """

    name: str
    spec: TensorSpec
    poison: Poison
    address: int
    region: Region = field(repr=False)
    array: Array = field(repr=False)

    @classmethod
    def allocate(
        cls,
        spec: TensorSpec,
        *,
        name: str = "",
        poison: Poison = Poison.A5,
        placement: Placement = Placement.HEAP,
        alignment: int = _ALIGNMENT_BYTES,
        shift: int = 0,
        guard_bytes: int = _GUARD_BYTES,
        page_alignment: int = 1,
        poisoned: bool = True,
    ) -> Buffer:
        """Memory for ``spec``, poisoned, unless whoever asks does so himself before each call.

        On the heap :attr:`address` lies ``shift`` elements behind a multiple of ``alignment`` bytes, and each guard
        zone has at least ``guard_bytes``. Against pages the last or the first byte of the storage is the last or
        first that may be touched, and the elements decide the alignment; ``page_alignment`` bytes, if more, leave
        watched bytes between the storage and the page behind it.

        Raises:
            ValueError: for an alignment that is no power of two, or smaller than an element.
            Unavailable: for pages where the system has no ``mprotect``.
        """
        size = spec.dtype.itemsize_bytes
        if alignment < size or alignment & (alignment - 1):
            raise ValueError(f"alignment is {alignment}, but should be a power of two and {size} or more")
        nbytes = spec.storage_elements * size
        if placement is Placement.HEAP:
            guard = -(-guard_bytes // size) * size
            region = heap_region(
                nbytes, guard=guard, alignment=alignment, pointer=spec.offset * size, shift=shift * size
            )
        else:
            region = page_region(nbytes, at_end=placement is Placement.PAGES_END, alignment=page_alignment)
        if poisoned:
            _cover(region.memory, poison.pattern(spec.dtype))
        storage = region.memory[region.start : region.end].view(numpy_dtype(spec.dtype))
        address = region.address + region.start + spec.offset * size
        return cls(name=name, spec=spec, poison=poison, address=address, region=region, array=view(storage, spec))

    @property
    def element(self) -> DType:
        return self.spec.dtype

    @property
    def _pointer(self) -> int:
        """Where in the storage the pointer points that is handed over, in bytes."""
        return self.spec.offset * self.spec.dtype.itemsize_bytes

    @property
    def _strides(self) -> tuple[int, ...]:
        return contiguous_strides(self.spec.shape) if self.spec.strides is None else self.spec.strides

    def cover(self, poison: Poison, *, elements: bool = True) -> None:
        """Cover the memory with a poison, without ``elements`` only what is none, where that is cheaper.

        Whoever covers with another poison than :attr:`poison` asks afterwards about a buffer that has it.
        """
        pattern = poison.pattern(self.spec.dtype)
        if elements or not _is_solid(self.spec):
            _cover(self.region.memory, pattern)
            return
        _cover(self.region.memory[: self.region.start], pattern)
        _cover(self.region.memory[self.region.end :], pattern)

    def put(self, values: Array) -> None:
        """Copy values of the same shape and dtype into the elements; the gaps stay poisoned.

        Raises:
            ValueError: for another shape or dtype.
        """
        if values.shape != self.array.shape or values.dtype != self.array.dtype:
            raise ValueError(
                f"values are {values.dtype}[{format_shape(values.shape)}], but should be {self.spec} for {self.name}"
            )
        np.copyto(self.array, values)

    def outside(self) -> Change | None:
        """The write outside the elements that is nearest to them: a gap's first, else the nearest in a guard zone."""
        pattern = self.poison.pattern(self.spec.dtype)
        if not _is_solid(self.spec):
            inside = self.region.memory[self.region.start : self.region.end]
            changed = _differs(inside, np.frombuffer(pattern, np.uint8), len(pattern))
            changed &= ~_owned(self.spec)
            if changed.any():
                return self._in_gap(changed, pattern, inside)
        region = self.region
        zones = region.memory[: region.start], region.memory[region.end :]
        # A zone's length is a multiple of the element's, so it holds whole patterns from its start.
        contents = [pattern * (zone.size // len(pattern)) for zone in zones]
        change = written_beside(self.name, zones, contents, len(pattern), region.end - region.start)
        if change is None:
            return None
        nearest = self._outermost(first=change.place == "before")
        return replace(change, byte=change.byte - self._pointer, index=nearest)

    def mutated(self, values: Array) -> Change | None:
        """The first element that is not, bit for bit, what :meth:`put` copied, else the nearest write outside."""
        given, left = self._packed(values), self._packed(self.array)
        if given.nbytes <= _SMALL_BYTES and given.tobytes() == left.tobytes():
            return self.outside()
        size = self.spec.dtype.itemsize_bytes
        changed = _differs(given, left, size)
        if not changed.any():
            return self.outside()
        first = int(np.argmax(changed))
        was, became = (each[first * size : (first + 1) * size].tobytes() for each in (given, left))
        index = tuple(int(axis) for axis in np.unravel_index(first, self.spec.shape))
        slot = sum(axis * stride for axis, stride in zip(index, self._strides, strict=True))
        byte = slot * size + next(place for place in range(size) if was[place] != became[place])
        count = int(changed.sum())
        return Change(buffer=self.name, place="element", byte=byte, slots=count, index=index, was=was, became=became)

    def _packed(self, values: Array) -> Array:
        """The bytes of the elements of a tensor, in row-major order; a view where that is their order."""
        packed: Array = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        return packed

    def _in_gap(self, changed: Array, pattern: bytes, storage: Array) -> Change:
        """Report the first changed slot of the storage, which held the pattern."""
        slot, size = int(np.argmax(changed)), len(pattern)
        became = storage[slot * size : (slot + 1) * size].tobytes()
        byte = slot * size + next(index for index in range(size) if pattern[index] != became[index])
        below = np.flatnonzero(_owned(self.spec)[:slot])
        return Change(
            buffer=self.name,
            place="gap",
            byte=byte - self._pointer,
            slots=int(changed.sum()),
            index=self._index(int(below[-1])) if below.size else None,
            was=pattern,
            became=became,
        )

    def _index(self, slot: int) -> tuple[int, ...]:
        """The index of an element in this place of the storage; the first, where several share it."""
        slots = np.arange(self.spec.storage_elements)
        places = _strided(slots, self.spec)
        index = np.argwhere(np.atleast_1d(places) == slot)[0]
        return tuple(int(axis) for axis in index[: self.array.ndim])

    def _outermost(self, *, first: bool) -> tuple[int, ...] | None:
        """The index of the first or of the last element in memory; None if there is none."""
        if not self.spec.elements:
            return None
        ends = zip(self.spec.shape, self._strides, strict=True)
        return tuple(size - 1 if (stride > 0) != first and stride else 0 for size, stride in ends)

    def untouched(self) -> Array:
        """Which elements still hold the poison, byte for byte, in the tensor's shape."""
        pattern = np.frombuffer(self.poison.pattern(self.spec.dtype), np.uint8)
        differs = _differs(self._packed(self.array), pattern, pattern.size)
        return np.logical_not(differs, out=differs).reshape(self.spec.shape)

    def describe(self, address: int) -> str | None:
        """Where a faulting address lies, in words; None if it is not near this buffer."""
        region = self.region
        offset = address - region.address
        if not -region.forbidden <= offset < region.memory.size + region.forbidden:
            return None
        what = f"{self.name} ({self.spec})" if self.name else str(self.spec)
        size = self.spec.dtype.itemsize_bytes
        if offset < region.start:
            before = region.start - offset
            elements = plural(-(-before // size), "element")
            return f"{plural(before, 'byte')} before the start of {what}, {elements} before the first"
        if offset >= region.end:
            behind = offset - region.end
            elements = plural(behind // size + 1, "element")
            return f"{plural(behind, 'byte')} behind the end of {what}, {elements} behind the last"
        return f"at byte {offset - region.start - self._pointer} of {what}"

    def words(self) -> Array | None:
        """The elements as integers of their size in a row; None where they have gaps between them, or no such size."""
        size = self.spec.dtype.itemsize_bytes
        is_packed = self.array.flags.c_contiguous and size in _WORDS
        return self.array.reshape(-1).view(_WORDS[size]) if is_packed else None

    def has_untouched(self) -> bool:
        """Whether any element still holds the poison; in pieces, so that a large buffer costs no more than reading."""
        words = self.words()
        if words is None:
            return bool(self.untouched().any())
        pattern = np.frombuffer(self.poison.pattern(self.spec.dtype), words.dtype)[0]
        pieces = range(0, words.size, _PIECE)
        return any(bool((words[first : first + _PIECE] == pattern).any()) for first in pieces)


def written_beside(
    name: str, zones: Sequence[Array], contents: Sequence[bytes], size: int, nbytes: int
) -> Change | None:
    """The write that is nearest to ``nbytes`` of elements of that ``size``, in the bytes before and behind them."""
    for place, zone, content in zip(("before", "behind"), zones, contents, strict=True):
        if zone.tobytes() == content:
            continue
        changed = np.flatnonzero(zone != np.frombuffer(content, np.uint8))
        at = int(changed[-1 if place == "before" else 0])
        distance = zone.size - at if place == "before" else at
        return Change(
            buffer=name,
            place=place,
            byte=-distance if place == "before" else nbytes + at,
            slots=len(np.unique(changed // size)),
            distance=distance,
            was=content[at : at + 1],
            became=zone[at : at + 1].tobytes(),
        )
    return None


def never_written(first: Buffer, second: Buffer) -> Array:
    """Which elements were written by neither of two calls: they hold the poison of each buffer.

    Raises:
        ValueError: if both buffers were poisoned alike, which would call a written value unwritten.
    """
    if first.poison is second.poison:
        raise ValueError(f"both buffers hold the poison {first.poison.name}, but should hold different ones")
    return np.asarray(first.untouched() & second.untouched())


def _is_solid(spec: TensorSpec) -> bool:
    """Whether every slot of the storage is an element: dense, transposed or reversed from the start of its storage."""
    if spec.strides is None or spec.elements == 0:
        return spec.offset == 0
    step = 1
    for stride, size in sorted((abs(stride), size) for stride, size in zip(spec.strides, spec.shape, strict=True)):
        if size > 1 and stride != step:
            return False
        step *= size
    return spec.lowest_index == 0


def _owned(spec: TensorSpec) -> Array:
    """Which slots of the storage are elements; not to be written."""
    return _cached_owned(spec) if spec.storage_elements <= _CACHED_ELEMENTS else _make_owned(spec)


def _make_owned(spec: TensorSpec) -> Array:
    owned = np.zeros(spec.storage_elements, np.bool_)
    _strided(owned, spec)[...] = True
    owned.flags.writeable = False
    return owned


_cached_owned = lru_cache(maxsize=64)(_make_owned)


def _strided(slots: Array, spec: TensorSpec) -> Array:
    """The tensor's view of an array with one entry for each slot of its storage, whatever its dtype."""
    if spec.elements == 0:
        return slots[:0].reshape(spec.shape)
    strides: Any = None if spec.strides is None else tuple(stride * slots.itemsize for stride in spec.strides)
    tensor: Array = np.ndarray(spec.shape, slots.dtype, slots.data, spec.offset * slots.itemsize, strides)
    return tensor


def _differs(one: Array, other: Array, size: int) -> Array:
    """Which pieces of ``size`` bytes differ from those of ``other``, or from the one piece that it is."""
    if size in _WORDS:
        return np.asarray(one.view(_WORDS[size]) != other.view(_WORDS[size]))
    return np.asarray((one.reshape(-1, size) != other.reshape(-1, size)).any(axis=1))


def _cover(memory: Array, pattern: bytes) -> None:
    if len(set(pattern)) == 1:
        if memory.size > _PIECE:  # faster on fresh pages
            ctypes.memset(memory.ctypes.data, pattern[0], memory.size)
            return
        memory.fill(pattern[0])
    elif len(pattern) in _WORDS:
        words = memory.view(_WORDS[len(pattern)])
        words.fill(np.frombuffer(pattern, words.dtype)[0])
    else:
        memory.reshape(-1, len(pattern))[...] = np.frombuffer(pattern, np.uint8)


def require_written(outputs: Mapping[str, tuple[Array, Array]]) -> None:
    """Require that no element was left out, of outputs by name with the mask of those that were never written.

    Raises:
        Fault: UNWRITTEN for the first output that has some, with all outputs, so that the others can be judged.
    """
    for name, (_, never) in outputs.items():
        if not never.any():
            continue
        index = [int(axis[0]) for axis in np.nonzero(np.atleast_1d(never))][: never.ndim]
        count = f"{int(never.sum())} of {never.size} elements of output {name}"
        raise Fault(
            Reason.UNWRITTEN,
            f"{count} were never written; the first at {index}",
            details={"output": name, "index": index},
            written=outputs,
        )
