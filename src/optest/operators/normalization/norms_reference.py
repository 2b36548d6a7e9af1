"""References and error terms of normalisations of rows and of channels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from optest.numerics import dtype_of, round_to
from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    as_float64,
    is_double,
    optional_input,
    quiet_hooks,
    sum_over,
    widen,
)
from optest.operators.budgets import growth_of_sum, half_subnormal, unit_roundoff
from optest.operators.reduction.reduction_reference import norm_budget, norm_reference
from optest.spec import ErrorBudget


def parameter(inputs: Inputs, index: int) -> Array | None:
    """Return the input at `index`, widened; None if it is missing."""
    stored = optional_input(inputs, index)
    return None if stored is None else widen(stored)


def affine_parameters(inputs: Inputs) -> tuple[Array | None, Array | None]:
    """Return weight and bias (inputs 1 and 2), widened; None if missing."""
    return parameter(inputs, 1), parameter(inputs, 2)


def affine(y: Array, weight: Array | None, bias: Array | None) -> Array:
    """Return y · weight + bias, without a factor or addend that is None."""
    y = y if weight is None else y * weight
    return np.asarray(y if bias is None else y + bias)


def moments(x: Array, dims: tuple[int, ...], *, extended: bool = False) -> tuple[Array, Array, Array]:
    """Return x − mean, the mean and the biased variance over `dims`, kept with size 1."""
    mean = mean_of(x, dims, extended=extended)
    centred = x - mean
    # The mean of the centred values is the rounding error of the mean.
    rest = mean_of(centred, dims, extended=extended)
    centred = centred - rest
    return centred, mean + rest, mean_of(centred * centred, dims, extended=extended)


def mean_of(values: Array, dims: tuple[int, ...], *, extended: bool) -> Array:
    """Return the mean over `dims`, kept with size 1; `extended` sums in long double."""
    count: Any = np.prod([values.shape[i] for i in dims])
    return np.asarray(np.expand_dims(sum_over(values, dims, extended=extended), dims) / float(count))


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
    """Return the worst error of (x − mean)·r·weight + bias and its variance, in units of u (see layer_norm_terms).

    `is_folded` adds the errors of kernels that compute x·scale + shift (see group_norm_terms).
    """
    count = float(np.prod([x.shape[i] for i in dims]))
    centred, mean, variance = moments(x, dims)
    total = variance + eps
    r = 1.0 / np.sqrt(total)
    z, s = np.abs(centred) * r, variance / total
    # κ itself is infinite for a variance of 0.
    condition = np.sqrt(variance * (variance + mean * mean)) / total  # κ·s, finite for a variance of 0
    size = np.abs(x).mean(dims, keepdims=True)
    square = (x * x).mean(dims, keepdims=True)
    growth, growth_variance = growth_of_sum(x, count, dims)

    shift = (growth * size + np.abs(mean)) * r
    stretch = z * (s * (growth / 2.0 + 2.0) + 2.0 * condition)
    rounding = (np.abs(x) + np.abs(mean)) * r + 7.0 * z
    worst = shift + stretch + rounding

    shift_variance = (growth_variance * (mean * mean / 3.0 + square / (2.0 * count)) + mean * mean / 3.0) * r * r
    stretch_variance = z * z * (s * s * (growth_variance / 12.0 + 1.0) + condition * condition)
    rounding_variance = (x * x + mean * mean) * r * r / 3.0 + 4.0 * z * z
    # Errors common to a row do not average out over it and count with twice their deviation.
    expected = 4.0 * shift_variance + 4.0 * stretch_variance + rounding_variance
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


def layer_norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the output; with statistics also the values before weight and bias, and √(variance + eps) of each row."""
    array = np.asarray(inputs[0])
    x, dims = widen(array), trailing_dims(array, attributes)
    if not x.size:  # the mean of an empty row is NaN
        return (x, x, np.full(x.shape[: dims[0]], np.nan)) if attributes.get("statistics") else (x,)
    weight, bias = affine_parameters(inputs)
    centred, _, variance = moments(x, dims, extended=is_double(array))
    std = np.sqrt(variance + attributes.get("eps", 1e-5))
    z = centred / std
    out = affine(z, weight, bias)
    return (out, z, np.asarray(std.reshape(x.shape[: dims[0]]))) if attributes.get("statistics") else (out,)


def rms_norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    return (_rms_normalized(widen(array), parameter(inputs, 1), attributes, double=is_double(array)),)


def _rms_normalized(x: Array, weight: Array | None, attributes: Attributes, *, double: bool) -> Array:
    """Return x / √(mean x² + eps) · weight; `x` if it is empty."""
    if not x.size:
        return x
    square = mean_of(x * x, trailing_dims(x, attributes), extended=double)
    return affine(x / np.sqrt(square + rms_epsilon(attributes, double=double)), weight, None)


def rms_epsilon(attributes: Attributes, *, double: bool) -> float:
    """Return eps; if it is None, the spacing of 1 in the arithmetic: 2⁻⁵² for float64, else 2⁻²³."""
    eps = attributes.get("eps")
    # torch documents finfo(input.dtype).eps, but uses that of float32, its arithmetic, for 16-bit inputs.
    return float(eps) if eps is not None else 2.0**-52 if double else 2.0**-23


def add_rms_norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the norm of input + other, not rounded in between, and that sum."""
    first = np.asarray(inputs[0])
    total = widen(first) + widen(np.asarray(inputs[1]))
    return _rms_normalized(total, parameter(inputs, 2), attributes, double=is_double(first)), total


def normalize_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    (norm,) = norm_reference([array], _norm_attributes(attributes))
    return (np.asarray(widen(array) / np.maximum(norm, attributes.get("eps", 1e-12))),)


def _norm_attributes(attributes: Attributes) -> dict[str, Any]:
    """Return the attributes of norm for a normalize call."""
    return {"p": attributes.get("p", 2.0), "dim": (attributes.get("dim", 1),), "keepdim": True}


def trailing_dims(x: Array, attributes: Attributes) -> tuple[int, ...]:
    """Return the last dimensions of `x`, as many as normalized_shape has."""
    return tuple(range(x.ndim - len(attributes["normalized_shape"]), x.ndim))


def layer_norm_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the first-order error budget of the mean, the variance, the square root, the products and the bias.

    With r = 1/√(var + eps), z = |x − mean|·r, s = var/(var + eps), κ = √(1 + mean²/var), a = mean|x| and n elements in
    a row, in units of u:

    - mean, common to the row: ``(4√n·a + |mean|)·r``;
    - variance, common to the row: ``z·s·(2√n + 2κ + 2)``; κ is the loss of updating formulas, κ² would accept
      E[x²] − E[x]²;
    - rsqrt (2 ulp) and the sum under it: ``5·z``;
    - x − mean, or x·r − mean·r: ``(|x| + |mean|)·r``, and two products: ``2·z``;

    all of it times |weight|, and ``|y|`` for adding the bias. Errors common to a row do not average out over it and
    count with twice their deviation. If a row repeats few values, n replaces 4√n. Every product may be rounded to a
    subnormal number before it is multiplied by r or weight.

    standardization is z, with the budget of an output without weight and bias. std has the error of the variance, and
    ``10·std`` for the sum under the root and the root itself, of which 1/rsqrt is the coarsest (2 and 2.5 ulp).
    """
    x = as_float64(inputs[0])
    dims, eps = trailing_dims(x, attributes), attributes.get("eps", 1e-5)
    has_statistics = attributes.get("statistics")
    if not x.size:
        exact, zeros = ErrorBudget(x, x), np.zeros(x.shape[: dims[0]])
        return (exact, exact, ErrorBudget(zeros, zeros)) if has_statistics else (exact,)
    weight, bias = affine_parameters(inputs)
    double = is_double(inputs[0])
    out = ErrorBudget(*normalized_budget(x, dims, eps, weight, bias, double=double))
    if not has_statistics:
        return (out,)
    of_standardization = ErrorBudget(*normalized_budget(x, dims, eps, None, None, double=double))
    return (out, of_standardization, deviation_budget(x, dims, eps, double=double))


def deviation_budget(x: Array, dims: tuple[int, ...], eps: float, *, double: bool) -> ErrorBudget:
    """Return the budget of √(variance + eps) per row; for the error of the variance see normalized_budget."""
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


def rms_norm_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the first-order error budget of the mean square, the square root and the products, relative to output y.

    With q the mean of x², s = q/(q + eps) and n elements in a row, in units of u: the squares, their sum and the
    division are off by ``4√n + 4`` of q, of which the root takes ``s·(2√n + 2)``; the sum with eps, rsqrt (2 ulp) and
    two products add ``7``. Errors common to a row count with twice their deviation. If a row repeats few values, n
    replaces 4√n. The first product may be rounded to a subnormal number before it is multiplied again.
    """
    array = np.asarray(inputs[0])
    return (_rms_budget(as_float64(array), parameter(inputs, 1), attributes, double=is_double(array)),)


def _rms_budget(x: Array, weight: Array | None, attributes: Attributes, *, double: bool) -> ErrorBudget:
    """Return the error budget of _rms_normalized (see rms_norm_terms)."""
    if not x.size:
        return ErrorBudget(x, x)
    dims = trailing_dims(x, attributes)
    count = float(np.prod([x.shape[i] for i in dims]))
    squares = x * x
    mean_square = squares.mean(dims, keepdims=True)
    total = mean_square + rms_epsilon(attributes, double=double)
    s = np.where(np.isinf(total), 1.0, mean_square / total)
    growth, growth_variance = growth_of_sum(squares, count, dims)
    y = np.abs(x) / np.sqrt(total) * (1.0 if weight is None else np.abs(weight))
    fourth = (squares * squares).mean(dims, keepdims=True)
    spread = np.where(np.isinf(total), 1.0, fourth / (count * total * total))  # Σt²/2, next to s²/3
    shared = growth_variance * (s * s / 3.0 + spread / 2.0) / 4.0 + s * s + 2.0
    lost = half_subnormal(double=double) * (1.0 if weight is None else np.abs(weight) + 1.0 / np.sqrt(total))
    worst = y * (s * (growth / 2.0 + 2.0) + 7.0) + lost
    return ErrorBudget(np.asarray(worst), np.asarray(y * y * (4.0 * shared + 1.0) + lost * lost))


def add_rms_norm_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the budget of rms_norm of x = input + other, plus 2·|y| for rounding x twice; residual has no error.

    x is rounded itself and in the mean square. If the dtype is narrower than the arithmetic, kernels differ in what
    they round to it: nothing, x as a factor, or x in the mean square, too. The larger of both differences is added. The
    residual is one sum, which is rounded once.
    """
    first = np.asarray(inputs[0])
    total, weight = as_float64(first) + as_float64(inputs[1]), parameter(inputs, 2)
    double = is_double(first)
    of_norm = _rms_budget(total, weight, attributes, double=double)
    # Kernels that write the residual first may read it back in its dtype.
    stored = as_float64(round_to(total, dtype_of(first.dtype)))
    y = _rms_normalized(total, weight, attributes, double=double)
    changed = np.abs(_rms_normalized(stored, weight, attributes, double=double) - y)
    # Kernels may round x only as the factor of r.
    scaled_alone = np.where(total == 0.0, 0.0, np.abs(y * (stored - total) / total))
    u = unit_roundoff(first)
    rounding_of_x = 2.0 * np.abs(y) + np.nan_to_num(np.maximum(changed, scaled_alone)) / u
    zeros = np.zeros(total.shape)
    return ErrorBudget(of_norm.worst + rounding_of_x, of_norm.variance + rounding_of_x * rounding_of_x), ErrorBudget(
        zeros, zeros
    )


def normalize_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the errors of the norm, of rounding eps and of the quotient (2.5 ulp), relative to |y|."""
    array = np.asarray(inputs[0])
    norm_attributes = _norm_attributes(attributes)
    # Subnormal squares are rounded, not lost: such short vectors are divided by eps, unless it is 0.
    (norm,), (lost, variance, _) = (
        norm_reference([array], norm_attributes),
        norm_budget([array], norm_attributes, 2.0**-150),
    )
    y, divisor = np.abs(normalize_reference(inputs, attributes)[0]), np.maximum(norm, attributes.get("eps", 1e-12))
    tiny = half_subnormal(double=is_double(array))
    expected = np.asarray(variance) / (divisor * divisor)
    return (ErrorBudget(y * (lost / divisor + 6.0) + tiny, y * y * (4.0 * expected + 12.0) + tiny * tiny),)


def group_norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    if not array.size:
        return (widen(array),)
    split = by_group(widen(array), inputs, attributes["num_groups"])
    y = _normalized(
        split.values, split.dims, attributes.get("eps", 1e-5), split.weight, split.bias, extended=is_double(array)
    )
    return (y.reshape(array.shape),)


def batch_norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the output by the running statistics or, in training, by those of the batch with the biased variance."""
    array = np.asarray(inputs[0])
    x, eps = widen(array), attributes.get("eps", 1e-5)
    if not x.size:
        return (x,)
    split = by_channel(x, inputs)
    if attributes.get("training"):
        return (_normalized(x, split.dims, eps, split.weight, split.bias, extended=is_double(array)),)
    mean, variance = running_statistics(inputs, x.ndim)
    return (affine((x - mean) / np.sqrt(variance + eps), split.weight, split.bias),)


class Channels(NamedTuple):
    """Input values, the dimensions to normalise over, and parameters shaped to broadcast with them."""

    values: Array
    dims: tuple[int, ...]
    weight: Array | None
    bias: Array | None


def by_group(x: Array, inputs: Inputs, groups: int) -> Channels:
    """Reshape to (batch, groups, channels of a group, rest), to normalise over the last two dimensions."""
    batch, channels = x.shape[:2]
    values = x.reshape(batch, groups, channels // groups, -1)
    weight, bias = (
        None if values is None else values.reshape(1, groups, -1, 1) for values in affine_parameters(inputs)
    )
    return Channels(values, (2, 3), weight, bias)


def by_channel(x: Array, inputs: Inputs) -> Channels:
    """Return a batch_norm input with its weight and bias (inputs 3 and 4), to normalise over all but dimension 1."""
    dims = (0, *range(2, x.ndim))
    return Channels(
        x, dims, _broadcast_channels(parameter(inputs, 3), x.ndim), _broadcast_channels(parameter(inputs, 4), x.ndim)
    )


def running_statistics(inputs: Inputs, rank: int) -> tuple[Array, Array]:
    """Return running_mean and running_var, shaped to broadcast over the channels."""
    # Shape inference has checked that both are given.
    mean, variance = (widen(np.asarray(inputs[index])).reshape(-1, *(1,) * (rank - 2)) for index in (1, 2))
    return mean, variance


def _broadcast_channels(values: Array | None, rank: int) -> Array | None:
    """Return one value per channel, shaped to broadcast with an input of `rank`; None stays None."""
    return None if values is None else values.reshape(-1, *(1,) * (rank - 2))


def _normalized(
    x: Array, dims: tuple[int, ...], eps: float, weight: Array | None, bias: Array | None, *, extended: bool
) -> Array:
    """Return the values normalised over `dims`, times weight, plus bias."""
    centred, _, variance = moments(x, dims, extended=extended)
    return affine(centred / np.sqrt(variance + eps), weight, bias)


def group_norm_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the budget of layer_norm over a group, plus the errors of a kernel that computes x·scale + shift.

    With scale = weight·r and shift = bias − mean·scale, the product mean·scale adds ``|weight·mean|·r``, and shift adds
    ``|bias| + |weight·mean|·r``.
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
        double=is_double(inputs[0]),
        is_folded=True,
    )
    return (ErrorBudget(worst.reshape(x.shape), variance.reshape(x.shape)),)


def batch_norm_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the budget of x·scale + shift by the running statistics, or that of group_norm in training.

    With r = 1/√(running_var + eps), z = |x − running_mean|·r, scale = weight·r and shift = bias − running_mean·scale,
    in units of u: the sum under the root (1/2), rsqrt (2 ulp) and the product with weight scale z by ``6·z``, the
    products x·scale and running_mean·scale and the shift round ``(|x| + 2|running_mean|)·r``, all of it times |weight|;
    ``|bias|`` is in the shift and ``|y|`` is the last sum. Errors of scale and shift are common to a channel and count
    with twice their deviation.
    """
    x, eps = as_float64(inputs[0]), attributes.get("eps", 1e-5)
    if not x.size:
        return (ErrorBudget(x, x),)
    split = by_channel(x, inputs)
    if attributes.get("training"):
        weight, bias, double = split.weight, split.bias, is_double(inputs[0])
        return (ErrorBudget(*normalized_budget(x, split.dims, eps, weight, bias, double=double, is_folded=True)),)
    mean, variance = running_statistics(inputs, x.ndim)
    r = 1.0 / np.sqrt(variance + eps)
    z = np.abs(x - mean) * r
    worst = 6.0 * z + (np.abs(x) + 2.0 * np.abs(mean)) * r
    expected = 4.0 * 4.0 * z * z + (x * x + 4.0 * 2.0 * mean * mean) * r * r / 3.0
    lost = half_subnormal(double=is_double(inputs[0])) * (2.0 + r)
    worst, expected, y = worst + lost, expected + lost * lost, (x - mean) * r
    if split.weight is not None:
        y, worst, expected = y * split.weight, worst * np.abs(split.weight) + lost, expected * split.weight**2
    if split.bias is not None:
        y = y + split.bias
        worst, expected = worst + np.abs(split.bias), expected + 4.0 * split.bias**2 / 3.0
    return (ErrorBudget(np.asarray(worst + np.abs(y)), np.asarray(expected + y * y / 3.0)),)


quiet_hooks(globals())
