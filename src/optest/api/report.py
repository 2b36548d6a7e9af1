"""The report of a run as a Python object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from optest.errors import NothingSelected, Unavailable, UsageError
from optest.registry import load_object
from optest.reporting.from_journal import report_from_journal
from optest.reporting.json_report import build_report
from optest.spec import BAD_STATUSES, CaseResult, RunSummary, Status
from optest.store import RunDirectory, read_journal

_STATUS_OF = {0: "passed", 1: "failed", NothingSelected.exit_status: "nothing ran", 130: "interrupted"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of a run: iterable, true if nothing is wrong, and ``str`` gives the text of the terminal.

    A result (``CaseResult``) has ``id``, ``operator``, ``dtypes``, ``shapes``, ``attributes``, ``status``, ``reason``
    and the ``verdict`` with its measures. ``summary`` has the counts; ``directory`` is the folder that ``optest
    report`` and ``optest replay`` read. ``exit_status`` is that of the command line; it also reports faults outside the
    cases. ``unused_expectations`` are expected failures that did not occur, each with a remedy.
    """

    summary: RunSummary
    results: Sequence[CaseResult]
    directory: RunDirectory
    exit_status: int
    unused_expectations: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[CaseResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __bool__(self) -> bool:
        return self.exit_status == 0

    def __str__(self) -> str:
        return report_from_journal(read_journal(self.directory.journal_path), color=False)

    @property
    def status(self) -> str:
        """``passed``, ``failed``, ``nothing ran``, ``interrupted`` or ``error``: the exit status as a word."""
        return _STATUS_OF.get(self.exit_status, "error")

    @property
    def passed(self) -> list[CaseResult]:
        """Results with the status ``passed``."""
        return [result for result in self.results if result.status is Status.PASSED]

    @property
    def failed(self) -> list[CaseResult]:
        """Results that are failed, error, crashed, timeout, suspect, or unexpected passes."""
        return [result for result in self.results if result.status in BAD_STATUSES]

    def raise_for_failures(self) -> None:
        """Raise ``AssertionError`` with the report as text if anything is wrong or nothing ran."""
        __tracebackhide__ = True
        if not self:
            raise AssertionError("\n".join([str(self), *self.unused_expectations]))

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with a row for each case; the columns are the keys of ``cases`` in the JSON report.

        Raises:
            Unavailable: if pandas is not installed.
        """
        try:
            frame = load_object("pandas:DataFrame")
        except UsageError:
            raise Unavailable("to_pandas", "pip install pandas") from None
        info = read_journal(self.directory.journal_path).info
        assert info is not None
        return frame(build_report(info, self.results, self.summary)["cases"])
