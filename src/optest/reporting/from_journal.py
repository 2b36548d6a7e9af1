"""Every report again, from a journal: the run itself is long over, or was killed in the middle."""

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
    """The text of a report; it says so if the run did not end. Every failure is explained unless limited.

    ``color`` None means "if stdout is a terminal", where the text will most likely go.

    Raises:
        UnknownName: for another format.
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
        clock=lambda: 0.0,  # nothing is running, so there is no progress to tell
    )
    reporter.on_start(info)
    for index, result in enumerate(journal.results):
        reporter.on_case_result(result, index, info.total)
    reporter.on_complete(summary)
    return stream.getvalue()


def exit_status_of(journal: Journal) -> int:
    """The exit status that the run ended with; of one that did not end that of an interrupted one."""
    return _summary(journal).exit_status


def _info(journal: Journal) -> RunInfo:
    count = sum(len(result.keys) for result in journal.results)
    notes = []
    if journal.torn:
        notes.append("the last line of the journal was cut off; a result that it held is not shown")
    if journal.info is not None and journal.summary is None:
        notes.append(f"the run did not end; {count} of {journal.info.total} results were kept")
    if journal.info is not None:
        return replace(journal.info, notes=(*journal.info.notes, *notes))
    notes.append("the journal has no start line; its options are not known")
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
    """The last line of the journal, else what can be said without it: the run was interrupted, nobody knows when."""
    if journal.summary is not None:
        return journal.summary
    total = journal.info.total if journal.info is not None else len(journal.results)
    return RunSummary.of(journal.results, total=total, duration_s=math.nan, interrupted=True)
