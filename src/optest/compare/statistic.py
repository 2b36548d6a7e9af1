"""Limit of the statistic z of the class rules, which compares the errors of a whole tensor with their variance."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from optest.numerics import Array

# Largest z of a correct implementation on a thousand distinct reference values; measured ones reach 0.8.
LIMIT = 1.25

ENOUGH_VALUES = 1000

# Quantile of the normal distribution at 1 - 1e-9: one false alarm in a thousand million tensors.
_TAIL = 5.997807015007687

_SAMPLE = 8192
# A prime: its multiples, modulo the size, meet every row and column of a tensor of any shape.
_STEP = 7_368_787


@lru_cache(maxsize=2048)
def limit(distinct: int) -> float:
    """Return the largest allowed z for a tensor with this number of distinct reference values.

    It is 1.25 for a thousand and more; fewer are allowed more, by the ratio of the 1 - 1e-9 quantiles of sqrt(chi²/n).
    """
    # Equal reference values have equal errors in most implementations, so only distinct ones count as draws.
    values = max(1, min(distinct, ENOUGH_VALUES))
    return LIMIT * _chi_quantile_root(values) / _chi_quantile_root(ENOUGH_VALUES)


def stricter_statistic(
    by_sum: float | None, allowed: float, by_rounding: float | None
) -> tuple[float | None, float | None]:
    """Return the statistic that uses most of its limit, and that limit; a statistic that is NaN uses all of it."""
    if by_rounding is None:
        return (None, None) if by_sum is None else (by_sum, allowed)
    if by_sum is None or not by_sum / allowed >= by_rounding / LIMIT:
        return (by_sum, allowed) if by_sum is not None and math.isnan(by_sum) else (by_rounding, LIMIT)
    return by_sum, allowed


def _chi_quantile_root(values: int) -> float:
    """Return the quantile of sqrt(chi²/n) for n = ``values``."""
    return math.sqrt(chi_square_quantile(values) / values)


def chi_square_quantile(freedom: int) -> float:
    """Return the 1 - 1e-9 quantile of chi² by Wilson and Hilferty (1931): n·(1 - 2/9n + q·sqrt(2/9n))³.

    At this tail the approximation is 26 % above the exact quantile for n = 1, 4 % for n = 4, below 0.6 % from n = 16
    on, and never below it, so its error only allows more.
    """
    part = 2.0 / (9.0 * freedom)
    return freedom * float(1.0 - part + _TAIL * math.sqrt(part)) ** 3


def distinct_values(reference: Array) -> int:
    """Return a lower bound of the number of distinct values: exact up to 8192 elements, from a sample beyond."""
    size = reference.size
    if size == 1:
        return 1
    if size <= _SAMPLE:
        return int(_unique(reference.reshape(-1)))
    flat: Any = reference.reshape(-1) if reference.flags.c_contiguous else reference.flat
    return int(_unique(flat[np.arange(_SAMPLE, dtype=np.int64) * _STEP % size]))


def _unique(values: Array) -> int:
    """Return the number of distinct values; NaN is left out, and one value is the least."""
    ordered = np.sort(values[values == values])
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))
