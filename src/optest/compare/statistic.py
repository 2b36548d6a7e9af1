"""How large the tensor-wide statistic z of the class rules may become, and on how many values it stands."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from optest.numerics import Array

__all__ = ["ENOUGH_VALUES", "LIMIT", "chi_square_quantile", "distinct_values", "limit", "sharper"]

LIMIT = 1.25
"""Largest z of a correct implementation on a thousand distinct reference values; measured ones reach 0.8."""

ENOUGH_VALUES = 1000
_TAIL = 5.997807015007687
"""Quantile of the normal distribution at 1 - 1e-9: one false alarm in a thousand million tensors."""

_SAMPLE = 8192
_STEP = 7_368_787
"""A prime: steps of it, modulo the size, meet every row and column of a tensor of any shape."""


@lru_cache(maxsize=2048)
def limit(distinct: int) -> float:
    """The largest allowed z for a tensor with so many distinct reference values.

    Equal reference values have equal errors in most implementations, so only distinct ones count as draws. A
    thousand are allowed 1.25; fewer are allowed more, by the ratio of the 1 - 1e-9 quantiles of sqrt(chi²/n).
    """
    values = max(1, min(distinct, ENOUGH_VALUES))
    return LIMIT * _spread(values) / _spread(ENOUGH_VALUES)


def sharper(by_sum: float | None, allowed: float, by_rounding: float | None) -> tuple[float | None, float | None]:
    """The statistic that uses most of its limit, with that limit; one that is no number uses all of it."""
    if by_rounding is None:
        return (None, None) if by_sum is None else (by_sum, allowed)
    if by_sum is None or not by_sum / allowed >= by_rounding / LIMIT:
        return (by_sum, allowed) if by_sum is not None and math.isnan(by_sum) else (by_rounding, LIMIT)
    return by_sum, allowed


def _spread(values: int) -> float:
    return math.sqrt(chi_square_quantile(values) / values)


def chi_square_quantile(freedom: int) -> float:
    """The 1 - 1e-9 quantile of chi² by Wilson and Hilferty (1931): n·(1 - 2/9n + q·sqrt(2/9n))³.

    At this tail the approximation is 26 % above the exact quantile for n = 1, 4 % for n = 4 and below 0.6 % from
    n = 16 on, and never below it: where it is off, it allows more.
    """
    part = 2.0 / (9.0 * freedom)
    return freedom * float(1.0 - part + _TAIL * math.sqrt(part)) ** 3


def distinct_values(reference: Array) -> int:
    """How many different values a tensor holds at least: all are counted up to 8192 elements, then a sample."""
    size = reference.size
    if size == 1:
        return 1
    if size <= _SAMPLE:
        return int(_unique(reference.reshape(-1)))
    flat: Any = reference.reshape(-1) if reference.flags.c_contiguous else reference.flat
    return int(_unique(flat[np.arange(_SAMPLE, dtype=np.int64) * _STEP % size]))


def _unique(values: Array) -> int:
    ordered = np.sort(values[values == values])
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))
