"""What a run came to, for programs: its results, its summary, and where it keeps its journal."""

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
    """A run: iterable over its results, true if nothing is wrong, and as text what the terminal shows of it.

    A result (``CaseResult``) has ``id``, ``operator``, ``dtypes``, ``shapes``, ``attributes``, ``status``, ``reason``
    and the ``verdict`` with its measures. ``summary`` counts; ``directory`` is the folder that ``optest report`` and
    ``optest replay`` read. ``exit_status`` is that of the command line, and also counts what went wrong outside the
    cases.
    """

    summary: RunSummary
    results: Sequence[CaseResult]
    directory: RunDirectory
    exit_status: int
    unused_expectations: tuple[str, ...] = ()
    """Lines of expectations that excused nothing, with what to do about each."""

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
        """Results that were shown to be right."""
        return [each for each in self.results if each.status is Status.PASSED]

    @property
    def failed(self) -> list[CaseResult]:
        """All that went wrong: failed, error, crashed, timeout, suspect, and passes that were not expected."""
        return [each for each in self.results if each.status in BAD_STATUSES]

    def raise_for_failures(self) -> None:
        """Raise an AssertionError with the report as text unless nothing is wrong; also if nothing ran.

        Raises:
            AssertionError: as said.
        """
        __tracebackhide__ = True
        if not self:
            raise AssertionError("\n".join([str(self), *self.unused_expectations]))

    def to_pandas(self) -> Any:
        """A DataFrame of pandas with a row for each case; the columns are the keys of ``cases`` in the JSON report.

        Raises:
            Unavailable: without pandas.
        """
        try:
            frame = load_object("pandas:DataFrame")
        except UsageError:
            raise Unavailable("to_pandas", "pip install pandas") from None
        info = read_journal(self.directory.journal_path).info
        assert info is not None
        return frame(build_report(info, self.results, self.summary)["cases"])
