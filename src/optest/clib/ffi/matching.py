"""Whether a ctypes type, an element type or a NumPy dtype is what a C type of the header says."""

from __future__ import annotations

import ctypes
from typing import Any

from optest.clib.ffi.signatures import CKind, CType
from optest.spec import DType, Kind

__all__ = ["FUNCTION", "POINTER", "SIMPLE", "ctype_matches", "element_matches"]

SIMPLE: Any = ctypes.c_int.__mro__[1]
POINTER: Any = ctypes.POINTER(ctypes.c_int).__mro__[1]
FUNCTION: Any = ctypes.CFUNCTYPE(None).__mro__[1]
"""What all numbers, all typed pointers and all functions of ctypes are."""

_KIND_OF_CODE = {
    **dict.fromkeys("fdg", CKind.FLOAT),
    **dict.fromkeys("cbhilq", CKind.INT),
    **dict.fromkeys("BHILQ", CKind.UINT),
    "?": CKind.BOOL,
}
_ADDRESSES = "PzZO"
_KINDS = {Kind.INT: CKind.INT, Kind.UINT: CKind.UINT, Kind.FLOAT: CKind.FLOAT, Kind.COMPLEX: CKind.COMPLEX}
_KINDS[Kind.BOOL] = CKind.BOOL
_WITHOUT_A_C_TYPE = {"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"}
"""Element types that C headers spell as an unsigned integer of their size, or as void."""


def ctype_matches(ctype: Any, declared: CType) -> bool:
    """Whether values of a ctypes type go over as the header says: same kind, size and depth of pointers.

    An address without a type (``c_void_p``) is any pointer, and any structure is any struct: ctypes knows no tags.
    """
    if ctype is None:
        return declared.kind is CKind.VOID
    if not isinstance(ctype, type):
        return False
    if issubclass(ctype, SIMPLE):
        return _simple_matches(ctype, declared)
    if issubclass(ctype, FUNCTION):
        return declared.is_callback
    if issubclass(ctype, POINTER):
        if not declared.is_pointer or declared.pointee is None or declared.is_callback:
            return False
        target: Any = ctype
        return declared.pointee.kind is CKind.VOID or ctype_matches(target._type_, declared.pointee)
    return issubclass(ctype, (ctypes.Structure, ctypes.Union)) and declared.kind is CKind.STRUCT


def _simple_matches(ctype: Any, declared: CType) -> bool:
    code = ctype._type_
    if code in _ADDRESSES:
        return declared.is_pointer and (code == "P" or (declared.pointee is not None and declared.pointee.size <= 1))
    kind = _KIND_OF_CODE.get(code)
    if ctypes.sizeof(ctype) != declared.size:
        return False
    if declared.kind is CKind.ENUM:
        return kind in (CKind.INT, CKind.UINT)
    return kind is declared.kind or (code == "c" and declared.is_integer)


def element_matches(element: DType, pointee: CType) -> bool:
    """Whether elements of this type may lie where the header says ``pointee *``.

    ``void`` and one-byte integers are memory of any kind; a complex number may be two reals; what C has no type for
    goes as an unsigned integer of its size.
    """
    size = element.itemsize_bytes
    if pointee.kind is CKind.VOID or (pointee.is_integer and pointee.size == 1):
        return True
    if pointee.kind is CKind.FLOAT and element.is_complex:
        return 2 * pointee.size == size
    if pointee.kind is CKind.UINT and element.name in _WITHOUT_A_C_TYPE:
        return pointee.size == size
    if pointee.kind is CKind.ENUM:
        return element.is_integer and pointee.size == size
    if element.name == "bfloat16" and pointee.kind is CKind.FLOAT:
        return "bf16" in pointee.spelling or "bfloat" in pointee.spelling
    return _KINDS[element.kind] is pointee.kind and pointee.size == size
