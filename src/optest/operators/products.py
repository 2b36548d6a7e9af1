"""Terms of sums of products, with what products lose below the normal range."""

from __future__ import annotations

import math

import numpy as np

from optest.operators.arrays import Array, is_double
from optest.operators.budgets import half_subnormal
from optest.spec import Terms

__all__ = ["terms_of_products"]


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
