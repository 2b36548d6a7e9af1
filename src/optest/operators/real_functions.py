"""Real functions in more precision than the operands have: erf, its inverse, the normal distribution's tail, digamma.

Operands narrower than float64 are computed in float64, float64 operands in long double. If the platform's long double
is a float64, a float64 result may be off by one unit, which the rules allow a float64 reference.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from optest.operators.arrays import Array, is_double

PI = np.longdouble("3.14159265358979323846264338327950288")


def with_spare_precision(values: Array, *stored: Array) -> Array:
    """Convert widened operands to long double if one of the ``stored`` operands is a float64."""
    return values.astype(np.longdouble) if any(map(is_double, stored)) else values


def to_float64(values: Array) -> Array:
    """Return a result of :func:`spacious` arithmetic as float64."""
    return np.asarray(values).astype(np.float64, copy=False)


def evaluate_in_spare_precision(function: Callable[[Array], Array], values: Array, stored: Array) -> Array:
    """Apply ``function`` to widened operands, in long double for a float64 in ``stored``; return float64."""
    return to_float64(function(with_spare_precision(values, stored)))


_ERF = np.frompyfunc(math.erf, 1, 1)


def erf(values: Array) -> Array:
    """Return the C library's error function, which is below 1 ulp of float64 off."""
    return np.asarray(_ERF(values.astype(np.float64, copy=False)), dtype=np.float64)


# Chebyshev coefficients in t = (x − 5) / (x + 5) of (1 + x) · Q(x) · exp(x²/2) for x from 0 to infinity, where
# Q(x) = erfc(x/√2) / 2. Computed with 60 digits at 64 Chebyshev nodes; the first one left out is below 2e-18.
_COEFFICIENTS = (
    0.46197421207218568091,
    -0.065165202394912630592,
    -0.0054587815011365672231,
    0.012296199045563439595,
    -0.006470872915703687992,
    0.0022407355224168305404,
    -0.00056386237746519737237,
    0.000099840310829258115665,
    -9.8495148431684933698e-6,
    -4.0324942330452171263e-7,
    2.990239620130340157e-7,
    -3.0320707484428138666e-8,
    -4.6176657139290272614e-9,
    1.3298288008382692107e-9,
    3.0072427190190448448e-11,
    -4.4299537255328156613e-11,
    1.3999857147018150738e-12,
    1.4718957028912570386e-12,
    -9.3259531191653719508e-14,
    -5.2946811690676951868e-14,
    3.9581884144145170827e-15,
    2.1048214642963193767e-15,
    -1.3456712861361439243e-16,
    -9.0976149144958324287e-17,
    2.9906032105666555087e-18,
    4.1202925786078329616e-18,
)
_CENTRE = 5.0
# Beyond it, Q is below the smallest subnormal.
_NO_TAIL = 40.0
# Elements at a time, so that intermediate results stay in the cache.
_BLOCK = 1 << 14


def normal_tail(x: Array) -> Array:
    """Return Q(x) = P(X > x) for a standard normal X and x ≥ 0, with a relative error below 1e-15; NaN for NaN."""
    flat = x.reshape(-1)
    result = np.empty(flat.size)
    for start in range(0, flat.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        values = np.minimum(flat[block], _NO_TAIL)
        t = (values - _CENTRE) / (values + _CENTRE)
        after, current = np.zeros_like(t), np.zeros_like(t)
        for coefficient in reversed(_COEFFICIENTS[1:]):  # Clenshaw's recurrence
            after, current = current, 2.0 * t * current - after + coefficient
        # x² has twice the bits of x: exp(−x²/2) is split into that of a short head, whose square is exact, and the rest
        head = np.rint(values * 64.0) / 64.0
        gaussian = np.exp(-0.5 * head * head) * np.exp(-0.5 * (values - head) * (values + head))
        result[block] = (t * current - after + _COEFFICIENTS[0]) / (1.0 + values) * gaussian
    return np.asarray(result.reshape(x.shape))


_ERFC = np.frompyfunc(math.erfc, 1, 1)
# Beyond it, erf is nearly flat, and erfc(y) = 1 − x is solved instead.
_NEAR_1 = 0.9


def erfinv(x: Array) -> Array:
    """Return y with erf(y) = x: ±∞ for ±1, NaN beyond. In float64 it is below 2 ulp off, in long double below 1.

    It takes three steps of Halley's method, each of which cubes the error, from an initial error of 0.3 %.
    """
    size = np.where(np.abs(x) < 1.0, np.abs(x), 0.0).reshape(-1)
    root = np.sqrt(PI.astype(x.dtype))
    # Winitzki, "A handy approximation for the error function and its inverse", 2008. It cancels near 0, where erf is
    # linear.
    logarithm = np.log1p(-size * size)
    half, rest = 2.0 / (np.pi * 0.147) + logarithm / 2.0, logarithm / -0.147
    y = np.where(size < 1e-4, size * root / 2.0, np.sqrt(rest / (np.sqrt(half * half + rest) + half)))
    for _ in range(3):
        step = _erf_residual(y, size) * np.exp(y * y) * root / 2.0
        y = y - step / (1.0 + y * step)
    limits = np.where(np.abs(x) == 1.0, np.inf, np.nan)
    return np.asarray(np.copysign(np.where(np.abs(x) < 1.0, y.reshape(x.shape), limits), x))


def _erf_residual(y: Array, x: Array) -> Array:
    """Return erf(y) − x. Round ``y`` in place to float64 if x is above 0.9, for the C library's erfc."""
    result, central = np.empty_like(x), x < _NEAR_1
    result[central] = (erf(y[central]) if x.dtype == np.float64 else _series_of_erf(y[central])) - x[central]
    tail = ~central
    nearest = y[tail].astype(np.float64)
    y[tail] = nearest
    result[tail] = (1.0 - x[tail]) - np.asarray(_ERFC(nearest), dtype=np.float64)
    return result


def _series_of_erf(y: Array) -> Array:
    """Return erf(y) for y ≥ 0 as 2y/√π · e^(−y²) · Σ (2y²)ⁿ/(1·3·5…(2n + 1)), in the dtype of ``y``.

    Not for large y: the result is 0 once e^(−y²) underflows, above 27 in float64.
    """
    # Its terms are all positive: unlike those of Taylor's series, they do not cancel.
    term = 2.0 * y * np.exp(-y * y) / np.sqrt(PI)
    total, n = term, 1
    while term.size and (term > total * np.finfo(y.dtype).eps / 8.0).any():
        term = term * (2.0 * y * y / (2 * n + 1))
        total, n = total + term, n + 1
    return np.asarray(total)


# B₂ₖ / 2k of the asymptotic series ln z − 1/2z − Σ B₂ₖ / (2k·z²ᵏ); the first one left out is below 3e-21 from z = 16.
_STIRLING = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)
_ASYMPTOTIC = 16


def digamma(x: Array) -> Array:
    """Return ψ(x): −∞ for 0, +∞ for −0 (the limit from that side), NaN for −1, −2 … and −∞.

    It uses the recurrence up to 16, Stirling's series beyond, and the reflection ψ(1 − x) − π/tan(πx) below 0. The
    absolute error is a few roundings of ln 16 and the quotients; near the zeros there is no relative precision.
    """
    shape, x = x.shape, x.reshape(-1)
    # The tangent takes the distance from the nearest integer, which is exact: π·x itself is rounded.
    nearest, pi = np.rint(x), PI.astype(x.dtype)
    z = np.where(x < 0.0, 1.0 - x, x)
    result = np.where(x < 0.0, -pi / np.tan(pi * (x - nearest)), x.dtype.type(0))
    for _ in range(_ASYMPTOTIC):
        below = z < _ASYMPTOTIC
        result[below] -= 1.0 / z[below]
        z[below] += 1.0
    inverse = 1.0 / (z * z)
    series = np.zeros_like(z)
    for coefficient in reversed(_STIRLING):
        series = (series + coefficient) * inverse
    result = result + (np.log(z) - 0.5 / z - series)
    poles = np.where(x == 0.0, np.copysign(np.inf, -x), np.nan)
    result = np.where((x == nearest) & (x <= 0.0), poles, np.where(np.isposinf(x), x, result))
    return np.asarray(result.reshape(shape))
