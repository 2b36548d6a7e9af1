"""Conversion of torch-spyre's ``test_suite_config`` to a file of model cases.

The format configures any test of torch-spyre. Only ``edits.ops.include`` with ``sample_inputs_func`` holds operator
calls; a note lists the ignored rest of each test file. Meanings follow torch-spyre's ``tests/oot_framework`` (2026-07).
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, count
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import Required, TypedDict

from optest.errors import Problem
from optest.plan.problems import problems_of
from optest.plan.values import Misfit, shown
from optest.plan.yaml_source import Path, Source
from optest.torch.model_cases.arguments import literal
from optest.torch.model_cases.schema import is_input

TOP = "test_suite_config"


def _check_tag(value: str) -> str:
    """Return a tag (marks, or ``model__`` and a model name) unchanged; raise Misfit for an empty one or skipif."""
    words = [each.removeprefix("pytest.mark.") for each in value.removeprefix("model__").replace(",", " ").split()]
    if not words or "skipif" in words or not value.isprintable():
        message = f"the tag is {shown(value)}, expected a model or a mark without a condition"
        raise Misfit(message, hint="tags: [model__gpt-oss-20b, slow]")
    return value


_Word = Annotated[str, Field(min_length=1)]
_Tag = Annotated[_Word, AfterValidator(_check_tag)]
_Bound = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Seed = Annotated[int, Field(ge=0, lt=2**64)]
_Empty = Annotated[list[Any], Field(max_length=0)]
_Mode = Literal["mandatory_success", "xfail", "xfail_strict", "skip"]
_Dtype = Literal[
    "float16", "half", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64", "complex32", "complex64", "complex128", "bool",
]  # fmt: skip

# ruff: noqa: UP013 - a table of keys, for which a dozen classes would fill a page
_Arguments = TypedDict("_Arguments", {"args": list[Any] | None, "kwargs": dict[str, Any] | None}, total=False)
_Call = TypedDict("_Call", {
    "name": Required[_Word], "description": str | None, "tags": list[_Tag], "sample_inputs_func": _Arguments,
    "kwargs": dict[str, Any] | None,
}, total=False)  # fmt: skip
_Operators = TypedDict("_Operators", {"include": list[_Call], "exclude": Any}, total=False)
_Edits = TypedDict("_Edits", {
    "ops": _Operators, "modules": dict[str, list[Any]], "dtypes": Any, "functions": Any, "inputs": Any,
}, total=False)  # fmt: skip
_Test = TypedDict("_Test", {
    "names": Required[_Word | list[_Word]], "mode": _Mode, "tags": list[_Tag], "labels": Any, "no_grad": bool,
    "edits": _Edits,
}, total=False)  # fmt: skip
_Files = TypedDict("_Files", {"path": Required[_Word], "unlisted_test_mode": _Mode, "tests": list[_Test]}, total=False)
_Precision = TypedDict("_Precision", {"atol": _Bound | None, "rtol": _Bound | None}, total=False)
_Supported = TypedDict("_Supported", {
    "name": Required[_Dtype], "description": str | None, "precision": _Precision | None, "force_xfail": bool,
}, total=False)  # fmt: skip
_DtypeEntry = Annotated[_Supported, BeforeValidator(lambda x: {"name": x} if isinstance(x, str) else x)]
_InputConfig = TypedDict("_InputConfig", {"seed": _Seed | None}, total=False)
_Global = TypedDict("_Global", {
    "supported_dtypes": list[_DtypeEntry], "supported_ops": Any, "supported_modules": Any, "input_config": _InputConfig,
}, total=False)  # fmt: skip
_Suite = TypedDict("_Suite", {"files": Required[list[_Files]], "global": _Global, "labels": Any}, total=False)
# upstream's exporter leaves an empty list of cases behind
_File = TypedDict("_File", {"test_suite_config": Required[_Suite], "cases": _Empty | None}, total=False)

_LEVELS: Mapping[str, Any] = {
    "": _File, TOP: _Suite, "files": _Files, "tests": _Test, "edits": _Edits, "ops": _Operators, "include": _Call,
    "sample_inputs_func": _Arguments, "global": _Global, "supported_dtypes": _Supported,
    "precision": _Precision, "input_config": _InputConfig,
}  # fmt: skip
for _level in _LEVELS.values():
    with_config(ConfigDict(extra="forbid", strict=True))(_level)
_FILE: TypeAdapter[Any] = TypeAdapter(_File)


def as_model_file(source: Source) -> tuple[dict[Path, Problem], list[str], tuple[str, ...]]:
    """Rearrange the data of ``source`` as a file of model cases; return its problems, models by case, and notes.

    ``source.origins`` traces each part of the new data to the file. A file with a wrong key has no cases.
    """
    renamed = source.data.pop("model", None)
    model = renamed or FilePath(source.file).stem
    problems, notes = dict[Path, Problem](), list[str]()
    try:
        suite = _FILE.validate_python(source.data)[TOP]
    except ValidationError as error:
        for at, problem in problems_of(error, source, lambda path: _entry_at(path)[1]).items():
            unknown = f"unknown key {at[-1]!r} of {_entry_at(at[:-1])[0]}"
            is_unknown = problem.message.startswith("unknown key ")
            problems[at] = dataclasses.replace(problem, message=unknown) if is_unknown else problem
        source.data = {"model": model, "cases": []}
        return problems, [], ()
    general = suite.get("global", {})
    supported = {each["name"].replace("half", "float16"): each for each in general.get("supported_dtypes", ())}
    cases, models, names = list[dict[str, Any]](), list[str](), dict[str, set[str]]()
    for file_index, file in enumerate(suite["files"]):
        file_path: Path = (TOP, "files", file_index)
        before = len(cases)
        not_read = Counter(f"global.{key}" for key in ("supported_ops", "supported_modules") if general.get(key))
        for test_index, test in enumerate(file.get("tests", ())):
            edits = test.get("edits", {})
            not_read["modules"] += len(edits.get("modules", {}).get("include", ()))
            not_read.update(f"edits.{key}" for key in ("dtypes", "functions", "inputs") if edits.get(key))
            not_read["edits.ops.exclude"] += bool(edits.get("ops", {}).get("exclude"))
            for index, call in enumerate(edits.get("ops", {}).get("include", ())):
                path: Path = (*file_path, "tests", test_index, "edits", "ops", "include", index)
                inner = call.get("sample_inputs_func", {})
                # in files of June 2026 kwargs are next to sample_inputs_func
                args, kwargs, outer = inner.get("args") or [], inner.get("kwargs") or {}, call.get("kwargs") or {}
                if not (args or kwargs or outer):
                    not_read["operators without inputs"] += 1
                    continue
                new_path: Path = ("cases", len(cases))
                source.origins |= {
                    new_path: path,
                    (*new_path, "op"): (*path, "name"),
                    (*new_path, "inputs"): (*path, "sample_inputs_func", "args"),
                    (*new_path, "kwmap"): (*path, "sample_inputs_func", "kwargs"),
                    (*new_path, "attrs"): (*path, "kwargs"),
                }
                tags = [*test.get("tags", ()), *call.get("tags", ())]
                models.append(renamed or next((tag[7:] for tag in tags if tag.startswith("model__")), model))
                dtype = _first_dtype([*args, *kwargs.values(), *outer.values()])
                rule = supported.get(dtype, {})
                precision = {key: value for key, value in (rule.get("precision") or {}).items() if value is not None}
                cases.append({
                    "name": _case_name(call["name"], call.get("tags", ()), names.setdefault(models[-1], set())),
                    "op": call["name"],
                    "inputs": args,
                    "kwmap": {key: _keyword(value) for key, value in kwargs.items()},
                    "attrs": {key: _keyword(value) for key, value in outer.items()},
                    "marks": [*tags, *_mode_marks(test.get("mode", "mandatory_success"), dtype, rule)],
                    **({"description": call["description"]} if call.get("description") else {}),
                    # upstream's bound for the half that is left out
                    **({"atol": 0.005, "rtol": 0.005, **precision} if precision else {}),
                })  # fmt: skip
        not_read["tests without operator calls"] += len(cases) == before
        if unread := ", ".join(f"{what} ({number})" for what, number in (+not_read).items()):
            notes.append(f"{source.file}:{source.line_of(file_path)}: not read of {file['path']}: {unread}")
    seed = (general.get("input_config") or {}).get("seed")
    source.origins["default", "seed"] = (TOP, "global", "input_config", "seed")
    default = {} if seed is None else {"seed": seed}
    source.data = {"model": next(iter(models), model), "default": default, "cases": cases}
    return problems, models, tuple(notes)


def _entry_at(path: Path) -> tuple[str, Sequence[str]]:
    """Return the name of the mapping at ``path`` in messages, and its keys."""
    level = next((step for step in reversed(path) if isinstance(step, str)), "")
    return level or "the file", list(_LEVELS[level].__annotations__) if level in _LEVELS else []


def _first_dtype(arguments: Sequence[Any]) -> str:
    """Return the dtype of the first tensor, by which upstream selects the tolerance of a call; else float16."""
    for argument in arguments:
        entry = argument if isinstance(argument, dict) else {}
        listed = entry.get("tensor_list")
        for tensor in (entry.get("tensor"), *(listed if isinstance(listed, list) else ())):
            if isinstance(tensor, dict) and isinstance(tensor.get("dtype"), str):
                return str(tensor["dtype"]).removeprefix("torch.").replace("half", "float16")
    return "float16"  # upstream's default


def _case_name(operator: str, tags: Sequence[str], names: set[str]) -> str:
    """Return the tag that numbers the call (``torch.add.3``) unless a case has that name; else the next number."""
    numbered = (tag for tag in tags if re.fullmatch(re.escape(operator) + r"\.\d+", tag))
    name = next(each for each in chain(numbered, (f"{operator}.{n}" for n in count(1))) if each not in names)
    names.add(name)
    return name


def _mode_marks(mode: str, dtype: str, supported: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return ``mode`` as a mark; ``force_xfail`` of a dtype applies only to mode mandatory_success."""
    if mode == "skip":
        return [{"skip": {"reason": "mode: skip"}}]
    if mode != "mandatory_success":
        return [{"xfail": {"reason": f"mode: {mode}", "strict": mode == "xfail_strict"}}]
    return [{"xfail": {"reason": f"force_xfail: {dtype}", "strict": False}}] if supported.get("force_xfail") else []


def _keyword(value: Any) -> Any:
    """Return a keyword argument as a model case has it: upstream reads text as a dtype or a literal if it is one."""
    if not isinstance(value, str) or is_input(value):
        return value
    if value.removeprefix("torch.") in get_args(_Dtype):
        return f"torch.{value.removeprefix('torch.')}"
    try:
        literal(value)
    except Misfit:
        return value
    return {"py": value}
