"""Read a mapping file, report all of its problems, and look up line numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from os.path import isfile
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from optest.clib.library.mapping import (
    LibraryMapping,
    Shorthand,
    StatusWords,
    expand_shorthand,
    expand_tensor,
    is_shorthand,
)
from optest.clib.library.mapping_problems import problems_of_mapping
from optest.clib.library.mapping_words import read_word
from optest.clib.library.operator_mapping import NO_OBJECT, ObjectEntry, OperatorMapping
from optest.errors import PlanError, UsageError, did_you_mean
from optest.plan.yaml_source import MAX_BYTES, Source, parse_source
from optest.plan.yaml_source import Path as Keys
from optest.spec import Fault, Reason
from optest.store import PathError, read_regular

_FOLDER = Path(__file__).parent / "mappings"
_T = TypeVar("_T")


def mapping_path(name: str, base_dir: str) -> Path:
    """Return the path of a built-in mapping (``infiniop``), or of a user's file relative to ``base_dir``."""
    return Path(base_dir, name) if is_file_name(name) else _FOLDER / f"{name}.yaml"


def is_file_name(name: str) -> bool:
    return "/" in name or "\\" in name or name.endswith((".yaml", ".yml"))


@lru_cache(maxsize=16)
def read_mapping(path: Path) -> LibraryMapping:
    """Read a file with the mapping that it ``extends``, and check it; raise UsageError with file and key."""
    if not isfile(path):
        raise UsageError(_no_such_mapping(path))
    try:
        mapping = _convert_mapping(_read_with_base(path, ()))
    except _Misread as error:
        raise UsageError(f"mapping {_locate_problem(path, str(error))}: {error}") from None
    problems = list(problems_of_mapping(mapping))
    if problems:
        raise UsageError("\n".join(f"mapping {_locate_problem(path, problem)}: {problem}" for problem in problems))
    return mapping


def _read_with_base(path: Path, heirs: tuple[Path, ...]) -> dict[str, Any]:
    """Return the file's data merged over the mapping that it ``extends``; an operator set to null is removed."""
    if path in heirs:
        raise UsageError(f"mapping {path} extends itself")
    source = _parse_mapping(path, path.stat().st_mtime_ns)
    if source.faults:
        raise PlanError(source.faults.values())
    data = dict(source.data)
    if not isinstance(data.get("extends"), str):
        return data
    base = mapping_path(data.pop("extends"), str(path.parent)).absolute()
    if not isfile(base):
        raise UsageError(f"mapping {path}, extends: {_no_such_mapping(base)}")
    taken_over = _read_with_base(base, (*heirs, path))
    sections = [x.get("operators") for x in (taken_over, data)]
    operators = {name: entry for section in sections if isinstance(section, dict) for name, entry in section.items()}
    return {**taken_over, **data, "operators": {name: entry for name, entry in operators.items() if entry is not None}}


def _locate_problem(path: Path, problem: str) -> str:
    """Return the file and line of the key that begins a problem (``operators.add.call[2] …``)."""
    return named_place(path, *keys_of(re.split(r"[\s:]", problem, maxsplit=1)[0]))


class _Misread(Exception):
    """A schema error of a file; the message begins with the key."""


def _convert_mapping(data: Mapping[str, Any]) -> LibraryMapping:
    """Convert the file's data to a mapping, part by part, so that an error names its key."""
    read = dict(data)
    if isinstance(status := data.get("status"), dict):
        read["status"] = status.get("type", "int")
        words = {key: value for key, value in status.items() if key != "type"}
        read["statuses"] = _convert("status", words, StatusWords)
    if "protocol" in data and "tensor" in data:
        read["tensor"] = expand_tensor(data["tensor"])
    read |= {key: _convert(key, read[key], ObjectEntry) for key in ("handle", "tensor") if key in read}
    if isinstance(operators := data.get("operators"), dict):
        read["operators"] = {
            name: tuple(
                _convert_entry(f"operators.{name}" + (f"[{index}]" if len(entries) > 1 else ""), entry, read)
                for index, entry in enumerate(entries)
            )
            for name, listed in operators.items()
            for entries in (listed if isinstance(listed, list) else [listed],)
        }
    return _convert("", read, LibraryMapping)


def _convert_entry(key: str, entry: Any, read: Mapping[str, Any]) -> OperatorMapping:
    """Convert an operator's entry; add the dtypes that have functions, and the file's tensor template."""
    if is_shorthand(entry):
        entry = expand_shorthand(entry, _convert(key, entry, Shorthand), read.get("protocol"))
    elif isinstance(entry, dict) and isinstance(entry.get("functions"), dict):
        entry = {"dtypes": list(entry["functions"]), **entry}
    if isinstance(entry, dict):
        entry = {"tensor": read.get("tensor", NO_OBJECT), **entry}
    return _convert(key, entry, OperatorMapping)


def _convert(key: str, data: Any, kind: type[_T]) -> _T:
    """Convert ``data`` to ``kind``; raise _Misread with the key below ``place`` and the known keys."""
    try:
        return msgspec.convert(data, kind, dec_hook=read_word)
    except msgspec.ValidationError as error:
        why, _, inner = str(error).partition(" - at `$")
        where = (key + inner.rstrip("`")).lstrip(".")
        hint = _hint_of_keys(data, kind) if "unknown field" in why else ""
        raise _Misread(": ".join(filter(None, (where, why + hint)))) from None


def _hint_of_keys(data: Any, kind: Any) -> str:
    fields = kind.__struct_fields__
    unknown = [key for key in data if key not in fields] if isinstance(data, dict) else []
    if not unknown:
        return ""
    return f"; {did_you_mean(str(unknown[0]), fields, text='did you mean {}? ')}known: {', '.join(fields)}"


def _no_such_mapping(path: Path) -> str:
    built_in = sorted(file.stem for file in _FOLDER.glob("*.yaml"))
    if path.parent != _FOLDER:
        return f"there is no mapping {path}; built in: {', '.join(built_in)}"
    hint = did_you_mean(path.stem, built_in, text="did you mean {}? ")
    known = f"built in: {', '.join(built_in)}; a file of yours ends in .yaml"
    return f"there is no built-in mapping {path.stem!r}; {hint}{known}"


def keys_of(place: str) -> tuple[str | int, ...]:
    """Split ``objects.plan.set[0]`` into its keys and indexes."""
    return tuple(int(key) if key.isdecimal() else key for key in re.findall(r"[^.\[\]]+", place))


def drift_fault(why: str, file: Path, *keys: str | int) -> Fault:
    """Return the fault of a case whose mapping differs from the headers; ``keys`` locate the difference."""
    place = named_place(file, *keys)
    fact = "built_in_mapping" if file.parent == _FOLDER else "mapping"
    return Fault(Reason.BAD_CASE, f"{why}\n  in {place}", details={fact: place})


def named_place(file: Path, *keys: str | int) -> str:
    """Return ``mine.yaml:12``, the line of the last of ``keys`` in the file; without a line for unknown keys."""
    line = _line_of_keys(file, keys)
    return f"{_path_from_here(file)}:{line}" if line else _path_from_here(file)


def _path_from_here(file: Path) -> str:
    """Return the path relative to the working directory, if the file is below it."""
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


def _line_of_keys(file: Path, keys: tuple[str | int, ...]) -> int:
    """Return the line of the last of these keys that the file has; 0 for unknown keys."""
    try:
        source = _parse_mapping(file, file.stat().st_mtime_ns)
    except (OSError, UsageError):
        return 0
    node: Any = source.data
    path: Keys = ()
    for key in keys:
        # A single alternative is written without a list.
        if key == 0 and isinstance(node, dict):
            continue
        step = str(key) if isinstance(node, dict) else key
        try:
            node = node[step]
        except (KeyError, IndexError, TypeError):
            break
        path = (*path, step)
    return source.line_of(path) if path else 0


@lru_cache(maxsize=4)
def _parse_mapping(file: Path, _changed_ns: int) -> Source:  # the time of the change is part of the cache's key
    try:
        return parse_source(read_regular(str(file), MAX_BYTES), _path_from_here(file), typed_keys=True)
    except PathError as error:
        raise UsageError(f"mapping {file} cannot be read: {error}") from None
