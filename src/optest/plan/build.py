"""Cases from a plan and the command line: every value gets its layer, and every fault is found before anything runs.

The command line wins over the case, the case over the plan's defaults, those over the operator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from optest.errors import PlanError, UnknownName, UsageError
from optest.plan.attributes import applicable, bind_attributes
from optest.plan.fills import FillCheck, arguments_of
from optest.plan.forms import is_dotted, shown
from optest.plan.operands import input_specs, output_specs, read_layouts
from optest.plan.request import CaseRequest
from optest.plan.source import Path, collection_paused
from optest.plan.statement import COMMAND_LINE, Entry, KnownOperator, Ledger, Place, Statement
from optest.spec import BackendTarget, Fill, Layer, OperatorDescriptor, TestCase, ToleranceLayer

if TYPE_CHECKING:
    from optest.plan.schema import PlanDocument

__all__ = ["Operators", "build_cases"]

RUNS_CODE = ("command", "build", "prepare", "cleanup", "pre_run", "post_run", "env")
"""Keys of a backend's options that start programs or change what they start."""


class Operators(Protocol):
    """What is needed of the operator registry."""

    def get(self, name: str) -> OperatorDescriptor: ...

    def names(self) -> tuple[str, ...]: ...


def build_cases(
    document: PlanDocument | None,
    request: CaseRequest,
    *,
    operators: Operators,
    target_of: Callable[[str, str | None], BackendTarget],
    check_fill: Callable[[Fill], object],
    check_backend: Callable[[TestCase], Sequence[str]],
    backend_names: Collection[str] | None = None,
) -> list[TestCase]:
    """Return the cases of a plan under the command line's overrides, or one case for each ``--op``.

    Args:
        target_of: backend by name or kind, and chip, to a target; raises ``UnknownName``.
        check_fill: raises ``UsageError`` or ``UnknownName`` for a fill that does not exist or has wrong parameters.
        check_backend: what is wrong with a case's ``backend_config``.
        backend_names: the keys that ``backend_config`` may have; None does not check them.

    Raises:
        PlanError: with every fault of every case.
        UsageError: if neither a plan nor an operator is named.
        Unavailable: from ``target_of``.
    """
    if document is None and not request.ops:
        raise UsageError("nothing to run: name a plan with --plan FILE or an operator with --op NAME")
    ledger = Ledger(document.source if document is not None else None)
    with collection_paused():
        shared = _shared(document, request, ledger, target_of)
        known = _KnownOperators(operators, ledger)
        built = list(_built(document, request, known, shared, FillCheck(check_fill, ledger), ledger))
        _refuse_untrusted_code(document, request, ledger)
        _check_default_attributes(shared.defaults, known, ledger)
        _check_names(document, ledger)
        if backend_names is not None:
            _check_backend_names(document, shared, backend_names, ledger)
        for case, path in built:
            for message in check_backend(case):
                ledger.problem(_config_place(case, path, document), message)
        if ledger.problems:
            raise PlanError(sorted(ledger.problems, key=lambda problem: problem.line))
        return _with_unique_ids([case for case, _ in built])


class _KnownOperators:
    """The operators that were asked for, each looked up once."""

    def __init__(self, operators: Operators, ledger: Ledger) -> None:
        self._operators = operators
        self._ledger = ledger
        self._found: dict[str, KnownOperator | None] = {}

    def get(self, name: str, place: Place) -> KnownOperator | None:
        """The operator called ``name``; an unknown one goes into the ledger."""
        if name not in self._found:
            try:
                self._found[name] = KnownOperator.of(self._operators.get(name))
            except UnknownName:
                self._found[name] = None
        found = self._found[name]
        if found is None:
            self._ledger.unknown(place, UnknownName("operator", name, self._operators.names()))
        return found

    def found(self) -> list[KnownOperator]:
        return [each for each in self._found.values() if each is not None]


@dataclass(slots=True, kw_only=True)
class _Shared:
    """What is the same for every case of a request."""

    target: BackendTarget
    defaults: Entry
    base_dir: str
    attributes: Mapping[str, Any]
    """The command line's, without those that go into ``backend_config``."""
    backend_config: Mapping[str, Mapping[str, Any]]
    """The command line's."""
    plan_tolerance: ToleranceLayer | None
    flag_tolerance: ToleranceLayer | None
    default_origins: Mapping[str, str]
    flag_origins: Mapping[str, str]
    default_seed: int

    @property
    def mixes_mappings(self) -> bool:
        """Whether attributes or options come from elsewhere than the case."""
        return bool(self.attributes or self.backend_config) or not self.defaults.keys().isdisjoint(
            ("attributes", "backend_config")
        )


def _shared(
    document: PlanDocument | None,
    request: CaseRequest,
    ledger: Ledger,
    target_of: Callable[[str, str | None], BackendTarget],
) -> _Shared:
    attributes, config = _split_attributes(request, ledger)
    defaults: Entry = document.defaults if document is not None else {}
    plan_tolerance = flag_tolerance = None
    if document is not None and "tolerance" in defaults:
        where = document.where(("defaults", "tolerance"))
        plan_tolerance = ToleranceLayer(layer=Layer.PLAN, tolerance=defaults["tolerance"], where=where)
    if request.tolerance is not None:
        flag_tolerance = ToleranceLayer(layer=Layer.COMMAND_LINE, tolerance=request.tolerance, where="--tolerance")
    return _Shared(
        target=_target(document, request, ledger, target_of),
        defaults=defaults,
        base_dir=document.folder() if document is not None else "",
        attributes=attributes,
        backend_config=config,
        plan_tolerance=plan_tolerance,
        flag_tolerance=flag_tolerance,
        default_origins=_default_origins(document),
        flag_origins=_flag_origins(request),
        default_seed=defaults.get("seed", document.seed if document is not None else 0),
    )


def _split_attributes(request: CaseRequest, ledger: Ledger) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Part the flags' attributes from those that go into ``backend_config``."""
    attributes: dict[str, Any] = {}
    config: dict[str, dict[str, Any]] = {}
    for key, value in request.attributes.items():
        head, *steps = key.split(".")
        if head != "backend_config":
            attributes[key] = value
        elif len(steps) < 2 or not all(steps):
            hint = "for example --attr backend_config.ascend.workdir=build"
            ledger.problem("--attr", f"{key} should name a backend and a key", hint)
        else:
            _set_deeply(config, steps, value)
    return attributes, config


def _set_deeply(target: dict[str, Any], steps: Sequence[str], value: Any) -> None:
    for step in steps[:-1]:
        found = target.setdefault(step, {})
        if not isinstance(found, dict):
            found = target[step] = {}
        target = found
    target[steps[-1]] = value


def _target(
    document: PlanDocument | None,
    request: CaseRequest,
    ledger: Ledger,
    target_of: Callable[[str, str | None], BackendTarget],
) -> BackendTarget:
    backend = request.backend or (document.backend if document is not None else "") or "numpy"
    chip = request.chip or (document.chip if document is not None else "") or None
    try:
        return target_of(backend, chip)
    except UsageError as error:
        about_chip = isinstance(error, UnknownName) and error.kind.startswith("chip")
        key = "chip" if about_chip else "backend"
        place: Place = f"--{key}" if getattr(request, key) or document is None else (key,)
        if isinstance(error, UnknownName):
            ledger.unknown(place, error)
        else:
            ledger.problem(place, str(error))
    return BackendTarget(name=backend, chip=chip)


def _built(
    document: PlanDocument | None,
    request: CaseRequest,
    known: _KnownOperators,
    shared: _Shared,
    fills: FillCheck,
    ledger: Ledger,
) -> Iterator[tuple[TestCase, Path]]:
    for entry, path in _entries(document, request, known):
        operator = known.get(entry["op"], (*path, "op") if path else "--op")
        if operator is None:
            continue
        case = _build(Statement(operator, entry, path, shared.defaults, request, ledger), shared, fills)
        if case is not None:
            yield case, path


def _entries(
    document: PlanDocument | None, request: CaseRequest, known: _KnownOperators
) -> Iterator[tuple[Entry, Path]]:
    """The plan's cases of the wanted operators, then one entry for each operator that the plan has not."""
    wanted = {name: known.get(name, "--op") for name in request.ops}
    names = {operator.name for operator in wanted.values() if operator is not None}
    found: set[str] = set()
    for index, entry in enumerate(document.cases if document is not None else ()):
        path: Path = ("cases", index)
        if not wanted:
            yield entry, path
            continue
        operator = known.get(entry["op"], (*path, "op"))
        if operator is not None and operator.name in names:
            found.add(operator.name)
            yield entry, path
    for name, operator in wanted.items():
        if operator is not None and operator.name not in found:
            found.add(operator.name)
            yield {"op": name}, ()


def _build(statement: Statement, shared: _Shared, fills: FillCheck) -> TestCase | None:
    """One case, or None if the ledger got something to say about it."""
    ledger, entry, defaults, request = statement.ledger, statement.entry, statement.defaults, statement.request
    before = len(ledger.problems)
    attributes = bind_attributes(statement, shared.attributes)
    layouts = read_layouts(statement)
    inputs = input_specs(statement, layouts)
    reference = _reference(statement)
    if attributes is None or inputs is None:
        return None
    outputs = output_specs(statement, layouts, inputs, attributes)
    generator, arguments = arguments_of(statement, fills, inputs, outputs, attributes)
    if len(ledger.problems) > before:
        return None
    descriptor = statement.operator.descriptor
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
        tolerances=_tolerances(statement, shared),
        timeout_s=_first(request.timeout_s, entry.get("timeout"), defaults.get("timeout")),
        retries=_first(request.retries, entry.get("retries"), defaults.get("retries"), 0),
        skip=entry.get("skip"),
        xfail=entry.get("xfail"),
        expects_error=entry.get("expects_error"),
        tags=tuple(dict.fromkeys((*entry.get("tags", ()), *defaults.get("tags", ()), *descriptor.tags))),
        description=entry.get("description", ""),
        where=_where(statement),
        base_dir=shared.base_dir,
        origins=_origins(statement, shared),
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


def _tolerances(statement: Statement, shared: _Shared) -> tuple[ToleranceLayer, ...]:
    own = statement.entry.get("tolerance")
    if own is None and shared.plan_tolerance is None and shared.flag_tolerance is None:
        return ()
    case_layer = None
    if own is not None:
        case_layer = ToleranceLayer(layer=Layer.CASE, tolerance=own, where=_where_key(statement, "tolerance"))
    layers = (shared.plan_tolerance, case_layer, shared.flag_tolerance)
    return tuple(layer for layer in layers if layer is not None)


def _backend_config(entry: Entry, shared: _Shared) -> dict[str, Mapping[str, Any]]:
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


def _where(statement: Statement) -> str:
    source = statement.ledger.source
    if source is None or not statement.path:
        return COMMAND_LINE
    return f"{source.file}:{source.case_lines[int(statement.path[1])]}"


def _where_key(statement: Statement, key: str) -> str:
    """Where a key of the case stands; one that was merged in has the line of the case."""
    source = statement.ledger.source
    assert source is not None
    index = int(statement.path[1])
    return f"{source.file}:{source.case_key_lines[index].get(key, source.case_lines[index])}"


def _origins(statement: Statement, shared: _Shared) -> dict[str, str]:
    """Where each stated value came from; what is not in it is the operator's or optest's default."""
    origins = dict(shared.default_origins)
    source = statement.ledger.source
    if source is not None and statement.path:
        index, file = int(statement.path[1]), source.file
        start, lines = source.case_lines[index], source.case_key_lines[index]
        for key in statement.entry:
            origins[key] = f"{file}:{lines.get(key, start)}"
    origins.update(shared.flag_origins)
    if statement.request.shapes or shared.mixes_mappings:
        origins.update(_origins_within(statement, shared))
    return origins


def _origins_within(statement: Statement, shared: _Shared) -> dict[str, str]:
    """Single tensors, attributes and options that come from another layer than the case itself."""
    origins: dict[str, str] = {}
    operator, entry, defaults = statement.operator, statement.entry, statement.defaults
    names = operator.attribute_names
    own = {names.get(key, key) for key in entry.get("attributes", {})}
    for key in applicable(operator, defaults.get("attributes", {})):
        if names.get(key, key) not in own:
            origins[f"attributes.{names.get(key, key)}"] = shared.default_origins["attributes"]
    for backend, options in defaults.get("backend_config", {}).items():
        stated = entry.get("backend_config", {}).get(backend, {})
        for key in options:
            if key not in stated:
                origins[f"backend_config.{backend}.{key}"] = shared.default_origins["backend_config"]
    for name in statement.request.shapes:
        if operator.knows(name):
            side, index = operator.locate(name)
            origins[f"{side}{index}.shape"] = COMMAND_LINE
    for key in shared.attributes:
        origins[f"attributes.{names.get(key, key)}"] = COMMAND_LINE
    for backend, options in shared.backend_config.items():
        for key in options:
            origins[f"backend_config.{backend}.{key}"] = COMMAND_LINE
    return origins


def _default_origins(document: PlanDocument | None) -> dict[str, str]:
    if document is None:
        return {}
    found = {key: document.where((key,)) for key in ("seed", "backend", "chip") if key in document.model_fields_set}
    return found | {key: f"{document.where(('defaults', key))} defaults" for key in document.defaults}


def _flag_origins(request: CaseRequest) -> dict[str, str]:
    stated = {
        "dtypes": request.dtypes,
        "generator": request.generator,
        "reference": request.reference,
        "tolerance": request.tolerance is not None,
        "seed": request.seed is not None,
        "timeout": request.timeout_s is not None,
        "retries": request.retries is not None,
        "backend": request.backend,
        "chip": request.chip,
    }
    return {key: COMMAND_LINE for key, value in stated.items() if value}


def _refuse_untrusted_code(document: PlanDocument | None, request: CaseRequest, ledger: Ledger) -> None:
    """Under ``--untrusted`` nothing that only the plan names is run."""
    if not request.untrusted or document is None:
        return
    layers: list[tuple[Entry, Path]] = [(document.defaults, ("defaults",))]
    layers += [(entry, ("cases", index)) for index, entry in enumerate(document.cases)]
    for entry, path in layers:
        for place, what in _code_named_in(entry, path):
            ledger.problem(place, f"--untrusted refuses what the plan would run: {_command_text(what)}")


def _code_named_in(entry: Entry, path: Path) -> Iterator[tuple[Path, Any]]:
    generator = entry.get("generator")
    if generator is not None and generator.path is not None:
        yield (*path, "generator"), generator.path
    if "reference" in entry:
        yield (*path, "reference"), entry["reference"]
    for backend, options in entry.get("backend_config", {}).items():
        for key in RUNS_CODE:
            if key in options:
                yield (*path, "backend_config", backend, key), options[key]


def _command_text(what: Any) -> str:
    if isinstance(what, list) and all(isinstance(word, str) for word in what):
        return " ".join(what)
    return what if isinstance(what, str) else shown(what)


def _check_default_attributes(defaults: Entry, known: _KnownOperators, ledger: Ledger) -> None:
    """A default attribute that no operator of the plan has is a slip."""
    stated = defaults.get("attributes", {})
    used = {key for operator in known.found() for key in applicable(operator, stated)} if stated else set()
    for key in stated:
        if key not in used:
            names = {name for operator in known.found() for name in operator.attribute_names}
            error = UnknownName("attribute of any operator in the plan", key, names)
            ledger.unknown(("defaults", "attributes", key), error)


def _check_names(document: PlanDocument | None, ledger: Ledger) -> None:
    first: dict[str, int] = {}
    for index, entry in enumerate(document.cases if document is not None else ()):
        name = entry.get("name")
        if name is None or document is None:
            continue
        if name in first:
            line = document.source.case_lines[first[name]]
            ledger.problem(("cases", index, "name"), f"the name {name!r} is taken by the case in line {line}")
        first.setdefault(name, index)


def _check_backend_names(
    document: PlanDocument | None, shared: _Shared, known: Collection[str], ledger: Ledger
) -> None:
    stated: list[Path] = []
    if document is not None:
        stated += [("defaults", "backend_config", name) for name in document.defaults.get("backend_config", {})]
        for index, entry in enumerate(document.cases):
            stated += [("cases", index, "backend_config", name) for name in entry.get("backend_config", {})]
    for place in stated:
        if place[-1] not in known:
            ledger.unknown(place, UnknownName("backend", str(place[-1]), known))
    for name in shared.backend_config:
        if name not in known:
            ledger.unknown("--attr", UnknownName("backend", name, known))


def _config_place(case: TestCase, path: Path, document: PlanDocument | None) -> Place:
    """Where the options of the case's backend were written."""
    if document is None:
        return "--attr"
    name = case.backend.name
    if path and name not in document.cases[int(path[1])].get("backend_config", {}):
        return ("defaults", "backend_config", name) if name in document.defaults.get("backend_config", {}) else path
    return (*path, "backend_config", name) if path else ("defaults", "backend_config", name)


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
