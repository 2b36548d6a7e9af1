"""The attributes of a case: layers merged under canonical names, checked by the operator, faults located."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from optest.errors import UnknownName, UsageError
from optest.plan.layers import Statement, below
from optest.plan.operator_lookup import KnownOperator
from optest.plan.problems import Place
from optest.plan.values import several
from optest.spec import UnfitArguments

__all__ = ["applicable", "bind_attributes"]

_Layers: TypeAlias = "list[tuple[Place, Mapping[str, Any]]]"
_DEFAULTS = ("defaults", "attributes")


def bind_attributes(statement: Statement) -> dict[str, Any] | None:
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
        if not _stated_once(statement, layers):
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


def _stated_once(statement: Statement, layers: _Layers) -> bool:
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
