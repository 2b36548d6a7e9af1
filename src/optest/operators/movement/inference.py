"""Shapes and dtypes of the outputs of operators that move elements; standard library only."""

from __future__ import annotations

from optest.operators.shapes import (
    Attributes,
    Specs,
    dense,
    given,
    normalize_dim,
)
from optest.spec import TensorSpec

__all__ = [
    "infer_transpose",
]


def infer_transpose(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    first = normalize_dim(attributes["dim0"], spec.rank, "dim0")
    second = normalize_dim(attributes["dim1"], spec.rank, "dim1")
    shape = list(spec.shape)
    if shape:
        shape[first], shape[second] = shape[second], shape[first]
    return (dense(spec.dtype, tuple(shape)),)
