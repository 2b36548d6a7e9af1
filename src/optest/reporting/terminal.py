"""Report on the terminal: progress during the run, then failure blocks, tables and one line with the counts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from optest.errors import plural
from optest.reporting.bench_table import bench_lines
from optest.reporting.explain import checks_text, gist, progress_text, rule_text, timings_text
from optest.reporting.failure_groups import FailureGroup, failure_groups, group_lines
from optest.reporting.figures import coverage_text, group_cells, outcome_text, status_cells, total_text
from optest.reporting.page import Page
from optest.reporting.tally import WRONG_DATA, GroupTally, Tally, skip_text
from optest.reporting.typography import clip, columns, duration, number
from optest.spec import CaseResult, Measure, RunInfo, RunSummary, Status

# In a run of up to this many cases, each case has a line; in a larger one, only those that ran and did not pass.
_FEW = 50
_PROGRESS_EVERY_S = 5.0
_REDRAW_EVERY_S = 0.1
# Time after which a log names a running case.
_WAITED_S = 30.0
# Share of cases before an estimate of the time left: the first ones are slower, since they wait for imports.
_SHARE_BEFORE_ESTIMATE = 0.03
_BAR_WIDTH = 24
_TABLE_ROWS = 30
_SKIP_ROWS = 10
_MAX_SHRUNK = 5
# Maximum number of groups without a failure block that have a line.
_NAMED_GROUPS = 4
_SUMMED_UP = frozenset({Status.PASSED, Status.SKIPPED})

# The style of other statuses is "bad".
_STYLES = {
    Status.PASSED: "good",
    Status.SKIPPED: "warn",
    Status.XFAILED: "warn",
    Status.UNCHECKED: "warn",
    Status.SUSPECT: "warn",
}


def make(*, stream: TextIO | None, path: Path | None, verbosity: int, color: bool | None) -> TerminalReporter:  # noqa: ARG001
    """Create a :class:`TerminalReporter` for the registry of reports; ``path`` is ignored."""
    return TerminalReporter(stream, verbosity=verbosity, color=color)


class TerminalReporter:
    """Reporter that writes to one stream, stdout by default.

    ``verbosity`` 1 adds rules, timings and checks; -1 leaves the tables and the last lines, -2 only the counts. With
    ``color`` or ``live`` None, colours or a live last line are used on a terminal. At most ``block_limit`` failure
    blocks are printed, all with None or a ``verbosity`` of 1.
    """

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        verbosity: int = 0,
        color: bool | None = None,
        live: bool | None = None,
        width: int | None = None,
        block_limit: int | None = 20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._page = Page(stream, color=color, live=live if verbosity >= 0 else False, width=width)
        self._verbosity = verbosity
        self._block_limit = None if verbosity > 0 else block_limit
        self._clock = clock
        self._tally = Tally()
        self._results: list[CaseResult] = []
        self._timed: list[CaseResult] = []
        self._info: RunInfo | None = None
        self._started = self._last_progress = clock()
        self._last_draw = -math.inf
        self._done_before = 0
        self._waited: dict[str, float] = {}
        # Returns a line about the smallest call that fails as a result does, for the first failure blocks.
        self.shrink: Callable[[CaseResult], str] | None = None

    def on_start(self, info: RunInfo) -> None:
        self._info = info
        self._started = self._last_progress = self._clock()
        if self._verbosity < 0:
            return
        plan = f" of {info.plan}" if info.plan else ""
        workers = f", {info.jobs} at a time" if info.jobs > 1 else ""
        version = f" {info.optest_version}" if info.optest_version else ""
        cases = f"{plural(info.total, 'case')}{plan}"
        self._page.line(f"optest{version}: {cases} on {info.target}, seed {info.seed}{workers}", "strong")
        self._page.lines([(f"  note: {note}", "warn") for note in info.notes])

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:
        if not self._tally.finished:
            self._done_before = index
        self._count(result)
        if self._verbosity < 0:
            return
        if self._verbosity > 0 or total <= _FEW or result.status not in _SUMMED_UP:
            self._page.lines(self._case_lines(result, index + 1, total))
        self._progress(result, index + 1, total)

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult] = ()) -> None:
        """Print failure blocks, skips, tables and counts of all ``results``, those of a resumed run included."""
        self._page.clear_status()
        # A resumed run has more results than this reporter received.
        if len(results) > self._tally.finished:
            self._tally, self._results, self._timed = Tally(), [], []
            for result in results:
                self._count(result)
        if self._verbosity >= 0:
            if self._tally.bad or self._has_table():
                self._page.line()
            self._blocks(failure_groups(self._results))
        if self._verbosity >= -1:
            reasons = [f"{count} × {clip(skip_text(why), 200)}" for why, count in self._tally.skips.most_common()]
            self._reason_list("skipped", reasons, _SKIP_ROWS)
            self._table()
            if timings := bench_lines(self._timed):
                self._page.lines([*((line, "") for line in timings), ("", "")])
        self._last_lines(summary)

    def _count(self, result: CaseResult) -> None:
        self._tally.add(result)
        self._results.append(result)
        if result.benchmark is not None:
            self._timed.append(result)

    def _case_lines(self, result: CaseResult, done: int, total: int) -> list[tuple[str, str]]:
        """Return the line of a finished case, with the lines of its evidence if verbose, and their styles."""
        word = result.status.value.upper()
        count = f"[{done:>{len(str(total))}}/{total}] "
        spent = result.timings.total_s
        shared = f"shares its execution with {result.duplicate_of}" if result.duplicate_of else ""
        parts = [result.id, progress_text(result), shared, "" if spent is None else duration(spent)]
        line = f"{count}{word:<7} {'  '.join(part for part in parts if part)}"
        lines = [(line, f"{_STYLES.get(result.status, 'bad')}:{len(count) + len(word)}")]
        return lines + ([(text, "dim") for text in _evidence(result)] if self._verbosity > 0 else [])

    def _progress(self, result: CaseResult, done: int, total: int) -> None:
        """Redraw the live line of a terminal, at most ten times per second; in a log print a line every 5 s."""
        now = self._clock()
        if self._page.live:
            if now - self._last_draw >= _REDRAW_EVERY_S:
                self._last_draw = now
                filled = min(_BAR_WIDTH, _BAR_WIDTH * done // max(1, total))
                bar = "━" * filled + "─" * (_BAR_WIDTH - filled)
                self._page.status(f"{bar}  {self._so_far(done, total, now)}  {clip(result.id, 60)}")
        elif total > _FEW and done < total and now - self._last_progress >= _PROGRESS_EVERY_S:
            self._last_progress = now
            self._page.line(f"… {self._so_far(done, total, now)}", "dim")

    def on_wait(self, case: str, seconds: float, done: int, total: int) -> None:
        """Show the name of a case that has been running for ``seconds``; in a log after 30 s, then at doubled times."""
        if self._verbosity < 0:
            return
        text = f"{clip(case, 60)} has been running for {duration(seconds)}"
        if self._page.live:
            self._page.status(f"{done}/{total}  {text}")
        elif seconds >= max(_WAITED_S, self._waited.get(case, 0.0) * 2):
            self._waited = {case: seconds}
            self._page.line(f"… {self._so_far(done, total, self._clock())}: {text}", "dim")

    def _so_far(self, done: int, total: int, now: float) -> str:
        """Return ``12/100, 3 failing, about 2 min 05 s left``; without a time as long as few cases are done."""
        parts = [f"{done}/{total}"]
        if self._tally.bad:
            parts.append(f"{self._tally.bad} failing")
        # Without the cases of the run that is resumed.
        executed = done - self._done_before
        took_s = now - self._started
        is_typical = executed >= _SHARE_BEFORE_ESTIMATE * total or (executed > _FEW and took_s >= _PROGRESS_EVERY_S)
        if done < total and is_typical:
            parts.append(f"about {duration(took_s / executed * (total - done))} left")
        return ", ".join(parts)

    def _blocks(self, groups: Sequence[FailureGroup], line_limit: float = math.inf) -> float:
        """Print the failure blocks of groups up to the limits of blocks and lines, then a line for some other groups.

        The first block is printed even if it exceeds ``line_limit``. Return the number of lines left of that limit.
        """
        limit = len(groups) if self._block_limit is None else self._block_limit
        for index, group in enumerate(groups[:limit]):
            status = group.first.status
            head, *rest = group_lines(group, with_map=self._page.is_decorated)
            block = [(head, f"{_STYLES.get(status, 'bad')}:{len(status.value)}")]
            block += [(line, "command" if line.startswith("  reproduce:") else "") for line in rest]
            rows = sum(1 + len(line) // (self._page.width or math.inf) for line, _ in block)
            if index and rows >= line_limit:
                limit = index
                break
            line_limit -= rows + 1
            self._page.lines(block)
            if self.shrink is not None and index < _MAX_SHRUNK:
                try:
                    self._page.line(f"  {self.shrink(group.first)}", "command")
                except KeyboardInterrupt:  # ends only the search for smaller calls, not the report
                    self.shrink = None
            self._page.line()
        if left := groups[limit:]:
            run = self._info.run_id if self._info else "RUN"
            self._page.line(
                f"and {plural(len(left), 'more group')} of failures; to show all: optest report {run}", "warn"
            )
            for group in left[:_NAMED_GROUPS]:
                self._page.line(f"  {1 + len(group.others)} × {clip(f'{group.first.id}  {gist(group.first)}', 130)}")
            self._page.line()
        return line_limit

    def _reason_list(self, title: str, reasons: Sequence[str], limit: int) -> None:
        """Print at most ``limit`` reasons under a title, and the number of the others; nothing without reasons."""
        if not reasons:
            return
        lines = list(reasons[:limit])
        if len(reasons) > limit:
            lines.append(f"and {plural(len(reasons) - limit, 'more reason')}")
        self._page.lines([(title, ""), *((f"  {line}", "warn") for line in lines), ("", "")])

    def _has_table(self) -> bool:
        operators = self._tally.operators.values()
        return bool(operators) and (self._verbosity > 0 or not all(group.all_passed for group in operators))

    def _table(self) -> None:
        """Print the tables of a run with model cases; else the operators, unless all cases passed."""
        if self._tally.models:
            self._page.lines(model_lines(self._tally, self._info))
            return
        if not self._has_table():
            return
        head, *rows = status_cells(self._tally, none="-")
        lines = columns([head, *rows[:_TABLE_ROWS]], left=frozenset({0, len(head) - 1}))
        styles = ["dim", *("bad" if self._tally.operators[name].bad else "" for name, *_ in rows[:_TABLE_ROWS])]
        styled = list(zip(lines, styles, strict=True))
        if len(rows) > _TABLE_ROWS:
            styled.append((f"  and {plural(len(rows) - _TABLE_ROWS, 'more operator')}", "dim"))
        self._page.lines([*styled, ("", "")])

    def _last_lines(self, summary: RunSummary) -> None:
        if self._verbosity >= -1 and self._tally.refused:
            self._page.line(f"{self._tally.refused} of the passed calls were refused, as expected", "dim")
        if self._verbosity >= -1 and self._tally.all.not_run[WRONG_DATA]:
            self._page.line(f"{WRONG_DATA}: {self._tally.all.not_run[WRONG_DATA]}", "warn")
        self._page.lines([(f"note: {note}", "warn") for note in summary.notes])
        self._page.line(outcome_text(self._tally, summary), "good" if summary.exit_status == 0 else "bad")
        self._journal()

    def _journal(self) -> None:
        if self._verbosity >= -1 and self._info is not None and self._info.directory:
            self._page.line(f"journal: {self._info.directory.rstrip('/')}/journal.jsonl", "dim")


def model_lines(tally: Tally, info: RunInfo | None = None) -> list[tuple[str, str]]:
    """Return tables of operators and models, total and coverage as lines with styles; [] without model cases.

    The worst operators come first. A case that shares an execution counts for its own model.
    """
    if not tally.models:
        return []
    rows = tally.worst_first()
    left = [(f"  and {plural(len(rows) - _TABLE_ROWS, 'more operator')}", "dim")] if len(rows) > _TABLE_ROWS else []
    lines = [*_group_lines("operator", dict(rows[:_TABLE_ROWS])), *left, ("", ""), *_group_lines("model", tally.models)]
    return [*lines, *((f"  {text}", "") for text in (total_text(tally), coverage_text(info, tally)) if text), ("", "")]


def _group_lines(title: str, groups: Mapping[str, GroupTally]) -> list[tuple[str, str]]:
    lines = columns(group_cells(title, groups, with_operators=title == "model"), left=frozenset({0}))
    return list(zip(lines, ["dim", *("bad" if group.bad else "" for group in groups.values())], strict=True))


def _evidence(result: CaseResult) -> list[str]:
    """Return the lines that -v prints below a case: elements, rule and errors of each output, times, checks."""
    lines = [f"    {_measure_line(measure)}" for measure in result.verdict.measures]
    if not result.verdict.measures and result.verdict.evidence is not None:
        lines.append(f"    evidence: {result.verdict.evidence.value}")
    if spent := timings_text(result.timings):
        lines.append(f"    {spent}")
    return lines + [f"    checks {text}" for text in checks_text(result.verdict.checks)]


def _measure_line(measure: Measure) -> str:
    """Return ``out: 2048 elements compared, 25% of the allowance used, …; rule: …``."""
    rule = f"; rule: {rule_text(measure.rule)}" if measure.rule else ""
    used, share = "", measure.worst_used
    if share is not None:
        used = f", {share:.0%} of the allowance used" if share <= 1 else f", {number(share, 3)} x allowed"
    if measure.statistic is not None:
        limit = f" of {number(measure.statistic_limit, 3)}" if measure.statistic_limit is not None else ""
        used += f", z {number(measure.statistic, 3)}{limit}"
    if measure.max_ulp_error is not None:
        used += f", largest error {number(measure.max_ulp_error, 2)} ulp"
    return f"{measure.output}: {plural(measure.compared, 'element')} compared{used}{rule}"
