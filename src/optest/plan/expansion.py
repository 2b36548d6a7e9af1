"""All cases of a product, each with a name of its own that does not depend on the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping

from optest.plan.forms import Layout
from optest.plan.making import Maker
from optest.plan.products import SEEN, Product, Rows, Unit, remembered
from optest.plan.shortcut import Shortcut
from optest.plan.statement import KnownOperator, KnownOperators
from optest.spec import TestCase

__all__ = ["Expansion"]

MAX_FAULTS = 1000
"""So many faulty combinations are enough to say what is wrong; a product may have a million of them."""


class Expansion:
    """The cases of a product, in the order of its combinations."""

    def __init__(
        self, product: Product, maker: Maker, known: KnownOperators, takes: Callable[[KnownOperator], bool]
    ) -> None:
        self.product = product
        self.maker = maker
        self.known = known
        self.takes = takes
        self._ways: dict[str, Callable[[Rows], TestCase | None] | None] = {}
        self._op = next((unit for unit in product.units if unit.target == ("op",)), None)

    def cases(self) -> Iterator[tuple[TestCase, str, Rows]]:
        """Every case with what it is called and its combination."""
        product, ledger, ways = self.product, self.maker.ledger, self._ways
        names = _Names.of(product)
        mark = remembered(names.axes, names.mark)
        set_name = TestCase.__dict__["name"].__set__  # nobody has seen the cases yet
        first: dict[str, Rows] = {}
        failed = 0
        for rows in product.combinations():
            ledger.combination = (product, rows)
            op = product.fixed["op"] if self._op is None else self._op.values[self._op.rows_of(rows)]
            way = ways[op] if op in ways else self._way_of(op, rows)
            if way is None:
                continue
            case = way(rows)
            if case is None:
                failed += 1
                if failed > MAX_FAULTS and ledger.problems:
                    break
                continue
            name = case.id
            if names.axes:
                name += mark(rows)
                set_name(case, name)
            if names.is_named and first.setdefault(name, rows) is not rows:
                self._object_to(name, first[name], rows)
                continue
            yield case, name, rows
        ledger.combination = None

    def _object_to(self, name: str, one: Rows, other: Rows) -> None:
        """A name without a sign between its axes may say the same of two combinations: 1 and 11, 11 and 1."""
        every = range(len(self.product.axes))
        words = " and ".join(f"({self.product.words(rows, every)})" for rows in (one, other))
        message = f"the name {name!r} is that of two combinations: {words}"
        self.maker.ledger.combination = None
        self.maker.ledger.problem((*self.product.path, "name"), message, "put a sign between the axes: x${m}-${n}")

    def _way_of(self, op: str, rows: Rows) -> Callable[[Rows], TestCase | None] | None:
        """How the cases of an operator are made; None if it is unknown or not wanted."""
        operator = self.known.get(op, (*self.product.path, "op"))
        way = None
        if operator is not None and self.takes(operator):
            way = self._way(operator, Shortcut.of(operator, self.product, self.maker, rows))
        self._ways[op] = way
        return way

    def _way(self, operator: KnownOperator, shortcut: Shortcut | None) -> Callable[[Rows], TestCase | None]:
        def go_the_long_way(rows: Rows) -> TestCase | None:
            """As if the combination were written out."""
            return self.maker.make(self.maker.statement(operator, self.product.entry(rows), self.product.path))

        if shortcut is None:
            return go_the_long_way
        return lambda rows: shortcut.case(rows) or go_the_long_way(rows)


@dataclasses.dataclass(frozen=True, slots=True)
class _Names:
    """How the cases of a product are told apart: by what they compute, and by the axes that do not show in that."""

    product: Product
    hidden: frozenset[int]
    """The axes that are named after every case's own name or identifier."""
    strided: tuple[Unit, ...] = ()
    """Shapes of which some have strides, which an identifier does not show: named for the cases that have them."""
    is_named: bool = False

    @classmethod
    def of(cls, product: Product) -> _Names:
        """A case with a ``name`` is told apart by all axes that its name does not hold."""
        own = next((unit.axes for unit in product.units if unit.target == ("name",)), ())
        if own or "name" in product.fixed:
            return cls(product, frozenset(range(len(product.axes))).difference(own), is_named=True)
        hidden = frozenset(axis for unit in product.units if unit.target[0] not in SEEN for axis in unit.axes)
        strided = (unit for unit in product.units if unit.target[0] == "shapes" and not hidden.issuperset(unit.axes))
        return cls(product, hidden, tuple(unit for unit in strided if any(map(_has_strides, unit.values.values()))))

    @property
    def axes(self) -> frozenset[int]:
        """The axes that a mark may name."""
        return self.hidden.union(*[unit.axes for unit in self.strided])

    def mark(self, rows: Rows) -> str:
        """What is put after a name: ``square[m=64]`` or ``add[float32](2x3, 2x3) {seed=1}``."""
        strided = [unit.axes for unit in self.strided if _has_strides(unit.values[unit.rows_of(rows)])]
        axes = sorted(self.hidden.union(*strided))
        if not axes:
            return ""
        words = self.product.words(rows, axes)
        return f"[{words}]" if self.is_named else f" {{{words}}}"


def _has_strides(value: Layout | Mapping[str, Layout]) -> bool:
    if isinstance(value, Layout):
        return value.strides is not None or value.offset != 0
    return any(map(_has_strides, value.values()))
