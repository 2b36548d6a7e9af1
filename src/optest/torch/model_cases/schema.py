"""The keys of a file of model cases, how each is read, their JSON Schema, and what is said of one that is wrong."""

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
    device: Annotated[_Word, Field(description="Where it was captured; it is made on the device under test.")]
    device_layout: Annotated[dict[str, Any], Field(description="Layout of one vendor's device; kept, not used.")]
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
    """Whether a keyword argument is written as an input is: ``{tensor: {shape: [2, 3]}}``."""
    return isinstance(value, dict) and len(value) == 1 and next(iter(value)) in InputEntry.__annotations__


_Keyword = Annotated[InputEntry, WrapValidator(lambda value, inner: inner(value) if is_input(value) else value)]


@with_config(_STRICT)
class ErrorEntry(TypedDict, total=False):
    """The error that the call has to be refused with."""

    type: Annotated[_Word, Field(description="RuntimeError, ValueError, TypeError, AssertionError …")]
    match: Annotated[_Word, Field(description="Part of its text.")]


@with_config(_STRICT)
class SkipEntry(TypedDict, total=False):
    """What pytest's own mark may state of itself."""

    reason: Annotated[_Word, Field(description="Why it is left out, or not met.")]


@with_config(_STRICT)
class XfailEntry(SkipEntry, total=False):
    """What pytest's own mark may state of itself."""

    strict: Annotated[bool, Field(description="Fail a case that passes.")]


@with_config(ConfigDict(**_STRICT, json_schema_extra={"minProperties": 1}))
class MarkEntry(TypedDict, total=False):
    """A mark with its options: ``mark: {xfail: {reason: issue 7, strict: true}}``."""

    skip: Annotated[_Word | SkipEntry, Field(description="Leave the case out; a word is the reason.")]
    xfail: Annotated[_Word | XfailEntry, Field(description="Expect the case to fail; a word is the reason.")]


_MARK_OPTIONS = {"skip": list(SkipEntry.__annotations__), "xfail": list(XfailEntry.__annotations__)}


def marks_of(value: Any) -> dict[str, Mapping[str, Any]]:
    """Marks with their options: a word, a mapping from a word to its options, or a list of these.

    Several words in one text stand between commas or spaces, ``pytest.mark.`` may lead.

    Raises:
        Misfit: for anything else, and for pytest's ``skipif``, which is nothing without its condition.
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
            raise Misfit("the mark skipif has no condition here", path=path, hint=hint)
        marks.update({word: {} for word in found})
    return marks


def _mark_options(name: str, stated: Any, path: tuple[str | int, ...]) -> Mapping[str, Any]:
    if name not in _MARK_OPTIONS:
        hint = did_you_mean(name, _MARK_OPTIONS, "marks: [constant, slow]")
        raise Misfit(f"the mark {name} takes no options; {' and '.join(_MARK_OPTIONS)} do", path=path, hint=hint)
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
    """Expressions, each with its reason ("" if none is stated) and the way to it.

    Raises:
        Misfit: for what is no condition.
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
    """A comparison, and why the case is left out where it holds."""

    expr: Required[Annotated[_Word, Field(description="Comparisons of cfg, env, dtype_str and device.")]]
    reason: Annotated[str, Field(description="Why the case is left out.")]


_Mark = _Word | MarkEntry
_Marks = Annotated[_Mark | list[_Mark], WrapValidator(lambda value, _: marks_of(value))]
_Condition = _Word | ConditionEntry
_Conditions = Annotated[_Condition | list[_Condition], WrapValidator(lambda value, _: conditions_of(value))]
"""Read by functions: of several forms pydantic would say what is wrong with each of them."""


def _some(cases: list[Any]) -> list[Any]:
    if not cases:
        raise Misfit("cases is [], but should hold at least one case", hint="remove the file if it is not needed")
    return cases


@with_config(_STRICT)
class ModelDefaults(TypedDict, total=False):
    """What holds for every case that does not state it itself."""

    dtype: Annotated[_Word, Field(description="Of tensors that state none.")]
    seed: Annotated[_Seed, Field(description="Of the fills.")]
    rtol: Annotated[_Allowed, Field(description="Share of |expected|.")]
    atol: Annotated[_Allowed, Field(description="In units of the output.")]
    grad: Annotated[bool, Field(description="Differentiate the call, and judge the gradients of its inputs, too.")]
    same_strides: Annotated[bool, Field(description="Results have to have the strides of torch on the CPU.")]


@with_config(_STRICT)
class ModelCase(ModelDefaults, total=False):
    """One call of torch."""

    name: Required[Annotated[Name, Field(description="Unique in the file.")]]
    op: Required[Annotated[_Word, Field(description="Dotted name: torch.add, torch.nn.functional.silu, torch.view.")]]
    inputs: Annotated[list[InputEntry], Field(description="Positional arguments in order.")]
    attrs: Annotated[dict[str, _Keyword], Field(description="Keyword arguments.")]
    kwmap: Annotated[dict[str, _Keyword], Field(description="Keyword arguments, as captured; a mapping is an input.")]
    description: Annotated[str, Field(description="Where the call stands in the model.")]
    reference: Annotated[_Word, Field(description="Function of yours that says what is expected: package.module:name.")]
    expects_error: Annotated[ErrorEntry, Field(description="The call has to be refused, on the CPU too.")]
    mark: Annotated[_Marks, Field(description="Words to select cases by; skip and xfail are what they are in pytest.")]
    marks: Annotated[_Marks, Field(description="The same.")]
    skip_if: Annotated[_Conditions, Field(description="When the case is left out.")]


@with_config(_STRICT)
class ModelFile(TypedDict, total=False):
    """Calls of torch that a model makes."""

    model: Required[Annotated[Name, Field(description="Name of the model.")]]
    default: Annotated[ModelDefaults, Field(description="What holds for every case.")]
    defaults: Annotated[ModelDefaults, Field(description="The same; only one of the two may stand there.")]
    cases: Required[
        Annotated[
            list[ModelCase], AfterValidator(_some), Field(description="The calls.", json_schema_extra={"minItems": 1})
        ]
    ]


MODEL_FILE: TypeAdapter[ModelFile] = TypeAdapter(ModelFile)


def model_cases_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a file of model cases, for editors."""
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
"""What the mappings of a file are, in words."""


def level_of(path: Path) -> str:
    """Which of :data:`LEVELS` the mapping at this path is, else its key."""
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
    """The keys that a mapping at this path may have."""
    level = level_of(path)
    if level in LEVELS:
        return list(LEVELS[level].__annotations__)
    if level == "expects_error":
        return list(ErrorEntry.__annotations__)
    return _MARK_OPTIONS.get(level, [])


# What is wrong with a file of model cases in the words of its own dialect, where those of a plan would mislead.


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
_CUT_OFF = re.compile(r"[()\[\]]")
"""In a key: what YAML left over of ``{py: (slice(None), 2)}``, where a comma begins the next key."""


def in_own_words(path: Path, problem: Problem) -> Problem:
    """The problem, with the owner of an unknown key and the remedies of this dialect."""
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
        return "between { and } a value with commas stands in quotes: {py: '(slice(None), 2)'}"
    elsewhere = [level for level, entry in LEVELS.items() if name in entry.__annotations__]
    otherwise = f"it is a key of {' and of '.join(elsewhere)}" if elsewhere else f"known keys: {', '.join(known)}"
    return did_you_mean(name, known, otherwise)


def example_at(path: Path) -> str:
    """How the value at ``path``, or the nearest thing around it, may look; "" where nobody can tell."""
    for depth in range(len(path), 0, -1):
        last = path[depth - 1]
        if isinstance(last, str) and last in _EXAMPLES:
            return _ITEMS.get(last, _EXAMPLES[last]) if depth < len(path) else _EXAMPLES[last]
    return ""
