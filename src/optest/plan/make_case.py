"""Build one case from its layers: each value from the highest layer that sets it, all problems in the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from optest.errors import UnknownName, UsageError
from optest.plan.fills import choose_fills, with_sum_lengths
from optest.plan.layers import Entry, FillCheck, PlanContext, PlanHost, Statement, below
from optest.plan.operator_lookup import KnownOperator, KnownOperators
from optest.plan.problems import Ledger, Place
from optest.plan.request import COMMAND_LINE
from optest.plan.tensors import input_specs, no_such_output, output_specs, read_layouts
from optest.plan.values import ToleranceChoice, hint_for_list, is_dotted, shown
from optest.spec import (
    DEFAULT_PRIORITY,
    Argument,
    BackendTarget,
    Layer,
    TensorSpec,
    TestCase,
    ToleranceLayer,
    UnfitArguments,
)
from optest.spec.case import key_of, seed_text, signature_text
from optest.spec.construct import constructor
from optest.spec.invariants import read_invariants

_new_case = constructor(TestCase)


def build_case(entry: Entry, host: PlanHost) -> TestCase:
    """Build one case from values in the form in which the schema returns them, without a plan.

    Raises:
        PlanError: with all problems of the case.
    """
    assert isinstance(host.target, BackendTarget)
    ledger = Ledger()
    context = PlanContext(host=host, target=host.target, ledger=ledger, fills=FillCheck(host, ledger))
    operator = KnownOperators(host.operators, ledger).get(entry["op"], "--op")
    # The path of a case in a plan: hints show values, not flags.
    case = make_case(Statement(operator, ("cases", 0), context, entry)) if operator is not None else None
    ledger.refuse()
    assert case is not None
    return case


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
        lambda _: _check_tolerances(statement, computed.outputs, rest["tolerances"]),
    )
    if "backend_config" in statement.doubtful:
        return None
    origins = statement.shared("origins", ("attributes", "backend_config"), _origins_of)
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
    values, invariants = statement.values, statement.values.get("invariants")
    try:
        read_invariants(invariants or (), statement.operator.descriptor.tensors)
    except UsageError as error:
        statement.ledger.error(statement.place_of_value("invariants"), error)
    return {
        "backend": context.target,
        "backend_config": statement.backend_config(),
        "name": entry.get("name", ""),
        "seed": values.get("seed", context.seed),
        "reference": _reference(statement),
        "tolerances": _tolerance_layers(statement),
        "timeout_s": values.get("timeout", context.host.default_timeout_s),
        "retries": values.get("retries", 0),
        "priority": values.get("priority", DEFAULT_PRIORITY),
        "skip": entry.get("skip"),
        "xfail": entry.get("xfail"),
        "expects_error": entry.get("expects_error"),
        "tags": tuple(dict.fromkeys(tags)),
        "description": entry.get("description", ""),
        "where": statement.where,
        "base_dir": context.base_dir,
        "allowed_folders": context.allowed_folders,
        "invariants": None if invariants is None else tuple(invariants),
    }


def _reference(statement: Statement) -> str | None:
    path = statement.values.get("reference")
    if path is None:
        return None
    place = statement.place_of_value("reference")
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


def _tolerance_layers(statement: Statement) -> tuple[ToleranceLayer, ...]:
    """Return the layers that set a tolerance, the lowest first; outputs are named by index, ``output0``."""
    layers: list[ToleranceLayer] = []
    for place, choice in statement.layers("tolerance"):
        if place == "--tolerance":
            layers += _layers_of(choice, Layer.COMMAND_LINE, place, place, statement)
        elif place == ("defaults", "tolerance"):
            where = statement.context.origins["tolerance"].removesuffix(" defaults")
            layers += _layers_of(choice, Layer.PLAN, where, place, statement)
        else:
            layers += _layers_of(choice, Layer.CASE, statement.where_of("tolerance"), place, statement)
    return tuple(layers)


def _layers_of(
    choice: ToleranceChoice, layer: Layer, where: str, place: Place, statement: Statement
) -> Iterator[ToleranceLayer]:
    if choice.every is not None:
        yield ToleranceLayer(layer=layer, tolerance=choice.every, where=where)
    named = choice.by_output
    if layer is Layer.PLAN:
        # Defaults may name outputs of other operators of the plan.
        named = {name: tolerance for name, tolerance in named.items() if statement.operator.knows(name)}
    for (_, index), _, tolerance in statement.by_tensor(named, place, "tolerance", side="output"):
        yield ToleranceLayer(layer=layer, tolerance=tolerance, output=f"output{index}", where=where)


def _check_tolerances(statement: Statement, outputs: Sequence[TensorSpec], layers: Sequence[ToleranceLayer]) -> None:
    """Note a problem for a tolerance of an output that does not exist, and for an output that needs one."""
    choice: ToleranceChoice | None = statement.entry.get("tolerance")
    for name in choice.by_output if choice is not None and outputs else ():
        side, index = statement.operator.locate(name) if statement.operator.knows(name) else ("", 0)
        if side == "output" and index >= len(outputs):
            message = no_such_output(statement.operator, index, len(outputs))
            statement.ledger.problem((*statement.path, "tolerance", name), message)
    if statement.operator.descriptor.rule is None:
        _require_tolerance(statement, outputs, layers)


def _require_tolerance(statement: Statement, outputs: Sequence[TensorSpec], layers: Sequence[ToleranceLayer]) -> None:
    """Note a problem for the first non-empty float output without a tolerance: there is no rule to fall back on."""
    entry = statement.entry
    if "tolerance" in statement.doubtful or "skip" in entry or "expects_error" in entry:
        return
    bounded = {layer.output for layer in layers if layer.tolerance.bounds_errors}
    for index, spec in enumerate(outputs):
        if spec.dtype.precision and spec.elements and bounded.isdisjoint((None, f"output{index}")):
            output = f"output{index} of {statement.operator.name} is {spec.dtype}"
            message = f"{output}, and the operator has no tolerance rule, so the case needs a tolerance"
            in_plan = "tolerance: {rtol: 1e-3, atol: 1e-5} here or in defaults"
            hint = in_plan if statement.path else "--tolerance rtol=1e-3,..."
            # One tolerance serves all outputs, so the first problem is enough.
            place = statement.place("tolerance")
            statement.ledger.problem(place, message, f"{hint}, or a rule in the operator's descriptor")
            return


def _origins_of(statement: Statement) -> dict[str, str]:
    """Return the origin of each value that a layer sets, by its name in `explain_case`; others are defaults."""
    context, operator = statement.context, statement.operator
    origins = dict(context.origins)
    for key in _MAPPINGS & context.defaults.keys():
        origins.update(dict.fromkeys(_part_names(operator, key, context.defaults[key]), context.origins[key]))
    # A case built from flags has no lines.
    if statement.path and context.source is not None:
        lines, where = context.source.key_lines[statement.path], statement.where
        for key in statement.entry:
            origins[key] = f"{context.source.file}:{lines[key]}" if key in lines else where
        for key in _MAPPINGS & statement.entry.keys():
            origins.update(dict.fromkeys(_part_names(operator, key, statement.entry[key]), origins[key]))
        if statement.ledger.combination is not None:
            product = statement.ledger.combination[0]
            # Values that differ between combinations are written in their axes, perhaps referred to by a key.
            for unit in product.units:
                places = [
                    f"{context.source.file}:{product.lines[product.axes[axis].key]} product" for axis in unit.axes
                ]
                if unit.own_axis is None:
                    names = [", ".join(product.axes[axis].names) for axis in unit.axes]
                    named = [f"{name} of {place}" for name, place in zip(names, places, strict=True)]
                    places = [statement.where_of(unit.target[0]), *named]
                origins[_name_of(operator, unit.target)] = ", ".join(places)
    for key, value in statement.flags.items():
        if key == "shapes":
            origins.update(dict.fromkeys((_name_of(operator, (key, name)) for name in value), COMMAND_LINE))
        else:
            origins[key] = COMMAND_LINE
            origins.update(dict.fromkeys(_part_names(operator, key, value), COMMAND_LINE))
    for key in ("backend", "chip"):
        if getattr(context.request, key):
            origins[key] = COMMAND_LINE
    return origins


# Keys whose parts have rows of their own.
_MAPPINGS = frozenset(("attributes", "backend_config"))


def _part_names(operator: KnownOperator, key: str, value: Any) -> Iterator[str]:
    """Yield the row names of the attributes or backend options in a mapping."""
    if key == "attributes":
        yield from (_name_of(operator, (key, name)) for name in value)
    elif key == "backend_config":
        yield from (f"{key}.{backend}.{option}" for backend, options in value.items() for option in options)


def _name_of(operator: KnownOperator, target: tuple[str, ...]) -> str:
    """Return the row name of the value at ``target`` of a case, by the operator's names."""
    key, *rest = target
    if key == "attributes" and rest:
        return f"attributes.{operator.attribute_names.get(rest[0], rest[0])}"
    if key == "shapes" and rest and operator.knows(rest[0]):
        side, index = operator.locate(rest[0])
        return f"{side}{index}.shape"
    return ".".join(target) if key == "backend_config" else key
