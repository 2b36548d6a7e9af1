"""Schema of plans: the form, reader, default and description of each key.

It validates plans, reports each problem with its position, and is printed as JSON Schema.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, PrivateAttr, TypeAdapter, WithJsonSchema, with_config
from typing_extensions import Required, TypedDict

from optest.errors import Problem
from optest.plan import values
from optest.plan.dialects import Dialect
from optest.plan.product import Axis, Product, Rows, read_axes
from optest.plan.yaml_source import Path, Source
from optest.spec import SIGNED_ZEROS, DType, ExpectedError, Skip, Xfail, dtype_names

# A misspelt key must not be ignored, and the text "1" is no number.
STRICT = ConfigDict(extra="forbid", strict=True)
_INTEGERS = {"type": "array", "items": {"type": "integer"}}
# A size may be a reference to an axis of a product.
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
    **{name: {**_RATIO, "description": "Share of elements that may be off."} for name in ("mismatch_ratio", "ratio")},
    "signed_zeros": {
        "enum": list(SIGNED_ZEROS),
        "description": "Zeros with the wrong sign: strict, they are wrong, or note.",
    },
}
_TOLERANCE_SCHEMA = {
    "type": "object",
    "minProperties": 1,
    "properties": _TOLERANCE_FIELDS,
    "additionalProperties": {
        "type": "object",
        "description": "For one output, by its name.",
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
        "model": {**_WORDS, "description": "Name of the file's model in this plan."},
        "expectations": {**_WORDS, "description": "Expectations of its cases: known differences, wrong data, skips."},
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
# Names appear in reports and on terminals, which act on control characters.
_CONTROLS = r"\x00-\x1f\x7f-\x9f"
Name = Annotated[str, Field(min_length=1, pattern=rf"^[^{_CONTROLS}]*[^\s{_CONTROLS}][^{_CONTROLS}]*$")]
Version = Annotated[int, PlainValidator(values.read_version), WithJsonSchema({"const": 1})]
Seed = Annotated[int, Field(ge=0, lt=2**64)]


@with_config(STRICT)
class Defaults(TypedDict, total=False):
    """Default values of cases, by key."""

    dtypes: Annotated[Dtypes, Field(description="Dtype of all inputs, one for each in order, or by tensor name.")]
    attributes: Annotated[dict[str, Any], Field(description="Attributes of the operator by name.")]
    backend_config: Annotated[
        dict[str, dict[str, Any]], Field(description="Options of a backend by its name; merged key by key.")
    ]
    generator: Annotated[
        GeneratorForm, Field(description="Source of the inputs: a fill, package.module:name, or fills by input.")
    ]
    reference: Annotated[Name, Field(description="Dotted path of the function that computes the expected outputs.")]
    tolerance: Annotated[
        ToleranceForm,
        Field(description="Allowed error, in place of the operator's rule; for one output, below its name."),
    ]
    seed: Annotated[Seed, Field(description="Seed of the inputs.")]
    timeout: Annotated[float, Field(gt=0, allow_inf_nan=False, description="Time limit of one case in seconds.")]
    retries: Annotated[int, Field(ge=0, le=100, description="Retries after a crash, a timeout or a lost device.")]
    priority: Annotated[int, Field(ge=0, le=10**6, description="A smaller number runs earlier; 100 by default.")]
    tags: Annotated[list[Name], Field(description="Words to select cases by.")]
    invariants: Annotated[
        list[Name], Field(description="Properties to check in further calls: repeat, stateless, batch, permutation.")
    ]


@with_config(STRICT)
class CaseEntry(Defaults, total=False):
    """One case: an operator with concrete inputs."""

    op: Required[Annotated[Name, Field(description="Name or alias of the operator.")]]
    name: Annotated[Name, Field(description="Identifier of the case, unique in the plan.")]
    description: Annotated[str, Field(description="Purpose of the case.")]
    shapes: Annotated[
        dict[str, Shape], Field(description="Shape, or shape with strides and offset, of each tensor by name.")
    ]
    product: Annotated[ProductForm, Field(description="Values by axis; one case for each combination.")]
    exclude: Annotated[list[dict[str, Any]], Field(min_length=1, description="Combinations of product to leave out.")]
    skip: Annotated[SkipForm, Field(description="Do not run the case, for this reason.")]
    xfail: Annotated[XfailForm, Field(description="The case is expected to end with this status, for this reason.")]
    expects_error: Annotated[ExpectedErrorForm, Field(description="The call must be refused with this error.")]


@with_config(STRICT)
class _CasePart(CaseEntry, total=False):
    op: Annotated[Name, Field(description="Name or alias of the operator.")]  # type: ignore[misc] # it may be left out


# Reads any keys of a case, such as an axis of a product sets.
CASE_PART: TypeAdapter[Any] = TypeAdapter(_CasePart)


@with_config(STRICT)
class ReportOptions(TypedDict, total=False):
    """Report that a run writes in addition to the terminal's."""

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
    description: str = Field(default="", description="Purpose of the plan.")
    backend: Name = Field(default="", description="Backend under test, by name or kind.")
    chip: Name = Field(default="", description="Chip of the backend.")
    seed: Seed = Field(default=0, description="Seed of all inputs.")
    fail_fast: bool = Field(default=False, description="Stop at the first failure.")
    base_dir: str = Field(default="", description="Folder that relative paths start from; by default the plan's.")
    report: ReportOptions = Field(default_factory=lambda: ReportOptions(), description="Report to write.")
    include: IncludeForm = Field(
        default=(), description="Plans whose cases run before those of this plan; paths relative to it."
    )
    defaults: Defaults = Field(
        default_factory=lambda: Defaults(), description="Values of all cases that do not set them."
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
        """Path of the file as passed to :func:`read_plan`, without detours such as ``x/..``."""
        return self._source.file

    @property
    def model(self) -> str:
        """Name of the model whose cases the file has, "" for a plan."""
        return self._model

    @property
    def source(self) -> Source:
        """YAML source of the file, for line numbers."""
        return self._source

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems of the plan and its includes. The document has the rest; a case without an operator is {}."""
        return tuple(problem for document in self.family() for problem in document._problems)

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages about parts of the plan and its includes that no run can execute."""
        return tuple(note for document in self.family() for note in document._notes)

    def unread(self, path: Path) -> Collection[str]:
        """Return the unreadable keys of the plan (), of its defaults or of a case ``("cases", 3)``."""
        return self._unread.get(path, ())

    @property
    def has_unread(self) -> bool:
        """True if some value could not be read."""
        return bool(self._unread)

    def family(self) -> list[PlanDocument]:
        """Return the included plans, each after its own includes, and then this plan."""
        return [*(each for included in self._included for each in included.family()), self]

    def expectations(self) -> list[tuple[str, frozenset[str]]]:
        """Return each expectations file of an include, with the paths of the plans that it is for."""
        return [(x._expectations, frozenset(y.path for y in x.family())) for x in self.family() if x._expectations]

    def without_models(self, files: Collection[str]) -> PlanDocument | None:
        """Return the plan without these files of model cases; None if one of them is a plan, or none remains."""
        if self.path in files or any(x.path in files and not x.model for x in self.family()):
            return None
        rest = self._without(files)
        return rest if any(x.model for x in rest.family()) else None

    def _without(self, files: Collection[str]) -> PlanDocument:
        rest = self.model_copy()
        rest._included = tuple(x._without(files) for x in self._included if x.path not in files)
        rest._problems = tuple(x for x in self._problems if x.file not in files)
        return rest

    def included_files(self) -> list[tuple[Path, values.Included]]:
        """Return the included files as they are written, each with its path in the plan."""
        if not isinstance(self._source.data.get("include"), list):
            return [(("include",), self.include[0])] if self.include else []
        return [(("include", index), name) for index, name in enumerate(self.include)]

    @property
    def products(self) -> Mapping[int, Product | None]:
        """The products by case index; None for one with wrong axes."""
        return self._products

    def parts(self) -> Iterator[tuple[Path, Mapping[str, Any], tuple[Product, Rows] | None]]:
        """Yield the path and values of the defaults, of each case, and of each value of an axis with a combination."""
        yield ("defaults",), self.defaults, None
        for index, entry in enumerate(self.cases):
            yield ("cases", index), entry, None
        for product in filter(None, self._products.values()):
            for rows, part in product.parts():
                yield product.path, part, (product, rows)

    def options(self) -> dict[str, Any]:
        """Return the top-level keys of the file that are options of a run, and the backend of model cases."""
        names = ("backend", "chip", "seed", "fail_fast")
        options: dict[str, Any] = {name: getattr(self, name) for name in names if name in self.model_fields_set}
        for plan in self.family():
            if plan._dialect is not None:
                # Model cases run with one backend only, also if another plan includes them.
                options.setdefault("backend", plan._dialect.backend)
        return options

    def where(self, path: Path = ()) -> str:
        """Return FILE:LINE of the value at ``path``."""
        return f"{self.path}:{self._source.line_of(path)}"

    def folder(self) -> str:
        """Return the absolute path of the folder that relative paths in the plan start from."""
        return os.path.abspath(os.path.join(os.path.dirname(self.path), self.base_dir))


def plan_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of plan files, for editors."""
    schema = PlanDocument.model_json_schema()
    # The validator gets `cases: []` for a plan with includes only; an editor does not.
    del schema["required"]
    either = [{"required": ["cases"]}, {"required": ["include"]}]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "anyOf": either}


def known_keys(path: Path) -> list[str]:
    """Return the keys that the mapping at ``path`` of a plan may have."""
    if path == ():
        return list(PlanDocument.model_fields)
    kinds: dict[Path, Any] = {("defaults",): Defaults, ("report",): ReportOptions}
    return list(kinds.get(path, CaseEntry).__annotations__)
