"""Tensors of other libraries as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.registry import is_installed, load_object


def library_of(value: object) -> str:
    """Return the top-level package of a value's type: ``torch``, ``numpy``, ``jax``."""
    return type(value).__module__.partition(".")[0]


def to_array(value: Any) -> Any:
    """Convert a tensor of torch, or an object with ``__array__`` or ``__dlpack__``, to an array on the host; return
    other values, and subclasses of torch tensors with another behaviour, unchanged.

    Raises:
        KeyError, TypeError, ValueError, BufferError, RuntimeError: for a tensor that cannot be converted or copied.
    """
    if "torch.Tensor" in {f"{base.__module__}.{base.__qualname__}" for base in type(value).__mro__}:
        is_plain = load_object("optest.torch.tensors:is_plain")(value)  # a subclass may override any method
        return load_object("optest.torch.tensors:from_torch")(value) if is_plain else value
    if isinstance(value, (np.ndarray, np.generic)):
        return value
    if hasattr(value, "__array__"):
        try:
            return value.__array__()
        except TypeError:  # CuPy copies from a device only on request
            if not hasattr(value, "__dlpack__"):
                raise
    return _from_dlpack(value) if hasattr(value, "__dlpack__") else value


def _from_dlpack(value: Any) -> Any:
    """Convert by DLPack; through torch if NumPy lacks the device or the dtype (bfloat16, float8)."""
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):
        if not is_installed("torch"):
            raise
    return to_array(load_object("torch.utils.dlpack:from_dlpack")(value))
