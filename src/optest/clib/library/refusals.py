"""Wrong calls that a C library must refuse, each derived from a valid call by one fault."""

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
_UNUSUAL_NUMBERS = {"int": (-1, -2, -9, 9, 1_000_003), "float": (-1.0, 2.0, float("nan"), float("inf"))}
_UNUSUAL_SIZES = (0, -1)  # Replacements for each number of a list.
_LAID_OTHERWISE = ("gaps", "padded rows", "transposed")
_MOST_RESULTS = 1 << 17
_CUT_OFF_BITS = (8, 16, 32)  # An index truncated to so many bits becomes another, valid one.

Calls = Iterator[SampleCall]


def refusals(call: SampleCall, entry: OperatorMapping, kinds: Sequence[str]) -> Iterator[tuple[str, SampleCall]]:
    """Yield wrong calls for the ``kinds`` that the library must refuse, with expected error and description."""
    passed = {role.key for role in entry.read.roles if role.kind in ("input", "output")}
    present = [*(f"input:{tensor}" for tensor in call.inputs), *(f"output:{tensor}" for tensor in call.outputs)]
    roles = [x for x in present if x in passed]
    optional = {role.key for role in entry.read.roles if role.optional}
    has_workspace = entry.workspace is not None and any(role.kind == "workspace" for role in entry.read.roles)
    pointers = (*roles, "descriptor", *(("workspace",) if has_workspace else ()))
    factories: dict[str, Callable[[], Iterable[SampleCall]]] = {
        "dtype": lambda: (*_wrong_dtypes(call, entry), *_narrow_outputs(call, entry)),
        "shape": lambda: (*_wrong_shapes(call, entry), *_wrong_attributes(call, entry)),
        "stride-0-output": lambda: (x for base in (call, *call.resized(1)) for x in _self_overlapping_outputs(base)),
        "overlap": lambda: (
            *(
                _requesting(call, alias={f"output:{output}": role}, **behind)
                for output, role in _output_pairs(call, roles)
                for behind in ({}, {"behind": -1})
            ),
            *_same_address(call, roles),
        ),
        "null": lambda: [_requesting(call, null=[role]) for role in pointers],
        "null-descriptor": lambda: (
            *(_requesting(call, null_descriptor=[role]) for role in roles if role not in optional),
            _requesting(call, null=["handle"]),
        ),
        "workspace": lambda: [_requesting(call, workspace="short")] if has_workspace else (),
        "index": lambda: _indices(call, entry),
    }
    for kind in kinds:
        if kind == "device":  # Session checks it before any call
            continue
        for wrong in factories[kind]():
            keys = {"expects_error": {"type": "StatusError"}, "description": _fault_in(wrong, kind, call)}
            yield "refused", wrong.with_keys(**{key: value for key, value in keys.items() if value})


def _fault_in(call: SampleCall, kind: str, legal: SampleCall) -> str:
    """Describe the fault added to a ``legal`` call: ``dtype float64 of output out``, ``index -1 in input ids``."""
    request: Mapping[str, Any] = call.config.get("call", {})
    wrong: list[str] = []
    if kind == "dtype":
        before = legal.dtypes_of_inputs
        changed = {f"input {name}": value for name, value in call.dtypes_of_inputs.items() if value != before[name]}
        if len(changed) > 1:
            changed = {"all tensors": next(iter(changed.values()))}
        wrong += [f"dtype {value} of {role}" for role, value in {**changed, **request.get("dtypes", {})}.items()]
    elif kind == "shape":
        shapes = {f"input:{name}": call.shapes[name] for name in call.inputs if call.shapes[name] != legal.shapes[name]}
        shapes |= {role: tuple(value) for role, value in request.get("shapes", {}).items()} if not shapes else {}
        wrong += [f"shape {format_shape(value)} of {role}" for role, value in shapes.items()]
        legal_attributes = legal.sample.get("attributes", {})
        wrong += [
            f"{key}={value}"
            for key, value in call.sample.get("attributes", {}).items()
            if value != legal_attributes.get(key)
        ]
    elif kind == "index":
        for name, fill in call.sample["generator"].items():
            values = np.ravel(fill.get("values", fill.get("value"))).tolist()
            wrong.append(f"index {max(values, key=abs)} in input {name}")
    wrong += [f"NULL for {role}" for role in request.get("null", ())]
    wrong += [f"NULL for the descriptor of {role}" for role in request.get("null_descriptor", ())]
    wrong += ["a workspace that is too small"] if "workspace" in request else []
    laid = {name: x.name for name, x in call.layouts.items() if legal.layouts.get(name) != x}
    for role, other in request.get("alias", {}).items():
        how = f"{role} overlaps {other}" if request.get("behind") != 0 else f"{role} begins at the address of {other}"
        layout = laid.pop(role.partition(":")[2], "")
        wrong.append(f"{how}, with other strides ({layout})" if layout else how)
    wrong += [f"output {name} with {x}" for name, x in laid.items()]
    return "; ".join(wrong).replace(":", " ")


def _requesting(call: SampleCall, **request: Any) -> SampleCall:
    return call.configured({"call": request})


def _with_output_specs(call: SampleCall, **request: Mapping[str, Any]) -> SampleCall:
    """Return the call with other ``dtypes`` or ``shapes`` of outputs, by name."""
    return _requesting(call, **{key: {f"output:{name}": x for name, x in of.items()} for key, of in request.items()})


def _wrong_dtypes(call: SampleCall, entry: OperatorMapping) -> Calls:
    """Yield calls whose tensors all have an unsupported dtype, and calls with one tensor of a differing dtype."""
    shared = next(iter(call.dtypes_of_inputs.values()))
    for name in _OTHER_DTYPES:
        if entry.dtypes and name not in entry.dtypes:
            yield _without_fill(call.of_dtype(name))
    for tensor in call.inputs if len(call.inputs) > 1 else ():
        current = call.dtypes_of_inputs[tensor]
        for name in _OTHER_DTYPES:
            if name != current and _is_foreign_dtype(tensor, name, shared, entry) and _is_passed(tensor, entry):
                mixed = call.with_dtypes({tensor: name})
                if not _is_taken(mixed, entry):
                    yield _without_fill(mixed)
    for tensor in call.outputs:
        for name in _OTHER_DTYPES:
            if name != shared and _is_foreign_dtype(tensor, name, shared, entry):
                yield _with_output_specs(call, dtypes={tensor: name})


def _is_taken(call: SampleCall, entry: OperatorMapping) -> bool:
    """Return whether the operator supports the dtypes of the inputs together."""
    try:
        require_dtypes(call.input_specs(), entry)
    except Gap:
        return False
    return True


def _narrow_outputs(call: SampleCall, entry: OperatorMapping) -> Calls:
    """Yield calls with an output dtype too narrow for the results: one more than the dtype can count."""
    for attribute, rule in entry.implied.items():
        tensor, _, field = str(rule).partition(".")
        for name in entry.dtypes_of.get(tensor, ()) if field == "dtype" and tensor in call.outputs else ():
            if (size := dtype(name).max_int + 2) > _MOST_RESULTS:
                continue
            for larger in call.resized(size):
                if not _with_attribute(larger, attribute, name).fits():
                    yield _with_output_specs(larger, dtypes={tensor: name})


def _is_foreign_dtype(tensor: str, name: str, shared: str, entry: OperatorMapping) -> bool:
    """Return whether the entry does not allow the tensor to have dtype ``name``."""
    allowed = entry.dtypes_of.get(tensor, (SAME,))
    return name not in allowed and not (SAME in allowed and name == shared)


def _is_passed(tensor: str, entry: OperatorMapping) -> bool:
    return any(role.key == f"input:{tensor}" for role in entry.read.roles)


def _without_fill(call: SampleCall) -> SampleCall:
    """Return the call without its generator, which another dtype might not support."""
    return dataclasses.replace(call, sample={key: x for key, x in call.sample.items() if key != "generator"})


def _wrong_shapes(call: SampleCall, entry: OperatorMapping) -> Calls:
    """Yield calls with one wrong size or rank; for inputs only shapes that operator and mapping reject."""
    # C may accept more shapes of an input that optest generates.
    is_generated = any(name not in call.inputs for name in entry.arange)
    started = {start.output for start in entry.starts}  # their shape follows from the input
    legal = {name: list(call.shapes[name]) for name in call.outputs if name not in started}
    for tensor in () if is_generated else call.inputs:
        for shape in _changed_shapes(call.shapes[tensor]) if _is_passed(tensor, entry) else ():
            reshaped = dataclasses.replace(_without_fill(call), shapes={**call.shapes, tensor: shape})
            if not reshaped.fits() and not any(
                x.tensor == tensor and shape[x.axis : x.axis + 1 or None] == (1,) for x in entry.repeats
            ):
                yield reshaped
                yield _with_output_specs(reshaped, shapes=legal)
    for tensor in call.outputs:
        for shape in _changed_shapes(call.shapes[tensor]):
            if not (entry.broadcasts and all(reaches(call.shapes[tensor], shape) for tensor in call.inputs)):
                yield _with_output_specs(call, shapes={tensor: list(shape)})


def _changed_shapes(shape: Shape) -> Iterator[Shape]:
    """Yield changed shapes: each size +1, -1, 1 and 0, one dimension more or less, the last two swapped."""
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


def _wrong_attributes(call: SampleCall, entry: OperatorMapping) -> Calls:
    """Yield calls with attribute values that the operator rejects."""
    passed = {role.name for role in entry.read.roles if role.kind in ("attribute", "tensor")}
    for attribute in call.base.descriptor.attributes:
        name = attribute.name
        if name not in call.base.attributes or name not in passed:
            continue
        kind, usual = attribute.type.partition("|")[0], call.base.attributes[name]
        values: list[Any] = [*_UNUSUAL_NUMBERS.get(kind, ())]
        if kind == "ints" and isinstance(usual, tuple):  # one number of the list at a time
            indexes = range(len(usual))
            values += [(*usual[:index], odd, *usual[index + 1 :]) for index in indexes for odd in _UNUSUAL_SIZES]
        for value in values:
            if not _with_attribute(call, name, value).fits():
                yield call.with_keys(attributes={**call.sample.get("attributes", {}), name: value})


def _with_attribute(call: SampleCall, name: str, value: Any) -> SampleCall:
    base = dataclasses.replace(call.base, attributes={**call.base.attributes, name: value})
    return dataclasses.replace(call, base=base)


def _indices(call: SampleCall, entry: OperatorMapping) -> Calls:
    """Yield calls with invalid indices (past the end, negative, valid if truncated), at all positions or at one."""
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


def _self_overlapping_outputs(call: SampleCall) -> Calls:
    """Yield calls whose output has elements at the same address, by a stride of 0 or one that is too small."""
    for tensor in call.outputs:
        shape = call.shapes[tensor]
        dense = contiguous_strides(shape)
        for axis, size in enumerate(shape):
            if size > 1:
                yield call.laid({tensor: Pattern("stride 0", (*dense[:axis], 0, *dense[axis + 1 :]))})
        if len(shape) > 1 and min(shape) > 1:
            yield call.laid({tensor: Pattern("rows that overlap", (*dense[:-2], dense[-2] - 1, 1))})
            yield call.laid({tensor: Pattern("rows that overlap (one element apart)", (*dense[:-2], 1, 1))})


def _same_address(call: SampleCall, roles: Sequence[str]) -> Calls:
    """Yield calls with an output at the address of another tensor, with a differing shape or layout."""
    for output, role in _output_pairs(call, roles):
        shape, (kind, _, name) = call.shapes[output], role.partition(":")
        shared = _requesting(call, alias={f"output:{output}": role}, behind=0)
        if kind == "output" or call.shapes[name] != shape:
            yield shared
        else:
            for place in patterns(shape):
                sized = zip(shape, place.strides, contiguous_strides(shape), strict=True)
                if place.name in _LAID_OTHERWISE and any(size > 1 and stride != dense for size, stride, dense in sized):
                    yield shared.laid({output: place})


def _output_pairs(call: SampleCall, roles: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Return each output with the role of each other tensor."""
    return ((output, role) for output in call.outputs for role in roles if role != f"output:{output}")
