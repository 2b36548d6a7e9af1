"""``optest replay``: cases of a journal run again exactly, their tensors saved, their failures written as scripts."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from optest.api import bootstrap
from optest.api.earlier_runs import is_check, is_run, latest_run
from optest.api.listing import unknown_among
from optest.api.report import Report
from optest.api.run_request import RunRequest, configure, driver_options
from optest.api.running import run_cases
from optest.api.saving import file_stem, save
from optest.api.scripts import Replayed, script_for
from optest.backends import BackendDriver, backend_manager
from optest.backends.command_abilities import StatesCaseOptions, options_of
from optest.core.kept_tensors import Archive, read_archive, write_archive
from optest.core.wire import case_from_wire
from optest.errors import NothingSelected, UnknownName, UsageError
from optest.operators import operators
from optest.plan.select import matching_ids
from optest.reporting.tally import in_plan_order
from optest.settings import Settings, plugin_modules, resolve
from optest.spec import BAD_STATUSES, BackendTarget, CaseResult
from optest.store import Journal, RunDirectory, check_writable, read_journal, write_atomically

_HINT = "; a replay is a run too, an earlier one is named with --run"
_ALL_FAILURES = ("latest", "last")


def replay(
    selections: Sequence[str],
    run: str,
    given: Mapping[str, Any],
    *,
    save_to: str | None = None,
    script: str | None = None,
    stream: TextIO | None = None,
) -> Report:
    """Run the cases of these results again: same inputs, same backend unless ``given`` names another.

    ``save_to`` is a folder for their tensors. ``script`` is a file or folder for scripts, "" for files here.

    Raises:
        UnknownName: if there is no such run.
        UsageError: if there is no such result, it fits several different cases, or a path cannot be written.
        NothingSelected: if all failures are asked for and there are none.
    """
    bootstrap(accept_config=bool(given.get("accept_config")))
    settings = resolve(given)
    results, before, notes = selected_results(Path(settings["runs_dir"]), run, selections)
    request = dataclasses.replace(replay_request(results, given, before), notes=notes)
    if save_to is None and script is None:
        return run_cases(request, stream=stream)
    files = _Files.planned(results, save_to, script)
    outcome = run_cases(dataclasses.replace(request, keep=True), stream=stream)
    for line in _written(outcome, request, files):
        print(line, file=stream or sys.stdout)
    return outcome


def selected_results(
    root: Path, run: str, selections: Sequence[str]
) -> tuple[list[CaseResult], Mapping[str, Any], tuple[str, ...]]:
    """The results that are meant, the options of their run, and notes.

    If the latest run is a replay without them, they are sought in the run before it.
    """
    directory = RunDirectory.open(root, run)
    if run == "latest":
        directory = latest_run(root, lambda options: options.get("command") != "minimise") or directory
    where = f"run {directory.id}{_HINT if run == 'latest' else ''}"
    journal = read_journal(directory.journal_path)
    try:
        return find_results(journal, selections, where), _options_of(journal), ()
    except UsageError:
        origin = latest_run(root, lambda options: is_run(options) or is_check(options)) if run == "latest" else None
        if origin is None or origin.id == directory.id:
            raise
    journal = read_journal(origin.journal_path)
    results = find_results(journal, selections, f"run {origin.id}{_HINT}")
    return results, _options_of(journal), (f"of run {origin.id}, the latest that is no replay",)


def _options_of(journal: Journal) -> Mapping[str, Any]:
    return journal.info.options if journal.info is not None else {}


def replay_request(results: Sequence[CaseResult], given: Mapping[str, Any], before: Mapping[str, Any]) -> RunRequest:
    """``before`` are the options of the run that is replayed."""
    settings = resolve(given)
    targets = {(each.backend, each.chip, each.device) for each in results}
    if len(targets) > 1 and not settings["backend"]:
        listed = ", ".join(sorted({each.target for each in results}))
        raise UsageError(f"these results come from {listed}; replay those of one backend at a time, or give --backend")
    first = results[0]
    driver = _driver_of(first, settings)
    settings = _as_then(driver, first, given, settings, before)
    configure(driver, settings)
    target = backend_manager.target(driver, settings["chip"] or first.chip, settings["variant"])
    timeout_s = settings["timeout"] if settings.stated("timeout") else None
    cases = [case_from_wire(each.case, operators.get) for each in results]
    cases = [
        dataclasses.replace(
            each, backend=_as_variant(target, each.backend, settings), timeout_s=timeout_s or each.timeout_s
        )
        for each in cases
    ]
    return RunRequest(settings=settings, document=None, driver=driver, target=target, cases=cases)


def _as_variant(target: BackendTarget, before: BackendTarget, settings: Settings) -> BackendTarget:
    """The same variant of the same backend again, unless another one is named."""
    if settings["variant"] or settings["compile_backend"] or target.name != before.name or before.variant is None:
        return target
    return dataclasses.replace(target, variant=before.variant)


def _driver_of(result: CaseResult, settings: Settings) -> BackendDriver:
    try:
        return backend_manager.select(settings["backend"] or result.backend, settings["chip"] or result.chip)
    except UnknownName as error:
        if settings["backend"] or not result.repro:
            raise
        raise UsageError(f"{error}\n  the program that ran the case has it: {result.repro}") from None


def _as_then(
    driver: BackendDriver, first: CaseResult, given: Mapping[str, Any], settings: Settings, before: Mapping[str, Any]
) -> Settings:
    """The options of the backend as the run had them, where its cases do not hold them and nobody states others."""
    if driver.name != first.backend or isinstance(driver, StatesCaseOptions):
        return settings
    then = {name: before[name] for name in options_of(driver) if name in before and not settings.stated(name)}
    if first.device and "torch_device" in options_of(driver) and not settings.stated("torch_device"):
        then["torch_device"] = first.device
    return resolve({**given, **then}) if then else settings


def find_results(journal: Journal, selections: Sequence[str], where: str = "") -> list[CaseResult]:
    """The results that are meant, each once and in the order of the plan; the last of several rounds.

    A selection is an id, a number (counted from 1), the beginning of a case key or a glob of ids. Without one,
    it is every result that is not well; ``latest`` is the run that is asked anyway.

    Raises:
        UsageError: if there is none, or the beginning of a key fits different cases.
        NothingSelected: if every failure is meant and there are none.
    """
    results: list[CaseResult] = []
    named = [each for each in selections if each not in _ALL_FAILURES]
    for each in named or _ALL_FAILURES[:1]:
        results += _meant(journal, each, where)
    latest = {(each.id, each.key): each for each in results}
    return in_plan_order(dataclasses.replace(each, round=0) for each in latest.values())


def _meant(journal: Journal, selection: str, where: str) -> list[CaseResult]:
    results = journal.results
    if selection.isdigit() and 1 <= int(selection) <= len(results):
        return [results[int(selection) - 1]]
    by_id = [each for each in results if each.id == selection]
    if by_id:
        return by_id[-1:]
    if selection in _ALL_FAILURES:
        bad = [each for each in results if each.status in BAD_STATUSES]
        if not bad:
            raise NothingSelected(f"nothing to replay: no case failed\n  at {where}")
        return bad
    by_key = [each for each in results if len(selection) >= 4 and each.key.startswith(selection)]
    if len({each.key for each in by_key}) > 1:
        raise UsageError(f"result {selection!r} fits {len(by_key)} cases: {', '.join(each.id for each in by_key)}")
    selected = matching_ids(selection, [each.id for each in results])
    fitting = by_key[-1:] or [each for each in results if each.id in selected]
    if fitting:
        return fitting
    run = journal.info.run_id if journal.info is not None else "latest"
    error = unknown_among("result", selection, [each.id for each in results], f"`optest report {run} -v`")
    raise UsageError(f"{error}\n  at {where}" if where else str(error))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """Where tensors and scripts go; ``script`` is the file of the only result, ``scripts`` a folder for several."""

    tensors: Path | None
    scripts: Path | None
    script: Path | None = None

    @classmethod
    def planned(cls, results: Sequence[CaseResult], save_to: str | None, script: str | None) -> _Files:
        """Try the paths before anything runs.

        Raises:
            UsageError: if one cannot be written, or one file is given for several scripts.
        """
        tensors = None if save_to is None else _folder(Path(save_to))
        if script is None:
            return cls(tensors=tensors, scripts=None)
        if not script:
            return cls(tensors=tensors, scripts=tensors or Path())
        path = Path(script)
        if path.is_dir() or path.suffix != ".py":
            return cls(tensors=tensors, scripts=_folder(path))
        if len(results) > 1:
            one = f"optest replay '{results[0].id}' --script {script}"
            wanted = f"a folder for {len(results)} results\n  or, for one of them: {one}"
            raise UsageError(f"--script is the file {script}, but should be {wanted}")
        check_writable(path)
        return cls(tensors=tensors, scripts=path.parent, script=path)


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"folder {path} cannot be made: {error.strerror or error}") from None
    check_writable(path / "tensors.npz")
    return path


def _written(outcome: Report, request: RunRequest, files: _Files) -> Iterable[str]:
    """Write what was asked for and say so, case by case."""
    kept = outcome.directory.tensors_dir()
    taken: set[str] = set()
    case_of = {(case.id, case.key): case for case in request.cases}
    for result in in_plan_order(outcome.results):
        case = case_of[result.id, result.key]
        stem = file_stem(result.id, taken)
        path = (files.tensors or kept) / f"{stem}.npz"
        names = save(result, case, kept, path)
        if names is None:
            yield f"nothing to save of {result.id}: {result.verdict.message or 'its inputs could not be made'}"
            continue
        if files.tensors is not None:
            yield f"saved: {path} ({', '.join(names)})"
        if files.scripts is not None:
            script = files.script or files.scripts / f"{stem}.py"
            replayed = Replayed(
                result=result,
                case=case,
                driver=request.driver,
                tensors=path,
                options=driver_options(request.settings, request.driver),
                plugins=plugin_modules(),
            )
            yield from _write_script(script, replayed)


def _write_script(path: Path, replayed: Replayed) -> Iterable[str]:
    """The script, and beside it the tensors that it reads, if it reads any."""
    beside = path.with_suffix(".npz")
    written = script_for(replayed, beside)
    write_atomically(path, written.text.encode())
    how = f"needs optest: {written.why_optest}" if written.why_optest else "needs no optest"
    reads = f", reads {beside.name}" if written.needs_tensors else ""
    if written.needs_tensors and (beside.resolve() != replayed.tensors.resolve() or written.arrays):
        archive = read_archive(replayed.tensors)
        write_archive(
            beside,
            Archive(tensors={**archive.tensors, **written.arrays}, offsets=archive.offsets, facts=archive.facts),
        )
    yield f"script: {path} ({how}{reads})"
