"""Element types of infinicore.h: numbers, names in both spellings, and their equivalents in optest, torch and NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import numpy as np

from optest.errors import UnknownName, UsageError
from optest.infiniop.torch_bridge import loaded_torch
from optest.numerics import Array, numpy_dtype, round_to, widen
from optest.spec import DType
from optest.spec import dtype as dtype_called


class InfiniDtype(IntEnum):
    """``infiniDtype_t``. For 15 to 18 the header's names count the bits of the whole complex number.

    The predecessor's Python counted those of one component: its ``C8`` remains as an alias of 15; its ``C16``, ``C32``
    and ``C64`` are ``C32``, ``C64`` and ``C128`` here.
    """

    INVALID = 0
    BYTE = 1
    BOOL = 2
    I8 = 3
    I16 = 4
    I32 = 5
    I64 = 6
    U8 = 7
    U16 = 8
    U32 = 9
    U64 = 10
    F8 = 11
    F16 = 12
    F32 = 13
    F64 = 14
    C16 = 15
    C8 = 15
    C32 = 16
    C64 = 17
    C128 = 18
    BF16 = 19


# The header's name of each number.
InfiniDtypeNames: Mapping[int, str] = {item: item.name for item in InfiniDtype}

# Two float8 or two float16 are no number of NumPy, so C16 and C32 are stored as their bits.
_STORED = {"F8": "float8_e4m3fn", "C16": "uint16", "C32": "uint32"}
_ELEMENTS: Mapping[InfiniDtype, DType] = {
    item: dtype_called(_STORED.get(item.name, item.name.lower())) for item in InfiniDtype if item
}

# Type of one component, for the complex types that are stored as bits.
COMPONENTS: Mapping[InfiniDtype, str] = {InfiniDtype.C16: "float8_e4m3fn", InfiniDtype.C32: "float16"}


def infini_dtype(value: Any) -> InfiniDtype:
    """Return the dtype for the header's number or name, or a torch or NumPy dtype; else raise UnknownName."""
    if isinstance(value, InfiniDtype):
        return value
    if isinstance(value, int):
        if value in InfiniDtypeNames:
            return InfiniDtype(value)
        raise UnknownName("InfiniDtype", str(value), [f"{item.name} ({int(item)})" for item in InfiniDtype])
    name = str(value)
    if name in InfiniDtype.__members__:
        return InfiniDtype[name]
    if name.rpartition(".")[2] in ("complex32", "chalf"):  # optest has no dtype of these names.
        return InfiniDtype.C32
    try:
        element = dtype_called(str(getattr(value, "name", None) or getattr(value, "__name__", None) or value))
        return next(item for item, stored in _ELEMENTS.items() if stored is element and item not in _AMBIGUOUS)
    except (UnknownName, StopIteration):
        raise UnknownName("InfiniDtype", name, InfiniDtype.__members__) from None


# Their storage type, without further information, means another dtype.
_AMBIGUOUS = {InfiniDtype.BYTE, *COMPONENTS}


def element_of(dt: Any) -> DType:
    """Return the element type in which optest stores this dtype; raise UnknownName or, for INVALID, UsageError."""
    known = infini_dtype(dt)
    if known is InfiniDtype.INVALID:
        raise UsageError("dtype is INVALID, expected one with elements, such as InfiniDtype.F32")
    return _ELEMENTS[known]


_SIGNED = {"uint16": "int16", "uint32": "int32", "uint64": "int64"}


def to_torch_dtype(dt: Any, compatability_mode: bool = False) -> Any:
    """Return the torch dtype; ``compatability_mode`` replaces unsigned integers, which older torch lacks, by signed."""
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
    """Return the NumPy dtype of the same width; ``compatability_mode`` replaces unsigned integers by signed ones."""
    element = element_of(dt)
    name = _SIGNED.get(element.name, element.name) if compatability_mode else element.name
    return numpy_dtype(dtype_called(name))


def from_codes(codes: Array, dt: InfiniDtype) -> Array:
    """Return the values of stored elements: complex64 for C16 and C32, the array itself for all other dtypes."""
    component = COMPONENTS.get(dt)
    if component is None:
        return codes
    parts = widen(np.ascontiguousarray(codes).reshape(-1).view(numpy_dtype(dtype_called(component))))
    values: Array = parts.astype(np.float32).view(np.complex64).reshape(codes.shape)
    return values


def to_codes(values: Array, dt: InfiniDtype) -> Array:
    """Return complex values as stored elements of C16 or C32, components rounded to nearest; else ``values`` itself."""
    component = COMPONENTS.get(dt)
    if component is None:
        return values
    wide = np.ascontiguousarray(values, dtype=np.complex128).reshape(-1)
    parts = round_to(wide.view(np.float64), dtype_called(component))
    codes: Array = np.ascontiguousarray(parts).view(numpy_dtype(element_of(dt))).reshape(values.shape)
    return codes
