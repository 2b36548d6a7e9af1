"""A run that executes cases on request, for front ends with their own loop, such as pytest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from optest.api.dispatching import devices_of, is_scheduled
from optest.api.run_request import RunRequest
from optest.api.running import Steering, run_cases
from optest.core.session import Execution, Step, executions
from optest.errors import InternalError, OptestError
from optest.reporting import Reporter
from optest.settings import resolve
from optest.spec import BAD_STATUSES, CaseResult, RunInfo, RunSummary, TestCase

_MOST_TOGETHER = 16
_TOGETHER_S = 0.02
"""Maximum delay before a result is reported, in seconds."""


class CaseStream:
    """A run in a thread that executes requested cases until it is closed.

    Cases that compute the same share one execution. If cases need devices, the first request starts the whole run, in
    the order of its schedule.
    """

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._is_whole = is_scheduled(request)
        self._last_round = request.settings["rounds"] - 1
        self._results: dict[tuple[str, str], CaseResult] = {}
        self._bad: dict[tuple[str, str], CaseResult] = {}
        """The first bad result of a case over its rounds."""
        self._changed = threading.Condition()
        self._turn: tuple[TestCase, ...] | None = None
        self._turn_began = 0.0
        self._is_closed = False
        self._is_over = False
        self._error: OptestError | None = None
        self._thread: threading.Thread | None = None
        self._steering = Steering(choose=None if self._is_whole else self._requested_turns)
        self.info: RunInfo | None = None
        """Facts about the run, None before it starts."""

    def require_devices(self) -> None:
        """Raise ``OptestError`` if a case cannot have its devices, so that nothing would run."""
        devices_of(self._request)

    def groups(self) -> list[tuple[TestCase, ...]]:
        """Return the groups of cases that share an execution."""
        dedupe = not self._request.settings["no_dedupe"]
        return [execution.cases for execution in executions(self._request.cases, dedupe=dedupe)]

    def result(self, case: TestCase, following: Callable[[], Sequence[TestCase]] = tuple) -> CaseResult:
        """Request a case, wait for its result and return it.

        ``following`` returns the cases that are certainly requested next, in this order. Quick ones are executed in
        advance, which saves a switch between threads and processes after each case. Raise ``OptestError`` if the run
        cannot start, or ends without this result.
        """
        key = _key(case)
        with self._changed:
            if key in self._results:
                return self._results[key]
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="optest run", daemon=True)
                self._thread.start()
            self._turn = (case, *following())
            self._turn_began = time.monotonic()
            self._changed.notify_all()
            self._changed.wait(_TOGETHER_S)
            while key not in self._results and not self._is_over:
                self._changed.wait()
            if key in self._results:
                return self._results[key]
        raise self._error or InternalError(f"the run ended without a result of {case.id}")

    def results(self) -> list[CaseResult]:
        """Return the results so far."""
        return list(self._results.values())

    def close(self, *, at_once: bool = False) -> None:
        """End the run after the execution in progress; interrupt that with ``at_once``, or if it was not requested."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if at_once or (self._is_whole and not self._is_over):
            self._steering.interruption.cancel()  # nobody waits for the rest of a scheduled run
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            run_cases(self._request, terminal=_Listener(self), steering=self._steering)
        except OptestError as error:
            self._error = error
        finally:  # else `result` would wait for ever
            with self._changed:
                self._results = {**self._bad, **self._results}
                self._is_over = True
                self._changed.notify_all()

    def _requested_turns(self, remaining: Sequence[Execution]) -> Iterator[Step]:
        """Yield the executions of each request and of the cases that follow it quickly, until the run is closed."""
        rounds_of: dict[int, list[Execution]] = {}
        for execution in remaining:
            for case in execution.cases:
                rounds_of.setdefault(id(case), []).append(execution)
        while (turn := self._next_turn()) is not None:
            executions = [execution for case in turn for execution in rounds_of[id(case)]]
            different = {id(execution): execution for execution in executions}.values()
            queue = [execution for execution in different if _key(execution.first) not in self._results]
            for index, execution in enumerate(queue):
                if index and not execution.round_index and not self._may_continue(index):
                    break
                yield execution, queue[index + 1 :]
            with self._changed:
                self._changed.notify_all()

    def _next_turn(self) -> tuple[TestCase, ...] | None:
        """Wait for the next request and return its cases; None if the run is closed."""
        with self._changed:
            while self._turn is None and not self._is_closed:
                self._changed.wait()
            turn, self._turn = self._turn, None
            return None if self._is_closed else turn

    def _may_continue(self, count: int) -> bool:
        """Return whether another case may run before the requested result is reported: below 16 cases and 20 ms."""
        return count < _MOST_TOGETHER and not self._is_closed and time.monotonic() < self._turn_began + _TOGETHER_S

    def take(self, result: CaseResult) -> None:
        """Store a result after the last repetition of its case; wake the waiting thread if it has waited for long."""
        with self._changed:
            key = result.id, result.where
            if result.status in BAD_STATUSES:
                self._bad.setdefault(key, result)
            if result.round == self._last_round:  # a result before that could end the run amid the rounds of a case
                self._results[key] = self._bad.get(key, result)
            if self._is_whole or time.monotonic() >= self._turn_began + _TOGETHER_S:
                self._changed.notify_all()


def _key(case: TestCase) -> tuple[str, str]:
    return case.id, case.where


class _Listener(Reporter):
    def __init__(self, stream: CaseStream) -> None:
        self._stream = stream

    def on_start(self, info: RunInfo) -> None:
        self._stream.info = info

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:  # noqa: ARG002
        self._stream.take(result)

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult]) -> None:
        """Do nothing: the front end sums up itself."""


def runs_of_workers() -> Path:
    """Return the folder for runs of pytest-xdist's workers; a subfolder, so that they are not listed as runs."""
    return Path(resolve({})["runs_dir"]) / "workers"
