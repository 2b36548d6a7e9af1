"""Translation of a file of model cases to the data of a plan; positions stay, so that messages name the right line."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from optest.errors import Problem, plural
from optest.plan.dialects import Facts, Translated, slug
from optest.plan.problems import problem_at, problems_of
from optest.plan.values import Misfit, shown
from optest.plan.yaml_source import Path, Source
from optest.spec.call_names import canonical, is_dotted, misnamed
from optest.spec.calls import MOST_CHARACTERS, Call, TensorRef, call_text
from optest.store import resolve_path
from optest.torch.model_cases.arguments import keywords, literal, value_of
from optest.torch.model_cases.conditions import BadCondition, is_true, names_of
from optest.torch.model_cases.schema import (
    MODEL_FILE,
    InputEntry,
    errors_of,
    example_at,
    in_dialect,
    is_input,
    known_keys,
    words_of,
)
from optest.torch.model_cases.suite_config import TOP, as_model_file
from optest.torch.model_cases.tensors import at_path, dtype_of, planned

_TOLERANCES = ("rtol", "atol")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_OPERATOR = re.compile(r"_?operator\.(?:__)?(\w+?)(?:__)?")
# Names of torch-spyre's registry of operators that differ in torch.
_SPELLINGS = {
    "float": "torch.float", "torch.aten.view": "torch.view",
    **{f"torch.nn.{word}": f"torch.nn.functional.{word}" for word in ("gelu", "linear", "pad")},
    "torch.nn.scaled_dot_product_attention": "torch.nn.functional.scaled_dot_product_attention",
}  # fmt: skip


def translated(source: Source, facts: Facts, below: Sequence[str] = ()) -> Translated:
    """Translate a file of model cases to a plan; ``below`` limits an untrusted file's tensors to these folders."""
    found, models, notes = dict(source.faults), list[str](), tuple[str, ...]()
    if is_suite := TOP in source.data:
        problems, models, notes = as_model_file(source)
        found |= problems
    try:
        if not is_suite or source.data["cases"]:
            MODEL_FILE.validate_python(source.data)
    except ValidationError as error:
        found |= {
            path: problem if path in source.faults else in_dialect(path, problem)
            for path, problem in problems_of(errors_of(error), source, known_keys).items()
        }
    translation = _Translation(source, facts, found, below, models)
    source.origins |= translation.positions()
    return Translated(translation.plan(), found, (*notes, *translation.notes()))


class _Translation:
    def __init__(
        self, source: Source, facts: Facts, found: dict[Path, Problem], below: Sequence[str], models: Sequence[str]
    ) -> None:
        self._source = source
        self._facts = facts
        self._found = found
        # Paths of cases and defaults with a problem.
        self._broken = {path[:2] for path in found}
        self._locate = partial(resolve_path, FilePath(source.file).parent, below=below)
        self._data = source.data
        self._model = str(source.data.get("model"))
        self._defaults_key = "defaults" if "defaults" in source.data else "default"
        self._defaults = self._read_defaults()
        self._with_device_layout = 0
        # Model of each case; empty if the file has one model.
        self._models = models

    def notes(self) -> tuple[str, ...]:
        """Return notes on settings of the file that have no effect."""
        if not self._with_device_layout:
            return ()
        of = plural(self._with_device_layout, "tensor")
        return (f"{self._source.file}: device_layout of {of} is not used: torch lays tensors out by shape and stride",)

    def positions(self) -> dict[Path, Path]:
        """Return the paths in this file of the plan's seed and of its defaults' tolerance and tags."""
        key = self._defaults_key
        found: dict[Path, Path] = {("defaults", "tags"): ("model",)}
        for name in _TOLERANCES:
            if name in self._defaults:
                found.setdefault(("defaults", "tolerance"), (key, name))
        if "seed" in self._defaults:
            found["seed",] = self._source.in_file((key, "seed"))
        return found

    def plan(self) -> dict[str, Any]:
        cases = self._data.get("cases")
        entries = cases if isinstance(cases, list) else []
        if not self._models:
            self._require_unique(entries)
        plan: dict[str, Any] = {
            "name": self._model,
            "cases": [self._case(entry, ("cases", index)) for index, entry in enumerate(entries)],
        }
        if "seed" in self._defaults:
            plan["seed"] = self._defaults["seed"]
        tolerance = {name: self._defaults[name] for name in _TOLERANCES if name in self._defaults}
        plan["defaults"] = {"tags": [f"model_{slug(self._model)}"]} if not self._models else {}
        if tolerance:
            plan["defaults"]["tolerance"] = tolerance
        return plan

    def _read_defaults(self) -> Mapping[str, Any]:
        """Return the defaults without invalid ones, which are reported; {} if they are no mapping."""
        if "default" in self._data and "defaults" in self._data:
            message = "default and defaults are both set, expected one of them"
            self._report(("defaults",), Misfit(message, hint="remove one of them"))
        key = self._defaults_key
        stated = self._data.get(key)
        if not isinstance(stated, dict):
            return {}
        if isinstance(stated.get("dtype"), str):
            self._check_dtype(stated["dtype"], (key, "dtype"))
        return {name: value for name, value in stated.items() if (key, name) not in self._broken}

    def _check_dtype(self, word: str, path: Path) -> bool:
        try:
            dtype_of(word)
        except Misfit as misfit:
            self._report(path, misfit)
            return False
        return True

    def _require_unique(self, entries: Sequence[Any]) -> None:
        """Report each case with the name of an earlier one."""
        first: dict[str, int] = {}
        for index, entry in enumerate(entries):
            name = entry.get("name") if isinstance(entry, dict) else None
            if not isinstance(name, str):
                continue
            if name in first:
                line = self._source.line_of(("cases", first[name]))
                message = f"the case is called {name!r}, like the one in line {line}"
                self._report(("cases", index, "name"), Misfit(message, hint="give each case its own name"))
            first.setdefault(name, index)

    def _case(self, entry: Any, path: Path) -> dict[str, Any]:
        """Return a case of the plan, {} for an invalid one, after reporting its problem."""
        if path in self._broken or not isinstance(entry, dict):
            return {}
        try:
            return self._read_case(entry, path)
        except Misfit as misfit:
            self._report((*path, *misfit.path), misfit)
            return {}

    def _read_case(self, entry: Mapping[str, Any], path: Path) -> dict[str, Any]:
        """Return a case of the plan, {} after reporting invalid arguments; raise Misfit for the first other problem."""
        op = _SPELLINGS.get(entry["op"], entry["op"])
        model = self._models[int(path[1])] if self._models else self._model
        if of_python := _OPERATOR.fullmatch(op):
            op = f"torch.{of_python[1]}{'_' * keyword.iskeyword(of_python[1])}"
        wrong = misnamed(op)
        if wrong is not None and not is_dotted(op):
            raise Misfit(wrong[0], path=("op",), hint=wrong[1])
        word = entry.get("dtype", self._defaults.get("dtype", "float32"))
        is_dtype = self._check_dtype(word, (*path, "dtype"))
        tensors = _Tensors(word if is_dtype else "float32", self._locate, self._facts.environment)
        call = self._call(op, entry, tensors, path)
        if path in self._broken:
            return {}
        self._with_device_layout += tensors.with_device_layout
        text = call_text(call)
        if len(text) > MOST_CHARACTERS:
            message = f"the call has {len(text):,} characters, expected {MOST_CHARACTERS:,} at most"
            raise Misfit(message, path=("inputs",), hint="write long lists of numbers as a tensor with init: data")
        settings = {"grad": False, "same_strides": False, **self._defaults, **entry}
        raises = "expects_error" in entry
        if raises and entry.get("grad"):
            message = "grad is set, but a call that must raise an error has no gradient"
            raise Misfit(message, path=("grad",), hint="remove grad or expects_error")
        case: dict[str, Any] = {
            "op": op if op.startswith("torch.") else f"torch.{op}",  # torch refuses calls without its prefix
            "name": f"{model}::{entry['name']}",
            "attributes": {
                "call": text,
                **({"grad": True} if settings["grad"] and not raises else {}),
                **({"same_strides": True} if settings["same_strides"] else {}),
            },
            **tensors.plan(),
            **{name: entry[name] for name in ("seed", "reference", "expects_error") if name in entry},
            **self._marks(entry, word, model),
        }
        if "description" in entry:
            case["description"] = entry["description"].strip()
        if any(name in entry for name in _TOLERANCES):
            case["tolerance"] = {name: settings[name] for name in _TOLERANCES if name in settings}
        if raises:
            case["expects_error"] = {"type": "Exception", **entry["expects_error"]}
        return case

    def _call(self, op: str, entry: Mapping[str, Any], tensors: _Tensors, path: Path) -> Call:
        """Return the call with its arguments; invalid ones are None and reported."""
        arguments = [
            self._argument(each, tensors, (*path, "inputs", index))
            for index, each in enumerate(entry.get("inputs") or ())
        ]
        named = keywords(
            entry,
            lambda value, way: self._argument(value, tensors, (*path, *way)) if is_input(value) else value_of(value),
        )
        index = arguments[1] if len(arguments) > 1 and canonical(op).operator in ("getitem", "setitem") else None
        if isinstance(index, list) and any(isinstance(each, TensorRef) for each in index):
            # a traced x[[t1, t2]] has an index for each dimension; later versions of torch stack the two tensors
            arguments[1] = tuple(index)
        return Call(op, tuple(arguments), named)

    def _marks(self, entry: Mapping[str, Any], dtype: str, model: str) -> dict[str, Any]:
        """Return tags, skip and xfail of a case of the plan; all conditions are checked, the first that holds skips."""
        marks: dict[str, Mapping[str, Any]] = {}
        for key in ("mark", "marks"):
            for _, mark in _items_with_paths(entry.get(key)):
                given = mark if isinstance(mark, dict) else {word: {} for word in words_of(mark)}
                marks |= {word: {"reason": x} if isinstance(x, str) else x for word, x in given.items()}
        case: dict[str, Any] = {"tags": [f"model_{slug(model)}", *marks]} if marks or self._models else {}
        reasons, names = list[str](), names_of(self._facts, dtype)
        for path, condition in _items_with_paths(entry.get("skip_if")):
            expr, reason, way = condition, "", path
            if isinstance(condition, dict):
                expr, reason, way = condition["expr"], condition.get("reason", "").strip(), (*path, "expr")
            try:
                if is_true(expr, names):
                    reasons.append(reason or f"skip_if: {expr}")
            except BadCondition as error:
                raise Misfit(f"skip_if is {shown(expr)}: {error}", path=("skip_if", *way), hint=_CONDITION) from None
        if reasons or "skip" in marks:
            case["skip"] = reasons[0] if reasons else marks["skip"].get("reason", "mark: skip")
        if "xfail" in marks:
            case["xfail"] = {"reason": "mark: xfail", "status": "any", **marks["xfail"]}
        return case

    def _argument(self, entry: Mapping[str, Any], tensors: _Tensors, path: Path) -> Any:
        """Return the value of one argument; None for an invalid one, after reporting its problem."""
        if len(entry) != 1:
            keys = " and ".join(entry) or "no key"
            message = f"the input has {keys}, expected exactly one of {', '.join(InputEntry.__annotations__)}"
            self._report(path, Misfit(message, hint="an input is one argument: begin the next one with '- '"))
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
                case "tuple" | "list":
                    parts = [self._argument(each, tensors, (*path, kind, index)) for index, each in enumerate(value)]
                    return tuple(parts) if kind == "tuple" else parts
            return tensors.add_file(value)
        except Misfit as misfit:
            self._report((*path, kind, *misfit.path), misfit)
            return None

    def _list(self, entries: Sequence[Mapping[str, Any]], tensors: _Tensors, path: Path) -> list[Any]:
        found = []
        for index, entry in enumerate(entries):
            try:
                found.append(tensors.add(entry))
            except Misfit as misfit:  # noqa: PERF203 - all problems are reported
                self._report((*path, index, *misfit.path), misfit)
        return found

    def _report(self, path: Path, misfit: Misfit) -> None:
        misfit.hint = misfit.hint or example_at(path)
        self._found.setdefault(path, problem_at(path, misfit, self._source))
        self._broken.add(path[:2])


def _items_with_paths(value: Any) -> Iterator[tuple[Path, Any]]:
    """Yield the items of a list with their path in it; a value that is no list with the path ()."""
    if isinstance(value, list):
        yield from (((index,), item) for index, item in enumerate(value))
    elif value is not None:
        yield (), value


_CONDITION = "for example cfg.test_device.type == 'npu' and dtype_str in ('fp16', 'bf16')"


class _Tensors:
    """The tensors of one call, numbered in the order in which it names them."""

    def __init__(self, dtype: str, locate: Callable[[str], FilePath], environment: Mapping[str, str]) -> None:
        self._dtype = dtype
        self._environment = environment
        self._locate = locate
        self._keys: dict[str, dict[str, Any]] = {"shapes": {}, "dtypes": {}, "generator": {}}
        self.with_device_layout = 0

    def add(self, entry: Mapping[str, Any]) -> TensorRef:
        """Add a tensor to the case and return the reference to it; raise Misfit for an invalid one."""
        given = entry.get("init_args")
        if isinstance(given, dict) and isinstance(given.get("path"), str):
            entry = {**entry, "init_args": {**given, "path": _VARIABLE.sub(self._value, given["path"])}}
        number = len(self._keys["shapes"])
        for keys, value in zip(self._keys.values(), planned(entry, self._dtype, self._locate), strict=True):
            keys[f"input{number}"] = value
        self.with_device_layout += "device_layout" in entry
        return TensorRef(number)

    def _value(self, variable: re.Match[str]) -> str:
        """Return the value of ``${NAME}`` in a path."""
        value = self._environment.get(variable[1])
        if not value:
            message = f"the path has the variable {variable[1]}, which is not set"
            raise Misfit(message, path=("init_args", "path"), hint=f"export {variable[1]}=FOLDER")
        return value

    def add_file(self, path: str) -> TensorRef:
        """Add the tensor of a .pt file, which contains its shape and dtype, and return the reference to it."""
        if not path.lower().endswith(".pt"):
            hint = f"tensor: {{shape: [2, 3], dtype: fp16, init: file, init_args: {{path: {path}}}}}"
            raise Misfit(f"file is {path}, expected a .pt file; others need shape and dtype", hint=hint)
        with at_path():
            return self.add({"init": "file", "init_args": {"path": path}})

    def plan(self) -> dict[str, Any]:
        """Return shapes, dtypes and generators of the tensors as keys of a case."""
        return dict(self._keys) if self._keys["shapes"] else {}
