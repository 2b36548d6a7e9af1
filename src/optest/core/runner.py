"""Execution of a case in this process: inputs, expected outputs, actual outputs, verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from optest.backends import BackendDriver, backend_manager
from optest.backends.abilities import writes_outputs
from optest.backends.command_abilities import outside_capabilities
from optest.compare import Expected
from optest.core.actual import BackendResult, extra_outputs, run_backend
from optest.core.benchmarking import BenchOptions, benchmark_of
from optest.core.border import Border
from optest.core.comparison import Comparison
from optest.core.expected import expected_outputs, make_inputs, require_refused
from optest.core.further_calls import can_vary_surroundings, check_surroundings, further_calls, read_case_invariants
from optest.core.kept_tensors import tensors_kept
from optest.core.layers import is_composed
from optest.core.phases import BENCHMARK, COMPARE, GENERATE, IDLE, REFERENCE, RUN, Clock, Phase
from optest.core.results import result_of
from optest.core.side_effects import SideEffects, runs_foreign_code
from optest.core.validation import validated
from optest.core.verdicts import apply_xfail, fault_verdict, verdict_of
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
    """Result of one execution: a verdict for each of the cases that share it, in order.

    ``is_tainted`` is true if foreign code changed the process, so that nothing else should run in it. ``devices`` are
    the ids of the devices that it used. ``attempts`` is above 1 if a machine was lost during the execution.
    """

    verdicts: tuple[Verdict, ...]
    timings: Timings
    benchmark: Benchmark | None = None
    is_tainted: bool = False
    devices: tuple[int, ...] = ()
    attempts: int = 1

    @classmethod
    def for_all(cls, cases: Sequence[TestCase], verdict: Verdict) -> ExecutionResult:
        """Return a result with the same verdict for every case, which an expected failure of the case waives."""
        return cls(tuple(apply_xfail(case, verdict) for case in cases), Timings())


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
    """Run cases that compute the same thing once, compare the outputs by the rules of each case, return the result.

    ``announce`` is called with each phase before it begins. ``every_measure`` keeps all measures in the verdicts. With
    ``bench`` passed cases are timed. ``side_effects`` checks for changes of this process by foreign code. ``keep`` is a
    folder for all tensors. A KeyboardInterrupt is raised if ``interrupted()`` is true, and else becomes a verdict,
    since the backend raised it.
    """
    if keep is not None:
        more: dict[str, Any] = {"every_measure": every_measure, "bench": bench, "side_effects": side_effects}
        with tensors_kept(cases[0], driver, keep, announce or (lambda _: None)):
            return execute(cases, driver, announce=announce, interrupted=interrupted, **more)
    if side_effects is not None:
        side_effects.begin(cases[0])
    run = _Run(cases, driver, Clock(announce), interrupted)
    verdict = None if cases[0].mode == FORWARD else run.verdict_without_values()
    answer = run.call_backend() if verdict is None else BackendResult((), ())
    fault = None if side_effects is None else side_effects.fault(cases[0])
    if fault is not None:  # the process has changed, which makes the outputs, or another fault, meaningless
        answer = answer._replace(outputs=(), fault=fault) if isinstance(answer, BackendResult) else fault
    elif verdict is not None:
        return replace(ExecutionResult.for_all(cases, verdict), timings=run.timings())
    return run.result(answer, every_measure, bench, is_tainted=fault is not None)


# Functions that store and read the expected outputs of a run. Bound methods hold the dictionary: a backend that walks
# the frames of its callers, as debuggers and serialisers of locals do, does not get the outputs from there
# (`test_frames_lead_to_no_expected_values`). It is no defence against code that searches for them.
_stored: WeakKeyDictionary[object, Sequence[Expected]] = WeakKeyDictionary()
_store_expected, _stored_expected = _stored.__setitem__, _stored.get
del _stored


_EXPECTED_ERROR = attrgetter("expects_error")


class _Run:
    """State of one execution: :meth:`call_backend`, then :meth:`result`."""

    __slots__ = (
        "__weakref__",
        "_cases",
        "_clock",
        "_driver",
        "_inputs",
        "_interrupted",
        "_layouts",
        "_notes",
        "_output_buffers",
    )

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
        self._output_buffers: list[Array] = []

    def verdict_without_values(self) -> Verdict | None:
        """Return the verdict of shape inference or program capture; None if the backend has to be called."""
        self._clock.enter(RUN)
        return validated(self._cases[0], self._driver, self._interrupted)

    def timings(self) -> Timings:
        """End the current phase and return the seconds of all phases."""
        self._clock.enter(IDLE)
        return self._clock.timings()

    def call_backend(self) -> BackendResult | Fault:
        """Make the inputs and expected outputs, run the backend and return its outputs, with those of further calls.

        Return the fault if inputs, expected outputs or the compile time cannot be determined.
        """
        cases, driver, clock = self._cases, self._driver, self._clock
        case = cases[0]
        try:
            clock.enter(GENERATE)
            reset_float_mode()  # a library linked with -ffast-math changes it when it is loaded
            self._inputs, known_outputs = make_inputs(case, self._interrupted)
            clock.enter(REFERENCE)
            if any(map(_EXPECTED_ERROR, cases)):
                cases = [each for each in cases if each.expects_error is None]
            if cases:
                self._compute_expected(cases, known_outputs)
            else:
                require_refused(case, self._inputs, self._interrupted)
            clock.enter(RUN)
            answer = run_backend(
                case, driver, self._inputs, self._layouts, self._notes, self._interrupted, self._output_buffers
            )
            with Border("the backend's `compile_s`", Reason.RAISED):
                clock.compile_s = driver.compile_s()
            further = answer.fault is None and (can_vary_surroundings(driver, case) or read_case_invariants(case))
            return self._with_further_calls(answer) if further else answer
        except Fault as fault:
            return fault

    def _with_further_calls(self, answer: BackendResult) -> BackendResult:
        """Call the backend in other surroundings and for the invariants of the case; add the results to its result."""
        case, driver = self._cases[0], self._driver
        reported = extra_outputs(case, driver)  # before the next call of the driver discards them
        self._clock.enter(COMPARE)  # so that the time of further calls is not that of the case
        first = self._comparison(case, answer, ())
        checks, invariants = answer.checks, read_case_invariants(case)
        if can_vary_surroundings(driver, case):
            second_buffers: list[Array] = []
            try:
                checks += check_surroundings(first, self._layouts, second_buffers)
            except Fault as fault:
                return answer._replace(fault=fault)
            # the backend returns a buffer that the next call writes, too
            if any(map(np.may_share_memory, self._output_buffers, second_buffers)):
                invariants = (*invariants, Invariant(name=STATELESS))
        further, of_invariants = further_calls(first, self._layouts, invariants)
        return answer._replace(further=(*reported, *further), checks=(*checks, *of_invariants))

    def _comparison(self, case: TestCase, answer: BackendResult, expected: Sequence[Expected]) -> Comparison:
        outputs, clock = answer.outputs, self._clock
        return Comparison(case, self._driver, self._inputs, outputs, expected, clock, self._interrupted)

    def _compute_expected(self, cases: Sequence[TestCase], known: Sequence[Any] | None) -> None:
        """Store the expected outputs of the cases that expect no error, and the layouts of buffers for them."""
        # In a frame of its own, which is gone when the backend is called.
        expected, self._notes = expected_outputs(cases, self._inputs, known, self._driver, self._interrupted)
        _store_expected(self, expected)
        if writes_outputs(self._driver, cases[0]):
            self._layouts = _layouts(expected)

    def result(
        self, answer: BackendResult | Fault, every_measure: bool, bench: BenchOptions | None, *, is_tainted: bool
    ) -> ExecutionResult:
        """Compare the outputs by the rules of each case, time the first passed case with ``bench``, and return all.

        A fault before the call is the verdict of every case; a fault while timing is that of the passed ones.
        """
        cases, clock, benchmark = self._cases, self._clock, None
        if isinstance(answer, Fault):
            failed = ExecutionResult.for_all(cases, fault_verdict(answer))
            return replace(failed, timings=self.timings(), is_tainted=is_tainted)
        clock.enter(COMPARE)
        comparison = self._comparison(cases[0], answer, _stored_expected(self) or ())
        verdicts = []
        for case in cases:
            verdict = verdict_of(comparison._replace(case=case), answer, every_measure=every_measure)
            verdicts.append(verdict if case.xfail is None else apply_xfail(case, verdict))
        if bench is not None:
            passed = [
                index
                for index, verdict in enumerate(verdicts)  # an expected error is no work to be timed
                if verdict.status is Status.PASSED and verdict.evidence is Evidence.MEASURED
            ]
            clock.enter(BENCHMARK)
            try:
                for index in passed[:1]:
                    benchmark = _benchmark(comparison._replace(case=cases[index], clock=Clock(None)), bench)
            except Fault as fault:
                for index in passed:
                    verdicts[index] = apply_xfail(cases[index], fault_verdict(fault))
        return ExecutionResult(tuple(verdicts), self.timings(), benchmark, is_tainted)


def _layouts(expected: Sequence[Expected]) -> list[tuple[str, TensorSpec]]:
    return [(output.name, TensorSpec(dtype=output.dtype, shape=output.shape)) for output in expected]


def _benchmark(comparison: Comparison, bench: BenchOptions) -> Benchmark:
    """Time the case; compare the outputs of each timed driver by the case's rules; raise Fault if the backend fails."""

    def compare(driver: BackendDriver, outputs: Sequence[Array]) -> Verdict:
        timed = comparison._replace(driver=driver, outputs=outputs, interrupted=None)
        return verdict_of(timed, BackendResult(outputs, (), further=()))

    specs = [spec for _, spec in _layouts(comparison.expected)]
    return benchmark_of(comparison.case, comparison.driver, comparison.inputs, specs, compare, bench)


def why_not_run(case: TestCase, driver: BackendDriver) -> Verdict | None:
    """Return the verdict of a case that the plan skips or the backend does not support; None if it is to be run.

    An error of the driver's `unsupported` is a verdict, too.
    """
    if case.skip is not None:
        return Verdict(status=Status.SKIPPED, message=case.skip.reason)
    try:
        with Border("the backend's `unsupported`", Reason.RAISED):
            if is_composed(driver, case.descriptor):
                lack = None  # each operator of the layer is checked when it is called
                if case.expects_error is not None:
                    lack = "error-handling case skipped: a composed layer relies on the checks of its operators"
            else:
                lack = outside_capabilities(driver, case) or driver.unsupported(case)
            if lack is not None and not isinstance(lack, str):
                raise TypeError(f"`unsupported` returned {lack!r}, expected a string or None")
    except Fault as fault:
        return fault_verdict(fault)
    if lack is None:
        return None
    return Verdict(status=Status.SKIPPED, reason=Reason.UNSUPPORTED, message=lack)


class TestRunner:
    """Runner of cases one after the other in this process, for embedding; ``optest run`` adds workers and journals.

    Each case runs on its own backend, which ``optest.backends.backend_manager`` has by that name.
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
        """Run the cases and return one result for each; with ``fail_fast`` stop after the first bad one.

        The seed of the runner replaces those of the cases. ``on_result`` is called with (result, index, total).

        Raises:
            UnknownName: if the backend of a case is not registered.
            UsageError: if functions of NumPy were replaced before.
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
        """Run a case, watched for side effects if foreign code takes part; ``is_last`` makes that check thorough."""
        driver = backend_manager.get(case.backend.name)
        refusal = why_not_run(case, driver)
        if refusal is not None:
            return result_of(case, apply_xfail(case, refusal))
        side_effects = None
        if runs_foreign_code(driver, case):
            side_effects = self._side_effects = self._side_effects or SideEffects.here()
            side_effects.is_last = is_last
        execution = execute([case], driver, every_measure=self.every_measure, side_effects=side_effects)
        return result_of(case, execution.verdicts[0], timings=execution.timings)
