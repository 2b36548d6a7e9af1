"""Reports that are one file, written when the run ends."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from optest.registry import load_object
from optest.spec import CaseResult, RunInfo, RunSummary
from optest.store import check_writable, write_atomically

TextOf = Callable[[RunInfo, Iterable[CaseResult], RunSummary], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    """Format of a report: ``text`` is the import path of its function, ``file_name`` its name in a folder of reports.

    Each text begins with one of ``begins``. A ``printed`` format is written to standard output unless a path is given.
    """

    text: str
    file_name: str
    begins: tuple[str, ...]
    printed: bool = False

    def text_of(self) -> TextOf:
        """Import and return the function that builds the text."""
        text: TextOf = load_object(self.text)
        return text


# By the name for `--report`; no two have the same file name or the same suffix.
FILE_FORMATS = {
    "json": FileFormat(
        text="optest.reporting.json_report:report_text", file_name="report.json", begins=('{\n "schema_version": ',)
    ),
    "junit": FileFormat(
        text="optest.reporting.junit:junit_text",
        file_name="junit.xml",
        begins=("<?xml version='1.0' encoding='utf-8'?>\n<testsuites",),
    ),
    "sarif": FileFormat(
        text="optest.reporting.sarif:sarif_text", file_name="report.sarif", begins=('{\n "$schema": ',)
    ),
    "markdown": FileFormat(
        text="optest.reporting.markdown:markdown_text", file_name="summary.md", begins=("## ✅ optest", "## ❌ optest")
    ),
    "html": FileFormat(
        text="optest.reporting.html_report:html_text", file_name="report.html", begins=("<!doctype html>\n<!-- optest",)
    ),
    "csv": FileFormat(
        text="optest.reporting.csv_report:csv_text", file_name="report.csv", begins=("id,operator,target,",)
    ),
    "timeline": FileFormat(
        text="optest.reporting.timeline:timeline_text", file_name="timeline.trace", begins=('{"displayTimeUnit"',)
    ),
    "github": FileFormat(
        text="optest.reporting.annotations:annotations_text",
        file_name="annotations.txt",
        begins=("::error ",),
        printed=True,
    ),
}


def is_report(path: Path) -> bool:
    """Return whether a file is empty or begins like a report, so that a new report may replace it."""
    begins = tuple(begin.encode() for file_format in FILE_FORMATS.values() for begin in file_format.begins)
    with path.open("rb") as file:
        head = file.read(max(map(len, begins)))
    return not head or head.startswith(begins)


def format_of_suffix(path: Path) -> str | None:
    """Return the name of the format with the suffix of a path, None if there is none."""
    by_suffix = {Path(file_format.file_name).suffix: name for name, file_format in FILE_FORMATS.items()}
    return by_suffix.get(path.suffix.lower())


class FileReporter:
    """Reporter that writes a run in one ``format`` to ``path`` when the run ends, and prints the path on ``stream``.

    With ``path`` None, a printed format is written to standard output, another one to
    ``optest_<file name>_<start in UTC><suffix>`` in the current folder.

    Raises:
        UsageError: from the constructor, if the path cannot be written.
    """

    def __init__(self, path: Path | None, format: FileFormat, *, stream: TextIO | None = None) -> None:  # noqa: A002
        self._is_printed = format.printed and path is None
        # Both fail before the run rather than after it: a path that is not writable, a module that is not importable.
        if not self._is_printed:
            check_writable(path or Path(f"optest_{format.file_name}"))
        self._path = path
        self._file_name = Path(format.file_name)
        self._text_of = format.text_of()
        self._stream = stream
        self._info: RunInfo | None = None
        self._results: list[CaseResult] = []

    def on_start(self, info: RunInfo) -> None:
        self._info = info

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:  # noqa: ARG002 - the protocol's
        self._results.append(result)

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult] = ()) -> None:
        if self._info is None:
            raise RuntimeError("on_complete was called before on_start")
        text = self._text_of(self._info, results or self._results, summary)
        if self._is_printed:
            sys.stdout.write(text)
            return
        # 20260131_235959 for a run that began at 2026-01-31T23:59:59.123+00:00.
        digits = re.sub(r"[^0-9T]", "", self._info.started_at.partition(".")[0].partition("+")[0]).replace("T", "_")
        path = self._path or Path(f"optest_{self._file_name.stem}_{digits}{self._file_name.suffix}")
        # A reader of the file, or an interrupt, must not see half a report.
        write_atomically(path, text.encode())
        if self._stream is not None:
            self._stream.write(f"report: {path}\n")


def make_file_reporter(
    name: str,
    *,
    stream: TextIO | None,
    path: Path | None,
    verbosity: int,
    color: bool | None,  # noqa: ARG001 - of the protocol
) -> FileReporter:
    """Create a :class:`FileReporter` for the registry of reports; with a verbosity of -2 it does not print its path."""
    output = (stream or sys.stdout) if verbosity > -2 else None
    return FileReporter(path, FILE_FORMATS[name], stream=output)
