"""The keys of a case and of the defaults: how each is read, and its JSON Schema for editors."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field, PlainValidator, TypeAdapter, WithJsonSchema, with_config
from typing_extensions import Required, TypedDict

from optest.plan import product, values
from optest.spec import SIGNED_ZEROS, DType, ExpectedError, Skip, Xfail, dtype_names

__all__ = ["CASE_PART", "STRICT", "CaseEntry", "Defaults", "IncludeForm", "Name", "Seed", "Version"]

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
_REASON = {"type": "string", "minLength": 1}


def _reasoned(**more: Any) -> dict[str, Any]:
    properties = {"reason": _REASON, **more}
    mapping = {"type": "object", "properties": properties, "required": ["reason"], "additionalProperties": False}
    return {"anyOf": [_REASON, mapping]}


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
    "tuple[product.Axis, ...]",
    PlainValidator(product.read_axes),
    WithJsonSchema({"type": "object", "minProperties": 1, "additionalProperties": {"type": "array", "minItems": 1}}),
]
_FILE = {"type": "string", "minLength": 1}
_RENAMED = {
    "type": "object",
    "properties": {
        "file": _FILE,
        "model": {**_FILE, "description": "What the model of the file is called here."},
        "expectations": {**_FILE, "description": "What is known of its cases: known differences, wrong data, skips."},
    },
    "required": ["file"],
    "additionalProperties": False,
}
IncludeForm = Annotated[
    tuple[values.Included, ...],
    PlainValidator(values.read_include),
    WithJsonSchema(
        {"anyOf": [_FILE, _RENAMED, {"type": "array", "items": {"anyOf": [_FILE, _RENAMED]}, "minItems": 1}]}
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
