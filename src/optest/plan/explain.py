"""Where every value of a case was written: noted while the case is made, shown by ``optest explain``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optest.plan.layers import Statement
from optest.plan.operator_lookup import KnownOperator
from optest.plan.request import COMMAND_LINE
from optest.plan.values import shown
from optest.spec import DEFAULT_PRIORITY, TestCase


def explain_case(case: TestCase) -> list[tuple[str, str, str]]:
    """Return ``(what, value, origin)`` for everything that a case holds, in the order of a plan.

    An origin is a place such as ``plan.yaml:14``, ``plan.yaml:3 defaults``, ``command line``, ``operator`` for what
    the operator's descriptor says, or ``default``.
    """
    rows = [("op", case.descriptor.name, case.origins.get("op", case.where or "default"))]
    rows += [("id", case.id, case.origins.get("name", "made from the case")), ("key", case.key, "signature and seed")]
    for argument in case.inputs:
        spec, path = argument.spec, argument.path
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
            unstated = "operator" if case.descriptor.generator is not None else "default"
            rows.append((f"{path}.fill", str(argument.fill), case.origins.get("generator", unstated)))
    of_outputs = "operator" if case.descriptor.infer is not None else case.origins.get("shapes", "default")
    rows += [(f"output{index}", str(spec), of_outputs) for index, spec in enumerate(case.outputs)]
    rows += [
        (name, shown(value), case.origins.get(f"attributes.{name}", "operator"))
        for name, value in case.attributes.items()
    ]
    for name, value in (("generator", case.generator), ("reference", case.reference)):
        if value is not None:
            rows.append((name, value, case.origins.get(name, "operator")))
    if invariants := case.descriptor.invariants if case.invariants is None else case.invariants:
        rows.append(("invariants", ", ".join(invariants), case.origins.get("invariants", "operator")))
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
            what = f"backend_config.{backend}.{key}"
            rows.append((what, shown(value), case.origins.get(what) or case.origins.get("backend_config", "default")))
    return rows + _expectation_rows(case)


def _expectation_rows(case: TestCase) -> list[tuple[str, str, str]]:
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
    owner = {"tags": "operator"}
    return [(key, value, case.origins.get(key, owner.get(key, "default"))) for key, value in values.items() if value]


# Origins, by what explain_case calls each value


def where_of(statement: Statement) -> str:
    """The line of the case."""
    source = statement.context.source
    if source is None or not statement.path:
        return COMMAND_LINE
    return f"{source.file}:{source.case_lines[int(statement.path[1])]}"


def where_key(statement: Statement, key: str) -> str:
    """Where a key of the case stands; one that was merged in has the line of the case."""
    source = statement.context.source
    assert source is not None
    line = source.key_lines[statement.path].get(key)
    return f"{source.file}:{line}" if line is not None else where_of(statement)


def origins_of(statement: Statement) -> dict[str, str]:
    """Where each stated value came from; what is not in it is the operator's or optest's default."""
    context, operator = statement.context, statement.operator
    origins = dict(context.origins)
    for key in _MAPPINGS & context.defaults.keys():
        origins.update(dict.fromkeys(_parts_of(operator, key, context.defaults[key]), context.origins[key]))
    if statement.path and context.source is not None:
        for key in statement.entry:
            origins[key] = where_key(statement, key)
        for key in _MAPPINGS & statement.entry.keys():
            origins.update(dict.fromkeys(_parts_of(operator, key, statement.entry[key]), origins[key]))
        if statement.ledger.combination is not None:
            product = statement.ledger.combination[0]
            # Where the values were written that differ from combination to combination.
            for unit in product.units:
                places = [
                    f"{context.source.file}:{product.lines[product.axes[axis].key]} product" for axis in unit.axes
                ]
                if unit.own_axis is None:
                    names = [", ".join(product.axes[axis].names) for axis in unit.axes]
                    named = [f"{name} of {place}" for name, place in zip(names, places, strict=True)]
                    places = [where_key(statement, unit.target[0]), *named]
                origins[_word_of(operator, unit.target)] = ", ".join(places)
    for key, value in statement.flags.items():
        if key == "shapes":
            origins.update(dict.fromkeys((_word_of(operator, (key, name)) for name in value), COMMAND_LINE))
        else:
            origins[key] = COMMAND_LINE
            origins.update(dict.fromkeys(_parts_of(operator, key, value), COMMAND_LINE))
    for key in ("backend", "chip"):
        if getattr(context.request, key):
            origins[key] = COMMAND_LINE
    return origins


_MAPPINGS = frozenset(("attributes", "backend_config"))
"""Keys of which explain tells the parts one by one."""


def _parts_of(operator: KnownOperator, key: str, value: Any) -> Iterator[str]:
    """What ``optest explain`` calls the single attributes and options of a mapping."""
    if key == "attributes":
        yield from (_word_of(operator, (key, name)) for name in value)
    elif key == "backend_config":
        yield from (f"{key}.{backend}.{option}" for backend, options in value.items() for option in options)


def _word_of(operator: KnownOperator, target: tuple[str, ...]) -> str:
    """What ``optest explain`` calls the value at a place of a case."""
    key, *rest = target
    if key == "attributes" and rest:
        return f"attributes.{operator.attribute_names.get(rest[0], rest[0])}"
    if key == "shapes" and rest and operator.knows(rest[0]):
        side, index = operator.locate(rest[0])
        return f"{side}{index}.shape"
    return ".".join(target) if key == "backend_config" else key
