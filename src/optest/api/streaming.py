"""A run whose results are asked for one by one: for faces that have a loop of their own, as pytest has."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence

from optest.api.asking import Asked
from optest.api.running import run_cases
from optest.errors import InternalError, OptestError
from optest.reporting import Reporter
from optest.spec import CaseResult, RunInfo, RunSummary, TestCase

__all__ = ["CaseStream"]


class CaseStream:
    """The results of a run. It stays no more than one case ahead of who asks, and ends early when it is closed."""

    def __init__(self, request: Asked) -> None:
        self._request = request
        self._results: dict[tuple[str, str], CaseResult] = {}
        self._changed = threading.Condition()
        self._wanted = 0
        self._is_closed = False
        self._is_over = False
        self._error: OptestError | None = None
        self._thread: threading.Thread | None = None

    def result(self, case: TestCase) -> CaseResult:
        """Wait for the result of one of the cases.

        Raises:
            OptestError: if the run could not be begun, or ended without this result.
        """
        key = (case.id, case.where)
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="optest run", daemon=True)
                self._thread.start()
            while key not in self._results and not self._is_over:
                self._wanted = len(self._results) + 1
                self._changed.notify_all()
                self._changed.wait()
            if key in self._results:
                return self._results[key]
        raise self._error or InternalError(f"the run ended without a result of {case.id}")

    def close(self) -> None:
        """End the run where it stands; its journal is complete as far as it goes."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            run_cases(self._request, stream=io.StringIO(), reporters=[_Listener(self)])
        except OptestError as error:
            self._error = error
        finally:  # whatever happened, nobody may wait for ever
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def take(self, result: CaseResult) -> None:
        """Keep a result, and wait until somebody wants another one.

        Raises:
            KeyboardInterrupt: if nobody does any more, which ends the run as Ctrl-C would.
        """
        with self._changed:
            self._results[result.id, result.where] = result
            self._changed.notify_all()
            while len(self._results) >= self._wanted and not self._is_closed:
                self._changed.wait()
            if self._is_closed and len(self._results) < len(self._request.cases):
                raise KeyboardInterrupt


class _Listener(Reporter):
    def __init__(self, stream: CaseStream) -> None:
        self._stream = stream

    def on_start(self, info: RunInfo) -> None:
        """Nothing: the face says for itself that it begins."""

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:  # noqa: ARG002
        self._stream.take(result)

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult]) -> None:
        """Nothing: the face counts for itself."""
