"""What is wrong with a plan, each fault at its place: gathered while cases are made, with one table of hints."""

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
from optest.plan.values import Misfit, several, shown, whole_number
from optest.plan.yaml_source import MAX_BYTES, Path, Source, format_path, parse_source
from optest.store import PathError, read_regular

if TYPE_CHECKING:
    from optest.plan.product import Product, Rows

MAX_PROBLEMS = 200
MAX_ALIKE = 3

Place: TypeAlias = "Path | str"
"""Where a value was written: a path in the plan, or a flag."""

_T = TypeVar("_T")
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(slots=True)
class Ledger:
    """Every problem found so far, each with its place in a plan or its flag."""

    source: Source | None = None
    """The lines of the plan that is looked at; None without a plan."""
    combination: tuple[Product, Rows] | None = None
    """What is looked at of a case with a product."""
    problems: dict[tuple[Any, ...], Problem] = field(default_factory=dict)
    """By what was written and what is said of it: flags, defaults and aliased values meet many cases."""
    noted: int = 0
    """How often a problem was noted, those that were known already counted too."""

    @contextmanager
    def reading(self, source: Source | None, combination: tuple[Product, Rows] | None = None) -> Iterator[None]:
        """While inside, paths are those of this plan, and of this combination of one of its cases."""
        before = self.source, self.combination
        self.source, self.combination = source, combination
        try:
            yield
        finally:
            self.source, self.combination = before

    def problem(self, place: Place, message: str, hint: str = "") -> None:
        """Note a problem, once for each thing that was written."""
        self.noted += 1
        if isinstance(place, str) or self.source is None:
            flag = place if isinstance(place, str) else ""
            found = Problem(message=message, file=COMMAND_LINE, path=flag, hint=hint)
            self.problems.setdefault((flag, message), found)
            return
        if self.combination is not None and place[:2] == self.combination[0].path:
            product, rows = self.combination
            place = product.place(rows, place)
            example = f"with {product.words(rows, range(len(rows)))}"
            hint = f"{hint}\n    {example}" if hint else example
        _, written = self.source.place_of(place)
        found = problem_at(place, Misfit(message, hint=hint), self.source)
        self.problems.setdefault((self.source.file, written, message), found)

    def unknown(self, place: Place, error: UnknownName) -> None:
        near = f"did you mean {error.suggestion}? " if error.suggestion else ""
        known = f"known: {listed_names(error.known)}" if error.known else ""
        last = f"\n  {error.hint}" if error.hint else ""
        self.problem(place, f"unknown {error.kind} {error.name!r}", near + known + last)

    def error(self, place: Place, error: UsageError) -> None:
        """Note what an error says; its lines after the first are the hint."""
        if isinstance(error, UnknownName):
            self.unknown(place, error)
        else:
            message, _, hint = str(error).partition("\n")
            self.problem(place, message, hint.strip().replace("\n", "\n  "))

    def found(self, place: Place, find: Callable[[str], _T], name: str) -> _T | None:
        """What ``find`` returns for a name; an unknown one is noted."""
        try:
            return find(name)
        except UnknownName as error:
            self.unknown(place, error)
            return None

    def refuse(self, problems: Sequence[Problem] = (), files: Sequence[str] = ()) -> None:
        """Raise everything that was found, and ``problems`` with it, file by file in the order of their lines.

        Raises:
            PlanError: if there is any problem.
        """
        if problems or self.problems:
            raise PlanError(all_at_once((*problems, *self.problems.values()), files))


def all_at_once(problems: Iterable[Problem], files: Sequence[str] = ()) -> list[Problem]:
    """What is wrong, file by file in the order of lines; of many alike, and past MAX_PROBLEMS, only how many there are.

    What stands in none of ``files`` comes first.
    """
    rank = {file: index for index, file in enumerate(files)}
    found = sorted(dict.fromkeys(problems), key=lambda problem: (rank.get(problem.file, -1), problem.line))
    # The same fault in one case after the other is told a few times, then counted.
    kinds = [_kind_of(problem) for problem in found]
    all_of, last_of, seen = Counter(kinds), dict(zip(kinds, found, strict=True)), Counter[Problem]()
    told: list[Problem] = []
    for problem, kind in zip(found, kinds, strict=True):
        seen[kind] += 1
        if seen[kind] <= MAX_ALIKE or all_of[kind] == MAX_ALIKE + 1:
            told.append(problem)
        elif seen[kind] == MAX_ALIKE + 1:
            rest = all_of[kind] - MAX_ALIKE
            message = f"and {rest} more like it, the last in line {last_of[kind].line}"
            told.append(Problem(message=message, file=kind.file, line=problem.line, path=kind.path, stands_for=rest))
    if len(told) > MAX_PROBLEMS:
        more = sum(problem.stands_for for problem in told[MAX_PROBLEMS:])
        first = told[MAX_PROBLEMS]
        message = f"and {more} more problem{'s' if more > 1 else ''}"
        last = Problem(message=message, file=first.file, line=first.line, stands_for=more)
        return [*told[:MAX_PROBLEMS], last]
    return told


def _kind_of(problem: Problem) -> Problem:
    """What faults that are alike share: all but the line and the numbers of cases and items."""
    path = re.sub(r"\[\d+\]", "[*]", problem.path)
    return Problem(message=problem.message, file=problem.file, path=path, hint=problem.hint)


def problem_at(path: Path, misfit: Misfit, source: Source) -> Problem:
    """The problem that a misfit at ``path`` is."""
    line = source.line_of(path)
    return Problem(
        message=misfit.message, file=source.file, line=line, path=format_path(source.in_file(path)), hint=misfit.hint
    )


# What pydantic found, in optest's words


def problems_of(
    error: ValidationError, source: Source, known_keys: Callable[[Path], Collection[str]]
) -> dict[Path, Problem]:
    """The traps of the text and the faults of the values by path, one for each place where something is written."""
    found = dict(source.faults)
    said: dict[tuple[int, str], Problem] = {}
    details = error.errors(include_url=False)
    unknown = [tuple(each["loc"]) for each in details if each["type"] == "extra_forbidden"]
    meant = {(*path[:-1], nearest_key(str(path[-1]), known_keys(path[:-1]))) for path in unknown}
    for detail in details:
        if detail["type"] == "missing" and tuple(detail["loc"]) in meant:
            continue
        for misfit in _misfits(detail, tuple(detail["loc"]), source, known_keys):
            _, written = source.place_of(misfit.path)
            problem = problem_at(misfit.path, misfit, source)
            found.setdefault(misfit.path, said.setdefault((written, misfit.message), problem))
    return found


def read_document(
    path: str | os.PathLike[str], what: str, model: type[_Model], known_keys: Callable[[Path], Collection[str]]
) -> tuple[_Model, Source]:
    """The YAML or JSON file as ``model`` has it, with its places; ``what`` says what it holds ("the expectations").

    Raises:
        PlanError: if it cannot be read, with everything that is wrong with its form.
    """
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
    """The faults of a part of a case; ``place`` tells where a value at a path of the case was written."""
    found: dict[Path, Problem] = {}
    for detail in error.errors(include_url=False):
        for misfit in _misfits(detail, (*case, *detail["loc"]), source, lambda _: ()):
            path = place(misfit.path)
            found.setdefault(path, problem_at(path, misfit, source))
    return found


def _misfits(
    detail: Mapping[str, Any], path: Path, source: Source, known_keys: Callable[[Path], Collection[str]]
) -> list[Misfit]:
    """One fault that pydantic found, with its whole path; a reader of values may have found several."""
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
    elif kind in _SHOULD_BE:
        if kind == "string_pattern_mismatch" and not value.strip():
            kind = "string_too_short"
        bounds = {key: f"{each:g}" if isinstance(each, float) else each for key, each in context.items()}
        should_be = _SHOULD_BE[kind].format_map(bounds).replace("'", "")
        message, hint = f"{name} is {shown(value)}, but should be {should_be}", _hint(kind, path, value, source)
    else:
        message, hint = f"{name} is {shown(value)}: {detail['msg']}", ""
    return [Misfit(message, path=path, hint=hint)]


_SHOULD_BE = {
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
"""By the kind of error of pydantic, whose context has the bounds."""


def _name_of(path: Path) -> str:
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
    if values and all(isinstance(each, dict) for each in values):
        return several(key, values)
    sizes = values if values and isinstance(values[0], (list, str)) else [values] if values else []
    inputs = [f"input{index}: {each if isinstance(each, str) else shown(each)}" for index, each in enumerate(sizes[:4])]
    return f"shapes: {{{', '.join(inputs)}}}" if inputs else ""


_INTEGERS = ("int_type", "int_from_float")
_CONTAINERS = ("dict_type", "list_type", "typed_dict_type")
_ONE_VALUE = tuple(f"a case's {key}" for key in ("op", "seed", "timeout", "retries", "priority", "reference"))
_HINTS: tuple[tuple[Collection[str], Collection[str], type, Callable[[str, Any], str]], ...] = (
    (_SHOULD_BE, _ONE_VALUE, list, lambda key, values: several(key, values) if values else ""),
    (_INTEGERS, (), object, lambda _, value: whole_number(value)),
    (_CONTAINERS, ("shapes",), list, _shapes_of_list),
    (_CONTAINERS, ("shapes",), str, lambda _, text: f"shapes: {{input0: {f'[{text}]' if ',' in text else text}}}"),
    (_CONTAINERS, ("tags",), str, lambda _, text: f"tags: [{text}]"),
    (_CONTAINERS, ("cases",), dict, lambda *_: "each case begins with '- op:', indented below cases:"),
    (_CONTAINERS, ("a case",), object, lambda *_: f"- {_CASE}"),
    (_CONTAINERS, ("options of a backend",), object, lambda key, _: _BELOW_THE_BACKEND.format(key)),
    (_CONTAINERS, (), object, lambda key, _: _EXAMPLES.get(key, "")),
)
"""Kinds of error, keys (none is any), type of the value, and an example of what is wanted made of what is there."""
_BELOW_THE_BACKEND = "options stand below the name of their backend: backend_config: {{ascend: {{{}: ...}}}}"


def _hint(kind: str, path: Path, value: Any, source: Source) -> str:
    key = str(path[-1]) if path else ""
    if kind == "string_type" and (text := source.text_at(path)):
        of_axis = "put the values of the axis in quotes, or more text beside it"
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


def _hint_for_unknown_key(path: Path, known_keys: Callable[[Path], Collection[str]]) -> str:
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
        return f"it is a key of a line: write it in those of {parts[-1]}, as {name}: ..."
    if in_case and name in known_keys(()):
        return f"it is a key of the plan: write {name}: at the left margin, outside of cases"
    if in_case and re.fullmatch(r"(input|output)[0-9]+", name):
        return f"it is a tensor: indent it below shapes:, or write shapes: {{{name}: 2x3}}"
    if in_case and name in _OF_MODEL_CASES:
        return (
            "it is a key of model cases: write model: NAME above cases, which makes this a file of them; "
            f"a plan without it states {_OF_MODEL_CASES[name]}"
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
    """The hint for ``input0:4x5``, which YAML takes for one word."""
    name, colon, text = str(path[-1] if path else "").partition(":")
    return f"a space is missing: write {name}: {text}" if value is None and colon and name and text else ""
