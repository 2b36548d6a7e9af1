"""``optest run``: connect cases, workers, journal and reports of one run."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from optest.api.earlier_runs import as_the_resumed_run, requested_options
from optest.api.report import Report, default_report_path, report_files
from optest.api.run_request import (
    RunRequest,
    driver_flags,
    driver_options,
    nothing_selected,
    run_request,
    without_usual_deadline,
)
from optest.api.worker_slots import WorkerSlots, bench_options, worker_slots
from optest.backends import backend_manager
from optest.backends.command_abilities import HasVariants, case_options_of
from optest.core.interruption import Interruption
from optest.core.provenance import changed, fingerprint, run_info
from optest.core.results import Execution
from optest.core.session import Policy, Session, Step
from optest.core.trusted_files import configuration_watched
from optest.errors import PlanError, UsageError, plural
from optest.guests import run_hooks
from optest.plan import case_plan, command_line
from optest.plan.expectations import remedy
from optest.plan.request import OF_CASES
from optest.process import ForkServer
from optest.registry import file_of_module
from optest.reporting import Reporter, ReportManager, make_reporter
from optest.reporting.figures import DECLARED, slowest
from optest.reporting.file_report import is_report
from optest.reporting.page import wants_color
from optest.reporting.terminal import TerminalReporter
from optest.settings import Origin, environment, plugin_modules, resolve, variables_set
from optest.spec import FORWARD, VALIDATION, CaseResult, RunInfo, RunSummary, TestCase
from optest.store import JournalWriter, RunDirectory, read_journal, resolve_path

_NARROWING = ("op", "keyword", "case", "tag", "skip_tag", "priority_max", "shard", "rerun_failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Steering:
    """Control of a run from another thread: ``choose`` yields the next execution, ``interruption`` ends the run."""

    choose: Callable[[Sequence[Execution]], Iterator[Step]] | None = None
    interruption: Interruption = field(default_factory=Interruption)


@dataclass(frozen=True, slots=True, kw_only=True)
class _BegunRun:
    """A run with its folder and its open journal; ``earlier`` are the results of the run that it resumes."""

    request: RunRequest
    directory: RunDirectory
    writer: JournalWriter
    fingerprint: Mapping[str, str]
    earlier: Mapping[object, CaseResult]


def run(
    options: Mapping[str, Any],
    *,
    stream: TextIO | None = None,
    reporters: Sequence[Reporter] = (),
    forks: ForkServer | None = None,
) -> Report:
    """Run the cases that the options select and return the report; see :data:`optest.settings.OPTIONS` for the names.

    ``reporters`` are added to the requested ones; ``forks`` is the server that forks the workers.
    """
    request = run_request(as_the_resumed_run(options), leaves_wrong_files_out=True)
    request = dataclasses.replace(request, forks=forks)
    outcome = run_cases(request, stream=stream, reporters=reporters)
    unused = unused_expectations(request, outcome.results, outcome.summary, _NARROWING)
    lines = tuple(f"{line}; {remedy}" for line, remedy in unused.items())
    return dataclasses.replace(outcome, unused_expectations=lines, exit_status=outcome.exit_status or int(bool(unused)))


def closing_lines(options: Mapping[str, Any], outcome: Report) -> Iterator[str]:
    """Yield the lines below a report: slow cases, notes of integrations, expected failures that did not occur."""
    settings = resolve(options)
    yield from slowest(outcome.results, settings["durations"])
    for hooks in run_hooks():
        yield from hooks.closing_notes(settings, outcome.results)
    for line in outcome.unused_expectations:
        yield f"expected failure did not occur: {line}"


def unused_expectations(
    request: RunRequest,
    results: Sequence[CaseResult],
    summary: RunSummary,
    narrowing: Iterable[str],
    dtypes: Collection[str] = (),
) -> dict[str, str]:
    """Return the expectations whose failures did not occur, each with a remedy.

    Return {} if the run is incomplete or an option of ``narrowing`` left out cases. With ``dtypes`` return only lines
    about these dtypes: others occur only in cases of mixed dtypes.
    """
    is_narrowed = any(request.settings[name] not in (None, "", ()) for name in narrowing)
    if is_narrowed or summary.interrupted or summary.finished < summary.total:
        return {}
    return {
        f"{line.name} ({line.where})": remedy(line, request.cases, results)
        for line in request.expectations.unused(request.cases, results)
        if not dtypes or line.dtype in dtypes
    }


def run_cases(
    request: RunRequest,
    *,
    stream: TextIO | None = None,
    reporters: Sequence[Reporter] = (),
    terminal: Reporter | None = None,
    steering: Steering | None = None,
) -> Report:
    """Run the cases of a request and return the report; ``terminal`` replaces the report on the terminal."""
    settings = request.settings
    if not request.cases:
        raise (
            PlanError(request.problems)
            if request.problems
            else nothing_selected(settings, request.every, request.notes)
        )
    bench_options(settings)  # reports a missing comparison before the run starts
    files = _report_files(request)
    if settings["timeline"]:
        files |= report_files(("timeline",), Path(settings["timeline"]))
    prints = fingerprint(
        plans=[Path(x.path) for x in reversed(request.document.family())] if request.document else [],
        cases=request.cases,
        plugins=(*plugin_modules(), *request.plugins),
        driver=request.driver,
        options=driver_options(settings, request.driver),
    )
    root, resume = Path(settings["runs_dir"]), settings["resume"]
    directory = RunDirectory.begin(root) if resume is None else RunDirectory.open(root, resume)
    steering = steering or Steering()
    with JournalWriter(directory.journal_path) as writer:  # first of all, as it locks the run for one writer
        begun = _BegunRun(
            request=request,
            directory=directory,
            writer=writer,
            fingerprint=prints,
            earlier=_earlier_results(directory, prints) if resume else {},
        )
        file_reporters = (
            make_reporter(form, stream=sys.stderr, path=path or default_report_path(form, directory.path))
            for form, path in files.items()
        )
        terminal = terminal or _terminal_reporter(request, stream or sys.stdout)
        if settings["shrink"] and isinstance(terminal, TerminalReporter):
            from optest.api.minimising import smallest_line  # few runs need it

            command_of = partial(repro_line, directory=directory, request=request)
            terminal.shrink = lambda x: smallest_line(request, x, steering.interruption, command_of)
        try:
            manager = ReportManager((terminal, *file_reporters, *reporters))
            with configuration_watched(), closing(worker_slots(request, directory, steering.interruption)) as lanes:
                return _run_in_lanes(begun, lanes, manager, steering)
        finally:
            steering.interruption.close_all()


def _run_in_lanes(begun: _BegunRun, lanes: WorkerSlots, manager: ReportManager, steering: Steering) -> Report:
    """Run the session, print faults outside the cases to stderr, and return the report with its exit status."""
    request, directory, settings = begun.request, begun.directory, begun.request.settings
    info = _run_info(begun, lanes)
    directory.write_info(info)
    session = Session(
        info=info,
        cases=request.cases if lanes.cases is None else lanes.cases,
        driver=request.driver,
        make_executor=lanes.make,
        dispatcher=lanes.dispatcher,
        notes=lanes.notes_at_end,
        journal=begun.writer,
        listener=manager,
        policy=Policy(
            jobs=lanes.jobs,
            retries=settings["retries"],
            rounds=settings["rounds"],
            maxfail=1 if settings["exitfirst"] else settings["maxfail"],
            isolation=lanes.isolation,
            dedupe=not settings["no_dedupe"],
            merges_unsupported=request.facts.get("command") == "check",
        ),
        repro=lambda case: repro_line(case, directory, request),
        earlier=begun.earlier,
        interruption=steering.interruption,
        revise=request.revise,
        choose=steering.choose,
    )
    with variables_set(lanes.variables):
        summary = session.run()
    request.driver.end_run(directory.path)
    status = summary.exit_status
    if session.failure is not None:
        print(f"optest: {session.failure}", file=sys.stderr)  # noqa: T201
        status = session.failure.exit_status
    if manager.failures and status in (0, 1):
        status = 3
    if request.problems and status in (0, 1, 5):
        status = 2
        for line in (*map(str, request.problems), f"optest: {_files_not_run(request)}"):
            print(line, file=sys.stderr)  # noqa: T201
    return Report(summary=summary, results=session.results, directory=directory, exit_status=status)


def _report_files(request: RunRequest) -> dict[str, Path | None]:
    """Return the paths of the reports that the command line and the plan request; the plan's path is relative to it.

    Raise ``UsageError`` if the plan's path is a file that is no report, or is outside an untrusted plan's folder.
    """
    settings, document = request.settings, request.document
    formats, path = set(settings["report"]), settings["report_path"]
    of_plan = document.report if document is not None else {}
    if "format" in of_plan:
        formats.add(of_plan["format"])
    if path is not None or document is None or "path" not in of_plan:
        return report_files(formats, None if path is None else Path(path))
    allowed = (os.path.dirname(document.path) or ".",) if settings["untrusted"] else ()
    files = report_files(formats, resolve_path(document.folder(), of_plan["path"], allowed))
    for file in files.values():
        if file is not None and resolve_path("", str(file), allowed).is_file() and not is_report(file):
            raise UsageError(
                f"report path {of_plan['path']} is the file {file}, which optest did not write\n"
                f"  at {document.where(('report', 'path'))}\n"
                f"  choose another path, remove the file, or overwrite it by: --report-path {file}"
            )
    return files


def _terminal_reporter(request: RunRequest, stream: TextIO) -> Reporter:
    settings = request.settings
    no_color = settings["no_color"] or (request.document is not None and request.document.report.get("color") is False)
    return make_reporter(
        "terminal",
        stream=stream,
        verbosity=settings["verbose"] - settings["quiet"],
        color=wants_color(stream, no_color=no_color, variables=environment()),
    )


def _earlier_results(directory: RunDirectory, prints: Mapping[str, str]) -> dict[object, CaseResult]:
    """Return the results of the run to resume by id, key, target and round; raise ``UsageError`` for changed files."""
    journal = read_journal(directory.journal_path)
    if journal.info is not None and (
        differences := changed(journal.info.fingerprint, prints, directory.journal_path.stat().st_mtime)
    ):
        listed = "\n".join(f"  {difference}" for difference in differences)
        raise UsageError(f"run {directory.id} cannot be resumed, since its results would not be comparable:\n{listed}")
    return {
        (name, key, result.target, result.round): result
        for result in journal.results
        for name, key in result.keys.items()
    }


def _run_info(begun: _BegunRun, lanes: WorkerSlots) -> RunInfo:
    request, directory, settings = begun.request, begun.directory, begun.request.settings
    configured = [name for name, value in settings.values.items() if value.origin is Origin.CONFIG]
    options = {name: settings[name] for name in configured if name not in OF_CASES} | requested_options(settings)
    options.pop("resume", None)
    seeds = {case.seed for case in request.cases}
    notes = [_files_not_run(request)] if request.problems else []
    notes += request.notes
    if request.driver.is_reference and not all(case.reference for case in request.cases):
        name = request.driver.name
        notes.append(f"the {name} backend is the reference itself; this run only validates the plan")
    return run_info(
        request.driver,
        directory,
        total=len(request.cases) * settings["rounds"],
        target=request.target.label(),
        seed=seeds.pop() if len(seeds) == 1 else settings["seed"] or 0,
        plan=request.document.path if request.document else "",
        isolation=lanes.isolation,
        jobs=lanes.jobs,
        options={**options, **request.facts, **_supported_operators(request)},
        fingerprint=begun.fingerprint,
        notes=(*notes, *lanes.notes),
    )


def _files_not_run(request: RunRequest) -> str:
    files = dict.fromkeys(problem.file for problem in request.problems)
    return f"{plural(len(request.problems), 'problem')}; not run: {', '.join(files)}"


def _supported_operators(request: RunRequest) -> dict[str, Any]:
    """Return the number of operators that the backend supports, for the coverage of model cases; {} for other cases."""
    is_of_models = any(tag.startswith("model_") for case in request.cases for tag in case.tags)
    if not is_of_models:
        return {}
    declared = request.driver.declares(sorted({case.descriptor.name for case in request.cases}))
    return {} if declared is None else {DECLARED: {"count": declared[0], "others": list(declared[1])}}


def repro_line(case: TestCase, directory: RunDirectory, request: RunRequest) -> str:
    """Return the command that re-runs exactly this case in a new shell; "" if no name selects the driver.

    If flags cannot describe the case, write it to a plan, which also holds the driver's options for every case.
    """
    of_driver = request.driver.command_line(case)
    if of_driver is None and request.driver.name not in backend_manager.names():
        return ""
    settings, options = request.settings, case_options_of(request.driver)
    case = without_usual_deadline(case, settings)
    of_group: list[str] = []
    if case.mode != FORWARD:
        # A case of `--group` computes no values.
        of_group = ["check", "--backend", case.backend.name, "--group", VALIDATION, "--op", case.descriptor.name]
        of_group += ["--case", case.id, "--tier", settings["tier"], "--seed", str(case.seed)]
    arguments = of_driver or of_group or command_line(_without_options(case, options))
    flags = driver_flags(settings)
    if arguments is None:
        flags = [] if options else flags
        text = case_plan(case)
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()  # cases of one key may differ in options
        path = directory.artifact_dir(case.key) / f"case-{digest}.yaml"
        path.write_text(text, encoding="utf-8")
        arguments = ["run", "--plan", str(path)]
    variant = case.backend.variant
    if variant and isinstance(request.driver, HasVariants) and variant in request.driver.variants[:-1]:
        flags = [*flags, "--variant", variant]
    line = shlex.join(["optest", *arguments, *flags])
    plugins = (*plugin_modules(), *request.plugins)
    if not plugins:
        return line
    files = [Path(file).resolve() for module in plugins if (file := file_of_module(module))]
    entries = [entry for entry in environment().get("PYTHONPATH", "").split(os.pathsep) if entry]
    # A plug-in in an entry of PYTHONPATH may import modules from the other entries.
    if not any(file.is_relative_to(Path(entry).resolve()) for entry in entries for file in files):
        entries = []
    search = os.pathsep.join(dict.fromkeys([*entries, *_import_folders(request.plugins)]))
    variable = f"PYTHONPATH={shlex.quote(search)} " if search else ""
    return f"{variable}OPTEST_PLUGINS={shlex.quote(','.join(plugins))} {line}"


def _without_options(case: TestCase, options: Mapping[str, Any]) -> TestCase:
    """Return the case without ``options`` in its ``backend_config``; unchanged if it has other values of them."""
    config = dict(case.backend_config.get(case.backend.name, {}))
    if not options or any(config.get(key) != value for key, value in options.items()):
        return case
    rest = {key: value for key, value in config.items() if key not in options}
    others = {name: section for name, section in case.backend_config.items() if name != case.backend.name}
    return dataclasses.replace(case, backend_config={**others, **({case.backend.name: rest} if rest else {})})


def _import_folders(modules: Iterable[str]) -> Iterable[str]:
    """Yield the folders, relative to the current one, from which these modules are imported, except the current one."""
    for module in modules:
        if file := file_of_module(module):
            folder = os.path.relpath(Path(file).parents[module.count(".")])
            yield from () if folder == "." else (folder,)
