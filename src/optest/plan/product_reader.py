"""From the text of a case with a ``product`` to the product, each of its values read once by the reader of its key."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from pydantic import ValidationError

from optest.errors import Problem, did_you_mean, nearest
from optest.plan.problems import problem_at, problems_at
from optest.plan.product import (
    MAPPINGS,
    Axis,
    Product,
    Rows,
    Target,
    Unit,
    has_references,
    label_of,
    read_axes,
    references,
    reported,
    same,
    substituted,
)
from optest.plan.schema import CASE_PART, CaseEntry
from optest.plan.values import GeneratorChoice, Misfit, shown
from optest.plan.yaml_source import Path, Source

_Faults: TypeAlias = "dict[Path, Problem]"
_OTHER_DOLLARS = ("backend_config", "description")
"""Keys in which a ``$`` may be a shell's or a writer's own."""
_NEVER = ("name", "description", "product", "exclude")


def read_product(
    entry: Mapping[str, Any], path: Path, source: Source
) -> tuple[dict[str, Any], Product | None, _Faults]:
    """Part a case with a product into what any reader of a case can read, the product, and what is wrong with it.

    The product is None if its axes cannot be told; its ``fixed`` part is the caller's to fill in.
    """
    plain, written = _separate(entry)
    try:
        axes = read_axes(entry["product"])
    except Misfit:  # the reader of the case says it
        return {**_first_operator((), written), **plain}, None, {}
    index_of = {name: index for index, axis in enumerate(axes) for name in axis.names}
    units, misfits = _units_of_references(index_of, written)
    named, misnamed = _units_of_axes(axes, index_of, set(references(list(written.values()))))
    units += named
    misfits += [*misnamed, *_clashes(plain, axes, units)]
    # ``m=64`` for each row; for an axis of several names ``m=64, k=128``.
    labels = [
        [
            ", ".join(f"{name}={label_of(value)}" for name, value in zip(axis.names, row, strict=True))
            for row in axis.rows
        ]
        for axis in axes
    ]
    product = Product(path=path, axes=axes, units=tuple(units), labels=labels)
    product.lines = {axis.key: source.line_of((*path, "product", axis.key)) for axis in axes}
    faults: _Faults = {}
    for unit in units:
        where, what = f"{source.file}:{source.line_of(path)}", f"values of {'.'.join(unit.target)}"
        for rows, raw in reported(_raw_values(unit, axes), where, what):
            try:
                unit.values[rows] = _read_part(unit.target, raw)
            except ValidationError as error:  # noqa: PERF203 - all of them are wanted
                everywhere = unit.combination_with(rows, len(axes))
                faults.update(problems_at(error, source, path, partial(product.place, everywhere)))
    misfits += _exclude(entry.get("exclude"), product)
    for misfit in misfits:
        place = (*path, *misfit.path)
        faults.setdefault(place, problem_at(place, misfit, source))
    return {**_first_operator(axes, written), **plain}, None if misfits else product, faults


def _first_operator(axes: Sequence[Axis], written: Mapping[Target, Any]) -> dict[str, Any]:
    """A product over operators has no ``op`` of its own; whoever wants to see one sees the first."""
    for axis in axes:
        if "op" in axis.names:
            return {"op": axis.rows[0][axis.names.index("op")]}
    return {"op": written["op",]} if ("op",) in written else {}


def _raw_values(unit: Unit, axes: Sequence[Axis]) -> Iterator[tuple[Rows, Any]]:
    """What a unit is in each combination of its axes, as if it were written so."""
    for rows in itertools.product(*[range(len(axes[index].rows)) for index in unit.axes]):
        values: dict[str, Any] = {}
        for index, row in zip(unit.axes, rows, strict=True):
            values.update(zip(axes[index].names, axes[index].rows[row], strict=True))
        yield rows, values[".".join(unit.target)] if unit.own_axis is not None else substituted(unit.written, values)


def _read_part(target: Target, raw: Any) -> Any:
    """The value of the key at the head of ``target`` if nothing but this is stated."""
    for step in reversed(target[1:]):
        raw = {step: raw}
    return CASE_PART.validate_python({target[0]: raw})[target[0]]


def _separate(entry: Mapping[str, Any]) -> tuple[dict[str, Any], dict[Target, Any]]:
    """Part a case as written into what names no axis, and what does, by its place."""
    plain: dict[str, Any] = {}
    written: dict[Target, Any] = {}
    for key, value in entry.items():
        if key in ("product", "exclude") or not has_references(value):
            plain[key] = value
        elif key in MAPPINGS and isinstance(value, dict) and "fill" not in value:
            for name, each in value.items():
                if has_references(each):
                    written[key, name] = each
                else:
                    plain.setdefault(key, {})[name] = each
        else:
            written[key,] = value
    return plain, written


def _units_of_references(index_of: Mapping[str, int], written: Mapping[Target, Any]) -> tuple[list[Unit], list[Misfit]]:
    """The keys whose values name axes; ``index_of`` has the axis of each name."""
    units: list[Unit] = []
    misfits: list[Misfit] = []
    for target, value in written.items():
        names = list(dict.fromkeys(references(value)))
        unknown = [name for name in names if name not in index_of] if target[0] not in _OTHER_DOLLARS else []
        for name in unknown:
            near = next((each for each in index_of if name.startswith(each)), None) or nearest(name, index_of)
            hint = f"did you mean ${{{near}}}?" if near else f"axes: {', '.join(index_of)}"
            misfits.append(Misfit(f"${name} names no axis of the product", path=target, hint=hint))
        if not unknown:
            own = tuple(sorted({index_of[name] for name in names if name in index_of}))
            units.append(Unit(target=target, axes=own, written=value))
    return units, misfits


def _units_of_axes(
    axes: Sequence[Axis], index_of: Mapping[str, int], referenced: Collection[str]
) -> tuple[list[Unit], list[Misfit]]:
    """The keys that axes are called after; an axis that is no key has to be referred to."""
    keys = [key for key in CaseEntry.__annotations__ if key not in _NEVER]
    units: list[Unit] = []
    misfits: list[Misfit] = []
    for name, index in index_of.items():
        head, _, rest = name.partition(".")
        path: Path = ("product", axes[index].key)
        if head in _NEVER and not rest:
            misfits.append(Misfit(f"{name} is no key that a product can vary", path=path))
        elif (head in keys and not rest) or (head in MAPPINGS and rest):
            # backend_config.ascend.tile leads two steps down, every other key at most one
            below = rest.split(".", 1) if head == "backend_config" else [rest]
            target = (head, *below) if rest else (head,)
            units.append(Unit(target=target, axes=(index,), written=None, own_axis=index))
        elif rest:
            message = f"{head!r} of the axis {name} should be one of {', '.join(MAPPINGS)}"
            misfits.append(Misfit(message, path=path))
        elif name not in referenced:
            hint = did_you_mean(name, keys, f"write ${name} where its value is wanted, or attributes.{name}")
            message = f"the axis {name} is no key of a case, and nothing in the case names ${name}"
            misfits.append(Misfit(message, path=path, hint=hint))
    return units, misfits


def _parts_of(key: str, value: Any) -> list[Target]:
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


def _clashes(plain: Mapping[str, Any], axes: Sequence[Axis], units: Sequence[Unit]) -> list[Misfit]:
    """Keys that an axis brings and the case or another axis states too."""
    misfits: list[Misfit] = []
    stated: dict[Target, str] = {}
    for key, value in plain.items():
        if key not in ("product", "exclude"):
            stated.update(dict.fromkeys(_parts_of(key, value), "the case"))
    for unit in units:
        parts = [unit.target]
        path: Path = unit.target
        if unit.own_axis is not None:
            axis = axes[unit.own_axis]
            path = ("product", axis.key)
            if unit.target[0] in MAPPINGS and len(unit.target) == 1:
                # The names that the mappings of an axis hold; ``(key,)`` if one value is no mapping by name.
                key, column = unit.target[0], axis.names.index(unit.target[0])
                names = dict.fromkeys(part for row in axis.rows for part in _parts_of(key, row[column]))
                parts = [(key,)] if (key,) in names else list(names)
        for part in parts:
            clash = next((other for other in stated if other[: len(part)] == part[: len(other)]), None)
            if clash is not None:
                by = stated[clash]
                misfits.append(Misfit(f"{'.'.join(part)} is stated by the axis and by {by} too", path=path))
                break
        owner = f"the axis {axes[unit.own_axis].key!r}" if unit.own_axis is not None else "the case"
        stated.update(dict.fromkeys(parts, owner))
    return misfits


def _exclude(given: Any, product: Product) -> list[Misfit]:
    """Note the rows of each axis that every entry of ``exclude`` names; an entry that fits nothing is a slip."""
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        return []
    axes = product.axes
    index_of = {name: index for index, axis in enumerate(axes) for name in axis.names}
    found: list[dict[int, frozenset[int]]] = []
    misfits: list[Misfit] = []
    for place, entry in enumerate(given):
        those: dict[int, frozenset[int]] = {}
        for name, value in entry.items():
            path: Path = ("exclude", place, name)
            if name not in index_of:
                hint = did_you_mean(name, index_of, f"axes: {', '.join(index_of)}")
                misfits.append(Misfit(f"{name!r} is no axis of the product", path=path, hint=hint))
                continue
            axis = axes[index_of[name]]
            column = [values[axis.names.index(name)] for values in axis.rows]
            # The rows that have the value written alike, else those that mean the same, as half and float16 do.
            rows = frozenset(row for row, each in enumerate(column) if same(each, value))
            rows = rows or frozenset(row for row, each in enumerate(column) if _read_alike(name, each, value))
            if not rows:
                values = ", ".join(map(shown, column[:8]))
                message = f"{name} is {shown(value)}, but the axis has no such value"
                misfits.append(Misfit(message, path=path, hint=f"values: {values}"))
            those[index_of[name]] = rows & those.get(index_of[name], rows)
        if not entry:
            message = "an entry of exclude is empty, but should name a value of an axis"
            misfits.append(Misfit(message, path=("exclude",)))
        found.append(those)
    product.excluded = tuple(found)
    units = product.units
    if not misfits and units and all(unit.values for unit in units) and next(product.combinations(), None) is None:
        misfits.append(Misfit("exclude leaves no combination of the product", path=("exclude",)))
    return misfits


def _read_alike(name: str, one: Any, other: Any) -> bool:
    head, _, rest = name.partition(".")
    if head not in CaseEntry.__annotations__:
        return False
    try:
        first, second = (_read_part((head, rest) if rest else (head,), value) for value in (one, other))
    except ValidationError:
        return False
    return repr(first) == repr(second) if isinstance(first, GeneratorChoice) else bool(first == second)
