"""What the normalisations compute, in float64 from the inputs as they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from optest.numerics import Quiet
from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    is_double,
    quiet,
    sum_over,
    widen,
)
from optest.operators.shapes import (
    normalize_dim,
)

__all__ = [
    "Channels",
    "affine_parameters",
    "batch_norm_reference",
    "by_channel",
    "by_group",
    "causal_softmax_alternatives",
    "causal_softmax_reference",
    "group_norm_reference",
    "layer_norm_reference",
    "log_softmax_reference",
    "moments",
    "parameter",
    "rms_epsilon",
    "rms_norm_reference",
    "running_statistics",
    "seen",
    "softmax_reference",
    "trailing_dims",
]


@quiet
def softmax_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    x = widen(array)
    dim = normalize_dim(attributes.get("dim", -1), x.ndim)
    if not x.size:
        return (x,)
    row = x.reshape(x.shape or (1,))
    return (_softmax(row, dim, extended=is_double(array)).reshape(x.shape),)


def _softmax(row: Array, dim: int, *, extended: bool) -> Array:
    e = np.exp(row - row.max(dim, keepdims=True))
    total = np.expand_dims(sum_over(e, (dim,), extended=extended), dim)
    return np.asarray(e / total)


@quiet
def log_softmax_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """(x − max) − ln Σ exp(x − max)."""
    array = np.asarray(inputs[0])
    x = widen(array)
    dim = normalize_dim(attributes.get("dim", -1), x.ndim)
    if not x.size:
        return (x,)
    row = x.reshape(x.shape or (1,))
    row = row.astype(np.longdouble) if is_double(array) else row
    shifted = row - row.max(dim, keepdims=True)
    y = shifted - np.log(np.exp(shifted).sum(dim, keepdims=True))
    return (np.asarray(y, dtype=np.float64).reshape(x.shape),)


@quiet
def causal_softmax_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """0 for the columns that a row does not see, whatever stands there."""
    array = np.asarray(inputs[0])
    x = widen(array)
    if not x.size:
        return (x,)
    mask = seen(x.shape[-2], x.shape[-1])
    shares = _softmax(np.where(mask, x, -np.inf), x.ndim - 1, extended=is_double(array))
    return (np.where(mask, shares, 0.0),)


def causal_softmax_alternatives(inputs: Inputs, _attributes: Attributes, actual: Sequence[Any]) -> Sequence[Any]:
    """NaN beyond what a row sees, where all that it sees is NaN: a mask before softmax spreads it over the row."""
    x = np.asarray(actual[0])
    if not x.size:
        return (None,)
    with Quiet():
        (wanted,) = causal_softmax_reference(inputs, {})
        is_nan = np.isnan(np.asarray(x, np.float64))
        whole = np.isnan(wanted[..., :1])
    return (is_nan & whole & ~seen(x.shape[-2], x.shape[-1]),)


def seen(rows: int, columns: int) -> Array:
    """Row i sees the columns up to i + (columns − rows): the last row sees all."""
    return np.tri(rows, columns, columns - rows, dtype=np.bool_)


@quiet
def layer_norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The result and, if asked for, the values before weight and bias, and √(variance + eps) of each row."""
    array = np.asarray(inputs[0])
    x, dims = widen(array), trailing_dims(array, attributes)
    if not x.size:  # rows without elements have no mean
        return (x, x, np.full(x.shape[: dims[0]], np.nan)) if attributes.get("statistics") else (x,)
    weight, bias = affine_parameters(inputs)
    centred, _, variance = moments(x, dims, extended=is_double(array))
    std = np.sqrt(variance + attributes.get("eps", 1e-5))
    z = centred / std
    out = _scaled(z, weight, bias)
    return (out, z, np.asarray(std.reshape(x.shape[: dims[0]]))) if attributes.get("statistics") else (out,)


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
    return (_scaled((x - mean) / np.sqrt(variance + eps), split.weight, split.bias),)


@quiet
def rms_norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    x = widen(array)
    if not x.size:
        return (x,)
    dims = trailing_dims(x, attributes)
    square = _mean_of(x * x, dims, extended=is_double(array))
    y = x / np.sqrt(square + rms_epsilon(array, attributes))
    return (_scaled(y, parameter(inputs, 1), None),)


def rms_epsilon(array: Array, attributes: Attributes) -> float:
    """``eps``; without one, the spacing of 1 in the arithmetic: 2⁻⁵² for float64, 2⁻²³ for all others.

    torch documents finfo(input.dtype).eps, but takes that of float32, in which it computes, for 16-bit inputs too.
    """
    stated = attributes.get("eps")
    if stated is not None:
        return float(stated)
    return 2.0**-52 if is_double(array) else 2.0**-23


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


def parameter(inputs: Inputs, index: int) -> Array | None:
    """One input, widened, None where it is left out."""
    return widen(np.asarray(inputs[index])) if len(inputs) > index and inputs[index] is not None else None


def affine_parameters(inputs: Inputs) -> tuple[Array | None, Array | None]:
    """weight and bias of a normalisation, widened, None where left out."""
    return parameter(inputs, 1), parameter(inputs, 2)


def trailing_dims(x: Array, attributes: Attributes) -> tuple[int, ...]:
    """The last dimensions, as many as ``normalized_shape`` has."""
    return tuple(range(x.ndim - len(attributes["normalized_shape"]), x.ndim))


def _normalized(
    x: Array, dims: tuple[int, ...], eps: float, weight: Array | None, bias: Array | None, *, extended: bool
) -> Array:
    centred, _, variance = moments(x, dims, extended=extended)
    return _scaled(centred / np.sqrt(variance + eps), weight, bias)


def _scaled(y: Array, weight: Array | None, bias: Array | None) -> Array:
    y = y if weight is None else y * weight
    return np.asarray(y if bias is None else y + bias)


def moments(x: Array, dims: tuple[int, ...], *, extended: bool = False) -> tuple[Array, Array, Array]:
    """x − mean, the mean and the biased variance over ``dims``, kept with size 1."""
    mean = _mean_of(x, dims, extended=extended)
    centred = x - mean
    rest = _mean_of(centred, dims, extended=extended)  # what rounding the mean left over
    centred = centred - rest
    return centred, mean + rest, _mean_of(centred * centred, dims, extended=extended)


def _mean_of(values: Array, dims: tuple[int, ...], *, extended: bool) -> Array:
    count: Any = np.prod([values.shape[i] for i in dims])
    return np.asarray(np.expand_dims(sum_over(values, dims, extended=extended), dims) / float(count))
