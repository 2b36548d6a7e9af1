"""Invariants: further calls of a case whose outputs follow from those of the first call, without a reference.

Outputs for some elements of the batch replace those of the first call, so that the case's rule applies to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from optest.backends import ExtraOutput
from optest.backends.arguments import in_signature_order
from optest.backends.command_abilities import outside_capabilities
from optest.core.actual import actual_outputs
from optest.core.border import Border
from optest.core.comparison import Comparison
from optest.core.inputs import make_inputs
from optest.core.layers import is_composed
from optest.core.phases import RUN
from optest.numerics import Array, bits
from optest.operators.shapes import batch_inputs, batch_size, resized
from optest.spec import Check, CheckState, Fault, Reason, TensorSpec, TestCase
from optest.spec.invariants import PERMUTATION, REPEAT, STATELESS, Invariant, read_invariants

Layouts = Sequence[tuple[str, TensorSpec]]

# Call whose result must survive the next call: a backend may return a buffer that it reuses.
_KEPT = "called again, and its result kept"


class _Call(NamedTuple):
    """Call in addition to the first.

    ``rows`` are the elements of the batch in it, None for all. Without a ``reason`` it has other values, and its
    outputs are compared with the reference only.
    """

    how: str
    reason: Reason | None
    case: TestCase
    inputs: Sequence[Array]
    rows: list[int] | None = None


def read_case_invariants(case: TestCase) -> tuple[Invariant, ...]:
    """Return the invariants of the case, else of its operator; none for a call that must be refused."""
    texts = case.descriptor.invariants if case.invariants is None else case.invariants
    return () if case.expects_error is not None else read_invariants(texts, case.descriptor.tensors)


def further_calls(
    first: Comparison, layouts: Layouts | None, invariants: Sequence[Invariant]
) -> tuple[list[ExtraOutput], tuple[Check, ...]]:
    """Make the further calls of ``invariants`` up to the first fault; return their outputs and one check each.

    ``layouts`` are the reference's names and specs of the outputs of the ``first`` call.

    Raises:
        Fault: BAD_CASE if it is not known which inputs hold the batch.
    """
    answers: list[ExtraOutput] = []
    checks: list[Check] = []
    for invariant in invariants:
        calls, why = _calls(invariant, first)
        # Arrays of the backend from the kept call, and copies of them from that time.
        kept: list[Array] = []
        copies: list[Array] = []
        for call in calls:
            try:
                with first.clock.announced(RUN):
                    outputs = _outputs_of_further_call(call, first, layouts, kept if call.how == _KEPT else None)
            except Fault as fault:
                if fault.reason is not Reason.UNSUPPORTED:
                    return [*answers, ExtraOutput(outputs=fault, how=call.how)], tuple(checks)
                why = f"{call.how}: {fault.message}"
                break
            if call.how == _KEPT:
                copies = outputs
                continue
            if any(bits(now).tobytes() != bits(before).tobytes() for now, before in zip(kept, copies, strict=False)):
                overwritten = Fault(Reason.STATE, "it overwrote the result of the call before it")
                return [*answers, ExtraOutput(outputs=overwritten, how=call.how)], tuple(checks)
            premise = None if call.rows is None else partial(_why_not_invariant, call)
            names = [each.name for each in call.case.inputs]
            others = None if call.reason is not None else dict(zip(names, call.inputs, strict=True))
            answers.append(
                ExtraOutput(outputs=outputs, how=call.how, reason=call.reason, inputs=others, premise=premise)
            )
        state = CheckState.NOT_POSSIBLE if why else CheckState.DONE
        checks.append(Check(name=f"invariant {invariant.name}", state=state, detail=why))
    return answers, tuple(checks)


def _calls(invariant: Invariant, first: Comparison) -> tuple[list[_Call], str]:
    """Return the further calls of an invariant in order, or no calls and the reason."""
    case, inputs = first.case, first.inputs
    if invariant.name == REPEAT:
        return [_Call("called again", Reason.NONDETERMINISTIC, case, inputs)], ""
    if invariant.name == STATELESS:
        others = replace(case, seed=case.seed ^ 1)
        values, _ = make_inputs(others, first.interrupted)
        if all(one.tobytes() == other.tobytes() for one, other in zip(values, inputs, strict=True)):
            return [], "the case has no other values: its inputs are fixed"
        before, after = (_Call(how, Reason.STATE, case, inputs) for how in (_KEPT, "called again after other values"))
        return [before, _Call("called with other values", None, others, values), after], ""
    size = batch_size([each.shape for each in first.outputs])
    if size < 2:
        return [], "the outputs share no first dimension of 2 or more"
    rows_of = partial(_call_of_rows, first, _inputs_with_batch(invariant, case, size))
    if invariant.name == PERMUTATION:
        return [rows_of([*range(1, size, 2), *range(0, size, 2)[::-1]], "with the elements of the batch permuted")], ""
    positions = sorted({0, size // 2, size - 1})
    return [rows_of([position], f"with only element {position} of the batch") for position in positions], ""


def _inputs_with_batch(invariant: Invariant, case: TestCase, size: int) -> set[str | None]:
    """Return the names of the inputs that hold the batch of ``size`` elements.

    Raises:
        Fault: BAD_CASE if they are not known, or the named ones hold another number of elements.
    """
    specs = in_signature_order(case, [each.spec for each in case.inputs])
    names = in_signature_order(case, [each.name for each in case.inputs])
    sets = [invariant.inputs] if invariant.inputs else batch_inputs(case.descriptor, specs, case.attributes, size)
    positions = [x for x in sets[0] if x < len(specs) and specs[x] is not None] if len(sets) == 1 else []
    if positions and all((spec := specs[x]) is not None and spec.shape[:1] == (size,) for x in positions):
        return {names[x] for x in positions}
    problem = f"the inputs with the {size} elements along the first dimension of the outputs are unknown or wrong"
    hint = f"name them, as in invariants: [{invariant.name}({case.inputs[0].name if case.inputs else 'input'})]"
    raise Fault(Reason.BAD_CASE, f"invariant {invariant.name}: {problem}; {hint}")


def _call_of_rows(first: Comparison, held: set[str | None], rows: list[int], how: str) -> _Call:
    """Return the call with only these batch elements, in dense tensors; ``held`` names the inputs with the batch."""
    arguments, inputs = [], []
    for argument, array in zip(first.case.inputs, first.inputs, strict=True):
        if argument.name in held:
            argument = replace(argument, spec=resized(argument.spec, len(rows)))
            array = np.ascontiguousarray(array[rows])
            array.setflags(write=False)
        arguments.append(argument)
        inputs.append(array)
    outputs = tuple(resized(spec, len(rows)) for spec in first.case.outputs)
    case = replace(first.case, inputs=tuple(arguments), outputs=outputs)
    return _Call(how, Reason.INVARIANT, case, inputs, rows)


def _outputs_of_further_call(
    call: _Call, first: Comparison, layouts: Layouts | None, allocated: list[Array] | None = None
) -> list[Array]:
    """Run a call and return its outputs; those of some batch elements are put into copies of the first call's outputs.

    ``allocated`` receives the backend's own arrays.

    Raises:
        Fault: UNSUPPORTED if the driver declines before it is called, SHAPE for outputs of another shape or dtype, and
            any fault of the call.
    """
    if not is_composed(first.driver, call.case.descriptor):
        with Border("the backend's `unsupported`", Reason.RAISED):
            if lack := outside_capabilities(first.driver, call.case) or first.driver.unsupported(call.case):
                raise Fault(Reason.UNSUPPORTED, lack)
    rows = call.rows
    if layouts is not None and rows is not None:
        layouts = [(name, resized(spec, len(rows))) for name, spec in layouts]
    outputs, _ = actual_outputs(call.case, first.driver, call.inputs, layouts, first.interrupted, allocated)
    if rows is None:
        return [*outputs]
    required = [(each.dtype, (len(rows), *each.shape[1:])) for each in first.outputs]
    if (actual := [(each.dtype, each.shape) for each in outputs]) != required:
        words = (", ".join(f"{kind}{list(shape)}" for kind, shape in each) for each in (actual, required))
        raise Fault(Reason.SHAPE, "the outputs are {}, expected {}".format(*words))
    merged = [np.array(each) for each in first.outputs]
    for output, part in zip(merged, outputs, strict=True):
        output[rows] = part
    return merged


def _why_not_invariant(call: _Call, first: Comparison) -> str:
    """Return why the backend is not at fault, "" if it is: the reference does not have the invariant either."""
    of_call = first._replace(case=call.case).with_inputs(call.inputs)
    for part, full in zip(() if isinstance(of_call, str) else of_call.expected, first.expected, strict=False):
        part_value, rows = np.asarray(part.value), np.asarray(full.value)[call.rows]
        scale = np.max(np.abs(rows), initial=0.0, where=np.isfinite(rows))
        if part_value.shape != rows.shape or not np.allclose(
            part_value, rows, rtol=1e-9, atol=1e-9 * scale, equal_nan=True
        ):
            return "the reference itself does not have this invariant for these attributes"
    return ""
