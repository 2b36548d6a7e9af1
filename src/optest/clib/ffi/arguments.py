"""One argument of a call, checked against its parameter: kind, range, what a pointer points at; nothing is cut off.

Whether a ctypes type, an element type or a NumPy dtype is what a C type of the header says.
"""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from optest.clib.ffi.signatures import CKind, CType, Parameter
from optest.errors import UnknownName
from optest.numerics import dtype_of
from optest.spec import DType, Kind

Converter = Callable[[Any], Any]

_BYREF: Any = type(ctypes.byref(ctypes.c_int()))
_MAX_ADDRESS = (1 << 8 * ctypes.sizeof(ctypes.c_void_p)) - 1


class Misfit(Exception):
    """An argument that is not what the parameter says; the message begins with ``is``."""


def converter(parameter: Parameter) -> Converter:
    """What turns a Python value into one that ctypes passes unchanged, or raises :class:`Misfit`."""
    type_ = parameter.type
    match type_.kind:
        case CKind.BOOL:
            return _bool
        case CKind.FLOAT:
            return _float32 if type_.size == 4 else _float64
        case CKind.POINTER if type_.is_callback:
            return _callback_converter(type_)
        case CKind.POINTER:
            return _pointer_converter(type_)
    return _integer_converter(type_)


def _plain(value: Any) -> Any:
    """The number in a ctypes number."""
    return value.value if isinstance(value, SIMPLE) else value


def _shown(value: Any) -> str:
    shown = repr(value)
    return f"{shown if len(shown) <= 60 else shown[:57] + '...'} ({type(value).__name__})"


def _integer_converter(type_: CType) -> Converter:
    low, high = type_.limits

    def convert(value: Any) -> int:
        if type(value) is not int:
            value = _plain(value)
            try:
                value = operator.index(value)
            except TypeError:
                raise Misfit(f"is {_shown(value)}, expected an integer ({type_.spelling})") from None
        if not low <= value <= high:
            raise Misfit(f"is {value}, expected from {low} to {high} ({type_.spelling})")
        return int(value)

    return convert


def _bool(value: Any) -> bool:
    plain = _plain(value)
    if isinstance(plain, (bool, np.bool_)) or (type(plain) is int and plain in (0, 1)):
        return bool(plain)
    raise Misfit(f"is {_shown(plain)}, expected True or False (bool)")


def _float64(value: Any) -> float:
    if type(value) is float:
        return value
    value = _plain(value)
    if isinstance(value, np.ndarray) or not hasattr(value, "__float__"):
        raise Misfit(f"is {_shown(value)}, expected a number (floating point)")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if isinstance(value, int) and number != value:
        raise Misfit(f"is {value}, which a double cannot hold")
    return number


def _float32(value: Any) -> float:
    number = _float64(value)
    narrow = ctypes.c_float(number).value
    if math.isinf(narrow) and not math.isinf(number):
        raise Misfit(f"is {number}, expected at most 3.4028235e+38 (float)")
    if isinstance(value, int) and narrow != value:
        raise Misfit(f"is {value}, which a float cannot hold")
    return number


def _callback_converter(type_: CType) -> Converter:
    ctype = type_.ctype()

    def convert(value: Any) -> Any:
        if value is None:
            return ctype()
        if isinstance(value, FUNCTION):
            return ctypes.cast(value, ctype)
        raise Misfit(f"is {_shown(value)}, expected a C function ({type_}): wrap it in Prototype.argtypes[i]")

    return convert


def _pointer_converter(type_: CType) -> Converter:
    fitting: set[Any] = set()
    """Types of ctypes objects that are passed as they are: a case passes about ten, and a look at one costs 3 µs."""

    def convert(value: Any) -> Any:
        kind: Any = type(value)
        if kind is _BYREF:
            kind = (kind, type(value._obj))
        if kind in fitting:
            return value
        address = _address(type_, value)
        if address is value and kind is not int:
            fitting.add(kind)
        return address

    return convert


def _address(type_: CType, value: Any) -> Any:
    pointee = type_.pointee
    assert pointee is not None
    writes = not pointee.is_const
    if value is None:
        return None
    if type(value) is int:
        if not 0 <= value <= _MAX_ADDRESS:
            raise Misfit(f"is {value}, which is no address ({type_})")
        return value
    if hasattr(value, "address"):
        # A buffer has an ``element``, a handle has a ``tag``, a workspace has neither.
        element, tag = getattr(value, "element", None), getattr(value, "tag", "")
        if element is not None and not element_matches(element, pointee):
            raise Misfit(f"points at {element} elements, but should at {pointee.spelling} ({type_})")
        if tag and pointee.kind is not CKind.VOID and tag != pointee.tag:
            raise Misfit(f"is a handle of {tag}, expected {type_}")
        return value.address
    if isinstance(value, np.ndarray):
        try:
            element = dtype_of(value.dtype)
        except UnknownName:
            raise Misfit(f"is an array of {value.dtype}, which has no counterpart in C") from None
        if not element_matches(element, pointee):
            raise Misfit(f"is an array of {element}, but should hold {pointee.spelling} ({type_})")
        if writes and not value.flags.writeable:
            raise Misfit(f"is an array that may not be written, expected writeable ({type_})")
        return int(value.ctypes.data)
    if isinstance(value, ctypes.c_void_p):
        return value.value
    if isinstance(value, bytes) and not writes and pointee.size <= 1:
        return value
    return _ctypes_pointer(value, type_, pointee)


def _ctypes_pointer(value: Any, type_: CType, pointee: CType) -> Any:
    target: Any
    if isinstance(value, _BYREF):
        target = type(value._obj)
    elif isinstance(value, (POINTER, ctypes.Array)):
        target = value._type_
    else:
        raise Misfit(f"is {_shown(value)}, expected a pointer ({type_})")
    if issubclass(target, ctypes.Array):
        target = target._type_
    if pointee.kind is CKind.VOID or ctype_matches(target, pointee) or (pointee.size == 1 and pointee.is_integer):
        return value
    raise Misfit(f"points at {target.__name__}, but should at {pointee} ({type_})")


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
