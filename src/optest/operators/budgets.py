"""Building blocks of error budgets: growth of errors in sums, products and sums of exponentials.

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
# A term below u/2 of the sum can vanish when terms are added one by one.
_VANISHING = 0.5 * _FLOAT32_U
# Four times the smallest subnormal of float32, 2⁻¹⁴⁹, in units of its u.
SUBNORMAL = 4.0 * 2.0**-125


def unit_roundoff(array: Array) -> float:
    """Return the unit roundoff of the arithmetic for this input: of float64 if it is that wide, else of float32."""
    return _FLOAT64_U if is_double(array) else _FLOAT32_U


def half_subnormal(*, double: bool) -> float:
    """Return the largest error of one rounding to a subnormal number, in units of u."""
    # 2⁻¹⁰⁷⁵ / 2⁻⁵³ and 2⁻¹⁵⁰ / 2⁻²⁴
    return 2.0**-1022 if double else 2.0**-126


def growth_of_sum(x: Array, count: float, dims: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the factors by which errors of a sum of ``count`` values grow: of the bound and of the variance.

    They are 4√n and n; n and n²/4 for a row that repeats few values. ``dims`` are kept with size 1.
    """
    if not x.size:
        shape = tuple(1 if i in dims else size for i, size in enumerate(x.shape))
        return np.full(shape, 4.0 * np.sqrt(count)), np.full(shape, count)
    # Equal terms make equal roundings, which add up instead of cancelling.
    repeats = x.max(dims, keepdims=True) == x.min(dims, keepdims=True)
    # Counting the distinct values of all elements costs a sort; 4,096 of them, evenly spread, are enough.
    if count > 16 and np.unique(x.reshape(-1)[:: max(1, x.size // 4096)]).size < 16:
        repeats = np.ones_like(repeats)
    worst = np.where(repeats, np.maximum(count, 4.0 * np.sqrt(count)), 4.0 * np.sqrt(count))
    return worst, np.where(repeats, np.maximum(count * count / 4.0, count), count)


def repeats_of(sums: Array, terms: Array, shape: tuple[int, ...]) -> Array:
    """Return :attr:`Terms.repeats` for sums of this shape: Σ (times that a value occurs)² / number of terms.

    ``sums`` is the flat index of the sum to which each of ``terms`` belongs. If no sum has 16 terms, all are 1.
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
    """Sum of exp(x − max) over a dimension, which is kept with size 1, and its relative error in units of u.

    Attributes:
        shifted: x − max, shaped like x.
        shares: exp(x − max) / Σ, shaped like x.
        total: Σ exp(x − max), at least 1.
        largest: the maximum.
        weighted: share · (2|x − max| + 6), the error of each share by rounding the shift and exp, shaped like x.
        worst: largest relative error of the sum.
        variance: expected squared relative error of the sum.
    """

    shifted: Array
    shares: Array
    total: Array
    largest: Array
    weighted: Array
    worst: Array
    variance: Array


def exponential_sum(row: Array, dim: int, *, double: bool) -> ExponentialSum:
    """Return Σ exp(x − max) along ``dim`` with its first-order errors: of the shift, of exp (3 ulp) and of the sum.

    With d = x − max, the relative error of exp(d) is ``2|d| + 6``, that of the sum ``Σ share·(2|d| + 6) + 4√n + v``. v
    is the sum of the shares below u/2, which can vanish when terms are added one by one; 0 in float64.
    """
    count = float(row.shape[dim])
    largest = row.max(dim, keepdims=True)
    d = row - largest
    e = np.exp(d)
    total = e.sum(dim, keepdims=True)
    y = e / total
    # d is rounded once, and once more when exp converts it to base 2. Below −1000, exp(d) is 0 without any error.
    weighted = y * (2.0 * np.minimum(-d, 1000.0) + 6.0)

    growth, growth_variance = growth_of_sum(row, count, (dim,))
    squares = (y * y).sum(dim, keepdims=True)
    lost = 0.0 if double else np.where(y < _VANISHING, y, 0.0).sum(dim, keepdims=True) / _FLOAT32_U
    worst = weighted.sum(dim, keepdims=True) + growth + lost
    variance_of_terms = (weighted * weighted / 3.0).sum(dim, keepdims=True)
    variance = growth_variance * (1.0 / 3.0 + squares / 2.0) + variance_of_terms + lost * lost
    return ExponentialSum(d, y, total, largest, weighted, worst, variance)


def terms_of_products(absolute: Array, squared: Array, count: int, first: Array, *, factor: float = 1.0) -> Terms:
    """Return the terms Σ|t|, Σt² and k of a sum of rounded products, enlarged for products below the normal range.

    Args:
        absolute: Σ|t| of each sum.
        squared: Σt² of each sum.
        count: number of products, k.
        first: an operand, whose dtype selects the arithmetic.
        factor: number that the sum is multiplied by afterwards.
    """
    # A product below the normal range is off by half a subnormal, h, whatever its size. k of them add k·h to the bound
    # 4·√k·u·Σ|t|, which is √k·h/4u more of Σ|t|; and k·h²/3 to the variance k·u²·Σt²/2, which is 2h²/3u² more of Σt².
    half = max(1.0, abs(factor)) * half_subnormal(double=is_double(first))
    is_rounded = absolute > 0.0  # a sum of zeros is exact
    absolute = np.where(is_rounded, absolute + math.sqrt(count) * half / 4.0, absolute)
    return Terms(absolute, np.where(is_rounded, squared + half * half * 2.0 / 3.0, squared), count)
