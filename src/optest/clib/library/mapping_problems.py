"""What is wrong with a mapping that a schema cannot say: unknown arguments and names, keys that nobody reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec

from optest.backends import wrong_numerics
from optest.clib.library.arguments import IN_MAKING, PLAIN, Words, words_of_tensor, wrong_in_template
from optest.clib.library.mapping import NO_PROTOCOL, LibraryMapping, written
from optest.clib.library.mapping_words import SIZE
from optest.clib.library.operator_mapping import NO_OBJECT, Call, ObjectEntry, OperatorMapping, is_of_a_tensor
from optest.errors import did_you_mean
from optest.spec import OperatorDescriptor, UnfitArguments

_WHOLE_CALLS = {
    "set_device": Words(named=("constant",), plain=("device", "device_id", "null")),
    "get_device": Words(named=(), plain=("device_slot", "device_id_slot")),
    "synchronize": Words(named=(), plain=("stream", "null")),
    "handle.create": Words(named=("constant",), plain=("slot", "null")),
    "status.message": Words(named=(), plain=("status", "handle", "null")),
    "setup": Words(named=("constant",), plain=("null",)),
}
"""What may be passed to the functions that belong to no operator."""
_MOST_ALIGNED = 4096
"""Bytes of a page."""
Place = Callable[[str], str]
"""Where in the file a key of an operator's entry stands."""


def problems_of_mapping(mapping: LibraryMapping) -> Iterable[str]:
    for device, stated in mapping.numerics.items():
        if device not in mapping.devices:
            yield f"numerics.{device} is no device of this file; it has {', '.join(mapping.devices)}"
        if wrong := wrong_numerics(stated):
            yield f"numerics.{device} has {wrong}"
    alignment = mapping.alignment
    if not 1 <= alignment <= _MOST_ALIGNED or alignment & (alignment - 1):
        yield f"alignment is {alignment}, expected a power of two from 1 to {_MOST_ALIGNED}"
    for where, call in mapping.whole_calls().items():
        if not call.function:
            yield f"{where}.function is missing; it should be the name of a function"
        yield from _WHOLE_CALLS[where.partition("[")[0]].problems(f"{where}.arguments", call.arguments)
    yield from _problems_of_handle(mapping)
    short = [name for name, entries in mapping.operators.items() if any(each.name for each in entries)]
    if mapping.protocol != NO_PROTOCOL:
        for part, pattern in msgspec.structs.asdict(mapping.protocol).items():
            if "{name}" not in pattern:
                yield f"protocol.{part} is {pattern!r}, but should contain {{name}}"
    elif short:
        yield f"operators.{short[0]} has create and run, so the file should name the functions, under protocol"
    if mapping.tensor != NO_OBJECT:
        yield from _problems_of_tensor("tensor", mapping.tensor)
    for name, alternatives in mapping.operators.items():
        for index, entry in enumerate(alternatives):
            where = f"operators.{name}" + (f"[{index}]" if len(alternatives) > 1 else "")

            def place(key: str, where: str = where, entry: OperatorMapping = entry) -> str:
                return f"{where}.{written(entry, key)}".rstrip(".")

            yield from _problems_of_entry(place, entry)
            yield from _problems_beside(place, entry, mapping)


def _problems_of_handle(mapping: LibraryMapping) -> Iterable[str]:
    handle = mapping.handle
    if handle.set or handle.struct or handle.fields or handle.create.functions or isinstance(handle.destroy, Call):
        yield "handle should have create, with a function and arguments, and destroy, the name of a function"
    for name, alternatives in mapping.operators.items() if handle == NO_OBJECT else ():
        if any(entry.read.passes("handle") for entry in alternatives):
            key = "create" if alternatives[0].name else "call"
            yield f"operators.{name}.{key} has handle, so the file should say how it is made, under handle"
            return


def _problems_of_entry(place: Place, entry: OperatorMapping) -> Iterable[str]:
    """Unknown arguments, tensors without dimensions, dimensions that nothing has."""
    if bool(entry.function) == bool(entry.functions) and not entry.name:
        yield f"{place('functions')} should name a function for each dtype, or else `function` one for all of them"
    for tensor, dims in entry.dims.items():
        if sum(name.endswith("...") for name in dims) > 1:
            yield f"{place(f'dims.{tensor}')} is {list(dims)}, expected one name with dots"
    known = Words(dims=entry.dims).dimensions
    yield from _not_in_dims(place("least"), entry.least, known)
    yield from _not_in_dims(place("same_layout"), entry.same_layout, list(entry.dims))
    for start in entry.starts:
        if any(each.kind == "input" and each.name == start.input for each in entry.read.passed):
            hint = f"so an output that starts as it hides whether C reads it; write in_place: [{start.input}]"
            yield f"{place('starts_as')} has {start.input!r}, but call passes input:{start.input}, {hint}"
    for tensor, rule in entry.swapped.items():
        if not isinstance(rule, tuple) and entry.dims and len(entry.dims.get(tensor, ())) != 2:
            yield f"{place('swapped')} has {tensor!r}, expected tensors with two dimensions in dims"
    wrong = [*_wrong_calls(place, entry), *_wrong_use_of_tensor(place, entry)]
    yield from wrong
    if not wrong:
        # Further keys that nobody reads, or nobody could.
        passed = list(dict.fromkeys(each.name for each in entry.read.passed if each.kind in ("attribute", "tensor")))
        for key in ("choices", "left_out"):
            for name in getattr(entry, key):
                if name not in passed:
                    listed = ", ".join(passed) or "none"
                    yield f"{place(key)} names {name!r}, which call does not pass; it passes {listed}"
        arrays = list(dict.fromkeys(each.name for each in entry.read.attributes if each.array is not None))
        for each in entry.read.passed:
            if each.kind == "count" and each.name not in arrays:
                listed = ", ".join(arrays) or "none"
                yield f"{place('')} counts {each.name!r}, which nothing passes as an array; arrays: {listed}"
        for name, sizes in entry.implied.items():
            for size in sizes if isinstance(sizes, (list, tuple)) else (sizes,):
                if isinstance(size, str) and ("[" in size or "." in size) and not SIZE.fullmatch(size):
                    yield f"{place(f'implied.{name}')} has {size!r}, but should look like 'input[-1]' or 'out.dtype'"
        yield from _without_shape(place, entry)


def _not_in_dims(where: str, names: Iterable[str], known: Sequence[str]) -> Iterable[str]:
    for name in names:
        if name not in known:
            yield f"{where} has {name!r}, but dims have {', '.join(known) or 'none'}"


def _wrong_calls(place: Place, entry: OperatorMapping) -> Iterable[str]:
    """What is wrong with the arguments, and with what is made for them."""
    words = Words(dims=entry.dims, has_workspace=entry.workspace is not None)
    for name, made in entry.objects.items():
        in_calls = replace(words, plain=(*PLAIN, *IN_MAKING))
        yield from map(place, _problems_of_object(f"objects.{name}", made, in_calls, words, tuple(entry.functions)))
        words = replace(words, objects=(*words.objects, name))
    if entry.workspace is not None:
        if not entry.workspace.function and not entry.name:
            hint = "it should be the function that says how many bytes the workspace has"
            yield f"{place('workspace.function')} is missing; {hint}"
        in_making = replace(words, plain=(*PLAIN, *IN_MAKING))
        yield from in_making.problems(place("workspace.arguments"), entry.workspace.arguments)
    yield from words.problems(place("call"), entry.call)


def _problems_of_tensor(where: str, made: ObjectEntry) -> Iterable[str]:
    """What is wrong with the template by which something is made of every tensor."""
    return _problems_of_object(where, made, words_of_tensor(struct=False), words_of_tensor(struct=True))


def _problems_of_object(
    where: str, made: ObjectEntry, in_calls: Words, in_fields: Words, dtypes: Sequence[str] = ()
) -> Iterable[str]:
    calls = made.calls()
    if ("create" in calls) == bool(made.struct):
        yield f"{where} should say how it is made: either `create`, a function, or `struct`, a type of the headers"
    if made.fields and not made.struct:
        yield f"{where}.fields are those of a struct, but no `struct` is named"
    for key, call in calls.items():
        if bool(call.function) == bool(call.functions):
            yield f"{where}.{key} should name one `function`, or `functions` by dtype"
        missing = [each for each in dtypes if call.functions and each not in call.functions]
        if missing:
            yield f"{where}.{key}.functions has none for {missing[0]}, which the operator has"
        yield from in_calls.problems(f"{where}.{key}.arguments", call.arguments)
    for field, text in made.fields.items():
        yield from in_fields.problem(f"{where}.fields.{field}", text)


def _wrong_use_of_tensor(place: Place, entry: OperatorMapping) -> Iterable[str]:
    """Where nobody says what is made of a tensor, where its elements are passed nowhere, or nobody says whether they
    are read or written."""
    made = entry.tensor
    texts = {*made.fields.values(), *(text for call in made.calls().values() for text in call.arguments)}
    has_data = "data" in texts
    for each in entry.read.passed:
        if made == NO_OBJECT and (each.as_descriptor or each.as_tensor):
            hint = "so the file (or the operator) should say how it is made, under tensor"
            yield f"{place('call')} has {each.text}, {hint}"
            return
        if each.as_tensor and not has_data:
            hint = f"write descriptor:{each.name}, {each}, or give it data"
            yield f"{place('call')} has {each.text!r}, but tensor has no data; {hint}"
        if each.as_descriptor and has_data:
            hint = f"write 'input:{each.name} as tensor', or output"
            yield f"{place('call')} has {each.text!r}, but tensor has data; {hint}"
    for c_object in entry.read.c_objects:
        why = wrong_in_template(c_object.arguments, entry.dims) if is_of_a_tensor(c_object.name) else ""
        if why:
            yield f"{place('call')} has {c_object.name.removeprefix('tensor ')} as tensor, {why}"


def _without_shape(place: Place, entry: OperatorMapping) -> Iterable[str]:
    """Tensors of which C knows no shape, be it by dimensions or by what is passed."""
    if entry.dims or entry.name:
        return
    for each in entry.read.roles:
        is_memory = each.is_input or (each.kind == "output" and each.name != entry.returns)
        if is_memory and ("shape", each.name) not in entry.read.kinds:
            hint = "(`[n...]` for any number of them)"
            yield f"{place('dims')} should say the dimensions of {each.name}, whose shape C is not told {hint}"


def _problems_beside(place: Place, entry: OperatorMapping, mapping: LibraryMapping) -> Iterable[str]:
    """What an operator needs of the rest of the file."""
    if entry.tensor not in (NO_OBJECT, mapping.tensor):
        yield from _problems_of_tensor(place("tensor"), entry.tensor)
    missing = [each for each in entry.dtypes if each not in mapping.dtypes]
    if missing and entry.read.passes("dtype"):
        yield f"{place('')} tells C dtypes, so the file should say what {missing[0]} is called there, under dtypes"
    tensors = {each.name for each in entry.read.roles if each.kind in ("input", "output")}
    if entry.dims:
        yield from _not_in_dims(place("dtypes_of"), entry.dtypes_of.keys() - tensors, list(entry.dims))
    if entry.refuses and not mapping.status:
        yield f"{place('refuses')} needs a status: the file should say what functions return, under status"


def unknown_names(entry: OperatorMapping, descriptor: OperatorDescriptor) -> list[str]:
    """What an entry names and optest's operator does not have, with the nearest name; then what it does not take."""
    inputs, outputs = [each.name for each in descriptor.tensors.inputs], list(descriptor.tensors.outputs)
    known = {
        "input": inputs,
        "output": outputs,
        "tensor": [*inputs, *outputs],
        "attribute": [each.name for each in descriptor.attributes],
    }
    unknown = [pair for pair in dict.fromkeys(_names_of(entry)) if pair[1] not in known.get(pair[0], pair)]
    if unknown:
        return [_unknown(descriptor.name, kind, name, known[kind]) for kind, name in unknown]
    problems = []
    for name, value in entry.always.items():
        try:
            descriptor.attribute(name).read(value)
        except UnfitArguments as error:  # noqa: PERF203 - each value is read by itself
            problems.append(f"always: {error}")
    return problems


_OF_TENSORS = ("elements", "ndim", "shape", "stride", "strides", "dtype", "descriptor")
_NAMED_BY = {"scalar": "input", "count": "attribute", "tensor": "attribute", **dict.fromkeys(_OF_TENSORS, "tensor")}


def _names_of(entry: OperatorMapping) -> Iterator[tuple[str, str]]:
    """What the calls name, and the keys beside them, each with its kind."""
    made = entry.read.made_tensors
    for each in entry.read.passed:
        if each.kind not in _OF_TENSORS or each.name not in made:
            yield _NAMED_BY.get(each.kind, each.kind), each.name
    outputs = (entry.returns, *(start.output for start in entry.starts))
    inputs = (*(start.input for start in entry.starts), *entry.in_place, *entry.arange, *entry.indexes)
    yield from (("output", name) for name in outputs if name)
    yield from (("input", name) for name in (*inputs, *(each.of for each in entry.arange.values())) if name)
    ranks = (rank.tensor for ranks in entry.ranks.values() for rank in ranks)
    places = (place.tensor for place in (*entry.indexes.values(), *entry.repeats))
    tensors = (*entry.dims, *entry.swapped, *entry.dtypes_of, *entry.ranks, *entry.layouts, *ranks, *places)
    yield from (("tensor", name) for name in tensors if name)
    without = (name for start in entry.starts for name in start.without)
    yield from (("attribute", name) for name in (*without, *sorted(entry.read.known_attributes)))
    for rule in entry.implied.values():
        texts = [each for each in (rule if isinstance(rule, list) else [rule]) if isinstance(each, str)]
        yield from (("tensor", size["name"]) for size in map(SIZE.fullmatch, texts) if size)


def _unknown(operator: str, kind: str, name: str, known: Sequence[str]) -> str:
    hint = did_you_mean(name, known, text="did you mean {}? ")
    return f"{operator} has no {kind} {name!r}; {hint}it has {', '.join(dict.fromkeys(known)) or 'none'}"
