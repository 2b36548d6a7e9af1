"""Shapes and dtypes of the outputs of poolings, and how long their sums are; standard library only."""

from __future__ import annotations

from optest.operators.pooling.windows import adaptive_windows_of, windows_of
from optest.operators.shapes import Attributes, Shape, Specs, dense, given
from optest.spec import TensorSpec, UnfitArguments

__all__ = [
    "adaptive_window_length",
    "infer_adaptive_avg_pool2d",
    "infer_avg_pool2d",
    "infer_max_pool2d",
    "window_length",
]


def infer_max_pool2d(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    return (_pooled(spec, windows_of(spec, attributes).out),)


def infer_avg_pool2d(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    if attributes.get("divisor_override") == 0:
        raise UnfitArguments("divisor_override is 0, but should be another number")
    spec = given(specs, 0, "input")
    return (_pooled(spec, windows_of(spec, attributes).out),)


def infer_adaptive_avg_pool2d(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    return (_pooled(spec, adaptive_windows_of(spec, attributes).out),)


def _pooled(spec: TensorSpec, out: Shape) -> TensorSpec:
    return dense(spec.dtype, (*spec.shape[:-2], *out))


def window_length(specs: Specs, attributes: Attributes) -> int:
    return windows_of(given(specs, 0, "input"), attributes).elements


def adaptive_window_length(specs: Specs, attributes: Attributes) -> int:
    return adaptive_windows_of(given(specs, 0, "input"), attributes).elements
