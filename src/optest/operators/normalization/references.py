"""What the normalisations compute, in float64 from the inputs as they are stored."""

from __future__ import annotations

import numpy as np

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
    "affine_parameters",
    "layer_norm_reference",
    "moments",
    "softmax_reference",
]


@quiet
def softmax_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    x = widen(array)
    dim = normalize_dim(attributes.get("dim", -1), x.ndim)
    if not x.size:
        return (x,)
    row = x.reshape(x.shape or (1,))
    e = np.exp(row - row.max(dim, keepdims=True))
    total = np.expand_dims(sum_over(e, (dim,), extended=is_double(array)), dim)
    return (np.asarray(e / total).reshape(x.shape),)


@quiet
def layer_norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    x = widen(array)
    if not x.size:
        return (x,)
    weight, bias = affine_parameters(inputs)
    centred, _, variance = moments(x, len(attributes["normalized_shape"]), extended=is_double(array))
    y = centred / np.sqrt(variance + attributes.get("eps", 1e-5))
    y = y if weight is None else y * weight
    return (np.asarray(y if bias is None else y + bias),)


def affine_parameters(inputs: Inputs) -> tuple[Array | None, Array | None]:
    """weight and bias of a normalisation, widened, None where left out."""
    weight, bias = (inputs[i] if len(inputs) > i and inputs[i] is not None else None for i in (1, 2))
    return (
        None if weight is None else widen(np.asarray(weight)),
        None if bias is None else widen(np.asarray(bias)),
    )


def moments(x: Array, trailing: int, *, extended: bool = False) -> tuple[Array, Array, Array]:
    """x − mean, the mean and the biased variance over the last ``trailing`` dimensions, kept with size 1."""
    dims = tuple(range(x.ndim - trailing, x.ndim))

    def mean_of(values: Array) -> Array:
        return np.expand_dims(sum_over(values, dims, extended=extended), dims) / float(np.prod(x.shape[-trailing:]))

    mean = mean_of(x)
    centred = x - mean
    rest = mean_of(centred)  # what rounding the mean left over
    centred = centred - rest
    return centred, mean + rest, mean_of(centred * centred)
