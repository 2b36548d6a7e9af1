"""What is seen to be wrong with a case before anything is computed: positions out of range, masks without effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optest.spec import Argument, Fault, Reason, TensorSpec, TestCase
from optest.spec.calls import Call, TensorRef
from optest.torch.calls.indices import Positions, literals_of, parsed, positions_of
from optest.torch.fact_sheet import facts_of

__all__ = ["masks_of", "require_chosen_elements", "require_legal_positions"]


def require_legal_positions(case: TestCase) -> None:
    """Raise where a fill, or the call itself, states positions past the end of what they are positions in.

    Raises:
        Fault: BAD_CASE.
    """
    if case.expects_error is not None:
        return
    for literal in literals_of(case.attributes["call"], [argument.spec for argument in case.inputs]):
        if not literal.low <= literal.value <= literal.high:
            raise Fault(
                Reason.BAD_CASE,
                f"the call states the position {literal.value} in {literal.what}; "
                f"state {literal.low} to {literal.high}, or expects_error if it should be refused",
            )
    if case.generator is not None:
        return
    for each in positions_of(case.attributes["call"], [argument.spec for argument in case.inputs]):
        _require_places(each, case.inputs[each.index])
        largest, smallest = _reach(case.inputs[each.index], each)
        if largest is not None and largest > each.high:
            raise Fault(Reason.BAD_CASE, _said(each, case, largest))
        if smallest is not None and smallest < each.low:
            raise Fault(Reason.BAD_CASE, _said(each, case, smallest))


def _require_places(positions: Positions, argument: Argument) -> None:
    """What is empty has no position at all."""
    if positions.high < max(positions.low, 0) and argument.spec.elements:
        raise Fault(
            Reason.BAD_CASE,
            f"input{positions.index} holds positions in {positions.what}, but there are none; "
            "give it no elements, or the other one some",
        )


def _said(positions: Positions, case: TestCase, value: int) -> str:
    fill = case.inputs[positions.index].fill
    low = f"low: {positions.low} and " if value < positions.low else ""
    return (
        f"input{positions.index} is filled by {fill}, which reaches {value}, but holds positions in {positions.what}; "
        f"state {low}high: {positions.high + 1}"
    )


def _reach(argument: Argument, positions: Positions) -> tuple[int | None, int | None]:
    """The largest and smallest value that the fill states, None where it leaves that open."""
    kind, stated = argument.fill.kind, argument.fill.parameters
    if argument.spec.elements == 0:
        return None, None
    if kind in ("zeros", "ones"):
        return (int(kind == "ones"),) * 2
    if kind == "randint":
        high, low = stated.get("high"), stated.get("low")
        return (None if high is None else int(high) - 1), (None if low is None else int(low))
    if kind == "full":
        return (int(stated["value"]),) * 2 if isinstance(stated["value"], (int, float)) else (None, None)
    if kind == "data":
        values = [each for each in _numbers(stated["values"]) if each != positions.ignored]
        return (int(max(values)), int(min(values))) if values else (None, None)
    if kind == "arange":
        last = stated.get("start", 0) + (argument.spec.elements - 1) * stated.get("step", 1)
        return int(last), None
    return None, None


def _numbers(values: Any) -> list[float]:
    if isinstance(values, (list, tuple)):
        return [number for each in values for number in _numbers(each)]
    return [values] if isinstance(values, (int, float)) else []


# Masks that choose nothing, seen before anything is computed: what they make of a call shows nothing.


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
    match facts_of(call.function).mask:
        case "argument":
            yield call.kwargs.get("mask", call.args[1] if len(call.args) > 1 else None)
        case "subscript" if len(call.args) > 1:
            yield from call.args[1] if isinstance(call.args[1], (list, tuple)) else [call.args[1]]


def _is_nowhere(argument: Argument) -> bool:
    """Whether the fill states that no element is True."""
    kind, stated = argument.fill.kind, argument.fill.parameters
    if kind == "data":
        return not any(_mask_values(stated["values"]))
    if kind == "randint":
        return stated.get("high") is not None and int(stated["high"]) <= 1 and int(stated.get("low") or 0) == 0
    return kind == "zeros" or (kind == "full" and not _mask_value(stated["value"]))


def _mask_values(values: Any) -> list[float]:
    if isinstance(values, (list, tuple)):
        return [number for each in values for number in _mask_values(each)]
    return [_mask_value(values)]


def _mask_value(value: Any) -> float:
    """A number, or text that spells one: ``-inf``."""
    return float(value)
