"""A case for an operator that is one function: what it cannot be asked, its attributes, and notes about them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from optest.clib.library.direct import DirectCall
from optest.clib.library.direct_arguments import Argument
from optest.clib.library.direct_binding import BoundCase, bind_case
from optest.clib.library.layouts import Gap
from optest.clib.library.limits import tensors_of
from optest.clib.library.mapping import LibraryMapping
from optest.clib.library.operands import BOUNDS, MISSING, choice_of, implied_value, stated_value
from optest.clib.library.requests import NO_REQUEST, CallRequest
from optest.spec import Check, CheckState, OperatorDescriptor, TensorSpec, TestCase

__all__ = [
    "as_requested",
    "attribute_values",
    "bound_case",
    "direct_lack",
    "names_unknown",
    "narrowed",
    "specs_of_case",
]

Layouts = Sequence[tuple[str, tuple[int, ...] | None, int]]
"""Strides and offset of outputs by name, as ``backend_config.ffi.outputs`` states them."""
_SINGLE = ("float32", "complex64")
_OF_TENSORS = ("elements", "ndim", "shape", "strides", "dtype", "descriptor")


def direct_lack(
    case: TestCase, mapping: LibraryMapping, layouts: Layouts, request: CallRequest = NO_REQUEST
) -> str | None:
    """Why no function of the mapping can be called for this case, in words; ``request`` is what is done otherwise in
    the call."""
    if case.expects_error is not None:
        why = _why_accepted(case, mapping, request)
        if why:
            return f"mapping {mapping.name}: {case.descriptor.name} {why}"
    try:
        specs = as_requested(specs_of_case(case, layouts), request)
        bound = bound_case(case, mapping, specs)
        if case.expects_error is not None:
            require_told(bound.entry, case, specs, request)
    except Gap as gap:
        return f"mapping {mapping.name}: {gap}"
    return None


def _why_accepted(case: TestCase, mapping: LibraryMapping, request: CallRequest) -> str:
    """Why nobody can expect that a call is refused; empty if one can."""
    if not mapping.status:
        return "is called without a status by which it could refuse"
    promised = {kind for entry in mapping.direct[case.descriptor.name] for kind in mapping.promised(entry)}
    mixed = len({argument.spec.dtype for argument in case.inputs}) > 1
    if not request and not promised & {"dtype" if mixed else "shape", "index"}:
        return "does not promise to refuse what does not fit (`refuses: [shape, dtype]`)"
    return ""


def specs_of_case(case: TestCase, layouts: Layouts) -> dict[str, TensorSpec | None]:
    """The tensors by role, outputs with the layouts that the case gives them."""
    names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
    outputs = dict(zip(names, case.outputs, strict=False))
    if not outputs and case.expects_error is not None:
        # Inputs that do not fit one another have no output: one like the first input stands for it.
        first = case.inputs[0].spec
        outputs = dict.fromkeys(case.descriptor.tensors.outputs[:1], TensorSpec(dtype=first.dtype, shape=first.shape))
    for name, strides, offset in layouts:
        if name not in outputs:
            raise Gap(f"the layout of {name} is stated, which the case does not have")
        spec = outputs[name]
        outputs[name] = TensorSpec(dtype=spec.dtype, shape=spec.shape, strides=strides, offset=offset)
    return {
        **{f"input:{each.name}": each.spec for each in case.inputs},
        **{f"output:{name}": spec for name, spec in outputs.items()},
    }


def bound_case(case: TestCase, mapping: LibraryMapping, specs: Mapping[str, TensorSpec | None]) -> BoundCase:
    """The function for a case, with its sizes and steps.

    Raises:
        Gap: if no function of the mapping can be told what the case is.
    """
    alternatives = mapping.direct[case.descriptor.name]
    attributes = dict(case.attributes)
    fitting = [entry for entry in alternatives if _passes_attributes(entry, case)]
    if not fitting:
        raise Gap(_unpassed(alternatives[-1], case))
    return bind_case(
        fitting,
        specs,
        attributes,
        from_lowest=mapping.negative_increments == "lowest",
        dtypes=mapping.dtypes,
        is_wrong=case.expects_error is not None,
    )


def _passes_attributes(entry: DirectCall, case: TestCase) -> bool:
    return not _unpassed(entry, case)


def _unpassed(entry: DirectCall, case: TestCase) -> str:
    """What is said of the first attribute that has another value than its default and that nobody passes, or a value
    that C cannot be told."""
    known = {role.name for role in entry.named() if role.kind == "attribute"}
    function = next(iter(entry.functions.values()))
    tensors = tensors_of(case) if entry.implied else {}
    for attribute in case.descriptor.attributes:
        value = case.attributes.get(attribute.name, attribute.default)
        if attribute.name in entry.implied:
            implied = implied_value(entry.implied[attribute.name], tensors)
            wanted = attribute.default if implied is None else implied
            if value != wanted:
                return f"{function} takes {wanted!r} for {attribute.name} without being told, but it is {value!r}"
        if attribute.name not in known and value != attribute.default:
            return f"{function} does not take the attribute {attribute.name}, which is {value!r}"
    for argument in _passed(entry):
        why = _why_untold(argument, _stated(case, entry, argument.name), entry)
        if why:
            said = case.attributes.get(argument.name)
            hint = "; left_out may say what is passed then" if said is None else ""
            return f"{function} takes {why} as {argument.name}, but it is {said!r}{hint}"
    return ""


def _passed(entry: DirectCall) -> list[Argument]:
    return [each for each in dict.fromkeys(entry.told()) if each.kind == "attribute"]


def _why_untold(argument: Argument, value: Any, entry: DirectCall) -> str:
    """What C takes instead of such a value; empty if it takes it. One number may stand in a list, as where dimensions
    are counted."""
    choices = entry.choices.get(argument.name)
    if choices is not None:
        return "" if choice_of(choices, value) is not MISSING else " or ".join(map(repr, choices))
    listed = value if isinstance(value, (list, tuple)) else (value,)
    is_number = all(isinstance(each, (int, float)) for each in listed)
    form = argument.array
    if form is not None:
        fits = is_number and (form.length is None or len(listed) in (1, form.length))
        return "" if fits else f"{'numbers' if form.length is None else f'one number or {form.length}'}"
    if argument.index is not None:
        fits = is_number and (len(listed) == 1 or argument.index < len(listed))
        return "" if fits else f"one number or {argument.index + 1} and more"
    return "" if is_number and len(listed) == 1 else "a number"


def _told(entry: DirectCall, case: TestCase, name: str) -> Any:
    """What C is told of an attribute: a number, a list of them, or a name of the headers."""
    value = _stated(case, entry, name)
    return choice_of(entry.choices[name], value) if name in entry.choices else value


def _stated(case: TestCase, entry: DirectCall, name: str) -> Any:
    """An attribute's value; the infinities for ``lowest`` and ``highest``."""
    value = stated_value(case, entry, name)
    return BOUNDS[value] if isinstance(value, str) and value in BOUNDS else value


def attribute_values(entry: DirectCall, case: TestCase) -> dict[str, Any]:
    """The attributes that are passed, by name; other values where the case leaves out what an output starts as, or
    the attribute itself. A text is a name of the headers."""
    return {each.name: _told(entry, case, each.name) for each in _passed(entry)}


def require_told(
    entry: DirectCall, case: TestCase, specs: Mapping[str, TensorSpec | None], request: CallRequest
) -> None:
    """A call can be refused for what C is told of it.

    Raises:
        Gap: naming the tensor of which C is not told what is wrong, or the argument that it does not have.
    """
    function = next(iter(entry.functions.values()))
    told = entry.told()
    tensors = [key.partition(":")[2] for key, spec in specs.items() if spec is not None]
    wanted = []
    if request.shapes or not case.outputs:
        wanted.append("shape")
    if request.dtypes or len({spec.dtype for spec in specs.values() if spec is not None}) > 1:
        wanted.append("dtype")
    for kind in wanted:
        for tensor in tensors:
            if not entry.is_told(kind, tensor):
                raise Gap(f"{function} is not told the {kind} of {tensor}, so it cannot refuse it")
    for key in request.null:
        has_it = {
            "handle": any(each.kind == "handle" for each in told),
            "descriptor": bool(entry.objects),
            "workspace": entry.workspace is not None,
        }
        if not has_it.get(key, key != f"output:{entry.returns}"):
            raise Gap(f"{function} takes no {key}")
    for key in request.null_descriptor:
        tensor = key.partition(":")[2]
        if not any(each.name == tensor and (each.kind == "descriptor" or each.as_tensor) for each in told):
            raise Gap(f"{function} takes no descriptor of {tensor}")
    if request.short_workspace and entry.workspace is None:
        raise Gap(f"{function} takes no workspace")


def as_requested(specs: Mapping[str, TensorSpec | None], request: CallRequest) -> dict[str, TensorSpec | None]:
    """The outputs in another dtype or shape than follows from the inputs, where a case asks for it."""
    found = dict(specs)
    for key in (*request.dtypes, *request.shapes):
        spec = found.get(key)
        if spec is not None:
            found[key] = TensorSpec(
                dtype=request.dtypes.get(key, spec.dtype), shape=request.shapes.get(key, spec.shape)
            )
    return found


def narrowed(entry: DirectCall, case: TestCase) -> list[Check]:
    """A note for every attribute that C's float cannot hold, since the reference computes with the number itself."""
    is_single = bool(case.inputs) and case.inputs[0].spec.dtype.name in _SINGLE
    found = []
    for argument in _passed(entry):
        form = argument.array
        if form is not None and form.element != "float":
            continue
        if form is not None or (argument.type == "float" or (argument.type == "scalar" and is_single)):
            stated = _told(entry, case, argument.name)
            if isinstance(stated, str) or argument.name in entry.choices:
                continue
            for value in map(float, stated if isinstance(stated, (list, tuple)) else (stated,)):
                narrow = ctypes.c_float(value).value
                if narrow != value == value:
                    said = f"{argument.name} is {value!r}, but C takes a float: {narrow!r}; the reference computes with"
                    found.append(Check(name="attributes as stated", state=CheckState.NOTE, detail=f"{said} the former"))
    return found


def names_unknown(entry: DirectCall, descriptor: OperatorDescriptor) -> list[str]:
    """What a mapping names and optest's operator does not have."""
    inputs, outputs = [each.name for each in descriptor.tensors.inputs], list(descriptor.tensors.outputs)
    known = {
        "input": inputs,
        "output": outputs,
        "attribute": [each.name for each in descriptor.attributes],
        "tensor": [*inputs, *outputs],
    }
    start = entry.starts_as
    stated = [(role.kind, role.name) for role in entry.named() if role.kind in known]
    stated += [("tensor", name) for name in (*entry.dims, *entry.swapped)]
    stated += [("tensor", each.name) for each in entry.told() if each.kind in _OF_TENSORS]
    stated += [("attribute", each.name) for each in entry.told() if each.kind == "count"]
    stated += [("input", name) for name in (*entry.in_place, *entry.indexes)]
    stated += [("tensor", name) for name in entry.dtypes_of]
    stated += [("attribute", name) for name in (start.without if start else ())]
    return [
        f"{descriptor.name} has no {kind} {name!r}; it has {', '.join(known[kind]) or 'none'}"
        for kind, name in dict.fromkeys(stated)
        if name not in known[kind]
    ]
