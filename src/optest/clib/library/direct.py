"""Operators that are one C function, as data: no descriptor, layouts as increments and leading dimensions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from optest.clib.library.c_objects import (
    NO_OBJECT,
    Call,
    CObject,
    ObjectEntry,
    Step,
    is_of_a_tensor,
    object_of,
    object_of_tensor,
    problems_of_object,
)
from optest.clib.library.direct_arguments import Argument, Known, parsed, wrong_argument, wrong_in_template
from optest.clib.library.roles import Role, StartsAs
from optest.errors import nearest
from optest.spec import dtype_names

__all__ = ["LAST", "SAME", "DirectCall", "problems_of"]

SAME = "same"
"""In ``dtypes_of``: the dtype by which the function is chosen."""
LAST = "last"
"""In ``when``: the last dimension, -1 or the rank less 1."""
_DIMENSION = re.compile(r"([A-Za-z_]\w*|[0-9]{1,9})(\.\.\.)?")


class DirectCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One function for each dtype, and the cases that it answers.

    ``dims`` names the dimensions of each tensor; one name is one size in all of them, a number is that size, and
    ``n...`` stands for any number of dimensions that are walked as one. ``swapped`` reads a matrix transposed: always
    (true), or where the attribute of that name is true. ``call`` are the arguments in order. ``returns`` is the output
    that the result of the function is. ``when`` are values of attributes without which this is not the function;
    ``ignores`` are attributes that the shape of the output says already. ``least`` are the least sizes that the
    function takes. ``same_layout`` are tensors of which C is told one layout.

    ``objects`` are made before the call, in their order, and ended after it; ``tensor`` is what is made of each tensor
    that ``call`` names as ``descriptor:a`` or ``input:a as tensor`` (of the file where the operator says nothing).
    ``workspace`` asks for the bytes of the workspace: into a ``slot``, or as its result. ``dtypes_of`` are tensors of
    other dtypes than the one by which the function is chosen. The other keys are what they are for an operator that a
    descriptor is made for.
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
    objects: Mapping[str, ObjectEntry] = {}
    tensor: ObjectEntry = NO_OBJECT
    workspace: Call | None = None
    dtypes_of: Mapping[str, tuple[str, ...]] = {}
    implied: Mapping[str, Any] = {}
    refuses: tuple[str, ...] | None = None
    indexes: Mapping[str, str] = {}

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Those that there is a function for."""
        return tuple(self.functions)

    @property
    def arange(self) -> Mapping[str, Any]:
        """No inputs are made for plain functions."""
        return {}

    def arguments(self) -> tuple[Argument, ...]:
        """The arguments in order, read."""
        return parsed(self.call)

    def c_objects(self) -> tuple[CObject, ...]:
        """What is made before the call: of tensors, then the operator's objects."""
        return _read(self).c_objects

    def asked_for_workspace(self) -> Step | None:
        """The call that says how many bytes the workspace has."""
        if self.workspace is None:
            return None
        return Step(key="workspace", call=self.workspace, arguments=parsed(self.workspace.arguments))

    def told(self) -> tuple[Argument, ...]:
        """Everything that C is told, in whichever call."""
        return _read(self).told

    def is_told(self, kind: str, tensor: str) -> bool:
        """Whether C learns this (``strides``, ``dtype``) of a tensor."""
        return (kind, tensor) in _read(self).kinds

    def roles(self) -> tuple[Role, ...]:
        """Inputs, outputs, attributes and the workspace, as memory and driver ask for them."""
        returned = [Role(kind="output", name=self.returns)] if self.returns else []
        kinds = ("input", "output", "attribute", "workspace")
        passed = dict.fromkeys(
            Role(kind=each.kind, name=each.name, optional=each.optional, type="" if each.as_tensor else each.type)
            for each in self.told()
            if each.kind in kinds
        )
        return (*passed, *returned)

    def named(self) -> tuple[Role, ...]:
        """Everything that the catalogue's operator has to have."""
        swapping = [name for name in self.swapped.values() if isinstance(name, str)]
        attributes = [
            Role(kind="attribute", name=name)
            for name in (*swapping, *self.when, *self.ignores, *self.choices, *self.left_out, *self.implied)
        ]
        start = self.starts_as
        started = [Role(kind="output", name=start.output), Role(kind="input", name=start.input)] if start else []
        return (*self.roles(), *attributes, *started)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What the texts of an entry say."""

    entry: DirectCall
    c_objects: tuple[CObject, ...]
    told: tuple[Argument, ...]
    kinds: frozenset[tuple[str, str]]


_entries: dict[int, _Read] = {}
"""Those that were read, which are few and stay."""


def _read(entry: DirectCall) -> _Read:
    known = _entries.get(id(entry))
    if known is None:
        c_objects, sized = _c_objects_of(entry), entry.asked_for_workspace()
        told = (
            *entry.arguments(),
            *(each for c_object in c_objects for each in c_object.arguments()),
            *(() if sized is None else sized.arguments),
        )
        kinds = frozenset((each.kind, each.name) for each in told)
        known = _entries[id(entry)] = _Read(entry=entry, c_objects=c_objects, told=told, kinds=kinds)
    return known


def _c_objects_of(entry: DirectCall) -> tuple[CObject, ...]:
    calls = (entry.call, *(call.arguments for made in entry.objects.values() for call in _calls_of(made)))
    fields = tuple(text for made in entry.objects.values() for text in made.fields.values())
    asked = entry.workspace.arguments if entry.workspace else ()
    named = [each for texts in (*calls, fields, asked) for each in parsed(texts)]
    tensors: dict[str, Argument] = {}
    for each in named:
        if each.as_tensor or (each.kind == "descriptor" and each.name not in tensors):
            tensors[each.name] = each
    of_tensors = [object_of_tensor(each, entry.tensor) for each in tensors.values()]
    return (*of_tensors, *(object_of(name, made) for name, made in entry.objects.items()))


def _calls_of(made: ObjectEntry) -> tuple[Call, ...]:
    return (made.create, *made.set, *((made.destroy,) if isinstance(made.destroy, Call) else ()))


def problems_of(where: str, entry: DirectCall) -> Iterable[str]:
    """What a schema cannot say: unknown roles, tensors without dimensions, dimensions that nothing has."""
    if not entry.functions:
        yield f"{where}.functions is empty, but should name a function for each dtype"
    for tensor, dims in entry.dims.items():
        yield from _wrong_dims(f"{where}.dims.{tensor}", dims)
    for tensor in entry.swapped:
        if len(entry.dims.get(tensor, ())) != 2:
            yield f"{where}.swapped has {tensor!r}, but should have tensors with two dimensions in dims"
    named = {name.removesuffix("...") for dims in entry.dims.values() for name in dims}
    known = {name for name in named if not name.isdecimal()}
    for name in entry.least:
        if name not in known:
            yield f"{where}.least has {name!r}, but dims have {', '.join(sorted(known)) or 'none'}"
    for tensor in entry.same_layout:
        if tensor not in entry.dims:
            yield f"{where}.same_layout has {tensor!r}, but dims have {', '.join(entry.dims) or 'none'}"
    made = list(_wrong_things(where, entry, known))
    yield from made
    if made:
        return
    passed = list(dict.fromkeys(each.name for each in entry.told() if each.kind == "attribute"))
    for key in ("choices", "left_out"):
        for name in getattr(entry, key):
            if name not in passed:
                yield f"{where}.{key} names {name!r}, which call does not pass; it passes {', '.join(passed) or 'none'}"
    arrays = [each.name for each in entry.told() if each.kind == "attribute" and each.array is not None]
    for each in entry.told():
        if each.kind == "count" and each.name not in arrays:
            known_arrays = ", ".join(arrays) or "none"
            yield f"{where} counts {each.name!r}, which nothing passes as an array; arrays: {known_arrays}"


def _wrong_things(where: str, entry: DirectCall, dimensions: set[str]) -> Iterable[str]:
    """What is wrong with the arguments, and with what is made for them."""
    dtypes = tuple(entry.functions)
    known = Known(dims=entry.dims, dimensions=dimensions, has_workspace=entry.workspace is not None)
    above: list[str] = []
    for name, made in entry.objects.items():
        inside = replace(known, objects=tuple(above), own=name)
        yield from problems_of_object(f"{where}.objects.{name}", made, inside, dtypes)
        above.append(name)
    known = replace(known, objects=tuple(above))
    if entry.workspace is not None:
        yield from _wrong_workspace(f"{where}.workspace", entry.workspace, replace(known, making=True))
    for index, text in enumerate(entry.call):
        why = wrong_argument(text, known)
        if why:
            yield f"{where}.call[{index}] is {text!r}, {why}"
    for each in parsed(entry.call):
        if (each.kind == "descriptor" or each.as_tensor) and entry.tensor == NO_OBJECT:
            yield f"{where}.call has {each.text}, so the file (or the operator) should say how it is made, under tensor"
            break
    yield from _wrong_use_of_tensor(where, entry)
    for c_object in entry.c_objects():
        why = wrong_in_template(c_object.arguments(), entry.dims) if is_of_a_tensor(c_object.name) else ""
        if why:
            yield f"{where}.call has {c_object.name.removeprefix('tensor ')} as tensor, {why}"
    for tensor, names in entry.dtypes_of.items():
        if tensor not in entry.dims:
            yield f"{where}.dtypes_of has {tensor!r}, but dims have {', '.join(entry.dims) or 'none'}"
        for name in names:
            if name not in (SAME, *dtype_names()):
                near = nearest(name, dtype_names())
                yield f"{where}.dtypes_of.{tensor} has {name!r}, which is no dtype" + (
                    f"; did you mean {near}?" if near else ""
                )


def _wrong_use_of_tensor(where: str, entry: DirectCall) -> Iterable[str]:
    """Where the elements of a tensor are passed nowhere, or where nobody says whether they are read or written."""
    made = entry.tensor
    texts = [*made.fields.values(), *(text for call in _calls_of(made) for text in call.arguments)]
    has_data = any(each.kind == "data" for each in parsed(tuple(texts)))
    for each in dict.fromkeys(entry.told()) if made != NO_OBJECT else ():
        if each.as_tensor and not has_data:
            hint = f"write descriptor:{each.name}, {each.key}, or give it data"
            yield f"{where}.call has {each.text!r}, but tensor has no data; {hint}"
        if each.kind == "descriptor" and has_data:
            yield f"{where}.call has {each.text!r}, but tensor has data; write 'input:{each.name} as tensor', or output"


def _wrong_workspace(where: str, asked: Call, known: Known) -> Iterable[str]:
    if not asked.function:
        yield f"{where}.function is missing; it should be the function that says how many bytes the workspace has"
    for index, text in enumerate(asked.arguments):
        why = wrong_argument(text, known)
        if why:
            yield f"{where}.arguments[{index}] is {text!r}, {why}"


def _wrong_dims(where: str, dims: Sequence[str]) -> Iterable[str]:
    for name in dims:
        if not _DIMENSION.fullmatch(name):
            known = "names such as m, n... for any number of dimensions, or sizes such as 3"
            yield f"{where} has {name!r}, but should have {known}"
    if sum(name.endswith("...") for name in dims) > 1:
        yield f"{where} is {list(dims)}, but should have one name with dots"
