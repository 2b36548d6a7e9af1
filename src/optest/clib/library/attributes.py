"""Attribute values that C receives, and the reasons why a function cannot take a value."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from typing import Any

from optest.clib.library.arguments import Argument
from optest.clib.library.layouts import Gap, tensors_of
from optest.clib.library.mapping_words import SIZE
from optest.clib.library.operator_mapping import LAST, OperatorMapping
from optest.spec import Check, CheckState, DType, OperatorDescriptor, TensorSpec, TestCase

BOUNDS = {"lowest": -math.inf, "highest": math.inf}
_MISSING = object()
_SINGLE = ("float32", "complex64")


def value_with_defaults(case: TestCase, entry: OperatorMapping, name: str) -> Any:
    """Return an attribute's value; if it is None or belongs to an omitted input, the mapping's replacement."""
    for start in entry.starts:
        if name in start.without and all(arg.name != start.input for arg in case.inputs):
            return start.without[name]
    value = case.attributes.get(name)
    if value is not None:
        return value
    instead = entry.left_out.get(name)
    if isinstance(instead, Mapping):
        first = case.inputs[0].spec.dtype.name if case.inputs else ""
        return instead.get(first, instead.get("other"))
    return instead


def attribute_values(entry: OperatorMapping, case: TestCase) -> dict[str, Any]:
    """Return the values of the passed attributes by name: numbers, lists of them, or names from the headers."""
    return {arg.name: _passed_value(entry, case, arg.name) for arg in entry.read.attributes}


def _passed_value(entry: OperatorMapping, case: TestCase, name: str) -> Any:
    value = value_with_defaults(case, entry, name)
    if name in entry.choices:
        return _choose(entry.choices[name], value)
    return BOUNDS.get(value, value) if isinstance(value, str) else value


def _choose(choices: Mapping[Any, Any], value: Any) -> Any:
    """Return the choice for ``value``, by type too (True is not 1); _MISSING if nothing matches."""
    matches = (passed for choice, passed in choices.items() if choice == value and type(choice) is type(value))
    return next(matches, _MISSING)


def always(case: TestCase, entry: OperatorMapping) -> dict[str, Any]:
    """Return the attributes that the mapping fixes (``always``), in the operator's canonical form: 5 for [5]."""
    return {name: case.descriptor.attribute(name).read(value) for name, value in entry.always.items()}


def require_attributes(case: TestCase, entry: OperatorMapping, first: TensorSpec | None) -> None:
    """Raise Gap if an attribute's value cannot be passed and is not C's default; ``first`` is the first input."""
    function = entry.any_function
    for name, values in entry.when.items():
        value = case.attributes.get(name)
        if not any(
            _equals_required(value, required_value, first)
            for required_value in (values if isinstance(values, list) else [values])
        ):
            raise Gap(f"{function} has no {name} of {value!r}")
    # An attribute that is not passed must have the value that C assumes.
    by_name = tensors_of(case) if entry.implied else {}
    for attribute in case.descriptor.attributes:
        name, default = attribute.name, attribute.default
        value = case.attributes.get(name, default)
        if name in entry.implied:
            implied = _implied_value(entry.implied[name], by_name)
            required = default if implied is None else implied
            if value != required:
                raise Gap(f"{function} always uses {required!r} for {name}, but the case has {value!r}")
            continue
        is_free = name in entry.read.known_attributes and name not in entry.always
        if not is_free and value != default and not (name in entry.always and value == always(case, entry)[name]):
            raise Gap(f"{function} does not take the attribute {name}, which is {value!r}")
    tensors = [*(arg.spec for arg in case.inputs), *case.outputs]
    is_wide = case.expects_error is None and any(spec.dtype.name == "float64" for spec in tensors)
    for argument in entry.read.attributes:
        value = _passed_value(entry, case, argument.name) if argument.name not in entry.choices else None
        taken = _accepted_instead(argument, value_with_defaults(case, entry, argument.name), entry)
        if taken:
            original = case.attributes.get(argument.name)
            hint = "; left_out in the mapping can set a replacement" if original is None else ""
            raise Gap(f"{function} takes {taken} as {argument.name}, but it is {original!r}{hint}")
        if is_wide and argument.type == "float" and isinstance(value, (int, float)) and not _is_float(value):
            raise Gap(
                f"the attribute {argument.name} is {value!r}, which C rounds to float, too coarse for float64; "
                f"write {_as_c_float(value)!r}"
            )
    # A tensor made from an attribute must hold its number, and at least one such attribute must be set.
    as_tensors = entry.read.made_tensors
    for name in as_tensors:
        value = value_with_defaults(case, entry, name)
        kind = (case.outputs[0] if case.outputs else case.inputs[0].spec).dtype  # outputs may not follow from inputs
        if not isinstance(value, (int, float)) and value not in BOUNDS:
            raise Gap(f"the attribute {name} is {value!r}, but C takes a tensor of a number")
        if not kind.is_inexact and not isinstance(value, str) and not _fits_integer(value, kind):
            raise Gap(f"the attribute {name} is {value!r}, which {kind} cannot hold in a tensor")
    if as_tensors and all(case.attributes.get(name) is None for name in as_tensors):
        raise Gap(f"{' and '.join(as_tensors)} are None, expected a number for at least one")


def _equals_required(value: Any, required: Any, first: TensorSpec | None) -> bool:
    """Return whether the values are equal; ``last`` is the first input's last dimension, counted from either end."""
    if required != LAST or first is None:
        return bool(value == required)
    axis = value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
    return type(axis) is int and axis in (-1, first.rank - 1)


def _implied_value(rule: Any, tensors: Mapping[str, TensorSpec]) -> Any:
    """Resolve an ``implied`` rule to a size or dtype of a tensor (None if missing), or to the value itself."""
    if isinstance(rule, (list, tuple)):
        return tuple(_implied_value(part, tensors) for part in rule)
    size = SIZE.fullmatch(rule) if isinstance(rule, str) else None
    if size is None:
        return rule
    spec = tensors.get(size["name"])
    if spec is None or size["dim"] is None:
        return None if spec is None else spec.dtype.name
    dim = int(size["dim"])
    return spec.shape[dim] if -spec.rank <= dim < spec.rank else None


def _accepted_instead(argument: Argument, value: Any, entry: OperatorMapping) -> str:
    """Return the values that C accepts instead of ``value``, in words; empty if it accepts ``value``."""
    choices = entry.choices.get(argument.name)
    if choices is not None:
        return "" if _choose(choices, value) is not _MISSING else " or ".join(map(repr, choices))
    value = BOUNDS.get(value, value) if isinstance(value, str) else value
    # One number may be in a list, as dimensions often are.
    listed = value if isinstance(value, (list, tuple)) else (value,)
    is_number = all(isinstance(number, (int, float)) for number in listed)
    form = argument.array
    if form is not None:
        fits = is_number and (form.length is None or len(listed) in (1, form.length))
        return "" if fits else "numbers" if form.length is None else f"one number or {form.length}"
    if argument.index is not None:
        fits = is_number and (len(listed) == 1 or argument.index < len(listed))
        return "" if fits else f"one number or {argument.index + 1} and more"
    return "" if is_number and len(listed) == 1 else "a number"


def whole_limits(kind: DType) -> tuple[int, int]:
    """Return the smallest and the largest number of an integer dtype or bool."""
    return kind.min_int, kind.max_int if kind.is_integer else 1


def _fits_integer(value: Any, kind: DType) -> bool:
    low, high = whole_limits(kind)
    return bool(low <= value <= high and value == value // 1)


def notes_of_attributes(entry: OperatorMapping, case: TestCase) -> list[Check]:
    """Return a note for each attribute that C's float rounds; the reference computes with the exact number."""
    is_single = bool(case.inputs) and case.inputs[0].spec.dtype.name in _SINGLE
    notes = []
    for argument in entry.read.attributes:
        type_ = argument.type if argument.array is None else argument.array.element
        if argument.name in entry.choices or not (type_ == "float" or (type_ == "scalar" and is_single)):
            continue
        passed = _passed_value(entry, case, argument.name)
        for value in passed if isinstance(passed, (list, tuple)) else (passed,):
            if not _is_float(value):
                detail = (
                    f"{argument.name} is {float(value)!r}, but C takes a float: {_as_c_float(value)!r}; "
                    "the reference computes with the former"
                )
                notes.append(Check(name="attributes as stated", state=CheckState.NOTE, detail=detail))
    return notes


def _is_float(value: Any) -> bool:
    """Return whether a C float holds the number exactly, or it is NaN."""
    return bool(_as_c_float(value) == float(value)) or value != value


def _as_c_float(value: Any) -> float:
    return ctypes.c_float(float(value)).value


def as_c_takes_them(attributes: Mapping[str, Any], entry: OperatorMapping, descriptor: OperatorDescriptor) -> Any:
    """Return a sample's attributes, defaults included, with C float arguments rounded to float."""
    # Kernel and reference then compute with the same number.
    values = dict(attributes)
    floats = {arg.name for arg in entry.read.attributes if arg.type == "float"}
    for attribute in descriptor.attributes:
        default = attribute.default
        names = [name for name in (attribute.name, *attribute.aliases) if name in values]
        if attribute.name in floats and not names and isinstance(default, float) and _as_c_float(default) != default:
            values[attribute.name] = _as_c_float(default)
        for name in names if attribute.name in floats else ():
            if isinstance(values[name], (int, float)):
                values[name] = _as_c_float(values[name])
    return values
