"""Read a case with a ``product``: each value of its axes once, by the reader of its key."""

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
    equal_as_written,
    has_references,
    label_of,
    read_axes,
    references,
    report_progress,
    substitute,
)
from optest.plan.schema import CASE_PART, CaseEntry
from optest.plan.values import GeneratorChoice, Misfit, shown
from optest.plan.yaml_source import Path, Source

_Problems: TypeAlias = "dict[Path, Problem]"
# Keys whose text may contain other dollar signs: shell commands, prose.
_OTHER_DOLLARS = ("backend_config", "description")
# Keys that no axis may vary.
_NEVER = ("name", "description", "product", "exclude")


def read_product(
    entry: Mapping[str, Any], path: Path, source: Source
) -> tuple[dict[str, Any], Product | None, _Problems]:
    """Return the keys without references as a case, the product, and its problems.

    The product is None if its axes, references or exclusions are wrong; the caller sets its ``fixed`` part.
    """
    plain, written = _separate(entry)
    try:
        axes = read_axes(entry["product"])
    except Misfit:
        # The schema of the case reads the same key and reports it.
        return {**_first_operator((), written), **plain}, None, {}
    index_of = {name: index for index, axis in enumerate(axes) for name in axis.names}
    units, misfits = _units_of_references(index_of, written)
    named, misnamed = _units_of_axes(axes, index_of, set(references(list(written.values()))))
    units += named
    misfits += [*misnamed, *_clashes(plain, axes, units)]
    # `m=64` for each row; `m=64, k=128` for an axis of two names.
    labels = [
        [", ".join(f"{name}={label_of(x)}" for name, x in zip(axis.names, row, strict=True)) for row in axis.rows]
        for axis in axes
    ]
    product = Product(path=path, axes=axes, units=tuple(units), labels=labels)
    product.lines = {axis.key: source.line_of((*path, "product", axis.key)) for axis in axes}
    problems: _Problems = {}
    for unit in units:
        where, what = f"{source.file}:{source.line_of(path)}", f"values of {'.'.join(unit.target)}"
        for rows, raw in report_progress(_raw_values(unit, axes), where, what):
            try:
                unit.values[rows] = _read_part(unit.target, raw)
            except ValidationError as error:  # noqa: PERF203 - all of them are wanted
                combination = unit.combination_with(rows, len(axes))
                problems.update(problems_at(error, source, path, partial(product.place, combination)))
    misfits += _exclude(entry.get("exclude"), product)
    for misfit in misfits:
        place = (*path, *misfit.path)
        problems.setdefault(place, problem_at(place, misfit, source))
    return {**_first_operator(axes, written), **plain}, None if misfits else product, problems


def _first_operator(axes: Sequence[Axis], written: Mapping[Target, Any]) -> dict[str, Any]:
    """Return the `op` of the first combination if it varies, for readers of a case that need one; else {}."""
    for axis in axes:
        if "op" in axis.names:
            return {"op": axis.rows[0][axis.names.index("op")]}
    return {"op": written["op",]} if ("op",) in written else {}


def _raw_values(unit: Unit, axes: Sequence[Axis]) -> Iterator[tuple[Rows, Any]]:
    """Yield the unread value of a unit for each combination of its axes, with references replaced."""
    for rows in itertools.product(*[range(len(axes[index].rows)) for index in unit.axes]):
        values: dict[str, Any] = {}
        for index, row in zip(unit.axes, rows, strict=True):
            values.update(zip(axes[index].names, axes[index].rows[row], strict=True))
        yield rows, values[".".join(unit.target)] if unit.own_axis is not None else substitute(unit.written, values)


def _read_part(target: Target, raw: Any) -> Any:
    """Return the value of the key ``target[0]``, read with only ``raw`` at ``target``; raise ValidationError."""
    for step in reversed(target[1:]):
        raw = {step: raw}
    return CASE_PART.validate_python({target[0]: raw})[target[0]]


def _separate(entry: Mapping[str, Any]) -> tuple[dict[str, Any], dict[Target, Any]]:
    """Return the keys without references, and the values with references by key, or key and name."""
    plain: dict[str, Any] = {}
    written: dict[Target, Any] = {}
    for key, value in entry.items():
        if key in ("product", "exclude") or not has_references(value):
            plain[key] = value
        elif key in MAPPINGS and isinstance(value, dict) and "fill" not in value:
            for name, part in value.items():
                if has_references(part):
                    written[key, name] = part
                else:
                    plain.setdefault(key, {})[name] = part
        else:
            written[key,] = value
    return plain, written


def _units_of_references(index_of: Mapping[str, int], written: Mapping[Target, Any]) -> tuple[list[Unit], list[Misfit]]:
    """Return a unit for each value with references, and misfits for names that are no axis."""
    units: list[Unit] = []
    misfits: list[Misfit] = []
    for target, value in written.items():
        names = list(dict.fromkeys(references(value)))
        unknown = [name for name in names if name not in index_of] if target[0] not in _OTHER_DOLLARS else []
        for name in unknown:
            # $m2x for ${m}2x is the usual slip.
            near = next((x for x in index_of if name.startswith(x)), None) or nearest(name, index_of)
            hint = f"did you mean ${{{near}}}?" if near else f"axes: {', '.join(index_of)}"
            misfits.append(Misfit(f"${name} is no axis of the product", path=target, hint=hint))
        if not unknown:
            used = tuple(sorted({index_of[name] for name in names if name in index_of}))
            units.append(Unit(target=target, axes=used, written=value))
    return units, misfits


def _units_of_axes(
    axes: Sequence[Axis], index_of: Mapping[str, int], referenced: Collection[str]
) -> tuple[list[Unit], list[Misfit]]:
    """Return a unit for each axis named after a key, and misfits for other axes without a reference to them."""
    keys = [key for key in CaseEntry.__annotations__ if key not in _NEVER]
    units: list[Unit] = []
    misfits: list[Misfit] = []
    for name, index in index_of.items():
        head, _, rest = name.partition(".")
        path: Path = ("product", axes[index].key)
        if head in _NEVER and not rest:
            misfits.append(Misfit(f"{name} cannot vary in a product", path=path, hint=f"remove the axis {name}"))
        elif (head in keys and not rest) or (head in MAPPINGS and rest):
            # backend_config.ascend.tile is two levels below its key, every other name one.
            below = rest.split(".", 1) if head == "backend_config" else [rest]
            target = (head, *below) if rest else (head,)
            units.append(Unit(target=target, axes=(index,), written=None, own_axis=index))
        elif rest:
            message = f"{head!r} of the axis {name} is no mapping, expected one of {', '.join(MAPPINGS)}"
            misfits.append(Misfit(message, path=path))
        elif name not in referenced:
            hint = did_you_mean(name, keys, f"use its value as ${name}, or write attributes.{name}")
            message = f"the axis {name} is no key of a case, and no value of the case uses ${name}"
            misfits.append(Misfit(message, path=path, hint=hint))
    return units, misfits


def _parts_of(key: str, value: Any) -> list[Target]:
    """Return the parts of a case that a key's value sets, as axes would name them."""
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
    """Return a misfit for each part of the case that an axis sets and the case or another axis sets too."""
    misfits: list[Misfit] = []
    owners: dict[Target, str] = {}
    for key, value in plain.items():
        if key not in ("product", "exclude"):
            owners.update(dict.fromkeys(_parts_of(key, value), "the case"))
    for unit in units:
        parts = [unit.target]
        path: Path = unit.target
        if unit.own_axis is not None:
            axis = axes[unit.own_axis]
            path = ("product", axis.key)
            if unit.target[0] in MAPPINGS and len(unit.target) == 1:
                # The names in the mappings of an axis; the whole key if one value is no mapping by name.
                key, column = unit.target[0], axis.names.index(unit.target[0])
                names = dict.fromkeys(part for row in axis.rows for part in _parts_of(key, row[column]))
                parts = [(key,)] if (key,) in names else list(names)
        for part in parts:
            clash = next((x for x in owners if x[: len(part)] == part[: len(x)]), None)
            if clash is not None:
                message = f"{'.'.join(part)} is set by the axis and also by {owners[clash]}"
                misfits.append(Misfit(message, path=path, hint="keep one of them"))
                break
        owner = f"the axis {axes[unit.own_axis].key!r}" if unit.own_axis is not None else "the case"
        owners.update(dict.fromkeys(parts, owner))
    return misfits


def _exclude(entries: Any, product: Product) -> list[Misfit]:
    """Set the product's exclusions, as the rows of each axis that an entry names; return misfits of the entries."""
    if not isinstance(entries, list) or not all(isinstance(x, dict) for x in entries):
        return []
    axes = product.axes
    index_of = {name: index for index, axis in enumerate(axes) for name in axis.names}
    excluded: list[dict[int, frozenset[int]]] = []
    misfits: list[Misfit] = []
    for place, entry in enumerate(entries):
        rows_of: dict[int, frozenset[int]] = {}
        for name, value in entry.items():
            path: Path = ("exclude", place, name)
            if name not in index_of:
                hint = did_you_mean(name, index_of, f"axes: {', '.join(index_of)}")
                misfits.append(Misfit(f"{name!r} is no axis of the product", path=path, hint=hint))
                continue
            axis = axes[index_of[name]]
            column = [values[axis.names.index(name)] for values in axis.rows]
            # The rows with the same text, else those with the same meaning, such as half and float16.
            rows = frozenset(row for row, x in enumerate(column) if equal_as_written(x, value))
            rows = rows or frozenset(row for row, x in enumerate(column) if _equal_as_read(name, x, value))
            if not rows:
                values = ", ".join(map(shown, column[:8]))
                message = f"{name} is {shown(value)}, but the axis has no such value"
                misfits.append(Misfit(message, path=path, hint=f"values: {values}"))
            rows_of[index_of[name]] = rows & rows_of.get(index_of[name], rows)
        if not entry:
            message = "an entry of exclude is empty, expected a value of an axis"
            misfits.append(Misfit(message, path=("exclude",)))
        excluded.append(rows_of)
    product.excluded = tuple(excluded)
    units = product.units
    if not misfits and units and all(unit.values for unit in units) and next(product.combinations(), None) is None:
        misfits.append(Misfit("exclude leaves no combination of the product", path=("exclude",)))
    return misfits


def _equal_as_read(name: str, first_raw: Any, second_raw: Any) -> bool:
    head, _, rest = name.partition(".")
    if head not in CaseEntry.__annotations__:
        return False
    try:
        first, second = (_read_part((head, rest) if rest else (head,), raw) for raw in (first_raw, second_raw))
    except ValidationError:
        return False
    return repr(first) == repr(second) if isinstance(first, GeneratorChoice) else bool(first == second)
