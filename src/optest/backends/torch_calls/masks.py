"""Masks that choose nothing, seen before anything is computed: what they make of a call shows nothing, or NaN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optest.backends.torch_calls.indices import parsed
from optest.spec import Argument, Fault, Reason, TensorSpec, TestCase
from optest.spec.calls import Call, TensorRef

__all__ = ["masks_of", "require_chosen_elements"]

_MASKED = ("masked_fill", "masked_select", "masked_scatter")
_SUBSCRIPTS = ("getitem", "setitem", "index", "index_put", "_unsafe_index", "_unsafe_index_put")
_ATTENTION = "scaled_dot_product_attention"


def require_chosen_elements(case: TestCase) -> None:
    """Raise where a mask is False everywhere, or hides all keys from some query of an attention.

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
        what = f"input{index} is filled by {argument.fill} and is the mask of {call.function}"
        if call.operator == _ATTENTION:
            if _hides_a_row(argument):
                raise Fault(
                    Reason.BAD_CASE,
                    f"{what}, but hides every key from some query, whose softmax has no right answer; "
                    "leave a key visible in each row, or state is_causal",
                )
        elif _is_nowhere(argument):
            raise Fault(
                Reason.BAD_CASE,
                f"{what}, but is False everywhere, so that the call changes and chooses nothing; "
                "draw it by rand, which gives both values, or write it as data",
            )


def masks_of(call: Call, specs: list[TensorSpec]) -> list[int]:
    """The inputs that are masks in this call: of bool, and in an attention also those that are added."""
    return [each.index for each in _candidates(call) if isinstance(each, TensorRef) and _fits(call, specs[each.index])]


def _candidates(call: Call) -> Iterator[Any]:
    name = call.operator
    if name in _MASKED:
        yield call.kwargs.get("mask", call.args[1] if len(call.args) > 1 else None)
    elif name == _ATTENTION:
        yield call.kwargs.get("attn_mask", call.args[3] if len(call.args) > 3 else None)
    elif name in _SUBSCRIPTS and len(call.args) > 1:
        yield from call.args[1] if isinstance(call.args[1], (list, tuple)) else [call.args[1]]


def _fits(call: Call, spec: TensorSpec) -> bool:
    return spec.dtype.name == "bool" or (call.operator == _ATTENTION and spec.dtype.is_float)


def _is_nowhere(argument: Argument) -> bool:
    """Whether the fill states that no element is True."""
    kind, stated = argument.fill.kind, argument.fill.parameters
    if kind == "data":
        return not any(_numbers(stated["values"]))
    if kind == "randint":
        return stated.get("high") is not None and int(stated["high"]) <= 1 and int(stated.get("low") or 0) == 0
    return kind == "zeros" or (kind == "full" and not _number(stated["value"]))


def _hides_a_row(argument: Argument) -> bool:
    """Whether some row of a mask of bool is False, or of one that is added -inf, throughout."""
    kind, stated = argument.fill.kind, argument.fill.parameters
    is_bool = argument.spec.dtype.name == "bool"
    if kind == "data":
        rows = _rows(stated["values"], argument.spec.shape[-1] if argument.spec.shape else 1)
        return any(all(_is_hidden(each, is_bool) for each in row) for row in rows)
    if is_bool:
        return _is_nowhere(argument)
    return kind == "full" and _is_hidden(_number(stated["value"]), is_bool)


def _is_hidden(value: float, is_bool: bool) -> bool:
    return not value if is_bool else value == float("-inf")


def _rows(values: Any, width: int) -> list[list[float]]:
    flat = _numbers(values)
    return [flat[start : start + width] for start in range(0, len(flat), max(width, 1))]


def _numbers(values: Any) -> list[float]:
    if isinstance(values, (list, tuple)):
        return [number for each in values for number in _numbers(each)]
    return [_number(values)]


def _number(value: Any) -> float:
    """A number, or text that spells one: ``-inf``."""
    return float(value)
