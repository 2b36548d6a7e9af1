"""Where in a mapping's file something is stated, for whoever has to repair it; the file is read when that is asked."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from optest.spec import Fault, Reason

__all__ = ["drifted", "keys_of", "named_place"]

_BUILT_IN = Path(__file__).parent / "mappings"


def keys_of(place: str) -> tuple[str | int, ...]:
    """``objects.plan.set[0]`` as the keys that lead there."""
    return tuple(int(each) if each.isdecimal() else each for each in re.findall(r"[^.\[\]]+", place))


def drifted(why: str, file: Path, *keys: str | int) -> Fault:
    """The fault of a case for which a mapping is not what the headers say; ``keys`` lead to what is wrong."""
    place = named_place(file, *keys)
    fact = "built_in_mapping" if file.parent == _BUILT_IN else "mapping"
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
    try:
        node: Any = _composed(file, file.stat().st_mtime_ns)
    except (OSError, yaml.YAMLError):
        return 0
    line = 0
    for key in keys:
        if key == 0 and isinstance(node, yaml.MappingNode):
            continue  # one alternative may stand without a list
        found = _child(node, key)
        if found is None:
            break
        line, node = found
    return line


@lru_cache(maxsize=4)
def _composed(file: Path, _changed_ns: int) -> Any:
    return yaml.compose(file.read_bytes(), yaml.SafeLoader)


def _child(node: Any, key: str | int) -> tuple[int, Any] | None:
    """The line on which a key or an entry of a list stands, and what is stated there."""
    if isinstance(node, yaml.MappingNode):
        found = next((pair for pair in node.value if pair[0].value == str(key)), None)
        return None if found is None else (found[0].start_mark.line + 1, found[1])
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and 0 <= key < len(node.value):
        return node.value[key].start_mark.line + 1, node.value[key]
    return None
