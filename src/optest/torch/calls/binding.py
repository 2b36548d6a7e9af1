"""A call of torch as an operator of the catalogue, whose names are torch's own: so that its rule can judge the call."""

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
from optest.torch.calls.names import find


class CannotBind(ValueError):
    """A call that says something for which the catalogue's operator has no word."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The operator's inputs, None for one that is left out, and its attributes."""

    inputs: list[Any]
    attributes: Mapping[str, Any]


def bound(operator: OperatorDescriptor, text: str, inputs: Sequence[Any]) -> Bound:
    """Return the call's tensors at the places of the operator's inputs, and the rest as its attributes.

    Raises:
        CannotBind: for an argument that the operator does not have, or that has another type there.
    """
    call = parse_call(text)
    given = _operands(operator, call)
    if not given:  # the arguments by the names that the catalogue has for them
        given = {_OTHER_NAMES.get(name, name): value for name, value in named_arguments(call).items()}
        if call.spelled.is_reflected:
            given["input"], given["other"] = given.get("other"), given.get("input")
    for name in _CHANGES_NO_RESULT:
        given.pop(name, None)
    if "dtype" in given and all(each.name != "dtype" for each in operator.attributes):
        _require_no_narrower(given.pop("dtype"), inputs)
    taken: list[Any] = []
    for parameter in operator.tensors.inputs:
        value = given.pop(parameter.name, None)
        if parameter.variadic:
            taken += [_tensor(each, inputs) for each in (value if isinstance(value, (list, tuple)) else [value])]
        else:
            taken.append(_tensor(value, inputs))
    defaults = {each.name for each in operator.attributes}
    stated = {name: _plain(value) for name, value in given.items() if name in defaults}
    strange = [
        name for name, value in given.items() if name not in defaults and (value is True or value not in _SAYS_NOTHING)
    ]
    if strange:
        raise CannotBind(f"{operator.name} of the catalogue has no {strange[0]}, which {call.function} states")
    try:
        return Bound(taken, operator.bind({name: value for name, value in stated.items() if value is not None}))
    except (ValueError, LookupError) as error:
        raise CannotBind(str(error)) from None


def _operands(operator: OperatorDescriptor, call: Call) -> dict[str, Any]:
    """The operands of one of Python's operators by their places; {} for a call that says more, or another one."""
    spelled, parameters = call.spelled, operator.tensors.inputs
    is_plain = not call.kwargs and len(call.args) == len(parameters)
    if spelled.operator not in OPERATORS_OF_PYTHON or not is_plain:
        return {}
    args = call.args[::-1] if spelled.is_reflected else call.args
    return {each.name: value for each, value in zip(parameters, args, strict=True)}


def _require_no_narrower(stated: Any, inputs: Sequence[Any]) -> None:
    """To convert to a wider dtype first changes nothing; to a narrower one rounds the operands."""
    if not isinstance(stated, TorchName):
        return
    target = _dtype_called(stated)
    narrower = [each for each in map(dtype_of, {array.dtype for array in inputs}) if each.precision > target.precision]
    if narrower:
        raise CannotBind(f"dtype={stated.name} rounds the operands, which are {narrower[0]}")


_OTHER_NAMES = {"self": "input", "tensors": "tensors", "axis": "dim", "a": "input", "b": "other", "mat1": "input"}
_CHANGES_NO_RESULT = ("inplace", "momentum")
"""Where the result goes, and how fast running statistics follow."""

_SAYS_NOTHING = (None, False, 1)


def _tensor(value: Any, inputs: Sequence[Any]) -> Any:
    if isinstance(value, TensorRef):
        return inputs[value.index]
    if isinstance(value, (bool, int, float, complex)) and inputs:
        # As precise as torch may read a number beside tensors of this dtype: in float32 beside 16 bits.
        entry = dtype_of(inputs[0].dtype)
        if isinstance(value, complex) and not entry.is_complex:
            return np.asarray(value, dtype=np.complex128 if entry.name == "float64" else np.complex64)
        if isinstance(value, float) and (not entry.is_inexact or entry.bits < 32):
            return np.asarray(value, dtype=np.float32)
        return np.asarray(value, dtype=inputs[0].dtype)
    return None


def _plain(value: Any) -> Any:
    if isinstance(value, TorchName):
        return _dtype_called(value).name
    if isinstance(value, (TensorRef, Device)):
        raise CannotBind(f"{value} stands where the catalogue has an attribute")
    return tuple(value) if isinstance(value, list) else value


def _dtype_called(name: TorchName) -> DType:
    try:
        return dtype(name.name.removeprefix("torch."))
    except UnknownName:
        raise CannotBind(f"{name.name} is no dtype of the catalogue") from None


def named_arguments(call: Call) -> dict[str, Any]:
    """All arguments by the names that torch gives them.

    Raises:
        CannotBind: if these are not known.
    """
    function = find(call.function)
    names = _python_names(function) or _schema_names(call)
    if names is None or len(call.args) > len(names):
        raise CannotBind(f"the names of the arguments of {call.function} are not known")
    return {**dict(zip(names, call.args, strict=False)), **call.kwargs}


@lru_cache(maxsize=1024)
def _python_names(function: Callable[..., Any]) -> tuple[str, ...] | None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return None
    return tuple(each.name for each in parameters)


def _schema_names(call: Call) -> tuple[str, ...] | None:
    """The names in the first overload of ``torch.ops.aten`` that the arguments fit."""
    packet = None if "::" in call.operator else getattr(torch.ops.aten, call.operator, None)
    schema = None if packet is None else schema_that_takes(call, packet)
    return None if schema is None else tuple(each.name for each in schema.arguments if not each.kwarg_only)


def overloads_of(function: Callable[..., Any]) -> list[inspect.Signature]:
    """Return the signatures of a function in C++, one for each overload of ``torch.ops.aten`` that returns tensors;
    [] if there is no such operator."""
    packet = getattr(torch.ops.aten, getattr(function, "__name__", ""), None)
    signatures = []
    for schema in [getattr(packet, name)._schema for name in (packet.overloads() if packet else ())]:
        if any(each.is_out for each in schema.arguments) or not any("Tensor" in str(r.type) for r in schema.returns):
            continue
        parameters = []
        for each in schema.arguments:
            name = "input" if each.name == "self" else each.name
            kind = inspect.Parameter.KEYWORD_ONLY if each.kwarg_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
            default = each.default_value if each.has_default_value() else inspect.Parameter.empty
            parameters.append(inspect.Parameter(name, kind, default=default, annotation=Schema(each.type)))
        signatures.append(inspect.Signature(parameters))
    return signatures


def schema_that_takes(call: Call, packet: Any) -> Any:
    """The schema of the first overload that the arguments fit; None if there is none."""
    return next((each for name in packet.overloads() if _takes(each := getattr(packet, name)._schema, call)), None)


def _takes(schema: Any, call: Call) -> bool:
    positional = [each for each in schema.arguments if not each.kwarg_only]
    names = {each.name for each in schema.arguments}
    needed = {each.name for each in schema.arguments if each.is_out}
    return (
        len(call.args) <= len(positional)
        and needed <= {*call.kwargs} <= names | _NAMES_OF_PYTHON
        and all(_fits(value, str(each.type)) for value, each in zip(call.args, positional, strict=False))
    )


_NAMES_OF_PYTHON = {"input", "axis"}
"""What torch's functions call ``self`` and ``dim``, or take for these."""


def _fits(value: Any, kind: str) -> bool:
    """Whether a value may stand where a schema has an argument of this type: tensors where it has tensors."""
    if isinstance(value, TensorRef):
        return "Tensor" in kind
    if isinstance(value, (list, tuple)) and (not value or any(isinstance(each, TensorRef) for each in value)):
        return not value or "List[Tensor]" in kind or "List[Optional[Tensor]]" in kind
    return value is None or "Tensor" not in kind
