"""Where a test tensor lies: guarded memory of this machine, or its image on a torch device."""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.infiniop.torch_bridge import loaded_torch, to_tensor
from optest.memory.buffers import Buffer
from optest.numerics import Array
from optest.spec import contiguous_strides

__all__ = ["DeviceMemory", "HostMemory", "TensorMemory"]


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


class DeviceMemory:
    """The same bytes, guards and gaps included, in the memory of a torch device; the buffer is their last image."""

    def __init__(self, buffer: Buffer, device: str) -> None:
        self.buffer = buffer
        region = buffer.region
        self._bytes = loaded_torch().from_numpy(region.memory.copy()).to(device)
        self.address = self._bytes.data_ptr() + (buffer.address - region.address)

    def fetch(self) -> Buffer:
        np.copyto(self.buffer.region.memory, self._bytes.cpu().numpy())
        return self.buffer

    def put(self, values: Array) -> None:
        self.buffer.put(values)
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


TensorMemory = HostMemory | DeviceMemory
