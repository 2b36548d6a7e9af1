"""What became of each case over many runs: since when it fails, whether it wavers, its time; and of each operator the
largest error in units of what is allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from optest.reporting.explain import gist
from optest.reporting.typography import clip, columns, duration, number, plural
from optest.spec import BAD_STATUSES, CaseResult, RunInfo, Status
from optest.store import Journal, KeptResult, KeptRun

__all__ = ["CaseHistory", "History", "history_data", "history_lines", "history_of", "is_flaky", "kept_run"]

_MOST_ROWS, _MOST_OPERATORS = 50, 20
_LATEST = 6
"""As many runs are shown of an operator's errors."""
_TOLD = BAD_STATUSES | {Status.SKIPPED, Status.UNCHECKED}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseHistory:
    """A case on one target, in the ``runs`` that computed what the latest of them did.

    ``first_bad`` and ``last_good`` are runs: the first of those in which it fails now, and the one before it that shows
    it well; "" where there is none. ``seconds`` are those of the latest call, ``usual_s`` the median of those before.
    """

    case: str
    operator: str
    target: str
    word: str
    runs: int
    first_bad: str = ""
    last_good: str = ""
    is_flaky: bool = False
    seconds: float | None = None
    usual_s: float | None = None
    gist: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """``errors`` has by (operator, target) the runs that measured it, each with its largest error / allowance."""

    runs: Sequence[KeptRun]
    cases: Sequence[CaseHistory]
    errors: dict[tuple[str, str], list[tuple[str, float]]]


def kept_run(journal: Journal) -> KeptRun:
    """What a history needs of a journal that says when its run began."""
    info = journal.info
    assert info is not None
    results: dict[str, list[KeptResult]] = {}
    for each in journal.results:
        results.setdefault(each.id, []).append(_kept(each))
    return KeptRun(
        run_id=info.run_id,
        started_at=info.started_at,
        target=_target_of(info),
        fingerprint=info.fingerprint,
        results=results,
    )


def _target_of(info: RunInfo) -> str:
    """Functions of one operator are not one another, nor are cases of two plans that have one name."""
    what = [*(info.options.get("function") or ()), *([Path(info.plan).name] if info.plan else [])]
    return f"{info.target} ({', '.join(what)})" if what else info.target


def _kept(result: CaseResult) -> KeptResult:
    used = [each.worst_used for each in result.verdict.measures if each.worst_used is not None]
    time = result.benchmark.time if result.benchmark is not None else None
    return KeptResult(
        id=result.id,
        key=result.key,
        operator=result.operator,
        status=result.status,
        attempts=result.attempts,
        used=max(used, default=None),
        seconds=time.median_s if time is not None else result.timings.run_s,
        is_timed=time is not None,
        gist=gist(result) if result.status in _TOLD else "",
    )


def is_flaky(known: Sequence[tuple[KeptRun, bool]], case: str) -> bool:
    """It turned more than once, or it turned while nothing did: plan, versions, plug-ins and options were the same."""
    if any(run.wavers(case) for run, _ in known):
        return True
    turns = [(earlier, later) for (earlier, was), (later, became) in pairwise(known) if was is not became]
    prints = [(one.fingerprint, other.fingerprint) for one, other in turns]
    return len(turns) > 1 or any(one and one == other for one, other in prints)


def history_of(runs: Sequence[KeptRun], globs: Sequence[str] = ()) -> History:
    """The history of the cases whose ids these globs fit, of all if there are none; ``runs`` with the oldest first."""
    by_target: dict[str, list[KeptRun]] = {}
    for run in runs:
        by_target.setdefault(run.target, []).append(run)
    cases, errors = list[CaseHistory](), dict[tuple[str, str], list[tuple[str, float]]]()
    for target, own in by_target.items():
        names = dict.fromkeys(name for run in reversed(own) for name in run.results)
        chosen = {name for name in names if not globs or any(name == each or fnmatchcase(name, each) for each in globs)}
        cases += [_case_history(name, target, own) for name in names if name in chosen]
        for run in own:
            worst: dict[str, float] = {}
            for each in (result for name in chosen for result in run.results.get(name, ()) if not result.is_bad):
                if each.used is not None:
                    worst[each.operator] = max(each.used, worst.get(each.operator, 0.0))
            for operator, used in worst.items():
                errors.setdefault((operator, target), []).append((run.run_id, used))
    return History(runs=runs, cases=cases, errors=errors)


def _case_history(name: str, target: str, runs: Sequence[KeptRun]) -> CaseHistory:
    having = [run for run in runs if name in run.results]
    latest = having[-1].worst(name)
    assert latest is not None
    same = [run for run in having if any(each.key == latest.key for each in run.results[name])]
    known = [(run, bad) for run in same if (bad := run.is_bad(name)) is not None]
    good = [place for place, (_, bad) in enumerate(known) if not bad]
    streak = known[good[-1] + 1 :] if good else known
    times = [each.seconds for run in same if (each := run.worst(name)) is not None and each.seconds is not None]
    return CaseHistory(
        case=name,
        operator=latest.operator,
        target=target,
        word=latest.status.value,
        runs=len(same),
        first_bad=streak[0][0].run_id if streak else "",
        last_good=known[good[-1]][0].run_id if good else "",
        is_flaky=is_flaky(known, name),
        seconds=times[-1] if times else None,
        usual_s=median(times[:-1]) if len(times) > 1 else None,
        gist=latest.gist,
    )


def history_lines(history: History, *, verbose: bool) -> list[str]:
    """For people: the cases that fail or waver (all with ``verbose``), and the errors of operators."""
    runs, cases = history.runs, history.cases
    of_targets = Counter(run.target for run in runs)
    shown = [each for each in cases if verbose or each.first_bad or each.is_flaky]
    shown.sort(key=lambda each: not each.first_bad)
    failing, flaky = sum(bool(each.first_bad) for each in cases), sum(each.is_flaky for each in cases)
    lines = [
        f"{plural(len(runs), 'run')}: {', '.join(f'{count} of {target}' for target, count in of_targets.items())}",
        f"{plural(len(cases), 'case')}: {failing} failing, {flaky} flaky",
        "",
    ]
    kept = shown if verbose else shown[:_MOST_ROWS]
    if kept:
        head = ["case", "target", "now", "first bad", "last good", "flaky", "runs", "time", "usual"]
        rows = [
            [
                *(clip(each.case, 60), each.target, each.word, each.first_bad or "-", each.last_good or "-"),
                *("flaky" if each.is_flaky else "-", str(each.runs), _time(each.seconds), _time(each.usual_s)),
            ]
            for each in kept
        ]
        lines += [*columns([head, *rows], left=frozenset(range(6))), ""]
    if len(shown) > len(kept):
        lines += [f"and {len(shown) - len(kept)} more; -v shows all", ""]
    measured = [(of, [used for _, used in of_runs]) for of, of_runs in history.errors.items()]
    measured.sort(key=lambda each: -each[1][-1])
    rows = [
        [*of, number(max(used), 2), number(used[-1], 2), " ".join(number(each, 2) for each in used[-_LATEST:])]
        for of, used in (measured if verbose else measured[:_MOST_OPERATORS])
    ]
    if rows:
        lines += ["largest error / allowance of what passed"]
        lines += columns([["operator", "target", "worst", "now", "latest runs"], *rows], left=frozenset({0, 1, 4}))
    if len(measured) > len(rows):
        lines += [f"and {len(measured) - len(rows)} more operators; -v shows all"]
    return lines


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else duration(seconds)


def history_data(history: History) -> dict[str, Any]:
    """For machines."""
    return {
        "schema_version": 1,
        "runs": [{"id": run.run_id, "started_at": run.started_at, "target": run.target} for run in history.runs],
        "cases": [asdict(each) for each in history.cases],
        "operators": [
            {"operator": operator, "target": target, "errors": [{"run": run, "worst": worst} for run, worst in errors]}
            for (operator, target), errors in history.errors.items()
        ],
    }
