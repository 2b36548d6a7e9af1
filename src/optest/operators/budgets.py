"""What error budgets of several families are made of: growth of sums, products, sums of exponentials.

All numbers are in units of the unit roundoff of the arithmetic, variances in units of its square.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from optest.operators.arrays import Array, is_double
from optest.spec import Terms

_FLOAT32_U = 2.0**-24
_FLOAT64_U = 2.0**-53
_VANISHING = 0.5 * _FLOAT32_U


def unit_roundoff(array: Array) -> float:
    """u of the arithmetic that the input is computed in, for terms of second order: float64's or float32's."""
    return _FLOAT64_U if is_double(array) else _FLOAT32_U


SUBNORMAL = 4.0 * 2.0**-125
"""Four times the smallest subnormal of float32, 2⁻¹⁴⁹, in units of its u."""


def half_subnormal(*, double: bool) -> float:
    """What one rounding to a subnormal number loses at most: 2⁻¹⁵⁰ in float32, 2⁻¹⁰⁷⁵ in float64, in units of u."""
    return 2.0**-1022 if double else 2.0**-126


def growth_of_sum(x: Array, count: float, dims: tuple[int, ...]) -> tuple[Array, Array]:
    """How errors of a sum of ``count`` values grow, at worst and in variance: 4√n and n.

    Where a row repeats few values, roundings repeat and add up: n and n²/4.
    """
    if not x.size:
        shape = tuple(1 if i in dims else size for i, size in enumerate(x.shape))
        return np.full(shape, 4.0 * np.sqrt(count)), np.full(shape, count)
    repeats = x.max(dims, keepdims=True) == x.min(dims, keepdims=True)
    if count > 16 and np.unique(x.reshape(-1)[:: max(1, x.size // 4096)]).size < 16:  # of 4,096, evenly spread
        repeats = np.ones_like(repeats)
    worst = np.where(repeats, np.maximum(count, 4.0 * np.sqrt(count)), 4.0 * np.sqrt(count))
    return worst, np.where(repeats, np.maximum(count * count / 4.0, count), count)


def repeats_of(sums: Array, terms: Array, shape: tuple[int, ...]) -> Array:
    """Return :attr:`Terms.repeats` for sums of this shape; ``sums`` has the flat index of that which each term is in.

    Sums of fewer than 16 terms are left at 1, as in :func:`growth_of_sum`.
    """
    sums, terms, count = sums.reshape(-1), terms.reshape(-1), math.prod(shape)
    lengths = np.bincount(sums, minlength=count)
    if lengths.max(initial=0) < 16:
        return np.ones(shape)
    order = np.lexsort((terms, sums))
    sums, terms = sums[order], terms[order]
    begins = np.flatnonzero(np.append(True, (sums[1:] != sums[:-1]) | (terms[1:] != terms[:-1])))
    times = np.diff(np.append(begins, len(sums))).astype(np.float64)
    squares = np.bincount(sums[begins], times * times, minlength=count)
    return np.asarray(squares / lengths.clip(1)).clip(1.0).reshape(shape)


class ExponentialSum(NamedTuple):
    """The sum of exp(x − max) over a dimension, which is kept with size 1, and what it loses of itself."""

    shifted: Array
    """x − max, shaped like x."""
    shares: Array
    """exp(x − max) / Σ, shaped like x."""
    total: Array
    """Σ exp(x − max), 1 and more."""
    largest: Array
    """The maximum."""
    weighted: Array
    """share · (2|x − max| + 6): what rounding the shift and exp lose of each share, shaped like x."""
    worst: Array
    """Largest relative error of the sum."""
    variance: Array
    """Expected squared relative error of the sum."""


def exponential_sum(row: Array, dim: int, *, double: bool) -> ExponentialSum:
    """Errors of the shift, of exp (3 ulp) and of the sum, first order.

    With d = x − max, exp(d) is off by ``2|d| + 6`` of itself: d is rounded once, and once more on the way to base 2.
    The sum is off by ``Σ share·(2|d| + 6) + 4√n + v`` of itself; v is what vanishes when terms are added one by one,
    which are below u/2 of the sum.
    """
    count = float(row.shape[dim])
    largest = row.max(dim, keepdims=True)
    d = row - largest
    e = np.exp(d)
    total = e.sum(dim, keepdims=True)
    y = e / total
    weighted = y * (2.0 * np.minimum(-d, 1000.0) + 6.0)  # beyond, exp(d) is 0 without any error

    growth, growth_variance = growth_of_sum(row, count, (dim,))
    squares = (y * y).sum(dim, keepdims=True)
    lost = 0.0 if double else np.where(y < _VANISHING, y, 0.0).sum(dim, keepdims=True) / _FLOAT32_U
    worst = weighted.sum(dim, keepdims=True) + growth + lost
    own_variance = (weighted * weighted / 3.0).sum(dim, keepdims=True)
    variance = growth_variance * (1.0 / 3.0 + squares / 2.0) + own_variance + lost * lost
    return ExponentialSum(d, y, total, largest, weighted, worst, variance)


def terms_of_products(absolute: Array, squared: Array, count: int, first: Array, *, factor: float = 1.0) -> Terms:
    """Σ|t|, Σt² and k of products that are rounded one by one, each times ``factor`` afterwards.

    A product below the normal range is off by half a subnormal, h, whatever its size. k of them add k·h to the bound
    4·√k·u·Σ|t|, which is √k·h/4u more of Σ|t|; and k·h²/3 to the variance k·u²·Σt²/2, which is 2h²/3u² more of Σt².
    Sums of nothing but zeros lose nothing. ``first`` is an operand, for the arithmetic.
    """
    half = max(1.0, abs(factor)) * half_subnormal(double=is_double(first))
    counts = absolute > 0.0
    absolute = np.where(counts, absolute + math.sqrt(count) * half / 4.0, absolute)
    return Terms(absolute, np.where(counts, squared + half * half * 2.0 / 3.0, squared), count)
