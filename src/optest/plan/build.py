"""Cases from plans and the command line: every value gets its layer, and every fault is found before anything runs.

The command line wins over the case, the case over the plan's defaults, those over the operator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from optest.errors import UsageError
from optest.plan.checks import (
    check_backend_names,
    check_defaults,
    check_names,
    config_place,
    options_of_others,
    refuse_untrusted_code,
)
from optest.plan.expansion import Expansion
from optest.plan.fills import FillCheck
from optest.plan.making import Maker
from optest.plan.products import Product, Rows
from optest.plan.request import CaseRequest
from optest.plan.shared import Shared, gather_shared
from optest.plan.source import Path, collection_paused
from optest.plan.statement import Entry, KnownOperators, Ledger, Operators
from optest.spec import BackendTarget, Fill, TestCase

if TYPE_CHECKING:
    from optest.plan.schema import PlanDocument

__all__ = ["Operators", "build_cases"]


class _Built(NamedTuple):
    """A case, what it is called unless another is called so too, and where it stands."""

    case: TestCase
    identifier: str
    shared: Shared
    path: Path
    combination: tuple[Product, Rows] | None = None


def build_cases(
    document: PlanDocument | None,
    request: CaseRequest,
    *,
    operators: Operators,
    target_of: Callable[[str, str | None], BackendTarget],
    check_fill: Callable[[Fill], object],
    check_backend: Callable[[TestCase], Sequence[str]],
    dtypes_of: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda _: {},
    backend_names: Collection[str] | None = None,
) -> list[TestCase]:
    """Return the cases of a plan under the command line's overrides, or one case for each ``--op``.

    Args:
        target_of: backend by name or kind, and chip, to a target; raises ``UnknownName``.
        check_fill: raises ``UsageError`` or ``UnknownName`` for a fill that does not exist or has wrong parameters.
        check_backend: what is wrong with a case's ``backend_config``.
        dtypes_of: dtypes by tensor that the backend's options of a case state, for cases without ``dtypes``.
        backend_names: the keys that ``backend_config`` may have; None does not check them.

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
        fills = FillCheck(check_fill, ledger)
        built: list[_Built] = []
        selection = _Selection(request, known)
        for shared in plans:
            maker = Maker(shared, request, fills, ledger, dtypes_of)
            with ledger.reading(shared.source):
                built.extend(_of_plan(maker, selection, known))
        with ledger.reading(plans[-1].source):
            maker = Maker(plans[-1], request, fills, ledger, dtypes_of)
            built.extend(_of_flags(maker, selection))
        for each in documents:
            with ledger.reading(each.source):
                refuse_untrusted_code(each, request, ledger)
        check_defaults(plans, known, ledger)
        check_names(documents, ledger)
        if backend_names is not None:
            check_backend_names(plans, backend_names, ledger)
        if plans[-1].is_target_known:
            _check_backend(built, check_backend, ledger)
        problems = document.problems if document is not None else ()
        ledger.refuse(problems, [each.path for each in documents])
        return _with_unique_ids(built)


class _Selection:
    """The operators that ``--op`` names, and which of them the plans have."""

    def __init__(self, request: CaseRequest, known: KnownOperators) -> None:
        self.wanted = {name: known.get(name, "--op") for name in request.ops}
        self._names = {operator.name for operator in self.wanted.values() if operator is not None}
        self.found: set[str] = set()
        self.every_op_is_known = True

    def takes(self, operator: str) -> bool:
        """Whether cases of this operator are wanted; ``operator`` is its canonical name."""
        if not self.wanted:
            return True
        if operator in self._names:
            self.found.add(operator)
            return True
        return False


def _of_plan(maker: Maker, selection: _Selection, known: KnownOperators) -> Iterator[_Built]:
    """The cases of one plan; of one that is wrong as much is checked as can be, and it may be left out."""
    document = maker.shared.document
    if document is None:
        return
    entries: Sequence[Entry] = document.cases
    for index, entry in enumerate(entries):
        path: Path = ("cases", index)
        if not entry:
            selection.every_op_is_known = False
            continue
        if document.is_product(index):
            yield from _of_product(maker, selection, known, document.product(index), entry["op"], path)
            continue
        operator = known.get(entry["op"], (*path, "op"))
        if operator is None or not selection.takes(operator.name):
            continue
        case = maker.make(maker.statement(operator, entry, path))
        if case is not None:
            yield _Built(case, case.name or case.identifier(), maker.shared, path)


def _of_product(
    maker: Maker, selection: _Selection, known: KnownOperators, product: Product | None, op: str, path: Path
) -> Iterator[_Built]:
    if product is None:
        known.get(op, (*path, "op"))
        return
    expansion = Expansion(product, maker, known, selection.takes)
    for case, identifier, rows in expansion.cases():
        yield _Built(case, identifier, maker.shared, path, (product, rows))


def _of_flags(maker: Maker, selection: _Selection) -> Iterator[_Built]:
    """One case for each operator that was asked for and that no plan has."""
    for name, operator in selection.wanted.items() if selection.every_op_is_known else ():
        if operator is not None and operator.name not in selection.found:
            selection.found.add(operator.name)
            case = maker.make(maker.statement(operator, {"op": name}, ()))
            if case is not None:
                yield _Built(case, case.identifier(), maker.shared, ())


def _check_backend(built: Sequence[_Built], check_backend: Callable[[TestCase], Sequence[str]], ledger: Ledger) -> None:
    for case, _, shared, path, combination in built:
        messages = check_backend(case)
        if not messages:
            continue
        with ledger.reading(shared.source, combination):
            entry = combination[0].entry(combination[1]) if combination is not None else None
            place = config_place(case, path, shared.document, entry)
            for message in messages:
                ledger.problem(place, message, options_of_others(case))


def _with_unique_ids(built: Sequence[_Built]) -> list[TestCase]:
    """Cases that are called alike get ``#2``, ``#3`` and so on, in order."""
    taken = {each.case.name for each in built if each.case.name and each.combination is None}
    counts: dict[str, int] = {}
    unique = []
    for case, identifier, _, _, combination in built:
        if not case.name or combination is not None:
            count = counts.get(identifier, 0) + 1
            name = _numbered(identifier, count)
            while name in taken:
                count += 1
                name = _numbered(identifier, count)
            counts[identifier] = count
            taken.add(name)
            if name != (case.name or identifier):
                case = dataclasses.replace(case, name=name)
        unique.append(case)
    return unique


def _numbered(identifier: str, count: int) -> str:
    return identifier if count == 1 else f"{identifier}#{count}"
