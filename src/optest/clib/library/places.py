"""Where the tensors of a call lie: one buffer for each of them, filled before a call and examined behind it."""

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

_IMAGE_BYTES = 1 << 16
"""Above this a buffer is examined piece by piece, not compared as a whole with what it should hold."""

_BLANK_BYTES = 1 << 13
"""Above this a poisoned buffer is not kept to be copied: there are several poisons, and many buffers."""

_ALIGNMENT_BYTES = 64
_WORKSPACE_ALIGNMENT_BYTES = 256
_WORKSPACE_PAGE_ALIGNMENT_BYTES = 16
"""What malloc promises; a library casts its workspace to whatever it needs."""

_POOLED_BYTES = 1 << 18
_POOLED_PLACES = 48
_LEFT_PLACES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """On the heap ``shift`` elements behind a multiple of 64 bytes, or against a page that nobody may touch; the
    pointers are multiples of ``alignment`` bytes, if that is more than 1."""

    placement: Placement = Placement.HEAP
    shift: int = 0
    alignment: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """What a call finds where it should not look: in the outputs, in the workspace, around the inputs."""

    outputs: Poison = Poison.A5
    workspace: int = 0xFF
    inputs: Poison = Poison.NAN


PlaceKey = tuple[Where, tuple[tuple[str, TensorSpec], ...], int]


@dataclass(slots=True)
class _Slot:
    """One buffer; ``image`` is what all of its bytes should be, but for an output's elements.

    ``words`` are the elements of a small output in a row as integers, where they are, and ``word`` is the poison as one
    of them. ``blanks`` keeps what a small buffer is when nothing but poison has been put into it, by poison.
    """

    key: str
    buffer: Buffer
    poison: Poison = Poison.A5
    image: bytes = b""
    pristine: Array | None = None
    values: Array | None = None
    is_output: bool = False
    is_small: bool = False
    is_protected: bool = False
    name: str = ""
    words: Array | None = None
    word: Array | None = None
    blanks: dict[Poison, _Blank] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.is_output = self.key.startswith("output:")
        self.is_small = self.buffer.region.memory.size <= _IMAGE_BYTES
        self.name = self.key.partition(":")[2]
        self.words = self.buffer.words() if self.is_output and self.is_small else None

    def has_untouched(self) -> bool:
        """Whether an element still holds the poison."""
        if self.words is None or self.word is None:
            return replace(self.buffer, poison=self.poison).has_untouched()
        return b"\1" in (self.words == self.word).tobytes()


@dataclass(frozen=True, slots=True)
class _Blank:
    """The bytes of a buffer covered with a poison, and its elements among them."""

    image: bytes
    memory: Array
    elements: Array
    word: Array | None


@dataclass(slots=True)
class Place:
    """Memory for the tensors of ``key`` and a workspace of its size, for one call. Slots are found by roles
    (``input:a``), and by ``workspace`` unless it has no bytes.

    Raises:
        Unavailable: for pages where the system has no ``mprotect``.
    """

    key: PlaceKey
    slots: dict[str, _Slot] = field(init=False)
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
        """Buffers by role; of a workspace the bare address, NULL where the library asked for none, and its size."""
        buffers: dict[str, Any] = {role: slot.buffer for role, slot in self.slots.items()}
        workspace = buffers.get(WORKSPACE)
        buffers[WORKSPACE] = None if workspace is None else workspace.address
        return {**buffers, "workspace_size": self.key[2]}

    def fill(self, filling: Filling, values: Mapping[str, Array]) -> None:
        """Poison everything, then put the values: inputs, and what outputs hold when the call begins."""
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
        """Whether the outputs hold what they held before the call, when they have been collected."""
        return all(slot.is_small for slot in self.outputs)

    def collect(self, *, copied: bool = True) -> dict[str, Array]:
        """The outputs by name, copies unless they are large and nothing more is called; small buffers hold afterwards
        what they held before the call.

        Raises:
            Fault: OUT_OF_BOUNDS, INPUT_MUTATED or WORKSPACE for the first byte that was not the library's to write.
        """
        outputs = {}
        for slot in self.outputs:
            array = slot.buffer.array
            outputs[slot.name] = np.array(array) if copied or slot.is_small else array
        self.require_clean()
        return outputs

    def has_untouched(self, but: Mapping[str, Array]) -> bool:
        """Whether an element of an output still holds the poison, of outputs ``but`` those by key."""
        return any([slot.has_untouched() for slot in self.outputs if slot.key not in but])  # noqa: C419 - no frame

    def untouched(self) -> dict[str, Array]:
        """Which elements of the outputs still hold the poison, by name; asked before :meth:`collect`."""
        return {slot.name: replace(slot.buffer, poison=slot.poison).untouched() for slot in self.outputs}

    def require_clean(self) -> None:
        """Raise for the first byte that was not the library's to write, and put the outputs' elements back.

        Raises:
            Fault: OUT_OF_BOUNDS, INPUT_MUTATED or WORKSPACE.
        """
        for slot in self.slots.values():
            if slot.is_small:
                if slot.pristine is not None:
                    np.copyto(slot.buffer.array, slot.pristine)  # what the elements held when the call began
                if slot.buffer.region.memory.tobytes() == slot.image:
                    continue
            _require_clean_slot(slot)

    def written_since(self) -> str | None:
        """Which output was written since :meth:`collect` put back what it held; only small ones are known."""
        for slot in self.outputs:
            if slot.is_small and slot.image and slot.buffer.region.memory.tobytes() != slot.image:
                return slot.buffer.name
        return None


def _buffer(role: str, spec: TensorSpec, where: Where) -> Buffer:
    name = role.replace(":", " ")
    # Against a page the storage is aligned, not the element that the pointer points at.
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
    """Scratch memory of ``size`` bytes of no type; what they hold is the caller's to say."""
    return Buffer.allocate(
        TensorSpec(dtype=dtype("uint8"), shape=(size,)),
        name=WORKSPACE,
        placement=placement,
        alignment=_WORKSPACE_ALIGNMENT_BYTES,
        page_alignment=_WORKSPACE_PAGE_ALIGNMENT_BYTES,
    )


def _fill_tensor(slot: _Slot, poison: Poison, values: Array | None) -> None:
    buffer = slot.buffer
    slot.poison = poison
    slot.values = values
    if not slot.is_small:
        # An input on pages of its own may be read alone until it is filled again: a write is a crash, with its address.
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
    slot.buffer.cover(poison)
    _take_image(slot, with_elements=True)
    assert slot.pristine is not None
    word = None
    if slot.words is not None:  # without dimensions, which is the cheapest operand
        word = np.frombuffer(poison.pattern(slot.buffer.spec.dtype), slot.words.dtype).reshape(())
    blank = _Blank(slot.image, np.frombuffer(slot.image, np.uint8), slot.pristine, word)
    if slot.buffer.region.memory.size <= _BLANK_BYTES:
        slot.blanks[poison] = blank
    return blank


def _take_image(slot: _Slot, *, with_elements: bool = False) -> None:
    region = slot.buffer.region
    slot.image = region.memory.tobytes()
    if with_elements or slot.key == WORKSPACE or slot.is_output:
        spec = slot.buffer.spec
        storage = np.frombuffer(slot.image, np.uint8)[region.start : region.end]
        slot.pristine = view(storage.view(numpy_dtype(spec.dtype)), spec)


def _require_clean_slot(slot: _Slot) -> None:
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
    """Places that wait for the next case with tensors of the same kinds; a place belongs to one case at a time."""

    def __init__(self) -> None:
        self._free: dict[PlaceKey, list[Place]] = {}
        self._count = 0
        self._left: deque[Place] = deque(maxlen=_LEFT_PLACES)

    def take(self, key: PlaceKey) -> Place:
        """A place that nobody else has."""
        waiting = self._free.get(key)
        if not waiting:
            return Place(key)
        self._count -= 1
        return waiting.pop()

    def leave(self, place: Place) -> None:
        """Give it to nobody, but keep its memory: a thread of a library that did wrong may still write there."""
        self._left.append(place)

    def give_back(self, place: Place) -> None:
        """Keep it for the next case, if it is small."""
        if sum(buffer.region.memory.size for buffer in place.buffers) > _POOLED_BYTES:
            return
        if self._count >= _POOLED_PLACES:
            self._free.clear()
            self._count = 0
        self._free.setdefault(place.key, []).append(place)
        self._count += 1
