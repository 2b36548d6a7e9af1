"""Buffers of any layout, in which all bytes that are not elements are poisoned and checked for writes."""

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

GUARD_BYTES = 256
_ALIGNMENT_BYTES = 64
_CACHED_ELEMENTS = 1 << 20
_SMALL_BYTES = 1 << 14
_PIECE = 1 << 18
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Changed bytes of a buffer.

    ``place`` is ``element``, ``gap`` (between elements), ``before`` or ``behind``. ``byte`` counts from the pointer
    that was passed to the library; ``distance`` from the nearer end of the storage, for ``before`` and ``behind``.
    ``index`` is that of the element; for a gap that of the last element in memory before it; for ``before`` and
    ``behind`` that of the first and the last element in memory; None if there is no such element. ``slots`` counts the
    changed element-sized slots of the same kind, inside or outside the elements.
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
        more = f" ({self.slots} slots in total)" if self.slots > 1 else ""
        match self.place:
            case "element":
                where = f"in element {list(self.index or ())}{of}, at byte {self.byte}"
            case "gap":
                after = f"behind element {list(self.index)}" if self.index is not None else "before the first element"
                where = f"in a gap between the elements{of}, {after}, at byte {self.byte}"
            case "before":
                where = f"{plural(self.distance, 'byte')} before the start{of}{self._nearest_element('before')}"
            case _:
                where = f"{plural(self.distance, 'byte')} behind the end{of}{self._nearest_element('behind')}"
        return f"memory was written {where}: {self.was.hex(' ')} became {self.became.hex(' ')}{more}"

    def fault(self, reason: Reason) -> Fault:
        """Return a fault with this change as message and details."""
        return Fault(reason, str(self), details={"buffer": self.buffer, "place": self.place, "byte": self.byte})

    def _nearest_element(self, side: str) -> str:
        # A 0-d tensor has the index ().
        return f", {side} element {list(self.index)}" if self.index else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Storage of one tensor between guard zones or forbidden pages.

    ``address`` is that of element [0, 0, …]: the pointer for a library. After allocation every byte holds the poison,
    also the elements. ``array`` is the tensor itself; :meth:`outside` reports writes to all other bytes, and never
    those to elements, for any strides.
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
        guard_bytes: int = GUARD_BYTES,
        page_alignment: int = 1,
        poisoned: bool = True,
    ) -> Buffer:
        """Allocate memory for ``spec``, filled with the poison unless ``poisoned`` is False.

        On the heap :attr:`address` is ``shift`` elements behind a multiple of ``alignment`` bytes, and each guard
        zone has at least ``guard_bytes``. With page placements the last or the first byte of the storage is adjacent
        to a forbidden page, and the elements determine the alignment; with a larger ``page_alignment`` checked bytes
        are between the storage and the page behind it.

        Raises:
            ValueError: for an alignment that is no power of two, or smaller than an element.
            Unavailable: for pages if the system has no ``mprotect``.
        """
        size = spec.dtype.itemsize_bytes
        if alignment < size or alignment & (alignment - 1):
            raise ValueError(f"alignment is {alignment}, expected a power of two of {size} or more")
        nbytes = spec.storage_elements * size
        if placement is Placement.HEAP:
            guard = -(-guard_bytes // size) * size
            region = heap_region(
                nbytes, guard=guard, alignment=alignment, pointer=spec.offset * size, shift=shift * size
            )
        else:
            region = page_region(nbytes, at_end=placement is Placement.PAGES_END, alignment=page_alignment)
        if poisoned:
            _fill_memory(region.memory, poison.pattern(spec.dtype))
        storage = region.memory[region.start : region.end].view(numpy_dtype(spec.dtype))
        address = region.address + region.start + spec.offset * size
        return cls(name=name, spec=spec, poison=poison, address=address, region=region, array=view(storage, spec))

    @property
    def element(self) -> DType:
        return self.spec.dtype

    @property
    def _pointer(self) -> int:
        """Offset of :attr:`address` in the storage, in bytes."""
        return self.spec.offset * self.spec.dtype.itemsize_bytes

    @property
    def _strides(self) -> tuple[int, ...]:
        return contiguous_strides(self.spec.shape) if self.spec.strides is None else self.spec.strides

    def cover(self, poison: Poison, *, elements: bool = True) -> None:
        """Fill the memory with ``poison``; without ``elements`` skip the elements of a storage without gaps.

        For another poison than :attr:`poison`, check with a buffer that has that poison.
        """
        pattern = poison.pattern(self.spec.dtype)
        if elements or not _is_solid(self.spec):
            _fill_memory(self.region.memory, pattern)
            return
        _fill_memory(self.region.memory[: self.region.start], pattern)
        _fill_memory(self.region.memory[self.region.end :], pattern)

    def put(self, values: Array) -> None:
        """Copy values of the same shape and dtype into the elements; the gaps keep the poison.

        Raises:
            ValueError: for another shape or dtype.
        """
        if values.shape != self.array.shape or values.dtype != self.array.dtype:
            raise ValueError(
                f"values are {values.dtype}[{format_shape(values.shape)}], expected {self.spec} for {self.name}"
            )
        np.copyto(self.array, values)

    def outside(self) -> Change | None:
        """Return the first write into a gap, else the write nearest to the storage in a guard zone, or None."""
        pattern = self.poison.pattern(self.spec.dtype)
        if not _is_solid(self.spec):
            inside = self.region.memory[self.region.start : self.region.end]
            changed = _differs(inside, np.frombuffer(pattern, np.uint8), len(pattern))
            changed &= ~_element_mask(self.spec)
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
        """Return the first element whose bits differ from ``values``, else the result of :meth:`outside`."""
        before, after = self._packed(values), self._packed(self.array)
        if before.nbytes <= _SMALL_BYTES and before.tobytes() == after.tobytes():
            return self.outside()
        size = self.spec.dtype.itemsize_bytes
        changed = _differs(before, after, size)
        if not changed.any():
            return self.outside()
        first = int(np.argmax(changed))
        was, became = (x[first * size : (first + 1) * size].tobytes() for x in (before, after))
        index = tuple(int(axis) for axis in np.unravel_index(first, self.spec.shape))
        slot = sum(axis * stride for axis, stride in zip(index, self._strides, strict=True))
        byte = slot * size + next(n for n in range(size) if was[n] != became[n])
        count = int(changed.sum())
        return Change(buffer=self.name, place="element", byte=byte, slots=count, index=index, was=was, became=became)

    def require_clean(self, values: Array | None = None, *, reason: Reason = Reason.OUT_OF_BOUNDS) -> None:
        """Raise INPUT_MUTATED if an element differs from ``values``, and ``reason`` for a write to any other byte.

        Without ``values`` the elements may have changed. For WORKSPACE the message names no element.
        """
        change = self.outside() if values is None else self.mutated(values)
        if change is None:
            return
        if reason is Reason.WORKSPACE:
            change = replace(change, index=None)
        raise change.fault(Reason.INPUT_MUTATED if change.place == "element" else reason)

    def _packed(self, values: Array) -> Array:
        """Return the bytes of the elements of a tensor in row-major order; a view if that is their order in memory."""
        packed: Array = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        return packed

    def _in_gap(self, changed: Array, pattern: bytes, storage: Array) -> Change:
        """Describe the first changed slot of the storage, which held the pattern before."""
        slot, size = int(np.argmax(changed)), len(pattern)
        became = storage[slot * size : (slot + 1) * size].tobytes()
        byte = slot * size + next(index for index in range(size) if pattern[index] != became[index])
        below = np.flatnonzero(_element_mask(self.spec)[:slot])
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
        """Return the index of the element in a slot of the storage; the first one if several share it."""
        slots = _strided(np.arange(self.spec.storage_elements), self.spec)
        index = np.argwhere(np.atleast_1d(slots) == slot)[0]
        return tuple(int(axis) for axis in index[: self.array.ndim])

    def _outermost(self, *, first: bool) -> tuple[int, ...] | None:
        """Return the index of the first or of the last element in memory, or None if there are no elements."""
        if not self.spec.elements:
            return None
        ends = zip(self.spec.shape, self._strides, strict=True)
        return tuple(size - 1 if (stride > 0) != first and stride else 0 for size, stride in ends)

    def untouched(self) -> Array:
        """Return a mask of the elements that still hold the poison, byte for byte, in the tensor's shape."""
        pattern = np.frombuffer(self.poison.pattern(self.spec.dtype), np.uint8)
        differs = _differs(self._packed(self.array), pattern, pattern.size)
        return np.logical_not(differs, out=differs).reshape(self.spec.shape)

    def describe(self, address: int) -> str | None:
        """Describe the position of a faulting address relative to this buffer; None if it is not near."""
        region = self.region
        offset = address - region.address
        if not -region.forbidden <= offset < region.memory.size + region.forbidden:
            return None
        tensor = f"{self.name} ({self.spec})" if self.name else str(self.spec)
        size = self.spec.dtype.itemsize_bytes
        if offset < region.start:
            before = region.start - offset
            elements = plural(-(-before // size), "element")
            return f"{plural(before, 'byte')} before the start of {tensor}, {elements} before the first"
        if offset >= region.end:
            behind = offset - region.end
            elements = plural(behind // size + 1, "element")
            return f"{plural(behind, 'byte')} behind the end of {tensor}, {elements} behind the last"
        return f"at byte {offset - region.start - self._pointer} of {tensor}"

    def words(self) -> Array | None:
        """Return the elements as a flat view of unsigned integers; None if they have gaps or no size of 1, 2, 4, 8."""
        size = self.spec.dtype.itemsize_bytes
        is_packed = self.array.flags.c_contiguous and size in _WORDS
        return self.array.reshape(-1).view(_WORDS[size]) if is_packed else None

    def has_untouched(self) -> bool:
        """Return whether any element still holds the poison."""
        # In pieces that stay in the cache: a large buffer is read only once.
        words = self.words()
        if words is None:
            return bool(self.untouched().any())
        pattern = np.frombuffer(self.poison.pattern(self.spec.dtype), words.dtype)[0]
        pieces = range(0, words.size, _PIECE)
        return any(bool((words[first : first + _PIECE] == pattern).any()) for first in pieces)


def written_beside(
    name: str, zones: Sequence[Array], contents: Sequence[bytes], size: int, nbytes: int
) -> Change | None:
    """Return the write into the zones before and behind a tensor that is nearest to it, or None.

    ``contents`` are the expected bytes of the zones, ``size`` the bytes of an element, ``nbytes`` those of the tensor.
    """
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
    """Return a mask of the elements that neither of two calls wrote: they hold the poison of each buffer.

    Raises:
        ValueError: if both buffers have the same poison.
    """
    # With one poison a result equal to it would count as unwritten.
    if first.poison is second.poison:
        raise ValueError(f"both buffers hold the poison {first.poison.name}, expected different ones")
    return np.asarray(first.untouched() & second.untouched())


def _is_solid(spec: TensorSpec) -> bool:
    """Return whether every slot of the storage is an element: dense, transposed or reversed, without an offset."""
    if spec.strides is None or spec.elements == 0:
        return spec.offset == 0
    step = 1
    for stride, size in sorted((abs(stride), size) for stride, size in zip(spec.strides, spec.shape, strict=True)):
        if size > 1 and stride != step:
            return False
        step *= size
    return spec.lowest_index == 0


def _element_mask(spec: TensorSpec) -> Array:
    """Return a read-only mask of the storage's slots that are elements; that of a small tensor is cached."""
    return _cached_mask(spec) if spec.storage_elements <= _CACHED_ELEMENTS else _compute_mask(spec)


def _compute_mask(spec: TensorSpec) -> Array:
    mask = np.zeros(spec.storage_elements, np.bool_)
    _strided(mask, spec)[...] = True
    mask.flags.writeable = False
    return mask


_cached_mask = lru_cache(maxsize=64)(_compute_mask)


def _strided(slots: Array, spec: TensorSpec) -> Array:
    """View an array with one entry per slot of the storage, of any dtype, in the shape and layout of ``spec``."""
    if spec.elements == 0:
        return slots[:0].reshape(spec.shape)
    strides: Any = None if spec.strides is None else tuple(stride * slots.itemsize for stride in spec.strides)
    tensor: Array = np.ndarray(spec.shape, slots.dtype, slots.data, spec.offset * slots.itemsize, strides)
    return tensor


def _differs(first: Array, second: Array, size: int) -> Array:
    """Return a mask of the pieces of ``size`` bytes that differ; ``second`` may be a single piece."""
    if size in _WORDS:
        return np.asarray(first.view(_WORDS[size]) != second.view(_WORDS[size]))
    return np.asarray((first.reshape(-1, size) != second.reshape(-1, size)).any(axis=1))


def _fill_memory(memory: Array, pattern: bytes) -> None:
    """Repeat ``pattern`` throughout ``memory``, whose size is a multiple of its length."""
    if len(set(pattern)) == 1:
        # memset is faster on fresh pages
        if memory.size > _PIECE:
            ctypes.memset(memory.ctypes.data, pattern[0], memory.size)
            return
        memory.fill(pattern[0])
    elif len(pattern) in _WORDS:
        words = memory.view(_WORDS[len(pattern)])
        words.fill(np.frombuffer(pattern, words.dtype)[0])
    else:
        memory.reshape(-1, len(pattern))[...] = np.frombuffer(pattern, np.uint8)


def require_written(outputs: Mapping[str, tuple[Array, Array]]) -> None:
    """Require that all elements were written; ``outputs`` are pairs of output and mask of unwritten elements by name.

    Raises:
        Fault: UNWRITTEN for the first output with unwritten elements; it holds all outputs, so that the written
            elements can be compared.
    """
    for name, (_, never) in outputs.items():
        if not never.any():
            continue
        index = [int(axis[0]) for axis in np.nonzero(np.atleast_1d(never))][: never.ndim]
        raise Fault(
            Reason.UNWRITTEN,
            f"{int(never.sum())} of {never.size} elements of output {name} were never written; the first at {index}",
            details={"output": name, "index": index},
            written=outputs,
        )
