"""What the reductions may lose."""

from __future__ import annotations

from math import inf

import numpy as np

from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    as_float64,
    is_double,
    magnitudes,
    quiet,
    sum_over,
)
from optest.operators.budgets import exponential_sum, growth_of_sum, half_subnormal, unit_roundoff
from optest.operators.reduction.references import Rows, as_asked, rows_of, scanned
from optest.operators.shapes import (
    normalize_dim,
    reduced_dims,
)
from optest.spec import ErrorBudget, Terms

__all__ = [
    "cumsum_terms",
    "dot_terms",
    "logsumexp_terms",
    "mean_terms",
    "norm_terms",
    "prod_terms",
    "sum_terms",
    "var_terms",
]


@quiet
def sum_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    values = magnitudes(as_asked(inputs[0], attributes))
    dims = tuple(sorted(reduced_dims(attributes.get("dim"), values.ndim)))
    absolute, squared = sum_over(values, dims), sum_over(values * values, dims)
    if attributes.get("keepdim") and values.ndim:
        absolute, squared = np.expand_dims(absolute, dims), np.expand_dims(squared, dims)
    count = int(np.prod([values.shape[i] for i in dims])) if values.ndim else 1
    return (Terms(absolute, squared, count),)


@quiet
def mean_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """The terms are the elements over n; dividing by n, or multiplying by 1/n, counts as two more."""
    rows = rows_of(magnitudes(inputs[0]), attributes)
    n = max(rows.length, 1)
    absolute = rows.values.sum(-1) / n
    squared = (rows.values * rows.values).sum(-1) / float(n * n)
    return (Terms(rows.placed(absolute), rows.placed(squared), rows.length + 2, divided=True),)


@quiet
def cumsum_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """Element k adds up k terms.

    Each error is in every later element as well, so that the elements of a row are one random walk and not k draws:
    errors may be twice as large as those of independent sums, which k·4 in place of k says. Where a row repeats few
    values, roundings repeat and k² takes its place.
    """
    x = magnitudes(inputs[0]) if np.iscomplexobj(inputs[0]) else as_float64(inputs[0])
    row = x.reshape(x.shape or (1,))
    dim = normalize_dim(attributes["dim"], x.ndim)
    k = scanned(np.ones_like(row), dim, attributes)
    repeats = growth_of_sum(row, float(row.shape[dim]), (dim,))[1] > row.shape[dim]
    count = np.where(repeats, np.maximum(k * k, 4.0 * k), 4.0 * k)
    absolute, squared = scanned(np.abs(row), dim, attributes), scanned(row * row, dim, attributes)
    return (Terms(absolute.reshape(x.shape), squared.reshape(x.shape), count.reshape(x.shape)),)


@quiet
def dot_terms(inputs: Inputs, _attributes: Attributes) -> tuple[Terms, ...]:
    products = as_float64(inputs[0]) * as_float64(inputs[1])
    return (Terms(np.abs(products).sum(), (products * products).sum(), products.size),)


@quiet
def prod_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """n − 1 multiplications in any order, each off by u of itself: ``(n − 1)·|y|``, which is certain, not likely.

    (1 + u)^(n−1) − 1 = (n − 1)·u·(1 + (n − 1)·u/2 + …). For the statistic the roundings are independent and even, u²/3
    each; where a row repeats few magnitudes, they may all have one sign, and n²/4 takes the place of n. Partial
    products below the smallest normal number of float32 lose up to half a subnormal each.
    """
    array = as_asked(inputs[0], attributes)
    rows = rows_of(as_float64(array), attributes)
    u, steps = unit_roundoff(array), max(rows.length - 1, 0)
    y = np.abs(rows.values.prod(-1))
    lost = steps * half_subnormal(double=is_double(array))
    worst = y * (np.expm1(min(steps * u, 600.0)) / u) + lost
    spread = growth_of_sum(np.abs(rows.values), float(steps), (rows.values.ndim - 1,))[1][..., 0]
    return (ErrorBudget(rows.placed(worst), rows.placed(y * y * (spread / 3.0) + lost * lost)),)


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
