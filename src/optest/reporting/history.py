"""What became of each case over many runs: since when it fails, whether it wavers, its time; and of each operator the
largest error in units of what is allowed."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice, pairwise
from pathlib import Path
from statistics import median
from typing import Any

from optest.errors import UsageError, plural
from optest.reporting.explain import gist
from optest.reporting.typography import clip, columns, duration, number
from optest.spec import BAD_STATUSES, CaseResult, RunInfo, Status
from optest.store import Journal, KeptResult, KeptRun, RunDirectory, read_journal

_MOST_ROWS, _MOST_OPERATORS = 50, 20
_MOST_RUNS, _MOST_BYTES = 20, 256 * 2**20
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
    """``errors`` has by (operator, target) the runs that measured it, each with its largest error / allowance; what is
    worst in its latest run comes first."""

    runs: Sequence[KeptRun]
    cases: Sequence[CaseHistory]
    errors: dict[tuple[str, str], dict[str, float]]


def intact_journal(directory: RunDirectory) -> Journal | None:
    """Read the journal of a run; None for a damaged one, after a line on stderr that names the run."""
    try:
        return read_journal(directory.journal_path)
    except UsageError as error:
        first_line = str(error).partition("\n")[0]
        print(f"optest: run {directory.id} is left out: {first_line}", file=sys.stderr)  # noqa: T201
        return None


def journals_of(root: Path, most_bytes: float = math.inf) -> Iterator[Journal]:
    """Yield the intact journals of runs that record their options, the latest first; without minimisations."""
    for directory in reversed(RunDirectory.all(root)):
        if not directory.journal_path.is_file():
            continue
        most_bytes -= directory.journal_path.stat().st_size
        if most_bytes < 0:
            return
        journal = intact_journal(directory)
        if journal is not None and journal.info is not None and journal.info.options.get("command") != "minimise":
            yield journal


def kept_run(journal: Journal) -> KeptRun:
    """What a history needs of a journal that says when its run began."""
    assert journal.info is not None
    results: dict[str, list[KeptResult]] = {}
    for result in journal.results:
        used = [each.worst_used for each in result.verdict.measures if each.worst_used is not None]
        time = result.benchmark.time if result.benchmark is not None else None
        kept = KeptResult(
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
        for name, key in result.keys.items():
            results.setdefault(name, []).append(replace(kept, id=name, key=key))
    return KeptRun(info=journal.info, results=results)


def runs_until(info: RunInfo, results: Sequence[CaseResult]) -> list[KeptRun]:
    """This run and those before it of its target that have half of its cases or more, with these alone, in order.

    Of the runs beside it, as many are looked at as are read in some seconds.
    """
    runs = [now := kept_run(Journal(info=info, results=tuple(results)))]
    with suppress(OSError):  # a run may be deleted meanwhile
        for run in map(kept_run, islice(journals_of(Path(info.directory).parent, _MOST_BYTES), _MOST_RUNS)):
            own = {name: each for name, each in run.results.items() if name in now.results}
            if run.target == now.target and run.info.started_at < info.started_at and 2 * len(own) >= len(now.results):
                runs.insert(0, replace(run, results=own))
    return runs


def is_flaky(known: Sequence[tuple[KeptRun, bool]], case: str) -> bool:
    """It turned more than once, or it turned while nothing did: plan, versions, plug-ins and options were the same."""
    if any(run.wavers(case) for run, _ in known):
        return True
    turns = [(earlier, later) for (earlier, was), (later, became) in pairwise(known) if was is not became]
    prints = [(one.info.fingerprint, other.info.fingerprint) for one, other in turns]
    return len(turns) > 1 or any(one and one == other for one, other in prints)


def history_of(runs: Sequence[KeptRun], ids: Collection[str] = ()) -> History:
    """Return the history of the cases with these ids, of all if there are none; ``runs`` with the oldest first."""
    by_target: dict[str, list[KeptRun]] = {}
    for run in runs:
        by_target.setdefault(run.target, []).append(run)
    cases, errors = list[CaseHistory](), dict[tuple[str, str], dict[str, float]]()
    for target, own in by_target.items():
        every = dict.fromkeys(name for run in reversed(own) for name in run.results)
        names = [name for name in every if not ids or name in ids]
        cases += [_case_history(name, target, own) for name in names]
        for run in own:
            for each in (result for name in names for result in run.results.get(name, ())):
                if each.used is not None and not each.is_bad:
                    of_runs = errors.setdefault((each.operator, target), {})
                    of_runs[run.info.run_id] = max(each.used, of_runs.get(run.info.run_id, 0.0))
    by_latest = sorted(errors.items(), key=lambda each: -list(each[1].values())[-1])
    return History(runs=runs, cases=cases, errors=dict(by_latest))


def _case_history(name: str, target: str, runs: Sequence[KeptRun]) -> CaseHistory:
    ended = [(run, worst) for run in runs if (worst := run.worst(name)) is not None]
    latest = ended[-1][1]
    same = [(run, worst) for run, worst in ended if any(each.key == latest.key for each in run.results[name])]
    known = [(run, bad) for run, _ in same if (bad := run.is_bad(name)) is not None]
    last_good = max((place for place, (_, bad) in enumerate(known) if not bad), default=-1)
    times = [worst.seconds for _, worst in same if worst.seconds is not None]
    return CaseHistory(
        case=name,
        operator=latest.operator,
        target=target,
        word=latest.status.value,
        runs=len(same),
        first_bad=known[last_good + 1][0].info.run_id if last_good + 1 < len(known) else "",
        last_good=known[last_good][0].info.run_id if last_good >= 0 else "",
        is_flaky=is_flaky(known, name),
        seconds=times[-1] if times else None,
        usual_s=median(times[:-1]) if len(times) > 1 else None,
        gist=latest.gist,
    )


def history_lines(history: History, *, verbose: bool) -> list[str]:
    """For people: the cases that fail or waver (all with ``verbose``), and the errors of operators."""
    runs, cases = history.runs, history.cases
    of_targets = Counter(run.target for run in runs)
    failing, flaky = sum(bool(each.first_bad) for each in cases), sum(each.is_flaky for each in cases)
    rows = [
        [
            *(clip(each.case, 60), each.target, each.word, each.first_bad or "-", each.last_good or "-"),
            *("flaky" if each.is_flaky else "-", str(each.runs)),
            *("-" if seconds is None else duration(seconds) for seconds in (each.seconds, each.usual_s)),
        ]
        for each in sorted(cases, key=lambda each: not each.first_bad)
        if verbose or each.first_bad or each.is_flaky
    ]
    used = {
        of: [number(each, 2) for each in (max(by_run.values()), *by_run.values())]
        for of, by_run in history.errors.items()
    }
    measured = [[*of, worst, each[-1], " ".join(each[-_LATEST:])] for of, (worst, *each) in used.items()]
    head = ("case", "target", "now", "first bad", "last good", "flaky", "runs", "time", "usual")
    head_of_errors = ("operator", "target", "worst", "now", "latest runs")
    return [
        f"{plural(len(runs), 'run')}: {', '.join(f'{count} of {target}' for target, count in of_targets.items())}",
        f"{plural(len(cases), 'case')}: {failing} failing, {flaky} flaky",
        *_table(head, rows, frozenset(range(6)), None if verbose else _MOST_ROWS),
        *(["", "largest error / allowance of what passed"] if measured else []),
        *_table(head_of_errors, measured, frozenset({0, 1, 4}), None if verbose else _MOST_OPERATORS)[1:],
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], left: frozenset[int], most: int | None) -> list[str]:
    """An empty line and the rows, nothing where there are none."""
    more = [f"and {len(rows) - most} more; -v shows all"] if most is not None and len(rows) > most else []
    return ["", *columns([head, *rows[:most]], left=left), *more] if rows else []


def history_data(history: History) -> dict[str, Any]:
    """For machines."""
    infos = [(run.info, run.target) for run in history.runs]
    return {
        "schema_version": 1,
        "runs": [{"id": info.run_id, "started_at": info.started_at, "target": target} for info, target in infos],
        "cases": [asdict(each) for each in history.cases],
        "operators": [
            {
                "operator": of[0],
                "target": of[1],
                "errors": [{"run": run, "worst": used} for run, used in by_run.items()],
            }
            for of, by_run in history.errors.items()
        ],
    }
