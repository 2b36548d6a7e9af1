"""Further calls of a case whose outputs follow from those of the first call: invariants, which need no reference.

Outputs for some elements of the batch take the place of the first call's, so that the case's own rule judges them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from optest.backends import BackendDriver, FurtherAnswer
from optest.backends.abilities import outside_capabilities
from optest.backends.arguments import at_their_places
from optest.core.actual import actual_outputs
from optest.core.border import Border
from optest.core.expected import expected_of_other_inputs
from optest.core.inputs import make_inputs
from optest.operators.batches import batch_inputs, batch_size, resized
from optest.spec import Check, CheckState, Fault, Reason, TensorSpec, TestCase
from optest.spec.invariants import BATCH, PERMUTATION, REPEAT, STATELESS, Invariant, read_invariants

__all__ = ["further_calls", "invariants_of"]

Array = np.ndarray[Any, Any]
Layouts = Sequence[tuple[str, TensorSpec]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """A call beside the first; ``rows`` are the elements of the batch that it is made of, None for all of them."""

    how: str
    reason: Reason = Reason.INVARIANT
    case: TestCase
    inputs: Sequence[Array]
    rows: list[int] | None = None
    is_judged: bool = True


def invariants_of(case: TestCase) -> tuple[Invariant, ...]:
    """Those of the case, else of its operator; none for a call that is to be refused."""
    texts = case.descriptor.invariants if case.invariants is None else case.invariants
    return () if case.expects_error is not None else read_invariants(texts, case.descriptor.tensors)


def further_calls(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    layouts: Layouts | None,
    interrupted: Callable[[], bool] | None,
) -> tuple[list[FurtherAnswer], tuple[Check, ...]]:
    """The answers to the further calls of all invariants up to the first fault, and which were asked, or why not.

    ``outputs`` are those of the first call, ``layouts`` what the reference says of them.

    Raises:
        Fault: BAD_CASE where nobody knows which inputs hold the batch.
    """
    answers: list[FurtherAnswer] = []
    checks: list[Check] = []
    for invariant in invariants_of(case):
        calls = _calls(invariant, case, inputs, outputs)
        why = calls if isinstance(calls, str) else ""
        for call in () if isinstance(calls, str) else calls:
            try:
                answer = _answer(call, driver, outputs, layouts, interrupted)
            except Fault as fault:
                if fault.reason is not Reason.UNSUPPORTED:
                    return [*answers, FurtherAnswer(outputs=fault, how=call.how)], tuple(checks)
                why = f"{call.how}: {fault.message}"
                break
            if call.is_judged:
                premise = partial(_why_not_invariant, call, driver)
                answers.append(FurtherAnswer(outputs=answer, how=call.how, reason=call.reason, premise=premise))
        state = CheckState.NOT_POSSIBLE if why else CheckState.DONE
        checks.append(Check(name=f"invariant {invariant.name}", state=state, detail=why))
    return answers, tuple(checks)


def _calls(
    invariant: Invariant, case: TestCase, inputs: Sequence[Array], outputs: Sequence[Array]
) -> list[_Call] | str:
    """The calls to make in order, or why there are none."""
    if invariant.name == REPEAT:
        return [_Call(how="called again", reason=Reason.NONDETERMINISTIC, case=case, inputs=inputs)]
    if invariant.name == STATELESS:
        others = replace(case, seed=case.seed ^ 1)
        values, _ = make_inputs(others)
        if all(one.tobytes() == other.tobytes() for one, other in zip(values, inputs, strict=True)):
            return "the case has no other values: they are written down"
        between = _Call(how="called with other values", case=others, inputs=values, is_judged=False)
        return [between, _Call(how="called again after other values", reason=Reason.STATE, case=case, inputs=inputs)]
    size = batch_size([each.shape for each in outputs])
    if size < 2:
        return "the outputs share no first dimension of 2 or more"
    held = _inputs_with_batch(invariant, case, size)
    of_rows = partial(_call_of_rows, case, inputs, held)
    if invariant.name == PERMUTATION:
        return [of_rows([*range(1, size, 2), *range(0, size, 2)[::-1]], "with the elements of the batch permuted")]
    assert invariant.name == BATCH
    places = sorted({0, size // 2, size - 1})
    return [of_rows([place], f"with element {place} of the batch alone") for place in places]


def _inputs_with_batch(invariant: Invariant, case: TestCase, size: int) -> frozenset[str]:
    """The names of the inputs that hold the batch.

    Raises:
        Fault: BAD_CASE if that is not known, or those that are named hold another number of elements.
    """
    specs = at_their_places(case, [each.spec for each in case.inputs])
    names = at_their_places(case, [each.name for each in case.inputs])
    sets = [invariant.inputs] if invariant.inputs else batch_inputs(case.descriptor, specs, case.attributes, size)
    if len(sets) == 1:
        held = frozenset(name for place in sets[0] if place < len(names) and (name := names[place]) is not None)
        wrong = [each for each in case.inputs if each.name in held and each.spec.shape[:1] != (size,)]
        if held and not wrong:
            return held
        shape = f"{wrong[0].name} is {list(wrong[0].spec.shape)}" if wrong else "the case has no such input"
        what = f"{shape}, but the outputs have {size} elements along the first dimension"
    else:
        what = "it is not known which inputs hold the batch"
    hint = f"state them, for example invariants: [{invariant.name}({case.inputs[0].name if case.inputs else 'input'})]"
    raise Fault(Reason.BAD_CASE, f"invariant {invariant.name}: {what}; {hint}")


def _call_of_rows(case: TestCase, inputs: Sequence[Array], held: frozenset[str], rows: list[int], how: str) -> _Call:
    """The call with these elements of the batch alone, in dense tensors."""
    arguments, given = [], []
    for argument, array in zip(case.inputs, inputs, strict=True):
        if argument.name in held:
            argument = replace(argument, spec=resized(argument.spec, len(rows)))
            array = np.ascontiguousarray(array[rows])
            array.setflags(write=False)
        arguments.append(argument)
        given.append(array)
    specs = tuple(resized(spec, len(rows)) for spec in case.outputs)
    smaller = replace(case, inputs=tuple(arguments), outputs=specs)
    return _Call(how=how, case=smaller, inputs=given, rows=rows)


def _answer(
    call: _Call,
    driver: BackendDriver,
    outputs: Sequence[Array],
    layouts: Layouts | None,
    interrupted: Callable[[], bool] | None,
) -> list[Array]:
    """The outputs of the call, those of some elements within the first call's."""
    with Border("the backend's `unsupported`", Reason.RAISED):
        lack = outside_capabilities(driver, call.case) or driver.unsupported(call.case)
    if lack is not None:
        raise Fault(Reason.UNSUPPORTED, lack)
    rows = call.rows
    if layouts is not None and rows is not None:
        layouts = [(name, resized(spec, len(rows))) for name, spec in layouts]
    answer, _ = actual_outputs(call.case, driver, call.inputs, layouts, interrupted)
    return [*answer] if rows is None else list(_in_place(answer, outputs, rows))


def _in_place(answer: Sequence[Array], outputs: Sequence[Array], rows: list[int]) -> Iterator[Array]:
    if len(answer) != len(outputs):
        raise Fault(Reason.EXTRA_OUTPUT, f"the number of outputs is {len(answer)}, but should be {len(outputs)}")
    for index, (part, first) in enumerate(zip(answer, outputs, strict=True)):
        shape = (len(rows), *first.shape[1:])
        if (part.shape, part.dtype) != (shape, first.dtype):
            got, wanted = f"{part.dtype}{list(part.shape)}", f"{first.dtype}{list(shape)}"
            raise Fault(Reason.SHAPE, f"output {index} is {got}, but should be {wanted}")
        whole = np.array(first)
        whole[rows] = part
        yield whole


def _why_not_invariant(call: _Call, driver: BackendDriver, whole: Sequence[Any]) -> str:
    """Why the backend is not to blame: the reference has not the invariant either, whose outputs are ``whole``."""
    if call.rows is None:
        return ""
    expected = expected_of_other_inputs(call.case, call.inputs, driver)
    if isinstance(expected, str):
        return ""
    for part, each in zip(expected, whole, strict=False):
        one, other = np.asarray(part.value), np.asarray(each.value)[call.rows]
        scale = np.max(np.abs(other), initial=0.0, where=np.isfinite(other))
        if one.shape != other.shape or not np.allclose(one, other, rtol=1e-9, atol=1e-9 * scale, equal_nan=True):
            return "the reference itself does not have this invariant for these attributes"
    return ""
