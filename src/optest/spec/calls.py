"""A Python call as text and as values: ``torch.sum(input0, [2, 3], keepdim=True, dtype=torch.float32)``.

The text is valid Python, so that it can be pasted into a script; it is parsed, never evaluated. It keeps ``1``,
``1.0``, ``"1"``, a list and a tuple apart, so that it can be part of a case's identity.
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
from optest.spec.signature import is_integer

_T = TypeVar("_T")
# Longer texts are rejected before they are parsed.
MOST_CHARACTERS = 100_000
_MOST_BITS = 512


class NotLiteral(ValueError):
    """A text that is not a literal value or call; the message names the offending part and the allowed values."""


@dataclass(frozen=True, slots=True)
class TensorRef:
    """Reference to a tensor input by its index: ``input0``."""

    index: int


@dataclass(frozen=True, slots=True)
class TorchName:
    """Name of a torch constant, for example ``torch.float16`` or ``torch.channels_last``."""

    name: str


@dataclass(frozen=True, slots=True)
class Device:
    """Name of a torch device, for example ``cuda:0``."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function by its dotted name, with positional and keyword arguments.

    Values are None, bool, numbers, str, Ellipsis, slice, list, tuple, TensorRef, TorchName and Device.
    """

    function: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spelled(self) -> CanonicalName:
        """Canonical name of the function, with its in-place and reflected marks."""
        return canonical(self.function)

    @property
    def operator(self) -> str:
        """Canonical operator of the function: ``mul`` for ``torch.Tensor.__imul__``."""
        return canonical(self.function).operator

    def values(self) -> Iterator[Any]:
        """Yield every argument value; of lists, tuples and slices the elements instead."""
        for value in (*self.args, *self.kwargs.values()):
            yield from _leaves(value)

    def tensors(self) -> list[int]:
        """Return the indices of the tensor inputs in the order of the call."""
        return [value.index for value in self.values() if isinstance(value, TensorRef)]

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """Return the argument called ``name``, else the one at ``position``, else ``default``."""
        return self.kwargs.get(name, self.args[position] if len(self.args) > position else default)

    def mapped(self, change: Callable[[Any], Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments with ``change`` applied to every value; of lists, tuples and slices to the elements."""
        return (
            [_map_value(value, change) for value in self.args],
            {name: _map_value(value, change) for name, value in self.kwargs.items()},
        )


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for element in value:
            yield from _leaves(element)
    elif isinstance(value, slice):
        yield from (value.start, value.stop, value.step)
    else:
        yield value


def _map_value(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_map_value(element, change) for element in value]
    if isinstance(value, tuple):
        return tuple([_map_value(element, change) for element in value])
    if isinstance(value, slice):
        return slice(*[_map_value(bound, change) for bound in (value.start, value.stop, value.step)])
    return change(value)


def call_text(call: Call) -> str:
    """Return the call as text that :func:`parse_call` reads."""
    words = [*map(text_of, call.args), *(f"{name}={text_of(value)}" for name, value in call.kwargs.items())]
    return f"{call.function}({', '.join(words)})"


def text_of(value: Any) -> str:
    """Return one value of a call as Python text; inf and nan are written as these words.

    Raises:
        TypeError: for a value of a type that no call may hold.
        NotLiteral: for an integer of more than 512 bits.
    """
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return repr(value)
    if kind is int:
        return repr(_require_short(value))
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
    raise TypeError(f"{value!r} is a {kind.__name__}, which cannot be an argument of a call")


def _require_short(number: int) -> int:
    """Return ``number``; raise NotLiteral if it has more than 512 bits."""
    # Python itself refuses to write very long integers, and torch takes 64 bits.
    if number.bit_length() > _MOST_BITS:
        raise NotLiteral(f"an integer has {number.bit_length()} bits, expected at most {_MOST_BITS}")
    return number


@lru_cache(maxsize=4096)
def parse_call(text: str) -> Call:
    """Parse the text of a call.

    Raises:
        NotLiteral: if the text is no call, or its arguments are not literal values.
    """
    # Cached: many cases make the same call with other tensors.
    return _parse_expression(text, _call_of_tree)


def parse_value(text: str) -> Any:
    """Parse one value: a number, string, None, True, False, ``...`` or Ellipsis, inf, nan, list, tuple or ``slice()``.

    Raises:
        NotLiteral: for any other text; it is never evaluated.
    """
    return _parse_expression(text.strip(), _literal)


def _parse_expression(text: str, read: Callable[[ast.expr], _T]) -> _T:
    """Parse ``text``, pass its syntax tree to ``read`` and return the result.

    Raises:
        NotLiteral: for text that is too long, no Python expression, nested too deeply, or rejected by ``read``.
    """
    if len(text) > MOST_CHARACTERS:
        raise NotLiteral(f"the text has {len(text)} characters, expected at most {MOST_CHARACTERS}")
    try:
        return read(ast.parse(text, mode="eval").body)
    except NotLiteral:
        raise
    except (SyntaxError, ValueError) as error:
        raise NotLiteral(
            f"{_excerpt(text)} is no Python value: {_excerpt(str(getattr(error, 'msg', error)))}"
        ) from None
    except (RecursionError, MemoryError):
        raise NotLiteral(f"{_excerpt(text)} is nested too deeply") from None


def _call_of_tree(tree: ast.expr) -> Call:
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, (ast.Name, ast.Attribute)):
        raise NotLiteral(f"{_code_of(tree)} is no call")
    kwargs: dict[str, Any] = {}
    for keyword in tree.keywords:
        if keyword.arg is None:
            raise NotLiteral("the call has **, expected every argument written out")
        if keyword.arg in kwargs:
            raise NotLiteral(f"{keyword.arg} is set twice")
        kwargs[keyword.arg] = _literal(keyword.value)
    return Call(_dotted(tree.func), tuple([_literal(argument) for argument in tree.args]), kwargs)


_NAMES: Mapping[str, Any] = {"inf": math.inf, "nan": math.nan, "Ellipsis": Ellipsis}
_INDEX = re.compile("0|[1-9][0-9]{0,5}")
_ALLOWED = "allowed are numbers, strings, None, True, False, Ellipsis, inf, nan, slice(), lists and tuples"


def _literal(node: ast.expr) -> Any:
    """Return the value of a literal expression; raise NotLiteral for any other expression."""
    match node:
        case ast.Constant(value=value) if not isinstance(value, bytes):
            return _require_short(value) if type(value) is int else value
        case ast.List(elts=elements):
            return [_literal(element) for element in elements]
        case ast.Tuple(elts=elements):
            return tuple([_literal(element) for element in elements])
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            number = _literal(operand)
            if isinstance(number, bool) or not isinstance(number, (int, float, complex)):
                raise NotLiteral(f"{_code_of(node)} has a sign before a value that is no number")
            return -number if isinstance(sign, ast.USub) else number
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=ast.Constant(value=complex() as imaginary)):
            real = _literal(left)
            if isinstance(real, bool) or not isinstance(real, (int, float)):
                raise NotLiteral(f"{_code_of(node)} is computed; {_ALLOWED}")
            return real + imaginary if isinstance(sign, ast.Add) else real - imaginary
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.Name(id=name) if name.startswith("input") and _INDEX.fullmatch(name[5:]):
            return TensorRef(int(name[5:]))
        case ast.Attribute():
            name = _dotted(node)
            library, *attributes = name.split(".")
            if library != "torch" or any(attribute.startswith("_") for attribute in attributes):
                raise NotLiteral(
                    f"{_code_of(node)} is an attribute; the only names allowed as values are constants of torch, such "
                    "as torch.float32"
                )
            return TorchName(name)
        case ast.Call(func=ast.Name(id="slice"), args=bounds, keywords=[]) if 1 <= len(bounds) <= 3:
            values = [_literal(bound) for bound in bounds]
            for bound, value in zip(bounds, values, strict=True):
                if not (value is None or isinstance(value, TensorRef) or is_integer(value)):
                    raise NotLiteral(f"a bound of the slice is {_code_of(bound)}, expected an integer or None")
            return slice(*values)
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str() as word)], keywords=[]):
            try:
                return float(word)
            except ValueError:
                raise NotLiteral(f"float({word!r}) is no number") from None
        case ast.Call(func=ast.Name(id="complex"), args=[real, imaginary], keywords=[]):
            parts = _literal(real), _literal(imaginary)
            if any(type(part) not in (int, float) for part in parts):
                raise NotLiteral(f"{_code_of(node)} has other arguments, expected two real numbers")
            return complex(*parts)
        case ast.Call(
            func=ast.Name(id="device") | ast.Attribute(value=ast.Name(id="torch"), attr="device"),
            args=[ast.Constant(value=str() as name)],
            keywords=[],
        ):
            return Device(name)
    kind = next((word for node_type, word in _NODE_WORDS.items() if isinstance(node, node_type)), "no value")
    raise NotLiteral(f"{_code_of(node)} is {kind}; {_ALLOWED}")


def _dotted(node: ast.expr) -> str:
    """Return the dotted name of an expression; raise NotLiteral if it is none."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise NotLiteral(f"{_code_of(node)} is no name, expected a dotted name")
    return ".".join([node.id, *reversed(names)])


_NODE_WORDS: Mapping[type[ast.expr], str] = {
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


def _code_of(node: ast.expr) -> str:
    return _excerpt(ast.unparse(node))


def _excerpt(text: str) -> str:
    # Longer excerpts would hide the rest of the message.
    return text if len(text) <= 60 else f"{text[:57]}..."
