"""Schema of a file of model cases: its keys, their validation, their JSON Schema, and hints for invalid ones."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    WrapValidator,
    with_config,
)
from typing_extensions import Required, TypedDict

from optest.errors import Problem, did_you_mean
from optest.plan.schema import Name
from optest.plan.values import Misfit, shown
from optest.plan.yaml_source import Path
from optest.torch.model_cases.inits import INITS
from optest.torch.model_cases.tensors import PRESETS

ERROR_TYPES = (
    "ArithmeticError", "AssertionError", "AttributeError", "Exception", "IndexError", "KeyError", "LookupError",
    "NotImplementedError", "OverflowError", "RuntimeError", "TypeError", "ValueError", "ZeroDivisionError",
)  # fmt: skip

_STRICT = ConfigDict(extra="forbid", strict=True)
_Sizes = list[Annotated[int, Field(ge=0)]]
_Word = Annotated[str, Field(min_length=1)]
_Allowed = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Seed = Annotated[int, Field(ge=0, lt=2**64)]


@with_config(_STRICT)
class TensorEntry(TypedDict, total=False):
    """A tensor: its shape, its layout in memory, and how it is filled."""

    shape: Annotated[_Sizes, Field(description="Sizes; with a preset those of the resulting view.")]
    dtype: Annotated[_Word, Field(description="fp16, bf16, fp32, int64, bool …, or torch.float16; else the case's.")]
    stride: Annotated[_Sizes | None, Field(description="Steps in elements; 0 repeats one element.")]
    storage_offset: Annotated[int, Field(ge=0, description="Elements before the first one.")]
    device: Annotated[_Word, Field(description="Device of the capture; the device under test replaces it.")]
    device_layout: Annotated[dict[str, Any], Field(description="Layout on a vendor's device; ignored.")]
    init: Annotated[
        _Word,
        Field(description="Fill; rand, if it is not set.", json_schema_extra={"enum": [*INITS]}),
    ]
    init_args: Annotated[Any, Field(description="low, high, value, path …; the values themselves for data.")]
    preset: Annotated[
        _Word,
        Field(description="Layout of a non-contiguous view.", json_schema_extra={"enum": [*PRESETS]}),
    ]
    preset_args: Annotated[dict[str, Any], Field(description="dim and step; dim0 and dim1; base_shape.")]


_Inputs = list["InputEntry"]


@with_config(ConfigDict(**_STRICT, json_schema_extra={"minProperties": 1, "maxProperties": 1}))
class InputEntry(TypedDict, total=False):
    """One argument of the call: exactly one of these keys."""

    tensor: Annotated[TensorEntry, Field(description="A tensor.")]
    tensor_list: Annotated[list[TensorEntry], Field(description="A list of tensors.")]
    value: Annotated[Any, Field(description="A scalar, a list, or text that spells a tuple, a dtype or a device.")]
    py: Annotated[str, Field(description="A Python literal; slice(), Ellipsis, None, inf and nan are known.")]
    file: Annotated[_Word, Field(description="A .pt file that holds the tensor; relative to this file's folder.")]
    tuple: Annotated[_Inputs, Field(description="Several inputs as one argument: a subscript of slices and tensors.")]
    list: Annotated[_Inputs, Field(description="The same as a list.")]


def is_input(value: Any) -> bool:
    """Return whether a keyword argument is written as an input: ``{tensor: {shape: [2, 3]}}``."""
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in InputEntry.__annotations__


_Keyword = Annotated[InputEntry, WrapValidator(lambda value, inner: inner(value) if is_input(value) else value)]


def _not_empty(name: str) -> AfterValidator:
    """Return a validator of lists and mappings with at least one entry; its message calls the value ``name``."""

    def check(value: Any) -> Any:
        if not value:
            raise Misfit(f"{name} is {shown(value)}, expected at least one entry")
        return value

    return AfterValidator(check)


def _check_error_type(name: str) -> str:
    if name not in ERROR_TYPES:
        message = f"the error's type is {name!r}, expected one of {', '.join(ERROR_TYPES)}"
        raise Misfit(message, hint=did_you_mean(name, ERROR_TYPES))
    return name


# Of a plain union pydantic reports one problem for each form, of a tagged one only that of the form with the tag.
_TAGS = ("<text>", "<mapping>", "<list>")
_TEXT, _MAPPING, _LIST = map(Tag, _TAGS)
_ITEM_FORM = Discriminator(lambda value: _TAGS[isinstance(value, dict)])
_FORM = Discriminator(lambda value: _TAGS[2 if isinstance(value, list) else isinstance(value, dict)])
_Reason = Annotated[str, Field(min_length=1, pattern=r"\S", description="Why the case is skipped, or fails.")]


@with_config(_STRICT)
class ErrorEntry(TypedDict, total=False):
    """The error that the call must raise."""

    type: Annotated[
        _Word,
        AfterValidator(_check_error_type),
        Field(description="RuntimeError, ValueError, TypeError …", json_schema_extra={"enum": [*ERROR_TYPES]}),
    ]
    match: Annotated[_Word, Field(description="Part of its text.")]


@with_config(_STRICT)
class SkipEntry(TypedDict, total=False):
    """Options of pytest's mark skip."""

    reason: _Reason


@with_config(_STRICT)
class XfailEntry(SkipEntry, total=False):
    """Options of pytest's mark xfail."""

    strict: Annotated[bool, Field(description="Fail a case that passes.")]


_Skip = Annotated[Annotated[_Reason, _TEXT] | Annotated[SkipEntry, _MAPPING], _ITEM_FORM]
_Xfail = Annotated[Annotated[_Reason, _TEXT] | Annotated[XfailEntry, _MAPPING], _ITEM_FORM]


@with_config(ConfigDict(**_STRICT, json_schema_extra={"minProperties": 1}))
class MarkEntry(TypedDict, total=False):
    """A mark with its options: ``mark: {xfail: {reason: issue 7, strict: true}}``."""

    skip: Annotated[_Skip, Field(description="Skip the case; a word is the reason.")]
    xfail: Annotated[_Xfail, Field(description="Expect the case to fail; a word is the reason.")]


def words_of(text: str) -> list[str]:
    """Return the marks in a text: words between commas or spaces, without a prefix ``pytest.mark.``.

    Raises:
        Misfit: for a text without a word, and for pytest's ``skipif``, which needs a condition.
    """
    words = [word.removeprefix("pytest.mark.") for word in text.replace(",", " ").split()] if text.isprintable() else []
    if not words:
        raise Misfit(f"a mark is {shown(text)}, expected a word", hint="marks: [constant, slow]")
    if "skipif" in words:
        hint = "skip_if: {expr: device == 'npu', reason: no such kernel}"
        raise Misfit("the mark skipif cannot have a condition here; write skip_if", hint=hint)
    return words


@with_config(_STRICT)
class ConditionEntry(TypedDict, total=False):
    """A comparison, and why the case is skipped if it holds."""

    expr: Required[Annotated[_Word, Field(description="Comparisons of cfg, env, dtype_str and device.")]]
    reason: Annotated[str, Field(description="Why the case is skipped.")]


_MarkText = Annotated[_Word, AfterValidator(words_of), _TEXT]
_MarkMapping = Annotated[MarkEntry, _not_empty("the mark"), _MAPPING]
_MarkList = Annotated[list[Annotated[_MarkText | _MarkMapping, _ITEM_FORM]], _LIST]
_Marks = Annotated[_MarkText | _MarkMapping | _MarkList, _FORM]
_ConditionText = Annotated[_Word, _TEXT]
_ConditionMapping = Annotated[ConditionEntry, _MAPPING]
_ConditionList = Annotated[list[Annotated[_ConditionText | _ConditionMapping, _ITEM_FORM]], _LIST]
_Conditions = Annotated[_ConditionText | _ConditionMapping | _ConditionList, _FORM]


@with_config(_STRICT)
class ModelDefaults(TypedDict, total=False):
    """Defaults of the cases."""

    dtype: Annotated[_Word, Field(description="Dtype of tensors without one.")]
    seed: Annotated[_Seed, Field(description="Seed of the fills.")]
    rtol: Annotated[_Allowed, Field(description="Relative tolerance.")]
    atol: Annotated[_Allowed, Field(description="Absolute tolerance.")]
    grad: Annotated[bool, Field(description="Compare the gradients of the inputs, too.")]
    same_strides: Annotated[bool, Field(description="Outputs must have the strides of torch on the CPU.")]


@with_config(_STRICT)
class ModelCase(ModelDefaults, total=False):
    """One torch call."""

    name: Required[Annotated[Name, Field(description="Unique in the file.")]]
    op: Required[Annotated[_Word, Field(description="Dotted name: torch.add, torch.nn.functional.silu, torch.view.")]]
    inputs: Annotated[list[InputEntry], Field(description="Positional arguments in order.")]
    attrs: Annotated[dict[str, _Keyword], Field(description="Keyword arguments.")]
    kwmap: Annotated[dict[str, _Keyword], Field(description="Keyword arguments, as captured; a mapping is an input.")]
    description: Annotated[str, Field(description="Location of the call in the model.")]
    reference: Annotated[_Word, Field(description="Function that computes the expected output: package.module:name.")]
    expects_error: Annotated[
        ErrorEntry, _not_empty("expects_error"), Field(description="The call must raise this error, on the CPU too.")
    ]
    mark: Annotated[_Marks, Field(description="Words to select cases by; skip and xfail as in pytest.")]
    marks: Annotated[_Marks, Field(description="The same.")]
    skip_if: Annotated[_Conditions, Field(description="When to skip the case.")]


@with_config(_STRICT)
class ModelFile(TypedDict, total=False):
    """Torch calls of a model."""

    model: Required[Annotated[Name, Field(description="Name of the model.")]]
    default: Annotated[ModelDefaults, Field(description="Values that all cases of the file have by default.")]
    defaults: Annotated[ModelDefaults, Field(description="The same as default; write only one of the two.")]
    cases: Required[
        Annotated[
            list[ModelCase],
            _not_empty("cases"),
            Field(description="The calls.", json_schema_extra={"minItems": 1}),
        ]
    ]


MODEL_FILE: TypeAdapter[ModelFile] = TypeAdapter(ModelFile)


def model_cases_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a file of model cases, for editors."""
    schema = {**MODEL_FILE.json_schema(), "title": "optest model cases"}
    keys = schema["$defs"]["ModelCase"]["properties"]
    for key in ("attrs", "kwmap"):
        keys[key]["additionalProperties"] = {
            "anyOf": [{"not": {"type": "object"}}, keys[key]["additionalProperties"]],
        }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


LEVELS: Mapping[str, Any] = {
    "the file": ModelFile,
    "the defaults": ModelDefaults,
    "a case": ModelCase,
    "an input": InputEntry,
    "a tensor": TensorEntry,
    "expects_error": ErrorEntry,
    "marks with options": MarkEntry,
    "skip": SkipEntry,
    "xfail": XfailEntry,
    "skip_if": ConditionEntry,
}
"""Classes of the mappings in a file by their name in messages."""


def errors_of(error: ValidationError) -> ValidationError:
    """Return the error with the tags of unions removed from its paths."""
    details: Any = error.errors(include_url=False)
    for detail in details:
        detail["loc"] = tuple(step for step in detail["loc"] if step not in _TAGS)
    return ValidationError.from_exception_data(error.title, details)


def level_of(path: Path) -> str:
    """Return the name of the mapping at this path in :data:`LEVELS`, else its key."""
    match path:
        case ():
            return "the file"
        case ("default" | "defaults",):
            return "the defaults"
        case ("cases", int()):
            return "a case"
        case (*_, "inputs" | "tuple" | "list", int()) | (*_, "attrs" | "kwmap", str()):
            return "an input"
        case (*_, "tensor") | (*_, "tensor_list", int()):
            return "a tensor"
        case (*_, "mark" | "marks") | (*_, "mark" | "marks", int()):
            return "marks with options"
        case (*_, "skip_if", int()):
            return "skip_if"
    return str(path[-1])


def known_keys(path: Path) -> list[str]:
    """Return the keys that a mapping at this path may have."""
    level = LEVELS.get(level_of(path))
    return list(level.__annotations__) if level else []


# Hints of plans mislead in this dialect, so that it has its own.
_CASE = "{name: add.1, op: torch.add, inputs: [{tensor: {shape: [2, 3]}}, {value: 2}]}"
_EXAMPLES = {
    "model": "model: gpt-oss-20b",
    "default": "default: {dtype: fp16, seed: 123}",
    "defaults": "defaults: {dtype: fp16, seed: 123}",
    "cases": f"cases: [{_CASE}]",
    "name": "name: add.1",
    "op": "op: torch.add",
    "inputs": "inputs: [{tensor: {shape: [2, 3]}}, {value: 2}]",
    "tensor": "tensor: {shape: [2, 3], init: randn}",
    "tensor_list": "tensor_list: [{shape: [2, 3]}, {shape: [2, 3]}]",
    "tuple": "tuple: [{py: slice(None)}, {tensor: {shape: [3], dtype: int64}}]",
    "list": "list: [{tensor: {shape: [3]}}, {py: None}]",
    "py": "py: (Ellipsis, None, slice(None, 2))",
    "shape": "shape: [2, 3]",
    "stride": "stride: [3, 1]",
    "storage_offset": "storage_offset: 64",
    "dtype": "dtype: fp16",
    "init": "init: randn",
    "preset": "preset: transpose_view",
    "seed": "seed: 123",
    "rtol": "rtol: 0.001",
    "atol": "atol: 0.001",
    "grad": "grad: true",
    "same_strides": "same_strides: true",
    "reference": "reference: package.module:name",
    "description": "description: modeling_gpt_oss.py:138",
    "type": "expects_error: {type: RuntimeError, match: view}",
    "match": "expects_error: {type: RuntimeError, match: view}",
    "device": "device: cuda:0",
    "device_layout": "device_layout: {stride_map: [1]}",
    "value": "value: 2",
    "file": "file: x.pt",
    "attrs": "attrs: {dim: -1}",
    "kwmap": "kwmap: {dim: -1}",
    "preset_args": "preset_args: {dim: 1, step: 2}",
    "expects_error": "expects_error: {type: RuntimeError, match: view}",
    "skip_if": "skip_if: {expr: device == 'npu', reason: why}",
    "mark": "mark: {xfail: {reason: issue 7, strict: true}}",
    "marks": "marks: [constant, slow]",
}
_ITEMS = {"cases": f"- {_CASE}", "inputs": "- tensor: {shape: [2, 3]}"}
_OF_A_PLAN = re.compile("relu|input0|indent|margin|tolerance:")
# Matches keys that are remains of a value: YAML ends `{py: (slice(None), 2)}` at the comma.
_CUT_OFF = re.compile(r"[()\[\]]")


def in_dialect(path: Path, problem: Problem) -> Problem:
    """Return the problem with the owner of an unknown key and the hints of this dialect."""
    if problem.message.startswith("unknown key "):
        message = f"unknown key {str(path[-1])!r} of {level_of(path[:-1])}"
        hint = problem.hint if problem.hint.startswith("a space is missing") else _unknown_key_hint(path)
        return dataclasses.replace(problem, message=message, hint=hint)
    if problem.hint and not _OF_A_PLAN.search(problem.hint):
        return problem
    return dataclasses.replace(problem, hint=example_at(path))


def _unknown_key_hint(path: Path) -> str:
    name, known = str(path[-1]), known_keys(path[:-1])
    if _CUT_OFF.search(name):
        return "quote a value with commas between { and }: {py: '(slice(None), 2)'}"
    elsewhere = [level for level, entry in LEVELS.items() if name in entry.__annotations__]
    otherwise = f"it is a key of {' and of '.join(elsewhere)}" if elsewhere else f"known keys: {', '.join(known)}"
    return did_you_mean(name, known, otherwise)


def example_at(path: Path) -> str:
    """Return an example of the value at ``path`` or of the nearest mapping around it, else ""."""
    for depth in range(len(path), 0, -1):
        last = path[depth - 1]
        if isinstance(last, str) and last in _EXAMPLES:
            return _ITEMS.get(last, _EXAMPLES[last]) if depth < len(path) else _EXAMPLES[last]
    return ""
