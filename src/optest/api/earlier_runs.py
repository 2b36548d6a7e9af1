"""What an earlier run was asked and what went wrong in it: ``--resume``, ``--rerun-failed`` and ``--failed-first``."""

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

_NOT_AGAIN = frozenset({"exitfirst", "maxfail", "resume", "rerun_failed", "failed_first", "accept_config"}).union(
    option.name for option in OPTIONS if option.group == "Reports"
)
"""Options of the earlier run that say what part of it was run, and how it was reported."""
_LATEST = "latest"
_RUNS_FOR_DURATIONS = 5
_MOST_BYTES_FOR_DURATIONS = 64 * 2**20
"""As much as is read of earlier runs before one begins: half a second."""
_WHERE_TO_STOP = frozenset({"exitfirst", "maxfail"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What went wrong in a run: ids with their keys; ``unfinished`` counts cases that it never came to."""

    run_id: str
    plan: str
    target: str
    failed: Mapping[str, str]
    finished: int
    unfinished: int

    def of(self, cases: Sequence[TestCase]) -> tuple[list[TestCase], int]:
        """The cases that went wrong, and how many of them are not there any more.

        A case is the same if it is called the same; one with another name is the same if it computes the same.
        """
        known = {case.id for case in cases}
        moved = {key for name, key in self.failed.items() if name not in known}
        repeated = [case for case in cases if case.id in self.failed or case.key in moved]
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
        return f"; {plural(self.unfinished, 'case')} of it never finished: --resume {self.run_id}"


def as_in_the_earlier_run(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is given, with the run named by its id; with neither plan nor operator, the options of that run below it.

    Raises:
        UnknownName: if there is no such run.
        UsageError: if it does not say what its options were.
    """
    settings = resolve(given)
    option = "rerun_failed" if settings["rerun_failed"] else "failed_first"
    if not settings[option]:
        return given
    directory = _run_named(settings[option], settings)
    run = {option: directory.id if settings[option] == _LATEST else settings[option]}
    if _names_cases(settings):
        return {**given, **run}
    before = _options(directory)
    if not is_run(before):
        raise UsageError(
            f"run {directory.id} is a replay or a check, of which no plan can be run again\n"
            f"  ask its failures again: optest replay --run {directory.id}, or optest check --lf {directory.id}"
        )
    kept = {name: value for name, value in before.items() if name not in _NOT_AGAIN}
    return {**kept, **given_options(settings), **run}


def as_in_the_earlier_check(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is given, with the check named by its id; without a backend, the options of that check below it.

    The latest is the latest of the backend that is given, if one is.

    Raises:
        UnknownName: if there is no such run.
        UsageError: if it is no check.
    """
    settings = resolve(given)
    run, backend = settings["rerun_failed"], given_options(settings).get("backend")
    if not run:
        return given
    root = Path(settings["runs_dir"])
    if run == _LATEST:
        directory = latest_run(root, lambda before: is_check(before) and backend in (None, before.get("backend")))
        if directory is None:
            of_backend = f" of {backend}" if backend else ""
            raise UsageError(f"no run under {root} is a check{of_backend}; name one: --lf RUN")
    else:
        directory = RunDirectory.open(root, run)
    before = _options(directory)
    if not is_check(before):
        raise UsageError(
            f"run {directory.id} is no check\n"
            f"  ask its failures again: optest run --lf {directory.id}, or optest replay --run {directory.id}"
        )
    if backend:
        return {**given, "rerun_failed": directory.id}
    kept = {name: value for name, value in before.items() if name in settings.values and name not in _NOT_AGAIN}
    return {**kept, **given_options(settings), "rerun_failed": directory.id}


def as_the_resumed_run(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of a run that is resumed by its name alone, but for where to stop; what is given now wins."""
    settings = resolve(given)
    if not settings["resume"] or _names_cases(settings):
        return given
    directory, info = _resumed(settings)
    before = info.options if info is not None else {}
    if is_check(before):
        raise UsageError(f"run {directory.id} is a check; go on with it by `optest check --resume {directory.id}`")
    if info is not None and before.get("plan") and not info.plan:
        raise UsageError(f"run {directory.id} was pytest's; go on with what is left of it by `pytest --lf`")
    if not is_run(before):
        raise UsageError(
            f"run {directory.id} does not say with which options it ran, as that of a replay; "
            "give --plan or --op with --resume, or the id of another run"
        )
    return {**{name: value for name, value in before.items() if name not in _WHERE_TO_STOP}, **given_options(settings)}


def as_the_resumed_check(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options of a check that is resumed, but for where to stop; what is given now wins."""
    settings = resolve(given)
    if not settings["resume"] or settings["backend"]:
        return given
    directory, info = _resumed(settings)
    before = info.options if info is not None else {}
    if not is_check(before):
        raise UsageError(f"run {directory.id} is no check; go on with it by `optest run --resume {directory.id}`")
    kept = {name: value for name, value in before.items() if name in settings.values and name not in _WHERE_TO_STOP}
    return {**kept, **given_options(settings)}


def given_options(settings: Settings) -> dict[str, Any]:
    """The options that somebody gave, by name; what a plan says is read from the plan."""
    return {name: value.value for name, value in settings.values.items() if value.origin > Origin.PLAN}


def _names_cases(settings: Settings) -> bool:
    return bool(settings["plan"] or settings["source"] or settings["op"])


def is_check(options: Mapping[str, Any]) -> bool:
    """Whether they are those of a check."""
    return options.get("command") == "check"


def is_run(options: Mapping[str, Any]) -> bool:
    """Whether they are those of a run of a plan or of operators, not of a replay or a check.

    Those of a check mean something else: its operators are asked their case sets.
    """
    return any(map(options.get, ("plan", "source", "op"))) and not is_check(options)


def _run_named(name: str, settings: Settings) -> RunDirectory:
    """The run; the latest is the latest of a plan or an operator, and of this plan if one is given."""
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
    """Return the latest run with such options whose journal is intact."""
    fitting = (each for each in reversed(RunDirectory.all(root)) if fits(_options(each)))
    return next((each for each in fitting if intact_journal(each) is not None), None)


def _options(directory: RunDirectory) -> Mapping[str, Any]:
    """The options of a run, {} if it cannot be read."""
    try:
        return directory.read_info().options
    except OptestError:
        return {}


def _resumed(settings: Settings) -> tuple[RunDirectory, RunInfo | None]:
    directory = RunDirectory.open(Path(settings["runs_dir"]), settings["resume"])
    return directory, read_journal(directory.journal_path).info


def what_failed(runs_dir: str, run: str) -> Earlier:
    """Read what went wrong in a run.

    Raises:
        UnknownName: if there is no such run.
    """
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
    """Seconds that cases took in the last of the latest runs that ran them, by their ids."""
    wanted = {case.id for case in cases}
    known: dict[str, float] = {}
    with suppress(OSError, OptestError):
        for journal in islice(journals_of(root, _MOST_BYTES_FOR_DURATIONS), _RUNS_FOR_DURATIONS):
            took = {result.id: result.timings.total_s for result in journal.results if result.id in wanted}
            known = {name: seconds for name, seconds in took.items() if seconds} | known
    return known


def rerun_of(earlier: Earlier, chosen: Sequence[TestCase], every: Sequence[TestCase]) -> tuple[list[TestCase], str]:
    """The chosen cases that went wrong, and what the report says of that; ``every`` are the cases before selection.

    Raises:
        NothingSelected: if nothing went wrong in that run.
        UsageError: if nothing that did is among the cases.
    """
    if not earlier.failed:
        raise NothingSelected(f"nothing went wrong in run {earlier.run_id}{earlier.hint}")
    _, gone = earlier.of(every)
    if gone == len(earlier.failed):
        of_plan = f" of {earlier.plan}" if earlier.plan else ""
        raise UsageError(
            f"run {earlier.run_id}{of_plan} has {plural(gone, 'case')} that went wrong, "
            "but none of them is among the cases now\n"
            "  name another run: --rerun-failed RUN"
        )
    repeated, _ = earlier.of(chosen)
    note = f"again what went wrong in run {earlier.run_id}{earlier.on_target}: {plural(len(repeated), 'case')}"
    if gone:
        note += f", and {plural(gone, 'case')} that {'is' if gone == 1 else 'are'} not there any more"
    return repeated, note + earlier.hint


def failed_first(earlier: Earlier, chosen: Sequence[TestCase]) -> tuple[list[TestCase], str]:
    """What went wrong before everything else."""
    repeated, _ = earlier.of(chosen)
    first = {id(case) for case in repeated}
    rest = [case for case in chosen if id(case) not in first]
    note = f"first what went wrong in run {earlier.run_id}{earlier.on_target}: {plural(len(repeated), 'case')}"
    return [*repeated, *rest], note


def runs(given: Mapping[str, Any], keep: int | None = None) -> Iterator[str]:
    """Yield a table of the runs, the newest last; first delete all but the newest ``keep`` runs, if it is given."""
    root = Path(resolve(given)["runs_dir"])
    if keep is not None:
        old = [each for each in RunDirectory.all(root) if each.is_named_by_optest][:-keep]
        size = sum(each.nbytes() for each in old)
        undeleted = [each for each in old if not each.delete()]
        freed_mb = (size - sum(each.nbytes() for each in undeleted)) / 1e6
        yield f"deleted {plural(len(old) - len(undeleted), 'run')}, {freed_mb:.1f} MB"
        yield from (f"not deleted, since it is being written or not permitted: {each.path}" for each in undeleted)
    rows = []
    for each in RunDirectory.all(root):
        info = summary = None
        is_damaged = False
        with suppress(UsageError):  # the run did not begin, or another program wrote the file
            info = each.read_info()
        try:
            summary = read_journal(each.journal_path).summary if each.journal_path.is_file() else None
        except UsageError:
            is_damaged = True
        began, command = ("", "") if info is None else (info.started_at[:19], info.options.get("command", "run"))
        missing = "damaged: its journal is garbled" if is_damaged else "not ended"
        counts = missing if summary is None else ", ".join(f"{n} {word}" for word, n in summary.by_status.items())
        target = "" if info is None else " ".join(filter(None, (info.plan, info.target)))
        rows.append([each.id, began, command, target, f"{each.nbytes() / 1e6:.1f}", counts])
    head = ["run", "began (UTC)", "command", "plan and backend", "MB", "results"]
    yield from columns([head, *rows], left=frozenset({0, 1, 2, 3, 5}), indent="")
