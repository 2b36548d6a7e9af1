"""All cases of a product, each with a name of its own that does not depend on the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from optest.plan.layers import PlanContext, Statement
from optest.plan.make_case import make_case
from optest.plan.operator_lookup import KnownOperator, KnownOperators
from optest.plan.product import Product, Rows, Unit
from optest.plan.values import Layout
from optest.spec import TestCase

_T = TypeVar("_T")
_ShownKeys = ("op", "dtypes", "shapes", "attributes")
"""Keys that a case's identifier shows."""
_Part: TypeAlias = "tuple[Callable[[Rows], Any] | None, dict[Any, Any]]"
"""Which rows of a combination a part depends on, None where no two combinations share it; and what was made of it."""

MAX_FAULTS = 1000
"""So many faulty combinations are enough to say what is wrong; a product may have a million of them."""


class CommonParts:
    """What combinations of one operator share: a part is made once for all with the same rows of the axes it needs.

    Parts with a fault are made again for each, which says of each what is wrong.
    """

    def __init__(self, product: Product) -> None:
        self._product = product
        self._parts: dict[Hashable, _Part] = {}
        self._varying = {index for index, axis in enumerate(product.axes) if len(axis.rows) > 1}

    def part(self, statement: Statement, name: Hashable, keys: Collection[str], make: Callable[[Statement], _T]) -> _T:
        """The part ``name``, which depends on these keys of the case alone."""
        rows_of, made = self._parts.get(name) or self._new(name, keys)
        if rows_of is None:
            return make(statement)
        rows = rows_of(statement.rows)
        if rows in made:
            found: _T = made[rows]
            return found
        before = statement.ledger.noted
        value = make(statement)
        if statement.ledger.noted == before and not statement.doubtful:
            made[rows] = value
        return value

    def _new(self, name: Hashable, keys: Collection[str]) -> _Part:
        axes = {axis for unit in self._product.units if unit.target[0] in keys for axis in unit.axes} & self._varying
        rows_of: Callable[[Rows], Any] | None = itemgetter(*sorted(axes)) if axes else lambda _: ()
        part = self._parts[name] = (rows_of if axes != self._varying else None, {})
        return part


class Expansion:
    """The cases of a product, in the order of its combinations."""

    def __init__(
        self,
        product: Product,
        context: PlanContext,
        known: KnownOperators,
        takes: Callable[[KnownOperator], bool],
    ) -> None:
        self.product = product
        self.context = context
        self.known = known
        self.takes = takes
        self._operators: dict[str, tuple[KnownOperator, CommonParts] | None] = {}
        self._op = next((unit for unit in product.units if unit.target == ("op",)), None)

    def cases(self) -> Iterator[tuple[TestCase, str, Rows]]:
        """Every case with what it is called and its combination."""
        product, ledger = self.product, self.context.ledger
        names = _Names.of(product)
        may_be_marked = bool(names.axes)
        set_name = TestCase.__dict__["name"].__set__  # nobody has seen the cases yet
        first: dict[str, Rows] = {}
        failed = 0
        for rows in product.combinations():
            ledger.combination = (product, rows)
            found = self._operator_of(rows)
            if found is None:
                continue
            operator, common = found
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
                # A name without a sign between its axes may mean two combinations: 1 and 11, 11 and 1.
                every = range(len(self.product.axes))
                words = " and ".join(f"({self.product.words(each, every)})" for each in (first[name], rows))
                message = f"the name {name!r} is that of two combinations: {words}"
                ledger.combination = None
                ledger.problem((*self.product.path, "name"), message, "put a sign between the axes: x${m}-${n}")
                continue
            yield case, name, rows
        ledger.combination = None

    def _operator_of(self, rows: Rows) -> tuple[KnownOperator, CommonParts] | None:
        """The operator of a combination with what its cases share; None if it is unknown or not wanted."""
        op = self.product.fixed["op"] if self._op is None else self._op.values[self._op.rows_of(rows)]
        if op not in self._operators:
            operator = self.known.get(op, (*self.product.path, "op"))
            is_wanted = operator is not None and self.takes(operator)
            self._operators[op] = (operator, CommonParts(self.product)) if operator and is_wanted else None
        return self._operators[op]


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
        hidden = frozenset(axis for unit in product.units if unit.target[0] not in _ShownKeys for axis in unit.axes)
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
