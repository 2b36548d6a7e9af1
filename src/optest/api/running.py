"""``optest run``: cases, workers, journal and reports put together for one run."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import secrets
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from tempfile import gettempdir
from typing import Any, TextIO

from optest.api.asking import Asked, asked, driver_options, flags_of, nothing_left
from optest.api.benching import bench_notes, bench_options
from optest.api.provenance import changed, fingerprint, host, versions
from optest.api.reports import default_report_path, report_files
from optest.backends.abilities import CountsOperators, NeedsEnvironment, case_options_of, keeps_deadline
from optest.core.deadlines import Deadlines, PhaseLimits
from optest.core.executors import Executor, InProcess
from optest.core.messages import NotInWorker
from optest.core.schedule import Execution
from optest.core.session import Interruption, Policy, Session, Turn
from optest.core.worker_process import WorkerOptions, WorkerProcess
from optest.errors import PlanError, UsageError
from optest.plan import PlanDocument, case_plan, command_line
from optest.plan.expectations import remedy
from optest.registry import file_of_module
from optest.reporting import Reporter, ReportManager, make_reporter
from optest.reporting.figures import DECLARED
from optest.reporting.file_report import is_report
from optest.reporting.page import wants_color
from optest.settings import Origin, Settings, environment, plugin_modules, resolve, variables_set
from optest.spec import CaseResult, RunInfo, RunSummary, TestCase
from optest.store import JournalWriter, RunDirectory, read_journal, resolve_path
from optest.torch.cases import other_strides, unused_fallbacks

__all__ = ["RunOutcome", "closing_notes", "run", "run_cases"]


_NARROWING = ("op", "keyword", "case", "tag", "skip_tag", "priority_max", "shard", "rerun_failed")
_WHERE_TO_STOP = frozenset({"exitfirst", "maxfail"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How a run went. ``exit_status`` also counts what went wrong outside the cases."""

    summary: RunSummary
    results: Sequence[CaseResult]
    directory: RunDirectory
    exit_status: int
    left_over: tuple[str, ...] = ()
    """Lines of expectations that excused nothing, with what to do about each."""


def closing_notes(settings: Settings, outcome: RunOutcome) -> Iterator[str]:
    """Lines about the whole run: fallbacks that are not needed, other strides, expectations that did not come true."""
    yield from unused_fallbacks(settings["allow_fallback"], outcome.results)
    yield from other_strides(outcome.results)
    for line in outcome.left_over:
        yield f"expected, but did not happen: {line}"


def run(given: Mapping[str, Any], *, stream: TextIO | None = None, reporters: Sequence[Reporter] = ()) -> RunOutcome:
    """Run what the options in ``given`` ask for; names and meanings are those of :data:`optest.settings.OPTIONS`.

    ``reporters`` hear the run beside those that the options name.

    Raises:
        OptestError: for anything that keeps the run from starting; its ``exit_status`` says which kind.
    """
    request = asked(_as_before(given), leaves_wrong_files_out=True)
    outcome = run_cases(request, stream=stream, reporters=reporters)
    left_over = _left_over(request, outcome)
    return dataclasses.replace(outcome, left_over=left_over, exit_status=outcome.exit_status or int(bool(left_over)))


def _left_over(request: Asked, outcome: RunOutcome) -> tuple[str, ...]:
    """The lines of expectations that excused nothing, if everything that they are about was run."""
    summary, settings = outcome.summary, request.settings
    if summary.interrupted or summary.finished < summary.total or any(map(settings.stated, _NARROWING)):
        return ()
    return tuple(
        f"{line.name} ({line.where}); {remedy(line, request.cases, outcome.results)}"
        for line in request.expectations.unused(request.cases, outcome.results)
    )


def _as_before(given: Mapping[str, Any]) -> Mapping[str, Any]:
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
    return {**before, **_asked_for(settings)}


def _asked_for(settings: Settings) -> dict[str, Any]:
    """The options that somebody gave, by name; what a plan says is read from the plan."""
    return {name: value.value for name, value in settings.values.items() if value.origin > Origin.PLAN}


def run_cases(
    request: Asked,
    *,
    stream: TextIO | None = None,
    reporters: Sequence[Reporter] = (),
    terminal: Reporter | None = None,
    choose: Callable[[Sequence[Execution]], Iterator[Turn]] | None = None,
    interruption: Interruption | None = None,
) -> RunOutcome:
    """Run cases that were asked for already; ``terminal`` takes the place of the report on the terminal.

    ``choose`` says one by one which execution is next (:class:`optest.core.session.Session`); ``interruption`` ends
    the run from another thread.
    """
    settings = request.settings
    if not request.cases:
        raise PlanError(request.problems) if request.problems else nothing_left(settings)
    bench_options(settings)  # a comparison that is not there is said before anything is begun
    report_files = _report_files(request)
    prints = fingerprint(
        plans=[Path(each.path) for each in reversed(request.document.family())] if request.document else [],
        cases=request.cases,
        plugins=plugin_modules(),
        driver=request.driver,
    )
    directory = _directory(settings["resume"], Path(settings["runs_dir"]))
    with JournalWriter(directory.journal_path) as writer:  # before anything else is touched: a run has one writer
        earlier = _earlier(directory, prints) if settings["resume"] else {}
        shown = terminal or _terminal(request, stream or sys.stdout)
        interruption = interruption or Interruption()
        try:
            return _run_in(
                directory,
                request,
                writer,
                prints,
                report_files,
                earlier,
                (shown, *reporters),
                choose,
                interruption,
            )
        finally:
            interruption.done()


def _run_in(
    directory: RunDirectory,
    request: Asked,
    writer: JournalWriter,
    prints: Mapping[str, str],
    report_files: Mapping[str, Path | None],
    earlier: Mapping[object, CaseResult],
    reporters: Sequence[Reporter],
    choose: Callable[[Sequence[Execution]], Iterator[Turn]] | None,
    interruption: Interruption,
) -> RunOutcome:
    settings = request.settings
    lanes = _Lanes.choose(request, directory, interruption)
    info = _info(request, directory, lanes, prints)
    directory.write_info(info)
    manager = ReportManager(
        (
            reporters[0],  # the terminal's hears everything first
            *(
                make_reporter(form, stream=sys.stderr, path=path or default_report_path(form, directory.path))
                for form, path in report_files.items()
            ),
            *reporters[1:],
        )
    )
    session = Session(
        info=info,
        cases=request.cases,
        driver=request.driver,
        make_executor=lanes.make,
        journal=writer,
        listener=manager,
        policy=Policy(
            jobs=lanes.jobs,
            retries=settings["retries"],
            rounds=settings["rounds"],
            maxfail=1 if settings["exitfirst"] else settings["maxfail"],
            isolation=lanes.isolation,
            dedupe=not settings["no_dedupe"],
        ),
        repro=lambda case: _repro(case, directory, settings, case_options_of(request.driver)),
        earlier=earlier,
        interruption=interruption,
        revise=request.revise,
        choose=choose,
    )
    with variables_set(_compile_cache_here(request, directory) if lanes.isolation == "none" else {}):
        summary = session.run()
    status = summary.exit_status
    if session.failure is not None:
        print(f"optest: {session.failure}", file=sys.stderr)  # noqa: T201
        status = session.failure.exit_status
    if manager.failures and status in (0, 1):
        status = 3
    if request.problems and status in (0, 1, 5):
        status = 2
        for line in (*map(str, request.problems), f"optest: {_left_out(request)}"):
            print(line, file=sys.stderr)  # noqa: T201
    return RunOutcome(summary=summary, results=session.results, directory=directory, exit_status=status)


def _report_files(request: Asked) -> dict[str, Path | None]:
    """What the command line and the plan ask for; the plan's path is relative to it."""
    settings = request.settings
    wanted, path = set(settings["report"]), settings["report_path"]
    stated = request.document.report if request.document is not None else {}
    if "format" in stated:
        wanted.add(stated["format"])
    if path is not None or request.document is None or "path" not in stated:
        return report_files(wanted, None if path is None else Path(path))
    return _files_of_the_plan(wanted, request.document, untrusted=settings["untrusted"])


def _files_of_the_plan(wanted: Collection[str], document: PlanDocument, *, untrusted: bool) -> dict[str, Path | None]:
    """Reports that a plan asks for take the place of earlier ones, and of no other file.

    Raises:
        UsageError: if another file is there, or an untrusted plan leads out of its folder.
    """
    stated, allowed = document.report["path"], (os.path.dirname(document.path) or ".",) if untrusted else ()
    files = report_files(wanted, resolve_path(document.folder(), stated, allowed))
    for file in files.values():
        if file is not None and resolve_path("", str(file), allowed).is_file() and not is_report(file):
            raise UsageError(
                f"report path {stated} leads to {file}, which is no report of optest's\n"
                f"  at {document.where(('report', 'path'))}\n"
                f"  choose another path, remove the file, or say on the command line: --report-path {file}"
            )
    return files


def _terminal(request: Asked, stream: TextIO) -> Reporter:
    settings = request.settings
    no_color = settings["no_color"] or (request.document is not None and request.document.report.get("color") is False)
    return make_reporter(
        "terminal",
        stream=stream,
        verbosity=settings["verbose"] - settings["quiet"],
        color=wants_color(stream, no_color=no_color, variables=environment()),
    )


def _directory(resume: str | None, root: Path) -> RunDirectory:
    """A new run's folder, or that of the run to go on with."""
    if resume is None:
        return RunDirectory.create(root, now=datetime.now(timezone.utc), token=secrets.token_hex(3))
    return RunDirectory.open(root, resume)


def _earlier(directory: RunDirectory, prints: Mapping[str, str]) -> dict[object, CaseResult]:
    """Results of the run to go on with, by what makes them the result of a case.

    Raises:
        UsageError: if something changed since that run, naming it.
    """
    journal = read_journal(directory.journal_path)
    if journal.info is not None:
        differences = changed(journal.info.fingerprint, prints, directory.journal_path.stat().st_mtime)
        if differences:
            listed = "\n".join(f"  {difference}" for difference in differences)
            raise UsageError(
                f"run {directory.id} cannot be resumed, since its results would not be comparable:\n{listed}"
            )
    return {(result.id, result.key, result.target, result.round): result for result in journal.results}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lanes:
    """Where executions happen: ``make(lane)`` gives an executor; ``notes`` is what the report has to say of it."""

    make: Callable[[int], Executor]
    isolation: str
    jobs: int
    notes: tuple[str, ...] = ()

    @classmethod
    def choose(cls, request: Asked, directory: RunDirectory, interruption: Interruption) -> _Lanes:
        """Resolve ``--isolate auto``: foreign code goes to workers, optest's own references stay here.

        Raises:
            UsageError: if workers were asked for and cannot find the driver.
            Unavailable: if the driver lacks something on this machine.
        """
        wanted, jobs = request.settings["isolate"], request.settings["jobs"]
        bench = bench_options(request.settings)
        bench_s = 4 * bench.target_s if bench else 0.0
        keep = directory.tensors_dir() if request.keep else None
        if wanted == "none" or (wanted == "auto" and jobs == 1 and not _runs_foreign_code(request)):
            if jobs > 1:
                raise UsageError("--jobs needs workers, but --isolate none runs in this process; drop one of them")
            return cls.here(request, interruption, keep)
        options = WorkerOptions(
            driver=request.driver.name,
            scratch=directory.path,
            environment=worker_environment(
                {
                    **_compile_cache(request, directory),
                    **_needed_environment(request),
                    **_stated_by_the_user(environment()),
                },
                jobs,
            ),
            options=driver_options(request.settings),
            plugins=plugin_modules(),
            every_measure=request.wants_every_measure,
            fresh=wanted == "case",
            limits=PhaseLimits(times=jobs, extra_s=60.0, bench_s=bench_s, deadlines=_deadlines(request))
            if keeps_deadline(request.driver)
            else PhaseLimits(bench_s=bench_s, deadlines=_deadlines(request)),
            keep=keep,
            bench=bench,
        )
        first = WorkerProcess(options, "worker-0")
        interruption.ends(first)  # who loads a framework for minutes, too
        try:
            first.start()
        except NotInWorker as error:
            if wanted != "auto" or (jobs > 1 and request.settings.stated("jobs")):
                raise
            note = f"run in this process: {str(error).splitlines()[0]}"
            here = cls.here(request, interruption, keep)
            return dataclasses.replace(here, notes=(note, *here.notes))
        return cls(
            make=lambda lane: first if lane == 0 else WorkerProcess(options, f"worker-{lane}"),
            isolation="case" if options.fresh else "worker",
            jobs=jobs,
            notes=tuple(bench_notes(bench, jobs)),
        )

    @classmethod
    def here(cls, request: Asked, interruption: Interruption, keep: Path | None) -> _Lanes:
        executor = InProcess(
            request.driver,
            request.wants_every_measure,
            interruption,
            keep,
            bench_options(request.settings),
            _deadlines(request),
        )
        unkept = request.driver.isolated and not keeps_deadline(request.driver)
        notes = ("run in this process: deadlines are not kept, and a crash ends the run",) if unkept else ()
        return cls(make=lambda _: executor, isolation="none", jobs=1, notes=notes)


def _deadlines(request: Asked) -> Deadlines:
    """One record for all lanes; a deadline that the user stated for the run stays as it is."""
    settings = request.settings
    return Deadlines(usual_s=None if settings.stated("timeout") else settings["timeout"])


def _compile_cache(request: Asked, directory: RunDirectory) -> dict[str, str]:
    """Where a compiler of torch keeps what it made: with the run, so that no run gets another one's kernels."""
    if not request.settings["compile_backend"]:
        return {}
    return {_CACHE: str((directory.path / "compiled").absolute())}


def _compile_cache_here(request: Asked, directory: RunDirectory) -> dict[str, str]:
    """The same for a compiler that works in this process, unless the user stated another folder."""
    stated = _stated_by_the_user(environment())
    return {name: value for name, value in _compile_cache(request, directory).items() if name not in stated}


_CACHE = "TORCHINDUCTOR_CACHE_DIR"


def _stated_by_the_user(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables without the folder that torch states for itself as soon as it is loaded, which is nobody's wish."""
    cache = Path(variables.get(_CACHE, ""))
    is_default = cache.name.startswith("torchinductor_") and cache.parent == Path(gettempdir())
    return {name: value for name, value in variables.items() if name != _CACHE or not is_default}


def _runs_foreign_code(request: Asked) -> bool:
    return (
        request.driver.isolated
        or any(case.generator or case.reference for case in request.cases)
        or any(callable(case.descriptor.reference) or _is_foreign(case.descriptor.reference) for case in request.cases)
    )


def _is_foreign(path: object) -> bool:
    return isinstance(path, str) and not path.startswith("optest.")


def worker_environment(variables: Mapping[str, str], jobs: int) -> dict[str, str]:
    """The environment of a worker: BLAS threads fight with worker processes, so each gets one."""
    limits = {"OPENBLAS_NUM_THREADS": "1"}
    if jobs > 1:
        limits |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    return {**limits, **variables}


def _info(request: Asked, directory: RunDirectory, lanes: _Lanes, prints: Mapping[str, str]) -> RunInfo:
    settings = request.settings
    given = {name: value for name, value in _asked_for(settings).items() if name != "resume"}
    return RunInfo(
        run_id=directory.id,
        started_at=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        total=len(request.cases) * settings["rounds"],
        target=request.target.label(),
        seed=_seed(request),
        directory=str(directory.path),
        plan=request.document.path if request.document else "",
        isolation=lanes.isolation,
        jobs=lanes.jobs,
        optest_version=versions(request.driver)["optest"],
        versions=versions(request.driver),
        host=host(),
        options={**given, **request.facts, **_declared(request)},
        fingerprint=prints,
        notes=(
            *((_left_out(request),) if request.problems else ()),
            *request.notes,
            *_what_passes_show(request),
            *lanes.notes,
        ),
    )


def _left_out(request: Asked) -> str:
    files = dict.fromkeys(problem.file for problem in request.problems)
    count = len(request.problems)
    return f"{count} problem{'s' if count != 1 else ''} found; not run: {', '.join(files)}"


def _declared(request: Asked) -> dict[str, Any]:
    """How many operators the backend declares, where the cases are calls of models and coverage is of interest."""
    if not any(tag.startswith("model_") for case in request.cases for tag in case.tags):
        return {}
    if not isinstance(request.driver, CountsOperators):
        return {}
    found = request.driver.declares(sorted({case.descriptor.name for case in request.cases}))
    return {} if found is None else {DECLARED: {"count": found[0], "others": list(found[1])}}


def _needed_environment(request: Asked) -> Mapping[str, str]:
    """What the driver's workers need from their start."""
    driver = request.driver
    return driver.environment(request.cases) if isinstance(driver, NeedsEnvironment) else {}


def _seed(request: Asked) -> int:
    """The seed of the run: what its cases agree on, else what was stated above them."""
    seeds = {case.seed for case in request.cases}
    return seeds.pop() if len(seeds) == 1 else request.settings["seed"] or 0


def _what_passes_show(request: Asked) -> tuple[str, ...]:
    if not request.driver.is_reference:
        return ()
    return (f"{request.driver.name} answers with the references: passes show plan and rules at work, not a kernel",)


def _repro(case: TestCase, directory: RunDirectory, settings: Settings, options: Mapping[str, Any]) -> str:
    """The command that runs exactly this case again, in a shell that knows nothing of this one.

    What flags cannot say is written to a one-case plan. ``options`` are those of the driver that every case holds: a
    plan holds them too.
    """
    if case.timeout_s == settings["timeout"] and not settings.stated("timeout"):
        case = dataclasses.replace(case, timeout_s=None)
    arguments = command_line(_without(options, case))
    flags = flags_of(settings)
    if arguments is None:
        flags = [] if options else flags
        text = case_plan(case)
        digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()  # cases of one key may differ in options
        path = directory.artifact_dir(case.key) / f"case-{digest}.yaml"
        path.write_text(text, encoding="utf-8")
        arguments = ["run", "--plan", str(path)]
    line = shlex.join(["optest", *arguments, *flags])
    plugins = plugin_modules()
    if not plugins:
        return line
    search = os.pathsep.join(_entries_that_find(plugins, environment().get("PYTHONPATH", "")))
    found_by = f"PYTHONPATH={shlex.quote(search)} " if search else ""
    return f"{found_by}OPTEST_PLUGINS={shlex.quote(','.join(plugins))} {line}"


def _without(options: Mapping[str, Any], case: TestCase) -> TestCase:
    """The case without what flags say of it."""
    config = dict(case.backend_config.get(case.backend.name, {}))
    if not options or any(config.get(key) != value for key, value in options.items()):
        return case
    rest = {key: value for key, value in config.items() if key not in options}
    others = {name: each for name, each in case.backend_config.items() if name != case.backend.name}
    return dataclasses.replace(case, backend_config={**others, **({case.backend.name: rest} if rest else {})})


def _entries_that_find(modules: Iterable[str], search: str) -> list[str]:
    """The entries of a PYTHONPATH below which these modules lie."""
    files = [Path(file).resolve() for module in modules if (file := file_of_module(module))]
    entries = [entry for entry in search.split(os.pathsep) if entry]
    return [entry for entry in entries if any(file.is_relative_to(Path(entry).resolve()) for file in files)]
