"""The plan file as one pydantic model: it validates, prints as JSON Schema, and names every fault with its place."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, with_config
from typing_extensions import TypedDict

from optest.errors import Problem
from optest.plan.dialects import Dialect
from optest.plan.entries import STRICT, CaseEntry, Defaults, IncludeForm, Seed, Version
from optest.plan.product import Product
from optest.plan.source import Path, Source
from optest.plan.values import Included

__all__ = ["CaseEntry", "Defaults", "PlanDocument", "known_keys", "plan_schema"]


@with_config(STRICT)
class ReportOptions(TypedDict, total=False):
    """What is written beside the terminal's report."""

    format: Annotated[
        str,
        Field(
            min_length=1,
            description="Format: terminal, json, junit, markdown, github, or a report of an installed package.",
            examples=["terminal", "json", "junit", "markdown", "github"],
        ),
    ]
    path: Annotated[str, Field(min_length=1, description="File to write, relative to the plan.")]
    color: Annotated[bool, Field(description="Colours on the terminal.")]


class PlanDocument(BaseModel):
    """A plan of cases for optest."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, title="optest plan")

    version: Version = Field(default=1, description="Version of this format.")
    name: str = Field(default="", description="Name of the plan.")
    description: str = Field(default="", description="What the plan is for.")
    backend: str = Field(default="", description="Backend that makes the actual outputs, by name or kind.")
    chip: str = Field(default="", description="Chip of the backend.")
    seed: Seed = Field(default=0, description="Seed of all inputs.")
    fail_fast: bool = Field(default=False, description="Stop at the first case that is not well.")
    base_dir: str = Field(default="", description="Folder that relative paths start from, instead of the plan's own.")
    report: ReportOptions = Field(default_factory=lambda: ReportOptions(), description="Report to write.")
    include: IncludeForm = Field(
        default=(), description="Plans whose cases come before the own ones: files, relative to this one."
    )
    defaults: Defaults = Field(
        default_factory=lambda: Defaults(), description="What holds for every case that does not state it."
    )
    cases: list[CaseEntry] = Field(description="The cases, in the order in which they run.")

    _source: Source = PrivateAttr()
    _problems: tuple[Problem, ...] = PrivateAttr(default=())
    _notes: tuple[str, ...] = PrivateAttr(default=())
    _unread: Mapping[Path, Collection[str]] = PrivateAttr(default_factory=dict)
    _dialect: Dialect | None = PrivateAttr(default=None)
    _places: Mapping[Path, Path] = PrivateAttr(default_factory=dict)
    _included: tuple[PlanDocument, ...] = PrivateAttr(default=())
    _products: Mapping[int, Product | None] = PrivateAttr(default_factory=dict)
    _model: str = PrivateAttr(default="")
    _expectations: str = PrivateAttr(default="")

    @property
    def path(self) -> str:
        """The file, as it was named to :func:`read_plan`, without detours such as ``x/..``."""
        return self._source.file

    @property
    def model(self) -> str:
        """The model whose cases the file holds, "" for a plan."""
        return self._model

    @property
    def source(self) -> Source:
        """The file's nodes, for whoever has to name a line."""
        return self._source

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What could not be read of it and of what it includes; the document is what is left.

        A case keeps its index, one without operator is {}.
        """
        return tuple(problem for document in self.family() for problem in document._problems)

    @property
    def notes(self) -> tuple[str, ...]:
        """What it and the files that it includes state, and no run can do."""
        return tuple(note for document in self.family() for note in document._notes)

    def unread(self, path: Path) -> Collection[str]:
        """Keys of the plan (), of its defaults or of a case ``("cases", 3)`` that hold what could not be read."""
        return self._unread.get(path, ())

    @property
    def has_unread(self) -> bool:
        """Whether anything could not be read."""
        return bool(self._unread)

    def family(self) -> list[PlanDocument]:
        """The plans that this one includes, each after those that it includes itself, and this one as the last."""
        return [*(each for included in self._included for each in included.family()), self]

    def expectations(self) -> list[tuple[str, frozenset[str]]]:
        """Files of what is known of included cases, each with the plans that it is about."""
        return [
            (each._expectations, frozenset(part.path for part in each.family()))
            for each in self.family()
            if each._expectations
        ]

    def without_models(self, files: Collection[str]) -> PlanDocument | None:
        """The plan without these files of model cases; None if it, or another plan, is one of them, or none is left."""
        if self.path in files or any(each.path in files and not each.model for each in self.family()):
            return None
        rest = self._without(files)
        return rest if any(each.model for each in rest.family()) else None

    def _without(self, files: Collection[str]) -> PlanDocument:
        rest = self.model_copy()
        rest._included = tuple(each._without(files) for each in self._included if each.path not in files)
        rest._problems = tuple(each for each in self._problems if each.file not in files)
        return rest

    def included_files(self) -> list[tuple[Path, Included]]:
        """The files as they are written, each with its path in the plan."""
        if not isinstance(self._source.data.get("include"), list):
            return [(("include",), self.include[0])] if self.include else []
        return [(("include", index), name) for index, name in enumerate(self.include)]

    def is_product(self, index: int) -> bool:
        """Whether a case stands for many."""
        return index in self._products

    def product(self, index: int) -> Product | None:
        """The product of a case that has one; None if its axes could not be told."""
        return self._products.get(index)

    def products(self) -> list[Product]:
        """The products whose axes could be told."""
        return [product for product in self._products.values() if product is not None]

    def options(self) -> dict[str, Any]:
        """The top-level keys that are options of a run, as far as the file states them.

        A file of another dialect has its backend, in whatever plan it is included.
        """
        stated = self.model_fields_set
        options = ("backend", "chip", "seed", "fail_fast")
        found: dict[str, Any] = {name: getattr(self, name) for name in options if name in stated}
        for each in self.family():
            if each._dialect is not None:
                found.setdefault("backend", each._dialect.backend)
        return found

    def where(self, path: Path = ()) -> str:
        """``plan.yaml:12`` for the value at ``path``."""
        return f"{self.path}:{self._source.line_of(self._places.get(path, path))}"

    def folder(self) -> str:
        """What relative paths in the plan are relative to, absolute."""
        return os.path.abspath(os.path.join(os.path.dirname(self.path), self.base_dir))


def plan_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the plan file, for editors."""
    schema = PlanDocument.model_json_schema()
    del schema["required"]
    either = [{"required": ["cases"]}, {"required": ["include"]}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "anyOf": either}


def known_keys(path: Path) -> list[str]:
    """The keys that the mapping at ``path`` of a plan may have."""
    if path == ():
        return list(PlanDocument.model_fields)
    if path == ("defaults",):
        return list(Defaults.__annotations__)
    if path == ("report",):
        return list(ReportOptions.__annotations__)
    return list(CaseEntry.__annotations__)
