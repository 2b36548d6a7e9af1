"""Options and failures of earlier runs: ``--resume``, ``--rerun-failed``, ``--failed-first`` and ``optest runs``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from optest.errors import NothingSelected, OptestError, UnknownName, UsageError, plural
from optest.reporting.history import intact_journal, journals_of
from optest.reporting.typography import columns
from optest.settings import OPTIONS, Origin, Settings, resolve
from optest.spec import BAD_STATUSES, RunInfo, TestCase
from optest.store import RunDirectory, read_journal

# Options of the earlier run that limit or report it, and so are no part of what it checked.
_NOT_REUSED = frozenset({"exitfirst", "maxfail", "resume", "rerun_failed", "failed_first", "accept_config"}).union(
    option.name for option in OPTIONS if option.group == "Reports"
)
_LATEST = "latest"
_RUNS_FOR_DURATIONS = 5
_MOST_BYTES_FOR_DURATIONS = 64 * 2**20  # read in half a second
_LIMITS = frozenset({"exitfirst", "maxfail"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """The failures of a run, ids with their keys; ``unfinished`` counts cases without a result."""

    run_id: str
    plan: str
    target: str
    failed: Mapping[str, str]
    finished: int
    unfinished: int

    def of(self, cases: Sequence[TestCase]) -> tuple[list[TestCase], int]:
        """Return the cases that failed in the run, and the number of failures that are not among the cases.

        A case is identified by its id; if that is missing, by its key.
        """
        known = {case.id for case in cases}
        renamed = {key for name, key in self.failed.items() if name not in known}
        repeated = [case for case in cases if case.id in self.failed or case.key in renamed]
        keys = {case.key for case in repeated}
        gone = sum(name not in known and key not in keys for name, key in self.failed.items())
        return repeated, gone

    @property
    def on_target(self) -> str:
        return f" on {self.target}" if self.target else ""

    @property
    def hint(self) -> str:
        if not self.unfinished:
            return ""
        return f"; {plural(self.unfinished, 'case')} of it did not finish: --resume {self.run_id}"


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
    directory = _run_named(settings[option], settings)
    run = {option: directory.id if settings[option] == _LATEST else settings[option]}
    if _names_cases(settings):
        return {**options, **run}
    before = _options_of_run(directory)
    if not is_run(before):
        raise UsageError(
            f"run {directory.id} is a replay or a check, expected a run of a plan or an operator\n"
            f"  re-run its failures: optest replay --run {directory.id}, or optest check --lf {directory.id}"
        )
    kept = {name: value for name, value in before.items() if name not in _NOT_REUSED}
    return {**kept, **requested_options(settings), **run}


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
        directory = latest_run(root, lambda before: is_check(before) and backend in (None, before.get("backend")))
        if directory is None:
            of_backend = f" of {backend}" if backend else ""
            raise UsageError(f"no run under {root} is a check{of_backend}; name one: --lf RUN")
    else:
        directory = RunDirectory.open(root, run)
    before = _options_of_run(directory)
    if not is_check(before):
        raise UsageError(
            f"run {directory.id} is no check\n"
            f"  re-run its failures: optest run --lf {directory.id}, or optest replay --run {directory.id}"
        )
    if backend:
        return {**options, "rerun_failed": directory.id}
    kept = {name: value for name, value in before.items() if name in settings.values and name not in _NOT_REUSED}
    return {**kept, **requested_options(settings), "rerun_failed": directory.id}


def as_the_resumed_run(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of the run to resume, without ``--maxfail``, overridden by ``options``.

    If ``options`` name cases or no run to resume, return them unchanged.
    """
    settings = resolve(options)
    if not settings["resume"] or _names_cases(settings):
        return options
    directory, info = _resumed(settings)
    before = info.options if info is not None else {}
    if is_check(before):
        raise UsageError(f"run {directory.id} is a check; resume it with `optest check --resume {directory.id}`")
    if info is not None and before.get("plan") and not info.plan:
        raise UsageError(f"run {directory.id} was started by pytest; continue with `pytest --lf`")
    if not is_run(before):
        raise UsageError(
            f"run {directory.id} has no options of a run, as a replay\n"
            "  add --plan or --op to --resume, or name another run"
        )
    return {**{name: value for name, value in before.items() if name not in _LIMITS}, **requested_options(settings)}


def as_the_resumed_check(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options of the check to resume, without ``--maxfail``, overridden by ``options``.

    If ``options`` name a backend or no check to resume, return them unchanged.
    """
    settings = resolve(options)
    if not settings["resume"] or settings["backend"]:
        return options
    directory, info = _resumed(settings)
    before = info.options if info is not None else {}
    if not is_check(before):
        raise UsageError(f"run {directory.id} is no check; resume it with `optest run --resume {directory.id}`")
    kept = {name: value for name, value in before.items() if name in settings.values and name not in _LIMITS}
    return {**kept, **requested_options(settings)}


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


def _run_named(name: str, settings: Settings) -> RunDirectory:
    """Return the run; ``latest`` is the latest of a plan or an operator, and of the requested plan if there is one."""
    root, plan = Path(settings["runs_dir"]), settings["plan"]
    path = plan and os.path.realpath(plan)
    if name != _LATEST:
        return RunDirectory.open(root, name)
    directory = latest_run(
        root, lambda before: is_run(before) and (not plan or os.path.realpath(str(before.get("plan"))) == path)
    )
    if directory is not None:
        return directory
    if plan and RunDirectory.all(root):
        raise UsageError(f"no run under {root} was of {plan}; name one: --rerun-failed RUN")
    raise UnknownName("run", name, ("(none yet)",), where=str(root))


def latest_run(root: Path, fits: Callable[[Mapping[str, Any]], bool]) -> RunDirectory | None:
    """Return the latest run whose options ``fits`` accepts and whose journal is intact, or None."""
    fitting = (x for x in reversed(RunDirectory.all(root)) if fits(_options_of_run(x)))
    return next((x for x in fitting if intact_journal(x) is not None), None)


def _options_of_run(directory: RunDirectory) -> Mapping[str, Any]:
    """Return the options of a run, {} if it cannot be read."""
    try:
        return directory.read_info().options
    except OptestError:
        return {}


def _resumed(settings: Settings) -> tuple[RunDirectory, RunInfo | None]:
    directory = RunDirectory.open(Path(settings["runs_dir"]), settings["resume"])
    return directory, read_journal(directory.journal_path).info


def what_failed(runs_dir: str, run: str) -> Earlier:
    """Read the failures of a run; raise ``UnknownName`` if there is no such run."""
    directory = RunDirectory.open(Path(runs_dir), run)
    journal = read_journal(directory.journal_path)
    info = journal.info
    finished = len({(name, result.round) for result in journal.results for name in result.keys})
    return Earlier(
        run_id=directory.id,
        plan=info.plan if info is not None else "",
        target=info.target if info is not None else "",
        failed={result.id: result.key for result in journal.results if result.status in BAD_STATUSES},
        finished=finished,
        unfinished=max(0, info.total - finished) if info is not None else 0,
    )


def durations(root: Path, cases: Sequence[TestCase]) -> dict[str, float]:
    """Return the latest known duration of each case in seconds by id, from the last five runs."""
    wanted = {case.id for case in cases}
    known: dict[str, float] = {}
    with suppress(OSError, OptestError):
        for journal in islice(journals_of(root, _MOST_BYTES_FOR_DURATIONS), _RUNS_FOR_DURATIONS):
            took = {result.id: result.timings.total_s for result in journal.results if result.id in wanted}
            known = {name: seconds for name, seconds in took.items() if seconds} | known
    return known


def rerun_of(earlier: Earlier, chosen: Sequence[TestCase], every: Sequence[TestCase]) -> tuple[list[TestCase], str]:
    """Return the chosen cases that failed, and a note for the report; ``every`` are the cases before selection.

    Raises:
        NothingSelected: if the run has no failure.
        UsageError: if none of its failures is among the cases.
    """
    if not earlier.failed:
        raise NothingSelected(f"run {earlier.run_id} has no failures{earlier.hint}")
    _, gone = earlier.of(every)
    if gone == len(earlier.failed):
        of_plan = f" of {earlier.plan}" if earlier.plan else ""
        raise UsageError(
            f"run {earlier.run_id}{of_plan} has {plural(gone, 'failed case')}, but none is among the cases now\n"
            "  name another run: --rerun-failed RUN"
        )
    repeated, _ = earlier.of(chosen)
    note = f"re-run of failures of run {earlier.run_id}{earlier.on_target}: {plural(len(repeated), 'case')}"
    if gone:
        note += f"; {plural(gone, 'failed case')} no longer exist{'s' if gone == 1 else ''}"
    return repeated, note + earlier.hint


def failed_first(earlier: Earlier, chosen: Sequence[TestCase]) -> tuple[list[TestCase], str]:
    """Return the cases, those that failed in the earlier run first, and a note for the report."""
    repeated, _ = earlier.of(chosen)
    first = {id(case) for case in repeated}
    rest = [case for case in chosen if id(case) not in first]
    note = f"failures of run {earlier.run_id}{earlier.on_target} run first: {plural(len(repeated), 'case')}"
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
