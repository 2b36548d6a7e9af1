"""What an earlier run was asked and what went wrong in it: ``--resume``, ``--rerun-failed`` and ``--failed-first``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optest.errors import NothingSelected, OptestError, UnknownName, UsageError
from optest.settings import OPTIONS, Origin, Settings, resolve
from optest.spec import BAD_STATUSES, TestCase
from optest.store import RunDirectory, read_journal

__all__ = [
    "Earlier",
    "as_in_the_earlier_check",
    "as_in_the_earlier_run",
    "as_the_resumed_check",
    "as_the_resumed_run",
    "failed_first",
    "given_options",
    "rerun_of",
    "what_failed",
]

_NOT_AGAIN = frozenset({"exitfirst", "maxfail", "resume", "rerun_failed", "failed_first"}).union(
    option.name for option in OPTIONS if option.group == "Reports"
)
"""Options of the earlier run that say what part of it was run, and how it was told."""
_LATEST = "latest"
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
        return f"; {_cases(self.unfinished)} of it never finished: --resume {self.run_id}" if self.unfinished else ""


def as_in_the_earlier_run(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is given, with the run named by its id; with neither plan nor operator, what that run was asked.

    Raises:
        UnknownName: if there is no such run.
        UsageError: if it does not say what it was asked.
    """
    settings = resolve(given)
    option = "rerun_failed" if settings["rerun_failed"] else "failed_first"
    wanted = settings[option]
    if not wanted:
        return given
    directory = _find(Path(settings["runs_dir"]), wanted, settings["plan"])
    run = {option: directory.id if wanted == _LATEST else wanted}
    if settings["plan"] or settings["source"] or settings["op"]:
        return {**given, **run}
    before = _options_of_run(directory)
    if before is None:
        raise UsageError(
            f"run {directory.id} is a replay or a check, of which no plan can be run again\n"
            f"  ask its failures again: optest replay --run {directory.id}, or optest check --lf {directory.id}"
        )
    kept = {name: value for name, value in before.items() if name not in _NOT_AGAIN}
    return {**kept, **given_options(settings), **run}


def as_in_the_earlier_check(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is given, with the check named by its id; without a backend, what that check was asked.

    The latest is the latest of the backend that is given, if one is.

    Raises:
        UnknownName: if there is no such run.
        UsageError: if it is no check.
    """
    settings = resolve(given)
    run, backend = settings["rerun_failed"], settings["backend"]
    if not run:
        return given
    root = Path(settings["runs_dir"])
    directory = _latest_check(root, backend) if run == _LATEST else RunDirectory.open(root, run)
    before = _options_of_check(directory)
    if before is None:
        raise UsageError(
            f"run {directory.id} is no check\n"
            f"  ask its failures again: optest run --lf {directory.id}, or optest replay --run {directory.id}"
        )
    if backend:
        return {**given, "rerun_failed": directory.id}
    kept = {name: value for name, value in before.items() if name in settings.values and name not in _NOT_AGAIN}
    return {**kept, **given_options(settings), "rerun_failed": directory.id}


def as_the_resumed_run(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a run that is resumed by its name alone was asked for, but for where to stop; what is stated now wins."""
    settings = resolve(given)
    if not settings["resume"] or settings["plan"] or settings["source"] or settings["op"]:
        return given
    directory = RunDirectory.open(Path(settings["runs_dir"]), settings["resume"])
    info = read_journal(directory.journal_path).info
    if info is not None and info.options.get("command") == "check":
        raise UsageError(f"run {directory.id} is a check; go on with it by `optest check --resume {directory.id}`")
    if info is not None and info.options.get("plan") and not info.plan:
        raise UsageError(f"run {directory.id} was pytest's; go on with what is left of it by `pytest --lf`")
    before = {name: value for name, value in (info.options if info else {}).items() if name not in _WHERE_TO_STOP}
    if not any(map(before.get, ("plan", "source", "op"))):
        raise UsageError(
            f"run {directory.id} does not say what it was asked, as that of a replay; "
            "give --plan or --op with --resume, or the id of another run"
        )
    return {**before, **given_options(settings)}


def as_the_resumed_check(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a check that is resumed was asked; what is stated now wins."""
    settings = resolve(given)
    if not settings["resume"] or settings["backend"]:
        return given
    directory = RunDirectory.open(Path(settings["runs_dir"]), settings["resume"])
    info = read_journal(directory.journal_path).info
    if info is None or info.options.get("command") != "check":
        raise UsageError(f"run {directory.id} is no check; go on with it by `optest run --resume {directory.id}`")
    before = {name: value for name, value in info.options.items() if name in settings.values and name != "exitfirst"}
    return {**before, **{name: value for name, value in given.items() if value not in (None, (), [])}}


def given_options(settings: Settings) -> dict[str, Any]:
    """The options that somebody gave, by name; what a plan says is read from the plan."""
    return {name: value.value for name, value in settings.values.items() if value.origin > Origin.PLAN}


def _latest_check(root: Path, backend: str | None) -> RunDirectory:
    for directory in reversed(RunDirectory.all(root)):
        before = _options_of_check(directory)
        if before is not None and backend in (None, before.get("backend")):
            return directory
    of_backend = f" of {backend}" if backend else ""
    raise UsageError(f"no run under {root} is a check{of_backend}; name one: --lf RUN")


def _options_of_check(directory: RunDirectory) -> Mapping[str, Any] | None:
    try:
        options = directory.read_info().options
    except OptestError:
        return None
    return options if options.get("command") == "check" else None


def _find(root: Path, name: str, plan: str | None) -> RunDirectory:
    """The run; the latest is the latest that was asked for a plan or an operator, and for this plan if one is given."""
    if name != _LATEST:
        return RunDirectory.open(root, name)
    for directory in reversed(RunDirectory.all(root)):
        before = _options_of_run(directory)
        if before is not None and (not plan or _is_same_file(before.get("plan"), plan)):
            return directory
    if plan and RunDirectory.all(root):
        raise UsageError(f"no run under {root} was of {plan}; name one: --rerun-failed RUN")
    raise UnknownName("run", name, ("(none yet)",), where=str(root))


def _options_of_run(directory: RunDirectory) -> Mapping[str, Any] | None:
    """The options of a run of a plan or of operators, None of any other, as a replay, or if it cannot be read.

    Those of a check mean something else: its operators are asked their case sets.
    """
    try:
        options = directory.read_info().options
    except OptestError:
        return None
    return options if any(map(options.get, ("plan", "source", "op"))) and options.get("command") != "check" else None


def _is_same_file(one: Any, other: str) -> bool:
    return isinstance(one, str) and os.path.realpath(one) == os.path.realpath(other)


def what_failed(runs_dir: str, run: str) -> Earlier:
    """Read what went wrong in a run.

    Raises:
        UnknownName: if there is no such run.
    """
    directory = RunDirectory.open(Path(runs_dir), run)
    journal = read_journal(directory.journal_path)
    info = journal.info
    finished = len({(result.id, result.round) for result in journal.results})
    return Earlier(
        run_id=directory.id,
        plan=info.plan if info is not None else "",
        target=info.target if info is not None else "",
        failed={result.id: result.key for result in journal.results if result.status in BAD_STATUSES},
        finished=finished,
        unfinished=max(0, info.total - finished) if info is not None else 0,
    )


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
            f"run {earlier.run_id}{of_plan} has {_cases(gone)} that went wrong, "
            "but none of them is among the cases now\n"
            "  name another run: --rerun-failed RUN"
        )
    repeated, _ = earlier.of(chosen)
    lost = f", and {_cases(gone)} that {_are(gone)} not there any more" if gone else ""
    note = (
        f"again what went wrong in run {earlier.run_id}{earlier.on_target}: {_cases(len(repeated))}{lost}{earlier.hint}"
    )
    return repeated, note


def failed_first(earlier: Earlier, chosen: Sequence[TestCase]) -> tuple[list[TestCase], str]:
    """What went wrong before everything else."""
    repeated, _ = earlier.of(chosen)
    first = {id(case) for case in repeated}
    rest = [case for case in chosen if id(case) not in first]
    return [
        *repeated,
        *rest,
    ], f"first what went wrong in run {earlier.run_id}{earlier.on_target}: {_cases(len(repeated))}"


def _cases(count: int) -> str:
    return f"{count} case{'' if count == 1 else 's'}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
