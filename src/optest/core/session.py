"""The loop of a run over all cases: executes, retries, writes results to the journal, and notifies the listener."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from optest.backends import BackendDriver
from optest.core.border import UserInterrupt
from optest.core.executors import Closed, Executor
from optest.core.interruption import Interruption
from optest.core.results import Execution, executions, result_of, resume_key
from optest.core.runner import ExecutionResult, why_not_run
from optest.core.verdicts import after_attempts
from optest.errors import OptestError
from optest.spec import (
    BAD_STATUSES,
    MERGED_KEYS,
    MERGED_TAGS,
    CaseResult,
    Reason,
    RunInfo,
    RunSummary,
    Status,
    TestCase,
    Verdict,
)

if TYPE_CHECKING:
    from optest.core.dispatcher import Dispatcher

# The next execution, and those that certainly follow it.
Step: TypeAlias = tuple[Execution, Sequence[Execution]]

# Executions that a worker gets before it has returned the result of the first.
_LOOKED_AHEAD = 16

# A worker slot looks ahead by at most its fair share of the remaining executions divided by this.
_SHARE = 4

# Pictures that a journal holds, of some 6 kB each.
_PICTURES, _PICTURES_OF_AN_OPERATOR = 200, 20

# Seconds after which listeners are notified of a running case, and seconds between two checks for one.
_SLOW_S, _LOOK_S = 10.0, 1.0

_UNSUPPORTED = (Status.SKIPPED, Reason.UNSUPPORTED)
_RETRIED_STATUSES = frozenset({Status.CRASHED, Status.TIMEOUT})


class Listener(Protocol):
    """Receiver of the events of a run. An exception ends the run, so that those of ``reporting`` handle their own."""

    def on_start(self, info: RunInfo) -> None: ...

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None: ...

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult]) -> None:
        """Receive all results of the journal; if the run was interrupted, also those that `on_case_result` missed."""


class Journaling(Protocol):
    """Journal of a run, which stores a result before the listener receives it."""

    def start(self, info: RunInfo) -> None: ...

    def result(self, result: CaseResult) -> None: ...

    def end(self, summary: RunSummary) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Options of a run.

    The run stops after ``maxfail`` bad results; 0 never stops it. ``isolation`` is recorded in the results. With
    ``dedupe`` cases that compute the same thing share one execution. With ``merges_unsupported`` the cases of an
    operator that are unsupported for the same reason are merged into one result at the end of the run.
    """

    jobs: int = 1
    retries: int = 0
    rounds: int = 1
    maxfail: int = 0
    isolation: str = "none"
    dedupe: bool = True
    merges_unsupported: bool = False


class _Outcome(NamedTuple):
    """An execution with its result, the number of attempts, and the monotonic time at which it began."""

    execution: Execution
    result: ExecutionResult
    attempts: int = 1
    began: float | None = None


_Unsupported: TypeAlias = tuple[int, str, str, str]  # round, operator, target, message
_Outcomes: TypeAlias = "queue.SimpleQueue[_Outcome | Future[None]]"


@dataclass(slots=True)
class Session:
    """One run of cases.

    ``make_executor`` creates the executor of a worker slot, of which there are ``policy.jobs``. ``earlier`` holds
    results of an interrupted run, which are not repeated. ``repro`` returns the reproduction command of a case.
    ``revise`` maps the verdict of a case to the one that is written to the journal. ``choose`` yields the executions
    one by one, for a caller that has its own loop; None runs all. ``dispatcher`` creates the dispatcher of devices
    instead of ``make_executor``, if the executions need devices. ``notes`` are printed in the summary.
    """

    info: RunInfo
    cases: Sequence[TestCase]
    driver: BackendDriver
    make_executor: Callable[[int], Executor]
    journal: Journaling
    listener: Listener
    policy: Policy = field(default_factory=Policy)
    repro: Callable[[TestCase], str] = lambda _: ""
    earlier: Mapping[object, CaseResult] = field(default_factory=dict)
    interruption: Interruption = field(default_factory=Interruption)
    revise: Callable[[TestCase, Verdict], Verdict] = lambda _, verdict: verdict
    choose: Callable[[Sequence[Execution]], Iterator[Step]] | None = None
    dispatcher: Callable[[Sequence[Execution]], Dispatcher] | None = None
    notes: list[str] = field(default_factory=list)
    results: list[CaseResult] = field(default_factory=list)
    bad: int = 0
    failure: OptestError | None = None
    _began: float = field(default_factory=time.monotonic, init=False)
    _pictures: Counter[str] = field(default_factory=Counter, init=False)  # by operator
    _unsupported: dict[_Unsupported, list[tuple[TestCase, Verdict]]] = field(default_factory=dict, init=False)
    _finished: int = field(default=0, init=False)
    _running: dict[int, tuple[TestCase, float]] = field(default_factory=dict, init=False)  # by thread, with its start
    _listener_lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def run(self) -> RunSummary:
        """Run every case that has no earlier result and return the summary of all results.

        An OptestError, such as a journal that cannot be written, ends the run and is stored in ``failure``.
        """
        began = self._began = time.monotonic()
        interrupted = False
        try:
            with self.interruption.watched():
                self.journal.start(self.info)
                self.listener.on_start(self.info)
                for result in {id(result): result for result in self.earlier.values()}.values():
                    self.results.append(result)
                    self._pictures[result.operator] += len(result.verdict.pictures)
                    self._finished += len(result.keys)
                    self._notify(result)
                try:
                    self._run_all(self._remaining())
                finally:
                    self._report_unsupported()
        except (KeyboardInterrupt, Closed):
            interrupted = True
        except OptestError as error:
            self.failure = error
        total = len(self.cases) * self.policy.rounds
        # `Interruption.now` between two cases raises nothing
        interrupted |= self.interruption.is_cancelled and self._finished < total
        summary = RunSummary.of(
            self.results,
            total=total,
            duration_s=time.monotonic() - began,
            interrupted=interrupted,
            notes=self.notes,
        )
        try:
            self.journal.end(summary)
        except OptestError as error:
            self.failure = self.failure or error
        self.listener.on_complete(summary, self.results)
        return summary

    def _remaining(self) -> list[Execution]:
        """Return the executions without the cases that have earlier results."""
        planned = executions(self.cases, rounds=self.policy.rounds, dedupe=self.policy.dedupe)
        if not self.earlier:
            return list(planned)
        remaining = []
        for execution in planned:
            cases = tuple(
                case for case in execution.cases if resume_key(case, execution.round_index) not in self.earlier
            )
            if cases:
                remaining.append(Execution(cases, execution.round_index))
        return remaining

    def _run_all(self, remaining: Sequence[Execution]) -> None:
        """Run the executions: on devices, in several worker slots, or, if cases are chosen one by one, in one."""
        dispatcher = None if self.dispatcher is None else self.dispatcher(remaining)
        if dispatcher is not None:
            self.notes = dispatcher.notes
        if dispatcher is not None and self.choose is None:
            with self._slow_cases_reported():
                self._run_on_devices(dispatcher)
            return
        if self.policy.jobs > 1 and self.choose is None:
            with self._slow_cases_reported():
                self._run_in_slots(remaining)
            return
        executor = dispatcher or self.make_executor(0)
        self.interruption.register(executor)
        try:
            in_order = ((execution, remaining[n : n + _LOOKED_AHEAD]) for n, execution in enumerate(remaining, 1))
            turns = in_order if self.choose is None else self.choose(remaining)
            # Only for workers: a thread next to cases in this process, or in forks of it, could disturb them.
            with self._slow_cases_reported() if executor.looks_ahead else nullcontext():
                self._run_in_sequence(turns, executor)
        finally:
            with self.interruption.deferred():
                executor.close()

    def _run_in_sequence(self, turns: Iterable[Step], executor: Executor) -> None:
        """Run one execution after the other and report each; a worker starts the next ones meanwhile."""
        # It does not if a result decides about the next execution: with `--maxfail`, or if that may be a retry.
        looks_ahead = executor.looks_ahead and not self.policy.maxfail
        refusals: dict[int, Verdict | None] = {}

        def refusal_of(execution: Execution) -> Verdict | None:
            if id(execution) not in refusals:
                refusals[id(execution)] = why_not_run(execution.first, self.driver)
            return refusals[id(execution)]

        for execution, upcoming in turns:
            refusal = refusal_of(execution)
            following = []
            if looks_ahead or not executor.looks_ahead:
                once = takewhile(self._is_tried_once, upcoming if looks_ahead else upcoming[:1])
                following = [later.cases for later in once if refusal_of(later) is None]
            self._report(self._run_one(execution, executor, refusal, following))
            if self._is_over():
                return

    def _is_tried_once(self, execution: Execution) -> bool:
        return max(self.policy.retries, execution.first.retries) == 0

    def _run_in_slots(self, remaining: Sequence[Execution]) -> None:
        """Run the executions in ``policy.jobs`` worker slots and report results as they finish."""
        rest = deque(remaining)
        outcomes: _Outcomes = queue.SimpleQueue()
        executors = {slot: self.make_executor(slot) for slot in range(min(self.policy.jobs, len(remaining)))}
        rest_lock = threading.Lock()

        def end(slot: int) -> None:
            executor = executors.pop(slot, None)  # so that it is closed once
            if executor is not None:
                executor.close()

        def close() -> None:
            rest.clear()
            for slot in list(executors):
                end(slot)

        def run_slot(slot: int, executor: Executor) -> None:
            self._run_slot(executor, rest, rest_lock, outcomes)
            end(slot)  # another slot may wait for a resource that it holds

        self._run_threads([partial(run_slot, *item) for item in executors.items()], outcomes, close)

    def _run_on_devices(self, dispatcher: Dispatcher) -> None:
        """Run the dispatcher's units in as many threads as units can run at a time."""
        outcomes: _Outcomes = queue.SimpleQueue()
        dispatcher.report = lambda execution, result: outcomes.put(_Outcome(execution, result))
        self.interruption.register(dispatcher)
        dispatcher.begin()
        run_units = partial(self._run_units, dispatcher, outcomes)
        count = min(self.policy.jobs, len(dispatcher.units), len(dispatcher.ids))
        self._run_threads([run_units] * count, outcomes, dispatcher.close, dispatcher.settle)

    def _run_threads(
        self,
        targets: Sequence[Callable[[], None]],
        outcomes: _Outcomes,
        close: Callable[[], None],
        settle: Callable[[Execution], None] = lambda _: None,
    ) -> None:
        """Run each target in a thread; report each outcome from the queue, then `settle` it; `close` all at the end."""
        if not targets:
            return
        pool = ThreadPoolExecutor(max_workers=len(targets), thread_name_prefix="optest")
        left = len(targets)
        try:
            with self.interruption.after_this():  # a pool forgets a thread whose start is interrupted
                for target in targets:
                    pool.submit(target).add_done_callback(outcomes.put)
            while left:
                try:
                    # a signal just before the wait does not end it, hence the timeout
                    outcome = outcomes.get(timeout=1.0)
                except queue.Empty:
                    continue
                if isinstance(outcome, Future):
                    outcome.result()  # raises the exception that ended the target
                    left -= 1
                    continue
                self._report(outcome)
                if self._is_over():
                    return
                settle(outcome.execution)
        finally:
            with self.interruption.deferred():
                close()
                pool.shutdown(wait=True)

    def _run_units(self, dispatcher: Dispatcher, outcomes: _Outcomes) -> None:
        """Take units until none is left and run their executions one after the other; stop one that loses a device."""
        while (unit := dispatcher.take()) is not None:
            try:
                while unit.executions and unit.lost is None:
                    execution = unit.executions.popleft()
                    outcomes.put(self._run_one(execution, unit, None))
                    if self.policy.maxfail:
                        dispatcher.wait_until_settled(execution)
            finally:
                dispatcher.release(unit)

    def _run_slot(
        self, executor: Executor, rest: deque[Execution], rest_lock: threading.Lock, outcomes: _Outcomes
    ) -> None:
        """Run executions from ``rest`` until none remains, with some taken ahead for the slot's worker."""
        taken: deque[tuple[Execution, Verdict | None]] = deque()
        while True:
            looks_ahead = executor.looks_ahead and not self.policy.maxfail
            with rest_lock:  # it also keeps `unsupported` of the driver to one thread at a time
                # A share of the rest that shrinks towards the end (guided self-scheduling), so that slow executions do
                # not queue up behind one worker while another is idle.
                depth = min(_LOOKED_AHEAD, len(rest) // (_SHARE * self.policy.jobs)) if looks_ahead else 0
                while rest and len(taken) <= depth:
                    execution = rest.popleft()
                    taken.append((execution, why_not_run(execution.first, self.driver)))
            if not taken:
                return
            execution, refusal = taken.popleft()
            once = takewhile(lambda item: self._is_tried_once(item[0]), taken)
            following = [later.cases for later, refused in once if refused is None]
            outcomes.put(self._run_one(execution, executor, refusal, following))

    def _run_one(
        self,
        execution: Execution,
        executor: Executor,
        refusal: Verdict | None,
        following: Sequence[Sequence[TestCase]] = (),
    ) -> _Outcome:
        """Run an execution, retry it after a crash or a timeout, and return the outcome; do not run it if refused."""
        cases, began = execution.cases, time.monotonic()
        if refusal is not None:
            return _Outcome(execution, ExecutionResult.for_all(cases, refusal))
        self._running[threading.get_ident()] = cases[0], began
        allowed = 1 + max(self.policy.retries, *(case.retries for case in cases))
        if allowed == 1:
            outcome = executor.execute(cases, following)
            del self._running[threading.get_ident()]
            return _Outcome(execution, outcome, outcome.attempts, began)
        earlier: Verdict | None = None
        lost = 0
        for attempt in range(1, allowed + 1):
            outcome = executor.execute(cases)
            lost += outcome.attempts - 1
            if attempt == allowed or not any(verdict.status in _RETRIED_STATUSES for verdict in outcome.verdicts):
                break
            earlier = outcome.verdicts[0]
        del self._running[threading.get_ident()]
        verdicts = tuple(after_attempts(verdict, attempt, earlier) for verdict in outcome.verdicts)
        return _Outcome(execution, replace(outcome, verdicts=verdicts), attempt + lost, began)

    def _report(self, outcome: _Outcome) -> None:
        """Write the results of an outcome to the journal and notify the listener of each."""
        for result in self._results_of(outcome):
            with self.interruption.after_this():
                self._keep(result)
            self._finished += 1
            self._notify(result)

    def _report_unsupported(self) -> None:
        """Report the collected unsupported cases as one result for each operator, target, message and repetition."""
        # One result for each unsupported case of a driver with two operators was 11,530 folders and 93 MB.
        for (round_index, *_), ((case, verdict), *more) in self._unsupported.items():
            if more:
                cases = [case, *(merged for merged, _ in more)]
                tags = Counter(tag for merged in cases for tag in merged.tags if tag.startswith("set:"))
                keys = {merged.id: merged.key for merged in cases}
                details = {**verdict.details, MERGED_TAGS: dict(tags), MERGED_KEYS: keys}
                verdict = replace(verdict, message=f"{verdict.message} ({len(keys):,} cases)", details=details)
            result = result_of(case, verdict, round_index=round_index, isolation=self.policy.isolation)
            self._keep(result)
            self._notify(result)

    def _keep(self, result: CaseResult) -> None:
        """Write the result to the journal, then count it."""
        self.journal.result(result)
        self.results.append(result)
        self.bad += result.status in BAD_STATUSES

    def _results_of(self, outcome: _Outcome) -> Iterator[CaseResult]:
        """Yield a result for each case; collect unsupported ones that are to be merged; raise if interrupted."""
        execution, executed = outcome.execution, outcome.result
        if self.interruption():
            raise UserInterrupt  # foreign code may have caught it, which makes the outcome meaningless
        for index, (case, original) in enumerate(zip(execution.cases, executed.verdicts, strict=True)):
            verdict = self._with_few_pictures(case.descriptor.name, self.revise(case, original))
            if self.policy.merges_unsupported and (verdict.status, verdict.reason) == _UNSUPPORTED:
                kind = (execution.round_index, case.descriptor.name, case.backend.label(), verdict.message)
                self._unsupported.setdefault(kind, []).append((case, verdict))
                self._finished += 1
                continue
            yield result_of(
                case,
                verdict,
                timings=executed.timings,
                benchmark=executed.benchmark if original.status is Status.PASSED else None,
                attempts=outcome.attempts,
                round_index=execution.round_index,
                isolation=self.policy.isolation,
                duplicate_of=execution.first.id if index else None,
                repro=self.repro(case) if verdict.status not in (Status.PASSED, Status.SKIPPED) else "",
                began_s=None if outcome.began is None else outcome.began - self._began,
                devices=executed.devices,
            )

    def _with_few_pictures(self, operator: str, verdict: Verdict) -> Verdict:
        """Return the verdict without pictures if it is good, else with as many as the limits of the run allow."""
        if not verdict.pictures:
            return verdict
        room = min(_PICTURES - self._pictures.total(), _PICTURES_OF_AN_OPERATOR - self._pictures[operator])
        kept = verdict.pictures[:room] if room > 0 and verdict.status in BAD_STATUSES else ()
        self._pictures[operator] += len(kept)
        return replace(verdict, pictures=kept)

    @contextmanager
    def _slow_cases_reported(self) -> Iterator[None]:
        """Call the listener's ``on_wait``, if any, each second within the block for the case that runs longest."""
        on_wait: Any = getattr(self.listener, "on_wait", None)
        over, total = threading.Event(), len(self.cases) * self.policy.rounds

        def report() -> None:
            while not over.wait(_LOOK_S):
                running = self._running.copy().values()  # other threads change it
                if not running:
                    continue
                case, began = min(running, key=lambda item: item[1])
                seconds = time.monotonic() - began
                with self._listener_lock:
                    if seconds >= _SLOW_S and not over.is_set():
                        on_wait(case.id, seconds, self._finished, total)

        if on_wait is not None:
            threading.Thread(target=report, name="optest slow cases", daemon=True).start()
        try:
            yield
        finally:
            with self._listener_lock:
                over.set()

    def _notify(self, result: CaseResult) -> None:
        """Pass a result to the listener as the latest of the finished cases."""
        with self._listener_lock:
            self.listener.on_case_result(result, self._finished - 1, len(self.cases) * self.policy.rounds)

    def _is_over(self) -> bool:
        return bool(self.policy.maxfail) and self.bad >= self.policy.maxfail
