"""Dialects: other file formats of plans, translated to a plan's data before the schema is checked.

A dialect is an object with the members of :class:`Dialect`, registered by name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from optest.errors import Problem
from optest.plan.yaml_source import Path, Source
from optest.registry import Registry
from optest.spec import TestCase


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Values that conditions in a file may test: the device under test, the compiler backend, the environment."""

    device: str = "cpu"
    compile_backend: str = "eager"
    environment: Mapping[str, str] = field(default_factory=dict)


NO_FACTS = Facts()


class Translated(NamedTuple):
    """A file as plan data, its problems by path (the data omits those values), and notes to print."""

    plan: dict[str, Any]
    problems: dict[Path, Problem]
    notes: tuple[str, ...]


class Dialect(Protocol):
    """A file format with the key `model`, the model that its cases were traced from; `backend` runs them."""

    backend: str

    def matches(self, data: Mapping[str, Any]) -> bool:
        """Return whether the top-level data of a file is in this dialect."""

    def translate(self, source: Source, facts: Facts, below: Sequence[str] = ()) -> Translated:
        """Return the file as a plan. An untrusted file (`below` not empty) may open files in these folders only."""

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the dialect, for editors."""


DIALECTS: Registry[Dialect] = Registry("dialect")
# By import string: torch is imported only for such a file.
DIALECTS.register("model-cases", "optest.torch.model_cases:DIALECT")


def dialect_of(data: Mapping[str, Any]) -> Dialect | None:
    """Return the dialect of the file, None for a plan."""
    return next((x for x in map(DIALECTS.get, DIALECTS.names()) if x.matches(data)), None)


def slug(model: str) -> str:
    """Return the name of a model as a word for marks and tags: lower case, other characters as `_`."""
    # pytest marks are words.
    return re.sub(r"\W+", "_", model).strip("_").lower()


def model_of(case: TestCase) -> str:
    """Return the model that a case was traced from, "" if it was not."""
    # Only the tag distinguishes `model::case` from another name with colons.
    model, separator, _ = case.name.partition("::")
    return model if separator and f"model_{slug(model)}" in case.tags else ""
