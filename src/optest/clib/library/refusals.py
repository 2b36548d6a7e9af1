"""Calls that a C library has to refuse: made from a legal one by one thing that is wrong with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from optest.clib.library.layouts import Gap, reaches, require_dtypes
from optest.clib.library.mapping_words import SAME
from optest.clib.library.operator_mapping import OperatorMapping
from optest.clib.library.sample_calls import SampleCall, Shape, all_but_one
from optest.memory.stride_patterns import Pattern, patterns
from optest.spec import contiguous_strides, dtype
from optest.spec.tensors import format_shape

_OTHER_DTYPES = (
    *("float32", "float64", "float16", "bfloat16"),
    *("int32", "int64", "int8", "uint8", "bool", "complex64"),
)
_ODD_NUMBERS = {"int": (-1, -2, -9, 9, 1_000_003), "float": (-1.0, 2.0, float("nan"), float("inf"))}
_ODD_PLACES = (0, -1)
"""For each number of a list."""
_LAID_OTHERWISE = ("gaps", "padded rows", "transposed")
_MOST_RESULTS = 1 << 17
_CUT_OFF_BITS = (8, 16, 32)
"""An index that is read in so few bits is another one."""

Calls = Iterator[SampleCall]


def refusals(call: SampleCall, entry: OperatorMapping, kinds: Sequence[str]) -> Iterator[tuple[str, SampleCall]]:
    """Yield what the kinds that the mapping promises to refuse (``refuses``) mean for this call."""
    passed = {role.key for role in entry.read.roles if role.kind in ("input", "output")}
    present = [*(f"input:{each}" for each in call.inputs), *(f"output:{each}" for each in call.outputs)]
    roles = [each for each in present if each in passed]
    optional = {role.key for role in entry.read.roles if role.optional}
    has_workspace = entry.workspace is not None and any(role.kind == "workspace" for role in entry.read.roles)
    pointers = (*roles, "descriptor", *(("workspace",) if has_workspace else ()))
    made: dict[str, Callable[[], Iterable[SampleCall]]] = {
        "dtype": lambda: (*_dtypes(call, entry), *_narrow_outputs(call, entry)),
        "shape": lambda: (*_shapes(call, entry), *_attributes(call, entry)),
        "stride-0-output": lambda: (each for one in (call, *call.resized(1)) for each in _outputs_on_themselves(one)),
        "overlap": lambda: (*_overlaps(call, roles), *_begins_alike(call, roles)),
        "null": lambda: [_requesting(call, null=[each]) for each in pointers],
        "null-descriptor": lambda: (
            *(_requesting(call, null_descriptor=[each]) for each in roles if each not in optional),
            _requesting(call, null=["handle"]),
        ),
        "workspace": lambda: [_requesting(call, workspace="short")] if has_workspace else (),
        "index": lambda: _indices(call, entry),
    }
    for kind in kinds:
        if kind == "device":  # it is selected before any call: see Session
            continue
        for each in made[kind]():
            keys = {"expects_error": {"type": "StatusError"}, "description": _fault_in(each, kind, call)}
            yield "refused", each.with_keys(**{key: value for key, value in keys.items() if value})


def _fault_in(call: SampleCall, kind: str, legal: SampleCall) -> str:
    """Describe what is wrong with a call of a ``kind`` that was made from a ``legal`` one: ``dtype float64 of output
    out``, ``index -1 in input ids``."""
    request: Mapping[str, Any] = call.config.get("call", {})
    wrong: list[str] = []
    if kind == "dtype":
        changed = {
            f"input {name}": own for name, own in call.dtypes_of_inputs.items() if own != legal.dtypes_of_inputs[name]
        }
        if len(changed) > 1:
            changed = {"all tensors": next(iter(changed.values()))}
        wrong += [f"dtype {own} of {role}" for role, own in {**changed, **request.get("dtypes", {})}.items()]
    elif kind == "shape":
        shapes = {f"input:{name}": call.shapes[name] for name in call.inputs if call.shapes[name] != legal.shapes[name]}
        shapes |= {role: tuple(own) for role, own in request.get("shapes", {}).items()} if not shapes else {}
        wrong += [f"shape {format_shape(own)} of {role}" for role, own in shapes.items()]
        stated = legal.sample.get("attributes", {})
        wrong += [f"{key}={own}" for key, own in call.sample.get("attributes", {}).items() if own != stated.get(key)]
    elif kind == "index":
        for name, fill in call.sample["generator"].items():
            values = np.ravel(fill.get("values", fill.get("value"))).tolist()
            wrong.append(f"index {max(values, key=abs)} in input {name}")
    wrong += [f"NULL for {role}" for role in request.get("null", ())]
    wrong += [f"NULL for the descriptor of {role}" for role in request.get("null_descriptor", ())]
    wrong += ["a workspace that is too small"] if "workspace" in request else []
    laid = {name: each.name for name, each in call.places.items() if legal.places.get(name) != each}
    for role, other in request.get("alias", {}).items():
        how = f"{role} overlaps {other}" if request.get("behind") != 0 else f"{role} begins where {other} does"
        layout = laid.pop(role.partition(":")[2], "")
        wrong.append(f"{how}, with other strides ({layout})" if layout else how)
    wrong += [f"output {name} with {each}" for name, each in laid.items()]
    return "; ".join(wrong).replace(":", " ")


def _requesting(call: SampleCall, **request: Any) -> SampleCall:
    return call.configured({"call": request})


def _described(call: SampleCall, **request: Mapping[str, Any]) -> SampleCall:
    """With other ``dtypes`` or ``shapes`` of outputs, by name."""
    return _requesting(
        call, **{key: {f"output:{name}": each for name, each in of.items()} for key, of in request.items()}
    )


def _dtypes(call: SampleCall, entry: OperatorMapping) -> Calls:
    """All tensors of a dtype that the operator does not have; one tensor of another dtype than the others."""
    shared = next(iter(call.dtypes_of_inputs.values()))
    for name in _OTHER_DTYPES:
        if entry.dtypes and name not in entry.dtypes:
            yield _plain(call.of_dtype(name))
    for tensor in call.inputs if len(call.inputs) > 1 else ():
        own = call.dtypes_of_inputs[tensor]
        for name in _OTHER_DTYPES:
            if name != own and _is_foreign(tensor, name, shared, entry) and _is_passed(tensor, entry):
                mixed = call.with_dtypes({tensor: name})
                if not _is_taken(mixed, entry):
                    yield _plain(mixed)
    for tensor in call.outputs:
        for name in _OTHER_DTYPES:
            if name != shared and _is_foreign(tensor, name, shared, entry):
                yield _described(call, dtypes={tensor: name})


def _is_taken(call: SampleCall, entry: OperatorMapping) -> bool:
    """Whether the inputs have dtypes that the operator takes together."""
    try:
        require_dtypes(call.input_specs(), entry)
    except Gap:
        return False
    return True


def _narrow_outputs(call: SampleCall, entry: OperatorMapping) -> Calls:
    """An output of a dtype that does not hold every result: of one more than its integers count."""
    for attribute, rule in entry.implied.items():
        tensor, _, what = str(rule).partition(".")
        for name in entry.dtypes_of.get(tensor, ()) if what == "dtype" and tensor in call.outputs else ():
            if (size := dtype(name).max_int + 2) > _MOST_RESULTS:
                continue
            for larger in call.resized(size):
                if not _with_attribute(larger, attribute, name).fits():
                    yield _described(larger, dtypes={tensor: name})


def _is_foreign(tensor: str, name: str, shared: str, entry: OperatorMapping) -> bool:
    allowed = entry.dtypes_of.get(tensor, (SAME,))
    return name not in allowed and not (SAME in allowed and name == shared)


def _is_passed(tensor: str, entry: OperatorMapping) -> bool:
    return any(role.key == f"input:{tensor}" for role in entry.read.roles)


def _plain(call: SampleCall) -> SampleCall:
    """Without a fill that another dtype might not take."""
    return dataclasses.replace(call, sample={key: each for key, each in call.sample.items() if key != "generator"})


def _shapes(call: SampleCall, entry: OperatorMapping) -> Calls:
    """One size or the rank of one tensor is off; of inputs only what operator and mapping do not take."""
    made = any(name not in call.inputs for name in entry.arange)  # C gets what optest makes, so it may take more
    started = {start.output for start in entry.starts}  # as large as the input that they hold
    legal = {name: list(call.shapes[name]) for name in call.outputs if name not in started}
    for tensor in () if made else call.inputs:
        for shape in _others(call.shapes[tensor]) if _is_passed(tensor, entry) else ():
            reshaped = dataclasses.replace(_plain(call), shapes={**call.shapes, tensor: shape})
            if not reshaped.fits() and not any(
                each.tensor == tensor and shape[each.axis : each.axis + 1 or None] == (1,) for each in entry.repeats
            ):
                yield reshaped
                yield _described(reshaped, shapes=legal)
    for tensor in call.outputs:
        for shape in _others(call.shapes[tensor]):
            if not (entry.broadcasts and all(reaches(call.shapes[each], shape) for each in call.inputs)):
                yield _described(call, shapes={tensor: list(shape)})


def _others(shape: Shape) -> Iterator[Shape]:
    """One more, one less, one and none in each dimension, a dimension more and one less, dimensions swapped."""
    for axis, size in enumerate(shape):
        for other in dict.fromkeys((size + 1, size - 1, 1, 0)):
            if other >= 0 and other != size:
                yield (*shape[:axis], other, *shape[axis + 1 :])
    yield (*shape, 2)
    if shape:
        yield shape[:-1]
    if len(set(shape)) > 1:
        yield shape[1:]
    if len(shape) > 1 and shape[-1] != shape[-2]:
        yield (*shape[:-2], shape[-1], shape[-2])


def _attributes(call: SampleCall, entry: OperatorMapping) -> Calls:
    """Numbers that the operator does not take for its attributes."""
    passed = {role.name for role in entry.read.roles if role.kind in ("attribute", "tensor")}
    for attribute in call.base.descriptor.attributes:
        name = attribute.name
        if name not in call.base.attributes or name not in passed:
            continue
        for value in _odd_values(attribute.type.partition("|")[0], call.base.attributes[name]):
            if not _with_attribute(call, name, value).fits():
                yield call.with_keys(attributes={**call.sample.get("attributes", {}), name: value})


def _with_attribute(call: SampleCall, name: str, value: Any) -> SampleCall:
    base = dataclasses.replace(call.base, attributes={**call.base.attributes, name: value})
    return dataclasses.replace(call, base=base)


def _odd_values(kind: str, usual: Any) -> Iterator[Any]:
    """Numbers that stand out, in a list in each place in turn."""
    yield from _ODD_NUMBERS.get(kind, ())
    if kind == "ints" and isinstance(usual, tuple):
        for place in range(len(usual)):
            yield from ((*usual[:place], odd, *usual[place + 1 :]) for odd in _ODD_PLACES)


def _indices(call: SampleCall, entry: OperatorMapping) -> Calls:
    """Indices just behind the last, far behind it, below 0, and such that are legal if read in fewer bits:
    everywhere, as the last of many, and as the first."""
    for tensor, place in entry.indexes.items():
        if tensor not in call.inputs or place.tensor not in call.shapes:
            continue
        size, shape = call.shapes[place.tensor][place.axis], call.shapes[tensor]
        kind = dtype(call.dtypes_of_inputs[tensor])
        for value in (size, size + 1000, -1, -size - 1):
            if kind.min_int <= value <= kind.max_int:
                yield call.with_keys(generator={tensor: {"fill": "full", "value": value}})
                yield call.with_keys(generator={tensor: {"fill": "data", "values": all_but_one(shape, 0, value)}})
        for value in (size, *(1 << bits for bits in _CUT_OFF_BITS)):
            if size <= value <= kind.max_int:
                yield call.with_keys(generator={tensor: {"fill": "data", "values": all_but_one(shape, 0, value, 0)}})


def _outputs_on_themselves(call: SampleCall) -> Calls:
    """Two elements of an output at one place: by a stride of 0, and by one that is too small."""
    for tensor in call.outputs:
        shape = call.shapes[tensor]
        dense = contiguous_strides(shape)
        for axis, size in enumerate(shape):
            if size > 1:
                yield call.laid({tensor: Pattern("stride 0", (*dense[:axis], 0, *dense[axis + 1 :]))})
        if len(shape) > 1 and min(shape) > 1:
            yield call.laid({tensor: Pattern("rows that overlap", (*dense[:-2], dense[-2] - 1, 1))})
            yield call.laid({tensor: Pattern("rows that overlap (one element apart)", (*dense[:-2], 1, 1))})


def _overlaps(call: SampleCall, roles: Sequence[str]) -> Calls:
    """An output that begins within an input, or within another output; an input that begins within an output."""
    for output, role in _pairs(call, roles):
        alias = {f"output:{output}": role}
        yield _requesting(call, alias=alias)
        yield _requesting(call, alias=alias, behind=-1)


def _begins_alike(call: SampleCall, roles: Sequence[str]) -> Calls:
    """An output where another tensor begins: of another shape, or in another layout."""
    for output, role in _pairs(call, roles):
        shape, (kind, _, name) = call.shapes[output], role.partition(":")
        shared = _requesting(call, alias={f"output:{output}": role}, behind=0)
        if kind == "output" or call.shapes[name] != shape:
            yield shared
        else:
            for place in patterns(shape):
                sized = zip(shape, place.strides, contiguous_strides(shape), strict=True)
                if place.name in _LAID_OTHERWISE and any(size > 1 and one != other for size, one, other in sized):
                    yield shared.laid({output: place})


def _pairs(call: SampleCall, roles: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each output with the role of each other tensor."""
    return ((output, role) for output in call.outputs for role in roles if role != f"output:{output}")
