"""All cases of a product, each with a name of its own that does not depend on the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from optest.plan.forms import Layout
from optest.plan.making import Maker
from optest.plan.products import SEEN, Product, Rows, Unit
from optest.plan.statement import KnownOperators
from optest.spec import TestCase

__all__ = ["Expansion"]

MAX_FAULTS = 1000
"""So many faults are enough to say; a product may have a million combinations, each wrong in its own way."""


class Expansion:
    """The cases of a product, in the order of its combinations."""

    def __init__(self, product: Product, maker: Maker, known: KnownOperators, takes: Callable[[str], bool]) -> None:
        self.product = product
        self.maker = maker
        self.known = known
        self.takes = takes
        self.names = _Names.of(product)

    def cases(self) -> Iterator[tuple[TestCase, str, Rows]]:
        """Every case with what it is called and its combination."""
        ledger = self.maker.ledger
        for rows in self.product.combinations():
            if len(ledger.problems) > MAX_FAULTS:
                break
            ledger.combination = (self.product, rows)
            case = self._one(rows)
            if case is not None:
                yield case, case.id, rows
        ledger.combination = None

    def _one(self, rows: Rows) -> TestCase | None:
        """As if the combination were written out; the other ways to make a case are held against this one."""
        entry = self.product.entry(rows)
        operator = self.known.get(entry["op"], (*self.product.path, "op"))
        if operator is None or not self.takes(operator.name):
            return None
        case = self.maker.make(self.maker.statement(operator, entry, self.product.path))
        if case is None or not self.names.axes:
            return case
        return dataclasses.replace(case, name=self.names.name(case.id, rows))


@dataclasses.dataclass(frozen=True, slots=True)
class _Names:
    """How the cases of a product are told apart: by what they compute, and by the axes that do not show in that."""

    product: Product
    axes: tuple[int, ...]
    """The axes that are named after the case's own name or identifier."""
    is_named: bool

    @classmethod
    def of(cls, product: Product) -> _Names:
        """A case with a ``name`` is told apart by all axes that its name does not hold."""
        every = range(len(product.axes))
        own = next((unit.axes for unit in product.units if unit.target == ("name",)), ())
        if own or "name" in product.fixed:
            return cls(product, tuple(axis for axis in every if axis not in own), is_named=True)
        hidden = {axis for unit in product.units if not _shows(unit) for axis in unit.axes}
        return cls(product, tuple(axis for axis in every if axis in hidden), is_named=False)

    def name(self, own: str, rows: Rows) -> str:
        """``square[m=64]`` or ``add[float32](2x3, 2x3) {seed=1}``."""
        if not self.axes:
            return own
        words = self.product.words(rows, self.axes)
        return f"{own}[{words}]" if self.is_named else f"{own} {{{words}}}"


def _shows(unit: Unit) -> bool:
    """Whether the identifier of a case tells the unit's values apart; it has shapes, but no strides."""
    if unit.target[0] not in SEEN:
        return False
    layouts = unit.values.values() if unit.target[0] == "shapes" else ()
    return not any(_has_strides(layout) for layout in layouts)


def _has_strides(value: Layout | Mapping[str, Layout]) -> bool:
    if isinstance(value, Layout):
        return value.strides is not None or value.offset != 0
    return any(map(_has_strides, value.values()))
