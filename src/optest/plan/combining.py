"""From the text of a case with a ``product`` to the product, each of its values read once by the reader of its key."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeAlias

from pydantic import ValidationError

from optest.errors import Problem
from optest.plan.axes import Axis, read_axes
from optest.plan.entries import CASE_PART, CaseEntry
from optest.plan.forms import GeneratorChoice, Misfit
from optest.plan.misfits import problem_at, problems_at
from optest.plan.products import (
    MAPPINGS,
    Product,
    Target,
    Unit,
    exclusions,
    labels_of,
    parts_of,
    raw_values,
    separate,
    units_of,
)
from optest.plan.source import Path, Source

__all__ = ["Draft", "draft_of", "product_of"]

_Faults: TypeAlias = "dict[Path, Problem]"


class Draft:
    """A case with a product before its values are read: ``plain`` is what any reader of a case can read."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.plain, self.written = separate(entry)
        self.excluded = entry.get("exclude")
        try:
            self.axes: tuple[Axis, ...] = read_axes(entry["product"])
        except Misfit:  # the reader of the case says it
            self.axes = ()
        self.states_operator = "op" in self.plain
        if not self.states_operator:
            self.plain.update(self._first_operator())

    def _first_operator(self) -> dict[str, Any]:
        """A product over operators has no ``op`` of its own; whoever wants to see one sees the first."""
        for axis in self.axes:
            if "op" in axis.names:
                return {"op": axis.rows[0][axis.names.index("op")]}
        return {"op": self.written["op",]} if ("op",) in self.written else {}


def draft_of(entry: Any) -> Draft | None:
    return Draft(entry) if isinstance(entry, dict) and "product" in entry else None


def product_of(draft: Draft, path: Path, source: Source) -> tuple[Product | None, _Faults]:
    """Read the values of a product; None if its axes cannot be told. ``fixed`` is the caller's to fill in."""
    if not draft.axes:
        return None, {}
    units, misfits = units_of(draft.axes, draft.written, CaseEntry.__annotations__)
    misfits += _clashes(draft, units)
    product = Product(path=path, axes=draft.axes, units=tuple(units), labels=labels_of(draft.axes))
    product.lines = {axis.key: source.line_of((*path, "product", axis.key)) for axis in draft.axes}
    faults: _Faults = {}
    for unit in units:
        _read(unit, product, source, faults)
    misfits += _exclude(draft, product)
    for misfit in misfits:
        place = (*path, *misfit.path)
        faults.setdefault(place, problem_at(place, misfit, source))
    return None if misfits else product, faults


def _read(unit: Unit, product: Product, source: Source, faults: _Faults) -> None:
    """Read what a unit is for every combination of its axes; faults go to where the value was written."""
    for rows, raw in raw_values(unit, product.axes):
        try:
            unit.values[rows] = _read_part(unit.target, raw)
        except ValidationError as error:  # noqa: PERF203 - all of them are wanted
            row_of = dict(zip(unit.axes, rows, strict=True))
            everywhere = tuple(row_of.get(axis, 0) for axis in range(len(product.axes)))
            faults.update(problems_at(error, source, product.path, partial(product.place, everywhere)))


def _read_part(target: Target, raw: Any) -> Any:
    """The value of the key at the head of ``target`` if nothing but this is stated."""
    for step in reversed(target[1:]):
        raw = {step: raw}
    return CASE_PART.validate_python({target[0]: raw})[target[0]]


def _clashes(draft: Draft, units: list[Unit]) -> list[Misfit]:
    """Keys that an axis brings and the case or another axis states too."""
    misfits: list[Misfit] = []
    stated: dict[Target, str] = {}
    for key, value in draft.plain.items():
        if key in ("product", "exclude") or (key == "op" and not draft.states_operator):
            continue
        stated.update(dict.fromkeys(parts_of(key, value), "the case"))
    for unit in units:
        parts = [unit.target]
        path: Path = unit.target
        if unit.own_axis is not None:
            axis = draft.axes[unit.own_axis]
            path = ("product", axis.key)
            if unit.target[0] in MAPPINGS and len(unit.target) == 1:
                parts = _parts_of_rows(unit.target[0], axis)
        for part in parts:
            clash = next((other for other in stated if other[: len(part)] == part[: len(other)]), None)
            if clash is not None:
                by = stated[clash]
                misfits.append(Misfit(f"{'.'.join(part)} is stated by the axis and by {by} too", path=path))
                break
        owner = f"the axis {draft.axes[unit.own_axis].key!r}" if unit.own_axis is not None else "the case"
        stated.update(dict.fromkeys(parts, owner))
    return misfits


def _parts_of_rows(key: str, axis: Axis) -> list[Target]:
    """The names that the mappings of an axis hold; ``(key,)`` if one value is no mapping by name."""
    column = axis.names.index(key)
    parts = dict.fromkeys(part for row in axis.rows for part in parts_of(key, row[column]))
    return [(key,)] if (key,) in parts else list(parts)


def _exclude(draft: Draft, product: Product) -> list[Misfit]:
    stated = draft.excluded
    if not isinstance(stated, list) or not all(isinstance(each, dict) for each in stated):
        return []
    excluded, misfits = exclusions(product.axes, stated, _read_alike)
    product.excluded = tuple(excluded)
    if (
        not misfits
        and product.units
        and next(product.combinations(), None) is None
        and all(unit.values for unit in product.units)
    ):
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
