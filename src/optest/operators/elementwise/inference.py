"""Shapes and dtypes of the outputs of elementwise operators and conversion; standard library only."""

from __future__ import annotations

from optest.operators.shapes import (
    Attributes,
    Specs,
    as_float,
    broadcast_shapes,
    dense,
    given,
    promote_tensors,
    require_scalar,
)
from optest.spec import Kind, TensorSpec, UnfitArguments, dtype

__all__ = [
    "infer_add",
    "infer_cast",
    "infer_div",
    "infer_exp",
]


def infer_add(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    left, right = given(specs, 0, "input"), given(specs, 1, "other")
    result = promote_tensors((left, right))
    require_scalar("alpha", attributes.get("alpha", 1.0), result)
    return (dense(result, broadcast_shapes(left.shape, right.shape)),)


def infer_div(specs: Specs, _attributes: Attributes) -> tuple[TensorSpec, ...]:
    """True division: integers and bool give float32, torch's default dtype."""
    left, right = given(specs, 0, "input"), given(specs, 1, "other")
    return (dense(as_float(promote_tensors((left, right))), broadcast_shapes(left.shape, right.shape)),)


def infer_exp(specs: Specs, _attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    return (dense(as_float(spec.dtype), spec.shape),)


def infer_cast(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec, target = given(specs, 0, "input"), dtype(attributes["dtype"])
    if spec.dtype.is_complex and not target.is_complex and target.kind is not Kind.BOOL:
        raise UnfitArguments(f"dtype is {target} for a {spec.dtype} input, but should be complex or bool")
    return (dense(target, spec.shape),)
