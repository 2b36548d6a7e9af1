"""Other ways to write a plan: a file of one becomes the data of a plan before anything else looks at it.

A dialect is an object with the members of :class:`Dialect`, registered under its name.
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
    """What a condition of a file may ask: the device under test, who compiles, the environment."""

    device: str = "cpu"
    compile_backend: str = "eager"
    environment: Mapping[str, str] = field(default_factory=dict)


NO_FACTS = Facts()


class Translated(NamedTuple):
    """The file as the data of a plan, without what is wrong with it, that by path, and what is to be said of it."""

    plan: dict[str, Any]
    problems: dict[Path, Problem]
    notes: tuple[str, ...]


class Dialect(Protocol):
    """The data has ``model``, the name of the model that its cases were traced from; ``backend`` runs them."""

    backend: str

    def is_written_in(self, data: Mapping[str, Any]) -> bool:
        """Whether the top of a file is one of this dialect."""

    def translated(self, source: Source, facts: Facts, below: Sequence[str] = ()) -> Translated:
        """The file as a plan; one that is not trusted opens no files but those in the folders ``below``."""

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the dialect, for editors."""


DIALECTS: Registry[Dialect] = Registry("dialect")
DIALECTS.register("model-cases", "optest.torch.model_cases:DIALECT")


def dialect_of(data: Mapping[str, Any]) -> Dialect | None:
    """The dialect in which the file is written, None for a plan."""
    return next((each for each in map(DIALECTS.get, DIALECTS.names()) if each.is_written_in(data)), None)


def slug(model: str) -> str:
    """The name of a model as a word: what a mark may be called."""
    return re.sub(r"\W+", "_", model).strip("_").lower()


def model_of(case: TestCase) -> str:
    """The model that a case was traced from, "" for none."""
    model, separator, _ = case.name.partition("::")
    return model if separator and f"model_{slug(model)}" in case.tags else ""
