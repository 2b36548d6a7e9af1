"""Verdict of one case: for its outputs, for further outputs, for a refusal; and its meaning if a case is expected to
fail (xfail) or was retried.

Further outputs are compared with the same expected values, those for other inputs with the reference's for these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from optest.backends.abilities import Blames
from optest.backends.arguments import in_signature_order, require_defined
from optest.compare import Expected
from optest.compare.verdict import has_no_number, passing_constant
from optest.core.actual import BackendResult, extra_outputs, outputs_in_order
from optest.core.border import Border
from optest.core.comparison import Comparison
from optest.core.diagnosis import add_diagnosis
from optest.core.expected import BY_BACKEND, BY_ITSELF, expected_of_outputs, reason_to_refuse
from optest.core.layers import is_composed
from optest.core.operands import accept_other_readings, with_definition, with_worst_operands
from optest.core.phases import RUN
from optest.core.suggestion import with_suggestion
from optest.numerics import Array, bits, round_to
from optest.registry import load_object
from optest.spec import (
    BAD_STATUSES,
    Check,
    CheckState,
    Evidence,
    ExpectedError,
    Fault,
    Layer,
    Measure,
    Reason,
    RuleClass,
    Status,
    TestCase,
    Verdict,
)

_INTERNAL, _PASSED = Reason.INTERNAL, Status.PASSED
# Reasons for which the backend was not called, or is not known to be at fault: no xfail waives them.
_NEVER_WAIVED = frozenset({Reason.UNAVAILABLE, Reason.REFERENCE_FAILED, Reason.BAD_CASE, Reason.INTERNAL})

_INVARIANT = "invariant "
SHOWS_NOTHING, _SET_TAG = "inconclusive", "set:"
# Name of the check that lists inputs that were tried with other values.
_OTHER_VALUES = "other values"


def verdict_of(comparison: Comparison, answer: BackendResult, *, every_measure: bool = False) -> Verdict:
    """Return the verdict of one case for the backend's outputs or fault.

    Without expected outputs nothing is compared, but further outputs are compared with the first ones, and a driver
    that is a test of its own reports its own verdict.
    """
    case, driver = comparison.case, comparison.driver
    if case.expects_error is not None:
        return refusal_verdict(case, case.expects_error, comparison.inputs, answer.fault)
    if answer.fault is not None:
        verdict = _verdict_of_fault(comparison, answer.fault)
        wrong = _failure_among_written(comparison, answer.fault)
        if wrong is not None:
            message = f"{verdict.message}; elements that were written are wrong, too"
            verdict = replace(verdict, message=message, measures=wrong.measures, pictures=wrong.pictures)
        return replace(verdict, checks=answer.checks)
    if not comparison.expected and (own := driver.own_verdict(case)) is not None:
        return own
    if not comparison.expected and not answer.further:
        return _nothing_compared(case, answer)
    try:
        if not comparison.expected:
            with Border("the comparison", _INTERNAL):
                return _compare_further_only(comparison, answer)
        verdict = _compare_outputs(comparison, every_measure=every_measure, checks=answer.checks)
        if verdict.reason is Reason.BAD_CASE:
            with Border("the reference", Reason.REFERENCE_FAILED):
                verdict = with_suggestion(comparison, verdict)
        if verdict.status is Status.FAILED:
            verdict = add_diagnosis(comparison, verdict)
            if isinstance(driver, Blames) and not is_composed(driver, case.descriptor):
                with Border("the backend's `blame`", Reason.RAISED), comparison.clock.announced(RUN):
                    driver.blame(case, [array.view() for array in comparison.inputs])
        if verdict.status is _PASSED:
            verdict = _verdict_of_further(comparison, answer, verdict)
        with Border("the comparison", _INTERNAL):
            verdict = _suspect_if_inconclusive(case, verdict, comparison.expected)
            return _skip_if_drawn_badly(case, verdict, comparison.expected)
    except Fault as fault:
        return fault_verdict(fault)


def _skip_if_drawn_badly(case: TestCase, verdict: Verdict, expected: Sequence[Expected]) -> Verdict:
    """Skip an inconclusive verdict if optest drew the inputs and the user set no tolerance.

    That is a suspect pass or empty output of a function without a descriptor; for an operator, results without a finite
    element.
    """
    is_suspect = verdict.status is Status.SUSPECT
    if not is_suspect and verdict.reason is not Reason.NOTHING_COMPARED:
        return verdict
    is_derived = any(each.startswith(_SET_TAG) for each in case.tags)
    has_tolerance = any(each.layer is not Layer.OPERATOR for each in case.tolerances)
    is_ours = case.descriptor.category == "function" or (is_suspect and all(map(has_no_number, expected)))
    if has_tolerance or not (is_derived and is_ours):
        return verdict
    return replace(verdict, status=Status.SKIPPED, message=f"{SHOWS_NOTHING}: {verdict.message}")


def fault_verdict(fault: Fault) -> Verdict:
    return Verdict(status=fault.status, reason=fault.reason, message=fault.message, details=fault.details)


def _verdict_of_fault(comparison: Comparison, fault: Fault) -> Verdict:
    """Return the verdict of a fault; an exception is a refusal if the operator has no right result for these inputs."""
    if fault.reason is not Reason.RAISED or not comparison.expected:
        return fault_verdict(fault)
    case, inputs = comparison.case, comparison.inputs
    try:
        why = reason_to_refuse(case, inputs)
    except Fault as error:
        return fault_verdict(error)
    if not why:
        return fault_verdict(fault)
    verdict = refusal_verdict(case, ExpectedError(), inputs, fault)
    return replace(verdict, message=f"{verdict.message}; {why}")


def _failure_among_written(comparison: Comparison, fault: Fault) -> Verdict | None:
    """Return the failure of the elements that were written, if others were not; None if they are right or unknown."""
    expected = comparison.expected or ()
    if not expected or not all(output.name in fault.written for output in expected):
        return None
    # One fault must not hide another: for this comparison, elements without a result get the right one.
    outputs = []
    for output in expected:
        values, never = fault.written[output.name]
        outputs.append(np.where(never, round_to(np.asarray(output.value), output.dtype), values))
    verdict = comparison._replace(outputs=outputs).verdict(draws=True)
    return verdict if verdict.status is Status.FAILED else None


def _compare_outputs(comparison: Comparison, *, every_measure: bool, checks: tuple[Check, ...] = ()) -> Verdict:
    """Compare the outputs by the rules and, if values are wrong, by other readings of the operands.

    A failure gets the worst operands and the operator's definition as details.
    """
    verdict = comparison.verdict(every_measure=every_measure, checks=checks, draws=True)
    if verdict.status is not Status.FAILED:
        return verdict
    verdict = accept_other_readings(comparison, verdict)
    return with_definition(comparison.case, with_worst_operands(comparison.case, comparison.inputs, verdict))


# Further outputs


def _compare_further_only(comparison: Comparison, answer: BackendResult) -> Verdict:
    """Compare further outputs for the same inputs with those of the first call, if there is no reference.

    Raises:
        Fault: if the outputs are not those of the operator, or the comparison fails.
    """
    case, name = comparison.case, comparison.case.descriptor.name
    answer = answer._replace(further=[each for each in answer.further or () if each.inputs is None])
    expected = expected_of_outputs(case, comparison.inputs, comparison.outputs)
    with_first = comparison._replace(expected=expected)
    verdict = with_first.verdict(checks=answer.checks)
    if verdict.status is _PASSED:
        verdict = _verdict_of_further(with_first, answer, verdict, partial(Comparison.verdict, draws=True))
        if verdict.status is Status.FAILED:
            return replace(verdict, message=f"{verdict.message} (no reference: compared with the first call)")
    if verdict.status is not _PASSED:
        return verdict
    held = [check.name for check in answer.checks if _INVARIANT in check.name and check.state is CheckState.DONE]
    if not held:
        return _nothing_compared(case, answer)
    verdict = _suspect_if_inconclusive(case, verdict, expected)
    if verdict.status is _PASSED and all(map(_rows_are_equal, comparison.outputs)):
        why = "every element along the first dimension is the same, as if the kernel ignored its inputs"
        verdict = replace(verdict, status=Status.SUSPECT, message=why)
    message = verdict.message or f"{name} has no reference, so its values were never compared; held: {', '.join(held)}"
    return replace(verdict, evidence=Evidence.INVARIANT, measures=(), message=message)


def _nothing_compared(case: TestCase, answer: BackendResult) -> Verdict:
    """Return UNCHECKED for a case without expected outputs."""
    why = "has no reference" if case.generator is None else "was run without expected outputs"
    message = f"{case.descriptor.name} {why}, so nothing was compared"
    return Verdict(status=Status.UNCHECKED, message=message, checks=answer.checks)


def _rows_are_equal(output: Array) -> bool:
    """Return whether all rows along the first dimension are equal; for a single row or a scalar, all its elements."""
    rows = bits(output if output.ndim and output.shape[0] > 1 else output.ravel())
    return len(rows) > 1 and bool((rows == rows[:1]).all())


def _verdict_of_further(
    comparison: Comparison, answer: BackendResult, first: Verdict, compare: Callable[..., Verdict] = _compare_outputs
) -> Verdict:
    """Return the verdict of the first further outputs that do not pass, else ``first``, that of the first call.

    Checks list the inputs that had other values, and those for which the expected outputs are unknown.

    Raises:
        Fault: if the driver or the comparison fails, or BAD_CASE if the reference contradicts an invariant.
    """
    further = answer.further
    if further is None:
        further = extra_outputs(comparison.case, comparison.driver)
    if not further:
        return first
    compared: list[str] = []
    unknown: dict[str, list[str]] = {}
    for extra in further:
        with_values = comparison if extra.inputs is None else _with_other_inputs(comparison, extra.inputs)
        if isinstance(with_values, str):
            unknown.setdefault(with_values, []).extend(extra.inputs or ())
            continue
        compared += extra.inputs or ()
        if isinstance(extra.outputs, Fault):
            verdict = fault_verdict(extra.outputs)
        else:
            outputs = outputs_in_order(comparison.case, extra.outputs)
            verdict = compare(with_values._replace(outputs=outputs), every_measure=True)
        if verdict.status is not _PASSED:
            is_wrong = verdict.status is Status.FAILED and not isinstance(extra.outputs, Fault)
            if is_wrong and extra.premise and (why := extra.premise(comparison)):
                raise Fault(Reason.BAD_CASE, f"{extra.how}: {why}; set the invariants of the case")
            return replace(
                verdict,
                reason=(extra.reason if is_wrong else None) or verdict.reason,
                message=f"{extra.how}: {verdict.message}",
                checks=(*answer.checks, *_checks_of_inputs(compared, unknown)),
                details={**verdict.details, "how": extra.how},
            )
    return replace(first, checks=(*first.checks, *_checks_of_inputs(compared, unknown)))


def _checks_of_inputs(compared: Sequence[str], unknown: Mapping[str, Sequence[str]]) -> list[Check]:
    """Return the checks that list inputs with other values: those compared, and those not, by the reason why not."""

    def listed(names: Sequence[str]) -> str:
        return f"{'input' if len(names) == 1 else 'inputs'} {', '.join(names)}"

    checks = [
        Check(name=_OTHER_VALUES, state=CheckState.NOT_POSSIBLE, detail=f"{listed(names)}: {why}")
        for why, names in unknown.items()
    ]
    if compared:
        detail = f"of {listed(compared)}" + ", one after the other" * (len(compared) > 1)
        checks.insert(0, Check(name=_OTHER_VALUES, state=CheckState.DONE, detail=detail))
    return checks


def _with_other_inputs(comparison: Comparison, others: Mapping[str, Array]) -> Comparison | str:
    """Return the comparison with other values of the named inputs, or why their expected outputs are unknown."""
    names = [argument.name for argument in comparison.case.inputs]
    if not others.keys() <= {*names}:
        return "the case has no such input, so the reference cannot be run with it"
    pairs = zip(names, comparison.inputs, strict=True)
    return comparison.with_inputs([others.get(name, array) for name, array in pairs])


# Refusals


# Exceptions of mistakes in code, which are no refusals; a case that expects one names it in ``type``.
_SLIPS = frozenset({"NameError", "AttributeError", "ImportError", "SyntaxError"})


def refusal_verdict(case: TestCase, expected: ExpectedError, inputs: Sequence[Any], fault: Fault | None) -> Verdict:
    """Return the verdict of a call that must be refused: NOT_REFUSED if accepted, WRONG_ERROR for other errors."""
    if fault is None:
        return Verdict(
            status=Status.FAILED,
            reason=Reason.NOT_REFUSED,
            message=f"the call was accepted, expected a refusal with {expected}",
            details=_reason_of_refusal(case, inputs),
        )
    if fault.reason is not Reason.RAISED:
        return fault_verdict(fault)
    raised = fault.details.get("exception", fault.message)
    types = fault.details.get("exception_types", ())
    if expected.type not in types:
        message = f"the call was refused with {raised!r}, expected {expected}"
    elif expected.type == "Exception" and _SLIPS.intersection(types):
        message = f"the call ended with {raised!r}, a mistake in code that ran, expected a deliberate refusal"
    elif not expected.matches(str(raised)):
        message = f"the error message is {raised!r}, expected {expected.required_text()}"
    else:
        return Verdict(status=_PASSED, evidence=Evidence.RAISED_AS_EXPECTED, message=f"refused: {raised}")
    return Verdict(status=Status.FAILED, reason=Reason.WRONG_ERROR, message=message, details=fault.details)


def _reason_of_refusal(case: TestCase, inputs: Sequence[Any]) -> dict[str, str]:
    """Return ``{"why": message}`` if the operator or its built-in reference refuses the call, else {}."""
    try:
        with Border("the operator", Reason.BAD_CASE):
            require_defined(case)
            reference = case.descriptor.reference
            if isinstance(reference, str) and reference.startswith("optest.operators."):
                load_object(reference)(
                    in_signature_order(case, [each.copy() for each in inputs]), dict(case.attributes)
                )
    except Fault as fault:
        if "UnfitArguments" in fault.details.get("exception_types", ()):
            return {"why": str(fault.details["exception"]).partition(": ")[2]}
    return {}


# Expected failures, inconclusive passes, retries


def apply_xfail(case: TestCase, verdict: Verdict) -> Verdict:
    """Waive the failure that the case's xfail names; an xfail without a status also waives BAD_CASE."""
    if case.xfail is None or verdict.status is Status.SKIPPED:
        return verdict
    waives_all = case.xfail.status is None and verdict.status in (Status.FAILED, Status.ERROR)
    if verdict.reason in _NEVER_WAIVED and not (waives_all and verdict.reason is Reason.BAD_CASE):
        return verdict
    if waives_all or verdict.status is case.xfail.status:
        message = f"{verdict.message} (expected: {case.xfail.reason})" if verdict.message else case.xfail.reason
        return replace(verdict, status=Status.XFAILED, message=message)
    label = "failed or error" if case.xfail.status is None else case.xfail.label
    if verdict.status is Status.PASSED:
        message = f"passed, but the plan expects {label}: {case.xfail.reason}"
        return replace(verdict, status=_PASSED if case.xfail.strict is False else Status.XPASSED, message=message)
    message = f"{verdict.message} (xfail covers {label} only, not {verdict.status.value})"
    return replace(verdict, message=message)


def _suspect_if_inconclusive(case: TestCase, verdict: Verdict, expected: Sequence[Expected]) -> Verdict:
    """Turn a pass into SUSPECT if it is inconclusive.

    That is a pass of an operator that is its own reference, one without a finite element, or one that a constant output
    would have, too.
    """
    if verdict.status is not _PASSED:
        return verdict
    if BY_ITSELF in verdict.checks:
        message = "the reference is the operator itself, not an independent one; set `reference:`"
        return replace(verdict, status=Status.SUSPECT, message=message)
    for index, (measure, output) in enumerate(zip(verdict.measures, expected, strict=True)):
        why = _why_inconclusive(case, index, measure, output)
        if why:
            return replace(verdict, status=Status.SUSPECT, message=f"{measure.output}: {why}")
    return verdict


def suspect_if_self_judged(verdict: Verdict) -> Verdict:
    """Turn a pass into SUSPECT if the backend supplied the expected values itself."""
    if verdict.status is not _PASSED or BY_BACKEND not in verdict.checks:
        return verdict
    message = "the backend supplied the expected values itself; remove its `golden`, so that the reference is used"
    return replace(verdict, status=Status.SUSPECT, message=message)


def _why_inconclusive(case: TestCase, index: int, measure: Measure, expected: Expected) -> str:
    """Return why a pass is inconclusive, with a remedy; "" if it is conclusive."""
    if measure.compared and measure.max_abs_index is None and has_no_number(expected):
        is_chosen = case.generator is not None or any(argument.fill.kind in _CHOSEN for argument in case.inputs)
        # A call that only moves or sets elements means infinity and NaN, as ``torch.full(…, -inf)`` and a mask of all.
        rule = expected.rule or case.descriptor.rule
        if not is_chosen and (rule is None or rule.kind not in (RuleClass.MOVEMENT, RuleClass.EXACT)):
            return (
                "every expected element is NaN or infinite, so a backend that overflows everywhere passes, too; "
                "choose inputs whose results are numbers"
            )
    constant = passing_constant(case, index, measure, expected)
    return f"the tolerance is so wide that an output of {constant} passes too; set a smaller one" if constant else ""


# Fills whose values the user chose: results without a number are then intended.
_CHOSEN = ("data", "file", "opinfo")


def after_attempts(verdict: Verdict, attempts: int, earlier: Verdict | None) -> Verdict:
    """Return SUSPECT for a case that ended well after a dead attempt; add the earlier cause to a bad verdict."""
    # Ended well: passed, xfailed or skipped. An xfail waives no crash, and a crash is not skipped.
    if attempts == 1 or earlier is None:
        return verdict
    died = f"{earlier.reason.value if earlier.reason else earlier.status.value}: {earlier.message}"
    if verdict.status in BAD_STATUSES:
        if (verdict.reason, verdict.message) == (earlier.reason, earlier.message):
            return verdict
        return replace(verdict, details={**verdict.details, "earlier attempt": died})
    message = f"{verdict.status.value} at attempt {attempts}, after {died}"
    return replace(verdict, status=Status.SUSPECT, reason=None, message=message)
