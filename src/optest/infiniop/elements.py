"""Element types in torch and NumPy, and complex numbers of two small floats, which neither NumPy nor optest has."""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.errors import UsageError
from optest.infiniop.datatypes import COMPONENTS, InfiniDtype, element_of, infini_dtype
from optest.infiniop.torch_bridge import loaded_torch
from optest.numerics import Array, numpy_dtype, round_to, widen
from optest.spec import dtype as dtype_called

__all__ = ["from_codes", "to_codes", "to_numpy_dtype", "to_torch_dtype"]

_SIGNED = {"uint16": "int16", "uint32": "int32", "uint64": "int64"}


def to_torch_dtype(dt: Any, compatability_mode: bool = False) -> Any:
    """The torch dtype; ``compatability_mode`` gives signed integers for the unsigned ones that older torch lacks.

    Raises:
        UsageError: for C16, of which torch has none.
        Unavailable: without torch.
    """
    known = infini_dtype(dt)
    name = element_of(known).name
    if known is InfiniDtype.C16:
        raise UsageError("dtype C16 is two float8 numbers, which torch has no dtype for; use actual_array()")
    if known is InfiniDtype.C32:
        name = "complex32"
    elif compatability_mode:
        name = _SIGNED.get(name, name)
    return getattr(loaded_torch(), name)


def to_numpy_dtype(dt: Any, compatability_mode: bool = False) -> np.dtype[Any]:
    """The NumPy dtype of the same width: ml_dtypes' for BF16 and F8, the bits of C16 and C32 as unsigned integers."""
    element = element_of(dt)
    name = _SIGNED.get(element.name, element.name) if compatability_mode else element.name
    return numpy_dtype(dtype_called(name))


def from_codes(codes: Array, dt: InfiniDtype) -> Array:
    """The values of elements as they lie in memory: complex64 for C16 and C32, the array itself for all others."""
    component = COMPONENTS.get(dt)
    if component is None:
        return codes
    packed = np.ascontiguousarray(codes).reshape(codes.shape)
    parts = widen(packed.reshape(-1).view(numpy_dtype(dtype_called(component))))
    values = parts.reshape(*codes.shape, 2).astype(np.float32)
    joined: Array = values.view(np.complex64).reshape(codes.shape)
    return joined


def to_codes(values: Array, dt: InfiniDtype) -> Array:
    """What :func:`from_codes` takes; components are rounded once, to nearest."""
    component = COMPONENTS.get(dt)
    if component is None:
        return values
    wide = np.ascontiguousarray(values, dtype=np.complex128).reshape(values.shape)
    parts = round_to(wide.reshape(-1).view(np.float64), dtype_called(component))
    codes: Array = np.ascontiguousarray(parts).view(numpy_dtype(element_of(dt))).reshape(values.shape)
    return codes
