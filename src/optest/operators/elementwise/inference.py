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
from optest.spec import DType, Kind, TensorSpec, UnfitArguments, dtype

__all__ = [
    "infer_add",
    "infer_binary",
    "infer_bitwise",
    "infer_bitwise_not",
    "infer_cast",
    "infer_clip",
    "infer_comparison",
    "infer_div",
    "infer_float",
    "infer_integral",
    "infer_logical_not",
    "infer_number",
    "infer_round",
    "infer_same",
    "infer_sub",
    "infer_where",
]

Inferred = tuple[TensorSpec, ...]


def infer_add(specs: Specs, attributes: Attributes) -> Inferred:
    result, inferred = _both(specs)
    require_scalar("alpha", attributes.get("alpha", 1.0), result)
    return inferred


def infer_sub(specs: Specs, attributes: Attributes) -> Inferred:
    """As torch, no bool on either side: what would true - true be?"""
    for index, name in enumerate(("input", "other")):
        _refuse_bool(given(specs, index, name).dtype, name)
    return infer_add(specs, attributes)


def infer_binary(specs: Specs, _attributes: Attributes) -> Inferred:
    """The common dtype of both."""
    return _both(specs)[1]


def infer_number(specs: Specs, _attributes: Attributes) -> Inferred:
    """The common dtype of both, which should not be bool."""
    result, inferred = _both(specs)
    _refuse_bool(result, "the common dtype")
    return inferred


def infer_div(specs: Specs, attributes: Attributes) -> Inferred:
    """True division gives float32, torch's default dtype, for integers and bool; a rounded quotient keeps the dtype."""
    result, (spec,) = _both(specs)
    if attributes.get("rounding_mode") is None:
        return (dense(as_float(result), spec.shape),)
    return infer_number(specs, attributes)


def infer_comparison(specs: Specs, _attributes: Attributes) -> Inferred:
    """bool, of operands that have a common dtype."""
    return (dense(dtype("bool"), _both(specs)[1][0].shape),)


def infer_bitwise(specs: Specs, _attributes: Attributes) -> Inferred:
    result, inferred = _both(specs)
    _require_bits(result)
    return inferred


def infer_bitwise_not(specs: Specs, _attributes: Attributes) -> Inferred:
    spec = given(specs, 0, "input")
    _require_bits(spec.dtype)
    return (dense(spec.dtype, spec.shape),)


def infer_logical_not(specs: Specs, _attributes: Attributes) -> Inferred:
    return (dense(dtype("bool"), given(specs, 0, "input").shape),)


def infer_same(specs: Specs, _attributes: Attributes) -> Inferred:
    spec = given(specs, 0, "input")
    return (dense(spec.dtype, spec.shape),)


def infer_integral(specs: Specs, attributes: Attributes) -> Inferred:
    """The dtype of the input, which should be a number."""
    _refuse_bool(given(specs, 0, "input").dtype, "input")
    return infer_same(specs, attributes)


def infer_round(specs: Specs, attributes: Attributes) -> Inferred:
    spec, decimals = given(specs, 0, "input"), attributes.get("decimals", 0)
    if decimals and not spec.dtype.is_float:
        raise UnfitArguments(f"decimals is {decimals}, but should be 0 for {spec.dtype}")
    return infer_integral(specs, attributes)


def infer_float(specs: Specs, _attributes: Attributes) -> Inferred:
    """Integers and bool give float32, torch's default dtype."""
    spec = given(specs, 0, "input")
    return (dense(as_float(spec.dtype), spec.shape),)


def infer_clip(specs: Specs, attributes: Attributes) -> Inferred:
    """The dtype of the input; float32 for integers with a bound that is no whole number."""
    spec = given(specs, 0, "input")
    bounds = {name: attributes[name] for name in ("min", "max") if attributes.get(name) is not None}
    if not bounds:
        raise UnfitArguments("min and max are both none, but at least one should be given")
    _refuse_bool(spec.dtype, "input")
    if not spec.dtype.is_inexact and any(value != value // 1 for value in bounds.values()):
        return (dense(dtype("float32"), spec.shape),)
    for name, value in bounds.items():
        require_scalar(name, value, spec.dtype)
    return (dense(spec.dtype, spec.shape),)


def infer_where(specs: Specs, _attributes: Attributes) -> Inferred:
    condition, left, right = given(specs, 0, "condition"), given(specs, 1, "input"), given(specs, 2, "other")
    if condition.dtype.kind is not Kind.BOOL:
        raise UnfitArguments(f"condition is {condition.dtype}, but should be bool")
    return (dense(promote_tensors((left, right)), broadcast_shapes(condition.shape, left.shape, right.shape)),)


def infer_cast(specs: Specs, attributes: Attributes) -> Inferred:
    spec, target = given(specs, 0, "input"), dtype(attributes["dtype"])
    if spec.dtype.is_complex and not target.is_complex and target.kind is not Kind.BOOL:
        raise UnfitArguments(f"dtype is {target} for a {spec.dtype} input, but should be complex or bool")
    return (dense(target, spec.shape),)


def _both(specs: Specs) -> tuple[DType, Inferred]:
    left, right = given(specs, 0, "input"), given(specs, 1, "other")
    result = promote_tensors((left, right))
    return result, (dense(result, broadcast_shapes(left.shape, right.shape)),)


def _refuse_bool(entry: DType, name: str) -> None:
    if entry.kind is Kind.BOOL:
        raise UnfitArguments(f"{name} is bool, but should be a number; use a logical operator, or cast")


def _require_bits(entry: DType) -> None:
    if entry.is_inexact:
        raise UnfitArguments(f"the common dtype is {entry}, but should be bool or an integer")
