"""Files of model cases as tests write them: whole texts, or the cases alone below a model of one line."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from optest.errors import PlanError, Problem
from optest.generators.fills import check_fill
from optest.operators import operators
from optest.plan import CaseRequest, PlanDocument, PlanHost, build_cases, parse_plan
from optest.plan.dialects import NO_FACTS, Facts
from optest.spec import BackendTarget, TestCase

TENSOR = "{tensor: {shape: [2, 3]}}"


def file_of(cases: str) -> str:
    """A file whose cases begin in line 3."""
    return "model: m\ncases:\n" + textwrap.indent(textwrap.dedent(cases).strip("\n"), "  ") + "\n"


def problems_of(text: str, *, file: str = "m.yaml", facts: Facts = NO_FACTS) -> list[Problem]:
    """Everything that is wrong with a file, as `optest run` would say it; [] if it makes cases."""
    try:
        cases_of(text, file=file, facts=facts)
    except PlanError as error:
        return list(error.problems)
    return []


def problem_of(text: str, **more: Any) -> Problem:
    """The only thing that is wrong with a file."""
    found = problems_of(text, **more)
    assert len(found) == 1, "\n".join(map(str, found))
    return found[0]


def said(text: str, **more: Any) -> str:
    """The only thing that is wrong with a file, with its place and its remedy."""
    problem = problem_of(text, **more)
    assert problem.hint, problem
    return str(problem)


def cases_of(text: str, *, file: str = "m.yaml", facts: Facts = NO_FACTS) -> list[TestCase]:
    return cases_of_document(parse_plan(text.encode(), file, facts=facts))


def cases_of_document(document: PlanDocument) -> list[TestCase]:
    target = BackendTarget(name=document.backend or "numpy")
    host = PlanHost(operators=operators, target=target, check_fill=check_fill, backend_names=("numpy", "torch"))
    return build_cases(document, CaseRequest(), host)


def case_of(entry: str, **more: Any) -> TestCase:
    """The one case of a file: ``entry`` holds what stands beside its name, in braces."""
    (case,) = cases_of(file_of(f"- {{name: a, {entry}}}"), **more)
    return case


def call_of(entry: str, **more: Any) -> str:
    """The call of the one case."""
    text: str = case_of(entry, **more).attributes["call"]
    return text


def write(folder: Path, **texts: str) -> Path:
    """Files beside each other; the first one's path."""
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(textwrap.dedent(text))
    return folder / f"{next(iter(texts))}.yaml"
