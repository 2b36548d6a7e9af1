"""Which results are as right as the reference's where no rule knows the condition of a function.

Every input, every gradient from above and every step on the way (:mod:`rounded_calls`) is moved by about one rounding
of the case's dtype, up or down, some times over. What that changes in float64, no arithmetic of that dtype can be asked
to know better: an implementation that is stable gives the exact result of roundings that differ so little. Each element
is asked by itself: that others are larger, or more sensitive, says nothing of this one.

A result may jump or swing within one rounding: the fraction of a whole number, the cosine of 1e9. Then what lies beside
one of those results is as right as it is, and whatever else lies between them shows nothing, unless roundings of fewer
inputs explain it: a label that is compared with 1 decides, and is no measured number.

What is so near to zero that zeros pass, too, shows nothing either; but it does if it is nearer to the truth than zeros
are, or if other inputs would change it by much more than what is allowed: then terms cancel here, and had to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from optest.core.rounded_calls import RoundedCall, smallest_rounding
from optest.numerics import Array, dtype_of, widen
from optest.spec import AsRight

# By how many times what one rounding changes an answer may be off. No theorem says so: it is a choice. torch.testing's
# own rtol is 4 roundings of bfloat16 (1.6e-2) and 22 of float32 (1.3e-6): 8 lies between, and has room for a spread
# that is a quarter too small.
_FACTOR = 8.0

# A second, finer set of roundings. What is smooth changes by 1/64 as much; what jumps within a rounding does not. A
# power of two, so that nothing is rounded by it.
_FINE = 1.0 / 64.0

# Up to this ratio of the fine spread, times 64, to the coarse one an element is smooth. Where it is, both are known to
# a quarter and the ratio lies between 3/5 and 5/3; what still jumps at a 64th of a rounding has a ratio of about 64.
_NOT_SMOOTH = 4.0

# So many inputs at most are left as they are in turn: each of them costs 18 more calls.
_FEW_INPUTS = 4

# Places by which the elements of an input are shifted to make other inputs of the same numbers. Three of them, since
# one shift may change nothing: of equal rows, of a pattern that repeats.
_SHIFTS = (1, 2, 3)

# Other inputs have to change a result (in the root of the mean square, by whichever of _SHIFTS changes it least) by so
# many times the most that is allowed of an element, before a small answer shows something. A choice, too: as far beyond
# noise as _NOT_SMOOTH is. What roundings alone change is an eighth of what is allowed (_FACTOR), so a 32nd of this.
_TELLING = 4.0

_DOUBLE = 2.0**-52
"""The distance of float64 numbers at 1."""

# Of a gradient that should be zero, 2⁻⁴⁰ is 4096 roundings of float64 around 1, as what comes from above is: a sum of a
# million terms is off by about a thousand. In the dtype of the case no more than 2⁻¹⁰ is noise (or 16 roundings, where
# these are more): what comes from above is 1/4 at least, so a gradient that is there is larger.
_AROUND_ZERO, _MOST_NOISE = 2.0**-40, 2.0**-10

_LOWEST = 2.0**-126
"""What float32 holds with all of its digits; 16 bits are computed in it, too."""


def as_close_as_roundings_allow(
    rounded: RoundedCall, actual: Sequence[Any], fails: tuple[type[Exception], ...], *, with_gradients: bool = False
) -> list[Any]:
    """Return one mask for each output, None if nothing is known of it.

    ``fails`` are the exceptions of a call that does not take the elements of its inputs in other places.
    """
    true = rounded.exact()
    takes_apart = _agree(rounded.moved(0, 0.0, takes_apart=True), true, _FINE * rounded.step)
    if len(true) != len(actual):
        return [None] * len(actual)
    near = _near_to(rounded, actual, true, takes_apart=takes_apart)
    near = _explained_by_fewer_roundings(rounded, near, actual, true, takes_apart=takes_apart)
    near = _beside_other_inputs(rounded, near, fails)
    noise = _noise_of_float64(rounded, true, takes_apart=takes_apart) if with_gradients else []
    return [
        _beside_zero(np.asarray(got), true[place], [each[place] for each in noise])
        or (known and AsRight(known.is_within, known.doubt()))
        for place, (got, known) in enumerate(zip(actual, near, strict=True))
    ]


def _explained_by_fewer_roundings(
    rounded: RoundedCall,
    near: list[_Near | None],
    actual: Sequence[Any],
    true: Sequence[Array],
    *,
    takes_apart: bool,
) -> list[_Near | None]:
    """The same, without the leaps that are right by roundings of fewer inputs, too."""
    if not any(each is not None and each.leaps.any() for each in near):
        return near
    for fewer in _with_some_as_they_are(rounded):
        others = _near_to(fewer, actual, true, takes_apart=takes_apart)
        near = [one and one.also(other) for one, other in zip(near, others, strict=True)]
    return near


def _beside_other_inputs(
    rounded: RoundedCall, near: list[_Near | None], fails: tuple[type[Exception], ...]
) -> list[_Near | None]:
    """The same; where zeros would pass, what other inputs yield says whether that shows something."""
    if any(each is not None and each.admits_zeros() for each in near):
        with suppress(*fails):  # it may not take the elements of its inputs in other places
            others = [rounded.with_inputs_in_other_places(shift) for shift in _SHIFTS]
            return [one and one.beside_other_inputs([each[at] for each in others]) for at, one in enumerate(near)]
    return near


def _noise_of_float64(rounded: RoundedCall, true: Sequence[Array], *, takes_apart: bool) -> list[list[Array]]:
    """What roundings of float64 itself make of the call, where an output may be nothing but noise around zero."""
    if not rounded.step or not any(map(_may_be_zero, true)):
        return []
    return rounded.draws(share=_DOUBLE / rounded.step, takes_apart=takes_apart)


def _with_some_as_they_are(rounded: RoundedCall) -> Iterator[RoundedCall]:
    """The same with no input moved, and then with one of few left as it is: a label that is compared with 1, a position
    in the middle between two, is no measured number, and what follows from it without a rounding is known."""
    yield replace(rounded, units=[0.0] * len(rounded.units))
    moved = [index for index, unit in enumerate(rounded.units) if unit]
    if 1 < len(moved) <= _FEW_INPUTS:
        for index in moved:
            yield replace(rounded, units=[0.0 if place == index else unit for place, unit in enumerate(rounded.units)])


def _near_to(
    rounded: RoundedCall, actual: Sequence[Any], true: Sequence[Array], *, takes_apart: bool
) -> list[_Near | None]:
    """What such roundings say of each output; None where there is nothing to say."""
    coarse = rounded.draws(takes_apart=takes_apart)
    fine = rounded.draws(share=_FINE, takes_apart=takes_apart)
    return [
        _near(np.asarray(got), true[place], [each[place] for each in coarse], [each[place] for each in fine])
        for place, got in enumerate(actual)
    ]


def _agree(one: Sequence[Array], other: Sequence[Array], share: float) -> bool:
    """Whether a call that was taken apart is the same call still."""
    if [each.shape for each in one] != [each.shape for each in other]:
        return False
    return all(
        np.allclose(each, true, rtol=share, atol=share * _largest(true), equal_nan=True)
        for each, true in zip(one, other, strict=True)
        if true.dtype.kind in "fc"
    )


def _largest(values: Array) -> float:
    magnitude = np.abs(values)
    return float(np.max(magnitude, where=np.isfinite(magnitude), initial=0.0))


@dataclass(frozen=True, slots=True)
class _Near:
    """Which elements are right, and of which of these nothing is shown: they leap within a rounding, and lie between.

    ``radius`` is how far off a right element may be where it is smooth. What is smaller than ``lowest`` is as good as
    zero: an arithmetic loses it on the way, and zeros are no less right.
    """

    got: Array
    true: Array
    is_within: Array
    leaps: Array
    radius: Array
    lowest: float
    is_telling: bool = False

    def also(self, other: _Near | None) -> _Near:
        """The same, with what is right by roundings of fewer things, too."""
        return self if other is None else replace(self, leaps=self.leaps & ~(other.is_within & ~other.leaps))

    def doubt(self) -> str:
        """Why results that are accepted so prove little, "" if they prove enough."""
        count = int(np.count_nonzero(self.leaps))
        if count:
            return (
                f"{count} of {self.true.size} elements jump or swing within one rounding of the inputs, so that any "
                "answer between passes there; choose inputs whose results are known better"
            )
        if self.admits_zeros() and not self.is_telling and not self._knows_more_than_zeros():
            return (
                "one rounding of the inputs changes the results by so much that an output of nothing but zeros passes "
                "too; choose inputs whose results are known better"
            )
        return ""

    def admits_zeros(self) -> bool:
        """Whether all is right, and would be if all were zero."""
        magnitude = np.abs(self.true)
        nonzero = magnitude >= self.lowest
        return bool(nonzero.any() and (magnitude <= self.radius)[nonzero].all() and self.is_within.all())

    def _knows_more_than_zeros(self) -> bool:
        """Whether the answer is nearer to the truth than half of it, where zeros are off by all of it."""
        is_number = np.isfinite(self.true) & np.isfinite(self.got)
        error, size = (np.linalg.norm(each[is_number]) for each in (self.got - self.true, self.true))
        return bool(error <= size / 2.0)

    def beside_other_inputs(self, others: Sequence[Array]) -> _Near:
        """The same, telling if other inputs change the results by much more than what is allowed: then terms cancel
        here, and as little as is left of them is what had to come out."""
        if any(each.shape != self.true.shape for each in others):
            return self
        apart = [np.abs(each - self.true) for each in others]
        known = [each[np.isfinite(each)] for each in (*apart, self.radius)]
        if not all(each.size for each in known):
            return self
        least = min(float(np.sqrt(np.mean(each**2))) for each in known[:-1])
        return replace(self, is_telling=least >= _TELLING * float(known[-1].max()))


def _near(got: Array, true: Array, coarse: Sequence[Array], fine: Sequence[Array]) -> _Near | None:
    entry = dtype_of(got.dtype)
    if not entry.is_inexact or true.dtype not in (np.float64, np.complex128) or got.shape != true.shape:
        return None
    if any(each.shape != true.shape for each in (*coarse, *fine)):
        return None
    wide = widen(got)
    with np.errstate(all="ignore"):
        last = np.maximum(entry.unit_roundoff * np.abs(true), smallest_rounding(got))
        spread, slight = _spread(coarse, true), _spread(fine, true) / _FINE
        radius = _FACTOR * np.minimum(spread, _NOT_SMOOTH * slight)
        is_smooth = slight <= _NOT_SMOOTH * spread
        error = np.abs(wide - true)
        is_near = is_smooth & (error <= radius + last)
        beside = np.where(is_smooth, radius, 0.0) + _FACTOR * entry.unit_roundoff * np.abs(wide)
        for each in (*coarse, *fine):
            is_near |= np.abs(wide - each) <= beside
        is_within = is_near | (error <= _FACTOR * spread + last)
    lowest = min(2.0**entry.emin, _LOWEST)
    return _Near(wide, true, np.asarray(is_within), np.asarray(is_within & ~is_near), radius, lowest)


def _may_be_zero(values: Array) -> bool:
    return values.dtype.kind in "fc" and 0.0 < _largest(values) <= _FACTOR * _AROUND_ZERO


def _beside_zero(got: Array, true: Array, others: Sequence[Array]) -> AsRight | None:
    """Gradients that should be zero, of which float64 has its own noise: those of a norm over one element.

    ``others`` are off by one rounding of float64. Where that changes some element by 2⁻⁴⁰ at most, but by an eighth of
    the largest and more, ``true`` is noise around zero. The same steps in a dtype with the unit roundoff u leave u/2⁻⁵²
    times as much. What comes from above is 2 at most, so that 8 roundings of it, and never less than 2⁻¹⁰, are the most
    that is taken for noise.
    """
    entry = dtype_of(got.dtype)
    if (
        not others
        or not entry.is_inexact
        or got.shape != true.shape
        or any(each.shape != true.shape for each in others)
    ):
        return None
    with np.errstate(all="ignore"):
        noise = float(np.max(_spread(others, true), initial=0.0))
        if not 0.0 < noise <= _AROUND_ZERO or not bool((np.abs(true) <= _FACTOR * noise).all()):
            return None
        most = min(_FACTOR * noise * entry.unit_roundoff / _DOUBLE, max(_MOST_NOISE, 16.0 * entry.unit_roundoff))
        return AsRight(np.asarray(np.abs(widen(got) - true) <= most), "")


def _spread(others: Sequence[Array], true: Array) -> Array:
    return np.asarray(np.sqrt(np.mean([np.abs(each - true) ** 2 for each in others], axis=0)))
