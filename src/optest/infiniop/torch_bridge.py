"""torch, imported when it is needed, and conversions between its tensors and NumPy arrays, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.errors import Unavailable, UsageError
from optest.numerics import Array


def loaded_torch() -> Any:
    """Import and return torch; raise Unavailable if it is not installed."""
    try:
        import torch
    except ModuleNotFoundError:
        raise Unavailable("torch", "pip install torch, or use NumPy forms such as actual_array()") from None
    return torch


class _Torch:
    """Proxy for torch, which is imported at the first attribute."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(loaded_torch(), name)

    def __repr__(self) -> str:
        return "<torch, imported when it is used>"


torch = _Torch()


def is_torch(value: Any) -> bool:
    """Return whether the value is a torch tensor, without importing torch."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "data_ptr")


def to_tensor(array: Array, device: Any = None) -> Any:
    """Return a torch tensor with the array's elements and strides; on the processor, the default, without a copy."""
    loaded = loaded_torch()
    from optest.torch.tensors import to_torch

    # torch has no negative strides.
    is_reversed = any(stride < 0 for stride in array.strides)
    return to_torch(array.copy() if is_reversed else array, loaded.device("cpu") if device is None else device)


def to_array(tensor: Any) -> Array:
    """Return a torch tensor's elements as a NumPy array, complex32 as bits; raise UsageError for other dtypes."""
    loaded = loaded_torch()
    from optest.torch.tensors import from_torch

    if tensor.dtype is loaded.complex32:
        return from_torch(tensor.view(loaded.int32)).view(np.uint32)
    try:
        return from_torch(tensor)
    except KeyError:
        raise UsageError(f"tensor is {tensor.dtype}, expected a dtype that NumPy or ml_dtypes has") from None
