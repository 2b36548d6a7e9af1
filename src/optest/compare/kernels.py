"""Compare two arrays block by block and add up numbers about their differences.

A block is 32,768 elements, so that its float64 temporaries stay in the cache and far below 32 MB together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np

from optest.compare.elements import NO_SCATTER, BlockResult, Ends, Scatter, block_comparison, dot, flat
from optest.compare.fast_tolerance import meets_tolerance
from optest.compare.locate import Sketch
from optest.compare.policy import Allowance, Method
from optest.numerics import Array, Quiet, ulp, widen
from optest.spec import DType

BLOCK = 1 << 15


class Largest(NamedTuple):
    """Largest of a number over all elements, and the flat index of the first element that has it (-1: no element)."""

    value: float = -1.0
    place: int = -1

    def or_larger(self, other: Largest) -> Largest:
        return other if other.value > self.value else self


_NONE = Largest()


def _largest_of_block(values: Array, offset: int) -> Largest:
    """Return the largest of ``values``, whose first one has the flat index ``offset``; NaN counts as the largest."""
    position = int(values.argmax())
    return Largest(values.item(position), offset + position)


@dataclass(slots=True)
class Outcome:
    """Sums over the blocks of one output; the measures need ``detailed``.

    ``mismatched`` counts every wrong element, including the ``nonfinite_mismatched`` ones, which include the
    ``nan_mismatched`` (NaN on one side only). ``scatter`` uses the law's variance, ``rounding`` that of the final
    rounding only. ``zeros`` are elements that are 0 as expected, ``wrong_signs`` those of them with the other sign.
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
    with_signs: bool = False,
) -> Outcome:
    """Compare two arrays of one shape block by block, and return the sums over all blocks.

    Without ``detailed`` it stops at the first block with a wrong element: then only counts and the statistic of a
    passing pair are complete. ``ends`` describes the backend at the ends of the dtype's range. ``with_rounding`` adds
    the statistic of the final rounding if the law has one; ``with_signs`` the zeros of the wrong sign, which are wrong
    if the allowance is strict about them.

    Raises:
        ValueError: if the output dtype cannot hold a value of the reference (integers out of range).
    """
    outcome = Outcome(detailed=detailed)
    with_signs = dtype.is_float and allowance.method is not Method.BITS and (with_signs or allowance.signed_zeros)
    if not detailed and not with_signs and meets_tolerance(actual, reference, dtype, allowance):
        outcome.compared = actual.size
        return outcome
    with Quiet():
        for start, block, right in compared_blocks(
            actual, reference, dtype, allowance, ends, with_rounding=with_rounding, detailed=detailed
        ):
            if with_signs and not block.actual.all():
                block = mark_wrong_signs(outcome, block, right, dtype, allowance)
            _add(outcome, block)
            if detailed:
                _detail(outcome, block, start, dtype)
                if block.wrong is not None:
                    outcome.sketch = outcome.sketch or Sketch(actual.shape)
                    outcome.sketch.add(np.flatnonzero(block.wrong) + start)
            elif outcome.mismatched:
                break
    return outcome


def wrong_elements(actual: Array, reference: Array, dtype: DType, allowance: Allowance) -> Array:
    """Return a mask of the wrong elements, in the shape of both arrays."""
    wrong = np.zeros(actual.size, np.bool_)
    with Quiet():
        for start, block, _ in compared_blocks(actual, reference, dtype, allowance, Ends()):
            if block.wrong is not None:
                wrong[start : start + BLOCK] = block.wrong
    return wrong.reshape(actual.shape)


def compared_blocks(
    actual: Array,
    reference: Array,
    dtype: DType,
    allowance: Allowance,
    ends: Ends,
    *,
    with_rounding: bool = False,
    detailed: bool = True,
) -> Iterator[tuple[int, BlockResult, Array]]:
    """Yield the flat index at which each block begins, its comparison, and its reference values."""
    size = actual.size
    compare_block = block_comparison(
        allowance, dtype, ends=ends, size=size, with_rounding=with_rounding, detailed=detailed
    )
    left, right = flat(actual), flat(reference)
    for start in range(0, size, BLOCK):
        span = slice(start, min(start + BLOCK, size))
        of_block = right[span]
        yield start, compare_block(left[span], of_block, span), of_block


def _add(outcome: Outcome, block: BlockResult) -> None:
    """Add the counts and statistics of a block to ``outcome``."""
    outcome.compared += block.actual.size
    if block.wrong is not None:
        outcome.mismatched += int(np.count_nonzero(block.wrong))
        outcome.nonfinite_mismatched += block.nonfinite_mismatched
        outcome.nan_mismatched += block.nan_mismatched
    if block.scatter is not NO_SCATTER:
        outcome.scatter = outcome.scatter.plus(block.scatter)
    if block.rounding is not NO_SCATTER:
        outcome.rounding = outcome.rounding.plus(block.rounding)


def mark_wrong_signs(
    outcome: Outcome, block: BlockResult, reference: Array, dtype: DType, allowance: Allowance
) -> BlockResult:
    """Count zeros of the wrong sign in ``outcome``; return the block, with them wrong if the allowance is strict."""
    # A true value that is rounded to 0 keeps its sign: IEEE 754-2019 §6.3.
    true = widen(reference, quiet=False)
    zeros = (block.actual == 0.0) & (np.abs(true) <= 2.0 ** (dtype.emin - dtype.precision))
    has_wrong_sign = zeros & (np.signbit(block.actual) != np.signbit(true))
    count = int(np.count_nonzero(has_wrong_sign))
    outcome.zeros += int(np.count_nonzero(zeros))
    if not count:
        return block
    if not outcome.wrong_signs:
        outcome.first_wrong_sign = outcome.compared + int(has_wrong_sign.argmax())
    outcome.wrong_signs += count
    if not allowance.signed_zeros:
        return block
    return block._replace(wrong=has_wrong_sign if block.wrong is None else block.wrong | has_wrong_sign)


def _detail(outcome: Outcome, block: BlockResult, offset: int, dtype: DType) -> None:
    """Add the measures of a block (largest errors, sums of squares, worst element) to ``outcome``."""
    error, target, actual, count = block.error, block.target, block.actual, block.error.size
    if not dtype.is_inexact:
        target, actual = target.astype(np.float64), actual.astype(np.float64)
    magnitude = np.abs(target) if block.magnitude is None else block.magnitude
    in_ulp = error / (ulp(magnitude, dtype) if block.spacing is None else block.spacing)
    if block.odd is not None:
        count -= int(np.count_nonzero(block.odd))
        # Elements that were decided by their class have no error, and their NaN would spread into the sums.
        error, target, actual, magnitude = (np.where(block.odd, 0.0, x) for x in (error, target, actual, magnitude))
    if count:
        outcome.error = outcome.error.or_larger(_largest_of_block(error, offset))
        relative = error / magnitude
        largest = _largest_of_block(relative, offset)
        if not largest.value < inf:  # an expected 0 has no relative error
            relative[magnitude == 0.0] = -1.0
            largest = _largest_of_block(relative, offset)
        outcome.relative = outcome.relative.or_larger(largest)
        if dtype.is_inexact:
            finite = in_ulp if block.odd is None else np.where(block.odd, 0.0, in_ulp)
            outcome.in_ulp = outcome.in_ulp.or_larger(_largest_of_block(finite, offset))
    outcome.finite += count
    outcome.squared_error += dot(error, error)
    if dtype.is_complex:  # as pairs of floats: the sum of their products is the real part
        actual, target = actual.view(np.float64), target.view(np.float64)
    outcome.actual_squared += dot(actual, actual)
    outcome.target_squared += dot(target, target)
    outcome.product += dot(actual, target)
    used = error / block.bound
    worst = _largest_of_block(used, offset)
    if block.wrong is not None or not worst.value < inf:
        worst = _largest_of_block(exceed_one_if_wrong(used, block), offset)
    if worst.value > outcome.worst.value:
        position = worst.place - offset
        outcome.worst = worst
        outcome.worst_actual = block.actual.item(position)
        outcome.worst_target = block.target.item(position)
        outcome.worst_bound = block.bound.item(position)
        outcome.worst_ulp = in_ulp.item(position)


def exceed_one_if_wrong(used: Array, block: BlockResult) -> Array:
    """Correct ``used``, errors in units of their bounds, in place: 0 for NaN, above 1 for every wrong element."""
    used[np.isnan(used)] = 0.0  # 0 / 0: no error and no allowance; every other NaN belongs to a wrong element
    if block.wrong is not None:
        if block.odd is not None:
            used[block.wrong & block.odd] = inf
        used[block.wrong & ~(used > 1.0)] = inf  # bits that differ, or a bound that is NaN
    return used
