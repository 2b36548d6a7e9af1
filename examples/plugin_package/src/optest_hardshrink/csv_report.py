"""A report as a table: one line for each case, for a spreadsheet."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

from optest.spec import CaseResult, RunInfo, RunSummary

__all__ = ["CsvReport", "make"]


class CsvReport:
    """Writes when the run is over, so that the order is that of the plan."""

    def __init__(self, path: Path | None, stream: TextIO | None) -> None:
        self._path = path
        self._stream = stream

    def on_start(self, info: RunInfo) -> None:
        """Nothing is known yet."""

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:
        """Kept by the engine until the end."""

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult]) -> None:
        with ExitStack() as stack:
            out = self._stream or sys.stdout
            if self._path is not None:
                out = stack.enter_context(self._path.open("w", newline="", encoding="utf-8"))
            table = csv.writer(out, lineterminator="\n")
            table.writerow(("case", "operator", "status", "reason", "run_s"))
            for result in results:
                reason = result.verdict.reason.value if result.verdict.reason else ""
                table.writerow((result.id, result.operator, result.verdict.status.value, reason, result.timings.run_s))


def make(*, stream: TextIO | None, path: Path | None, verbosity: int, color: bool | None) -> CsvReport:
    """What optest calls for ``--report csv``."""
    return CsvReport(path, stream)
