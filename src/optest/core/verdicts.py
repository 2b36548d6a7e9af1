"""The verdict of one case on what the backend answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from optest.backends import BackendDriver, declared_numerics
from optest.backends.abilities import Blames, GivesFurtherAnswers
from optest.compare import Expected
from optest.compare.verdict import judge
from optest.core.answers import Answer
from optest.core.border import Border
from optest.core.diagnosis import diagnosed
from optest.core.expectations import doubted, fault_verdict, refusal_verdict
from optest.core.expected import may_refuse
from optest.core.further_verdicts import verdict_of_further
from optest.core.operand_readings import judged_by_readings
from optest.core.phases import RUN, Clock
from optest.core.worst_operands import with_definition, with_worst_operands
from optest.spec import ExpectedError, Fault, Reason, Status, TestCase, Verdict

__all__ = ["verdict_of"]

Array = np.ndarray[Any, Any]
_INTERNAL = Reason.INTERNAL


def verdict_of(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    expected: Sequence[Expected] | None,
    answer: Answer,
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
        return replace(_of_fault(case, inputs, answer.fault, has_reference=bool(expected)), checks=answer.checks)
    if not expected:
        return Verdict(
            status=Status.UNCHECKED,
            message=f"{case.descriptor.name} has no reference, so nothing was compared",
            checks=answer.checks,
        )
    try:
        verdict = _of_values(case, driver, inputs, expected, answer, every_measure)
        verdict = judged_by_readings(
            case, driver, inputs, answer.outputs, verdict, clock=clock, interrupted=interrupted
        )
        verdict = with_definition(case, with_worst_operands(case, inputs, verdict))
        verdict = diagnosed(
            case, driver, inputs, answer.outputs, expected, verdict, clock=clock, interrupted=interrupted
        )
        if verdict.status is Status.FAILED and isinstance(driver, Blames):
            with Border("the backend's `blame`", Reason.RAISED), clock.announced(RUN):
                driver.blame(case, [array.view() for array in inputs])
        if verdict.status is Status.PASSED and isinstance(driver, GivesFurtherAnswers):
            verdict = verdict_of_further(
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


def _of_values(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    expected: Sequence[Expected],
    answer: Answer,
    every_measure: bool,
) -> Verdict:
    with Border("the comparison", _INTERNAL):
        return judge(
            case,
            answer.outputs,
            expected,
            numerics=declared_numerics(driver, case),
            every_measure=every_measure,
            inputs=inputs,
            checks=answer.checks,
        )
