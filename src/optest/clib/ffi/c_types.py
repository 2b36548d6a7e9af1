"""From pycparser's syntax trees to types, enumerators and prototypes, with the typedefs seen so far."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pycparser import c_ast

from optest.clib.ffi.signatures import CKind, CType, Field, Parameter, Prototype
from optest.errors import UsageError


class CannotExpress(Exception):
    """A declaration that is good C, but not one that Python can call; the message says why."""


_INTEGERS = {
    "": ctypes.sizeof(ctypes.c_int),
    "char": 1,
    "short": ctypes.sizeof(ctypes.c_short),
    "long": ctypes.sizeof(ctypes.c_long),
    "long long": ctypes.sizeof(ctypes.c_longlong),
}
"""Bytes by the words that are left without ``int``, ``signed`` and ``unsigned``."""

_LONG_DOUBLE = ctypes.sizeof(ctypes.c_longdouble)
_BASIC = {
    "void": (CKind.VOID, 0),
    "_Bool": (CKind.BOOL, 1),
    "float": (CKind.FLOAT, 4),
    "double": (CKind.FLOAT, 8),
    "double long": (CKind.FLOAT, _LONG_DOUBLE),
    "_Complex float": (CKind.COMPLEX, 8),
    "_Complex double": (CKind.COMPLEX, 16),
    "_Complex double long": (CKind.COMPLEX, 2 * _LONG_DOUBLE),
}
"""Kind and bytes by the words in alphabetical order."""

KNOWN_TYPEDEFS: Mapping[str, CType] = {
    name: CType(kind=kind, spelling=name, size=size)
    for name, kind, size in (
        ("bool", CKind.BOOL, 1),
        ("_Float16", CKind.FLOAT, 2),
        ("__fp16", CKind.FLOAT, 2),
        ("__bf16", CKind.FLOAT, 2),
        ("_Float32", CKind.FLOAT, 4),
        ("_Float64", CKind.FLOAT, 8),
        ("_Float32x", CKind.FLOAT, 8),
        ("_Float64x", CKind.FLOAT, _LONG_DOUBLE),
        ("_Float128", CKind.FLOAT, 16),
        ("__float128", CKind.FLOAT, 16),
        ("__int128", CKind.INT, 16),
        ("__builtin_va_list", CKind.STRUCT, 0),
    )
}
"""Types that compilers know without a declaration."""

_POINTER_SIZE = ctypes.sizeof(ctypes.c_void_p)
_ENUM_SIZE = ctypes.sizeof(ctypes.c_int)


@dataclass(slots=True)
class Types:
    """What the declarations read so far have named; :meth:`read` adds one more."""

    typedefs: dict[str, CType] = field(default_factory=lambda: dict(KNOWN_TYPEDEFS))
    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)
    named_structs: set[str] = field(default_factory=set)
    structs: dict[str, tuple[Field, ...]] = field(default_factory=dict)
    unplaced: str = ""
    """Why nobody knows where the fields of structs lie that are read now; empty if they lie naturally."""

    def read(self, node: Any, where: str) -> Prototype | None:
        """Take in one external declaration; a prototype comes back.

        Raises:
            CannotExpress: for a prototype that Python cannot call, or an enumerator that cannot be computed.
        """
        match node:
            case c_ast.Typedef():
                self.typedefs[node.name] = replace(self.of(node.type, node.name), spelling=node.name)
            case c_ast.Decl(type=c_ast.FuncDecl() as function):
                result, parameters = self.of(function.type), self._parameters(function.args)
                prototype = Prototype(name=node.name, result=result, parameters=parameters, where=where)
                _require_passable("its result", result)
                for index, parameter in enumerate(parameters):
                    _require_passable(prototype.label(index), parameter.type)
                return prototype
            case c_ast.Decl():
                self.of(node.type)
        return None

    def _parameters(self, arguments: Any) -> tuple[Parameter, ...]:
        found = []
        for node in [] if arguments is None else arguments.params:
            if isinstance(node, c_ast.EllipsisParam):
                raise CannotExpress("it takes a variable number of arguments")
            if isinstance(node, c_ast.ID):
                raise CannotExpress(f"parameter {node.name} has no type")
            type_ = self.of(node.type)
            if type_.kind is CKind.FUNCTION:  # it is passed as a pointer to it; ``of`` reads an array as a pointer
                type_ = _pointer_to(type_)
            found.append(Parameter(name=node.name or "", type=type_))
        if len(found) == 1 and found[0].type.kind is CKind.VOID:
            return ()
        return tuple(found)

    def of(self, node: Any, name: str = "") -> CType:
        """The type of a syntax tree; ``name`` is that of the typedef in which it stands, for what has no tag."""
        match node:
            case c_ast.TypeDecl():
                found = self.of(node.type, name)
                return replace(found, is_const=True) if "const" in node.quals else found
            case c_ast.PtrDecl():
                pointer = _pointer_to(self.of(node.type, name))
                return replace(pointer, is_const=True) if "const" in node.quals else pointer
            case c_ast.ArrayDecl():
                return _pointer_to(self.of(node.type, name))
            case c_ast.FuncDecl():
                result = self.of(node.type)
                parameters = tuple(parameter.type for parameter in self._parameters(node.args))
                spelling = f"{result} (*)({', '.join(map(str, parameters)) or 'void'})"
                return CType(kind=CKind.FUNCTION, spelling=spelling, pointee=result, parameters=parameters)
            case c_ast.Typename():
                return self.of(node.type, name)
            case c_ast.IdentifierType():
                return self._named(node.names)
            case c_ast.Enum():
                return self._enum(node, name)
            case c_ast.Struct() | c_ast.Union():
                return self._struct(node, name)
        raise CannotExpress(f"{type(node).__name__} is not understood here")

    def _named(self, names: list[str]) -> CType:
        if len(names) == 1 and names[0] in self.typedefs:
            return self.typedefs[names[0]]
        spelling = " ".join(names)
        rest = " ".join(sorted(word for word in names if word not in ("int", "signed", "unsigned")))
        if rest in _INTEGERS:
            kind = CKind.UINT if "unsigned" in names else CKind.INT
            return CType(kind=kind, spelling=spelling, size=_INTEGERS[rest])
        if rest not in _BASIC:
            raise CannotExpress(f"type {spelling!r} is not known")
        kind, size = _BASIC[rest]
        return CType(kind=kind, spelling=spelling, size=size)

    def _enum(self, node: Any, name: str) -> CType:
        tag = node.name or name
        if node.values is not None:
            members: dict[str, int] = {}
            following = 0
            for each in node.values.enumerators:
                value = following if each.value is None else self.value(each.value)
                members[each.name] = self.constants[each.name] = value
                following = value + 1
            if tag:
                self.enums[tag] = members
        spelling = f"enum {node.name}" if node.name else name or "enum"
        return CType(kind=CKind.ENUM, spelling=spelling, size=_ENUM_SIZE, tag=tag)

    def _struct(self, node: Any, name: str) -> CType:
        tag = node.name or name
        self.named_structs.add(tag)
        if node.decls is not None:
            self.structs[tag] = tuple(
                self._field(each, tag, is_union=isinstance(node, c_ast.Union)) for each in node.decls
            )
        word = "union" if isinstance(node, c_ast.Union) else "struct"
        return CType(kind=CKind.STRUCT, spelling=f"{word} {node.name}" if node.name else name or word, tag=tag)

    def _field(self, node: Any, tag: str, *, is_union: bool) -> Field:
        """What cannot be read is a field of unknown place: the struct may still be passed by its address."""
        name = getattr(node, "name", None) or ""
        inner, length = getattr(node, "type", None), None
        try:
            if self.unplaced:
                raise CannotExpress(self.unplaced)
            if is_union:
                raise CannotExpress(f"{tag} is a union")
            if not isinstance(node, c_ast.Decl) or not name:
                raise CannotExpress("it has a part without a name")
            if node.bitsize is not None:
                raise CannotExpress(f"{name} has a number of bits")
            if isinstance(inner, c_ast.ArrayDecl):
                if inner.dim is None or isinstance(inner.type, c_ast.ArrayDecl):
                    raise CannotExpress(f"{name} is an array of unknown size or of arrays")
                length, inner = self.value(inner.dim), inner.type
            return Field(name=name, type=self.of(inner, f"{tag}.{name}"), length=length)
        except CannotExpress as error:
            return Field(name=name, type=CType(kind=CKind.VOID, spelling="void"), unknown=str(error))

    def value(self, node: Any) -> int:
        """The value of an integer constant expression.

        Raises:
            CannotExpress: for anything but literals, enumerators, casts and the operators of integers.
        """
        match node:
            case c_ast.Constant() if node.type == "char":
                text = node.value
                inner = text[text.index("'") + 1 : -1].encode().decode("unicode_escape")
                if len(inner) != 1:
                    raise CannotExpress(f"{text} is not one character")
                return ord(inner)
            case c_ast.Constant():
                digits = node.value.rstrip("uUlL")
                is_octal = digits.isdigit() and digits.startswith("0")
                try:
                    return int(digits, 8 if is_octal else 0)
                except ValueError:
                    raise CannotExpress(f"{node.value} is not an integer") from None
            case c_ast.ID() if node.name in self.constants:
                return self.constants[node.name]
            case c_ast.UnaryOp() if node.op in _UNARY:
                return int(_UNARY[node.op](self.value(node.expr)))
            case c_ast.BinaryOp() if node.op in _BINARY:
                return int(_BINARY[node.op](self.value(node.left), self.value(node.right)))
            case c_ast.TernaryOp():
                return self.value(node.iftrue if self.value(node.cond) else node.iffalse)
            case c_ast.Cast():
                return self.value(node.expr)
        raise CannotExpress(f"the value of an enumerator ({type(node).__name__}) cannot be computed")


def _require_passable(what: str, type_: CType) -> None:
    try:
        type_.ctype()
    except UsageError as error:
        raise CannotExpress(f"{what}: {error}") from error


def _pointer_to(pointee: CType) -> CType:
    star = pointee.spelling if pointee.kind is CKind.FUNCTION else f"{pointee} *".replace("* *", "**")
    return CType(kind=CKind.POINTER, spelling=star, size=_POINTER_SIZE, pointee=pointee)


def _divided(left: int, right: int) -> int:
    """C truncates towards zero."""
    if right == 0:
        raise CannotExpress("an enumerator divides by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _shifted(shift: Callable[[int, int], int], left: int, right: int) -> int:
    if not 0 <= right < 64:
        raise CannotExpress(f"an enumerator shifts by {right}")
    return shift(left, right)


_UNARY: dict[str, Callable[[int], int]] = {
    "-": operator.neg,
    "+": operator.pos,
    "~": operator.invert,
    "!": operator.not_,
}
_BINARY: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divided,
    "%": lambda left, right: left - right * _divided(left, right),
    "<<": partial(_shifted, operator.lshift),
    ">>": partial(_shifted, operator.rshift),
    "|": operator.or_,
    "&": operator.and_,
    "^": operator.xor,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "&&": lambda left, right: bool(left and right),
    "||": lambda left, right: bool(left or right),
}
