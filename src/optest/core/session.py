"""The loop over all cases: asks executors, retries, journals every result, tells the listener, stops in time."""

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
from optest.core.results import reference_name, result_of
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
from optest.spec.construct import collection_paused

if TYPE_CHECKING:
    from optest.core.dispatcher import Dispatcher


@dataclass(frozen=True, slots=True)
class Execution:
    """Cases that compute the same thing on the same target; the first stands for the others.

    ``round_index`` counts repeats of the whole plan.
    """

    cases: tuple[TestCase, ...]
    round_index: int = 0

    @property
    def first(self) -> TestCase:
        return self.cases[0]


Turn: TypeAlias = tuple[Execution, Sequence[Execution]]
"""What is run now, and what certainly is run after it, as far as anybody knows."""

_LOOKED_AHEAD = 16
"""Executions that a worker is asked for before it has answered."""

_SHARE = 4
"""A lane looks ahead by at most this part of its fair share of what remains."""

_PICTURES, _PICTURES_OF_AN_OPERATOR = 200, 20
"""That a journal holds, of some 6 kB each."""

_SLOW_S, _LOOK_S = 10.0, 1.0
"""Seconds after which listeners hear of a case that still runs, and between two looks."""

_UNSUPPORTED = (Status.SKIPPED, Reason.UNSUPPORTED)
_ASK_AGAIN = frozenset({Status.CRASHED, Status.TIMEOUT})


class Listener(Protocol):
    """Hears what happens; whatever it raises is its own business and never ends a run."""

    def on_start(self, info: RunInfo) -> None: ...

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None: ...

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult]) -> None:
        """``results`` are all that were journaled; a run that was interrupted may not have told the last of them."""


class Journaling(Protocol):
    """Keeps every result before anybody hears of it."""

    def start(self, info: RunInfo) -> None: ...

    def result(self, result: CaseResult) -> None: ...

    def end(self, summary: RunSummary) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a run goes: ``maxfail`` 0 never stops; ``isolation`` is what the results say of it.

    With ``dedupe`` cases that compute the same thing share one execution.
    """

    jobs: int = 1
    retries: int = 0
    rounds: int = 1
    maxfail: int = 0
    isolation: str = "none"
    dedupe: bool = True
    merges_unsupported: bool = False
    """Merge cases of an operator that are unsupported for the same reason into one result, at the end of the run."""


class _Outcome(NamedTuple):
    """An execution, what came of it, the number of attempts, and when it began."""

    execution: Execution
    result: ExecutionResult
    attempts: int = 1
    began: float | None = None


_Unsupported: TypeAlias = tuple[int, str, str, str]  # round, operator, target, message
_Outcomes: TypeAlias = "queue.SimpleQueue[_Outcome | Future[None]]"


@dataclass(slots=True)
class Session:
    """One run. ``make_executor`` gives a new executor for each of ``policy.jobs`` lanes.

    ``revise`` makes of each verdict the one that counts, before it is journaled.
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
    choose: Callable[[Sequence[Execution]], Iterator[Turn]] | None = None
    """Asked for one execution after the other by who has a loop of its own; None asks for all of them."""
    dispatcher: Callable[[Sequence[Execution]], Dispatcher] | None = None
    """Makes who gives devices to the executions, where they need any; ``make_executor`` is not asked then."""
    notes: list[str] = field(default_factory=list)
    """What the summary has to say of the run's devices and machines."""
    results: list[CaseResult] = field(default_factory=list)
    bad: int = 0
    failure: OptestError | None = None
    _began: float = field(default_factory=time.monotonic, init=False)
    _drawn: Counter[str] = field(default_factory=Counter, init=False)
    _unsupported: dict[_Unsupported, list[tuple[TestCase, Verdict]]] = field(default_factory=dict, init=False)
    _finished: int = field(default=0, init=False)
    _running: dict[int, tuple[TestCase, float]] = field(default_factory=dict, init=False)
    """Case and start of what runs now, by thread."""
    _telling: threading.Lock = field(default_factory=threading.Lock, init=False)

    def run(self) -> RunSummary:
        """Run every case that has no earlier result and return what all of them add up to.

        An error of optest itself, such as a full disk, ends the run; it is kept in ``failure``.
        """
        began = self._began = time.monotonic()
        interrupted = False
        try:
            with self.interruption.watched():
                self.journal.start(self.info)
                self.listener.on_start(self.info)
                for result in {id(result): result for result in self.earlier.values()}.values():
                    self.results.append(result)
                    self._drawn[result.operator] += len(result.verdict.pictures)
                    self._finished += len(result.keys)
                    self._tell(result, self._finished)
                try:
                    self._run_all(self._remaining())
                finally:
                    self._report_unsupported()
        except (KeyboardInterrupt, Closed):
            interrupted = True
        except OptestError as error:
            self.failure = error
        total = len(self.cases) * self.policy.rounds
        interrupted |= self.interruption.happened and self._finished < total  # between two cases: nobody asked for more
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
        dispatcher = None if self.dispatcher is None else self.dispatcher(remaining)
        if dispatcher is not None:
            self.notes = dispatcher.notes
        if dispatcher is not None and self.choose is None:
            with self._slow_cases_named():
                self._run_on_devices(dispatcher)
            return
        if self.policy.jobs > 1 and self.choose is None:
            with self._slow_cases_named():
                self._run_side_by_side(remaining)
            return
        executor = dispatcher or self.make_executor(0)
        self.interruption.ends(executor)
        try:
            turns = _one_by_one(remaining) if self.choose is None else self.choose(remaining)
            # No thread where cases run in this process, or in forks of it.
            with self._slow_cases_named() if executor.looks_ahead else nullcontext():
                self._run_in_turn(turns, executor)
        finally:
            with self.interruption.put_off():
                executor.close()

    def _run_in_turn(self, turns: Iterable[Turn], executor: Executor) -> None:
        """One execution after the other; a worker goes on with the next ones while this process records the outcome.

        Not where the outcome decides whether there is a next one (``--maxfail``), or whether it is the same again.
        """
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
                following = [each.cases for each in once if refusal_of(each) is None]
            self._report(self._run_one(execution, executor, refusal, following))
            if self._is_over():
                return

    def _is_tried_once(self, execution: Execution) -> bool:
        return max(self.policy.retries, execution.first.retries) == 0

    def _run_side_by_side(self, remaining: Sequence[Execution]) -> None:
        """One lane for each job, which takes from what remains; results come as they finish."""
        rest = deque(remaining)
        outcomes: _Outcomes = queue.SimpleQueue()
        executors = {lane: self.make_executor(lane) for lane in range(min(self.policy.jobs, len(remaining)))}
        taking = threading.Lock()

        def end(lane: int) -> None:
            executor = executors.pop(lane, None)  # so that it is closed once
            if executor is not None:
                executor.close()

        def close() -> None:
            rest.clear()
            for lane in list(executors):
                end(lane)

        def run_lane(lane: int, executor: Executor) -> None:
            self._run_lane(executor, rest, taking, outcomes)
            end(lane)  # another lane may wait for what it holds

        self._run_lanes([partial(run_lane, *each) for each in executors.items()], outcomes, close)

    def _run_on_devices(self, dispatcher: Dispatcher) -> None:
        """A lane for each unit that may run at a time."""
        outcomes: _Outcomes = queue.SimpleQueue()
        dispatcher.report = lambda execution, result: outcomes.put(_Outcome(execution, result))
        self.interruption.ends(dispatcher)
        dispatcher.begin()
        lane = partial(self._run_device_lane, dispatcher, outcomes)
        count = min(self.policy.jobs, len(dispatcher.units), len(dispatcher.ids))
        self._run_lanes([lane] * count, outcomes, dispatcher.close, dispatcher.settle)

    def _run_lanes(
        self,
        lanes: Sequence[Callable[[], None]],
        outcomes: _Outcomes,
        close: Callable[[], None],
        settle: Callable[[Execution], None] = lambda _: None,
    ) -> None:
        """Run each lane in a thread and report what they put into ``outcomes``; ``close`` ends them at once."""
        if not lanes:
            return
        pool = ThreadPoolExecutor(max_workers=len(lanes), thread_name_prefix="optest")
        left = len(lanes)
        try:
            with self.interruption.after_this():  # a pool forgets a thread whose start is interrupted
                for lane in lanes:
                    pool.submit(lane).add_done_callback(outcomes.put)
            while left:
                try:
                    outcome = outcomes.get(timeout=1.0)  # a signal that comes just before a wait does not end it
                except queue.Empty:
                    continue
                if isinstance(outcome, Future):
                    outcome.result()  # raises what ended the lane
                    left -= 1
                    continue
                self._report(outcome)
                if self._is_over():
                    return
                settle(outcome.execution)
        finally:
            with self.interruption.put_off():
                close()
                pool.shutdown(wait=True)

    def _run_device_lane(self, dispatcher: Dispatcher, outcomes: _Outcomes) -> None:
        """Run units on the devices that they get, the rounds of a case one after the other."""
        while (turn := dispatcher.take()) is not None:
            try:
                while turn.executions and turn.lost is None:
                    execution = turn.executions.popleft()
                    outcomes.put(self._run_one(execution, turn, None))
                    if self.policy.maxfail:
                        dispatcher.wait_until_settled(execution)
            finally:
                dispatcher.give_back(turn)

    def _run_lane(
        self,
        executor: Executor,
        rest: deque[Execution],
        taking: threading.Lock,
        outcomes: _Outcomes,
    ) -> None:
        """Run executions until none remains; the lane's worker goes on with the next ones of the lane meanwhile.

        A lane takes a share of what remains, which shrinks towards the end (guided self-scheduling), so that slow
        executions at the end do not queue up behind one worker while another is idle.
        """
        taken: deque[tuple[Execution, Verdict | None]] = deque()
        while True:
            looks_ahead = executor.looks_ahead and not self.policy.maxfail
            with taking:  # a driver is asked by one thread at a time
                depth = min(_LOOKED_AHEAD, len(rest) // (_SHARE * self.policy.jobs)) if looks_ahead else 0
                while rest and len(taken) <= depth:
                    execution = rest.popleft()
                    taken.append((execution, why_not_run(execution.first, self.driver)))
            if not taken:
                return
            execution, refusal = taken.popleft()
            once = takewhile(lambda each: self._is_tried_once(each[0]), taken)
            following = [each.cases for each, refused in once if refused is None]
            outcomes.put(self._run_one(execution, executor, refusal, following))

    def _run_one(
        self,
        execution: Execution,
        executor: Executor,
        refusal: Verdict | None,
        following: Sequence[Sequence[TestCase]] = (),
    ) -> _Outcome:
        """Only crashes, deadlines and lost devices are tried again."""
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
            if attempt == allowed or not any(verdict.status in _ASK_AGAIN for verdict in outcome.verdicts):
                break
            earlier = outcome.verdicts[0]
        del self._running[threading.get_ident()]
        verdicts = tuple(after_attempts(verdict, attempt, earlier) for verdict in outcome.verdicts)
        return _Outcome(execution, replace(outcome, verdicts=verdicts), attempt + lost, began)

    def _report(self, outcome: _Outcome) -> None:
        for result in self._results_of(outcome):
            with self.interruption.after_this():
                self._keep(result)
            self._finished += 1
            self._tell(result, self._finished)

    def _report_unsupported(self) -> None:
        """Report the unsupported cases as one result for each operator, message and round.

        A driver with two operators supports few cases: one result for each of the others is 11,530 folders and 93 MB.
        """
        for (round_index, *_), ((case, verdict), *others) in self._unsupported.items():
            if others:
                cases = [case, *(other for other, _ in others)]
                tags = Counter(tag for each in cases for tag in each.tags if tag.startswith("set:"))
                keys = {each.id: each.key for each in cases}
                details = {**verdict.details, MERGED_TAGS: dict(tags), MERGED_KEYS: keys}
                verdict = replace(verdict, message=f"{verdict.message} ({len(keys):,} cases)", details=details)
            result = result_of(case, verdict, round_index=round_index, isolation=self.policy.isolation)
            self._keep(result)
            self._tell(result, self._finished)

    def _keep(self, result: CaseResult) -> None:
        """What the journal holds counts, and nothing else."""
        self.journal.result(result)
        self.results.append(result)
        self.bad += result.status in BAD_STATUSES

    def _results_of(self, outcome: _Outcome) -> Iterator[CaseResult]:
        execution, executed = outcome.execution, outcome.result
        if self.interruption():
            raise UserInterrupt  # which foreign code kept for itself, so that its outcome says nothing of the case
        for place, (case, judged) in enumerate(zip(execution.cases, executed.verdicts, strict=True)):
            verdict = self._with_few_pictures(case.descriptor.name, self.revise(case, judged))
            if self.policy.merges_unsupported and (verdict.status, verdict.reason) == _UNSUPPORTED:
                kind = (execution.round_index, case.descriptor.name, case.backend.label(), verdict.message)
                self._unsupported.setdefault(kind, []).append((case, verdict))
                self._finished += 1
                continue
            yield result_of(
                case,
                verdict,
                timings=executed.timings,
                benchmark=executed.benchmark if judged.status is Status.PASSED else None,
                attempts=outcome.attempts,
                round_index=execution.round_index,
                isolation=self.policy.isolation,
                duplicate_of=execution.first.id if place else None,
                repro=self.repro(case) if verdict.status not in (Status.PASSED, Status.SKIPPED) else "",
                began_s=None if outcome.began is None else outcome.began - self._began,
                devices=executed.devices,
            )

    def _with_few_pictures(self, operator: str, verdict: Verdict) -> Verdict:
        """``verdict`` without pictures unless it is bad and the run has room: most of a result's bytes are theirs."""
        if not verdict.pictures:
            return verdict
        room = min(_PICTURES - self._drawn.total(), _PICTURES_OF_AN_OPERATOR - self._drawn[operator])
        kept = verdict.pictures[:room] if room > 0 and verdict.status in BAD_STATUSES else ()
        self._drawn[operator] += len(kept)
        return replace(verdict, pictures=kept)

    @contextmanager
    def _slow_cases_named(self) -> Iterator[None]:
        """While inside, tell listeners that have ``on_wait`` of the case that has been running for longest."""
        on_wait: Any = getattr(self.listener, "on_wait", None)
        over, total = threading.Event(), len(self.cases) * self.policy.rounds

        def look() -> None:
            while not over.wait(_LOOK_S):
                running = sorted(self._running.copy().values(), key=lambda each: each[1])
                for case, began in running[:1]:
                    seconds = time.monotonic() - began
                    with self._telling:
                        if seconds >= _SLOW_S and not over.is_set():
                            on_wait(case.id, seconds, self._finished, total)

        if on_wait is not None:
            threading.Thread(target=look, name="optest slow cases", daemon=True).start()
        try:
            yield
        finally:
            with self._telling:
                over.set()

    def _tell(self, result: CaseResult, count: int) -> None:
        with self._telling:
            self.listener.on_case_result(result, count - 1, len(self.cases) * self.policy.rounds)

    def _is_over(self) -> bool:
        return bool(self.policy.maxfail) and self.bad >= self.policy.maxfail


def _one_by_one(remaining: Sequence[Execution]) -> Iterator[Turn]:
    for place, execution in enumerate(remaining, 1):
        yield execution, remaining[place : place + _LOOKED_AHEAD]


def resume_key(case: TestCase, round_index: int) -> object:
    """What makes an earlier result the result of this case: its id and key, and the round."""
    return (case.id, case.key, case.backend.label(), round_index)


def executions(cases: Iterable[TestCase], *, rounds: int = 1, dedupe: bool = True) -> Sequence[Execution]:
    """Group cases by what they compute, in the order of the plan, ``rounds`` times over."""
    planned = tuple(cases)
    with collection_paused():
        groups = _grouped(planned) if dedupe else [(case,) for case in planned]
        return [Execution(group, index) for index in range(rounds) for group in groups]


def _grouped(cases: Sequence[TestCase]) -> list[tuple[TestCase, ...]]:
    """Most plans repeat nothing, which their keys alone tell."""
    if len({case.key for case in cases}) == len(cases):
        return [(case,) for case in cases]
    grouped: dict[object, list[TestCase]] = {}
    for case in cases:
        grouped.setdefault(_shared(case), []).append(case)
    return [tuple(group) for group in grouped.values()]


def _shared(case: TestCase) -> object:
    """Cases share an execution if everything that a backend or reference can see of them is the same.

    That a refusal is expected, and which, decides what is asked. A skipped case shares nothing, since it is not run.
    """
    if case.skip is not None:
        return id(case)
    config = repr(case.backend_config.get(case.backend.name)) if case.backend_config else None
    return (
        case.key,
        case.expects_error,
        case.invariants,
        case.mode,
        case.backend,
        reference_name(case),
        case.reference,
        config,
        case.timeout_s,
        case.base_dir,
    )
