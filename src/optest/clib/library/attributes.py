"""What C is told of a case's attributes: values, numbers in place of them, and in words what it cannot be told."""

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
    """An attribute's value, with what the mapping puts in place of none and of an input that is left out."""
    for start in entry.starts:
        if name in start.without and all(each.name != start.input for each in case.inputs):
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
    """The attributes that are passed, by name: numbers, lists of them, or names of the headers."""
    return {each.name: _passed_value(entry, case, each.name) for each in entry.read.attributes}


def _passed_value(entry: OperatorMapping, case: TestCase, name: str) -> Any:
    value = value_with_defaults(case, entry, name)
    if name in entry.choices:
        return _choice_of(entry.choices[name], value)
    return BOUNDS.get(value, value) if isinstance(value, str) else value


def _choice_of(choices: Mapping[Any, Any], value: Any) -> Any:
    """What stands for ``value``; True is not 1 here."""
    found = (passed for stated, passed in choices.items() if stated == value and type(stated) is type(value))
    return next(found, _MISSING)


def always(case: TestCase, entry: OperatorMapping) -> dict[str, Any]:
    """What a mapping states of attributes, as the operator reads it: 5 for [5]."""
    return {name: case.descriptor.attribute(name).read(value) for name, value in entry.always.items()}


def require_attributes(case: TestCase, entry: OperatorMapping, first: TensorSpec | None) -> None:
    """C can be told what the attributes are, or does by itself what they say; ``first`` is the first input.

    Raises:
        Gap: naming the attribute and its value.
    """
    function = entry.any_function
    for name, values in entry.when.items():
        value = case.attributes.get(name)
        if not any(_is(value, each, first) for each in (values if isinstance(values, list) else [values])):
            raise Gap(f"{function} has no {name} of {value!r}")
    # What is not passed has to be what C takes by itself.
    by_name = tensors_of(case) if entry.implied else {}
    for attribute in case.descriptor.attributes:
        name, default = attribute.name, attribute.default
        value = case.attributes.get(name, default)
        if name in entry.implied:
            implied = _implied_value(entry.implied[name], by_name)
            required = default if implied is None else implied
            if value != required:
                raise Gap(f"{function} takes {required!r} for {name} without being told, but it is {value!r}")
            continue
        is_free = name in entry.read.known_attributes and name not in entry.always
        if not is_free and value != default and not (name in entry.always and value == always(case, entry)[name]):
            raise Gap(f"{function} does not take the attribute {name}, which is {value!r}")
    tensors = [*(each.spec for each in case.inputs), *case.outputs]
    is_wide = case.expects_error is None and any(spec.dtype.name == "float64" for spec in tensors)
    for argument in entry.read.attributes:
        value = _passed_value(entry, case, argument.name) if argument.name not in entry.choices else None
        taken = _taken_instead(argument, value_with_defaults(case, entry, argument.name), entry)
        if taken:
            given = case.attributes.get(argument.name)
            hint = "; left_out may say what is passed then" if given is None else ""
            raise Gap(f"{function} takes {taken} as {argument.name}, but it is {given!r}{hint}")
        if is_wide and argument.type == "float" and isinstance(value, (int, float)) and not _is_float(value):
            raise Gap(
                f"the attribute {argument.name} is {value!r}, but C takes a float, which is too coarse beside float64; "
                f"state {_narrow(value)!r}"
            )
    # Attributes that C has as tensors are numbers which these can hold, and one of them at least is there.
    made = entry.read.made_tensors
    for name in made:
        value = value_with_defaults(case, entry, name)
        kind = (case.outputs[0] if case.outputs else case.inputs[0].spec).dtype  # outputs may not follow from inputs
        if not isinstance(value, (int, float)) and value not in BOUNDS:
            raise Gap(f"the attribute {name} is {value!r}, but C takes a tensor of a number")
        if not kind.is_inexact and not isinstance(value, str) and not _is_held(value, kind):
            raise Gap(f"the attribute {name} is {value!r}, which {kind} cannot hold in a tensor")
    if made and all(case.attributes.get(name) is None for name in made):
        raise Gap(f"{' and '.join(made)} are none, so there is nothing to pass")


def _is(value: Any, required: Any, first: TensorSpec | None) -> bool:
    """``last`` is the first input's last dimension, counted from either end, perhaps in a list."""
    if required != LAST or first is None:
        return bool(value == required)
    one = value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value
    return type(one) is int and one in (-1, first.rank - 1)


def _implied_value(rule: Any, tensors: Mapping[str, TensorSpec]) -> Any:
    """A value, or sizes of tensors: ``[input[-1]]``; a size that is not there is None."""
    if isinstance(rule, (list, tuple)):
        return tuple(_implied_value(each, tensors) for each in rule)
    size = SIZE.fullmatch(rule) if isinstance(rule, str) else None
    if size is None:
        return rule
    spec = tensors.get(size["name"])
    if spec is None or size["dim"] is None:
        return None if spec is None else spec.dtype.name
    dim = int(size["dim"])
    return spec.shape[dim] if -spec.rank <= dim < spec.rank else None


def _taken_instead(argument: Argument, value: Any, entry: OperatorMapping) -> str:
    """What C takes instead of such a value; empty if it takes it. One number may stand in a list, as where dimensions
    are counted."""
    choices = entry.choices.get(argument.name)
    if choices is not None:
        return "" if _choice_of(choices, value) is not _MISSING else " or ".join(map(repr, choices))
    value = BOUNDS.get(value, value) if isinstance(value, str) else value
    listed = value if isinstance(value, (list, tuple)) else (value,)
    is_number = all(isinstance(each, (int, float)) for each in listed)
    form = argument.array
    if form is not None:
        fits = is_number and (form.length is None or len(listed) in (1, form.length))
        return "" if fits else "numbers" if form.length is None else f"one number or {form.length}"
    if argument.index is not None:
        fits = is_number and (len(listed) == 1 or argument.index < len(listed))
        return "" if fits else f"one number or {argument.index + 1} and more"
    return "" if is_number and len(listed) == 1 else "a number"


def whole_limits(kind: DType) -> tuple[int, int]:
    """The smallest and the largest number of a dtype without fractions."""
    return kind.min_int, kind.max_int if kind.is_integer else 1


def _is_held(value: Any, kind: DType) -> bool:
    low, high = whole_limits(kind)
    return bool(low <= value <= high and value == value // 1)


def notes_of_attributes(entry: OperatorMapping, case: TestCase) -> list[Check]:
    """A note for every attribute that C's float cannot hold, since the reference computes with the number itself."""
    is_single = bool(case.inputs) and case.inputs[0].spec.dtype.name in _SINGLE
    found = []
    for argument in entry.read.attributes:
        type_ = argument.type if argument.array is None else argument.array.element
        if argument.name in entry.choices or not (type_ == "float" or (type_ == "scalar" and is_single)):
            continue
        passed = _passed_value(entry, case, argument.name)
        for value in passed if isinstance(passed, (list, tuple)) else (passed,):
            if not _is_float(value):
                detail = (
                    f"{argument.name} is {float(value)!r}, but C takes a float: {_narrow(value)!r}; "
                    "the reference computes with the former"
                )
                found.append(Check(name="attributes as stated", state=CheckState.NOTE, detail=detail))
    return found


def _is_float(value: Any) -> bool:
    """Whether C's float holds the number, or it is none."""
    return bool(_narrow(value) == float(value)) or value != value


def _narrow(value: Any) -> float:
    return ctypes.c_float(float(value)).value


def as_c_takes_them(attributes: Mapping[str, Any], entry: OperatorMapping, descriptor: OperatorDescriptor) -> Any:
    """Attributes of a sample, rounded to C's float where C takes one, defaults that are not floats among them: so that
    a check asks for nothing that C cannot be told."""
    found = dict(attributes)
    floats = {each.name for each in entry.read.attributes if each.type == "float"}
    for attribute in descriptor.attributes:
        default = attribute.default
        stated = [name for name in (attribute.name, *attribute.aliases) if name in found]
        if attribute.name in floats and not stated and isinstance(default, float) and _narrow(default) != default:
            found[attribute.name] = _narrow(default)
        for name in stated if attribute.name in floats else ():
            if isinstance(found[name], (int, float)):
                found[name] = _narrow(found[name])
    return found
