"""Executions in a worker, whose deadline and death this process watches."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from optest.backends import backend_manager
from optest.backends.worker_abilities import RunsInForks
from optest.core.benchmarking import BenchOptions
from optest.core.border import raised_by_optest
from optest.core.deadlines import PhaseLimits
from optest.core.executors import Closed
from optest.core.messages import (
    END_MARK,
    Asked,
    Broken,
    Died,
    Hello,
    NotAnAnswer,
    Ran,
    Ready,
    as_execution,
    decode_for_parent,
    encode,
    end_mark,
    is_last,
    refusal,
)
from optest.core.phases import Phase, PhasePage
from optest.core.runner import ExecutionResult
from optest.core.verdicts import after_attempts
from optest.core.wire import case_to_wire
from optest.core.worker_death import death, death_at_load, descriptors_spoilt, heap_was_broken, overtime, stderr_report
from optest.errors import InternalError, UsageError
from optest.process import Child, ForkServer, module_command, start_child
from optest.spec import Reason, Status, TestCase, Timings, Verdict

_START_S = 300.0
"""How long a worker may take to import its framework."""

_MOST_DEATHS_AT_LOAD = 3
"""One after the other, after which a worker is started once for each case: what killed them may have ended."""
_NO_MORE_STARTS = 10
_SHOWN_LINES = 12

_REPORT_BYTES = 1 << 16
"""As much as a sanitizer says when it ends a worker."""

_MOST_BYTES_AHEAD = 1 << 15
"""Half of what a pipe usually holds on Linux; on macOS a pipe grows to as much."""

_TAIL_CHARACTERS = 8192
_LOOK_AGAIN_S = 5.0
"""What other workers report makes deadlines shorter meanwhile."""

_LOG_S = 2.0
_LOOK_S = 0.002

_DYING_S = 5.0
"""How long a worker whose pipes are gone may take to end: the system may have much to take back."""

_CATCH_UP_S = 2.0
"""How long an answer that nobody wants any more is waited for; a new worker takes longer to begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How workers are started. ``scratch`` holds their output and phase pages."""

    driver: str
    scratch: Path
    environment: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    every_measure: bool = False
    fresh: bool = False
    limits: PhaseLimits = field(default_factory=PhaseLimits)
    keep: Path | None = None
    """Where the tensors of every execution are kept, if anywhere."""
    bench: BenchOptions | None = None
    """How every case that passes is timed, if at all."""
    finish_s: float = 0.0
    """How long a worker with nothing to do may take to give back what it holds, when it is closed; 0: it is killed."""


class _Question(NamedTuple):
    """Cases that a worker was asked ahead, known by identity, and the bytes of the message."""

    cases: Sequence[TestCase]
    nbytes: int


class _Late(NamedTuple):
    """A phase that took longer than it may."""

    phase: Phase
    allowed_s: float
    took_s: float


class WorkerProcess:
    """One warm worker, replaced when it dies. The parent keeps the deadline: a child stuck in C cannot.

    :meth:`close` may be called from another thread than :meth:`execute`, which then ends at once. Workers are forked by
    ``forks`` if it has their environment.
    """

    looks_ahead = True

    def __init__(self, options: WorkerOptions, name: str, forks: ForkServer | None = None) -> None:
        self._options = options
        self._forks = forks if forks is not None and forks.environment == options.environment else None
        self._name = name
        self._running: tuple[Child, PhasePage] | None = None
        self._busy = threading.Lock()
        self._started = 0
        self._asked = 0
        self._waited_for = 0
        self._ahead: deque[_Question] = deque()
        self._closed = False
        self._answers = 0
        """Of the worker that runs now."""
        self._deaths_at_load = 0
        self._has_loaded = False
        self._begun_again: Sequence[TestCase] | None = None
        """Cases before which a worker died."""
        self._failing: set[str] = set()
        """Operators whose reference, or optest itself, fails in a new worker too."""
        self._wrote: set[str] = set()
        """Operators that wrote outside of their outputs in the worker that runs now."""

    def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult:
        """Run the cases in the worker.

        ``following`` are the cases of the next calls, as far as these are certain: the worker goes on with them while
        this process records the outcome. It answers in order and before it begins the next question, so that whoever
        has no answer when the worker dies is whose turn it was.

        Raises:
            Unavailable, UsageError: if the worker cannot load the driver at all.
        """
        with self._busy:
            return self._execute(cases, following)

    def _execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult:
        self._catch_up(cases)
        try:
            child, page = self._started_now()
        except _DiedAtLoad as error:
            return ExecutionResult.for_all(cases, error.verdict)
        began = time.monotonic()
        if self._ahead:
            self._ahead.popleft()
        else:
            page.write(Phase.IDLE)
            try:
                child.send(self._encoded(cases, is_last=not following))
            except BrokenPipeError:
                return self._without_pipes(child, page, cases, began)
        self._ask_ahead(child, following)
        return self._outcome(child, page, cases, began)

    def _outcome(self, child: Child, page: PhasePage, cases: Sequence[TestCase], began: float) -> ExecutionResult:
        """Wait for the next answer, which is to these cases."""
        self._waited_for += 1
        while True:
            try:
                answer = child.receive(_until_next_look(page, cases[0], self._options.limits))
            except ValueError as error:
                return self._spoilt(child, page, cases, str(error))
            except TimeoutError:
                try:
                    late = self._late(page, cases[0])
                except ValueError as error:
                    return self._spoilt(child, page, cases, str(error))
                if late is not None:
                    return self._ended_by_deadline(child, page, cases, late)
                continue
            if answer is None:
                return self._without_pipes(child, page, cases, began)
            try:
                message = self._answer_to_this(answer)
            except NotAnAnswer as error:
                return self._spoilt(child, page, cases, str(error))
            if isinstance(message, Died):
                return self._fork_died(child, page, cases, message, began)
            execution = as_execution(message, cases)
            if self._may_pay_for_others(cases[0], execution):
                return self._retry_in_new_child(child, page, cases, execution.verdicts[0])
            self._answers += 1
            if execution.verdicts[0].reason in _WRITES:
                self._wrote.add(cases[0].descriptor.name)
            self._options.limits.deadlines.record(cases[0], execution.verdicts[0], execution.timings.run_s)
            if is_last(execution):
                self._give_up(child, page)  # what it holds of the device is broken, or the worker itself has changed
            return execution

    def _catch_up(self, cases: Sequence[TestCase]) -> None:
        """Pass over answers that nobody wants any more, up to that to these cases or all of them.

        A worker that takes long for them, or has no more of them, is given up.
        """
        ends = time.monotonic() + _CATCH_UP_S
        while self._running is not None and self._ahead and self._ahead[0].cases is not cases:
            try:
                answer = self._running[0].receive(max(0.0, ends - time.monotonic()))
            except (TimeoutError, ValueError):
                answer = None
            if answer is None:
                self._give_up(*self._running)
                return
            self._ahead.popleft()
            self._waited_for += 1

    def _may_pay_for_others(self, case: TestCase, execution: ExecutionResult) -> bool:
        """Return whether a case failed that may pass, or fail otherwise, where no foreign code ran before: with an
        exception of the reference or of optest, or after another operator wrote where it should not."""
        verdict, operator = execution.verdicts[0], case.descriptor.name
        if self._answers == 0 or self._options.fresh or operator in self._failing:
            return False
        after_a_write = verdict.status is Status.FAILED and self._wrote - {operator}
        may_be_spoilt = bool(after_a_write) or raised_by_optest(verdict)
        return verdict.reason is Reason.REFERENCE_FAILED or (may_be_spoilt and self._calls_native_code())

    def _calls_native_code(self) -> bool:
        """Return whether the backend calls foreign native code on optest's memory, in forks of the worker."""
        return isinstance(backend_manager.get(self._options.driver), RunsInForks)

    def _retry_in_new_child(
        self, child: Child, page: PhasePage, cases: Sequence[TestCase], first: Verdict
    ) -> ExecutionResult:
        """Return the execution in a new worker; a pass there is suspect after an exception of optest, since some case
        wrote over its memory."""
        self._give_up(child, page)
        execution = self._execute(cases)
        if execution.verdicts[0].reason is Reason.REFERENCE_FAILED or raised_by_optest(execution.verdicts[0]):
            self._failing.add(cases[0].descriptor.name)
        if raised_by_optest(first):
            return replace(execution, verdicts=tuple(after_attempts(each, 2, first) for each in execution.verdicts))
        return execution

    def _encoded(self, cases: Sequence[TestCase], *, is_last: bool) -> bytes:
        self._asked += 1
        deadlines = self._options.limits.deadlines
        wires = [case_to_wire(deadlines.applied(case)) for case in cases]
        return encode(Asked(self._asked, [case.key for case in cases], wires, is_last))

    def _ask_ahead(self, child: Child, following: Sequence[Sequence[TestCase]]) -> None:
        """Send the next questions before the answer to this one, several at once, as far as the pipe has room.

        A worker that is gone may have answered this one before. Long questions could fill the pipe while the worker
        waits for its long answer to be read.
        """
        if len(following) < 2 * len(self._ahead):
            return  # enough is asked already
        if any(cases is not known.cases for cases, known in zip(following, self._ahead, strict=False)):
            return
        room = min(_MOST_BYTES_AHEAD, child.holds_bytes() // 2) - sum(known.nbytes for known in self._ahead)
        number = self._asked
        messages: list[bytes] = []
        for cases in following[len(self._ahead) :]:
            message = self._encoded(cases, is_last=cases is following[-1])
            room -= len(message)
            if room < 0:
                self._asked -= 1
                break
            messages.append(message)
        if not messages:
            return
        try:
            child.send(*messages)
        except BrokenPipeError:
            self._asked = number
            return
        first = len(self._ahead)
        self._ahead += [
            _Question(cases, len(message))
            for cases, message in zip(following[first : first + len(messages)], messages, strict=True)
        ]

    def _answer_to_this(self, answer: bytes) -> Ran | Broken | Died:
        try:
            message = decode_for_parent(answer)
        except (ValueError, RecursionError) as error:
            raise NotAnAnswer(f"it cannot be read: {error}") from None
        if isinstance(message, Ready) or message.number != self._waited_for:
            raise NotAnAnswer("it answers another question")
        return message

    def _spoilt(self, child: Child, page: PhasePage, cases: Sequence[TestCase], how: str) -> ExecutionResult:
        """Nothing that comes from this worker can be believed any more, so it loses its place."""
        child.kill()
        return self._gone(child, page, cases, _answer_spoilt(how, child.stderr_tail()), Phase.IDLE, 0.0)

    def start(self) -> None:
        """Start the worker, unless it runs.

        Raises:
            NotInWorker, Unavailable, UsageError: as the worker says when it loads the driver, or if it cannot load it.
            Closed: if that happened before, or happens meanwhile.
        """
        with self._busy, suppress(_DiedAtLoad):  # every case says so
            self._started_now()

    def _started_now(self) -> tuple[Child, PhasePage]:
        """The running worker and its phase page, started if need be; once more where it dies while it loads.

        Raises:
            _DiedAtLoad: if all of them died.
            UsageError: if no further worker would load the backend either.
        """
        if self._running is not None:
            return self._running
        while True:
            try:
                running = self._start()
            except _DiedAtLoad as error:
                self._deaths_at_load += 1
                if self._deaths_at_load < _MOST_DEATHS_AT_LOAD:
                    continue
                death = _DiedAtLoad(*error.how, self._deaths_at_load)
                # a signal may come from outside, and memory may be short for a while; an exit before any case is the
                # backend's own
                is_final = not self._has_loaded and not death.verdict.details.get("signal")
                if is_final or self._deaths_at_load >= _NO_MORE_STARTS:
                    raise death.of_all_cases() from None
                raise death from None
            self._deaths_at_load, self._has_loaded = 0, True
            return running

    def _start(self) -> tuple[Child, PhasePage]:
        self._require_open()
        self._started += 1
        page_path = self._options.scratch / f"{self._name}.phase"
        page = PhasePage(page_path, create=True)
        child = start_child(
            module_command("optest.core.worker", str(page_path)),
            env=self._options.environment,
            stderr_path=self._options.scratch / f"{self._name}-{self._started}.log",
            forks=self._forks,
        )
        self._running = child, page
        try:
            self._require_open()  # whoever closed it before this saw no child that could be closed
            self._greet(child)
        except BaseException:
            self._give_up(child, page)
            self._require_open()  # else the child's end is what is wrong
            raise
        return child, page

    def _require_open(self) -> None:
        if self._closed:
            raise Closed(f"worker {self._name} was closed while a case was waiting for it")

    def close(self) -> None:
        self._closed = True
        running = self._running
        if running is None:
            return
        if self._options.finish_s and self._busy.acquire(blocking=False):
            running[0].finish(self._options.finish_s)
            self._busy.release()
        running[0].kill()
        with self._busy:  # who still waits for the worker learns that it is gone before its pipes are closed
            if self._running is running:  # nobody else closed it meanwhile
                running[0].close()
                running[1].close()
                self._running = None

    def _greet(self, child: Child) -> None:
        hello = Hello(
            driver=self._options.driver,
            options=dict(self._options.options),
            plugins=list(self._options.plugins),
            import_path=[entry or os.getcwd() for entry in sys.path],
            every_measure=self._options.every_measure,
            fresh=self._options.fresh,
            keep=str(self._options.keep.absolute()) if self._options.keep is not None else "",
            bench=self._options.bench,
        )
        with suppress(BrokenPipeError):  # one that died at once has no answer either
            child.send(encode(hello))
        try:
            answer = child.receive(_START_S)
            returncode, signal = child.wait(_START_S) if answer is None else (0, None)
        except TimeoutError:
            raise UsageError(f"backend {self._options.driver} did not load in {_START_S:.0f} s") from None
        if answer is None:
            raise _DiedAtLoad(self._options.driver, returncode, signal, child.stderr_tail())
        match decode_for_parent(answer):
            case Ready():
                return
            case Broken(_, kind, message):
                raise refusal(kind, message)
        raise InternalError("a worker answered its greeting with a result")

    def _late(self, page: PhasePage, case: TestCase) -> _Late | None:
        """What takes longer than it may, if anything does; the worker may go on while this is told."""
        phase, since = page.read()
        allowed_s = self._options.limits.allowance_s(phase, case)
        took_s = time.monotonic() - since
        return _Late(phase, allowed_s, took_s) if took_s >= allowed_s else None

    def _ended_by_deadline(
        self, child: Child, page: PhasePage, cases: Sequence[TestCase], late: _Late
    ) -> ExecutionResult:
        child.write_traceback()
        child.kill()
        deadlines = self._options.limits.deadlines
        why = deadlines.why(cases[0]) if late.phase is Phase.RUN else ""
        verdict = overtime(late.phase, late.allowed_s, child.stderr_tail(), why)
        deadlines.record(cases[0], verdict, None)
        return self._gone(child, page, cases, verdict, late.phase, late.took_s)

    def _without_pipes(self, child: Child, page: PhasePage, cases: Sequence[TestCase], began: float) -> ExecutionResult:
        """Its ends of the pipes are closed: it is dead, or foreign code closed them and may go on for ever."""
        late = None
        has_ended = _ends_in(child, _DYING_S)
        try:
            while not has_ended and (late := self._late(page, cases[0])) is None:
                has_ended = _ends_in(child, _until_next_look(page, cases[0], self._options.limits))
        except ValueError as error:
            return self._spoilt(child, page, cases, str(error))
        if late is not None:
            return self._ended_by_deadline(child, page, cases, late)
        return self._died(child, page, cases, began)

    def _died(self, child: Child, page: PhasePage, cases: Sequence[TestCase], began: float) -> ExecutionResult:
        returncode, signal = child.wait()
        phase, tail = page.of_a_death(), child.stderr_tail()
        report = stderr_report(child.stderr_tail(_REPORT_BYTES))
        verdict = death(phase, returncode, signal, tail, report)
        if self._is_not_of_this_case(cases, phase, signal, tail):
            self._give_up(child, page)
            return self._once_more(cases, phase, verdict)
        return self._gone(child, page, cases, verdict, phase, time.monotonic() - began)

    def _fork_died(
        self, child: Child, page: PhasePage, cases: Sequence[TestCase], died: Died, began: float
    ) -> ExecutionResult:
        """The same of a fork of the worker, which goes on with what it was asked ahead."""
        phase = Phase(died.phase)
        # What the fork wrote to standard output and error before it died; the log comes a little later.
        ends = time.monotonic() + _LOG_S
        while end_mark(died.number) not in (tail := child.stderr_tail(_REPORT_BYTES)) and time.monotonic() < ends:
            time.sleep(_LOOK_S)
        before = tail.partition(end_mark(died.number))[0].rstrip()
        said = before[max((each.end() for each in END_MARK.finditer(before)), default=0) :].lstrip("\n")
        tail = said[-_TAIL_CHARACTERS:]
        report, native = stderr_report(said), self._calls_native_code()
        verdict = death(phase, died.returncode, died.signal, tail, report, native=native)
        if self._is_not_of_this_case(cases, phase, died.signal, tail):
            self._give_up(child, page)
            return self._once_more(cases, phase, verdict)
        self._answers = 0
        if died.spoilt:
            verdict = _answer_spoilt(died.spoilt, tail)
        timings = Timings(run_s=time.monotonic() - began) if phase is Phase.RUN else Timings()
        return replace(ExecutionResult.for_all(cases, verdict), timings=timings)

    def _is_not_of_this_case(self, cases: Sequence[TestCase], phase: Phase, signal: int | None, tail: str) -> bool:
        """Return whether an earlier case may have killed the process: the backend did not run, or malloc
        found its heap broken; or of what had killed any: the case had not begun. The case runs once more in a
        new process, where nothing came before it."""
        if phase is Phase.IDLE and self._begun_again is not cases:
            self._begun_again = cases
            return True
        is_ours = phase in (*_BEFORE_THE_BACKEND, *_AFTER_THE_BACKEND)
        return self._answers > 0 and (is_ours or heap_was_broken(signal, tail) is not None)

    def _once_more(self, cases: Sequence[TestCase], phase: Phase, died: Verdict) -> ExecutionResult:
        """The outcome in a new process. A pass there is suspect: an earlier case broke this one, and perhaps passed."""
        execution = self._execute(cases)
        if phase is Phase.IDLE:
            return execution
        return replace(execution, verdicts=tuple(after_attempts(each, 2, died) for each in execution.verdicts))

    def _give_up(self, child: Child, page: PhasePage) -> None:
        self._running = None
        self._answers = 0
        self._wrote.clear()
        self._ahead.clear()
        self._waited_for = self._asked  # what it was asked and has not answered is asked again, under another number
        child.close()
        page.close()

    def _gone(
        self, child: Child, page: PhasePage, cases: Sequence[TestCase], verdict: Verdict, phase: Phase, ran_s: float
    ) -> ExecutionResult:
        """The verdict for every case of the execution that the worker was at, and a clean place for the next worker."""
        self._give_up(child, page)
        execution = ExecutionResult.for_all(cases, verdict)
        return replace(execution, timings=Timings(run_s=ran_s)) if phase is Phase.RUN else execution


_BEFORE_THE_BACKEND = (Phase.IDLE, Phase.GENERATE, Phase.REFERENCE)
_AFTER_THE_BACKEND = (Phase.COMPARE, Phase.ANSWER)
_WRITES = (Reason.OUT_OF_BOUNDS, Reason.INPUT_MUTATED, Reason.WORKSPACE)


class _DiedAtLoad(Exception):
    """A worker that ended while it loaded the driver."""

    def __init__(self, driver: str, returncode: int, signal: int | None, tail: str, times: int = 1) -> None:
        super().__init__(driver)
        self.how = (driver, returncode, signal, tail)
        self.verdict = death_at_load(*self.how, times)

    def of_all_cases(self) -> UsageError:
        """Return the error that ends the run."""
        tail = self.verdict.details["stderr_tail"].rstrip().splitlines()[-_SHOWN_LINES:]
        return UsageError("\n  ".join([f"{self.verdict.message}; no case can run", *tail]))


def _answer_spoilt(how: str, tail: str) -> Verdict:
    return descriptors_spoilt(f"its answer is not to be trusted, since {how}", {"stderr_tail": tail})


def _ends_in(child: Child, timeout_s: float) -> bool:
    try:
        child.wait(timeout_s)
    except TimeoutError:
        return False
    return True


def _until_next_look(page: PhasePage, case: TestCase, limits: PhaseLimits) -> float:
    """Seconds until the phase now running would be over its allowance, or until the next may have begun."""
    try:
        phase, since = page.read()
    except ValueError:  # the next case, which runs already, may have written there: an answer that is here counts
        return _LOOK_S
    left = since + limits.allowance_s(phase, case) - time.monotonic()
    deadline_s = limits.deadlines.of(case)
    if phase is not Phase.RUN and deadline_s is not None:
        left = min(left, deadline_s)
    return min(max(left, 0.001), _LOOK_AGAIN_S)
