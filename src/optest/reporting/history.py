"""History of cases over many runs: when each started to fail, whether it is flaky, its time; and the largest error of
each operator, as a multiple of its allowance."""

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

_MAX_ROWS, _MAX_OPERATORS = 50, 20
# Limits of the earlier runs that a report reads, so that it takes some seconds at most.
_MAX_RUNS, _MAX_BYTES = 20, 256 * 2**20
# Number of runs of which the table shows an operator's errors.
_SHOWN_RUNS = 6
_WITH_GIST = BAD_STATUSES | {Status.SKIPPED, Status.UNCHECKED}


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseHistory:
    """History of a case on one target; ``runs`` counts those that computed the same as the latest one.

    ``first_bad`` is the id of the first run since which it fails, ``last_good`` that of the last run in which it did
    not; "" if there is no such run. ``seconds`` is the latest time of the call, ``usual_s`` the median of those before.
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
    """Histories of cases, and the largest error / allowance in each run by (operator, target).

    Operators with the largest error in their latest run come first.
    """

    runs: Sequence[KeptRun]
    cases: Sequence[CaseHistory]
    errors: dict[tuple[str, str], dict[str, float]]


def intact_journal(directory: RunDirectory) -> Journal | None:
    """Return the journal of a run; None if it is damaged, after a line on stderr that names the run."""
    try:
        return read_journal(directory.journal_path)
    except UsageError as error:
        first_line = str(error).partition("\n")[0]
        print(f"optest: run {directory.id} is skipped: {first_line}", file=sys.stderr)  # noqa: T201
        return None


def journals_of(root: Path, byte_limit: float = math.inf) -> Iterator[Journal]:
    """Yield the intact journals with a start line below ``root``, the latest first, without minimisations.

    End before the total size of the journals exceeds ``byte_limit``.
    """
    for directory in reversed(RunDirectory.all(root)):
        if not directory.journal_path.is_file():
            continue
        byte_limit -= directory.journal_path.stat().st_size
        if byte_limit < 0:
            return
        journal = intact_journal(directory)
        if journal is not None and journal.info is not None and journal.info.options.get("command") != "minimise":
            yield journal


def kept_run(journal: Journal) -> KeptRun:
    """Return the parts of a journal that a history needs; the journal must have a start line."""
    assert journal.info is not None
    results: dict[str, list[KeptResult]] = {}
    for result in journal.results:
        used = [measure.worst_used for measure in result.verdict.measures if measure.worst_used is not None]
        time = result.benchmark.time if result.benchmark is not None else None
        kept = KeptResult(
            id=result.id,
            key=result.key,
            operator=result.operator,
            status=result.status,
            reason=result.reason,
            attempts=result.attempts,
            used=max(used, default=None),
            seconds=time.median_s if time is not None else result.timings.run_s,
            is_timed=time is not None,
            gist=gist(result) if result.status in _WITH_GIST else "",
        )
        # A merged result stands for several cases.
        for name, key in result.keys.items():
            results.setdefault(name, []).append(replace(kept, id=name, key=key))
    return KeptRun(info=journal.info, results=results)


def runs_until(info: RunInfo, results: Sequence[CaseResult]) -> list[KeptRun]:
    """Return this run and the earlier ones of its target in the same folder that have at least half of its cases.

    The oldest comes first; earlier runs have only the cases of this one. At most 20 runs or 256 MiB are read.
    """
    runs = [current := kept_run(Journal(info=info, results=tuple(results)))]
    with suppress(OSError):  # a run may be deleted meanwhile
        for run in map(kept_run, islice(journals_of(Path(info.directory).parent, _MAX_BYTES), _MAX_RUNS)):
            shared = {name: results for name, results in run.results.items() if name in current.results}
            is_earlier = run.target == current.target and run.info.started_at < info.started_at
            if is_earlier and 2 * len(shared) >= len(current.results):
                runs.insert(0, replace(run, results=shared))
    return runs


def is_flaky(known: Sequence[tuple[KeptRun, bool]], case: str) -> bool:
    """Return whether a case changed between good and bad within a run, more than once, or without a cause.

    ``known`` has the runs in order, each with whether the case is bad. There is no cause if plan, versions, plug-ins
    and options of both runs are the same.
    """
    if any(run.is_flaky(case) for run, _ in known):
        return True
    changes = [(earlier, later) for (earlier, was), (later, became) in pairwise(known) if was is not became]
    fingerprints = [(earlier.info.fingerprint, later.info.fingerprint) for earlier, later in changes]
    return len(changes) > 1 or any(before and before == after for before, after in fingerprints)


def history_of(runs: Sequence[KeptRun], ids: Collection[str] = ()) -> History:
    """Return the history of the cases with these ids, of all cases without ``ids``; the oldest of ``runs`` first."""
    by_target: dict[str, list[KeptRun]] = {}
    for run in runs:
        by_target.setdefault(run.target, []).append(run)
    cases, errors = list[CaseHistory](), dict[tuple[str, str], dict[str, float]]()
    for target, of_target in by_target.items():
        names = dict.fromkeys(name for run in reversed(of_target) for name in run.results if not ids or name in ids)
        cases += [_case_history(name, target, of_target) for name in names]
        for run in of_target:
            for result in (result for name in names for result in run.results.get(name, ())):
                if result.used is not None and not result.is_bad:
                    by_run = errors.setdefault((result.operator, target), {})
                    by_run[run.info.run_id] = max(result.used, by_run.get(run.info.run_id, 0.0))
    worst_first = sorted(errors.items(), key=lambda entry: -list(entry[1].values())[-1])
    return History(runs=runs, cases=cases, errors=dict(worst_first))


def _case_history(name: str, target: str, runs: Sequence[KeptRun]) -> CaseHistory:
    ended = [(run, worst) for run in runs if (worst := run.worst(name)) is not None]
    latest = ended[-1][1]
    # Runs in which the case of this name computed something else are not comparable.
    same = [(run, worst) for run, worst in ended if any(result.key == latest.key for result in run.results[name])]
    known = [(run, bad) for run, _ in same if (bad := run.is_bad(name)) is not None]
    last_good = max((index for index, (_, bad) in enumerate(known) if not bad), default=-1)
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
    """Return the history as text: failing and flaky cases (all with ``verbose``), and the errors of operators."""
    runs, cases = history.runs, history.cases
    runs_of_targets = Counter(run.target for run in runs)
    failing, flaky = sum(bool(case.first_bad) for case in cases), sum(case.is_flaky for case in cases)
    rows = [
        [
            *(clip(case.case, 60), case.target, case.word, case.first_bad or "-", case.last_good or "-"),
            *("flaky" if case.is_flaky else "-", str(case.runs)),
            *("-" if seconds is None else duration(seconds) for seconds in (case.seconds, case.usual_s)),
        ]
        for case in sorted(cases, key=lambda case: not case.first_bad)
        if verbose or case.first_bad or case.is_flaky
    ]
    error_rows = []
    for (operator, target), by_run in history.errors.items():
        worst, *of_runs = (number(used, 2) for used in (max(by_run.values()), *by_run.values()))
        error_rows.append([operator, target, worst, of_runs[-1], " ".join(of_runs[-_SHOWN_RUNS:])])
    head = ("case", "target", "now", "first bad", "last good", "flaky", "runs", "time", "usual")
    error_head = ("operator", "target", "worst", "now", "latest runs")
    return [
        f"{plural(len(runs), 'run')}: {', '.join(f'{count} of {target}' for target, count in runs_of_targets.items())}",
        f"{plural(len(cases), 'case')}: {failing} failing, {flaky} flaky",
        *_history_table(head, rows, frozenset(range(6)), None if verbose else _MAX_ROWS),
        *(["", "largest error / allowance of passed cases"] if error_rows else []),
        *_history_table(error_head, error_rows, frozenset({0, 1, 4}), None if verbose else _MAX_OPERATORS)[1:],
    ]


def _history_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], left: frozenset[int], limit: int | None
) -> list[str]:
    """Return an empty line, at most ``limit`` rows and the number of further ones; [] without rows."""
    more = [f"and {len(rows) - limit} more; -v shows all"] if limit is not None and len(rows) > limit else []
    return ["", *columns([head, *rows[:limit]], left=left), *more] if rows else []


def history_data(history: History) -> dict[str, Any]:
    """Return the history as plain data, for JSON."""
    infos = [(run.info, run.target) for run in history.runs]
    return {
        "schema_version": 1,
        "runs": [{"id": info.run_id, "started_at": info.started_at, "target": target} for info, target in infos],
        "cases": [asdict(case) for case in history.cases],
        "operators": [
            {
                "operator": operator,
                "target": target,
                "errors": [{"run": run, "worst": used} for run, used in by_run.items()],
            }
            for (operator, target), by_run in history.errors.items()
        ],
    }
