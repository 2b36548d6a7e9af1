"""Shapes and dtypes of the outputs of activations; standard library only."""

from __future__ import annotations

from optest.operators.shapes import (
    Attributes,
    Specs,
    dense,
    given,
)
from optest.spec import TensorSpec

__all__ = [
    "infer_same",
]


def infer_same(specs: Specs, _attributes: Attributes) -> tuple[TensorSpec, ...]:
    """One output like the first input: elementwise functions that keep the dtype."""
    spec = given(specs, 0, "input")
    return (dense(spec.dtype, spec.shape),)
