"""Further calls of a case's backend: with other memory around the inputs, and for the invariants of the case.

Outputs for the same inputs have the same bits, whatever memory surrounds the inputs and freed blocks hold. Outputs of
an invariant follow from those of the first call, without a reference: outputs for some elements of the batch replace
those of the first call, so that the case's rule applies to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from optest.backends import BackendDriver, ExtraOutput
from optest.backends.abilities import writes_outputs
from optest.backends.arguments import in_signature_order
from optest.backends.command_abilities import outside_capabilities
from optest.core.actual import actual_outputs
from optest.core.border import Border
from optest.core.comparison import Comparison
from optest.core.expected import make_inputs
from optest.core.layers import is_composed
from optest.core.phases import RUN
from optest.memory.buffers import require_written
from optest.memory.margins import SIDES, Margins
from optest.memory.poisons import WRITE_POISONS, fill_freed_blocks, holding, may_hold
from optest.numerics import Array, bits, same_bits
from optest.operators.shapes import batch_inputs, batch_size, resized
from optest.spec import Check, CheckState, Fault, Reason, TensorSpec, TestCase
from optest.spec.invariants import PERMUTATION, REPEAT, STATELESS, Invariant, read_invariants

# Other surroundings

Outputs = Sequence[Array]
_NAME = "two paddings of the inputs"  # name of the check
_DONE = Check(name=_NAME, state=CheckState.DONE, detail="the same bits")
_VARIES = Check(name=_NAME, state=CheckState.INCONCLUSIVE, detail="the bits also differ between calls with one padding")
_FRESH = Check(name="fresh memory", state=CheckState.DONE, detail="blocks that NumPy had freed held a poison")
_AGAIN = "called once more, with other numbers around its inputs"
_LONGEST_S = 5.0
_TOO_LONG = Check(name=_NAME, state=CheckState.NOT_POSSIBLE, detail=f"the call took more than {_LONGEST_S:.0f} s")


def can_vary_surroundings(driver: BackendDriver, case: TestCase) -> bool:
    """Return whether foreign code reads the inputs in memory that optest allocated."""
    is_own = driver.is_reference or driver.guards_memory or is_composed(driver, case.descriptor)
    return driver.reads_inputs and not is_own and case.expects_error is None


def check_surroundings(
    first: Comparison, layouts: Sequence[tuple[str, TensorSpec]] | None, allocated: list[Array] | None = None
) -> tuple[Check, ...]:
    """Call once more with other memory around the inputs and in freed blocks, and return the checks.

    If the outputs have other bits, further calls find the cause. ``allocated`` receives the arrays that the backend
    allocated in the first of these calls.

    Raises:
        Fault: READ_OUT_OF_BOUNDS if outputs depend on memory around an input, UNWRITTEN if they contain freed memory,
            and any fault of the further call.
    """
    case, driver = first.case, first.driver
    if (first.clock.timings().run_s or 0.0) > _LONGEST_S:
        return (_TOO_LONG,)
    plain = Margins(driver.margin_bytes)
    # A backend that allocates its outputs may get freed blocks of their sizes, which are poisoned first.
    sizes = [] if writes_outputs(driver, case) else [output.nbytes for output in first.outputs]

    def outputs_with(margins: Margins, poison: int = 0, allocated: list[Array] | None = None) -> Outputs:
        """Call the driver with these margins, after filling freed blocks with a poison, and return its outputs."""
        if sizes:
            margins = margins._replace(before_call=lambda: fill_freed_blocks(sizes, WRITE_POISONS[poison]))
        with first.clock.announced(RUN):
            outputs, _ = actual_outputs(case, driver, first.inputs, layouts, first.interrupted, allocated, margins)
        return outputs

    other_margins = plain.all_others(len(case.inputs))
    try:
        other = outputs_with(other_margins, allocated=allocated)
    except Fault as fault:
        raise Fault(fault.reason, f"{_AGAIN}: {fault.message}", details=fault.details) from None
    if sizes and any(may_hold(each, WRITE_POISONS[0]) for each in other):
        second = outputs_with(other_margins, 1)
        names = [name for name, _ in layouts or ()] or case.descriptor.tensors.output_names(len(other)) or ()
        # An element that equals both poisons in two calls was never written.
        unwritten = (
            holding(one, WRITE_POISONS[0]) & holding(two, WRITE_POISONS[1]) if one.shape == two.shape else one != one
            for one, two in zip(other, second, strict=False)
        )
        require_written(dict(zip(names, zip(first.outputs, unwritten, strict=False), strict=False)))
    checks = (_DONE, _FRESH) if sizes else (_DONE,)
    if same_bits(first.outputs, other):
        return checks
    repeats_first = lambda: same_bits(first.outputs, outputs_with(plain))  # noqa: E731
    repeats_other = lambda: same_bits(other, outputs_with(other_margins))  # noqa: E731
    if not is_reproducible(repeats_first, repeats_other):
        return (_VARIES, *checks[1:])
    raise _out_of_bounds_fault(first, other, outputs_with, plain)


def _out_of_bounds_fault(
    first: Comparison, outputs: Outputs, outputs_with: Callable[[Margins], Outputs], plain: Margins
) -> Fault:
    """Return the fault of outputs that depend on memory around the inputs; name the input and side if one suffices."""
    case = first.case
    output, index = _first_difference(first.outputs, outputs)
    names = case.descriptor.tensors.output_names(len(first.outputs)) or ()
    name = names[output] if output < len(names) else str(output)
    message = f"{f'element {index} of ' if index else ''}output {name} depends on memory that was read"
    for number, argument in enumerate(case.inputs):
        # Reports leave out the detail `place`, "before" or "behind", if the message contains the word.
        for side, words in zip(SIDES, ("before the start", "behind the end"), strict=True):
            if not same_bits(first.outputs, outputs_with(Margins(plain.nbytes, frozenset({(number, side)})))):
                details = {"output": name, "index": index, "input": argument.name, "place": side}
                message += f" {words} of {argument.path} ({argument.name})"
                return Fault(Reason.READ_OUT_OF_BOUNDS, message, details=details)
    return Fault(Reason.READ_OUT_OF_BOUNDS, f"{message} around the inputs")


def _first_difference(before: Outputs, after: Outputs) -> tuple[int, list[int]]:
    """Return the number of the first output with other bits, and an index in it ([] if the shapes or dtypes differ)."""
    for number, (a, b) in enumerate(zip(before, after, strict=False)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return number, []
        differs = np.atleast_1d(bits(a) != bits(b))
        if differs.any():
            return number, [int(axis[0]) for axis in np.nonzero(differs)][: a.ndim]
    return 0, []


# A library that is wrong at random in every other call agrees with a variant this often in one of 4^6 cases.
_REPETITIONS = 6


def is_reproducible(without: Callable[[], bool], with_it: Callable[[], bool]) -> bool:
    """Return whether both variants of a call repeat their results each time that they run in this order.

    Each function makes its call and returns whether the result is the former one.
    """
    # In the order of Thue and Morse, so that a library that is wrong in every second or third call does not keep pace.
    for repetition in range(1, _REPETITIONS + 1):
        first, second = (with_it, without) if repetition.bit_count() % 2 else (without, with_it)
        if not (first() and second()):
            return False
    return True


# Invariants

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
    return read_invariants(texts, case.descriptor.tensors) if texts and case.expects_error is None else ()


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
