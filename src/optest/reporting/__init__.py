"""Reports: they hear the engine's events or read a journal, and never decide anything."""

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
    """Hears a run from start to end, in one thread."""

    def on_start(self, info: RunInfo) -> None: ...

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:
        """``index`` counts finished cases from 0."""

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult]) -> None:
        """Called also when the run was interrupted; ``results`` are all of them, with those of a resumed run."""


class ReporterFactory(Protocol):
    """What the registry holds under the name of a report; ``path`` None lets the report choose where it is written."""

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
    """Return a new reporter; installed packages add theirs as entry points of the group ``optest.reporters``.

    Raises:
        UnknownName: with the nearest known name.
        UsageError: if its path cannot be written.
    """
    require_report(name)
    return reporters.get(name)(stream=stream, path=path, verbosity=verbosity, color=color)


def require_report(name: str, *, where: str = "") -> None:
    """See that there is a report of this name, without making one; ``where`` says where somebody asked for it.

    Raises:
        UnknownName: with the nearest known name.
    """
    if name not in reporters and name not in report_names():
        raise UnknownName("report", name, reporters.names(), where=where)


def report_names() -> tuple[str, ...]:
    """The reports of optest and of installed packages."""
    for name, import_path in load_entry_points("optest.reporters"):
        if name not in reporters:
            reporters.register(name, import_path)
    return reporters.names()


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

    def on_wait(self, case: str, seconds: float, done: int, total: int) -> None:
        """Hand the name of a case that has been running for ``seconds`` to the reporters that have this method."""
        self._tell("on_wait", case, seconds, done, total)

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult] | None = None) -> None:
        """End the reports; ``results`` None stands for those that were handed in."""
        self._tell("on_complete", summary, tuple(self._results) if results is None else results)
        stream = sys.stderr if self._stream is None else self._stream
        for failure in self._failures:
            stream.write(f"optest: {failure}\n")

    start = on_start
    handle_result = on_case_result
    complete = on_complete

    def _tell(self, event: str, *arguments: object) -> None:
        for reporter in tuple(self._reporters):
            if event == "on_wait" and not hasattr(reporter, event):
                continue
            error = _call(reporter, event, arguments)
            if error is not None:
                self._reporters.remove(reporter)
                kind = type(reporter)
                name = f"{kind.__module__}.{kind.__qualname__}"
                self._failures.append(ReporterFailure(reporter=name, event=event, error=_text(error)))


def _call(reporter: Reporter, event: str, arguments: tuple[object, ...]) -> Exception | None:
    try:
        getattr(reporter, event)(*arguments)
    except Exception as error:  # noqa: BLE001 - border: a report must not end the run
        return error
    return None


def _text(error: Exception) -> str:
    if isinstance(error, OptestError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
