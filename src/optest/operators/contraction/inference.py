"""Shapes and dtypes of the outputs of contractions; standard library only."""

from __future__ import annotations

from optest.operators.shapes import (
    Attributes,
    Specs,
    broadcast_shapes,
    broadcasts_to,
    dense,
    given,
    require_same_dtype,
    require_scalar,
)
from optest.spec import TensorSpec, UnfitArguments, format_shape

__all__ = [
    "infer_gemm",
    "infer_matmul",
]


def infer_matmul(specs: Specs, _attributes: Attributes) -> tuple[TensorSpec, ...]:
    """torch.matmul: vectors are rows on the left and columns on the right, leading dimensions broadcast."""
    left, right = given(specs, 0, "input"), given(specs, 1, "other")
    require_same_dtype(left, right, "other")
    for name, spec in (("input", left), ("other", right)):
        if spec.rank == 0:
            raise UnfitArguments(f"{name} is a scalar, but should have 1 dimension or more")
    a = left.shape if left.rank > 1 else (1, *left.shape)
    b = right.shape if right.rank > 1 else (*right.shape, 1)
    if a[-1] != b[-2]:
        raise UnfitArguments(
            f"other is {format_shape(right.shape)}, but should have {a[-1]} rows, "
            f"as input {format_shape(left.shape)} has {a[-1]} columns"
        )
    batch = broadcast_shapes(a[:-2], b[:-2])
    rows = a[-2:-1] if left.rank > 1 else ()
    columns = b[-1:] if right.rank > 1 else ()
    return (dense(left.dtype, (*batch, *rows, *columns)),)


def infer_gemm(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    a, b = given(specs, 0, "a"), given(specs, 1, "b")
    c = specs[2] if len(specs) > 2 else None
    require_same_dtype(a, b, "b")
    for name, spec in (("a", a), ("b", b)):
        if spec.rank != 2:
            raise UnfitArguments(f"{name} is {format_shape(spec.shape)}, but should have 2 dimensions")
    rows, depth = reversed(a.shape) if attributes.get("trans_a") else a.shape
    other_depth, columns = reversed(b.shape) if attributes.get("trans_b") else b.shape
    if depth != other_depth:
        raise UnfitArguments(
            f"b is {format_shape(b.shape)} with a depth of {other_depth}, but should have {depth}, "
            f"as a is {format_shape(a.shape)}"
        )
    if c is not None:
        require_same_dtype(a, c, "c")
        if not broadcasts_to(c.shape, (rows, columns)):
            raise UnfitArguments(
                f"c is {format_shape(c.shape)}, but should broadcast to {format_shape((rows, columns))}"
            )
    for name in ("alpha", "beta"):
        require_scalar(name, attributes.get(name, 1.0), a.dtype)
    return (dense(a.dtype, (rows, columns)),)
