"""Cases from plans and the command line: merge the layers, and report every mistake before a case runs.

The command line overrides the case, the case the plan's defaults, those the operator.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from optest.errors import UnknownName, UsageError
from optest.plan.backend_options import check_backend_names, config_place, foreign_options_hint
from optest.plan.expansion import Expansion
from optest.plan.layers import FLAGS, Entry, FillCheck, PlanContext, PlanHost, Statement, merge_deeply
from optest.plan.make_case import applicable, make_case
from optest.plan.operator_lookup import KnownOperator, KnownOperators
from optest.plan.problems import Ledger, Place
from optest.plan.product import Product, report_progress
from optest.plan.request import CaseRequest
from optest.plan.select import Wanted
from optest.plan.untrusted import allowed_folders, refuse_untrusted
from optest.plan.values import Layout, ToleranceChoice, read_generator
from optest.plan.yaml_source import Path
from optest.spec import BackendTarget, TestCase
from optest.spec.construct import collection_paused

if TYPE_CHECKING:
    from optest.plan.schema import PlanDocument


def build_cases(
    document: PlanDocument | None, request: CaseRequest, host: PlanHost, wanted: Wanted | None = None
) -> list[TestCase]:
    """Return the cases of a plan with the command line's overrides, and one for each `--op` that it does not cover.

    Cases that are not `wanted` are not built, and problems that only building shows are not reported for them;
    the ids of the others are the same as without this filter.

    Raises:
        PlanError: with all problems of the files, their cases and the flags, in the order of lines.
        UsageError: if neither a plan nor an operator is named.
    """
    if document is None and not request.ops:
        raise UsageError("nothing to run: name a plan with --plan FILE or an operator with --op NAME")
    ledger = Ledger()
    documents = document.family() if document is not None else []
    # A large plan allocates millions of objects that live on.
    with collection_paused():
        contexts = _contexts_of(document, request, FillCheck(host, ledger))
        known = KnownOperators(host.operators, ledger)
        selection = _Selection(request, known)
        gathering = _Gathering(known, selection, wanted)
        for context in contexts:
            with ledger.reading(context.source):
                gathering.take_plan(context)
                if context is contexts[-1]:
                    gathering.take_flags(context)
        for context in contexts:
            with ledger.reading(context.source):
                refuse_untrusted(context, is_top=context is contexts[-1])
        _check_defaults(contexts, known, ledger)
        # Names are unique across all plans that run together.
        first: dict[str, tuple[PlanDocument, int]] = {}
        for plan in documents:
            for index, name in [(index, entry["name"]) for index, entry in enumerate(plan.cases) if "name" in entry]:
                owner, taken_by = first.setdefault(name, (plan, index))
                if owner is not plan or taken_by != index:
                    line = owner.source.case_lines[taken_by]
                    place = f"line {line}" if owner is plan else f"{owner.path}:{line}"
                    with ledger.reading(plan.source):
                        ledger.problem(("cases", index, "name"), f"the name {name!r} is taken by the case in {place}")
        if host.backend_names is not None:
            check_backend_names(contexts, host.backend_names, ledger)
        # Refused only now, so that one run reports all mistakes.
        problems = document.problems if document is not None else ()
        ledger.refuse(problems, [plan.path for plan in documents])
        return gathering.with_unique_ids()


class _Selection:
    """The operators that `--op` names, and those of them that cases of the plans use."""

    def __init__(self, request: CaseRequest, known: KnownOperators) -> None:
        self.requested = {name: known.get(name, "--op") for name in request.ops}
        self._names = {name for operator in self.requested.values() if operator for name in operator.meanings}
        self.covered: set[str] = set()
        self.every_op_is_known = True

    def takes(self, operator: KnownOperator) -> bool:
        """Return whether one of the operator's possible meanings is selected; record those as covered."""
        if not self.requested:
            return True
        common = operator.meanings & self._names
        self.covered |= common
        return bool(common)

    def takes_case(self, case: TestCase) -> bool:
        return not self.requested or case.descriptor.name in self._names


class _Gathering:
    """Collector of the cases of all plans in order, with the name of each."""

    def __init__(self, known: KnownOperators, selection: _Selection, wanted: Wanted | None) -> None:
        self._known = known
        self._selection = selection
        self._wanted = wanted
        self._cases: list[TestCase] = []
        # The name of each case; "" if the user wrote it.
        self._names: list[str] = []
        # Names that the user wrote for cases that are not built.
        self._unbuilt: set[str] = set()

    def take_plan(self, context: PlanContext) -> None:
        """Add the cases of one plan. A case with a problem is checked as far as possible and may be left out."""
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
                if operator is None or not self._selection.takes(operator):
                    continue
                name = entry.get("name", "")
                if self._wanted is not None and not self._wanted(name or operator.id_head, bool(name)):
                    self._unbuilt.update([name] if name else ())
                    continue
                self._take_statement(Statement(operator, path, context, entry))

    def take_flags(self, context: PlanContext) -> None:
        """Add one case for each operator of `--op` that no plan covers."""
        selection = self._selection
        # An unreadable case may be the one of this operator: then no case is added.
        for name, operator in selection.requested.items() if selection.every_op_is_known else ():
            if operator is not None and operator.meanings.isdisjoint(selection.covered):
                selection.covered |= operator.meanings
                self._take_statement(Statement(operator, (), context, {"op": name}))

    def _take_product(self, context: PlanContext, product: Product | None, op: str, path: Path) -> None:
        # Its axes could not be read; an unknown operator is noted all the same.
        if product is None:
            self._known.get(op, (*path, "op"))
            return
        combinations = math.prod(len(axis.rows) for axis in product.axes)
        expansion = Expansion(product, context, self._known, self._selection.takes, self._wanted)
        where = context.document.where(path) if context.document is not None else ""
        unit = f"of {combinations:,} combinations"
        # The entry of a combination is assembled only for a problem.
        for case, name, rows in report_progress(expansion.cases(), where, unit):
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
            context.ledger.problem(place, message, foreign_options_hint(case))
        self._cases.append(case)
        self._names.append(name)

    def with_unique_ids(self) -> list[TestCase]:
        """Return the cases; a repeated generated name gets the suffix `#2`, `#3` and so on."""
        unique = self._cases
        if len(set(self._names)) == len(unique) and all(self._names) and not self._unbuilt:
            return unique
        # Names that users wrote are never changed.
        taken = {case.name: 1 for case, name in zip(unique, self._names, strict=True) if not name}
        taken |= dict.fromkeys(self._unbuilt, 1)
        for index, name in enumerate(self._names):
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
            unique[index] = dataclasses.replace(unique[index], name=numbered)
        return unique


def _check_defaults(contexts: Sequence[PlanContext], known: KnownOperators, ledger: Ledger) -> None:
    """Note a problem for each default attribute or default output tolerance that no operator of the plans has."""
    documents = [context.document for context in contexts if context.document is not None]
    # A case that could not be read may be the one that uses the default.
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
                    names = {output for operator in operators for output in operator.descriptor.tensors.outputs}
                    ledger.unknown(
                        ("defaults", "tolerance", name), UnknownName("output of any operator in the plan", name, names)
                    )


def _contexts_of(document: PlanDocument | None, request: CaseRequest, fills: FillCheck) -> list[PlanContext]:
    """Return the context of each plan, included ones first; note problems of flags and backends."""
    host, ledger = fills.host, fills.ledger
    flags = _flags_of(request, ledger)
    config = _flags_of(request.below, ledger) if request.below is not None else {}
    config_keys = [*config, *(key for key in ("backend", "chip") if getattr(request.below, key, None))]
    with ledger.reading(document.source if document is not None else None):
        target = _target(document, request, host, ledger)
    for plan in document.family()[:-1] if document is not None else ():
        assert document is not None
        # A run has one backend: an included plan may name it, but no other.
        for key in ("backend", "chip"):
            named, required = getattr(plan, key), getattr(document, key) or ("numpy" if key == "backend" else "")
            if key in plan.model_fields_set and named != required and not getattr(request, key):
                with ledger.reading(plan.source):
                    used = f"is {required!r}" if required else "is not set"
                    message = f"{key} is {named!r}, but {used} in {document.path}, and a run has one {key}"
                    ledger.problem((key,), message, f"write {key}: {named} in {document.path}, or add --{key}")
    folders = allowed_folders(document, flags) if request.untrusted else ()
    return [
        PlanContext(
            document=plan,
            request=request,
            host=host,
            target=target or BackendTarget(name="unknown"),
            is_target_known=target is not None,
            flags=flags,
            allowed_folders=folders,
            config=config,
            origins={**dict.fromkeys(config_keys, request.where_below), **_default_origins(plan, document)},
            ledger=ledger,
            fills=fills,
        )
        for plan in (document.family() if document is not None else [None])
    ]


def _flags_of(request: CaseRequest, ledger: Ledger) -> dict[str, Any]:
    """Return the flags in the form of a case; note a problem for an incomplete backend_config key."""
    attributes: dict[str, Any] = {}
    config: dict[str, Any] = dict(request.backend_config)
    for key, value in request.attributes.items():
        head, *steps = key.split(".")
        if head != "backend_config":
            attributes[key] = value
        elif len(steps) < 2 or not all(steps):
            hint = "for example --attr backend_config.ascend.workdir=build"
            ledger.problem("--attr", f"{key} names no option, expected backend_config.BACKEND.OPTION", hint)
        else:
            nested = value
            for step in reversed(steps):
                nested = {step: nested}
            config = merge_deeply(config, nested)
    generator, tolerance = request.generator, request.tolerance
    values = {
        "dtypes": request.dtypes or None,
        "shapes": {name: Layout(shape) for name, shape in request.shapes.items()} or None,
        "attributes": attributes or None,
        "backend_config": config or None,
        "generator": read_generator(generator) if generator else None,
        "reference": request.reference,
        "tolerance": ToleranceChoice(every=tolerance) if tolerance is not None else None,
        "seed": request.seed,
        "timeout": request.timeout_s,
        "retries": request.retries,
    }
    return {key: value for key, value in values.items() if value is not None}


def _target(
    document: PlanDocument | None, request: CaseRequest, host: PlanHost, ledger: Ledger
) -> BackendTarget | None:
    """Return the backend of the run; None if it is unknown, which the ledger or the plan's problems report."""
    if document is not None and not request.backend and not {"backend", "chip"}.isdisjoint(document.unread(())):
        return None
    if isinstance(host.target, BackendTarget):
        return host.target
    error = host.target
    key = "chip" if isinstance(error, UnknownName) and error.kind.startswith("chip") else "backend"
    place: Place = FLAGS[key] if getattr(request, key) or document is None else (key,)
    ledger.error(place, error)
    return None


def _default_origins(plan: PlanDocument | None, main: PlanDocument | None) -> dict[str, str]:
    """Return the positions of the plan's seed and defaults, and of the main plan's backend."""
    if plan is None or main is None:
        return {}
    origins: dict[str, str] = {key: main.where((key,)) for key in ("backend", "chip") if key in main.model_fields_set}
    if "seed" in plan.model_fields_set:
        origins["seed"] = plan.where(("seed",))
    return origins | {key: f"{plan.where(('defaults', key))} defaults" for key in plan.defaults}
