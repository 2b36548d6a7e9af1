"""Report of a check on the terminal: one row for each operator, and one block for each group of similar failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from optest.errors import plural
from optest.reporting.check_summary import (
    HEAD,
    OperatorLine,
    folded,
    in_order,
    operator_lines,
    skip_reasons,
    sum_up,
)
from optest.reporting.failure_groups import failure_groups
from optest.reporting.terminal import TerminalReporter
from optest.reporting.typography import clip, columns
from optest.spec import CaseResult, RunSummary

_SKIP_ROWS, _SKIP_ROWS_WITH_FAILURES = 12, 4
# Approximate number of lines for the failure blocks of one operator, so that the report has some 60 lines, and for
# those of each further operator.
_LINES, _LINES_PER_FURTHER_OPERATOR = 42, 12
# Number of lines after which the table has scrolled out of sight, and failing operators are listed again.
_SCROLLED = 20
_MAX_LISTED_OPERATORS = 40


class CheckReporter(TerminalReporter):
    """Reporter of a check: table of operators, reasons of skipped cases, failure blocks, then the summary.

    ``afterwards`` returns further lines about all results, with their styles; the style "bad" fails the check.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        block_limit: int | None = 30,
        afterwards: Callable[[Sequence[CaseResult], RunSummary], Sequence[tuple[str, str]]] = lambda _, __: (),
        **options: Any,
    ) -> None:
        super().__init__(stream, block_limit=block_limit, **options)
        self._afterwards = afterwards

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:
        if not self._results:
            self._done_before = index
        self._count(result)
        # The table counts all cases, of which a check has thousands: single ones have lines only if verbose.
        if self._verbosity > 0:
            self._page.lines(self._case_lines(result, index + 1, total))
        if self._verbosity >= 0:
            self._progress(result, index + 1, total)

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult] = ()) -> None:
        # A resumed check has more results than this reporter received.
        ordered = in_order(results if len(results) > len(self._results) else self._results)
        self._page.clear_status()
        lines = operator_lines(ordered)
        if self._verbosity >= -1:
            self._operators(lines)
            self._skip_reasons(lines)
        groups, failing = failure_groups(ordered), [line for line in lines if line.failed]
        if self._verbosity >= 0 and groups:
            room = _LINES + _LINES_PER_FURTHER_OPERATOR * (len(failing) - 1)
            left = self._blocks(groups, math.inf if self._block_limit is None else room)
            if left < room - _SCROLLED or (self._block_limit is None and len(failing) > 1):
                for line in failing[:_MAX_LISTED_OPERATORS]:
                    reasons = ", ".join(f"{count} {reason}" for reason, count in line.failure_reasons.most_common())
                    self._page.line(f"{line.operator}: {clip(reasons, 130)}", "bad")
                if (more := len(failing) - _MAX_LISTED_OPERATORS) > 0:
                    self._page.line(f"and {plural(more, 'more operator')} with failures", "bad")
        further = list(self._afterwards(ordered, summary))
        self._page.lines(further)
        first, *rest = sum_up(self._info, lines, summary)
        is_good = summary.exit_status == 0 and not any(style == "bad" for _, style in further)
        self._page.line(first, "good" if is_good else "bad")
        self._page.lines([(line, "warn") for line in rest])
        self._journal()

    def _operators(self, lines: Sequence[OperatorLine]) -> None:
        """Print the table of operators; with ``-q`` without those of which all cases passed."""
        shown = [line for line in lines if self._verbosity >= 0 or line.remark()]
        shown = shown if self._verbosity > 0 else folded(shown)
        if not shown:
            return
        rows = [
            [
                line.operator,
                *(str(count or "-") for count in line.counts),
                clip(line.remark(), 110 if line.ran else 200),
            ]
            for line in shown
        ]
        text = columns([[*HEAD, ""], *rows], left=frozenset({0, len(HEAD)}))
        styles = ["dim", *("bad" if line.failed else "" if line.ran else "warn" for line in shown)]
        self._page.line()
        self._page.lines([*zip(text, styles, strict=True), ("", "")])

    def _skip_reasons(self, lines: Sequence[OperatorLine]) -> None:
        reasons = [
            f"{operators.total()} × {clip(reason, 120)} ({clip(', '.join(operators), 50)})"
            for reason, operators in skip_reasons(lines)
        ]
        shows_most = self._verbosity > 0 or not any(line.failed for line in lines)
        self._reason_list("skipped", reasons, _SKIP_ROWS if shows_most else _SKIP_ROWS_WITH_FAILURES)
