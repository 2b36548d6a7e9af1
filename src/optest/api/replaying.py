"""``optest replay`` and ``optest minimise``: re-run cases of an earlier run, save their tensors, reduce a failure."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from optest.api.earlier_runs import selected_results
from optest.api.minimising import case_in_words, smallest_failure
from optest.api.report import Report
from optest.api.run_request import RunRequest, configure, driver_options, without_usual_deadline
from optest.api.running import run_cases
from optest.api.saving import file_stem, save
from optest.api.scripts import Replayed, script_for
from optest.api.startup import bootstrap
from optest.backends import BackendDriver, backend_manager
from optest.backends.command_abilities import StoresCaseOptions
from optest.core.interruption import Interruption
from optest.core.kept_tensors import Archive, read_archive, write_archive
from optest.core.wire import case_from_wire
from optest.errors import UnknownName, UsageError, plural
from optest.operators import operators
from optest.plan import case_plan
from optest.reporting.tally import in_plan_order
from optest.settings import Settings, plugin_modules, resolve
from optest.spec import BAD_STATUSES, CaseResult
from optest.store import check_writable, create_folder, write_atomically


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


def minimise(
    selections: Sequence[str],
    run: str,
    options: Mapping[str, Any],
    *,
    most_s: float,
    write: str | None = None,
    stream: TextIO | None = None,
) -> Report:
    """Minimise the first failure of these results, run the smallest case and return its report.

    Start no attempt after ``most_s`` seconds. Write the smallest case as a plan to the file ``write``.

    Raises:
        UsageError: if no selected result failed, the case does not fail again, or it cannot be reduced.
    """
    bootstrap()
    if write is not None:
        check_writable(Path(write))
    results, before, notes = selected_results(Path(resolve(options)["runs_dir"]), run, selections)
    failed = next((result for result in results if result.status in BAD_STATUSES), None)
    if failed is None:
        raise UsageError(f"{results[0].id} did not fail: it {results[0].status.value}; name a failure")
    request = replay_request([failed], options, before)
    smallest = smallest_failure(request, most_s, Interruption())
    facts = {**request.facts, "command": "minimise"}
    outcome = run_cases(dataclasses.replace(request, cases=[smallest.case], notes=notes, facts=facts), stream=stream)
    sizes = f"from {case_in_words(request.cases[0])} to {case_in_words(smallest.case)}"
    change = f"reduced {sizes}: {', '.join(smallest.reduced)}" if smallest.reduced else "cannot be reduced"
    lines = [f"{change}; {plural(smallest.attempts, 'attempt')}{smallest.ended}"]
    if write is not None:
        write_atomically(Path(write), case_plan(without_usual_deadline(smallest.case, request.settings)).encode())
        lines.append(f"plan: {write}")
    print(*lines, sep="\n", file=stream or sys.stdout)
    return outcome


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
    cases = []
    for case in (case_from_wire(result.case, operators.get) for result in results):
        # The variant of the earlier run, unless backend or variant are others now.
        is_other = settings["variant"] or settings["compile_backend"] or target.name != case.backend.name
        variant = target.variant if is_other or case.backend.variant is None else case.backend.variant
        backend = dataclasses.replace(target, variant=variant)
        cases.append(dataclasses.replace(case, backend=backend, timeout_s=timeout_s or case.timeout_s))
    return RunRequest(settings=settings, document=None, driver=driver, target=target, cases=cases)


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
    earlier = {name: before[name] for name in driver.options if name in before and not settings.is_set(name)}
    if first.device and "torch_device" in driver.options and not settings.is_set("torch_device"):
        earlier["torch_device"] = first.device
    return resolve({**options, **earlier}) if earlier else settings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _OutputFiles:
    """Folders of tensors and scripts, None for neither; ``script`` is the file of the only result."""

    tensors: Path | None
    scripts: Path | None
    script: Path | None = None

    @classmethod
    def planned(cls, results: Sequence[CaseResult], save_to: str | None, script: str | None) -> _OutputFiles:
        """Create the folders; raise ``UsageError`` if a path cannot be written, or is one file for several scripts."""
        tensors = None if save_to is None else _writable_folder(Path(save_to))
        if script is None:
            return cls(tensors=tensors, scripts=None)
        if not script:
            return cls(tensors=tensors, scripts=tensors or Path())
        path = Path(script)
        if path.is_dir() or path.suffix != ".py":
            return cls(tensors=tensors, scripts=_writable_folder(path))
        if len(results) > 1:
            raise UsageError(
                f"--script is the file {script}, expected a folder for {len(results)} results\n"
                f"  or, for one of them: optest replay '{results[0].id}' --script {script}"
            )
        check_writable(path)
        return cls(tensors=tensors, scripts=path.parent, script=path)


def _writable_folder(path: Path) -> Path:
    """Create a folder, check that files can be written there, and return its path."""
    check_writable(create_folder(path) / "tensors.npz")
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
