"""Tensors of other libraries as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.registry import is_installed, load_object


def library_of(value: object) -> str:
    """The top module of a value's type: ``torch``, ``numpy``, ``jax``."""
    return type(value).__module__.partition(".")[0]


def to_array(value: Any) -> Any:
    """A tensor of torch, or of a library whose tensors have ``__array__`` or ``__dlpack__``, as an array on the host;
    what is none is returned as it is.

    Raises:
        KeyError, TypeError, ValueError, BufferError, RuntimeError: for a tensor that cannot be had here.
    """
    if "torch.Tensor" in {f"{each.__module__}.{each.__qualname__}" for each in type(value).__mro__}:
        is_plain = load_object("optest.torch.tensors:is_plain")(value)  # a subclass may answer as it likes
        return load_object("optest.torch.tensors:from_torch")(value) if is_plain else value
    if isinstance(value, (np.ndarray, np.generic)):
        return value
    if hasattr(value, "__array__"):
        try:
            return value.__array__()
        except TypeError:  # CuPy copies from a device only when it is told to
            if not hasattr(value, "__dlpack__"):
                raise
    return _from_dlpack(value) if hasattr(value, "__dlpack__") else value


def _from_dlpack(value: Any) -> Any:
    """Through torch where NumPy does not have the device or the dtype, which bfloat16 and float8 are."""
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError):
        if not is_installed("torch"):
            raise
    return to_array(load_object("torch.utils.dlpack:from_dlpack")(value))
