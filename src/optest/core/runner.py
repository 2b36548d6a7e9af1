"""One case in this process: inputs, expected, actual, verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from optest.backends import BackendDriver, backend_manager
from optest.compare import Expected
from optest.compare.verdict import judge
from optest.core.actual import actual_outputs
from optest.core.border import Border
from optest.core.expectations import doubted, excused, fault_verdict, refusal_verdict
from optest.core.expected import expected_outputs
from optest.core.inputs import make_inputs
from optest.core.results import result_of
from optest.numerics import reset_float_mode
from optest.spec import BAD_STATUSES, CaseResult, Check, CheckState, Fault, Reason, Status, TestCase, Timings, Verdict
from optest.spec.construct import constructor

__all__ = ["Execution", "Phase", "TestRunner", "execute", "why_not_run"]

Array = np.ndarray[Any, Any]
new_timings = constructor(Timings)
_INTERNAL = Reason.INTERNAL


class Phase(IntEnum):
    """What a process is doing for a case; a parent reads it to know whose fault a death or a hang is."""

    IDLE = 0
    GENERATE = 1
    REFERENCE = 2
    RUN = 3
    COMPARE = 4


_IDLE, _GENERATE, _REFERENCE, _RUN, _COMPARE = Phase
"""Members by themselves: asking an enumeration for one costs as much as calling a function."""
_PHASES = len(Phase)


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution and the verdicts that the cases sharing it got from it, in order."""

    verdicts: tuple[Verdict, ...]
    timings: Timings


class _Clock:
    """Announces each phase as it begins and keeps how many seconds each of them took."""

    __slots__ = ("_announce", "_phase", "_seconds", "_since")

    def __init__(self, announce: Callable[[Phase], None] | None) -> None:
        self._announce = announce
        self._seconds: list[float | None] = [None] * _PHASES
        self._phase = _IDLE
        self._since = 0.0

    def enter(self, phase: Phase) -> None:
        now = perf_counter()
        self._seconds[self._phase] = now - self._since
        self._phase, self._since = phase, now
        if self._announce is not None:
            self._announce(phase)

    def timings(self) -> Timings:
        _, generate_s, reference_s, run_s, compare_s = self._seconds
        return new_timings(generate_s=generate_s, reference_s=reference_s, run_s=run_s, compare_s=compare_s)


class _Answer(NamedTuple):
    """What the backend made of a case, or its fault, with what else was looked at."""

    outputs: Sequence[Array]
    checks: tuple[Check, ...]
    fault: Fault | None = None


def execute(
    cases: Sequence[TestCase],
    driver: BackendDriver,
    *,
    announce: Callable[[Phase], None] | None = None,
    every_measure: bool = False,
    interrupted: Callable[[], bool] | None = None,
) -> Execution:
    """Run cases that compute the same thing once and judge each of them for itself.

    ``announce`` is told each phase before it begins. ``interrupted`` tells a real Ctrl-C, which is raised,
    from a KeyboardInterrupt that the backend threw, which is a verdict.
    """
    case = cases[0]
    clock = _Clock(announce)
    expected: Sequence[Expected] | None = None
    notes: tuple[Check, ...] = ()
    try:
        clock.enter(_GENERATE)
        reset_float_mode()  # a library linked with -ffast-math changes it when it is loaded
        inputs, known = make_inputs(case, interrupted)
        judged = [each for each in cases if each.expects_error is None]
        if judged:
            clock.enter(_REFERENCE)
            expected, notes = expected_outputs(judged, inputs, known, driver, interrupted)
    except Fault as fault:
        verdict = fault_verdict(fault)
        verdicts = [excused(each, verdict) for each in cases]
    else:
        clock.enter(_RUN)
        answer = _asked(case, driver, inputs, expected, notes, interrupted)
        clock.enter(_COMPARE)
        verdicts = [excused(each, _verdict(each, driver, inputs, expected, answer, every_measure)) for each in cases]
    clock.enter(_IDLE)
    return Execution(tuple(verdicts), clock.timings())


def _asked(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    expected: Sequence[Expected] | None,
    notes: tuple[Check, ...],
    interrupted: Callable[[], bool] | None,
) -> _Answer:
    try:
        outputs, checks = actual_outputs(case, driver, inputs, expected, interrupted)
    except Fault as fault:
        return _Answer((), notes + _checks_of_driver(case, driver), fault)
    further = notes + _checks_of_driver(case, driver)
    return _Answer(outputs, _together(checks, further) if further else checks)


def _together(checks: tuple[Check, ...], further: tuple[Check, ...]) -> tuple[Check, ...]:
    """What was not possible here stands only where the driver did not see to it itself."""
    seen_to = {check.name for check in further if check.state is CheckState.DONE}
    return tuple(c for c in checks if c.state is not CheckState.NOT_POSSIBLE or c.name not in seen_to) + further


def _verdict(
    case: TestCase,
    driver: BackendDriver,
    inputs: Sequence[Array],
    expected: Sequence[Expected] | None,
    answer: _Answer,
    every_measure: bool,
) -> Verdict:
    """One of the cases judged; ``expected`` is None where no case needs it, empty where there is no reference."""
    if case.expects_error is not None:
        return refusal_verdict(case.expects_error, answer.fault)
    if answer.fault is not None:
        return replace(fault_verdict(answer.fault), checks=answer.checks)
    if not expected:
        return Verdict(
            status=Status.UNCHECKED,
            message=f"{case.descriptor.name} has no reference, so nothing was compared",
            checks=answer.checks,
        )
    try:
        with Border("the comparison", _INTERNAL):
            verdict = judge(
                case,
                answer.outputs,
                expected,
                numerics=driver.numerics,
                every_measure=every_measure,
                inputs=inputs,
                checks=answer.checks,
            )
            return doubted(case, verdict, expected)
    except Fault as fault:
        return fault_verdict(fault)


def _checks_of_driver(case: TestCase, driver: BackendDriver) -> tuple[Check, ...]:
    """What the driver itself looked at; a driver that fails to say so is not believed, but keeps its outputs."""
    if type(driver).checks is BackendDriver.checks:
        return ()
    try:
        with Border("the backend's `checks`", Reason.RAISED):
            return tuple(driver.checks(case))
    except Fault as fault:
        return (Check(name="the backend's own checks", state=CheckState.INCONCLUSIVE, detail=fault.message),)


def why_not_run(case: TestCase, driver: BackendDriver) -> Verdict | None:
    """The verdict of a case that is not run: skipped by the plan, or unsupported by the backend."""
    if case.skip is not None:
        return Verdict(status=Status.SKIPPED, message=case.skip.reason)
    if getattr(driver.unsupported, "__func__", None) is BackendDriver.unsupported:
        return None
    try:
        with Border("the backend's `unsupported`", Reason.RAISED):
            lack = driver.unsupported(case)
            if lack is not None and not isinstance(lack, str):
                raise TypeError(f"`unsupported` returned {lack!r}, but should return text, or None")
    except Fault as fault:
        return fault_verdict(fault)
    if lack is None:
        return None
    return Verdict(status=Status.SKIPPED, reason=Reason.UNSUPPORTED, message=lack)


class TestRunner:
    """Runs cases one after the other in this process, for embedding; ``optest run`` adds workers and journals.

    Each case's own backend is asked, found by name among ``optest.backends.backend_manager``.
    """

    __test__ = False  # pytest would take the name for a test class

    def __init__(self, *, seed: int | None = None, fail_fast: bool = False, every_measure: bool = False) -> None:
        self.seed = seed
        self.fail_fast = fail_fast
        self.every_measure = every_measure

    def run(
        self, cases: Iterable[TestCase], on_result: Callable[[CaseResult, int, int], None] | None = None
    ) -> list[CaseResult]:
        """Return one result for each case; ``seed`` replaces the cases' own; ``on_result`` gets (result, index, total).

        Raises:
            UnknownName: if a case names a backend that is not registered.
        """
        planned = [case if self.seed is None else replace(case, seed=self.seed) for case in cases]
        results: list[CaseResult] = []
        for index, case in enumerate(planned):
            results.append(self._run_one(case))
            if on_result is not None:
                on_result(results[-1], index, len(planned))
            if self.fail_fast and results[-1].status in BAD_STATUSES:
                break
        return results

    def _run_one(self, case: TestCase) -> CaseResult:
        driver = backend_manager.get(case.backend.name)
        refusal = why_not_run(case, driver)
        if refusal is not None:
            return result_of(case, refusal)
        execution = execute([case], driver, every_measure=self.every_measure)
        return result_of(case, execution.verdicts[0], timings=execution.timings)
