"""A mapping's file: found, read as YAML in which no key stands twice, and everything told that is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from optest.clib.library.c_objects import NO_OBJECT, ObjectEntry
from optest.clib.library.mapping import LibraryMapping, StatusWords
from optest.clib.library.mapping_lines import named_place
from optest.clib.library.mapping_problems import problems_of_mapping
from optest.clib.library.operator_mapping import OperatorMapping
from optest.clib.library.shorthand import expanded, expanded_tensor, is_shorthand
from optest.errors import UsageError, nearest

__all__ = ["mapping_path", "read_mapping"]

_FOLDER = Path(__file__).parent / "mappings"
_LISTS_OF_WORDS = ("call", "create", "run", "arguments", "refuses")


def mapping_path(name: str, base_dir: str) -> Path:
    """The file of a built-in mapping (``infiniop``), or of one of the user's, relative to the plan."""
    if "/" in name or "\\" in name or name.endswith((".yaml", ".yml")):
        return Path(base_dir, name)
    return _FOLDER / f"{name}.yaml"


@lru_cache(maxsize=16)
def read_mapping(path: Path) -> LibraryMapping:
    """Read a file and check everything that needs no library.

    A file that ``extends`` another one, by its name or path, states only what differs.

    Raises:
        UsageError: naming the file and the key.
    """
    if not path.is_file():
        raise UsageError(_no_such_mapping(path))
    try:
        data = _whole(path, ())
    except yaml.YAMLError as error:
        raise UsageError(f"mapping {path} is no YAML: {error}") from None
    try:
        read = _with_entries(_with_status(_with_words(data)))
    except _Misread as error:
        raise UsageError(f"mapping {_placed(path, str(error))}: {error}") from None
    try:
        mapping = _with_tensors(msgspec.convert(read, LibraryMapping))
    except msgspec.ValidationError as error:
        said = _located(str(error), read)
        raise UsageError(f"mapping {_placed(path, said)}: {said}") from None
    problems = list(problems_of_mapping(mapping))
    if problems:
        raise UsageError("\n".join(f"mapping {_placed(path, problem)}: {problem}" for problem in problems))
    return mapping


def _whole(path: Path, heirs: tuple[Path, ...]) -> Any:
    """The file's data with what it takes over from the mapping that it ``extends``: keys and operators of its own stand
    in place of those there, and an operator that is ``null`` is left out."""
    if path in heirs:
        raise UsageError(f"mapping {path} extends itself")
    data = yaml.load(path.read_bytes(), _Loader)
    if not isinstance(data, dict) or not isinstance(data.get("extends"), str):
        return data
    base = mapping_path(data.pop("extends"), str(path.parent)).absolute()
    if not base.is_file():
        raise UsageError(f"mapping {path}, extends: {_no_such_mapping(base)}")
    taken_over = _whole(base, (*heirs, path))
    if not isinstance(taken_over, dict):
        return data
    both = [each.get("operators") for each in (taken_over, data)]
    operators = {name: entry for each in both if isinstance(each, dict) for name, entry in each.items()}
    return {**taken_over, **data, "operators": {name: each for name, each in operators.items() if each is not None}}


def _placed(path: Path, problem: str) -> str:
    """The line on which stands what a problem names first (``operators.add.call[2] …``)."""
    place = _PLACE.match(problem)
    keys = [int(each[1:-1]) if each.startswith("[") else each for each in _KEY.findall(place[0] if place else "")]
    return named_place(path, *keys)


_KEY = re.compile(r"\[\d+\]|[^.\[\]]+")
_PLACE = re.compile(r"[^\s:]+")


def _with_status(data: Any) -> Any:
    """``status: {type: int, success: [1]}`` apart into the type and what is said of it."""
    stated = data.get("status") if isinstance(data, dict) else None
    if not isinstance(stated, dict):
        return data
    words = {key: value for key, value in stated.items() if key != "type"}
    return {**data, "status": stated.get("type", "int"), "statuses": words}


def _with_entries(data: Any) -> Any:
    """Each operator as a list of entries, in which no shorthand is left and every dtype with a function is stated."""
    stated = data.get("operators") if isinstance(data, dict) else None
    if not isinstance(stated, dict):
        return data
    protocol = data.get("protocol")
    operators = {
        name: [_entry(place, each, protocol) for place, each in _alternatives(f"operators.{name}", entries)]
        for name, entries in stated.items()
    }
    tensor = {} if protocol is None or "tensor" not in data else {"tensor": expanded_tensor(data["tensor"])}
    return {**data, **tensor, "operators": operators}


def _alternatives(place: str, entries: Any) -> list[tuple[str, Any]]:
    listed = entries if isinstance(entries, list) else [entries]
    return [(place + (f"[{index}]" if len(listed) > 1 else ""), each) for index, each in enumerate(listed)]


class _Misread(Exception):
    """What is wrong with a shorthand; the message begins with its place."""


def _entry(place: str, entry: Any, protocol: Any) -> Any:
    if is_shorthand(entry):
        try:
            return expanded(entry, protocol)
        except msgspec.ValidationError as error:
            raise _Misread(f"{place}: {error}") from None
    if isinstance(entry, dict) and isinstance(entry.get("functions"), dict) and "dtypes" not in entry:
        return {**entry, "dtypes": list(entry["functions"])}
    return entry


def _with_tensors(mapping: LibraryMapping) -> LibraryMapping:
    """Operators know what the file makes of tensors."""
    if mapping.tensor == NO_OBJECT:
        return mapping
    operators = {
        name: tuple(
            msgspec.structs.replace(each, tensor=mapping.tensor) if each.tensor == NO_OBJECT else each
            for each in alternatives
        )
        for name, alternatives in mapping.operators.items()
    }
    return msgspec.structs.replace(mapping, operators=operators)


def _with_words(data: Any) -> Any:
    """``null`` in a list of roles or refusals is a word of the mapping, with or without quotes, as is a size."""
    if isinstance(data, list):
        return [_with_words(each) for each in data]
    if not isinstance(data, dict):
        return data
    return {key: _words(key, value) for key, value in data.items()}


def _words(key: Any, value: Any) -> Any:
    if key in _LISTS_OF_WORDS and isinstance(value, list):
        return ["null" if each is None else each for each in value]
    if key == "fields" and isinstance(value, dict):
        return {name: "null" if each is None else each for name, each in value.items()}
    if key == "dims" and isinstance(value, dict):
        return {tensor: _sizes_as_words(dims) for tensor, dims in value.items()}
    return _with_words(value)


def _sizes_as_words(dims: Any) -> Any:
    return [str(each) if type(each) is int else each for each in dims] if isinstance(dims, list) else dims


def _located(said: str, read: Any) -> str:
    """A schema's complaint about an operator, with the operator's name and the keys that could stand there."""
    for where, entry, kind in _entries(read):
        try:
            msgspec.convert(entry, kind)
        except msgspec.ValidationError as error:  # noqa: PERF203 - the first that is wrong is found
            return f"{where}: {error}" + _known_keys(entry, kind)
    return said


def _entries(read: Any) -> Iterable[tuple[str, Any, type]]:
    if not isinstance(read, dict):
        return
    yield "status", read.get("statuses", {}), StatusWords
    yield from ((key, read[key], ObjectEntry) for key in ("tensor", "handle") if key in read)
    for name, alternatives in read["operators"].items() if isinstance(read.get("operators"), dict) else ():
        for place, each in _alternatives(f"operators.{name}", alternatives):
            yield place, each, OperatorMapping


def _known_keys(entry: Any, kind: Any) -> str:
    fields = kind.__struct_fields__
    unknown = [key for key in entry if key not in fields] if isinstance(entry, dict) else []
    if not unknown:
        return ""
    near = nearest(str(unknown[0]), fields)
    return f"; {f'did you mean {near}? ' if near else ''}known: {', '.join(fields)}"


def _no_such_mapping(path: Path) -> str:
    built_in = sorted(each.stem for each in _FOLDER.glob("*.yaml"))
    if path.parent != _FOLDER:
        return f"there is no mapping {path}; built in: {', '.join(built_in)}"
    near = nearest(path.stem, built_in)
    return (
        f"there is no built-in mapping {path.stem!r}; "
        + (f"did you mean {near}? " if near else "")
        + (f"built in: {', '.join(built_in)}; a file of yours ends in .yaml")
    )


_MERGED = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """YAML in which no key may stand twice; an entry may take over another one's keys (``<<: *name``)."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value if key.tag != _MERGED]
        twice = [key for index, key in enumerate(keys) if key in keys[:index]]
        if twice:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice[0]!r} stands twice", node.start_mark)
        return dict(super().construct_mapping(node, deep))
