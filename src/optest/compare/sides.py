"""On which side of the true values inexact results lie, and how far; no opinion on what that means.

Left out is what shows no rounding: a true value that the output dtype holds, an exact tie, NaN and infinity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from optest.compare.policy import Allowance, Method
from optest.compare.statistic import distinct_values
from optest.numerics import Array, ulp
from optest.spec import DType, Rounding

__all__ = ["Sides", "shows_rounding"]

_SHIFT = 1.5 * 2.0**52
_DOUBLE = 53
_LOOKED_INTO = 3.0
"""z from which distinct values are counted: below, nothing is said of a case, whatever the number of draws."""


def shows_rounding(dtype: DType, reference: Array, allowance: Allowance) -> bool:
    """Whether the reference has digits that the output has not, and more than one answer is right."""
    unrounded = reference.dtype == np.float64 and 0 < dtype.precision < _DOUBLE
    return unrounded and not dtype.is_complex and allowance.method in (Method.LAW, Method.TOLERANCE)


@dataclass(slots=True)
class Sides:
    """What :class:`optest.spec.Rounding` says, added up block by block."""

    inexact: int = 0
    above: int = 0
    away: int = 0
    nearest_above: int = 0
    nearest_away: int = 0
    astray: int = 0
    squared_ulp: float = 0.0

    def see(self, actual: Array, true: Array, dtype: DType, odd: Array | None, least: float = 0.0) -> None:
        """Add a block of float64 values; ``odd`` marks what is left out, ``least`` the magnitude below which all is."""
        spacing = ulp(true, dtype)
        shift = spacing * _SHIFT
        nearest = true + shift  # adding and subtracting 1.5·2^52 ulp rounds to multiples of an ulp, ties to even
        nearest -= shift
        nearest -= true
        error = actual - true
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
        """The noun; None where nothing was inexact, or an error was beyond counting."""
        if not self.inexact or not math.isfinite(self.squared_ulp):
            return None
        excess = max(abs(self.above - self.nearest_above), abs(self.away - self.nearest_away))
        draws = self.inexact
        if excess * excess >= _LOOKED_INTO**2 * max(1, self.astray):
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
