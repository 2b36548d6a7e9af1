"""One case with a ``product``: its axes, the values that its keys take for each combination, and what these are called.

A *unit* is one key of the case, or one entry of a mapping such as ``shapes.input0``, that depends on axes. Each of its
values is read once, however many combinations share it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeVar

from optest.errors import nearest
from optest.plan.axes import Axis, label_of, references, same, sole_reference, substituted
from optest.plan.forms import GeneratorChoice, Misfit, shown
from optest.plan.source import Path

__all__ = ["Product", "Rows", "Unit", "exclusions", "parts_of", "remembered", "separate", "units_of"]

Rows = tuple[int, ...]
"""A combination: the row of each axis."""
Target = tuple[str, ...]
"""``("seed",)``, ``("shapes", "input0")`` or ``("backend_config", "ascend", "tile")``."""

MAPPINGS = ("shapes", "dtypes", "attributes", "generator", "backend_config")
"""Keys of a case whose values may be mappings, put together from several places."""
SEEN = ("op", "dtypes", "shapes", "attributes")
"""Keys that a case's identifier shows."""
_OTHER_DOLLARS = ("backend_config", "description")
"""Keys in which a ``$`` may be a shell's or a writer's own."""
_NEVER = ("name", "description", "product", "exclude")

_Value = TypeVar("_Value")


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
        broken = [unit for unit in self.units if len(unit.values) < _count(unit, self.axes)]
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
            entry[key] = joined(entry[key], value) if key in entry and key in MAPPINGS else value
        return entry

    def parts(self) -> Iterator[tuple[Rows, dict[str, Any], Path]]:
        """Everything that an axis or a reference brings, as parts of a case with a combination that has them."""
        for unit in self.units:
            for own_rows, value in unit.values.items():
                row_of = dict(zip(unit.axes, own_rows, strict=True))
                rows = tuple(row_of.get(axis, 0) for axis in range(len(self.axes)))
                yield rows, {unit.target[0]: value}, self.path

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


def remembered(axes: Iterable[int], make: Callable[[Rows], _Value]) -> Callable[[Rows], _Value]:
    """What depends on some axes of a combination, made once for each combination of their rows."""
    used = sorted(set(axes))
    made: dict[Any, _Value] = {}

    def once(rows: Rows) -> _Value:
        if not made:
            made[()] = make(rows)
        return made[()]

    if not used:
        return once
    rows_of = itemgetter(*used)

    def each_once(rows: Rows) -> _Value:
        key = rows_of(rows)
        try:
            return made[key]
        except KeyError:
            value = made[key] = make(rows)
            return value

    return each_once


def _count(unit: Unit, axes: Sequence[Axis]) -> int:
    count = 1
    for index in unit.axes:
        count *= len(axes[index].rows)
    return count


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


def joined(one: Any, other: Any) -> Any:
    """Two parts of the same key of a case."""
    if isinstance(one, GeneratorChoice):
        return GeneratorChoice(by_tensor={**one.by_tensor, **other.by_tensor})
    found = dict(one)
    for key, value in other.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = {**found[key], **value} if both else value
    return found


def separate(entry: Mapping[str, Any]) -> tuple[dict[str, Any], dict[Target, Any]]:
    """Part a case as written into what names no axis, and what does, by its place."""
    plain: dict[str, Any] = {}
    written: dict[Target, Any] = {}
    for key, value in entry.items():
        if key in ("product", "exclude") or not any(True for _ in references(value)):
            plain[key] = value
        elif key in MAPPINGS and isinstance(value, dict) and "fill" not in value:
            for name, each in value.items():
                if any(True for _ in references(each)):
                    written[key, name] = each
                else:
                    plain.setdefault(key, {})[name] = each
        else:
            written[key,] = value
    return plain, written


def units_of(
    axes: Sequence[Axis], written: Mapping[Target, Any], known_keys: Iterable[str]
) -> tuple[list[Unit], list[Misfit]]:
    """The keys that depend on axes, and what is wrong with the axes' names and the references to them."""
    keys = [key for key in known_keys if key not in _NEVER]
    index_of = {name: index for index, axis in enumerate(axes) for name in axis.names}
    units: list[Unit] = []
    misfits: list[Misfit] = []
    used: set[str] = set()
    for target, value in written.items():
        names = list(dict.fromkeys(references(value)))
        used.update(names)
        unknown = [name for name in names if name not in index_of] if target[0] not in _OTHER_DOLLARS else []
        for name in unknown:
            near = next((each for each in index_of if name.startswith(each)), None) or nearest(name, index_of)
            hint = f"did you mean ${{{near}}}?" if near else f"axes: {', '.join(index_of)}"
            misfits.append(Misfit(f"${name} names no axis of the product", path=target, hint=hint))
        if unknown:
            continue
        own = tuple(sorted({index_of[name] for name in names if name in index_of}))
        units.append(Unit(target=target, axes=own, written=value))
    for name, index in index_of.items():
        head, _, rest = name.partition(".")
        key = axes[index].key
        path: Path = ("product", key)
        if head in _NEVER and head == name:
            misfits.append(Misfit(f"{name} is no key that a product can vary", path=path))
        elif (head in keys and not rest) or (head in MAPPINGS and rest):
            target = _target_of(head, rest)
            units.append(Unit(target=target, axes=(index,), written=None, own_axis=index))
        elif rest:
            should_be = f"one of {', '.join(MAPPINGS)}"
            misfits.append(Misfit(f"{head!r} of the axis {name} should be {should_be}", path=path))
        elif name not in used:
            near = nearest(name, keys)
            hint = f"did you mean {near}?" if near else f"write ${name} where its value is wanted, or attributes.{name}"
            message = f"the axis {name} is no key of a case, and nothing in the case names ${name}"
            misfits.append(Misfit(message, path=path, hint=hint))
    return units, misfits


def _target_of(head: str, rest: str) -> Target:
    """``backend_config.ascend.tile`` leads two steps down, every other key at most one."""
    if not rest:
        return (head,)
    return (head, *rest.split(".", 1)) if head == "backend_config" else (head, rest)


def parts_of(key: str, value: Any) -> list[Target]:
    """The places that a key's value states something at, as axes would name them."""
    if key not in MAPPINGS or not isinstance(value, dict) or "fill" in value:
        return [(key,)]
    if key != "backend_config":
        return [(key, name) for name in value]
    return [
        (key, backend, option)
        for backend, options in value.items()
        for option in (options if isinstance(options, dict) else {"": None})
    ]


def exclusions(
    axes: Sequence[Axis], stated: Sequence[Mapping[str, Any]], read_alike: Callable[[str, Any, Any], bool]
) -> tuple[list[dict[int, frozenset[int]]], list[Misfit]]:
    """The rows of each axis that every entry of ``exclude`` names; an entry that fits nothing is a slip.

    ``read_alike`` tells whether two values of an axis mean the same, as ``half`` and ``float16`` do.
    """
    found: list[dict[int, frozenset[int]]] = []
    misfits: list[Misfit] = []
    index_of = {name: index for index, axis in enumerate(axes) for name in axis.names}
    for place, entry in enumerate(stated):
        those: dict[int, frozenset[int]] = {}
        for name, value in entry.items():
            path: Path = ("exclude", place, name)
            if name not in index_of:
                near = nearest(name, index_of)
                hint = f"did you mean {near}?" if near else f"axes: {', '.join(index_of)}"
                misfits.append(Misfit(f"{name!r} is no axis of the product", path=path, hint=hint))
                continue
            axis = axes[index_of[name]]
            column = axis.names.index(name)
            rows = frozenset(row for row, values in enumerate(axis.rows) if same(values[column], value))
            rows = rows or frozenset(
                row for row, values in enumerate(axis.rows) if read_alike(name, values[column], value)
            )
            if not rows:
                values = ", ".join(shown(values[column]) for values in axis.rows[:8])
                message = f"{name} is {shown(value)}, but the axis has no such value"
                misfits.append(Misfit(message, path=path, hint=f"values: {values}"))
            before = those.get(index_of[name])
            those[index_of[name]] = rows if before is None else rows & before
        if not entry:
            misfits.append(
                Misfit("an entry of exclude is empty, but should name a value of an axis", path=("exclude",))
            )
        found.append(those)
    return found, misfits


def labels_of(axes: Sequence[Axis]) -> list[list[str]]:
    """``m=64`` for each row; for an axis of several names ``m=64, k=128``."""
    return [
        [
            ", ".join(f"{name}={label_of(value)}" for name, value in zip(axis.names, row, strict=True))
            for row in axis.rows
        ]
        for axis in axes
    ]


def values_of(axes: Sequence[Axis], indices: Sequence[int], rows: Rows) -> dict[str, Any]:
    """The raw values by name that some axes have in these rows."""
    found: dict[str, Any] = {}
    for index, row in zip(indices, rows, strict=True):
        found.update(zip(axes[index].names, axes[index].rows[row], strict=True))
    return found


def raw_values(unit: Unit, axes: Sequence[Axis]) -> Iterator[tuple[Rows, Any]]:
    """What a unit is in each combination of its axes, as if it were written so."""
    for rows in itertools.product(*[range(len(axes[index].rows)) for index in unit.axes]):
        values = values_of(axes, unit.axes, rows)
        yield rows, values[".".join(unit.target)] if unit.own_axis is not None else substituted(unit.written, values)
