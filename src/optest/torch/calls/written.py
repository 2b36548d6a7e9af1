"""Which inputs a call writes into, beside what its name says: ``out=``, and what the schema of an operator declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from optest.spec.call_names import canonical
from optest.spec.calls import Call, TensorRef
from optest.torch.calls.binding import fits
from optest.torch.calls.names import NoSuchCallable, NotAnOperator, find

__all__ = ["written_beside", "written_results"]

_BY_SCHEMA_ALONE = ("_foreach_", "_fused_")
"""Functions of torch that are an operator of ``torch.ops.aten`` and write into tensors of their lists."""


def written_results(call: Call) -> tuple[int, ...]:
    """The inputs that the call is given to put its results into, and returns: ``out=input2``."""
    schema = _schema(call)
    if schema is not None:
        found = [ref for each, value in _given(call, schema) if each.is_out for ref in _refs(value)]
        return tuple(found) if schema.returns else ()
    return tuple(_refs(call.kwargs.get("out")))


def written_beside(call: Call) -> tuple[int, ...]:
    """The inputs that an operator's schema says it writes into, but for the results that it returns."""
    schema = _schema(call)
    if schema is None:
        return ()
    results = written_results(call)
    return tuple(
        ref
        for each, value in _given(call, schema)
        if each.alias_info is not None and each.alias_info.is_write
        for ref in _refs(value)
        if ref not in results
    )


def _schema(call: Call) -> Any:
    """The schema of an operator of ``torch.ops`` that the arguments fit, None of any other function."""
    name = call.function
    if not name.startswith("torch.ops."):
        word = canonical(name).word
        if not word.startswith(_BY_SCHEMA_ALONE):
            return None
        name = f"torch.ops.aten.{word}"
    try:
        found: Any = find(name)
    except (NoSuchCallable, NotAnOperator):
        return None
    if isinstance(found, torch._ops.OpOverload):
        return found._schema
    if not isinstance(found, torch._ops.OpOverloadPacket):
        return None
    schemas = [getattr(found, each)._schema for each in found.overloads()]
    return next((each for each in schemas if _takes(each, call)), None)


def _takes(schema: Any, call: Call) -> bool:
    positional = [each for each in schema.arguments if not each.kwarg_only]
    names = {each.name for each in schema.arguments}
    needed = {each.name for each in schema.arguments if each.is_out}
    return (
        len(call.args) <= len(positional)
        and needed <= set(call.kwargs) <= names
        and all(fits(value, str(each.type)) for value, each in zip(call.args, positional, strict=False))
    )


def _given(call: Call, schema: Any) -> Iterator[tuple[Any, Any]]:
    """Every argument that the call states, with its value."""
    positional = [each for each in schema.arguments if not each.kwarg_only]
    yield from zip(positional, call.args, strict=False)
    yield from ((each, call.kwargs[each.name]) for each in schema.arguments if each.name in call.kwargs)


def _refs(value: Any) -> Iterator[int]:
    """The inputs that a value is, or holds in lists and tuples."""
    if isinstance(value, TensorRef):
        yield value.index
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _refs(each)
