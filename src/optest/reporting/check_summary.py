"""Summary of a check: a row for each operator, skipped cases by their reasons, and all in one line."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from optest.errors import plural
from optest.reporting.failure_groups import skeleton
from optest.reporting.tally import skip_text
from optest.reporting.typography import by_invariants_text, clip, counted, duration
from optest.spec import BAD_STATUSES, MERGED_TAGS, CaseResult, Evidence, Reason, RunInfo, RunSummary, Status

# Prefix of the tag that names the case set.
_SET_TAG = "set:"
# Maximum number of operators skipped for the same reason that have rows of their own.
_MAX_SKIPPED_ROWS = 5


@dataclass(slots=True)
class OperatorLine:
    """Results of one operator: numbers of cases by case set, and the reasons of failed and skipped cases."""

    operator: str
    passed: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    expected: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    unchecked: Counter[str] = field(default_factory=Counter)
    # By reason and first line of the message.
    skip_reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    failure_reasons: Counter[str] = field(default_factory=Counter)
    # Number of passed cases that have no reference.
    by_invariants: int = 0

    @property
    def ran(self) -> bool:
        return bool(self.passed or self.expected or self.failed or self.unchecked)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Numbers of passed, skipped, expected and failed cases."""
        return (self.passed.total(), self.skipped.total(), self.expected.total(), self.failed.total())

    def add(self, result: CaseResult) -> None:
        column = self._column(result.status)
        for tag, number in result.verdict.details.get(MERGED_TAGS, {case_set_of(result): 1}).items():
            column[tag.removeprefix(_SET_TAG)] += number
        if column is self.failed and result.reason:
            self.failure_reasons[result.reason.value] += len(result.keys)
        self.by_invariants += column is self.passed and result.verdict.evidence is Evidence.INVARIANT
        if column is self.skipped:
            message = result.verdict.message.removesuffix(f" ({len(result.keys):,} cases)")
            reason = result.reason.value if result.reason else ""
            self.skip_reasons[reason, message.partition("\n")[0]] += len(result.keys)

    def _column(self, status: Status) -> Counter[str]:
        if status in BAD_STATUSES:
            return self.failed
        known = {Status.PASSED: self.passed, Status.SKIPPED: self.skipped, Status.XFAILED: self.expected}
        return known.get(status, self.unchecked)

    def remark(self) -> str:
        """Return the case sets of the cases that did not pass; for an operator of which no case ran, the reason."""
        if not self.ran:
            ((why, _), *_) = _merged_reasons([self])
            return f"no case ran: {why}"
        shown = {"failed": self.failed, "expected": self.expected, "unchecked": self.unchecked, "skipped": self.skipped}
        by_set = {word: [f"{name} {n}" for name, n in counts.most_common()] for word, counts in shown.items() if counts}
        return "; ".join(f"{word} in {', '.join(texts)}" for word, texts in by_set.items())


def case_set_of(result: CaseResult) -> str:
    """Return the name of the case set of a result, "" for a case that is from no set."""
    return next((tag.removeprefix(_SET_TAG) for tag in result.tags if tag.startswith(_SET_TAG)), "")


def is_check(info: RunInfo) -> bool:
    return info.options.get("command") == "check"


# The number of a case in ids such as `sum/layouts/3`.
_NUMBERED = re.compile(r"[^/]*/[^/]*/(\d+)")


def in_order(results: Iterable[CaseResult]) -> list[CaseResult]:
    """Return the results sorted by operator, case set, number of the case and round."""

    def sort_key(result: CaseResult) -> tuple[str, str, int, int]:
        number = _NUMBERED.match(result.id)
        return (result.operator, case_set_of(result), int(number[1]) if number else 0, result.round)

    return sorted(results, key=sort_key)


def operator_lines(results: Iterable[CaseResult]) -> list[OperatorLine]:
    """Return one line for each operator, in the order of the results."""
    lines: dict[str, OperatorLine] = {}
    for result in results:
        lines.setdefault(result.operator, OperatorLine(result.operator)).add(result)
    return list(lines.values())


def skip_reasons(lines: Iterable[OperatorLine]) -> list[tuple[str, Counter[str]]]:
    """Return the reasons of skipped cases with the numbers of their cases by operator, the commonest first.

    Reasons that differ only in values are merged. An operator of which no case ran for only one reason is left out:
    its row in the table has the reason.
    """
    return _merged_reasons([line for line in lines if line.ran or len(_merged_reasons([line])) > 1])


def _merged_reasons(lines: Iterable[OperatorLine]) -> list[tuple[str, Counter[str]]]:
    """Merge reasons that differ only in values: return the commonest text of each group with its cases by operator.

    The group with most cases comes first.
    """
    groups: dict[tuple[str, ...], tuple[Counter[str], Counter[str]]] = {}
    for line in lines:
        for reason, count in line.skip_reasons.items():
            text = skip_text(reason)
            texts, operators = groups.setdefault(skeleton(text), (Counter(), Counter()))
            texts[text] += count
            operators[line.operator] += count
    merged = []
    for texts, operators in groups.values():
        more = f", and {plural(len(texts) - 1, 'other reason')} like it" if len(texts) > 1 else ""
        merged.append((f"{texts.most_common(1)[0][0]}{more}", operators))
    return sorted(merged, key=lambda group: -group[1].total())


# Columns of the table of operators: the name, then `OperatorLine.counts`. The column of remarks has no title.
HEAD = ("operator", "passed", "skipped", "expected", "failed")


def folded(lines: Sequence[OperatorLine]) -> list[OperatorLine]:
    """Merge the lines of more than five operators of which no case ran for the same reason into one at the end."""
    alike: dict[str, list[OperatorLine]] = {}
    for line in lines:
        if not line.ran:
            alike.setdefault(line.remark(), []).append(line)
    many = {why: group for why, group in alike.items() if len(group) > _MAX_SKIPPED_ROWS}
    kept = [line for line in lines if line.ran or line.remark() not in many]
    for group in many.values():
        total = OperatorLine(plural(len(group), "operator"))
        for line in group:
            total.skipped += line.skipped
            total.skip_reasons += line.skip_reasons
        kept.append(total)
    return kept


def sum_up(info: RunInfo | None, lines: Sequence[OperatorLine], summary: RunSummary) -> list[str]:
    """Return one line with the scope and the result of a check, then lines for skipped cases and operators."""
    passed, skipped, expected, failed = (sum(line.counts[column] for line in lines) for column in range(len(HEAD) - 1))
    unchecked = sum(line.unchecked.total() for line in lines)
    done = passed + skipped + expected + failed + unchecked
    missing = summary.total - summary.finished
    parts = [f"{passed:,} passed" if passed else "nothing passed"]
    if by_invariants := sum(line.by_invariants for line in lines):
        parts[0] += by_invariants_text(by_invariants)
    parts += [f"{failed:,} failed"] if failed else []
    parts += [counted(expected, "expected difference")] if expected else []
    parts += [f"{unchecked:,} not compared"] if unchecked else []
    parts += [f"{missing:,} not run"] if missing > 0 else []
    # The duration of a killed run is unknown: NaN.
    took = f" in {duration(summary.duration_s)}" if math.isfinite(summary.duration_s) else ""
    stopped = "interrupted: " if summary.interrupted else ""
    target = info.target if info is not None else "the backend"
    tier = f", tier {info.options['tier']}" if info is not None and "tier" in info.options else ""
    group = f", group {info.options['group']}" if info is not None and info.options.get("group") else ""
    scope = f"{counted(done + missing, 'case')} of {plural(len(lines), 'operator')} on {target}{tier}{group}"
    paragraph = [f"{stopped}{scope}: {', '.join(parts)}{took}"]
    idle = [line.operator for line in lines if not line.ran]
    is_unsupported = all(reason == Reason.UNSUPPORTED.value for line in lines for reason, _ in line.skip_reasons)
    paragraph += [f"{counted(skipped, 'case')} skipped{' as unsupported' * is_unsupported}"] if skipped else []
    paragraph += [f"no case ran of {plural(len(idle), 'operator')}: {clip(', '.join(idle), 120)}"] if idle else []
    return paragraph
