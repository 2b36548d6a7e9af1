"""``optest replay``: re-run cases of a journal exactly, save their tensors, write their failures as scripts."""

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
from optest.backends.command_abilities import StoresCaseOptions, options_of
from optest.core.kept_tensors import Archive, read_archive, write_archive
from optest.core.wire import case_from_wire
from optest.errors import NothingSelected, UnknownName, UsageError
from optest.operators import operators
from optest.plan.select import matching_ids
from optest.reporting.tally import in_plan_order
from optest.settings import Settings, plugin_modules, resolve
from optest.spec import BAD_STATUSES, BackendTarget, CaseResult
from optest.store import Journal, RunDirectory, check_writable, read_journal, write_atomically

_HINT = "; replays are runs, too: name an earlier one by --run"
_ALL_FAILURES = ("latest", "last")


def replay(
    selections: Sequence[str],
    run: str,
    options: Mapping[str, Any],
    *,
    save_to: str | None = None,
    script: str | None = None,
    stream: TextIO | None = None,
) -> Report:
    """Re-run the cases of these results with the same inputs, on the same backend unless ``options`` name another.

    ``save_to`` is a folder for their tensors. ``script`` is a file or folder for scripts, "" for files here.

    Raises:
        UnknownName: if there is no such run.
        UsageError: if there is no such result, it matches several cases, or a path cannot be written.
        NothingSelected: if no result is named and the run has no failure.
    """
    bootstrap(accept_config=bool(options.get("accept_config")))
    settings = resolve(options)
    results, before, notes = selected_results(Path(settings["runs_dir"]), run, selections)
    request = dataclasses.replace(replay_request(results, options, before), notes=notes)
    if save_to is None and script is None:
        return run_cases(request, stream=stream)
    files = _OutputFiles.planned(results, save_to, script)
    outcome = run_cases(dataclasses.replace(request, keep=True), stream=stream)
    for line in _write_files(outcome, request, files):
        print(line, file=stream or sys.stdout)
    return outcome


def selected_results(
    root: Path, run: str, selections: Sequence[str]
) -> tuple[list[CaseResult], Mapping[str, Any], tuple[str, ...]]:
    """Return the selected results, the options of their run, and notes.

    If the latest run is a replay without them, search the latest run or check.
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
    return results, _options_of(journal), (f"cases of run {origin.id}, the latest that is no replay",)


def _options_of(journal: Journal) -> Mapping[str, Any]:
    return journal.info.options if journal.info is not None else {}


def replay_request(results: Sequence[CaseResult], options: Mapping[str, Any], before: Mapping[str, Any]) -> RunRequest:
    """Return the request that re-runs these results; ``before`` are the options of their run."""
    settings = resolve(options)
    targets = {(result.backend, result.chip, result.device) for result in results}
    if len(targets) > 1 and not settings["backend"]:
        listed = ", ".join(sorted({result.target for result in results}))
        raise UsageError(f"these results come from {listed}; replay the results of one backend, or give --backend")
    first = results[0]
    driver = _driver_of(first, settings)
    settings = _with_earlier_options(driver, first, options, settings, before)
    configure(driver, settings)
    target = backend_manager.target(driver, settings["chip"] or first.chip, settings["variant"])
    timeout_s = settings["timeout"] if settings.is_set("timeout") else None
    cases = [case_from_wire(result.case, operators.get) for result in results]
    cases = [
        dataclasses.replace(
            case, backend=_with_variant(target, case.backend, settings), timeout_s=timeout_s or case.timeout_s
        )
        for case in cases
    ]
    return RunRequest(settings=settings, document=None, driver=driver, target=target, cases=cases)


def _with_variant(target: BackendTarget, before: BackendTarget, settings: Settings) -> BackendTarget:
    """Return the target with the variant of the earlier run, unless backend or variant are now others."""
    if settings["variant"] or settings["compile_backend"] or target.name != before.name or before.variant is None:
        return target
    return dataclasses.replace(target, variant=before.variant)


def _driver_of(result: CaseResult, settings: Settings) -> BackendDriver:
    try:
        return backend_manager.select(settings["backend"] or result.backend, settings["chip"] or result.chip)
    except UnknownName as error:
        if settings["backend"] or not result.repro:
            raise
        raise UsageError(f"{error}\n  only the program that ran the case has this backend: {result.repro}") from None


def _with_earlier_options(
    driver: BackendDriver, first: CaseResult, options: Mapping[str, Any], settings: Settings, before: Mapping[str, Any]
) -> Settings:
    """Add the backend's options of the earlier run, unless they are explicit now or stored in the cases."""
    if driver.name != first.backend or isinstance(driver, StoresCaseOptions):
        return settings
    earlier = {name: before[name] for name in options_of(driver) if name in before and not settings.is_set(name)}
    if first.device and "torch_device" in options_of(driver) and not settings.is_set("torch_device"):
        earlier["torch_device"] = first.device
    return resolve({**options, **earlier}) if earlier else settings


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _OutputFiles:
    """Folders of tensors and scripts, None for neither; ``script`` is the file of the only result."""

    tensors: Path | None
    scripts: Path | None
    script: Path | None = None

    @classmethod
    def planned(cls, results: Sequence[CaseResult], save_to: str | None, script: str | None) -> _OutputFiles:
        """Create the folders; raise ``UsageError`` if a path cannot be written, or is one file for several scripts."""
        tensors = None if save_to is None else _create_folder(Path(save_to))
        if script is None:
            return cls(tensors=tensors, scripts=None)
        if not script:
            return cls(tensors=tensors, scripts=tensors or Path())
        path = Path(script)
        if path.is_dir() or path.suffix != ".py":
            return cls(tensors=tensors, scripts=_create_folder(path))
        if len(results) > 1:
            raise UsageError(
                f"--script is the file {script}, expected a folder for {len(results)} results\n"
                f"  or, for one of them: optest replay '{results[0].id}' --script {script}"
            )
        check_writable(path)
        return cls(tensors=tensors, scripts=path.parent, script=path)


def _create_folder(path: Path) -> Path:
    """Create a folder, check that files can be written there, and return its path."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"folder {path} cannot be created: {error.strerror or error}") from None
    check_writable(path / "tensors.npz")
    return path


def _write_files(outcome: Report, request: RunRequest, files: _OutputFiles) -> Iterable[str]:
    """Write the tensors and scripts of each case and yield a line for each file."""
    kept = outcome.directory.tensors_dir()
    taken: set[str] = set()
    case_of = {(case.id, case.key): case for case in request.cases}
    for result in in_plan_order(outcome.results):
        case = case_of[result.id, result.key]
        stem = file_stem(result.id, taken)
        path = (files.tensors or kept) / f"{stem}.npz"
        names = save(result, case, kept, path)
        if names is None:
            yield f"nothing to save of {result.id}: {result.verdict.message or 'its inputs could not be created'}"
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
    """Write a script, and next to it the tensors that it reads, if any; yield a line about it."""
    tensors = path.with_suffix(".npz")
    script = script_for(replayed, tensors)
    write_atomically(path, script.text.encode())
    needs = f"needs optest: {script.why_optest}" if script.why_optest else "does not need optest"
    reads = f", reads {tensors.name}" if script.needs_tensors else ""
    if script.needs_tensors and (tensors.resolve() != replayed.tensors.resolve() or script.arrays):
        archive = read_archive(replayed.tensors)
        merged = {**archive.tensors, **script.arrays}
        write_archive(tensors, Archive(tensors=merged, offsets=archive.offsets, facts=archive.facts))
    yield f"script: {path} ({needs}{reads})"
