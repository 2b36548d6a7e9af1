"""What normalisations of rows compute, and what they may lose."""

from __future__ import annotations

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, is_double, quiet, widen
from optest.operators.budgets import growth_of_sum, half_subnormal
from optest.operators.normalization.helpers_reference import (
    affine_parameters,
    has_doubles,
    mean_of,
    moments,
    normalized_budget,
    parameter,
    scaled,
)
from optest.spec import ErrorBudget


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
    out = scaled(z, weight, bias)
    return (out, z, np.asarray(std.reshape(x.shape[: dims[0]]))) if attributes.get("statistics") else (out,)


@quiet
def rms_norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    x = widen(array)
    if not x.size:
        return (x,)
    dims = trailing_dims(x, attributes)
    square = mean_of(x * x, dims, extended=is_double(array))
    y = x / np.sqrt(square + rms_epsilon(array, attributes))
    return (scaled(y, parameter(inputs, 1), None),)


def rms_epsilon(array: Array, attributes: Attributes) -> float:
    """``eps``; without one, the spacing of 1 in the arithmetic: 2⁻⁵² for float64, 2⁻²³ for all others.

    torch documents finfo(input.dtype).eps, but takes that of float32, in which it computes, for 16-bit inputs too.
    """
    stated = attributes.get("eps")
    if stated is not None:
        return float(stated)
    return 2.0**-52 if is_double(array) else 2.0**-23


def trailing_dims(x: Array, attributes: Attributes) -> tuple[int, ...]:
    """The last dimensions, as many as ``normalized_shape`` has."""
    return tuple(range(x.ndim - len(attributes["normalized_shape"]), x.ndim))


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
    and counts with twice its deviation. Where a row repeats few values, n takes the place of 4√n. Every product may
    be rounded to a subnormal number, before it is multiplied by r or weight.

    standardization is z, judged as without weight and bias. std is off by what the variance is, and by ``10·std`` for
    the sum under the root and the root itself, of which 1/rsqrt is the coarsest (2 and 2.5 ulp).
    """
    x = as_float64(inputs[0])
    dims, eps = trailing_dims(x, attributes), attributes.get("eps", 1e-5)
    has_statistics = attributes.get("statistics")
    if not x.size:
        nothing = ErrorBudget(x, x)
        none = np.zeros(x.shape[: dims[0]])
        return (nothing, nothing, ErrorBudget(none, none)) if has_statistics else (nothing,)
    weight, bias = affine_parameters(inputs)
    double = has_doubles(inputs)
    out = ErrorBudget(*normalized_budget(x, dims, eps, weight, bias, double=double))
    if not has_statistics:
        return (out,)
    own = ErrorBudget(*normalized_budget(x, dims, eps, None, None, double=double))
    return (out, own, _deviation_budget(x, dims, eps, double=double))


def _deviation_budget(x: Array, dims: tuple[int, ...], eps: float, *, double: bool) -> ErrorBudget:
    """Of √(variance + eps); the variance loses what it loses in :func:`_normalized_budget`."""
    count = float(np.prod([x.shape[i] for i in dims]))
    _, mean, variance = moments(x, dims)
    total = variance + eps
    std, s = np.sqrt(total), variance / total
    condition = np.sqrt(variance * (variance + mean * mean)) / total
    growth, growth_variance = growth_of_sum(x, count, dims)
    lost = half_subnormal(double=double) * (1.0 + 1.0 / std)
    worst = std * (s * (growth / 2.0 + 2.0) + 2.0 * condition + 10.0) + lost
    expected = total * (s * s * (growth_variance / 12.0 + 1.0) + condition * condition + 8.0) + lost * lost
    shape = x.shape[: dims[0]]
    return ErrorBudget(worst.reshape(shape), expected.reshape(shape))


@quiet
def rms_norm_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Errors of the mean square, the square root and the products, all relative to the result y, first order.

    With q the mean of x², s = q/(q + eps) and n elements in a row, in units of u: the squares, their sum and the
    division are off by ``4√n + 4`` of q, of which the root takes ``s·(2√n + 2)``; the sum with eps, rsqrt (2 ulp) and
    two products add ``7``. What is common to a row counts with twice its deviation. Where a row repeats few values,
    n takes the place of 4√n. The first product may be rounded to a subnormal number, before it is multiplied again.
    """
    array = np.asarray(inputs[0])
    x = as_float64(array)
    if not x.size:
        return (ErrorBudget(x, x),)
    dims, weight = trailing_dims(x, attributes), parameter(inputs, 1)
    count = float(np.prod([x.shape[i] for i in dims]))
    squares = x * x
    mean_square = squares.mean(dims, keepdims=True)
    total = mean_square + rms_epsilon(array, attributes)
    s = np.where(np.isinf(total), 1.0, mean_square / total)
    growth, growth_variance = growth_of_sum(squares, count, dims)
    y = np.abs(x) / np.sqrt(total) * (1.0 if weight is None else np.abs(weight))
    fourth = (squares * squares).mean(dims, keepdims=True)
    spread = np.where(np.isinf(total), 1.0, fourth / (count * total * total))  # Σt²/2 beside s²/3
    shared = growth_variance * (s * s / 3.0 + spread / 2.0) / 4.0 + s * s + 2.0
    lost = half_subnormal(double=is_double(array)) * (1.0 if weight is None else np.abs(weight) + 1.0 / np.sqrt(total))
    worst = y * (s * (growth / 2.0 + 2.0) + 7.0) + lost
    return (ErrorBudget(np.asarray(worst), np.asarray(y * y * (4.0 * shared + 1.0) + lost * lost)),)
