"""Shapes and dtypes of the outputs of normalisations; standard library only."""

from __future__ import annotations

from optest.operators.shapes import (
    Attributes,
    Specs,
    dense,
    given,
    normalize_dim,
)
from optest.spec import TensorSpec, UnfitArguments, format_shape

__all__ = [
    "infer_layer_norm",
    "infer_softmax",
]


def infer_softmax(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    normalize_dim(attributes.get("dim", -1), spec.rank)
    return (dense(spec.dtype, spec.shape),)


def infer_layer_norm(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    normalized = tuple(attributes["normalized_shape"])
    if not normalized:
        raise UnfitArguments("normalized_shape is empty, but should have 1 size or more")
    if spec.shape[max(0, spec.rank - len(normalized)) :] != normalized:
        raise UnfitArguments(
            f"normalized_shape is {format_shape(normalized)}, but should be the last sizes of input "
            f"{format_shape(spec.shape)}"
        )
    for index, name in ((1, "weight"), (2, "bias")):
        parameter = specs[index] if len(specs) > index else None
        if parameter is None:
            continue
        if parameter.shape != normalized:
            raise UnfitArguments(
                f"{name} is {format_shape(parameter.shape)}, but should be {format_shape(normalized)}, "
                "as normalized_shape"
            )
        if parameter.dtype != spec.dtype and not (spec.dtype.bits == 16 and parameter.dtype.name == "float32"):
            wide = " or float32" if spec.dtype.bits == 16 else ""
            raise UnfitArguments(f"{name} is {parameter.dtype}, but should be {spec.dtype}{wide}, as input")
    return (dense(spec.dtype, spec.shape),)
