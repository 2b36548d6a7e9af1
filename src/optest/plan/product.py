"""A case with a ``product``: its axes, the values of its keys for each combination, and names for these.

A *unit* is one key of the case, or one entry of a mapping such as ``shapes.input0``, that depends on axes. Each value
of a unit is read once for all combinations that share it.
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

# A combination: the row of each axis.
Rows = tuple[int, ...]
# ``("seed",)``, ``("shapes", "input0")`` or ``("backend_config", "ascend", "tile")``.
Target = tuple[str, ...]

_Item = TypeVar("_Item")
_PROGRESS_S = 3.0
# Keys of a case whose values may be mappings, assembled from the case and several axes.
MAPPINGS = ("shapes", "dtypes", "attributes", "generator", "backend_config")


def report_progress(items: Iterable[_Item], where: str, unit: str) -> Iterator[_Item]:
    """Yield the items; print every three seconds to stderr how many of them were read."""
    due = time.monotonic() + _PROGRESS_S
    for count, item in enumerate(items, 1):
        yield item
        # The clock takes a tenth of the time that a case takes.
        if not count % 1000 and time.monotonic() > due:
            print(f"optest: {where}: {count:,} {unit} read", file=sys.stderr, flush=True)  # noqa: T201
            due = time.monotonic() + _PROGRESS_S


@dataclass(slots=True, kw_only=True)
class Unit:
    """Values of one key of the case, by the rows of the axes that it depends on."""

    target: Target
    axes: tuple[int, ...]
    # The value in the case, with its references; None if an axis has the values themselves.
    written: Any
    own_axis: int | None = None
    # By the rows of `axes`, without those that could not be read.
    values: dict[Rows, Any] = field(default_factory=dict)

    def rows_of(self, combination: Sequence[int]) -> Rows:
        return tuple([combination[index] for index in self.axes])

    def combination_with(self, rows: Rows, count: int) -> Rows:
        """Return a combination of ``count`` axes with these rows of the unit's axes, row 0 of the others."""
        row_of = dict(zip(self.axes, rows, strict=True))
        return tuple(row_of.get(axis, 0) for axis in range(count))


@dataclass(slots=True, kw_only=True)
class Product:
    """The combinations of one case of a plan; ``path`` is that of the case, ``fixed`` has the keys that all share."""

    path: Path
    axes: tuple[Axis, ...]
    units: tuple[Unit, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)
    excluded: tuple[Mapping[int, frozenset[int]], ...] = ()
    # The line of each axis, by its key.
    lines: Mapping[str, int] = field(default_factory=dict)
    # Text such as `m=64` for each row of each axis.
    labels: list[list[str]] = field(default_factory=list)

    def combinations(self) -> Iterator[Rows]:
        """Return the combinations with readable values that are not excluded, the last axis varying fastest."""
        everything: Iterable[Rows] = itertools.product(*[range(len(axis.rows)) for axis in self.axes])
        if self.excluded:
            everything = (
                rows
                for rows in everything
                if not any(all(rows[axis] in values for axis, values in x.items()) for x in self.excluded)
            )
        broken = [
            unit for unit in self.units if len(unit.values) < math.prod(len(self.axes[axis].rows) for axis in unit.axes)
        ]
        if broken:
            everything = (rows for rows in everything if all(unit.rows_of(rows) in unit.values for unit in broken))
        return iter(everything)

    def entry(self, rows: Rows) -> dict[str, Any]:
        """Return the case of one combination, as if it were written without a product."""
        entry = dict(self.fixed)
        for unit in self.units:
            key = unit.target[0]
            value = unit.values[unit.rows_of(rows)]
            entry[key] = _merge_parts(entry[key], value) if key in entry and key in MAPPINGS else value
        return entry

    def parts(self) -> Iterator[tuple[Rows, dict[str, Any]]]:
        """Yield each value of a unit as part of a case, with a combination that has it."""
        for unit in self.units:
            for unit_rows, value in unit.values.items():
                yield unit.combination_with(unit_rows, len(self.axes)), {unit.target[0]: value}

    def words(self, rows: Rows, axes: Iterable[int]) -> str:
        """Return the values of these axes in a combination, as in ``dtypes=float16, m=64``."""
        return ", ".join([self.labels[axis][rows[axis]] for axis in axes])

    def place(self, rows: Rows, path: Path) -> Path:
        """Return the position of the value at ``path`` of the case: in the case, or in the row of an axis."""
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
    """Return the first reference along ``steps`` that is a whole text, and the steps below it; else ""."""
    for depth, step in enumerate((*steps, None)):
        if isinstance(written, str):
            name = sole_reference(written)
            return (name, steps[depth:]) if name else ("", ())
        is_item = isinstance(written, list) and isinstance(step, int) and step < len(written)
        if not is_item and not (isinstance(written, dict) and step in written):
            break
        written = written[step]
    return "", ()


def _merge_parts(first: Any, second: Any) -> Any:
    """Return two values of the same key of a case merged, one level of nested mappings as well."""
    if isinstance(first, GeneratorChoice):
        return GeneratorChoice(by_tensor={**first.by_tensor, **second.by_tensor})
    merged = dict(first)
    for key, value in second.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = {**merged[key], **value} if both else value
    return merged


MAX_COMBINATIONS = 1_000_000
# A key, or a key and a name below it: seed, attributes.alpha, backend_config.ascend.tile.
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[^\s,.][^\s,]*)?")
# $m and ${m}, but not $$m.
_REFERENCE = re.compile(r"(?<!\$)\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One list of values of a product. The axis ``m, k`` has two names and a pair of values in each row."""

    # Its text in the plan.
    key: str
    names: tuple[str, ...]
    # A value for each name.
    rows: tuple[tuple[Any, ...], ...]

    def steps(self, row: int, name: str) -> tuple[str | int, ...]:
        """Return the path of a value, below ``product``."""
        item: tuple[str | int, ...] = (self.key, row)
        return item if len(self.names) == 1 else (*item, self.names.index(name))


def read_axes(value: Any) -> tuple[Axis, ...]:
    """Return the axes of ``{dtypes: [float16, float32], "m, k": [[64, 128], [1, 1]]}``; raise Misfit for wrong ones."""
    example = "{dtypes: [float16, float32], seed: [0, 1]}"
    if not isinstance(value, dict) or not value:
        expected = "a mapping from axes to lists of values"
        raise Misfit(f"product is {shown(value)}, expected {expected}", hint=f"product: {example}")
    misfits: list[Misfit] = []
    axes: list[Axis] = []
    taken: dict[str, str] = {}
    for key, values in value.items():
        names = tuple(part.strip() for part in key.split(","))
        misfits += _axis_misfits(key, names, values)
        for name in names:
            if name in taken:
                misfits.append(Misfit(f"the axis {name} is set twice, also in {taken[name]!r}", path=(key,)))
            taken[name] = key
        if not misfits:
            rows = tuple(tuple(row) if len(names) > 1 else (row,) for row in values)
            axes.append(Axis(key=key, names=names, rows=rows))
    count = math.prod(len(axis.rows) for axis in axes)
    if not misfits and count > MAX_COMBINATIONS:
        misfits.append(Misfit(f"product has {count:,} combinations, expected at most {MAX_COMBINATIONS:,}"))
    refuse(misfits)
    return tuple(axes)


def _axis_misfits(key: str, names: tuple[str, ...], values: Any) -> Iterator[Misfit]:
    for name in names:
        if not _TARGET.fullmatch(name):
            expected = "a word, a key of a case, or a key and a name such as attributes.alpha"
            yield Misfit(f"the axis is {name!r}, expected {expected}", path=(key,))
    if not isinstance(values, list) or not values:
        yield Misfit(
            f"the axis {key} is {shown(values)}, expected a list of at least one value",
            path=(key,),
            hint=f"for one value write {key}: [{shown(values)}]" if isinstance(values, (str, int, float, dict)) else "",
        )
        return
    first_with: dict[str, int] = {}
    for row, value in enumerate(values):
        if len(names) > 1 and not (isinstance(value, list) and len(value) == len(names)):
            expected = f"a list of {len(names)} values, one for each of {', '.join(names)}"
            yield Misfit(f"item {row} of {key} is {shown(value)}, expected {expected}", path=(key, row))
        # By `repr`: values may be unhashable, and 1 and true are two values.
        first = first_with.setdefault(repr(value), row)
        if first != row:
            yield Misfit(f"item {row} of {key} repeats item {first}: {shown(value)}", path=(key, row))
        if has_references(value):
            message = f"item {row} of {key} is {shown(value)}, but a value of an axis cannot name another axis"
            yield Misfit(message, path=(key, row))


def equal_as_written(first: Any, second: Any) -> bool:
    """Return whether two YAML values are equal in value and type: 1, 1.0 and true differ, NaN equals NaN."""
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(equal_as_written(x, second[key]) for key, x in first.items())
    if isinstance(first, list):
        return len(first) == len(second) and all(map(equal_as_written, first, second))
    return bool(first == second) or (first != first and second != second)


def references(value: Any) -> Iterator[str]:
    """Yield the names after ``$`` in all texts of a value: ``$m`` and ``${m}``."""
    if isinstance(value, str):
        if "$" in value:
            yield from (match[1] or match[2] for match in _REFERENCE.finditer(value))
    elif isinstance(value, (dict, list)):
        for x in value.values() if isinstance(value, dict) else value:
            yield from references(x)


def has_references(value: Any) -> bool:
    return any(True for _ in references(value))


def sole_reference(text: str) -> str:
    """Return the name of a text that is exactly one reference, "" for any other text."""
    match = _REFERENCE.fullmatch(text)
    return match[1] or match[2] if match else ""


def substitute(value: Any, values: Mapping[str, Any]) -> Any:
    """Return ``value`` with its references replaced; a text that is one reference becomes the value in its type."""
    if isinstance(value, dict):
        return {key: substitute(x, values) for key, x in value.items()}
    if isinstance(value, list):
        return [substitute(x, values) for x in value]
    if not isinstance(value, str) or "$" not in value:
        return value
    if name := sole_reference(value):
        return values.get(name, value)
    texts = {name: label_of(x) for name, x in values.items()}
    return _REFERENCE.sub(lambda match: texts.get(match[1] or match[2], match[0]), value)


def label_of(value: Any) -> str:
    """Return a value of an axis as text for ids: ``float16``, ``64``; ``2x3`` as it is written."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case list():
            return f"[{','.join(map(label_of, value))}]"
        case {"fill": str(kind)}:
            rest = [f"{key}={label_of(x)}" for key, x in value.items() if key != "fill"]
            return f"{kind}({', '.join(rest)})" if rest else kind
        case dict():
            return "{" + ", ".join(f"{key}: {label_of(x)}" for key, x in value.items()) + "}"
    return str(value)
