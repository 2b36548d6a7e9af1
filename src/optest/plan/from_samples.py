"""Samples of operators as a plan, with the schema and the case building of user-written plans.

Each case is one line of its text: `optest check --write` writes it, and problems of a sample are located in it.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from optest.errors import PlanError, Problem, UsageError
from optest.plan.cases import build_cases
from optest.plan.layers import PlanHost
from optest.plan.plan_file import parse_plan
from optest.plan.repro import flow
from optest.plan.request import CaseRequest
from optest.plan.schema import PlanDocument
from optest.plan.yaml_source import Source
from optest.spec import OperatorDescriptor, Sample, TestCase
from optest.spec.construct import collection_paused

SET_TAG = "set:"
TIER_TAG = "tier:"


@dataclass(frozen=True, slots=True, kw_only=True)
class CasesOfSamples:
    """The cases of one operator's samples in order, and their plan entries."""

    cases: Sequence[TestCase]
    entries: Sequence[Mapping[str, Any]]


def cases_of_samples(
    descriptor: OperatorDescriptor,
    samples: Iterable[Sample],
    request: CaseRequest,
    host: PlanHost,
    *,
    wanted: Callable[[Sample, str], bool] = lambda *_: True,
) -> CasesOfSamples:
    """Build the cases of one operator's samples for which `wanted` is true; it gets the beginning of the id as well.

    A name has the operator, the set and the index in the set, independent of the filter, as in
    ``sum/layouts/3[float32](4x37, dim=1)``; the tags are ``set:layouts`` and ``tier:parity``.

    Raises:
        PlanError: with the problems of all samples, each under its case's name.
        UsageError: if a sample sets `op` or `name`, or does not build exactly one case.
    """
    # The import path of the function with the samples.
    source = descriptor.samples or f"the signature of {descriptor.name}"
    if not isinstance(source, str):
        source = f"{getattr(source, '__module__', '?')}:{getattr(source, '__qualname__', '?')}"
    entries, names = [], []
    counts: Counter[str] = Counter()
    with collection_paused():
        for sample in samples:
            # Counted before the filter, which must not change names.
            counts[sample.case_set] += 1
            name = f"{descriptor.name}/{sample.case_set}/{counts[sample.case_set]}"
            if not wanted(sample, f"{name}["):
                continue
            names.append(name)
            entries.append(_entry(descriptor, sample))
        document = plan_of_entries(entries, f"samples of {descriptor.name}")
        try:
            cases = build_cases(document, request, host)
        except PlanError as error:
            raise PlanError([_locate_in_sample(problem, names, source) for problem in error.problems]) from None
        if len(cases) != len(entries):
            raise UsageError(f"{len(entries)} samples of {descriptor.name} make {len(cases)} cases, expected one each")
        named = [
            dataclasses.replace(
                case, name=name + case.identifier()[len(case.descriptor.name) :], where=source, base_dir=""
            )
            for case, name in zip(cases, names, strict=True)
        ]
    return CasesOfSamples(cases=named, entries=entries)


def _entry(descriptor: OperatorDescriptor, sample: Sample) -> dict[str, Any]:
    """Return a sample as a plan entry, with its operator and tags; raise UsageError if it sets `op` or `name`."""
    for key in ("op", "name"):
        if key in sample.case:
            raise UsageError(f"a sample of {descriptor.name} sets {key!r}, which optest sets itself; remove it")
    tags = [f"{SET_TAG}{sample.case_set}", f"{TIER_TAG}{sample.tier.value}", *sample.case.get("tags", ())]
    return {"op": descriptor.name, **sample.case, "tags": tags}


def plan_of_entries(entries: Sequence[Mapping[str, Any]], name: str) -> PlanDocument:
    """Return the plan with these cases; raise PlanError, with lines of the plan's text, for wrong entries."""
    data = {"version": 1, "cases": entries}
    try:
        document = PlanDocument.model_validate(data)
    except ValidationError:
        # Parse the text, which takes longer, only to locate the problems.
        return parse_plan(_text(entries).encode(), name)
    # As in the text that `_text` would return.
    lines = range(_FIRST_LINE, _FIRST_LINE + len(entries))
    document._source = Source(
        file=name,
        raw=lambda: _text(entries).encode(),
        data=data,
        root=None,
        faults={},
        case_lines=list(lines),
        key_lines={
            ("cases", index): dict.fromkeys(entry, line)
            for index, (entry, line) in enumerate(zip(entries, lines, strict=True))
        },
    )
    return document


_HEAD = "version: 1\ncases:\n"
_FIRST_LINE = _HEAD.count("\n") + 1


def _text(entries: Iterable[Mapping[str, Any]]) -> str:
    return _HEAD + "".join([f"  - {flow(entry)}\n" for entry in entries])


def plan_of_cases(
    built: Iterable[CasesOfSamples], *, backend: str, seed: int, options: Mapping[str, Any] | None = None
) -> str:
    """Return the YAML of a plan with these cases, one per line; `options` of the backend go into its defaults."""
    lines = ["version: 1", f"backend: {flow(backend)}", f"seed: {seed}"]
    if options:
        lines += ["defaults:", f"  backend_config: {flow({backend: options})}"]
    lines.append("cases:")
    for samples in built:
        for case, entry in zip(samples.cases, samples.entries, strict=True):
            lines.append(f"  - {flow({'op': entry['op'], 'name': case.name, **entry})}")
    return "\n".join(lines) + "\n"


_INDEX = re.compile(r"\$\.cases\[(\d+)\]")


def _locate_in_sample(problem: Problem, names: Sequence[str], source: str) -> Problem:
    """Return the problem with its sample and import path in place of the line in the generated plan."""
    index = _INDEX.match(problem.path)
    if index is None:
        return problem
    path = f"${problem.path[index.end() :]}"
    return dataclasses.replace(problem, file=f"sample {names[int(index[1])]} of {source}", line=0, path=path)
