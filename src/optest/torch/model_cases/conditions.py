"""Evaluation of ``skip_if``: comparisons of facts about the run, parsed here and never executed as Python."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optest.plan.dialects import Facts

_MOST_CHARACTERS = 2000


class BadCondition(ValueError):
    """A condition with more than comparisons, or with an unknown name."""


class _Incomparable(BadCondition):
    """Values of types that have no order."""


def names_of(facts: Facts, dtype: str) -> dict[str, Any]:
    """Return the names that a condition may use, with their values; ``dtype`` is spelled as in the case."""
    kind, _, index = facts.device.partition(":")
    device = {"type": kind, "index": int(index) if index.isdigit() else None}
    cfg = {
        "test_device": _Record("cfg.test_device", device, kind),
        "ref_device": _Record("cfg.ref_device", {"type": "cpu", "index": None}, "cpu"),
        "compile_backend": facts.compile_backend,
    }
    return {
        "cfg": _Record("cfg", cfg, None),
        "env": dict(facts.environment),
        "dtype_str": dtype,
        "device": _Record("device", device, kind),
    }


@dataclass(frozen=True, slots=True)
class _Record:
    """An object of a condition with attributes; it compares as ``word``."""

    name: str
    attributes: Mapping[str, Any]
    word: str | None


def is_true(text: str, names: Mapping[str, Any]) -> bool:
    """Return whether the condition holds.

    Raises:
        BadCondition: for an unknown name, or any Python except comparisons, ``and``, ``or``, ``not``, ``in``,
            attributes and subscripts.
    """
    if len(text) > _MOST_CHARACTERS:
        raise BadCondition(f"it has {len(text)} characters, expected {_MOST_CHARACTERS} at most")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return bool(_plain(_evaluate_node(tree, names)))
    except BadCondition:
        raise
    except (SyntaxError, ValueError) as error:
        raise BadCondition(f"it is not a Python expression: {getattr(error, 'msg', error)}") from None
    except (RecursionError, MemoryError):
        raise BadCondition("it is nested too deeply") from None


_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_ALLOWED = "use comparisons with and, or, not and in, attributes and subscripts of cfg, env and device"


def _evaluate_node(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression, lists for displays; raise BadCondition for anything but comparisons."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            if name not in names:
                raise BadCondition(f"{name} is not known, expected one of {', '.join(sorted(names))}")
            return names[name]
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return [_plain(_evaluate_node(element, names)) for element in elements]
        case ast.BoolOp(op=how, values=values):
            return _short_circuit(isinstance(how, ast.Or), values, names)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _plain(_evaluate_node(operand, names))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Compare():
            return _compared(node, names)
        case ast.Attribute(value=inner, attr=attribute):
            return _attribute(_evaluate_node(inner, names), attribute, node)
        case ast.Subscript(value=inner, slice=key):
            return _item(_evaluate_node(inner, names), _plain(_evaluate_node(key, names)), node)
    raise BadCondition(f"{_source_text(node)} is not allowed; {_ALLOWED}")


def _short_circuit(decisive: bool, values: list[ast.expr], names: Mapping[str, Any]) -> bool:
    """Evaluate ``or`` (``decisive`` is True) or ``and`` (False); later values are checked, but may be incomparable."""
    result = not decisive
    for value in values:
        try:
            holds = bool(_plain(_evaluate_node(value, names)))
        except _Incomparable:
            if result is decisive:
                continue
            raise
        if holds is decisive:
            result = decisive
    return result


def _compared(node: ast.Compare, names: Mapping[str, Any]) -> bool:
    """Evaluate a chain of comparisons; raise _Incomparable for values without an order."""
    left, *others = [_plain(_evaluate_node(operand, names)) for operand in (node.left, *node.comparators)]
    for how, right in zip(node.ops, others, strict=True):
        try:
            holds = _COMPARISONS[type(how)](left, right)
        except TypeError as error:
            raise _Incomparable(f"{_source_text(node)}: {error}") from None
        if not holds:
            return False
        left = right
    return True


def _attribute(owner: Any, name: str, node: ast.expr) -> Any:
    if isinstance(owner, _Record):
        if name in owner.attributes:
            return owner.attributes[name]
        raise BadCondition(f"{owner.name} has no {name}, expected one of {', '.join(sorted(owner.attributes))}")
    raise BadCondition(f"{_source_text(node)} is an attribute of a value without attributes; {_ALLOWED}")


def _item(owner: Any, key: Any, node: ast.expr) -> Any:
    """Return an item: an attribute of a record by its name, or an environment variable, None if it is not set."""
    if isinstance(owner, _Record) and isinstance(key, str):
        return _attribute(owner, key, node)
    if isinstance(owner, dict) and isinstance(key, str):
        return owner.get(key)
    raise BadCondition(f"{_source_text(node)} is not a subscript of cfg, env or device; {_ALLOWED}")


def _plain(value: Any) -> Any:
    return value.word if isinstance(value, _Record) else value


def _source_text(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"{text[:57]}..."
