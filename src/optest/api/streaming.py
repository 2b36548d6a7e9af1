"""A run whose cases are asked for one by one: for faces that have a loop of their own, as pytest has."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from optest.api.dispatching import devices_of, runs_in_its_own_order
from optest.api.run_request import RunRequest
from optest.api.running import Steering, run_cases
from optest.core.session import Execution, Turn, executions
from optest.errors import InternalError, OptestError
from optest.reporting import Reporter
from optest.settings import resolve
from optest.spec import BAD_STATUSES, CaseResult, RunInfo, RunSummary, TestCase

_MOST_TOGETHER = 16
_TOGETHER_S = 0.02
"""Nobody sees whether a result is told at once or so much later."""


class CaseStream:
    """A run that executes what it is asked for, when it is asked, and ends when it is closed.

    Cases that compute the same thing share one execution, whichever of them is asked for first. Where cases need
    devices the first that is asked for begins the whole run, in the order of its schedule.
    """

    def __init__(self, request: RunRequest) -> None:
        self._request = request
        self._is_whole = runs_in_its_own_order(request)
        self._last_round = request.settings["rounds"] - 1
        self._results: dict[tuple[str, str], CaseResult] = {}
        self._bad: dict[tuple[str, str], CaseResult] = {}
        """Of several rounds the first that is not well."""
        self._changed = threading.Condition()
        self._turn: tuple[TestCase, ...] | None = None
        self._turn_began = 0.0
        self._is_closed = False
        self._is_over = False
        self._error: OptestError | None = None
        self._thread: threading.Thread | None = None
        self._steering = Steering(choose=None if self._is_whole else self._turns)
        self.info: RunInfo | None = None
        """What the run says of itself, None before it began."""

    def require_devices(self) -> None:
        """
        Raises:
            OptestError: if a case cannot have its devices, so that nothing would run.
        """
        devices_of(self._request)

    def groups(self) -> list[tuple[TestCase, ...]]:
        """The cases that share an execution, the first of each stands for the others."""
        dedupe = not self._request.settings["no_dedupe"]
        return [execution.cases for execution in executions(self._request.cases, dedupe=dedupe)]

    def result(self, case: TestCase, following: Callable[[], Sequence[TestCase]] = tuple) -> CaseResult:
        """Wait for the result of one of the cases.

        ``following`` says which are certainly the next that are asked for, in this order: quick ones are run at once
        with this one, so that the two threads, and the two processes, need not wait for each other after each of them.

        Raises:
            OptestError: if the run could not be begun, or ended without this result.
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
        """What is known so far."""
        return list(self._results.values())

    def close(self, *, at_once: bool = False) -> None:
        """End the run where it stands; its journal is complete as far as it goes.

        What is being executed is waited for, but ``at_once``, which is what Ctrl-C means, or if nobody asked for it.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if at_once or (self._is_whole and not self._is_over):
            self._steering.interruption.now()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            run_cases(self._request, terminal=_Listener(self), steering=self._steering)
        except OptestError as error:
            self._error = error
        finally:  # whatever happened, nobody may wait for ever
            with self._changed:
                self._results = {**self._bad, **self._results}
                self._is_over = True
                self._changed.notify_all()

    def _turns(self, remaining: Sequence[Execution]) -> Iterator[Turn]:
        """What is asked for, and what quickly follows it, until nobody asks any more."""
        rounds_of: dict[int, list[Execution]] = {}
        for execution in remaining:
            for case in execution.cases:
                rounds_of.setdefault(id(case), []).append(execution)
        while (turn := self._next_turn()) is not None:
            executions = [execution for case in turn for execution in rounds_of[id(case)]]
            different = {id(execution): execution for execution in executions}.values()
            line = [execution for execution in different if _key(execution.first) not in self._results]
            for place, execution in enumerate(line):
                if place and not execution.round_index and not self._goes_on(place):
                    break
                yield execution, line[place + 1 :]
            with self._changed:
                self._changed.notify_all()

    def _next_turn(self) -> tuple[TestCase, ...] | None:
        """What is asked for next; None when nobody asks any more."""
        with self._changed:
            while self._turn is None and not self._is_closed:
                self._changed.wait()
            turn, self._turn = self._turn, None
            return None if self._is_closed else turn

    def _goes_on(self, place: int) -> bool:
        """Whether the next of a turn is run at once, so that who waits for the first waits a little longer."""
        return place < _MOST_TOGETHER and not self._is_closed and time.monotonic() < self._turn_began + _TOGETHER_S

    def take(self, result: CaseResult) -> None:
        """Keep a result and, if that is late, wake who waits for it."""
        with self._changed:
            key = result.id, result.where
            if result.status in BAD_STATUSES:
                self._bad.setdefault(key, result)
            if result.round == self._last_round:  # who has an answer may end the run, also amid the rounds of a case
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
        """Nothing: the face counts for itself."""


def runs_of_workers() -> Path:
    """Where processes that run parts of one session keep theirs; no runs of their own for whoever looks for one."""
    return Path(resolve({})["runs_dir"]) / "workers"
