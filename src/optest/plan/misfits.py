"""What pydantic found in a plan, in optest's words: where it stands, what it should be, and what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pydantic import ValidationError

from optest.errors import Problem, nearest
from optest.plan.forms import Misfit, several, shown, whole_number
from optest.plan.source import Path, Source, format_path

__all__ = ["nearest_key", "problem_at", "problems_at", "problems_of"]


def problems_of(
    error: ValidationError, source: Source, known_keys: Callable[[Path], Collection[str]]
) -> dict[Path, Problem]:
    """The traps of the text and the faults of the values by path, one for each place where something is written."""
    found = dict(source.faults)
    said: dict[tuple[int, str], Problem] = {}
    details = error.errors(include_url=False)
    meant = {_meant(tuple(each["loc"]), known_keys) for each in details if each["type"] == "extra_forbidden"}
    for detail in details:
        location: Path = tuple(detail["loc"])
        if detail["type"] == "missing" and location in meant:
            continue
        first = _misfit(detail, location, source, known_keys)
        for misfit in (first, *first.others):
            path = (*location, *misfit.path)
            line, written = source.place_of(path)
            text = format_path(path)
            problem = Problem(message=misfit.message, file=source.file, line=line, path=text, hint=misfit.hint)
            found.setdefault(path, said.setdefault((written, misfit.message), problem))
    return found


def problem_at(path: Path, misfit: Misfit, source: Source) -> Problem:
    """The problem that a misfit at ``path`` is."""
    line = source.line_of(path)
    return Problem(message=misfit.message, file=source.file, line=line, path=format_path(path), hint=misfit.hint)


def problems_at(
    error: ValidationError, source: Source, case: Path, place: Callable[[Path], Path]
) -> dict[Path, Problem]:
    """The faults of a part of a case; ``place`` tells where a value at a path of the case was written."""
    found: dict[Path, Problem] = {}
    for detail in error.errors(include_url=False):
        location = (*case, *detail["loc"])
        first = _misfit(detail, location, source, lambda _: ())
        for misfit in (first, *first.others):
            path = place((*location, *misfit.path))
            found.setdefault(path, problem_at(path, misfit, source))
    return found


_OTHER_WORDS = {
    "operator": "op", "operation": "op", "kernel": "op", "op_type": "op",
    "input": "shapes", "inputs": "shapes", "input_shapes": "shapes", "size": "shapes", "sizes": "shapes",
    "type": "dtypes", "types": "dtypes", "data_type": "dtypes", "precision": "dtypes",
    "attrs": "attributes", "params": "attributes", "parameters": "attributes", "args": "attributes",
    "kwargs": "attributes", "config": "backend_config", "options": "backend_config",
    "rtol": "tolerance", "atol": "tolerance", "tol": "tolerance", "fill": "generator", "init": "generator",
    "matrix": "product", "parametrize": "product", "sweep": "product", "combinations": "product", "grid": "product",
    "import": "include", "imports": "include", "extends": "include",
    "tests": "cases", "testcases": "cases", "test_cases": "cases", "device": "backend", "driver": "backend",
}  # fmt: skip
"""Words of other tools for keys of a plan, which look like none of them."""


def nearest_key(name: str, known: Collection[str]) -> str | None:
    """The key that a person most likely meant, by its meaning or by its letters."""
    word = _OTHER_WORDS.get(name.casefold())
    return word if word in known else nearest(name, known)


def _meant(path: Path, known_keys: Callable[[Path], Collection[str]]) -> Path:
    near = nearest_key(str(path[-1]), known_keys(path[:-1]))
    return (*path[:-1], near) if near else ()


def _misfit(
    detail: Mapping[str, Any], path: Path, source: Source, known_keys: Callable[[Path], Collection[str]]
) -> Misfit:
    kind, got, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "value_error" and isinstance(context.get("error"), Misfit):
        misfit: Misfit = context["error"]
        misfit.hint = _missing_space(path, got) or misfit.hint
        return misfit
    name = _name_of(path)
    if kind == "extra_forbidden":
        return Misfit(f"unknown key {name!r} of {_owner(path[:-1])}", hint=_unknown_hint(path, known_keys))
    if kind == "missing":
        return Misfit(f"the key {name} is missing", hint=_EXAMPLES.get(name, ""))
    should_be = _SHOULD_BE.get(kind)
    if kind in ("typed_dict_type", "model_type"):
        should_be = "a mapping"
    if kind == "string_pattern_mismatch" and not got.strip():
        should_be = "a word"
    if kind == "literal_error":
        should_be = str(context["expected"]).replace("'", "")
    if kind in _BOUNDS:
        word, key = _BOUNDS[kind]
        bound = context[key]
        should_be = f"{word} {bound:g}" if isinstance(bound, float) else f"{word} {bound}"
    if should_be is None:
        return Misfit(f"{name} is {shown(got)}: {detail['msg']}")
    return Misfit(f"{name} is {shown(got)}, but should be {should_be}", hint=_hint(kind, path, got, source))


_SHOULD_BE = {
    "string_type": "text",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "string_too_short": "a word",
    "string_pattern_mismatch": "text without control characters",
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}
_CASE = "{op: relu, shapes: {input0: 2x3}}"
_EXAMPLES = {
    "op": "every case names its operator: op: relu",
    "cases": f"cases: [{_CASE}]",
    "shapes": "shapes: {input0: 2x3, input1: 3x4}",
    "attributes": "attributes: {alpha: 2}",
    "backend_config": "backend_config: {ascend: {workdir: build}}",
    "defaults": "defaults: {dtypes: float16}",
    "report": "report: {format: json, path: report.json}",
    "tags": "tags: [slow]",
}


def _may_vary(path: Path) -> bool:
    """Whether a product may have several values of the key at ``path``, of which a list takes one."""
    return len(path) == 3 and path[0] == "cases" and path[2] in _ONE_VALUE


_ONE_VALUE = ("op", "seed", "timeout", "retries", "priority", "reference")


def _name_of(path: Path) -> str:
    if not path:
        return "the plan"
    last = path[-1]
    if isinstance(last, str):
        return last
    return f"case {last}" if path[:-1] == ("cases",) else f"item {last}"


def _owner(path: Path) -> str:
    if path == ():
        return "the plan"
    return "a case" if path[0] == "cases" else _name_of(path)


def _hint(kind: str, path: Path, got: Any, source: Source) -> str:
    """An example of what is wanted, made of what is there where that can be done."""
    text = source.text_at(path)
    if isinstance(got, list) and got and _may_vary(path):
        return several(str(path[-1]), got)
    if kind == "string_type":
        if text and "$" in text:
            return "put the values of the axis in quotes, or more text beside it"
        return f'write "{text}" in quotes if it is text' if text else ""
    if kind in ("int_type", "int_from_float"):
        return whole_number(got)
    if kind not in ("dict_type", "list_type", "typed_dict_type"):
        return ""
    last = path[-1] if path else ""
    if last == "shapes" and isinstance(got, list) and got and all(isinstance(each, dict) for each in got):
        return several("shapes", got)
    if last == "shapes" and isinstance(got, list) and got:
        sizes = got if isinstance(got[0], (list, str)) else [got]
        return "shapes: {" + ", ".join(f"input{index}: {_plain(each)}" for index, each in enumerate(sizes[:4])) + "}"
    if last == "shapes" and isinstance(got, str):
        return f"shapes: {{input0: [{got}]}}" if "," in got else f"shapes: {{input0: {got}}}"
    if last == "tags" and isinstance(got, str):
        return f"tags: [{got}]"
    if last == "cases" and isinstance(got, dict):
        return "each case begins with '- op:', indented below cases:"
    if path[:-1] == ("cases",):
        return f"- {_CASE}"
    if len(path) > 1 and path[-2] == "backend_config":
        return f"options stand below the name of their backend: backend_config: {{ascend: {{{last}: ...}}}}"
    return _EXAMPLES.get(str(last), "")


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else shown(value)


def _unknown_hint(path: Path, known_keys: Callable[[Path], Collection[str]]) -> str:
    name, owner = str(path[-1]), path[:-1]
    known = known_keys(owner)
    spaced = _missing_space(path, None)
    if spaced:
        return spaced
    if owner == () and name in known_keys(("cases", 0)):
        everywhere = f", or write it in defaults: {{{name}: ...}}" if name in known_keys(("defaults",)) else ""
        return f"it is a key of a case: indent it as far as op, below '- op:'{everywhere}"
    if owner and owner[0] == "cases" and name in known_keys(()):
        return f"it is a key of the plan: write {name}: at the left margin, outside of cases"
    if owner and owner[0] == "cases" and re.fullmatch(r"(input|output)[0-9]+", name):
        return f"it is a tensor: indent it below shapes:, or write shapes: {{{name}: 2x3}}"
    if owner and owner[0] == "cases" and name in ("inputs", "kwmap", "attrs"):
        instead = (
            "shapes: {input0: [2, 3]} and dtypes: {input0: float32}" if name == "inputs" else "attributes: {dim: 1}"
        )
        return (
            "it is a key of model cases: write model: NAME above cases, which makes this a file of them; "
            f"a plan without it states {instead}"
        )
    if name in ("rtol", "atol"):
        return f"write tolerance: {{{name}: ...}}"
    near = nearest_key(name, known)
    return f"did you mean {near}?" if near else f"known keys: {', '.join(known)}"


def _missing_space(path: Path, got: Any) -> str:
    """The hint for ``input0:4x5``, which YAML takes for one word."""
    name, colon, value = str(path[-1] if path else "").partition(":")
    return f"a space is missing: write {name}: {value}" if got is None and colon and name and value else ""
