"""Cases from a plan and the command line: every value gets its layer, and every fault is found before anything runs.

The command line wins over the case, the case over the plan's defaults, those over the operator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from optest.errors import UsageError
from optest.plan.attributes import bind_attributes
from optest.plan.checks import (
    check_backend_names,
    check_default_attributes,
    check_names,
    config_place,
    options_of_others,
    refuse_untrusted_code,
    require_tolerance,
)
from optest.plan.fills import FillCheck, arguments_of, choose_fills
from optest.plan.forms import is_dotted, shown
from optest.plan.operands import input_specs, output_specs, read_layouts
from optest.plan.origins import origins_of, where_of
from optest.plan.request import CaseRequest
from optest.plan.shared import Shared, gather_shared
from optest.plan.source import Path, collection_paused
from optest.plan.statement import Entry, KnownOperators, Ledger, Operators, Statement
from optest.plan.tolerances import tolerance_layers
from optest.spec import DEFAULT_PRIORITY, BackendTarget, Fill, TestCase, ToleranceLayer

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
        PlanError: with everything that is wrong with the file's form, its cases and the flags, in the order of lines.
        UsageError: if neither a plan nor an operator is named.
        Unavailable: from ``target_of``.
    """
    if document is None and not request.ops:
        raise UsageError("nothing to run: name a plan with --plan FILE or an operator with --op NAME")
    ledger = Ledger(document.source if document is not None else None)
    with collection_paused():
        shared = gather_shared(document, request, ledger, target_of)
        known = KnownOperators(operators, ledger)
        fills = FillCheck(check_fill, ledger)
        built = list(_built(document, request, known, shared, fills, ledger, dtypes_of))
        refuse_untrusted_code(document, request, ledger)
        check_default_attributes(document, shared.defaults, known, ledger)
        check_names(document, ledger)
        if backend_names is not None:
            check_backend_names(document, shared, backend_names, ledger)
        for case, path in built if shared.is_target_known else ():
            for message in check_backend(case):
                ledger.problem(config_place(case, path, document), message, options_of_others(case))
        ledger.refuse(document.problems if document is not None else ())
        return _with_unique_ids([case for case, _ in built])


def _built(
    document: PlanDocument | None,
    request: CaseRequest,
    known: KnownOperators,
    shared: Shared,
    fills: FillCheck,
    ledger: Ledger,
    dtypes_of: Callable[[Mapping[str, Any]], Mapping[str, str]],
) -> Iterator[tuple[TestCase, Path]]:
    """The cases with their paths; of one that is wrong as much is checked as can be, and it may be left out."""
    for entry, path in _entries(document, request, known):
        operator = known.get(entry["op"], (*path, "op") if path else "--op")
        if operator is None:
            continue
        doubtful = _doubtful(document, entry, path) if document is not None and document.problems else set()
        options = {} if "backend_config" in doubtful else _backend_config(entry, shared).get(shared.target.name, {})
        implied = dtypes_of(options) if options else {}
        statement = Statement(operator, entry, path, shared.defaults, request, ledger, doubtful, implied)
        case = _build(statement, shared, fills)
        if case is not None and "backend_config" not in doubtful:
            yield case, path


_ADD_UP = ("attributes", "backend_config", "generator")
"""Keys of which a case's own value is merged with that of the defaults."""


def _doubtful(document: PlanDocument, entry: Entry, path: Path) -> set[str]:
    """The keys that could not be read, of the case or of what it takes from the defaults."""
    of_defaults = {key for key in document.unread(("defaults",)) if key in _ADD_UP or key not in entry}
    return of_defaults.union(document.unread(path) if path else ())


def _entries(
    document: PlanDocument | None, request: CaseRequest, known: KnownOperators
) -> Iterator[tuple[Entry, Path]]:
    """The plan's cases of the wanted operators, then one entry for each operator that the plan has not."""
    wanted = {name: known.get(name, "--op") for name in request.ops}
    names = {operator.name for operator in wanted.values() if operator is not None}
    found: set[str] = set()
    every_op_is_known = True
    entries: Sequence[Entry] = document.cases if document is not None else ()
    for index, entry in enumerate(entries):
        path: Path = ("cases", index)
        if not entry:
            every_op_is_known = False
            continue
        if not wanted:
            yield entry, path
            continue
        operator = known.get(entry["op"], (*path, "op"))
        if operator is not None and operator.name in names:
            found.add(operator.name)
            yield entry, path
    for name, operator in wanted.items() if every_op_is_known else ():
        if operator is not None and operator.name not in found:
            found.add(operator.name)
            yield {"op": name}, ()


def _build(statement: Statement, shared: Shared, fills: FillCheck) -> TestCase | None:
    """One case, or None where too little of it is right to go on; what is wrong goes into the ledger."""
    entry, defaults, request = statement.entry, statement.defaults, statement.request
    attributes = bind_attributes(statement, shared.attributes)
    layouts = read_layouts(statement)
    inputs = input_specs(statement, layouts)
    reference = _reference(statement)
    if attributes is None or inputs is None:
        choose_fills(statement, fills, ())
        return None
    outputs = output_specs(statement, layouts, inputs, attributes)
    generator, arguments = arguments_of(statement, fills, inputs, outputs, attributes)
    tolerances = _tolerances(statement, shared)
    descriptor = statement.operator.descriptor
    if descriptor.rule is None:
        require_tolerance(statement, outputs, tolerances)
    return TestCase(
        descriptor=descriptor,
        inputs=arguments,
        outputs=outputs,
        attributes=attributes,
        backend=shared.target,
        backend_config=_backend_config(entry, shared),
        name=entry.get("name", ""),
        seed=entry.get("seed", shared.default_seed) if request.seed is None else request.seed,
        generator=generator,
        reference=reference,
        tolerances=tolerances,
        timeout_s=_first(request.timeout_s, entry.get("timeout"), defaults.get("timeout")),
        retries=_first(request.retries, entry.get("retries"), defaults.get("retries"), 0),
        priority=_first(entry.get("priority"), defaults.get("priority"), DEFAULT_PRIORITY),
        skip=entry.get("skip"),
        xfail=entry.get("xfail"),
        expects_error=entry.get("expects_error"),
        tags=tuple(dict.fromkeys((*entry.get("tags", ()), *defaults.get("tags", ()), *descriptor.tags))),
        description=entry.get("description", ""),
        where=where_of(statement),
        base_dir=shared.base_dir,
        origins=origins_of(statement, shared),
    )


def _first(*values: Any) -> Any:
    """The first value that is stated, None if none is."""
    for value in values:
        if value is not None:
            return value
    return None


def _reference(statement: Statement) -> str | None:
    stated, place = statement.stated("reference", statement.request.reference, "--reference")
    if stated is None:
        return None
    if not is_dotted(stated):
        message = f"reference is {shown(stated)}, but should be an import path: package.module:name"
        statement.ledger.problem(place, message)
    return str(stated)


def _tolerances(statement: Statement, shared: Shared) -> tuple[ToleranceLayer, ...]:
    own = statement.entry.get("tolerance")
    if own is None and shared.plan_tolerance is None and shared.flag_tolerance is None:
        return ()
    return tolerance_layers(statement, shared)


def _backend_config(entry: Entry, shared: Shared) -> dict[str, Mapping[str, Any]]:
    """Options by backend, merged key by key."""
    merged: dict[str, Mapping[str, Any]] = dict(shared.defaults.get("backend_config", {}))
    for backend, options in entry.get("backend_config", {}).items():
        merged[backend] = {**merged.get(backend, {}), **options}
    for backend, options in shared.backend_config.items():
        merged[backend] = _merged_deeply(merged.get(backend, {}), options)
    return merged


def _merged_deeply(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged_deeply(merged[key], value) if both else value
    return merged


def _with_unique_ids(cases: list[TestCase]) -> list[TestCase]:
    """Unnamed cases that are alike get ``#2``, ``#3`` and so on, in order."""
    taken = {case.name for case in cases if case.name}
    counts: dict[str, int] = {}
    unique = []
    for case in cases:
        if not case.name:
            identifier = case.identifier()
            count = counts.get(identifier, 0) + 1
            name = _numbered(identifier, count)
            while name in taken:
                count += 1
                name = _numbered(identifier, count)
            counts[identifier] = count
            taken.add(name)
            if name != identifier:
                case = dataclasses.replace(case, name=name)
        unique.append(case)
    return unique


def _numbered(identifier: str, count: int) -> str:
    return identifier if count == 1 else f"{identifier}#{count}"
