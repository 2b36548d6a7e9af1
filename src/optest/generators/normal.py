"""Quantile table of the normal distribution, with the same bits on every machine.

It is computed by additions, multiplications, divisions and square roots, which IEEE 754 rounds correctly, without
``log``, whose last bit differs between mathematics libraries.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from optest.numerics import Array, round_to
from optest.spec import dtype

SIZE = 1 << 16

# Wichura, Algorithm AS 241 (PPND16), Applied Statistics 37 (1988) 477-484; highest power first.
_CENTRE = (
    (
        2.5090809287301226727e3,
        3.3430575583588128105e4,
        6.7265770927008700853e4,
        4.5921953931549871457e4,
        1.3731693765509461125e4,
        1.9715909503065514427e3,
        1.3314166789178437745e2,
        3.3871328727963666080e0,
    ),
    (
        5.2264952788528545610e3,
        2.8729085735721942674e4,
        3.9307895800092710610e4,
        2.1213794301586595867e4,
        5.3941960214247511077e3,
        6.8718700749205790830e2,
        4.2313330701600911252e1,
        1.0,
    ),
)
_TAIL = (
    (
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258e0,
        3.64784832476320460504e0,
        5.76949722146069140550e0,
        4.63033784615654529590e0,
        1.42343711074968357734e0,
    ),
    (
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940e0,
        2.05319162663775882187e0,
        1.0,
    ),
)
_LN2 = 0.6931471805599453


@cache
def normal_table(name: str) -> Array:
    """Return the quantiles at the middle of 65,536 equally likely cells, ascending, rounded to the dtype ``name``.

    The ends are ±4.33; the second half is exactly the negated first half in reverse order.
    """
    if name != "float64":
        return round_to(normal_table("float64"), dtype(name))
    probability = (np.arange(SIZE // 2) + 0.5) / SIZE
    below = probability - 0.5
    centre = below * _ratio(_CENTRE, 0.180625 - below * below)
    tail = -_ratio(_TAIL, np.sqrt(-_log(probability)) - 1.6)
    lower = np.where(np.abs(below) <= 0.425, centre, tail)
    return np.concatenate([lower, -lower[::-1]])


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], at: Array) -> Array:
    numerator, denominator = (_polynomial(powers, at) for powers in coefficients)
    return numerator / denominator


def _polynomial(coefficients: tuple[float, ...], at: Array) -> Array:
    """Evaluate a polynomial by Horner's rule; the coefficient of the highest power comes first."""
    value = np.full_like(at, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * at + coefficient
    return value


def _log(values: Array) -> Array:
    """Return the natural logarithm of numbers in (0, 1).

    For the significand m in [1/2, 1) it is 2 atanh((m-1)/(m+1)), by the series of atanh up to the 41st power.
    """
    significand, exponent = np.frexp(values)
    ratio = (significand - 1.0) / (significand + 1.0)
    square = ratio * ratio
    odd_reciprocals = tuple(1.0 / power for power in range(41, 0, -2))
    return 2.0 * ratio * _polynomial(odd_reciprocals, square) + exponent * _LN2
