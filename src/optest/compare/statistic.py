"""Statistics over a whole tensor: the limit of the statistic z of the class rules, and the sides of inexact results.

Elements that show no rounding do not count: true values that the output dtype holds, exact ties, NaN and infinity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from optest.compare.policy import Allowance, Method
from optest.numerics import Array, ulp
from optest.spec import DType, Rounding

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


_SHIFT = 1.5 * 2.0**52
_DOUBLE = 53

# Excess of one side, in standard deviations, from which distinct values are counted. Below, no bias is reported,
# whatever the number of draws.
_NOTABLE_EXCESS = 3.0


def shows_rounding(dtype: DType, reference: Array, allowance: Allowance) -> bool:
    """Return whether the reference has digits that the output dtype lacks, and the rule allows an error."""
    unrounded = reference.dtype == np.float64 and 0 < dtype.precision < _DOUBLE
    return unrounded and not dtype.is_complex and allowance.method in (Method.LAW, Method.TOLERANCE)


@dataclass(slots=True)
class Sides:
    """Counts of :class:`optest.spec.Rounding`, added up block by block."""

    inexact: int = 0
    above: int = 0
    away: int = 0
    nearest_above: int = 0
    nearest_away: int = 0
    astray: int = 0
    squared_ulp: float = 0.0

    def add(self, actual: Array, true: Array, dtype: DType, odd: Array | None, least: float = 0.0) -> None:
        """Add a block of float64 values without the elements that ``odd`` marks and those smaller than ``least``."""
        spacing = ulp(true, dtype)
        shift = spacing * _SHIFT
        nearest = true + shift  # adding and subtracting 1.5·2^52 ulp rounds to multiples of an ulp, ties to even
        nearest -= shift
        nearest -= true
        error = actual - true
        # A residue of 0 is a value that the dtype holds, one of half an ulp is a tie: neither has a nearer side.
        residue = np.abs(nearest)
        residue += residue
        counts = (residue != 0.0) & (residue != spacing)
        if odd is not None:
            counts &= ~odd
        if least:
            counts &= np.abs(true) >= least
        counted = int(np.count_nonzero(counts))
        if not counted:
            return
        if counted < counts.size:
            true, nearest, error, spacing = true[counts], nearest[counts], error[counts], spacing[counts]
        above, nearest_above, below_zero = error > 0.0, nearest > 0.0, true < 0.0
        error /= spacing
        self.inexact += counted
        self.above += int(np.count_nonzero(above))
        self.away += int(np.count_nonzero(above != below_zero))
        self.nearest_above += int(np.count_nonzero(nearest_above))
        self.nearest_away += int(np.count_nonzero(nearest_above != below_zero))
        self.astray += int(np.count_nonzero(above != nearest_above))
        self.squared_ulp += float(np.einsum("i,i->", error, error))

    def rounding(self, reference: Array) -> Rounding | None:
        """Return the counts as a ``Rounding``; None if no element was inexact or the errors have no finite sum."""
        if not self.inexact or not math.isfinite(self.squared_ulp):
            return None
        excess = max(abs(self.above - self.nearest_above), abs(self.away - self.nearest_away))
        draws = self.inexact
        if excess * excess >= _NOTABLE_EXCESS**2 * max(1, self.astray):
            draws = min(draws, distinct_values(reference))
        return Rounding(
            inexact=self.inexact,
            above=self.above,
            away=self.away,
            nearest_above=self.nearest_above,
            nearest_away=self.nearest_away,
            astray=self.astray,
            draws=draws,
            rms_ulp=math.sqrt(self.squared_ulp / self.inexact),
        )
