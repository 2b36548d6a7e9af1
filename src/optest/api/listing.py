"""``optest list``, ``explain`` and ``doctor``, and shell completion."""

from __future__ import annotations

import json
import platform
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from optest import __version__
from optest.api.startup import bootstrap
from optest.backends import backend_manager
from optest.errors import NothingSelected, OptestError, Unavailable, UnknownName, UsageError, unknown_among
from optest.generators.fills import FILLS, parameters_of
from optest.guests import run_hooks
from optest.operators import operators
from optest.operators.documentation import description_lines
from optest.plan.select import matching_ids, parse_keyword
from optest.process import fork_and_run
from optest.registry import OPTIONAL, load_entry_points, load_object, version_of
from optest.reporting.meanings import Meaning, named_meanings
from optest.reporting.typography import columns
from optest.settings import OPTIONS, plugin_modules, resolve
from optest.spec import Fault, OperatorDescriptor, Reason, Sample, TestCase, Tier, dtype_names, format_shape

_NAME_CASES = ("plan", "source", "op", "rerun_failed", "failed_first")
_GROUPS = ("optest.plugins", "optest.operators", "optest.backends", "optest.reporters")
_LOADED_WITHIN_S = 120.0
_CORE = ("numpy", "ml_dtypes", "click", "PyYAML", "pydantic", "msgspec", "rich")
_SELECT_NOTHING = ("runs_dir", "untrusted", "verbose", "accept_config")


def listing(kind: str | None, options: Mapping[str, Any], *, as_json: bool = False) -> Iterator[str]:
    """Yield a table of ``operators``, ``backends``, ``fills`` or ``cases``; cases by default if options name some.

    Raises:
        OptestError: as ``run`` would for the same options, if cases are listed.
        NothingSelected: if there is no row.
    """
    kind = kind or ("cases" if any(options.get(name) for name in _NAME_CASES) else "operators")
    if kind != "cases":  # a run's request loads plug-ins itself, also from the folders of a source
        bootstrap(accept_config=bool(options.get("accept_config")))
    accepted = ("op", "keyword", *_SELECT_NOTHING) if kind == "operators" else _SELECT_NOTHING
    for option in OPTIONS if kind != "cases" else ():
        if options.get(option.name) and option.name not in accepted:
            raise UsageError(f"{option.flags[-1]} is not for a list of {kind}; drop it, or list cases")
    rows = list(_ROWS[kind](options))
    if not rows:
        raise NothingSelected(f"no operator matches -k {options['keyword']!r}")
    if as_json:
        yield json.dumps(rows, indent=2)
        return
    for row in rows:
        row.update({name: ", ".join(value) for name, value in row.items() if isinstance(value, list)})
    yield from columns_of(rows)


def _operator_rows(options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all operators, or those that ``--op`` or ``-k`` select, also by an alias."""
    named = {name for alias in options.get("op") or () for name in operators.meanings(alias)}
    is_selected = parse_keyword(options["keyword"]) if options.get("keyword") else None
    for descriptor in operators:
        words = " ".join((descriptor.name, *operators.other_names(descriptor), descriptor.category))
        if (named and descriptor.name not in named) or (is_selected and not is_selected(words.casefold())):
            continue
        yield {
            "name": descriptor.name,
            "signature": str(descriptor.tensors),
            "rule": descriptor.rule.kind.value if descriptor.rule else "none: specify a tolerance",
            "aliases": list(operators.other_names(descriptor)),
        }


def _backend_rows(_: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in backend_manager.names():
        yield {"name": name, "kind": backend_manager.kind_of(name), "source": backend_manager.source_of(name)}


def _fill_rows(options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in FILLS:
        yield {"name": name, "parameters": parameters_of(name)} if options.get("verbose") else {"name": name}


def _case_rows(options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for case in _cases_of_run(options):
        yield {
            "id": case.id,
            "key": case.key,
            "where": case.where,
            "priority": case.priority,
            "tags": list(case.tags),
        }


def _cases_of_run(options: Mapping[str, Any]) -> list[TestCase]:
    """Return the cases that ``run`` would run; raise ``NothingSelected`` for an empty list."""
    from optest.api.run_request import nothing_selected, run_request  # imports pydantic, which a list need not

    request = run_request(options, imports_hooks=False)
    if not request.cases:
        raise nothing_selected(request.settings, request.every, request.notes)
    return request.cases


_ROWS = {"operators": _operator_rows, "backends": _backend_rows, "fills": _fill_rows, "cases": _case_rows}


def columns_of(rows: list[dict[str, Any]]) -> list[str]:
    """Return rows, which have the same keys, as lines of left-aligned columns; [] for no rows."""
    texts = [[str(value) for value in row.values()] for row in rows]
    return columns(texts, left=frozenset(range(len(texts[0]))), indent="") if texts else []


def explain(case_id: str | None, options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the origin of each value of the cases ``case_id`` (an id or a glob; None if only one case is selected).

    Without a plan, source or operator, it may be an operator, a reason, ``rule:ulp``, or a result of the latest run.

    Raises:
        UnknownName: if no case has such an id.
        UsageError: if there are several cases and none is named.
    """
    cases: list[TestCase] = []
    if case_id is not None and not any(options.get(name) for name in _NAME_CASES):
        bootstrap()
        known = named_meanings()
        of_rules = {name.partition(":")[2]: name for name in known if ":" in name}
        case_id = of_rules.get(case_id, case_id)
        if case_id not in known and not resolve(options)["plan"]:
            if case_id.endswith((".yaml", ".yml")):
                raise UsageError(f"the argument {case_id} is a plan, expected a case; write --plan {case_id}")
            if case_id in operators.names() or operators.spelling(case_id):
                for name in operators.meanings(case_id):
                    yield from _explain_operator(operators.get(name))
                return
            from optest.api.earlier_runs import selected_results  # reads journals, which a list need not
            from optest.core.wire import case_from_wire
            from optest.reporting.explain import explain as explain_result

            try:
                results = selected_results(Path(resolve(options)["runs_dir"]), "latest", [case_id])[0]
            except UsageError as error:
                kind, names = "operator, reason, status, rule or case", (*of_rules, *operators.names())
                raise UnknownName(kind, case_id, known, aliases=names, hint=f"as a case: {error}") from None
            yield from (line for result in results for line in explain_result(result))
            cases = [case_from_wire(result.case, operators.get) for result in results]
        if case_id in known:
            yield from _explain_meaning(case_id, known[case_id])
            return
    elif not any(options.get(name) for name in (*_NAME_CASES, "function")) and not resolve(options)["plan"]:
        raise UsageError("nothing to explain: name an operator, a reason or a case\n  for example: optest explain relu")
    from optest.plan import explain_case

    for case in cases or _named_cases(_cases_of_run(options), case_id):
        yield case.id if case.identifier() in case.id else f"{case.name}: {case.identifier()}"
        rows = [(label, value, f"({origin})" if origin else "") for label, value, origin in explain_case(case)]
        rows += [
            ("reference", words, "(operator)") for hooks in run_hooks() if (words := hooks.describe_reference(case))
        ]
        rows += [(label, rule, "") for label, rule in _rules(case)]
        width = max(len(label) for label, _, _ in rows)
        for label, value, origin in rows:
            yield f"  {label.ljust(width)}  {value}  {origin}".rstrip()


def _explain_meaning(name: str, meaning: Meaning) -> Iterator[str]:
    """Yield the meaning of a reason or rule, a remedy, and the operators that the rule applies to."""
    kind, _, rule = name.rpartition(":")
    of_rule = [x.name for x in operators if kind and x.rule is not None and x.rule.kind.value == rule]
    status = f" (status {Reason[name].status.value})" if name in Reason.__members__ else ""
    yield f"{name}{status}: {meaning.sentence}"
    yield f"  try: {meaning.remedy}"
    if of_rule:
        yield f"  operators: {', '.join(of_rule)}"


def _explain_operator(descriptor: OperatorDescriptor) -> Iterator[str]:
    """Yield the description of an operator, with its case sets and a command that explains one case."""
    samples = samples_of(descriptor)
    counts = Counter(sample.case_set for sample in samples)
    sets = ", ".join(f"{name} {count}" for name, count in counts.items())
    rows = [*description_lines(descriptor), ("case sets", sets or "none: a check runs no cases")]
    smoke = next((sample.case for sample in samples if sample.tier is Tier.SMOKE), None)
    if smoke is not None:
        dtypes = smoke.get("dtypes") or (*descriptor.dtype_variants, ("float32",))[0]
        dtypes = dtypes.values() if isinstance(dtypes, Mapping) else dtypes
        words = ["optest", "explain", "--op", descriptor.name, "--dtype", ",".join(dtypes)]
        words += [f"--shape {name}={format_shape(shape)}" for name, shape in smoke.get("shapes", {}).items()]
        values = {name: json.dumps(value, separators=(",", ":")) for name, value in smoke.get("attributes", {}).items()}
        words += [f"--attr {shlex.quote(f'{name}={text}')}" for name, text in values.items()]
        rows.append(("one case", " ".join(words)))
    yield f"{descriptor.name}: {descriptor.description}"
    width = max(len(label) for label, _ in rows)
    for label, text in rows:
        yield f"  {label.ljust(width)}  {text}"


def samples_of(
    descriptor: OperatorDescriptor, *, wants_set: Callable[[str], bool] = lambda _case_set: True
) -> list[Sample]:
    """Return the declared samples of an operator, and derived ones if it is built in; else those of its signature.

    Leave out the derived ones, which come last in their sets, if none of their sets is wanted. Raise ``UsageError`` if
    the samples cannot be built.
    """
    from optest.operators.derived_samples import DERIVED_SETS, derived_samples

    if descriptor.samples is None:
        from optest.api.case_sets import by_signature  # imports NumPy, which the catalogue need not

        return list(by_signature(descriptor).samples)
    samples = declared_samples(descriptor)
    # Layers and user-defined operators have only the samples that their authors wrote.
    if not samples or descriptor.parts or not str(descriptor.samples).startswith("optest."):
        return samples
    if not any(map(wants_set, DERIVED_SETS)):
        return samples
    return [*samples, *derived_samples(descriptor, samples)]


def declared_samples(descriptor: OperatorDescriptor) -> list[Sample]:
    """Return the samples that a descriptor declares; raise ``UsageError`` if their function fails."""
    from optest.core.border import Border

    if descriptor.samples is None:
        return []
    make = load_object(descriptor.samples)
    try:
        with Border(f"the samples of {descriptor.name}", Reason.BAD_CASE, let_through=lambda: True):
            return list(make())
    except Fault as fault:
        raise UsageError(fault.message) from None


def _named_cases(cases: list[TestCase], case_id: str | None) -> list[TestCase]:
    """Return the cases with this id or key, else those that match it as a glob; without an id the only case."""
    if case_id is None:
        if len(cases) == 1:
            return cases
        raise UsageError(f"{len(cases)} cases are selected; name one: optest explain CASE")
    named = [case for case in cases if case_id in (case.id, case.key)]
    selected = set() if named else matching_ids(case_id, [case.id for case in cases])
    named = named or [case for case in cases if case.id in selected]
    if not named:
        raise unknown_among("case", case_id, [case.id for case in cases], "`optest list cases` with the same flags")
    return named


def _rules(case: TestCase) -> list[tuple[str, str]]:
    """Return one rule for all outputs, or a rule for each output if they differ, with labels."""
    from optest.compare.policy import describe_rule

    rules = [describe_rule(case, index) for index in range(max(1, len(case.outputs)))]
    if len(set(rules)) == 1:
        return [("rule", rules[0])]
    return [(f"rule.output{index}", rule) for index, rule in enumerate(rules)]


def names_for(option: str) -> tuple[str, ...]:
    """Return the values that a shell may complete ``option`` to, () if a plug-in cannot be loaded."""
    try:
        bootstrap()
        return _NAMES[option]()
    except OptestError:  # a message would garble the half-typed line; the command itself reports it
        return ()


def _run_names() -> tuple[str, ...]:
    """Return ``latest`` and the ids of the latest runs, the newest first."""
    from optest.store import RunDirectory  # slow to import, and most lists do not need it

    runs = RunDirectory.all(Path(resolve()["runs_dir"]))
    return ("latest", *(run.id for run in reversed(runs[-_MOST_RUNS:]))) if runs else ()


def _case_sets() -> tuple[str, ...]:
    from optest.operators.derived_samples import INVARIANT_SET

    names = (sample.case_set for operator in operators for sample in declared_samples(operator))
    # A shell would split a name with a space into several words.
    return tuple(dict.fromkeys(name for name in (*names, INVARIANT_SET) if " " not in name))


_MOST_RUNS = 20
_NAMES: dict[str, Callable[[], tuple[str, ...]]] = {
    "op": operators.names,
    "backend": backend_manager.names,
    "bench_against": backend_manager.names,
    "dtype": dtype_names,
    "generator": lambda: tuple(FILLS),
    "report": lambda: load_object("optest.reporting:report_names")(),
    "case_set": _case_sets,
    **dict.fromkeys(("run", "resume", "rerun_failed", "failed_first"), _run_names),
}


def doctor(backend: str | None = None) -> Iterator[str]:
    """Yield a description of the machine and of all backends, or of ``backend`` only.

    A broken backend is reported in a line.

    Raises:
        UnknownName: if ``backend`` is not registered.
    """
    bootstrap()
    if backend is None:
        yield f"optest {__version__}, Python {platform.python_version()}, {platform.platform()}"
        for package in (*_CORE, *OPTIONAL):
            version = version_of(package)
            yield f"  {package} {version}" if version else f"  {package} is not installed: pip install {package}"
        yield f"plug-ins: {', '.join(plugin_modules()) or 'none (OPTEST_PLUGINS is empty)'}"
        for group in _GROUPS:
            installed = ", ".join(f"{name} ({path})" for name, path in load_entry_points(group))
            if installed:
                yield f"  installed, {group}: {installed}"
        yield f"C++ compiler: {shutil.which('g++') or shutil.which('c++') or 'none found'}"
    yield "backends:"
    if backend is not None:
        yield from _describe_backend(backend)
        return
    for name in backend_manager.names():
        yield from _describe_in_fork(name)


def _describe_in_fork(name: str) -> Iterator[str]:
    """Yield the lines of :func:`_describe_backend`, or one line if loading the backend crashes or takes too long."""
    # Frameworks have threads and settings that disturb each other in one process.
    fork = fork_and_run(lambda: "\n".join(_describe_backend(name)).encode())
    try:
        text = fork.read(_LOADED_WITHIN_S).decode()
    except TimeoutError:
        text = f"  {name}: not loaded within {_LOADED_WITHIN_S:g} s"
    status, signal = fork.end()
    ending = f"signal {signal}" if signal else f"status {status}"
    yield from text.splitlines() or [f"  {name}: the process that loaded it ended with {ending}"]


def _describe_backend(name: str) -> Iterator[str]:
    try:
        driver = backend_manager.get(name)
        facts = list(driver.doctor())
    except Unavailable as error:
        yield f"  {name}: unavailable: {error.remedy}"
        return
    except UnknownName:
        raise
    except UsageError as error:
        yield f"  {name}: {error}"
        return
    chips = f", chips {', '.join(driver.chips)}" if driver.chips else ""
    yield f"  {name}: kind {driver.kind}{chips}"
    for fact in facts:
        yield f"    {fact}"
