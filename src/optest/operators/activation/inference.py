"""Shapes and dtypes of the outputs of activations; standard library only."""

from __future__ import annotations

from optest.operators.shapes import (
    Attributes,
    Specs,
    as_float,
    dense,
    given,
    require_same_dtype,
)
from optest.spec import DType, Kind, TensorSpec, UnfitArguments, format_shape

__all__ = [
    "infer_float",
    "infer_floating",
    "infer_relu",
    "infer_softplus",
    "infer_swiglu",
]


def infer_floating(specs: Specs, _attributes: Attributes) -> tuple[TensorSpec, ...]:
    """One output like the input, which should be of a float dtype."""
    spec = given(specs, 0, "input")
    _require_float(spec.dtype, "input")
    return (dense(spec.dtype, spec.shape),)


def infer_relu(specs: Specs, _attributes: Attributes) -> tuple[TensorSpec, ...]:
    """One output like the input, which should be a number."""
    spec = given(specs, 0, "input")
    if spec.dtype.kind is Kind.BOOL:
        raise UnfitArguments("input is bool, but should be a number")
    return (dense(spec.dtype, spec.shape),)


def infer_float(specs: Specs, _attributes: Attributes) -> tuple[TensorSpec, ...]:
    """Integers and bool give float32, torch's default dtype."""
    spec = given(specs, 0, "input")
    return (dense(as_float(spec.dtype), spec.shape),)


def infer_softplus(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    if not attributes.get("beta", 1.0) > 0:
        raise UnfitArguments(f"beta is {attributes['beta']:g}, but should be above 0")
    return infer_floating(specs, attributes)


def infer_swiglu(specs: Specs, _attributes: Attributes) -> tuple[TensorSpec, ...]:
    """Like gate; without up, half as wide in the last dimension, whose second half is up."""
    gate = given(specs, 0, "gate")
    _require_float(gate.dtype, "gate")
    up = specs[1] if len(specs) > 1 else None
    if up is None:
        if not gate.rank or gate.shape[-1] % 2:
            raise UnfitArguments(
                f"gate is {format_shape(gate.shape)}, but should have an even last dimension, as up is left out"
            )
        return (dense(gate.dtype, (*gate.shape[:-1], gate.shape[-1] // 2)),)
    require_same_dtype(gate, up, "up")
    if up.shape != gate.shape:
        raise UnfitArguments(f"up is {format_shape(up.shape)}, but should be {format_shape(gate.shape)}, as gate")
    return (dense(gate.dtype, gate.shape),)


def _require_float(entry: DType, name: str) -> None:
    if not entry.is_float:
        raise UnfitArguments(f"{name} is {entry}, but should be a float dtype")
