"""One case from its statement: every key from the layer that decides it, all faults in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from optest.plan.attributes import bind_attributes
from optest.plan.checks import require_tolerance
from optest.plan.fills import FillCheck, arguments_of, choose_fills
from optest.plan.forms import is_dotted, shown
from optest.plan.operands import input_specs, output_specs, read_layouts
from optest.plan.origins import origins_of, where_of
from optest.plan.request import CaseRequest
from optest.plan.shared import Shared
from optest.plan.source import Path
from optest.plan.statement import Entry, KnownOperator, Ledger, Statement
from optest.plan.tolerances import check_outputs_of_tolerances, tolerance_layers
from optest.spec import DEFAULT_PRIORITY, TestCase, UnfitArguments

__all__ = ["Maker", "first_stated"]


class Maker:
    """Makes the cases of one plan, or those of flags alone."""

    def __init__(
        self,
        shared: Shared,
        request: CaseRequest,
        fills: FillCheck,
        ledger: Ledger,
        dtypes_of: Callable[[Mapping[str, Any]], Mapping[str, str]],
        default_timeout_s: float | None = None,
    ) -> None:
        self.shared = shared
        self.request = request
        self.fills = fills
        self.ledger = ledger
        self.dtypes_of = dtypes_of
        self.default_timeout_s = default_timeout_s

    def statement(self, operator: KnownOperator, entry: Entry, path: Path) -> Statement:
        """What is stated about a case, and what of it is not to be relied on."""
        doubtful = self._doubtful(entry, path)
        options = {} if "backend_config" in doubtful else self._backend_config(entry).get(self.shared.target.name, {})
        implied = self.dtypes_of(options) if options else {}
        defaults, request, ledger = self.shared.defaults, self.request, self.ledger
        return Statement(operator, entry, path, defaults, request, ledger, doubtful, implied)

    def _doubtful(self, entry: Entry, path: Path) -> set[str]:
        """The keys that could not be read, of the case or of what it takes from the defaults."""
        document = self.shared.document
        if document is None or not document.has_unread:
            return set()
        of_defaults = {key for key in document.unread(("defaults",)) if key in _ADD_UP or key not in entry}
        return of_defaults.union(document.unread(path) if path else ())

    def make(self, statement: Statement) -> TestCase | None:
        """The case, or None where too little of it is right to go on."""
        attributes = bind_attributes(statement, self.shared.attributes)
        layouts = read_layouts(statement)
        inputs = input_specs(statement, layouts)
        if attributes is None or inputs is None:
            self.rest(statement)
            choose_fills(statement, self.fills, ())
            return None
        outputs = output_specs(statement, layouts, inputs, attributes)
        generator, arguments = arguments_of(statement, self.fills, inputs, outputs, attributes)
        rest = self.rest(statement)
        check_outputs_of_tolerances(statement, len(outputs))
        if statement.operator.descriptor.rule is None:
            require_tolerance(statement, outputs, rest["tolerances"])
        if "backend_config" in statement.doubtful:
            return None
        case = TestCase(
            descriptor=statement.operator.descriptor,
            inputs=arguments,
            outputs=outputs,
            attributes=attributes,
            generator=generator,
            **rest,
        )
        return case if statement.operator.spelled is None else self._in_own_words(case, statement)

    def _in_own_words(self, case: TestCase, statement: Statement) -> TestCase | None:
        """What a spelling stands for; inference has said what is wrong with it, unless the case expects an error."""
        spelled = statement.operator.spelled
        assert spelled is not None
        try:
            return spelled.in_own_words(case)
        except UnfitArguments as error:
            if "expects_error" in statement.entry:
                own = " or ".join(f"op: {name}" for name in sorted(statement.operator.meanings))
                hint = f"whether a backend refuses it can be asked with {own}"
                self.ledger.problem(statement.place("op", "--op"), str(error), hint)
            return None

    def rest(self, statement: Statement) -> dict[str, Any]:
        """Everything that does not depend on tensors and attributes."""
        entry, defaults, request, shared = statement.entry, statement.defaults, self.request, self.shared
        return {
            "backend": shared.target,
            "backend_config": self._backend_config(entry),
            "name": entry.get("name", ""),
            "seed": entry.get("seed", shared.default_seed) if request.seed is None else request.seed,
            "reference": self._reference(statement),
            "tolerances": tolerance_layers(statement, shared),
            "timeout_s": first_stated(
                request.timeout_s, entry.get("timeout"), defaults.get("timeout"), self.default_timeout_s
            ),
            "retries": first_stated(request.retries, entry.get("retries"), defaults.get("retries"), 0),
            "priority": first_stated(entry.get("priority"), defaults.get("priority"), DEFAULT_PRIORITY),
            "skip": entry.get("skip"),
            "xfail": entry.get("xfail"),
            "expects_error": entry.get("expects_error"),
            "tags": _tags(statement),
            "description": entry.get("description", ""),
            "where": where_of(statement),
            "base_dir": shared.base_dir,
            "allowed_folders": shared.allowed_folders,
            "origins": origins_of(statement, shared),
        }

    def _reference(self, statement: Statement) -> str | None:
        stated, place = statement.stated("reference", statement.request.reference, "--reference")
        if stated is None:
            return None
        if is_dotted(stated):
            self.fills.require_hook(stated, place, untrusted=statement.request.untrusted)
        else:
            message = f"reference is {shown(stated)}, but should be an import path: package.module:name"
            statement.ledger.problem(place, message)
        return str(stated)

    def _backend_config(self, entry: Entry) -> dict[str, Mapping[str, Any]]:
        """Options by backend, merged key by key."""
        merged: dict[str, Mapping[str, Any]] = dict(self.shared.defaults.get("backend_config", {}))
        for backend, options in entry.get("backend_config", {}).items():
            merged[backend] = {**merged.get(backend, {}), **options}
        for backend, options in self.shared.backend_config.items():
            merged[backend] = _merged_deeply(merged.get(backend, {}), options)
        return merged


_ADD_UP = ("attributes", "backend_config", "generator")
"""Keys of which a case's own value is merged with that of the defaults."""


def first_stated(*values: Any) -> Any:
    """The first value that is stated, None if none is."""
    for value in values:
        if value is not None:
            return value
    return None


def _tags(statement: Statement) -> tuple[str, ...]:
    own, inherited = statement.entry.get("tags", ()), statement.defaults.get("tags", ())
    return tuple(dict.fromkeys((*own, *inherited, *statement.operator.descriptor.tags)))


def _merged_deeply(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged_deeply(merged[key], value) if both else value
    return merged
