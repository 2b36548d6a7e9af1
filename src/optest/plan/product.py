"""One case with a ``product``: its axes, the values that its keys take for each combination, and what these are called.

A *unit* is one key of the case, or one entry of a mapping such as ``shapes.input0``, that depends on axes. Each of its
values is read once, however many combinations share it.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from optest.plan.values import GeneratorChoice, Misfit, refuse, shown
from optest.plan.yaml_source import Path

Rows = tuple[int, ...]
"""A combination: the row of each axis."""
Target = tuple[str, ...]
"""``("seed",)``, ``("shapes", "input0")`` or ``("backend_config", "ascend", "tile")``."""

_Item = TypeVar("_Item")
_PROGRESS_S = 3.0
MAPPINGS = ("shapes", "dtypes", "attributes", "generator", "backend_config")
"""Keys of a case whose values may be mappings, put together from several places."""


def reported(items: Iterable[_Item], where: str, what: str) -> Iterator[_Item]:
    """Yield the items of a long product; print every three seconds how many were read."""
    due = time.monotonic() + _PROGRESS_S
    for count, item in enumerate(items, 1):
        yield item
        # the clock costs as much as a tenth of a case
        if not count % 1000 and time.monotonic() > due:
            print(f"optest: {where}: {count:,} {what} read", file=sys.stderr, flush=True)  # noqa: T201
            due = time.monotonic() + _PROGRESS_S


@dataclass(slots=True, kw_only=True)
class Unit:
    """What one key of the case is for each combination of the axes that it depends on."""

    target: Target
    axes: tuple[int, ...]
    written: Any
    """What stands in the case, with references; None if an axis brings the value itself."""
    own_axis: int | None = None
    values: dict[Rows, Any] = field(default_factory=dict)
    """By the rows of ``axes``; what could not be read is not there."""

    def rows_of(self, combination: Sequence[int]) -> Rows:
        return tuple([combination[index] for index in self.axes])

    def combination_with(self, rows: Rows, count: int) -> Rows:
        """A combination of ``count`` axes that has these rows of the own axes."""
        row_of = dict(zip(self.axes, rows, strict=True))
        return tuple(row_of.get(axis, 0) for axis in range(count))


@dataclass(slots=True, kw_only=True)
class Product:
    """The combinations of one case of a plan; ``path`` is the case's, ``fixed`` what is the same for all of them."""

    path: Path
    axes: tuple[Axis, ...]
    units: tuple[Unit, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    excluded: tuple[Mapping[int, frozenset[int]], ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict)
    """The line of each axis, by its key."""
    labels: list[list[str]] = field(default_factory=list)
    """A word for each row of each axis."""

    def combinations(self) -> Iterator[Rows]:
        """All that are not excluded, the last axis fastest, but for those with values that could not be read."""
        everything: Iterable[Rows] = itertools.product(*[range(len(axis.rows)) for axis in self.axes])
        if self.excluded:
            everything = itertools.filterfalse(self._is_excluded, everything)
        broken = [
            unit for unit in self.units if len(unit.values) < math.prod(len(self.axes[axis].rows) for axis in unit.axes)
        ]
        if broken:
            everything = (rows for rows in everything if all(unit.rows_of(rows) in unit.values for unit in broken))
        return iter(everything)

    def _is_excluded(self, rows: Rows) -> bool:
        return any(all(rows[axis] in those for axis, those in each.items()) for each in self.excluded)

    def entry(self, rows: Rows) -> dict[str, Any]:
        """The case that a person would have written for this combination alone."""
        entry = dict(self.fixed)
        for unit in self.units:
            key = unit.target[0]
            value = unit.values[unit.rows_of(rows)]
            entry[key] = _joined(entry[key], value) if key in entry and key in MAPPINGS else value
        return entry

    def parts(self) -> Iterator[tuple[Rows, dict[str, Any]]]:
        """Everything that an axis or a reference brings, as parts of a case with a combination that has them."""
        for unit in self.units:
            for own_rows, value in unit.values.items():
                yield unit.combination_with(own_rows, len(self.axes)), {unit.target[0]: value}

    def words(self, rows: Rows, axes: Iterable[int]) -> str:
        """``dtypes=float16, m=64``: these axes of a combination."""
        return ", ".join([self.labels[axis][rows[axis]] for axis in axes])

    def place(self, rows: Rows, path: Path) -> Path:
        """Where the value at ``path`` of the case was written: in the case, or as a value of an axis."""
        steps = path[len(self.path) :]
        for unit in self.units:
            depth = len(unit.target)
            if steps[:depth] != unit.target:
                continue
            if unit.own_axis is not None:
                return self._axis_place(rows, unit.own_axis, ".".join(unit.target), steps[depth:])
            name, rest = _reference_on(unit.written, steps[depth:])
            axis = next((index for index in unit.axes if name in self.axes[index].names), None)
            return path if axis is None else self._axis_place(rows, axis, name, rest)
        return path

    def _axis_place(self, rows: Rows, axis: int, name: str, rest: Path) -> Path:
        return (*self.path, "product", *self.axes[axis].steps(rows[axis], name), *rest)


def _reference_on(written: Any, steps: Path) -> tuple[str, Path]:
    """The reference that stands alone on the way along ``steps``, and the steps below it; "" if there is none."""
    for depth, step in enumerate((*steps, None)):
        if isinstance(written, str):
            name = sole_reference(written)
            return (name, steps[depth:]) if name else ("", ())
        is_item = isinstance(written, list) and isinstance(step, int) and step < len(written)
        if not is_item and not (isinstance(written, dict) and step in written):
            break
        written = written[step]
    return "", ()


def _joined(one: Any, other: Any) -> Any:
    """Two parts of the same key of a case."""
    if isinstance(one, GeneratorChoice):
        return GeneratorChoice(by_tensor={**one.by_tensor, **other.by_tensor})
    found = dict(one)
    for key, value in other.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = {**found[key], **value} if both else value
    return found


# The axes as a person writes them: names, values, references to them, and words for each value

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
    texts = {name: label_of(each) for name, each in values.items()}
    return _REFERENCE.sub(lambda match: texts.get(match[1] or match[2], match[0]), value)


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
