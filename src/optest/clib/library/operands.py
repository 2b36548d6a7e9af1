"""What a case hands to C beside its own tensors: attributes by value and as arrays, tensors made of them, and what a
mapping cannot pass, in words."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optest.clib.library.direct import DirectCall
from optest.clib.library.limits import lack_of_layouts, lack_of_tensors, tensors_of
from optest.clib.library.mapping import SIZE, LibraryMapping, OperatorMapping
from optest.clib.library.roles import ELEMENTS, Role, literal
from optest.numerics import Array, numpy_dtype, round_to
from optest.registry import load_object
from optest.spec import (
    Check,
    CheckState,
    DType,
    Kind,
    OperatorDescriptor,
    Parameter,
    TensorSpec,
    TestCase,
    UnfitArguments,
    contiguous_strides,
    dtype,
)

__all__ = [
    "BOUNDS",
    "MISSING",
    "as_c_counts",
    "as_c_takes_them",
    "choice_of",
    "implied_value",
    "lack",
    "made_inputs",
    "notes_of_attributes",
    "outputs_for_a_refusal",
    "outputs_of_c",
    "stated_value",
    "values",
]

OutputLayout = tuple[str, tuple[int, ...] | None, int]
"""Name, strides and offset of an output, in elements."""
Constant = Callable[[str], int]
"""The value of a name in the headers."""
MISSING = object()
BOUNDS = {"lowest": -math.inf, "highest": math.inf}


def lack(case: TestCase, mapping: LibraryMapping, layouts: Sequence[OutputLayout] = ()) -> str | None:
    """Why the mapping cannot call this case, in words; None if it can. ``layouts`` are those of the outputs, by name:
    strides and offset, dense where there is none."""
    name = case.descriptor.name
    entry = mapping.entry(case.descriptor)
    if entry is None:
        return f"mapping {mapping.name} has no operator {name}; it has {', '.join(mapping.names)}"
    specs = (*(argument.spec for argument in case.inputs), *case.outputs)
    missing = [spec.dtype.name for spec in specs if spec.dtype.name not in mapping.dtypes]
    if missing:
        return f"mapping {mapping.name} has no dtype {missing[0]}"
    if case.expects_error is None:
        tensors = tensors_of(case)
        for output, strides, offset in layouts:
            if output in tensors:
                tensors[output] = replace(tensors[output], strides=strides, offset=offset)
        if why := lack_of_tensors(case, entry) or lack_of_layouts(tensors, entry):
            return f"mapping {mapping.name} has no {name} {why}"
    return _lack_of_inputs(case, entry, mapping.name) or _lack_of_attributes(case, entry, mapping.name)


def _lack_of_inputs(case: TestCase, entry: OperatorMapping, mapping: str) -> str | None:
    given = {argument.name: argument.spec for argument in case.inputs}
    # Inputs that do not fit one another may be legal beside positions that the case does not state.
    counted = entry.arange if case.outputs or case.expects_error is None else {}
    roles = [role for role in entry.roles() if role.kind in ("input", "scalar")]
    taken = {role.name for role in roles} | ({entry.starts_as.input} if entry.starts_as else set())
    for name in sorted(given.keys() - taken):
        return f"mapping {mapping} does not pass the input {name} of {case.descriptor.name}"
    for role in roles:
        if role.name not in given and not role.optional and role.name not in counted:
            return f"mapping {mapping} needs the input {role.name} of {case.descriptor.name}, which the case leaves out"
        if role.kind == "scalar" and role.name in given and given[role.name].elements != 1:
            return f"mapping {mapping} passes the input {role.name} by value, but it is {given[role.name]}"
    return None


def _lack_of_attributes(case: TestCase, entry: OperatorMapping, mapping: str) -> str | None:
    passed = [role for role in entry.roles() if role.kind in ("attribute", "tensor")]
    tensors = tensors_of(case)
    is_wide = case.expects_error is None and any(spec.dtype.name == "float64" for spec in tensors.values())
    for role in passed:
        value = stated_value(case, entry, role.name)
        why = _why_unpassed(role, value, entry)
        if why:
            return f"the attribute {role.name} is {value!r}, but mapping {mapping} passes {why}"
        if role.kind == "tensor" and not _is_held(value, case):
            return f"the attribute {role.name} is {value!r}, which {_first_dtype(case)} cannot hold in a tensor"
        if is_wide and role.is_narrow and not role.is_array and _narrow(value) != float(value) == float(value):
            return (
                f"the attribute {role.name} is {value!r}, but C takes a float, which is too coarse beside float64; "
                f"state {_narrow(value)!r}"
            )
    made = [role.name for role in passed if role.kind == "tensor"]
    if made and all(case.attributes.get(name) is None for name in made):
        return f"{' and '.join(dict.fromkeys(made))} are none, so mapping {mapping} has nothing to pass"
    named = {role.name for role in passed}
    for name, value in case.attributes.items():
        if name not in named and not _goes_without_saying(case, entry, name, value, tensors):
            return f"mapping {mapping} does not pass the attribute {name} of {case.descriptor.name}, which is {value!r}"
    return None


def _first_dtype(case: TestCase) -> DType:
    """Of the first output, or of the first input where no output follows from the inputs."""
    return (case.outputs[0] if case.outputs else case.inputs[0].spec).dtype


def _is_held(value: Any, case: TestCase) -> bool:
    """Whether a tensor of the output's dtype can be filled with a number."""
    kind = _first_dtype(case)
    if kind.is_inexact or isinstance(value, str):
        return True
    low, high = _limits(kind)
    return bool(low <= value <= high and value == value // 1)


def _why_unpassed(role: Role, value: Any, entry: OperatorMapping) -> str:
    choices = entry.choices.get(role.name)
    if choices is not None:
        return "" if choice_of(choices, value) is not MISSING else " or ".join(map(repr, choices))
    if role.is_array:
        return _why_no_array(role, value)
    if role.kind == "tensor":
        return "" if _is_number(value) or value in BOUNDS else "a tensor of a number"
    return "" if _is_number(value) else "a number"


def _why_no_array(role: Role, value: Any) -> str:
    numbers = value if isinstance(value, (list, tuple)) else (value,)
    if not all(map(_is_number, numbers)):
        return f"an array of {role.type}"
    is_right = role.length is None or len(numbers) in (1, role.length)
    return "" if is_right else f"one number or {role.length}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def choice_of(choices: Mapping[Any, Any], value: Any) -> Any:
    """What stands for ``value``; True is not 1 here."""
    found = (passed for stated, passed in choices.items() if stated == value and type(stated) is type(value))
    return next(found, MISSING)


def _goes_without_saying(
    case: TestCase, entry: OperatorMapping, name: str, value: Any, tensors: Mapping[str, TensorSpec]
) -> bool:
    """Whether C does by itself what an attribute says that it is not told."""
    defaults = {attribute.name: attribute.default for attribute in case.descriptor.attributes}
    if name in entry.implied:
        implied = implied_value(entry.implied[name], tensors)
        return bool(value == (defaults.get(name) if implied is None else implied))
    if name in entry.always and _always(case, entry)[name] == value:
        return True
    if name in entry.swapped.values():
        return isinstance(value, bool)
    return bool(name in defaults and value == defaults[name])


def implied_value(rule: Any, tensors: Mapping[str, TensorSpec]) -> Any:
    """A value, or sizes of tensors: ``[input[-1]]``; a size that is not there is None."""
    if isinstance(rule, (list, tuple)):
        return tuple(implied_value(each, tensors) for each in rule)
    size = SIZE.fullmatch(rule) if isinstance(rule, str) else None
    if size is None:
        return rule
    spec = tensors.get(size["name"])
    if spec is None or size["dim"] is None:
        return None if spec is None else spec.dtype.name
    dim = int(size["dim"])
    return spec.shape[dim] if -spec.rank <= dim < spec.rank else None


def stated_value(case: TestCase, entry: OperatorMapping | DirectCall, name: str) -> Any:
    """An attribute's value, with what the mapping puts in place of none and of an input that is left out."""
    start = entry.starts_as
    if start is not None and name in start.without and all(each.name != start.input for each in case.inputs):
        return start.without[name]
    value = case.attributes.get(name)
    if value is not None or name not in entry.left_out:
        return value
    instead = entry.left_out[name]
    if isinstance(instead, Mapping):
        dtypes = [argument.spec.dtype.name for argument in case.inputs]
        return instead.get(dtypes[0] if dtypes else "", instead.get("other"))
    return instead


def values(case: TestCase, entry: OperatorMapping, given: Mapping[str, Array], constant: Constant) -> dict[str, Any]:
    """What is no tensor, by role, as the C types that the mapping states."""
    made: dict[str, Any] = {}
    lengths: dict[str, int] = {}
    for role in entry.roles():
        if role.kind == "attribute":
            made[role.key] = _attribute(case, entry, role, constant)
            if role.is_array:
                lengths[role.name] = len(made[role.key])
        elif role.kind == "scalar":
            made[role.key] = _number(given[role.name].reshape(-1)[0].item(), role.type)
        elif role.kind == "constant":
            made[role.key] = _constant(role, constant)
    counts = [role for role in entry.roles() if role.kind == "count"]
    return {**made, **{role.key: lengths[role.name] for role in counts}}


def _attribute(case: TestCase, entry: OperatorMapping, role: Role, constant: Constant) -> Any:
    value = stated_value(case, entry, role.name)
    if role.name in entry.choices:
        value = choice_of(entry.choices[role.name], value)
        value = constant(value) if isinstance(value, str) else value
    if not role.is_array:
        return _number(value, role.type)
    numbers = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if role.length is not None and len(numbers) == 1:
        numbers = numbers * role.length
    return (ELEMENTS[role.type] * len(numbers))(*numbers)


def _number(value: Any, type_: str) -> Any:
    return float(value) if type_ in ("float", "double") else value


def _constant(role: Role, constant: Constant) -> Any:
    number = literal(role.name, role.type)
    return constant(role.name) if number is None else number


def made_inputs(
    case: TestCase, entry: OperatorMapping, given: Mapping[str, Array], outputs: Mapping[str, TensorSpec]
) -> dict[str, Array]:
    """Tensors that C wants and the operator of optest does not have: attributes in the dtype and shape of the first
    output, by strides of 0; and positions 0, 1, 2 … for an input that is left out."""
    like = next(iter(outputs.values()))
    made: dict[str, Array] = {}
    for role in entry.roles():
        if role.kind == "tensor" and role.name not in made:
            made[role.name] = np.broadcast_to(_filled(stated_value(case, entry, role.name), like.dtype), like.shape)
    for name, counting in entry.arange.items():
        if name not in given and counting.of in given:
            made[name] = np.arange(given[counting.of].shape[counting.dim]).astype(numpy_dtype(dtype(counting.dtype)))
    return made


def _filled(value: Any, kind: DType) -> Array:
    """A 0-d array; ``lowest`` and ``highest`` are the infinities, or the smallest and the largest integer."""
    if kind.is_inexact:
        number = float(BOUNDS.get(value, value))
        return np.asarray(round_to(np.asarray(number), kind))
    limits = _limits(kind)
    return np.asarray({"lowest": limits[0], "highest": limits[1]}.get(value, value), numpy_dtype(kind))


def _limits(kind: DType) -> tuple[int, int]:
    if kind.kind is Kind.BOOL:
        return 0, 1
    signed = kind.kind is Kind.INT
    return -(1 << kind.bits - 1) if signed else 0, (1 << kind.bits - signed) - 1


def outputs_of_c(case: TestCase, entry: OperatorMapping) -> dict[str, TensorSpec]:
    """Outputs by name: those of the case, and those that C has whatever the case's attributes say."""
    names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
    own = dict(zip(names, case.outputs, strict=True))
    wanted = [role.name for role in entry.roles() if role.kind == "output"]
    if not own or not entry.always or all(name in own for name in wanted):
        return own
    return {**_inferred(case, {**case.attributes, **_always(case, entry)}, case.descriptor.tensors.inputs), **own}


def _always(case: TestCase, entry: OperatorMapping) -> dict[str, Any]:
    """What a mapping states of attributes, as the operator reads it: 5 for [5]."""
    return {name: case.descriptor.attribute(name).read(value) for name, value in entry.always.items()}


def outputs_for_a_refusal(case: TestCase, entry: OperatorMapping) -> dict[str, TensorSpec]:
    """Outputs where none follow from inputs that do not fit: one like the input that it starts as; those without the
    optional inputs, or with the attributes' defaults, so that nothing is wrong with them; else like the first input."""
    like = {argument.name: argument.spec for argument in case.inputs}
    if entry.starts_as is not None and entry.starts_as.input in like:
        return {entry.starts_as.output: _dense(like[entry.starts_as.input])}
    inputs = case.descriptor.tensors.inputs
    required = [parameter for parameter in inputs if not parameter.optional]
    defaults = {each.name: each.default for each in case.descriptor.attributes if not each.is_required}
    for attributes in (case.attributes, {**case.attributes, **defaults}):
        for parameters in (inputs, required):
            found = _inferred(case, {**attributes, **_always(case, entry)}, parameters)
            if found:
                return found
    return {role.name: _dense(next(iter(like.values()))) for role in entry.roles() if role.kind == "output"}


def _dense(spec: TensorSpec) -> TensorSpec:
    return TensorSpec(dtype=spec.dtype, shape=spec.shape)


def _inferred(case: TestCase, attributes: Mapping[str, Any], parameters: Sequence[Parameter]) -> dict[str, TensorSpec]:
    """The outputs that follow from some of the inputs; none where they do not fit."""
    infer = case.descriptor.infer
    if infer is None:
        return {}
    function = load_object(infer) if isinstance(infer, str) else infer
    given = {argument.name: argument.spec for argument in case.inputs}
    taken = [parameter.name for parameter in parameters]
    specs = [given.get(each.name) if each.name in taken else None for each in case.descriptor.tensors.inputs]
    try:
        found = tuple(function(specs, attributes))
    except UnfitArguments:
        return {}
    return dict(zip(case.descriptor.tensors.output_names(len(found)) or (), found, strict=True))


def as_c_counts(
    specs: Mapping[str, TensorSpec | None], case: TestCase, entry: OperatorMapping
) -> dict[str, TensorSpec | None]:
    """The tensors by role with their dimensions as C has them; one of too few dimensions as it is, to be refused."""
    return {role: None if spec is None else _counted(role, spec, case, entry) for role, spec in specs.items()}


def _counted(role: str, spec: TensorSpec, case: TestCase, entry: OperatorMapping) -> TensorSpec:
    rule = entry.swapped.get(role.partition(":")[2], (0, 0))
    one, two = ((-2, -1) if case.attributes.get(rule) else (0, 0)) if isinstance(rule, str) else rule
    if one == two or not all(-spec.rank <= dim < spec.rank for dim in (one, two)):
        return spec
    shape = list(spec.shape)
    strides = list(contiguous_strides(spec.shape) if spec.strides is None else spec.strides)
    for sizes in (shape, strides):
        sizes[one], sizes[two] = sizes[two], sizes[one]
    return TensorSpec(dtype=spec.dtype, shape=tuple(shape), strides=tuple(strides), offset=spec.offset)


def notes_of_attributes(case: TestCase, mapping: LibraryMapping) -> list[Check]:
    """For every attribute that C's float cannot hold, since the reference computes with the number itself."""
    entry = mapping.entry(case.descriptor)
    found: list[Check] = []
    if entry is None:
        return found
    narrow = [role for role in entry.roles() if role.kind == "attribute" and role.is_narrow]
    for role in dict.fromkeys(narrow):
        value = stated_value(case, entry, role.name)
        if isinstance(value, (int, float)) and _narrow(value) != value == value:
            detail = (
                f"{role.name} is {float(value)!r}, but C takes a float: {_narrow(value)!r}; "
                "the reference computes with the former"
            )
            found.append(Check(name="attributes as stated", state=CheckState.NOTE, detail=detail))
    return found


def _narrow(value: Any) -> float:
    return ctypes.c_float(float(value)).value


def as_c_takes_them(attributes: Mapping[str, Any], entry: OperatorMapping, descriptor: OperatorDescriptor) -> Any:
    """Attributes of a sample, rounded to C's float where C takes one, defaults that are not floats among them: so that
    a check asks for nothing that C cannot be told."""
    found = dict(attributes)
    known = {attribute.name: attribute.default for attribute in descriptor.attributes}
    named = {alias: each.name for each in descriptor.attributes for alias in (each.name, *each.aliases)}
    stated = {named[name] for name in found if name in named}
    for name in {role.name for role in entry.roles() if role.kind == "attribute" and role.is_narrow}:
        if name not in stated and isinstance(known.get(name), float) and _narrow(known[name]) != known[name]:
            found[name] = _narrow(known[name])
        for alias in found:
            if named.get(alias) == name and isinstance(found[alias], (int, float)):
                found[alias] = _narrow(found[alias])
    return found
