"""What a check found, on the terminal: one line for each operator, failures told once for all that are alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TextIO

from optest.errors import plural
from optest.reporting.bias import leans, sentence
from optest.reporting.check_summary import (
    HEAD,
    OperatorLine,
    columns_of,
    count_text,
    folded,
    gap_reasons,
    in_order,
    operator_lines,
    sum_up,
)
from optest.reporting.failure_groups import failure_groups
from optest.reporting.terminal import TerminalReporter
from optest.reporting.typography import clip, columns
from optest.spec import CaseResult, RunSummary

_GAP_ROWS, _GAP_ROWS_WITH_FAILURES = 12, 4
_LINES, _LINES_OF_EACH = 42, 12
"""Approximate number of lines for the blocks of one failing operator, so that the report has some 60, and for each
further operator."""
_SCROLLED = 20
"""Number of lines after which the table has scrolled out of sight, and a list of operators with reasons is printed."""
_REPEATED = 40
"""Maximum number of operators in the list after the failure blocks."""


class CheckReporter(TerminalReporter):
    """Hears a check. ``afterwards`` gives lines about the whole of it with their styles; one that is bad fails it."""

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
        if self._verbosity > 0:
            self._page.lines(self._case_lines(result, index + 1, total))
        if self._verbosity >= 0:
            self._progress(result, index + 1, total)

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult] = ()) -> None:
        ordered = in_order(results if len(results) > len(self._results) else self._results)
        self._page.clear_status()
        lines = operator_lines(ordered)
        if self._verbosity >= -1:
            self._operators(lines)
            self._gap_reasons(lines)
            self._leans(ordered)
        groups, failing = failure_groups(ordered), [line for line in lines if line.failed]
        if self._verbosity >= 0 and groups:
            room = _LINES + _LINES_OF_EACH * (len(failing) - 1)
            left = self._blocks(groups, math.inf if self._block_limit is None else room)
            if left < room - _SCROLLED or (self._block_limit is None and len(failing) > 1):
                for line in failing[:_REPEATED]:
                    reasons = ", ".join(f"{count} {reason}" for reason, count in line.reasons.most_common())
                    self._page.line(f"{line.operator}: {clip(reasons, 130)}", "bad")
                if len(failing) > _REPEATED:
                    self._page.line(f"and {plural(len(failing) - _REPEATED, 'more operator')} with failures", "bad")
        further = list(self._afterwards(ordered, summary))
        self._page.lines(further)
        first, *rest = sum_up(self._info, lines, summary)
        is_good = summary.exit_status == 0 and not any(style == "bad" for _, style in further)
        self._page.line(first, "good" if is_good else "bad")
        self._page.lines([(line, "warn") for line in rest])
        self._journal()

    def _operators(self, lines: Sequence[OperatorLine]) -> None:
        """Every operator, many of which nothing ran for one reason in one row; with ``-q`` those alone that did not
        pass in all they were asked.
        """
        shown = [line for line in lines if self._verbosity >= 0 or line.remark()]
        shown = shown if self._verbosity > 0 else folded(shown)
        if not shown:
            return
        rows = [
            [each.operator, *map(count_text, columns_of(each)), clip(each.remark(), 110 if each.ran else 200)]
            for each in shown
        ]
        text = columns([[*HEAD, ""], *rows], left=frozenset({0, len(HEAD)}))
        styles = ["dim", *("bad" if each.failed else "" if each.ran else "warn" for each in shown)]
        self._page.line()
        self._page.lines([*zip(text, styles, strict=True), ("", "")])

    def _gap_reasons(self, lines: Sequence[OperatorLine]) -> None:
        reasons = [
            f"{operators.total()} × {clip(reason, 120)} ({clip(', '.join(operators), 50)})"
            for reason, operators in gap_reasons(lines)
        ]
        is_well = self._verbosity > 0 or not any(line.failed for line in lines)
        self._counted("skipped", reasons, _GAP_ROWS if is_well else _GAP_ROWS_WITH_FAILURES)

    def _leans(self, results: Sequence[CaseResult]) -> None:
        """What passed, but lies on one side of the true values; it fails nothing."""
        biased = leans(results)
        if not biased:
            return
        self._page.line("on one side of the true values, inside the rule")
        self._page.lines([(f"  {which}: {sentence(lean)}", "warn") for which, lean in biased])
        self._page.line()
