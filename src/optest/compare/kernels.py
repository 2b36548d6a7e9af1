"""Numbers about actual against expected, added up block by block, whatever the size; no opinion on what they mean.

A block is 32,768 elements, so that its float64 temporaries stay in the cache and far below 32 MB together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from optest.compare.elements import NO_SCATTER, Ends, Judged, Scatter, dot, flat, judge_of
from optest.compare.locate import Sketch
from optest.compare.policy import Allowance, Method
from optest.compare.sides import Sides, shows_rounding
from optest.compare.within import WIDEST, within_for
from optest.numerics import Array, ulp
from optest.spec import DType

__all__ = ["BLOCK", "Outcome", "compare"]


BLOCK = 1 << 15


@dataclass(slots=True)
class Largest:
    """The largest of some number over all elements, and the flat index of the first that has it."""

    value: float = -1.0
    index: int = -1

    def see(self, values: Array, offset: int) -> bool:
        position = int(values.argmax())
        found = float(values[position])
        if found > self.value:
            self.value, self.index = found, offset + position
            return True
        return False


@dataclass(slots=True)
class Outcome:
    """What the blocks of one output add up to. ``detailed`` says whether all numbers were computed.

    ``mismatched`` counts every wrong element, the ``nonfinite_mismatched`` and among them the ``nan_mismatched``
    (NaN on one side only) included. ``scatter`` is that of the law's variance, ``rounding`` that of the final
    rounding alone.
    """

    compared: int = 0
    mismatched: int = 0
    nonfinite_mismatched: int = 0
    nan_mismatched: int = 0
    scatter: Scatter = NO_SCATTER
    rounding: Scatter = NO_SCATTER
    detailed: bool = False
    worst_index: int = -1
    worst_used: float = -1.0
    worst_actual: Any = None
    worst_target: Any = None
    worst_bound: float = 0.0
    worst_error: float = 0.0
    error: Largest = field(default_factory=Largest)
    relative: Largest = field(default_factory=Largest)
    in_ulp: Largest = field(default_factory=Largest)
    squared_error: float = 0.0
    finite: int = 0
    actual_squared: float = 0.0
    target_squared: float = 0.0
    product: float = 0.0
    sketch: Sketch | None = None
    sides: Sides | None = None

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
) -> Outcome:
    """Compare two arrays of one shape and return what their blocks add up to.

    Without ``detailed`` it stops at the first block with a wrong element: only counts and the statistic of a
    passing pair are complete. ``ends`` is what the backend may do at the ends of the range.
    ``with_rounding`` asks for the statistic of the final rounding too, where the law gives one; ``with_sides`` for the
    sides on which inexact results lie, which are counted where all is ``detailed``.

    Raises:
        ValueError: if the reference holds values that the output dtype cannot (integers out of range).
    """
    outcome = Outcome(detailed=detailed, sketch=Sketch(actual.shape) if detailed else None)
    if not detailed and _plainly_within(actual, reference, dtype, allowance):
        outcome.compared = actual.size
        return outcome
    judge = judge_of(allowance, dtype, ends=ends, size=reference.size, with_rounding=with_rounding, detailed=detailed)
    left, right = flat(actual), flat(reference)
    if with_sides and shows_rounding(dtype, reference, allowance):
        outcome.sides = Sides()
    smallest = 2.0**dtype.emin if ends.flush else 0.0
    with np.errstate(all="ignore"):
        for where in _blocks(actual.size):
            block = judge(left[where], right[where], where)
            _add(outcome, block)
            if detailed:
                _detail(outcome, block, where.start, dtype)
                if outcome.sides is not None:
                    outcome.sides.see(block.actual, right[where], dtype, block.odd, smallest)
            elif outcome.mismatched:
                break
    return outcome


def _blocks(size: int) -> Iterator[slice]:
    for start in range(0, size, BLOCK):
        yield slice(start, min(start + BLOCK, size))


def _plainly_within(actual: Array, reference: Array, dtype: DType, allowance: Allowance) -> bool:
    """Whether a same-dtype pair meets rtol and atol by the fast test; False is "not known"."""
    if allowance.method is not Method.TOLERANCE or reference.dtype != actual.dtype:
        return False
    within = within_for(dtype, allowance.rtol, allowance.atol)
    if within is None or not (actual.flags.c_contiguous and reference.flags.c_contiguous):
        return False
    left, right = actual.reshape(-1), reference.reshape(-1)
    with np.errstate(all="ignore"):
        starts = range(0, actual.size, WIDEST)
        return all(within(left[start : start + WIDEST], right[start : start + WIDEST]) for start in starts)


def _add(outcome: Outcome, block: Judged) -> None:
    outcome.compared += block.actual.size
    if block.wrong is not None:
        outcome.mismatched += int(np.count_nonzero(block.wrong))
    outcome.nonfinite_mismatched += block.nonfinite_mismatched
    outcome.nan_mismatched += block.nan_mismatched
    outcome.scatter = outcome.scatter.plus(block.scatter)
    outcome.rounding = outcome.rounding.plus(block.rounding)


def _detail(outcome: Outcome, block: Judged, offset: int, dtype: DType) -> None:
    error, target, actual = block.error, block.target, block.actual
    if not dtype.is_inexact:
        target, actual = target.astype(np.float64), actual.astype(np.float64)
    magnitude = np.abs(target)
    if block.odd is not None:
        keep = ~block.odd
        error = np.where(keep, error, 0.0)
        magnitude = np.where(keep, magnitude, 0.0)
        target, actual = np.where(keep, target, 0.0), np.where(keep, actual, 0.0)
        outcome.finite += int(np.count_nonzero(keep))
    else:
        outcome.finite += error.size
    if block.odd is None or bool(keep.any()):
        outcome.error.see(error, offset)
        outcome.relative.see(np.divide(error, magnitude, out=np.full(error.shape, -1.0), where=magnitude > 0), offset)
        if dtype.is_inexact:
            outcome.in_ulp.see(error / ulp(magnitude, dtype), offset)
    outcome.squared_error += dot(error, error)
    left, right = actual.view(np.float64), target.view(np.float64)  # complex: pairs, whose products are the real part
    outcome.actual_squared += dot(left, left)
    outcome.target_squared += dot(right, right)
    outcome.product += dot(left, right)
    _find_worst(outcome, block, error, offset)
    if block.wrong is not None and outcome.sketch is not None:
        outcome.sketch.add(np.flatnonzero(block.wrong) + offset)


def _find_worst(outcome: Outcome, block: Judged, error: Array, offset: int) -> None:
    used = np.divide(error, block.bound, out=np.full(error.shape, np.inf), where=block.bound > 0)
    used[error == 0] = 0.0
    if block.wrong is not None:
        if block.odd is not None:
            used[block.wrong & block.odd] = np.inf
        used[block.wrong & ~(used > 1.0)] = np.inf  # a bit of difference, or a bound that is no number
    position = int(used.argmax())
    if float(used[position]) > outcome.worst_used:
        outcome.worst_used = float(used[position])
        outcome.worst_index = offset + position
        outcome.worst_actual = block.actual[position]
        outcome.worst_target = block.target[position]
        outcome.worst_bound = float(block.bound[position])
        outcome.worst_error = float(block.error[position])
