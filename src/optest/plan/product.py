"""One case with a ``product``: its axes, the values that its keys take for each combination, and what these are called.

A *unit* is one key of the case, or one entry of a mapping such as ``shapes.input0``, that depends on axes. Each of its
values is read once, however many combinations share it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optest.plan.axes import Axis, sole_reference
from optest.plan.source import Path
from optest.plan.values import GeneratorChoice

__all__ = ["MAPPINGS", "Product", "Rows", "Target", "Unit"]

Rows = tuple[int, ...]
"""A combination: the row of each axis."""
Target = tuple[str, ...]
"""``("seed",)``, ``("shapes", "input0")`` or ``("backend_config", "ascend", "tile")``."""

MAPPINGS = ("shapes", "dtypes", "attributes", "generator", "backend_config")
"""Keys of a case whose values may be mappings, put together from several places."""


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

    def parts(self) -> Iterator[tuple[Rows, dict[str, Any], Path]]:
        """Everything that an axis or a reference brings, as parts of a case with a combination that has them."""
        for unit in self.units:
            for own_rows, value in unit.values.items():
                yield unit.combination_with(own_rows, len(self.axes)), {unit.target[0]: value}, self.path

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
