"""Further calls of a case whose outputs follow from those of the first call: invariants, which need no reference.

Outputs for some elements of the batch take the place of the first call's, so that the case's own rule judges them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from optest.backends import FurtherAnswer
from optest.backends.arguments import at_their_places
from optest.backends.command_abilities import outside_capabilities
from optest.core.actual import actual_outputs
from optest.core.border import Border
from optest.core.comparison import Comparison
from optest.core.inputs import make_inputs
from optest.core.layers import is_composed
from optest.core.phases import RUN
from optest.numerics import bits
from optest.operators.shapes import batch_inputs, batch_size, resized
from optest.spec import Check, CheckState, Fault, Reason, TensorSpec, TestCase
from optest.spec.invariants import PERMUTATION, REPEAT, STATELESS, Invariant, read_invariants

Array = np.ndarray[Any, Any]
Layouts = Sequence[tuple[str, TensorSpec]]


_KEPT = "called again, and its result kept"


class _Call(NamedTuple):
    """A call beside the first; ``rows`` are the elements of the batch that it is made of, None for all of them.
    Without a ``reason`` it has other values, and its answer is held against the reference alone."""

    how: str
    reason: Reason | None
    case: TestCase
    inputs: Sequence[Array]
    rows: list[int] | None = None


def invariants_of(case: TestCase) -> tuple[Invariant, ...]:
    """Those of the case, else of its operator; none for a call that is to be refused."""
    texts = case.descriptor.invariants if case.invariants is None else case.invariants
    return () if case.expects_error is not None else read_invariants(texts, case.descriptor.tensors)


def further_calls(
    first: Comparison, layouts: Layouts | None, invariants: Sequence[Invariant]
) -> tuple[list[FurtherAnswer], tuple[Check, ...]]:
    """The answers to the further calls of ``invariants`` up to the first fault, and which were asked, or why not.

    ``layouts`` is what the reference says of the outputs of the ``first`` call.

    Raises:
        Fault: BAD_CASE where nobody knows which inputs hold the batch.
    """
    answers: list[FurtherAnswer] = []
    checks: list[Check] = []
    for invariant in invariants:
        calls, why = _calls(invariant, first)
        own: list[Array] = []
        copies: list[Array] = []
        for call in calls:
            try:
                with first.clock.announced(RUN):
                    outputs = _outputs(call, first, layouts, own if call.how == _KEPT else None)
            except Fault as fault:
                if fault.reason is not Reason.UNSUPPORTED:
                    return [*answers, FurtherAnswer(outputs=fault, how=call.how)], tuple(checks)
                why = f"{call.how}: {fault.message}"
                break
            if call.how == _KEPT:
                copies = outputs
                continue
            if any(bits(one).tobytes() != bits(other).tobytes() for one, other in zip(own, copies, strict=False)):
                overwritten = Fault(Reason.STATE, "it overwrote the result of the call before it")
                return [*answers, FurtherAnswer(outputs=overwritten, how=call.how)], tuple(checks)
            premise = None if call.rows is None else partial(_why_not_invariant, call)
            names = [each.name for each in call.case.inputs]
            others = None if call.reason is not None else dict(zip(names, call.inputs, strict=True))
            answers.append(
                FurtherAnswer(outputs=outputs, how=call.how, reason=call.reason, inputs=others, premise=premise)
            )
        state = CheckState.NOT_POSSIBLE if why else CheckState.DONE
        checks.append(Check(name=f"invariant {invariant.name}", state=state, detail=why))
    return answers, tuple(checks)


def _calls(invariant: Invariant, first: Comparison) -> tuple[list[_Call], str]:
    """The calls to make in order; or none, and why."""
    case, inputs = first.case, first.inputs
    if invariant.name == REPEAT:
        return [_Call("called again", Reason.NONDETERMINISTIC, case, inputs)], ""
    if invariant.name == STATELESS:
        others = replace(case, seed=case.seed ^ 1)
        values, _ = make_inputs(others, first.interrupted)
        if all(one.tobytes() == other.tobytes() for one, other in zip(values, inputs, strict=True)):
            return [], "the case has no other values: they are written down"
        before, after = (_Call(how, Reason.STATE, case, inputs) for how in (_KEPT, "called again after other values"))
        return [before, _Call("called with other values", None, others, values), after], ""
    size = batch_size([each.shape for each in first.outputs])
    if size < 2:
        return [], "the outputs share no first dimension of 2 or more"
    rows_of = partial(_call_of_rows, first, _inputs_with_batch(invariant, case, size))
    if invariant.name == PERMUTATION:
        return [rows_of([*range(1, size, 2), *range(0, size, 2)[::-1]], "with the elements of the batch permuted")], ""
    places = sorted({0, size // 2, size - 1})
    return [rows_of([place], f"with element {place} of the batch alone") for place in places], ""


def _inputs_with_batch(invariant: Invariant, case: TestCase, size: int) -> set[str | None]:
    """The names of the inputs that hold the batch.

    Raises:
        Fault: BAD_CASE if that is not known, or those that are named hold another number of elements.
    """
    specs = at_their_places(case, [each.spec for each in case.inputs])
    names = at_their_places(case, [each.name for each in case.inputs])
    sets = [invariant.inputs] if invariant.inputs else batch_inputs(case.descriptor, specs, case.attributes, size)
    places = [place for place in sets[0] if place < len(specs) and specs[place] is not None] if len(sets) == 1 else []
    if places and all((spec := specs[place]) is not None and spec.shape[:1] == (size,) for place in places):
        return {names[place] for place in places}
    what = f"which inputs hold the {size} elements along the first dimension of the outputs is not known, or wrong"
    hint = f"state them, as in invariants: [{invariant.name}({case.inputs[0].name if case.inputs else 'input'})]"
    raise Fault(Reason.BAD_CASE, f"invariant {invariant.name}: {what}; {hint}")


def _call_of_rows(first: Comparison, held: set[str | None], rows: list[int], how: str) -> _Call:
    """The call with these elements of the batch alone, in dense tensors."""
    arguments, given = [], []
    for argument, array in zip(first.case.inputs, first.inputs, strict=True):
        if argument.name in held:
            argument = replace(argument, spec=resized(argument.spec, len(rows)))
            array = np.ascontiguousarray(array[rows])
            array.setflags(write=False)
        arguments.append(argument)
        given.append(array)
    outputs = tuple(resized(spec, len(rows)) for spec in first.case.outputs)
    case = replace(first.case, inputs=tuple(arguments), outputs=outputs)
    return _Call(how, Reason.INVARIANT, case, given, rows)


def _outputs(call: _Call, first: Comparison, layouts: Layouts | None, own: list[Array] | None = None) -> list[Array]:
    """The outputs of the call, those of some elements within the first call's; in ``own`` the backend's own arrays.

    Raises:
        Fault: UNSUPPORTED where the driver says no before it is called, and whatever the call ends with.
    """
    if not is_composed(first.driver, call.case.descriptor):
        with Border("the backend's `unsupported`", Reason.RAISED):
            if lack := outside_capabilities(first.driver, call.case) or first.driver.unsupported(call.case):
                raise Fault(Reason.UNSUPPORTED, lack)
    rows = call.rows
    if layouts is not None and rows is not None:
        layouts = [(name, resized(spec, len(rows))) for name, spec in layouts]
    outputs, _ = actual_outputs(call.case, first.driver, call.inputs, layouts, first.interrupted, own)
    if rows is None:
        return [*outputs]
    wanted = [(each.dtype, (len(rows), *each.shape[1:])) for each in first.outputs]
    if (got := [(each.dtype, each.shape) for each in outputs]) != wanted:
        words = (", ".join(f"{kind}{list(shape)}" for kind, shape in each) for each in (got, wanted))
        raise Fault(Reason.SHAPE, "the outputs are {}, but should be {}".format(*words))
    whole = [np.array(each) for each in first.outputs]
    for each, part in zip(whole, outputs, strict=True):
        each[rows] = part
    return whole


def _why_not_invariant(call: _Call, first: Comparison) -> str:
    """Why the backend is not to blame: what is expected of the ``first`` call has not the invariant either."""
    alone = first._replace(case=call.case).with_inputs(call.inputs)
    for part, whole in zip(() if isinstance(alone, str) else alone.expected, first.expected, strict=False):
        one, other = np.asarray(part.value), np.asarray(whole.value)[call.rows]
        scale = np.max(np.abs(other), initial=0.0, where=np.isfinite(other))
        if one.shape != other.shape or not np.allclose(one, other, rtol=1e-9, atol=1e-9 * scale, equal_nan=True):
            return "the reference itself does not have this invariant for these attributes"
    return ""
