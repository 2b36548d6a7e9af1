"""The verdict of one case on what the backend answered, and on its further answers.

A further answer is judged by what is expected already; one to other inputs by what the reference says of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from optest.backends import BackendDriver, FurtherAnswer, declared_numerics
from optest.backends.abilities import Blames, GivesFurtherAnswers
from optest.compare import Expected
from optest.compare.verdict import judge
from optest.core.actual import BackendAnswer, further_answers
from optest.core.border import Border
from optest.core.diagnosis import diagnosed
from optest.core.expectations import doubted, fault_verdict, refusal_verdict
from optest.core.expected import expected_of_other_inputs, may_refuse
from optest.core.operand_readings import judged_by_readings
from optest.core.outputs import in_order
from optest.core.phases import REFERENCE, RUN, Clock
from optest.core.worst_operands import with_definition, with_worst_operands
from optest.numerics import round_to
from optest.spec import Check, CheckState, ExpectedError, Fault, Reason, Status, TestCase, Verdict

__all__ = ["verdict_of"]

Array = np.ndarray[Any, Any]
_INTERNAL = Reason.INTERNAL

_OTHER_VALUES = "other values"
"""The check that says of which inputs other values were tried."""


def verdict_of(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    expected: Sequence[Expected] | None,
    answer: BackendAnswer,
    *,
    clock: Clock,
    every_measure: bool = False,
    interrupted: Callable[[], bool] | None = None,
) -> Verdict:
    """One of the cases judged; ``expected`` is None where no case needs it, empty where there is no reference.

    A backend, or a reference, that is asked once more is told to the ``clock``.
    """
    if case.expects_error is not None:
        return refusal_verdict(case, case.expects_error, inputs, answer.fault)
    if answer.fault is not None:
        verdict = _of_fault(case, inputs, answer.fault, has_reference=bool(expected))
        wrong = _wrong_among_written(case, driver, inputs, expected or (), answer.fault)
        if wrong is not None:
            message = f"{verdict.message}; elements that were written are wrong, too"
            verdict = replace(verdict, message=message, measures=wrong.measures)
        return replace(verdict, checks=answer.checks)
    if not expected:
        return Verdict(
            status=Status.UNCHECKED,
            message=f"{case.descriptor.name} has no reference, so nothing was compared",
            checks=answer.checks,
        )
    try:
        verdict = _judged(
            case,
            driver,
            inputs,
            answer.outputs,
            expected,
            clock=clock,
            interrupted=interrupted,
            every_measure=every_measure,
            checks=answer.checks,
        )
        if verdict.status is Status.FAILED:
            verdict = diagnosed(
                case, driver, inputs, answer.outputs, expected, verdict, clock=clock, interrupted=interrupted
            )
            if isinstance(driver, Blames):
                with Border("the backend's `blame`", Reason.RAISED), clock.announced(RUN):
                    driver.blame(case, [array.view() for array in inputs])
        if verdict.status is Status.PASSED and isinstance(driver, GivesFurtherAnswers):
            verdict = _verdict_of_further(
                case, driver, inputs, expected, answer, verdict, clock=clock, interrupted=interrupted
            )
        with Border("the comparison", _INTERNAL):
            return doubted(case, verdict, expected)
    except Fault as fault:
        return fault_verdict(fault)


def _of_fault(case: TestCase, inputs: Sequence[Array], fault: Fault, *, has_reference: bool) -> Verdict:
    """A fault, but for an exception where the operator has no right answer to these inputs."""
    if fault.reason is not Reason.RAISED or not has_reference:
        return fault_verdict(fault)
    try:
        why = may_refuse(case, inputs)
    except Fault as of_hook:
        return fault_verdict(of_hook)
    if not why:
        return fault_verdict(fault)
    verdict = refusal_verdict(case, ExpectedError(), inputs, fault)
    return replace(verdict, message=f"{verdict.message}; {why}")


def _wrong_among_written(
    case: TestCase, driver: BackendDriver, inputs: Sequence[Array], expected: Sequence[Expected], fault: Fault
) -> Verdict | None:
    """What is wrong with the elements that were written, where others were not; None if nothing, or nothing is known.

    One fault must not hide another: for the comparison, elements without a result get the right one.
    """
    if not expected or not all(each.name in fault.written for each in expected):
        return None
    outputs = []
    for each in expected:
        values, never = fault.written[each.name]
        outputs.append(np.where(never, round_to(np.asarray(each.value), each.dtype), values))
    with Border("the comparison", _INTERNAL):
        verdict = judge(case, outputs, expected, numerics=declared_numerics(driver, case), inputs=inputs)
    return verdict if verdict.status is Status.FAILED else None


def _judged(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    expected: Sequence[Expected],
    *,
    clock: Clock,
    interrupted: Callable[[], bool] | None,
    every_measure: bool,
    checks: tuple[Check, ...] = (),
) -> Verdict:
    """Outputs compared, also by what is right for operands that the backend reads otherwise, with the worst operands
    and the operator's definition where the values are wrong."""
    with Border("the comparison", _INTERNAL):
        verdict = judge(
            case,
            outputs,
            expected,
            numerics=declared_numerics(driver, case),
            every_measure=every_measure,
            inputs=inputs,
            checks=checks,
        )
    if verdict.status is not Status.FAILED:
        return verdict
    verdict = judged_by_readings(case, driver, inputs, outputs, verdict, clock=clock, interrupted=interrupted)
    return with_definition(case, with_worst_operands(case, inputs, verdict))


def _verdict_of_further(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    expected: Sequence[Expected],
    answer: BackendAnswer,
    first: Verdict,
    *,
    clock: Clock,
    interrupted: Callable[[], bool] | None,
) -> Verdict:
    """The verdict of the first further answer that is not a pass; ``first``, that of ``answer``, if there is none.

    Where inputs had other values the verdict says so as a check, and as one that was not possible where nobody knows
    what is right. The reference that is asked then is told to the ``clock``.

    Raises:
        Fault: if the driver, or the comparison, fails.
    """
    further = answer.further
    if further is None:
        further = further_answers(case, driver)
    if not further:
        return first
    tried = _Tried()
    for other in further:
        given, wanted = inputs, expected
        if other.inputs is not None:
            given = _with_others(case, inputs, other)
            known = _known_of_others(case, driver, given, other, clock, interrupted)
            if isinstance(known, str):
                tried.why_not.setdefault(known, []).extend(other.inputs)
                continue
            tried.judged += other.inputs
            wanted = known
        outputs = in_order(case, other.outputs)
        verdict = _judged(
            case, driver, given, outputs, wanted, clock=clock, interrupted=interrupted, every_measure=True
        )
        if verdict.status is not Status.PASSED:
            return replace(
                verdict,
                reason=other.reason or verdict.reason,
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


def _with_others(case: TestCase, inputs: Sequence[Array], other: FurtherAnswer) -> list[Array]:
    assert other.inputs is not None
    own = zip(case.inputs, inputs, strict=True)
    return [other.inputs.get(argument.name, array) for argument, array in own]


def _known_of_others(
    case: TestCase,
    driver: BackendDriver,
    given: Sequence[Array],
    other: FurtherAnswer,
    clock: Clock,
    interrupted: Callable[[], bool] | None,
) -> list[Expected] | str:
    """What is expected of other inputs, or why nobody knows."""
    assert other.inputs is not None
    if not {argument.name for argument in case.inputs}.issuperset(other.inputs):
        return "the case has none, so no reference gets it"
    with clock.announced(REFERENCE):
        return expected_of_other_inputs(case, given, driver, interrupted)
