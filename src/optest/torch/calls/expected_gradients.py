"""What the gradients of a call should be, and which rule judges each of them.

A gradient is linear in what comes from above. Of a contraction it is a contraction, of moved elements a sum of what
comes from above; there the rule of sums holds, with terms that the gradient itself yields for magnitudes. Of any other
function nobody knows the sums within.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
import torch

from optest.numerics import dtype_of
from optest.spec import DType, ErrorBudget, Fault, NamedOutput, Reason, ReferenceNote, Rule, RuleClass, Terms, Unrounded
from optest.spec.calls import call_text
from optest.torch.calls.call import TorchCall, with_alpha_beta_to_power, with_rounded_scalars
from optest.torch.calls.descriptors import SPREAD, descriptor_of
from optest.torch.calls.gradients import Differentiated, Draw, differentiated, gradient_names, upstream_of
from optest.torch.calls.refusals import NO_KERNEL
from optest.torch.tensors import WIDE, as_array, on_cpu, widened

__all__ = ["can_be_differentiated", "expected_gradients", "has_floating_input", "in_float64", "upstream_gradients"]

_CPU = torch.device("cpu")
_MOVED = (RuleClass.MOVEMENT, RuleClass.EXACT)
_EXACT = Rule(kind=RuleClass.EXACT)
_SUM = Rule(kind=RuleClass.ACCUMULATE, stands=True)
_LONG_SUM = Rule(
    kind=RuleClass.COMPOSED,
    stands=True,
    formula="4·√k·Σ|t| units of the gradient's own dtype, in which it may be added up",
)
_CLOSE = Rule(kind=RuleClass.CLOSE, formula=SPREAD)


def upstream_gradients(call: TorchCall, inputs: Sequence[Any]) -> Draw:
    """What every output gets from above: whole numbers where elements only move, so that their sums are exact."""
    return upstream_of(call_text(call.call), inputs, is_whole=_kind(call) in _MOVED)


def _kind(call: TorchCall) -> RuleClass | None:
    rule = descriptor_of(call.call.function).rule
    return None if rule is None else rule.kind


def expected_gradients(call: TorchCall, inputs: Sequence[Any], *, in_own_dtype: bool) -> list[Any]:
    """Which inputs have a gradient, and the gradient of every floating input, each with its rule.

    In float64, or where torch cannot, in the dtype of the case, which a note says.

    Raises:
        Fault: UNSUPPORTED if torch cannot differentiate the call.
    """
    if not has_floating_input(call, inputs):
        raise Fault(Reason.UNSUPPORTED, f"{call.call.function} is given nothing that it could be differentiated by")
    draw = upstream_gradients(call, inputs)
    notes: list[Any] = []
    if in_own_dtype:
        found = _in_own_dtype(call, inputs, draw)
    else:
        try:
            found = in_float64(with_rounded_scalars(call, inputs), widened(inputs), draw)
        except NO_KERNEL as error:
            found = _in_own_dtype(call, inputs, draw)
            in_own_dtype = True
            said = str(error).strip().partition("\n")[0]
            notes.append(ReferenceNote(f"gradients on the CPU in the case's own dtype, not in float64: {said}"))
    dtypes = [dtype_of(inputs[index].dtype) for index in found.gradients]
    judged = [(_CLOSE, None)] * len(dtypes) if notes else _judged(call, inputs, found, draw, dtypes)
    if not any(found.has_gradient()):
        notes.append(ReferenceNote(f"{call.call.function} gives no gradient: none of its outputs depends on an input"))
    arrays = [as_array(each) for each in found.dense(on_cpu(inputs) if in_own_dtype else widened(inputs))]
    exists = NamedOutput(gradient_names(found)[0], np.array(found.has_gradient(), dtype=bool), rule=_EXACT)
    return [
        exists,
        *(
            NamedOutput(name, Unrounded(array, kind), rule=rule, terms=terms)
            for name, array, kind, (rule, terms) in zip(gradient_names(found)[1:], arrays, dtypes, judged, strict=True)
        ),
        *notes,
    ]


def has_floating_input(call: TorchCall, inputs: Sequence[Any]) -> bool:
    """Whether there is an input that could have a gradient: ``linspace(0, 1, 5)`` has none."""
    return any(dtype_of(inputs[index].dtype).is_inexact for index in call.call.tensors())


def can_be_differentiated(call: TorchCall, inputs: Sequence[Any]) -> bool:
    """Whether torch on the CPU differentiates the call, in float64 or as it is."""
    try:
        expected_gradients(call, inputs, in_own_dtype=False)
    except Fault:
        return False
    return True


def in_float64(call: TorchCall, tensors: Sequence[torch.Tensor], draw: Draw) -> Differentiated:
    """The call differentiated on tensors that are wide already."""
    return differentiated(call, partial(_make, call, WIDE), tensors, draw)


def _make(call: TorchCall, dtypes: Mapping[torch.dtype, torch.dtype] | None, *given: torch.Tensor) -> list[Any]:
    return call.on(call.changeable(given), _CPU, dtypes=dtypes)()


def _in_own_dtype(call: TorchCall, inputs: Sequence[Any], draw: Draw) -> Differentiated:
    try:
        return differentiated(call, partial(_make, call, None), on_cpu(inputs), draw)
    except NO_KERNEL as error:
        said = str(error).partition("\n")[0]
        raise Fault(
            Reason.UNSUPPORTED, f"torch on the CPU cannot differentiate {call.call.function}: {said}"
        ) from error


_Judged = list[tuple[Rule, Any]]


def _judged(
    call: TorchCall, inputs: Sequence[Any], found: Differentiated, draw: Draw, dtypes: Sequence[DType]
) -> _Judged:
    """The rule of each gradient, with its terms."""
    kind = _kind(call)
    if not any(found.has_gradient()):
        return [(_EXACT, None)] * len(dtypes)
    if kind is RuleClass.ACCUMULATE:
        return [(_SUM, each) for each in _terms(call, inputs, found, draw, of_magnitudes=True)]
    if kind in _MOVED:
        sums = _terms(call, inputs, found, draw, of_magnitudes=False)
        if all(_adds_up_whole_numbers(each) for each in sums):
            return [_of_moved(each, dtype) for each, dtype in zip(sums, dtypes, strict=True)]
    return [(_CLOSE, None)] * len(dtypes)


def _adds_up_whole_numbers(terms: Terms) -> bool:
    """Whether what comes from above is only passed on and added up; a factor would show."""
    return bool((terms.absolute == np.floor(terms.absolute)).all())


def _of_moved(terms: Terms, dtype: DType) -> tuple[Rule, Any]:
    """Whole numbers have one sum, in whatever order and precision they are added, as long as the dtype holds it."""
    if np.max(terms.absolute, initial=0.0) <= 2.0**dtype.precision:
        return _EXACT, None
    # The bound of the accumulate rule, 4·√k·u·Σ|t|, with the unit roundoff of the gradient's own dtype in place of that
    # of a wider accumulator; ``units`` says how many of the accumulator's that are.
    units = 2.0 ** ((53 if dtype.precision > 24 else 24) - dtype.precision)
    return _LONG_SUM, ErrorBudget(4 * sqrt(terms.count) * units * terms.absolute)


def _terms(
    call: TorchCall, inputs: Sequence[Any], found: Differentiated, draw: Draw, *, of_magnitudes: bool
) -> list[Terms]:
    """Σ|t|, Σt² and the largest number of terms of each gradient: its own value for magnitudes, squares and ones."""

    def made(change: Callable[[torch.Tensor], torch.Tensor], power: int) -> list[Any]:
        tensors = widened(inputs)
        if of_magnitudes:
            tensors = [change(each) if each.is_floating_point() or each.is_complex() else each for each in tensors]
        drawn = partial(_drawn_as, draw, found.leaves, change)
        found_for = in_float64(with_alpha_beta_to_power(call, power), tensors, drawn)
        return [as_array(each.abs()) for each in found_for.dense(tensors)]

    absolute, squared = made(torch.abs, 1), made(_squared, 2)
    counts = made(_own_ones if call.changes else _ones, 0)
    return [
        Terms(one, two, int(np.max(count, initial=0.0)))
        for one, two, count in zip(absolute, squared, counts, strict=True)
    ]


def _squared(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.abs().square()


def _ones(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ones((), dtype=torch.float64).expand(tensor.shape)


def _own_ones(tensor: torch.Tensor) -> torch.Tensor:
    """Of a call in place: torch writes into no repeated element."""
    return _ones(tensor).clone(memory_format=torch.contiguous_format)


def _drawn_as(
    draw: Draw,
    leaves: Sequence[Any],
    change: Callable[[torch.Tensor], torch.Tensor],
    number: int,
    output: torch.Tensor,
) -> torch.Tensor:
    """The gradient from above of the call itself, changed; its outputs may be complex where these are not.

    Torch squares no float8, so it is changed in float64.
    """
    drawn = draw(number, leaves[number])
    return change(drawn if drawn.is_complex() else drawn.to(torch.float64)).to(output.dtype)
