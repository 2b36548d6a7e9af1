"""What changed between runs: new failures, fixed ones, flaky ones, other reasons, larger errors, longer times, cases
that came, went, or are left out now.

Cases are the same by their id and by what they compute; one that computes something else now is told as changed.
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

_MOST_LINES = 50
_SELECTING = ("keyword", "case", "tag", "skip_tag", "priority_max", "shard", "rerun_failed", "tier", "case_set")
"""The options that choose among the cases of a plan."""
_LARGER, _LEAST_USED = 2.0, 0.1
"""An error counts as larger from this ratio on, and from this share of what is allowed: rounding alone is below it."""
_LONGER, _LONGER_UNTIMED, _LEAST_S = 1.2, 2.0, 0.2
"""A call counts as slower from the first ratio on where both runs timed it (--bench). Elsewhere it was made once: from
the second ratio on, and this difference, which loading a framework, or a busy machine, seldom makes of a fast call."""


class Kind(str, Enum):
    """What became of a case, the most urgent first."""

    NEW_FAILURE = "new failures"
    FLAKY = "flaky"
    LEFT_OUT = "left out now"
    REMOVED = "removed"
    OTHER_REASON = "failing for another reason"
    LARGER_ERROR = "with a larger error"
    SLOWER = "slower"
    CHANGED = "computing something else"
    FIXED = "fixed"
    NEW = "new cases"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A case and what became of it; ``statuses`` has its state in every run, ``since`` the first run that has it so."""

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
        """Whether it would have the cases of another run, if its plan still had them.

        pytest chooses for itself: such a run names a file, but has no plan.
        """
        mine, theirs = self.info.options, other.info.options
        chosen_by_a_face = any(run.info.options.get("plan") and not run.info.plan for run in (self, other))
        return (
            self.is_complete
            and not chosen_by_a_face
            and all((mine.get(name) or None) == (theirs.get(name) or None) for name in _SELECTING)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Several runs, the oldest first. ``still_failing`` failed in the last two runs that have them."""

    runs: tuple[_Run, ...]
    changes: tuple[Change, ...]
    still_failing: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def got_worse(self) -> bool:
        """Whether something fails, wavers or is left out that was well before; to fail as before is no change."""
        return any(each.kind in (Kind.NEW_FAILURE, Kind.FLAKY, Kind.LEFT_OUT) for each in self.changes)


def trend_of(journals: Sequence[Journal]) -> Trend:
    """Compare runs, which are put into the order in which they were started.

    Raises:
        ValueError: for fewer than two runs that say when they began.
    """
    known = {each.info.run_id: each for each in journals if each.info is not None}
    runs = sorted(map(_run, known.values()), key=lambda run: run.info.started_at)
    if len(runs) < 2:
        raise ValueError("a trend needs two runs at least")
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
        notes=tuple(_notes(runs)),
    )


def _run(journal: Journal) -> _Run:
    assert journal.info is not None
    tally = Tally()
    for result in journal.results:
        tally.add(result)
    is_complete = journal.summary is not None and journal.summary.finished >= journal.summary.total
    return _Run(info=journal.info, results=kept_run(journal).results, is_complete=is_complete, tally=tally)


def _change(case: str, runs: Sequence[_Run]) -> Change | None:
    *earlier, last = runs
    words = tuple(run.word(case) for run in runs)
    is_bad = last.is_bad(case)

    def change(kind: Kind, why: str = "") -> Change:
        since = "" if kind is Kind.FLAKY else last.info.run_id
        worst = last.worst(case)
        if not why and worst is not None and (is_bad or kind is Kind.LEFT_OUT):
            why = worst.gist
        return Change(kind=kind, case=case, statuses=words, since=since, gist=why)

    if case not in last.results:
        went = case in earlier[-1].results and last.has_all_of(earlier[-1])
        return change(Kind.REMOVED) if went else None
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
    is_new = before is None and not any(case in run.results for run in earlier) and earlier[-1].has_all_of(last)
    return change(Kind.NEW) if is_new else None


def _worse(before: KeptResult | None, now: KeptResult | None) -> tuple[Kind, str] | None:
    """In what a case that ended alike is worse than before."""
    if before is None or now is None:
        return None
    if now.is_bad and _reason(now) != _reason(before):
        return Kind.OTHER_REASON, f"{now.gist}; before: {before.gist}"
    if now.used is not None and before.used is not None and now.used > max(_LARGER * before.used, _LEAST_USED):
        return Kind.LARGER_ERROR, f"{number(before.used, 2)} > {number(now.used, 2)} x allowed"
    if now.seconds is not None and before.seconds is not None and now.is_timed is before.is_timed:
        least = _LONGER * before.seconds
        if not now.is_timed:
            least = max(_LONGER_UNTIMED * before.seconds, before.seconds + _LEAST_S)
        if now.seconds > least:
            return Kind.SLOWER, f"{duration(before.seconds)} > {duration(now.seconds)}"
    return None


def _reason(result: KeptResult) -> tuple[str, ...]:
    """The reason; where no values are off, with what is said of it, but for the values in that."""
    reason = result.gist.partition(":")[0]
    return (reason,) if reason in (Reason.VALUE, Reason.NAN) else skeleton(result.gist)


def _notes(runs: Sequence[_Run]) -> Iterator[str]:
    targets = dict.fromkeys(run.info.target for run in runs)
    if len(targets) > 1:
        yield f"the runs are of several targets: {', '.join(targets)}"
    for option in dict.fromkeys(name for run in runs for name in run.info.fingerprint if name.startswith("option ")):
        values = dict.fromkeys(run.info.fingerprint.get(option, "its default") for run in runs)
        if len(values) > 1:
            yield f"the runs differ in {option}: {', '.join(values)}"
    for run in runs:
        if not run.is_complete:
            yield f"run {run.info.run_id} did not come to its end; cases that it lacks are not shown as removed"
    *_, before, last = runs
    is_comparable = last.has_all_of(before) and before.has_all_of(last)
    is_same = before.results.keys() == last.results.keys()
    if before.is_complete and last.is_complete and not is_comparable and not is_same:
        yield "the last two runs chose their cases differently; those that only one has are not shown"


def trend_lines(trend: Trend) -> list[str]:
    """The trend for people: one line for each run, then what changed."""
    last = trend.runs[-1].info.run_id
    lines = [f"{len(trend.runs)} runs, {trend.runs[0].info.run_id} to {last}"]
    lines += [f"  note: {note}" for note in trend.notes]
    models = list(dict.fromkeys(name for run in trend.runs for name in run.tally.models))
    rows = [["run", "target", "cases", "failing", "pass rate", *models, "time"]]
    rows += [_row(run, models) for run in trend.runs]
    lines += ["", *columns(rows, left=frozenset({0, 1})), ""]
    for kind in Kind:
        changes = [each for each in trend.changes if each.kind is kind]
        told = [
            f"  {each.case}  {' > '.join(each.statuses)}{clip(f'  {each.gist}' if each.gist else '', 120)}"
            for each in changes[:_MOST_LINES]
        ]
        more = [f"  and {len(changes) - len(told)} more"] if len(changes) > len(told) else []
        lines += [f"{kind.value}: {len(changes)}", *told, *more, ""] if changes else []
    if not trend.changes:
        lines += ["nothing changed", ""]
    if trend.still_failing:
        lines += [f"{plural(len(trend.still_failing), 'case')} failed before, too", ""]
    return [*lines, f"more of the last one: optest report {last}"]


def _row(run: _Run, models: Sequence[str]) -> list[str]:
    """A run, its pass rate, and that of each model."""
    every = run.tally.all
    rates = [every, *(run.tally.models.get(name) for name in models)]
    return [
        *(run.info.run_id, run.info.target, str(run.tally.finished), str(run.tally.bad)),
        *map(_rate, rates),
        duration(every.spent_s) if every.spent_s else "-",
    ]


def _rate(group: GroupTally | None) -> str:
    """``100.0% of 26/32``: a rate, and of how many it is where that is not all of them."""
    if group is None or group.pass_rate is None:
        return "-"
    count = sum(group.statuses.values())
    return f"{group.pass_rate:.1%}" + (f" of {count - group.not_run.total()}/{count}" if group.not_run else "")


def trend_data(trend: Trend) -> dict[str, Any]:
    """The trend for machines."""
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
        "changes": [asdict(each) | {"kind": each.kind.name.lower()} for each in trend.changes],
        "still_failing": list(trend.still_failing),
        "notes": list(trend.notes),
    }
