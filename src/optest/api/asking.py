"""From what a user gave to cases and the driver they are for: the way that run, list, explain and replay share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from optest.api import bootstrap
from optest.api.rerunning import as_in_the_earlier_run, failed_first, rerun_of, what_failed
from optest.api.sourcing import known_differences, said_to_be_from, source_documents
from optest.backends import BackendDriver, backend_manager
from optest.backends.abilities import ChecksConfig, KnowsDtypes, case_options_of, options_of
from optest.backends.abilities import configure as configure_driver
from optest.errors import NothingSelected, PlanError, Problem, Unavailable, UnknownName, UsageError
from optest.generators.fills import check_fill
from optest.operators import operators
from optest.plan import CaseRequest, PlanDocument, build_cases, open_plan, request_from
from optest.plan.backend_options import configured_backends, unused_options
from optest.plan.dialects import Facts
from optest.plan.expectations import Expectations, read_expectations
from optest.plan.select import by_urgency, parse_shard, select
from optest.plan.tolerances import with_signed_zeros
from optest.registry import load_extension
from optest.settings import OPTIONS, Origin, Settings, environment, plugin_modules, resolve
from optest.spec import BackendTarget, TestCase, Verdict
from optest.torch.cases import compared_in_own_dtype, differentiated

__all__ = [
    "Asked",
    "asked",
    "configure",
    "driver_called",
    "driver_options",
    "flags_of",
    "nothing_left",
    "with_deadline",
    "with_options_of",
]


def _as_judged(_: TestCase, verdict: Verdict) -> Verdict:
    return verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a command is about: the settings, the driver, and the cases that were selected.

    ``keep`` asks for the tensors of every execution, in the folder ``tensors`` of the run. ``revise`` has the last word
    on a verdict, before anybody hears of it; ``facts`` go into what the run says of itself.
    """

    settings: Settings
    document: PlanDocument | None
    driver: BackendDriver
    target: BackendTarget
    cases: list[TestCase]
    keep: bool = False
    revise: Callable[[TestCase, Verdict], Verdict] = _as_judged
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    """What the report has to say about the choice of the cases."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with files of model cases that were left out."""
    every_measure: bool = False
    """All measures of every output are wanted, also without ``-v``."""
    expectations: Expectations = field(default_factory=Expectations)
    """What files say of these cases; ``revise`` heeds it."""

    @property
    def wants_every_measure(self) -> bool:
        return self.every_measure or bool(self.settings["verbose"])


def asked(given: Mapping[str, Any], *, leaves_wrong_files_out: bool = False, imports_hooks: bool = True) -> Asked:
    """Resolve settings, driver and cases.

    With ``leaves_wrong_files_out`` an included file of model cases that is wrong does not keep the others from running.
    Without ``imports_hooks`` the user's generators and references are not imported: nothing is to run.

    Raises:
        UsageError, PlanError, UnknownName: for whatever cannot be carried out as written.
        Unavailable: if the backend needs what this machine lacks.
    """
    bootstrap()
    given = as_in_the_earlier_run(given)
    first = resolve(given)
    sources = source_documents(first) if first["source"] else ()
    document = open_plan(first["plan"], untrusted=first["untrusted"], facts=_facts(first)) if first["plan"] else None
    if document is not None and "format" in document.report:
        _check_report(document)
    settings, told = _with_backend(given, first, document, {"backend": "torch"} if sources else {})
    if document is None and not sources and not settings["op"]:
        raise UsageError(
            "nothing to run: give a plan (--plan FILE) or an operator\n"
            "  for example: optest run --op add --dtype float32 --shape input0=4x4 --shape input1=4x4"
        )
    build = partial(
        build_cases,
        operators=operators,
        check_fill=check_fill,
        check_hook=_require_callable if imports_hooks else lambda _: None,
        backend_names=backend_manager.names(),
        default_timeout_s=settings["timeout"],
    )
    problems: tuple[Problem, ...] = ()
    chip = _chip(settings, document)
    try:
        driver = driver_called(settings["backend"] or "numpy", chip)
    except UsageError as error:
        for plan in (*(each.plan for each in sources), *(() if sources else (document,))):
            build(plan, _request(settings), target_of=_raising(error), check_backend=lambda _: ())
        raise
    configure(driver, settings)
    target = backend_manager.target(driver, chip)
    build = partial(
        build,
        request=with_options_of(driver, _request(settings)),
        target_of=lambda _name, _chip: target,
        check_backend=driver.problems if isinstance(driver, ChecksConfig) else lambda _: (),
        dtypes_of=driver.dtypes_of if isinstance(driver, KnowsDtypes) else lambda _: {},
    )
    if sources:
        cases = [case for each in sources for case in said_to_be_from(build(each.plan), each.origin)]
    else:
        cases, document, problems = _built(build, document, leaves_wrong_files_out)
    if settings["backward"]:
        cases = differentiated(cases)
    if settings["reference_dtype"] == "same":
        cases = compared_in_own_dtype(cases)
    if settings["signed_zeros"]:
        cases = with_signed_zeros(cases)
    chosen = select(
        cases,
        keyword=settings["keyword"] or "",
        globs=settings["case"],
        tags=settings["tag"],
        skip_tags=settings["skip_tag"],
        priority_max=settings["priority_max"],
        shard=parse_shard(settings["shard"]) if settings["shard"] else None,
    )
    chosen, notes = _in_order(by_urgency(chosen), cases, settings)
    expectations = _expectations(settings, document, driver)
    known = known_differences(driver) if sources else _as_judged
    return Asked(
        settings=settings,
        document=document,
        driver=driver,
        target=target,
        cases=list(map(expectations.left_out, chosen)) if expectations.lines else chosen,
        revise=lambda case, verdict: expectations.excused(case, known(case, verdict)),
        expectations=expectations,
        notes=(
            *told,
            *notes,
            *unused_options(chosen),
            *(document.notes if document is not None and not sources else ()),
            *(note for each in sources for note in each.notes),
        ),
        problems=problems,
    )


def _expectations(settings: Settings, document: PlanDocument | None, driver: BackendDriver) -> Expectations:
    """What the command line's files say of all cases, and a plan's of those that it includes."""
    read = partial(read_expectations, operators=operators, versions=driver.versions())
    of_plans = document.expectations() if document is not None else ()
    return Expectations.joined(
        [*(read(file).of_files(plans) for file, plans in of_plans), *map(read, settings["expectations"] or ())]
    )


def _with_backend(
    given: Mapping[str, Any], first: Settings, document: PlanDocument | None, defaults: Mapping[str, Any]
) -> tuple[Settings, tuple[str, ...]]:
    """The settings with those of the plan; where nobody names a backend, the one that is configured runs the cases.

    Raises:
        UsageError: if several backends are configured and none is named.
    """
    options = document.options() if document is not None else dict(defaults)
    configured = configured_backends(document, _request(first)) if "backend" not in options else {}
    known = {name: place for name, place in configured.items() if name in backend_manager.names()}
    if len(known) == 1:
        options["backend"] = next(iter(known))
    settings = resolve(given, plan=options, plan_name=document.path if document is not None else "--source")
    if len(known) > 1 and not settings["backend"]:
        places = "".join(f"\n  at {place}: backend_config.{name}" for name, place in known.items())
        example = next(iter(known))
        raise UsageError(
            f"options of {len(known)} backends are stated, but no backend is named{places}\n"
            f"  name the one to run: --backend {example}, or backend: {example} in the plan"
        )
    if len(known) == 1 and settings.origin("backend").origin is Origin.PLAN:
        name = options["backend"]
        return settings, (f"no backend is named: the cases run on {name}, the one with options in backend_config",)
    return settings, ()


def _built(
    build: Callable[[PlanDocument | None], list[TestCase]], document: PlanDocument | None, leaves_wrong_files_out: bool
) -> tuple[list[TestCase], PlanDocument | None, tuple[Problem, ...]]:
    """The cases, the plan that they are of, and what is wrong with the files that it no longer includes."""
    try:
        return build(document), document, ()
    except PlanError as error:
        rest = document.without_models({each.file for each in error.problems}) if document is not None else None
        if rest is None or not leaves_wrong_files_out:
            raise
        return build(rest), rest, error.problems


def _require_callable(path: str) -> None:
    """What a case may name as its generator or reference; a package that it needs is missed case by case.

    Raises:
        UsageError: if nothing is at the path, its import fails, or it is neither a function nor a generator.
    """
    try:
        found = load_extension("the module", path)
    except Unavailable:
        return
    if not callable(found) and not callable(getattr(found, "generate", None)):
        raise UsageError(f"{path!r} is of type {type(found).__name__}, but should be a function")


def _facts(settings: Settings) -> Facts:
    """What a model case may ask before it is left out."""
    return Facts(
        device=settings["torch_device"] or "cpu",
        compile_backend=settings["compile_backend"] or "eager",
        environment=environment(),
    )


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


def nothing_left(settings: Settings) -> NothingSelected:
    """The error for a selection that leaves no case; it names the options that narrow it."""
    narrowing = [each for each in OPTIONS if each.group == "Selection" or each.name in ("op", "dtype", "case_set")]
    stated = [
        f"{max(each.flags, key=len)} {value}"
        for each in narrowing
        if settings.stated(each.name)
        for value in _several(settings[each.name])
    ]
    return NothingSelected(f"no case is left after selection{' by ' if stated else ''}{', '.join(stated)}")


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def _raising(error: UsageError) -> Callable[[str, str | None], BackendTarget]:
    """Let an unknown backend be said with whatever else is wrong."""

    def target_of(_name: str, _chip: str | None) -> BackendTarget:
        raise error

    return target_of


def driver_called(backend: str, chip: str | None) -> BackendDriver:
    """The driver; whoever misses one of their own is told how it would be found."""
    try:
        return backend_manager.select(backend, chip)
    except UnknownName as error:
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
    options = driver_options(settings)
    for name in options:
        if name not in options_of(driver):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} is not for backend {driver.name}, which takes no such option; drop it")
    configure_driver(driver, options)


def driver_options(settings: Settings) -> dict[str, Any]:
    """What the command line says to the driver itself."""
    return {each.name: settings[each.name] for each in OPTIONS if each.repro and settings[each.name]}


def flags_of(settings: Settings) -> list[str]:
    """The driver's options as they are written on a command line."""
    words = []
    for each in OPTIONS:
        if each.repro:
            for value in _several(settings[each.name] or ()):
                words += [each.flags[0], str(value)]
    return words


def with_options_of(driver: BackendDriver, request: CaseRequest) -> CaseRequest:
    """The request with the options that the driver has in the ``backend_config`` of every case."""
    stated = {f"backend_config.{driver.name}.{key}": value for key, value in case_options_of(driver).items()}
    return dataclasses.replace(request, attributes={**stated, **request.attributes}) if stated else request


def _check_report(document: PlanDocument) -> None:
    """A plan may ask for reports of installed packages, which its schema does not know.

    Raises:
        UnknownName: if there is no such report.
    """
    from optest.reporting import require_report  # the reports are no part of `list` and `explain`

    require_report(document.report["format"], where=f"{document.where(('report', 'format'))} $.report.format")


def _request(settings: Settings) -> CaseRequest:
    """What wins over the plan; what the plan itself says is read from there, below its cases."""
    asked_for = {name: value.value for name, value in settings.values.items() if value.origin > Origin.PLAN}
    if settings["source"]:
        asked_for.pop("dtype", None)  # it has narrowed the source, whose tensors keep their own dtypes
    return request_from(asked_for)


def _chip(settings: Settings, document: PlanDocument | None) -> str | None:
    """The chip; that of a plan belongs to the plan's backend, so it is not for another one asked in its place."""
    chip: str | None = settings["chip"]
    exchanged = settings.origin("backend").origin > Origin.PLAN
    if document is None or not exchanged or settings.origin("chip").origin > Origin.PLAN:
        return chip
    return chip if _name_and_kind(settings["backend"]) & _name_and_kind(document.backend or "numpy") else None


def _name_and_kind(backend: str) -> set[str]:
    known = backend in backend_manager.names()
    return {backend, backend_manager.kind_of(backend)} if known else {backend}


def with_deadline(case: TestCase, timeout_s: float) -> TestCase:
    """A default exists: nothing runs without a deadline."""
    return case if case.timeout_s is not None else dataclasses.replace(case, timeout_s=timeout_s)
