"""Guarded memory of a call: one buffer per tensor, filled before the call and checked after it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from optest.clib.ffi.faults import WORKSPACE
from optest.memory.buffers import Buffer
from optest.memory.poisons import Poison
from optest.memory.regions import Placement
from optest.numerics import Array, numpy_dtype, view
from optest.spec import Reason, TensorSpec, dtype

_IMAGE_BYTES = 1 << 16  # Larger buffers are checked piece by piece, not compared with a complete image.

_BLANK_BYTES = 1 << 13  # Larger poisoned buffers are not cached: there are several poisons, and many buffers.

_ALIGNMENT_BYTES = 64
_WORKSPACE_ALIGNMENT_BYTES = 256
# The alignment that malloc promises: libraries cast a workspace to the types that they need.
_WORKSPACE_PAGE_ALIGNMENT_BYTES = 16

_POOLED_BYTES = 1 << 18
_POOLED_PLACES = 48
_LEFT_PLACES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPlacement:
    """Position of buffers in memory."""

    placement: Placement = Placement.HEAP  # on the heap, or next to an inaccessible page
    shift: int = 0  # elements after a multiple of 64 bytes, on the heap
    alignment: int = 1  # of pointers, in bytes; 1 is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """Poison of the bytes that a call must not read."""

    outputs: Poison = Poison.A5
    workspace: int = 0xFF
    inputs: Poison = Poison.NAN  # around the elements


PlaceKey = tuple[BufferPlacement, tuple[tuple[str, TensorSpec], ...], int]


@dataclass(slots=True)
class _Slot:
    """One buffer with its expected bytes."""

    key: str
    buffer: Buffer
    poison: Poison = Poison.A5
    image: bytes = b""  # expected bytes, except for an output's elements
    pristine: Array | None = None  # elements before the call, of outputs
    values: Array | None = None
    is_output: bool = False
    is_small: bool = False
    is_protected: bool = False
    name: str = ""
    words: Array | None = None  # integer view of a small contiguous output
    word: Array | None = None  # the poison as such an integer
    blanks: dict[Poison, _Blank] = field(default_factory=dict)  # cached poisoned states of a small buffer

    def __post_init__(self) -> None:
        self.is_output = self.key.startswith("output:")
        self.is_small = self.buffer.region.memory.size <= _IMAGE_BYTES
        self.name = self.key.partition(":")[2]
        self.words = self.buffer.words() if self.is_output and self.is_small else None

    def has_untouched(self) -> bool:
        """Return whether an element still holds the poison."""
        if self.words is None or self.word is None:
            return replace(self.buffer, poison=self.poison).has_untouched()
        return b"\1" in (self.words == self.word).tobytes()


@dataclass(frozen=True, slots=True)
class _Blank:
    """Bytes of a buffer filled with a poison, and its elements among them."""

    image: bytes
    memory: Array
    elements: Array
    word: Array | None


@dataclass(slots=True)
class BufferSet:
    """Memory of one call: a buffer for each tensor of ``key``, and a workspace; pages need ``mprotect``."""

    key: PlaceKey
    slots: dict[str, _Slot] = field(init=False)  # by role (input:a); workspace if it has bytes
    outputs: tuple[_Slot, ...] = field(init=False)

    def __post_init__(self) -> None:
        where, tensors, workspace_bytes = self.key
        self.slots = {role: _Slot(role, _buffer(role, spec, where)) for role, spec in tensors}
        if workspace_bytes:
            self.slots[WORKSPACE] = _Slot(WORKSPACE, workspace_buffer(workspace_bytes, where.placement))
        self.outputs = tuple(slot for slot in self.slots.values() if slot.is_output)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(slot.buffer for slot in self.slots.values())

    def pointers(self) -> dict[str, Any]:
        """Return buffers by role; for the workspace its address (NULL without bytes) and size."""
        buffers: dict[str, Any] = {role: slot.buffer for role, slot in self.slots.items()}
        workspace = buffers.get(WORKSPACE)
        buffers[WORKSPACE] = None if workspace is None else workspace.address
        return {**buffers, "workspace_size": self.key[2]}

    def fill(self, filling: Filling, values: Mapping[str, Array]) -> None:
        """Poison all buffers, then write the values: inputs, and initial values of outputs."""
        for slot in self.slots.values():
            if slot.key == WORKSPACE:
                slot.poison = Poison.A5
                slot.buffer.cover(Poison.A5, elements=False)
                slot.buffer.array.fill(np.uint8(filling.workspace))
                slot.values = None
                if slot.is_small:
                    _take_image(slot)
            else:
                poison = filling.outputs if slot.is_output else filling.inputs
                _fill_tensor(slot, poison, values.get(slot.key))

    @property
    def is_restored(self) -> bool:
        """Whether :meth:`collect` restores every output to its state before the call."""
        return all(slot.is_small for slot in self.outputs)

    def collect(self, *, copied: bool = True) -> dict[str, Array]:
        """Return the outputs by name (small ones always copied), restore them, and raise as ``require_clean``."""
        outputs = {}
        for slot in self.outputs:
            array = slot.buffer.array
            outputs[slot.name] = np.array(array) if copied or slot.is_small else array
        self.require_clean()
        return outputs

    def has_untouched(self, but: Mapping[str, Array]) -> bool:
        """Return whether an element of an output still holds the poison; ignore the outputs in ``but``."""
        return any([slot.has_untouched() for slot in self.outputs if slot.key not in but])  # noqa: C419 - a list avoids a generator frame

    def untouched(self) -> dict[str, Array]:
        """Return masks by output name: elements that still hold the poison; call it before :meth:`collect`."""
        return {slot.name: replace(slot.buffer, poison=slot.poison).untouched() for slot in self.outputs}

    def require_clean(self) -> None:
        """Raise OUT_OF_BOUNDS, INPUT_MUTATED or WORKSPACE for a forbidden write; restore small outputs."""
        for slot in self.slots.values():
            if slot.is_small:
                if slot.pristine is not None:
                    np.copyto(slot.buffer.array, slot.pristine)  # their state before the call
                if slot.buffer.region.memory.tobytes() == slot.image:
                    continue
            _require_clean_slot(slot)

    def written_since(self) -> str | None:
        """Return the small output that was written after :meth:`collect` restored it, else None."""
        for slot in self.outputs:
            if slot.is_small and slot.image and slot.buffer.region.memory.tobytes() != slot.image:
                return slot.buffer.name
        return None


def _buffer(role: str, spec: TensorSpec, where: BufferPlacement) -> Buffer:
    """Allocate the buffer of a tensor at ``where``, without poison."""
    name = role.replace(":", " ")
    # Page placement aligns the storage, but the pointer points at offset elements behind it.
    is_aligned_there = where.alignment == 1 or not spec.offset
    return Buffer.allocate(
        spec,
        name=name,
        placement=where.placement if is_aligned_there else Placement.HEAP,
        alignment=max(_ALIGNMENT_BYTES, where.alignment),
        page_alignment=where.alignment,
        shift=where.shift if spec.elements and where.alignment == 1 else 0,
        poisoned=False,
    )


def workspace_buffer(size: int, placement: Placement = Placement.HEAP) -> Buffer:
    """Allocate scratch memory of ``size`` bytes without initial contents."""
    return Buffer.allocate(
        TensorSpec(dtype=dtype("uint8"), shape=(size,)),
        name=WORKSPACE,
        placement=placement,
        alignment=_WORKSPACE_ALIGNMENT_BYTES,
        page_alignment=_WORKSPACE_PAGE_ALIGNMENT_BYTES,
    )


def _fill_tensor(slot: _Slot, poison: Poison, values: Array | None) -> None:
    """Poison a slot's buffer and write the values; make a large input read-only if its memory allows it."""
    buffer = slot.buffer
    slot.poison = poison
    slot.values = values
    if not slot.is_small:
        # A protected input is read-only until the next fill: a write crashes at its address.
        if slot.is_protected:
            buffer.region.protect(writeable=True)
        buffer.cover(poison, elements=slot.is_output)
        if values is not None:
            buffer.put(values)
        slot.is_protected = not slot.is_output and buffer.region.is_protectable
        if slot.is_protected:
            buffer.region.protect(writeable=False)
        return
    blank = slot.blanks.get(poison) or _blank(slot, poison)
    np.copyto(buffer.region.memory, blank.memory)
    slot.image, slot.word = blank.image, blank.word
    slot.pristine = blank.elements if slot.is_output else None
    if values is not None:
        buffer.put(values)
        _take_image(slot)


def _blank(slot: _Slot, poison: Poison) -> _Blank:
    """Poison the slot's buffer; return its bytes, cached if they are few."""
    slot.buffer.cover(poison)
    _take_image(slot, with_elements=True)
    assert slot.pristine is not None
    word = None
    if slot.words is not None:  # a 0-d array is the cheapest operand
        word = np.frombuffer(poison.pattern(slot.buffer.spec.dtype), slot.words.dtype).reshape(())
    blank = _Blank(slot.image, np.frombuffer(slot.image, np.uint8), slot.pristine, word)
    if slot.buffer.region.memory.size <= _BLANK_BYTES:
        slot.blanks[poison] = blank
    return blank


def _take_image(slot: _Slot, *, with_elements: bool = False) -> None:
    """Store the buffer's bytes as the expected image, and for outputs and workspace a view of the elements."""
    region = slot.buffer.region
    slot.image = region.memory.tobytes()
    if with_elements or slot.key == WORKSPACE or slot.is_output:
        spec = slot.buffer.spec
        storage = np.frombuffer(slot.image, np.uint8)[region.start : region.end]
        slot.pristine = view(storage.view(numpy_dtype(spec.dtype)), spec)


def _require_clean_slot(slot: _Slot) -> None:
    """Raise the fault of the first byte in a slot that the library was not allowed to write."""
    if slot.is_protected:
        return
    buffer = replace(slot.buffer, poison=slot.poison)
    reason = Reason.OUT_OF_BOUNDS
    if slot.key == WORKSPACE:
        outside = buffer.outside()
        change, reason = outside and outside.in_plain_bytes(), Reason.WORKSPACE
    elif slot.is_output or slot.values is None:
        change = buffer.outside()
    else:
        change = buffer.mutated(slot.values)
        if change is not None and change.place == "element":
            reason = Reason.INPUT_MUTATED
    if change is not None:
        raise change.fault(reason)


class PlacePool:
    """Pool of small buffer sets for cases with the same tensor specs; each set belongs to one case at a time."""

    def __init__(self) -> None:
        self._free: dict[PlaceKey, list[BufferSet]] = {}
        self._count = 0
        self._left: deque[BufferSet] = deque(maxlen=_LEFT_PLACES)

    def take(self, key: PlaceKey) -> BufferSet:
        """Return a pooled buffer set of this key, or a new one."""
        waiting = self._free.get(key)
        if not waiting:
            return BufferSet(key)
        self._count -= 1
        return waiting.pop()

    def leave(self, place: BufferSet) -> None:
        """Keep the memory without reusing it: a thread of a faulty library may still write there."""
        self._left.append(place)

    def give_back(self, place: BufferSet) -> None:
        """Pool a buffer set for the next case, if it is small."""
        if sum(buffer.region.memory.size for buffer in place.buffers) > _POOLED_BYTES:
            return
        if self._count >= _POOLED_PLACES:
            self._free.clear()
            self._count = 0
        self._free.setdefault(place.key, []).append(place)
        self._count += 1
