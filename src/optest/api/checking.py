"""``optest check``: the built-in cases of operators, run against a backend or a function."""

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

from optest.api.baseline import offered_promises, offers, require_new
from optest.api.case_sets import WantedSample, by_signature, graph_samples, sample_filter, selection, smoke_samples
from optest.api.compared_functions import as_compared_functions, shape_options, with_case_sets
from optest.api.earlier_runs import as_in_the_earlier_check, as_the_resumed_check, rerun_of, what_failed
from optest.api.listing import columns_of, samples_of
from optest.api.report import Report
from optest.api.run_request import (
    RunRequest,
    configure,
    driver_named,
    expectations_of,
    first_selection,
    nothing_selected,
    selected,
    with_backend_of_options,
    with_deadline,
    with_driver_options,
    with_tolerances,
)
from optest.api.running import run_cases, unused_expectations
from optest.api.second_opinion import with_second_opinion
from optest.api.startup import bootstrap
from optest.backends import BackendDriver, Capability, backend_manager
from optest.backends.abilities import InfersShapes
from optest.backends.arguments import EMPTY, names_of
from optest.backends.command_abilities import (
    DeclaresCapabilities,
    SelectsSamples,
    case_options_of,
    compared_variants,
    config_problems,
)
from optest.backends.function import FunctionBackend, kernel_of
from optest.core.expected import BY_BACKEND
from optest.core.layers import lack_of_operator
from optest.core.reference_functions import PREFIX
from optest.core.suggestion import COMPARE, HOW, SUGGESTED, accepts_constants
from optest.core.verdicts import SHOWS_NOTHING, suspect_if_self_judged
from optest.errors import NothingSelected, UnknownName, UsageError, did_you_mean, plural
from optest.generators.fills import check_fill
from optest.guests import guests
from optest.operators import operators
from optest.operators.signature_samples import SignatureSamples
from optest.plan import CaseRequest, PlanHost, request_from
from optest.plan.from_samples import SET_TAG, CasesOfSamples, cases_of_samples, plan_of_cases
from optest.plan.programs import Programs, read_programs
from optest.plan.tolerance_files import TORCH_PARITY
from optest.process import ForkServer
from optest.registry import load_extension, load_object
from optest.reporting.bench_table import BASELINE, variant_lines, variant_text
from optest.reporting.check_summary import in_order
from optest.reporting.check_table import CheckReporter
from optest.reporting.explain import detail_texts
from optest.reporting.page import wants_color
from optest.settings import ConfigFile, Settings, Value, environment, resolve
from optest.spec import (
    BAD_STATUSES,
    TIERS,
    VALIDATION,
    BackendTarget,
    CaseResult,
    OperatorDescriptor,
    RunSummary,
    Sample,
    Status,
    TestCase,
    Tier,
    dtype,
    format_shape,
)
from optest.spec.case import GRAPH
from optest.store import write_atomically

MOST_JOBS = 8
_MOST_NAMED = 30
"""Most operators unsupported for one reason that a note names; of more it reports the number."""
# Words up to this length occur in other names by chance, as `ge` and `not` do.
_SHORT = 3
# From this share of failed calls on, a function may be for other inputs.
_NEARLY_ALL = 0.9
_OTHER_ATTRIBUTE = re.compile(r"as if (\w+) were ([^ ,]+)(?:, its default,)? not ")
# Options with which a check may leave out cases that an expectation is about.
_NARROWING = ("group", "reference", "case_set", "keyword", "case", "tag", "skip_tag", "shard", "rerun_failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """The selected cases of a check, by operator.

    ``without_samples`` are samples derived from signatures; ``lacking`` are sentences about unsupported operators.
    """

    run: RunRequest
    by_operator: Sequence[CasesOfSamples]
    without_samples: Mapping[str, SignatureSamples]
    unsupported: Sequence[str] = ()


def check(
    options: Mapping[str, Any],
    *,
    stream: TextIO | None = None,
    driver: BackendDriver | None = None,
    forks: ForkServer | None = None,
) -> Report:
    """Run the built-in cases against ``driver``, or the backend that ``options`` name, and return the report.

    ``options`` are those of :data:`optest.settings.OPTIONS`. The exit status is that of a run, and 1 if an expectation
    was not met by any failure, more than half of the cases are inconclusive, or a variant is too slow.
    """
    request = check_request(as_the_resumed_check(options), driver)
    settings = request.run.settings
    out = stream or sys.stdout
    unused: list[str] = []

    def closing_notes(results: Sequence[CaseResult], summary: RunSummary) -> Sequence[tuple[str, str]]:
        """Return notes with their styles, and collect in ``unused`` the lines that fail the check."""
        dtypes = {x.name for x in _case_request(settings).dtypes}
        is_smoke = settings["tier"] == Tier.SMOKE.value
        idle = {} if is_smoke else unused_expectations(request.run, results, summary, _NARROWING, dtypes)
        learned = {check.detail for result in results for check in result.verdict.checks if check.name == "arrays"}
        run, by_id = request.run, {case.id: case for case in request.run.cases}
        promises = offered_promises(results, by_id, run.driver)
        accepted = (*promises, *offers(results, run.driver.name), *_suggestions(results), *sorted(learned))
        counts = Counter(x.detail for result in results for x in result.verdict.checks if x.name == BY_BACKEND.name)
        others = [
            f"expected outputs of {plural(count, 'case')}: from {detail}" for detail, count in counts.most_common()
        ]
        of_other_references = others if settings["reference"] else []
        notes = [(note, "dim") for note in (*accepted, *_notes(request, results), *of_other_references)]
        if settings["bench"]:
            variants = request.run.facts.get("variants", ())
            table, slower = _variant_table(in_order(results), variants, settings["fail_if_slower"])
            notes = [*table, *notes]
            unused.extend(slower)
        silent = sum(result.verdict.message.startswith(SHOWS_NOTHING) for result in results)
        if 2 * silent > len(results):
            unused.append(
                f"{silent} of {len(results)} cases are inconclusive, expected at most half; specify other shapes: "
                "--shape NAME=8x16"
            )
        # Expectations are written with the default seed; another one may not draw the values that differ.
        if settings["seed"]:
            message = f"expected failures that did not occur with seed {settings['seed']}"
            notes = [*((line, "bad") for line in unused), *notes]
            return [*((f"{message}: {line}; only seed 0 must reproduce them", "dim") for line in idle), *notes]
        unused.extend(f"expected failure did not occur: {line}; {remedy}" for line, remedy in idle.items())
        return [*((line, "bad") for line in unused), *notes]

    reporter = CheckReporter(
        out,
        verbosity=settings["verbose"] - settings["quiet"],
        color=wants_color(out, no_color=settings["no_color"], variables=environment()),
        afterwards=closing_notes,
    )
    with with_second_opinion(dataclasses.replace(request.run, forks=forks)) as revised:
        outcome = run_cases(revised, stream=out, terminal=reporter)
    return dataclasses.replace(outcome, exit_status=outcome.exit_status or int(bool(unused)))


def _suggestions(results: Sequence[CaseResult]) -> Iterator[str]:
    """Yield suggested tolerances for each operator without a rule: by dtype the largest that its cases suggest."""
    suggestions: dict[str, dict[str, list[Sequence[float]]]] = {}
    for result in results:
        if (suggested := result.verdict.details.get(SUGGESTED)) is not None:
            name = result.dtypes[0] if result.dtypes else ""
            suggestions.setdefault(result.operator, {}).setdefault(name, []).append(suggested)
    for operator, by_dtype in suggestions.items():
        texts = []
        for name, several in by_dtype.items():
            rtol, atol = (max(x[index] for x in several) for index in (0, 1))
            is_too_wide = any(accepts_constants(rtol, atol, *x[2:]) for x in several)
            texts.append(f"{name} " + ("none that fits all" if is_too_wide else f"rtol={rtol:g}, atol={atol:g}"))
        is_none = any("none" in text for text in texts)
        hint = f" (zeros, or the mean of the results, would pass; {COMPARE})" if is_none else ""
        yield f"{operator} has no rule; suggested tolerances ({HOW}): {'; '.join(texts)}{hint}"


def _variant_table(
    results: Sequence[CaseResult], variants: Sequence[str], most: float | None
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the table of timings by variant with its styles, and a line for each operator that is too slow.

    An operator is too slow if it is more than ``most`` times as slow as the baseline, or was not timed in both.
    """
    lines = variant_lines(results, variants)
    text = [(line, "dim" if not index else "") for index, line in enumerate(variant_text(results, variants))]
    slower = [
        f"--fail-if-slower cannot decide on {line.operator}, which was not timed in both variants"
        for line in lines
        if most and not line.timed
    ]
    slower += [
        f"slower: {line.operator} takes {1 / speedup:.2f} times as long in {variants[1]} as in {variants[0]}"
        for line in lines
        if most and (speedup := line.speedup) is not None and speedup * most < 1
    ]
    return [*text, ("", "")], slower


def listed(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield id, tags and source location of each case that :func:`check` would run with these options."""
    cases = check_request(options).run.cases
    yield from columns_of([{"id": case.id, "tags": ", ".join(case.tags), "where": case.where} for case in cases])


def write(options: Mapping[str, Any], path: str) -> str:
    """Write the cases that :func:`check` would run to a new file, as a plan, and return a sentence about it."""
    for name in ("group", "reference"):
        if options.get(name):
            raise UsageError(f"--write cannot write --{name} into a plan; drop --{name}")
    require_new(path)
    request = check_request(options)
    seed = request.run.settings["seed"] or 0
    driver = request.run.driver
    text = plan_of_cases(request.by_operator, backend=driver.name, seed=seed, options=case_options_of(driver))
    write_atomically(Path(path), text.encode())
    count = len(request.run.cases)
    return f"{count:,} case{'s' if count != 1 else ''} written; run: optest run --plan {path}"


def check_request(options: Mapping[str, Any], driver: BackendDriver | None = None) -> CheckRequest:
    """Resolve the options of a check into settings, driver (unless it is passed), expectations and cases.

    Raises:
        UsageError, UnknownName, PlanError: for wrong options or files.
        Unavailable: if the backend needs a package or device that this machine lacks.
        NothingSelected: if the operators have no case sets, or the options leave no case.
    """
    bootstrap(accept_config=bool(options.get("accept_config")))
    settings = with_backend_of_options(as_compared_functions(as_in_the_earlier_check(options)))
    if driver is None:
        if not settings["backend"]:
            raise UsageError("no backend is named\n  for example: optest check --backend torch")
        driver = driver_named(settings, settings["chip"])
        configure(driver, settings)
        if (why := driver.ready_for_check()) is not None:
            raise UsageError(why)
    else:
        configure(driver, settings)
    settings = _with_jobs(settings, driver)
    target = backend_manager.target(driver, settings["chip"], settings["variant"])
    shipped = driver.expectations()
    expectations = expectations_of(settings, driver, () if shipped is None else [(shipped, None)])
    capabilities: Any = driver.capabilities if isinstance(driver, DeclaresCapabilities) else {}
    if not isinstance(capabilities, Mapping) or not all(isinstance(x, Capability) for x in capabilities.values()):
        raise UsageError(
            f"capabilities of backend {driver.name} is {capabilities!r}, expected a mapping from names of operators to "
            "Capability(…)"
        )
    for name in capabilities:
        operators.get(name)  # raises UnknownName
    _require_config(driver, settings)
    _require_timings(driver, settings)
    programs = read_programs(settings["config"], driver.name, operators) if settings["config"] else Programs()
    named = driver.named_operators() if not settings["op"] else {}
    for name, function in named.items():
        if name not in operators:
            message = f"--function provides {name}, which is no operator (see optest list operators)"
            raise UsageError("\n  ".join([message, *_remedies(name, function)]))
    chosen, lacking = _supported(driver, _chosen_operators(settings["op"] or [*named]), programs)
    chosen, compared = with_case_sets(chosen, _case_request(settings), settings["function"] or ())

    def built_and_selected(wanted: WantedSample | None) -> tuple[list[CasesOfSamples], list[TestCase], tuple[str, ...]]:
        """Return the built cases, those that the options select, and notes about the choice."""
        built = _built_cases(chosen, settings, target, driver, programs, wanted)
        every = [case for operator in built for case in operator.cases]
        return built, *_selected_cases([*every, *_baselines(every, driver, settings)], settings)

    dtypes = {x.name for x in _case_request(settings).dtypes}
    built, cases, notes = first_selection(
        built_and_selected, settings, sample_filter(settings["case"], settings["case_set"], dtypes)
    )
    kept = {case.id for case in cases}
    if group := settings["group"]:
        cases = [dataclasses.replace(case, mode=GRAPH if f"{SET_TAG}{GRAPH}" in case.tags else group) for case in cases]
    return CheckRequest(
        run=RunRequest(
            settings=settings,
            document=None,
            driver=driver,
            target=target,
            cases=[expectations.skip(with_deadline(case, settings["timeout"])) for case in cases],
            revise=lambda case, verdict: expectations.waive(case, suspect_if_self_judged(verdict)),
            facts={"command": "check", "tier": settings["tier"], **_compared_variants(driver, settings)},
            every_measure=True,
            notes=notes,
            expectations=expectations,
        ),
        by_operator=[
            CasesOfSamples(
                cases=[case for case in x.cases if case.id in kept],
                entries=[entry for case, entry in zip(x.cases, x.entries, strict=True) if case.id in kept],
            )
            for x in built
        ],
        without_samples={**compared, **{op.name: by_signature(op) for op in chosen if op.samples is None}},
        unsupported=lacking,
    )


def _remedies(name: str, function: str) -> list[str]:
    """Return suggestions for a function that cannot be called as operator ``name``.

    Suggest an operator whose calls it takes, if it has a similar name or is the only one with all of the function's
    parameters; and always a reference function.
    """
    plain, words = name.lower().replace("_", ""), name.lower().split("_")
    descriptors = [op for op in operators if not op.parts]
    if not re.search("backward|bwd|grad", plain):
        descriptors = [op for op in descriptors if "backward" not in op.name]
    names = {x.lower().replace("_", ""): op.name for op in descriptors for x in (op.name, *op.aliases)}
    signature = kernel_of(load_extension("function", function)).signatures[0].parameters
    parameters = {*signature}
    required = {x for x, parameter in signature.items() if parameter.default is EMPTY}
    known: dict[str, set[str]] = {op.name: set() for op in descriptors}
    for op in descriptors:
        known[op.name].update(
            *(names_of(x.name) for x in op.tensors.inputs), *(names_of(x.name) for x in op.attributes)
        )
    pairs = [(x, part, text) for x in names for part, text in ((x, plain), *((word, x) for word in words))]
    near = {x for x, part, text in pairs if part == text or (part in text and len(part) > _SHORT)}
    if name in operators:  # only its parameters may have other names
        near = {x for x in near if plain in x}
    by_likeness = get_close_matches(plain, near, n=len(near) + 1, cutoff=0.0)
    contained = {names[x] for x in near if x in plain}  # parameters decide about operators that share only a word
    likely = [op for op in dict.fromkeys(names[x] for x in by_likeness) if op != name]
    likely = [op for op in likely if op in contained or (required <= known[op] and len(required) > 1)]
    likely.sort(key=lambda op: -len(parameters & known[op]))
    likely += [
        names[x]
        for x in get_close_matches(plain, names, cutoff=0.75)
        if parameters <= known[names[x]] and names[x] != name
    ]
    match = next((op for op in likely if _takes_any(op, function, sample_cases(op))), None)
    if not match and len(parameters) >= _SHORT:  # the parameters may identify the operator
        fitting = [op for op in known if op != name and parameters <= known[op]]
        fitting = [op for op in fitting if _takes_any(op, function, sample_cases(op))]
        match = fitting[0] if len(fitting) == 1 else None
    remedies = [f"did you mean --function {match}={function}?"] if match else []
    if nearest := name if name in operators else "" if match else next((op for op in likely if op in contained), ""):
        remedies.append(f"for {nearest}, rename the parameters as optest explain {nearest} prints them")
    return [*remedies, "for a function that is no operator, name one that computes the same: --reference MODULE:NAME"]


def _takes_any(operator: str, function: str, cases: Iterable[TestCase]) -> bool:
    """Return whether a function has the parameters for any of the cases of an operator; ignore its promises."""
    kernel = kernel_of(load_extension("function", function), operator)
    return any(dataclasses.replace(kernel, promised=Capability(refuses=False)).lacks(case) is None for case in cases)


def _require_config(driver: BackendDriver, settings: Settings) -> None:
    """Raise ``UsageError`` if a backend that runs programs has no ``--config``, or another backend has one."""
    if driver.runs_programs == bool(settings["config"]):
        return
    if settings["config"]:
        raise UsageError(f"--config is not for backend {driver.name}, which runs no programs; drop it")
    example = f"optest check --backend {driver.name} --config kernels.yaml"
    raise UsageError(f"backend {driver.name} needs a file that names its programs\n  for example: {example}")


def _require_timings(driver: BackendDriver, settings: Settings) -> None:
    """Raise ``UsageError`` for ``--bench`` with ``--group``, and for ``--fail-if-slower`` without two timings."""
    if settings["group"] and settings["bench"]:
        raise UsageError(f"--group {settings['group']} computes no values, so nothing can be timed; drop --bench")
    if not settings["fail_if_slower"]:
        return
    if not 1 <= settings["fail_if_slower"] < math.inf:
        raise UsageError(f"--fail-if-slower is {settings['fail_if_slower']}, expected a number of 1 or more")
    if not settings["bench"]:
        raise UsageError("--fail-if-slower needs timings; add --bench")
    if not _compared_variants(driver, settings):
        raise UsageError(
            f"--fail-if-slower compares the default variant with the baseline, but backend {driver.name} runs only one"
            "; drop it"
        )


def _built_cases(
    chosen: Sequence[OperatorDescriptor],
    settings: Settings,
    target: BackendTarget,
    driver: BackendDriver,
    programs: Programs,
    wanted: WantedSample | None = None,
) -> list[CasesOfSamples]:
    """Build the `wanted` cases of all operators that have samples or a signature that implies some.

    Raises:
        NothingSelected: if no operator has samples.
        UsageError: for wrong options of the driver, each problem once.
    """
    with_samples = [op for op in chosen if op.samples is not None or by_signature(op).samples]
    if not with_samples:
        raise NothingSelected(
            f"{', '.join(op.name for op in chosen)} cannot be checked: no case sets\n"
            f"  none follow from the signature: {'; '.join(dict.fromkeys(by_signature(op).how for op in chosen))}\n"
            "  give the descriptor `samples`, or write a plan: optest run --plan FILE"
        )
    sections = programs.options_by_operator
    built = [_cases_of(x, settings, target, driver, sections.get(x.name), wanted) for x in with_samples]
    cases = [case for operator in built for case in operator.cases]
    problems = [(case.descriptor.name, x) for case in cases for x in config_problems(driver, case)]
    if programs.source:
        programs.refuse(driver.name, problems)
    if problems:
        raise UsageError("\n".join(dict.fromkeys(text for _, text in problems)))
    return built


def _supported(
    driver: BackendDriver, chosen: Sequence[OperatorDescriptor], programs: Programs
) -> tuple[list[OperatorDescriptor], tuple[str, ...]]:
    """Return the operators that the driver supports, and sentences about the others.

    Raise ``NothingSelected`` if it supports none.
    """
    reasons: dict[str, list[str]] = {}
    supported = []
    for operator in chosen:
        is_outside = programs.source and operator.name not in programs.options_by_operator
        why = "not in the config" if is_outside else lack_of_operator(driver, operator)
        if why is None:
            supported.append(operator)
        else:
            reasons.setdefault(why, []).append(operator.name)
    listed = {why: f" ({', '.join(names)})" if len(names) <= _MOST_NAMED else "" for why, names in reasons.items()}
    has_few = 0 < len(supported) < min(_MOST_NAMED, len(chosen) // 2) and not any(x.parts for x in supported)
    messages = tuple(
        f"{names[0]} is {why}" if len(names) == 1 else f"{len(names)} operators are {why}{listed[why]}"
        for why, names in reasons.items()
        if not (has_few and operators.get(names[0]).parts)  # missing layers of a backend of few operators are no news
    )
    if not supported:
        raise NothingSelected("nothing can be checked: " + "; ".join(messages))
    return supported, messages


def sample_cases(operator: str, tier: Tier = Tier.PARITY) -> list[TestCase]:
    """Return the cases of an operator that a check of this tier runs, for a backend called ``numpy``."""
    settings = resolve({"tier": tier.value}, variables={}, config=ConfigFile())
    target = BackendTarget(name="numpy", device="cpu")
    return list(_cases_of(operators.get(operator), settings, target, backend_manager.get("numpy")).cases)


def pairs_of_catalogue(descriptors: Iterable[OperatorDescriptor]) -> set[tuple[str, str]]:
    """Return every (operator, dtype) that an expectation can name: the first inexact, else first dtype of a variant."""
    pairs = set()
    for descriptor in descriptors:
        for variant in descriptor.dtype_variants:
            inexact = [name for name in variant if dtype(name).is_inexact]
            pairs.add((descriptor.name, (inexact or list(variant))[0]))
    return pairs


def _chosen_operators(names: Sequence[str]) -> list[OperatorDescriptor]:
    """Return the operators of these names or aliases, by default all, in the order of the catalogue."""
    if not names:
        return list(operators)
    chosen = {meaning for name in names for meaning in operators.meanings(name)}
    return [op for op in operators if op.name in chosen] + [
        operators.get(name) for name in chosen if name not in operators
    ]


def _cases_of(
    descriptor: OperatorDescriptor,
    settings: Settings,
    target: BackendTarget,
    driver: BackendDriver,
    section: Mapping[str, Any] | None = None,
    wanted: WantedSample | None = None,
) -> CasesOfSamples:
    """Build the ``wanted`` cases of an operator; ``section`` is the config of the program that runs it."""
    explicit, reference = _case_request(settings), _reference_path(descriptor, settings["reference"])
    of_all = CaseRequest(
        seed=explicit.seed,
        timeout_s=explicit.timeout_s,
        attributes=explicit.attributes,
        tolerance=explicit.tolerance,
        backend_config={driver.name: section or {}},
        reference=reference,
    )
    request = with_driver_options(driver, of_all)
    host = PlanHost(operators=operators, target=target, check_fill=check_fill)
    tiers = TIERS[: TIERS.index(Tier(settings["tier"])) + 1]
    # All samples are needed if the driver, the group or the smoke tier chooses among them.
    chooses = isinstance(driver, SelectsSamples) or settings["group"] == VALIDATION or tiers == (Tier.SMOKE,)

    def wants_set(case_set: str) -> bool:
        head = f"{descriptor.name}/{case_set}/"
        return wanted is None or chooses or wanted(Sample(case_set=case_set, case={}), head)

    samples = samples_of(descriptor, wants_set=wants_set)
    if isinstance(driver, SelectsSamples):
        cases = cases_of_samples(descriptor, samples, request, host).cases
        samples = list(driver.samples(list(zip(samples, cases, strict=True))))
    samples = [*samples, *graph_samples(driver, samples)] if settings["group"] == VALIDATION else samples
    smoke = smoke_samples(samples, [x.name for x in explicit.dtypes]) if tiers == (Tier.SMOKE,) else []
    kept = {id(x) for x in smoke} | {id(x) for x in samples if x.tier in tiers}
    is_in_group = selection(driver) if settings["group"] == VALIDATION else None

    def is_built(sample: Sample, head: str) -> bool:
        if id(sample) not in kept or (is_in_group is not None and not is_in_group(sample)):
            return False
        return wanted is None or wanted(sample, head)

    return cases_of_samples(descriptor, samples, request, host, wanted=is_built)


def _reference_path(descriptor: OperatorDescriptor, reference: str | None) -> str | None:
    """Return the import path of ``--reference`` for an operator; None if the operator keeps its built-in reference.

    Raises:
        Unavailable: for a package that is not installed.
        UnknownName: for a name that is neither an integration's nor an import path.
    """
    if reference is None or ":" in reference:
        return reference
    modules = {guest.backend: guest.references for guest in guests() if guest.references}
    if reference not in modules:
        raise UnknownName("reference", reference, modules)
    known: Collection[str] = load_object(f"{modules[reference]}:REFERENCES")
    return f"{modules[reference]}:{descriptor.name}" if descriptor.name in known else None


def _case_request(settings: Settings) -> CaseRequest:
    names = filter(settings.is_set, ("seed", "timeout", "retries", "dtype", "attr", "shape", "tolerance"))
    return request_from({name: settings[name] for name in names})


def _selected_cases(every: Sequence[TestCase], settings: Settings) -> tuple[list[TestCase], tuple[str, ...]]:
    """Return the cases that the options leave, and notes about the choice.

    Raise ``NothingSelected`` if no case is left.
    """
    dtypes = {x.name for x in _case_request(settings).dtypes}
    cases = [x for x in every if not dtypes or not dtypes.isdisjoint(entry.name for entry in x.dtypes)]
    known = dict.fromkeys(tag.removeprefix(SET_TAG) for case in every for tag in case.tags if SET_TAG in tag)
    sets = {f"{SET_TAG}{name}": name for name in settings["case_set"]}
    for name in sets.values():
        if name not in known:
            operators = ", ".join(dict.fromkeys(case.descriptor.name for case in every))
            hint = did_you_mean(name, known, f"known sets: {', '.join(known)}", text="did you mean {!r}?")
            raise UsageError(f"--set {name} has no case of {operators}\n  {hint}")
    cases = selected([case for case in cases if not sets or not sets.keys().isdisjoint(case.tags)], settings)
    cases, notes = with_tolerances(cases, settings, TORCH_PARITY)
    if settings["rerun_failed"]:
        cases, note = rerun_of(what_failed(settings["runs_dir"], settings["rerun_failed"]), cases, every)
        notes = (*notes, note)
    if not cases:
        raise nothing_selected(settings, every)
    return cases, notes


def _compared_variants(driver: BackendDriver, settings: Settings) -> dict[str, Any]:
    """Return the driver's baseline and default variant under ``variants``; {} if it has one or the user named one."""
    known = () if settings["variant"] or settings["group"] else compared_variants(driver)
    return {"variants": [known[0], known[-1]]} if len(known) > 1 else {}


def _baselines(cases: Sequence[TestCase], driver: BackendDriver, settings: Settings) -> list[TestCase]:
    """Return copies of the cases for the driver's baseline variant, [] if variants are not compared."""
    compared = _compared_variants(driver, settings)
    if not compared:
        return []
    first = compared["variants"][0]
    return [
        dataclasses.replace(
            case, name=f"{case.id}{BASELINE}{first}", backend=dataclasses.replace(case.backend, variant=first)
        )
        for case in cases
    ]


def _with_jobs(settings: Settings, driver: BackendDriver) -> Settings:
    """Set ``jobs`` to the number of processors, at most 8, unless it is explicit or the backend uses a device."""
    runs_on_processors = (driver.device() or driver.kind).partition(":")[0] == "cpu"
    if settings.is_set("jobs") or settings["isolate"] == "none" or not runs_on_processors:
        return settings
    jobs = min(MOST_JOBS, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    return Settings({**settings.values, "jobs": Value(jobs)})


def _notes(request: CheckRequest, results: Sequence[CaseResult]) -> list[str]:
    """Return notes on unsupported operators, functions that fail nearly every call, references and expectations."""
    # A function is for one operator: that it lacks the others is no news.
    names_lacking = request.run.settings["op"] or not isinstance(request.run.driver, FunctionBackend)
    notes = list(request.unsupported) if names_lacking else []
    functions = request.run.driver.case_options() if isinstance(request.run.driver, FunctionBackend) else {}
    for name, function in functions.items():
        kernel = kernel_of(load_extension("function", function), name)
        used = getattr(kernel.function, "__globals__", {}).values()
        is_launcher = any(type(value).__module__.startswith("triton.") for value in used)
        if is_launcher and request.run.driver.name != "triton":
            how = "--backend triton needs no GPU and checks loads and stores"
            notes.append(f"{function} launches Triton kernels: {how}")
        cases = [case for case in request.run.cases if name in (case.descriptor.name, *case.descriptor.aliases)]
        by_id = {case.id: case for case in cases}
        failed = [by_id[result.id] for result in results if result.id in by_id and result.status in BAD_STATUSES]
        called = failed + [by_id[x.id] for x in results if x.id in by_id and x.status is Status.PASSED]
        if failed and len(failed) >= _NEARLY_ALL * len(called):
            count, inputs = f"{len(failed)} of {len(called)} calls of {function} fail", failed[0].inputs
            by_position = kernel.by_position(failed[0])
            if name.startswith(PREFIX) and not request.run.settings["shape"]:
                used = ", ".join(f"{x.name} {x.spec.dtype.name} {format_shape(x.spec.shape)}" for x in inputs)
                others = f"{shape_options(x.name for x in inputs)}, and {inputs[0].name}: torch.IntTensor for integers"
                notes.append(f"{count}; if it is not for {used}, specify other inputs: {others}")
            elif by_position:
                notes.append(f"{count}; assigned by position: {', '.join(by_position)}; if wrong, rename parameters")
        diagnoses = [
            text
            for result in results
            if result.id in by_id
            for text in detail_texts(result.verdict.details.get("diagnosis"))
        ]
        as_if = Counter(match.groups() for text in diagnoses if (match := _OTHER_ATTRIBUTE.match(text)))
        for (attribute, value), times in as_if.most_common(1):
            if 2 * times > len(diagnoses) and not {*names_of(attribute)} & {*kernel.signatures[0].parameters}:
                is_word = value.isidentifier() and value not in ("True", "False", "None")
                default = f"{attribute}={value!r}" if is_word else f"{attribute}={value}"
                how = f"give it a parameter {default} and raise NotImplementedError for other values"
                notes.append(f"{function} computes {default}; if it supports only that, {how}")
        if not cases or cases[0].descriptor.name.startswith(PREFIX):
            continue
        if not _takes_any(name, function, cases):
            remedies = [f"it {why}"] if (why := kernel.cannot_write(cases[0])) else _remedies(name, function)
            notes.append("; ".join([f"{function} takes no call of {name}", *remedies]))
        parameters = getattr(kernel.function, "parameters", None)
        if callable(parameters) and any(True for _ in parameters()):  # of a torch.nn.Module
            how = "--reference MODULE:NAME --shape x=4x64 --dtype float32"
            notes.append(f"{function} has weights, which the cases do not use; compare it with a function: {how}")
    if request.run.settings["group"] == VALIDATION and not isinstance(request.run.driver, InfersShapes):
        notes.append(f"shapes and dtypes are not checked: backend {request.run.driver.name} has no `infer_shapes`")
    notes += [note for note in request.run.notes if note.startswith("tolerances: ")]  # -q prints it only here
    if reference := request.run.settings["reference"]:
        if reference == request.run.driver.name:
            notes.append(f"{reference} is compared with itself, computed in float64")
        kept = sorted({case.descriptor.name for case in request.run.cases if case.reference is None})
        notes += [f"not in reference {reference}, so compared with NumPy: {', '.join(kept)}"] if kept else []
    for name, derived in request.without_samples.items():
        outcome = "case sets derived from the signature" if derived.samples else "not checked, as it has no case sets"
        notes.append(f"{name}: {outcome}: {derived.how}")
    if lines := request.run.expectations.lines:
        pairs = pairs_of_catalogue(operators)
        expected = {line.pair for line in lines}
        share = len(expected) / max(1, len(pairs))
        of_all = f"{len(expected)} of {len(pairs)} pairs of operator and dtype ({share:.1%})"
        notes.append(f"expectations: {plural(len({line.where for line in lines}), 'line')} for {of_all}")
    return notes
