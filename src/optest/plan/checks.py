"""What is wrong with a plan as a whole: code that nobody trusts, names taken twice, names that nothing has."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from optest.errors import UnknownName
from optest.plan.attributes import applicable
from optest.plan.forms import shown
from optest.plan.request import CaseRequest
from optest.plan.shared import Shared
from optest.plan.source import Path
from optest.plan.statement import Entry, KnownOperators, Ledger, Place, Statement
from optest.spec import TensorSpec, TestCase, ToleranceLayer

if TYPE_CHECKING:
    from optest.plan.schema import PlanDocument

__all__ = [
    "check_backend_names",
    "check_default_attributes",
    "check_names",
    "config_place",
    "options_of_others",
    "refuse_untrusted_code",
    "require_tolerance",
]

RUNS_CODE = ("command", "build", "prepare", "cleanup", "pre_run", "post_run", "env")
"""Keys of a backend's options that start programs or change what they start."""


def refuse_untrusted_code(document: PlanDocument | None, request: CaseRequest, ledger: Ledger) -> None:
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


def require_tolerance(
    statement: Statement, outputs: Sequence[TensorSpec], tolerances: Sequence[ToleranceLayer]
) -> None:
    """Whoever judges a floating output has to know what is allowed; optest does not guess it."""
    entry = statement.entry
    if "tolerance" in statement.doubtful or "skip" in entry or "expects_error" in entry:
        return
    stated = {layer.output for layer in tolerances}
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


def check_default_attributes(
    document: PlanDocument | None, defaults: Entry, known: KnownOperators, ledger: Ledger
) -> None:
    """A default attribute that no operator of the plan has is a slip."""
    if not known.all_known() or (document is not None and not all(document.cases)):
        return
    stated = defaults.get("attributes", {})
    used = {key for operator in known.found() for key in applicable(operator, stated)} if stated else set()
    for key in stated:
        if key not in used:
            names = {name for operator in known.found() for name in operator.attribute_names}
            error = UnknownName("attribute of any operator in the plan", key, names)
            ledger.unknown(("defaults", "attributes", key), error)


def check_names(document: PlanDocument | None, ledger: Ledger) -> None:
    first: dict[str, int] = {}
    for index, entry in enumerate(document.cases if document is not None else ()):
        name = entry.get("name")
        if name is None or document is None:
            continue
        if name in first:
            line = document.source.case_lines[first[name]]
            ledger.problem(("cases", index, "name"), f"the name {name!r} is taken by the case in line {line}")
        first.setdefault(name, index)


def check_backend_names(document: PlanDocument | None, shared: Shared, known: Collection[str], ledger: Ledger) -> None:
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


def options_of_others(case: TestCase) -> str:
    """A hint that the options are those of another backend."""
    others = [name for name in case.backend_config if name != case.backend.name]
    if case.backend.name in case.backend_config or not others:
        return ""
    return f"backend_config states options of {' and '.join(others)}, but the backend is {case.backend.name}"


def config_place(case: TestCase, path: Path, document: PlanDocument | None) -> Place:
    """Where the options of the case's backend were written."""
    if document is None:
        return "--attr"
    name = case.backend.name
    if path and name not in document.cases[int(path[1])].get("backend_config", {}):
        return ("defaults", "backend_config", name) if name in document.defaults.get("backend_config", {}) else path
    return (*path, "backend_config", name) if path else ("defaults", "backend_config", name)
