"""The verdict over a handful of elements, without NumPy's cost per call; it can pass an output, never fail one.

Whatever is not plainly right (not finite, near the overflow, out of its bound, a statistic too large) is left to
:mod:`optest.compare.kernels`, which decides by the same formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from itertools import repeat
from math import frexp, inf, ldexp, sqrt
from operator import add, le, mul, neg, sub, truediv
from typing import Any

import numpy as np

from optest.compare import Expected
from optest.compare.bounds import Law, Statistic, scalar_ulp
from optest.compare.policy import Allowance, Method
from optest.compare.sides import shows_rounding, sides_of_few
from optest.compare.statistic import limit, sharper
from optest.numerics import Array
from optest.spec import DType, Kind, Measure, dtype
from optest.spec.construct import constructor

__all__ = ["SMALL", "measure_small", "place_of", "spacing_of"]

new_measure = constructor(Measure)

SMALL = 16
"""Elements up to which plain floats are faster than arrays."""

_SHIFT = 1.5 * 2.0**52
_BOOL, _BITS, _NO_STATISTIC, _SUM = Kind.BOOL, Method.BITS, Statistic.NONE, Statistic.SUM


@cache
def spacing_of(name: str) -> Callable[[float], float]:
    """The gap of the dtype of this name at a non-negative float."""
    return scalar_ulp(dtype(name))


def measure_small(
    actual: Array, reference: Array, wanted: Expected, allowance: Allowance, *, with_sides: bool = False
) -> Measure | None:
    """Return the measure of a real output that is plainly right, else None; ``with_sides`` with its ``rounding``."""
    entry = wanted.dtype
    if entry.kind is _BOOL:
        actual = actual.view(np.uint8)  # a byte of 2 is no bool
    got: list[Any] = actual.tolist() if actual.ndim == 1 else actual.reshape(-1).tolist()
    want: list[Any] = reference.tolist() if reference.ndim == 1 else reference.reshape(-1).tolist()
    if not entry.precision:
        return _whole(got, want, actual.shape, wanted, allowance)
    try:
        measure = _real(got, want, actual, reference, wanted, allowance)
    except OverflowError:  # math raises where arrays give infinity
        return None
    if measure is None or not with_sides or not shows_rounding(entry, reference, allowance):
        return measure
    return replace(measure, rounding=sides_of_few(got, want, _rounded(want, entry), _spacings(want, entry)))


def _real(
    got: list[float], want: list[float], actual: Array, reference: Array, wanted: Expected, allowance: Allowance
) -> Measure | None:
    law = allowance.law
    if law is not None:
        return _by_law(got, want, actual.shape, wanted, allowance, law)
    if reference.dtype != actual.dtype:
        want = _rounded(want, wanted.dtype)
    elif allowance.method is _BITS and actual.tobytes() != reference.tobytes():
        return None
    rtol, atol = allowance.rtol, allowance.atol
    return _measure(got, want, [atol + rtol * abs(each) for each in want], actual.shape, wanted, allowance, None, None)


def _whole(
    got: list[Any], want: list[Any], shape: tuple[int, ...], wanted: Expected, allowance: Allowance
) -> Measure | None:
    """Integers and bool that are all equal."""
    if got != want or not all(type(each) is int or type(each) is bool for each in want):
        return None
    squared = float(sum(each * each for each in got))
    first = (0,) * len(shape)
    nonzero = next((index for index, each in enumerate(want) if each), None)
    return new_measure(
        output=wanted.name,
        dtype=wanted.dtype.name,
        shape=shape,
        compared=len(got),
        worst_index=first,
        worst_actual=int(got[0]),
        worst_expected=int(want[0]),
        worst_bound=allowance.atol + allowance.rtol * abs(want[0]),
        worst_used=0.0,
        max_abs_error=0.0,
        max_abs_index=first,
        max_rel_error=None if nonzero is None else 0.0,
        max_rel_index=None if nonzero is None else place_of(nonzero, shape),
        rmse=0.0,
        cosine=1.0 if squared else None,
        rule=allowance.used,
    )


def _exponents(values: list[float], entry: DType) -> list[int]:
    """The exponent e of the gap 2^e of ``entry`` at each value; 0, of which frexp makes e = 0, lies in the lowest."""
    precision, least = entry.precision, entry.emin + 1
    return [(each if fraction and each > least else least) - precision for fraction, each in map(frexp, values)]


def _spacings(values: list[float], entry: DType) -> list[float]:
    """The gap of ``entry`` at each value."""
    return list(map(ldexp, repeat(1.0), _exponents(values, entry)))


def _rounded(values: list[float], entry: DType) -> list[float]:
    """Round to the nearest, ties to even: adding and subtracting 1.5·2^52 ulp leaves multiples of an ulp."""
    if entry.precision >= 53:
        return values
    precision, lowest, least = entry.precision, 2.0**entry.emin, entry.emin + 1
    return [
        (value + (shift := ldexp(_SHIFT, (frexp(value)[1] if abs(value) >= lowest else least) - precision))) - shift
        for value in values
    ]


def _numbers(values: Any, size: int) -> list[float] | None:
    if isinstance(values, np.ndarray) and values.ndim:
        if values.size != size:
            return None
        return values.tolist() if values.ndim == 1 else values.reshape(-1).tolist()  # type: ignore[no-any-return]
    return [float(values)] * size


def _by_law(
    got: list[float], want: list[float], shape: tuple[int, ...], wanted: Expected, allowance: Allowance, law: Law
) -> Measure | None:
    if law.final == law.per_term == 0.0:
        exponents = _exponents(want, law.arithmetic)
        bounds = list(map(ldexp, repeat(law.ulps), exponents))
        known = exponents if law.arithmetic is wanted.dtype else None
        return _measure(got, want, bounds, shape, wanted, allowance, None, None, known)
    budget = allowance.budget
    totals = _numbers(budget.total, len(want))
    if totals is None or isinstance(budget.weight, np.ndarray):
        return None
    ulp_output = spacing_of(wanted.dtype.name)
    ulp_arithmetic = ulp_output if law.arithmetic is wanted.dtype else spacing_of(law.arithmetic.name)
    arithmetic, bounds = [], []
    for value, total in zip(want, totals):  # noqa: B905 - checked above
        magnitude = abs(value)
        part = law.arithmetic_error(magnitude, total, ulp_arithmetic)
        arithmetic.append(part)
        bounds.append(law.bound(magnitude, part, ulp_output))
    if law.statistic is _NO_STATISTIC:
        return _measure(got, want, bounds, shape, wanted, allowance, None, None)
    by_sum, by_rounding = _statistics(got, want, arithmetic, wanted.dtype, law, budget)
    draws = len(set(want))
    z, ceiling = sharper(by_sum, limit(math.isqrt(draws) if law.correlated else draws), by_rounding)
    if z is not None and ceiling is not None and not z <= ceiling:
        return None
    return _measure(got, want, bounds, shape, wanted, allowance, z, ceiling)


def _statistics(
    got: list[float], want: list[float], arithmetic: list[float], entry: DType, law: Law, budget: Any
) -> tuple[float | None, float | None]:
    """z of the law's variance and z of the final rounding alone, None where nothing counts."""
    squares = _numbers(budget.squares, len(want))
    if squares is None:
        return inf, None
    rounded, spacings = _rounded(want, entry), _spacings(want, entry)
    summed, narrow, weight = law.statistic is _SUM, law.narrow, budget.weight
    scatter = rounding = 0.0
    untouched = 0
    for index, value in enumerate(want):
        spacing = spacings[index]
        leftover, error = rounded[index] - value, got[index] - value
        least, variance = spacing * spacing * (1.0 / 12.0), leftover * leftover
        if variance < least:
            variance = least
        if narrow and (leftover != 0.0 or law.expected_rounded) and law.is_negligible(arithmetic[index], spacing):
            rounding += error / (variance or 1e-300) * error
            untouched += 1
        if summed:
            if law.expected_rounded:
                variance += least
            variance += law.sum_variance(value, squares[index], weight)
            scatter += error / (variance or 1e-300) * error
    return sqrt(scatter / len(want)) if summed else None, sqrt(rounding / untouched) if untouched else None


def _measure(
    got: list[float],
    want: list[float],
    bounds: list[float],
    shape: tuple[int, ...],
    wanted: Expected,
    allowance: Allowance,
    statistic: float | None,
    ceiling: float | None,
    exponents: list[int] | None = None,
) -> Measure | None:
    """All numbers; None where an element is not within a finite bound below the overflow.

    Python's own functions over whole lists: a loop over elements takes three times as long. The first of equal
    largest numbers counts. ``exponents`` are those of the gaps of the output's dtype, where they are known.
    """
    entry = wanted.dtype
    errors = list(map(abs, map(sub, got, want)))
    magnitudes = list(map(abs, want))
    if not (all(map(le, errors, bounds)) and all(map(entry.max_finite.__gt__, map(add, magnitudes, bounds)))):
        return None
    in_ulps = list(map(ldexp, errors, map(neg, _exponents(want, entry) if exponents is None else exponents)))
    shares = list(map(truediv, errors, bounds)) if all(bounds) else _quotients(errors, bounds, 0.0)
    relatives = list(map(truediv, errors, magnitudes)) if all(magnitudes) else _quotients(errors, magnitudes, -1.0)
    worst_used, max_error, max_relative, max_ulp = max(shares), max(errors), max(relatives), max(in_ulps)
    worst, error_at = shares.index(worst_used), errors.index(max_error)
    relative_at, ulp_at = relatives.index(max_relative), in_ulps.index(max_ulp)
    product = sum(map(mul, got, want))
    norm = sqrt(sum(map(mul, got, got))) * sqrt(sum(map(mul, want, want)))
    count = len(got)
    related = max_relative >= 0.0
    flat = len(shape) == 1
    return new_measure(
        output=wanted.name,
        dtype=entry.name,
        shape=shape,
        compared=count,
        worst_index=(worst,) if flat else place_of(worst, shape),
        worst_actual=got[worst],
        worst_expected=want[worst],
        worst_bound=bounds[worst],
        worst_used=worst_used,
        worst_ulp=in_ulps[worst],
        max_abs_error=max_error,
        max_abs_index=(error_at,) if flat else place_of(error_at, shape),
        max_rel_error=max_relative if related else None,
        max_rel_index=((relative_at,) if flat else place_of(relative_at, shape)) if related else None,
        max_ulp_error=max_ulp,
        max_ulp_index=(ulp_at,) if flat else place_of(ulp_at, shape),
        rmse=sqrt(sum(map(mul, errors, errors)) / count),
        cosine=product / norm if 0.0 < norm < inf else None,
        statistic=statistic,
        statistic_limit=ceiling,
        rule=allowance.used,
    )


def _quotients(numbers: list[float], divisors: list[float], otherwise: float) -> list[float]:
    return [number / divisor if divisor else otherwise for number, divisor in zip(numbers, divisors, strict=True)]


@lru_cache(maxsize=4096)
def place_of(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of a flat position in row-major order."""
    place = []
    for size in reversed(shape):
        flat, coordinate = divmod(flat, size)
        place.append(coordinate)
    return tuple(reversed(place))
