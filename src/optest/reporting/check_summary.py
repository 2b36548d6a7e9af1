"""What a check adds up to: a line for each operator, gaps by their reasons, and the sum of it in one line."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from optest.errors import plural
from optest.reporting.failure_groups import merged_text, skeleton
from optest.reporting.typography import by_invariants_text, clip, counted, duration
from optest.spec import BAD_STATUSES, MERGED_TAGS, CaseResult, Evidence, Reason, RunInfo, RunSummary, Status

_SET_TAG = "set:"
_FEW_IDLE = 5
"""Up to so many operators of which nothing ran for the same reason have lines of their own."""


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
    reasons: Counter[str] = field(default_factory=Counter)  # of failed cases
    by_invariants: int = 0
    """How many of the passed have no reference."""

    @property
    def ran(self) -> bool:
        return bool(self.passed or self.expected or self.failed or self.unchecked)

    def add(self, result: CaseResult) -> None:
        column = self._column(result.status)
        for tag, number in result.verdict.details.get(MERGED_TAGS, {case_set_of(result): 1}).items():
            column[tag.removeprefix(_SET_TAG)] += number
        if column is self.failed and result.reason:
            self.reasons[result.reason.value] += len(result.keys)
        self.by_invariants += column is self.passed and result.verdict.evidence is Evidence.INVARIANT
        if column is self.gaps:
            # As "UNSUPPORTED: mapping cblas: cblas_sasum has no p of 3.0".
            reason = f"{result.reason.value}: " if result.reason else ""
            message = result.verdict.message.removesuffix(f" ({len(result.keys):,} cases)")
            self.gap_reasons[f"{reason}{message.partition(chr(10))[0]}"] += len(result.keys)

    def _column(self, status: Status) -> Counter[str]:
        if status in BAD_STATUSES:
            return self.failed
        known = {Status.PASSED: self.passed, Status.SKIPPED: self.gaps, Status.XFAILED: self.expected}
        return known.get(status, self.unchecked)

    def remark(self) -> str:
        """Where it is not all passed: in which case sets; for an operator of which nothing ran, why."""
        if not self.ran:
            (why, _), *_ = _grouped({text: Counter({"": n}) for text, n in self.gap_reasons.items()})
            return f"nothing ran: {why}"
        shown = {"failed": self.failed, "expected": self.expected, "unchecked": self.unchecked, "gaps": self.gaps}
        by_set = {word: [f"{name} {n}" for name, n in counts.most_common()] for word, counts in shown.items() if counts}
        return "; ".join(f"{word} in {', '.join(texts)}" for word, texts in by_set.items())


def case_set_of(result: CaseResult) -> str:
    """The case set that a result belongs to, empty for a case that comes from none."""
    return next((tag.removeprefix(_SET_TAG) for tag in result.tags if tag.startswith(_SET_TAG)), "")


def is_check(info: RunInfo) -> bool:
    return info.options.get("command") == "check"


_NUMBERED = re.compile(r"[^/]*/[^/]*/(\d+)")


def _place(result: CaseResult) -> tuple[str, str, int, int]:
    number = _NUMBERED.match(result.id)
    return (result.operator, case_set_of(result), int(number[1]) if number else 0, result.round)


def in_order(results: Iterable[CaseResult]) -> list[CaseResult]:
    """Operators by the alphabet, their cases in the order in which they are written, however they finished."""
    return sorted(results, key=_place)


def operator_lines(results: Iterable[CaseResult]) -> list[OperatorLine]:
    """One line for each operator, in the order in which their results come."""
    lines: dict[str, OperatorLine] = {}
    for result in results:
        line = lines.get(result.operator)
        if line is None:
            line = lines[result.operator] = OperatorLine(result.operator)
        line.add(result)
    return list(lines.values())


def gap_reasons(lines: Iterable[OperatorLine]) -> list[tuple[str, Counter[str]]]:
    """Why cases were not run and of which operators, the commonest first. Where nothing ran for one, its line says so.

    Reasons that differ in values alone are one.
    """
    reasons: dict[str, Counter[str]] = {}
    for line in lines:
        says_all = not line.ran and len(set(map(skeleton, line.gap_reasons))) == 1
        for reason, count in () if says_all else line.gap_reasons.items():
            reasons.setdefault(reason, Counter())[line.operator] += count
    return _grouped(reasons)


def _grouped(reasons: Mapping[str, Counter[str]]) -> list[tuple[str, Counter[str]]]:
    """Each group with one text and the sum of its counts, the commonest first."""
    alike: dict[tuple[str, ...], dict[str, Counter[str]]] = {}
    for text, counts in reasons.items():
        alike.setdefault(skeleton(text), {})[text] = counts
    groups = [
        (merged_text({text: counts.total() for text, counts in group.items()}), sum(group.values(), Counter[str]()))
        for group in alike.values()
    ]
    return sorted(groups, key=lambda group: -group[1].total())


HEAD = ("operator", "passed", "gaps", "expected", "failed")
"""The columns of :func:`columns_of`, after the name; behind them stands the remark."""


def columns_of(line: OperatorLine) -> tuple[Counter[str], Counter[str], Counter[str], Counter[str]]:
    return (line.passed, line.gaps, line.expected, line.failed)


def count_text(counts: Counter[str]) -> str:
    return str(counts.total()) if counts else "-"


def folded(lines: Sequence[OperatorLine]) -> list[OperatorLine]:
    """The same lines, but one at the end for many operators of which nothing ran for the same reason."""
    alike: dict[str, list[OperatorLine]] = {}
    for line in lines:
        if not line.ran:
            alike.setdefault(line.remark(), []).append(line)
    many = {why: group for why, group in alike.items() if len(group) > _FEW_IDLE}
    kept = [line for line in lines if line.ran or line.remark() not in many]
    for group in many.values():
        total = OperatorLine(plural(len(group), "operator"))
        for line in group:
            total.gaps += line.gaps
            total.gap_reasons += line.gap_reasons
        kept.append(total)
    return kept


def sum_up(info: RunInfo | None, lines: Sequence[OperatorLine], summary: RunSummary) -> list[str]:
    """What was asked and what came of it in one line; then, where there are some, the gaps and what never ran."""
    passed, gaps, expected, failed = (
        sum(columns_of(line)[place].total() for line in lines) for place in range(len(HEAD) - 1)
    )
    unchecked = sum(line.unchecked.total() for line in lines)
    done = passed + gaps + expected + failed + unchecked
    missing = summary.total - summary.finished
    parts = [f"{passed:,} passed" if passed else "nothing passed"]
    if by_invariants := sum(line.by_invariants for line in lines):
        parts[0] += by_invariants_text(by_invariants)
    parts += [f"{failed:,} failed"] if failed else []
    parts += [counted(expected, "expected difference")] if expected else []
    parts += [f"{unchecked:,} not compared"] if unchecked else []
    parts += [f"{missing:,} not run"] if missing > 0 else []
    took = f" in {duration(summary.duration_s)}" if math.isfinite(summary.duration_s) else ""
    stopped = "interrupted: " if summary.interrupted else ""
    target = info.target if info is not None else "the backend"
    tier = f", tier {info.options['tier']}" if info is not None and "tier" in info.options else ""
    group = f", group {info.options['group']}" if info is not None and info.options.get("group") else ""
    scope = f"{counted(done + missing, 'case')} of {plural(len(lines), 'operator')} on {target}{tier}{group}"
    paragraph = [f"{stopped}{scope}: {', '.join(parts)}{took}"]
    idle = [line.operator for line in lines if not line.ran]
    is_declared = all(text.startswith(Reason.UNSUPPORTED.value) for line in lines for text in line.gap_reasons)
    paragraph += [f"{counted(gaps, 'case')} skipped{' as unsupported' * is_declared}"] if gaps else []
    paragraph += [f"of {plural(len(idle), 'operator')} nothing ran: {clip(', '.join(idle), 120)}"] if idle else []
    return paragraph
