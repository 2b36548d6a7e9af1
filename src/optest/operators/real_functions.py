"""Functions of real numbers with bits to spare: float64 for narrower operands, long double for float64 ones.

Where the platform has no longer double, a float64 result may be off by one unit, which the rules allow a float64
reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from optest.operators.arrays import Array, is_double

__all__ = ["erf", "evaluated", "spacious", "spared"]


def spacious(values: Array, *stored: Array) -> Array:
    """Widened operands as long double where one of the ``stored`` ones is a float64."""
    return values.astype(np.longdouble) if any(map(is_double, stored)) else values


def spared(values: Array) -> Array:
    """The result of such arithmetic as float64."""
    return np.asarray(values).astype(np.float64, copy=False)


def evaluated(function: Callable[[Array], Array], values: Array, stored: Array) -> Array:
    """``function`` of widened operands, as float64."""
    return spared(function(spacious(values, stored)))


_ERF = np.frompyfunc(math.erf, 1, 1)


def erf(values: Array) -> Array:
    """The error function of the C library, below 1 ulp of float64 there."""
    return np.asarray(_ERF(values.astype(np.float64, copy=False)), dtype=np.float64)
