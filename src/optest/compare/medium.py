"""The measure of a tensor of one block that is plainly right, with few calls of NumPy; it can pass an output, never
fail one.

The numbers are those of :mod:`optest.compare.kernels`, bit for bit: the same operations on the same arrays, without
what is only needed where an element is wrong, is not finite, or belongs to another block.
"""

from __future__ import annotations

from math import inf as _inf
from math import sqrt

import numpy as np

from optest.compare import Expected
from optest.compare.bounds import Law, Statistic, array_ulp
from optest.compare.elements import Ends, judge_of
from optest.compare.policy import Allowance
from optest.compare.small import new_measure, place_of
from optest.compare.statistic import sharper
from optest.numerics import Array, Quiet, ulp, widen
from optest.spec import Measure

__all__ = ["MEDIUM", "measure_medium"]

MEDIUM = 4096
"""Elements up to which the calls cost more than what they compute."""

_FLOAT64 = np.dtype(np.float64)
_NO_STATISTIC = Statistic.NONE


def measure_medium(
    actual: Array,
    reference: Array,
    wanted: Expected,
    allowance: Allowance,
    ends: Ends,
    *,
    with_rounding: bool,
    ceiling: float,
) -> Measure | None:
    """Return the measure of a real, inexact output that is plainly right, else None.

    ``with_rounding`` asks for the statistic of the final rounding too; ``ceiling`` is the most that the law's own may
    be.
    """
    entry, law = wanted.dtype, allowance.law
    with Quiet():
        if law is not None and law.statistic is _NO_STATISTIC and not ends.flush and reference.dtype == _FLOAT64:
            return _by_law(actual, reference, wanted, allowance, law)
        judge = judge_of(allowance, entry, ends=ends, size=actual.size, with_rounding=with_rounding, detailed=True)
        block = judge(actual.reshape(-1), reference.reshape(-1), slice(0, actual.size))
        if block.wrong is not None or block.odd is not None:
            return None
        statistic, limit = sharper(block.scatter.z, ceiling, block.rounding.z)
        if statistic is not None and not (limit is not None and statistic <= limit):
            return None
        magnitude = np.abs(block.target)
        numbers = _Numbers(block.actual, block.target, magnitude, block.error, block.bound, ulp(magnitude, entry))
        return numbers.measure(actual.shape, wanted, allowance, statistic, limit)


def _by_law(actual: Array, reference: Array, wanted: Expected, allowance: Allowance, law: Law) -> Measure | None:
    """By a law that has no statistic, and float64 expectations."""
    entry, total = wanted.dtype, allowance.budget.total
    got, want = widen(actual, quiet=False).reshape(-1), reference.reshape(-1)
    if isinstance(total, np.ndarray) and total.ndim:
        if total.size != want.size:
            return None  # the kernels say what is wrong with it
        total = total.reshape(-1)
    magnitude = np.abs(want)
    spacing = ulp(magnitude, entry)
    ulp_arithmetic = (lambda _: spacing) if law.arithmetic is entry else array_ulp(law.arithmetic)
    bound = law.bound(magnitude, law.arithmetic_error(magnitude, total, ulp_arithmetic), array_ulp(entry))
    if not isinstance(bound, np.ndarray) or bound.shape != want.shape:
        return None
    error = got - want
    np.abs(error, out=error)
    numbers = _Numbers(got, want, magnitude, error, bound, spacing)
    return numbers.measure(actual.shape, wanted, allowance, None, None) if numbers.are_plainly_right() else None


class _Numbers:
    """Of one block of finite float64 elements, each with a bound; the first of equal largest numbers counts."""

    __slots__ = ("_bound", "_error_at", "_got", "_magnitude", "_relative_at", "_rows", "_ulp_at", "_want", "_worst")

    def __init__(self, got: Array, want: Array, magnitude: Array, error: Array, bound: Array, spacing: Array) -> None:
        self._got, self._want, self._magnitude, self._bound = got, want, magnitude, bound
        self._rows = rows = np.empty((4, error.size))
        rows[0] = error
        np.divide(error, bound, out=rows[1])
        np.divide(error, magnitude, out=rows[2])
        np.divide(error, spacing, out=rows[3])
        self._error_at, self._worst, self._relative_at, self._ulp_at = rows.argmax(axis=1).tolist()

    def are_plainly_right(self) -> bool:
        """Whether no error is above a finite bound of more than 0; NaN is the largest of what it is among.

        The quotient of a number and a smaller one is above 1 by more than half a unit, so it is never rounded to 1.
        """
        share, largest = self._rows.item(1, self._worst), self._rows.item(0, self._error_at)
        if not (share <= 1.0 and largest < _inf):
            return False
        return bool(np.minimum.reduce(self._bound) > 0.0 and np.maximum.reduce(self._bound) < _inf)

    def measure(
        self,
        shape: tuple[int, ...],
        wanted: Expected,
        allowance: Allowance,
        statistic: float | None,
        limit: float | None,
    ) -> Measure:
        """The measure of elements that are all right."""
        rows, got, want, worst = self._rows, self._got, self._want, self._worst
        error = rows[0]
        used, relative, relative_at = rows.item(1, worst), rows.item(2, self._relative_at), self._relative_at
        if not used < _inf:  # somewhere the bound is 0, and so is the error
            shares = np.divide(error, self._bound, out=np.zeros(error.shape), where=error > 0.0)
            worst = int(shares.argmax())
            used = shares.item(worst)
        if not relative < _inf:  # somewhere 0 is expected
            quotients = np.divide(error, self._magnitude, out=np.full(error.shape, -1.0), where=self._magnitude > 0.0)
            relative_at = int(quotients.argmax())
            relative = quotients.item(relative_at)
        related = relative >= 0.0
        norm = sqrt(np.dot(got, got)) * sqrt(np.dot(want, want))
        return new_measure(
            output=wanted.name,
            dtype=wanted.dtype.name,
            shape=shape,
            compared=error.size,
            worst_index=place_of(worst, shape),
            worst_actual=got.item(worst),
            worst_expected=want.item(worst),
            worst_bound=self._bound.item(worst),
            worst_used=used,
            worst_ulp=rows.item(3, worst),
            max_abs_error=rows.item(0, self._error_at),
            max_abs_index=place_of(self._error_at, shape),
            max_rel_error=_finite(relative) if related else None,
            max_rel_index=place_of(relative_at, shape) if related else None,
            max_ulp_error=_finite(rows.item(3, self._ulp_at)),
            max_ulp_index=place_of(self._ulp_at, shape),
            rmse=_finite(sqrt(np.dot(error, error) / error.size)),
            cosine=float(np.dot(got, want)) / norm if 0.0 < norm < _inf else None,
            statistic=statistic,
            statistic_limit=limit,
            rule=allowance.used,
        )


def _finite(value: float) -> float | None:
    return value if value < _inf else None
