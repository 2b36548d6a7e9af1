"""Schema of a file of model cases: its keys, their validation, their JSON Schema, and hints for invalid ones."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    WrapValidator,
    with_config,
)
from typing_extensions import Required, TypedDict

from optest.errors import Problem, did_you_mean
from optest.plan.schema import Name
from optest.plan.values import Misfit, read_strict, shown, unknown_key
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
    init: Annotated[_Word, Field(description="rand, randn, zeros, ones, arange, randint, uniform, data, full, eye …")]
    init_args: Annotated[Any, Field(description="low, high, value, path …; the values themselves for data.")]
    preset: Annotated[_Word, Field(description="noncontig_slice, transpose_view or expand_view.")]
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


@with_config(_STRICT)
class ErrorEntry(TypedDict, total=False):
    """The error that the call must raise."""

    type: Annotated[_Word, Field(description="RuntimeError, ValueError, TypeError, AssertionError …")]
    match: Annotated[_Word, Field(description="Part of its text.")]


@with_config(_STRICT)
class SkipEntry(TypedDict, total=False):
    """Options of pytest's mark skip."""

    reason: Annotated[_Word, Field(description="Why the case is skipped, or fails.")]


@with_config(_STRICT)
class XfailEntry(SkipEntry, total=False):
    """Options of pytest's mark xfail."""

    strict: Annotated[bool, Field(description="Fail a case that passes.")]


@with_config(ConfigDict(**_STRICT, json_schema_extra={"minProperties": 1}))
class MarkEntry(TypedDict, total=False):
    """A mark with its options: ``mark: {xfail: {reason: issue 7, strict: true}}``."""

    skip: Annotated[_Word | SkipEntry, Field(description="Skip the case; a word is the reason.")]
    xfail: Annotated[_Word | XfailEntry, Field(description="Expect the case to fail; a word is the reason.")]


_MARK_OPTIONS = {"skip": list(SkipEntry.__annotations__), "xfail": list(XfailEntry.__annotations__)}


def marks_of(value: Any) -> dict[str, Mapping[str, Any]]:
    """Return marks with their options from a text of words, a mapping from a word to its options, or a list of both.

    Words are separated by commas or spaces; a prefix ``pytest.mark.`` is dropped.

    Raises:
        Misfit: for anything else, and for pytest's ``skipif``, which needs a condition.
    """
    marks: dict[str, Mapping[str, Any]] = {}
    for index, each in enumerate(value if isinstance(value, list) else [value]):
        path: tuple[str | int, ...] = (index,) if isinstance(value, list) else ()
        if isinstance(each, dict) and each:
            marks.update({name: _mark_options(name, stated, (*path, name)) for name, stated in each.items()})
            continue
        found = each.replace(",", " ").split() if isinstance(each, str) and each.isprintable() else []
        if not found:
            raise Misfit(f"a mark is {shown(each)}, expected a word", path=path, hint="marks: [constant, slow]")
        found = [word.removeprefix("pytest.mark.") for word in found]
        if "skipif" in found:
            hint = "skip_if: {expr: device == 'npu', reason: no such kernel}"
            raise Misfit("the mark skipif cannot have a condition here; write skip_if", path=path, hint=hint)
        marks.update({word: {} for word in found})
    return marks


def _mark_options(name: str, stated: Any, path: tuple[str | int, ...]) -> Mapping[str, Any]:
    if name not in _MARK_OPTIONS:
        hint = did_you_mean(name, _MARK_OPTIONS, "marks: [constant, slow]")
        raise Misfit(f"the mark {name} takes no options; only {' and '.join(_MARK_OPTIONS)} do", path=path, hint=hint)
    options = {"reason": stated} if isinstance(stated, str) else stated
    if not isinstance(options, dict):
        hint = f"{name}: {{reason: why}}"
        raise Misfit(f"{name} is {shown(stated)}, expected a reason or a mapping", path=path, hint=hint)
    for key in options:
        if key not in _MARK_OPTIONS[name]:
            misfit = unknown_key(key, _MARK_OPTIONS[name], of=name)
            raise Misfit(misfit.message, path=(*path, key), hint=misfit.hint)
    if not isinstance(options.get("reason", "-"), str) or not options.get("reason", "-").strip():
        raise Misfit(f"reason is {shown(options['reason'])}, expected text", path=(*path, "reason"))
    try:
        read_strict(options)
    except Misfit as misfit:
        raise Misfit(misfit.message, path=(*path, "strict")) from None
    return options


def conditions_of(value: Any) -> list[tuple[str, str, tuple[str | int, ...]]]:
    """Return each expression of ``skip_if`` with its reason ("" without one) and its path in the entry.

    Raises:
        Misfit: for an entry that is not a condition.
    """
    found = []
    for index, each in enumerate(value if isinstance(value, list) else [value]):
        path: tuple[str | int, ...] = (index,) if isinstance(value, list) else ()
        stated = {"expr": each} if isinstance(each, str) else each
        if not isinstance(stated, dict):
            raise Misfit(f"a condition is {shown(each)}, expected text or a mapping", path=path)
        strange = next((key for key in stated if key not in ("expr", "reason")), None)
        if strange is not None:
            hint = did_you_mean(strange, ("expr", "reason"), _CONDITION)
            raise Misfit(f"unknown key {strange!r} of skip_if", path=(*path, strange), hint=hint)
        expr, reason = stated.get("expr"), stated.get("reason", "")
        if not isinstance(expr, str) or not expr.strip():
            message = f"expr is {shown(expr)}, expected a comparison" if "expr" in stated else "expr is missing"
            raise Misfit(message, path=(*path, "expr") if isinstance(each, dict) else path)
        if not isinstance(reason, str):
            raise Misfit(f"reason is {shown(reason)}, expected text", path=(*path, "reason"))
        found.append((expr, reason.strip(), (*path, "expr") if isinstance(each, dict) else path))
    return found


_CONDITION = "skip_if: {expr: device == 'npu', reason: why}"


@with_config(_STRICT)
class ConditionEntry(TypedDict, total=False):
    """A comparison, and why the case is skipped if it holds."""

    expr: Required[Annotated[_Word, Field(description="Comparisons of cfg, env, dtype_str and device.")]]
    reason: Annotated[str, Field(description="Why the case is skipped.")]


_Mark = _Word | MarkEntry
# Validated by functions: for a union, pydantic would report one problem for each of its forms.
_Marks = Annotated[_Mark | list[_Mark], WrapValidator(lambda value, _: marks_of(value))]
_Condition = _Word | ConditionEntry
_Conditions = Annotated[_Condition | list[_Condition], WrapValidator(lambda value, _: conditions_of(value))]


def _some(cases: list[Any]) -> list[Any]:
    if not cases:
        raise Misfit("cases is [], expected at least one case", hint="remove the file if it is not needed")
    return cases


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
    expects_error: Annotated[ErrorEntry, Field(description="The call must raise this error, on the CPU too.")]
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
            list[ModelCase], AfterValidator(_some), Field(description="The calls.", json_schema_extra={"minItems": 1})
        ]
    ]


MODEL_FILE: TypeAdapter[ModelFile] = TypeAdapter(ModelFile)


def model_cases_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a file of model cases, for editors."""
    schema = {**MODEL_FILE.json_schema(), "title": "optest model cases"}
    keys = schema["$defs"]["ModelCase"]["properties"]
    for owner, key, words in (
        ("TensorEntry", "init", INITS),
        ("TensorEntry", "preset", PRESETS),
        ("ErrorEntry", "type", ERROR_TYPES),
    ):
        schema["$defs"][owner]["properties"][key]["enum"] = list(words)
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
}
"""Classes of the mappings in a file by their name in messages."""


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
    return str(path[-1])


def known_keys(path: Path) -> list[str]:
    """Return the keys that a mapping at this path may have."""
    level = level_of(path)
    if level in LEVELS:
        return list(LEVELS[level].__annotations__)
    if level == "expects_error":
        return list(ErrorEntry.__annotations__)
    return _MARK_OPTIONS.get(level, [])


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
}
_ITEMS = {"cases": f"- {_CASE}", "inputs": "- tensor: {shape: [2, 3]}"}
_OF_A_PLAN = re.compile("relu|input0|indent|margin|tolerance:")
# Matches keys that are remains of a value: YAML ends `{py: (slice(None), 2)}` at the comma.
_CUT_OFF = re.compile(r"[()\[\]]")


def in_dialect(path: Path, problem: Problem) -> Problem:
    """Return the problem with the owner of an unknown key and the hints of this dialect."""
    if problem.message.startswith("unknown key ") and "skip_if" not in path:
        message = f"unknown key {str(path[-1])!r} of {level_of(path[:-1])}"
        hint = problem.hint if problem.hint.startswith("a space is missing") else _remedy(path)
        return dataclasses.replace(problem, message=message, hint=hint)
    if problem.hint and not _OF_A_PLAN.search(problem.hint):
        return problem
    return dataclasses.replace(problem, hint=example_at(path))


def _remedy(path: Path) -> str:
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
