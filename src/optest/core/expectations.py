"""What a verdict means for a case that expected something else than a pass: refusal, xfail, a retry."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from optest.backends.arguments import at_their_places, refuse_unfit
from optest.compare import Expected
from optest.compare.verdict import admits_zeros, has_no_number
from optest.core.border import Border
from optest.core.expected import BY_BACKEND, BY_ITSELF
from optest.registry import load_object
from optest.spec import (
    BAD_STATUSES,
    Evidence,
    ExpectedError,
    Fault,
    Measure,
    Reason,
    RuleClass,
    Status,
    TestCase,
    Verdict,
)

__all__ = ["after_attempts", "doubted", "excused", "fault_verdict", "judged_by_others", "refusal_verdict"]


_PASSED = Status.PASSED
_NOBODY_EXPECTS = frozenset({Reason.UNAVAILABLE, Reason.REFERENCE_FAILED, Reason.BAD_CASE, Reason.INTERNAL})
"""Reasons for which the backend was not even asked, or is not known to be at fault."""


def fault_verdict(fault: Fault) -> Verdict:
    return Verdict(status=fault.status, reason=fault.reason, message=fault.message, details=fault.details)


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
    if expected.type not in fault.details.get("exception_types", ()):
        return Verdict(
            status=Status.FAILED,
            reason=Reason.WRONG_ERROR,
            message=f"the call was refused with {raised!r}, but should be refused with {expected}",
            details=fault.details,
        )
    if expected.type == "Exception" and _SLIPS.intersection(fault.details["exception_types"]):
        return Verdict(
            status=Status.FAILED,
            reason=Reason.WRONG_ERROR,
            message=f"the call ended with {raised!r}, a slip in code that ran all the same, but should be refused",
            details=fault.details,
        )
    if not expected.matches(str(raised)):
        return Verdict(
            status=Status.FAILED,
            reason=Reason.WRONG_ERROR,
            message=f"the error says {raised!r}, but should have {expected.required_text()}",
            details=fault.details,
        )
    return Verdict(status=Status.PASSED, evidence=Evidence.RAISED_AS_EXPECTED, message=f"refused: {raised}")


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


def excused(case: TestCase, verdict: Verdict) -> Verdict:
    """Apply the case's xfail: it excuses the status that it states and nothing else, and only the backend's faults."""
    if case.xfail is None or verdict.reason in _NOBODY_EXPECTS:
        return verdict
    if verdict.status is case.xfail.status:
        message = f"{verdict.message} (expected: {case.xfail.reason})" if verdict.message else case.xfail.reason
        return dataclasses.replace(verdict, status=Status.XFAILED, message=message)
    if verdict.status is Status.PASSED:
        return dataclasses.replace(
            verdict,
            status=Status.XPASSED,
            message=f"passed, but the plan expects {case.xfail.status.value}: {case.xfail.reason}",
        )
    message = f"{verdict.message} (xfail excuses {case.xfail.status.value} alone, not {verdict.status.value})"
    return dataclasses.replace(verdict, message=message)


def doubted(case: TestCase, verdict: Verdict, expected: Sequence[Expected]) -> Verdict:
    """A pass that proves little is suspect: one of an operator that is its own reference, one without a finite element,
    or one that zeros would have got as well.

    Where the user wrote the inputs down (data, a file, a generator of their own), the first is what was asked for.
    """
    if verdict.status is not _PASSED:
        return verdict
    if BY_ITSELF in verdict.checks:
        message = "the reference is the operator itself: no independent reference; give `reference:`"
        return dataclasses.replace(verdict, status=Status.SUSPECT, message=message)
    for index, (measure, wanted) in enumerate(zip(verdict.measures, expected, strict=True)):
        why = _proves_little(case, index, measure, wanted)
        if why:
            return dataclasses.replace(verdict, status=Status.SUSPECT, message=f"{measure.output}: {why}")
    return verdict


def judged_by_others(verdict: Verdict) -> Verdict:
    """Where a backend is on trial, a pass by the expected values that it brought itself is suspect."""
    if verdict.status is not _PASSED or BY_BACKEND not in verdict.checks:
        return verdict
    message = "the backend brought the expected values itself, and a check asks the reference; leave out its `golden`"
    return dataclasses.replace(verdict, status=Status.SUSPECT, message=message)


def _proves_little(case: TestCase, index: int, measure: Measure, expected: Expected) -> str:
    is_lost = measure.compared and measure.max_abs_index is None and has_no_number(expected)
    if is_lost and not _wrote_inputs_down(case) and not _has_one_answer(case, expected):
        return (
            "every element should be NaN or infinite, which a backend passes that is wrong everywhere; "
            "choose inputs whose results are numbers"
        )
    if admits_zeros(case, index, measure, expected):
        return "the tolerance is so wide that an output of nothing but zeros passes too; state a smaller one"
    return ""


def _has_one_answer(case: TestCase, expected: Expected) -> bool:
    """Whether nothing is computed, which could overflow: infinity and NaN are there because the call moves or states
    them, as ``torch.full(…, -inf)`` and a mask that hides everything do."""
    rule = expected.rule or case.descriptor.rule
    return rule is not None and rule.kind in (RuleClass.MOVEMENT, RuleClass.EXACT)


_WRITTEN_DOWN = ("data", "file", "opinfo")
"""Fills whose values somebody chose for the call."""


def _wrote_inputs_down(case: TestCase) -> bool:
    return case.generator is not None or any(argument.fill.kind in _WRITTEN_DOWN for argument in case.inputs)


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
        return dataclasses.replace(verdict, details={**verdict.details, "earlier attempt": died})
    message = f"{verdict.status.value} at attempt {attempts}, after {died}"
    return dataclasses.replace(verdict, status=Status.SUSPECT, reason=None, message=message)
