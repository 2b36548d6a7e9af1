"""What the normalisations may lose."""

from __future__ import annotations

import numpy as np

from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    as_float64,
    is_double,
    quiet,
)
from optest.operators.budgets import SUBNORMAL, exponential_sum, growth_of_sum, half_subnormal
from optest.operators.normalization.references import (
    affine_parameters,
    by_channel,
    by_group,
    moments,
    parameter,
    rms_epsilon,
    running_statistics,
    seen,
    trailing_dims,
)
from optest.operators.shapes import (
    normalize_dim,
)
from optest.spec import ErrorBudget

__all__ = [
    "batch_norm_terms",
    "causal_softmax_terms",
    "group_norm_terms",
    "layer_norm_terms",
    "log_softmax_terms",
    "rms_norm_terms",
    "softmax_terms",
]


@quiet
def softmax_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Errors of the shift, exp (3 ulp), the sum and the division (2.5 ulp), first order.

    With d = x − max and n elements in a row, in units of u: exp(d) is off by ``o = 2|d| + 6`` of itself (d is
    rounded once, and once more on the way to base 2), the sum by ``Σy·o + 4√n + v`` of itself, the quotient by 5. v
    is what vanishes when terms are added one by one, which are below u/2 of the sum. Whatever the row, exp(d) is off
    by a few subnormals of float32. Where a row repeats few values, n takes the place of 4√n.

    Errors of the sum are common to a row and do not average out over it; they count with twice their deviation.
    """
    x = as_float64(inputs[0])
    if not x.size:
        return (ErrorBudget(x, x),)
    row = x.reshape(x.shape or (1,))
    dim = normalize_dim(attributes.get("dim", -1), x.ndim)
    worst, variance = _softmax_budget(row, dim, double=_is_double(inputs))
    return (ErrorBudget(worst.reshape(x.shape), variance.reshape(x.shape)),)


def _is_double(inputs: Inputs) -> bool:
    return is_double(np.asarray(inputs[0]))


def _softmax_budget(row: Array, dim: int, *, double: bool) -> tuple[Array, Array]:
    found = exponential_sum(row, dim, double=double)
    y, weighted = found.shares, found.weighted
    worst = weighted + y * (found.worst + 5.0) + SUBNORMAL
    variance = weighted * weighted / 3.0 + y * y * (4.0 * found.variance + 2.0) + SUBNORMAL**2
    return worst, variance


@quiet
def causal_softmax_terms(inputs: Inputs, _attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """As softmax, over the columns that a row sees; those that it does not see are 0 without any error."""
    x = as_float64(inputs[0])
    if not x.size:
        return (ErrorBudget(x, x),)
    mask = seen(x.shape[-2], x.shape[-1])
    worst, variance = _softmax_budget(np.where(mask, x, -np.inf), x.ndim - 1, double=_is_double(inputs))
    return (ErrorBudget(np.where(mask, worst, 0.0), np.where(mask, variance, 0.0)),)


@quiet
def log_softmax_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Errors of the shift, exp (3 ulp), the sum, the logarithm (3 ulp) and two differences, first order.

    With d = x − max, L = ln Σ exp(d) and l = max + L, in units of u: the sum is off by ``Σ share·(2|d| + 6) + 4√n + v``
    of itself (see softmax), which is the absolute error of L; the logarithm adds ``6·L``. Then (x − max) − L rounds
    ``|d|`` and x − (max + L) rounds ``|l|``, of which both are right, and the result rounds ``|y|``.

    Errors of L are common to a row and count with twice their deviation. Where a row repeats few values, n takes the
    place of 4√n.
    """
    x = as_float64(inputs[0])
    if not x.size:
        return (ErrorBudget(x, x),)
    row = x.reshape(x.shape or (1,))
    found = exponential_sum(row, normalize_dim(attributes.get("dim", -1), x.ndim), double=_is_double(inputs))
    logarithm = np.log(found.total)
    d, total = np.abs(found.shifted), np.abs(found.largest + logarithm)
    y = np.abs(found.shifted - logarithm)
    worst = found.worst + 6.0 * logarithm + d + total + y
    shared = found.variance + 12.0 * logarithm * logarithm + total * total / 3.0
    variance = 4.0 * shared + (d * d + y * y) / 3.0
    return (ErrorBudget(worst.reshape(x.shape), variance.reshape(x.shape)),)


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
    double = _is_double(inputs)
    out = ErrorBudget(*_normalized_budget(x, dims, eps, weight, bias, double=double))
    if not has_statistics:
        return (out,)
    own = ErrorBudget(*_normalized_budget(x, dims, eps, None, None, double=double))
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
def group_norm_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """As layer_norm over a group, and what a kernel loses that folds everything into x·scale + shift.

    With scale = weight·r and shift = bias − mean·scale: the product mean·scale, ``|weight·mean|·r``, and shift itself,
    ``|bias| + |weight·mean|·r``, come on top of it.
    """
    x = as_float64(inputs[0])
    if not x.size:
        return (ErrorBudget(x, x),)
    split = by_group(x, inputs, attributes["num_groups"])
    worst, variance = _normalized_budget(
        split.values,
        split.dims,
        attributes.get("eps", 1e-5),
        split.weight,
        split.bias,
        double=_is_double(inputs),
        is_folded=True,
    )
    return (ErrorBudget(worst.reshape(x.shape), variance.reshape(x.shape)),)


def _normalized_budget(
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
        weight, bias, double = split.weight, split.bias, _is_double(inputs)
        return (ErrorBudget(*_normalized_budget(x, split.dims, eps, weight, bias, double=double, is_folded=True)),)
    mean, variance = running_statistics(inputs, x.ndim)
    r = 1.0 / np.sqrt(variance + eps)
    z = np.abs(x - mean) * r
    worst = 6.0 * z + (np.abs(x) + 2.0 * np.abs(mean)) * r
    expected = 4.0 * 4.0 * z * z + (x * x + 4.0 * 2.0 * mean * mean) * r * r / 3.0
    lost = half_subnormal(double=_is_double(inputs)) * (2.0 + r)
    worst, expected, y = worst + lost, expected + lost * lost, (x - mean) * r
    if split.weight is not None:
        y, worst, expected = y * split.weight, worst * np.abs(split.weight) + lost, expected * split.weight**2
    if split.bias is not None:
        y = y + split.bias
        worst, expected = worst + np.abs(split.bias), expected + 4.0 * split.bias**2 / 3.0
    return (ErrorBudget(np.asarray(worst + np.abs(y)), np.asarray(expected + y * y / 3.0)),)


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
