"""Further answers judged: to the same inputs by what is expected already, to others by what the reference says of
these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from optest.backends import BackendDriver, FurtherAnswer, declared_numerics
from optest.compare import Expected
from optest.compare.verdict import judge
from optest.core.answers import Answer, further_answers
from optest.core.border import Border
from optest.core.expected import expected_of_other_inputs
from optest.core.operand_readings import judged_by_readings
from optest.core.outputs import in_order
from optest.core.phases import REFERENCE, Clock
from optest.core.worst_operands import with_definition, with_worst_operands
from optest.spec import Check, CheckState, Reason, Status, TestCase, Verdict

__all__ = ["OTHER_VALUES", "verdict_of_further"]

Array = np.ndarray[Any, Any]

OTHER_VALUES = "other values"
"""The check that says of which inputs other values were tried."""


def verdict_of_further(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    expected: Sequence[Expected],
    answer: Answer,
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
        with Border("the comparison", Reason.INTERNAL):
            found = judge(
                case, outputs, wanted, numerics=declared_numerics(driver, case), every_measure=True, inputs=given
            )
        found = judged_by_readings(case, driver, given, outputs, found, clock=clock, interrupted=interrupted)
        found = with_definition(case, with_worst_operands(case, given, found))
        if found.status is not Status.PASSED:
            return replace(
                found,
                reason=other.reason or found.reason,
                message=f"{other.how}: {found.message}",
                checks=(*answer.checks, *tried.checks()),
                details={**found.details, "how": other.how},
            )
    return replace(first, checks=(*first.checks, *tried.checks()))


@dataclass(slots=True)
class _Tried:
    """Which inputs had other values in an answer that was judged, and in one that was not and why."""

    judged: list[str] = field(default_factory=list)
    why_not: dict[str, list[str]] = field(default_factory=dict)

    def checks(self) -> list[Check]:
        told = [
            Check(name=OTHER_VALUES, state=CheckState.NOT_POSSIBLE, detail=f"{_inputs(names)}: {why}")
            for why, names in self.why_not.items()
        ]
        if self.judged:
            detail = f"of {_inputs(self.judged)}" + ", one after the other" * (len(self.judged) > 1)
            told.insert(0, Check(name=OTHER_VALUES, state=CheckState.DONE, detail=detail))
        return told


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
