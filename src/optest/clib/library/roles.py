"""What one argument of a C function is, as a mapping writes it: ``input:bias?``, ``attribute:padding as size_t[2]``."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from optest.clib.ffi.matching import ctype_matches
from optest.clib.ffi.signatures import CKind, CType, Parameter, Prototype
from optest.errors import UsageError, nearest

__all__ = ["CALL_KINDS", "ELEMENTS", "NUMBERS", "ROLE", "Entry", "Role", "StartsAs", "drift", "literal", "wrong_role"]

NUMBERS = {"float": "a float", "double": "a double", "int": "an integer", "bool": "a bool"}
"""C types of a number that is passed by value; ``int`` is an integer of any width, which the header says."""
ELEMENTS: dict[str, Any] = {
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "size_t": ctypes.c_size_t,
    "ptrdiff_t": ctypes.c_ssize_t,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
"""C types of the elements of an array, which headers often hide behind ``void *``."""
CALL_KINDS = ("output", "input", "tensor", "attribute", "scalar", "count", "constant")
"""Roles that name something: a tensor of the operator, a tensor that optest makes of an attribute, an attribute by
value or as an array, an input of one element by value, how many elements an attribute's array has, a number that is
always the same."""

_BY_VALUE = ("attribute", "scalar", "constant")
_INTEGERS = ("ndim", "dtype", "device", "device_id", "workspace_size", "count")
_WRITTEN = ("output", "slot", "workspace")
ROLE = re.compile(
    r"(?P<kind>\w+)"
    r"(?::(?P<name>[^\s?:\[\]]+)(?P<optional>\?)?(?: as (?P<type>\w+)(?P<array>\[(?P<length>[0-9]{0,4})\])?)?)?"
)
_NAME = re.compile(r"[A-Za-z_]\w*")
_LITERAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?|[+-]?(?:inf|nan)")


class StartsAs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An output that holds an input's values when the call begins.

    ``without`` are the attributes' values where the case leaves that input out.
    """

    output: str
    input: str
    without: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """``optional`` is NULL where the case leaves the input out; an array has ``length`` elements, of which one number
    is repeated, or, without one, as many as the case states."""

    kind: str
    name: str = ""
    optional: bool = False
    type: str = ""
    is_array: bool = False
    length: int | None = None

    @property
    def key(self) -> str:
        """What the values of a call are found under. A tensor that optest makes is one input more."""
        if self.kind == "tensor":
            return f"input:{self.name}"
        if self.kind in ("attribute", "constant") and self.type:
            return f"{self} as {self.type}" + (f"[{self.length or ''}]" if self.is_array else "")
        return str(self)

    @property
    def is_input(self) -> bool:
        """Whether it is memory that C reads."""
        return self.kind in ("input", "tensor")

    @property
    def is_narrow(self) -> bool:
        """Whether C's type holds fewer numbers than optest's float64."""
        return self.type == "float"

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @classmethod
    def parse(cls, text: str) -> Role:
        """Read a role of a mapping that was checked.

        Raises:
            UsageError: for a text of another form.
        """
        found = ROLE.fullmatch(text)
        if found is None:
            raise UsageError(f"role is {text!r}, but should look like 'handle' or 'input:a'")
        return cls(
            kind=found["kind"],
            name=found["name"] or "",
            optional=bool(found["optional"]),
            type=found["type"] or "",
            is_array=found["array"] is not None,
            length=int(found["length"]) if found["length"] else None,
        )


class Entry(Protocol):
    """What has to be known of an operator, however it is called, to ask it and to give its tensors memory."""

    @property
    def broadcasts(self) -> bool: ...

    @property
    def starts_as(self) -> StartsAs | None: ...

    @property
    def dtypes(self) -> tuple[str, ...]: ...

    @property
    def in_place(self) -> tuple[str, ...]: ...

    def roles(self) -> tuple[Role, ...]:
        """Inputs, outputs and attributes among them."""


def wrong_role(text: str, plain: Sequence[str], named: Sequence[str]) -> str:
    """Why ``text`` is no role among those without a name (``plain``) and with one; empty if it is."""
    found = ROLE.fullmatch(text)
    forms = (*plain, *(f"{kind}:NAME" for kind in named))
    kind = found["kind"] if found else re.split(r"\W", text, maxsplit=1)[0]
    if kind not in (*plain, *named):
        near = nearest(kind, (*plain, *named))
        return f"which is no role here; {f'did you mean {near}? ' if near else ''}known: {', '.join(forms)}"
    if found is None or (found["name"] is not None) != (kind in named):
        return f"but should be one of {', '.join(forms)}"
    return _wrong_name(found) or _wrong_type(found)


def _wrong_name(found: re.Match[str]) -> str:
    kind, name = found["kind"], found["name"]
    if kind == "constant":
        is_known = literal(name, found["type"] or "float") is not None or _NAME.fullmatch(name)
        return "" if is_known else "but a constant should be a number, or the name of one in the headers"
    if name is not None and not _NAME.fullmatch(name):
        return f"but {name!r} should be a name of letters, digits and underscores"
    return "but only an input can be left out" if found["optional"] and kind != "input" else ""


def _wrong_type(found: re.Match[str]) -> str:
    kind, name, stated = found["kind"], found["name"], found["type"]
    if kind not in _BY_VALUE:
        return "but only a number has a C type" if stated else ""
    is_array = found["array"] is not None
    if is_array and kind != "attribute":
        return "but only an attribute can be an array"
    known = ELEMENTS if is_array else NUMBERS
    if stated not in known:
        near = nearest(stated or "", list(known))
        hint = f" (did you mean {near}?)" if near else ""
        return f"but should say its C type{hint}: '{kind}:{name} as {'|'.join(known)}{'[]' if is_array else ''}'"
    return "but an array should have one element or more" if found["length"] and not int(found["length"]) else ""


def literal(text: str, type_: str) -> float | int | None:
    """The number that a constant is, as its type; None for the name of one in the headers."""
    if not _LITERAL.fullmatch(text):
        return None
    if type_ in ("float", "double"):
        return float(text)
    return int(text) if text.lstrip("+-").isdecimal() else None


def drift(where: str, roles: Sequence[Role], prototype: Prototype) -> str | None:
    """Why the header's prototype is not what the roles say, naming the argument; None if they agree."""
    shown = f"\n  at {prototype.where}: {prototype}"
    if len(roles) != len(prototype.parameters):
        said = f"{where} has {len(roles)} arguments, but {prototype.name} should have {len(prototype.parameters)}"
        return f"{said}{_where_it_begins(roles, prototype)}{shown}"
    for index, (role, parameter) in enumerate(zip(roles, prototype.parameters, strict=True)):
        why = _misfit(role, parameter)
        if why:
            return f"{where}: {prototype.label(index)} of {prototype.name} is {parameter}, but {role} {why}{shown}"
    return None


def _where_it_begins(roles: Sequence[Role], prototype: Prototype) -> str:
    """The first of two lists of unequal length that does not fit, else the first that has no counterpart."""
    for index, (role, parameter) in enumerate(zip(roles, prototype.parameters, strict=False)):
        why = _misfit(role, parameter)
        if why:
            return f"; {prototype.label(index)} is {parameter}, but {role} {why}"
    if len(roles) < len(prototype.parameters):
        return f"; nothing is passed for {prototype.label(len(roles))}, {prototype.parameters[len(roles)]}"
    return f"; nothing takes {roles[len(prototype.parameters)]}"


def _misfit(role: Role, parameter: Parameter) -> str:
    type_ = parameter.type
    if role.is_array:
        return _misfit_of_array(role, type_)
    if role.kind in _BY_VALUE:
        return _misfit_of_number(role, type_)
    if role.kind in _INTEGERS:
        return "" if type_.is_integer else "should be an integer"
    if not type_.is_pointer:
        return "should be a pointer"
    if role.kind in _WRITTEN and parameter.is_const:
        return "should point at what may be written"
    return ""


def _misfit_of_number(role: Role, type_: CType) -> str:
    fits = {
        "float": type_.kind is CKind.FLOAT and type_.size == 4,
        "double": type_.kind is CKind.FLOAT and type_.size == 8,
        "int": type_.is_integer,
        "bool": type_.kind is CKind.BOOL,
    }[role.type]
    return "" if fits else f"should be {NUMBERS[role.type]}"


def _misfit_of_array(role: Role, type_: CType) -> str:
    pointee = type_.pointee
    if pointee is None or type_.is_callback:
        return f"should be a pointer to {role.type}"
    if pointee.kind is CKind.VOID or ctype_matches(ELEMENTS[role.type], pointee):
        return ""
    return f"should be an array of {pointee.spelling}"
