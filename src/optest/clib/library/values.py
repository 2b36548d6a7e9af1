"""Argument values for C functions: numbers, arrays, and structs with the field offsets of the compiler."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from optest.clib.ffi.signatures import CKind, CType, Field, Header
from optest.clib.library.arguments import COMPUTED, ELEMENTS, Argument, ArrayForm
from optest.clib.library.binding import BoundCase
from optest.clib.library.operator_mapping import CObject, is_of_a_tensor
from optest.errors import UsageError, did_you_mean
from optest.numerics import numpy_dtype
from optest.spec import DType


@dataclass(frozen=True, slots=True)
class Late:
    """A value known only when the call runs: a pointer by role, an object, ``self``, ``slot``."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Argument values of one case."""

    bound: BoundCase
    attributes: Mapping[str, Any]  # numbers, lists of them, names from the headers
    scalars: Mapping[str, Any]  # inputs passed by value
    element: DType
    constant: Callable[..., Any]  # looks up a name in the headers
    handle: Callable[[], Any]  # creates the handle at its first use

    @property
    def behind(self) -> Mapping[str, int]:
        """Non-zero byte offsets of pointers from element [0, 0, …], by role."""
        return {key: count for key, count in self.bound.behind.items() if count}

    def is_left_out(self, obj: CObject) -> bool:
        """Return whether the object would describe a tensor that the case omits."""
        known = self.bound.values
        needed = [arg for arg in obj.arguments if arg.kind in COMPUTED]
        return is_of_a_tensor(obj.name) and any(arg not in known for arg in needed)

    def of(self, argument: Argument, type_: CType) -> Any:
        """Return the value of an argument for a parameter of type ``type_``; a :class:`Late` if it is not known yet."""
        kind = argument.kind
        if argument.object_key:
            return Late(argument.object_key)
        if argument.is_late or kind in ("self", "slot"):
            return Late(argument.key)
        if kind in ("null", "stream"):
            return None
        if kind == "text":
            return argument.name.encode()
        value = self._value(argument, type_)
        if not isinstance(value, (int, str)) or not type_.is_pointer or type_.pointee is None:
            return value
        # Fortran takes integers and letters by reference.
        return value.encode() if isinstance(value, str) else (type_.pointee.ctype() * 1)(value)

    def _value(self, argument: Argument, type_: CType) -> Any:
        """Return the value of an argument that is known before the call, converted for ``type_``."""
        kind = argument.kind
        if kind == "handle":
            return self.handle()
        if kind == "count":
            forms = (arg.array for arg in self.bound.entry.read.attributes if arg.name == argument.name)
            return len(self._attribute_list(argument.name, next(arg for arg in forms if arg is not None)))
        if kind == "constant" and not argument.type:
            return argument.name if _is_letter(argument.name, type_) else self.constant(argument.name)
        if kind == "constant":
            return number(self.constant(argument.name, argument.type), argument.type, type_, self.element)
        if kind == "scalar":
            return number(self.scalars[argument.name], argument.type, type_, self.element)
        if kind == "attribute":
            return self._attribute(argument, type_)
        value = self.bound.values[argument]
        form = argument.array
        if form is not None and isinstance(value, tuple):
            return _c_array(value, form)
        return self.constant(value) if isinstance(value, str) and not _is_letter(value, type_) else value

    def _attribute(self, argument: Argument, type_: CType) -> Any:
        value, form = self.attributes[argument.name], argument.array
        if form is not None:
            return _c_array(self._attribute_list(argument.name, form), form)
        if isinstance(value, (list, tuple)):
            value = value[argument.index or 0] if len(value) > 1 else value[0]
        if isinstance(value, str):
            return self.constant(value)
        return number(value, argument.type, type_, self.element)

    def _attribute_list(self, name: str, form: ArrayForm) -> Sequence[Any]:
        """Return an attribute's numbers as a list in C's order; a single one is repeated to the array's length."""
        value = self.attributes[name]
        listed = list(value) if isinstance(value, (list, tuple)) else [value]
        if form.length is not None and len(listed) == 1:
            listed = listed * form.length
        return listed[::-1] if form.is_reversed else listed


def _is_letter(text: str, type_: CType) -> bool:
    """Return whether C takes the letter itself (``char *``, as in Fortran), not a constant of that name."""
    pointee = type_.pointee
    return len(text) == 1 and type_.is_pointer and pointee is not None and pointee.is_integer and pointee.size == 1


def _c_array(numbers: Sequence[Any], form: ArrayForm) -> Any:
    return (ELEMENTS[form.element] * len(numbers))(*numbers)


def number(value: Any, form: str, type_: CType, element: DType) -> Any:
    """Return a number in the C type of ``form``; an array of one if C takes a pointer."""
    if type_.is_pointer:
        if form in ("int", "bool") and type_.pointee is not None:
            return (type_.pointee.ctype() * 1)(int(value))
        kinds: dict[str, Any] = {"float": np.dtype(np.float32), "double": np.dtype(np.float64)}
        return np.array([float(value)]).astype(kinds.get(form, numpy_dtype(element)))
    if form in ("int", "bool"):
        value = int(value)
        return bool(value) if form == "bool" else value
    return float(value)


def put(struct: Any, path: str, field: Field, value: Any, behind: int) -> None:
    """Write a value into a struct's field: numbers into an array, the address of memory into a pointer."""
    # Interned names are one object for all calls: Python's attribute cache keeps the names it sees, and with
    # PYTHONMALLOC=malloc new ones look like a leak of the library.
    *outer, name = map(sys.intern, path.split("."))
    for part in outer:
        struct = getattr(struct, part)
    if field.length is not None:
        place = getattr(struct, name)
        for index, number_ in enumerate(value):
            place[index] = number_
        return
    if field.type.is_pointer and value is not None:
        if isinstance(value, bytes):
            value = ctypes.cast(ctypes.c_char_p(value), ctypes.c_void_p).value
        elif isinstance(value, ctypes.Array):
            value = ctypes.addressof(value)
        elif isinstance(value, np.ndarray):
            value = value.ctypes.data
        else:
            value = getattr(value, "address", value) + behind
    setattr(struct, name, value)


def structure_of(header: Header, name: str) -> type[ctypes.Structure]:
    """Return the ctypes class of a struct by tag or typedef; raise UsageError if it is not fully defined."""
    fields = _fields(header, name)
    return _structure_class(name, tuple((x.name, _ctype_of_field(header, x)) for x in fields))


@lru_cache(maxsize=64)
def _structure_class(name: str, fields: tuple[tuple[str, Any], ...]) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


def field_of(header: Header, struct: str, path: str) -> Field:
    """Return the field at a dotted path into nested structs; raise UsageError with the nearest name if missing."""
    first, _, rest = path.partition(".")
    fields = _fields(header, struct)
    field = next((x for x in fields if x.name == first), None)
    if field is None:
        names = [x.name for x in fields]
        hint = did_you_mean(first, names, text="did you mean {}? ")
        raise UsageError(f"struct {struct} has no field {first!r}; {hint}it has {', '.join(names)}")
    return field_of(header, field.type.tag, rest) if rest else field


def _fields(header: Header, name: str) -> tuple[Field, ...]:
    """Return a struct's fields by tag or typedef; raise UsageError without a definition or known offsets."""
    alias = header.typedefs.get(name)
    tag = alias.tag if alias is not None and alias.kind is CKind.STRUCT else name.removeprefix("struct ")
    if tag not in header.structs:
        hint = did_you_mean(tag, header.structs, text="; did you mean {}?")
        why = "is declared, but not defined" if tag in header.opaque else "is defined in no header"
        raise UsageError(f"struct {name} {why}{hint}")
    fields = header.structs[tag]
    unknown = next((x.unknown for x in fields if x.unknown), "")
    if unknown:
        raise UsageError(f"struct {name} cannot be filled in: {unknown}")
    return fields


def _ctype_of_field(header: Header, field: Field) -> Any:
    if field.type.kind is CKind.STRUCT:
        element: Any = structure_of(header, field.type.tag)
    else:
        element = ctypes.c_void_p if field.type.is_pointer else field.type.ctype()
    return element if field.length is None else element * field.length
