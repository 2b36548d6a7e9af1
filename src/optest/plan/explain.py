"""Origins of the values of a case: recorded while the case is built, printed by ``optest explain``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optest.plan.layers import Statement
from optest.plan.operator_lookup import KnownOperator
from optest.plan.request import COMMAND_LINE
from optest.plan.values import shown
from optest.spec import DEFAULT_PRIORITY, TestCase


def explain_case(case: TestCase) -> list[tuple[str, str, str]]:
    """Return name, value, origin (FILE:LINE, ``command line``, ``operator``, ``default``) of each value of a case."""
    rows = [("op", case.descriptor.name, case.origins.get("op", case.where or "default"))]
    rows += [("id", case.id, case.origins.get("name", "built from the case")), ("key", case.key, "signature and seed")]
    for argument in case.inputs:
        spec, path = argument.spec, argument.path
        # An elementwise operator gives other inputs the shape of the first.
        shape_origin = case.origins.get(f"{path}.shape") or case.origins.get("shapes", "as input0")
        rows += [
            (f"{path}.name", argument.name, "operator"),
            (f"{path}.dtype", spec.dtype.name, case.origins.get("dtypes", "operator")),
            (f"{path}.shape", shown(list(spec.shape)), shape_origin),
        ]
        if not spec.is_plain:
            rows.append((f"{path}.strides", shown(list(spec.strides or ())), shape_origin))
            rows.append((f"{path}.offset", str(spec.offset), shape_origin))
        if case.generator is None:
            origin = case.origins.get("generator", "operator" if case.descriptor.generator is not None else "default")
            rows.append((f"{path}.fill", str(argument.fill), origin))
    output_origin = "operator" if case.descriptor.infer is not None else case.origins.get("shapes", "default")
    rows += [(f"output{index}", str(spec), output_origin) for index, spec in enumerate(case.outputs)]
    rows += [
        (name, shown(value), case.origins.get(f"attributes.{name}", "operator"))
        for name, value in case.attributes.items()
    ]
    for name, value in (("generator", case.generator), ("reference", case.reference)):
        if value is not None:
            rows.append((name, value, case.origins.get(name, "operator")))
    if invariants := case.descriptor.invariants if case.invariants is None else case.invariants:
        rows.append(("invariants", ", ".join(invariants), case.origins.get("invariants", "operator")))
    # The layer that decides comes first.
    ordered = sorted(case.tolerances, key=lambda layer: layer.layer, reverse=True)
    rows += [
        (
            f"tolerance.{layer.output}" if layer.output else "tolerance",
            str(layer.tolerance),
            f"{layer.where or 'default'} ({layer.layer.phrase})",
        )
        for layer in ordered
    ]
    rows.append(("seed", str(case.seed), case.origins.get("seed", "default")))
    rows.append(("backend", case.backend.label(), case.origins.get("backend", "default")))
    for backend, options in case.backend_config.items():
        for key, value in options.items():
            name = f"backend_config.{backend}.{key}"
            rows.append((name, shown(value), case.origins.get(name) or case.origins.get("backend_config", "default")))
    return rows + _expectation_rows(case)


def _expectation_rows(case: TestCase) -> list[tuple[str, str, str]]:
    """Return the rows of limits, labels and expected outcomes that the case has."""
    values = {"timeout": f"{case.timeout_s:g} s"} if case.timeout_s is not None else {}
    values["retries"] = str(case.retries)
    if case.priority != DEFAULT_PRIORITY:
        values["priority"] = str(case.priority)
    values["tags"] = ", ".join(case.tags)
    if case.skip is not None:
        values["skip"] = case.skip.reason
    if case.xfail is not None:
        values["xfail"] = f"{case.xfail.label}: {case.xfail.reason}"
    if case.expects_error is not None:
        values["expects_error"] = f"{case.expects_error.type} with {case.expects_error.required_text() or 'any text'}"
    values["base_dir"] = case.base_dir
    return [
        (key, value, case.origins.get(key, "operator" if key == "tags" else "default"))
        for key, value in values.items()
        if value
    ]


def where_of(statement: Statement) -> str:
    """Return FILE:LINE of the case, or "command line"."""
    source = statement.context.source
    if source is None or not statement.path:
        return COMMAND_LINE
    return f"{source.file}:{source.case_lines[int(statement.path[1])]}"


def where_key(statement: Statement, key: str) -> str:
    """Return FILE:LINE of a key of the case; a key from a YAML merge (``<<``) has the line of the case."""
    source = statement.context.source
    assert source is not None
    line = source.key_lines[statement.path].get(key)
    return f"{source.file}:{line}" if line is not None else where_of(statement)


def origins_of(statement: Statement) -> dict[str, str]:
    """Return the origin of each value that a layer sets, by its name in `explain_case`; others are defaults."""
    context, operator = statement.context, statement.operator
    origins = dict(context.origins)
    for key in _MAPPINGS & context.defaults.keys():
        origins.update(dict.fromkeys(_part_names(operator, key, context.defaults[key]), context.origins[key]))
    # A case built from flags has no lines.
    if statement.path and context.source is not None:
        for key in statement.entry:
            origins[key] = where_key(statement, key)
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
                    places = [where_key(statement, unit.target[0]), *named]
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
