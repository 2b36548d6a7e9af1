"""Guarded memory of a call: one buffer per tensor, filled before the call and checked after it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from optest.memory.buffers import GUARD_BYTES, Buffer
from optest.memory.poisons import Poison
from optest.memory.regions import Placement
from optest.numerics import Array, numpy_dtype, view
from optest.spec import Reason, TensorSpec, dtype

# Role and name of the buffer of every workspace.
WORKSPACE = "workspace"

_IMAGE_BYTES = 1 << 16  # Larger buffers are checked piece by piece, not compared with a complete image.
_BLANK_BYTES = 1 << 13  # Larger poisoned images are not cached: there are several poisons, and many buffers.

_ALIGNMENT_BYTES = 64
_WORKSPACE_ALIGNMENT_BYTES = 256
# The alignment that malloc promises: libraries cast a workspace to the types that they need.
_WORKSPACE_PAGE_ALIGNMENT_BYTES = 16

_POOLED_BYTES = 1 << 18
_POOLED_SETS = 48
_LEFT_SETS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPlacement:
    """Position of buffers in memory."""

    placement: Placement = Placement.HEAP  # on the heap, or next to an inaccessible page
    shift: int = 0  # elements after a multiple of 64 bytes, on the heap
    alignment: int = 1  # of pointers, in bytes; 1 is none
    guard_bytes: int = GUARD_BYTES  # at least, on each side, on the heap


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """Poison of the bytes that a call must not read."""

    outputs: Poison = Poison.A5
    workspace: int = 0xFF
    inputs: Poison = Poison.NAN  # around the elements


# Placement, specs by role, and bytes of the workspace.
BufferKey = tuple[BufferPlacement, tuple[tuple[str, TensorSpec], ...], int]


class _Blank(NamedTuple):
    """A buffer full of its poison: all bytes, also as an array, and the elements if a call may write them."""

    buffer: Buffer
    image: bytes
    memory: Array
    elements: Array | None


class GuardedBuffer:
    """One buffer of a set with its expected bytes; a call may write the elements of outputs and of the workspace."""

    def __init__(self, role: str, buffer: Buffer) -> None:
        self.buffer = buffer
        self.role = role
        self.name = role.partition(":")[2]
        self.is_output = role.startswith("output:")
        self.is_small = buffer.region.memory.size <= _IMAGE_BYTES
        self._is_written = self.is_output or role == WORKSPACE
        self._is_protected = False
        self._values: Array | None = None
        self._image = b""  # expected bytes of a small buffer, with the elements as before the call
        self._elements: Array | None = None  # before the call, if the call may write them
        self._blanks: dict[Poison, _Blank] = {}

    def fill(self, poison: Poison, values: Array | None) -> None:
        """Poison the buffer and write the values; make a large input read-only if its memory allows it."""
        self._values = values
        if self.is_small:
            blank = self._blanks.get(poison) or self._blank(poison)
            self.buffer = blank.buffer
            np.copyto(self.buffer.region.memory, blank.memory)
            self._image, self._elements = blank.image, blank.elements
            if values is not None:
                self.buffer.put(values)
                self._image = self.buffer.region.memory.tobytes()
                self._elements = self._elements_in(self._image)
            return
        # A protected input is read-only until the next fill: a write crashes at its address.
        region = self.buffer.region
        if self._is_protected:
            region.protect(writeable=True)
        self.buffer = replace(self.buffer, poison=poison)
        self.buffer.cover(poison, elements=self.is_output)
        if values is not None:
            self.buffer.put(values)
        self._is_protected = not self._is_written and region.is_protectable
        if self._is_protected:
            region.protect(writeable=False)

    def _blank(self, poison: Poison) -> _Blank:
        """Poison the buffer and return its bytes, cached if they are few."""
        self.buffer.cover(poison)
        image = self.buffer.region.memory.tobytes()
        buffer = replace(self.buffer, poison=poison)
        blank = _Blank(buffer, image, np.frombuffer(image, np.uint8), self._elements_in(image))
        if len(image) <= _BLANK_BYTES:
            self._blanks[poison] = blank
        return blank

    def _elements_in(self, image: bytes) -> Array | None:
        """Return the elements in a copy of the buffer's bytes, None if a call must not write them."""
        if not self._is_written:
            return None
        region, spec = self.buffer.region, self.buffer.spec
        storage = np.frombuffer(image, np.uint8)[region.start : region.end]
        return view(storage.view(numpy_dtype(spec.dtype)), spec)

    def has_changed(self) -> bool:
        """Return whether a small buffer, once filled, has other bytes than before the call."""
        return bool(self._image) and self.buffer.region.memory.tobytes() != self._image

    def require_clean(self) -> None:
        """Raise INPUT_MUTATED, OUT_OF_BOUNDS or WORKSPACE for a forbidden write; restore small outputs."""
        if self._is_protected:
            return
        if self.is_small:
            if self._elements is not None:
                np.copyto(self.buffer.array, self._elements)
            if self.buffer.region.memory.tobytes() == self._image:
                return
        reason = Reason.WORKSPACE if self.role == WORKSPACE else Reason.OUT_OF_BOUNDS
        self.buffer.require_clean(None if self._is_written else self._values, reason=reason)


class BufferSet:
    """Memory of one call: a buffer for each tensor of ``key``, and a workspace; pages need ``mprotect``."""

    def __init__(self, key: BufferKey) -> None:
        where, tensors, workspace_bytes = self.key = key
        # By role (``input:a``); ``workspace`` if it has bytes.
        self.slots = {role: GuardedBuffer(role, _allocate(role, spec, where)) for role, spec in tensors}
        if workspace_bytes:
            self.slots[WORKSPACE] = GuardedBuffer(WORKSPACE, workspace_buffer(workspace_bytes, where.placement))
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
        for role, slot in self.slots.items():
            if role == WORKSPACE:
                slot.fill(Poison.A5, np.full(self.key[2], filling.workspace, np.uint8))
            else:
                slot.fill(filling.outputs if slot.is_output else filling.inputs, values.get(role))

    @property
    def is_restored(self) -> bool:
        """Return whether :meth:`collect` restores every output to its state before the call."""
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
        return any(slot.buffer.has_untouched() for slot in self.outputs if slot.role not in but)

    def untouched(self) -> dict[str, Array]:
        """Return masks by output name: elements that still hold the poison; call it before :meth:`collect`."""
        return {slot.name: slot.buffer.untouched() for slot in self.outputs}

    def require_clean(self) -> None:
        """Raise OUT_OF_BOUNDS, INPUT_MUTATED or WORKSPACE for a forbidden write; restore small outputs."""
        for slot in self.slots.values():
            slot.require_clean()

    def written_since(self) -> str | None:
        """Return the small output that was written after :meth:`collect` restored it, else None."""
        return next((slot.buffer.name for slot in self.outputs if slot.has_changed()), None)


def _allocate(role: str, spec: TensorSpec, where: BufferPlacement) -> Buffer:
    """Allocate the buffer of a tensor at ``where``, without poison."""
    # Page placement aligns the storage, but the pointer points at offset elements behind it.
    is_aligned_there = where.alignment == 1 or not spec.offset
    return Buffer.allocate(
        spec,
        name=role.replace(":", " "),
        placement=where.placement if is_aligned_there else Placement.HEAP,
        alignment=max(_ALIGNMENT_BYTES, where.alignment),
        page_alignment=where.alignment,
        shift=where.shift if spec.elements and where.alignment == 1 else 0,
        guard_bytes=where.guard_bytes,
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


class BufferPool:
    """Pool of small buffer sets for cases with the same tensor specs; each set belongs to one case at a time."""

    def __init__(self) -> None:
        self._free: dict[BufferKey, list[BufferSet]] = {}
        self._count = 0
        self._left: deque[BufferSet] = deque(maxlen=_LEFT_SETS)

    def take(self, key: BufferKey) -> BufferSet:
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
        if self._count >= _POOLED_SETS:
            self._free.clear()
            self._count = 0
        self._free.setdefault(place.key, []).append(place)
        self._count += 1
