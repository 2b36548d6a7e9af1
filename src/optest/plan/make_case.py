"""One case from what is stated about it: every key from the layer that decides it, all faults in the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from optest.errors import UnknownName, UsageError
from optest.plan.explain import origins_of, where_of
from optest.plan.fills import choose_fills, with_lengths_of_sums
from optest.plan.layers import Statement, below
from optest.plan.operator_lookup import KnownOperator
from optest.plan.problems import Place
from optest.plan.tensors import input_specs, output_specs, read_layouts
from optest.plan.tolerances import check_tolerances, tolerance_layers
from optest.plan.values import is_dotted, several, shown
from optest.spec import DEFAULT_PRIORITY, Argument, TensorSpec, TestCase, UnfitArguments
from optest.spec.case import key_of, seed_text, signature_text
from optest.spec.construct import constructor
from optest.spec.invariants import read_invariants

_new_case = constructor(TestCase)


class _Computed(NamedTuple):
    """What a case computes."""

    attributes: Mapping[str, Any]
    inputs: tuple[Argument, ...]
    outputs: tuple[TensorSpec, ...]
    generator: str | None


_TENSORS = ("shapes", "dtypes", "attributes", "generator", "backend_config", "expects_error")
"""Keys that decide what is computed: options of a backend may imply dtypes, a refusal may have any."""
_REST = (
    *("backend_config", "name", "seed", "reference", "tolerance", "timeout", "retries", "priority"),
    *("skip", "xfail", "expects_error", "tags", "description", "invariants"),
)


def make_case(statement: Statement) -> TestCase | None:
    """The case that is stated, or None where too little of it is right to go on; all faults go into the ledger."""
    computed = statement.once("computed", _TENSORS, _computed)
    rest = statement.once("rest", _REST, _rest)
    if computed is None:
        return None
    statement.once(
        "tolerances",
        (*_TENSORS, "tolerance", "skip"),
        lambda _: check_tolerances(statement, computed.outputs, rest["tolerances"]),
    )
    if "backend_config" in statement.doubtful:
        return None
    origins = statement.once("origins", ("attributes", "backend_config"), origins_of)
    case = _new_case(descriptor=statement.operator.descriptor, origins=origins, **computed._asdict(), **rest)
    spelled = statement.operator.spelled
    if spelled is not None:
        try:
            return spelled.in_own_words(case)
        except UnfitArguments as error:
            # Inference has reported it already, unless the case expects an error.
            if "expects_error" in statement.entry:
                own = " or ".join(f"op: {name}" for name in sorted(statement.operator.meanings))
                hint = f"whether a backend refuses it is tested with {own}"
                statement.ledger.problem(statement.place("op"), str(error), hint)
            return None
    if statement.common is not None:
        # Combinations that compute the same share the identifier and the signature.
        identifier, signature = statement.once(
            "identity", _TENSORS, lambda _: (case.identifier(), signature_text(case))
        )
        object.__setattr__(case, "_identifier", identifier)
        object.__setattr__(case, "_key", key_of(seed_text(case.seed), signature))
    return case


def _computed(statement: Statement) -> _Computed | None:
    attributes = statement.once("attributes", ("attributes",), _bind_attributes)
    layouts = read_layouts(statement)
    inputs = input_specs(statement, layouts)
    if attributes is None or inputs is None:
        choose_fills(statement, ())
        return None
    outputs = output_specs(statement, layouts, inputs, attributes)
    path, every, by_index = statement.once(
        ("fills", *inputs), ("generator",), lambda _: choose_fills(statement, list(inputs))
    )
    descriptor = statement.operator.descriptor
    arguments = {}
    for index, spec in inputs.items():
        name, fill = descriptor.tensors.input_name(index), by_index.get(index, every)
        arguments[index] = Argument(name=name, path=f"input{index}", spec=spec, fill=fill)
    return _Computed(attributes, with_lengths_of_sums(descriptor, arguments, outputs, attributes), outputs, path)


def _rest(statement: Statement) -> dict[str, Any]:
    """Everything that does not depend on tensors and attributes."""
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
    stated, place = statement.value_and_place("reference")
    if stated is None:
        return None
    if is_dotted(stated):
        statement.context.fills.require_hook(stated, place, untrusted=statement.context.request.untrusted)
    else:
        message = f"reference is {shown(stated)}, but should be an import path: package.module:name"
        statement.ledger.problem(place, message)
    return str(stated)


# Attributes: layers merged under canonical names, checked by the operator, faults located

_Layers: TypeAlias = "list[tuple[Place, Mapping[str, Any]]]"
_DEFAULTS = ("defaults", "attributes")


def _bind_attributes(statement: Statement) -> dict[str, Any] | None:
    """Return all attributes with defaults filled in, None if something is wrong."""
    operator = statement.operator
    layers: _Layers = [
        (place, applicable(operator, stated) if place == _DEFAULTS else stated)
        for place, stated in statement.layers("attributes")
    ]
    if "attributes" in statement.doubtful:
        _locate_faults(statement, layers)
        return None
    stated = layers[0][1] if layers else {}
    if len(layers) > 1:
        if not _named_once(statement, layers):
            return None
        names = operator.attribute_names
        stated = {names.get(key, key): value for _, layer in layers for key, value in layer.items()}
    try:
        return operator.descriptor.bind(stated)
    except (UnfitArguments, UsageError) as error:
        if not _locate_faults(statement, layers):
            statement.ledger.problem(statement.place("attributes"), str(error))
        return None


def applicable(operator: KnownOperator, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Default attributes reach the operators that have them, so that one plan can hold several operators."""
    is_open = operator.descriptor.open_attributes
    return {key: value for key, value in defaults.items() if is_open or key in operator.attribute_names}


def _named_once(statement: Statement, layers: _Layers) -> bool:
    """Whether no layer states an attribute under two of its names; two layers may, and the later one wins."""
    good = True
    for place, layer in layers:
        seen: dict[str, str] = {}
        for key in layer:
            name = statement.operator.attribute_names.get(key, key)
            if name in seen:
                other = seen[name] if key == name else key
                statement.ledger.problem(below(place, key), f"attribute {name} is stated twice, also as {other}")
                good = False
            seen.setdefault(name, key)
    return good


def _locate_faults(statement: Statement, layers: _Layers) -> bool:
    """Say which attributes are wrong: ``bind`` stops at the first and does not know where it was written."""
    operator, ledger = statement.operator, statement.ledger
    found = False
    for place, layer in layers:
        for key, value in layer.items():
            if operator.descriptor.open_attributes and key not in operator.attribute_names:
                continue
            try:
                operator.descriptor.attribute(key).read(value)
            except UnknownName as error:
                ledger.unknown(below(place, key), error)
                found = True
            except UnfitArguments as error:
                are_several = isinstance(value, list) and value and place[0] == "cases" and ledger.combination is None
                ledger.problem(
                    below(place, key), str(error), several(f"attributes.{key}", value) if are_several else ""
                )
                found = True
    return found
