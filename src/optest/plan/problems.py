"""Problems of a plan with their positions: collect them while cases are built, and add hints."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from optest.errors import PlanError, Problem, UnknownName, UsageError, listed_names, nearest
from optest.plan.request import COMMAND_LINE
from optest.plan.values import Misfit, hint_for_list, shown, whole_number
from optest.plan.yaml_source import MAX_BYTES, Path, Source, format_path, parse_source
from optest.store import PathError, read_regular

if TYPE_CHECKING:
    from optest.plan.product import Product, Rows

MAX_PROBLEMS = 200
# Similar problems that are printed before the rest is counted.
MAX_ALIKE = 3

# Where a value is written: a path in the plan, or a flag.
Place: TypeAlias = "Path | str"

_T = TypeVar("_T")
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(slots=True)
class Ledger:
    """The problems so far, each once for the text that causes it."""

    # The plan that paths refer to; None without a plan.
    source: Source | None = None
    # The product and combination that paths refer to.
    combination: tuple[Product, Rows] | None = None
    # By position and message: flags, defaults and aliased values are checked for many cases.
    problems: dict[tuple[Any, ...], Problem] = field(default_factory=dict)
    # Number of calls of `problem`, repeated ones included: has a step noted one?
    noted: int = 0

    @contextmanager
    def reading(self, source: Source | None, combination: tuple[Product, Rows] | None = None) -> Iterator[None]:
        """Resolve paths in this plan, and in this combination of one of its cases, within the block."""
        before = self.source, self.combination
        self.source, self.combination = source, combination
        try:
            yield
        finally:
            self.source, self.combination = before

    def problem(self, place: Place, message: str, hint: str = "") -> None:
        """Note a problem, once for each text that causes it."""
        self.noted += 1
        if isinstance(place, str) or self.source is None:
            flag = place if isinstance(place, str) else ""
            problem = Problem(message=message, file=COMMAND_LINE, path=flag, hint=hint)
            self.problems.setdefault((flag, message), problem)
            return
        if self.combination is not None and place[:2] == self.combination[0].path:
            product, rows = self.combination
            place = product.place(rows, place)
            example = f"with {product.words(rows, range(len(rows)))}"
            hint = f"{hint}\n    {example}" if hint else example
        _, written = self.source.place_of(place)
        problem = problem_at(place, Misfit(message, hint=hint), self.source)
        self.problems.setdefault((self.source.file, written, message), problem)

    def unknown(self, place: Place, error: UnknownName) -> None:
        """Note an unknown name with the nearest and all known names."""
        near = f"did you mean {error.suggestion}? " if error.suggestion else ""
        known = f"known: {listed_names(error.known)}" if error.known else ""
        last = f"\n  {error.hint}" if error.hint else ""
        self.problem(place, f"unknown {error.kind} {error.name!r}", near + known + last)

    def error(self, place: Place, error: UsageError) -> None:
        """Note an error: its first line is the message, further lines are the hint."""
        if isinstance(error, UnknownName):
            self.unknown(place, error)
        else:
            message, _, hint = str(error).partition("\n")
            self.problem(place, message, hint.strip().replace("\n", "\n  "))

    def attempt(self, place: Place, find: Callable[[str], _T], name: str) -> _T | None:
        """Return ``find(name)``; note a problem and return None if it raises UnknownName."""
        try:
            return find(name)
        except UnknownName as error:
            self.unknown(place, error)
            return None

    def refuse(self, problems: Sequence[Problem] = (), files: Sequence[str] = ()) -> None:
        """Raise PlanError with the noted problems and ``problems``, if any, sorted by file and line."""
        if problems or self.problems:
            raise PlanError(all_at_once((*problems, *self.problems.values()), files))


def all_at_once(problems: Iterable[Problem], files: Sequence[str] = ()) -> list[Problem]:
    """Return the problems by file and line, the rest of many similar ones, or of more than MAX_PROBLEMS, as a count."""
    rank = {file: index for index, file in enumerate(files)}
    ordered = sorted(dict.fromkeys(problems), key=lambda problem: (rank.get(problem.file, -1), problem.line))
    # A mistake in a repeated pattern would fill the screen.
    kinds = [_kind_of(problem) for problem in ordered]
    all_of, last_of, seen = Counter(kinds), dict(zip(kinds, ordered, strict=True)), Counter[Problem]()
    kept: list[Problem] = []
    for problem, kind in zip(ordered, kinds, strict=True):
        seen[kind] += 1
        if seen[kind] <= MAX_ALIKE or all_of[kind] == MAX_ALIKE + 1:
            kept.append(problem)
        elif seen[kind] == MAX_ALIKE + 1:
            rest = all_of[kind] - MAX_ALIKE
            message = f"and {rest} more like it, the last in line {last_of[kind].line}"
            kept.append(Problem(message=message, file=kind.file, line=problem.line, path=kind.path, count=rest))
    # A plan of another version may be wrong in every line.
    if len(kept) > MAX_PROBLEMS:
        more = sum(problem.count for problem in kept[MAX_PROBLEMS:])
        first = kept[MAX_PROBLEMS]
        message = f"and {more} more problem{'s' if more > 1 else ''}"
        last = Problem(message=message, file=first.file, line=first.line, count=more)
        return [*kept[:MAX_PROBLEMS], last]
    return kept


def _kind_of(problem: Problem) -> Problem:
    """Return the problem without its line and with indices replaced, so that similar ones are equal."""
    path = re.sub(r"\[\d+\]", "[*]", problem.path)
    return Problem(message=problem.message, file=problem.file, path=path, hint=problem.hint)


def problem_at(path: Path, misfit: Misfit, source: Source) -> Problem:
    """Return the problem of a misfit at ``path`` of the file."""
    line = source.line_of(path)
    return Problem(
        message=misfit.message, file=source.file, line=line, path=format_path(source.in_file(path)), hint=misfit.hint
    )


def problems_of(
    error: ValidationError, source: Source, known_keys: Callable[[Path], Collection[str]]
) -> dict[Path, Problem]:
    """Return the problems of a whole file by path: those of its YAML, and those that pydantic reports."""
    problems = dict(source.faults)
    # One problem for a value that aliases repeat.
    known: dict[tuple[int, str], Problem] = {}
    details = error.errors(include_url=False)
    unknown = [tuple(x["loc"]) for x in details if x["type"] == "extra_forbidden"]
    # A misspelt key is reported as unknown, not as missing too.
    meant = {(*path[:-1], nearest_key(str(path[-1]), known_keys(path[:-1]))) for path in unknown}
    for detail in details:
        if detail["type"] == "missing" and tuple(detail["loc"]) in meant:
            continue
        for misfit in _misfits(detail, tuple(detail["loc"]), source, known_keys):
            _, written = source.place_of(misfit.path)
            problem = problem_at(misfit.path, misfit, source)
            problems.setdefault(misfit.path, known.setdefault((written, misfit.message), problem))
    return problems


def read_document(
    path: str | os.PathLike[str], what: str, model: type[_Model], known_keys: Callable[[Path], Collection[str]]
) -> tuple[_Model, Source]:
    """Return a YAML or JSON file as ``model`` with its source; raise PlanError, which calls the content ``what``."""
    file = os.fspath(path)
    try:
        raw = read_regular(file, MAX_BYTES)
    except PathError as error:
        raise PlanError([Problem(message=f"cannot read {what}: {error}", file=file)]) from None
    source = parse_source(raw, file)
    try:
        document = model.model_validate(source.data)
    except ValidationError as error:
        raise PlanError(problems_of(error, source, known_keys).values()) from None
    if source.faults:
        raise PlanError(source.faults.values())
    return document, source


def problems_at(
    error: ValidationError, source: Source, case: Path, place: Callable[[Path], Path]
) -> dict[Path, Problem]:
    """Return the problems of a part of a case by path; ``place`` maps a path of the case to its position."""
    problems: dict[Path, Problem] = {}
    for detail in error.errors(include_url=False):
        for misfit in _misfits(detail, (*case, *detail["loc"]), source, lambda _: ()):
            path = place(misfit.path)
            problems.setdefault(path, problem_at(path, misfit, source))
    return problems


def _misfits(
    detail: Mapping[str, Any], path: Path, source: Source, known_keys: Callable[[Path], Collection[str]]
) -> list[Misfit]:
    """Return the misfits of one pydantic error; an error of a value reader may contain several."""
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "value_error" and isinstance(context.get("error"), Misfit):
        misfit: Misfit = context["error"]
        misfit.hint = _missing_space(path, value) or misfit.hint
        return misfit.all_below(*path)
    name = _name_of(path)
    if kind == "extra_forbidden":
        is_plan = bool(path[1:]) or "cases" in known_keys(())
        owner = "a case" if path[:-1][:1] == ("cases",) else _name_of(path[:-1]) if is_plan else "the file"
        message, hint = f"unknown key {name!r} of {owner}", _hint_for_unknown_key(path, known_keys)
    elif kind == "missing":
        message, hint = f"the key {name} is missing", _EXAMPLES.get(name, "")
    elif kind in _EXPECTED:
        if kind == "string_pattern_mismatch" and not value.strip():
            kind = "string_too_short"
        bounds = {key: f"{x:g}" if isinstance(x, float) else x for key, x in context.items()}
        expected = _EXPECTED[kind].format_map(bounds).replace("'", "")
        message, hint = f"{name} is {shown(value)}, expected {expected}", _hint(kind, path, value, source)
    else:
        message, hint = f"{name} is {shown(value)}: {detail['msg']}", ""
    return [Misfit(message, path=path, hint=hint)]


# By pydantic's error type; its context has the bounds.
_EXPECTED = {
    "string_type": "text",
    "string_too_short": "a word",
    "string_pattern_mismatch": "text without control characters",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "typed_dict_type": "a mapping",
    "model_type": "a mapping",
    "literal_error": "{expected}",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
}


def _name_of(path: Path) -> str:
    """Return the name of the value at a path for messages."""
    if not path:
        return "the plan"
    last = path[-1]
    if isinstance(last, str):
        return last
    return f"case {last}" if path[:-1] == ("cases",) else f"item {last}"


_CASE = "{op: relu, shapes: {input0: 2x3}}"
_EXAMPLES = {
    "op": "every case names its operator: op: relu",
    "cases": f"cases: [{_CASE}]",
    "shapes": "shapes: {input0: 2x3, input1: 3x4}",
    "attributes": "attributes: {alpha: 2}",
    "backend_config": "backend_config: {ascend: {workdir: build, command: [bash, run.sh]}}",
    "defaults": "defaults: {dtypes: float16}",
    "report": "report: {format: json, path: report.json}",
    "tags": "tags: [slow]",
}


def _shapes_of_list(key: str, values: list[Any]) -> str:
    """Return a hint for `shapes` as a list: a mapping by input, or a product if the items are mappings."""
    if values and all(isinstance(x, dict) for x in values):
        return hint_for_list(key, values)
    sizes = values if values and isinstance(values[0], (list, str)) else [values] if values else []
    inputs = [f"input{index}: {x if isinstance(x, str) else shown(x)}" for index, x in enumerate(sizes[:4])]
    return f"shapes: {{{', '.join(inputs)}}}" if inputs else ""


_INTEGERS = ("int_type", "int_from_float")
_CONTAINERS = ("dict_type", "list_type", "typed_dict_type")
_ONE_VALUE = tuple(f"a case's {key}" for key in ("op", "seed", "timeout", "retries", "priority", "reference"))
# Error types, keys (empty: any), type of the value, and a function that returns a corrected example ("": no hint).
_HINTS: tuple[tuple[Collection[str], Collection[str], type, Callable[[str, Any], str]], ...] = (
    (_EXPECTED, _ONE_VALUE, list, lambda key, values: hint_for_list(key, values) if values else ""),
    (_INTEGERS, (), object, lambda _, value: whole_number(value)),
    (_CONTAINERS, ("shapes",), list, _shapes_of_list),
    (_CONTAINERS, ("shapes",), str, lambda _, text: f"shapes: {{input0: {f'[{text}]' if ',' in text else text}}}"),
    (_CONTAINERS, ("tags",), str, lambda _, text: f"tags: [{text}]"),
    (_CONTAINERS, ("cases",), dict, lambda *_: "each case begins with '- op:', indented below cases:"),
    (_CONTAINERS, ("a case",), object, lambda *_: f"- {_CASE}"),
    (_CONTAINERS, ("options of a backend",), object, lambda key, _: _BELOW_THE_BACKEND.format(key)),
    (_CONTAINERS, (), object, lambda key, _: _EXAMPLES.get(key, "")),
)
_BELOW_THE_BACKEND = "indent options below the name of their backend: backend_config: {{ascend: {{{}: ...}}}}"


def _hint(kind: str, path: Path, value: Any, source: Source) -> str:
    """Return the hint of the first matching row of the table, else ""."""
    key = str(path[-1]) if path else ""
    if kind == "string_type" and (text := source.text_at(path)):
        of_axis = "put the values of the axis in quotes, or add text next to the reference"
        return of_axis if "$" in text else f'write "{text}" in quotes if it is text'
    words = {key}
    match path:
        case ("cases", _):
            words.add("a case")
        case ("cases", _, _):
            words.add(f"a case's {key}")
        case (*_, "backend_config", _):
            words.add("options of a backend")
    for kinds, keys, form, hint in _HINTS:
        matches = kind in kinds and isinstance(value, form) and (not keys or not words.isdisjoint(keys))
        if matches and (text := hint(key, value)):
            return text
    return ""


# Words of other tools for keys of a plan, too different in spelling to be suggested by it.
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


def nearest_key(name: str, known: Collection[str]) -> str | None:
    """Return the key that the user most likely meant, by a synonym or by spelling; None if there is no such key."""
    word = _OTHER_WORDS.get(name.casefold())
    return word if word in known else nearest(name, known)


def _hint_for_unknown_key(path: Path, known_keys: Callable[[Path], Collection[str]]) -> str:
    """Return a hint about the level that the key belongs to, or about a similar key."""
    name, owner = str(path[-1]), path[:-1]
    known = known_keys(owner)
    in_case = owner[:1] == ("cases",)
    if spaced := _missing_space(path, None):
        return spaced
    if owner == () and name in known_keys(("cases", 0)):
        everywhere = f", or write it in defaults: {{{name}: ...}}" if name in known_keys(("defaults",)) else ""
        return f"it is a key of a case: indent it as far as op, below '- op:'{everywhere}"
    parts = [key for key in known if owner == () and name in known_keys((key, 0))]
    if parts:
        return f"it is a key of one line: write it in an entry of {parts[-1]}, as {name}: ..."
    if in_case and name in known_keys(()):
        return f"it is a key of the plan: write {name}: at the left margin, outside of cases"
    if in_case and re.fullmatch(r"(input|output)[0-9]+", name):
        return f"it is a tensor: indent it below shapes:, or write shapes: {{{name}: 2x3}}"
    if in_case and name in _OF_MODEL_CASES:
        return (
            "it is a key of model cases: write model: NAME above cases, if this is a file of them; "
            f"in a plan write {_OF_MODEL_CASES[name]}"
        )
    if name in ("rtol", "atol"):
        return f"write tolerance: {{{name}: ...}}"
    near = nearest_key(name, known)
    return f"did you mean {near}?" if near else f"known keys: {', '.join(known)}"


_OF_MODEL_CASES = {
    "inputs": "shapes: {input0: [2, 3]} and dtypes: {input0: float32}",
    "kwmap": "attributes: {dim: 1}",
    "attrs": "attributes: {dim: 1}",
}


def _missing_space(path: Path, value: Any) -> str:
    """Return a hint for ``input0:4x5``, which YAML reads as one word; "" if no space is missing."""
    name, colon, text = str(path[-1] if path else "").partition(":")
    return f"a space is missing: write {name}: {text}" if value is None and colon and name and text else ""
