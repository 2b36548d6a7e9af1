"""Where the values of a case were written, as text."""

from __future__ import annotations

from optest.plan.attributes import applicable
from optest.plan.products import Product
from optest.plan.shared import Shared
from optest.plan.statement import COMMAND_LINE, Statement

__all__ = ["origins_of", "where_key", "where_of"]


def where_of(statement: Statement) -> str:
    source = statement.ledger.source
    if source is None or not statement.path:
        return COMMAND_LINE
    return f"{source.file}:{source.case_lines[int(statement.path[1])]}"


def where_key(statement: Statement, key: str) -> str:
    """Where a key of the case stands; one that was merged in has the line of the case."""
    source = statement.ledger.source
    assert source is not None
    index = int(statement.path[1])
    return f"{source.file}:{source.case_key_lines[index].get(key, source.case_lines[index])}"


def origins_of(statement: Statement, shared: Shared) -> dict[str, str]:
    """Where each stated value came from; what is not in it is the operator's or optest's default."""
    origins = dict(shared.default_origins)
    source = statement.ledger.source
    if source is not None and statement.path:
        index, file = int(statement.path[1]), source.file
        start, lines = source.case_lines[index], source.case_key_lines[index]
        for key in statement.entry:
            origins[key] = f"{file}:{lines.get(key, start)}"
        if "attributes" in statement.entry:
            names = statement.operator.attribute_names
            for key in statement.entry["attributes"]:
                origins[f"attributes.{names.get(key, key)}"] = origins["attributes"]
        if statement.ledger.combination is not None:
            origins.update(_origins_of_axes(statement, statement.ledger.combination[0]))
    origins.update(shared.flag_origins)
    if statement.request.shapes or shared.mixes_mappings:
        origins.update(_origins_within(statement, shared))
    return origins


def _origins_of_axes(statement: Statement, product: Product) -> dict[str, str]:
    """Where the values were written that differ from combination to combination."""
    source = statement.ledger.source
    assert source is not None
    origins: dict[str, str] = {}
    for unit in product.units:
        places = [f"{source.file}:{product.lines[product.axes[axis].key]} product" for axis in unit.axes]
        if unit.own_axis is None:
            named = [
                f"{', '.join(product.axes[axis].names)} of {place}"
                for axis, place in zip(unit.axes, places, strict=True)
            ]
            places = [where_key(statement, unit.target[0]), *named]
        origins[_what(statement, unit.target)] = ", ".join(places)
    return origins


def _what(statement: Statement, target: tuple[str, ...]) -> str:
    """What ``optest explain`` calls the value at a place of a case."""
    key, *rest = target
    operator = statement.operator
    if key == "attributes" and rest:
        return f"attributes.{operator.attribute_names.get(rest[0], rest[0])}"
    if key == "shapes" and rest and operator.knows(rest[0]):
        side, index = operator.locate(rest[0])
        return f"{side}{index}.shape"
    return ".".join(target) if key == "backend_config" else key


def _origins_within(statement: Statement, shared: Shared) -> dict[str, str]:
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
