"""Problems of a mapping that its schema cannot detect: unknown arguments and names, unused keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec

from optest.backends import wrong_numerics
from optest.clib.library.arguments import IN_MAKING, PLAIN, Words, words_of_tensor, wrong_in_template
from optest.clib.library.mapping import NO_PROTOCOL, LibraryMapping, written_key
from optest.clib.library.mapping_words import SIZE
from optest.clib.library.operator_mapping import NO_OBJECT, Call, ObjectEntry, OperatorMapping, is_of_a_tensor
from optest.errors import did_you_mean
from optest.spec import OperatorDescriptor, UnfitArguments

# Arguments allowed for the functions that belong to no operator.
_WHOLE_CALLS = {
    "set_device": Words(named=("constant",), plain=("device", "device_id", "null")),
    "get_device": Words(named=(), plain=("device_slot", "device_id_slot")),
    "synchronize": Words(named=(), plain=("stream", "null")),
    "handle.create": Words(named=("constant",), plain=("slot", "null")),
    "status.message": Words(named=(), plain=("status", "handle", "null")),
    "setup": Words(named=("constant",), plain=("null",)),
}
_MOST_ALIGNED = 4096  # Bytes of a page.
Place = Callable[[str], str]  # Function that returns the path in the file of an entry's key.


def problems_of_mapping(mapping: LibraryMapping) -> Iterable[str]:
    """Yield every problem of a mapping, as messages that begin with the key."""
    for device, numerics in mapping.numerics.items():
        if device not in mapping.devices:
            yield f"numerics.{device} is no device of this file; it has {', '.join(mapping.devices)}"
        if wrong := wrong_numerics(numerics):
            yield f"numerics.{device} has {wrong}"
    alignment = mapping.alignment
    if not 1 <= alignment <= _MOST_ALIGNED or alignment & (alignment - 1):
        yield f"alignment is {alignment}, expected a power of two from 1 to {_MOST_ALIGNED}"
    for where, call in mapping.global_calls().items():
        if not call.function:
            yield f"{where}.function is missing, expected the name of a function"
        yield from _WHOLE_CALLS[where.partition("[")[0]].problems(f"{where}.arguments", call.arguments)
    yield from _problems_of_handle(mapping)
    short = [name for name, entries in mapping.operators.items() if any(x.name for x in entries)]
    if mapping.protocol != NO_PROTOCOL:
        for part, pattern in msgspec.structs.asdict(mapping.protocol).items():
            if "{name}" not in pattern:
                yield f"protocol.{part} is {pattern!r}, but should contain {{name}}"
    elif short:
        yield f"operators.{short[0]} has create and run, so the file should define protocol, the names of the functions"
    if mapping.tensor != NO_OBJECT:
        yield from _problems_of_tensor("tensor", mapping.tensor)
    for name, alternatives in mapping.operators.items():
        for index, entry in enumerate(alternatives):
            where = f"operators.{name}" + (f"[{index}]" if len(alternatives) > 1 else "")

            def place(key: str, where: str = where, entry: OperatorMapping = entry) -> str:
                return f"{where}.{written_key(entry, key)}".rstrip(".")

            yield from _problems_of_entry(place, entry)
            yield from _problems_with_file(place, entry, mapping)


def _problems_of_handle(mapping: LibraryMapping) -> Iterable[str]:
    """Yield keys that a handle must not have, and the first operator that passes an undefined handle."""
    handle = mapping.handle
    if handle.set or handle.struct or handle.fields or handle.create.functions or isinstance(handle.destroy, Call):
        yield "handle should have create, with a function and arguments, and destroy, the name of a function"
    for name, alternatives in mapping.operators.items() if handle == NO_OBJECT else ():
        if any(entry.read.passes("handle") for entry in alternatives):
            key = "create" if alternatives[0].name else "call"
            yield f"operators.{name}.{key} has handle, so the file should define handle, which creates it"
            return


def _problems_of_entry(place: Place, entry: OperatorMapping) -> Iterable[str]:
    """Yield unknown arguments, tensors without dimensions, unknown dimensions and unused keys of an entry."""
    if bool(entry.function) == bool(entry.functions) and not entry.name:
        yield f"{place('functions')} should name a function for each dtype, or `function` one for all dtypes"
    for tensor, dims in entry.dims.items():
        if sum(name.endswith("...") for name in dims) > 1:
            yield f"{place(f'dims.{tensor}')} is {list(dims)}, expected one name with dots"
    known = Words(dims=entry.dims).dimensions
    yield from _unknown_dims(place("least"), entry.least, known)
    yield from _unknown_dims(place("same_layout"), entry.same_layout, list(entry.dims))
    for start in entry.starts:
        if any(arg.kind == "input" and arg.name == start.input for arg in entry.read.passed):
            hint = f"so an output that starts as it hides whether C reads it; write in_place: [{start.input}]"
            yield f"{place('starts_as')} has {start.input!r}, but call passes input:{start.input}, {hint}"
    for tensor, rule in entry.swapped.items():
        if not isinstance(rule, tuple) and entry.dims and len(entry.dims.get(tensor, ())) != 2:
            yield f"{place('swapped')} has {tensor!r}, expected tensors with two dimensions in dims"
    wrong = [*_wrong_calls(place, entry), *_wrong_use_of_tensor(place, entry)]
    yield from wrong
    if not wrong:
        # These checks parse the calls, so they need correct ones.
        passed = list(dict.fromkeys(arg.name for arg in entry.read.passed if arg.kind in ("attribute", "tensor")))
        for key in ("choices", "left_out"):
            for name in getattr(entry, key):
                if name not in passed:
                    listed = ", ".join(passed) or "none"
                    yield f"{place(key)} names {name!r}, which call does not pass; it passes {listed}"
        arrays = list(dict.fromkeys(arg.name for arg in entry.read.attributes if arg.array is not None))
        for arg in entry.read.passed:
            if arg.kind == "count" and arg.name not in arrays:
                listed = ", ".join(arrays) or "none"
                yield f"{place('')} counts {arg.name!r}, which nothing passes as an array; arrays: {listed}"
        for name, sizes in entry.implied.items():
            for size in sizes if isinstance(sizes, (list, tuple)) else (sizes,):
                if isinstance(size, str) and ("[" in size or "." in size) and not SIZE.fullmatch(size):
                    yield f"{place(f'implied.{name}')} has {size!r}, but should look like 'input[-1]' or 'out.dtype'"
        yield from _without_shape(place, entry)


def _unknown_dims(where: str, names: Iterable[str], known: Sequence[str]) -> Iterable[str]:
    for name in names:
        if name not in known:
            yield f"{where} has {name!r}, but dims have {', '.join(known) or 'none'}"


def _wrong_calls(place: Place, entry: OperatorMapping) -> Iterable[str]:
    """Yield problems of the arguments of the call, its objects and its workspace."""
    words = Words(dims=entry.dims, has_workspace=entry.workspace is not None)
    for name, template in entry.objects.items():
        in_calls = replace(words, plain=(*PLAIN, *IN_MAKING))
        yield from map(place, _problems_of_object(f"objects.{name}", template, in_calls, words, tuple(entry.functions)))
        words = replace(words, objects=(*words.objects, name))  # later objects and calls may use it
    if entry.workspace is not None:
        if not entry.workspace.function and not entry.name:
            hint = "expected the function that returns the size of the workspace in bytes"
            yield f"{place('workspace.function')} is missing, {hint}"
        in_making = replace(words, plain=(*PLAIN, *IN_MAKING))
        yield from in_making.problems(place("workspace.arguments"), entry.workspace.arguments)
    yield from words.problems(place("call"), entry.call)


def _problems_of_tensor(where: str, template: ObjectEntry) -> Iterable[str]:
    """Return the problems of the template for tensor objects."""
    return _problems_of_object(where, template, words_of_tensor(struct=False), words_of_tensor(struct=True))


def _problems_of_object(
    where: str, template: ObjectEntry, in_calls: Words, in_fields: Words, dtypes: Sequence[str] = ()
) -> Iterable[str]:
    """Yield problems of an object: neither or both of create and struct, wrong functions or arguments."""
    calls = template.calls()
    if ("create" in calls) == bool(template.struct):
        yield f"{where} should have either `create`, a function, or `struct`, a type of the headers"
    if template.fields and not template.struct:
        yield f"{where}.fields needs `struct`, the type whose fields are set"
    for key, call in calls.items():
        if bool(call.function) == bool(call.functions):
            yield f"{where}.{key} should name one `function`, or `functions` by dtype"
        missing = [x for x in dtypes if call.functions and x not in call.functions]
        if missing:
            yield f"{where}.{key}.functions has no function for {missing[0]}, a dtype of the operator"
        yield from in_calls.problems(f"{where}.{key}.arguments", call.arguments)
    for field, text in template.fields.items():
        yield from in_fields.problem(f"{where}.fields.{field}", text)


def _wrong_use_of_tensor(place: Place, entry: OperatorMapping) -> Iterable[str]:
    """Yield tensor arguments without a tensor template, or whose elements C cannot access; then template misfits."""
    template = entry.tensor
    texts = {*template.fields.values(), *(text for call in template.calls().values() for text in call.arguments)}
    has_data = "data" in texts
    for arg in entry.read.passed:
        if template == NO_OBJECT and (arg.as_descriptor or arg.as_tensor):
            hint = "so the file (or the operator) should define tensor, which creates it"
            yield f"{place('call')} has {arg.text}, {hint}"
            return
        if arg.as_tensor and not has_data:
            hint = f"write descriptor:{arg.name}, {arg}, or give it data"
            yield f"{place('call')} has {arg.text!r}, but tensor has no data; {hint}"
        if arg.as_descriptor and has_data:
            hint = f"write 'input:{arg.name} as tensor', or output"
            yield f"{place('call')} has {arg.text!r}, but tensor has data; {hint}"
    for obj in entry.read.c_objects:
        why = wrong_in_template(obj.arguments, entry.dims) if is_of_a_tensor(obj.name) else ""
        if why:
            yield f"{place('call')} has {obj.name.removeprefix('tensor ')} as tensor, {why}"


def _without_shape(place: Place, entry: OperatorMapping) -> Iterable[str]:
    """Yield a problem for each tensor whose shape C does not receive, neither by dims nor by arguments."""
    if entry.dims or entry.name:
        return
    for role in entry.read.roles:
        is_memory = role.is_input or (role.kind == "output" and role.name != entry.returns)
        if is_memory and ("shape", role.name) not in entry.read.kinds:
            hint = "(`[n...]` for any number of them)"
            yield f"{place('dims')} should list the dimensions of {role.name}, whose shape no argument passes {hint}"


def _problems_with_file(place: Place, entry: OperatorMapping, mapping: LibraryMapping) -> Iterable[str]:
    """Yield problems of an entry with the rest of the file."""
    if entry.tensor not in (NO_OBJECT, mapping.tensor):
        yield from _problems_of_tensor(place("tensor"), entry.tensor)
    missing = [x for x in entry.dtypes if x not in mapping.dtypes]
    if missing and entry.read.passes("dtype"):
        yield f"{place('')} passes dtypes, so dtypes in the file should name C's constant for {missing[0]}"
    tensors = {role.name for role in entry.read.roles if role.kind in ("input", "output")}
    if entry.dims:
        yield from _unknown_dims(place("dtypes_of"), entry.dtypes_of.keys() - tensors, list(entry.dims))
    if entry.refuses and not mapping.status:
        yield f"{place('refuses')} needs status, the type that the functions return"


def unknown_names(entry: OperatorMapping, descriptor: OperatorDescriptor) -> list[str]:
    """Return messages for names that the operator lacks; else for invalid ``always`` values."""
    inputs, outputs = [arg.name for arg in descriptor.tensors.inputs], list(descriptor.tensors.outputs)
    known = {
        "input": inputs,
        "output": outputs,
        "tensor": [*inputs, *outputs],
        "attribute": [attribute.name for attribute in descriptor.attributes],
    }
    unknown = [pair for pair in dict.fromkeys(_names_in_entry(entry)) if pair[1] not in known.get(pair[0], pair)]
    problems = []
    for kind, name in unknown:
        hint = did_you_mean(name, known[kind], text="did you mean {}? ")
        listed = ", ".join(dict.fromkeys(known[kind])) or "none"
        problems.append(f"{descriptor.name} has no {kind} {name!r}; {hint}it has {listed}")
    if unknown:
        return problems
    for name, value in entry.always.items():
        try:
            descriptor.attribute(name).read(value)
        except UnfitArguments as error:  # noqa: PERF203 - each value is read by itself
            problems.append(f"always: {error}")
    return problems


_OF_TENSORS = ("elements", "ndim", "shape", "stride", "strides", "dtype", "descriptor")
_KIND_OF_NAME = {"scalar": "input", "count": "attribute", "tensor": "attribute", **dict.fromkeys(_OF_TENSORS, "tensor")}


def _names_in_entry(entry: OperatorMapping) -> Iterator[tuple[str, str]]:
    """Yield the kind and name of every input, output, tensor and attribute that an entry names."""
    as_tensors = entry.read.made_tensors
    for arg in entry.read.passed:
        if arg.kind not in _OF_TENSORS or arg.name not in as_tensors:
            yield _KIND_OF_NAME.get(arg.kind, arg.kind), arg.name
    outputs = (entry.returns, *(start.output for start in entry.starts))
    inputs = (*(start.input for start in entry.starts), *entry.in_place, *entry.arange, *entry.indexes)
    yield from (("output", name) for name in outputs if name)
    yield from (("input", name) for name in (*inputs, *(counting.of for counting in entry.arange.values())) if name)
    ranks = (rank.tensor for ranks in entry.ranks.values() for rank in ranks)
    places = (place.tensor for place in (*entry.indexes.values(), *entry.repeats))
    tensors = (*entry.dims, *entry.swapped, *entry.dtypes_of, *entry.ranks, *entry.layouts, *ranks, *places)
    yield from (("tensor", name) for name in tensors if name)
    without = (name for start in entry.starts for name in start.without)
    yield from (("attribute", name) for name in (*without, *sorted(entry.read.known_attributes)))
    for rule in entry.implied.values():
        texts = [x for x in (rule if isinstance(rule, list) else [rule]) if isinstance(x, str)]
        yield from (("tensor", size["name"]) for size in map(SIZE.fullmatch, texts) if size)
