"""Build C types, enumerators and prototypes from pycparser's syntax trees, with the typedefs read so far."""

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
    """A valid C declaration that Python cannot call; the message is the reason."""


# Sizes in bytes, keyed by what is left of the type's words without int, signed and unsigned.
_INTEGERS = {
    "": ctypes.sizeof(ctypes.c_int),
    "char": 1,
    "short": ctypes.sizeof(ctypes.c_short),
    "long": ctypes.sizeof(ctypes.c_long),
    "long long": ctypes.sizeof(ctypes.c_longlong),
}

_LONG_DOUBLE = ctypes.sizeof(ctypes.c_longdouble)
# Kind and size in bytes, keyed by the type's words in alphabetical order.
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

# Types that compilers know without a declaration.
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
        ("__builtin_va_list", CKind.STRUCT, 0),  # size 0: it cannot be passed
    )
}

_POINTER_SIZE = ctypes.sizeof(ctypes.c_void_p)
_ENUM_SIZE = ctypes.sizeof(ctypes.c_int)  # as C compilers choose without options


@dataclass(slots=True)
class Types:
    """Typedefs, enums, constants and structs of the declarations read so far; :meth:`read` adds one declaration."""

    typedefs: dict[str, CType] = field(default_factory=lambda: dict(KNOWN_TYPEDEFS))
    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)
    named_structs: set[str] = field(default_factory=set)
    structs: dict[str, tuple[Field, ...]] = field(default_factory=dict)
    # Reason why the field offsets of the structs read now are unknown; empty for natural alignment.
    layout_problem: str = ""

    def read(self, node: Any, where: str) -> Prototype | None:
        """Add the names of one declaration; return its prototype if it is a function's, else None."""
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
        """Return the parameters of a function; raise CannotExpress for variable arguments or one without a type."""
        parameters = []
        for node in [] if arguments is None else arguments.params:
            if isinstance(node, c_ast.EllipsisParam):
                raise CannotExpress("it takes a variable number of arguments")
            if isinstance(node, c_ast.ID):
                raise CannotExpress(f"parameter {node.name} has no type")
            type_ = self.of(node.type)
            # C passes a function as a pointer to it; ``of`` already turns arrays into pointers.
            if type_.kind is CKind.FUNCTION:
                type_ = _pointer_to(type_)
            parameters.append(Parameter(name=node.name or "", type=type_))
        if len(parameters) == 1 and parameters[0].type.kind is CKind.VOID:  # f(void)
            return ()
        return tuple(parameters)

    def of(self, node: Any, name: str = "") -> CType:
        """Return the type of a syntax tree; `name`, its typedef's, names an enum or struct without a tag."""
        match node:
            case c_ast.TypeDecl():
                type_ = self.of(node.type, name)
                return replace(type_, is_const=True) if "const" in node.quals else type_
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
                return self._basic_type(node.names)
            case c_ast.Enum():
                return self._enum(node, name)
            case c_ast.Struct() | c_ast.Union():
                return self._struct(node, name)
        raise CannotExpress(f"C construct {type(node).__name__} is not supported in a type")

    def _basic_type(self, names: list[str]) -> CType:
        """Return a typedef or a basic type by its words; raise CannotExpress for an unknown type."""
        if len(names) == 1 and names[0] in self.typedefs:
            return self.typedefs[names[0]]
        spelling = " ".join(names)
        key = " ".join(sorted(word for word in names if word not in ("int", "signed", "unsigned")))
        if key in _INTEGERS:
            kind = CKind.UINT if "unsigned" in names else CKind.INT
            return CType(kind=kind, spelling=spelling, size=_INTEGERS[key])
        if key not in _BASIC:
            raise CannotExpress(f"type {spelling!r} is not known")
        kind, size = _BASIC[key]
        return CType(kind=kind, spelling=spelling, size=size)

    def _enum(self, node: Any, name: str) -> CType:
        """Return an enum's type; store its enumerators by tag and as constants."""
        tag = node.name or name
        if node.values is not None:
            members: dict[str, int] = {}
            next_value = 0
            for member in node.values.enumerators:
                value = next_value if member.value is None else self.value(member.value)
                members[member.name] = self.constants[member.name] = value
                next_value = value + 1
            if tag:
                self.enums[tag] = members
        spelling = f"enum {node.name}" if node.name else name or "enum"
        return CType(kind=CKind.ENUM, spelling=spelling, size=_ENUM_SIZE, tag=tag)

    def _struct(self, node: Any, name: str) -> CType:
        """Return a struct's or union's type; store its fields by tag."""
        tag = node.name or name
        self.named_structs.add(tag)
        is_union = isinstance(node, c_ast.Union)
        if node.decls is not None:
            self.structs[tag] = tuple(self._field(member, tag, is_union=is_union) for member in node.decls)
        word = "union" if is_union else "struct"
        return CType(kind=CKind.STRUCT, spelling=f"{word} {node.name}" if node.name else name or word, tag=tag)

    def _field(self, node: Any, tag: str, *, is_union: bool) -> Field:
        """Return a field of a struct; if its type or offset is not computable, one with the reason in `unknown`."""
        # Not an error: a struct with such a field may still be passed by its address.
        name = getattr(node, "name", None) or ""
        inner, length = getattr(node, "type", None), None
        try:
            if self.layout_problem:
                raise CannotExpress(self.layout_problem)
            if is_union:
                raise CannotExpress(f"{tag} is a union")  # its fields overlap
            if not isinstance(node, c_ast.Decl) or not name:
                raise CannotExpress("it has an unnamed member")
            if node.bitsize is not None:
                raise CannotExpress(f"{name} is a bit-field")
            if isinstance(inner, c_ast.ArrayDecl):
                if inner.dim is None or isinstance(inner.type, c_ast.ArrayDecl):
                    raise CannotExpress(f"{name} is an array of unknown size or of arrays")
                length, inner = self.value(inner.dim), inner.type
            return Field(name=name, type=self.of(inner, f"{tag}.{name}"), length=length)
        except CannotExpress as error:
            return Field(name=name, type=CType(kind=CKind.VOID, spelling="void"), unknown=str(error))

    def value(self, node: Any) -> int:
        """Return the value of an integer constant expression; raise CannotExpress for any other expression."""
        match node:
            case c_ast.Constant() if node.type == "char":
                text = node.value
                inner = text[text.index("'") + 1 : -1].encode().decode("unicode_escape")
                if len(inner) != 1:
                    raise CannotExpress(f"{text} is not one character")
                return ord(inner)
            case c_ast.Constant():
                digits = node.value.rstrip("uUlL")
                is_octal = digits.isdigit() and digits.startswith("0")  # int(…, 0) refuses 017
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
        raise CannotExpress(f"the value of an enumerator cannot be computed: unsupported {type(node).__name__}")


def _require_passable(label: str, type_: CType) -> None:
    try:
        type_.ctype()
    except UsageError as error:
        raise CannotExpress(f"{label}: {error}") from error


def _pointer_to(pointee: CType) -> CType:
    star = pointee.spelling if pointee.kind is CKind.FUNCTION else f"{pointee} *".replace("* *", "**")
    return CType(kind=CKind.POINTER, spelling=star, size=_POINTER_SIZE, pointee=pointee)


def _divide_as_c(left: int, right: int) -> int:
    """Return the quotient, truncated towards zero as in C; raise CannotExpress if `right` is 0."""
    if right == 0:
        raise CannotExpress("an enumerator divides by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


# Python would compute any shift; C leaves it undefined beyond the width.
def _shift_as_c(shift: Callable[[int, int], int], left: int, right: int) -> int:
    if not 0 <= right < 64:
        raise CannotExpress(f"an enumerator shifts by {right}")
    return shift(left, right)


_UNARY: dict[str, Callable[[int], int]]
_UNARY = {"-": operator.neg, "+": operator.pos, "~": operator.invert, "!": operator.not_}
_BINARY: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _divide_as_c,
    "%": lambda left, right: left - right * _divide_as_c(left, right),  # the sign is the dividend's
    "<<": partial(_shift_as_c, operator.lshift),
    ">>": partial(_shift_as_c, operator.rshift),
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
