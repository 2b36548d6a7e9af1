"""Figures of a run: what model cases add up to by model, by operator and in all, and the slowest cases."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optest.errors import plural
from optest.reporting.tally import UNNAMED, GroupTally, Tally, spent_s
from optest.reporting.typography import duration
from optest.spec import CaseResult, RunInfo, RunSummary, Status

DECLARED = "operators_declared"
"""Where a run says what its backend declares: ``{"count": 1432, "others": [operators of the cases beyond these]}``."""


def group_cells(word: str, groups: Mapping[str, GroupTally], *, with_operators: bool) -> list[list[str]]:
    """A table, its head first: what was executed, how it ended, and how long it took."""
    shown = [status for status in Status if any(each.statuses[status] for each in groups.values())]
    counted = ("operators", "signatures") if with_operators else ("signatures",)
    lacks_some = any(each.not_run.keys() - {UNNAMED} for each in groups.values())
    behind = ("pass rate", *(("not run",) if lacks_some else ()), "time")
    rows = [[word, *counted, "executed", "shared", *(each.value for each in shown), *behind]]
    for name, each in groups.items():
        numbers = (len(each.operators), len(each.keys)) if with_operators else (len(each.keys),)
        rows.append(
            [
                name,
                *map(str, (*numbers, each.executed, each.shared)),
                *(str(each.statuses[status] or "-") for status in shown),
                "-" if each.pass_rate is None else f"{each.pass_rate:.1%}",
                *((not_run_text(each) or "-",) if lacks_some else ()),
                duration(each.spent_s) if each.spent_s else "-",
            ]
        )
    return rows


def status_cells(tally: Tally, *, none: str) -> list[list[str]]:
    """A table by operator, the worst first, its head first: how many cases ended how, ``none`` for 0, and why."""
    shown = [status for status in Status if tally.statuses[status]]
    rows = [["operator", *(status.value for status in shown), "reasons"]]
    for name, each in tally.worst_first():
        reasons = ", ".join(f"{count} {reason}" for reason, count in each.reasons.most_common())
        rows.append([name, *(str(each.statuses[status] or none) for status in shown), reasons])
    return rows


def not_run_text(group: GroupTally) -> str:
    """``6 too large, 1 not an operator``: what a pass rate says nothing of."""
    return ", ".join(f"{count} {kind}" for kind, count in group.not_run.most_common())


def outcome_text(tally: Tally, summary: RunSummary) -> str:
    """``12 passed, 2 failed, 3 not run in 0.41 s``: what a run comes to."""
    missing = summary.total - tally.finished
    text = tally.phrase() + (f", {missing} not run" if missing > 0 else "")
    spent = f" in {duration(summary.duration_s)}" if math.isfinite(summary.duration_s) else ""
    return f"{'interrupted: ' if summary.interrupted else ''}{text}{spent}"


def provenance(info: RunInfo, summary: RunSummary) -> list[tuple[str, str]]:
    """What a run was and where, by name; without what is not known."""
    facts = [
        ("run", info.run_id),
        ("plan", info.plan),
        ("target", info.target),
        ("seed", str(info.seed)),
        ("started", info.started_at),
        ("isolation", f"{info.isolation}, {plural(info.jobs, 'job')}"),
        ("versions", ", ".join(f"{name} {version}" for name, version in info.versions.items())),
        ("host", ", ".join(str(fact) for fact in info.host.values())),
        ("exit status", str(summary.exit_status)),
    ]
    return [(name, value) for name, value in facts if value]


def total_text(tally: Tally) -> str:
    """``612 executed, 389 shared; 57 operators, 601 signatures; 92 s of executions, 150 ms each``."""
    every = tally.all
    text = (
        f"{every.executed} executed, {every.shared} shared; "
        f"{plural(len(every.operators), 'operator')}, {plural(len(every.keys), 'signature')}"
    )
    if every.not_run:
        count = sum(every.statuses.values())
        text += f"; {count - every.not_run.total()} of {plural(count, 'case')} ran: {not_run_text(every)}"
    if every.executed:
        text += f"; {duration(every.spent_s)} of executions, {duration(every.spent_s / every.executed)} each"
    return text


def coverage(info: RunInfo | None, tally: Tally) -> tuple[int, int] | None:
    """How many operators were executed of those that the backend declares, and how many these are; None if it does
    not declare any."""
    declared: Any = info.options.get(DECLARED) if info is not None else None
    if not isinstance(declared, Mapping) or not isinstance(declared.get("count"), int):
        return None
    executed = {name for name, each in tally.operators.items() if each.executed or each.shared}
    return len(executed - set(declared.get("others", ()))), declared["count"]


def coverage_text(info: RunInfo | None, tally: Tally) -> str:
    """``31 of the 1432 operators that the backend declares (2.2%)``, or nothing."""
    figures = coverage(info, tally)
    if figures is None or not figures[1]:
        return ""
    covered, count = figures
    return f"{covered} of the {plural(count, 'operator')} that the backend declares ({covered / count:.1%})"


def figures_of(info: RunInfo, tally: Tally) -> dict[str, Any]:
    """The same as plain data, for reports that machines read."""
    covered = coverage(info, tally)
    return {
        **_group(tally.all),
        "operators_declared": covered and covered[1],
        "operators_declared_covered": covered and covered[0],
        "by_operator": {name: _group(each) for name, each in tally.operators.items()},
        "by_model": {name: _group(each) for name, each in tally.models.items()},
    }


def _group(group: GroupTally) -> dict[str, Any]:
    return {
        "executed": group.executed,
        "shared": group.shared,
        "operators": len(group.operators),
        "signatures": len(group.keys),
        "pass_rate": group.pass_rate,
        "not_run": dict(group.not_run),
        "spent_s": group.spent_s,
        "by_status": {status.value: group.statuses[status] for status in Status if group.statuses[status]},
    }


_PHASES = (
    ("generate_s", "inputs"),
    ("reference_s", "reference"),
    ("compile_s", "compiler"),
    ("run_s", "backend"),
    ("compare_s", "comparison"),
)


def slowest(results: Sequence[CaseResult], count: int) -> Iterator[str]:
    """Yield a heading and a line for each of the ``count`` slowest cases; cases that share an execution count once."""
    own = [result for result in results if result.duplicate_of is None and spent_s(result) > 0]
    if not own or not count:
        return
    shown = heapq.nlargest(count, own, key=spent_s)
    yield f"slowest {len(shown)} of {len(own)} cases"
    for result in shown:
        phases = [(getattr(result.timings, name) or 0.0, word) for name, word in _PHASES]
        parts = ", ".join(f"{word} {_time(seconds)}" for seconds, word in sorted(phases, reverse=True)[:2] if seconds)
        yield f"  {_time(spent_s(result)):>8}  {result.id}  ({parts})"


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
