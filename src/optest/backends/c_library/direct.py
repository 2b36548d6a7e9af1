"""Operators that are one C function, as data: no descriptor, layouts as increments and leading dimensions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from optest.backends.c_library.roles import Role, StartsAs
from optest.errors import nearest

__all__ = ["INCREMENTS", "LAST", "NUMBERS", "Argument", "DirectCall", "problems_of"]

NUMBERS = ("scalar", "float", "double", "int", "bool")
"""How a number goes over; a ``scalar`` has the dtype of the call: by value, or behind a pointer where C wants one."""
INCREMENTS = ("nonzero", "any", "positive")
LAST = "last"
"""In ``when``: the last dimension, -1 or the rank less 1."""
_ARRAYS = ("shape", "strides")
_OF_TENSORS = ("input", "output", "increment", "leading", "rows", "columns", "layout", "order", "ndim", *_ARRAYS)
_OF_MATRICES = ("leading", "rows", "columns", "layout", "order")
_PAIRS = ("layout", "order")
_PLAIN = ("handle", "null")
_FORMS = (
    "constant:NAME",
    "constant:NUMBER",
    "constant:NUMBER as scalar",
    "size:DIMENSION",
    "attribute:NAME as scalar",
    *(f"{kind}:TENSOR as ONE|OTHER" for kind in _PAIRS),
    *(f"{kind}:TENSOR" for kind in _OF_TENSORS if kind not in (*_PAIRS, *_ARRAYS)),
    *(f"{kind}:TENSOR as int64_t[]" for kind in _ARRAYS),
    *_PLAIN,
)
_INTEGERS = ("int", "int32_t", "int64_t", "size_t", "ptrdiff_t")
_KINDS = ("constant", "size", "attribute", *_OF_TENSORS, *_PLAIN)
_ARGUMENT = re.compile(r"(?P<kind>\w+)(?::(?P<name>[-+\w.]+)(?P<optional>\?)?(?: as (?P<type>[\w|]+(?:\[\])?))?)?")
_DIMENSION = re.compile(r"[A-Za-z_]\w*(\.\.\.)?")


class DirectCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One function for each dtype, and the cases that it answers.

    ``dims`` names the dimensions of each tensor; one name is one size in all of them, and ``n...`` stands for any
    number of dimensions that are walked as one. ``swapped`` reads a matrix transposed: always (true), or where the
    attribute of that name is true. ``call`` are the arguments in order. ``returns`` is the output that the result
    of the function is. ``when`` are values of attributes without which this is not the function; ``ignores`` are
    attributes that the shape of the output says already. ``least`` are the least sizes that the function takes.
    ``same_layout`` are tensors of which C is told one layout. ``choices`` and ``left_out`` are what they are for an
    operator that a descriptor is made for.
    """

    functions: Mapping[str, str]
    dims: Mapping[str, tuple[str, ...]]
    call: tuple[str, ...]
    returns: str = ""
    swapped: Mapping[str, str | bool] = {}
    when: Mapping[str, Any] = {}
    ignores: tuple[str, ...] = ()
    least: Mapping[str, int] = {}
    starts_as: StartsAs | None = None
    broadcasts: bool = False
    in_place: tuple[str, ...] = ()
    same_layout: tuple[str, ...] = ()
    choices: Mapping[str, Mapping[Any, bool | int | float | str]] = {}
    left_out: Mapping[str, int | float | str | Mapping[str, int | float | str]] = {}

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Those that there is a function for."""
        return tuple(self.functions)

    def arguments(self) -> tuple[Argument, ...]:
        """The arguments in order, read."""
        return _parsed(self.call)

    def roles(self) -> tuple[Role, ...]:
        """Inputs, outputs and attributes, as memory and driver ask for them."""
        returned = [Role(kind="output", name=self.returns)] if self.returns else []
        passed = [each.role() for each in self.arguments() if each.kind in ("input", "output", "attribute")]
        return (*passed, *returned)

    def named(self) -> tuple[Role, ...]:
        """Everything that the catalogue's operator has to have."""
        swapping = [name for name in self.swapped.values() if isinstance(name, str)]
        attributes = [
            Role(kind="attribute", name=name)
            for name in (*swapping, *self.when, *self.ignores, *self.choices, *self.left_out)
        ]
        start = self.starts_as
        started = [Role(kind="output", name=start.output), Role(kind="input", name=start.input)] if start else []
        return (*self.roles(), *attributes, *started)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument: its kind, of which tensor, dimension or attribute, and how (``scalar``, ``any``, ``A|B``)."""

    kind: str
    name: str = ""
    optional: bool = False
    type: str = ""

    @property
    def key(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @property
    def pair(self) -> tuple[str, str]:
        """The two constants of a ``layout`` or an ``order``."""
        one, _, other = self.type.partition("|")
        return one, other

    def role(self) -> Role:
        return Role(kind=self.kind, name=self.name, optional=self.optional, type=self.type)


@lru_cache(maxsize=256)
def _parsed(texts: tuple[str, ...]) -> tuple[Argument, ...]:
    found = [_ARGUMENT.fullmatch(text) for text in texts]
    return tuple(
        Argument(kind=each["kind"], name=each["name"] or "", optional=bool(each["optional"]), type=each["type"] or "")
        for each in found
        if each is not None
    )


def problems_of(where: str, entry: DirectCall) -> Iterable[str]:
    """What a schema cannot say: unknown roles, tensors without dimensions, dimensions that nothing has."""
    if not entry.functions:
        yield f"{where}.functions is empty, but should name a function for each dtype"
    for tensor, dims in entry.dims.items():
        yield from _wrong_dims(f"{where}.dims.{tensor}", dims)
    for tensor in entry.swapped:
        if len(entry.dims.get(tensor, ())) != 2:
            yield f"{where}.swapped has {tensor!r}, but should have tensors with two dimensions in dims"
    known = {name.removesuffix("...") for dims in entry.dims.values() for name in dims}
    for name in entry.least:
        if name not in known:
            yield f"{where}.least has {name!r}, but dims have {', '.join(sorted(known)) or 'none'}"
    for tensor in entry.same_layout:
        if tensor not in entry.dims:
            yield f"{where}.same_layout has {tensor!r}, but dims have {', '.join(entry.dims) or 'none'}"
    passed = [each.name for each in entry.arguments() if each.kind == "attribute"]
    for key in ("choices", "left_out"):
        for name in getattr(entry, key):
            if name not in passed:
                yield f"{where}.{key} names {name!r}, which call does not pass; it passes {', '.join(passed) or 'none'}"
    for index, text in enumerate(entry.call):
        why = _wrong_argument(text, entry, known)
        if why:
            yield f"{where}.call[{index}] is {text!r}, {why}"


def _wrong_dims(where: str, dims: Sequence[str]) -> Iterable[str]:
    for name in dims:
        if not _DIMENSION.fullmatch(name):
            yield f"{where} has {name!r}, but should have names such as m, or n... for any number of dimensions"
    if sum(name.endswith("...") for name in dims) > 1:
        yield f"{where} is {list(dims)}, but should have one name with dots"


def _wrong_argument(text: str, entry: DirectCall, dimensions: set[str]) -> str:
    found = _ARGUMENT.fullmatch(text)
    if found is None or found["kind"] not in _KINDS:
        near = nearest(found["kind"] if found else text, _KINDS)
        return f"which is no role here; {f'did you mean {near}? ' if near else ''}known: {', '.join(_FORMS)}"
    (argument,) = _parsed((text,))
    if (argument.kind in _PLAIN) != (not argument.name):
        return f"but should be one of {', '.join(_FORMS)}"
    if argument.kind == "size" and argument.name not in dimensions:
        return f"but dims have {', '.join(sorted(dimensions)) or 'none'}"
    if argument.kind in _OF_TENSORS:
        return _wrong_tensor(argument, entry.dims) or _wrong_type(argument)
    return _wrong_type(argument)


def _wrong_tensor(argument: Argument, dims: Mapping[str, Sequence[str]]) -> str:
    if argument.name not in dims:
        return f"but dims should say the dimensions of {argument.name}"
    rank = len(dims[argument.name])
    if argument.kind in _OF_MATRICES and rank != 2:
        return f"but {argument.name} should have two dimensions in dims"
    if argument.kind == "increment" and rank != 1:
        return f"but {argument.name} should have one dimension in dims"
    return ""


def _wrong_type(argument: Argument) -> str:
    kind, type_ = argument.kind, argument.type
    if kind in _PAIRS:
        fits, wanted = type_.count("|") == 1 and all(argument.pair), f"'{argument.key} as ONE|OTHER'"
    elif kind == "attribute":
        fits, wanted = type_ in NUMBERS, f"'{argument.key} as {'|'.join(NUMBERS)}'"
    elif kind == "constant":
        fits, wanted = type_ in ("", *NUMBERS), f"'{argument.key} as {'|'.join(NUMBERS)}', or an enumerator alone"
    elif kind == "leading":
        fits, wanted = type_ in ("", "bytes"), f"'{argument.key}' for elements, or '{argument.key} as bytes'"
    elif kind in _ARRAYS:
        fits, wanted = type_.removesuffix("[]") in _INTEGERS and type_.endswith("[]"), f"'{argument.key} as int64_t[]'"
    elif kind == "increment":
        fits, wanted = type_ in ("", *INCREMENTS), f"'{argument.key} as {'|'.join(INCREMENTS)}'"
    else:
        fits, wanted = not type_, f"'{argument.key}' alone"
    return "" if fits else f"but should be {wanted}"
