"""``optest check``: a backend is asked the samples of every operator, in the way that the cases of a plan take."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TextIO

from optest.api import bootstrap
from optest.api.baseline import offered_promises, offers, require_new
from optest.api.case_sets import by_signature, graph_samples, selection, smoke_samples
from optest.api.compared_functions import as_compared_functions, shape_options, with_case_sets
from optest.api.earlier_runs import as_in_the_earlier_check, as_the_resumed_check, rerun_of, what_failed
from optest.api.listing import columns_of, samples_of
from optest.api.report import Report
from optest.api.run_request import (
    RunRequest,
    configure,
    driver_named,
    nothing_selected,
    selected,
    with_backend_of_options,
    with_deadline,
    with_driver_options,
    with_tolerances,
)
from optest.api.running import run_cases, unused_expectations
from optest.api.second_opinion import with_second_opinion
from optest.backends import BackendDriver, Capability, backend_manager
from optest.backends.abilities import InfersShapes
from optest.backends.arguments import EMPTY, names_of
from optest.backends.command_abilities import (
    ChecksReadiness,
    KnowsExpectations,
    NamesOperators,
    SelectsSamples,
    StatesCapabilities,
    case_options_of,
    compared_variants,
    config_problems,
    runs_programs,
)
from optest.backends.function import FunctionBackend, kernel_of
from optest.core.expected import BY_BACKEND
from optest.core.layers import lack_of_operator
from optest.core.reference_functions import PREFIX
from optest.core.suggestion import COMPARE, HOW, SUGGESTED, lets_constants_pass
from optest.core.verdicts import SHOWS_NOTHING, judged_by_others
from optest.errors import NothingSelected, UnknownName, UsageError, did_you_mean, plural
from optest.generators.fills import check_fill
from optest.guests import guests
from optest.operators import operators
from optest.operators.signature_samples import SignatureSamples
from optest.plan import CaseRequest, PlanHost, request_from
from optest.plan.expectations import Expectations, read_expectations
from optest.plan.from_samples import SET_TAG, CasesOfSamples, cases_of_samples, plan_of_cases
from optest.plan.programs import Programs, read_programs
from optest.plan.tolerance_files import TORCH_PARITY
from optest.process import ForkServer
from optest.registry import load_extension, load_object
from optest.reporting.check_summary import in_order
from optest.reporting.check_table import CheckReporter
from optest.reporting.explain import texts
from optest.reporting.page import wants_color
from optest.reporting.variant_table import BASELINE, variant_lines, variant_text
from optest.settings import ConfigFile, Settings, Value, environment, resolve
from optest.spec import (
    BAD_STATUSES,
    TIERS,
    VALIDATION,
    BackendTarget,
    CaseResult,
    OperatorDescriptor,
    RunSummary,
    Status,
    TestCase,
    Tier,
    dtype,
    format_shape,
)
from optest.spec.case import GRAPH
from optest.store import write_atomically

MOST_JOBS = 8
_NAMED = 30
"""Operators that a backend lacks for one reason; of more, a backend of few operators, there is the number."""
_SHORT = 3
"""Length up to which a word occurs in other names by chance, as ``ge`` and ``not`` do."""
_NEARLY_ALL = 0.9
"""Share of failed calls from which a function may be for other inputs than those that it is given."""
_OTHER_ATTRIBUTE = re.compile(r"as if (\w+) were ([^ ,]+)(?:, its default,)? not ")
_NARROWING = ("group", "reference", "case_set", "keyword", "case", "tag", "skip_tag", "shard", "rerun_failed")
"""Options after which an operator is no longer asked in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """What a check asks: cases by operator as far as they were selected, and what is expected of them."""

    run: RunRequest
    by_operator: Sequence[CasesOfSamples]
    without_samples: Mapping[str, SignatureSamples]
    """What the signatures of operators say that state no samples."""
    lacking: Sequence[str] = ()
    """What the backend does not have of the catalogue, one sentence for each reason."""


def check(
    given: Mapping[str, Any],
    *,
    stream: TextIO | None = None,
    driver: BackendDriver | None = None,
    forks: ForkServer | None = None,
) -> Report:
    """Ask ``driver``, or the backend that ``given`` names; options are those of :data:`optest.settings.OPTIONS`.

    The exit status is that of a run, and 1 if an expectation excused nothing; with another seed than the default, with
    which such files are written, that is a note: the values that show a difference may not have been drawn.

    Raises:
        OptestError: for anything that keeps the check from starting.
    """
    request = check_request(as_the_resumed_check(given), driver)
    settings = request.run.settings
    out = stream or sys.stdout
    unused: list[str] = []

    def afterwards(results: Sequence[CaseResult], summary: RunSummary) -> Sequence[tuple[str, str]]:
        dtypes = {each.name for each in _case_request(settings).dtypes}
        is_smoke = settings["tier"] == Tier.SMOKE.value
        idle = {} if is_smoke else unused_expectations(request.run, results, summary, _NARROWING, dtypes)
        learned = {each.detail for result in results for each in result.verdict.checks if each.name == "arrays"}
        run, by_id = request.run, {case.id: case for case in request.run.cases}
        promises = offered_promises(results, by_id, run.driver)
        accepted = (*promises, *offers(results, run.driver.name), *_suggestions(results), *sorted(learned))
        notes = [
            (note, "dim") for note in (*accepted, *_notes(request, results), *_other_references(settings, results))
        ]
        if settings["bench"]:
            variants = request.run.facts.get("variants", ())
            table, slower = _variant_table(in_order(results), variants, settings["fail_if_slower"])
            notes = [*table, *notes]
            unused.extend(slower)
        silent = sum(each.verdict.message.startswith(SHOWS_NOTHING) for each in results)
        if 2 * silent > len(results):
            unused.append(
                f"{silent} of {len(results)} cases show nothing, expected at most half; specify others: --shape"
            )
        if settings["seed"]:
            message = f"expected, but did not happen with seed {settings['seed']}"
            notes = [*((line, "bad") for line in unused), *notes]
            return [*((f"{message}: {line}; lines are held to seed 0", "dim") for line in idle), *notes]
        unused.extend(f"expected, but did not happen: {line}; {remedy}" for line, remedy in idle.items())
        return [*((line, "bad") for line in unused), *notes]

    reporter = CheckReporter(
        out,
        verbosity=settings["verbose"] - settings["quiet"],
        color=wants_color(out, no_color=settings["no_color"], variables=environment()),
        afterwards=afterwards,
    )
    with with_second_opinion(dataclasses.replace(request.run, forks=forks)) as revised:
        outcome = run_cases(revised, stream=out, terminal=reporter)
    return dataclasses.replace(outcome, exit_status=outcome.exit_status or int(bool(unused)))


def _other_references(settings: Settings, results: Sequence[CaseResult]) -> list[str]:
    """How many cases were not expected by what ``--reference`` names, for each reason."""
    if not settings["reference"]:
        return []
    found = Counter(check.detail for each in results for check in each.verdict.checks if check.name == BY_BACKEND.name)
    return [f"{count:,} × expected by {detail}" for detail, count in found.most_common()]


def _suggestions(results: Sequence[CaseResult]) -> Iterator[str]:
    """Tolerances to begin with, for each operator without a rule: by dtype the largest that its cases suggest."""
    suggestions: dict[str, dict[str, list[Sequence[float]]]] = {}
    for each in results:
        if (suggested := each.verdict.details.get(SUGGESTED)) is not None:
            name = each.dtypes[0] if each.dtypes else ""
            suggestions.setdefault(each.operator, {}).setdefault(name, []).append(suggested)
    for operator, by_dtype in suggestions.items():
        texts = []
        for name, several in by_dtype.items():
            rtol, atol = (max(each[place] for each in several) for place in (0, 1))
            is_too_wide = any(lets_constants_pass(rtol, atol, *each[2:]) for each in several)
            texts.append(f"{name} " + ("none that fits all" if is_too_wide else f"rtol={rtol:g}, atol={atol:g}"))
        is_none = any("none" in text for text in texts)
        hint = f" (zeros, or the mean of the results, would pass; {COMPARE})" if is_none else ""
        yield f"{operator} has no rule; tolerances to begin with ({HOW}): {'; '.join(texts)}{hint}"


def _variant_table(
    results: Sequence[CaseResult], variants: Sequence[str], most: float | None
) -> tuple[list[tuple[str, str]], list[str]]:
    """The table of timings by variant, and what ``--fail-if-slower`` says of it."""
    lines = variant_lines(results, variants)
    text = [(line, "dim" if not place else "") for place, line in enumerate(variant_text(results, variants))]
    slower = [
        f"not timed in both variants, so that --fail-if-slower shows nothing of it: {line.operator}"
        for line in lines
        if most and not line.timed
    ]
    slower += [
        f"slower: {line.operator} takes {1 / speedup:.2f} times as long in {variants[1]} as in {variants[0]}"
        for line in lines
        if most and (speedup := line.speedup) is not None and speedup * most < 1
    ]
    return [*text, ("", "")], slower


def listed(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield what would be asked: id, tags and where the sample is written.

    Raises:
        OptestError: as :func:`check` would.
    """
    cases = check_request(given).run.cases
    yield from columns_of([{"id": each.id, "tags": ", ".join(each.tags), "where": each.where} for each in cases])


def write(given: Mapping[str, Any], path: str) -> str:
    """Write what would be asked to a plan and return a sentence about it.

    Raises:
        OptestError: as :func:`check` would, if the file cannot be written, and if it is there: someone may have
            edited it.
    """
    for name in ("group", "reference"):
        if given.get(name):
            raise UsageError(f"--write writes cases without what --{name} says of them; drop it")
    require_new(path)
    request = check_request(given)
    seed = request.run.settings["seed"] or 0
    driver = request.run.driver
    text = plan_of_cases(request.by_operator, backend=driver.name, seed=seed, options=case_options_of(driver))
    write_atomically(Path(path), text.encode())
    count = len(request.run.cases)
    return f"{count:,} case{'s' if count != 1 else ''} written; run: optest run --plan {path}"


def check_request(given: Mapping[str, Any], driver: BackendDriver | None = None) -> CheckRequest:
    """Resolve settings, driver (unless it is handed over), expectations and cases.

    Raises:
        UsageError, UnknownName, PlanError: for whatever cannot be carried out as written.
        Unavailable: if the backend needs what this machine lacks.
        NothingSelected: if the operators have no case sets, or no case of theirs is left.
    """
    bootstrap(accept_config=bool(given.get("accept_config")))
    settings = with_backend_of_options(as_compared_functions(as_in_the_earlier_check(given)))
    if driver is None:
        if not settings["backend"]:
            raise UsageError("no backend is named\n  for example: optest check --backend torch")
        driver = driver_named(settings, settings["chip"])
        configure(driver, settings)
        if isinstance(driver, ChecksReadiness) and (why := driver.ready_for_check()) is not None:
            raise UsageError(why)
    else:
        configure(driver, settings)
    settings = _with_jobs(settings, driver)
    target = backend_manager.target(driver, settings["chip"], settings["variant"])
    expectations = _expectations(settings, driver)
    stated: Any = driver.capabilities if isinstance(driver, StatesCapabilities) else {}
    if not isinstance(stated, Mapping) or not all(isinstance(each, Capability) for each in stated.values()):
        raise UsageError(f"capabilities of backend {driver.name} should map names of operators to Capability(…)")
    for name in stated:
        operators.get(name)  # raises UnknownName
    _require_config(driver, settings)
    _require_timings(driver, settings)
    programs = read_programs(settings["config"], driver.name, operators) if settings["config"] else Programs()
    named = driver.named_operators() if isinstance(driver, NamesOperators) and not settings["op"] else {}
    for name, function in named.items():
        if name not in operators:
            what = f"--function {function} is for {name}, which is no operator (see optest list operators)"
            raise UsageError("\n  ".join([what, *_other_ways(name, function)]))
    chosen, lacking = _available(driver, _chosen_operators(settings["op"] or [*named]), programs)
    chosen, compared = with_case_sets(chosen, _case_request(settings), settings["function"] or ())
    built = _built_cases(chosen, settings, target, driver, programs)
    every = [case for each in built for case in each.cases]
    cases, notes = _selected_cases([*every, *_baselines(every, driver, settings)], settings)
    kept = {case.id for case in cases}
    return CheckRequest(
        run=RunRequest(
            settings=settings,
            document=None,
            driver=driver,
            target=target,
            cases=[
                expectations.left_out(with_deadline(_in_group(case, settings), settings["timeout"])) for case in cases
            ],
            revise=lambda case, verdict: expectations.excused(case, judged_by_others(verdict)),
            facts={"command": "check", "tier": settings["tier"], **_variants(driver, settings)},
            every_measure=True,
            notes=notes,
            expectations=expectations,
        ),
        by_operator=[_kept_of(each, kept) for each in built],
        without_samples={**compared, **{each.name: by_signature(each) for each in chosen if each.samples is None}},
        lacking=lacking,
    )


def _other_ways(name: str, function: str) -> list[str]:
    """Return what to try for a function that computes no operator ``name``: an operator whose calls it takes, of a
    similar name or the only one with all of its parameters, if there is one, and a reference function."""
    plain, words = name.lower().replace("_", ""), name.lower().split("_")
    descriptors = [op for op in operators if not op.parts]
    if not re.search("backward|bwd|grad", plain):
        descriptors = [op for op in descriptors if "backward" not in op.name]
    names = {x.lower().replace("_", ""): op.name for op in descriptors for x in (op.name, *op.aliases)}
    signature = kernel_of(load_extension("function", function)).signatures[0].parameters
    parameters = {*signature}
    required = {each for each, parameter in signature.items() if parameter.default is EMPTY}
    known: dict[str, set[str]] = {op.name: set() for op in descriptors}
    for op in descriptors:
        known[op.name].update(
            *(names_of(x.name) for x in op.tensors.inputs), *(names_of(x.name) for x in op.attributes)
        )
    pairs = [(x, part, whole) for x in names for part, whole in ((x, plain), *((word, x) for word in words))]
    near = {x for x, part, whole in pairs if part == whole or (part in whole and len(part) > _SHORT)}
    if name in operators:  # its parameters may only have other names
        near = {x for x in near if plain in x}
    by_likeness = get_close_matches(plain, near, n=len(near) + 1, cutoff=0.0)
    whole = {names[x] for x in near if x in plain}  # of the others, parts of a name say less than parameters do
    likely = [op for op in dict.fromkeys(names[x] for x in by_likeness) if op != name]
    likely = [op for op in likely if op in whole or (required <= known[op] and len(required) > 1)]
    likely.sort(key=lambda op: -len(parameters & known[op]))
    likely += [
        names[x]
        for x in get_close_matches(plain, names, cutoff=0.75)
        if parameters <= known[names[x]] and names[x] != name
    ]
    found = next((each for each in likely if _takes_any(each, function, sample_cases(each))), None)
    if not found and len(parameters) >= _SHORT:  # the parameters may name it
        fitting = [op for op in known if op != name and parameters <= known[op]]
        fitting = [op for op in fitting if _takes_any(op, function, sample_cases(op))]
        found = fitting[0] if len(fitting) == 1 else None
    ways = [f"did you mean --function {found}={function}?"] if found else []
    if nearest := name if name in operators else "" if found else next((op for op in likely if op in whole), ""):
        ways.append(f"for {nearest}, give its parameters the names that optest explain {nearest} prints")
    return [*ways, "for a function that is no operator, name one that computes the same: --reference MODULE:NAME"]


def _takes_any(operator: str, function: str, cases: Iterable[TestCase]) -> bool:
    """Return whether a function has parameters for any of the cases of an operator, whatever it promises."""
    kernel = kernel_of(load_extension("function", function), operator)
    return any(dataclasses.replace(kernel, promised=Capability(refuses=False)).lacks(case) is None for case in cases)


def _require_config(driver: BackendDriver, settings: Settings) -> None:
    """Raise ``UsageError`` if a backend that runs programs is told of none, or another one is."""
    if runs_programs(driver) == bool(settings["config"]):
        return
    if settings["config"]:
        raise UsageError(f"--config is not for backend {driver.name}, which runs no programs; drop it")
    example = f"optest check --backend {driver.name} --config kernels.yaml"
    raise UsageError(f"backend {driver.name} does not know what to run\n  for example: {example}")


def _require_timings(driver: BackendDriver, settings: Settings) -> None:
    """Raise ``UsageError`` for ``--fail-if-slower`` where nothing can decide it, and for timings of nothing."""
    if settings["group"] and settings["bench"]:
        raise UsageError(f"--group {settings['group']} computes nothing that could be timed; drop --bench")
    if not settings["fail_if_slower"]:
        return
    if not 1 <= settings["fail_if_slower"] < math.inf:
        raise UsageError(f"--fail-if-slower is {settings['fail_if_slower']}, but should be a number of 1 or more")
    if not settings["bench"]:
        raise UsageError("--fail-if-slower decides by times; add --bench")
    if not _variants(driver, settings):
        raise UsageError("--fail-if-slower compares a backend's default variant with its baseline; here is one alone")


def _built_cases(
    chosen: Sequence[OperatorDescriptor],
    settings: Settings,
    target: BackendTarget,
    driver: BackendDriver,
    programs: Programs,
) -> list[CasesOfSamples]:
    """The cases of all operators that have samples.

    Raises:
        NothingSelected: if none has.
        UsageError: for what is wrong with the driver's options, which is wrong with every case; said once.
    """
    with_samples = [each for each in chosen if each.samples is not None or by_signature(each).samples]
    if not with_samples:
        raise NothingSelected(
            f"{', '.join(each.name for each in chosen)} cannot be checked, for want of case sets\n"
            f"  none follow from the signature: {'; '.join(dict.fromkeys(by_signature(each).how for each in chosen))}\n"
            "  give the descriptor `samples`, or write a plan: optest run --plan FILE"
        )
    built = [_cases_of(each, settings, target, driver, programs.stated.get(each.name)) for each in with_samples]
    cases = [case for of in built for case in of.cases]
    found = [(case.descriptor.name, each) for case in cases for each in config_problems(driver, case)]
    if programs.source:
        programs.refuse(driver.name, found)
    if found:
        raise UsageError("\n".join(dict.fromkeys(each for _, each in found)))
    return built


def _available(
    driver: BackendDriver, chosen: Sequence[OperatorDescriptor], programs: Programs
) -> tuple[list[OperatorDescriptor], tuple[str, ...]]:
    """The operators that the driver has, and sentences about the others.

    Raises:
        NothingSelected: if it has none.
    """
    reasons: dict[str, list[str]] = {}
    had = []
    for each in chosen:
        is_outside = programs.source and each.name not in programs.stated
        why = "not in the config" if is_outside else lack_of_operator(driver, each)
        if why is None:
            had.append(each)
        else:
            reasons.setdefault(why, []).append(each.name)
    listed = {why: f" ({', '.join(names)})" if len(names) <= _NAMED else "" for why, names in reasons.items()}
    has_few = 0 < len(had) < min(_NAMED, len(chosen) // 2) and not any(each.parts for each in had)
    messages = tuple(
        f"{names[0]} is {why}" if len(names) == 1 else f"{len(names)} operators are {why}{listed[why]}"
        for why, names in reasons.items()
        if not (has_few and operators.get(names[0]).parts)  # nobody expects layers of it
    )
    if not had:
        raise NothingSelected("nothing can be checked: " + "; ".join(messages))
    return had, messages


def sample_cases(operator: str, tier: Tier = Tier.PARITY) -> list[TestCase]:
    """The cases of one operator that a check of this tier asks, for a backend called ``numpy``.

    Raises:
        UsageError, PlanError: for samples that are wrong.
    """
    settings = resolve({"tier": tier.value}, variables={}, config=ConfigFile())
    target = BackendTarget(name="numpy", device="cpu")
    return list(_cases_of(operators.get(operator), settings, target, backend_manager.get("numpy")).cases)


def pairs_of_catalogue(descriptors: Iterable[OperatorDescriptor]) -> set[tuple[str, str]]:
    """Every (operator, dtype) that expectations could be stated for: a dtype that leads a combination of dtypes."""
    pairs = set()
    for descriptor in descriptors:
        for variant in descriptor.dtype_variants:
            inexact = [name for name in variant if dtype(name).is_inexact]
            pairs.add((descriptor.name, (inexact or list(variant))[0]))
    return pairs


def _expectations(settings: Settings, driver: BackendDriver) -> Expectations:
    """The driver's own and the user's; a line of the user's replaces one of the same name."""
    shipped = driver.expectations() if isinstance(driver, KnowsExpectations) else None
    paths = [*([shipped] if shipped is not None else []), *settings["expectations"]]
    stated = (read_expectations(path, operators=operators, versions=driver.versions()) for path in paths)
    return Expectations.joined(stated)


def _chosen_operators(names: Sequence[str]) -> list[OperatorDescriptor]:
    """Those of these names or aliases, all if none is given, in the order of the catalogue."""
    if not names:
        return list(operators)
    chosen = {meant for name in names for meant in operators.meanings(name)}
    return [each for each in operators if each.name in chosen] + [
        operators.get(name) for name in chosen if name not in operators
    ]


def _cases_of(
    descriptor: OperatorDescriptor,
    settings: Settings,
    target: BackendTarget,
    driver: BackendDriver,
    section: Mapping[str, Any] | None = None,
) -> CasesOfSamples:
    """The cases of an operator; ``section`` is what they say of the program that the driver runs for it."""
    stated, reference = _case_request(settings), _reference_of(descriptor, settings["reference"])
    of_all = CaseRequest(
        seed=stated.seed,
        timeout_s=stated.timeout_s,
        attributes=stated.attributes,
        tolerance=stated.tolerance,
        backend_config={driver.name: section or {}},
        reference=reference,
    )
    request = with_driver_options(driver, of_all)
    host = PlanHost(operators=operators, target=target, check_fill=check_fill)
    own = samples_of(descriptor)
    if isinstance(driver, SelectsSamples):
        own = list(driver.samples(list(zip(own, cases_of_samples(descriptor, own, request, host).cases, strict=True))))
    own = [*own, *graph_samples(driver, own)] if settings["group"] == VALIDATION else own
    tiers = TIERS[: TIERS.index(Tier(settings["tier"])) + 1]
    smoke = smoke_samples(own, [each.name for each in stated.dtypes]) if tiers == (Tier.SMOKE,) else []
    kept = {id(each) for each in (*smoke, *(each for each in own if each.tier in tiers))}
    is_asked = selection(driver) if settings["group"] == VALIDATION else lambda _: True
    return cases_of_samples(descriptor, own, request, host, wanted=lambda each: id(each) in kept and is_asked(each))


def _reference_of(descriptor: OperatorDescriptor, stated: str | None) -> str | None:
    """The import path of what ``--reference`` names for an operator, None where the operator keeps its own.

    Raises:
        Unavailable: for a package that is not installed.
        UnknownName: for a name that is neither a guest's nor an import path.
    """
    if stated is None or ":" in stated:
        return stated
    modules = {guest.backend: guest.references for guest in guests() if guest.references}
    if stated not in modules:
        raise UnknownName("reference", stated, modules)
    known: Collection[str] = load_object(f"{modules[stated]}:REFERENCES")
    return f"{modules[stated]}:{descriptor.name}" if descriptor.name in known else None


def _case_request(settings: Settings) -> CaseRequest:
    stated = filter(settings.stated, ("seed", "timeout", "retries", "dtype", "attr", "shape", "tolerance"))
    return request_from({name: settings[name] for name in stated})


def _selected_cases(every: Sequence[TestCase], settings: Settings) -> tuple[list[TestCase], tuple[str, ...]]:
    """The cases that the options leave, and notes about the choice.

    Raises:
        NothingSelected: if there are none.
    """
    dtypes = {each.name for each in _case_request(settings).dtypes}
    cases = [each for each in every if not dtypes or not dtypes.isdisjoint(entry.name for entry in each.dtypes)]
    known = dict.fromkeys(tag.removeprefix(SET_TAG) for case in every for tag in case.tags if SET_TAG in tag)
    sets = {f"{SET_TAG}{name}": name for name in settings["case_set"]}
    for name in sets.values():
        if name not in known:
            operators = ", ".join(dict.fromkeys(case.descriptor.name for case in every))
            hint = did_you_mean(name, known, f"there is {', '.join(known)}", text="did you mean {!r}?")
            raise UsageError(f"no case of {operators} is in a set {name!r}\n  {hint}")
    cases = selected([each for each in cases if not sets or not sets.keys().isdisjoint(each.tags)], settings)
    cases, notes = with_tolerances(cases, settings, TORCH_PARITY)
    if settings["rerun_failed"]:
        cases, note = rerun_of(what_failed(settings["runs_dir"], settings["rerun_failed"]), cases, every)
        notes = (*notes, note)
    if not cases:
        raise nothing_selected(settings, every)
    return cases, notes


def _in_group(case: TestCase, settings: Settings) -> TestCase:
    mode = GRAPH if f"{SET_TAG}{GRAPH}" in case.tags else settings["group"]
    return case if settings["group"] is None else dataclasses.replace(case, mode=mode)


def _kept_of(built: CasesOfSamples, kept: set[str]) -> CasesOfSamples:
    pairs = [pair for pair in zip(built.cases, built.entries, strict=True) if pair[0].id in kept]
    return CasesOfSamples(cases=[case for case, _ in pairs], entries=[entry for _, entry in pairs])


def _variants(driver: BackendDriver, settings: Settings) -> dict[str, Any]:
    """The baseline and the default of a driver that has both, where no variant is named."""
    known = () if settings["variant"] or settings["group"] else compared_variants(driver)
    return {"variants": [known[0], known[-1]]} if len(known) > 1 else {}


def _baselines(cases: Sequence[TestCase], driver: BackendDriver, settings: Settings) -> list[TestCase]:
    """The same cases for the driver's baseline, where it has one beside its default and no variant is named."""
    asked = _variants(driver, settings)
    if not asked:
        return []
    first = asked["variants"][0]
    return [
        dataclasses.replace(
            case, name=f"{case.id}{BASELINE}{first}", backend=dataclasses.replace(case.backend, variant=first)
        )
        for case in cases
    ]


def _with_jobs(settings: Settings, driver: BackendDriver) -> Settings:
    """As many workers as there are processors, unless somebody says otherwise or the device is not theirs."""
    runs_on_processors = (driver.device() or driver.kind).partition(":")[0] == "cpu"
    if settings.stated("jobs") or settings["isolate"] == "none" or not runs_on_processors:
        return settings
    jobs = min(MOST_JOBS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    return Settings({**settings.values, "jobs": Value(jobs)})


def _notes(request: CheckRequest, results: Sequence[CaseResult]) -> list[str]:
    """Return what was left out, what may be meant if nearly every call fails, and how much is expected to differ."""
    names_lacking = request.run.settings["op"] or not isinstance(request.run.driver, FunctionBackend)
    notes = list(request.lacking) if names_lacking else []  # a function is for one operator only
    functions = request.run.driver.case_options() if isinstance(request.run.driver, FunctionBackend) else {}
    for name, function in functions.items():
        kernel = kernel_of(load_extension("function", function), name)
        used = getattr(kernel.function, "__globals__", {}).values()
        is_launcher = any(type(value).__module__.startswith("triton.") for value in used)
        if is_launcher and request.run.driver.name != "triton":
            how = "--backend triton needs no GPU and checks loads and stores"
            notes.append(f"{function} launches Triton kernels: {how}")
        cases = [each for each in request.run.cases if name in (each.descriptor.name, *each.descriptor.aliases)]
        by_id = {each.id: each for each in cases}
        failed = [by_id[each.id] for each in results if each.id in by_id and each.status in BAD_STATUSES]
        called = failed + [by_id[each.id] for each in results if each.id in by_id and each.status is Status.PASSED]
        if failed and len(failed) >= _NEARLY_ALL * len(called):
            count, inputs = f"{len(failed)} of {len(called)} calls of {function} fail", failed[0].inputs
            by_place = kernel.by_place(failed[0])
            if name.startswith(PREFIX) and not request.run.settings["shape"]:
                given = ", ".join(f"{x.name} {x.spec.dtype.name} {format_shape(x.spec.shape)}" for x in inputs)
                others = f"{shape_options(x.name for x in inputs)}, and {inputs[0].name}: torch.IntTensor for integers"
                notes.append(f"{count}; if it is not for {given}, specify others: {others}")
            elif by_place:
                notes.append(f"{count}; by their places {', '.join(by_place)}; if that is wrong, rename them")
        said = [text for each in results if each.id in by_id for text in texts(each.verdict.details.get("diagnosis"))]
        as_if = Counter(found.groups() for text in said if (found := _OTHER_ATTRIBUTE.match(text)))
        for (attribute, value), times in as_if.most_common(1):
            if 2 * times > len(said) and not {*names_of(attribute)} & {*kernel.signatures[0].parameters}:
                is_word = value.isidentifier() and value not in ("True", "False", "None")
                stated = f"{attribute}={value!r}" if is_word else f"{attribute}={value}"
                how = f"give it a parameter {stated} and raise NotImplementedError for other values"
                notes.append(f"{function} computes {stated}; if it is meant for that alone, {how}")
        if not cases or cases[0].descriptor.name.startswith(PREFIX):
            continue
        if not _takes_any(name, function, cases):
            ways = [f"it {why}"] if (why := kernel.cannot_write(cases[0])) else _other_ways(name, function)
            notes.append("; ".join([f"{function} takes no call of {name}", *ways]))
        parameters = getattr(kernel.function, "parameters", None)
        if callable(parameters) and any(True for _ in parameters()):  # of a torch.nn.Module
            how = "--reference MODULE:NAME --shape x=4x64 --dtype float32"
            notes.append(f"{function} has weights of its own, which no case knows: compare it with a function: {how}")
    if request.run.settings["group"] == VALIDATION and not isinstance(request.run.driver, InfersShapes):
        notes.append(f"shapes and dtypes: not offered by {request.run.driver.name}, which has no `infer_shapes`")
    notes += [note for note in request.run.notes if note.startswith("tolerances: ")]  # which -q says here alone
    if reference := request.run.settings["reference"]:
        if reference == request.run.driver.name:
            notes.append(f"{reference} is compared with itself, in float64")
        kept = sorted({case.descriptor.name for case in request.run.cases if case.reference is None})
        notes += [f"not in reference {reference}, so expected by NumPy: {', '.join(kept)}"] if kept else []
    for name, derived in request.without_samples.items():
        what = (
            f"case sets of {name} derived from its signature"
            if derived.samples
            else f"no case sets, so not checked: {name}"
        )
        notes.append(f"{what}: {derived.how}")
    lines = request.run.expectations.lines
    if lines:
        pairs = pairs_of_catalogue(operators)
        expected = {line.pair for line in lines}
        share = len(expected) / max(1, len(pairs))
        of_all = f"{len(expected)} of {len(pairs)} pairs of operator and dtype ({share:.1%})"
        notes.append(f"expectations: {plural(len({line.where for line in lines}), 'line')} for {of_all}")
    return notes
