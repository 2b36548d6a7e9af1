"""Figures of a run: numbers of cases by model, by operator and in all, coverage, and the slowest cases."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optest.errors import plural
from optest.reporting.tally import UNNAMED, GroupTally, Tally, total_seconds
from optest.reporting.typography import duration
from optest.spec import CaseResult, RunInfo, RunSummary, Status

# Key in the options of a run: `{"count": 1432, "others": [operators of cases that the backend does not declare]}`.
DECLARED = "operators_declared"


def group_cells(title: str, groups: Mapping[str, GroupTally], *, with_operators: bool) -> list[list[str]]:
    """Return a table of groups of cases, its head first: executed cases, statuses, pass rate, time.

    ``title`` is that of the first column; ``with_operators`` adds a column with the number of operators.
    """
    shown = [status for status in Status if any(group.statuses[status] for group in groups.values())]
    numbers = ("operators", "signatures") if with_operators else ("signatures",)
    has_not_run = any(group.not_run.keys() - {UNNAMED} for group in groups.values())
    last = ("pass rate", *(("not run",) if has_not_run else ()), "time")
    rows = [[title, *numbers, "executed", "shared", *(status.value for status in shown), *last]]
    for name, group in groups.items():
        counts = (len(group.operators), len(group.keys)) if with_operators else (len(group.keys),)
        rows.append(
            [
                name,
                *map(str, (*counts, group.executed, group.shared)),
                *(str(group.statuses[status] or "-") for status in shown),
                "-" if group.pass_rate is None else f"{group.pass_rate:.1%}",
                *((not_run_text(group) or "-",) if has_not_run else ()),
                duration(group.spent_s) if group.spent_s else "-",
            ]
        )
    return rows


def status_cells(tally: Tally, *, none: str) -> list[list[str]]:
    """Return a table of operators, its head first, the worst operator first: cases by status, and reasons.

    ``none`` is the text for 0 cases.
    """
    shown = [status for status in Status if tally.statuses[status]]
    rows = [["operator", *(status.value for status in shown), "reasons"]]
    for name, group in tally.worst_first():
        rows.append([name, *(str(group.statuses[status] or none) for status in shown), group.reasons_text()])
    return rows


def not_run_text(group: GroupTally) -> str:
    """Return ``6 too large, 1 not an operator``: the cases that a pass rate does not count."""
    return ", ".join(f"{count} {kind}" for kind, count in group.not_run.most_common())


def outcome_text(tally: Tally, summary: RunSummary) -> str:
    """Return ``12 passed, 2 failed, 3 not run in 0.41 s``."""
    missing = summary.total - tally.finished
    text = tally.phrase() + (f", {missing} not run" if missing > 0 else "")
    spent = f" in {duration(summary.duration_s)}" if math.isfinite(summary.duration_s) else ""
    return f"{'interrupted: ' if summary.interrupted else ''}{text}{spent}"


def provenance(info: RunInfo, summary: RunSummary) -> list[tuple[str, str]]:
    """Return names and texts of the run's properties: id, plan, target, seed, versions, host; without unknown ones."""
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
    """Return ``612 executed, 389 shared; 57 operators, 601 signatures; 92 s of execution, 150 ms each``."""
    total = tally.all
    text = (
        f"{total.executed} executed, {total.shared} shared; "
        f"{plural(len(total.operators), 'operator')}, {plural(len(total.keys), 'signature')}"
    )
    if total.not_run:
        count = sum(total.statuses.values())
        text += f"; {count - total.not_run.total()} of {plural(count, 'case')} ran (not run: {not_run_text(total)})"
    if total.executed:
        text += f"; {duration(total.spent_s)} of execution, {duration(total.spent_s / total.executed)} each"
    return text


def coverage(info: RunInfo | None, tally: Tally) -> tuple[int, int] | None:
    """Return the number of executed operators among those that the backend declares, and the number of these.

    Return None if the backend does not declare its operators.
    """
    declared: Any = info.options.get(DECLARED) if info is not None else None
    if not isinstance(declared, Mapping) or not isinstance(declared.get("count"), int):
        return None
    # An operator that was only skipped is not covered.
    executed = {name for name, group in tally.operators.items() if group.executed or group.shared}
    return len(executed - set(declared.get("others", ()))), declared["count"]


def coverage_text(info: RunInfo | None, tally: Tally) -> str:
    """Return ``31 of the 1432 operators that the backend declares (2.2%)``; "" if it declares none."""
    figures = coverage(info, tally)
    if figures is None or not figures[1]:
        return ""
    covered, count = figures
    return f"{covered} of the {plural(count, 'operator')} that the backend declares ({covered / count:.1%})"


def figures_of(info: RunInfo, tally: Tally) -> dict[str, Any]:
    """Return the figures of all cases, each operator and each model as plain data, for the JSON report."""
    covered = coverage(info, tally)
    return {
        **_group_data(tally.all),
        "operators_declared": covered and covered[1],
        "operators_declared_covered": covered and covered[0],
        "by_operator": {name: _group_data(group) for name, group in tally.operators.items()},
        "by_model": {name: _group_data(group) for name, group in tally.models.items()},
    }


def _group_data(group: GroupTally) -> dict[str, Any]:
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
    """Yield a heading and a line for each of the ``count`` slowest cases, with the two longest phases of each.

    Cases that share the execution of another case are left out.
    """
    executed = [result for result in results if result.duplicate_of is None and total_seconds(result) > 0]
    if not executed or not count:
        return
    shown = heapq.nlargest(count, executed, key=total_seconds)
    yield f"slowest {len(shown)} of {len(executed)} cases"
    for result in shown:
        phases = [(getattr(result.timings, name) or 0.0, word) for name, word in _PHASES]
        parts = ", ".join(
            f"{word} {_fixed_time(seconds)}" for seconds, word in sorted(phases, reverse=True)[:2] if seconds
        )
        yield f"  {_fixed_time(total_seconds(result)):>8}  {result.id}  ({parts})"


def _fixed_time(seconds: float) -> str:
    # Fixed decimals, unlike `duration`: the times of a column can be compared by eye.
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"
