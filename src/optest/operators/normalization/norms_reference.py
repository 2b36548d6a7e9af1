"""What normalisations of rows and channels compute, and what they may lose."""

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


def rms_norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    return (_rms_normalized(widen(array), parameter(inputs, 1), attributes, double=is_double(array)),)


def _rms_normalized(x: Array, weight: Array | None, attributes: Attributes, *, double: bool) -> Array:
    if not x.size:
        return x
    square = mean_of(x * x, trailing_dims(x, attributes), extended=double)
    return scaled(x / np.sqrt(square + rms_epsilon(attributes, double=double)), weight, None)


def rms_epsilon(attributes: Attributes, *, double: bool) -> float:
    """``eps``; without one, the spacing of 1 in the arithmetic: 2⁻⁵² for float64, 2⁻²³ for all others.

    torch documents finfo(input.dtype).eps, but takes that of float32, in which it computes, for 16-bit inputs too.
    """
    stated = attributes.get("eps")
    if stated is not None:
        return float(stated)
    return 2.0**-52 if double else 2.0**-23


def add_rms_norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Of the sum as it is before it is rounded, and that sum."""
    first = np.asarray(inputs[0])
    total = widen(first) + widen(np.asarray(inputs[1]))
    return _rms_normalized(total, parameter(inputs, 2), attributes, double=is_double(first)), total


def normalize_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    (norm,) = norm_reference([array], _of_vectors(attributes))
    return (np.asarray(widen(array) / np.maximum(norm, attributes.get("eps", 1e-12))),)


def _of_vectors(attributes: Attributes) -> dict[str, Any]:
    return {"p": attributes.get("p", 2.0), "dim": (attributes.get("dim", 1),), "keepdim": True}


def trailing_dims(x: Array, attributes: Attributes) -> tuple[int, ...]:
    """The last dimensions, as many as ``normalized_shape`` has."""
    return tuple(range(x.ndim - len(attributes["normalized_shape"]), x.ndim))


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
    double = is_double(inputs[0])
    out = ErrorBudget(*normalized_budget(x, dims, eps, weight, bias, double=double))
    if not has_statistics:
        return (out,)
    own = ErrorBudget(*normalized_budget(x, dims, eps, None, None, double=double))
    return (out, own, deviation_budget(x, dims, eps, double=double))


def deviation_budget(x: Array, dims: tuple[int, ...], eps: float, *, double: bool) -> ErrorBudget:
    """Of √(variance + eps); the variance loses what it loses in :func:`normalized_budget`."""
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
    """Errors of the mean square, the square root and the products, all relative to the result y, first order.

    With q the mean of x², s = q/(q + eps) and n elements in a row, in units of u: the squares, their sum and the
    division are off by ``4√n + 4`` of q, of which the root takes ``s·(2√n + 2)``; the sum with eps, rsqrt (2 ulp) and
    two products add ``7``. What is common to a row counts with twice its deviation. Where a row repeats few values,
    n takes the place of 4√n. The first product may be rounded to a subnormal number, before it is multiplied again.
    """
    array = np.asarray(inputs[0])
    return (_rms_budget(as_float64(array), parameter(inputs, 1), attributes, double=is_double(array)),)


def _rms_budget(x: Array, weight: Array | None, attributes: Attributes, *, double: bool) -> ErrorBudget:
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
    spread = np.where(np.isinf(total), 1.0, fourth / (count * total * total))  # Σt²/2 beside s²/3
    shared = growth_variance * (s * s / 3.0 + spread / 2.0) / 4.0 + s * s + 2.0
    lost = half_subnormal(double=double) * (1.0 if weight is None else np.abs(weight) + 1.0 / np.sqrt(total))
    worst = y * (s * (growth / 2.0 + 2.0) + 7.0) + lost
    return ErrorBudget(np.asarray(worst), np.asarray(y * y * (4.0 * shared + 1.0) + lost * lost))


def add_rms_norm_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """As rms_norm of x = input + other, and 2·|y| for rounding x, in its own place and in the mean square.

    Where the dtype is narrower than the arithmetic, kernels differ in what they round to it: nothing, x where it is
    scaled, or x in the mean square, too. The larger of both differences is added as it is. The residual is one sum,
    which is rounded once.
    """
    first = np.asarray(inputs[0])
    total, weight = as_float64(first) + as_float64(inputs[1]), parameter(inputs, 2)
    double = is_double(first)
    own = _rms_budget(total, weight, attributes, double=double)
    stored = as_float64(round_to(total, dtype_of(first.dtype)))
    y = _rms_normalized(total, weight, attributes, double=double)
    changed = np.abs(_rms_normalized(stored, weight, attributes, double=double) - y)
    scaled_alone = np.where(total == 0.0, 0.0, np.abs(y * (stored - total) / total))
    u = unit_roundoff(first)
    more = 2.0 * np.abs(y) + np.nan_to_num(np.maximum(changed, scaled_alone)) / u
    nothing = np.zeros(total.shape)
    return ErrorBudget(own.worst + more, own.variance + more * more), ErrorBudget(nothing, nothing)


def normalize_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """What the norm loses of itself, the rounding of eps and the quotient (2.5 ulp), all of |y|.

    Squares that are subnormal are rounded, not lost: vectors that are so short have eps for a divisor, unless it is 0.
    """
    array = np.asarray(inputs[0])
    stated = _of_vectors(attributes)
    (norm,), (lost, variance, _) = norm_reference([array], stated), norm_budget([array], stated, 2.0**-150)
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
        double=is_double(inputs[0]),
        is_folded=True,
    )
    return (ErrorBudget(worst.reshape(x.shape), variance.reshape(x.shape)),)


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
