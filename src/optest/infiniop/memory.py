"""Where a test tensor lies: guarded memory of this machine, or its image on a torch device; its layout there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.errors import UsageError
from optest.infiniop.torch_bridge import loaded_torch, to_tensor
from optest.memory.buffers import Buffer
from optest.numerics import Array, are_same_memory
from optest.spec import DType, TensorSpec, contiguous_strides

__all__ = ["DeviceMemory", "HostMemory", "laid_out", "put_exactly"]


class HostMemory:
    """The buffer itself."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.address = buffer.address

    def fetch(self) -> Buffer:
        """The buffer as the device left it."""
        return self.buffer

    def put(self, values: Array) -> None:
        self.buffer.put(values)

    def tensor(self) -> Any:
        """A torch tensor in this memory; a copy where torch has no such strides."""
        return to_tensor(self.buffer.array)


class DeviceMemory(HostMemory):
    """The same bytes, guards and gaps included, in the memory of a torch device; the buffer is their last image."""

    def __init__(self, buffer: Buffer, device: str) -> None:
        super().__init__(buffer)
        region = buffer.region
        self._bytes = loaded_torch().from_numpy(region.memory.copy()).to(device)
        self.address = self._bytes.data_ptr() + (buffer.address - region.address)

    def fetch(self) -> Buffer:
        np.copyto(self.buffer.region.memory, self._bytes.cpu().numpy())
        return self.buffer

    def put(self, values: Array) -> None:
        super().put(values)
        self._bytes.copy_(loaded_torch().from_numpy(self.buffer.region.memory))

    def tensor(self) -> Any:
        """A view of the device's memory; a copy where torch has no such strides."""
        spec, region = self.buffer.spec, self.buffer.region
        strides = contiguous_strides(spec.shape) if spec.strides is None else spec.strides
        if any(stride < 0 for stride in strides):
            return to_tensor(self.fetch().array).to(self._bytes.device)
        dtype = to_tensor(self.buffer.array[(slice(0, 1),) * spec.rank]).dtype
        storage = self._bytes[region.start : region.end].view(dtype)
        return storage.as_strided(spec.shape, strides, storage.storage_offset() + spec.offset)


def laid_out(dtype: DType, shape: Sequence[int], strides: Sequence[int], offset: int | None = None) -> TensorSpec:
    """A layout; None puts the first element as near to the beginning of the storage as strides below 0 let it be.

    Raises:
        UsageError: for one that begins before the storage, or strides of another rank.
    """
    reaches = ((size - 1) * stride for size, stride in zip(shape, strides, strict=False))
    lowest = 0 if 0 in shape else -sum(min(0, reach) for reach in reaches)
    place = lowest if offset is None else offset
    try:
        return TensorSpec(dtype=dtype, shape=tuple(shape), strides=tuple(strides), offset=place)
    except ValueError as error:
        raise UsageError(str(error)) from None


def put_exactly(memory: HostMemory, values: Array) -> Array:
    """Put the values into the memory and return a dense copy of what lies there then.

    Raises:
        UsageError: for values that differ where the strides let elements share memory.
    """
    memory.put(values)
    held = np.array(memory.buffer.array, order="C")
    if not are_same_memory(held, np.ascontiguousarray(values)):
        strides = list(memory.buffer.spec.strides or ())
        raise UsageError(f"values differ between elements that share memory (strides {strides})")
    return held
