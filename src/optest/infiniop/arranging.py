"""Another layout for the values of a torch tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.errors import UsageError
from optest.infiniop.torch_bridge import is_torch, to_array, to_tensor
from optest.memory.poisons import Poison
from optest.numerics import Array, dtype_of, empty_storage, view
from optest.spec import TensorSpec

__all__ = ["rearrange_tensor"]


def rearrange_tensor(tensor: Any, new_strides: Sequence[int]) -> Any:
    """The same values in a new storage with these strides, whose gaps are poisoned (NaN for floats), never 0.

    A torch tensor comes back as one (on its device, on which strides cannot be negative), a NumPy array as one.

    Raises:
        UsageError: for strides of another rank; for values that differ where the strides let elements share memory;
            for negative strides of a torch tensor, which torch has not.
    """
    source = to_array(tensor) if is_torch(tensor) else np.asarray(tensor)
    strides = tuple(int(stride) for stride in new_strides)
    arranged = _arranged(source, strides)
    if not is_torch(tensor):
        return arranged
    if any(stride < 0 for stride in strides):
        raise UsageError(f"strides are {list(strides)}, but torch has no negative ones; pass a NumPy array")
    moved = to_tensor(arranged)
    if 0 in strides:
        moved = moved.as_strided(source.shape, strides)
    return moved if tensor.device.type == "cpu" else _on(tensor.device, moved, strides)


def _on(device: Any, moved: Any, strides: tuple[int, ...]) -> Any:
    """A copy to a device is dense; the storage is copied as a whole and viewed again."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(moved.shape, strides, strict=True))
    storage = moved.as_strided((0 if 0 in moved.shape else reach,), (1,)).to(device)
    return storage.as_strided(moved.shape, strides)


def _arranged(source: Array, strides: tuple[int, ...]) -> Array:
    reaches = ((size - 1) * stride for size, stride in zip(source.shape, strides, strict=False))
    lowest = 0 if 0 in source.shape else -sum(min(0, reach) for reach in reaches)
    try:
        spec = TensorSpec(dtype=dtype_of(source.dtype), shape=source.shape, strides=strides, offset=lowest)
    except ValueError as error:
        raise UsageError(str(error)) from None
    storage = empty_storage(spec)
    pattern = Poison.NAN.pattern(spec.dtype)
    storage.view(np.uint8)[...] = np.frombuffer(pattern * storage.size, np.uint8)
    arranged = view(storage, spec)
    np.copyto(arranged, source)
    if np.ascontiguousarray(arranged).tobytes() != np.ascontiguousarray(source).tobytes():
        raise UsageError(f"values differ between elements that share memory (strides {list(strides)})")
    return arranged
