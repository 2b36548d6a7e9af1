"""The verdict of one case: on what the backend answered, on its further answers, on a refusal; and what it means where
something else than a pass was expected (xfail, a retry).

A further answer is judged by what is expected already; one to other inputs by what the reference says of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from optest.backends.abilities import Blames, JudgesItself
from optest.backends.arguments import at_their_places, refuse_unfit
from optest.compare import Expected
from optest.compare.verdict import has_no_number, passing_constant
from optest.core.actual import BackendAnswer, further_answers, in_order
from optest.core.border import Border
from optest.core.comparison import Comparison
from optest.core.diagnosis import diagnosed
from optest.core.expected import BY_BACKEND, BY_ITSELF, expected_of_outputs, may_refuse
from optest.core.layers import is_composed
from optest.core.operands import judged_by_readings, with_definition, with_worst_operands
from optest.core.phases import RUN
from optest.core.suggestion import with_suggestion
from optest.numerics import bits, round_to
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

Array = np.ndarray[Any, Any]
_INTERNAL, _PASSED = Reason.INTERNAL, Status.PASSED
_NOBODY_EXPECTS = frozenset({Reason.UNAVAILABLE, Reason.REFERENCE_FAILED, Reason.BAD_CASE, Reason.INTERNAL})
"""Reasons for which the backend was not even asked, or is not known to be at fault."""

_INVARIANT = "invariant "
SHOWS_NOTHING, _SET_TAG = "shows nothing", "set:"
_OTHER_VALUES = "other values"
"""The check that says of which inputs other values were tried."""


def verdict_of(comparison: Comparison, answer: BackendAnswer, *, every_measure: bool = False) -> Verdict:
    """One of the cases judged: the outputs of ``answer``, or its fault. Without expectations nothing is compared, but
    the driver may be a test that has compared by itself; no driver judges what optest expects something of."""
    case, driver = comparison.case, comparison.driver
    if case.expects_error is not None:
        return refusal_verdict(case, case.expects_error, comparison.inputs, answer.fault)
    if answer.fault is not None:
        verdict = _of_fault(comparison, answer.fault)
        wrong = _wrong_among_written(comparison, answer.fault)
        if wrong is not None:
            message = f"{verdict.message}; elements that were written are wrong, too"
            verdict = replace(verdict, message=message, measures=wrong.measures, pictures=wrong.pictures)
        return replace(verdict, checks=answer.checks)
    if not comparison.expected and isinstance(driver, JudgesItself):
        return driver.own_verdict(case)
    if not comparison.expected and not answer.further:
        return _nothing_compared(case, answer)
    try:
        if not comparison.expected:
            with Border("the comparison", _INTERNAL):
                return _by_further_alone(comparison, answer)
        verdict = _judged(comparison, every_measure=every_measure, checks=answer.checks)
        with Border("the reference", Reason.REFERENCE_FAILED):
            verdict = with_suggestion(comparison, verdict)
        if verdict.status is Status.FAILED:
            verdict = diagnosed(comparison, verdict)
            if isinstance(driver, Blames) and not is_composed(driver, case.descriptor):
                with Border("the backend's `blame`", Reason.RAISED), comparison.clock.announced(RUN):
                    driver.blame(case, [array.view() for array in comparison.inputs])
        if verdict.status is _PASSED:
            verdict = _verdict_of_further(comparison, answer, verdict)
        with Border("the comparison", _INTERNAL):
            return _skipped_if_ours(case, _doubted(case, verdict, comparison.expected), comparison.expected)
    except Fault as fault:
        return fault_verdict(fault)


def _skipped_if_ours(case: TestCase, verdict: Verdict, expected: Sequence[Expected]) -> Verdict:
    """Skip a verdict that proves nothing because optest drew the inputs, unless the user set a tolerance: a suspect
    pass or empty output of a function without a descriptor; for an operator, results without a finite element."""
    is_derived = any(each.startswith(_SET_TAG) for each in case.tags)
    is_stated = any(each.layer is not Layer.OPERATOR for each in case.tolerances)
    is_suspect = verdict.status is Status.SUSPECT
    is_ours = case.descriptor.category == "function" or (is_suspect and all(map(has_no_number, expected)))
    if is_stated or not (is_derived and is_ours and (is_suspect or verdict.reason is Reason.NOTHING_COMPARED)):
        return verdict
    return replace(verdict, status=Status.SKIPPED, message=f"{SHOWS_NOTHING}: {verdict.message}")


def fault_verdict(fault: Fault) -> Verdict:
    return Verdict(status=fault.status, reason=fault.reason, message=fault.message, details=fault.details)


def _of_fault(comparison: Comparison, fault: Fault) -> Verdict:
    """A fault, but for an exception where the operator has no right answer to these inputs."""
    if fault.reason is not Reason.RAISED or not comparison.expected:
        return fault_verdict(fault)
    case, inputs = comparison.case, comparison.inputs
    try:
        why = may_refuse(case, inputs)
    except Fault as of_hook:
        return fault_verdict(of_hook)
    if not why:
        return fault_verdict(fault)
    verdict = refusal_verdict(case, ExpectedError(), inputs, fault)
    return replace(verdict, message=f"{verdict.message}; {why}")


def _wrong_among_written(comparison: Comparison, fault: Fault) -> Verdict | None:
    """What is wrong with the elements that were written, where others were not; None if nothing, or nothing is known.

    One fault must not hide another: for the comparison, elements without a result get the right one.
    """
    expected = comparison.expected or ()
    if not expected or not all(each.name in fault.written for each in expected):
        return None
    outputs = []
    for each in expected:
        values, never = fault.written[each.name]
        outputs.append(np.where(never, round_to(np.asarray(each.value), each.dtype), values))
    verdict = comparison._replace(outputs=outputs).judged(draws=True)
    return verdict if verdict.status is Status.FAILED else None


def _judged(comparison: Comparison, *, every_measure: bool, checks: tuple[Check, ...] = ()) -> Verdict:
    """Outputs compared, also by what is right for operands that the backend reads otherwise, with the worst operands
    and the operator's definition where the values are wrong."""
    verdict = comparison.judged(every_measure=every_measure, checks=checks, draws=True)
    if verdict.status is not Status.FAILED:
        return verdict
    verdict = judged_by_readings(comparison, verdict)
    return with_definition(comparison.case, with_worst_operands(comparison.case, comparison.inputs, verdict))


# Further answers


def _by_further_alone(comparison: Comparison, answer: BackendAnswer) -> Verdict:
    """The further answers to the same values held against the first, where nobody knows what is right.

    Raises:
        Fault: if the outputs are not those of the operator, or the comparison fails.
    """
    case, name = comparison.case, comparison.case.descriptor.name
    answer = answer._replace(further=[each for each in answer.further or () if each.inputs is None])
    expected = expected_of_outputs(case, comparison.inputs, comparison.outputs)
    own = comparison._replace(expected=expected)
    verdict = own.judged(checks=answer.checks)
    if verdict.status is _PASSED:
        verdict = _verdict_of_further(own, answer, verdict, partial(Comparison.judged, draws=True))
        if verdict.status is Status.FAILED:
            return replace(verdict, message=f"{verdict.message} (no reference: compared with the first call)")
    if verdict.status is not _PASSED:
        return verdict
    held = [each.name for each in answer.checks if _INVARIANT in each.name and each.state is CheckState.DONE]
    if not held:
        return _nothing_compared(case, answer)
    doubted = _doubted(case, verdict, expected)
    if doubted.status is _PASSED and all(map(_has_one_row, comparison.outputs)):
        why = "every element along the first dimension is the same, as a kernel's that does not look at its inputs"
        doubted = replace(doubted, status=Status.SUSPECT, message=why)
    message = doubted.message or f"{name} has no reference, so its values were never compared; held: {', '.join(held)}"
    return replace(doubted, evidence=Evidence.INVARIANT, measures=(), message=message)


def _nothing_compared(case: TestCase, answer: BackendAnswer) -> Verdict:
    why = "has no reference" if case.generator is None else "was run without expected outputs"
    message = f"{case.descriptor.name} {why}, so nothing was compared"
    return Verdict(status=Status.UNCHECKED, message=message, checks=answer.checks)


def _has_one_row(output: Array) -> bool:
    """Whether all elements along the first dimension are one; of a single one, all of its own."""
    rows = bits(output if output.ndim and output.shape[0] > 1 else output.ravel())
    return len(rows) > 1 and bool((rows == rows[:1]).all())


def _verdict_of_further(
    comparison: Comparison, answer: BackendAnswer, first: Verdict, judged: Callable[..., Verdict] = _judged
) -> Verdict:
    """The verdict of the first further answer that is not a pass; ``first``, that of ``answer``, if there is none.

    Where inputs had other values the verdict says so as a check, and as one that was not possible where nobody knows
    what is right.

    Raises:
        Fault: if the driver, or the comparison, fails.
    """
    further = answer.further
    if further is None:
        further = further_answers(comparison.case, comparison.driver)
    if not further:
        return first
    tried = _Tried()
    for other in further:
        with_values = comparison if other.inputs is None else _with_values(comparison, other.inputs)
        if isinstance(with_values, str):
            tried.why_not.setdefault(with_values, []).extend(other.inputs or ())
            continue
        tried.judged += other.inputs or ()
        if isinstance(other.outputs, Fault):
            verdict = fault_verdict(other.outputs)
        else:
            outputs = in_order(comparison.case, other.outputs)
            verdict = judged(with_values._replace(outputs=outputs), every_measure=True)
        if verdict.status is not _PASSED:
            is_wrong = verdict.status is Status.FAILED and not isinstance(other.outputs, Fault)
            if is_wrong and other.premise and (why := other.premise(comparison)):
                raise Fault(Reason.BAD_CASE, f"{other.how}: {why}; state the invariants of the case")
            return replace(
                verdict,
                reason=(other.reason if is_wrong else None) or verdict.reason,
                message=f"{other.how}: {verdict.message}",
                checks=(*answer.checks, *tried.checks()),
                details={**verdict.details, "how": other.how},
            )
    return replace(first, checks=(*first.checks, *tried.checks()))


@dataclass(slots=True)
class _Tried:
    """Which inputs had other values in an answer that was judged, and in one that was not and why."""

    judged: list[str] = field(default_factory=list)
    why_not: dict[str, list[str]] = field(default_factory=dict)

    def checks(self) -> list[Check]:
        checks = [
            Check(name=_OTHER_VALUES, state=CheckState.NOT_POSSIBLE, detail=f"{_inputs(names)}: {why}")
            for why, names in self.why_not.items()
        ]
        if self.judged:
            detail = f"of {_inputs(self.judged)}" + ", one after the other" * (len(self.judged) > 1)
            checks.insert(0, Check(name=_OTHER_VALUES, state=CheckState.DONE, detail=detail))
        return checks


def _inputs(names: Sequence[str]) -> str:
    return f"{'input' if len(names) == 1 else 'inputs'} {', '.join(names)}"


def _with_values(comparison: Comparison, others: Mapping[str, Array]) -> Comparison | str:
    """With other values of some inputs; or why nobody knows what is expected of them."""
    names = [argument.name for argument in comparison.case.inputs]
    if not others.keys() <= {*names}:
        return "the case has none, so no reference gets it"
    own = zip(names, comparison.inputs, strict=True)
    return comparison.with_inputs([others.get(name, array) for name, array in own])


# Refusals


_SLIPS = frozenset({"NameError", "AttributeError", "ImportError", "SyntaxError"})
"""What nobody raises to refuse arguments; whoever does can say so in ``type``."""


def refusal_verdict(case: TestCase, expected: ExpectedError, inputs: Sequence[Any], fault: Fault | None) -> Verdict:
    """Judge a call that has to be refused: NOT_REFUSED if it was accepted, WRONG_ERROR for another refusal."""
    if fault is None:
        return Verdict(
            status=Status.FAILED,
            reason=Reason.NOT_REFUSED,
            message=f"the call was accepted, but should be refused with {expected}",
            details=_grounds(case, inputs),
        )
    if fault.reason is not Reason.RAISED:
        return fault_verdict(fault)
    raised = fault.details.get("exception", fault.message)
    types = fault.details.get("exception_types", ())
    if expected.type not in types:
        message = f"the call was refused with {raised!r}, but should be refused with {expected}"
    elif expected.type == "Exception" and _SLIPS.intersection(types):
        message = f"the call ended with {raised!r}, a slip in code that ran all the same, but should be refused"
    elif not expected.matches(str(raised)):
        message = f"the error says {raised!r}, but should have {expected.required_text()}"
    else:
        return Verdict(status=_PASSED, evidence=Evidence.RAISED_AS_EXPECTED, message=f"refused: {raised}")
    return Verdict(status=Status.FAILED, reason=Reason.WRONG_ERROR, message=message, details=fault.details)


def _grounds(case: TestCase, inputs: Sequence[Any]) -> dict[str, str]:
    """Why the operator, or its own reference, refuses the call."""
    try:
        with Border("the operator", Reason.BAD_CASE):
            refuse_unfit(case)
            reference = case.descriptor.reference
            if isinstance(reference, str) and reference.startswith("optest.operators."):
                load_object(reference)(at_their_places(case, [each.copy() for each in inputs]), dict(case.attributes))
    except Fault as fault:
        if "UnfitArguments" in fault.details.get("exception_types", ()):
            return {"why": str(fault.details["exception"]).partition(": ")[2]}
    return {}


# What a verdict means for a case


def excused(case: TestCase, verdict: Verdict) -> Verdict:
    """Waive the failure that the case's xfail names; only one without a status covers faults of the case, too."""
    if case.xfail is None or verdict.status is Status.SKIPPED:
        return verdict
    excuses_all = case.xfail.status is None and verdict.status in (Status.FAILED, Status.ERROR)
    if verdict.reason in _NOBODY_EXPECTS and not (excuses_all and verdict.reason is Reason.BAD_CASE):
        return verdict
    if excuses_all or verdict.status is case.xfail.status:
        message = f"{verdict.message} (expected: {case.xfail.reason})" if verdict.message else case.xfail.reason
        return replace(verdict, status=Status.XFAILED, message=message)
    label = "failed or error" if case.xfail.status is None else case.xfail.label
    if verdict.status is Status.PASSED:
        message = f"passed, but the plan expects {label}: {case.xfail.reason}"
        return replace(verdict, status=_PASSED if case.xfail.strict is False else Status.XPASSED, message=message)
    message = f"{verdict.message} (xfail excuses {label} alone, not {verdict.status.value})"
    return replace(verdict, message=message)


def _doubted(case: TestCase, verdict: Verdict, expected: Sequence[Expected]) -> Verdict:
    """A pass that proves little is suspect: one of an operator that is its own reference, one without a finite element,
    or one that a constant output would have, too.

    Where the user wrote the inputs down (data, a file, a generator of their own), the first is what was asked for.
    """
    if verdict.status is not _PASSED:
        return verdict
    if BY_ITSELF in verdict.checks:
        message = "the reference is the operator itself: no independent reference; give `reference:`"
        return replace(verdict, status=Status.SUSPECT, message=message)
    for index, (measure, wanted) in enumerate(zip(verdict.measures, expected, strict=True)):
        why = _proves_little(case, index, measure, wanted)
        if why:
            return replace(verdict, status=Status.SUSPECT, message=f"{measure.output}: {why}")
    return verdict


def judged_by_others(verdict: Verdict) -> Verdict:
    """Where a backend is on trial, a pass by the expected values that it brought itself is suspect."""
    if verdict.status is not _PASSED or BY_BACKEND not in verdict.checks:
        return verdict
    message = "the backend brought the expected values itself, and a check asks the reference; leave out its `golden`"
    return replace(verdict, status=Status.SUSPECT, message=message)


def _proves_little(case: TestCase, index: int, measure: Measure, expected: Expected) -> str:
    is_lost = measure.compared and measure.max_abs_index is None and has_no_number(expected)
    is_written_down = case.generator is not None or any(argument.fill.kind in _WRITTEN_DOWN for argument in case.inputs)
    if is_lost and not is_written_down and not _has_one_answer(case, expected):
        return (
            "every element should be NaN or infinite, which a backend passes that is wrong everywhere; "
            "choose inputs whose results are numbers"
        )
    constant = passing_constant(case, index, measure, expected)
    return f"the tolerance is so wide that an output of {constant} passes too; set a smaller one" if constant else ""


def _has_one_answer(case: TestCase, expected: Expected) -> bool:
    """Whether nothing is computed, which could overflow: infinity and NaN are there because the call moves or states
    them, as ``torch.full(…, -inf)`` and a mask that hides everything do."""
    rule = expected.rule or case.descriptor.rule
    return rule is not None and rule.kind in (RuleClass.MOVEMENT, RuleClass.EXACT)


_WRITTEN_DOWN = ("data", "file", "opinfo")
"""Fills whose values somebody chose for the call."""


def after_attempts(verdict: Verdict, attempts: int, earlier: Verdict | None) -> Verdict:
    """What ends well after an attempt that died is suspect, and every end says what the earlier attempt died of.

    That is a pass, and whatever else would end a run with 0: an xfail excuses no crash, and a crash is not skipped.
    """
    if attempts == 1 or earlier is None:
        return verdict
    died = f"{earlier.reason.value if earlier.reason else earlier.status.value}: {earlier.message}"
    if verdict.status in BAD_STATUSES:
        if (verdict.reason, verdict.message) == (earlier.reason, earlier.message):
            return verdict
        return replace(verdict, details={**verdict.details, "earlier attempt": died})
    message = f"{verdict.status.value} at attempt {attempts}, after {died}"
    return replace(verdict, status=Status.SUSPECT, reason=None, message=message)
