"""Shapes and dtypes of the outputs of reductions; standard library only."""

from __future__ import annotations

from optest.operators.shapes import (
    Attributes,
    Specs,
    dense,
    given,
    reduced_dims,
)
from optest.spec import TensorSpec, dtype

__all__ = [
    "infer_sum",
]


def infer_sum(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """Integers and bool add up in int64, as in torch."""
    spec = given(specs, 0, "input")
    dims = reduced_dims(attributes.get("dim"), spec.rank)
    result = spec.dtype if spec.dtype.is_inexact else dtype("int64")
    if attributes.get("keepdim"):
        return (dense(result, tuple(1 if i in dims else size for i, size in enumerate(spec.shape))),)
    return (dense(result, tuple(size for i, size in enumerate(spec.shape) if i not in dims)),)
