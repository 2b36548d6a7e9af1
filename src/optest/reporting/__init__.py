"""Reports: receivers of the engine's events, or readers of a journal. They never change a verdict."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TextIO, runtime_checkable

from optest.errors import OptestError, UnknownName
from optest.registry import Registry, load_entry_points
from optest.reporting.file_report import FILE_FORMATS, make_file_reporter
from optest.reporting.from_journal import report_from_journal
from optest.spec import CaseResult, RunInfo, RunSummary

__all__ = [
    "ReportManager",
    "Reporter",
    "ReporterFactory",
    "ReporterFailure",
    "make_reporter",
    "report_from_journal",
    "report_names",
    "reporters",
    "require_report",
]


@runtime_checkable
class Reporter(Protocol):
    """Receiver of the events of one run; all calls come from one thread."""

    def on_start(self, info: RunInfo) -> None: ...

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:
        """Receive a finished case; ``index`` counts finished cases from 0."""

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult]) -> None:
        """End the report, also of an interrupted run; ``results`` include those of the run that was resumed."""


class ReporterFactory(Protocol):
    """Factory in the registry of reports; with ``path`` None the report chooses its file or stream."""

    def __call__(self, *, stream: TextIO | None, path: Path | None, verbosity: int, color: bool | None) -> Reporter: ...


reporters: Registry[ReporterFactory] = Registry("report")
reporters.register("terminal", "optest.reporting.terminal:make")
for _format in FILE_FORMATS:
    reporters.register(_format, partial(make_file_reporter, _format))


def make_reporter(
    name: str,
    *,
    stream: TextIO | None = None,
    path: Path | None = None,
    verbosity: int = 0,
    color: bool | None = None,
) -> Reporter:
    """Return a new reporter; installed packages register theirs as entry points of the group ``optest.reporters``.

    Raises:
        UnknownName: with the nearest known name.
        UsageError: if ``path`` cannot be written.
    """
    require_report(name)
    return reporters.get(name)(stream=stream, path=path, verbosity=verbosity, color=color)


def require_report(name: str, *, where: str = "") -> None:
    """Raise an error unless a report of this name is registered; ``where`` is the option or line that names it.

    Raises:
        UnknownName: with the nearest known name.
    """
    # Entry points are loaded only for a name that is not built in: it takes tens of milliseconds.
    if name not in reporters and name not in report_names():
        raise UnknownName("report", name, reporters.names(), where=where)


def report_names() -> tuple[str, ...]:
    """Register the reports of installed packages, and return the names of all reports."""
    for name, import_path in load_entry_points("optest.reporters"):
        if name not in reporters:
            reporters.register(name, import_path)
    return reporters.names()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReporterFailure:
    """Exception of a reporter, which receives no more events; the run ends with exit status 3."""

    reporter: str
    event: str
    error: str

    def __str__(self) -> str:
        return f"report {self.reporter} failed in {self.event}: {self.error}"


class ReportManager:
    """Dispatcher of events to all reporters. One that raises is removed, and named at the end on ``stream``."""

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
        self._dispatch("on_start", info)

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:
        self._results.append(result)
        self._dispatch("on_case_result", result, index, total)

    def on_wait(self, case: str, seconds: float, done: int, total: int) -> None:
        """Pass the name of a case that has been running for ``seconds`` to the reporters that have this method."""
        self._dispatch("on_wait", case, seconds, done, total)

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult] | None = None) -> None:
        """End the reports, with the received results if ``results`` is None; print failed reporters on the stream."""
        self._dispatch("on_complete", summary, tuple(self._results) if results is None else results)
        stream = sys.stderr if self._stream is None else self._stream
        for failure in self._failures:
            stream.write(f"optest: {failure}\n")

    start = on_start
    handle_result = on_case_result
    complete = on_complete

    def _dispatch(self, event: str, *arguments: object) -> None:
        for reporter in tuple(self._reporters):
            # `on_wait` is newer than the protocol: reporters of installed packages may lack it.
            if event == "on_wait" and not hasattr(reporter, event):
                continue
            try:
                getattr(reporter, event)(*arguments)
            except Exception as error:  # noqa: BLE001 - border: a report must not end the run
                self._reporters.remove(reporter)
                kind = type(reporter)
                text = str(error)
                if not isinstance(error, OptestError):
                    text = f"{type(error).__name__}: {error}" if text else type(error).__name__
                name = f"{kind.__module__}.{kind.__qualname__}"
                self._failures.append(ReporterFailure(reporter=name, event=event, error=text))
