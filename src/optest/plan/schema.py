"""The schema of plans, the one table of their keys: form, reader, default and description of each.

It validates, prints as JSON Schema, and names every fault with its place.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    TypeAdapter,
    WithJsonSchema,
    with_config,
)
from typing_extensions import Required, TypedDict

from optest.errors import Problem
from optest.plan import values
from optest.plan.dialects import Dialect
from optest.plan.product import Axis, Product, Rows, read_axes
from optest.plan.yaml_source import Path, Source
from optest.spec import SIGNED_ZEROS, DType, ExpectedError, Skip, Xfail, dtype_names

STRICT = ConfigDict(extra="forbid", strict=True)
_INTEGERS = {"type": "array", "items": {"type": "integer"}}
_SIZE = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": r"^\$"}]}
_SIZES = {"type": "array", "items": _SIZE}
_SHAPE_FORMS = [
    _SIZES,
    {"type": "integer", "minimum": 0},
    {"type": "string", "pattern": r"^(scalar|[0-9]+([xX,][0-9]+)*|.*\$.*)$"},
]
_SHAPE_SCHEMA = {
    "anyOf": [
        *_SHAPE_FORMS,
        {
            "type": "object",
            "properties": {
                "shape": {"anyOf": _SHAPE_FORMS, "description": "Sizes."},
                "strides": {**_INTEGERS, "description": "Steps in elements; 0 repeats, negative walks backwards."},
                "offset": {"type": "integer", "minimum": 0, "description": "First element in its storage."},
            },
            "required": ["shape"],
            "additionalProperties": False,
        },
    ]
}
_DTYPE = {"type": "string", "examples": list(dtype_names())}
_DTYPES_SCHEMA = {
    "anyOf": [
        {"type": "string", "examples": ["float16", "float32,int8"]},
        {"type": "array", "items": _DTYPE, "minItems": 1},
        {"type": "object", "additionalProperties": _DTYPE},
    ]
}
_RATIO = {"type": "number", "minimum": 0, "exclusiveMaximum": 1}
_ALLOWED = {"type": "number", "minimum": 0}
_TOLERANCE_FIELDS = {
    **{name: {**_ALLOWED, "description": "Share of |expected|."} for name in ("rtol", "rel", "relative")},
    **{name: {**_ALLOWED, "description": "In units of the output."} for name in ("atol", "abs", "absolute")},
    **{name: {**_RATIO, "description": "Share of elements that may miss."} for name in ("mismatch_ratio", "ratio")},
    "signed_zeros": {
        "enum": list(SIGNED_ZEROS),
        "description": "Of a zero with the wrong sign: strict, it is wrong, or note.",
    },
}
_TOLERANCE_SCHEMA = {
    "type": "object",
    "minProperties": 1,
    "properties": _TOLERANCE_FIELDS,
    "additionalProperties": {
        "type": "object",
        "description": "Of one output, by its name.",
        "minProperties": 1,
        "additionalProperties": False,
        "properties": _TOLERANCE_FIELDS,
    },
}
_FILL_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {"type": "object", "properties": {"fill": {"type": "string"}}, "required": ["fill"]},
    ]
}
_GENERATOR_SCHEMA = {"anyOf": [*_FILL_SCHEMA["anyOf"], {"type": "object", "additionalProperties": _FILL_SCHEMA}]}
_WORDS = {"type": "string", "minLength": 1}


def _reasoned(**more: Any) -> dict[str, Any]:
    properties = {"reason": _WORDS, **more}
    mapping = {"type": "object", "properties": properties, "required": ["reason"], "additionalProperties": False}
    return {"anyOf": [_WORDS, mapping]}


Shape = Annotated[Any, PlainValidator(values.read_shape), WithJsonSchema(_SHAPE_SCHEMA)]
Dtypes = Annotated[
    "tuple[DType, ...] | dict[str, DType]", PlainValidator(values.read_dtypes), WithJsonSchema(_DTYPES_SCHEMA)
]
ToleranceForm = Annotated[
    values.ToleranceChoice, PlainValidator(values.read_tolerances), WithJsonSchema(_TOLERANCE_SCHEMA)
]
GeneratorForm = Annotated[
    values.GeneratorChoice, PlainValidator(values.read_generator), WithJsonSchema(_GENERATOR_SCHEMA)
]
SkipForm = Annotated[Skip, PlainValidator(values.read_skip), WithJsonSchema(_reasoned())]
XfailForm = Annotated[
    Xfail,
    PlainValidator(values.read_xfail),
    WithJsonSchema(_reasoned(status={"enum": list(values.XFAIL_STATUSES)}, strict={"type": "boolean"})),
]
ExpectedErrorForm = Annotated[
    ExpectedError,
    PlainValidator(values.read_expects_error),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {"type": {"type": "string"}, "match": {"type": "string"}, "pattern": {"type": "string"}},
            "additionalProperties": False,
        }
    ),
]
ProductForm = Annotated[
    "tuple[Axis, ...]",
    PlainValidator(read_axes),
    WithJsonSchema({"type": "object", "minProperties": 1, "additionalProperties": {"type": "array", "minItems": 1}}),
]
_RENAMED = {
    "type": "object",
    "properties": {
        "file": _WORDS,
        "model": {**_WORDS, "description": "What the model of the file is called here."},
        "expectations": {**_WORDS, "description": "What is known of its cases: known differences, wrong data, skips."},
    },
    "required": ["file"],
    "additionalProperties": False,
}
IncludeForm = Annotated[
    tuple[values.Included, ...],
    PlainValidator(values.read_include),
    WithJsonSchema(
        {"anyOf": [_WORDS, _RENAMED, {"type": "array", "items": {"anyOf": [_WORDS, _RENAMED]}, "minItems": 1}]}
    ),
]
_CONTROLS = r"\x00-\x1f\x7f-\x9f"
Name = Annotated[str, Field(min_length=1, pattern=rf"^[^{_CONTROLS}]*[^\s{_CONTROLS}][^{_CONTROLS}]*$")]
Version = Annotated[int, PlainValidator(values.read_version), WithJsonSchema({"const": 1})]
Seed = Annotated[int, Field(ge=0, lt=2**64)]


@with_config(STRICT)
class Defaults(TypedDict, total=False):
    """What holds for every case that does not state it itself."""

    dtypes: Annotated[Dtypes, Field(description="Dtype of all inputs, one for each in order, or by tensor name.")]
    attributes: Annotated[dict[str, Any], Field(description="Attributes of the operator by name.")]
    backend_config: Annotated[
        dict[str, dict[str, Any]], Field(description="Options of a backend by its name; merged key by key.")
    ]
    generator: Annotated[
        GeneratorForm, Field(description="Who makes the inputs: a fill, package.module:name, or fills by input.")
    ]
    reference: Annotated[Name, Field(description="Dotted path of the function that makes the expected outputs.")]
    tolerance: Annotated[
        ToleranceForm,
        Field(description="Allowed error, in place of the operator's own rule; that of one output below its name."),
    ]
    seed: Annotated[Seed, Field(description="Seed of the inputs.")]
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False, description="Deadline of the backend in seconds.")]
    retries: Annotated[int, Field(ge=0, le=100, description="Tries after a crash, a deadline or a lost device.")]
    priority: Annotated[
        int, Field(ge=0, le=10**6, description="A smaller number is more urgent; 100 if none is stated.")
    ]
    tags: Annotated[list[Name], Field(description="Words to select cases by.")]
    invariants: Annotated[
        list[Name], Field(description="What a result keeps in further calls: repeat, stateless, batch, permutation.")
    ]


@with_config(STRICT)
class CaseEntry(Defaults, total=False):
    """One case: an operator with concrete inputs."""

    op: Required[Annotated[Name, Field(description="Name or alias of the operator.")]]
    name: Annotated[Name, Field(description="Identifier of the case, unique in the plan.")]
    description: Annotated[str, Field(description="What the case is for.")]
    shapes: Annotated[
        dict[str, Shape], Field(description="Shape, or shape with strides and offset, of each tensor by name.")
    ]
    product: Annotated[ProductForm, Field(description="Values by axis; the case is made for all combinations.")]
    exclude: Annotated[
        list[dict[str, Any]], Field(min_length=1, description="Combinations of the product that are left out.")
    ]
    skip: Annotated[SkipForm, Field(description="Do not run the case, for this reason.")]
    xfail: Annotated[XfailForm, Field(description="The case is known to end with this status, for this reason.")]
    expects_error: Annotated[ExpectedErrorForm, Field(description="The call has to be refused with this error.")]


@with_config(STRICT)
class _CasePart(CaseEntry, total=False):
    op: Annotated[Name, Field(description="Name or alias of the operator.")]  # type: ignore[misc] # it may be left out


CASE_PART: TypeAdapter[Any] = TypeAdapter(_CasePart)
"""Reads any keys of a case, as the parts of a product bring them."""


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
    backend: Name = Field(default="", description="Backend that makes the actual outputs, by name or kind.")
    chip: Name = Field(default="", description="Chip of the backend.")
    seed: Seed = Field(default=0, description="Seed of all inputs.")
    fail_fast: bool = Field(default=False, description="Stop at the first failure.")
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

    def included_files(self) -> list[tuple[Path, values.Included]]:
        """The files as they are written, each with its path in the plan."""
        if not isinstance(self._source.data.get("include"), list):
            return [(("include",), self.include[0])] if self.include else []
        return [(("include", index), name) for index, name in enumerate(self.include)]

    @property
    def products(self) -> Mapping[int, Product | None]:
        """The product of each case that stands for many, by its index; None if its axes could not be read."""
        return self._products

    def parts(self) -> Iterator[tuple[Path, Mapping[str, Any], tuple[Product, Rows] | None]]:
        """All that is stated of cases: the defaults, each case, and what axes bring, with a combination that has it."""
        yield ("defaults",), self.defaults, None
        for index, entry in enumerate(self.cases):
            yield ("cases", index), entry, None
        for product in filter(None, self._products.values()):
            for rows, part in product.parts():
                yield product.path, part, (product, rows)

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
        return f"{self.path}:{self._source.line_of(path)}"

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
    kinds: dict[Path, Any] = {("defaults",): Defaults, ("report",): ReportOptions}
    return list(kinds.get(path, CaseEntry).__annotations__)
