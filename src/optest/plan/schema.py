"""The plan file as one pydantic model: it validates, prints as JSON Schema, and names every fault with its place."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, with_config
from typing_extensions import TypedDict

from optest.errors import PlanError, Problem
from optest.plan.dialects import NO_FACTS, Dialect, Facts, Translated, dialect_of
from optest.plan.entries import STRICT, CaseEntry, Defaults, IncludeForm, Seed, Version
from optest.plan.includes import follow_includes, without_detours
from optest.plan.problems import all_at_once, nearest_key, problem_at, problems_of
from optest.plan.product import MAPPINGS, Product
from optest.plan.product_reader import read_product
from optest.plan.source import MAX_BYTES, Path, Source, parse_source
from optest.plan.values import Included, Misfit
from optest.spec.construct import collection_paused
from optest.store import PathError, read_regular

__all__ = ["CaseEntry", "Defaults", "PlanDocument", "open_plan", "parse_plan", "plan_schema", "read_plan"]


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


def read_plan(path: str | os.PathLike[str]) -> PlanDocument:
    """Read a plan file that has to be right.

    Raises:
        PlanError: with every fault of the file's form and of the files that it includes, each with line and path.
    """
    document = open_plan(path)
    if document.problems:
        raise PlanError(all_at_once(document.problems, [each.path for each in document.family()]))
    return document


def open_plan(path: str | os.PathLike[str], *, untrusted: bool = False, facts: Facts = NO_FACTS) -> PlanDocument:
    """Read a plan file as far as it can be read, for ``build_cases``, which says all that is wrong with it at once.

    An ``untrusted`` plan may include only what lies in its own folder or below. ``facts`` are what the conditions of
    model cases may ask.

    Raises:
        PlanError: if nothing of the file can be read.
    """
    file = os.fspath(path)
    try:
        raw = read_regular(file, MAX_BYTES)
    except PathError as error:
        raise PlanError([Problem(message=str(error))]) from None
    return parse_plan(raw, without_detours(file), untrusted=untrusted, facts=facts)


def parse_plan(raw: bytes, file: str, *, untrusted: bool = False, facts: Facts = NO_FACTS) -> PlanDocument:
    """Read the bytes of a plan, and the files that it includes, as far as they can be read.

    What cannot is in ``problems``. ``file`` is the plan's name in messages and the place that relative paths start
    from.

    Raises:
        PlanError: if nothing can be read: the text is no YAML, or no mapping.
    """
    below = (os.path.dirname(file) or ".",) if untrusted else ()
    parse = partial(_parse_one, facts=facts, below=below)
    document = parse(raw, file)
    if document.include:
        document._problems = (*document._problems, *follow_includes(document, parse, below=below))
        document._problems = (*document._problems, *_models_twice(document.family()))
    return document


def _parse_one(
    raw: bytes, file: str, model: str = "", *, facts: Facts = NO_FACTS, below: Sequence[str] = ()
) -> PlanDocument:
    """One plan without those that it includes; a file of model cases is a plan, too, and may be given a name."""
    with collection_paused():
        source = parse_source(raw, file)
        dialect = dialect_of(source.data)
        foreign = Translated(source.data, {}, (), {})
        if dialect is not None:
            if model:
                source.data["model"] = model
            foreign = dialect.translated(source, facts, below)
            source.data = foreign.plan
        if "include" in source.data:
            source.data.setdefault("cases", [])
        products, faults = _take_products(source)
        try:
            document = PlanDocument.model_validate(source.data)
            found = dict(source.faults)
        except ValidationError as error:
            found = problems_of(error, source, _known_keys)
        # a case that could not be translated is not found wanting as one of a plan, too
        untranslated = {path[:2] for path in foreign.problems}
        found = {path: problem for path, problem in found.items() if path[:2] not in untranslated}
        found |= {**foreign.problems, **_exclude_without_product(source, products)}
        found = {**found, **{path: problem for path, problem in faults.items() if path not in found}}
        unread = _unread(found)
        if found:
            document = _readable_part(source.data, found.keys(), unread)
        products = {index: each for index, each in products.items() if index < len(document.cases)}
        for index, product in products.items():
            if product is not None:
                product.fixed = _fixed_part(document.cases[index], product)
        source.settle()
    document._source = source
    document._dialect = dialect
    document._problems = tuple(dict.fromkeys(found.values()))
    document._notes = foreign.notes
    document._places = foreign.places
    document._unread = unread
    document._products = products
    document._model = source.data["name"] if dialect is not None else ""
    return document


def _models_twice(documents: Iterable[PlanDocument]) -> Iterable[Problem]:
    """Models that two files hold: their cases would share one name, their figures could not be told apart."""
    first: dict[str, PlanDocument] = {}
    for each in documents:
        if each.model and first.setdefault(each.model, each) is not each:
            message = f"the model is called {each.model!r}, as the one at {first[each.model].where(('model',))}"
            name = os.path.basename(each.path)
            hint = f"give it another name where it is included: include: [{{file: {name}, model: {each.model}-2}}]"
            yield problem_at(("model",), Misfit(message, hint=hint), each.source)


def _take_products(source: Source) -> tuple[dict[int, Product | None], dict[Path, Problem]]:
    """The products of the cases, and their faults; what names no axis is left to the reader of cases."""
    products: dict[int, Product | None] = {}
    found: dict[Path, Problem] = {}
    cases = source.data.get("cases")
    if not isinstance(cases, list):
        return products, found
    source.data["cases"] = list(cases)
    for index, entry in enumerate(cases):
        if isinstance(entry, dict) and "product" in entry:
            plain, products[index], faults = read_product(entry, ("cases", index), source)
            source.data["cases"][index] = plain
            found |= {path: problem for path, problem in faults.items() if path not in found}
    return products, found


def _exclude_without_product(source: Source, products: Collection[int]) -> dict[Path, Problem]:
    message = "exclude stands without a product, but should name values of its axes"
    cases = source.data.get("cases")
    paths: list[Path] = [
        ("cases", index, "exclude")
        for index, entry in enumerate(cases if isinstance(cases, list) else ())
        if index not in products and isinstance(entry, dict) and "exclude" in entry
    ]
    return {path: problem_at(path, Misfit(message), source) for path in paths}


def _fixed_part(entry: CaseEntry, product: Product) -> dict[str, Any]:
    """What a case states for all combinations alike."""
    whole = {unit.target[0] for unit in product.units if len(unit.target) == 1 and unit.target[0] not in MAPPINGS}
    return {key: value for key, value in entry.items() if key not in ("product", "exclude", *whole)}


_PARTLY_READ = ("shapes", "dtypes", "attributes", "backend_config")
"""Mappings in which one wrong value leaves the others as they are."""


def _unread(faults: Iterable[Path]) -> dict[Path, set[str]]:
    """The keys that hold faults, by the path of the mapping that they are keys of."""
    unread: dict[Path, set[str]] = {}
    for path in faults:
        owner, key = _owner_and_key(path)
        known = _known_keys(owner)
        unread.setdefault(owner, set()).update((*known, "<<") if key is None else (key, nearest_key(key, known) or key))
        inner = len(owner) + 1
        if key in _PARTLY_READ and owner and len(path) > inner:
            unread.setdefault(path[:inner], set()).add(str(path[inner]))
    return unread


def _owner_and_key(path: Path) -> tuple[Path, str | None]:
    """The plan, its defaults or a case, and which key of it a fault concerns; None if it concerns all of them."""
    depth = 2 if path[:1] == ("cases",) and isinstance(path[1:] and path[1], int) else int(path[:1] == ("defaults",))
    key = path[depth] if len(path) > depth else None
    return path[:depth], None if key is None or key == "<<" else str(key)


def _readable_part(
    data: Mapping[str, Any], faults: Collection[Path], unread: Mapping[Path, Collection[str]]
) -> PlanDocument:
    """The plan without the keys that hold faults."""

    def part(mapping: Any, owner: Path) -> dict[str, Any]:
        kept = {}
        keys = unread.get(owner, ())
        for key, value in mapping.items() if isinstance(mapping, dict) else ():
            path = (*owner, key)
            if key not in keys:
                kept[key] = value
            elif path in unread and path not in faults and isinstance(value, dict):
                kept[key] = part(value, path)
        return kept

    top = part(data, ())
    if "defaults" in top:
        top["defaults"] = part(top["defaults"], ("defaults",))
    entries = [part(entry, ("cases", index)) for index, entry in enumerate(top.get("cases", ()))]
    document = PlanDocument.model_validate({**top, "cases": [entry for entry in entries if "op" in entry]})
    for index, entry in enumerate(entries):
        if "op" not in entry:
            document.cases.insert(index, cast(CaseEntry, {}))
    return document


def plan_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the plan file, for editors."""
    schema = PlanDocument.model_json_schema()
    del schema["required"]
    either = [{"required": ["cases"]}, {"required": ["include"]}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "anyOf": either}


def _known_keys(path: Path) -> list[str]:
    if path == ():
        return list(PlanDocument.model_fields)
    if path == ("defaults",):
        return list(Defaults.__annotations__)
    if path == ("report",):
        return list(ReportOptions.__annotations__)
    return list(CaseEntry.__annotations__)
