"""From the options that a user gave to what is to be run: settings, driver and cases."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from optest.api import bootstrap
from optest.api.earlier_runs import as_in_the_earlier_run, failed_first, given_options, rerun_of, what_failed
from optest.api.source_cases import SourceDocument, known_differences, source_documents, with_origin
from optest.backends import BackendDriver, backend_manager
from optest.backends.command_abilities import KnowsDtypes, case_options_of, config_problems, options_of
from optest.backends.command_abilities import configure as configure_driver
from optest.core.trusted_files import refuse_changed_configuration
from optest.errors import NothingSelected, PlanError, Problem, Unavailable, UnknownName, UsageError
from optest.generators.fills import check_fill
from optest.guests import backends_of, run_hooks
from optest.operators import operators
from optest.plan import CaseRequest, PlanDocument, PlanHost, build_cases, open_plan, request_from
from optest.plan.backend_options import configured_backends, unused_options
from optest.plan.dialects import Facts
from optest.plan.expectations import Expectations, read_expectations
from optest.plan.request import OF_CASES
from optest.plan.select import by_urgency, parse_shard, select
from optest.plan.tolerance_files import read_tolerances
from optest.plan.tolerances import with_signed_zeros
from optest.process import ForkServer
from optest.registry import load_extension
from optest.settings import OPTIONS, Origin, Settings, config_file, environment, plugin_modules, resolve
from optest.spec import BackendTarget, TestCase, Verdict
from optest.store import write_atomically

Revise = Callable[[TestCase, Verdict], Verdict]


def _as_judged(_: TestCase, verdict: Verdict) -> Verdict:
    return verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What is to be run: the settings, the driver, and the cases that were selected.

    ``keep`` asks for the tensors of every execution, in the folder ``tensors`` of the run. ``revise`` has the last word
    on a verdict, before anybody hears of it; ``facts`` go into what the run says of itself.
    """

    settings: Settings
    document: PlanDocument | None
    driver: BackendDriver
    target: BackendTarget
    cases: list[TestCase]
    every: Sequence[TestCase] = ()
    """The cases before the selection."""
    keep: bool = False
    revise: Revise = _as_judged
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What the report has to say about the choice of the cases."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with files of model cases that were left out."""
    every_measure: bool = False
    """All measures of every output are wanted, also without ``-v``."""
    expectations: Expectations = field(default_factory=Expectations)
    """What files say of these cases; ``revise`` heeds it."""
    plugins: tuple[str, ...] = ()
    """Modules that a worker imports to find the driver, beside those of ``OPTEST_PLUGINS``."""
    forks: ForkServer | None = None
    """Server that forks the workers; without one each is started as a program."""
    device_share: tuple[int, int] | None = None
    """The index of this process among those that share the devices, as workers of pytest-xdist, and their number."""

    @property
    def wants_every_measure(self) -> bool:
        return self.every_measure or bool(self.settings["verbose"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """What the cases are written in: a plan, sources, or nothing but the command line."""

    document: PlanDocument | None
    sources: Sequence[SourceDocument]
    problems: tuple[Problem, ...] = ()

    @property
    def plans(self) -> Sequence[PlanDocument | None]:
        return [each.plan for each in self.sources] or [self.document]

    @property
    def notes(self) -> tuple[str, ...]:
        if self.sources:
            return tuple(note for each in self.sources for note in each.collected.notes)
        return () if self.document is None else tuple(self.document.notes)


def run_request(
    given: Mapping[str, Any], *, leaves_wrong_files_out: bool = False, imports_hooks: bool = True
) -> RunRequest:
    """Resolve settings, driver and cases.

    With ``leaves_wrong_files_out`` a wrong file of model cases or scenes does not keep the others from running, and
    their tests for pytest are noted. Without ``imports_hooks`` the user's generators and references are not imported.

    Raises:
        UsageError, PlanError, UnknownName: for whatever cannot be carried out as written.
        Unavailable: if the backend needs what this machine lacks.
    """
    accept = bool(given.get("accept_config"))
    refuse_changed_configuration(accept=accept)
    given = as_in_the_earlier_run(given)
    if sources := resolve(given)["source"]:
        from optest.scenes.cases import find_modules_beside

        find_modules_beside(sources)
    bootstrap(accept_config=accept)
    written = _read_plans(resolve(given))
    settings, backend_notes = _settings_with_backend(given, written)
    _require_a_selection(written, settings)
    chip: str | None = settings["chip"]
    if (
        written.document is not None
        and settings.origin("chip").origin <= Origin.PLAN < settings.origin("backend").origin
    ):
        # the chip of a plan belongs to the plan's backend, so it is not for another one asked in its place
        kept = _name_and_kind(settings["backend"]) & _name_and_kind(written.document.backend or "numpy")
        chip = chip if kept else None
    try:
        driver = driver_named(settings, chip)
    except UsageError as error:
        # PlanError names all that is wrong with the plan, not only an unknown backend.
        for plan in written.plans if settings.origin("backend").origin not in _NOT_OF_A_PLAN else ():
            build_cases(plan, _case_request(settings), _host(settings, error, error, imports_hooks=imports_hooks))
        raise
    configure(driver, settings)
    target = backend_manager.target(driver, chip, settings["variant"])
    request = with_driver_options(driver, _case_request(settings))
    host = _host(settings, driver, target, imports_hooks=imports_hooks)
    make = partial(build_cases, request=request, host=host)
    every, written = _made_cases(make, written, leaves_wrong_files_out)
    for hooks in run_hooks():
        every = hooks.changed_cases(every, settings)
    chosen, order_notes = _in_order(by_urgency(selected(every, settings)), every, settings)
    chosen, tolerance_notes = with_tolerances(chosen, settings)
    expectations = _expectations(settings, written.document, driver)
    known = known_differences(driver) if written.sources else _as_judged
    sources = written.sources if leaves_wrong_files_out else ()
    for_pytest = [note for each in sources for note in each.collected.notes_of_runs]
    return RunRequest(
        settings=settings,
        document=written.document,
        driver=driver,
        target=target,
        every=every,
        cases=list(map(expectations.left_out, chosen)) if expectations.lines else chosen,
        revise=lambda case, verdict: expectations.excused(case, known(case, verdict)),
        expectations=expectations,
        notes=(*backend_notes, *order_notes, *tolerance_notes, *unused_options(chosen), *written.notes, *for_pytest),
        problems=written.problems,
    )


def _read_plans(settings: Settings) -> _Written:
    sources = source_documents(settings) if settings["source"] else ()
    if not settings["plan"]:
        return _Written(document=None, sources=sources)
    facts = Facts(  # what a model case may ask before it is left out
        device=settings["torch_device"] or "cpu",
        compile_backend=settings["compile_backend"] or "eager",
        environment=environment(),
    )
    document = open_plan(settings["plan"], untrusted=settings["untrusted"], facts=facts)
    if "format" in document.report:
        from optest.reporting import require_report  # the reports are no part of `list` and `explain`

        require_report(document.report["format"], where=f"{document.where(('report', 'format'))} $.report.format")
    return _Written(document=document, sources=sources)


def _require_a_selection(written: _Written, settings: Settings) -> None:
    if written.document is None and not written.sources and not settings["op"]:
        if settings["function"]:
            compared = f" --reference {settings['reference']}" if settings["reference"] else ""
            raise UsageError(
                "nothing to run: --function names no cases; add an operator and its inputs, or use check\n"
                "  for example: optest run --op relu --dtype float32 --shape input0=4x4 --function my_kernels:relu\n"
                f"  or for all of its case sets: optest check --function {settings['function'][0]}{compared}"
            )
        raise UsageError(
            "nothing to run: give a plan (--plan FILE) or an operator\n"
            "  for example: optest run --op add --dtype float32 --shape input0=4x4 --shape input1=4x4\n"
            "  or list the cases of a check: optest check --op add --backend numpy --list"
        )


def _settings_with_backend(given: Mapping[str, Any], written: _Written) -> tuple[Settings, tuple[str, ...]]:
    """The settings with those of the plan; where nobody names a backend, the one that is configured runs the cases.

    Raises:
        UsageError: if several backends are configured and none is named.
    """
    document = written.document
    names = {each.collected.backend for each in written.sources}
    of_sources = {"backend": names.pop()} if len(names) == 1 else {}
    options = document.options() if document is not None else of_sources
    configured = configured_backends(document, _case_request(resolve(given))) if "backend" not in options else {}
    known = {name: place for name, place in configured.items() if name in backend_manager.names()}
    if len(known) == 1:
        options["backend"] = next(iter(known))
    plan_name = document.path if document is not None else "--source"
    settings = with_backend_of_options(given, plan=options, plan_name=plan_name)
    if len(known) > 1 and not settings["backend"]:
        places = "".join(f"\n  at {place}: backend_config.{name}" for name, place in known.items())
        raise UsageError(
            f"options of {len(known)} backends are stated, but no backend is named{places}\n"
            f"  name the one to run: --backend {next(iter(known))}, or backend: {next(iter(known))} in the plan"
        )
    if len(known) == 1 and settings.origin("backend").origin is Origin.PLAN:
        name = options["backend"]
        return settings, (f"no backend is named: the cases run on {name}, the one with options in backend_config",)
    return settings, ()


def with_backend_of_options(given: Mapping[str, Any], **plan: Any) -> Settings:
    """Return the settings; if no backend is named, select the one that takes the given options (``--library``).

    A single function of ``--function`` computes the single operator of ``--op``.
    """
    settings = resolve(given, **plan)
    if len(settings["op"] or ()) == len(settings["function"] or ()) == 1:
        (operator,), (function,) = settings["op"], settings["function"]
        if "=" not in function and re.split("[.:]", function)[-1] != operator:
            given = {**given, "function": (f"{operator}={function}",)}
            settings = resolve(given, **plan)
    options = backends_of(settings.stated) if not settings["backend"] else {}
    known = [*options]
    if len(known) > 1:
        every = set().union(*options.values())
        known = [name for name in known if every.issubset(options_of(backend_manager.get(name)))]
    return resolve({**given, "backend": known[0]}, **plan) if len(known) == 1 else settings


def _host(
    settings: Settings, driver: BackendDriver | UsageError, target: BackendTarget | UsageError, *, imports_hooks: bool
) -> PlanHost:
    """What plans refer to here; ``driver`` and ``target`` are the error where there is no such backend."""
    return PlanHost(
        operators=operators,
        target=target,
        check_fill=check_fill,
        check_hook=_require_callable if imports_hooks else lambda _: None,
        check_backend=partial(config_problems, driver),
        dtypes_of=driver.dtypes_of if isinstance(driver, KnowsDtypes) else lambda _: {},
        backend_names=backend_manager.names(),
        default_timeout_s=settings["timeout"],
    )


def _made_cases(
    make: Callable[[PlanDocument | None], list[TestCase]], written: _Written, leaves_wrong_files_out: bool
) -> tuple[list[TestCase], _Written]:
    """The cases, and what they are written in, without the files of model cases that are wrong."""
    if written.sources:
        problems = tuple(problem for each in written.sources for problem in each.collected.problems)
        if problems and not leaves_wrong_files_out:
            raise PlanError(problems)
        cases = [case for each in written.sources for case in with_origin(make(each.plan), each.collected)]
        return cases, dataclasses.replace(written, problems=problems)
    document = written.document
    try:
        return make(document), written
    except PlanError as error:
        rest = document.without_models({each.file for each in error.problems}) if document is not None else None
        if rest is None or not leaves_wrong_files_out:
            raise
        return make(rest), _Written(document=rest, sources=(), problems=error.problems)


def with_tolerances(
    cases: Sequence[TestCase], settings: Settings, usual: str = ""
) -> tuple[list[TestCase], tuple[str, ...]]:
    """The cases with what ``--tolerances`` and ``--signed-zeros`` ask of them, and notes; ``usual`` is the file that is
    taken where it is there and no other is named.

    Raises:
        PlanError: for a file that is wrong.
    """
    file = settings["tolerances"] or (usual if usual and os.path.exists(usual) else "")
    chosen, notes = list(cases), tuple[str, ...]()
    if file:
        rules = read_tolerances(file)
        chosen = rules.applied(cases)
        notes = (f"tolerances: {file}", *rules.unused(cases))
    return (with_signed_zeros(chosen) if settings["signed_zeros"] else chosen), notes


def selected(cases: Sequence[TestCase], settings: Settings) -> list[TestCase]:
    """The cases that the options of the group Selection leave."""
    return select(
        cases,
        keyword=settings["keyword"] or "",
        globs=settings["case"],
        tags=settings["tag"],
        skip_tags=settings["skip_tag"],
        priority_max=settings["priority_max"],
        shard=parse_shard(settings["shard"]) if settings["shard"] else None,
    )


def _expectations(settings: Settings, document: PlanDocument | None, driver: BackendDriver) -> Expectations:
    """What the command line's files say of all cases, and a plan's of those that it includes."""
    read = partial(read_expectations, operators=operators, versions=driver.versions())
    of_plans = document.expectations() if document is not None else ()
    return Expectations.joined(
        [*(read(file).of_files(plans) for file, plans in of_plans), *map(read, settings["expectations"] or ())]
    )


def _require_callable(path: str) -> None:
    """What a case may name as its generator or reference; a package that it needs is missed case by case.

    Raises:
        UsageError: if nothing is at the path, its import fails, or it is neither a function nor a generator.
    """
    try:
        loaded = load_extension("the module", path)
    except Unavailable:
        return
    if not callable(loaded) and not callable(getattr(loaded, "generate", None)):
        raise UsageError(f"{path!r} is of type {type(loaded).__name__}, but should be a function")


def _in_order(
    chosen: list[TestCase], every: list[TestCase], settings: Settings
) -> tuple[list[TestCase], tuple[str, ...]]:
    """What an earlier run has to say about which cases are run, or run first."""
    if settings["rerun_failed"] and settings["failed_first"]:
        raise UsageError("--rerun-failed leaves nothing to run after it; drop it or --failed-first")
    if settings["rerun_failed"]:
        chosen, note = rerun_of(what_failed(settings["runs_dir"], settings["rerun_failed"]), chosen, every)
        return chosen, (note,)
    if settings["failed_first"]:
        chosen, note = failed_first(what_failed(settings["runs_dir"], settings["failed_first"]), chosen)
        return chosen, (note,)
    return chosen, ()


def nothing_selected(settings: Settings, every: Sequence[TestCase], notes: Sequence[str] = ()) -> NothingSelected:
    """The error for a selection that leaves no case of ``every``; it names the options that narrow it.

    If there were no cases before the selection, ``notes`` say why.
    """
    if notes and not every:
        return NothingSelected("\n  ".join(("no case to run", *notes)))
    narrowing = [each for each in OPTIONS if each.group == "Selection" or each.name in ("op", "dtype", "case_set")]
    stated = [
        f"{max(each.flags, key=len)} {value}"
        for each in narrowing
        if settings.stated(each.name)
        for value in _several(settings[each.name])
    ]
    there = f"; of {len(every)} the first is {every[0].id!r}" if every else ""
    return NothingSelected(f"no case is left after selection{' by ' if stated else ''}{', '.join(stated)}{there}")


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


_NOT_OF_A_PLAN = (Origin.CONFIG, Origin.ENVIRONMENT)


def driver_named(settings: Settings, chip: str | None) -> BackendDriver:
    """The driver; whoever misses one of their own is told how it would be found."""
    try:
        return backend_manager.select(settings["backend"] or "numpy", chip)
    except UnknownName as error:
        stated = settings.origin("backend")
        if error.kind == "backend" and stated.origin in _NOT_OF_A_PLAN:
            raise UnknownName(error.kind, error.name, error.known, where=stated.where) from None
        if error.kind != "backend" or error.suggestion:
            raise
        loaded = ", ".join(plugin_modules())
        hint = (
            f"OPTEST_PLUGINS is {loaded}; does it call backend_manager.register(...)?"
            if loaded
            else "is it your own? then OPTEST_PLUGINS names the module that registers it"
        )
        raise UsageError(f"{error}\n  {hint}") from None


def configure(driver: BackendDriver, settings: Settings) -> None:
    """Hand the driver its options.

    Raises:
        UsageError: for one that it does not take, which would be ignored without a word.
    """
    options = driver_options(settings, driver)
    for name in options:
        if name not in options_of(driver):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} is not for backend {driver.name}, which takes no such option; drop it")
    configure_driver(driver, options)


def driver_options(settings: Settings, driver: BackendDriver) -> dict[str, Any]:
    """What is said to the driver itself; the configuration file may also say something to others."""
    stated = {each.name: settings.origin(each.name) for each in OPTIONS if each.repro and settings[each.name]}
    taken = options_of(driver)
    return {name: each.value for name, each in stated.items() if name in taken or each.origin is not Origin.CONFIG}


def driver_flags(settings: Settings) -> list[str]:
    """The driver's options as they are written on a command line, without those of the configuration file."""
    words = []
    for each in OPTIONS:
        if each.repro and settings.origin(each.name).origin is not Origin.CONFIG:
            for value in _several(settings[each.name] or ()):
                words += [each.flags[0]] if each.type == "bool" else [each.flags[0], str(value)]
    return words


def with_driver_options(driver: BackendDriver, request: CaseRequest) -> CaseRequest:
    """The request with the options that the driver has in the ``backend_config`` of every case."""
    stated = {**case_options_of(driver), **request.backend_config.get(driver.name, {})}
    return dataclasses.replace(request, backend_config={driver.name: stated}) if stated else request


def _case_request(settings: Settings) -> CaseRequest:
    """What wins over the plan; what the plan itself says is read from there, below its cases."""
    given = {**given_options(settings), "op": settings["op"], "untrusted": settings["untrusted"]}
    if settings["source"]:
        given.pop("dtype", None)  # it has narrowed the source, whose tensors keep their own dtypes
    of_cases = (*OF_CASES, "backend", "chip")
    below = {name: settings[name] for name in of_cases if settings.origin(name).origin is Origin.CONFIG}
    file = config_file().path if below else ""
    return dataclasses.replace(request_from(given), below=request_from(below), where_below=file)


def _name_and_kind(backend: str) -> set[str]:
    known = backend in backend_manager.names()
    return {backend, backend_manager.kind_of(backend)} if known else {backend}


def with_deadline(case: TestCase, timeout_s: float) -> TestCase:
    """A default exists: nothing runs without a deadline."""
    return case if case.timeout_s is not None else dataclasses.replace(case, timeout_s=timeout_s)


def without_usual_deadline(case: TestCase, settings: Settings) -> TestCase:
    """The case for a plan, which need not state a deadline that every run keeps."""
    is_usual = case.timeout_s == settings["timeout"] and not settings.stated("timeout")
    return dataclasses.replace(case, timeout_s=None) if is_usual else case


def one_plan(paths: Sequence[str], given: Mapping[str, Any]) -> str:
    """The path of the only plan of ``paths``, or of one, kept beside the runs, that includes them all; backend and chip
    are those that they agree on.

    Raises:
        UsageError, PlanError: if one of several cannot be read, or is not trusted.
    """
    if len(paths) == 1:
        return paths[0]
    settings = resolve(given)
    if settings["untrusted"]:
        raise UsageError("--untrusted opens what lies in the folder of one plan; state one")
    options = [open_plan(path).options() for path in paths]
    shared = {key: options[0].get(key) for key in ("backend", "chip") if len({each.get(key) for each in options}) == 1}
    folder = Path(settings["runs_dir"]).parent / "plans"
    document = {**shared, "include": [os.path.relpath(path, folder) for path in paths]}
    text = json.dumps({key: value for key, value in document.items() if value}).encode()  # JSON is YAML
    plan = folder / f"{hashlib.blake2b(text, digest_size=4).hexdigest()}.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(plan, text)
    return str(plan)
