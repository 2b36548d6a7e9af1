"""What a face with a loop of its own asks before it runs anything: the cases of a file, and which files are plans."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from optest.api.asking import Asked, asked
from optest.api.streaming import CaseStream
from optest.plan import open_plan
from optest.plan.model_cases.translation import slug
from optest.reporting.explain import explain
from optest.spec import BAD_STATUSES, CaseResult, Status, TestCase

__all__ = [
    "Listed",
    "collected",
    "is_bad",
    "listed_cases",
    "looks_like_model_cases",
    "model_of",
    "shows_nothing",
    "slug",
    "streams",
    "told",
]

_HEAD_BYTES = 4096
_MODEL = re.compile(rb"^model[ \t]*:", re.MULTILINE)


class Listed(NamedTuple):
    """A case as its file has it, before anything is made of it."""

    name: str
    operator: str
    path: str


def looks_like_model_cases(path: Path) -> bool:
    """Whether a YAML file begins as one of model cases does, told without reading all of it."""
    try:
        with path.open("rb") as file:
            return _MODEL.search(file.read(_HEAD_BYTES)) is not None
    except OSError:
        return False


def collected(path: Path, options: Mapping[str, Any]) -> Asked:
    """The cases of one file and the driver that they are for; ``options`` are those of the command line by name.

    Raises:
        OptestError: for whatever is wrong with the file or the options.
    """
    return asked({**options, "plan": str(path)})


def listed_cases(path: Path) -> Iterator[Listed]:
    """Names and operators of a file's cases. No backend is loaded.

    Raises:
        PlanError: with everything that is wrong with the file.
    """
    document = open_plan(path)
    for member in document.family():
        for entry in member.cases:
            if entry:
                yield Listed(entry.get("name", ""), entry["op"], member.path)


def model_of(case: TestCase) -> str:
    """The model that a case was traced from, "" for none."""
    model, separator, _ = case.name.partition("::")
    return model if separator and f"model_{slug(model)}" in case.tags else ""


def streams(chosen: Sequence[tuple[Asked, TestCase]]) -> list[tuple[CaseStream, list[TestCase]]]:
    """One run for each driver over all of its cases, whatever file they are from: equal ones share an execution."""
    by_driver: dict[int, tuple[Asked, list[TestCase]]] = {}
    for request, case in chosen:
        by_driver.setdefault(id(request.driver), (request, []))[1].append(case)
    return [
        (CaseStream(dataclasses.replace(request, cases=cases, document=None)), cases)
        for request, cases in by_driver.values()
    ]


def is_bad(result: CaseResult) -> bool:
    """Whether a result fails a run."""
    return result.status in BAD_STATUSES


def shows_nothing(result: CaseResult) -> bool:
    """Whether nothing was run, or nothing compared: neither is a pass."""
    return result.status in (Status.SKIPPED, Status.UNCHECKED)


def told(result: CaseResult) -> str:
    """A failure as the terminal prints it."""
    return "\n".join(explain(result))
