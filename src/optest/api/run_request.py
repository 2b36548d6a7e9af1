"""Resolve the options of a user into a request for a run: settings, driver and cases."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from optest.api.earlier_runs import as_in_the_earlier_run, failed_first, requested_options, rerun_of, what_failed
from optest.api.source_cases import SourceDocument, known_differences, source_documents, with_origin
from optest.api.startup import bootstrap
from optest.backends import BackendDriver, backend_manager
from optest.backends.command_abilities import case_options_of, config_problems
from optest.core.trusted_files import refuse_changed_configuration
from optest.errors import (
    NothingSelected,
    OptionNotTaken,
    PlanError,
    Problem,
    Unavailable,
    UnknownName,
    UsageError,
    plural,
)
from optest.generators.fills import check_fill
from optest.guests import backends_of, run_hooks
from optest.operators import operators
from optest.plan import CaseRequest, PlanDocument, PlanHost, build_cases, open_plan, request_from
from optest.plan.backend_options import configured_backends, unused_options
from optest.plan.dialects import Facts
from optest.plan.expectations import Expectations, read_expectations
from optest.plan.request import OF_CASES
from optest.plan.select import Wanted, glob_filter, parse_shard, select, sorted_by_priority
from optest.plan.tolerance_files import read_tolerances, with_signed_zeros
from optest.process import ForkServer
from optest.registry import load_extension
from optest.settings import OPTIONS, Origin, Settings, config_file, environment, plugin_modules, resolve
from optest.spec import BackendTarget, TestCase, Verdict
from optest.store import write_atomically

Revise = Callable[[TestCase, Verdict], Verdict]
_Selection = TypeVar("_Selection", bound="tuple[Any, ...]")


def _unchanged(_: TestCase, verdict: Verdict) -> Verdict:
    return verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Settings, driver and selected cases of a run.

    ``keep`` stores the tensors of every execution in the folder ``tensors`` of the run; ``revise`` may change a verdict
    before it is reported, and applies ``expectations``; ``facts`` are stored with the run's options.
    """

    settings: Settings
    document: PlanDocument | None
    driver: BackendDriver
    target: BackendTarget
    cases: list[TestCase]
    every: Sequence[TestCase] = ()
    """The cases before the selection."""
    keep: bool = False
    revise: Revise = _unchanged
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Problems of files of model cases that are left out."""
    every_measure: bool = False
    """Whether all measures of every output are reported, also without ``-v``."""
    expectations: Expectations = field(default_factory=Expectations)
    plugins: tuple[str, ...] = ()
    """Modules that a worker imports to find the driver, in addition to ``OPTEST_PLUGINS``."""
    forks: ForkServer | None = None
    """Server that forks the workers; without one a worker is started as a program."""
    device_share: tuple[int, int] | None = None
    """Index of this process among the processes that share the devices (workers of pytest-xdist), and their number."""

    @property
    def wants_every_measure(self) -> bool:
        return self.every_measure or bool(self.settings["verbose"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _CaseFiles:
    """The plan or the sources of the cases; neither if the command line describes a case."""

    document: PlanDocument | None
    sources: Sequence[SourceDocument]
    problems: tuple[Problem, ...] = ()

    @property
    def plans(self) -> Sequence[PlanDocument | None]:
        return [x.plan for x in self.sources] or [self.document]

    @property
    def notes(self) -> tuple[str, ...]:
        if self.sources:
            return tuple(note for document in self.sources for note in document.collected.notes)
        return () if self.document is None else tuple(self.document.notes)


def run_request(
    options: Mapping[str, Any], *, leaves_wrong_files_out: bool = False, imports_hooks: bool = True
) -> RunRequest:
    """Resolve options into settings, driver and cases.

    With ``leaves_wrong_files_out`` a wrong file of model cases or scenes is left out, and notes about tests for pytest
    are added. Without ``imports_hooks`` the user's generators and references are not imported.
    """
    accept = bool(options.get("accept_config"))
    refuse_changed_configuration(accept=accept)
    options = as_in_the_earlier_run(options)
    without_plan = resolve(options)
    if without_plan["source"]:
        from optest.scenes.cases import find_modules_beside

        find_modules_beside(without_plan["source"])
    bootstrap(accept_config=accept)
    files = _read_plans(without_plan)
    settings, backend_notes = _settings_with_backend(options, without_plan, files)
    _require_a_selection(files, settings)
    chip: str | None = settings["chip"]
    if files.document is not None and settings.origin("chip").origin <= Origin.PLAN < settings.origin("backend").origin:
        # The chip of a plan belongs to the plan's backend, not to another one that the user selects.
        is_same = _name_and_kind(settings["backend"]) & _name_and_kind(files.document.backend or "numpy")
        chip = chip if is_same else None
    try:
        driver = driver_named(settings, chip)
    except UsageError as error:
        # PlanError reports all problems of the plan, not only an unknown backend.
        for plan in files.plans if settings.origin("backend").origin not in _NOT_OF_A_PLAN else ():
            build_cases(plan, _case_request(settings), _host(settings, error, error, imports_hooks=imports_hooks))
        raise
    configure(driver, settings)
    target = backend_manager.target(driver, chip, settings["variant"])
    request = with_driver_options(driver, _case_request(settings))
    host = _host(settings, driver, target, imports_hooks=imports_hooks)

    def built_and_selected(wanted: Wanted | None) -> tuple[list[TestCase], list[TestCase], _CaseFiles]:
        """Return the built cases, those that the options select, and their files."""
        build = partial(build_cases, request=request, host=host, wanted=wanted)
        every, kept_files = _cases_of_files(build, files, leaves_wrong_files_out)
        for hooks in run_hooks():
            every = hooks.apply_options(every, settings)
        return every, sorted_by_priority(selected(every, settings)), kept_files

    every, chosen, files = first_selection(built_and_selected, settings, glob_filter(settings["case"]))
    chosen, order_notes = _after_earlier_run(chosen, every, settings)
    chosen, tolerance_notes = with_tolerances(chosen, settings)
    expectations = expectations_of(settings, driver, files.document.expectations() if files.document else ())
    known = known_differences(driver) if files.sources else _unchanged
    sources = files.sources if leaves_wrong_files_out else ()
    for_pytest = [note for document in sources for note in document.collected.notes_of_runs]
    return RunRequest(
        settings=settings,
        document=files.document,
        driver=driver,
        target=target,
        every=every,
        cases=list(map(expectations.skip, chosen)) if expectations.lines else chosen,
        revise=lambda case, verdict: expectations.waive(case, known(case, verdict)),
        expectations=expectations,
        notes=(*backend_notes, *order_notes, *tolerance_notes, *unused_options(chosen), *files.notes, *for_pytest),
        problems=files.problems,
    )


def _read_plans(settings: Settings) -> _CaseFiles:
    sources = source_documents(settings) if settings["source"] else ()
    if not settings["plan"]:
        return _CaseFiles(document=None, sources=sources)
    facts = Facts(  # for the conditions of model cases
        device=settings["torch_device"] or "cpu",
        compile_backend=settings["compile_backend"] or "eager",
        environment=environment(),
    )
    document = open_plan(settings["plan"], untrusted=settings["untrusted"], facts=facts)
    if "format" in document.report:
        from optest.reporting import require_report  # not needed by `list` and `explain`

        require_report(document.report["format"], where=f"{document.where(('report', 'format'))} $.report.format")
    return _CaseFiles(document=document, sources=sources)


def _require_a_selection(files: _CaseFiles, settings: Settings) -> None:
    """Raise ``UsageError`` if the options name no plan, source or operator."""
    if files.document is None and not files.sources and not settings["op"]:
        if settings["function"]:
            compared = f" --reference {settings['reference']}" if settings["reference"] else ""
            raise UsageError(
                "nothing to run: --function selects no cases; add an operator and its inputs, or use check\n"
                "  for example: optest run --op relu --dtype float32 --shape input0=4x4 --function my_kernels:relu\n"
                f"  or, to run all of its case sets: optest check --function {settings['function'][0]}{compared}"
            )
        raise UsageError(
            "nothing to run: give a plan (--plan FILE) or an operator\n"
            "  for example: optest run --op add --dtype float32 --shape input0=4x4 --shape input1=4x4\n"
            "  or list the cases of a check: optest check --op add --backend numpy --list"
        )


def _settings_with_backend(
    options: Mapping[str, Any], without_plan: Settings, files: _CaseFiles
) -> tuple[Settings, tuple[str, ...]]:
    """Return the settings including the plan's, and notes; without a named backend, select the configured one.

    Raise ``UsageError`` if several backends are configured and none is named.
    """
    document = files.document
    names = {document.collected.backend for document in files.sources}
    of_sources = {"backend": names.pop()} if len(names) == 1 else {}
    of_plan = document.options() if document is not None else of_sources
    configured = configured_backends(document, _case_request(without_plan)) if "backend" not in of_plan else {}
    known = {name: where for name, where in configured.items() if name in backend_manager.names()}
    if len(known) == 1:
        of_plan["backend"] = next(iter(known))
    plan_name = document.path if document is not None else "--source"
    settings = with_backend_of_options(options, plan=of_plan, plan_name=plan_name)
    if len(known) > 1 and not settings["backend"]:
        places = "".join(f"\n  at {where}: backend_config.{name}" for name, where in known.items())
        raise UsageError(
            f"backend_config has options of {len(known)} backends, but no backend is named{places}\n"
            f"  name the one to run: --backend {next(iter(known))}, or backend: {next(iter(known))} in the plan"
        )
    if len(known) == 1 and settings.origin("backend").origin is Origin.PLAN:
        name = of_plan["backend"]
        return settings, (f"no backend is named: the cases run on {name}, which has options in backend_config",)
    return settings, ()


def with_backend_of_options(options: Mapping[str, Any], **plan: Any) -> Settings:
    """Return the settings; if no backend is named, select the only one that takes the options (as ``--library``).

    Assign a single ``--function`` to a single ``--op``.
    """
    settings = resolve(options, **plan)
    if len(settings["op"] or ()) == len(settings["function"] or ()) == 1:
        (operator,), (function,) = settings["op"], settings["function"]
        if "=" not in function and re.split("[.:]", function)[-1] != operator:
            options = {**options, "function": (f"{operator}={function}",)}
            settings = resolve(options, **plan)
    by_backend = backends_of(settings.is_set) if not settings["backend"] else {}
    known = [*by_backend]
    if len(known) > 1:
        every = set().union(*by_backend.values())
        known = [name for name in known if every.issubset(backend_manager.get(name).options)]
    return resolve({**options, "backend": known[0]}, **plan) if len(known) == 1 else settings


def _host(
    settings: Settings, driver: BackendDriver | UsageError, target: BackendTarget | UsageError, *, imports_hooks: bool
) -> PlanHost:
    """Return the environment in which plans are built; ``driver`` and ``target`` are the error of a missing backend."""
    return PlanHost(
        operators=operators,
        target=target,
        check_fill=check_fill,
        check_hook=_require_callable if imports_hooks else lambda _: None,
        check_backend=partial(config_problems, driver),
        dtypes_of=driver.dtypes_of if isinstance(driver, BackendDriver) else lambda _: {},
        backend_names=backend_manager.names(),
        default_timeout_s=settings["timeout"],
    )


def _cases_of_files(
    build: Callable[[PlanDocument | None], list[TestCase]], files: _CaseFiles, leaves_wrong_files_out: bool
) -> tuple[list[TestCase], _CaseFiles]:
    """Return the cases and their files; leave out wrong files of model cases, or raise their ``PlanError``."""
    if files.sources:
        problems = tuple(problem for document in files.sources for problem in document.collected.problems)
        if problems and not leaves_wrong_files_out:
            raise PlanError(problems)
        cases = [case for document in files.sources for case in with_origin(build(document.plan), document.collected)]
        return cases, dataclasses.replace(files, problems=problems)
    document = files.document
    try:
        return build(document), files
    except PlanError as error:
        rest = document.without_models({x.file for x in error.problems}) if document is not None else None
        if rest is None or not leaves_wrong_files_out:
            raise
        return build(rest), _CaseFiles(document=rest, sources=(), problems=error.problems)


def with_tolerances(
    cases: Sequence[TestCase], settings: Settings, default: str = ""
) -> tuple[list[TestCase], tuple[str, ...]]:
    """Apply ``--tolerances`` (``default`` if that file exists) and ``--signed-zeros``; return cases and notes."""
    file = settings["tolerances"] or (default if default and os.path.exists(default) else "")
    chosen, notes = list(cases), tuple[str, ...]()
    if file:
        rules = read_tolerances(file)
        chosen = rules.apply(cases)
        notes = (f"tolerances: {file}", *rules.unused(cases))
    return (with_signed_zeros(chosen) if settings["signed_zeros"] else chosen), notes


def selected(cases: Sequence[TestCase], settings: Settings) -> list[TestCase]:
    """Return the cases that the options of the group Selection select."""
    return select(
        cases,
        keyword=settings["keyword"] or "",
        globs=settings["case"],
        tags=settings["tag"],
        skip_tags=settings["skip_tag"],
        priority_max=settings["priority_max"],
        shard=parse_shard(settings["shard"]) if settings["shard"] else None,
    )


def first_selection(
    built_and_selected: Callable[[Any], _Selection], settings: Settings, wanted: Callable[..., bool] | None
) -> _Selection:
    """Return the built and the selected cases; build only cases that are `wanted`, all if none of these is selected.

    Errors are always those about all cases, and ``--rerun-failed`` compares with all.
    """
    if wanted is not None and not settings["rerun_failed"]:
        with suppress(UsageError, NothingSelected):
            if (selection := built_and_selected(wanted))[1]:
                return selection
    return built_and_selected(None)


def expectations_of(
    settings: Settings, driver: BackendDriver, files: Sequence[tuple[str, frozenset[str] | None]]
) -> Expectations:
    """Read expectation files and then those of ``--expectations``, whose lines replace others of the same name.

    Each of ``files`` is for the cases of some plans; None is for all cases, as those of the command line are.
    """
    read = partial(read_expectations, operators=operators, versions=driver.versions())
    of_command_line = [(file, None) for file in settings["expectations"] or ()]
    return Expectations.merge(
        read(file) if plans is None else read(file).of_files(plans) for file, plans in (*files, *of_command_line)
    )


def _require_callable(path: str) -> None:
    """Raise ``UsageError`` unless ``path`` is a function or has ``generate``.

    Accept a path into a package that is not installed: each case then reports it.
    """
    try:
        loaded = load_extension("the module", path)
    except Unavailable:  # each case reports the missing package
        return
    if not callable(loaded) and not callable(getattr(loaded, "generate", None)):
        raise UsageError(f"{path!r} is of type {type(loaded).__name__}, expected a function")


def _after_earlier_run(
    chosen: list[TestCase], every: list[TestCase], settings: Settings
) -> tuple[list[TestCase], tuple[str, ...]]:
    """Apply ``--rerun-failed`` or ``--failed-first``: return the cases in their order, and notes."""
    if settings["rerun_failed"] and settings["failed_first"]:
        raise UsageError("--rerun-failed and --failed-first exclude each other; drop one of them")
    if settings["rerun_failed"]:
        chosen, note = rerun_of(what_failed(settings["runs_dir"], settings["rerun_failed"]), chosen, every)
        return chosen, (note,)
    if settings["failed_first"]:
        chosen, note = failed_first(what_failed(settings["runs_dir"], settings["failed_first"]), chosen)
        return chosen, (note,)
    return chosen, ()


def nothing_selected(settings: Settings, every: Sequence[TestCase], notes: Sequence[str] = ()) -> NothingSelected:
    """Return the error for a selection that leaves no case of ``every``; it names the selecting options.

    If there were no cases before the selection, ``notes`` are the reasons.
    """
    if notes and not every:
        return NothingSelected("\n  ".join(("no case to run", *notes)))
    flags = [
        f"{max(option.flags, key=len)} {value}"
        for option in OPTIONS
        if (option.group == "Selection" or option.name in ("op", "dtype", "case_set")) and settings.is_set(option.name)
        for value in _as_list(settings[option.name])
    ]
    first = f"; the first of {plural(len(every), 'case')} is {every[0].id!r}" if every else ""
    return NothingSelected(f"no case is left after selection{' by ' if flags else ''}{', '.join(flags)}{first}")


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


_NOT_OF_A_PLAN = (Origin.CONFIG, Origin.ENVIRONMENT)


def driver_named(settings: Settings, chip: str | None) -> BackendDriver:
    """Return the driver of ``--backend``, numpy by default; raise ``UsageError`` with a hint if it is unknown."""
    try:
        return backend_manager.select(settings["backend"] or "numpy", chip)
    except UnknownName as error:
        value = settings.origin("backend")
        if error.kind == "backend" and value.origin in _NOT_OF_A_PLAN:
            raise UnknownName(error.kind, error.name, error.known, where=value.where) from None
        if error.kind != "backend" or error.suggestion:
            raise
        loaded = ", ".join(plugin_modules())
        hint = (
            f"OPTEST_PLUGINS is {loaded}; does it call backend_manager.register(...)?"
            if loaded
            else "if it is your own, set OPTEST_PLUGINS to the module that registers it"
        )
        raise UsageError(f"{error}\n  {hint}") from None


def configure(driver: BackendDriver, settings: Settings) -> None:
    """Pass the driver its options; raise ``UsageError`` for an option that it does not take."""
    options = driver_options(settings, driver)
    for name in options:
        if name not in driver.options:
            flag = f"--{name.replace('_', '-')}"
            raise OptionNotTaken(f"{flag} is not for backend {driver.name}, which takes no such option; drop it")
    driver.configure(options)


def driver_options(settings: Settings, driver: BackendDriver) -> dict[str, Any]:
    """Return the options for the driver by name, except options in the configuration file for other backends."""
    values = {x.name: settings.origin(x.name) for x in OPTIONS if x.repro and settings[x.name]}
    taken = driver.options
    return {name: x.value for name, x in values.items() if name in taken or x.origin is not Origin.CONFIG}


def driver_flags(settings: Settings) -> list[str]:
    """Return the driver's options as words of a command line, without options in the configuration file."""
    words = []
    for option in OPTIONS:
        if option.repro and settings.origin(option.name).origin is not Origin.CONFIG:
            for value in _as_list(settings[option.name] or ()):
                words += [option.flags[0]] if option.type == "bool" else [option.flags[0], str(value)]
    return words


def with_driver_options(driver: BackendDriver, request: CaseRequest) -> CaseRequest:
    """Return the request with the driver's options for every case in its ``backend_config``."""
    config = {**case_options_of(driver), **request.backend_config.get(driver.name, {})}
    return dataclasses.replace(request, backend_config={driver.name: config}) if config else request


def _case_request(settings: Settings) -> CaseRequest:
    """Return the options that override a plan, with the options of the configuration file ``below`` the plan."""
    options = {**requested_options(settings), "op": settings["op"], "untrusted": settings["untrusted"]}
    if settings["source"]:
        options.pop("dtype", None)  # it has narrowed the source, whose tensors keep their dtypes
    of_cases = (*OF_CASES, "backend", "chip")
    below = {name: settings[name] for name in of_cases if settings.origin(name).origin is Origin.CONFIG}
    file = config_file().path if below else ""
    return dataclasses.replace(request_from(options), below=request_from(below), where_below=file)


def _name_and_kind(backend: str) -> set[str]:
    known = backend in backend_manager.names()
    return {backend, backend_manager.kind_of(backend)} if known else {backend}


def with_deadline(case: TestCase, timeout_s: float) -> TestCase:
    """Return the case with ``timeout_s`` unless it has a deadline."""
    return case if case.timeout_s is not None else dataclasses.replace(case, timeout_s=timeout_s)


def without_usual_deadline(case: TestCase, settings: Settings) -> TestCase:
    """Return the case without its deadline if that is the default one, as it is written to a plan."""
    is_usual = case.timeout_s == settings["timeout"] and not settings.is_set("timeout")
    return dataclasses.replace(case, timeout_s=None) if is_usual else case


def one_plan(paths: Sequence[str], options: Mapping[str, Any]) -> str:
    """Return the path of the only plan, or write a plan next to the runs that includes all of them.

    It has the backend and chip on which the plans agree. Raise ``UsageError`` with ``--untrusted``, ``PlanError`` for a
    wrong plan.
    """
    if len(paths) == 1:
        return paths[0]
    settings = resolve(options)
    if settings["untrusted"]:
        raise UsageError(f"--untrusted is for the folder of one plan, but {len(paths)} plans are named; name one")
    of_plans = [open_plan(path).options() for path in paths]
    shared = {key: of_plans[0].get(key) for key in ("backend", "chip") if len({x.get(key) for x in of_plans}) == 1}
    folder = Path(settings["runs_dir"]).parent / "plans"
    document = {**shared, "include": [os.path.relpath(path, folder) for path in paths]}
    text = json.dumps({key: value for key, value in document.items() if value}).encode()  # JSON is YAML
    plan = folder / f"{hashlib.blake2b(text, digest_size=4).hexdigest()}.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(plan, text)
    return str(plan)
