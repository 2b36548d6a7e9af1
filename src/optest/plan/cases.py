"""Cases from plans and the command line: every value gets its layer, and every fault is found before anything runs.

The command line wins over the case, the case over the plan's defaults, those over the operator.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from optest.errors import UnknownName, UsageError
from optest.plan.backend_options import check_backend_names, config_place, options_of_others
from optest.plan.expansion import Expansion
from optest.plan.fills import FillCheck
from optest.plan.layers import Entry, PlanContext, PlanHost, Statement, contexts_of
from optest.plan.make_case import applicable, make_case
from optest.plan.operator_lookup import KnownOperator, KnownOperators
from optest.plan.problems import Ledger
from optest.plan.product import Product, reported
from optest.plan.request import CaseRequest
from optest.plan.untrusted import refuse_untrusted
from optest.plan.yaml_source import Path
from optest.spec import TestCase
from optest.spec.construct import collection_paused

if TYPE_CHECKING:
    from optest.plan.schema import PlanDocument


def build_cases(document: PlanDocument | None, request: CaseRequest, host: PlanHost) -> list[TestCase]:
    """Return the cases of a plan under the command line's overrides, or one case for each ``--op``.

    Raises:
        PlanError: with everything that is wrong with the form of the files, their cases and the flags, in the order
            of lines.
        UsageError: if neither a plan nor an operator is named.
    """
    if document is None and not request.ops:
        raise UsageError("nothing to run: name a plan with --plan FILE or an operator with --op NAME")
    ledger = Ledger()
    documents = document.family() if document is not None else []
    with collection_paused():
        contexts = contexts_of(document, request, FillCheck(host, ledger))
        known = KnownOperators(host.operators, ledger)
        selection = _Selection(request, known)
        gathering = _Gathering(known, selection)
        for context in contexts:
            with ledger.reading(context.source):
                gathering.take_plan(context)
                if context is contexts[-1]:
                    gathering.take_flags(context)
        for context in contexts:
            with ledger.reading(context.source):
                refuse_untrusted(context, is_top=context is contexts[-1])
        _check_defaults(contexts, known, ledger)
        # A name is taken once, in all plans that run together.
        first: dict[str, tuple[PlanDocument, int]] = {}
        named = [
            (plan, index, entry["name"])
            for plan in documents
            for index, entry in enumerate(plan.cases)
            if "name" in entry
        ]
        for plan, index, name in named:
            other, taken_by = first.setdefault(name, (plan, index))
            if other is not plan or taken_by != index:
                line = other.source.case_lines[taken_by]
                place = f"line {line}" if other is plan else f"{other.path}:{line}"
                with ledger.reading(plan.source):
                    ledger.problem(("cases", index, "name"), f"the name {name!r} is taken by the case in {place}")
        if host.backend_names is not None:
            check_backend_names(contexts, host.backend_names, ledger)
        problems = document.problems if document is not None else ()
        ledger.refuse(problems, [each.path for each in documents])
        return gathering.with_unique_ids()


class _Selection:
    """The operators that ``--op`` names, and which of them the plans have."""

    def __init__(self, request: CaseRequest, known: KnownOperators) -> None:
        self.requested = {name: known.get(name, "--op") for name in request.ops}
        self._names = {name for each in self.requested.values() if each is not None for name in each.meanings}
        self.covered: set[str] = set()
        self.every_op_is_known = True

    def takes(self, operator: KnownOperator) -> bool:
        """Whether cases of this operator are selected, or some of those that a spelling may stand for."""
        if not self.requested:
            return True
        common = operator.meanings & self._names
        self.covered |= common
        return bool(common)

    def takes_case(self, case: TestCase) -> bool:
        return not self.requested or case.descriptor.name in self._names


class _Gathering:
    """The cases of all plans in order, with the name that each has or would have."""

    def __init__(self, known: KnownOperators, selection: _Selection) -> None:
        self._known = known
        self._selection = selection
        self._cases: list[TestCase] = []
        self._names: list[str] = []
        """What each case is called; "" if a person named it so, letter by letter."""

    def take_plan(self, context: PlanContext) -> None:
        """Add the cases of one plan; of one that is wrong as much is checked as can be, and it may be left out."""
        document = context.document
        entries: Sequence[Entry] = document.cases if document is not None else ()
        for index, entry in enumerate(entries):
            path: Path = ("cases", index)
            if not entry:
                self._selection.every_op_is_known = False
            elif document is not None and index in document.products:
                self._take_product(context, document.products[index], entry["op"], path)
            else:
                operator = self._known.get(entry["op"], (*path, "op"))
                if operator is not None and self._selection.takes(operator):
                    self._take_statement(Statement(operator, path, context, entry))

    def take_flags(self, context: PlanContext) -> None:
        """Add one case for each requested operator that no plan has."""
        selection = self._selection
        for name, operator in selection.requested.items() if selection.every_op_is_known else ():
            if operator is not None and operator.meanings.isdisjoint(selection.covered):
                selection.covered |= operator.meanings
                self._take_statement(Statement(operator, (), context, {"op": name}))

    def _take_product(self, context: PlanContext, product: Product | None, op: str, path: Path) -> None:
        if product is None:
            self._known.get(op, (*path, "op"))
            return
        combinations = math.prod(len(axis.rows) for axis in product.axes)
        expansion = Expansion(product, context, self._known, self._selection.takes)
        where = context.document.where(path) if context.document is not None else ""
        what = f"of {combinations:,} combinations"
        for case, name, rows in reported(expansion.cases(), where, what):
            self._take(case, name, context, path, partial(product.entry, rows))

    def _take_statement(self, statement: Statement) -> None:
        case = make_case(statement)
        if case is not None:
            name = "" if case.name else case.identifier()
            self._take(case, name, statement.context, statement.path, lambda: statement.entry)

    def _take(self, case: TestCase, name: str, context: PlanContext, path: Path, entry: Callable[[], Entry]) -> None:
        if not self._selection.takes_case(case):
            return
        for message in context.host.check_backend(case) if context.is_target_known else ():
            place = config_place(case, path, context, entry(), message)
            context.ledger.problem(place, message, options_of_others(case))
        self._cases.append(case)
        self._names.append(name)

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
            while (numbered := f"{name}#{count}") in taken:
                count += 1
            taken[name] = count
            taken[numbered] = 1
            unique[place] = dataclasses.replace(unique[place], name=numbered)
        return unique


# What is wrong with the plans as a whole


def _check_defaults(contexts: Sequence[PlanContext], known: KnownOperators, ledger: Ledger) -> None:
    """A default attribute, or a default tolerance of an output, that no operator of the plans has is a slip."""
    documents = [context.document for context in contexts if context.document is not None]
    if not known.all_known() or not all(all(document.cases) for document in documents):
        return
    operators = known.operators()
    for document in documents:
        attributes = document.defaults.get("attributes", {})
        used = {key for operator in operators for key in applicable(operator, attributes)} if attributes else set()
        outputs = document.defaults["tolerance"].by_output if "tolerance" in document.defaults else {}
        with ledger.reading(document.source):
            for key in attributes:
                if key not in used:
                    names = {name for operator in operators for name in operator.attribute_names}
                    error = UnknownName("attribute of any operator in the plan", key, names)
                    ledger.unknown(("defaults", "attributes", key), error)
            for name in outputs:
                if not any(operator.knows(name) for operator in operators):
                    names = {each for operator in operators for each in operator.descriptor.tensors.outputs}
                    ledger.unknown(
                        ("defaults", "tolerance", name), UnknownName("output of any operator in the plan", name, names)
                    )
