"""Types, prototypes and headers as data, and the ctypes that pass them; this module reads no file and calls nothing."""

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
# 16-bit floats and complex numbers have no ctypes type.
_FLOATS = {4: ctypes.c_float, 8: ctypes.c_double, ctypes.sizeof(ctypes.c_longdouble): ctypes.c_longdouble}


@dataclass(frozen=True, slots=True, kw_only=True)
class CType:
    """One C type of a parameter, a result or a pointee.

    ``spelling`` is the header's, without ``const``; ``size`` is in bytes, 0 if unknown (void, a struct). ``tag`` names
    an enum or struct, else its typedef does. A function type has its result as ``pointee``, and ``parameters``.
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
            return self.spelling + ("const" if self.is_const else "")  # const after the star is the pointer's own
        return f"const {self.spelling}" if self.is_const else self.spelling

    @property
    def is_pointer(self) -> bool:
        return self.kind is CKind.POINTER

    @property
    def is_callback(self) -> bool:
        """Return whether this is a pointer to a function."""
        return self.pointee is not None and self.kind is CKind.POINTER and self.pointee.kind is CKind.FUNCTION

    @property
    def is_integer(self) -> bool:
        return self.kind in (CKind.INT, CKind.UINT, CKind.ENUM)

    @property
    def limits(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type, both inclusive."""
        bits = 8 * self.size
        if self.kind is CKind.UINT:
            return 0, (1 << bits) - 1
        return -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def ctype(self) -> Any:
        """Return the ctypes type for passing by value, None for ``void``; raise UsageError if ctypes lacks one.

        A pointer is an address (``c_void_p``), except a callback; :mod:`~optest.clib.ffi.calls` checks its pointee.
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
                arguments = [type_.ctype() for type_ in self.pointee.parameters]
                # A preprocessor accepts void next to other parameters, which is not C.
                if None not in arguments:
                    return ctypes.CFUNCTYPE(result, *arguments)
            case CKind.POINTER:
                return ctypes.c_void_p
        raise UsageError(f"type {self} cannot be passed by value from Python")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a function; ``name`` is empty if the header gives none."""

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
        """Return whether this is a pointer to const: the function promises not to write through it."""
        return self.pointee is not None and self.pointee.is_const

    def __str__(self) -> str:
        return f"{self.type} {self.name}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Prototype:
    """Declaration of a C function in a header; ``where`` is ``file:line``."""

    name: str
    result: CType
    parameters: tuple[Parameter, ...] = ()
    where: str = ""

    def __str__(self) -> str:
        return f"{self.result} {self.name}({', '.join(map(str, self.parameters)) or 'void'})"

    @property
    def location_line(self) -> str:
        """Line to append to a message, with location and text of the declaration; empty without a location."""
        return f"\n  at {self.where}: {self}" if self.where else ""

    @property
    def argtypes(self) -> tuple[Any, ...]:
        return tuple(parameter.ctype for parameter in self.parameters)

    @property
    def restype(self) -> Any:
        return self.result.ctype()

    def label(self, index: int) -> str:
        """Return ``argument 2 (alpha)`` for index 1, without a name ``argument 2``."""
        name = self.parameters[index].name if index < len(self.parameters) else ""
        return f"argument {index + 1} ({name})" if name else f"argument {index + 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a struct; ``length`` is that of an array, ``unknown`` the reason if no field's offset is known."""

    name: str
    type: CType
    length: int | None = None
    unknown: str = ""


class HeaderError(UsageError):
    """A requested declaration that cannot be parsed or called; the message has file, line and text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Declarations of a set of headers. System headers contribute types, never functions or constants.

    ``refused`` maps functions that cannot be called to the reason, ``problems`` are nameless declarations that could
    not be parsed. ``opaque`` are tags of structs without a definition; ``structs`` are the fields of the others, by tag
    or typedef. ``constants`` are enumerators and integer macros.
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
        """Return the prototype of a function; raise HeaderError if it is not callable, UnknownName if not declared."""
        if name in self.prototypes:
            return self.prototypes[name]
        if name in self.refused:
            raise HeaderError(str(self.refused[name]))
        raise UnknownName("function", name, _related_names(name, self.prototypes), where=", ".join(self.files))

    def enum(self, name: str) -> Mapping[str, int]:
        """Return the enumerators of an enum by its tag or typedef; raise UnknownName if no header declares it."""
        alias = self.typedefs.get(name)
        tag = alias.tag if alias is not None and alias.tag in self.enums else name
        if tag not in self.enums:
            raise UnknownName("enum", name, self.enums, where=", ".join(self.files))
        return self.enums[tag]


def _related_names(name: str, known: Mapping[str, Any]) -> list[str]:
    """Return the names that contain `name` or are contained in it, else the first 20."""
    # A header declares hundreds of functions, too many to list in a message.
    folded = name.casefold()
    return [key for key in known if folded in key.casefold() or key.casefold() in folded] or list(known)[:20]
