"""What normalisations share: moments, parameters and the error of x·r."""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.operators.arrays import Array, Inputs, is_double, optional_input, sum_over, widen
from optest.operators.budgets import growth_of_sum, half_subnormal


def parameter(inputs: Inputs, index: int) -> Array | None:
    """One input, widened, None where it is left out."""
    given = optional_input(inputs, index)
    return None if given is None else widen(given)


def affine_parameters(inputs: Inputs) -> tuple[Array | None, Array | None]:
    """weight and bias of a normalisation, widened, None where left out."""
    return parameter(inputs, 1), parameter(inputs, 2)


def scaled(y: Array, weight: Array | None, bias: Array | None) -> Array:
    y = y if weight is None else y * weight
    return np.asarray(y if bias is None else y + bias)


def moments(x: Array, dims: tuple[int, ...], *, extended: bool = False) -> tuple[Array, Array, Array]:
    """x − mean, the mean and the biased variance over ``dims``, kept with size 1."""
    mean = mean_of(x, dims, extended=extended)
    centred = x - mean
    rest = mean_of(centred, dims, extended=extended)  # what rounding the mean left over
    centred = centred - rest
    return centred, mean + rest, mean_of(centred * centred, dims, extended=extended)


def mean_of(values: Array, dims: tuple[int, ...], *, extended: bool) -> Array:
    count: Any = np.prod([values.shape[i] for i in dims])
    return np.asarray(np.expand_dims(sum_over(values, dims, extended=extended), dims) / float(count))


def has_doubles(inputs: Inputs) -> bool:
    return is_double(np.asarray(inputs[0]))


def normalized_budget(
    x: Array,
    dims: tuple[int, ...],
    eps: float,
    weight: Array | None,
    bias: Array | None,
    *,
    double: bool,
    is_folded: bool = False,
) -> tuple[Array, Array]:
    count = float(np.prod([x.shape[i] for i in dims]))
    centred, mean, variance = moments(x, dims)
    total = variance + eps
    r = 1.0 / np.sqrt(total)
    z, s = np.abs(centred) * r, variance / total
    condition = np.sqrt(variance * (variance + mean * mean)) / total  # κ·s, finite where the variance is 0
    size = np.abs(x).mean(dims, keepdims=True)
    square = (x * x).mean(dims, keepdims=True)
    growth, growth_variance = growth_of_sum(x, count, dims)

    shift = (growth * size + np.abs(mean)) * r
    stretch = z * (s * (growth / 2.0 + 2.0) + 2.0 * condition)
    own = (np.abs(x) + np.abs(mean)) * r + 7.0 * z
    worst = shift + stretch + own

    shift_variance = (growth_variance * (mean * mean / 3.0 + square / (2.0 * count)) + mean * mean / 3.0) * r * r
    stretch_variance = z * z * (s * s * (growth_variance / 12.0 + 1.0) + condition * condition)
    own_variance = (x * x + mean * mean) * r * r / 3.0 + 4.0 * z * z
    expected = 4.0 * shift_variance + 4.0 * stretch_variance + own_variance
    if is_folded:
        worst = worst + 2.0 * np.abs(mean) * r
        expected = expected + 4.0 * (2.0 * mean * mean) * r * r / 3.0

    lost = half_subnormal(double=double)
    worst, expected = worst + lost * (r + 2.0), expected + (lost * (r + 2.0)) ** 2
    if weight is not None:
        worst, expected = (
            worst * np.abs(weight) + lost * (1.0 + r),
            expected * weight * weight + (lost * (1.0 + r)) ** 2,
        )
    if bias is not None:
        y = centred * r * (1.0 if weight is None else weight) + bias
        worst, expected = worst + np.abs(y), expected + y * y / 3.0
        if is_folded:
            worst, expected = worst + np.abs(bias), expected + 4.0 * bias * bias / 3.0
    return np.asarray(worst), np.asarray(expected)
