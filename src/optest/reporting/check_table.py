"""What a check found, on the terminal: one line for each operator, failures told once for all that are alike."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from optest.reporting.explain import explain
from optest.reporting.terminal import TerminalReporter
from optest.reporting.typography import clip, columns, duration, plural
from optest.spec import BAD_STATUSES, CaseResult, RunInfo, RunSummary, Status

__all__ = ["CheckReporter", "FailureGroup", "OperatorLine", "failure_groups", "operator_lines"]

_SET_TAG = "set:"
_GAP_ROWS = 12
_FEW_IDLE = 5
"""Up to so many operators of which nothing ran for the same reason have lines of their own."""
_NAMED = 3
"""As many further cases of a group are named."""


@dataclass(slots=True)
class OperatorLine:
    """What was found of one operator, each count by case set. A gap is a case that the backend says it cannot run."""

    operator: str
    passed: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)
    expected: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    unchecked: Counter[str] = field(default_factory=Counter)
    gap_reasons: Counter[str] = field(default_factory=Counter)

    @property
    def ran(self) -> bool:
        return bool(self.passed or self.expected or self.failed or self.unchecked)

    def add(self, result: CaseResult) -> None:
        column = self._column(result.status)
        column[case_set_of(result)] += 1
        if column is self.gaps:
            self.gap_reasons[_gap_text(result)] += 1

    def _column(self, status: Status) -> Counter[str]:
        if status in BAD_STATUSES:
            return self.failed
        known = {Status.PASSED: self.passed, Status.SKIPPED: self.gaps, Status.XFAILED: self.expected}
        return known.get(status, self.unchecked)

    def remark(self) -> str:
        """Where it is not all passed: in which case sets; for an operator of which nothing ran, why."""
        if not self.ran:
            (why, _), *_ = self.gap_reasons.most_common(1)
            return f"nothing ran: {why}"
        shown = {"failed": self.failed, "expected": self.expected, "unchecked": self.unchecked, "gaps": self.gaps}
        return "; ".join(f"{word} in {_by_set(counts)}" for word, counts in shown.items() if counts)


def case_set_of(result: CaseResult) -> str:
    """The case set that a result belongs to, empty for a case that comes from none."""
    return next((tag.removeprefix(_SET_TAG) for tag in result.tags if tag.startswith(_SET_TAG)), "")


_NUMBERED = re.compile(r"[^/]*/[^/]*/(\d+)")


def _place(result: CaseResult) -> tuple[str, str, int, int]:
    """Operators by the alphabet, their cases in the order in which they are written, however they finished."""
    number = _NUMBERED.match(result.id)
    return (result.operator, case_set_of(result), int(number[1]) if number else 0, result.round)


def _gap_text(result: CaseResult) -> str:
    reason = f"{result.reason.value}: " if result.reason else ""
    return f"{reason}{result.verdict.message.partition(chr(10))[0]}"


def _by_set(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())


def operator_lines(results: Iterable[CaseResult]) -> list[OperatorLine]:
    """One line for each operator, in the order in which their results come."""
    lines: dict[str, OperatorLine] = {}
    for result in results:
        line = lines.get(result.operator)
        if line is None:
            line = lines[result.operator] = OperatorLine(result.operator)
        line.add(result)
    return list(lines.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGroup:
    """Failures of one operator in one case set for one reason; ``worst`` stands for ``others``."""

    worst: CaseResult
    others: tuple[CaseResult, ...] = ()


def failure_groups(results: Iterable[CaseResult]) -> list[FailureGroup]:
    """What is not well, grouped by operator, reason and case set; the worst is the farthest beyond its bound."""
    alike: dict[tuple[Any, ...], list[CaseResult]] = {}
    for result in results:
        if result.status in BAD_STATUSES:
            key = (result.operator, result.status, result.reason, case_set_of(result))
            alike.setdefault(key, []).append(result)
    groups = []
    for members in alike.values():
        worst = max(members, key=_badness)
        groups.append(FailureGroup(worst=worst, others=tuple(each for each in members if each is not worst)))
    return groups


def _badness(result: CaseResult) -> float:
    used = [measure.worst_used for measure in result.verdict.measures if measure.worst_used is not None]
    finite = [each for each in used if math.isfinite(each)]
    return max(finite, default=0.0)


class CheckReporter(TerminalReporter):
    """Hears a check. ``afterwards`` gives lines about the whole of it with their styles; one that is bad fails it."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        verbosity: int = 0,
        color: bool | None = None,
        live: bool | None = None,
        width: int | None = None,
        block_limit: int | None = 30,
        clock: Callable[[], float] | None = None,
        afterwards: Callable[[Sequence[CaseResult], RunSummary], Sequence[tuple[str, str]]] = lambda _, __: (),
    ) -> None:
        timing = {} if clock is None else {"clock": clock}
        super().__init__(
            stream, verbosity=verbosity, color=color, live=live, width=width, block_limit=block_limit, **timing
        )
        self._results: list[CaseResult] = []
        self._afterwards = afterwards

    def on_case_result(self, result: CaseResult, index: int, total: int) -> None:
        if not self._results:
            self._done_before = index
        self._results.append(result)
        self._count(result)
        if self._verbosity > 0:
            self._page.lines(self._case_lines(result, index + 1, total))
        if self._verbosity >= 0:
            self._progress(result, index + 1, total)

    def on_complete(self, summary: RunSummary, results: Sequence[CaseResult] = ()) -> None:
        found = sorted(results if len(results) > len(self._results) else self._results, key=_place)
        self._page.clear_status()
        lines = operator_lines(found)
        if self._verbosity >= -1:
            self._operators(lines)
            self._gap_reasons(lines)
        groups = failure_groups(found)
        if self._verbosity >= 0:
            self._blocks(groups)
        further = list(self._afterwards(found, summary))
        self._page.lines(further)
        self._sum_up(lines, summary, any(style == "bad" for _, style in further))

    def _operators(self, lines: Sequence[OperatorLine]) -> None:
        """Every operator, many of which nothing ran for one reason in one row; with ``-q`` those alone that did not
        pass in all they were asked.
        """
        shown = [line for line in lines if self._verbosity >= 0 or line.remark()]
        shown = shown if self._verbosity > 0 else _folded(shown)
        if not shown:
            return
        rows = [[each.operator, *map(_count_text, _columns_of(each)), clip(each.remark(), 160)] for each in shown]
        text = columns([[*_HEAD, ""], *rows], left=frozenset({0, len(_HEAD)}))
        styles = ["dim", *(_style_of(each) for each in shown)]
        self._page.line()
        self._page.lines([*zip(text, styles, strict=True), ("", "")])

    def _gap_reasons(self, lines: Sequence[OperatorLine]) -> None:
        """Why cases were not run; an operator of which nothing ran says so in its own line."""
        reasons: dict[str, Counter[str]] = {}
        for line in lines:
            for reason, count in line.gap_reasons.items() if line.ran else ():
                reasons.setdefault(reason, Counter())[line.operator] += count
        if not reasons:
            return
        rows = sorted(reasons.items(), key=lambda entry: -entry[1].total())
        self._page.line("declared gaps")
        for reason, operators in rows[:_GAP_ROWS]:
            self._page.line(f"  {operators.total()} × {clip(reason, 140)} ({clip(', '.join(operators), 80)})", "warn")
        if len(rows) > _GAP_ROWS:
            self._page.line(f"  and for {plural(len(rows) - _GAP_ROWS, 'other reason')}", "warn")
        self._page.line()

    def _blocks(self, groups: Sequence[FailureGroup]) -> None:
        limit = len(groups) if self._block_limit is None else self._block_limit
        for group in groups[:limit]:
            first, *rest = explain(group.worst)
            others = [f"  {_others_text(group)}"] if group.others else []
            self._page.line(first, f"bad:{len(group.worst.status.value)}")
            self._page.lines([(line, "command" if line.startswith("  again:") else "") for line in [*rest, *others]])
            self._page.line()
        if len(groups) > limit:
            run = self._info.run_id if self._info else "RUN"
            self._page.line(f"and {plural(len(groups) - limit, 'more group')} of failures: optest report {run}", "warn")
            self._page.line()

    def _sum_up(self, lines: Sequence[OperatorLine], summary: RunSummary, left_over: bool) -> None:
        info = self._info
        missing = summary.total - sum(count.total() for line in lines for count in _columns_of(line))
        missing -= sum(line.unchecked.total() for line in lines)
        passed, gaps, expected, failed = (
            (
                sum(counts.total() for counts in column)
                for column in zip(*(_columns_of(line) for line in lines), strict=True)
            )
            if lines
            else (0, 0, 0, 0)
        )
        unchecked = sum(line.unchecked.total() for line in lines)
        idle = [line.operator for line in lines if not line.ran]
        parts = [f"{passed:,} passed" if passed else "nothing passed"]
        parts += [f"{failed:,} failed"] if failed else []
        parts += [_counted(expected, "expected difference")] if expected else []
        parts += [f"{unchecked:,} not compared"] if unchecked else []
        parts += [f"{missing:,} not run"] if missing > 0 else []
        took = f" in {duration(summary.duration_s)}" if math.isfinite(summary.duration_s) else ""
        stopped = "interrupted: " if summary.interrupted else ""
        good = summary.exit_status == 0 and not left_over
        self._page.line(f"{stopped}{_asked(info, summary, len(lines))}: {', '.join(parts)}{took}", _style(good))
        if gaps:
            self._page.line(f"{_counted(gaps, 'declared gap')} apart from these, which show nothing", "warn")
        if idle:
            self._page.line(f"of {plural(len(idle), 'operator')} nothing ran: {', '.join(idle)}", "warn")
        if self._verbosity >= -1 and info is not None and info.directory:
            self._page.line(f"journal: {info.directory.rstrip('/')}/journal.jsonl", "dim")


_HEAD = ("operator", "passed", "gaps", "expected", "failed")


def _folded(lines: Sequence[OperatorLine]) -> list[OperatorLine]:
    """The same lines, but one at the end for many operators of which nothing ran for the same reason."""
    alike: dict[str, list[OperatorLine]] = {}
    for line in lines:
        if not line.ran:
            alike.setdefault(line.remark(), []).append(line)
    many = {why: group for why, group in alike.items() if len(group) > _FEW_IDLE}
    kept = [line for line in lines if line.ran or line.remark() not in many]
    return [*kept, *(_one_line_of(group) for group in many.values())]


def _one_line_of(lines: Sequence[OperatorLine]) -> OperatorLine:
    total = OperatorLine(plural(len(lines), "operator"))
    for line in lines:
        total.gaps += line.gaps
        total.gap_reasons += line.gap_reasons
    return total


def _columns_of(line: OperatorLine) -> tuple[Counter[str], Counter[str], Counter[str], Counter[str]]:
    return (line.passed, line.gaps, line.expected, line.failed)


def _count_text(counts: Counter[str]) -> str:
    return str(counts.total()) if counts else "-"


def _style_of(line: OperatorLine) -> str:
    return "bad" if line.failed else "" if line.ran else "warn"


def _style(good: bool) -> str:
    return "good" if good else "bad"


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _others_text(group: FailureGroup) -> str:
    named = ", ".join(each.id for each in group.others[:_NAMED])
    more = ", …" if len(group.others) > _NAMED else ""
    return f"and {len(group.others)} more like it: {named}{more}"


def _asked(info: RunInfo | None, summary: RunSummary, operators: int) -> str:
    target = info.target if info is not None else "the backend"
    tier = f", tier {info.options['tier']}" if info is not None and "tier" in info.options else ""
    return f"{target} was asked {_counted(summary.total, 'case')} of {plural(operators, 'operator')}{tier}"
