"""Earlier runs: their options, failures, results and durations, for ``--resume``, ``--rerun-failed`` and ``replay``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from optest.errors import NothingSelected, OptestError, UnknownName, UsageError, plural, unknown_among
from optest.plan.select import matching_ids
from optest.reporting.history import intact_journal, journals_of
from optest.reporting.tally import in_plan_order
from optest.reporting.typography import columns
from optest.settings import OPTIONS, Origin, Settings, resolve
from optest.spec import BAD_STATUSES, CaseResult, TestCase
from optest.store import Journal, RunDirectory, read_journal

# Options of the earlier run that limit or report it, and so are no part of what it checked.
_NOT_REUSED = frozenset({"exitfirst", "maxfail", "resume", "rerun_failed", "failed_first", "accept_config"}).union(
    option.name for option in OPTIONS if option.group == "Reports"
)
_LIMITS = frozenset({"exitfirst", "maxfail"})
_LATEST = "latest"
_RUNS_FOR_DURATIONS = 5
_MOST_BYTES_FOR_DURATIONS = 64 * 2**20  # read in half a second
_ALL_FAILURES = ("latest", "last")
_HINT = "; replays are runs, too: name an earlier one by --run"


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """A run in its folder, with the content of its journal."""

    directory: RunDirectory
    journal: Journal

    @classmethod
    def open(cls, root: Path, name: str) -> EarlierRun:
        """Read a run by its id, folder or journal; raise ``UnknownName`` if it does not exist."""
        directory = RunDirectory.open(root, name)
        return cls(directory, read_journal(directory.journal_path))

    @classmethod
    def latest(cls, root: Path, fits: Callable[[Mapping[str, Any]], bool]) -> EarlierRun | None:
        """Return the latest run whose options ``fits`` accepts and whose journal is intact, or None."""
        for directory in reversed(RunDirectory.all(root)):
            options: Mapping[str, Any] = {}
            with suppress(OptestError):  # a run that did not begin has none
                options = directory.read_info().options
            if fits(options) and (journal := intact_journal(directory)) is not None:
                return cls(directory, journal)
        return None

    @property
    def id(self) -> str:
        return self.directory.id

    @property
    def options(self) -> Mapping[str, Any]:
        """The options that the run was started with, {} for a journal without a start."""
        return self.journal.info.options if self.journal.info is not None else {}

    @property
    def failed(self) -> Mapping[str, str]:
        """Ids of the cases that failed, each with its key."""
        return {result.id: result.key for result in self.journal.results if result.status in BAD_STATUSES}

    @property
    def unfinished(self) -> int:
        """Number of cases without a result."""
        finished = {(name, result.round) for result in self.journal.results for name in result.keys}
        return max(0, self.journal.info.total - len(finished)) if self.journal.info is not None else 0

    @property
    def on_target(self) -> str:
        target = self.journal.info.target if self.journal.info is not None else ""
        return f" on {target}" if target else ""

    def failed_among(self, cases: Sequence[TestCase]) -> tuple[list[TestCase], int]:
        """Return the cases that failed in the run, and the number of failures that are not among the cases.

        A case is identified by its id; if that is missing, by its key.
        """
        failed = self.failed
        known = {case.id for case in cases}
        renamed = {key for name, key in failed.items() if name not in known}
        repeated = [case for case in cases if case.id in failed or case.key in renamed]
        keys = {case.key for case in repeated}
        gone = sum(name not in known and key not in keys for name, key in failed.items())
        return repeated, gone

    def options_with(self, settings: Settings, without: frozenset[str]) -> dict[str, Any]:
        """Return the options of the run except ``without``, overridden by those that are requested now."""
        kept = {name: self.options[name] for name in settings.values if name in self.options and name not in without}
        return {**kept, **requested_options(settings)}


def as_in_the_earlier_run(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options with the id of the run to repeat; without plan and operator, add the options of that run.

    Raises:
        UnknownName: if there is no such run.
        UsageError: if its options are of no plan or operator.
    """
    settings = resolve(options)
    option = "rerun_failed" if settings["rerun_failed"] else "failed_first"
    if not settings[option]:
        return options
    earlier = _run_named(settings[option], settings)
    run = {option: earlier.id if settings[option] == _LATEST else settings[option]}
    if _names_cases(settings):
        return {**options, **run}
    if not is_run(earlier.options):
        raise UsageError(
            f"run {earlier.id} is a replay or a check, expected a run of a plan or an operator\n"
            f"  re-run its failures: optest replay --run {earlier.id}, or optest check --lf {earlier.id}"
        )
    return {**earlier.options_with(settings, _NOT_REUSED), **run}


def as_in_the_earlier_check(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options with the id of the check to repeat; without a backend, add the options of that check.

    ``latest`` is the latest check of the requested backend, if there is one.

    Raises:
        UnknownName: if there is no such run.
        UsageError: if it is no check.
    """
    settings = resolve(options)
    run, backend = settings["rerun_failed"], requested_options(settings).get("backend")
    if not run:
        return options
    root = Path(settings["runs_dir"])
    if run == _LATEST:
        earlier = EarlierRun.latest(root, lambda x: is_check(x) and backend in (None, x.get("backend")))
        if earlier is None:
            of_backend = f" of {backend}" if backend else ""
            raise UsageError(f"no run under {root} is a check{of_backend}; name one: --lf RUN")
    else:
        earlier = EarlierRun.open(root, run)
    if not is_check(earlier.options):
        raise UsageError(
            f"run {earlier.id} is no check\n"
            f"  re-run its failures: optest run --lf {earlier.id}, or optest replay --run {earlier.id}"
        )
    if backend:
        return {**options, "rerun_failed": earlier.id}
    return {**earlier.options_with(settings, _NOT_REUSED), "rerun_failed": earlier.id}


def as_the_resumed_run(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of the run to resume, without ``--maxfail``, overridden by ``options``.

    If ``options`` name cases or no run to resume, return them unchanged.
    """
    settings = resolve(options)
    if not settings["resume"] or _names_cases(settings):
        return options
    earlier = EarlierRun.open(Path(settings["runs_dir"]), settings["resume"])
    info = earlier.journal.info
    if is_check(earlier.options):
        raise UsageError(f"run {earlier.id} is a check; resume it with `optest check --resume {earlier.id}`")
    if info is not None and info.options.get("plan") and not info.plan:
        raise UsageError(f"run {earlier.id} was started by pytest; continue with `pytest --lf`")
    if not is_run(earlier.options):
        raise UsageError(
            f"run {earlier.id} has no options of a run, as a replay\n"
            "  add --plan or --op to --resume, or name another run"
        )
    return earlier.options_with(settings, _LIMITS)


def as_the_resumed_check(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of the check to resume, without ``--maxfail``, overridden by ``options``.

    If ``options`` name a backend or no check to resume, return them unchanged.
    """
    settings = resolve(options)
    if not settings["resume"] or settings["backend"]:
        return options
    earlier = EarlierRun.open(Path(settings["runs_dir"]), settings["resume"])
    if not is_check(earlier.options):
        raise UsageError(f"run {earlier.id} is no check; resume it with `optest run --resume {earlier.id}`")
    return earlier.options_with(settings, _LIMITS)


def requested_options(settings: Settings) -> dict[str, Any]:
    """Return the options of the command line, the caller and the environment by name, without those of a plan."""
    return {name: value.value for name, value in settings.values.items() if value.origin > Origin.PLAN}


def _names_cases(settings: Settings) -> bool:
    return bool(settings["plan"] or settings["source"] or settings["op"])


def is_check(options: Mapping[str, Any]) -> bool:
    """Return whether these are the options of a check."""
    return options.get("command") == "check"


def is_run(options: Mapping[str, Any]) -> bool:
    """Return whether these are the options of a run of a plan or of operators, not of a replay or a check."""
    return any(map(options.get, ("plan", "source", "op"))) and not is_check(options)


def _run_named(name: str, settings: Settings) -> EarlierRun:
    """Return the run; ``latest`` is the latest of a plan or an operator, and of the requested plan if there is one."""
    root, plan = Path(settings["runs_dir"]), settings["plan"]
    path = plan and os.path.realpath(plan)
    if name != _LATEST:
        return EarlierRun.open(root, name)
    earlier = EarlierRun.latest(
        root, lambda before: is_run(before) and (not plan or os.path.realpath(str(before.get("plan"))) == path)
    )
    if earlier is not None:
        return earlier
    if plan and RunDirectory.all(root):
        raise UsageError(f"no run under {root} was of {plan}; name one: --rerun-failed RUN")
    raise UnknownName("run", name, ("(none yet)",), where=str(root))


def what_failed(runs_dir: str, run: str) -> EarlierRun:
    """Read a run of the folder; raise ``UnknownName`` if there is no such run."""
    return EarlierRun.open(Path(runs_dir), run)


def selected_results(
    root: Path, run: str, selections: Sequence[str]
) -> tuple[list[CaseResult], Mapping[str, Any], tuple[str, ...]]:
    """Return the selected results, the options of their run, and notes.

    If the latest run is a replay without them, search the latest run or check.
    """
    is_latest = run == _LATEST
    earlier = EarlierRun.latest(root, lambda options: options.get("command") != "minimise") if is_latest else None
    earlier = earlier or EarlierRun.open(root, run)
    where = f"run {earlier.id}{_HINT if is_latest else ''}"
    try:
        return find_results(earlier.journal, selections, where), earlier.options, ()
    except UsageError:
        origin = EarlierRun.latest(root, lambda x: is_run(x) or is_check(x)) if is_latest else None
        if origin is None or origin.id == earlier.id:
            raise
    results = find_results(origin.journal, selections, f"run {origin.id}{_HINT}")
    return results, origin.options, (f"cases of run {origin.id}, the latest that is no replay",)


def find_results(journal: Journal, selections: Sequence[str], where: str = "") -> list[CaseResult]:
    """Return the selected results without duplicates in the order of the plan, the last of several rounds.

    A selection is an id, a number (counted from 1), the beginning of a case key or a glob of ids. Without one, return
    every failure; ``latest`` and ``last`` as selections have no effect.

    Raises:
        UsageError: if a selection matches no result, or as the beginning of a key several cases.
        NothingSelected: if there is no selection and no failure.
    """
    results: list[CaseResult] = []
    named = [selection for selection in selections if selection not in _ALL_FAILURES]
    for selection in named or _ALL_FAILURES[:1]:
        results += _matching_results(journal, selection, where)
    latest = {(result.id, result.key): result for result in results}
    return in_plan_order(dataclasses.replace(result, round=0) for result in latest.values())


def _matching_results(journal: Journal, selection: str, where: str) -> list[CaseResult]:
    """Return the results that one selection of :func:`find_results` names."""
    results = journal.results
    if selection.isdigit() and 1 <= int(selection) <= len(results):
        return [results[int(selection) - 1]]
    if by_id := [result for result in results if result.id == selection]:
        return by_id[-1:]
    if selection in _ALL_FAILURES:
        if bad := [result for result in results if result.status in BAD_STATUSES]:
            return bad
        raise NothingSelected(f"nothing to replay: no case failed\n  at {where}")
    by_key = [result for result in results if len(selection) >= 4 and result.key.startswith(selection)]
    if len({result.key for result in by_key}) > 1:
        raise UsageError(f"result {selection!r} matches {len(by_key)} cases: {', '.join(x.id for x in by_key)}")
    selected = matching_ids(selection, [result.id for result in results])
    if matching := by_key[-1:] or [result for result in results if result.id in selected]:
        return matching
    run = journal.info.run_id if journal.info is not None else "latest"
    error = unknown_among("result", selection, [result.id for result in results], f"`optest report {run} -v`")
    raise UsageError(f"{error}\n  at {where}" if where else str(error))


def durations(root: Path, cases: Sequence[TestCase]) -> dict[str, float]:
    """Return the latest known duration of each case in seconds by id, from the last five runs."""
    wanted = {case.id for case in cases}
    known: dict[str, float] = {}
    with suppress(OSError, OptestError):
        for journal in islice(journals_of(root, _MOST_BYTES_FOR_DURATIONS), _RUNS_FOR_DURATIONS):
            took = {result.id: result.timings.total_s for result in journal.results if result.id in wanted}
            known = {name: seconds for name, seconds in took.items() if seconds} | known
    return known


def rerun_of(earlier: EarlierRun, chosen: Sequence[TestCase], every: Sequence[TestCase]) -> tuple[list[TestCase], str]:
    """Return the chosen cases that failed, and a note for the report; ``every`` are the cases before selection.

    Raises:
        NothingSelected: if the run has no failure.
        UsageError: if none of its failures is among the cases.
    """
    left = earlier.unfinished
    hint = f"; {plural(left, 'case')} of it did not finish: --resume {earlier.id}" if left else ""
    failed, info = earlier.failed, earlier.journal.info
    if not failed:
        raise NothingSelected(f"run {earlier.id} has no failures{hint}")
    _, gone = earlier.failed_among(every)
    if gone == len(failed):
        of_plan = f" of {info.plan}" if info is not None and info.plan else ""
        raise UsageError(
            f"run {earlier.id}{of_plan} has {plural(gone, 'failed case')}, but none is among the cases now\n"
            "  name another run: --rerun-failed RUN"
        )
    repeated, _ = earlier.failed_among(chosen)
    note = f"re-run of failures of run {earlier.id}{earlier.on_target}: {plural(len(repeated), 'case')}"
    if gone:
        note += f"; {plural(gone, 'failed case')} no longer exist{'s' if gone == 1 else ''}"
    return repeated, note + hint


def failed_first(earlier: EarlierRun, chosen: Sequence[TestCase]) -> tuple[list[TestCase], str]:
    """Return the cases, those that failed in the earlier run first, and a note for the report."""
    repeated, _ = earlier.failed_among(chosen)
    first = {id(case) for case in repeated}
    rest = [case for case in chosen if id(case) not in first]
    note = f"failures of run {earlier.id}{earlier.on_target} run first: {plural(len(repeated), 'case')}"
    return [*repeated, *rest], note


def runs(options: Mapping[str, Any], keep: int | None = None) -> Iterator[str]:
    """Yield a table of the runs, the newest last; with ``keep``, first delete all but the newest ``keep`` runs."""
    root = Path(resolve(options)["runs_dir"])
    if keep is not None:
        old = [run for run in RunDirectory.all(root) if run.is_named_by_optest][:-keep]
        size = sum(run.nbytes() for run in old)
        undeleted = [run for run in old if not run.delete()]
        freed_mb = (size - sum(run.nbytes() for run in undeleted)) / 1e6
        yield f"deleted {plural(len(old) - len(undeleted), 'run')}, {freed_mb:.1f} MB"
        yield from (f"not deleted, since it is being written or not permitted: {run.path}" for run in undeleted)
    rows = []
    for run in RunDirectory.all(root):
        info = summary = None
        is_damaged = False
        with suppress(UsageError):  # the run did not begin, or another program wrote the file
            info = run.read_info()
        try:
            summary = read_journal(run.journal_path).summary if run.journal_path.is_file() else None
        except UsageError:
            is_damaged = True
        began, command = ("", "") if info is None else (info.started_at[:19], info.options.get("command", "run"))
        missing = "damaged journal" if is_damaged else "not ended"
        counts = missing if summary is None else ", ".join(f"{n} {word}" for word, n in summary.by_status.items())
        target = "" if info is None else " ".join(filter(None, (info.plan, info.target)))
        rows.append([run.id, began, command, target, f"{run.nbytes() / 1e6:.1f}", counts])
    head = ["run", "began (UTC)", "command", "plan and backend", "MB", "results"]
    yield from columns([head, *rows], left=frozenset({0, 1, 2, 3, 5}), indent="")
