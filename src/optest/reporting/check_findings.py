"""What a check adds up to: a line for each operator, failures that are alike together; for every report of a check."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optest.reporting.alike import skeleton, told_once
from optest.reporting.explain import explain, lean_text
from optest.reporting.layouts import layouts_of
from optest.reporting.patterns import pattern_of
from optest.reporting.typography import duration, plural, printable
from optest.spec import BAD_STATUSES, CaseResult, Reason, RunInfo, RunSummary, Status

__all__ = [
    "HEAD",
    "FailureGroup",
    "OperatorLine",
    "case_set_of",
    "columns_of",
    "count_text",
    "failure_groups",
    "folded",
    "gap_reasons",
    "group_lines",
    "in_order",
    "is_check",
    "operator_lines",
    "others_text",
    "sum_up",
]

_SET_TAG = "set:"
_FEW_IDLE = 5
"""Up to so many operators of which nothing ran for the same reason have lines of their own."""
_NAMED = 3
"""As many further cases of a group are named."""
_ACROSS = 3
"""What is said in the same words of so many operators has one cause, outside of their kernels."""
_OF_VALUES = (Reason.VALUE, Reason.NAN)
_TOO_FEW = 4
"""Elements of which nothing can be said with certainty."""
_ASIDE = re.compile(r" \(.*\)")


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
            (why, _), *_ = _grouped({text: Counter({"": n}) for text, n in self.gap_reasons.items()})
            return f"nothing ran: {why}"
        shown = {"failed": self.failed, "expected": self.expected, "unchecked": self.unchecked, "gaps": self.gaps}
        return "; ".join(f"{word} in {_by_set(counts)}" for word, counts in shown.items() if counts)


def case_set_of(result: CaseResult) -> str:
    """The case set that a result belongs to, empty for a case that comes from none."""
    return next((tag.removeprefix(_SET_TAG) for tag in result.tags if tag.startswith(_SET_TAG)), "")


def is_check(info: RunInfo) -> bool:
    return info.options.get("command") == "check"


_FRAME = re.compile(r'^ *File "(.*)", line (\d+)', re.M)
_NUMBERED = re.compile(r"[^/]*/[^/]*/(\d+)")


def _place(result: CaseResult) -> tuple[str, str, int, int]:
    number = _NUMBERED.match(result.id)
    return (result.operator, case_set_of(result), int(number[1]) if number else 0, result.round)


def in_order(results: Iterable[CaseResult]) -> list[CaseResult]:
    """Operators by the alphabet, their cases in the order in which they are written, however they finished."""
    return sorted(results, key=_place)


def _gap_text(result: CaseResult) -> str:
    """Why a case was not run: ``UNSUPPORTED: mapping cblas: cblas_sasum has no p of 3.0``."""
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
    """Failures with one cause, as far as it shows. ``first``, the simplest call, stands for ``others``; ``pattern``
    says which cases of the operator they are."""

    first: CaseResult
    others: tuple[CaseResult, ...] = ()
    pattern: str = ""


def failure_groups(results: Iterable[CaseResult]) -> list[FailureGroup]:
    """What is not well, grouped by what is said of it; ``results`` are all of the run, the passed ones too.

    Wrong values are alike where one operator has them and a sentence of their diagnoses is the same, or where neither
    has one. Other failures are alike where their messages differ in values alone. What says the very same of several
    operators is one group.
    """
    listed = list(results)
    bad = [result for result in listed if result.status in BAD_STATUSES]
    operators: dict[Hashable, set[str]] = {}
    for result in bad:
        for said in _said(result):
            operators.setdefault(said, set()).add(result.operator)
    across = {said for said, of in operators.items() if len(of) >= _ACROSS}
    groups: dict[Hashable, list[CaseResult]] = {}
    by_mark: dict[Hashable, Hashable] = {}
    for result in bad:
        marks = _marks(result, across)
        key = next((by_mark[mark] for mark in marks if mark in by_mark), marks[0])
        by_mark.update((mark, key) for mark in marks if mark not in by_mark)
        groups.setdefault(key, []).append(result)
    passed: dict[str, list[CaseResult]] = {}
    failed: dict[str, list[CaseResult]] = {}
    for result in listed if bad else ():
        if result.status is Status.PASSED:
            passed.setdefault(result.operator, []).append(result)
        elif result.status in BAD_STATUSES:
            failed.setdefault(result.operator, []).append(result)
    return [_group(members, failed, passed) for members in _with_small_ones(list(groups.values()))]


def _group(
    members: Sequence[CaseResult],
    failed: Mapping[str, Sequence[CaseResult]],
    passed: Mapping[str, Sequence[CaseResult]],
) -> FailureGroup:
    first = min(members, key=_complexity)
    one_operator = all(each.operator == first.operator for each in members)
    right = passed.get(first.operator, ())
    pattern = _pattern(members, failed[first.operator], right) if one_operator else ""
    return FailureGroup(first=first, others=tuple(each for each in members if each is not first), pattern=pattern)


def _pattern(members: Sequence[CaseResult], failed: Sequence[CaseResult], passed: Sequence[CaseResult]) -> str:
    """Which cases of one operator fail: all that do, whatever is said of them, else the members of one group."""
    whole = pattern_of(failed, passed)
    rest = len(failed) - len(members)
    if whole or not rest:
        return whole
    of_group = pattern_of(members, passed)
    return of_group and f"{of_group}; {rest} more cases of it fail in other ways"


def _with_small_ones(groups: list[list[CaseResult]]) -> list[list[CaseResult]]:
    """Wrong values of so few elements that no diagnosis can fit go with those of their operator that have one."""
    diagnosed = [group for group in groups if _diagnosis(group[0])]
    kept = []
    for group in groups:
        hosts = [each for each in diagnosed if each[0].operator == group[0].operator]
        if _diagnosis(group[0]) or not hosts or group[0].reason not in _OF_VALUES:
            kept.append(group)
            continue
        max(hosts, key=len).extend(each for each in group if _is_small(each))
        if rest := [each for each in group if not _is_small(each)]:
            kept.append(rest)
    return kept


def _is_small(result: CaseResult) -> bool:
    measures = result.verdict.measures
    return bool(measures) and all(measure.compared < _TOO_FEW for measure in measures)


def _diagnosis(result: CaseResult) -> Sequence[str]:
    found = result.verdict.details.get("diagnosis") or ()
    return [found] if isinstance(found, str) else list(map(str, found))


def _marks(result: CaseResult, across: Container[Hashable]) -> list[Hashable]:
    """What failures have in common that are alike; one is enough."""
    if raised := _raised_there(result):
        return [raised]
    verdict = result.verdict
    marks: list[Hashable] = [said for said in _said(result) if said in across]
    sentences = [skeleton(_ASIDE.sub("", sentence)) for sentence in _diagnosis(result)]
    marks += [(result.operator, result.status, words) for words in sentences]
    if not marks:
        text = () if result.reason in _OF_VALUES else skeleton(verdict.message)
        marks.append((result.operator, result.status, result.reason, text))
    return marks


def _said(result: CaseResult) -> list[Hashable]:
    """What is said of a failure beyond its reason, value for value; nothing for wrong values that nothing explains."""
    texts = _diagnosis(result) or ([] if result.reason in _OF_VALUES else [result.verdict.message])
    return [(result.status, text) for text in texts if text]


def _raised_there(result: CaseResult) -> tuple[Any, ...]:
    """What was raised and where; empty for a failure that is no exception or has no place."""
    frames = _FRAME.findall(str(result.verdict.details.get("traceback_tail") or ""))
    if result.reason is not Reason.RAISED or not frames:
        return ()
    return (result.status, result.reason, frames[-1], skeleton(result.verdict.message))


def _complexity(result: CaseResult) -> tuple[Any, ...]:
    """The simplest call first: dense, with attributes at their defaults, of few elements; the worst of equal ones.

    Before all others stand those of which something can be said."""
    words = result.identifier or result.id
    elements = sum(math.prod(shape) for shape in result.shapes.values())
    unexplained = not _diagnosis(result) and not any(map(lean_text, result.verdict.measures))
    return (unexplained, len(layouts_of(result)), words.count("="), elements, -_badness(result))


def _badness(result: CaseResult) -> float:
    used = [measure.worst_used for measure in result.verdict.measures if measure.worst_used is not None]
    finite = [each for each in used if math.isfinite(each)]
    return max(finite, default=0.0)


def group_lines(group: FailureGroup) -> list[str]:
    """The failure block of a group: of its simplest call, then which cases fail so."""
    pattern = [f"  fails: {group.pattern}"] if group.pattern else []
    others = [f"  {others_text(group)}"] if group.others else []
    return [*explain(group.first, pattern), *others]


def gap_reasons(lines: Iterable[OperatorLine]) -> list[tuple[str, Counter[str]]]:
    """Why cases were not run and of which operators, the commonest first; of which nothing ran, says its own line.

    Reasons that differ in values alone are one.
    """
    reasons: dict[str, Counter[str]] = {}
    for line in lines:
        for reason, count in line.gap_reasons.items() if line.ran else ():
            reasons.setdefault(reason, Counter())[line.operator] += count
    return _grouped(reasons)


def _grouped(reasons: Mapping[str, Counter[str]]) -> list[tuple[str, Counter[str]]]:
    """Each group with one text and the sum of its counts, the commonest first."""
    alike: dict[tuple[str, ...], dict[str, Counter[str]]] = {}
    for text, counts in reasons.items():
        alike.setdefault(skeleton(text), {})[text] = counts
    groups = [
        (told_once({text: counts.total() for text, counts in group.items()}), sum(group.values(), Counter[str]()))
        for group in alike.values()
    ]
    return sorted(groups, key=lambda group: -group[1].total())


def others_text(group: FailureGroup) -> str:
    """``and 4 more like it: …`` with the names of some, one of each operator first."""
    of_each = {each.operator: each for each in reversed(group.others)}
    ordered = list(dict.fromkeys(map(id, [*reversed(of_each.values()), *group.others])))
    names = {id(each): each.id for each in group.others}
    named = ", ".join(names[each] for each in ordered[:_NAMED])
    more = ", …" if len(group.others) > _NAMED else ""
    operators = {each.operator for each in (group.first, *group.others)}
    of = f", of {len(operators)} operators" if len(operators) > 1 else ""
    return printable(f"and {len(group.others)} more like it{of}: {named}{more}")


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
    return [*kept, *(_one_line_of(group) for group in many.values())]


def _one_line_of(lines: Sequence[OperatorLine]) -> OperatorLine:
    total = OperatorLine(plural(len(lines), "operator"))
    for line in lines:
        total.gaps += line.gaps
        total.gap_reasons += line.gap_reasons
    return total


def sum_up(info: RunInfo | None, lines: Sequence[OperatorLine], summary: RunSummary) -> list[str]:
    """What was asked and what came of it in one line; then, where there are some, the gaps and what never ran."""
    passed, gaps, expected, failed = (
        sum(columns_of(line)[place].total() for line in lines) for place in range(len(HEAD) - 1)
    )
    unchecked = sum(line.unchecked.total() for line in lines)
    missing = summary.total - passed - gaps - expected - failed - unchecked
    parts = [f"{passed:,} passed" if passed else "nothing passed"]
    parts += [f"{failed:,} failed"] if failed else []
    parts += [_counted(expected, "expected difference")] if expected else []
    parts += [f"{unchecked:,} not compared"] if unchecked else []
    parts += [f"{missing:,} not run"] if missing > 0 else []
    took = f" in {duration(summary.duration_s)}" if math.isfinite(summary.duration_s) else ""
    stopped = "interrupted: " if summary.interrupted else ""
    told = [f"{stopped}{_asked(info, summary, len(lines))}: {', '.join(parts)}{took}"]
    idle = [line.operator for line in lines if not line.ran]
    told += [f"{_counted(gaps, 'declared gap')} apart from these, which show nothing"] if gaps else []
    told += [f"of {plural(len(idle), 'operator')} nothing ran: {', '.join(idle)}"] if idle else []
    return told


def _asked(info: RunInfo | None, summary: RunSummary, operators: int) -> str:
    target = info.target if info is not None else "the backend"
    tier = f", tier {info.options['tier']}" if info is not None and "tier" in info.options else ""
    return f"{target} was asked {_counted(summary.total, 'case')} of {plural(operators, 'operator')}{tier}"


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"
