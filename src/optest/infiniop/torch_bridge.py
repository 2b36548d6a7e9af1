"""torch, when it is there and when it is needed: tensors that share their memory with NumPy's, bit for bit.

Importing this module imports no torch; :data:`torch` stands for it until something of it is asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.errors import Unavailable, UsageError
from optest.numerics import Array, dtype_of, numpy_dtype
from optest.spec import dtype as dtype_called

__all__ = ["is_torch", "loaded_torch", "to_array", "to_tensor", "torch"]


def loaded_torch() -> Any:
    """The torch module.

    Raises:
        Unavailable: if it is not installed.
    """
    try:
        import torch
    except ModuleNotFoundError:
        raise Unavailable("torch", "pip install optest[torch]; NumPy forms such as actual_array() do without") from None
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

_WITHOUT_NUMPY = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
"""Types that torch and ml_dtypes have but NumPy has not, and what carries their bits across."""


def is_torch(value: Any) -> bool:
    """Whether it is a torch tensor, without importing torch."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "data_ptr")


def to_tensor(array: Array) -> Any:
    """A torch tensor in the memory of ``array``; a copy where torch has no such strides (negative ones).

    Repeated elements (stride 0) stay repeated.
    """
    loaded = loaded_torch()
    entry = dtype_of(array.dtype)
    if any(stride < 0 for stride in array.strides):
        array = array.copy()
    core = array[tuple(slice(0, 1) if stride == 0 and size > 1 else slice(None) for stride, size in _axes(array))]
    if entry.name in _WITHOUT_NUMPY:
        core = core.view(_WITHOUT_NUMPY[entry.name])
    if not core.flags.writeable:
        core = core.copy()
    tensor = loaded.from_numpy(np.asarray(core))
    if entry.name in _WITHOUT_NUMPY:
        tensor = tensor.view(getattr(loaded, entry.name))
    return tensor if core.shape == array.shape else tensor.expand(array.shape)


def _axes(array: Array) -> list[tuple[int, int]]:
    return list(zip(array.strides, array.shape, strict=True))


def to_array(tensor: Any) -> Array:
    """The elements of a torch tensor as NumPy has them; no copy where it lies in this machine's memory.

    Raises:
        UsageError: for a dtype that NumPy and ml_dtypes do not know.
    """
    loaded = loaded_torch()
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    name = str(plain.dtype).rpartition(".")[2]
    if name == "complex32":
        return np.asarray(plain.view(loaded.int32).numpy().view(np.uint32))
    if name in _WITHOUT_NUMPY:
        carrier = plain.view(getattr(loaded, _WITHOUT_NUMPY[name]))
        return np.asarray(carrier.numpy().view(numpy_dtype(dtype_called(name))))
    try:
        return np.asarray(plain.numpy())
    except TypeError:
        raise UsageError(f"tensor is {plain.dtype}, which has no counterpart in NumPy") from None
