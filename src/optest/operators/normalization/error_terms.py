"""What the normalisations may lose."""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    as_float64,
    quiet,
)
from optest.operators.normalization.references import affine_parameters, moments
from optest.operators.shapes import (
    normalize_dim,
)
from optest.spec import ErrorBudget

__all__ = [
    "layer_norm_terms",
    "softmax_terms",
]

_FLOAT32_U = 2.0**-24


@quiet
def softmax_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Errors of the shift, exp (3 ulp), the sum and the division (2.5 ulp), first order.

    With d = x − max and n elements in a row, in units of u: exp(d) is off by ``o = 2|d| + 6`` of itself (d is
    rounded once, and once more on the way to base 2), the sum by ``Σy·o + 4√n + v`` of itself, the quotient by 5. v
    is what vanishes when terms are added one by one, which are below u/2 of the sum. Whatever the row, exp(d) is off
    by a few subnormals of float32. Where a row repeats few values, n takes the place of 4√n.

    Errors of the sum are common to a row and do not average out over it; they count with twice their deviation.
    """
    array = np.asarray(inputs[0])
    x = as_float64(array)
    dim = normalize_dim(attributes.get("dim", -1), x.ndim)
    if not x.size:
        return (ErrorBudget(x, x),)
    row = x.reshape(x.shape or (1,))
    count = float(row.shape[dim])
    d = row - row.max(dim, keepdims=True)
    e = np.exp(d)
    y = e / e.sum(dim, keepdims=True)
    own = 2.0 * np.minimum(-d, 1000.0) + 6.0  # beyond, exp(d) is 0 without any error
    weighted = y * own

    growth, growth_variance = growth_of_sum(row, count, (dim,))
    squares = (y * y).sum(dim, keepdims=True)
    lost = 0.0 if array.dtype == np.float64 else np.where(y < _VANISHING, y, 0.0).sum(dim, keepdims=True) / _FLOAT32_U
    shared = weighted.sum(dim, keepdims=True) + growth + lost
    own_variance = weighted * weighted / 3.0
    shared_variance = growth_variance * (1.0 / 3.0 + squares / 2.0) + own_variance.sum(dim, keepdims=True)

    worst = weighted + y * (shared + 5.0) + _SUBNORMAL
    variance = own_variance + y * y * (4.0 * (shared_variance + lost * lost) + 2.0) + _SUBNORMAL**2
    return (ErrorBudget(worst.reshape(x.shape), variance.reshape(x.shape)),)


_VANISHING = 0.5 * _FLOAT32_U
_SUBNORMAL = 4.0 * 2.0**-125
"""Four times the smallest subnormal of float32, 2⁻¹⁴⁹, in units of its u."""


def growth_of_sum(x: Array, count: float, dims: tuple[int, ...]) -> tuple[Any, Any]:
    """How errors of a sum of ``count`` values grow, at worst and in variance: 4√n and n.

    Where a row repeats few values, roundings repeat and add up: n and n²/4.
    """
    repeats = x.max(dims, keepdims=True) == x.min(dims, keepdims=True)
    if count > 16 and _has_few_values(x):
        repeats = np.ones_like(repeats)
    worst = np.where(repeats, np.maximum(count, 4.0 * np.sqrt(count)), 4.0 * np.sqrt(count))
    return worst, np.where(repeats, np.maximum(count * count / 4.0, count), count)


def _has_few_values(x: Array) -> bool:
    """Fewer than 16 distinct values among 4,096 elements, evenly spread."""
    flat = x.reshape(-1)
    return np.unique(flat[:: max(1, flat.size // 4096)]).size < 16


@quiet
def layer_norm_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Errors of the mean, the variance, the square root, the products and the bias, first order.

    With r = 1/√(var + eps), z = |x − mean|·r, s = var/(var + eps), κ = √(1 + mean²/var), a = mean|x| and n elements
    in a row, in units of u:

    - mean, common to the row: ``(4√n·a + |mean|)·r``;
    - variance, common to the row: ``z·s·(2√n + 2κ + 2)``; κ is what updating formulas lose, κ² would admit
      E[x²] − E[x]²;
    - rsqrt (2 ulp) and the sum under it: ``5·z``;
    - x − mean, or x·r − mean·r: ``(|x| + |mean|)·r``, and two products: ``2·z``;

    all of it times |weight|, and ``|y|`` for adding the bias. What is common to a row does not average out over it
    and counts with twice its deviation. Where a row repeats few values, n takes the place of 4√n.
    """
    x = as_float64(inputs[0])
    if not x.size:
        return (ErrorBudget(x, x),)
    weight, bias = affine_parameters(inputs)
    trailing = len(attributes["normalized_shape"])
    dims = tuple(range(x.ndim - trailing, x.ndim))
    count = float(np.prod(x.shape[-trailing:]))
    centred, mean, variance = moments(x, trailing)
    total = variance + attributes.get("eps", 1e-5)
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

    if weight is not None:
        worst, expected = worst * np.abs(weight), expected * weight * weight
    if bias is not None:
        y = centred * r * (1.0 if weight is None else weight) + bias
        worst, expected = worst + np.abs(y), expected + y * y / 3.0
    return (ErrorBudget(np.asarray(worst), np.asarray(expected)),)
