"""Executor that runs cases in a worker process, enforces its time limits and replaces it when it dies."""

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
    Broken,
    Died,
    Hello,
    Ran,
    Ready,
    Request,
    decode_for_parent,
    encode,
    end_mark,
    is_last,
    refusal,
    result_of_message,
)
from optest.core.phases import Phase, PhasePage
from optest.core.runner import ExecutionResult
from optest.core.verdicts import after_attempts
from optest.core.wire import case_to_wire
from optest.core.worker_death import death, death_at_load, descriptors_spoilt, heap_was_broken, overtime, stderr_report
from optest.errors import InternalError, UsageError
from optest.process import Child, ForkServer, module_command, start_child
from optest.spec import Reason, Status, TestCase, Timings, Verdict

# Importing a framework may take this long.
_START_S = 300.0

# After these deaths in a row a worker is started only once for each case, since the cause may end, such as a shortage
# of memory; after `_NO_MORE_STARTS` none is started any more.
_MOST_DEATHS_AT_LOAD = 3
_NO_MORE_STARTS = 10
_SHOWN_LINES = 12

# Size of a sanitizer's report.
_REPORT_BYTES = 1 << 16

# Half of the usual capacity of a pipe on Linux; on macOS a pipe grows to as much.
_MOST_BYTES_AHEAD = 1 << 15

_TAIL_CHARACTERS = 8192

# Results of other workers may shorten the deadline during a wait.
_LOOK_AGAIN_S = 5.0

_LOG_S = 2.0
_LOOK_S = 0.002

# A worker whose pipes are closed may take this long to end: the system may have much memory to free.
_DYING_S = 5.0

# Limit of waiting for results that are not needed any more; a new worker takes longer to start.
_CATCH_UP_S = 2.0

_BEFORE_THE_BACKEND = (Phase.IDLE, Phase.GENERATE, Phase.REFERENCE)
_AFTER_THE_BACKEND = (Phase.COMPARE, Phase.ANSWER)
_WRITES = (Reason.OUT_OF_BOUNDS, Reason.INPUT_MUTATED, Reason.WORKSPACE)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Options of workers.

    ``scratch`` is the folder for their output and phase pages. ``keep`` is the folder for the tensors of every
    execution, None for none. With ``bench`` passed cases are timed. ``finish_s`` is the time that an idle worker has to
    release its resources when it is closed; with 0 it is killed.
    """

    driver: str
    scratch: Path
    environment: Mapping[str, str]
    options: Mapping[str, Any] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    every_measure: bool = False
    fresh: bool = False
    limits: PhaseLimits = field(default_factory=PhaseLimits)
    keep: Path | None = None
    bench: BenchOptions | None = None
    finish_s: float = 0.0


class _Worker(NamedTuple):
    """A worker process and its phase page."""

    child: Child
    page: PhasePage


class _RequestAhead(NamedTuple):
    """Cases of a request that was sent ahead, compared by identity, and the size of its message."""

    cases: Sequence[TestCase]
    nbytes: int


class _Overtime(NamedTuple):
    """A phase that exceeded its time limit."""

    phase: Phase
    allowed_s: float
    took_s: float


class WorkerProcess:
    """Executor with one worker process, which lives on between cases and is replaced when it dies.

    This process enforces the deadlines, since a worker that hangs in C code cannot. :meth:`close` may be called from
    another thread than :meth:`execute`, which then ends at once. Workers are forked by ``forks`` if its environment is
    theirs.
    """

    looks_ahead = True

    def __init__(self, options: WorkerOptions, name: str, forks: ForkServer | None = None) -> None:
        self._options = options
        self._forks = forks if forks is not None and forks.environment == options.environment else None
        self._name = name
        self._running: _Worker | None = None
        self._busy = threading.Lock()
        self._started = 0
        self._last_sent = 0  # number of the latest request
        self._awaited = 0  # number of the request whose result is awaited
        self._ahead: deque[_RequestAhead] = deque()
        self._closed = False
        self._finished = 0  # results of the present worker
        self._deaths_at_load = 0
        self._has_loaded = False
        self._restarted_for: Sequence[TestCase] | None = None  # cases before which a worker died
        self._failing: set[str] = set()  # operators whose reference, or optest itself, fails in a new worker too
        self._wrote: set[str] = set()  # operators that wrote outside of their outputs in the present worker

    def execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult:
        """Run the cases in the worker and return the result; the death of the worker becomes a verdict.

        ``following`` are the cases of the next calls, as far as these are certain: the worker goes on with them while
        this process records the result.

        Raises:
            Unavailable, UsageError: if no worker can load the driver.
            Closed: if the executor is closed.
        """
        # A worker sends each result before it begins the next request: when it dies, it was running the first request
        # without a result.
        with self._busy:
            return self._execute(cases, following)

    def _execute(self, cases: Sequence[TestCase], following: Sequence[Sequence[TestCase]] = ()) -> ExecutionResult:
        """Run the cases, as :meth:`execute`, while the lock is held; a death while loading becomes their verdict."""
        self._catch_up(cases)
        try:
            worker = self._running_worker()
        except _DiedAtLoad as error:
            return ExecutionResult.for_all(cases, error.verdict)
        began = time.monotonic()
        if self._ahead:
            self._ahead.popleft()
        else:
            worker.page.write(Phase.IDLE)
            try:
                worker.child.send(self._encoded(cases, is_last=not following))
            except BrokenPipeError:
                return self._result_without_pipes(worker, cases, began)
        self._send_ahead(worker.child, following)
        return self._await_result(worker, cases, began)

    def _await_result(self, worker: _Worker, cases: Sequence[TestCase], began: float) -> ExecutionResult:
        """Return the result of these cases: the worker's next message, or a verdict about its time limit or death."""
        self._awaited += 1
        try:
            received = self._receive(worker, cases[0])
            message = self._decode_awaited(received) if isinstance(received, bytes) else received
        except ValueError as error:
            return self._distrust(worker, cases, str(error))
        if message is None:
            return self._result_without_pipes(worker, cases, began)
        if isinstance(message, _Overtime):
            return self._end_late(worker, cases, message)
        if isinstance(message, Died):
            return self._result_of_dead_fork(worker, cases, message, began)
        execution = result_of_message(message, cases)
        if self._may_be_spoilt(cases[0], execution):
            return self._retry_in_new_worker(worker, cases, execution.verdicts[0])
        self._finished += 1
        if execution.verdicts[0].reason in _WRITES:
            self._wrote.add(cases[0].descriptor.name)
        self._options.limits.deadlines.record(cases[0], execution.verdicts[0], execution.timings.run_s)
        if is_last(execution):
            self._drop(worker)  # its device is lost, or foreign code has changed the worker
        return execution

    def _receive(self, worker: _Worker, case: TestCase) -> bytes | _Overtime | None:
        """Wait for the worker's next message and return it, or None if its pipe closes, or the phase that is late."""
        while True:
            wait_s = _seconds_to_wait(worker.page, case, self._options.limits)
            try:
                return worker.child.receive(wait_s)
            except TimeoutError:
                if (late := self._overtime(worker.page, case)) is not None:
                    return late

    def _catch_up(self, cases: Sequence[TestCase]) -> None:
        """Discard unneeded results of requests sent ahead, until that of these cases; drop the worker if that fails."""
        ends = time.monotonic() + _CATCH_UP_S
        while self._running is not None and self._ahead and self._ahead[0].cases is not cases:
            try:
                received = self._running.child.receive(max(0.0, ends - time.monotonic()))
            except (TimeoutError, ValueError):
                received = None
            if received is None:
                self._drop(self._running)
                return
            self._ahead.popleft()
            self._awaited += 1

    def _may_be_spoilt(self, case: TestCase, execution: ExecutionResult) -> bool:
        """Return whether the case failed, perhaps because of foreign code that ran before it in this worker.

        The signs are an exception of the reference, and, next to native code, one of optest, or an earlier operator
        that wrote outside of its outputs. False in a new worker, and for an operator that failed in one.
        """
        verdict, operator = execution.verdicts[0], case.descriptor.name
        if self._finished == 0 or self._options.fresh or operator in self._failing:
            return False
        after_a_write = verdict.status is Status.FAILED and self._wrote - {operator}
        may_be_spoilt = bool(after_a_write) or raised_by_optest(verdict)
        return verdict.reason is Reason.REFERENCE_FAILED or (may_be_spoilt and self._calls_native_code())

    def _calls_native_code(self) -> bool:
        """Return whether the backend calls user-defined native code, in forks of the worker."""
        return isinstance(backend_manager.get(self._options.driver), RunsInForks)

    def _retry_in_new_worker(self, worker: _Worker, cases: Sequence[TestCase], first: Verdict) -> ExecutionResult:
        """Run the cases in a new worker and return that result; if optest's own code had raised, a pass is SUSPECT."""
        self._drop(worker)
        execution = self._execute(cases)
        if execution.verdicts[0].reason is Reason.REFERENCE_FAILED or raised_by_optest(execution.verdicts[0]):
            self._failing.add(cases[0].descriptor.name)
        if raised_by_optest(first):  # an earlier case wrote over optest's memory, or this one does now and then
            return _after_second_attempt(execution, first)
        return execution

    def _encoded(self, cases: Sequence[TestCase], *, is_last: bool) -> bytes:
        """Encode the next request, with the present deadlines, and count it."""
        self._last_sent += 1
        deadlines = self._options.limits.deadlines
        wires = [case_to_wire(deadlines.with_limit(case)) for case in cases]
        return encode(Request(self._last_sent, [case.key for case in cases], wires, is_last))

    def _send_ahead(self, child: Child, following: Sequence[Sequence[TestCase]]) -> None:
        """Send requests for the next cases, several at once, as many as fit into half of the pipe."""
        # A full pipe would block this process, while the worker waits until its long result is read.
        if len(following) < 2 * len(self._ahead):
            return  # enough requests are in the pipe
        if any(cases is not sent.cases for cases, sent in zip(following, self._ahead, strict=False)):
            return  # the plan has changed, and `_catch_up` discards what was sent
        room = min(_MOST_BYTES_AHEAD, child.holds_bytes() // 2) - sum(sent.nbytes for sent in self._ahead)
        number = self._last_sent
        requests: list[_RequestAhead] = []
        messages: list[bytes] = []
        for cases in following[len(self._ahead) :]:
            message = self._encoded(cases, is_last=cases is following[-1])
            room -= len(message)
            if room < 0:
                self._last_sent -= 1
                break
            requests.append(_RequestAhead(cases, len(message)))
            messages.append(message)
        if not messages:
            return
        try:
            child.send(*messages)
        except BrokenPipeError:  # the worker died, perhaps after sending the result that is awaited
            self._last_sent = number
            return
        self._ahead += requests

    def _decode_awaited(self, received: bytes) -> Ran | Broken | Died:
        """Decode a message; raise ValueError if it cannot be decoded or is not the result of the awaited request."""
        try:
            message = decode_for_parent(received)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"it cannot be read: {error}") from None
        if isinstance(message, Ready) or message.number != self._awaited:
            raise ValueError("it belongs to another request")
        return message

    def _distrust(self, worker: _Worker, cases: Sequence[TestCase], how: str) -> ExecutionResult:
        """Kill a worker that sent bytes which are no result, and return the verdict FAILED/STATE for the cases."""
        worker.child.kill()
        return self._drop_with(worker, cases, _untrusted_result(how, worker.child.stderr_tail()), Phase.IDLE, 0.0)

    def start(self) -> None:
        """Start the worker, unless it runs. A worker that dies while it loads is reported with the first case.

        Raises:
            NotInWorker, Unavailable, UsageError: if the worker reports that it cannot load the driver, or if the
                deaths of workers show that none can.
            Closed: if the executor is closed, before or meanwhile.
        """
        with self._busy, suppress(_DiedAtLoad):
            self._running_worker()

    def _running_worker(self) -> _Worker:
        """Return the worker; start it if need be, several times if it dies while it loads.

        Raises:
            _DiedAtLoad: if it died each time.
            UsageError: if it did, and further workers are expected to die, too.
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
                death = _DiedAtLoad(*error.arguments, self._deaths_at_load)
                # A signal may come from outside, and memory may be short for a while. An exit before any case is the
                # backend's own.
                is_final = not self._has_loaded and not death.verdict.details.get("signal")
                if is_final or self._deaths_at_load >= _NO_MORE_STARTS:
                    raise death.usage_error() from None
                raise death from None
            self._deaths_at_load, self._has_loaded = 0, True
            return running

    def _start(self) -> _Worker:
        """Start a worker and wait until it has loaded the driver; drop it if that fails."""
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
        self._running = worker = _Worker(child, page)
        try:
            self._require_open()  # `close` in another thread may have run before `_running` was set
            self._greet(child)
        except BaseException:
            self._drop(worker)
            self._require_open()  # if `close` killed the child, its death is no error
            raise
        return worker

    def _require_open(self) -> None:
        if self._closed:
            raise Closed(f"worker {self._name} was closed while a case was waiting for it")

    def close(self) -> None:
        """End the worker; an idle one may finish if the options allow it. A waiting :meth:`execute` raises Closed."""
        self._closed = True
        running = self._running
        if running is None:
            return
        if self._options.finish_s and self._busy.acquire(blocking=False):
            running.child.finish(self._options.finish_s)
            self._busy.release()
        running.child.kill()
        with self._busy:  # a thread in `execute` must see the worker's end before the pipes are closed here
            if self._running is running:  # that thread did not close them
                running.child.close()
                running.page.close()
                self._running = None

    def _greet(self, child: Child) -> None:
        """Send the greeting and wait until the worker has loaded the driver; raise if it cannot, dies or takes long."""
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
        with suppress(BrokenPipeError):  # a worker that died at once; `receive` returns None
            child.send(encode(hello))
        try:
            received = child.receive(_START_S)
            returncode, signal = child.wait(_START_S) if received is None else (0, None)
        except TimeoutError:
            raise UsageError(f"backend {self._options.driver} did not load within {_START_S:.0f} s") from None
        if received is None:
            raise _DiedAtLoad(self._options.driver, returncode, signal, child.stderr_tail())
        match decode_for_parent(received):
            case Ready():
                return
            case Broken(_, kind, message):
                raise refusal(kind, message)
        raise InternalError("a worker replied to its greeting with a result")

    def _overtime(self, page: PhasePage, case: TestCase) -> _Overtime | None:
        """Return the present phase if it exceeds its time limit, else None; ValueError for an overwritten page."""
        phase, since = page.read()
        allowed_s = self._options.limits.allowance_s(phase, case)
        took_s = time.monotonic() - since
        return _Overtime(phase, allowed_s, took_s) if took_s >= allowed_s else None

    def _end_late(self, worker: _Worker, cases: Sequence[TestCase], late: _Overtime) -> ExecutionResult:
        """Kill the worker, with its traceback in the log, and return the verdict of its exceeded time limit."""
        child = worker.child
        child.write_traceback()
        child.kill()
        deadlines = self._options.limits.deadlines
        explanation = deadlines.explanation(cases[0]) if late.phase is Phase.RUN else ""
        verdict = overtime(late.phase, late.allowed_s, child.stderr_tail(), explanation)
        deadlines.record(cases[0], verdict, None)
        return self._drop_with(worker, cases, verdict, late.phase, late.took_s)

    def _result_without_pipes(self, worker: _Worker, cases: Sequence[TestCase], began: float) -> ExecutionResult:
        """Wait for the end or the time limit of a worker that closed its pipes, and return the verdict about that."""
        child, page, late = *worker, None  # foreign code may have closed the pipes and run on
        has_ended = _ends_in(child, _DYING_S)
        try:
            while not has_ended and (late := self._overtime(page, cases[0])) is None:
                has_ended = _ends_in(child, _seconds_to_wait(page, cases[0], self._options.limits))
        except ValueError as error:
            return self._distrust(worker, cases, str(error))
        if late is not None:
            return self._end_late(worker, cases, late)
        returncode, signal = child.wait()
        phase, tail = page.of_a_death(), child.stderr_tail()
        report = stderr_report(child.stderr_tail(_REPORT_BYTES))
        verdict = death(phase, returncode, signal, tail, report)
        if self._may_be_of_earlier_case(cases, phase, signal, tail):
            return self._retry_after_death(worker, cases, phase, verdict)
        return self._drop_with(worker, cases, verdict, phase, time.monotonic() - began)

    def _result_of_dead_fork(
        self, worker: _Worker, cases: Sequence[TestCase], died: Died, began: float
    ) -> ExecutionResult:
        """Return the verdict of a fork of the worker that died; the worker goes on with the requests sent ahead."""
        phase = Phase(died.phase)
        output = _output_of_fork(worker.child, died.number)
        tail = output[-_TAIL_CHARACTERS:]
        report, native = stderr_report(output), self._calls_native_code()
        verdict = death(phase, died.returncode, died.signal, tail, report, native=native)
        if self._may_be_of_earlier_case(cases, phase, died.signal, tail):
            return self._retry_after_death(worker, cases, phase, verdict)
        self._finished = 0
        if died.spoilt:
            verdict = _untrusted_result(died.spoilt, tail)
        timings = Timings(run_s=time.monotonic() - began) if phase is Phase.RUN else Timings()
        return replace(ExecutionResult.for_all(cases, verdict), timings=timings)

    def _may_be_of_earlier_case(self, cases: Sequence[TestCase], phase: Phase, signal: int | None, tail: str) -> bool:
        """Return whether an earlier case may have killed the process: the backend did not run, or the heap is corrupt.

        Without an earlier result it is true once, if the case had not begun.
        """
        if phase is Phase.IDLE and self._restarted_for is not cases:
            self._restarted_for = cases
            return True
        is_elsewhere = phase in (*_BEFORE_THE_BACKEND, *_AFTER_THE_BACKEND)
        return self._finished > 0 and (is_elsewhere or heap_was_broken(signal, tail) is not None)

    def _retry_after_death(
        self, worker: _Worker, cases: Sequence[TestCase], phase: Phase, died: Verdict
    ) -> ExecutionResult:
        """Run the cases in a new worker and return that result; a pass is SUSPECT unless the worker died in IDLE."""
        self._drop(worker)
        execution = self._execute(cases)
        # SUSPECT, since an earlier case, which perhaps passed, broke this one
        return execution if phase is Phase.IDLE else _after_second_attempt(execution, died)

    def _drop(self, worker: _Worker) -> None:
        """Close the worker and forget its state; the next case starts a new one."""
        self._running = None
        self._finished = 0
        self._wrote.clear()
        self._ahead.clear()
        self._awaited = self._last_sent  # requests without a result are sent again under new numbers
        worker.child.close()
        worker.page.close()

    def _drop_with(
        self, worker: _Worker, cases: Sequence[TestCase], verdict: Verdict, phase: Phase, ran_s: float
    ) -> ExecutionResult:
        """Close the worker and return ``verdict`` for all cases; ``ran_s`` is their time if the phase is RUN."""
        self._drop(worker)
        execution = ExecutionResult.for_all(cases, verdict)
        return replace(execution, timings=Timings(run_s=ran_s)) if phase is Phase.RUN else execution


class _DiedAtLoad(Exception):
    """Death of a worker while it loaded the driver, ``times`` times in a row."""

    def __init__(self, driver: str, returncode: int, signal: int | None, tail: str, times: int = 1) -> None:
        super().__init__(driver)
        self.arguments = (driver, returncode, signal, tail)
        self.verdict = death_at_load(*self.arguments, times)

    def usage_error(self) -> UsageError:
        """Return the error that ends the run, with the last lines of the worker's output."""
        tail = self.verdict.details["stderr_tail"].rstrip().splitlines()[-_SHOWN_LINES:]
        return UsageError("\n  ".join([f"{self.verdict.message}; no case can run", *tail]))


def _after_second_attempt(execution: ExecutionResult, first: Verdict) -> ExecutionResult:
    """Return the result of a second attempt: SUSPECT if it passed; a failure mentions that of the first attempt."""
    return replace(execution, verdicts=tuple(after_attempts(verdict, 2, first) for verdict in execution.verdicts))


def _output_of_fork(child: Child, number: int) -> str:
    """Wait for the end mark of the request in the worker's output and return the text between the last two marks."""
    # the pipe of the log may lag behind the message
    ends = time.monotonic() + _LOG_S
    while end_mark(number) not in (tail := child.stderr_tail(_REPORT_BYTES)) and time.monotonic() < ends:
        time.sleep(_LOOK_S)
    before = tail.partition(end_mark(number))[0].rstrip()
    return before[max((mark.end() for mark in END_MARK.finditer(before)), default=0) :].lstrip("\n")


def _untrusted_result(how: str, tail: str) -> Verdict:
    return descriptors_spoilt(f"its result cannot be trusted, because {how}", {"stderr_tail": tail})


def _ends_in(child: Child, timeout_s: float) -> bool:
    """Wait for the end of the worker; return whether it ended in time."""
    try:
        child.wait(timeout_s)
    except TimeoutError:
        return False
    return True


def _seconds_to_wait(page: PhasePage, case: TestCase, limits: PhaseLimits) -> float:
    """Return the seconds, at most 5, until the present phase or the backend may exceed its time limit."""
    try:
        phase, since = page.read()
    except ValueError:
        # The next case may have written over the page while the result of this one is in the pipe: read that first.
        return _LOOK_S
    left = since + limits.allowance_s(phase, case) - time.monotonic()
    deadline_s = limits.deadlines.limit_s(case)
    if phase is not Phase.RUN and deadline_s is not None:
        left = min(left, deadline_s)
    return min(max(left, 0.001), _LOOK_AGAIN_S)
