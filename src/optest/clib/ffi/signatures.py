"""What headers say, as nouns: types, prototypes, and the ctypes that pass them; nothing is read or called here."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from optest.errors import Problem, UnknownName, UsageError


class CKind(str, Enum):
    VOID = "void"
    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"
    COMPLEX = "complex"
    ENUM = "enum"
    POINTER = "pointer"
    FUNCTION = "function"
    STRUCT = "struct"


_SIGNED = {1: ctypes.c_int8, 2: ctypes.c_int16, 4: ctypes.c_int32, 8: ctypes.c_int64}
_UNSIGNED = {1: ctypes.c_uint8, 2: ctypes.c_uint16, 4: ctypes.c_uint32, 8: ctypes.c_uint64}
_FLOATS = {4: ctypes.c_float, 8: ctypes.c_double, ctypes.sizeof(ctypes.c_longdouble): ctypes.c_longdouble}


@dataclass(frozen=True, slots=True, kw_only=True)
class CType:
    """One C type of a parameter, a result or what a pointer points at.

    ``spelling`` is how the header writes it without ``const``; ``size`` its bytes, 0 where that is not known (void, a
    struct). ``tag`` names an enum or a struct, by its own tag or else the typedef's name. The ``pointee`` of a
    function type is its result, ``parameters`` are its parameters.
    """

    kind: CKind
    spelling: str
    size: int = 0
    is_const: bool = False
    tag: str = ""
    pointee: CType | None = None
    parameters: tuple[CType, ...] = ()

    def __str__(self) -> str:
        if self.kind is CKind.POINTER and self.spelling.endswith("*"):
            return self.spelling + ("const" if self.is_const else "")
        return f"const {self.spelling}" if self.is_const else self.spelling

    @property
    def is_pointer(self) -> bool:
        return self.kind is CKind.POINTER

    @property
    def is_callback(self) -> bool:
        """Whether it is a pointer to a function."""
        return self.pointee is not None and self.kind is CKind.POINTER and self.pointee.kind is CKind.FUNCTION

    @property
    def is_integer(self) -> bool:
        return self.kind in (CKind.INT, CKind.UINT, CKind.ENUM)

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and the largest value of an integer type, both included."""
        bits = 8 * self.size
        if self.kind is CKind.UINT:
            return 0, (1 << bits) - 1
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def ctype(self) -> Any:
        """The ctypes type that passes it; None for ``void``.

        Every pointer but one to a function goes over as an address (``c_void_p``); what it points at is checked
        before the call, by :mod:`optest.clib.ffi.calls`.

        Raises:
            UsageError: for what ctypes cannot pass by value: structs, complex numbers, 16-bit floats.
        """
        match self.kind:
            case CKind.VOID:
                return None
            case CKind.BOOL:
                return ctypes.c_bool
            case CKind.INT | CKind.ENUM if self.size in _SIGNED:
                return _SIGNED[self.size]
            case CKind.UINT if self.size in _UNSIGNED:
                return _UNSIGNED[self.size]
            case CKind.FLOAT if self.size in _FLOATS:
                return _FLOATS[self.size]
            case CKind.POINTER if self.is_callback and self.pointee is not None:
                result = None if self.pointee.pointee is None else self.pointee.pointee.ctype()
                arguments = [each.ctype() for each in self.pointee.parameters]
                # void beside other parameters, which is not C, but a preprocessor accepts it
                if None not in arguments:
                    return ctypes.CFUNCTYPE(result, *arguments)
            case CKind.POINTER:
                return ctypes.c_void_p
        raise UsageError(f"type is {self}, which cannot be passed by value from Python")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a function; ``name`` is empty where the header gives none."""

    name: str
    type: CType

    @property
    def ctype(self) -> Any:
        return self.type.ctype()

    @property
    def is_pointer(self) -> bool:
        return self.type.is_pointer

    @property
    def pointee(self) -> CType | None:
        return self.type.pointee if self.type.is_pointer else None

    @property
    def is_const(self) -> bool:
        """Whether the function promises not to write through this pointer."""
        return self.pointee is not None and self.pointee.is_const

    def __str__(self) -> str:
        return f"{self.type} {self.name}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prototype:
    """A function as the header declares it; ``where`` is ``file:line``."""

    name: str
    result: CType
    parameters: tuple[Parameter, ...] = ()
    where: str = ""

    def __str__(self) -> str:
        return f"{self.result} {self.name}({', '.join(map(str, self.parameters)) or 'void'})"

    @property
    def argtypes(self) -> tuple[Any, ...]:
        return tuple(parameter.ctype for parameter in self.parameters)

    @property
    def restype(self) -> Any:
        return self.result.ctype()

    def label(self, index: int) -> str:
        """``argument 2 (alpha)``, counted from 1 as people count."""
        name = self.parameters[index].name if index < len(self.parameters) else ""
        return f"argument {index + 1} ({name})" if name else f"argument {index + 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a struct; ``length`` is that of an array, None for a single value. ``unknown`` says why its place
    cannot be computed, which then goes for the whole struct."""

    name: str
    type: CType
    length: int | None = None
    unknown: str = ""


class HeaderError(UsageError):
    """A declaration that was asked for and that cannot be read or cannot be called; names file, line and text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a set of headers declares. System headers contribute types, never functions or constants.

    ``refused`` holds the functions that cannot be called and why, ``problems`` what could not be parsed and has no
    name. ``opaque`` are the tags of structs that are declared and not defined, ``structs`` the fields of the others, by
    tag or typedef. ``constants`` are enumerators and macros that are integers.
    """

    files: tuple[str, ...] = ()
    prototypes: Mapping[str, Prototype] = field(default_factory=dict)
    refused: Mapping[str, Problem] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    enums: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    constants: Mapping[str, int] = field(default_factory=dict)
    typedefs: Mapping[str, CType] = field(default_factory=dict)
    opaque: frozenset[str] = frozenset()
    structs: Mapping[str, tuple[Field, ...]] = field(default_factory=dict)

    def prototype(self, name: str) -> Prototype:
        """The prototype of one function.

        Raises:
            HeaderError: if its declaration cannot be parsed or called, with file, line and text.
            UnknownName: if no header declares it.
        """
        found = self.prototypes.get(name)
        if found is not None:
            return found
        if name in self.refused:
            raise HeaderError(str(self.refused[name]))
        raise UnknownName("function", name, _near(name, self.prototypes), where=", ".join(self.files))

    def enum(self, name: str) -> Mapping[str, int]:
        """The enumerators of an enum by its tag or its typedef's name.

        Raises:
            UnknownName: if no header declares it.
        """
        alias = self.typedefs.get(name)
        tag = alias.tag if alias is not None and alias.tag in self.enums else name
        if tag not in self.enums:
            raise UnknownName("enum", name, self.enums, where=", ".join(self.files))
        return self.enums[tag]


def _near(name: str, known: Mapping[str, Any]) -> list[str]:
    """A header declares hundreds of functions: list those that share a word with ``name``, for the suggestion."""
    folded = name.casefold()
    return [each for each in known if folded in each.casefold() or each.casefold() in folded] or list(known)[:20]
