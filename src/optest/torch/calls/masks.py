"""Masks that choose nothing, seen before anything is computed: what they make of a call shows nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optest.spec import Argument, Fault, Reason, TensorSpec, TestCase
from optest.spec.calls import Call, TensorRef
from optest.torch.calls.indices import parsed

__all__ = ["masks_of", "require_chosen_elements"]

_MASKED = ("masked_fill", "masked_select", "masked_scatter")
_SUBSCRIPTS = ("getitem", "setitem", "index", "index_put", "_unsafe_index", "_unsafe_index_put")


def require_chosen_elements(case: TestCase) -> None:
    """Raise where a mask is False everywhere.

    An attention has one right result all the same, zeros for each query without a key, so its masks are not looked at.

    Raises:
        Fault: BAD_CASE.
    """
    if case.expects_error is not None or case.generator is not None:
        return
    call = parsed(case.attributes["call"])
    for index in masks_of(call, [argument.spec for argument in case.inputs]):
        argument = case.inputs[index]
        if not argument.spec.elements:
            continue
        if _is_nowhere(argument):
            raise Fault(
                Reason.BAD_CASE,
                f"input{index} is filled by {argument.fill} and is the mask of {call.function}, but is False "
                "everywhere, so that the call changes and chooses nothing; draw it by rand, which gives both values, "
                "or write it as data",
            )


def masks_of(call: Call, specs: list[TensorSpec]) -> list[int]:
    """The inputs of bool that choose elements in this call."""
    found = [each.index for each in _candidates(call) if isinstance(each, TensorRef)]
    return [index for index in found if specs[index].dtype.name == "bool"]


def _candidates(call: Call) -> Iterator[Any]:
    name = call.operator
    if name in _MASKED:
        yield call.kwargs.get("mask", call.args[1] if len(call.args) > 1 else None)
    elif name in _SUBSCRIPTS and len(call.args) > 1:
        yield from call.args[1] if isinstance(call.args[1], (list, tuple)) else [call.args[1]]


def _is_nowhere(argument: Argument) -> bool:
    """Whether the fill states that no element is True."""
    kind, stated = argument.fill.kind, argument.fill.parameters
    if kind == "data":
        return not any(_numbers(stated["values"]))
    if kind == "randint":
        return stated.get("high") is not None and int(stated["high"]) <= 1 and int(stated.get("low") or 0) == 0
    return kind == "zeros" or (kind == "full" and not _number(stated["value"]))


def _numbers(values: Any) -> list[float]:
    if isinstance(values, (list, tuple)):
        return [number for each in values for number in _numbers(each)]
    return [_number(values)]


def _number(value: Any) -> float:
    """A number, or text that spells one: ``-inf``."""
    return float(value)
