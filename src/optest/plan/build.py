"""Cases from plans and the command line: every value gets its layer, and every fault is found before anything runs.

The command line wins over the case, the case over the plan's defaults, those over the operator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optest.errors import UsageError
from optest.plan.checks import (
    check_backend_names,
    check_defaults,
    check_names,
    config_place,
    options_of_others,
    refuse_untrusted,
)
from optest.plan.expansion import Expansion
from optest.plan.fills import FillCheck
from optest.plan.making import Maker
from optest.plan.products import Product
from optest.plan.request import CaseRequest
from optest.plan.shared import gather_shared
from optest.plan.source import Path
from optest.plan.statement import Entry, KnownOperator, KnownOperators, Ledger, Operators
from optest.spec import BackendTarget, Fill, TestCase
from optest.spec.construct import collection_paused

if TYPE_CHECKING:
    from optest.plan.schema import PlanDocument

__all__ = ["Operators", "build_cases"]


def build_cases(
    document: PlanDocument | None,
    request: CaseRequest,
    *,
    operators: Operators,
    target_of: Callable[[str, str | None], BackendTarget],
    check_fill: Callable[[Fill], object],
    check_backend: Callable[[TestCase], Sequence[str]],
    dtypes_of: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda _: {},
    check_hook: Callable[[str], object] = lambda _: None,
    backend_names: Collection[str] | None = None,
    default_timeout_s: float | None = None,
) -> list[TestCase]:
    """Return the cases of a plan under the command line's overrides, or one case for each ``--op``.

    Args:
        target_of: backend by name or kind, and chip, to a target; raises ``UnknownName``.
        check_fill: raises ``UsageError`` or ``UnknownName`` for a fill that does not exist or has wrong parameters.
        check_backend: what is wrong with a case's ``backend_config``.
        dtypes_of: dtypes by tensor that the backend's options of a case state, for cases without ``dtypes``.
        check_hook: raises ``UsageError`` for an import path of a generator or reference that leads nowhere.
        backend_names: the keys that ``backend_config`` may have; None does not check them.
        default_timeout_s: the deadline of cases for which nobody states one.

    Raises:
        PlanError: with everything that is wrong with the form of the files, their cases and the flags, in the order
            of lines.
        UsageError: if neither a plan nor an operator is named.
        Unavailable: from ``target_of``.
    """
    if document is None and not request.ops:
        raise UsageError("nothing to run: name a plan with --plan FILE or an operator with --op NAME")
    ledger = Ledger()
    documents = document.family() if document is not None else []
    with collection_paused():
        plans = gather_shared(document, request, ledger, target_of)
        known = KnownOperators(operators, ledger)
        fills = FillCheck(check_fill, ledger, check_hook)
        selection = _Selection(request, known)
        check = check_backend if plans[-1].is_target_known else lambda _: ()
        gathering = _Gathering(known, selection, check)
        for shared in plans:
            maker = Maker(shared, request, fills, ledger, dtypes_of, default_timeout_s)
            with ledger.reading(shared.source):
                gathering.take_plan(maker)
                if shared is plans[-1]:
                    gathering.take_flags(maker)
        for shared in plans:
            with ledger.reading(shared.source):
                refuse_untrusted(shared, plans[-1], ledger)
        check_defaults(plans, known, ledger)
        check_names(documents, ledger)
        if backend_names is not None:
            check_backend_names(plans, backend_names, ledger)
        problems = document.problems if document is not None else ()
        ledger.refuse(problems, [each.path for each in documents])
        return gathering.with_unique_ids()


class _Selection:
    """The operators that ``--op`` names, and which of them the plans have."""

    def __init__(self, request: CaseRequest, known: KnownOperators) -> None:
        self.wanted = {name: known.get(name, "--op") for name in request.ops}
        self._names = {name for each in self.wanted.values() if each is not None for name in each.meanings}
        self.found: set[str] = set()
        self.every_op_is_known = True

    def takes(self, operator: KnownOperator) -> bool:
        """Whether cases of this operator are wanted, or some of those that a spelling may stand for."""
        if not self.wanted:
            return True
        wanted = operator.meanings & self._names
        self.found |= wanted
        return bool(wanted)

    def takes_case(self, case: TestCase) -> bool:
        return not self.wanted or case.descriptor.name in self._names


class _Gathering:
    """The cases of all plans in order, with the name that each has or would have."""

    def __init__(
        self, known: KnownOperators, selection: _Selection, check_backend: Callable[[TestCase], Sequence[str]]
    ) -> None:
        self._known = known
        self._selection = selection
        self._check_backend = check_backend
        self._cases: list[TestCase] = []
        self._names: list[str] = []
        """What each case is called; "" if a person named it so, letter by letter."""

    def take_plan(self, maker: Maker) -> None:
        """Add the cases of one plan; of one that is wrong as much is checked as can be, and it may be left out."""
        document = maker.shared.document
        if document is None:
            return
        entries: Sequence[Entry] = document.cases
        for index, entry in enumerate(entries):
            path: Path = ("cases", index)
            if not entry:
                self._selection.every_op_is_known = False
                continue
            if document.is_product(index):
                self._take_product(maker, document.product(index), entry["op"], path)
                continue
            operator = self._known.get(entry["op"], (*path, "op"))
            if operator is not None and self._selection.takes(operator):
                self._take(maker, maker.make(maker.statement(operator, entry, path)), path)

    def take_flags(self, maker: Maker) -> None:
        """Add one case for each operator that was asked for and that no plan has."""
        selection = self._selection
        for name, operator in selection.wanted.items() if selection.every_op_is_known else ():
            if operator is not None and operator.meanings.isdisjoint(selection.found):
                selection.found |= operator.meanings
                self._take(maker, maker.make(maker.statement(operator, {"op": name}, ())), ())

    def _take(self, maker: Maker, case: TestCase | None, path: Path) -> None:
        if case is None or not self._selection.takes_case(case):
            return
        if messages := self._check_backend(case):
            self._object(maker, case, path, messages)
        self._cases.append(case)
        self._names.append("" if case.name else case.identifier())

    def _take_product(self, maker: Maker, product: Product | None, op: str, path: Path) -> None:
        if product is None:
            self._known.get(op, (*path, "op"))
            return
        add, add_name, check = self._cases.append, self._names.append, self._check_backend
        for case, name, rows in Expansion(product, maker, self._known, self._selection.takes).cases():
            if not self._selection.takes_case(case):
                continue
            if messages := check(case):
                self._object(maker, case, path, messages, product.entry(rows))
            add(case)
            add_name(name)

    def _object(
        self, maker: Maker, case: TestCase, path: Path, messages: Sequence[str], entry: Entry | None = None
    ) -> None:
        """Say what the backend has against a case; ``entry`` is that of a combination."""
        place = config_place(case, path, maker.shared.document, entry)
        for message in messages:
            maker.ledger.problem(place, message, options_of_others(case))

    def with_unique_ids(self) -> list[TestCase]:
        """The cases; of those that would be called alike, the later ones are called ``#2``, ``#3`` and so on."""
        unique = self._cases
        if len(set(self._names)) == len(unique) and all(self._names):
            return unique
        taken = {case.name: 1 for case, name in zip(unique, self._names, strict=True) if not name}
        for place, name in enumerate(self._names):
            if not name:
                continue
            if name not in taken:
                taken[name] = 1
                continue
            count = taken[name] + 1
            while (numbered := _numbered(name, count)) in taken:
                count += 1
            taken[name] = count
            taken[numbered] = 1
            unique[place] = dataclasses.replace(unique[place], name=numbered)
        return unique


def _numbered(identifier: str, count: int) -> str:
    return identifier if count == 1 else f"{identifier}#{count}"
