"""Torch tensors in guarded memory: guard zones around it, and a poison in memory that is not yet written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from optest.backends.function import outputs_of
from optest.memory.buffers import Buffer
from optest.memory.margins import storage_around
from optest.memory.poisons import WRITE_POISONS, Poison
from optest.numerics import Array
from optest.spec import Fault, Reason, TensorSpec, contiguous_strides
from optest.spec import dtype as dtype_called
from optest.torch.dispatch_modes import DispatchMode
from optest.torch.tensors import DTYPE_NAMES, Inexpressible, from_torch, require_expressible, span_of
from optest.torch.triton_interpreter import Region, watched_loads

# Guard zone on each side of a tensor: a kernel that forgets its mask writes up to one block too far.
GUARD_BYTES = 1 << 16
_MAX_ALLOCATIONS = 1 << 10
# Allocations by the function itself; other operators allocate within torch, below this mode.
_ALLOCATES = re.compile("aten::((new_)?(empty|zeros|ones|full)(_like|_strided|_permuted)?|clone|_to_copy)")


class GuardedMemory(DispatchMode):
    """Dispatch mode that puts tensors which torch allocates between guard zones, and poisons uninitialised ones.

    Each allocation has a :class:`Buffer` on the host, with the bytes of its storage on the device. Allocations within
    torch's operators, in a compiled graph, or beyond the first 1024 are not guarded.
    """

    def __init__(self, device: torch.device, poison: Poison = WRITE_POISONS[0]) -> None:
        super().__init__()
        self._device, self._poison = device, poison
        self._held: list[tuple[Buffer, torch.Tensor]] = []
        self._regions: list[Region] = []
        self._storages: set[int] = set()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True: ``torch.compile`` works as without this mode, and compiled code is not guarded."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        name = func._schema.name
        if not _ALLOCATES.fullmatch(name) or not isinstance(output, torch.Tensor) or not output.numel():
            return output
        is_plain = output.layout is torch.strided and output.device.type != "meta" and output.dtype in DTYPE_NAMES
        has_room = is_plain and len(self._held) < _MAX_ALLOCATIONS
        if has_room and output.untyped_storage().data_ptr() not in self._storages:
            self._guard(output, has_values="empty" not in name)
        return output

    def call(self, function: Callable[..., Any], inputs: Sequence[Array], outputs: Sequence[Array] = ()) -> Any:
        """Call the function with tensors in copies or views of the arrays' memory; return its value.

        It gets a list of inputs, and a list of outputs if there are ``outputs``. Afterwards the arrays, and the memory
        around them, hold the values that it left.

        Raises:
            Fault: UNSUPPORTED for arrays that torch cannot hold, OUT_OF_BOUNDS for a write beyond an allocation.
        """
        try:
            moved = [self._move_with_storage(array) for array in (*inputs, *outputs)]
        except Inexpressible as error:
            raise Fault(Reason.UNSUPPORTED, str(error)) from None
        tensors = [tensor for tensor, _, _ in moved]
        arguments = [tensors[: len(inputs)], tensors[len(inputs) :]] if outputs else [tensors]
        for index, (tensor, _, storage) in enumerate(moved):
            name = f"input{index}" if index < len(inputs) else f"output{index - len(inputs)}"
            first = tensor.data_ptr()
            self._regions.append(_region(name, storage, first, first + span_of(tensor) * tensor.element_size()))
        with watched_loads(self._regions), self:
            returned = function(*arguments)
        for _, memory, storage in moved:
            if memory.device.type != "cpu":
                storage[...] = from_torch(memory)
        self.fetch()
        return returned

    def fetch(self) -> None:
        """Copy the allocations from the device into their buffers; raise ``Fault`` OUT_OF_BOUNDS for stray writes."""
        for buffer, memory in self._held:
            # On the CPU both are the same bytes.
            if memory.device.type != "cpu":
                buffer.region.memory[...] = from_torch(memory)
            if change := buffer.outside():
                raise Fault(Reason.OUT_OF_BOUNDS, str(change), details={"buffer": buffer.name})

    def allocations_of(self, outputs: Any, names: Sequence[str]) -> dict[str, Buffer]:
        """Return the buffers of outputs that are whole poisoned allocations, by the operator's output ``names``."""
        storages = {memory.untyped_storage().data_ptr(): buffer for buffer, memory in self._held}
        buffers: dict[str, Buffer] = {}
        for name, output in outputs_of(outputs):
            buffer = storages.get(output.untyped_storage().data_ptr()) if isinstance(output, torch.Tensor) else None
            if buffer is not None and buffer.poison is self._poison and buffer.spec.shape == tuple(output.shape):
                buffers[names[name] if name in range(len(names)) else str(name)] = buffer
        return buffers

    def allocate(self, name: str, spec: TensorSpec, array: Any) -> tuple[Buffer, torch.Tensor]:
        """Return a guarded tensor with the values of ``array``, and its buffer; ``Fault`` if torch cannot hold it."""
        try:
            kind = require_expressible(array)
        except Inexpressible as error:
            raise Fault(Reason.UNSUPPORTED, str(error)) from None
        buffer = Buffer.allocate(spec, name=name, poison=Poison.NAN, guard_bytes=GUARD_BYTES)
        buffer.put(array)
        return buffer, self._move(torch.empty(0, dtype=kind, device=self._device), buffer)

    def _move_with_storage(self, array: Array) -> tuple[torch.Tensor, torch.Tensor, Array]:
        """Return a tensor with the array's strides, its whole memory on the device, and the array's whole memory."""
        kind = require_expressible(array)
        storage, start = storage_around(array)
        memory = torch.from_numpy(storage).to(self._device)
        strides = [stride // array.itemsize for stride in array.strides]
        self._storages.add(memory.untyped_storage().data_ptr())
        tensor = torch.empty(0, dtype=kind, device=self._device)
        tensor.set_(memory.untyped_storage(), start // array.itemsize, array.shape, strides)
        return tensor, memory, storage

    def _guard(self, tensor: torch.Tensor, *, has_values: bool) -> None:
        """Move a new tensor between guard zones; keep its values, or fill it with the poison if it has none."""
        with torch.no_grad():
            values = tensor.clone() if has_values else None
            spec = TensorSpec(
                dtype=dtype_called(DTYPE_NAMES[tensor.dtype]), shape=tuple(tensor.shape), strides=tensor.stride()
            )
            poison = Poison.NAN if has_values else self._poison
            self._move(tensor, Buffer.allocate(spec, name="an allocation", poison=poison, guard_bytes=GUARD_BYTES))
            if values is not None:
                tensor.copy_(values)

    def _move(self, tensor: torch.Tensor, buffer: Buffer) -> torch.Tensor:
        """Change ``tensor`` to use a device copy of the buffer's memory as its storage, and return it."""
        memory = torch.from_numpy(buffer.region.memory).to(tensor.device)
        self._held.append((buffer, memory))
        self._storages.add(memory.untyped_storage().data_ptr())
        region = buffer.region
        first = region.address + region.start
        self._regions.append(_region(buffer.name, region.memory, first, first + region.size))
        offset = (buffer.address - buffer.region.address) // tensor.element_size()
        strides = buffer.spec.strides or contiguous_strides(buffer.spec.shape)
        return tensor.set_(memory.untyped_storage(), offset, buffer.spec.shape, strides)


def _region(name: str, memory: Array, first: int, end: int) -> Region:
    lowest = memory.__array_interface__["data"][0]
    return Region(name, lowest, first, end, lowest + memory.nbytes)
