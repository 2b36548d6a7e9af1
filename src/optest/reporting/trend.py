"""Changes between runs: new, fixed and flaky failures, other reasons, larger errors, longer times, new, removed and
skipped cases.

Cases of several runs are the same if their ids are the same and they compute the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from optest.errors import plural
from optest.reporting.failure_groups import skeleton
from optest.reporting.history import is_flaky, kept_run
from optest.reporting.tally import GroupTally, Tally
from optest.reporting.typography import clip, columns, duration, number
from optest.spec import Reason
from optest.store import Journal, KeptResult, KeptRun

_MAX_LINES = 50
# Options that select among the cases of a plan.
_SELECTING = ("keyword", "case", "tag", "skip_tag", "priority_max", "shard", "rerun_failed", "tier", "case_set")
# An error is larger from this ratio on, and only above this share of the allowance, below which all is rounding.
_LARGER, _MIN_USED = 2.0, 0.1
# A call is slower from the first ratio on if both runs timed it (--bench). Without --bench it was called once: from the
# second ratio and this difference in seconds on, which a busy machine, or loading a framework, rarely adds to a call.
_LONGER, _LONGER_UNTIMED, _MIN_DIFFERENCE_S = 1.2, 2.0, 0.2


class Kind(str, Enum):
    """Kind of a change of a case, the most urgent first."""

    NEW_FAILURE = "new failures"
    FLAKY = "flaky"
    LEFT_OUT = "skipped now"
    REMOVED = "removed"
    OTHER_REASON = "failing for another reason"
    LARGER_ERROR = "with a larger error"
    SLOWER = "slower"
    CHANGED = "computing something else"
    FIXED = "fixed"
    NEW = "new cases"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Change of a case; ``statuses`` has its status in each run, ``since`` the run of the change, "" if flaky."""

    kind: Kind
    case: str
    statuses: tuple[str, ...]
    since: str = ""
    gist: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run(KeptRun):
    is_complete: bool
    tally: Tally

    def has_all_of(self, other: _Run) -> bool:
        """Return whether the run is complete and selected its cases by the same options as ``other``."""
        options, other_options = self.info.options, other.info.options
        # pytest selects cases by its own options: such a run has the file of a plan, but no plan.
        is_of_pytest = any(run.info.options.get("plan") and not run.info.plan for run in (self, other))
        return (
            self.is_complete
            and not is_of_pytest
            and all((options.get(name) or None) == (other_options.get(name) or None) for name in _SELECTING)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Comparison of ``runs``, the oldest first; ``still_failing`` cases failed before, too, for the same reason."""

    runs: tuple[_Run, ...]
    changes: tuple[Change, ...]
    still_failing: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def got_worse(self) -> bool:
        """Return whether a case newly fails, is flaky or is skipped now."""
        return any(change.kind in (Kind.NEW_FAILURE, Kind.FLAKY, Kind.LEFT_OUT) for change in self.changes)


def trend_of(journals: Sequence[Journal]) -> Trend:
    """Compare runs in the order of their starts, and return the changes up to the last one.

    Raises:
        ValueError: for fewer than two journals with a start line.
    """
    by_id = {journal.info.run_id: journal for journal in journals if journal.info is not None}
    runs = sorted(map(_compared_run, by_id.values()), key=lambda run: run.info.started_at)
    if len(runs) < 2:
        raise ValueError("a trend needs at least two runs")
    last = runs[-1]
    changes, still = [], []
    for case in dict.fromkeys(case for run in reversed(runs) for case in run.results):
        change = _change(case, runs)
        if change is not None:
            changes.append(change)
        elif last.is_bad(case):
            still.append(case)
    order = list(Kind)
    return Trend(
        runs=tuple(runs),
        changes=tuple(sorted(changes, key=lambda change: order.index(change.kind))),
        still_failing=tuple(still),
        notes=tuple(_limits_of_comparison(runs)),
    )


def _compared_run(journal: Journal) -> _Run:
    assert journal.info is not None
    tally = Tally()
    for result in journal.results:
        tally.add(result)
    is_complete = journal.summary is not None and journal.summary.finished >= journal.summary.total
    return _Run(info=journal.info, results=kept_run(journal).results, is_complete=is_complete, tally=tally)


def _change(case: str, runs: Sequence[_Run]) -> Change | None:
    """Return the most urgent change of a case in the last run, None if there is none or the runs are not comparable."""
    *earlier, last = runs
    words = tuple(run.word(case) for run in runs)
    is_bad = last.is_bad(case)

    def change(kind: Kind, gist: str = "") -> Change:
        since = "" if kind is Kind.FLAKY else last.info.run_id
        worst = last.worst(case)
        if not gist and worst is not None and (is_bad or kind is Kind.LEFT_OUT):
            gist = worst.gist
        return Change(kind=kind, case=case, statuses=words, since=since, gist=gist)

    if case not in last.results:
        is_removed = case in earlier[-1].results and last.has_all_of(earlier[-1])
        return change(Kind.REMOVED) if is_removed else None
    keys = [{result.key for result in run.results[case]} for run in runs if case in run.results]
    if len(keys) > 1 and keys[-1] != keys[-2]:
        return change(Kind.CHANGED)
    known = [(run, bad) for run in runs if (bad := run.is_bad(case)) is not None]
    if is_flaky(known, case):
        return change(Kind.FLAKY)
    if is_bad is None:
        return change(Kind.LEFT_OUT) if known else None
    before = known[-2][1] if len(known) > 1 else None
    if is_bad and not before:
        return change(Kind.NEW_FAILURE)
    if before and not is_bad:
        return change(Kind.FIXED)
    if before is not None and (worse := _worse(known[-2][0].worst(case), last.worst(case))) is not None:
        return change(*worse)
    # A case is new only if the run before would have selected it.
    is_new = before is None and not any(case in run.results for run in earlier) and earlier[-1].has_all_of(last)
    return change(Kind.NEW) if is_new else None


def _worse(before: KeptResult | None, now: KeptResult | None) -> tuple[Kind, str] | None:
    """Return kind and text of the change if a case that is good, or bad, in both runs became worse; else None."""
    if before is None or now is None:
        return None
    if now.is_bad and _comparable_reason(now) != _comparable_reason(before):
        return Kind.OTHER_REASON, f"{now.gist}; before: {before.gist}"
    if now.used is not None and before.used is not None and now.used > max(_LARGER * before.used, _MIN_USED):
        return Kind.LARGER_ERROR, f"{number(before.used, 2)} > {number(now.used, 2)} x allowed"
    # Times with and without --bench are not comparable.
    if now.seconds is not None and before.seconds is not None and now.is_timed is before.is_timed:
        limit = _LONGER * before.seconds
        if not now.is_timed:
            limit = max(_LONGER_UNTIMED * before.seconds, before.seconds + _MIN_DIFFERENCE_S)
        if now.seconds > limit:
            return Kind.SLOWER, f"{duration(before.seconds)} > {duration(now.seconds)}"
    return None


def _comparable_reason(result: KeptResult) -> tuple[str, ...]:
    """Return the reason of a failure; if values are not the reason, with its text without numbers."""
    if result.reason in (Reason.VALUE, Reason.NAN):
        return (result.reason.value,)
    return skeleton(result.gist)


def _limits_of_comparison(runs: Sequence[_Run]) -> Iterator[str]:
    """Yield notes about differences between the runs that limit their comparison."""
    targets = dict.fromkeys(run.info.target for run in runs)
    if len(targets) > 1:
        yield f"the runs are of several targets: {', '.join(targets)}"
    for option in dict.fromkeys(name for run in runs for name in run.info.fingerprint if name.startswith("option ")):
        values = dict.fromkeys(run.info.fingerprint.get(option, "its default") for run in runs)
        if len(values) > 1:
            yield f"the runs differ in {option}: {', '.join(values)}"
    for run in runs:
        if not run.is_complete:
            yield f"run {run.info.run_id} did not end; cases without a result in it are not shown as removed"
    *_, before, last = runs
    is_comparable = last.has_all_of(before) and before.has_all_of(last)
    is_same = before.results.keys() == last.results.keys()
    if before.is_complete and last.is_complete and not is_comparable and not is_same:
        yield "the last two runs selected their cases by different options; cases of only one run are not shown"


def trend_lines(trend: Trend) -> list[str]:
    """Return the trend as text: a table of the runs, then the changes by kind."""
    last = trend.runs[-1].info.run_id
    lines = [f"{len(trend.runs)} runs, {trend.runs[0].info.run_id} to {last}"]
    lines += [f"  note: {note}" for note in trend.notes]
    models = list(dict.fromkeys(name for run in trend.runs for name in run.tally.models))
    rows = [["run", "target", "cases", "failing", "pass rate", *models, "time"]]
    rows += [_run_row(run, models) for run in trend.runs]
    lines += ["", *columns(rows, left=frozenset({0, 1})), ""]
    for kind in Kind:
        changes = [change for change in trend.changes if change.kind is kind]
        shown = [
            f"  {change.case}  {' > '.join(change.statuses)}{clip(f'  {change.gist}' if change.gist else '', 120)}"
            for change in changes[:_MAX_LINES]
        ]
        more = [f"  and {len(changes) - len(shown)} more"] if len(changes) > len(shown) else []
        lines += [f"{kind.value}: {len(changes)}", *shown, *more, ""] if changes else []
    if not trend.changes:
        lines += ["no changes", ""]
    if trend.still_failing:
        lines += [f"{plural(len(trend.still_failing), 'case')} failed before, too", ""]
    return [*lines, f"details of the last run: optest report {last}"]


def _run_row(run: _Run, models: Sequence[str]) -> list[str]:
    """Return the cells of a run: id, target, counts, its pass rate, that of each model, and time."""
    total = run.tally.all
    rates = [total, *(run.tally.models.get(name) for name in models)]
    return [
        *(run.info.run_id, run.info.target, str(run.tally.finished), str(run.tally.bad)),
        *map(_pass_rate_text, rates),
        duration(total.spent_s) if total.spent_s else "-",
    ]


def _pass_rate_text(group: GroupTally | None) -> str:
    """Return ``100.0% of 26/32``: the pass rate, and the number of cases that ran if not all of them did."""
    if group is None or group.pass_rate is None:
        return "-"
    count = sum(group.statuses.values())
    return f"{group.pass_rate:.1%}" + (f" of {count - group.not_run.total()}/{count}" if group.not_run else "")


def trend_data(trend: Trend) -> dict[str, Any]:
    """Return the trend as plain data, for JSON."""
    return {
        "schema_version": 1,
        "runs": [
            {
                "id": run.info.run_id,
                "started_at": run.info.started_at,
                "target": run.info.target,
                "cases": run.tally.finished,
                "bad": run.tally.bad,
                "pass_rate": run.tally.all.pass_rate,
                "not_run": dict(run.tally.all.not_run),
                "spent_s": run.tally.all.spent_s,
                "by_model": {name: group.pass_rate for name, group in run.tally.models.items()},
            }
            for run in trend.runs
        ],
        "changes": [asdict(change) | {"kind": change.kind.name.lower()} for change in trend.changes],
        "still_failing": list(trend.still_failing),
        "notes": list(trend.notes),
    }
