"""One case in this process: inputs, expected, actual, verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from optest.backends import BackendDriver, backend_manager
from optest.backends.abilities import MeasuresCompilation, writes_outputs
from optest.backends.command_abilities import outside_capabilities
from optest.compare import Expected
from optest.core.actual import BackendAnswer, ask_backend, further_answers
from optest.core.benchmarking import BenchOptions, benchmark_of
from optest.core.border import Border
from optest.core.comparison import Comparison
from optest.core.expected import expected_outputs, require_refused
from optest.core.inputs import make_inputs
from optest.core.invariants import further_calls, invariants_of
from optest.core.kept_tensors import tensors_kept
from optest.core.layers import is_composed
from optest.core.phases import BENCHMARK, COMPARE, GENERATE, IDLE, REFERENCE, RUN, Clock, Phase
from optest.core.results import result_of
from optest.core.side_effects import SideEffects, runs_foreign_code
from optest.core.surroundings import call_in_other_surroundings, has_surroundings
from optest.core.validation import validated
from optest.core.verdicts import excused, fault_verdict, verdict_of
from optest.numerics import reset_float_mode
from optest.spec import (
    BAD_STATUSES,
    FORWARD,
    Benchmark,
    CaseResult,
    Check,
    Evidence,
    Fault,
    Reason,
    Status,
    TensorSpec,
    TestCase,
    Timings,
    Verdict,
)
from optest.spec.invariants import STATELESS, Invariant

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """One execution and the verdicts that the cases sharing it got from it, in order."""

    verdicts: tuple[Verdict, ...]
    timings: Timings
    benchmark: Benchmark | None = None
    is_tainted: bool = False
    """Whether the process is no longer what it was, so that nothing else should run in it."""
    devices: tuple[int, ...] = ()
    """The ids of the devices that it had."""
    attempts: int = 1
    """How often it began: more than once where a machine was lost under it."""

    @classmethod
    def for_all(cls, cases: Sequence[TestCase], verdict: Verdict) -> ExecutionResult:
        """Return the result of an execution that gave every case the same verdict, waived for expected failures."""
        return cls(tuple(excused(case, verdict) for case in cases), Timings())


def execute(
    cases: Sequence[TestCase],
    driver: BackendDriver,
    *,
    announce: Callable[[Phase], None] | None = None,
    every_measure: bool = False,
    interrupted: Callable[[], bool] | None = None,
    bench: BenchOptions | None = None,
    side_effects: SideEffects | None = None,
    keep: Path | None = None,
) -> ExecutionResult:
    """Run cases that compute the same thing once and judge each of them for itself.

    ``announce`` is told each phase before it begins; with ``bench`` what passed is timed at the end.
    ``interrupted`` tells a real Ctrl-C, which is raised, from a KeyboardInterrupt that the backend threw, which is a
    verdict. ``side_effects`` watches what foreign code does to this process. ``keep`` is a folder for all tensors.
    """
    if keep is not None:
        more: dict[str, Any] = {"every_measure": every_measure, "bench": bench, "side_effects": side_effects}
        with tensors_kept(cases[0], driver, keep, announce or (lambda _: None)):
            return execute(cases, driver, announce=announce, interrupted=interrupted, **more)
    if side_effects is not None:
        side_effects.begin(cases[0])
    run = _Run(cases, driver, Clock(announce), interrupted)
    known = run.validated()
    answer = BackendAnswer((), ()) if known else run.answer()
    fault = None if side_effects is None else side_effects.fault(cases[0])
    if fault is not None:  # the process has changed, so that the answer, or another fault, says nothing
        answer = answer._replace(outputs=(), fault=fault) if isinstance(answer, BackendAnswer) else fault
    elif known:
        return ExecutionResult(known, run.timings())
    return run.judged(answer, every_measure, bench, is_tainted=fault is not None)


def _shelf() -> tuple[Callable[[object, Sequence[Expected]], None], Callable[[object], Sequence[Expected] | None]]:
    """Where the expected outputs of runs lie: no frame of a backend's callers leads there."""
    held: WeakKeyDictionary[object, Sequence[Expected]] = WeakKeyDictionary()
    return held.__setitem__, held.get


_put_on_shelf, _on_shelf = _shelf()


class _Run:
    """One execution: :meth:`answer`, then :meth:`judged`."""

    __slots__ = ("__weakref__", "_cases", "_clock", "_driver", "_inputs", "_interrupted", "_layouts", "_notes", "_own")

    def __init__(
        self,
        cases: Sequence[TestCase],
        driver: BackendDriver,
        clock: Clock,
        interrupted: Callable[[], bool] | None,
    ) -> None:
        self._cases = cases
        self._driver = driver
        self._clock = clock
        self._interrupted = interrupted
        self._inputs: Sequence[Array] = ()
        self._layouts: Sequence[tuple[str, TensorSpec]] | None = None
        self._notes: tuple[Check, ...] = ()
        self._own: list[Array] = []

    def validated(self) -> tuple[Verdict, ...]:
        """The verdicts of cases of which no values are asked; none where the call has to be made."""
        if self._cases[0].mode == FORWARD:
            return ()
        self._clock.enter(RUN)
        verdict = validated(self._cases[0], self._driver, self._interrupted)
        return () if verdict is None else tuple([excused(each, verdict) for each in self._cases])

    def timings(self) -> Timings:
        self._clock.enter(IDLE)
        return self._clock.timings()

    def answer(self) -> BackendAnswer | Fault:
        """What the backend makes of the inputs; the fault of what has to be known before it is asked."""
        case, driver, clock = self._cases[0], self._driver, self._clock
        try:
            self._prepare()
            clock.enter(RUN)
            answer = ask_backend(case, driver, self._inputs, self._layouts, self._notes, self._interrupted, self._own)
            if isinstance(driver, MeasuresCompilation):
                with Border("the backend's `compile_s`", Reason.RAISED):
                    clock.compile_s = driver.compile_s()
            further = answer.fault is None and (has_surroundings(driver, case) or invariants_of(case))
            return self._with_further_calls(answer) if further else answer
        except Fault as fault:
            return fault

    def _with_further_calls(self, answer: BackendAnswer) -> BackendAnswer:
        """The answer with what further calls show, whose time is not that of the case: one in other surroundings, and
        those of its invariants."""
        case, driver = self._cases[0], self._driver
        known = further_answers(case, driver)  # before it runs anything else
        self._clock.enter(COMPARE)
        first = self._comparison(case, answer, ())
        checks, invariants = answer.checks, invariants_of(case)
        if has_surroundings(driver, case):
            others: list[Array] = []
            try:
                checks += call_in_other_surroundings(first, self._layouts, others)
            except Fault as fault:
                return answer._replace(fault=fault)
            if any(map(np.may_share_memory, self._own, others)):
                invariants = (*invariants, Invariant(name=STATELESS))  # a buffer that the next call writes, too
        further, of_invariants = further_calls(first, self._layouts, invariants)
        return answer._replace(further=(*known, *further), checks=(*checks, *of_invariants))

    def _comparison(self, case: TestCase, answer: BackendAnswer, expected: Sequence[Expected]) -> Comparison:
        outputs, clock = answer.outputs, self._clock
        return Comparison(case, self._driver, self._inputs, outputs, expected, clock, self._interrupted)

    def _prepare(self) -> None:
        """Make the inputs and the expected outputs."""
        cases, clock, interrupted = self._cases, self._clock, self._interrupted
        clock.enter(GENERATE)
        reset_float_mode()  # a library linked with -ffast-math changes it when it is loaded
        self._inputs, known = make_inputs(cases[0], interrupted)
        clock.enter(REFERENCE)
        judged = [each for each in cases if each.expects_error is None]
        if not judged:
            require_refused(cases[0], self._inputs, interrupted)
            return
        expected, self._notes = expected_outputs(judged, self._inputs, known, self._driver, interrupted)
        _put_on_shelf(self, expected)
        if writes_outputs(self._driver, cases[0]):
            self._layouts = _layouts(expected)

    def judged(
        self, answer: BackendAnswer | Fault, every_measure: bool, bench: BenchOptions | None, *, is_tainted: bool
    ) -> ExecutionResult:
        """The verdicts, and timings of what passed."""
        cases, clock, benchmark = self._cases, self._clock, None
        if isinstance(answer, Fault):
            clock.enter(IDLE)
            verdict = fault_verdict(answer)
            return ExecutionResult(tuple([excused(each, verdict) for each in cases]), clock.timings(), None, is_tainted)
        clock.enter(COMPARE)
        expected = _on_shelf(self) or ()

        def compared(case: TestCase) -> Comparison:
            return self._comparison(case, answer, expected)

        verdicts = [excused(case, verdict_of(compared(case), answer, every_measure=every_measure)) for case in cases]
        passed = [
            place
            for place, each in enumerate(verdicts)  # a refusal that was expected is no work to be timed
            if each.status is Status.PASSED and each.evidence is Evidence.MEASURED
        ]
        if bench is not None and passed:
            clock.enter(BENCHMARK)
            try:
                benchmark = _timed(compared(cases[passed[0]])._replace(clock=Clock(None)), bench)
            except Fault as fault:
                for place in passed:
                    verdicts[place] = excused(cases[place], fault_verdict(fault))
        clock.enter(IDLE)
        return ExecutionResult(tuple(verdicts), clock.timings(), benchmark, is_tainted)


def _layouts(expected: Sequence[Expected]) -> list[tuple[str, TensorSpec]]:
    return [(each.name, TensorSpec(dtype=each.dtype, shape=each.shape)) for each in expected]


def _timed(comparison: Comparison, bench: BenchOptions) -> Benchmark:
    """Time the case; whatever is timed is judged as the case is, by its own numerics.

    Raises:
        Fault: if the backend fails when it is called often.
    """

    def judged(driver: BackendDriver, outputs: Sequence[Array]) -> Verdict:
        theirs = comparison._replace(driver=driver, outputs=outputs, interrupted=None)
        return verdict_of(theirs, BackendAnswer(outputs, (), further=()))

    specs = [spec for _, spec in _layouts(comparison.expected)]
    return benchmark_of(comparison.case, comparison.driver, comparison.inputs, specs, judged, bench)


_REFUSED_BY_PARTS = Verdict(
    status=Status.SKIPPED, reason=Reason.UNSUPPORTED, message="a layer that is made of operators refuses by them"
)


def why_not_run(case: TestCase, driver: BackendDriver) -> Verdict | None:
    """The verdict of a case that is not run: skipped by the plan, or unsupported by the backend."""
    if case.skip is not None:
        return Verdict(status=Status.SKIPPED, message=case.skip.reason)
    try:
        with Border("the backend's `unsupported`", Reason.RAISED):
            if is_composed(driver, case.descriptor):
                # its parts are looked at when they are called
                return None if case.expects_error is None else _REFUSED_BY_PARTS
            lack = outside_capabilities(driver, case) or driver.unsupported(case)
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
        self._side_effects: SideEffects | None = None

    def run(
        self, cases: Iterable[TestCase], on_result: Callable[[CaseResult, int, int], None] | None = None
    ) -> list[CaseResult]:
        """Return one result for each case; ``seed`` replaces the cases' own; ``on_result`` gets (result, index, total).

        Raises:
            UnknownName: if a case names a backend that is not registered.
            UsageError: if something replaced functions of NumPy before.
        """
        self._side_effects = None
        planned = [case if self.seed is None else replace(case, seed=self.seed) for case in cases]
        results: list[CaseResult] = []
        for index, case in enumerate(planned):
            results.append(self._run_one(case, is_last=index + 1 == len(planned)))
            if on_result is not None:
                on_result(results[-1], index, len(planned))
            if self.fail_fast and results[-1].status in BAD_STATUSES:
                break
        return results

    def _run_one(self, case: TestCase, *, is_last: bool) -> CaseResult:
        driver = backend_manager.get(case.backend.name)
        refusal = why_not_run(case, driver)
        if refusal is not None:
            return result_of(case, excused(case, refusal))
        side_effects = None
        if runs_foreign_code(driver, case):
            side_effects = self._side_effects = self._side_effects or SideEffects.here()
            side_effects.is_last = is_last
        execution = execute([case], driver, every_measure=self.every_measure, side_effects=side_effects)
        return result_of(case, execution.verdicts[0], timings=execution.timings)
