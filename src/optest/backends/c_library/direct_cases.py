"""A case for an operator that is one function: what it cannot be asked, its attributes, and notes about them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from optest.backends.c_library.direct import DirectCall
from optest.backends.c_library.direct_binding import BoundCase, bind_case
from optest.backends.c_library.layouts import Gap
from optest.backends.c_library.mapping import LibraryMapping
from optest.backends.c_library.operands import choice_of, stated_value
from optest.spec import Check, CheckState, OperatorDescriptor, TensorSpec, TestCase

__all__ = ["attribute_values", "bound_case", "direct_lack", "names_unknown", "narrowed", "specs_of_case"]

Layouts = Sequence[tuple[str, tuple[int, ...] | None, int]]
"""Strides and offset of outputs by name, as ``backend_config.ffi.outputs`` states them."""
_SINGLE = ("float32", "complex64")


def direct_lack(case: TestCase, mapping: LibraryMapping, layouts: Layouts) -> str | None:
    """Why no function of the mapping can be called for this case, in words."""
    if case.expects_error is not None:
        if mapping.status:
            return f"mapping {mapping.name}: {case.descriptor.name} is one function, and such are not called wrongly"
        return f"mapping {mapping.name}: {case.descriptor.name} is called without a status by which it could refuse"
    specs = specs_of_case(case, layouts)
    try:
        bound_case(case, mapping, specs)
    except Gap as gap:
        return f"mapping {mapping.name}: {gap}"
    return None


def specs_of_case(case: TestCase, layouts: Layouts) -> dict[str, TensorSpec | None]:
    """The tensors by role, outputs with the layouts that the case gives them."""
    names = case.descriptor.tensors.output_names(len(case.outputs)) or ()
    outputs = dict(zip(names, case.outputs, strict=False))
    for name, strides, offset in layouts:
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
    return bind_case(fitting, specs, attributes, from_lowest=mapping.negative_increments == "lowest")


def _passes_attributes(entry: DirectCall, case: TestCase) -> bool:
    return not _unpassed(entry, case)


def _unpassed(entry: DirectCall, case: TestCase) -> str:
    """What is said of the first attribute that has another value than its default and that nobody passes, or a value
    that C cannot be told."""
    known = {role.name for role in entry.named() if role.kind == "attribute"}
    function = next(iter(entry.functions.values()))
    for attribute in case.descriptor.attributes:
        value = case.attributes.get(attribute.name, attribute.default)
        if attribute.name not in known and value != attribute.default:
            return f"{function} does not take the attribute {attribute.name}, which is {value!r}"
    for name in _passed(entry):
        value = _told(entry, case, name)
        if not isinstance(value, (int, float, str)) or (isinstance(value, str) and name not in entry.choices):
            said = case.attributes[name]
            hint = "; left_out may say what is passed then" if said is None else ""
            wanted = " or ".join(map(repr, entry.choices[name])) if name in entry.choices else "a number"
            return f"{function} takes {wanted} as {name}, but it is {said!r}{hint}"
    return ""


def _passed(entry: DirectCall) -> list[str]:
    return [each.name for each in entry.arguments() if each.kind == "attribute"]


def _told(entry: DirectCall, case: TestCase, name: str) -> Any:
    """What C is told of an attribute: a number, a name of the headers, or anything else that it cannot be told.

    One number may stand in a list, as where dimensions are counted.
    """
    value = stated_value(case, entry, name)
    if name in entry.choices:
        return choice_of(entry.choices[name], value)
    return value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value


def attribute_values(entry: DirectCall, case: TestCase) -> dict[str, Any]:
    """The attributes that are passed, by name; other values where the case leaves out what an output starts as, or
    the attribute itself. A text is a name of the headers."""
    return {name: _told(entry, case, name) for name in _passed(entry)}


def narrowed(entry: DirectCall, case: TestCase) -> list[Check]:
    """A note for every attribute that C's float cannot hold, since the reference computes with the number itself."""
    is_single = bool(case.inputs) and case.inputs[0].spec.dtype.name in _SINGLE
    found = []
    for argument in entry.arguments():
        if argument.kind == "attribute" and (argument.type == "float" or (argument.type == "scalar" and is_single)):
            value = _told(entry, case, argument.name)
            if isinstance(value, str) or argument.name in entry.choices:
                continue
            value = float(value)
            narrow = ctypes.c_float(value).value
            if narrow != value == value:
                said = f"{argument.name} is {value!r}, but C takes a float: {narrow!r}; the reference computes with the"
                found.append(Check(name="attributes as stated", state=CheckState.NOTE, detail=f"{said} former"))
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
    stated = [(role.kind, role.name) for role in entry.named()]
    stated += [("tensor", name) for name in (*entry.dims, *entry.swapped)]
    stated += [("tensor", each.name) for each in entry.arguments() if each.kind in ("ndim", "shape", "strides")]
    stated += [("input", name) for name in entry.in_place]
    stated += [("attribute", name) for name in (start.without if start else ())]
    return [
        f"{descriptor.name} has no {kind} {name!r}; it has {', '.join(known[kind]) or 'none'}"
        for kind, name in dict.fromkeys(stated)
        if name not in known[kind]
    ]
