"""A Python call as text and as values: ``torch.sum(input0, [2, 3], keepdim=True, dtype=torch.float32)``.

The text is Python's own syntax, so that it can be read and pasted; it is parsed, never evaluated. ``1``, ``1.0``,
``"1"``, a list and a tuple stay apart, which makes the text part of a case's identity.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from optest.spec.call_names import CanonicalName, canonical

_T = TypeVar("_T")
MOST_CHARACTERS = 100_000
"""Longer texts are refused before they are parsed."""
_MOST_BITS = 512


class NotLiteral(ValueError):
    """A text that is more than a value; the message says which part of it, and what may stand there."""


@dataclass(frozen=True, slots=True)
class TensorRef:
    """The tensor input of this number."""

    index: int


@dataclass(frozen=True, slots=True)
class TorchName:
    """A constant of torch by its name, for example ``torch.float16`` or ``torch.channels_last``."""

    name: str


@dataclass(frozen=True, slots=True)
class Device:
    """A device by its name, for example ``cuda:0``."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function by its dotted name, positional and keyword arguments.

    Values are None, bool, numbers, str, Ellipsis, slice, list, tuple and the above.
    """

    function: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spelled(self) -> CanonicalName:
        """What the function's name says."""
        return canonical(self.function)

    @property
    def operator(self) -> str:
        """The operator that it is by whichever name: ``mul`` of ``torch.Tensor.__imul__``."""
        return canonical(self.function).operator

    def values(self) -> Iterator[Any]:
        """Every value, those in lists, tuples and slices too."""
        for value in (*self.args, *self.kwargs.values()):
            yield from _within(value)

    def tensors(self) -> list[int]:
        """The numbers of the tensors in the order of the call."""
        return [value.index for value in self.values() if isinstance(value, TensorRef)]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by its position or its name."""
        return self.kwargs.get(name, self.args[position] if len(self.args) > position else default)

    def mapped(self, change: Callable[[Any], Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments with ``change`` applied to all that is no list, tuple or slice."""
        return (
            [_mapped(value, change) for value in self.args],
            {name: _mapped(value, change) for name, value in self.kwargs.items()},
        )


def _within(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _within(each)
    elif isinstance(value, slice):
        yield from (value.start, value.stop, value.step)
    else:
        yield value


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_mapped(each, change) for each in value]
    if isinstance(value, tuple):
        return tuple([_mapped(each, change) for each in value])
    if isinstance(value, slice):
        return slice(*[_mapped(each, change) for each in (value.start, value.stop, value.step)])
    return change(value)


def call_text(call: Call) -> str:
    """The call as :func:`parse_call` reads it."""
    words = [*map(text_of, call.args), *(f"{name}={text_of(value)}" for name, value in call.kwargs.items())]
    return f"{call.function}({', '.join(words)})"


def text_of(value: Any) -> str:
    """One value as text.

    Raises:
        TypeError: for a value of a type that no call may hold.
        NotLiteral: for an integer of absurd size.
    """
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return repr(value)
    if kind is int:
        return repr(_fitting(value))
    if kind is float:
        return repr(value) if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if kind is complex:
        return f"complex({text_of(value.real)}, {text_of(value.imag)})"
    if value is Ellipsis:
        return "..."
    if kind is list:
        return f"[{', '.join(map(text_of, value))}]"
    if kind is tuple:
        return f"({', '.join(map(text_of, value))}{',' * (len(value) == 1)})"
    if kind is slice:
        return f"slice({text_of(value.start)}, {text_of(value.stop)}, {text_of(value.step)})"
    if kind is TensorRef:
        return f"input{value.index}"
    if kind is TorchName:
        return str(value.name)
    if kind is Device:
        return f"device({value.name!r})"
    raise TypeError(f"{value!r} is no value of a call")


def _fitting(number: int) -> int:
    """Python itself refuses to write very long integers, and torch takes 64 bits."""
    if number.bit_length() > _MOST_BITS:
        raise NotLiteral(f"an integer has {number.bit_length()} bits, but should have {_MOST_BITS} at most")
    return number


@lru_cache(maxsize=4096)
def parse_call(text: str) -> Call:
    """Read a call, once for each text: many cases make the same call of other tensors.

    Raises:
        NotLiteral: for what is no call, or whose arguments are more than values.
    """
    return _parsed(text, _call)


def parse_value(text: str) -> Any:
    """Read one value: numbers, strings, None, True, False, ``...`` or Ellipsis, inf, nan, lists, tuples, ``slice()``.

    Raises:
        NotLiteral: for anything else; nothing is computed, whatever stands there.
    """
    return _parsed(text.strip(), _value)


def _parsed(text: str, read: Callable[[ast.expr], _T]) -> _T:
    if len(text) > MOST_CHARACTERS:
        raise NotLiteral(f"{len(text)} characters are more than the {MOST_CHARACTERS} that a value may have")
    try:
        return read(ast.parse(text, mode="eval").body)
    except NotLiteral:
        raise
    except (SyntaxError, ValueError) as error:
        raise NotLiteral(f"{_cut(text)} is no Python value: {_cut(str(getattr(error, 'msg', error)))}") from None
    except (RecursionError, MemoryError):
        raise NotLiteral(f"{_cut(text)} is nested too deeply") from None


def _call(tree: ast.expr) -> Call:
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, (ast.Name, ast.Attribute)):
        raise NotLiteral(f"{_source(tree)} is no call")
    kwargs: dict[str, Any] = {}
    for keyword in tree.keywords:
        if keyword.arg is None:
            raise NotLiteral("** stands in the call, but every argument should be written out")
        if keyword.arg in kwargs:
            raise NotLiteral(f"{keyword.arg} is stated twice")
        kwargs[keyword.arg] = _value(keyword.value)
    return Call(_dotted(tree.func), tuple([_value(each) for each in tree.args]), kwargs)


_NAMES: Mapping[str, Any] = {"inf": math.inf, "nan": math.nan, "Ellipsis": Ellipsis}
_INDEX = re.compile("0|[1-9][0-9]{0,5}")
_ALLOWED = "numbers, strings, None, True, False, Ellipsis, inf, nan, slice(), lists and tuples may stand there"


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value) if not isinstance(value, bytes):
            return _fitting(value) if type(value) is int else value
        case ast.List(elts=elements):
            return [_value(each) for each in elements]
        case ast.Tuple(elts=elements):
            return tuple([_value(each) for each in elements])
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            number = _value(operand)
            if isinstance(number, bool) or not isinstance(number, (int, float, complex)):
                raise NotLiteral(f"{_source(node)} has a sign before what is no number")
            return -number if isinstance(sign, ast.USub) else number
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=ast.Constant(value=complex() as imaginary)):
            real = _value(left)
            if isinstance(real, bool) or not isinstance(real, (int, float)):
                raise NotLiteral(f"{_source(node)} is computed; {_ALLOWED}")
            return real + imaginary if isinstance(sign, ast.Add) else real - imaginary
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.Name(id=name) if name.startswith("input") and _INDEX.fullmatch(name[5:]):
            return TensorRef(int(name[5:]))
        case ast.Attribute():
            name = _dotted(node)
            first, *others = name.split(".")
            if first != "torch" or any(each.startswith("_") for each in others):
                raise NotLiteral(
                    f"{_source(node)} is an attribute; of torch's names alone dtypes and the like may stand there"
                )
            return TorchName(name)
        case ast.Call(func=ast.Name(id="slice"), args=bounds, keywords=[]) if 1 <= len(bounds) <= 3:
            return slice(*[_bound(each) for each in bounds])
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str() as word)], keywords=[]):
            try:
                return float(word)
            except ValueError:
                raise NotLiteral(f"float({word!r}) is no number") from None
        case ast.Call(func=ast.Name(id="complex"), args=[real, imaginary], keywords=[]):
            parts = _value(real), _value(imaginary)
            if any(type(part) not in (int, float) for part in parts):
                raise NotLiteral(f"{_source(node)} should have two real numbers")
            return complex(*parts)
        case ast.Call(
            func=ast.Name(id="device") | ast.Attribute(value=ast.Name(id="torch"), attr="device"),
            args=[ast.Constant(value=str() as name)],
            keywords=[],
        ):
            return Device(name)
    what = next((word for kind, word in _WORDS.items() if isinstance(node, kind)), "no value")
    raise NotLiteral(f"{_source(node)} is {what}; {_ALLOWED}")


def _bound(node: ast.expr) -> Any:
    value = _value(node)
    if value is None or isinstance(value, TensorRef) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise NotLiteral(f"{_source(node)} bounds a slice, but should be an integer or None")


def _dotted(node: ast.expr) -> str:
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise NotLiteral(f"{_source(node)} stands where a name should")
    return ".".join([node.id, *reversed(names)])


_WORDS: Mapping[type[ast.expr], str] = {
    ast.Lambda: "a function",
    ast.Call: "a call",
    ast.BinOp: "computed",
    ast.Name: "a name",
    ast.Subscript: "a subscript",
    ast.Dict: "a dict",
    ast.Set: "a set",
    ast.JoinedStr: "an f-string",
    ast.Starred: "a starred value",
    ast.NamedExpr: "an assignment",
    ast.ListComp: "a comprehension",
    ast.GeneratorExp: "a comprehension",
    ast.IfExp: "computed",
    ast.Compare: "computed",
    ast.BoolOp: "computed",
    ast.UnaryOp: "computed",
}


def _source(node: ast.expr) -> str:
    return _cut(ast.unparse(node))


def _cut(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
