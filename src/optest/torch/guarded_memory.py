"""Memory of torch tensors that optest watches: guard zones around it, a poison where nobody has written."""

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

GUARD_BYTES = 1 << 16
"""Beyond every tensor: a block without its mask reaches as far as the block is large."""
_MOST_ALLOCATIONS = 1 << 10
_ALLOCATES = re.compile("aten::((new_)?(empty|zeros|ones|full)(_like|_strided|_permuted)?|clone|_to_copy)")


class GuardedMemory(DispatchMode):
    """While it is active, what torch allocates lies between guard zones; memory without values holds the poison.

    Each allocation has a :class:`Buffer` on the host, whose bytes are those of its storage on the device. Allocations
    by torch's own operators, in a compiled graph, or beyond the first thousand are not watched.
    """

    def __init__(self, device: torch.device, poison: Poison = WRITE_POISONS[0]) -> None:
        super().__init__()
        self._device, self._poison = device, poison
        self._held: list[tuple[Buffer, torch.Tensor]] = []
        self._regions: list[Region] = []
        self._storages: set[int] = set()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """``torch.compile`` compiles as it does without, and what it has compiled is not watched."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        name = func._schema.name
        if _ALLOCATES.fullmatch(name) and isinstance(made, torch.Tensor) and self._is_watchable(made):
            self._guard(made, has_values="empty" not in name)
        return made

    def call(self, function: Callable[..., Any], inputs: Sequence[Array], outputs: Sequence[Array] = ()) -> Any:
        """What the function returns for tensors in the memory of the arrays, all that lies around them included; the
        arrays become what it left of them. It gets two lists, or one if there are no ``outputs``.

        Raises:
            Fault: UNSUPPORTED for what torch has no tensors of, OUT_OF_BOUNDS for a write beyond an allocation.
        """
        try:
            placed = [self._placed_in_storage(array) for array in (*inputs, *outputs)]
        except Inexpressible as error:
            raise Fault(Reason.UNSUPPORTED, str(error)) from None
        tensors = [tensor for tensor, _, _ in placed]
        given = [tensors[: len(inputs)], tensors[len(inputs) :]] if outputs else [tensors]
        for place, (tensor, _, storage) in enumerate(placed):
            name = f"input{place}" if place < len(inputs) else f"output{place - len(inputs)}"
            first = tensor.data_ptr()
            self._regions.append(Region(name, *_ends(storage, first, first + span_of(tensor) * tensor.element_size())))
        with watched_loads(self._regions), self:
            returned = function(*given)
        for _, memory, storage in placed:
            if memory.device.type != "cpu":
                storage[...] = from_torch(memory)
        self.fetch()
        return returned

    def fetch(self) -> None:
        """Bring what lies on the device into the buffers.

        Raises:
            Fault: OUT_OF_BOUNDS for a write beyond a tensor.
        """
        for buffer, memory in self._held:
            if memory.device.type != "cpu":  # there they are the same bytes
                buffer.region.memory[...] = from_torch(memory)
            if change := buffer.outside():
                raise Fault(Reason.OUT_OF_BOUNDS, str(change), details={"buffer": buffer.name})

    def allocations_of(self, outputs: Any, names: Sequence[str]) -> dict[str, Buffer]:
        """The memory of those outputs that are allocations without values as a whole, by the operator's names."""
        storages = {memory.untyped_storage().data_ptr(): buffer for buffer, memory in self._held}
        found: dict[str, Buffer] = {}
        for name, output in outputs_of(outputs):
            buffer = storages.get(output.untyped_storage().data_ptr()) if isinstance(output, torch.Tensor) else None
            if buffer is not None and buffer.poison is self._poison and buffer.spec.shape == tuple(output.shape):
                found[names[name] if name in range(len(names)) else str(name)] = buffer
        return found

    def placed(self, name: str, spec: TensorSpec, array: Any) -> tuple[Buffer, torch.Tensor]:
        """A tensor on the device with the values of ``array``, and the buffer that :meth:`fetch` brings it into.

        Raises:
            Fault: UNSUPPORTED for what torch has no tensors of.
        """
        try:
            kind = require_expressible(array)
        except Inexpressible as error:
            raise Fault(Reason.UNSUPPORTED, str(error)) from None
        buffer = Buffer.allocate(spec, name=name, poison=Poison.NAN, guard_bytes=GUARD_BYTES)
        buffer.put(array)
        return buffer, self._moved(torch.empty(0, dtype=kind, device=self._device), buffer)

    def _placed_in_storage(self, array: Array) -> tuple[torch.Tensor, torch.Tensor, Array]:
        """A tensor of the array's strides, the memory on the device that it lies in, and that of the array."""
        kind = require_expressible(array)
        storage, at = storage_around(array)
        memory = torch.from_numpy(storage).to(self._device)
        strides = [stride // array.itemsize for stride in array.strides]
        self._storages.add(memory.untyped_storage().data_ptr())
        tensor = torch.empty(0, dtype=kind, device=self._device)
        tensor.set_(memory.untyped_storage(), at // array.itemsize, array.shape, strides)
        return tensor, memory, storage

    def _is_watchable(self, made: torch.Tensor) -> bool:
        is_plain = made.layout is torch.strided and made.device.type != "meta"
        is_new = made.untyped_storage().data_ptr() not in self._storages
        is_known = made.dtype in DTYPE_NAMES and len(self._held) < _MOST_ALLOCATIONS
        return is_plain and is_known and is_new and bool(made.numel())

    def _guard(self, made: torch.Tensor, *, has_values: bool) -> None:
        with torch.no_grad():
            values = made.clone() if has_values else None
            spec = TensorSpec(
                dtype=dtype_called(DTYPE_NAMES[made.dtype]), shape=tuple(made.shape), strides=made.stride()
            )
            poison = Poison.NAN if has_values else self._poison
            self._moved(made, Buffer.allocate(spec, name="an allocation", poison=poison, guard_bytes=GUARD_BYTES))
            if values is not None:
                made.copy_(values)

    def _moved(self, tensor: torch.Tensor, buffer: Buffer) -> torch.Tensor:
        """The tensor, which from here on lies in the storage of the buffer."""
        memory = torch.from_numpy(buffer.region.memory).to(tensor.device)
        self._held.append((buffer, memory))
        self._storages.add(memory.untyped_storage().data_ptr())
        region = buffer.region
        first = region.address + region.start
        self._regions.append(Region(buffer.name, *_ends(region.memory, first, first + region.size)))
        offset = (buffer.address - buffer.region.address) // tensor.element_size()
        strides = buffer.spec.strides or contiguous_strides(buffer.spec.shape)
        return tensor.set_(memory.untyped_storage(), offset, buffer.spec.shape, strides)


def _ends(memory: Array, first: int, end: int) -> tuple[int, int, int, int]:
    """The addresses of a tensor's memory and, between them, those of its elements."""
    lowest = memory.__array_interface__["data"][0]
    return lowest, first, end, lowest + memory.nbytes
