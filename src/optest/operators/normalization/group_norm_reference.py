"""What normalisations of channels compute, and what they may lose."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, is_double, quiet, widen
from optest.operators.budgets import half_subnormal
from optest.operators.normalization.helpers_reference import (
    affine_parameters,
    has_doubles,
    moments,
    normalized_budget,
    parameter,
    scaled,
)
from optest.spec import ErrorBudget


@quiet
def group_norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    if not array.size:
        return (widen(array),)
    split = by_group(widen(array), inputs, attributes["num_groups"])
    y = _normalized(
        split.values,
        split.dims,
        attributes.get("eps", 1e-5),
        split.weight,
        split.bias,
        extended=is_double(array),
    )
    return (y.reshape(array.shape),)


@quiet
def batch_norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """By the running statistics or, in training, those of the batch (with the biased variance)."""
    array = np.asarray(inputs[0])
    x, eps = widen(array), attributes.get("eps", 1e-5)
    if not x.size:
        return (x,)
    split = by_channel(x, inputs)
    if attributes.get("training"):
        return (_normalized(x, split.dims, eps, split.weight, split.bias, extended=is_double(array)),)
    mean, variance = running_statistics(inputs, x.ndim)
    return (scaled((x - mean) / np.sqrt(variance + eps), split.weight, split.bias),)


class Channels(NamedTuple):
    """An input with the dimensions that are normalised over, and its parameters shaped to broadcast with it."""

    values: Array
    dims: tuple[int, ...]
    weight: Array | None
    bias: Array | None


def by_group(x: Array, inputs: Inputs, groups: int) -> Channels:
    """(batch, groups, channels of a group, everything else), of which the last two are normalised over."""
    batch, channels = x.shape[:2]
    values = x.reshape(batch, groups, channels // groups, -1)
    weight, bias = (None if each is None else each.reshape(1, groups, -1, 1) for each in affine_parameters(inputs))
    return Channels(values, (2, 3), weight, bias)


def by_channel(x: Array, inputs: Inputs) -> Channels:
    """weight and bias of a batch_norm, which follow the running statistics; normalised over all but dimension 1."""
    dims = (0, *range(2, x.ndim))
    return Channels(x, dims, _spread(parameter(inputs, 3), x.ndim), _spread(parameter(inputs, 4), x.ndim))


def running_statistics(inputs: Inputs, rank: int) -> tuple[Array, Array]:
    """running_mean and running_var, shaped to broadcast over the channels; inference has seen to it that both are."""
    mean, variance = (widen(np.asarray(inputs[index])).reshape(-1, *(1,) * (rank - 2)) for index in (1, 2))
    return mean, variance


def _spread(values: Array | None, rank: int) -> Array | None:
    return None if values is None else values.reshape(-1, *(1,) * (rank - 2))


def _normalized(
    x: Array, dims: tuple[int, ...], eps: float, weight: Array | None, bias: Array | None, *, extended: bool
) -> Array:
    centred, _, variance = moments(x, dims, extended=extended)
    return scaled(centred / np.sqrt(variance + eps), weight, bias)


@quiet
def group_norm_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """As layer_norm over a group, plus the error of a kernel that folds everything into x·scale + shift.

    With scale = weight·r and shift = bias − mean·scale, the product mean·scale adds ``|weight·mean|·r``, and shift
    adds ``|bias| + |weight·mean|·r``.
    """
    x = as_float64(inputs[0])
    if not x.size:
        return (ErrorBudget(x, x),)
    split = by_group(x, inputs, attributes["num_groups"])
    worst, variance = normalized_budget(
        split.values,
        split.dims,
        attributes.get("eps", 1e-5),
        split.weight,
        split.bias,
        double=has_doubles(inputs),
        is_folded=True,
    )
    return (ErrorBudget(worst.reshape(x.shape), variance.reshape(x.shape)),)


@quiet
def batch_norm_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """By running statistics: errors of the square root and of x·scale + shift; in training as group_norm.

    With r = 1/√(running_var + eps), z = |x − running_mean|·r, scale = weight·r and shift = bias − running_mean·scale,
    in units of u: the sum under the root (1/2), rsqrt (2 ulp) and the product with weight stretch z by ``6·z``, the
    products x·scale and running_mean·scale and the shift round ``(|x| + 2|running_mean|)·r``, all of it times |weight|;
    ``|bias|`` is in the shift and ``|y|`` is the last sum. Errors of scale and shift are common to a channel and count
    with twice their deviation.
    """
    x, eps = as_float64(inputs[0]), attributes.get("eps", 1e-5)
    if not x.size:
        return (ErrorBudget(x, x),)
    split = by_channel(x, inputs)
    if attributes.get("training"):
        weight, bias, double = split.weight, split.bias, has_doubles(inputs)
        return (ErrorBudget(*normalized_budget(x, split.dims, eps, weight, bias, double=double, is_folded=True)),)
    mean, variance = running_statistics(inputs, x.ndim)
    r = 1.0 / np.sqrt(variance + eps)
    z = np.abs(x - mean) * r
    worst = 6.0 * z + (np.abs(x) + 2.0 * np.abs(mean)) * r
    expected = 4.0 * 4.0 * z * z + (x * x + 4.0 * 2.0 * mean * mean) * r * r / 3.0
    lost = half_subnormal(double=has_doubles(inputs)) * (2.0 + r)
    worst, expected, y = worst + lost, expected + lost * lost, (x - mean) * r
    if split.weight is not None:
        y, worst, expected = y * split.weight, worst * np.abs(split.weight) + lost, expected * split.weight**2
    if split.bias is not None:
        y = y + split.bias
        worst, expected = worst + np.abs(split.bias), expected + 4.0 * split.bias**2 / 3.0
    return (ErrorBudget(np.asarray(worst + np.abs(y)), np.asarray(expected + y * y / 3.0)),)
