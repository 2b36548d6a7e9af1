"""The element types of infinicore.h: numbers, names under both spellings, and what they are in optest, torch and NumPy.

Complex numbers of two small floats are in none of them: they are stored as bits.
"""

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
    """``infiniDtype_t``. Of 15 to 18 the header counts the bits of the whole number, and its names are meant here.

    The predecessor's Python counted those of one component: its ``C8`` is kept as another name of 15, and its
    ``C16``, ``C32`` and ``C64`` are written ``C32``, ``C64`` and ``C128`` as in the header.
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


InfiniDtypeNames: Mapping[int, str] = {each: each.name for each in InfiniDtype}
"""The header's name of every number."""

_STORED = {"F8": "float8_e4m3fn", "C16": "uint16", "C32": "uint32"}
_ELEMENTS: Mapping[InfiniDtype, DType] = {
    each: dtype_called(_STORED.get(each.name, each.name.lower())) for each in InfiniDtype if each
}
"""How optest stores an element. Two float8 or two float16 are no number of NumPy, so C16 and C32 are their bits."""

COMPONENTS: Mapping[InfiniDtype, str] = {InfiniDtype.C16: "float8_e4m3fn", InfiniDtype.C32: "float16"}
"""What one component is, of those that are stored as bits."""


def infini_dtype(value: Any) -> InfiniDtype:
    """The element type of a number of the header, a name (``F16``, ``float16``), a torch or a NumPy dtype.

    Raises:
        UnknownName: for anything else, 99 included.
    """
    if isinstance(value, InfiniDtype):
        return value
    if isinstance(value, int):
        if value in InfiniDtypeNames:
            return InfiniDtype(value)
        raise UnknownName("InfiniDtype", str(value), [f"{each.name} ({int(each)})" for each in InfiniDtype])
    name = str(value)
    if name in InfiniDtype.__members__:
        return InfiniDtype[name]
    if name.rpartition(".")[2] in ("complex32", "chalf"):
        return InfiniDtype.C32
    try:
        element = dtype_called(str(getattr(value, "name", None) or getattr(value, "__name__", None) or value))
        return next(each for each, stored in _ELEMENTS.items() if stored is element and each not in _SECOND)
    except (UnknownName, StopIteration):
        raise UnknownName("InfiniDtype", name, InfiniDtype.__members__) from None


_SECOND = {InfiniDtype.BYTE, *COMPONENTS}
"""Stored like another type, which is meant when that is named."""


def element_of(dt: Any) -> DType:
    """How optest stores elements of this type.

    Raises:
        UnknownName: for a number that the header does not have.
        UsageError: for INVALID.
    """
    known = infini_dtype(dt)
    if known is InfiniDtype.INVALID:
        raise UsageError("dtype is INVALID, expected one that has elements, such as InfiniDtype.F32")
    return _ELEMENTS[known]


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
    parts = widen(np.ascontiguousarray(codes).reshape(-1).view(numpy_dtype(dtype_called(component))))
    values: Array = parts.astype(np.float32).view(np.complex64).reshape(codes.shape)
    return values


def to_codes(values: Array, dt: InfiniDtype) -> Array:
    """What :func:`from_codes` takes; components are rounded once, to nearest."""
    component = COMPONENTS.get(dt)
    if component is None:
        return values
    wide = np.ascontiguousarray(values, dtype=np.complex128).reshape(-1)
    parts = round_to(wide.view(np.float64), dtype_called(component))
    codes: Array = np.ascontiguousarray(parts).view(numpy_dtype(element_of(dt))).reshape(values.shape)
    return codes
