"""Shapes and dtypes of the outputs of normalisations; standard library only."""

from __future__ import annotations

from math import prod

from optest.operators.shapes import (
    Attributes,
    Shape,
    Specs,
    dense,
    given,
    normalize_dim,
)
from optest.spec import TensorSpec, UnfitArguments, format_shape

__all__ = [
    "infer_batch_norm",
    "infer_causal_softmax",
    "infer_group_norm",
    "infer_layer_norm",
    "infer_rms_norm",
    "infer_softmax",
    "terms_of_channels",
    "terms_of_dim",
    "terms_of_groups",
    "terms_of_last",
    "terms_of_normalized_shape",
]


def infer_softmax(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    normalize_dim(attributes.get("dim", -1), spec.rank)
    return (dense(spec.dtype, spec.shape),)


def infer_causal_softmax(specs: Specs, _attributes: Attributes) -> tuple[TensorSpec, ...]:
    """Queries by keys in the last two dimensions; every query has to see a key, so there are no fewer keys."""
    spec = given(specs, 0, "input")
    if spec.rank < 2:
        raise UnfitArguments(f"input is {format_shape(spec.shape)}, but should have 2 dimensions or more")
    if spec.shape[-1] < spec.shape[-2]:
        raise UnfitArguments(
            f"input is {format_shape(spec.shape)}, but should have as many columns as rows or more: "
            "the first rows would see none"
        )
    return (dense(spec.dtype, spec.shape),)


def infer_layer_norm(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    normalized = _normalized_shape(spec, attributes)
    _require_parameters(spec, specs, normalized, "as normalized_shape", ("weight", "bias"))
    out = dense(spec.dtype, spec.shape)
    if not attributes.get("statistics"):
        return (out,)
    return (out, out, dense(spec.dtype, spec.shape[: spec.rank - len(normalized)]))


def infer_rms_norm(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    _require_parameters(spec, specs, _normalized_shape(spec, attributes), "as normalized_shape", ("weight",))
    return (dense(spec.dtype, spec.shape),)


def infer_group_norm(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    channels, groups = _channels(spec), attributes["num_groups"]
    if groups < 1 or channels % groups:
        raise UnfitArguments(f"num_groups is {groups}, but should divide the {channels} channels of input")
    if spec.elements == groups:
        raise UnfitArguments(f"a group of input {format_shape(spec.shape)} has 1 value, but should have more")
    _require_parameters(spec, specs, (channels,), "one for each channel", ("weight", "bias"))
    return (dense(spec.dtype, spec.shape),)


def infer_batch_norm(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec = given(specs, 0, "input")
    channels, eps = _channels(spec), attributes.get("eps", 1e-5)
    if eps < 0 or (eps == 0 and attributes.get("training")):
        raise UnfitArguments(f"eps is {eps:g}, but should be 0 or more, in training above 0")
    statistics = [specs[index] if len(specs) > index else None for index in (1, 2)]
    if (statistics[0] is None) != (statistics[1] is None):
        raise UnfitArguments("one of running_mean and running_var is missing, but both or neither should be given")
    if attributes.get("training"):
        if spec.elements and spec.elements == channels:
            raise UnfitArguments(f"a channel of input {format_shape(spec.shape)} has 1 value, but should have more")
    elif statistics[0] is None:
        raise UnfitArguments("running_mean and running_var are missing, but should be given unless training is true")
    names = ("running_mean", "running_var", "weight", "bias")
    _require_parameters(spec, specs, (channels,), "one for each channel", names)
    return (dense(spec.dtype, spec.shape),)


def terms_of_dim(specs: Specs, attributes: Attributes) -> int:
    spec = given(specs, 0, "input")
    return spec.shape[normalize_dim(attributes.get("dim", -1), spec.rank)] if spec.rank else 1


def terms_of_last(specs: Specs, _attributes: Attributes) -> int:
    spec = given(specs, 0, "input")
    return spec.shape[-1] if spec.rank else 1


def terms_of_normalized_shape(_specs: Specs, attributes: Attributes) -> int:
    return prod(attributes["normalized_shape"])


def terms_of_channels(specs: Specs, attributes: Attributes) -> int:
    """Values of a channel, which training adds up; else each element stands for itself."""
    spec = given(specs, 0, "input")
    return spec.elements // max(_channels(spec), 1) if attributes.get("training") else 1


def terms_of_groups(specs: Specs, attributes: Attributes) -> int:
    spec = given(specs, 0, "input")
    return spec.elements // max(spec.shape[0] * attributes["num_groups"], 1) if spec.rank else 1


def _channels(spec: TensorSpec) -> int:
    if spec.rank < 2:
        raise UnfitArguments(f"input is {format_shape(spec.shape)}, but should have 2 dimensions or more")
    return spec.shape[1]


def _normalized_shape(spec: TensorSpec, attributes: Attributes) -> Shape:
    normalized = tuple(attributes["normalized_shape"])
    if not normalized:
        raise UnfitArguments("normalized_shape is empty, but should have 1 size or more")
    if spec.shape[max(0, spec.rank - len(normalized)) :] != normalized:
        raise UnfitArguments(
            f"normalized_shape is {format_shape(normalized)}, but should be the last sizes of input "
            f"{format_shape(spec.shape)}"
        )
    return normalized


def _require_parameters(spec: TensorSpec, specs: Specs, shape: Shape, why: str, names: tuple[str, ...]) -> None:
    """Each of this shape, and of input's dtype or, beside 16 bits, float32."""
    for index, name in enumerate(names, start=1):
        parameter = specs[index] if len(specs) > index else None
        if parameter is None:
            continue
        if parameter.shape != shape:
            raise UnfitArguments(
                f"{name} is {format_shape(parameter.shape)}, but should be {format_shape(shape)}, {why}"
            )
        if parameter.dtype != spec.dtype and not (spec.dtype.bits == 16 and parameter.dtype.name == "float32"):
            wide = " or float32" if spec.dtype.bits == 16 else ""
            raise UnfitArguments(f"{name} is {parameter.dtype}, but should be {spec.dtype}{wide}, as input")
