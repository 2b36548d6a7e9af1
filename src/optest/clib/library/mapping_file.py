"""Read the file of a mapping as plans are read, refuse it with everything that is wrong, and look up its lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from os.path import isfile
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from optest.clib.library.mapping import LibraryMapping, Shorthand, StatusWords, expanded, expanded_tensor, is_shorthand
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
    """The file of a built-in mapping (``infiniop``), or of one of the user's, relative to the plan."""
    return Path(base_dir, name) if is_file_name(name) else _FOLDER / f"{name}.yaml"


def is_file_name(name: str) -> bool:
    return "/" in name or "\\" in name or name.endswith((".yaml", ".yml"))


@lru_cache(maxsize=16)
def read_mapping(path: Path) -> LibraryMapping:
    """Read a file and check everything that needs no library.

    A file that ``extends`` another one, by its name or path, states only what differs.

    Raises:
        UsageError: naming the file and the key.
    """
    if not isfile(path):
        raise UsageError(_no_such_mapping(path))
    try:
        mapping = _mapping(_whole(path, ()))
    except _Misread as error:
        raise UsageError(f"mapping {_placed(path, str(error))}: {error}") from None
    problems = list(problems_of_mapping(mapping))
    if problems:
        raise UsageError("\n".join(f"mapping {_placed(path, problem)}: {problem}" for problem in problems))
    return mapping


def _whole(path: Path, heirs: tuple[Path, ...]) -> dict[str, Any]:
    """The file's data with what it takes over from the mapping that it ``extends``: keys and operators of its own stand
    in place of those there, and an operator that is ``null`` is left out."""
    if path in heirs:
        raise UsageError(f"mapping {path} extends itself")
    source = _source(path, path.stat().st_mtime_ns)
    if source.faults:
        raise PlanError(source.faults.values())
    data = dict(source.data)
    if not isinstance(data.get("extends"), str):
        return data
    base = mapping_path(data.pop("extends"), str(path.parent)).absolute()
    if not isfile(base):
        raise UsageError(f"mapping {path}, extends: {_no_such_mapping(base)}")
    taken_over = _whole(base, (*heirs, path))
    both = [each.get("operators") for each in (taken_over, data)]
    operators = {name: entry for each in both if isinstance(each, dict) for name, entry in each.items()}
    return {**taken_over, **data, "operators": {name: each for name, each in operators.items() if each is not None}}


def _placed(path: Path, problem: str) -> str:
    """The line on which stands what a problem names first (``operators.add.call[2] …``)."""
    return named_place(path, *keys_of(re.split(r"[\s:]", problem, maxsplit=1)[0]))


class _Misread(Exception):
    """What the schema says of a file; the message begins with the place."""


def _mapping(data: Mapping[str, Any]) -> LibraryMapping:
    """The file's data without shorthands, read part by part, so that what is wrong has a place."""
    read = dict(data)
    if isinstance(status := data.get("status"), dict):
        read["status"] = status.get("type", "int")
        words = {key: value for key, value in status.items() if key != "type"}
        read["statuses"] = _converted("status", words, StatusWords)
    if "protocol" in data and "tensor" in data:
        read["tensor"] = expanded_tensor(data["tensor"])
    read |= {key: _converted(key, read[key], ObjectEntry) for key in ("handle", "tensor") if key in read}
    if isinstance(operators := data.get("operators"), dict):
        read["operators"] = {
            name: tuple(
                _entry(f"operators.{name}" + (f"[{index}]" if len(entries) > 1 else ""), each, read)
                for index, each in enumerate(entries)
            )
            for name, stated in operators.items()
            for entries in (stated if isinstance(stated, list) else [stated],)
        }
    return _converted("", read, LibraryMapping)


def _entry(place: str, entry: Any, read: Mapping[str, Any]) -> OperatorMapping:
    """An operator's entry, with the dtypes that have functions, and what the file makes of tensors."""
    if is_shorthand(entry):
        entry = expanded(entry, _converted(place, entry, Shorthand), read.get("protocol"))
    elif isinstance(entry, dict) and isinstance(entry.get("functions"), dict):
        entry = {"dtypes": list(entry["functions"]), **entry}
    if isinstance(entry, dict):
        entry = {"tensor": read.get("tensor", NO_OBJECT), **entry}
    return _converted(place, entry, OperatorMapping)


def _converted(place: str, data: Any, kind: type[_T]) -> _T:
    """Read, or misread with the place inside what stands at ``place``, and the keys that it could have."""
    try:
        return msgspec.convert(data, kind, dec_hook=read_word)
    except msgspec.ValidationError as error:
        why, _, inner = str(error).partition(" - at `$")
        where = (place + inner.rstrip("`")).lstrip(".")
        hint = _known_keys(data, kind) if "unknown field" in why else ""
        raise _Misread(": ".join(filter(None, (where, why + hint)))) from None


def _known_keys(data: Any, kind: Any) -> str:
    fields = kind.__struct_fields__
    unknown = [key for key in data if key not in fields] if isinstance(data, dict) else []
    if not unknown:
        return ""
    return f"; {did_you_mean(str(unknown[0]), fields, text='did you mean {}? ')}known: {', '.join(fields)}"


def _no_such_mapping(path: Path) -> str:
    built_in = sorted(each.stem for each in _FOLDER.glob("*.yaml"))
    if path.parent != _FOLDER:
        return f"there is no mapping {path}; built in: {', '.join(built_in)}"
    hint = did_you_mean(path.stem, built_in, text="did you mean {}? ")
    known = f"built in: {', '.join(built_in)}; a file of yours ends in .yaml"
    return f"there is no built-in mapping {path.stem!r}; {hint}{known}"


def keys_of(place: str) -> tuple[str | int, ...]:
    """``objects.plan.set[0]`` as the keys that lead there."""
    return tuple(int(each) if each.isdecimal() else each for each in re.findall(r"[^.\[\]]+", place))


def drifted(why: str, file: Path, *keys: str | int) -> Fault:
    """The fault of a case for which a mapping is not what the headers say; ``keys`` lead to what is wrong."""
    place = named_place(file, *keys)
    fact = "built_in_mapping" if file.parent == _FOLDER else "mapping"
    return Fault(Reason.BAD_CASE, f"{why}\n  stated in {place}", details={fact: place})


def named_place(file: Path, *keys: str | int) -> str:
    """``mine.yaml:12``: the line of the last of the keys that the file has, the path as it is short to read.

    The file without a line if it has none of them, or has changed meanwhile so that it is no YAML.
    """
    line = _line(file, keys)
    return f"{_short(file)}:{line}" if line else _short(file)


def _short(file: Path) -> str:
    """From the working directory, where the file lies below it."""
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


def _line(file: Path, keys: tuple[str | int, ...]) -> int:
    """Return the line of the last of these keys that the file has, 0 if it has none of them."""
    try:
        source = _source(file, file.stat().st_mtime_ns)
    except (OSError, UsageError):
        return 0
    node: Any = source.data
    path: Keys = ()
    for key in keys:
        # a single alternative needs no list
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
def _source(file: Path, _changed_ns: int) -> Source:
    try:
        return parse_source(read_regular(str(file), MAX_BYTES), _short(file), typed_keys=True)
    except PathError as error:
        raise UsageError(f"mapping {file} cannot be read: {error}") from None
