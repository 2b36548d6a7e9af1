"""A run whose cases are asked for one by one: for faces that have a loop of their own, as pytest has."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from optest.api.asking import Asked
from optest.api.running import run_cases
from optest.core.schedule import Execution, executions
from optest.core.session import Interruption, Turn
from optest.errors import InternalError, OptestError
from optest.reporting import Reporter
from optest.spec import CaseResult, RunInfo, RunSummary, TestCase

__all__ = ["CaseStream"]


class CaseStream:
    """A run that executes what it is asked for, when it is asked, and ends when it is closed.

    Cases that compute the same thing share one execution, whichever of them is asked for first.
    """

    def __init__(self, request: Asked) -> None:
        self._request = request
        self._results: dict[tuple[str, str], CaseResult] = {}
        self._changed = threading.Condition()
        self._turn: tuple[TestCase, TestCase | None] | None = None
        self._is_closed = False
        self._is_over = False
        self._error: OptestError | None = None
        self._thread: threading.Thread | None = None
        self._interruption = Interruption()
        self.info: RunInfo | None = None
        """What the run says of itself, None before it began."""

    def groups(self) -> list[tuple[TestCase, ...]]:
        """The cases that share an execution, the first of each stands for the others."""
        dedupe = not self._request.settings["no_dedupe"]
        return [execution.cases for execution in executions(self._request.cases, dedupe=dedupe)]

    def result(self, case: TestCase, following: TestCase | None = None) -> CaseResult:
        """Wait for the result of one of the cases; ``following`` is certainly the next that is asked for.

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
            self._turn = (case, None if following is None or _key(following) in self._results else following)
            self._changed.notify_all()
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

        What is being executed is waited for, but ``at_once``, which is what Ctrl-C means.
        """
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if at_once:
            self._interruption.now()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            run_cases(self._request, terminal=_Listener(self), choose=self._turns, interruption=self._interruption)
        except OptestError as error:
            self._error = error
        finally:  # whatever happened, nobody may wait for ever
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _turns(self, remaining: Sequence[Execution]) -> Iterator[Turn]:
        """What is asked for, until nobody asks any more."""
        execution_of = {id(case): execution for execution in remaining for case in execution.cases}
        while True:
            with self._changed:
                while self._turn is None and not self._is_closed:
                    self._changed.wait()
                if self._turn is None or self._is_closed:
                    return
                (case, following), self._turn = self._turn, None
                if _key(case) in self._results:  # it came with the one that stands for it
                    continue
            execution, upcoming = execution_of[id(case)], execution_of.get(id(following))
            yield execution, upcoming if upcoming is not execution else None

    def take(self, result: CaseResult) -> None:
        """Keep a result and wake who waits for it."""
        with self._changed:
            self._results[result.id, result.where] = result
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
