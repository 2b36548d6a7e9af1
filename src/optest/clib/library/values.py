"""What C gets for the arguments of a function: numbers, arrays, structs of the headers with their fields where the
compiler puts them, and what waits for memory."""

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
    """What is known when a call is made: a pointer by role, an object, ``self``, ``slot``."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Those of one case. ``attributes`` are by name: numbers, lists of them, names of the headers; ``scalars`` are the
    inputs that go over by value."""

    bound: BoundCase
    attributes: Mapping[str, Any]
    scalars: Mapping[str, Any]
    element: DType
    constant: Callable[..., Any]
    handle: Callable[[], Any]

    @property
    def behind(self) -> Mapping[str, int]:
        """How many bytes behind element [0, 0, …] a pointer points, by role."""
        return {key: count for key, count in self.bound.behind.items() if count}

    def is_left_out(self, c_object: CObject) -> bool:
        """Whether it would be made of a tensor that the case leaves out."""
        known = self.bound.values
        needed = [each for each in c_object.arguments if each.kind in COMPUTED]
        return is_of_a_tensor(c_object.name) and any(each not in known for each in needed)

    def of(self, argument: Argument, type_: CType) -> Any:
        """What an argument of this type gets; a :class:`Late` for what is not known yet."""
        kind = argument.kind
        if argument.made_as:
            return Late(argument.made_as)
        if argument.is_late or kind in ("self", "slot"):
            return Late(argument.key)
        if kind in ("null", "stream"):
            return None
        if kind == "text":
            return argument.name.encode()
        value = self._value(argument, type_)
        return _referred(value, type_) if isinstance(value, (int, str)) else value

    def _value(self, argument: Argument, type_: CType) -> Any:
        kind = argument.kind
        if kind == "handle":
            return self.handle()
        if kind == "count":
            forms = (each.array for each in self.bound.entry.read.attributes if each.name == argument.name)
            return len(self._listed(argument.name, next(each for each in forms if each is not None)))
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
            return _array(value, form)
        return self.constant(value) if isinstance(value, str) and not _is_letter(value, type_) else value

    def _attribute(self, argument: Argument, type_: CType) -> Any:
        value, form = self.attributes[argument.name], argument.array
        if form is not None:
            return _array(self._listed(argument.name, form), form)
        if isinstance(value, (list, tuple)):
            value = value[argument.index or 0] if len(value) > 1 else value[0]
        if isinstance(value, str):
            return self.constant(value)
        return number(value, argument.type, type_, self.element)

    def _listed(self, name: str, form: ArrayForm) -> Sequence[Any]:
        """The numbers of an attribute; a single one is repeated."""
        value = self.attributes[name]
        listed = list(value) if isinstance(value, (list, tuple)) else [value]
        if form.length is not None and len(listed) == 1:
            listed = listed * form.length
        return listed[::-1] if form.is_reversed else listed


def _is_letter(text: str, type_: CType) -> bool:
    """Whether C wants the letter itself, as Fortran's functions do, and no constant of that name."""
    pointee = type_.pointee
    return len(text) == 1 and type_.is_pointer and pointee is not None and pointee.is_integer and pointee.size == 1


def _referred(value: int | str, type_: CType) -> Any:
    """An integer or a letter behind a pointer, where C wants one."""
    if not type_.is_pointer or type_.pointee is None:
        return value
    return value.encode() if isinstance(value, str) else (type_.pointee.ctype() * 1)(value)


def _array(numbers: Sequence[Any], form: ArrayForm) -> Any:
    return (ELEMENTS[form.element] * len(numbers))(*numbers)


def number(value: Any, form: str, type_: CType, element: DType) -> Any:
    """A number as C takes it; where it wants a pointer, an array of one."""
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
    """Write a value into the field of a struct: numbers into an array, the address of what is memory.

    Each name is one object for all calls: Python's cache of attributes keeps those that it sees, and where Python gets
    its memory from malloc (``PYTHONMALLOC=malloc``) new ones look like something that the library loses.
    """
    *outer, name = map(sys.intern, path.split("."))
    for each in outer:
        struct = getattr(struct, each)
    if field.length is not None:
        place = getattr(struct, name)
        for index, each in enumerate(value):
            place[index] = each
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
    """The ctypes class of a struct by its tag or its typedef's name, in the natural alignment of its fields.

    Raises:
        UsageError: for a struct that no header defines, or one whose fields cannot be placed.
    """
    fields = _fields(header, name)
    return _made(name, tuple((each.name, _ctype(header, each)) for each in fields))


@lru_cache(maxsize=64)
def _made(name: str, fields: tuple[tuple[str, Any], ...]) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


def field_of(header: Header, struct: str, path: str) -> Field:
    """The field of a struct, or with dots one of a struct inside it.

    Raises:
        UsageError: naming the nearest, if there is none.
    """
    first, _, rest = path.partition(".")
    fields = _fields(header, struct)
    found = next((each for each in fields if each.name == first), None)
    if found is None:
        names = [each.name for each in fields]
        hint = did_you_mean(first, names, text="did you mean {}? ")
        raise UsageError(f"struct {struct} has no field {first!r}; {hint}it has {', '.join(names)}")
    return field_of(header, found.type.tag, rest) if rest else found


def _fields(header: Header, name: str) -> tuple[Field, ...]:
    alias = header.typedefs.get(name)
    tag = alias.tag if alias is not None and alias.kind is CKind.STRUCT else name.removeprefix("struct ")
    if tag not in header.structs:
        hint = did_you_mean(tag, header.structs, text="; did you mean {}?")
        why = "is declared, but not defined" if tag in header.opaque else "is defined in no header"
        raise UsageError(f"struct {name} {why}{hint}")
    fields = header.structs[tag]
    unknown = next((each.unknown for each in fields if each.unknown), "")
    if unknown:
        raise UsageError(f"struct {name} cannot be filled in: {unknown}")
    return fields


def _ctype(header: Header, field: Field) -> Any:
    if field.type.kind is CKind.STRUCT:
        one: Any = structure_of(header, field.type.tag)
    else:
        one = ctypes.c_void_p if field.type.is_pointer else field.type.ctype()
    return one if field.length is None else one * field.length
