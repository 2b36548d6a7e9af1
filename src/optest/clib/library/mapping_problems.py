"""What is wrong with a mapping that a schema cannot say: unknown arguments and words, keys that nobody reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from optest.backends import wrong_numerics
from optest.clib.library.arguments import IN_MAKING, PLAIN, Words, parsed, wrong_argument, wrong_in_template
from optest.clib.library.c_objects import (
    NO_OBJECT,
    Call,
    calls_of,
    is_of_a_tensor,
    problems_of_object,
    problems_of_tensor,
)
from optest.clib.library.mapping import NO_PROTOCOL, REFUSALS, SIZE, LibraryMapping, Protocol
from optest.clib.library.operator_mapping import SAME, OperatorMapping
from optest.clib.library.shorthand import written
from optest.errors import nearest
from optest.spec import dtype_names

__all__ = ["WHOLE_CALLS", "problems_of_mapping"]

_OF_MESSAGE = ("status", "handle", "null")
WHOLE_CALLS = {
    "set_device": Words(named=("constant",), plain=("device", "device_id", "null")),
    "get_device": Words(named=(), plain=("device_slot", "device_id_slot")),
    "synchronize": Words(named=(), plain=("stream", "null")),
    "handle.create": Words(named=("constant",), plain=("slot", "null")),
    "setup": Words(named=("constant",), plain=("null",)),
}
"""What may be passed to the functions that belong to no operator."""
_DIMENSION = re.compile(r"([A-Za-z_]\w*|[0-9]{1,9})(\.\.\.)?")
_MOST_ALIGNED = 4096
"""Bytes of a page."""


def problems_of_mapping(mapping: LibraryMapping) -> Iterable[str]:
    """What a schema cannot say: unknown arguments, patterns without a name."""
    yield from _problems_of_numerics(mapping)
    yield from _problems_of_alignment(mapping.alignment)
    yield from _problems_of_status(mapping)
    yield from _problems_of_calls(mapping)
    yield from _problems_of_handle(mapping)
    yield from _problems_of_protocol(mapping)
    yield from _wrong_words("refuses", mapping.refuses)
    if mapping.tensor != NO_OBJECT:
        yield from problems_of_tensor("tensor", mapping.tensor)
    for name, alternatives in mapping.operators.items():
        for index, entry in enumerate(alternatives):
            place = _Place(f"operators.{name}" + (f"[{index}]" if len(alternatives) > 1 else ""), entry)
            yield from _problems_of_entry(place, entry)
            yield from _problems_beside(place, entry, mapping)


class _Place:
    """Where in the file an operator's entry stands; called with a key, where that does."""

    def __init__(self, where: str, entry: OperatorMapping) -> None:
        self._where = where
        self._entry = entry

    def __call__(self, key: str) -> str:
        return f"{self._where}.{written(self._entry, key)}"

    def __str__(self) -> str:
        return self._where


def _problems_of_numerics(mapping: LibraryMapping) -> Iterable[str]:
    for device, stated in mapping.numerics.items():
        if device not in mapping.devices:
            yield f"numerics.{device} is no device of this file; it has {', '.join(mapping.devices)}"
        wrong = wrong_numerics(stated)
        if wrong is not None:
            yield f"numerics.{device} has {wrong}"


def _problems_of_alignment(alignment: int) -> Iterable[str]:
    if not 1 <= alignment <= _MOST_ALIGNED or alignment & (alignment - 1):
        yield f"alignment is {alignment}, but should be a power of two from 1 to {_MOST_ALIGNED}"


def _problems_of_status(mapping: LibraryMapping) -> Iterable[str]:
    message = mapping.statuses.message
    if message is None:
        return
    if not message.function:
        yield "status.message.function is missing; it should be the function that returns a text"
    for index, text in enumerate(message.arguments):
        if text not in _OF_MESSAGE:
            near = nearest(text, _OF_MESSAGE)
            hint = f"did you mean {near}? " if near else ""
            known = ", ".join(_OF_MESSAGE)
            yield f"status.message.arguments[{index}] is {text!r}, which is no role here; {hint}known: {known}"


def _problems_of_calls(mapping: LibraryMapping) -> Iterable[str]:
    """Of the functions that belong to no operator."""
    for key in ("set_device", "get_device", "synchronize"):
        call = getattr(mapping, key)
        if call is not None:
            yield from _wrong_arguments(f"{key}.arguments", call.arguments, WHOLE_CALLS[key])
    for index, call in enumerate(mapping.setup):
        if not call.function:
            yield f"setup[{index}].function is missing; it should be a function that is called once, before all others"
        yield from _wrong_arguments(f"setup[{index}].arguments", call.arguments, WHOLE_CALLS["setup"])


def _problems_of_handle(mapping: LibraryMapping) -> Iterable[str]:
    handle = mapping.handle
    yield from _wrong_arguments("handle.create.arguments", handle.create.arguments, WHOLE_CALLS["handle.create"])
    if handle != NO_OBJECT and not handle.create.function:
        yield "handle.create.function is missing; it should be the function that makes the handle"
    if handle.set or handle.struct or handle.fields or handle.create.functions or isinstance(handle.destroy, Call):
        yield "handle should have create, with a function and arguments, and destroy, the name of a function"
    for name, alternatives in mapping.operators.items() if handle == NO_OBJECT else ():
        if any(each.kind == "handle" for entry in alternatives for each in entry.read.told):
            key = "create" if alternatives[0].name else "call"
            yield f"operators.{name}.{key} has handle, so the file should say how it is made, under handle"
            return


def _problems_of_protocol(mapping: LibraryMapping) -> Iterable[str]:
    short = [name for name, entries in mapping.operators.items() if any(each.name for each in entries)]
    if mapping.protocol == NO_PROTOCOL:
        if short:
            yield f"operators.{short[0]} has create and run, so the file should name the functions, under protocol"
        return
    for field in Protocol.__struct_fields__:
        if "{name}" not in getattr(mapping.protocol, field):
            yield f"protocol.{field} is {getattr(mapping.protocol, field)!r}, but should contain {{name}}"


def _problems_of_entry(place: _Place, entry: OperatorMapping) -> Iterable[str]:
    """Unknown arguments, tensors without dimensions, dimensions that nothing has."""
    if bool(entry.function) == bool(entry.functions) and not entry.name:
        yield f"{place('functions')} should name a function for each dtype, or else `function` one for all of them"
    for tensor, dims in entry.dims.items():
        yield from _wrong_dims(place(f"dims.{tensor}"), dims)
    known = Words(dims=entry.dims).dimensions
    yield from _unknown_names(place("least"), entry.least, known)
    yield from _unknown_names(place("same_layout"), entry.same_layout, list(entry.dims))
    for tensor, rule in entry.swapped.items():
        if not isinstance(rule, tuple) and entry.dims and len(entry.dims.get(tensor, ())) != 2:
            yield f"{place('swapped')} has {tensor!r}, but should have tensors with two dimensions in dims"
    wrong = [*_wrong_calls(place, entry), *_wrong_use_of_tensor(place, entry)]
    yield from wrong
    if not wrong:
        yield from _unread(place, entry)
        yield from _untold(place, entry)


def _unknown_names(where: str, names: Iterable[str], known: Sequence[str]) -> Iterable[str]:
    for name in names:
        if name not in known:
            yield f"{where} has {name!r}, but dims have {', '.join(known) or 'none'}"


def _wrong_calls(place: _Place, entry: OperatorMapping) -> Iterable[str]:
    """What is wrong with the arguments, and with what is made for them."""
    words = Words(dims=entry.dims, has_workspace=entry.workspace is not None)
    above: list[str] = []
    for name, made in entry.objects.items():
        own = replace(words, objects=tuple(above))
        for problem in problems_of_object(f"objects.{name}", made, own, tuple(entry.functions)):
            yield place(problem)
        above.append(name)
    words = replace(words, objects=tuple(above))
    if entry.workspace is not None:
        if not entry.workspace.function and not entry.name:
            said = "is missing; it should be the function that says how many bytes the workspace has"
            yield f"{place('workspace.function')} {said}"
        asking = replace(words, plain=(*PLAIN, *IN_MAKING))
        yield from _wrong_arguments(place("workspace.arguments"), entry.workspace.arguments, asking)
    yield from _wrong_arguments(place("call"), entry.call, words)


def _wrong_use_of_tensor(place: _Place, entry: OperatorMapping) -> Iterable[str]:
    """Where nobody says what is made of a tensor, where its elements are passed nowhere, or nobody says whether they
    are read or written."""
    made = entry.tensor
    texts = [*made.fields.values(), *(text for call in calls_of(made).values() for text in call.arguments)]
    has_data = any(each.kind == "data" for each in parsed(tuple(texts)))
    for each in entry.read.told:
        if made == NO_OBJECT and (each.as_descriptor or each.as_tensor):
            said = "so the file (or the operator) should say how it is made, under tensor"
            yield f"{place('call')} has {each.text}, {said}"
            return
        if each.as_tensor and not has_data:
            hint = f"write descriptor:{each.name}, {each}, or give it data"
            yield f"{place('call')} has {each.text!r}, but tensor has no data; {hint}"
        if each.as_descriptor and has_data:
            said = f"but tensor has data; write 'input:{each.name} as tensor', or output"
            yield f"{place('call')} has {each.text!r}, {said}"
    for c_object in entry.read.c_objects:
        why = wrong_in_template(c_object.arguments(), entry.dims) if is_of_a_tensor(c_object.name) else ""
        if why:
            yield f"{place('call')} has {c_object.name.removeprefix('tensor ')} as tensor, {why}"


def _unread(place: _Place, entry: OperatorMapping) -> Iterable[str]:
    """What of the further keys nobody reads, or nobody could."""
    passed = list(dict.fromkeys(each.name for each in entry.read.told if each.kind in ("attribute", "tensor")))
    for key in ("choices", "left_out"):
        for name in getattr(entry, key):
            if name not in passed:
                what = ", ".join(passed) or "none"
                yield f"{place(key)} names {name!r}, which call does not pass; it passes {what}"
    arrays = list(dict.fromkeys(each.name for each in entry.read.attributes if each.array is not None))
    for each in entry.read.told:
        if each.kind == "count" and each.name not in arrays:
            known = ", ".join(arrays) or "none"
            yield f"{place} counts {each.name!r}, which nothing passes as an array; arrays: {known}"
    for name, rule in entry.implied.items():
        for size in rule if isinstance(rule, (list, tuple)) else (rule,):
            if isinstance(size, str) and ("[" in size or "." in size) and not SIZE.fullmatch(size):
                yield f"{place(f'implied.{name}')} has {size!r}, but should look like 'input[-1]' or 'out.dtype'"


def _untold(place: _Place, entry: OperatorMapping) -> Iterable[str]:
    """Tensors of which C knows no shape, be it by dimensions or by what it is told."""
    if entry.dims or entry.name:
        return
    for each in entry.roles():
        is_memory = each.is_input or (each.kind == "output" and each.name != entry.returns)
        if is_memory and ("shape", each.name) not in entry.read.kinds:
            said = f"should say the dimensions of {each.name}, whose shape C is not told"
            yield f"{place('dims')} {said} (`[n...]` for any number of them)"


def _problems_beside(place: _Place, entry: OperatorMapping, mapping: LibraryMapping) -> Iterable[str]:
    """What an operator needs of the rest of the file."""
    if entry.tensor not in (NO_OBJECT, mapping.tensor):
        yield from problems_of_tensor(place("tensor"), entry.tensor)
    if any(each.kind == "dtype" for each in entry.read.told):
        missing = [each for each in entry.dtypes if each not in mapping.dtypes]
        if missing:
            yield f"{place} tells C dtypes, so the file should say what {missing[0]} is called there, under dtypes"
    tensors = {each.name for each in entry.roles() if each.kind in ("input", "output")}
    for tensor, names in entry.dtypes_of.items():
        if entry.dims and tensor not in (*entry.dims, *tensors):
            yield f"{place('dtypes_of')} has {tensor!r}, but dims have {', '.join(entry.dims) or 'none'}"
        yield from _wrong_dtypes(place(f"dtypes_of.{tensor}"), names, (SAME, *dtype_names()))
    yield from _wrong_dtypes(place("dtypes"), entry.dtypes, dtype_names())
    for name, counting in entry.arange.items():
        yield from _wrong_dtypes(place(f"arange.{name}.dtype"), (counting.dtype,), dtype_names())
    yield from _wrong_words(place("refuses"), entry.refuses or ())
    if entry.refuses and not mapping.status:
        yield f"{place('refuses')} needs a status: the file should say what functions return, under status"


def _wrong_dtypes(where: str, names: Iterable[str], known: Sequence[str]) -> Iterable[str]:
    for name in names:
        if name not in known:
            near = nearest(name, known)
            yield f"{where} has {name!r}, which is no dtype" + (f"; did you mean {near}?" if near else "")


def _wrong_words(where: str, words: Sequence[str]) -> Iterable[str]:
    for each in words:
        if each not in REFUSALS:
            near = nearest(each, REFUSALS)
            hint = f"did you mean {near}? " if near else ""
            yield f"{where} has {each!r}; {hint}known: {', '.join(REFUSALS)}"


def _wrong_dims(where: str, dims: Sequence[str]) -> Iterable[str]:
    for name in dims:
        if not _DIMENSION.fullmatch(name):
            known = "names such as m, n... for any number of dimensions, or sizes such as 3"
            yield f"{where} has {name!r}, but should have {known}"
    if sum(name.endswith("...") for name in dims) > 1:
        yield f"{where} is {list(dims)}, but should have one name with dots"


def _wrong_arguments(where: str, texts: Sequence[str], words: Words) -> Iterable[str]:
    for index, text in enumerate(texts):
        why = wrong_argument(text, words)
        if why:
            yield f"{where}[{index}] is {text!r}, {why}"
