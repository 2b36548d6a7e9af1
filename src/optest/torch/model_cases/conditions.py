"""``skip_if``: comparisons of a few facts about the run, parsed and worked out here, never evaluated as Python."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from optest.plan.dialects import Facts

_MOST_CHARACTERS = 2000


class BadCondition(ValueError):
    """A condition that is more than comparisons, or asks for what nobody knows."""


class _Incomparable(BadCondition):
    """Values of types that have no order."""


def names_of(facts: Facts, dtype: str) -> dict[str, Any]:
    """The names that a condition may use; ``dtype`` is the case's own, as the file has it."""
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
    """Something with attributes; compared as ``word``."""

    name: str
    attributes: Mapping[str, Any]
    word: str | None


def is_true(text: str, names: Mapping[str, Any]) -> bool:
    """Whether the condition holds.

    Raises:
        BadCondition: for a call, a name that is not known, or any other Python than comparisons, ``and``, ``or``,
            ``not``, ``in``, attributes and subscripts.
    """
    if len(text) > _MOST_CHARACTERS:
        raise BadCondition(f"{len(text)} characters are more than the {_MOST_CHARACTERS} that a condition may have")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return bool(_plain(_worked_out(tree, names)))
    except BadCondition:
        raise
    except (SyntaxError, ValueError) as error:
        raise BadCondition(f"it is no Python expression: {getattr(error, 'msg', error)}") from None
    except (RecursionError, MemoryError):
        raise BadCondition("it is nested too deeply") from None


_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, several: one in several,
    ast.NotIn: lambda one, several: one not in several,
    ast.Is: lambda one, other: one is other,
    ast.IsNot: lambda one, other: one is not other,
}
_ALLOWED = "comparisons with and, or, not and in, attributes and subscripts of cfg, env and device may stand there"


def _worked_out(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            if name not in names:
                raise BadCondition(f"{name} is not known; {', '.join(sorted(names))} are")
            return names[name]
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            return [_plain(_worked_out(each, names)) for each in elements]
        case ast.BoolOp(op=how, values=values):
            return _decided(isinstance(how, ast.Or), values, names)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _plain(_worked_out(operand, names))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Compare():
            return _compared(node, names)
        case ast.Attribute(value=inner, attr=attribute):
            return _attribute(_worked_out(inner, names), attribute, node)
        case ast.Subscript(value=inner, slice=key):
            return _item(_worked_out(inner, names), _plain(_worked_out(key, names)), node)
    raise BadCondition(f"{_source(node)} is not allowed; {_ALLOWED}")


def _decided(by: bool, values: list[ast.expr], names: Mapping[str, Any]) -> bool:
    """Whether one of the values is ``by`` and so decides; what stands behind it is checked, but may not compare."""
    result = not by
    for each in values:
        try:
            holds = bool(_plain(_worked_out(each, names)))
        except _Incomparable:
            if result is by:
                continue
            raise
        if holds is by:
            result = by
    return result


def _compared(node: ast.Compare, names: Mapping[str, Any]) -> bool:
    left, *others = [_plain(_worked_out(each, names)) for each in (node.left, *node.comparators)]
    for how, right in zip(node.ops, others, strict=True):
        try:
            holds = _COMPARISONS[type(how)](left, right)
        except TypeError as error:
            raise _Incomparable(f"{_source(node)}: {error}") from None
        if not holds:
            return False
        left = right
    return True


def _attribute(owner: Any, name: str, node: ast.expr) -> Any:
    if isinstance(owner, _Record):
        if name in owner.attributes:
            return owner.attributes[name]
        raise BadCondition(f"{owner.name} has no {name}; it has {', '.join(sorted(owner.attributes))}")
    raise BadCondition(f"{_source(node)} is an attribute of what has none; {_ALLOWED}")


def _item(owner: Any, key: Any, node: ast.expr) -> Any:
    """What has attributes has them as items, too; a variable that is not set is None."""
    if isinstance(owner, _Record) and isinstance(key, str):
        return _attribute(owner, key, node)
    if isinstance(owner, dict) and isinstance(key, str):
        return owner.get(key)
    raise BadCondition(f"{_source(node)} is no subscript of cfg, env or device; {_ALLOWED}")


def _plain(value: Any) -> Any:
    return value.word if isinstance(value, _Record) else value


def _source(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"{text[:57]}..."
