"""Reports: they hear the engine's events or read a journal, and never decide anything."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO, runtime_checkable

from optest.errors import OptestError
from optest.registry import Registry
from optest.spec import CaseResult, RunInfo, RunSummary

__all__ = ["ReportManager", "Reporter", "ReporterFailure", "reporters"]


@runtime_checkable
class Reporter(Protocol):
    """Hears a run from start to end, in one thread."""

    def on_start(self, info: RunInfo) -> None: ...

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:
        """``index`` counts finished cases from 1."""

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult]) -> None:
        """Called also when the run was interrupted; ``results`` are those that the manager handed out."""


reporters: Registry[Any] = Registry("report")
reporters.register("terminal", "optest.reporting.terminal:TerminalReporter")
reporters.register("json", "optest.reporting.json_report:JsonReporter")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReporterFailure:
    """A reporter that raised; it hears nothing more of the run, and the run ends with exit status 3."""

    reporter: str
    event: str
    error: str

    def __str__(self) -> str:
        return f"report {self.reporter} failed in {self.event}: {self.error}"


class ReportManager:
    """Hands every event to every reporter; one that raises is dropped and named at the end, on ``stream``."""

    def __init__(self, reporters: Iterable[Reporter] = (), *, stream: TextIO | None = None) -> None:
        self._reporters = list(reporters)
        self._stream = stream
        self._results: list[CaseResult] = []
        self._failures: list[ReporterFailure] = []

    @property
    def failures(self) -> tuple[ReporterFailure, ...]:
        return tuple(self._failures)

    def add(self, reporter: Reporter) -> None:
        self._reporters.append(reporter)

    def on_start(self, info: RunInfo) -> None:
        self._tell("on_start", info)

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:
        self._results.append(result)
        self._tell("on_case_result", result, index, total)

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult] | None = None) -> None:
        """End the reports; ``results`` None stands for those that were handed in."""
        self._tell("on_complete", summary, tuple(self._results) if results is None else results)
        stream = sys.stderr if self._stream is None else self._stream
        for failure in self._failures:
            stream.write(f"optest: {failure}\n")

    start = on_start
    handle_result = on_case_result
    complete = on_complete

    def _tell(self, event: str, *arguments: Any) -> None:
        for reporter in tuple(self._reporters):
            error = _call(reporter, event, arguments)
            if error is not None:
                self._reporters.remove(reporter)
                self._failures.append(ReporterFailure(reporter=_name(reporter), event=event, error=_text(error)))


def _call(reporter: Reporter, event: str, arguments: tuple[Any, ...]) -> Exception | None:
    try:
        getattr(reporter, event)(*arguments)
    except Exception as error:  # noqa: BLE001 - border: a report must not end the run
        return error
    return None


def _text(error: Exception) -> str:
    if isinstance(error, OptestError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _name(reporter: Reporter) -> str:
    kind = type(reporter)
    return f"{kind.__module__}.{kind.__qualname__}"
