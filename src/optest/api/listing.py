"""``optest list``, ``optest explain`` and completion: what there is, and where each value of a case came from."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from optest.api import bootstrap
from optest.backends import backend_manager
from optest.errors import NothingSelected, OptestError, UnknownName, UsageError, did_you_mean
from optest.generators.fills import FILLS, parameters_of
from optest.guests import run_hooks
from optest.operators import operators
from optest.operators.documentation import described
from optest.plan.select import matching_ids, parse_keyword
from optest.registry import load_object
from optest.reporting.meanings import Meaning, named_meanings
from optest.settings import OPTIONS, resolve
from optest.spec import Fault, OperatorDescriptor, Reason, Sample, TestCase, Tier, dtype_names, format_shape

_NAME_CASES = ("plan", "source", "op", "rerun_failed", "failed_first")
_SELECT_NOTHING = ("runs_dir", "untrusted", "verbose", "accept_config")
_LISTED = 12
"""As many names are shown in an error."""


def listing(what: str | None, given: Mapping[str, Any], *, as_json: bool = False) -> Iterator[str]:
    """Yield the lines of ``operators``, ``backends``, ``fills`` or ``cases``.

    Raises:
        OptestError: as ``run`` would for the same flags, when cases are listed.
        NothingSelected: if no case is left.
    """
    what = what or ("cases" if any(given.get(name) for name in _NAME_CASES) else "operators")
    if what != "cases":  # a run's request may have further folders that plug-ins lie in
        bootstrap(accept_config=bool(given.get("accept_config")))
    taken = ("op", "keyword", *_SELECT_NOTHING) if what == "operators" else _SELECT_NOTHING
    for option in OPTIONS if what != "cases" else ():
        if given.get(option.name) and option.name not in taken:
            raise UsageError(f"{option.flags[-1]} is not for a list of {what}; drop it, or list cases")
    rows = list(_ROWS[what](given))
    if not rows:
        raise NothingSelected(f"no operator matches -k {given['keyword']!r}")
    if as_json:
        yield json.dumps(rows, indent=2)
        return
    for row in rows:
        row.update({name: ", ".join(value) for name, value in row.items() if isinstance(value, list)})
    yield from columns_of(rows)


def _operators(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All operators, or those that ``--op`` or ``-k`` name, by an alias too."""
    named = {name for each in given.get("op") or () for name in operators.meanings(each)}
    is_wanted = parse_keyword(given["keyword"]) if given.get("keyword") else None
    for descriptor in operators:
        words = " ".join((descriptor.name, *operators.other_names(descriptor), descriptor.category))
        if (named and descriptor.name not in named) or (is_wanted and not is_wanted(words.casefold())):
            continue
        yield {
            "name": descriptor.name,
            "signature": str(descriptor.tensors),
            "rule": descriptor.rule.kind.value if descriptor.rule else "a tolerance has to be stated",
            "aliases": list(operators.other_names(descriptor)),
        }


def _backends(_: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in backend_manager.names():
        yield {"name": name, "kind": backend_manager.kind_of(name), "source": backend_manager.source_of(name)}


def _fills(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name in FILLS:
        yield {"name": name, "parameters": parameters_of(name)} if given.get("verbose") else {"name": name}


def _cases(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for case in _selected_cases(given):
        yield {
            "id": case.id,
            "key": case.key,
            "where": case.where,
            "priority": case.priority,
            "tags": list(case.tags),
        }


def _selected_cases(given: Mapping[str, Any]) -> list[TestCase]:
    from optest.api.run_request import nothing_selected, run_request  # plans bring pydantic; operators can do without

    request = run_request(given, imports_hooks=False)
    if not request.cases:
        raise nothing_selected(request.settings, request.every, request.notes)
    return request.cases


_ROWS = {"operators": _operators, "backends": _backends, "fills": _fills, "cases": _cases}


def columns_of(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The values of the rows below each other; every row has the same keys."""
    if not rows:
        return
    texts = [{name: str(value) for name, value in row.items()} for row in rows]
    widths = {name: max(len(row[name]) for row in texts) for name in texts[0]}
    for row in texts:
        yield "  ".join(value.ljust(widths[name]) for name, value in row.items()).rstrip()


def explain(case_id: str | None, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield where each value of a case came from; ``case_id`` is an id or a glob, None if there is one case alone.

    Without a plan, source or operator, it may be an operator, a reason, ``rule:ulp``, or a result of the latest run.

    Raises:
        UnknownName: if no case has such an id.
        UsageError: if there are several cases and none is named.
    """
    cases: list[TestCase] = []
    if case_id is not None and not any(given.get(name) for name in _NAME_CASES):
        bootstrap()
        known = named_meanings()
        of_rules = {name.partition(":")[2]: name for name in known if ":" in name}
        case_id = of_rules.get(case_id, case_id)
        if case_id not in known and not resolve(given)["plan"]:
            if case_id.endswith((".yaml", ".yml")):
                raise UsageError(f"a plan has a flag of its own here: --plan {case_id}")
            if case_id in operators.names() or operators.spelling(case_id):
                for name in operators.meanings(case_id):
                    yield from _operator(operators.get(name))
                return
            from optest.api.replaying import selected_results  # brings what runs cases
            from optest.core.wire import case_from_wire
            from optest.reporting.explain import explain as explain_result

            try:
                results = selected_results(Path(resolve(given)["runs_dir"]), "latest", [case_id])[0]
            except UsageError as error:
                kind, names = "operator, reason, status, rule or case", (*of_rules, *operators.names())
                raise UnknownName(kind, case_id, known, aliases=names, hint=f"as a case: {error}") from None
            yield from (line for result in results for line in explain_result(result))
            cases = [case_from_wire(each.case, operators.get) for each in results]
        if case_id in known:
            yield from _meaning(case_id, known[case_id])
            return
    elif not any(given.get(name) for name in (*_NAME_CASES, "function")) and not resolve(given)["plan"]:
        raise UsageError("nothing to explain: name an operator, a reason or a case\n  for example: optest explain relu")
    from optest.plan import explain_case

    for case in cases or _named(_selected_cases(given), case_id):
        yield case.id if case.identifier() in case.id else f"{case.name}: {case.identifier()}"
        rows = [(what, value, f"({origin})" if origin else "") for what, value, origin in explain_case(case)]
        rows += [
            ("reference", words, "(operator)") for hooks in run_hooks() if (words := hooks.describe_reference(case))
        ]
        rows += [(what, rule, "") for what, rule in _rules(case)]
        width = max(len(what) for what, _, _ in rows)
        for what, value, origin in rows:
            yield f"  {what.ljust(width)}  {value}  {origin}".rstrip()


def _meaning(name: str, meaning: Meaning) -> Iterator[str]:
    kind, _, rule = name.rpartition(":")
    judged = [each.name for each in operators if kind and each.rule is not None and each.rule.kind.value == rule]
    status = f" (status {Reason[name].status.value})" if name in Reason.__members__ else ""
    yield f"{name}{status}: {meaning.sentence}"
    yield f"  try: {meaning.remedy}"
    if judged:
        yield f"  operators: {', '.join(judged)}"


def _operator(descriptor: OperatorDescriptor) -> Iterator[str]:
    """Yield the description of an operator, with its case sets and a command that explains one case."""
    samples = samples_of(descriptor)
    counts = Counter(sample.case_set for sample in samples)
    sets = ", ".join(f"{name} {count}" for name, count in counts.items())
    rows = [*described(descriptor), ("case sets", sets or "none: a check has nothing to run")]
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


def samples_of(descriptor: OperatorDescriptor) -> list[Sample]:
    """Return the samples of an operator, with those derived from them if it is built in; if it has none, the samples
    that its signature implies.

    Raises:
        UsageError: if they cannot be built.
    """
    from optest.operators.derived_samples import derived_samples

    if descriptor.samples is None:
        from optest.api.case_sets import by_signature  # which brings NumPy; the catalogue does without

        return list(by_signature(descriptor).samples)
    samples = own_samples_of(descriptor)
    if not samples or descriptor.parts or not str(descriptor.samples).startswith("optest."):
        return samples
    return [*samples, *derived_samples(descriptor, samples)]


def own_samples_of(descriptor: OperatorDescriptor) -> list[Sample]:
    from optest.core.border import Border

    if descriptor.samples is None:
        return []
    make = load_object(descriptor.samples)
    try:
        with Border(f"the samples of {descriptor.name}", Reason.BAD_CASE, let_through=lambda: True):
            return list(make())
    except Fault as fault:
        raise UsageError(fault.message) from None


def _named(cases: list[TestCase], case_id: str | None) -> list[TestCase]:
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


def unknown_among(kind: str, name: str, known: Sequence[str], listed_by: str) -> UsageError:
    """The error for a name that is not among ``known``; of many it names the nearest alone and who lists them."""
    if len(known) <= _LISTED:
        return UnknownName(kind, name, known)
    hint = did_you_mean(name, known, text="; did you mean {!r}?")
    return UsageError(f"unknown {kind} {name!r}{hint}\n  {listed_by} shows all {len(known)}")


def _rules(case: TestCase) -> list[tuple[str, str]]:
    """The rule for all outputs, or one for each where they differ."""
    from optest.compare.policy import describe_rule

    rules = [describe_rule(case, index) for index in range(max(1, len(case.outputs)))]
    if len(set(rules)) == 1:
        return [("rule", rules[0])]
    return [(f"rule.output{index}", rule) for index, rule in enumerate(rules)]


def names_for(option: str) -> tuple[str, ...]:
    """Every value that a shell may complete ``option`` to, () where a plug-in that cannot be loaded stands in the way.

    An error message in the middle of a half-typed line would help nobody; the command itself says it.
    """
    try:
        bootstrap()
        return _NAMES[option]()
    except OptestError:
        return ()


def _run_names() -> tuple[str, ...]:
    """``latest`` and the ids of the latest runs, the last one first."""
    from optest.store import RunDirectory  # a list of operators does without

    runs = RunDirectory.all(Path(resolve()["runs_dir"]))
    return ("latest", *(run.id for run in reversed(runs[-_MOST_RUNS:]))) if runs else ()


def _case_sets() -> tuple[str, ...]:
    """Each name once; a shell would take one with a space for several words."""
    from optest.operators.derived_samples import INVARIANT_SET

    names = (sample.case_set for each in operators for sample in own_samples_of(each))
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
