"""Accept results within the function's sensitivity to rounding, for calls without a tolerance rule.

Every input, every upstream gradient and every step of the computation (:mod:`rounded_calls`) is moved by about one
rounding of the case's dtype, up or down, several times. No arithmetic of that dtype can be more accurate than the
resulting change in float64: a stable implementation computes the exact result of slightly different inputs. Elements
have separate bounds, since the size and sensitivity of others do not matter.

A result may jump or swing within one rounding: the fraction of a whole number, the cosine of 1e9. Then values next to
one of the sampled results are right, and other values between them are accepted but inconclusive, unless roundings of
fewer inputs explain them: a label that is compared with 1 is no measured number.

Results so near to zero that zeros pass, too, are also inconclusive, unless they are nearer to the true values than
zeros are, or other inputs change them by much more than the bound: then terms cancel here, and had to.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optest.core.rounded_calls import RoundedCall, smallest_rounding
from optest.numerics import Array, dtype_of, widen
from optest.spec import AsRight

# Allowed error, in units of the change by one rounding. It is a choice, not a theorem: torch.testing's rtol is 4
# roundings of bfloat16 (1.6e-2) and 22 of float32 (1.3e-6), and a spread may be measured a quarter too small.
_FACTOR = 8.0

# Scale of a second, finer set of roundings. Smooth results change by 1/64 as much, jumps within a rounding do not. A
# power of two, so that nothing is rounded by it.
_FINE = 1.0 / 64.0

# Scale of moves that change only what lies on a jump itself.
_TINY = 2.0**-16

# Up to this ratio of the fine spread, times 64, to the coarse one an element is smooth. If it is, both are known to
# a quarter and the ratio is between 3/5 and 5/3; an element that jumps at a 64th of a rounding has a ratio of about 64.
_NOT_SMOOTH = 4.0

# Calls with more moved inputs are not repeated without each of them: every repetition costs 18 calls.
_FEW_INPUTS = 4

# Positions by which the elements of an input are shifted, for other inputs of the same numbers. There are three, since
# one shift may change nothing: with equal rows, or a pattern that repeats.
_SHIFTS = (1, 2, 3)

# Least change of a result by other inputs (root mean square, for the one of _SHIFTS that changes it least), in units of
# the largest bound of an element, that makes a result near zero conclusive. A choice, too: as far beyond noise as
# _NOT_SMOOTH is. The change by roundings is an eighth of the bound (_FACTOR), so a 32nd of this.
_TELLING = 4.0

# Distance of float64 numbers at 1.
_DOUBLE = 2.0**-52

# Largest values of a gradient that should be zero. 2⁻⁴⁰ is 4096 roundings of float64 at 1, the size of upstream
# gradients: a sum of a million terms is off by about a thousand. In the dtype of the case at most 2⁻¹⁰ is noise (or 16
# roundings, if these are more): upstream gradients are 1/4 at least, so a gradient that is not zero is larger.
_AROUND_ZERO, _MOST_NOISE = 2.0**-40, 2.0**-10

# Smallest normal number of float32, in which 16-bit dtypes are computed, too.
_LOWEST = 2.0**-126


def as_close_as_roundings_allow(
    rounded: RoundedCall,
    actual: Sequence[Any],
    fails: tuple[type[Exception], ...],
    *,
    with_gradients: bool = False,
    own_results: Sequence[Sequence[Array]] = (),
) -> list[Any]:
    """Return for each output a mask of its right elements, with a doubt if it is inconclusive; None if unknown.

    ``fails`` are the exceptions of a call that refuses inputs with their elements in another order. ``own_results`` are
    those of the call in the dtypes of the case, then those in other dtypes; whole numbers are unknown without them.
    """
    true = rounded.exact()
    takes_apart = _agree(rounded.moved(0, 0.0, takes_apart=True), true, _FINE * rounded.step)
    if len(true) != len(actual):
        return [None] * len(actual)
    near = _near_to(rounded, actual, true, takes_apart=takes_apart)
    if own_results:
        near = _with_own_results(rounded, near, actual, true, own_results, takes_apart=takes_apart)
    if any(each is not None and each.leaps.any() for each in near):
        # Remove the leaps that roundings of fewer inputs explain: of none, or of all but one of a few. A label that is
        # compared with 1, or a position in the middle between two, is exact, and so are results that follow from it.
        moved = [index for index, unit in enumerate(rounded.units) if unit]
        few = moved if 1 < len(moved) <= _FEW_INPUTS else []
        unmoved = [[0.0 if at == index else unit for at, unit in enumerate(rounded.units)] for index in few]
        for fewer in ([0.0] * len(rounded.units), *unmoved):
            explained = _near_to(replace(rounded, units=fewer), actual, true, takes_apart=takes_apart)
            near = [one and one.also(other) for one, other in zip(near, explained, strict=True)]
    if any(each is not None and each.accepts_zeros() for each in near):
        # Other inputs that change results clearly make conclusive what zeros would pass for. The call may refuse inputs
        # with their elements in another order.
        with suppress(*fails):
            others = [rounded.with_rolled_inputs(shift) for shift in _SHIFTS]
            near = [one and one.against_other_inputs([each[at] for each in others]) for at, one in enumerate(near)]
    noise: list[list[Array]] = []
    largest = [_largest(each) if each.dtype.kind in "fc" else 0.0 for each in true] if with_gradients else []
    if rounded.step and any(0.0 < each <= _FACTOR * _AROUND_ZERO for each in largest):  # may be noise around zero only
        noise = rounded.draws(share=_DOUBLE / rounded.step, takes_apart=takes_apart)  # with roundings of float64 itself
    return [
        _near_zero(np.asarray(got), true[index], [each[index] for each in noise])
        or (known and AsRight(known.is_within, known.doubt()))
        for index, (got, known) in enumerate(zip(actual, near, strict=True))
    ]


def _with_own_results(
    rounded: RoundedCall,
    near: Sequence[_Near | None],
    actual: Sequence[Any],
    true: Sequence[Array],
    own: Sequence[Sequence[Array]],
    *,
    takes_apart: bool,
) -> list[_Near | None]:
    """Return ``near`` with the outputs of whole numbers and bool, which follow from rounded numbers, filled in.

    ``own`` are results of the call in the dtypes of the case, then in others. They are right, as are results for errors
    of up to eight roundings, and whole numbers between these if they move evenly. NaN or infinity of the first of
    ``own`` is right, too.
    """
    compared = [
        one and one.accept_nonfinite(result, dtype_of(np.asarray(actual_values).dtype).max_finite)
        for one, result, actual_values in zip(near, own[0], actual, strict=True)
    ]
    integer_outputs = [index for index, each in enumerate(true) if each.dtype.kind in "iub" and np.ndim(actual[index])]
    if rounded.step <= _DOUBLE or all(np.array_equal(actual[index], true[index]) for index in integer_outputs):
        return compared  # the reference itself is evaluated in float64
    tiny = rounded.draws(share=_TINY, takes_apart=takes_apart)
    ones = rounded.draws(takes_apart=takes_apart)
    eights = rounded.draws(share=_FACTOR, takes_apart=takes_apart)
    for index in integer_outputs:
        actual_values, true_values = np.asarray(actual[index]), true[index]
        draws = [each[index] for each in (*ones, *eights)]
        if actual_values.shape != true_values.shape or any(each.shape != true_values.shape for each in draws):
            continue
        known = [true_values, *(each[index] for each in own if each[index].shape == actual_values.shape)]
        is_right = np.logical_or.reduce([actual_values == each for each in known])
        is_within = np.logical_or.reduce([actual_values == each for each in draws])
        number, exact, *wide = (each.astype(np.float64) for each in (actual_values, true_values, *draws))
        some, every = [exact, *wide[: len(ones)]], [exact, *wide]
        reach, span = np.ptp(some, axis=0), np.ptp(every, axis=0) / _FACTOR
        # ``round(1000 * x)`` moves evenly within its roundings, the index of the largest element does not.
        is_even = (span > 0) & (reach <= 2.0 * span + 1.0) & (reach >= span / 2.0 - 1.0)
        is_within |= is_even & (np.min(every, axis=0) <= number) & (number <= np.max(every, axis=0))
        # An input on the jump itself, as of x > 0, needs no arithmetic and has one right result, unless the results of
        # the dtypes differ, as for ``round(x / scale)`` at half of a step.
        is_on_jump = np.logical_or.reduce([each[index] != true_values for each in tiny])
        is_on_jump &= np.logical_and.reduce([each == true_values for each in known])
        is_within = is_right | (is_within & ~is_on_jump)
        radius = np.max(np.abs(np.subtract(every, exact)), axis=0)
        compared[index] = _Near(number, exact, is_within, np.zeros_like(is_within), radius, 1.0)
    return compared


def _near_to(
    rounded: RoundedCall, actual: Sequence[Any], true: Sequence[Array], *, takes_apart: bool
) -> list[_Near | None]:
    """Return the comparison of each output with the sampled roundings; None if it cannot be compared."""
    coarse, fine = (rounded.draws(share=share, takes_apart=takes_apart) for share in (1.0, _FINE))
    return [
        _near(np.asarray(output), true[index], [x[index] for x in coarse], [x[index] for x in fine])
        for index, output in enumerate(actual)
    ]


def _agree(left: Sequence[Array], right: Sequence[Array], share: float) -> bool:
    """Return whether two evaluations of a call have equal outputs, apart from ``share``."""
    if [each.shape for each in left] != [each.shape for each in right]:
        return False
    return all(
        np.allclose(each, true, rtol=share, atol=share * _largest(true), equal_nan=True)
        for each, true in zip(left, right, strict=True)
        if true.dtype.kind in "fc"
    )


def _largest(values: Array) -> float:
    magnitude = np.abs(values)
    return float(np.max(magnitude, where=np.isfinite(magnitude), initial=0.0))


@dataclass(frozen=True, slots=True)
class _Near:
    """Comparison of an output with sampled roundings: accepted elements, with the inconclusive ``leaps`` among them.

    A leap is between results that jump within a rounding. ``radius`` is the bound of a smooth element. Values smaller
    than ``lowest`` count as zero, since an arithmetic may flush them. ``is_telling`` makes results near zero
    conclusive.
    """

    got: Array
    true: Array
    is_within: Array
    leaps: Array
    radius: Array
    lowest: float
    is_telling: bool = False

    def also(self, other: _Near | None) -> _Near:
        """Return this without the leaps that another comparison, by roundings of fewer inputs, accepts as near."""
        return self if other is None else replace(self, leaps=self.leaps & ~(other.is_within & ~other.leaps))

    def accept_nonfinite(self, own: Array, largest: float) -> _Near:
        """Return this with NaN and infinity of ``own`` accepted where the true value is NaN or exceeds ``largest``."""
        wide = widen(own)
        if wide.shape != self.true.shape:
            return self
        is_same = ~np.isfinite(wide) & ((self.got == wide) | (np.isnan(self.got) & np.isnan(wide)))
        return replace(self, is_within=self.is_within | (is_same & ~(np.abs(self.true) <= largest)))

    def doubt(self) -> str:
        """Return why the accepted results are inconclusive, "" if they are not."""
        count = int(np.count_nonzero(self.leaps))
        if count:
            return (
                f"{count} of {self.true.size} elements jump or swing within one rounding of the inputs, so that any "
                "value between passes there; choose inputs whose results are less sensitive"
            )
        if self.accepts_zeros() and not self.is_telling and not self._is_nearer_than_zeros():
            return (
                "one rounding of the inputs changes the results by so much that an output of zeros passes, too; "
                "choose inputs whose results are less sensitive"
            )
        return ""

    def accepts_zeros(self) -> bool:
        """Return whether all elements are accepted, and zeros would be as well."""
        magnitude = np.abs(self.true)
        nonzero = magnitude >= self.lowest
        return bool(nonzero.any() and (magnitude <= self.radius)[nonzero].all() and self.is_within.all())

    def _is_nearer_than_zeros(self) -> bool:
        """Return whether the error is at most half of that of zeros."""
        is_number = np.isfinite(self.true) & np.isfinite(self.got)
        error, size = (np.linalg.norm(each[is_number]) for each in (self.got - self.true, self.true))
        return bool(error <= size / 2.0)

    def against_other_inputs(self, others: Sequence[Array]) -> _Near:
        """Return this with ``is_telling`` set if other inputs change the results by more than the bound."""
        if any(each.shape != self.true.shape for each in others):
            return self
        # Then terms cancel for these inputs, and results near zero are no matter of chance.
        apart = [np.abs(each - self.true) for each in others]
        known = [each[np.isfinite(each)] for each in (*apart, self.radius)]
        if not all(each.size for each in known):
            return self
        least = min(float(np.sqrt(np.mean(each**2))) for each in known[:-1])
        return replace(self, is_telling=least >= _TELLING * float(known[-1].max()))


def _near(actual: Array, true: Array, coarse: Sequence[Array], fine: Sequence[Array]) -> _Near | None:
    """Compare one output with coarse and fine roundings; return None for exact dtypes or other shapes."""
    entry = dtype_of(actual.dtype)
    if not entry.is_inexact or true.dtype not in (np.float64, np.complex128) or actual.shape != true.shape:
        return None
    if any(each.shape != true.shape for each in (*coarse, *fine)):
        return None
    wide = widen(actual)
    with np.errstate(all="ignore"):
        last = np.maximum(entry.unit_roundoff * np.abs(true), smallest_rounding(actual))
        spread, slight = _spread(coarse, true), _spread(fine, true) / _FINE
        radius = _FACTOR * np.minimum(spread, _NOT_SMOOTH * slight)
        is_smooth = slight <= _NOT_SMOOTH * spread
        error = np.abs(wide - true)
        is_number = np.isfinite(error)  # infinity is near to no number, however far roundings move it
        is_near = is_smooth & is_number & (error <= radius + last)
        margin = np.where(is_smooth, radius, 0.0) + _FACTOR * entry.unit_roundoff * np.abs(wide)
        for each in (*coarse, *fine):
            is_near |= (wide == each) | (np.isfinite(wide - each) & (np.abs(wide - each) <= margin))
        is_within = is_near | (is_number & (error <= _FACTOR * spread + last))
    lowest = min(2.0**entry.emin, _LOWEST)
    return _Near(wide, true, np.asarray(is_within), np.asarray(is_within & ~is_near), radius, lowest)


def _near_zero(actual: Array, true: Array, others: Sequence[Array]) -> AsRight | None:
    """Return the mask of gradients that should be zero, None if they are not: those of a norm over one element.

    ``others`` are off by one rounding of float64. If that changes some element by 2⁻⁴⁰ at most, but by an eighth of the
    largest or more, ``true`` is noise around zero.
    """
    entry = dtype_of(actual.dtype)
    if (
        not others
        or not entry.is_inexact
        or actual.shape != true.shape
        or any(each.shape != true.shape for each in others)
    ):
        return None
    with np.errstate(all="ignore"):
        noise = float(np.max(_spread(others, true), initial=0.0))
        if not 0.0 < noise <= _AROUND_ZERO or not bool((np.abs(true) <= _FACTOR * noise).all()):
            return None
        # In a dtype with the unit roundoff u the noise is u/2⁻⁵² times as large. Upstream gradients are 2 at most, so
        # noise is at most 8 roundings of them, or 2⁻¹⁰ if that is more.
        most = min(_FACTOR * noise * entry.unit_roundoff / _DOUBLE, max(_MOST_NOISE, 16.0 * entry.unit_roundoff))
        return AsRight(np.asarray(np.abs(widen(actual) - true) <= most), "")


def _spread(others: Sequence[Array], true: Array) -> Array:
    """Return the root mean square distance of ``others`` from ``true``, for each element."""
    apart = np.abs(np.subtract(others, true))
    largest = np.max(apart, axis=0)
    scale = np.where((largest > 0.0) & np.isfinite(largest), largest, 1.0)  # squares of 1e200 are infinite
    return np.asarray(np.sqrt(np.mean((apart / scale) ** 2, axis=0)) * scale)
