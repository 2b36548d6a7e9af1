"""What is wrong with a plan as a whole: code that nobody trusts, names taken twice, names that nothing has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from optest.errors import UnknownName
from optest.plan.attributes import applicable
from optest.plan.forms import shown
from optest.plan.request import CaseRequest
from optest.plan.shared import RUNS_CODE, Shared
from optest.plan.source import Path
from optest.plan.statement import Entry, KnownOperators, Ledger, Place, Statement
from optest.spec import TensorSpec, TestCase, ToleranceLayer
from optest.store import PathError, resolve_path

if TYPE_CHECKING:
    from optest.plan.schema import PlanDocument

__all__ = [
    "check_backend_names",
    "check_defaults",
    "check_names",
    "config_place",
    "configured_backends",
    "options_of_others",
    "refuse_untrusted",
    "require_tolerance",
    "unused_options",
]


def refuse_untrusted(shared: Shared, top: Shared, ledger: Ledger) -> None:
    """Of an untrusted plan nothing that only it names is run, and no file elsewhere is opened."""
    document, folders = shared.document, shared.allowed_folders
    if document is None or not folders:
        return
    layers: list[tuple[Entry, Path]] = [(document.defaults, ("defaults",))]
    layers += [(entry, ("cases", index)) for index, entry in enumerate(document.cases)]
    for entry, path in layers:
        _refuse_code_in(entry, path, ledger)
        _refuse_files_of(entry, path, document, folders, ledger)
    for product in document.products():
        for rows, part, path in product.parts():
            with ledger.reading(document.source, (product, rows)):
                _refuse_code_in(part, path, ledger)
                _refuse_files_of(part, path, document, folders, ledger)
    if shared is top and isinstance(document.report.get("path"), str):
        _refuse_path(document.report["path"], ("report", "path"), document, folders, ledger)


def _refuse_files_of(entry: Entry, path: Path, document: PlanDocument, folders: Sequence[str], ledger: Ledger) -> None:
    """The files of fills; those in options of a backend are the backend's to refuse, by the case's own folders."""
    choice = entry.get("generator")
    for fill in () if choice is None else (choice.every, *choice.by_tensor.values()):
        name = fill.parameters.get("path") if fill is not None and fill.kind == "file" else None
        if isinstance(name, str):
            _refuse_path(name, (*path, "generator"), document, folders, ledger)


def _refuse_path(name: str, place: Place, document: PlanDocument, folders: Sequence[str], ledger: Ledger) -> None:
    try:
        resolve_path(document.folder(), name, folders)
    except PathError as error:
        ledger.problem(place, str(error))


def _refuse_code_in(entry: Entry, path: Path, ledger: Ledger) -> None:
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


def require_tolerance(
    statement: Statement, outputs: Sequence[TensorSpec], tolerances: Sequence[ToleranceLayer]
) -> None:
    """Whoever judges a floating output has to know what is allowed; optest does not guess it."""
    entry = statement.entry
    if "tolerance" in statement.doubtful or "skip" in entry or "expects_error" in entry:
        return
    stated = {layer.output for layer in tolerances if layer.tolerance.bounds_errors}
    if None in stated:
        return
    floating = [
        index
        for index, spec in enumerate(outputs)
        if spec.dtype.precision and spec.elements and f"output{index}" not in stated
    ]
    if not floating:
        return
    what = f"output{floating[0]} of {statement.operator.name} is {outputs[floating[0]].dtype}"
    hint = "tolerance: {rtol: 1e-3, atol: 1e-5} here or in defaults" if statement.path else "--tolerance rtol=1e-3,..."
    place = statement.place("tolerance", "--tolerance")
    message = f"{what}, and the operator has no rule for it, so a tolerance should be stated"
    statement.ledger.problem(place, message, f"{hint}, or a rule in the operator's descriptor")


def check_defaults(plans: Sequence[Shared], known: KnownOperators, ledger: Ledger) -> None:
    """A default attribute, or a default tolerance of an output, that no operator of the plans has is a slip."""
    if not known.all_known() or not all(all(plan.document.cases) for plan in plans if plan.document is not None):
        return
    for plan in plans:
        with ledger.reading(plan.source):
            _check_default_attributes(plan.defaults, known, ledger)
            _check_default_outputs(plan.defaults, known, ledger)


def _check_default_attributes(defaults: Entry, known: KnownOperators, ledger: Ledger) -> None:
    stated = defaults.get("attributes", {})
    used = {key for operator in known.found() for key in applicable(operator, stated)} if stated else set()
    for key in stated:
        if key not in used:
            names = {name for operator in known.found() for name in operator.attribute_names}
            error = UnknownName("attribute of any operator in the plan", key, names)
            ledger.unknown(("defaults", "attributes", key), error)


def _check_default_outputs(defaults: Entry, known: KnownOperators, ledger: Ledger) -> None:
    stated = defaults["tolerance"].by_output if "tolerance" in defaults else {}
    for name in stated:
        if not any(operator.knows(name) for operator in known.found()):
            names = {each for operator in known.found() for each in operator.descriptor.tensors.outputs}
            error = UnknownName("output of any operator in the plan", name, names)
            ledger.unknown(("defaults", "tolerance", name), error)


def check_names(documents: Sequence[PlanDocument], ledger: Ledger) -> None:
    """A name is taken once, in all plans that run together."""
    first: dict[str, tuple[PlanDocument, int]] = {}
    for document in documents:
        for index, entry in enumerate(document.cases):
            name = entry.get("name")
            if name is None:
                continue
            if name in first:
                other, taken_by = first[name]
                line = other.source.case_lines[taken_by]
                place = f"line {line}" if other is document else f"{other.path}:{line}"
                with ledger.reading(document.source):
                    ledger.problem(("cases", index, "name"), f"the name {name!r} is taken by the case in {place}")
            first.setdefault(name, (document, index))


def check_backend_names(plans: Sequence[Shared], known: Collection[str], ledger: Ledger) -> None:
    for plan in plans:
        with ledger.reading(plan.source):
            for place in _stated_backends(plan.document) if plan.document is not None else ():
                if place[-1] not in known:
                    ledger.unknown(place, UnknownName("backend", str(place[-1]), known))
    for name in plans[-1].backend_config:
        if name not in known:
            ledger.unknown("--attr", UnknownName("backend", name, known))


def configured_backends(document: PlanDocument | None, request: CaseRequest) -> dict[str, str]:
    """The backends that a plan with its includes, or ``--attr``, states options of, each with where it first does."""
    found: dict[str, str] = {}
    for each in document.family() if document is not None else ():
        for place in _stated_backends(each):
            found.setdefault(str(place[-1]), each.where(place))
    for key in request.attributes:
        head, _, rest = key.partition(".")
        if head == "backend_config" and rest:
            found.setdefault(rest.partition(".")[0], "--attr")
    return found


def unused_options(cases: Sequence[TestCase]) -> list[str]:
    """A note for every backend that cases state options of, none of them being for the backend that they run on."""
    counts: Counter[tuple[str, str]] = Counter()
    for case in cases:
        if case.backend_config and case.backend.name not in case.backend_config:
            counts.update((name, case.backend.name) for name in case.backend_config)
    return [
        f"backend_config.{name} is not used by backend {running}: {count} case{'s' if count > 1 else ''}"
        for (name, running), count in counts.items()
    ]


def _stated_backends(document: PlanDocument) -> Iterator[Path]:
    """Every place that names a backend to state options of it."""
    yield from (("defaults", "backend_config", name) for name in document.defaults.get("backend_config", {}))
    for index, entry in enumerate(document.cases):
        yield from (("cases", index, "backend_config", name) for name in entry.get("backend_config", {}))
    for product in document.products():
        for rows, part, path in product.parts():
            yield from (product.place(rows, (*path, "backend_config", name)) for name in part.get("backend_config", {}))


def options_of_others(case: TestCase) -> str:
    """A hint that the options are those of another backend."""
    others = [name for name in case.backend_config if name != case.backend.name]
    if case.backend.name in case.backend_config or not others:
        return ""
    return f"backend_config states options of {' and '.join(others)}, but the backend is {case.backend.name}"


def config_place(case: TestCase, path: Path, document: PlanDocument | None, entry: Entry | None = None) -> Place:
    """Where the options of the case's backend were written; ``entry`` is that of a combination.

    On the command line it is a flag of the backend's own or ``--attr``; what is said names the key.
    """
    if document is None:
        return ""
    name = case.backend.name
    stated: Entry = {}
    if path:
        stated = entry if entry is not None else document.cases[int(path[1])]
    if path and name not in stated.get("backend_config", {}):
        return ("defaults", "backend_config", name) if name in document.defaults.get("backend_config", {}) else path
    return (*path, "backend_config", name) if path else ("defaults", "backend_config", name)
