"""Samples of operators as a plan: the same schema and the same building as for cases that a person wrote.

Its text has one line for each case; it is what ``optest check --write`` writes, and what a wrong sample is shown in.
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
    """The cases of one operator's samples in order, and each as a plan states it."""

    cases: Sequence[TestCase]
    entries: Sequence[Mapping[str, Any]]


def cases_of_samples(
    descriptor: OperatorDescriptor,
    samples: Iterable[Sample],
    request: CaseRequest,
    host: PlanHost,
    *,
    wanted: Callable[[Sample], bool] = lambda _: True,
) -> CasesOfSamples:
    """Build the samples of one operator that are wanted.

    A case is named after operator, set and its place in the set, which do not change with what else is asked:
    ``sum/layouts/3[float32](4x37, dim=1)``; it has the tags ``set:layouts`` and ``tier:parity``.

    Raises:
        PlanError: with everything that is wrong with the samples, each named as its case would be.
        UsageError: for a sample that is no case at all.
    """
    source = _where(descriptor)
    entries, places = [], []
    counts: Counter[str] = Counter()
    with collection_paused():
        for sample in samples:
            counts[sample.case_set] += 1
            if not wanted(sample):
                continue
            places.append(f"{descriptor.name}/{sample.case_set}/{counts[sample.case_set]}")
            entries.append(_entry(descriptor, sample))
        document = document_of(entries, f"samples of {descriptor.name}")
        try:
            cases = build_cases(document, request, host)
        except PlanError as error:
            raise PlanError([_placed(problem, places, source) for problem in error.problems]) from None
        if len(cases) != len(entries):
            raise UsageError(
                f"{len(entries)} samples of {descriptor.name} make {len(cases)} cases, but should make one each"
            )
        named = [_named(case, place, source) for case, place in zip(cases, places, strict=True)]
    return CasesOfSamples(cases=named, entries=entries)


def _entry(descriptor: OperatorDescriptor, sample: Sample) -> dict[str, Any]:
    """A sample as a case of a plan.

    Raises:
        UsageError: if it states an operator or a name.
    """
    for key in ("op", "name"):
        if key in sample.case:
            raise UsageError(f"a sample of {descriptor.name} states {key!r}, which follows from where it is written")
    tags = [f"{SET_TAG}{sample.case_set}", f"{TIER_TAG}{sample.tier.value}", *sample.case.get("tags", ())]
    return {"op": descriptor.name, **sample.case, "tags": tags}


def document_of(entries: Sequence[Mapping[str, Any]], name: str) -> PlanDocument:
    """The plan that holds these cases; the text is read only if something is wrong with it."""
    data = {"version": 1, "cases": entries}
    try:
        document = PlanDocument.model_validate(data)
    except ValidationError:
        return parse_plan(_text(entries).encode(), name)
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
    """YAML of an ordinary plan with these cases, one on each line, to be edited and run.

    ``options`` are the backend's options that every case has.
    """
    lines = ["version: 1", f"backend: {flow(backend)}", f"seed: {seed}"]
    if options:
        lines += ["defaults:", f"  backend_config: {flow({backend: options})}"]
    lines.append("cases:")
    for each in built:
        for case, entry in zip(each.cases, each.entries, strict=True):
            lines.append(f"  - {flow({'op': entry['op'], 'name': case.name, **entry})}")
    return "\n".join(lines) + "\n"


def _named(case: TestCase, place: str, source: str) -> TestCase:
    name = place + case.identifier()[len(case.descriptor.name) :]
    return dataclasses.replace(case, name=name, where=source, base_dir="")


_INDEX = re.compile(r"\$\.cases\[(\d+)\]")


def _placed(problem: Problem, places: Sequence[str], source: str) -> Problem:
    """The problem of a case said of its sample and of the function that yields it, since nobody wrote a plan."""
    index = _INDEX.match(problem.path)
    if index is None:
        return problem
    path = f"${problem.path[index.end() :]}"
    return dataclasses.replace(problem, file=f"sample {places[int(index[1])]} of {source}", line=0, path=path)


def _where(descriptor: OperatorDescriptor) -> str:
    """Where the samples are written: an import path."""
    samples = descriptor.samples
    if samples is None or isinstance(samples, str):
        return samples or f"the signature of {descriptor.name}"
    return f"{getattr(samples, '__module__', '?')}:{getattr(samples, '__qualname__', '?')}"
