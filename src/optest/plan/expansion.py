"""Cases of a product, each with a unique name that does not depend on the other cases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from optest.plan.layers import CommonParts, PlanContext, Statement
from optest.plan.make_case import make_case
from optest.plan.operator_lookup import KnownOperator, KnownOperators
from optest.plan.product import Product, Rows, Unit
from optest.plan.select import Wanted
from optest.plan.values import Layout
from optest.spec import TestCase

# Keys that a case's identifier shows.
_ShownKeys = ("op", "dtypes", "shapes", "attributes")

# Faulty combinations after which a product stops: enough to explain the mistake; a product may have a million.
MAX_FAULTS = 1000


class Expansion:
    """Iterator over the cases of a product, in the order of its combinations."""

    def __init__(
        self,
        product: Product,
        context: PlanContext,
        known: KnownOperators,
        takes: Callable[[KnownOperator], bool],
        wanted: Wanted | None = None,
    ) -> None:
        self.product = product
        self.context = context
        self.known = known
        self.takes = takes
        self.wanted = wanted
        self._operators: dict[str, tuple[KnownOperator, CommonParts] | None] = {}
        self._op = next((unit for unit in product.units if unit.target == ("op",)), None)

    def cases(self) -> Iterator[tuple[TestCase, str, Rows]]:
        """Yield each case with its name and its combination; note problems of wrong combinations."""
        product, ledger = self.product, self.context.ledger
        names = _Names.of(product)
        may_be_marked = bool(names.axes)
        # Bypasses the frozen class, far faster than `replace`; no other code holds these cases yet.
        set_name = TestCase.__dict__["name"].__set__
        first: dict[str, Rows] = {}
        failed = 0
        for rows in product.combinations():
            ledger.combination = (product, rows)
            operator_of_case = self._operator_of(rows)
            if operator_of_case is None:
                continue
            operator, common = operator_of_case
            # Not the whole id: marks and numbers may follow.
            if self.wanted is not None and not self.wanted(names.name_of(rows) or operator.id_head, False):
                continue
            statement = Statement(operator, product.path, self.context, partial(product.entry, rows), common, rows)
            case = make_case(statement)
            if case is None:
                failed += 1
                if failed > MAX_FAULTS and ledger.problems:
                    break
                continue
            name = case.id
            if may_be_marked:
                name += names.mark(rows)
                set_name(case, name)
            if names.is_named and first.setdefault(name, rows) is not rows:
                # A name without a separator between its axes is ambiguous: 1 and 11, 11 and 1.
                every = range(len(self.product.axes))
                words = " and ".join(f"({self.product.words(x, every)})" for x in (first[name], rows))
                message = f"the name {name!r} belongs to two combinations: {words}"
                ledger.combination = None
                ledger.problem((*self.product.path, "name"), message, "write a separator between the axes: x${m}-${n}")
                continue
            yield case, name, rows
        ledger.combination = None

    def _operator_of(self, rows: Rows) -> tuple[KnownOperator, CommonParts] | None:
        """Return the operator of a combination with its shared parts; None if it is unknown or not selected."""
        op = self.product.fixed["op"] if self._op is None else self._op.values[self._op.rows_of(rows)]
        if op not in self._operators:
            operator = self.known.get(op, (*self.product.path, "op"))
            is_wanted = operator is not None and self.takes(operator)
            self._operators[op] = (operator, CommonParts(self.product)) if operator and is_wanted else None
        return self._operators[op]


@dataclasses.dataclass(frozen=True, slots=True)
class _Names:
    """The axes that the names of a product's cases must mention."""

    product: Product
    # Axes that the case's name or identifier does not show: added to every name.
    hidden: frozenset[int]
    # Shapes with strides in some combinations, which an identifier does not show: added to the names of those.
    strided: tuple[Unit, ...] = ()
    is_named: bool = False

    @classmethod
    def of(cls, product: Product) -> _Names:
        """Return the axes to mention: with a `name` key those that it does not use, else those not in identifiers."""
        in_name = next((unit.axes for unit in product.units if unit.target == ("name",)), ())
        if in_name or "name" in product.fixed:
            return cls(product, frozenset(range(len(product.axes))).difference(in_name), is_named=True)
        hidden = frozenset(axis for unit in product.units if unit.target[0] not in _ShownKeys for axis in unit.axes)
        strided = (unit for unit in product.units if unit.target[0] == "shapes" and not hidden.issuperset(unit.axes))
        return cls(product, hidden, tuple(unit for unit in strided if any(map(_has_strides, unit.values.values()))))

    @property
    def axes(self) -> frozenset[int]:
        """Axes that a suffix may mention."""
        return self.hidden.union(*[unit.axes for unit in self.strided])

    def name_of(self, rows: Rows) -> str:
        """Return the value of `name` in a combination, "" if the case has no such value."""
        unit = next((unit for unit in self.product.units if unit.target == ("name",)), None)
        name: str = self.product.fixed.get("name", "") if unit is None else unit.values[unit.rows_of(rows)]
        return name

    def mark(self, rows: Rows) -> str:
        """Return the suffix of a name, as in `square[m=64]` or `add[float32](2x3, 2x3) {seed=1}`; "" if none."""
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
