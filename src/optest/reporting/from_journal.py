"""Reports from the journal of a run that ended or was killed."""

from __future__ import annotations

import io
import math
import sys
from dataclasses import replace

from optest.errors import UnknownName
from optest.reporting.check_summary import is_check
from optest.reporting.check_table import CheckReporter
from optest.reporting.file_report import FILE_FORMATS
from optest.reporting.page import is_terminal
from optest.reporting.terminal import TerminalReporter
from optest.spec import CaseResult, RunInfo, RunSummary
from optest.store import Journal

FORMATS = ("terminal", *FILE_FORMATS)


def report_from_journal(
    journal: Journal,
    format: str = "terminal",  # noqa: A002 - the word of the option
    *,
    verbosity: int = 0,
    color: bool | None = None,
    width: int | None = None,
    block_limit: int | None = None,
) -> str:
    """Return the text of a report, with a note if the run did not end.

    All failures have blocks unless ``block_limit`` limits them. With ``color`` None, colours are used if stdout is a
    terminal.

    Raises:
        UnknownName: for an unknown format.
    """
    if format not in FORMATS:
        raise UnknownName("report format", format, FORMATS)
    info, summary = _info(journal), _summary(journal)
    if format in FILE_FORMATS:
        return FILE_FORMATS[format].text_of()(info, journal.results, summary)
    stream = io.StringIO()
    kind = CheckReporter if is_check(info) else TerminalReporter
    reporter = kind(
        stream,
        verbosity=verbosity,
        color=is_terminal(sys.stdout) if color is None else color,
        live=False,
        width=width,
        block_limit=block_limit,
        clock=lambda: 0.0,  # no time passes, so no progress is printed
    )
    reporter.on_start(info)
    for index, result in enumerate(journal.results):
        reporter.on_case_result(result, index, info.total)
    reporter.on_complete(summary)
    return stream.getvalue()


def exit_status_of(journal: Journal) -> int:
    """Return the exit status of a run; for one that did not end, that of an interrupted run."""
    return _summary(journal).exit_status


def _info(journal: Journal) -> RunInfo:
    """Return the start of a run with notes about missing lines; without a start line, take it from the first result."""
    count = sum(len(result.keys) for result in journal.results)
    notes = []
    if journal.torn:
        notes.append("the last line of the journal is incomplete; its result is not shown")
    if journal.info is not None and journal.summary is None:
        notes.append(f"the run did not end; the journal has {count} of {journal.info.total} results")
    if journal.info is not None:
        return replace(journal.info, notes=(*journal.info.notes, *notes))
    notes.append("the journal has no start line; the options of the run are unknown")
    first: CaseResult | None = journal.results[0] if journal.results else None
    return RunInfo(
        run_id="unknown",
        started_at="",
        total=count,
        target=first.target if first else "unknown",
        seed=first.seed if first else 0,
        notes=tuple(notes),
    )


def _summary(journal: Journal) -> RunSummary:
    """Return the summary of a run; without one, that of an interrupted run of unknown duration."""
    if journal.summary is not None:
        return journal.summary
    total = journal.info.total if journal.info is not None else len(journal.results)
    return RunSummary.of(journal.results, total=total, duration_s=math.nan, interrupted=True)
