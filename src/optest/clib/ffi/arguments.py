"""Convert one argument of a C call and check it against its parameter; compare ctypes and dtypes with C types."""

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
    """An argument that does not fit its parameter; the message is a predicate that follows "argument N (name)"."""


def converter(parameter: Parameter) -> Converter:
    """Return a function that converts a Python value to its ctypes argument or raises Misfit."""
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


def _unboxed(value: Any) -> Any:
    return value.value if isinstance(value, SIMPLE) else value


def _brief_repr(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"


def _integer_converter(type_: CType) -> Converter:
    low, high = type_.limits

    def convert(value: Any) -> int:
        if type(value) is not int:
            value = _unboxed(value)
            try:
                value = operator.index(value)  # accepts NumPy integers, refuses floats
            except TypeError:
                raise Misfit(f"is {_brief_repr(value)}, expected an integer ({type_.spelling})") from None
        if not low <= value <= high:
            raise Misfit(f"is {value}, expected from {low} to {high} ({type_.spelling})")
        return int(value)

    return convert


def _bool(value: Any) -> bool:
    number = _unboxed(value)
    # c_bool would take any object.
    if isinstance(number, (bool, np.bool_)) or (type(number) is int and number in (0, 1)):
        return bool(number)
    raise Misfit(f"is {_brief_repr(number)}, expected True or False (bool)")


def _float64(value: Any) -> float:
    """Return a float; raise Misfit for arrays, non-numbers and integers that a double cannot hold exactly."""
    if type(value) is float:
        return value
    value = _unboxed(value)
    if isinstance(value, np.ndarray) or not hasattr(value, "__float__"):  # An array of one element has __float__, too.
        raise Misfit(f"is {_brief_repr(value)}, expected a number (floating point)")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf  # the comparison below refuses it
    if isinstance(value, int) and number != value:
        raise Misfit(f"is {value}, expected an integer that a double holds exactly")
    return number


def _float32(value: Any) -> float:
    number = _float64(value)
    narrow = ctypes.c_float(number).value  # infinity if it is too large
    if math.isinf(narrow) and not math.isinf(number):
        raise Misfit(f"is {number}, expected at most 3.4028235e+38 (float)")
    if isinstance(value, int) and narrow != value:
        raise Misfit(f"is {value}, expected an integer that a float holds exactly")
    return number


def _callback_converter(type_: CType) -> Converter:
    ctype = type_.ctype()

    def convert(value: Any) -> Any:
        if value is None:
            return ctype()  # a NULL function pointer
        if isinstance(value, FUNCTION):
            return ctypes.cast(value, ctype)
        raise Misfit(f"is {_brief_repr(value)}, expected a C function ({type_}): wrap it in Prototype.argtypes[i]")

    return convert


def _pointer_converter(type_: CType) -> Converter:
    """Return a function that converts pointers to `type_` and remembers ctypes types that pass unchanged."""
    # Types of ctypes objects that pass unchanged: a case passes about ten objects, and checking one costs 3 µs.
    fitting: set[Any] = set()

    def convert(value: Any) -> Any:
        kind: Any = type(value)
        if kind is _BYREF:
            kind = (kind, type(value._obj))
        if kind in fitting:
            return value
        address = _address(type_, value)
        if address is value and kind is not int:  # The range of an int is checked each time.
            fitting.add(kind)
        return address

    return convert


def _address(type_: CType, value: Any) -> Any:
    """Return the address of `value`, or `value` if ctypes accepts it; raise Misfit if it does not fit `type_`."""
    pointee = type_.pointee
    assert pointee is not None
    writes = not pointee.is_const
    if value is None:
        return None
    if type(value) is int:
        if not 0 <= value <= _MAX_ADDRESS:
            raise Misfit(f"is {value}, expected an address from 0 to {_MAX_ADDRESS} ({type_})")
        return value
    if hasattr(value, "address"):
        # A buffer has an ``element``, a handle has a ``tag``, a workspace has neither.
        element, tag = getattr(value, "element", None), getattr(value, "tag", "")
        if element is not None and not element_matches(element, pointee):
            raise Misfit(f"points at {element} elements, expected {pointee.spelling} ({type_})")
        if tag and pointee.kind is not CKind.VOID and tag != pointee.tag:
            raise Misfit(f"is a handle of type {tag}, expected {type_}")
        return value.address
    if isinstance(value, np.ndarray):
        try:
            element = dtype_of(value.dtype)
        except UnknownName:
            raise Misfit(f"is an array of {value.dtype}, expected a dtype with a C type ({type_})") from None
        if not element_matches(element, pointee):
            raise Misfit(f"is an array of {element}, expected {pointee.spelling} ({type_})")
        if writes and not value.flags.writeable:
            raise Misfit(f"is a read-only array, expected a writeable one ({type_})")
        return int(value.ctypes.data)
    if isinstance(value, ctypes.c_void_p):
        return value.value
    if isinstance(value, bytes) and not writes and pointee.size <= 1:  # C must not write to immutable bytes.
        return value
    return _require_ctypes_pointer(value, type_, pointee)


def _require_ctypes_pointer(value: Any, type_: CType, pointee: CType) -> Any:
    """Return `value` if it is a ctypes pointer to `pointee`, to void or to bytes; else raise Misfit."""
    target: Any
    if isinstance(value, _BYREF):
        target = type(value._obj)
    elif isinstance(value, (POINTER, ctypes.Array)):
        target = value._type_
    else:
        raise Misfit(f"is {_brief_repr(value)}, expected a pointer ({type_})")
    if issubclass(target, ctypes.Array):
        target = target._type_
    if pointee.kind is CKind.VOID or ctype_matches(target, pointee) or (pointee.size == 1 and pointee.is_integer):
        return value
    raise Misfit(f"points at {target.__name__}, expected {pointee} ({type_})")


# ctypes has no public names for the base classes of its numbers, typed pointers and functions.
SIMPLE: Any = ctypes.c_int.__mro__[1]
POINTER: Any = ctypes.POINTER(ctypes.c_int).__mro__[1]
FUNCTION: Any = ctypes.CFUNCTYPE(None).__mro__[1]

_KIND_OF_CODE = {  # Type codes of ctypes, those of the struct module.
    **dict.fromkeys("fdg", CKind.FLOAT),
    **dict.fromkeys("cbhilq", CKind.INT),
    **dict.fromkeys("BHILQ", CKind.UINT),
    "?": CKind.BOOL,
}
_ADDRESSES = "PzZO"  # c_void_p, c_char_p, c_wchar_p and py_object
_KINDS = {kind: CKind(kind.value) for kind in (Kind.BOOL, Kind.INT, Kind.UINT, Kind.FLOAT, Kind.COMPLEX)}
# C headers declare these element types as unsigned integers of their size, or as void.
_WITHOUT_A_C_TYPE = {"float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"}


def ctype_matches(ctype: Any, declared: CType) -> bool:
    """Return whether a ctypes type fits a C type of a header: same kind, size and depth of pointers.

    ``c_void_p`` fits any pointer, and any structure any struct, since ctypes knows no tags. None fits void.
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
    """Return whether a ctypes number or address has the kind and size of the declared type."""
    code = ctype._type_
    if code in _ADDRESSES:
        return declared.is_pointer and (code == "P" or (declared.pointee is not None and declared.pointee.size <= 1))
    kind = _KIND_OF_CODE.get(code)
    if ctypes.sizeof(ctype) != declared.size:
        return False
    if declared.kind is CKind.ENUM:
        return kind in (CKind.INT, CKind.UINT)
    return kind is declared.kind or (code == "c" and declared.is_integer)  # c_char is one byte of any integer type.


def element_matches(element: DType, pointee: CType) -> bool:
    """Return whether a pointer to `pointee` may point at elements of this type.

    void and one-byte integers accept every element; a complex number also matches its two reals, an element without a C
    type also an unsigned integer of its size, an integer also an enum.
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
    # Only the spelling tells it from float16, which has the same size.
    if element.name == "bfloat16" and pointee.kind is CKind.FLOAT:
        return "bf16" in pointee.spelling or "bfloat" in pointee.spelling
    return _KINDS[element.kind] is pointee.kind and pointee.size == size
