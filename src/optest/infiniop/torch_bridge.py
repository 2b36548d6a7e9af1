"""torch, when it is there and when it is needed: tensors that share their memory with NumPy's, bit for bit.

Importing this module imports no torch; :data:`torch` stands for it until something of it is asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.errors import Unavailable, UsageError
from optest.numerics import Array


def loaded_torch() -> Any:
    """The torch module.

    Raises:
        Unavailable: if it is not installed.
    """
    try:
        import torch
    except ModuleNotFoundError:
        raise Unavailable("torch", "pip install torch; NumPy forms such as actual_array() do without") from None
    return torch


class _Torch:
    """``torch.float32`` and so on, imported at the first of them."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(loaded_torch(), name)

    def __repr__(self) -> str:
        return "<torch, imported when it is used>"


torch = _Torch()


def is_torch(value: Any) -> bool:
    """Whether it is a torch tensor, without importing torch."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "data_ptr")


def to_tensor(array: Array, device: Any = None) -> Any:
    """A torch tensor with the strides of ``array``, whose memory it shares on the processor (which None is); dense
    where they are negative, which torch has not."""
    loaded = loaded_torch()
    from optest.torch.tensors import to_torch

    is_reversed = any(stride < 0 for stride in array.strides)
    return to_torch(array.copy() if is_reversed else array, loaded.device("cpu") if device is None else device)


def to_array(tensor: Any) -> Array:
    """The elements of a torch tensor as NumPy has them; of complex32 the bits.

    Raises:
        UsageError: for a dtype that NumPy and ml_dtypes do not know.
    """
    loaded = loaded_torch()
    from optest.torch.tensors import from_torch

    if tensor.dtype is loaded.complex32:
        return from_torch(tensor.view(loaded.int32)).view(np.uint32)
    try:
        return from_torch(tensor)
    except KeyError:
        raise UsageError(f"tensor is {tensor.dtype}, which has no counterpart in NumPy") from None
