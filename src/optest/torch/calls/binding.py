"""Bind a torch call to the catalogue's operator of that name, so that the operator's rule applies to the call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from optest.backends.arguments import Schema
from optest.errors import UnknownName
from optest.numerics import dtype_of
from optest.spec import DType, OperatorDescriptor, dtype
from optest.spec.call_names import OPERATORS_OF_PYTHON
from optest.spec.calls import Call, Device, TensorRef, TorchName, parse_call
from optest.torch.calls.names import find_callable


class CannotBind(ValueError):
    """Error for a call with an argument that the catalogue's operator does not have."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The operator's inputs, None for an omitted one, and its attributes."""

    inputs: list[Any]
    attributes: Mapping[str, Any]


def bind_call(operator: OperatorDescriptor, text: str, inputs: Sequence[Any]) -> Bound:
    """Return the call's tensors in the order of the operator's inputs, and its other arguments as attributes.

    Raises:
        CannotBind: for an argument that the operator does not have, or that has another type there.
    """
    call = parse_call(text)
    arguments = _operands(operator, call)
    if not arguments:
        arguments = {_CATALOGUE_NAMES.get(name, name): value for name, value in named_arguments(call).items()}
        if call.spelled.is_reflected:
            arguments["input"], arguments["other"] = arguments.get("other"), arguments.get("input")
    for name in _NO_EFFECT_ON_RESULT:
        arguments.pop(name, None)
    names = {attribute.name for attribute in operator.attributes}
    if "dtype" in arguments and "dtype" not in names:
        _require_no_narrower(arguments.pop("dtype"), inputs)
    tensors: list[Any] = []
    for parameter in operator.tensors.inputs:
        value = arguments.pop(parameter.name, None)
        values = value if parameter.variadic and isinstance(value, (list, tuple)) else [value]
        tensors += [_operand_value(operand, inputs) for operand in values]
    attributes = {name: _attribute_value(value) for name, value in arguments.items() if name in names}
    unknown = [
        name for name, value in arguments.items() if name not in names and (value is True or value not in _DEFAULTS)
    ]
    if unknown:
        raise CannotBind(f"{operator.name} of the catalogue has no {unknown[0]}, which {call.function} sets")
    try:
        return Bound(tensors, operator.bind({name: value for name, value in attributes.items() if value is not None}))
    except (ValueError, LookupError) as error:
        raise CannotBind(str(error)) from None


def _operands(operator: OperatorDescriptor, call: Call) -> dict[str, Any]:
    """Return the operands of a Python operator by input name; {} for other calls and those with further arguments."""
    spelled, parameters = call.spelled, operator.tensors.inputs
    is_plain = not call.kwargs and len(call.args) == len(parameters)
    if spelled.operator not in OPERATORS_OF_PYTHON or not is_plain:
        return {}
    args = call.args[::-1] if spelled.is_reflected else call.args
    return {parameter.name: value for parameter, value in zip(parameters, args, strict=True)}


def _require_no_narrower(requested: Any, inputs: Sequence[Any]) -> None:
    """Raise CannotBind if the requested dtype is less precise than an input; a wider one changes no result."""
    if not isinstance(requested, TorchName):
        return
    target = _catalogue_dtype(requested)
    wider = [entry for entry in map(dtype_of, {array.dtype for array in inputs}) if entry.precision > target.precision]
    if wider:
        raise CannotBind(f"dtype={requested.name} rounds the operands, which are {wider[0]}")


_CATALOGUE_NAMES = {"self": "input", "axis": "dim", "a": "input", "b": "other", "mat1": "input"}
# inplace selects where the result is stored, momentum how fast running statistics change.
_NO_EFFECT_ON_RESULT = ("inplace", "momentum")
_DEFAULTS = (None, False, 1)


def _operand_value(value: Any, inputs: Sequence[Any]) -> Any:
    """Return the input of a reference, or a number as an array; None for other values."""
    if isinstance(value, TensorRef):
        return inputs[value.index]
    if isinstance(value, (bool, int, float, complex)) and inputs:
        # torch may keep a number in float32 next to tensors of 16 bits.
        entry = dtype_of(inputs[0].dtype)
        if isinstance(value, complex) and not entry.is_complex:
            return np.asarray(value, dtype=np.complex128 if entry.name == "float64" else np.complex64)
        if isinstance(value, float) and (not entry.is_inexact or entry.bits < 32):
            return np.asarray(value, dtype=np.float32)
        return np.asarray(value, dtype=inputs[0].dtype)
    return None


def _attribute_value(value: Any) -> Any:
    """Convert an argument to an attribute's type: dtype to its name, list to tuple; refuse tensors and devices."""
    if isinstance(value, TorchName):
        return _catalogue_dtype(value).name
    if isinstance(value, (TensorRef, Device)):
        raise CannotBind(f"an attribute of the catalogue's operator is {value}, expected a plain value")
    return tuple(value) if isinstance(value, list) else value


def _catalogue_dtype(name: TorchName) -> DType:
    try:
        return dtype(name.name.removeprefix("torch."))
    except UnknownName:
        raise CannotBind(f"{name.name} is no dtype of the catalogue") from None


def named_arguments(call: Call) -> dict[str, Any]:
    """Return all arguments by torch's parameter names.

    Raises:
        CannotBind: if torch does not tell these names.
    """
    function = find_callable(call.function)
    names = _python_names(function)
    if not names:
        # The first aten overload that accepts the arguments.
        packet = None if "::" in call.operator else getattr(torch.ops.aten, call.operator, None)
        schema = None if packet is None else schema_that_takes(call, packet)
        names = None if schema is None else tuple(a.name for a in schema.arguments if not a.kwarg_only)
    if names is None or len(call.args) > len(names):
        raise CannotBind(f"the names of the arguments of {call.function} are not known")
    return {**dict(zip(names, call.args, strict=False)), **call.kwargs}


@lru_cache(maxsize=1024)
def _python_names(function: Callable[..., Any]) -> tuple[str, ...] | None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return tuple(p.name for p in parameters)


def overloads_of(function: Callable[..., Any]) -> list[inspect.Signature]:
    """Return a signature of a C++ function for each aten overload that returns tensors and has no ``out=``; [] if
    there is no such operator.
    """
    packet = getattr(torch.ops.aten, getattr(function, "__name__", ""), None)
    signatures = []
    for schema in [getattr(packet, name)._schema for name in (packet.overloads() if packet else ())]:
        if any(a.is_out for a in schema.arguments) or not any("Tensor" in str(r.type) for r in schema.returns):
            continue
        parameters = []
        for argument in schema.arguments:
            name = "input" if argument.name == "self" else argument.name
            kind = inspect.Parameter.KEYWORD_ONLY if argument.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
            default = argument.default_value if argument.has_default_value() else inspect.Parameter.empty
            parameters.append(inspect.Parameter(name, kind, default=default, annotation=Schema(argument.type)))
        signatures.append(inspect.Signature(parameters))
    return signatures


def schema_that_takes(call: Call, packet: Any) -> Any:
    """Return the schema of the first overload that accepts the arguments; None if no overload does."""
    schemas = (getattr(packet, name)._schema for name in packet.overloads())
    return next((schema for schema in schemas if _accepts(schema, call)), None)


# Python's names for ``self`` and ``dim`` of a schema.
_PYTHON_NAMES = {"input", "axis"}


def _accepts(schema: Any, call: Call) -> bool:
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    names = {argument.name for argument in schema.arguments}
    needed = {argument.name for argument in schema.arguments if argument.is_out}
    return (
        len(call.args) <= len(positional)
        and needed <= {*call.kwargs} <= names | _PYTHON_NAMES
        and all(_fits(value, str(argument.type)) for value, argument in zip(call.args, positional, strict=False))
    )


def _fits(value: Any, kind: str) -> bool:
    """Return whether a value suits a schema type, by tensors only: tensors and lists of them need a tensor type."""
    if isinstance(value, TensorRef):
        return "Tensor" in kind
    if isinstance(value, (list, tuple)) and (not value or any(isinstance(part, TensorRef) for part in value)):
        return not value or "List[Tensor]" in kind or "List[Optional[Tensor]]" in kind
    return value is None or "Tensor" not in kind
