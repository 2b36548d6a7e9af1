"""Numbers about actual against expected, added up block by block, whatever the size; no opinion on what they mean.

A block is 32,768 elements, so that its float64 temporaries stay in the cache and far below 32 MB together. A tensor of
a handful of elements is one block like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np

from optest.compare.elements import NO_SCATTER, Ends, Judged, Scatter, dot, flat, judge_of
from optest.compare.fast_tolerance import meets_tolerance
from optest.compare.locate import Sketch
from optest.compare.picture import Drawing
from optest.compare.policy import Allowance, Method
from optest.compare.statistic import Sides, shows_rounding
from optest.numerics import Array, Quiet, ulp, widen
from optest.spec import DType, Picture

BLOCK = 1 << 15


class Largest(NamedTuple):
    """The largest of some number over all elements, and the flat index of the first that has it."""

    value: float = -1.0
    place: int = -1

    def or_larger(self, other: Largest) -> Largest:
        return other if other.value > self.value else self


_NONE = Largest()


def _largest(values: Array, offset: int) -> Largest:
    """Among values that begin at ``offset``; NaN is the largest of what it is among."""
    position = int(values.argmax())
    return Largest(values.item(position), offset + position)


@dataclass(slots=True)
class Outcome:
    """What the blocks of one output add up to. ``detailed`` says whether all numbers were computed.

    ``mismatched`` counts every wrong element, the ``nonfinite_mismatched`` and among them the ``nan_mismatched``
    (NaN on one side only) included. ``scatter`` is that of the law's variance, ``rounding`` that of the final
    rounding alone. ``zeros`` are elements that are 0 and should be, ``wrong_signs`` those of them with another sign.
    """

    compared: int = 0
    mismatched: int = 0
    nonfinite_mismatched: int = 0
    nan_mismatched: int = 0
    scatter: Scatter = NO_SCATTER
    rounding: Scatter = NO_SCATTER
    detailed: bool = False
    worst: Largest = _NONE
    worst_actual: Any = None
    worst_target: Any = None
    worst_bound: float = 0.0
    worst_ulp: float = inf
    error: Largest = _NONE
    relative: Largest = _NONE
    in_ulp: Largest = _NONE
    squared_error: float = 0.0
    finite: int = 0
    actual_squared: float = 0.0
    target_squared: float = 0.0
    product: float = 0.0
    sketch: Sketch | None = None
    sides: Sides | None = None
    zeros: int = 0
    wrong_signs: int = 0
    first_wrong_sign: int = -1

    @property
    def finite_mismatched(self) -> int:
        return self.mismatched - self.nonfinite_mismatched


def compare(
    actual: Array,
    reference: Array,
    dtype: DType,
    allowance: Allowance,
    *,
    ends: Ends,
    detailed: bool,
    with_rounding: bool = True,
    with_sides: bool = False,
    with_signs: bool = False,
) -> Outcome:
    """Compare two arrays of one shape and return what their blocks add up to.

    Without ``detailed`` it stops at the first block with a wrong element: only counts and the statistic of a
    passing pair are complete. ``ends`` is what the backend may do at the ends of the range.
    ``with_rounding`` asks for the statistic of the final rounding too, where the law gives one; ``with_sides`` for the
    sides on which inexact results lie, which are counted where all is ``detailed``; ``with_signs`` for zeros of the
    wrong sign, which are wrong if the allowance says so.

    Raises:
        ValueError: if the reference holds values that the output dtype cannot (integers out of range).
    """
    outcome = Outcome(detailed=detailed)
    with_signs = dtype.is_float and allowance.method is not Method.BITS and (with_signs or allowance.signed_zeros)
    if not detailed and not with_signs and meets_tolerance(actual, reference, dtype, allowance):
        outcome.compared = actual.size
        return outcome
    judge = judge_of(allowance, dtype, ends=ends, size=reference.size, with_rounding=with_rounding, detailed=detailed)
    left, right = flat(actual), flat(reference)
    if with_sides and shows_rounding(dtype, reference, allowance):
        outcome.sides = Sides()
    smallest = 2.0**dtype.emin if ends.flush else 0.0
    with Quiet():
        for where in _blocks(actual.size):
            block = judge(left[where], right[where], where)
            if with_signs and not block.actual.all():
                block = _with_signs(outcome, block, right[where], dtype, allowance)
            _add(outcome, block)
            if detailed:
                _detail(outcome, block, where.start, dtype)
                if block.wrong is not None:
                    outcome.sketch = outcome.sketch or Sketch(actual.shape)
                    outcome.sketch.add(np.flatnonzero(block.wrong) + where.start)
                if outcome.sides is not None:
                    outcome.sides.see(block.actual, right[where], dtype, block.odd, smallest)
            elif outcome.mismatched:
                break
    return outcome


def draw(drawing: Drawing, actual: Array, reference: Array, dtype: DType, allowance: Allowance, ends: Ends) -> Picture:
    """The picture of an output that :func:`compare` has judged by the same allowance."""
    judge = judge_of(allowance, dtype, ends=ends, size=reference.size, with_rounding=False, detailed=True)
    left, right = flat(actual), flat(reference)
    with Quiet():
        for where in _blocks(actual.size):
            block = judge(left[where], right[where], where)
            if allowance.signed_zeros and dtype.is_float and not block.actual.all():
                block = _with_signs(Outcome(), block, right[where], dtype, allowance)
            error = block.error if block.odd is None else np.where(block.odd, 0.0, block.error)
            drawing.add(block, _of_wrong(error / block.bound, block), where.start)
    return drawing.picture()


def wrong_elements(actual: Array, reference: Array, dtype: DType, allowance: Allowance) -> Array:
    """Which elements are wrong, as a mask in the shape of both arrays."""
    judge = judge_of(allowance, dtype, ends=Ends(), size=actual.size, with_rounding=False, detailed=True)
    left, right = flat(actual), flat(reference)
    wrong = np.zeros(actual.size, np.bool_)
    with Quiet():
        for where in _blocks(actual.size):
            block = judge(left[where], right[where], where)
            if block.wrong is not None:
                wrong[where] = block.wrong
    return wrong.reshape(actual.shape)


def _blocks(size: int) -> Iterator[slice]:
    for start in range(0, size, BLOCK):
        yield slice(start, min(start + BLOCK, size))


def _add(outcome: Outcome, block: Judged) -> None:
    outcome.compared += block.actual.size
    if block.wrong is not None:
        outcome.mismatched += int(np.count_nonzero(block.wrong))
        outcome.nonfinite_mismatched += block.nonfinite_mismatched
        outcome.nan_mismatched += block.nan_mismatched
    if block.scatter is not NO_SCATTER:
        outcome.scatter = outcome.scatter.plus(block.scatter)
    if block.rounding is not NO_SCATTER:
        outcome.rounding = outcome.rounding.plus(block.rounding)


def _with_signs(outcome: Outcome, block: Judged, reference: Array, dtype: DType, allowance: Allowance) -> Judged:
    """Count zeros of the wrong sign, and return the block with these as wrong where the allowance says so.

    A true value that is rounded to 0 leaves its sign behind: IEEE 754-2019 §6.3.
    """
    true = widen(reference, quiet=False)
    zeros = (block.actual == 0.0) & (np.abs(true) <= 2.0 ** (dtype.emin - dtype.precision))
    other = zeros & (np.signbit(block.actual) != np.signbit(true))
    before, count = outcome.compared, int(np.count_nonzero(other))
    outcome.zeros += int(np.count_nonzero(zeros))
    if not count:
        return block
    if not outcome.wrong_signs:
        outcome.first_wrong_sign = before + int(other.argmax())
    outcome.wrong_signs += count
    if not allowance.signed_zeros:
        return block
    return block._replace(wrong=other if block.wrong is None else block.wrong | other)


def _detail(outcome: Outcome, block: Judged, offset: int, dtype: DType) -> None:
    error, target, actual, count = block.error, block.target, block.actual, block.error.size
    if not dtype.is_inexact:
        target, actual = target.astype(np.float64), actual.astype(np.float64)
    magnitude = np.abs(target) if block.magnitude is None else block.magnitude
    in_ulp = error / (ulp(magnitude, dtype) if block.spacing is None else block.spacing)
    if block.odd is not None:
        count -= int(np.count_nonzero(block.odd))
        error, target, actual, magnitude = (
            np.where(block.odd, 0.0, each) for each in (error, target, actual, magnitude)
        )
    if count:
        outcome.error = outcome.error.or_larger(_largest(error, offset))
        relative = error / magnitude
        largest = _largest(relative, offset)
        if not largest.value < inf:  # somewhere 0 is expected, to which nothing is relative
            relative[magnitude == 0.0] = -1.0
            largest = _largest(relative, offset)
        outcome.relative = outcome.relative.or_larger(largest)
        if dtype.is_inexact:
            finite = in_ulp if block.odd is None else np.where(block.odd, 0.0, in_ulp)
            outcome.in_ulp = outcome.in_ulp.or_larger(_largest(finite, offset))
    outcome.finite += count
    outcome.squared_error += dot(error, error)
    if dtype.is_complex:  # pairs, whose products are the real part
        actual, target = actual.view(np.float64), target.view(np.float64)
    outcome.actual_squared += dot(actual, actual)
    outcome.target_squared += dot(target, target)
    outcome.product += dot(actual, target)
    used = error / block.bound
    worst = _largest(used, offset)
    if block.wrong is not None or not worst.value < inf:
        worst = _largest(_of_wrong(used, block), offset)
    if worst.value > outcome.worst.value:
        place = worst.place - offset
        outcome.worst = worst
        outcome.worst_actual = block.actual.item(place)
        outcome.worst_target = block.target.item(place)
        outcome.worst_bound = block.bound.item(place)
        outcome.worst_ulp = in_ulp.item(place)


def _of_wrong(used: Array, block: Judged) -> Array:
    """The share of the allowance that each error takes, where elements are wrong or no numbers: more than 1 for every
    wrong one."""
    used[np.isnan(used)] = 0.0  # no error, where none is allowed; what else is no number is wrong
    if block.wrong is not None:
        if block.odd is not None:
            used[block.wrong & block.odd] = inf
        used[block.wrong & ~(used > 1.0)] = inf  # a bit of difference, or a bound that is no number
    return used
