"""The axes of a product as a person writes them: names, values, references to them, and words for each value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from optest.plan.values import Misfit, refuse, shown

__all__ = ["Axis", "has_references", "label_of", "read_axes", "references", "same", "sole_reference", "substituted"]

MAX_COMBINATIONS = 1_000_000
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[^\s,.][^\s,]*)?")
_REFERENCE = re.compile(r"(?<!\$)\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One list of values of a product. ``m, k`` is an axis of two names whose values go together, row by row."""

    key: str
    """As it is written in the plan."""
    names: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    """One value for each name."""

    def steps(self, row: int, name: str) -> tuple[str | int, ...]:
        """The path of a value below ``product``."""
        own: tuple[str | int, ...] = (self.key, row)
        return own if len(self.names) == 1 else (*own, self.names.index(name))


def read_axes(value: Any) -> tuple[Axis, ...]:
    """Read ``{dtypes: [float16, float32], "m, k": [[64, 128], [1, 1]]}``."""
    example = "{dtypes: [float16, float32], seed: [0, 1]}"
    if not isinstance(value, dict) or not value:
        should_be = "a mapping from axes to lists of values"
        raise Misfit(f"product is {shown(value)}, but should be {should_be}", hint=f"product: {example}")
    misfits: list[Misfit] = []
    found: list[Axis] = []
    taken: dict[str, str] = {}
    for key, values in value.items():
        names = tuple(part.strip() for part in key.split(","))
        misfits += _faults(key, names, values)
        for name in names:
            if name in taken:
                misfits.append(Misfit(f"the axis {name} is stated twice, also in {taken[name]!r}", path=(key,)))
            taken[name] = key
        if not misfits:
            rows = tuple(tuple(row) if len(names) > 1 else (row,) for row in values)
            found.append(Axis(key=key, names=names, rows=rows))
    count = math.prod(len(axis.rows) for axis in found)
    if not misfits and count > MAX_COMBINATIONS:
        misfits.append(Misfit(f"product has {count:,} combinations, but should have at most {MAX_COMBINATIONS:,}"))
    refuse(misfits)
    return tuple(found)


def _faults(key: str, names: tuple[str, ...], values: Any) -> Iterator[Misfit]:
    for name in names:
        if not _TARGET.fullmatch(name):
            should_be = "a word, a key of a case, or a key and a name such as attributes.alpha"
            yield Misfit(f"the axis {name!r} should be {should_be}", path=(key,))
    if not isinstance(values, list) or not values:
        yield Misfit(
            f"the axis {key} is {shown(values)}, but should be a list with a value or more",
            path=(key,),
            hint=f"{key}: [{shown(values)}] is a list of one" if isinstance(values, (str, int, float, dict)) else "",
        )
        return
    first_with: dict[str, int] = {}
    for row, value in enumerate(values):
        if len(names) > 1 and not (isinstance(value, list) and len(value) == len(names)):
            should_be = f"a list of {len(names)} values, one for each of {', '.join(names)}"
            yield Misfit(f"item {row} of {key} is {shown(value)}, but should be {should_be}", path=(key, row))
        first = first_with.setdefault(repr(value), row)
        if first != row:
            yield Misfit(f"item {row} of {key} repeats item {first}: {shown(value)}", path=(key, row))
        if has_references(value):
            yield Misfit(f"item {row} of {key} is {shown(value)}, but values of an axis name no axis", path=(key, row))


def same(one: Any, other: Any) -> bool:
    """Whether two values are written alike: 1, 1.0 and true are three values."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(each, other[key]) for key, each in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) or (one != one and other != other)


def references(value: Any) -> Iterator[str]:
    """The names after ``$`` in a value: ``$m`` and ``${m}``, alone or within a text."""
    if isinstance(value, str):
        if "$" in value:
            yield from (match[1] or match[2] for match in _REFERENCE.finditer(value))
    elif isinstance(value, dict):
        for each in value.values():
            yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def has_references(value: Any) -> bool:
    return any(True for _ in references(value))


def sole_reference(text: str) -> str:
    """The name in a text that is a reference and nothing else, "" for any other text."""
    whole = _REFERENCE.fullmatch(text)
    return whole[1] or whole[2] if whole else ""


def substituted(value: Any, values: Mapping[str, Any]) -> Any:
    """``value`` with every reference to one of ``values`` replaced; a reference alone keeps the value's type."""
    if isinstance(value, dict):
        return {key: substituted(each, values) for key, each in value.items()}
    if isinstance(value, list):
        return [substituted(each, values) for each in value]
    if not isinstance(value, str) or "$" not in value:
        return value
    if name := sole_reference(value):
        return values.get(name, value)
    return _REFERENCE.sub(lambda match: _text_for(match, values), value)


def _text_for(match: re.Match[str], values: Mapping[str, Any]) -> str:
    name = match[1] or match[2]
    return label_of(values[name]) if name in values else match[0]


def label_of(value: Any) -> str:
    """A value of an axis in words that can stand in an id: ``float16``, ``64``, ``2x3`` stays as it is written."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case list():
            return f"[{','.join(map(label_of, value))}]"
        case {"fill": str(kind)}:
            rest = [f"{key}={label_of(each)}" for key, each in value.items() if key != "fill"]
            return f"{kind}({', '.join(rest)})" if rest else kind
        case dict():
            return "{" + ", ".join(f"{key}: {label_of(each)}" for key, each in value.items()) + "}"
    return str(value)
