"""Shapes and dtypes of the outputs of contractions, and how long their sums are; standard library only."""

from __future__ import annotations

from optest.operators.contraction.equations import Equation, read_equation
from optest.operators.contraction.windows import Walk, walk_of
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
from optest.spec import DType, TensorSpec, UnfitArguments, dtype, format_shape

__all__ = [
    "conv1d_length",
    "conv2d_length",
    "conv3d_length",
    "einsum_length",
    "equation_of",
    "gemm_length",
    "infer_bmm",
    "infer_conv1d",
    "infer_conv2d",
    "infer_conv3d",
    "infer_einsum",
    "infer_gemm",
    "infer_linear",
    "infer_matmul",
    "last_size",
    "result_dtype",
]


def result_dtype(operands: DType, attributes: Attributes) -> DType:
    """The operands' own, or ``out_dtype``: a wider integer for integers, a wider float up to float32 for floats.

    Raises:
        UnfitArguments: for any other ``out_dtype``.
    """
    stated = attributes.get("out_dtype")
    if stated is None:
        return operands
    wanted = dtype(stated)
    wider = wanted.bits > operands.bits
    if wanted == operands or (wider and operands.is_integer and wanted.name in ("int32", "int64")):
        return wanted
    if wider and operands.is_float and wanted.name in ("float32", "float16", "bfloat16"):
        return wanted
    raise UnfitArguments(f"out_dtype is {wanted}, but should be {operands} or a wider type of its kind, up to float32")


def infer_matmul(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """torch.matmul: vectors are rows on the left and columns on the right, leading dimensions broadcast."""
    left, right = given(specs, 0, "input"), given(specs, 1, "other")
    require_same_dtype(left, right, "other")
    if not (left.shape and right.shape):
        name = "other" if left.shape else "input"
        raise UnfitArguments(f"{name} is a scalar, but should have 1 dimension or more")
    is_row, is_column = len(left.shape) == 1, len(right.shape) == 1
    a = (1, *left.shape) if is_row else left.shape
    b = (*right.shape, 1) if is_column else right.shape
    if a[-1] != b[-2]:
        raise UnfitArguments(
            f"other is {format_shape(right.shape)}, but should have {a[-1]} rows, "
            f"as input {format_shape(left.shape)} has {a[-1]} columns"
        )
    batch = broadcast_shapes(a[:-2], b[:-2])
    rows = () if is_row else a[-2:-1]
    columns = () if is_column else b[-1:]
    return (dense(result_dtype(left.dtype, attributes), (*batch, *rows, *columns)),)


def infer_bmm(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    left, right = given(specs, 0, "input"), given(specs, 1, "mat2")
    require_same_dtype(left, right, "mat2")
    for name, spec in (("input", left), ("mat2", right)):
        if spec.rank != 3:
            raise UnfitArguments(f"{name} is {format_shape(spec.shape)}, but should have 3 dimensions")
    if right.shape[:2] != (left.shape[0], left.shape[2]):
        raise UnfitArguments(
            f"mat2 is {format_shape(right.shape)}, but should have {left.shape[0]} matrices of {left.shape[2]} rows, "
            f"as input is {format_shape(left.shape)}"
        )
    return (dense(result_dtype(left.dtype, attributes), (*left.shape[:2], right.shape[2])),)


def infer_gemm(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    a, b = given(specs, 0, "a"), given(specs, 1, "b")
    c = specs[2] if len(specs) > 2 else None
    require_same_dtype(a, b, "b")
    for name, spec in (("a", a), ("b", b)):
        if spec.rank not in (2, 3):
            raise UnfitArguments(
                f"{name} is {format_shape(spec.shape)}, but should have 2 dimensions, or 3 with a batch"
            )
    if a.shape[:-2] != b.shape[:-2]:
        raise UnfitArguments(f"b is {format_shape(b.shape)}, but should have the batch of a, {format_shape(a.shape)}")
    rows, depth = reversed(a.shape[-2:]) if attributes.get("trans_a") else a.shape[-2:]
    other_depth, columns = reversed(b.shape[-2:]) if attributes.get("trans_b") else b.shape[-2:]
    if depth != other_depth:
        raise UnfitArguments(
            f"b is {format_shape(b.shape)} with a depth of {other_depth}, but should have {depth}, "
            f"as a is {format_shape(a.shape)}"
        )
    result, shape = result_dtype(a.dtype, attributes), (*a.shape[:-2], rows, columns)
    if c is not None:
        _require_dtype(c, result, "c")
        if not broadcasts_to(c.shape, shape):
            raise UnfitArguments(f"c is {format_shape(c.shape)}, but should broadcast to {format_shape(shape)}")
    for name in ("alpha", "beta"):
        require_scalar(name, attributes.get(name, 1.0), result)
    return (dense(result, shape),)


def infer_linear(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    """A weight of one dimension is one row, and leaves no dimension behind."""
    spec, weight = given(specs, 0, "input"), given(specs, 1, "weight")
    bias = specs[2] if len(specs) > 2 else None
    require_same_dtype(spec, weight, "weight")
    if spec.rank == 0:
        raise UnfitArguments("input is a scalar, but should have 1 dimension or more")
    if weight.rank not in (1, 2):
        raise UnfitArguments(f"weight is {format_shape(weight.shape)}, but should have 1 or 2 dimensions")
    if weight.shape[-1] != spec.shape[-1]:
        raise UnfitArguments(
            f"weight is {format_shape(weight.shape)}, but should have {spec.shape[-1]} columns, "
            f"as input {format_shape(spec.shape)} has"
        )
    features = weight.shape[:-1]
    result = result_dtype(spec.dtype, attributes)
    if bias is not None:
        _require_dtype(bias, result, "bias")
        if bias.shape != features:
            raise UnfitArguments(f"bias is {format_shape(bias.shape)}, but should be {format_shape(features)}")
    return (dense(result, (*spec.shape[:-1], *features)),)


def infer_conv1d(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    return _infer_conv(specs, attributes, 1)


def infer_conv2d(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    return _infer_conv(specs, attributes, 2)


def infer_conv3d(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    return _infer_conv(specs, attributes, 3)


def _infer_conv(specs: Specs, attributes: Attributes, rank: int) -> tuple[TensorSpec, ...]:
    spec, weight = given(specs, 0, "input"), given(specs, 1, "weight")
    bias = specs[2] if len(specs) > 2 else None
    require_same_dtype(spec, weight, "weight")
    walk = walk_of(spec, weight, attributes, rank)
    result = result_dtype(spec.dtype, attributes)
    channels = weight.shape[0]
    if bias is not None:
        _require_dtype(bias, result, "bias")
        if bias.shape != (channels,):
            raise UnfitArguments(f"bias is {format_shape(bias.shape)}, but should be {channels}")
    return (dense(result, (*spec.shape[: spec.rank - rank - 1], channels, *walk.out)),)


def infer_einsum(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    equation = equation_of(specs, attributes)
    return (dense(given(specs, 0, "operands0").dtype, equation.shape),)


def equation_of(specs: Specs, attributes: Attributes) -> Equation:
    first = given(specs, 0, "operands0")
    shapes = []
    for index in range(len(specs)):
        spec = given(specs, index, f"operands{index}")
        require_same_dtype(first, spec, f"operands{index}")
        shapes.append(spec.shape)
    return read_equation(attributes["equation"], shapes)


def _require_dtype(spec: TensorSpec, wanted: DType, name: str) -> None:
    if spec.dtype != wanted:
        raise UnfitArguments(f"{name} is {spec.dtype}, but should be {wanted}, as the result")


def last_size(specs: Specs, _attributes: Attributes) -> int:
    spec = given(specs, 0, "input")
    return spec.shape[-1] if spec.rank else 1


def gemm_length(specs: Specs, attributes: Attributes) -> int:
    spec = given(specs, 0, "a")
    return spec.shape[-2 if attributes.get("trans_a") else -1] if spec.rank > 1 else 1


def conv1d_length(specs: Specs, attributes: Attributes) -> int:
    return _conv_length(walk_of(given(specs, 0, "input"), given(specs, 1, "weight"), attributes, 1), specs)


def conv2d_length(specs: Specs, attributes: Attributes) -> int:
    return _conv_length(walk_of(given(specs, 0, "input"), given(specs, 1, "weight"), attributes, 2), specs)


def conv3d_length(specs: Specs, attributes: Attributes) -> int:
    return _conv_length(walk_of(given(specs, 0, "input"), given(specs, 1, "weight"), attributes, 3), specs)


def _conv_length(walk: Walk, specs: Specs) -> int:
    return given(specs, 1, "weight").shape[1] * walk.taps


def einsum_length(specs: Specs, attributes: Attributes) -> int:
    return equation_of(specs, attributes).length
