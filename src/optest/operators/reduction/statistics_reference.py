"""What var, norm and logsumexp compute, and what they may lose."""

from __future__ import annotations

from math import inf

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, is_double, quiet
from optest.operators.budgets import exponential_sum, growth_of_sum, half_subnormal, unit_roundoff
from optest.operators.reduction.sums_reference import Rows, float64, rows_of, wide
from optest.spec import ErrorBudget


@quiet
def var_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Σ(x − mean)² / max(0, n − correction), by two passes; NaN where nothing is divided by nothing."""
    array = np.asarray(inputs[0])
    rows = rows_of(wide(array), attributes)
    freedom = max(0.0, rows.length - attributes.get("correction", 1.0))
    mean = rows.values.sum(-1, keepdims=True) / max(rows.length, 1)
    centred = rows.values - mean
    centred = centred - centred.sum(-1, keepdims=True) / max(rows.length, 1)  # what rounding the mean left over
    return (rows.placed(float64((centred * centred).sum(-1) / np.float64(freedom))),)


@quiet
def norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """(Σ|x|^p)^(1/p); the largest and the least magnitude for p = ±inf, the number of elements not 0 for p = 0."""
    rows = rows_of(np.abs(wide(np.asarray(inputs[0]))), attributes)
    sizes, p = rows.values, attributes.get("p", 2.0)
    if p == 0:
        found = np.count_nonzero(sizes, axis=-1).astype(np.float64)
    elif p in (inf, -inf):
        found = sizes.max(-1) if p > 0 else sizes.min(-1)
    elif p == 1:
        found = sizes.sum(-1)
    elif p == 2:
        found = np.sqrt((sizes * sizes).sum(-1))
    else:
        found = (sizes**p).sum(-1) ** (1.0 / p)
    return (rows.placed(float64(found)),)


@quiet
def logsumexp_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """-inf of nothing and of nothing but -inf; infinity as soon as one element is it."""
    rows = rows_of(wide(np.asarray(inputs[0])), attributes)
    largest = rows.values.max(-1, keepdims=True, initial=-inf)
    largest = np.where(np.isinf(largest), 0.0, largest)
    total = np.exp(rows.values - largest).sum(-1)
    return (rows.placed(float64(np.log(total) + largest[..., 0])),)


@quiet
def var_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Errors of the mean, the differences, their squares, the sum and the division.

    With κ = √(1 + mean²/var), a = mean|x|, n elements in a row and d = n − correction, in units of u:

    - what rounding x − mean (u) and squaring (2u with it) lose, the sum of the squares, and the division (2.5 ulp):
      ``y·(4√n + 8)``;
    - updating formulas (Welford), whose running mean is rounded n times: ``4κ·y`` (Chan, Golub, LeVeque 1983: errors
      of E[x²] − E[x]² grow with κ²·u and are outside, those of updating and of two passes with κ·u);
    - a mean that is off by δ = 4√n·a + |mean| adds δ² to each square, of second order: ``u·δ²·n/d``;
    - each square, and the quotient, may be rounded to a subnormal number: ``n/d + 1`` halves of the smallest.

    Where a row repeats few values, n takes the place of 4√n.
    """
    array = np.asarray(inputs[0])
    rows = rows_of(as_float64(array), attributes)
    x, n, u = rows.values, float(max(rows.length, 1)), unit_roundoff(array)
    freedom = np.float64(max(0.0, rows.length - attributes.get("correction", 1.0)))
    mean = x.sum(-1, keepdims=True) / n
    terms = (x - mean) ** 2 / freedom
    y, squares = terms.sum(-1, keepdims=True), (terms * terms).sum(-1, keepdims=True)
    conditioned = np.sqrt(y * (y + mean * mean))  # κ·y, finite where the variance is 0
    size = np.abs(x).mean(-1, keepdims=True) if rows.length else mean
    square = (x * x).mean(-1, keepdims=True) if rows.length else mean
    growth, growth_variance = growth_of_sum(x, n, (x.ndim - 1,))

    shift = growth * size + np.abs(mean)
    lost = half_subnormal(double=is_double(array)) * (n / freedom + 1.0)
    worst = y * (growth + 8.0) + 4.0 * conditioned + u * shift * shift * n / freedom + lost

    shift_variance = growth_variance * (mean * mean / 3.0 + square / (2.0 * n)) + mean * mean / 3.0
    expected = growth_variance * (y * y / 3.0 + squares / 2.0) + 2.0 * squares + 2.0 * y * y
    expected = expected + 4.0 * conditioned * conditioned + 3.0 * (u * shift_variance * n / freedom) ** 2 + lost * lost
    return (ErrorBudget(rows.placed(worst[..., 0]), rows.placed(expected[..., 0])),)


@quiet
def norm_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Errors of the powers, the sum and the root, relative to the result y, first order, in units of u.

    - p = 1: the sum, ``4√n``;
    - p = 2: squares and their sum over 2, √ (3 ulp), and a scale divided out before and multiplied in after:
      ``2√n + 10``;
    - p = ±inf, 0: nothing;
    - any other p: ``(4√n + 33)/|p| + |ln y| + 33``: both powers are pow (16 ulp), 1/p is rounded.

    Squares and powers below the smallest normal number of float32 may vanish, e = n·2⁻¹²⁶ in all, which takes
    ``min(e/(p·y^(p−1)), e^(1/p))`` from y. Where a row repeats few values, n takes the place of 4√n.
    """
    array = np.asarray(inputs[0])
    rows = rows_of(np.abs(as_float64(array)), attributes)
    p = attributes.get("p", 2.0)
    if p in (0.0, inf, -inf) or not rows.length:
        nothing = rows.placed(np.zeros(rows.values.shape[:-1]))
        return (ErrorBudget(nothing, nothing),)
    powers = rows.values**p
    total = powers.sum(-1)
    y = total ** (1.0 / p)
    growth, spread = _relative_growth(rows, powers, total)
    own = 0.0 if p == 1 else 10.0 if p == 2 else 33.0 / abs(p) + 33.0 + np.abs(np.log(y))
    vanished = 0.0 if p <= 1 or is_double(array) else _vanished(y, p, rows.length)
    worst = y * (growth / abs(p) + own) + vanished
    variance = y * y * (spread / (p * p) + own * own / 3.0) + vanished * vanished
    certain = (total == 0.0) | np.isinf(total)  # of zeros: 0, for negative p by way of infinity
    worst, variance = np.where(certain, vanished, worst), np.where(certain, vanished * vanished, variance)
    return (ErrorBudget(rows.placed(worst), rows.placed(variance)),)


def _relative_growth(rows: Rows, powers: Array, total: Array) -> tuple[Array, Array]:
    """How much of itself a sum of terms of one sign loses, at worst and in variance."""
    worst, variance = growth_of_sum(powers, float(rows.length), (powers.ndim - 1,))
    squares = (powers * powers).sum(-1) / (total * total)
    return worst[..., 0], variance[..., 0] * (1.0 / 3.0 + squares / 2.0)


def _vanished(y: Array, p: float, count: int) -> Array:
    lost = count * 2.0**-126
    return np.asarray(np.fmin(lost / p / y ** (p - 1.0), lost ** (1.0 / p)) / 2.0**-24)


@quiet
def logsumexp_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Errors of the sum of exp(x − max), its logarithm (3 ulp) and the sum with the maximum, first order.

    With d = x − max, share = exp(d)/Σ and n elements in a row, in units of u: the sum is off by
    ``Σ share·(2|d| + 6) + 4√n + v`` of itself (see softmax), which is the absolute error of its logarithm L; log adds
    ``6·L``, the last sum ``|y|``. Where a row repeats few values, n takes the place of 4√n.
    """
    array = np.asarray(inputs[0])
    rows = rows_of(as_float64(array), attributes)
    if not rows.values.size:
        nothing = rows.placed(np.zeros(rows.values.shape[:-1]))
        return (ErrorBudget(nothing, nothing),)
    found = exponential_sum(rows.values, rows.values.ndim - 1, double=is_double(array))
    logarithm = np.log(found.total)
    y = np.abs(found.largest + logarithm)
    worst = found.worst + 6.0 * logarithm + y
    variance = found.variance + 12.0 * logarithm * logarithm + y * y / 3.0
    return (ErrorBudget(rows.placed(worst[..., 0]), rows.placed(variance[..., 0])),)
