"""Build one case from its layers: each value from the highest layer that sets it, all problems in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from optest.errors import UnknownName, UsageError
from optest.plan.explain import origins_of, where_of
from optest.plan.fills import choose_fills, with_sum_lengths
from optest.plan.layers import Statement, below
from optest.plan.operator_lookup import KnownOperator
from optest.plan.problems import Place
from optest.plan.tensors import input_specs, output_specs, read_layouts
from optest.plan.tolerances import check_tolerances, tolerance_layers
from optest.plan.values import hint_for_list, is_dotted, shown
from optest.spec import DEFAULT_PRIORITY, Argument, TensorSpec, TestCase, UnfitArguments
from optest.spec.case import key_of, seed_text, signature_text
from optest.spec.construct import constructor
from optest.spec.invariants import read_invariants

_new_case = constructor(TestCase)


class _Computed(NamedTuple):
    """The parts of a case that determine the computation."""

    attributes: Mapping[str, Any]
    inputs: tuple[Argument, ...]
    outputs: tuple[TensorSpec, ...]
    generator: str | None


# Keys that the computation depends on: a backend's options may imply dtypes, and a refused call may have any.
_TENSORS = ("shapes", "dtypes", "attributes", "generator", "backend_config", "expects_error")
_REST = (
    *("backend_config", "name", "seed", "reference", "tolerance", "timeout", "retries", "priority"),
    *("skip", "xfail", "expects_error", "tags", "description", "invariants"),
)


def make_case(statement: Statement) -> TestCase | None:
    """Return the case of a statement, None if too many of its values are wrong; note all problems in the ledger."""
    computed = statement.shared("computed", _TENSORS, _computed)
    # Built even if `computed` is wrong, to note all problems in one run.
    rest = statement.shared("rest", _REST, _rest)
    if computed is None:
        return None
    statement.shared(
        "tolerances",
        (*_TENSORS, "tolerance", "skip"),
        lambda _: check_tolerances(statement, computed.outputs, rest["tolerances"]),
    )
    if "backend_config" in statement.doubtful:
        return None
    origins = statement.shared("origins", ("attributes", "backend_config"), origins_of)
    case = _new_case(descriptor=statement.operator.descriptor, origins=origins, **computed._asdict(), **rest)
    spelled = statement.operator.spelled
    if spelled is not None:
        try:
            return spelled.convert(case)
        except UnfitArguments as error:
            # Inference has noted it already, unless the case expects an error.
            if "expects_error" in statement.entry:
                names = " or ".join(f"op: {name}" for name in sorted(statement.operator.meanings))
                hint = f"to test that a backend refuses the call, write {names}"
                statement.ledger.problem(statement.place("op"), str(error), hint)
            return None
    if statement.common is not None:
        # Combinations that compute the same share identifier and signature; both are slow to derive from a case.
        identifier, signature = statement.shared(
            "identity", _TENSORS, lambda _: (case.identifier(), signature_text(case))
        )
        object.__setattr__(case, "_identifier", identifier)
        object.__setattr__(case, "_key", key_of(seed_text(case.seed), signature))
    return case


def _computed(statement: Statement) -> _Computed | None:
    attributes = statement.shared("attributes", ("attributes",), _bind_attributes)
    layouts = read_layouts(statement)
    inputs = input_specs(statement, layouts)
    if attributes is None or inputs is None:
        # Nothing is built, but wrong fills are noted as well.
        choose_fills(statement, ())
        return None
    outputs = output_specs(statement, layouts, inputs, attributes)
    path, every, by_index = statement.shared(
        ("fills", *inputs), ("generator",), lambda _: choose_fills(statement, list(inputs))
    )
    descriptor = statement.operator.descriptor
    arguments = {}
    for index, spec in inputs.items():
        name, fill = descriptor.tensors.input_name(index), by_index.get(index, every)
        arguments[index] = Argument(name=name, path=f"input{index}", spec=spec, fill=fill)
    return _Computed(attributes, with_sum_lengths(descriptor, arguments, outputs, attributes), outputs, path)


def _rest(statement: Statement) -> dict[str, Any]:
    """Return all fields of a case that do not depend on tensors and attributes."""
    entry, context = statement.entry, statement.context
    tags = (*entry.get("tags", ()), *context.defaults.get("tags", ()), *statement.operator.descriptor.tags)
    invariants, place = statement.value_and_place("invariants")
    try:
        read_invariants(invariants or (), statement.operator.descriptor.tensors)
    except UsageError as error:
        statement.ledger.error(place, error)
    return {
        "backend": context.target,
        "backend_config": statement.backend_config(),
        "name": entry.get("name", ""),
        "seed": statement.value("seed", context.seed),
        "reference": _reference(statement),
        "tolerances": tolerance_layers(statement),
        "timeout_s": statement.value("timeout", context.host.default_timeout_s),
        "retries": statement.value("retries", 0),
        "priority": statement.value("priority", DEFAULT_PRIORITY),
        "skip": entry.get("skip"),
        "xfail": entry.get("xfail"),
        "expects_error": entry.get("expects_error"),
        "tags": tuple(dict.fromkeys(tags)),
        "description": entry.get("description", ""),
        "where": where_of(statement),
        "base_dir": context.base_dir,
        "allowed_folders": context.allowed_folders,
        "invariants": None if invariants is None else tuple(invariants),
    }


def _reference(statement: Statement) -> str | None:
    path, place = statement.value_and_place("reference")
    if path is None:
        return None
    if is_dotted(path):
        statement.context.fills.require_hook(path, place, untrusted=statement.context.request.untrusted)
    else:
        message = f"reference is {shown(path)}, expected an import path: package.module:name"
        statement.ledger.problem(place, message)
    return str(path)


_Layers: TypeAlias = "list[tuple[Place, Mapping[str, Any]]]"
_DEFAULTS = ("defaults", "attributes")


def _bind_attributes(statement: Statement) -> dict[str, Any] | None:
    """Return all attributes with defaults filled in; note a problem and return None if one is wrong."""
    operator = statement.operator
    layers: _Layers = [
        (place, applicable(operator, values) if place == _DEFAULTS else values)
        for place, values in statement.layers("attributes")
    ]
    if "attributes" in statement.doubtful:
        _note_wrong_attributes(statement, layers)
        return None
    values = layers[0][1] if layers else {}
    # `bind` itself refuses two names of one attribute in a single layer.
    if len(layers) > 1:
        if not _check_aliases(statement, layers):
            return None
        names = operator.attribute_names
        values = {names.get(key, key): value for _, layer in layers for key, value in layer.items()}
    try:
        return operator.descriptor.bind(values)
    except (UnfitArguments, UsageError) as error:
        if not _note_wrong_attributes(statement, layers):
            statement.ledger.problem(statement.place("attributes"), str(error))
        return None


def applicable(operator: KnownOperator, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default attributes that the operator has; others are for other operators of the plan."""
    is_open = operator.descriptor.open_attributes
    return {key: value for key, value in defaults.items() if is_open or key in operator.attribute_names}


def _check_aliases(statement: Statement, layers: _Layers) -> bool:
    """Note a problem for each attribute that one layer sets under two names; return False if there is one."""
    before = statement.ledger.noted
    for place, layer in layers:
        seen: dict[str, str] = {}
        for key in layer:
            name = statement.operator.attribute_names.get(key, key)
            if name in seen:
                alias = seen[name] if key == name else key
                statement.ledger.problem(below(place, key), f"attribute {name} is set twice, also as {alias}")
            seen.setdefault(name, key)
    return statement.ledger.noted == before


def _note_wrong_attributes(statement: Statement, layers: _Layers) -> bool:
    """Note a problem for each wrong attribute at its position; return whether there is one."""
    # `bind` stops at the first and does not know where it is written.
    operator, ledger = statement.operator, statement.ledger
    before = ledger.noted
    for place, layer in layers:
        for key, value in layer.items():
            if operator.descriptor.open_attributes and key not in operator.attribute_names:
                continue
            try:
                operator.descriptor.attribute(key).read(value)
            except UnknownName as error:
                ledger.unknown(below(place, key), error)
            except UnfitArguments as error:
                in_case = place[0] == "cases" and ledger.combination is None
                hint = (
                    hint_for_list(f"attributes.{key}", value) if isinstance(value, list) and value and in_case else ""
                )
                ledger.problem(below(place, key), str(error), hint)
    return ledger.noted > before
