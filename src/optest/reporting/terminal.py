"""The report on the terminal: progress while the run lasts, then failure blocks, a table, and one line that sums up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from optest.errors import plural
from optest.reporting.bench_table import bench_lines
from optest.reporting.explain import brief, checks_text, gist, lean_text, rule_text, timings_text
from optest.reporting.failure_groups import FailureGroup, failure_groups, group_lines
from optest.reporting.figures import coverage_text, group_cells, outcome_text, status_cells, total_text
from optest.reporting.page import Page
from optest.reporting.tally import WRONG_DATA, GroupTally, Tally, skip_text
from optest.reporting.typography import clip, columns, duration, number
from optest.spec import CaseResult, Measure, RunInfo, RunSummary, Status

_FEW = 50
"""Up to so many cases each one gets a line; beyond, only those that ran and did not pass: skips are summed up."""
_PROGRESS_EVERY_S = 5.0
_REDRAW_EVERY_S = 0.1
_WAITED_S = 30.0  # before a log names a case
_SHARE_BEFORE_ESTIMATE = 0.03
"""Share of cases before an estimate of the time left: the first ones are slower, as they wait for imports."""
_BAR_WIDTH = 24
_TABLE_ROWS = 30
_SKIP_ROWS = 10
_MOST_SHRUNK = 5
_NAMED_GROUPS = 4
"""Largest number of groups without a block that have a line."""
_SUMMED_UP = frozenset({Status.PASSED, Status.SKIPPED})

_STYLES = {
    Status.PASSED: "good",
    Status.SKIPPED: "warn",
    Status.XFAILED: "warn",
    Status.UNCHECKED: "warn",
    Status.SUSPECT: "warn",
}


def make(*, stream: TextIO | None, path: Path | None, verbosity: int, color: bool | None) -> TerminalReporter:  # noqa: ARG001
    """The terminal's report as the registry makes it; it is never written to a path."""
    return TerminalReporter(stream, verbosity=verbosity, color=color)


class TerminalReporter:
    """Writes to one stream. ``verbosity`` 1 adds rules, timings and checks; -1 leaves the table and the last lines,
    -2 the last line alone.

    ``color`` and ``live`` None mean "if the stream is a terminal". At most ``block_limit`` failures are explained
    (None: all of them).
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
        self.shrink: Callable[[CaseResult], str] | None = None
        """Tells the smallest call that fails as this one does, for the first failure blocks."""

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
        """``results`` also hold what an earlier part of a resumed run found; all of it is summed up."""
        self._page.clear_status()
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
            self._counted("skipped", reasons, _SKIP_ROWS)
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
        word = result.status.value.upper()
        place = f"[{done:>{len(str(total))}}/{total}] "
        spent = result.timings.total_s
        shared = f"runs as {result.duplicate_of}" if result.duplicate_of else ""
        parts = [result.id, brief(result), shared, "" if spent is None else duration(spent)]
        line = f"{place}{word:<7} {'  '.join(part for part in parts if part)}"
        lines = [(line, f"{_STYLES.get(result.status, 'bad')}:{len(place) + len(word)}")]
        return lines + ([(each, "dim") for each in _evidence(result)] if self._verbosity > 0 else [])

    def _progress(self, result: CaseResult, done: int, total: int) -> None:
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
        """Name a case that has been running for long; in a log, again each time that twice as long has passed."""
        if self._verbosity < 0:
            return
        text = f"{clip(case, 60)} has been running for {duration(seconds)}"
        if self._page.live:
            self._page.status(f"{done}/{total}  {text}")
        elif seconds >= max(_WAITED_S, self._waited.get(case, 0.0) * 2):
            self._waited = {case: seconds}
            self._page.line(f"… {self._so_far(done, total, self._clock())}: {text}", "dim")

    def _so_far(self, done: int, total: int, now: float) -> str:
        parts = [f"{done}/{total}"]
        if self._tally.bad:
            parts.append(f"{self._tally.bad} failing")
        own = done - self._done_before
        took_s = now - self._started
        if done < total and (own >= _SHARE_BEFORE_ESTIMATE * total or (own > _FEW and took_s >= _PROGRESS_EVERY_S)):
            parts.append(f"about {duration(took_s / own * (total - done))} left")
        return ", ".join(parts)

    def _blocks(self, groups: Sequence[FailureGroup], most_lines: float = math.inf) -> float:
        """Print a failure block for each group, up to the limit of blocks and lines, which the first block may exceed,
        and a line for some of the others. Return the number of lines left of the limit."""
        limit = len(groups) if self._block_limit is None else self._block_limit
        for place, group in enumerate(groups[:limit]):
            status = group.first.status
            head, *rest = group_lines(group, with_map=self._page.is_decorated)
            block = [(head, f"{_STYLES.get(status, 'bad')}:{len(status.value)}")]
            block += [(line, "command" if line.startswith("  again:") else "") for line in rest]
            rows = sum(1 + len(line) // (self._page.width or math.inf) for line, _ in block)
            if place and rows >= most_lines:
                limit = place
                break
            most_lines -= rows + 1
            self._page.lines(block)
            if self.shrink is not None and place < _MOST_SHRUNK:
                try:
                    self._page.line(f"  {self.shrink(group.first)}", "command")
                except KeyboardInterrupt:
                    self.shrink = None
            self._page.line()
        if left := groups[limit:]:
            run = self._info.run_id if self._info else "RUN"
            self._page.line(
                f"and {plural(len(left), 'more group')} of failures, all shown by: optest report {run}", "warn"
            )
            for group in left[:_NAMED_GROUPS]:
                self._page.line(f"  {1 + len(group.others)} × {clip(f'{group.first.id}  {gist(group.first)}', 130)}")
            self._page.line()
        return most_lines

    def _counted(self, title: str, reasons: Sequence[str], most: int) -> None:
        """Reasons with the numbers of their cases under a title, as many as ``most``; nothing where there are none."""
        if not reasons:
            return
        lines = [*reasons[:most], *([f"and for {plural(len(reasons) - most, 'other reason')}"][: len(reasons) > most])]
        self._page.lines([(title, ""), *((f"  {line}", "warn") for line in lines), ("", "")])

    def _has_table(self) -> bool:
        operators = self._tally.operators.values()
        return bool(operators) and (self._verbosity > 0 or not all(each.all_passed for each in operators))

    def _table(self) -> None:
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
            styled.append((f"  and {plural(len(rows) - _TABLE_ROWS, 'operator')} more", "dim"))
        self._page.lines([*styled, ("", "")])

    def _last_lines(self, summary: RunSummary) -> None:
        if self._verbosity >= -1 and self._tally.refused:
            self._page.line(f"{self._tally.refused} of the passed were refused, as is right for them", "dim")
        if self._verbosity >= -1 and self._tally.all.not_run[WRONG_DATA]:
            self._page.line(f"{WRONG_DATA}: {self._tally.all.not_run[WRONG_DATA]}", "warn")
        self._page.lines([(f"note: {note}", "warn") for note in summary.notes])
        self._page.line(outcome_text(self._tally, summary), "good" if summary.exit_status == 0 else "bad")
        self._journal()

    def _journal(self) -> None:
        """Where the journal lies, as the last line."""
        if self._verbosity >= -1 and self._info is not None and self._info.directory:
            self._page.line(f"journal: {self._info.directory.rstrip('/')}/journal.jsonl", "dim")


def model_lines(tally: Tally, info: RunInfo | None = None) -> list[tuple[str, str]]:
    """Tables of the operators of model cases, the worst first, and of the models, and what all come to, with styles.

    Nothing if there are no models. A case that shares an execution counts for its own model.
    """
    if not tally.models:
        return []
    rows = tally.worst_first()
    left = [(f"  and {plural(len(rows) - _TABLE_ROWS, 'operator')} more", "dim")] if len(rows) > _TABLE_ROWS else []
    lines = [*_group_lines("operator", dict(rows[:_TABLE_ROWS])), *left, ("", ""), *_group_lines("model", tally.models)]
    return [*lines, *((f"  {text}", "") for text in (total_text(tally), coverage_text(info, tally)) if text), ("", "")]


def _group_lines(word: str, groups: Mapping[str, GroupTally]) -> list[tuple[str, str]]:
    lines = columns(group_cells(word, groups, with_operators=word == "model"), left=frozenset({0}))
    return list(zip(lines, ["dim", *("bad" if each.bad else "" for each in groups.values())], strict=True))


def _evidence(result: CaseResult) -> list[str]:
    """What -v adds under a case: the rule, the share of its allowance that was used, time, checks."""
    lines = []
    for measure in result.verdict.measures:
        lines += [f"    {text}" for text in (_measure_line(measure), lean_text(measure)) if text]
    if not result.verdict.measures and result.verdict.evidence is not None:
        lines.append(f"    evidence: {result.verdict.evidence.value}")
    if spent := timings_text(result.timings):
        lines.append(f"    {spent}")
    return lines + [f"    checks {text}" for text in checks_text(result.verdict.checks)]


def _measure_line(measure: Measure) -> str:
    rule = f"; rule: {rule_text(measure.rule)}" if measure.rule else ""
    used, share = "", measure.worst_used
    if share is not None:
        used = f", {share:.0%} of the allowance used" if share <= 1 else f", {number(share, 3)} x allowed"
    if measure.statistic is not None:
        limit = f" of {number(measure.statistic_limit, 3)}" if measure.statistic_limit is not None else ""
        used += f", z {number(measure.statistic, 3)}{limit}"
    if measure.rounding is not None:
        most = f", {number(measure.max_ulp_error, 2)} at most" if measure.max_ulp_error is not None else ""
        used += f", rms error {number(measure.rounding.rms_ulp, 2)} ulp{most}"
    return f"{measure.output}: {plural(measure.compared, 'element')} compared{used}{rule}"
