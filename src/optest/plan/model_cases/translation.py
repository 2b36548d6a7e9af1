"""A file of model cases as the data of a plan: same places, so that whatever is said later names the same line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from optest.errors import Problem, nearest
from optest.plan.forms import Misfit
from optest.plan.misfits import problem_at, problems_of
from optest.plan.model_cases.arguments import keywords, literal, value_of
from optest.plan.model_cases.conditions import BadCondition, Facts, is_true
from optest.plan.model_cases.schema import MODEL_FILE, known_keys
from optest.plan.model_cases.tensors import dtype_of, fill_of, layout_of
from optest.plan.source import Path, Source
from optest.spec.calls import Call, TensorRef, call_text

__all__ = ["is_model_file", "slug", "translated"]

_NAME = re.compile(r"torch(\.[A-Za-z_]\w*)+")
_ERRORS = (
    "ArithmeticError", "AssertionError", "AttributeError", "Exception", "IndexError", "KeyError", "LookupError",
    "NotImplementedError", "OverflowError", "RuntimeError", "TypeError", "ValueError", "ZeroDivisionError",
)  # fmt: skip
_TOLERANCES = ("rtol", "atol")


def is_model_file(data: Mapping[str, Any]) -> bool:
    """Whether the top of a file is that of model cases, not of a plan."""
    return "model" in data


def slug(model: str) -> str:
    """The name of a model as a word: what a mark may be called."""
    return re.sub(r"\W+", "_", model).strip("_").lower()


def translated(source: Source, facts: Facts) -> tuple[dict[str, Any], dict[Path, Problem]]:
    """Return the file as the data of a plan, without what is wrong with it, and that by path."""
    found: dict[Path, Problem] = {}
    try:
        MODEL_FILE.validate_python(source.data)
    except ValidationError as error:
        found = problems_of(error, source, known_keys)
    translation = _Translation(source, facts, found)
    return translation.plan(), found


class _Translation:
    def __init__(self, source: Source, facts: Facts, found: dict[Path, Problem]) -> None:
        self._source = source
        self._facts = facts
        self._found = found
        self._broken = {path[:2] for path in found if path[:1] == ("cases",)}
        self._data = source.data
        self._model = str(source.data.get("model"))
        self._defaults = self._read_defaults()

    def plan(self) -> dict[str, Any]:
        cases = self._data.get("cases")
        entries = cases if isinstance(cases, list) else []
        self._require_unique(entries)
        plan: dict[str, Any] = {
            "name": self._model,
            "backend": "torch",
            "seed": self._defaults.get("seed", 0),
            "cases": [self._case(entry, ("cases", index)) for index, entry in enumerate(entries)],
        }
        tolerance = {name: self._defaults[name] for name in _TOLERANCES if name in self._defaults}
        plan["defaults"] = {"tags": [f"model_{slug(self._model)}"]}
        if tolerance:
            plan["defaults"]["tolerance"] = tolerance
        return plan

    def _read_defaults(self) -> Mapping[str, Any]:
        if "default" in self._data and "defaults" in self._data:
            message = "default and defaults are both stated, but one of them would be ignored; keep one"
            self._say(("defaults",), Misfit(message))
        stated = self._data.get("defaults", self._data.get("default"))
        if not isinstance(stated, dict):
            return {}
        wrong = {path[1] for path in self._found if path[:1] in (("default",), ("defaults",)) and len(path) > 1}
        return {key: value for key, value in stated.items() if key not in wrong}

    def _require_unique(self, entries: Sequence[Any]) -> None:
        first: dict[str, int] = {}
        for index, entry in enumerate(entries):
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str):
                continue
            if name in first:
                line = self._source.line_of(("cases", first[name]))
                message = f"the case is called {name!r}, as the one in line {line}"
                self._say(("cases", index, "name"), Misfit(message, hint="give each its own name"))
            first.setdefault(name, index)

    def _case(self, entry: Any, path: Path) -> dict[str, Any]:
        """A case of the plan; {} for one that cannot be read."""
        if path in self._broken or not isinstance(entry, dict):
            return {}
        try:
            return self._read_case(entry, path)
        except Misfit as misfit:
            self._say((*path, *misfit.path), misfit)
            return {}

    def _read_case(self, entry: Mapping[str, Any], path: Path) -> dict[str, Any]:
        op = entry["op"]
        if not _NAME.fullmatch(op):
            hint = f"op: torch.{op}" if re.fullmatch(r"[A-Za-z_][\w.]*", op) else "op: torch.add"
            raise Misfit(f"op is {op!r}, but should be a dotted name of torch's", path=("op",), hint=hint)
        word = entry.get("dtype", self._defaults.get("dtype", "float32"))
        tensors = _Tensors(word)
        arguments = [
            self._argument(each, tensors, (*path, "inputs", index))
            for index, each in enumerate(entry.get("inputs") or ())
        ]
        if path in {broken[:2] for broken in self._found}:
            return {}
        call = call_text(Call(op, tuple(arguments), keywords(entry)))
        case: dict[str, Any] = {"op": op, "name": f"{self._model}::{entry['name']}", "attributes": {"call": call}}
        case.update(tensors.plan())
        if "description" in entry:
            case["description"] = entry["description"].strip()
        tolerance = {name: entry[name] for name in _TOLERANCES if name in entry}
        if tolerance:
            case["tolerance"] = {
                **{name: self._defaults[name] for name in _TOLERANCES if name in self._defaults},
                **tolerance,
            }
        if "seed" in entry:
            case["seed"] = entry["seed"]
        marks = [*_several(entry.get("mark")), *_several(entry.get("marks"))]
        if marks:
            case["tags"] = [f"model_{slug(self._model)}", *dict.fromkeys(marks)]
        if "expects_error" in entry:
            case["expects_error"] = _error(entry["expects_error"])
        reason = self._why_skipped(entry.get("skip_if"), word)
        if reason is not None:
            case["skip"] = reason
        return case

    def _argument(self, entry: Mapping[str, Any], tensors: _Tensors, path: Path) -> Any:
        """The value of one argument; None where it is wrong, which is said."""
        if len(entry) != 1:
            stated = " and ".join(entry) or "nothing"
            message = f"the input states {stated}, but should state exactly one of tensor, tensor_list, value, py, file"
            self._say(path, Misfit(message))
            return None
        (kind, value), *_ = entry.items()
        try:
            match kind:
                case "tensor":
                    return tensors.add(value)
                case "tensor_list":
                    return self._list(value, tensors, (*path, kind))
                case "value":
                    return value_of(value)
                case "py":
                    return literal(value)
            return tensors.add_file(value)
        except Misfit as misfit:
            self._say((*path, kind, *misfit.path), misfit)
            return None

    def _list(self, entries: Sequence[Mapping[str, Any]], tensors: _Tensors, path: Path) -> list[Any]:
        found = []
        for index, entry in enumerate(entries):
            try:
                found.append(tensors.add(entry))
            except Misfit as misfit:  # noqa: PERF203 - all of them are wanted
                self._say((*path, index, *misfit.path), misfit)
        return found

    def _why_skipped(self, stated: Any, dtype: str) -> str | None:
        for each in _several(stated):
            expr, reason = (each, "") if isinstance(each, str) else (each["expr"], each.get("reason", ""))
            try:
                if is_true(expr, self._facts.names(dtype)):
                    return reason or f"skip_if: {expr}"
            except BadCondition as error:
                raise Misfit(f"skip_if is {expr!r}: {error}", path=("skip_if",)) from None
        return None

    def _say(self, path: Path, misfit: Misfit) -> None:
        self._found.setdefault(path, problem_at(path, misfit, self._source))


class _Tensors:
    """The tensors of one call, numbered in the order in which it names them."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._shapes: dict[str, Any] = {}
        self._dtypes: dict[str, Any] = {}
        self._fills: dict[str, Any] = {}

    def add(self, entry: Mapping[str, Any]) -> TensorRef:
        """Note a tensor.

        Raises:
            Misfit: for a layout, dtype or fill that it cannot have.
        """
        try:
            kind = dtype_of(entry.get("dtype", self._dtype))
        except Misfit as misfit:
            raise Misfit(misfit.message, path=("dtype",) if "dtype" in entry else ()) from None
        return self._note(layout_of(entry), kind.name, fill_of(entry, kind))

    def add_file(self, path: str) -> TensorRef:
        raise Misfit(f"file {path!r} has no shape and dtype here", hint="tensor: {shape, dtype, init: file, init_args}")

    def _note(self, layout: Any, dtype: str, fill: Any) -> TensorRef:
        name = f"input{len(self._shapes)}"
        self._shapes[name], self._dtypes[name], self._fills[name] = layout, dtype, fill
        return TensorRef(len(self._shapes) - 1)

    def plan(self) -> dict[str, Any]:
        if not self._shapes:
            return {}
        return {"shapes": self._shapes, "dtypes": self._dtypes, "generator": self._fills}


def _several(stated: Any) -> Iterable[Any]:
    return [] if stated is None else stated if isinstance(stated, list) else [stated]


def _error(stated: Mapping[str, str]) -> dict[str, str]:
    kind = stated.get("type", "Exception")
    if kind not in _ERRORS:
        near = nearest(kind, _ERRORS)
        hint = f"; did you mean {near}?" if near else ""
        known = ", ".join(_ERRORS)
        raise Misfit(
            f"the error's type is {kind!r}, but should be one of {known}{hint}", path=("expects_error", "type")
        )
    return {"type": kind, **({"match": stated["match"]} if "match" in stated else {})}
