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

__all__ = ["TensorMemory", "laid_out"]


class TensorMemory:
    """A guarded buffer; for a torch device the last image of the same bytes, guards and gaps included, there."""

    def __init__(self, buffer: Buffer, device: str | None = None) -> None:
        """``device`` is torch's name of it, None for the processor, which needs no torch."""
        self.buffer = buffer
        self.address = buffer.address
        self._bytes: Any = None
        if device is not None:
            region = buffer.region
            self._bytes = loaded_torch().from_numpy(region.memory.copy()).to(device)
            self.address += self._bytes.data_ptr() - region.address

    @property
    def is_on_device(self) -> bool:
        return self._bytes is not None

    def fetch(self) -> Buffer:
        """The buffer as the device left it."""
        if self.is_on_device:
            np.copyto(self.buffer.region.memory, self._bytes.cpu().numpy())
        return self.buffer

    def put(self, values: Array) -> Array:
        """Put the values there, and return a dense copy of what lies there then.

        Raises:
            UsageError: for values that differ where the strides let elements share memory.
        """
        self.buffer.put(values)
        held = np.array(self.buffer.array, order="C")
        if not are_same_memory(held, np.ascontiguousarray(values)):
            strides = list(self.buffer.spec.strides or ())
            raise UsageError(f"values differ between elements that share memory (strides {strides})")
        if self.is_on_device:
            self._bytes.copy_(loaded_torch().from_numpy(self.buffer.region.memory))
        return held

    def tensor(self) -> Any:
        """A torch tensor in this memory; a copy where torch has no such strides."""
        if not self.is_on_device:
            return to_tensor(self.buffer.array)
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
