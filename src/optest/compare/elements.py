"""Right and wrong elements of a block: by their class (NaN, infinity, overflow), by bits, or by a bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from optest.compare.bounds import NEGLIGIBLE, Budget, Law, Statistic
from optest.compare.policy import Allowance, Method
from optest.numerics import Array, bits, round_to, ulp, widen
from optest.spec import DType, Kind

# Callers silence NumPy; its casts of 16-bit blocks are as fast as loops over their bits (NumPy 2.4, ml_dtypes 0.6).
_widened = partial(widen, quiet=False)


@dataclass(frozen=True, slots=True)
class Scatter:
    """Σ error²/variance, and the number of elements in it."""

    total: float = 0.0
    elements: int = 0

    def plus(self, other: Scatter) -> Scatter:
        return Scatter(self.total + other.total, self.elements + other.elements)

    @property
    def z(self) -> float | None:
        """Root of the mean of error²/variance; None without elements, NaN (beyond every limit) if the sum is NaN."""
        if not self.elements:
            return None
        return math.sqrt(self.total / self.elements) if self.total >= 0.0 else math.nan


NO_SCATTER = Scatter()


class BlockResult(NamedTuple):
    """Comparison of one block: the arrays, their distance, and the wrong elements.

    ``wrong`` and ``odd`` are None if every element is right and finite; ``odd`` marks elements that were decided by
    their class (NaN, infinity, overflow) and have no error. ``magnitude`` and ``spacing`` are those of the target, if
    they were needed.
    """

    actual: Array
    target: Array
    error: Array
    bound: Array
    wrong: Array | None = None
    odd: Array | None = None
    nan_mismatched: int = 0
    nonfinite_mismatched: int = 0
    scatter: Scatter = NO_SCATTER
    rounding: Scatter = NO_SCATTER
    magnitude: Array | None = None
    spacing: Array | None = None


def flat(array: Any) -> Any:
    """Return a 1-d view whose slices are arrays in row-major order; only blocks of a strided array are copied."""
    return array.reshape(-1) if array.flags.c_contiguous else array.flat


def _slicer(values: Any, size: int) -> Callable[[slice], Any]:
    """Return a function from a slice to these values there: one number for all elements, or an array of ``size``."""
    if type(values) is float:
        return lambda _: values
    array = np.asarray(values)
    if not array.ndim:
        number = float(array)
        return lambda _: number
    source = flat(array)
    if array.size != size:
        raise ValueError(f"terms have {array.size} elements, expected {size}, one for each output element")
    return lambda span: source[span]


CompareBlock = Callable[[Array, Array, slice], BlockResult]


class Ends(NamedTuple):
    """Behaviour of a backend at the ends of a dtype's range.

    ``flush``: zeros in place of subnormal results. ``saturate``: the largest finite value in place of infinity.
    """

    flush: bool = False
    saturate: bool = False


def block_comparison(
    allowance: Allowance, dtype: DType, *, ends: Ends, size: int, with_rounding: bool, detailed: bool
) -> CompareBlock:
    """Return the function that compares a block of an output by its allowance: integers, bits, law or tolerance.

    ``size`` is that of the output. Without ``detailed``, rules of ulp only use a fast sufficient test first.
    """
    if not dtype.is_inexact:
        return _compare_integers(allowance, dtype)
    if allowance.method is Method.BITS:
        return _compare_bits(dtype)
    if allowance.law is not None:
        law = allowance.law
        exact = _compare_by_law(law, allowance.budget, dtype, ends=ends, size=size, with_rounding=with_rounding)
        if detailed or ends.flush or dtype.is_complex or law.per_term or law.statistic is Statistic.SUM:
            return exact
        return _compare_by_ulps_first(law, dtype, exact, size)
    return _compare_by_tolerance(allowance.rtol, allowance.atol, dtype, ends)


def _compare_by_tolerance(rtol: float, atol: float, dtype: DType, ends: Ends) -> CompareBlock:
    """Return a function that compares a block with |err| <= atol + rtol·|expected rounded to ``dtype``|."""
    smallest_normal = 2.0**dtype.emin

    def compare_block(actual: Array, reference: Array, _: slice) -> BlockResult:
        target = _widened(round_to(reference, dtype))
        magnitude = np.abs(target)
        wide = target if reference.dtype == actual.dtype else _widened(reference)
        if not np.isfinite(magnitude.max(initial=0.0)):  # a finite reference beyond the overflow has a bound too
            magnitude = np.where(np.isfinite(target), magnitude, np.abs(wide))
        bound = rtol * magnitude
        bound += atol
        if ends.flush:
            bound[magnitude < smallest_normal] += smallest_normal
        return _compare_floats(
            _widened(actual), target, wide, bound, dtype, ends.saturate, lambda part, _: atol + rtol * part
        )

    return compare_block


def _compare_by_law(
    law: Law, budget: Budget, dtype: DType, *, ends: Ends, size: int, with_rounding: bool
) -> CompareBlock:
    """Return a function that compares a block with the bound of a law and adds up the law's statistics."""
    smallest_normal = 2.0**dtype.emin
    ulp_arithmetic, ulp_output = partial(ulp, dtype=law.arithmetic), partial(ulp, dtype=dtype)
    is_one = law.arithmetic is dtype
    totals = _slicer(budget.total, size)
    if law.statistic is Statistic.SUM:
        squares, weights = _slicer(budget.squares, size), _slicer(budget.weight, size)

    def compare_block(actual: Array, reference: Array, span: slice) -> BlockResult:
        wide = _widened(reference)
        magnitude = np.abs(wide)
        spacing = ulp_output(magnitude)
        total = totals(span)
        arithmetic = law.arithmetic_error(magnitude, total, (lambda _: spacing) if is_one else ulp_arithmetic)
        bound = law.bound(magnitude, arithmetic, ulp_output)
        if not isinstance(bound, np.ndarray):  # a rule of 0 ulp
            bound = np.full(magnitude.shape, bound)
        tiny = magnitude < smallest_normal if ends.flush else None
        if tiny is not None:
            bound = bound + np.where(tiny, smallest_normal, 0.0)

        def bound_of_part(part: Array, at: Array) -> Array:
            lost = law.arithmetic_error(part, total[at] if np.ndim(total) else total, ulp_arithmetic)
            return np.asarray(law.bound(part, lost, ulp_output))

        block = _compare_floats(_widened(actual), wide, wide, bound, dtype, ends.saturate, bound_of_part)
        if law.statistic is Statistic.NONE:
            return block._replace(magnitude=magnitude, spacing=spacing)
        left_out = block.odd if tiny is None else tiny if block.odd is None else block.odd | tiny
        variance = rounding_residue(wide, spacing, dtype)
        # Elements whose final rounding the arithmetic cannot have changed.
        untouched = arithmetic <= NEGLIGIBLE * spacing if with_rounding else None
        if untouched is not None and not law.expected_rounded:
            untouched &= variance != 0.0
        variance *= variance
        least = spacing * spacing
        least *= 1.0 / 12.0
        np.maximum(variance, least, out=variance)
        scatter = rounding = NO_SCATTER
        if untouched is not None:
            rounding = _scatter_of(block.error, left_out, variance, untouched)
        if law.statistic is Statistic.SUM:
            if law.expected_rounded:
                variance += least  # the rounding of the expected values, ulp²/12
            variance += law.sum_variance(magnitude, squares(span), weights(span))
            scatter = _scatter_of(block.error, left_out, variance, None)
        return block._replace(magnitude=magnitude, spacing=spacing, scatter=scatter, rounding=rounding)

    return compare_block


# One block in eight, and the last, is compared exactly for the statistic of its final rounding.
_SAMPLED = 8


def _compare_by_ulps_first(law: Law, dtype: DType, exact: CompareBlock, size: int) -> CompareBlock:
    """Return a function that accepts a block by a fast sufficient test in ulp, and else calls ``exact``."""
    per_power = law.ulps * 2.0 ** (1 - law.arithmetic.precision) + law.final * 2.0 ** (1 - dtype.precision)
    least = (law.final or law.ulps) * 2.0 ** (dtype.emin + 1 - dtype.precision)

    def compare_block(actual: Array, reference: Array, span: slice) -> BlockResult:
        sampled = span.start // (span.stop - span.start) % _SAMPLED == 0 or span.stop == size
        if law.statistic is Statistic.NONE or not sampled:
            wide, target = _widened(actual), _widened(reference)
            # The bound at the power of two below |y|, where it is least.
            bound: Array = (target.view(np.uint64) & _EXPONENT).view(np.float64)
            bound *= per_power
            np.maximum(bound, least, out=bound)
            error = wide - target
            np.abs(error, out=error)
            if bool((error - bound).max() <= 0.0):  # NaN and infinity on either side make it false
                return BlockResult(wide, target, error, bound)
        return exact(actual, reference, span)

    return compare_block


_EXPONENT = np.uint64(0x7FF0_0000_0000_0000)


def rounding_residue(values: Array, spacing: Array, dtype: DType) -> Array:
    """Return |round(y) - y| for rounding to ``dtype``; for complex values its expectation, √(1/6) ulp."""
    if dtype.precision >= 53:
        return np.zeros_like(spacing)
    if dtype.is_complex:
        return np.asarray(spacing * (1.0 / 6.0) ** 0.5)
    # Adding and subtracting 1.5·2^52 ulp rounds to multiples of an ulp, ties to even.
    shift = spacing * (1.5 * 2.0**52)
    rounded = values + shift
    rounded -= shift
    rounded -= values
    np.abs(rounded, out=rounded)
    return rounded


def _scatter_of(error: Array, left_out: Array | None, variance: Array, chosen: Array | None) -> Scatter:
    """Return Σ error²/variance over the chosen elements (None: all) without those that are left out."""
    if left_out is not None:
        chosen = ~left_out if chosen is None else chosen & ~left_out
        error = np.where(left_out, 0.0, error)
        variance = np.where(left_out, 1.0, variance)  # an infinite y has no spacing, and its NaN would spread
    share = error / np.maximum(variance, 1e-300)
    if chosen is None:
        return Scatter(dot(share, error), error.size)
    share *= chosen
    return Scatter(dot(share, error), int(np.count_nonzero(chosen)))


def dot(left: Array, right: Array) -> float:
    """Return the sum of products."""
    if left.size <= 8192:
        return float(left.dot(right))
    # Above 10,000 elements ``np.dot`` would start threads that fight with worker processes.
    return float(np.einsum("i,i->", left, right))


def overflow_threshold(dtype: DType) -> float:
    """Return the magnitude from which rounding to nearest overflows: half a gap above the largest finite number."""
    if dtype.precision >= 53:
        return dtype.max_finite
    return dtype.max_finite + 2.0 ** (dtype.emax - dtype.precision)


# Function of the magnitudes of one component of complex elements and their indices in the block: their bounds.
_BoundOfPart = Callable[[Array, Array], Array]


def _compare_floats(
    actual: Array,
    target: Array,
    reference: Array,
    bound: Array,
    dtype: DType,
    saturate: bool,
    bound_of_part: _BoundOfPart,
) -> BlockResult:
    """Compare a block of floats: right if the error is within a finite bound, or by class (NaN, infinity, overflow).

    ``target`` are the expected values that errors are measured from, ``reference`` the unrounded ones.
    """
    error = np.abs(actual - target)
    right = error <= bound
    if np.logical_and.reduce(right) and np.maximum.reduce(bound) < np.inf:
        return BlockResult(actual, target, error, bound)
    right &= np.isfinite(bound)
    at = np.flatnonzero(~right)
    pair = (actual[at], reference[at], bound[at])
    if dtype.is_complex:
        # Component by component: one is right by class, the other too or within the bound at its magnitude.
        is_right, by_class = np.ones(at.shape, np.bool_), np.zeros(at.shape, np.bool_)
        for part, want in ((actual[at].real, target[at].real), (actual[at].imag, target[at].imag)):
            bound_at = bound_of_part(np.abs(want), at)
            of_class = _right_by_class(part, want, bound_at, dtype, saturate)
            is_right &= of_class | ((np.abs(part - want) <= bound_at) & np.isfinite(bound_at))
            by_class |= of_class
        by_class &= is_right
    else:
        by_class = _right_by_class(*pair, dtype, saturate)
    wrong_at = at[~by_class]
    nonfinite = ~(np.isfinite(pair[0]) & np.isfinite(pair[1]) & (np.abs(pair[1]) < overflow_threshold(dtype)))
    odd = np.zeros(actual.shape, np.bool_)
    odd[at[by_class | nonfinite]] = True
    if not wrong_at.size:
        return BlockResult(actual, target, error, bound, odd=odd)
    wrong = np.zeros(actual.shape, np.bool_)
    wrong[wrong_at] = True
    nan_differs = (np.isnan(pair[0]) != np.isnan(pair[1])) & ~by_class
    return BlockResult(
        actual,
        target,
        error,
        bound,
        wrong=wrong,
        odd=odd,
        nan_mismatched=int(np.count_nonzero(nan_differs)),
        nonfinite_mismatched=int(np.count_nonzero(nonfinite & ~by_class)),
    )


def _right_by_class(actual: Array, reference: Array, bound: Array, dtype: DType, saturate: bool) -> Array:
    """Return a mask of elements that are right by class: NaN for NaN, infinity of the same sign, overflow.

    Where the reference overflows, infinity and the largest finite value are right; beyond the overflow by more than the
    bound, the latter only if the backend may saturate.
    """
    both_nan = np.isnan(actual) & np.isnan(reference)
    top = np.copysign(dtype.max_finite, reference)
    # An error budget can overflow where the exact result does: infinity is its correct rounding whatever the budget is.
    bound = np.where(np.isfinite(bound), bound, 0.0)
    beyond = (np.abs(reference) + bound >= overflow_threshold(dtype)) & np.isfinite(reference)
    at_top = actual == top
    if dtype.has_infinity:
        if not saturate:
            at_top &= np.abs(reference) - bound < overflow_threshold(dtype)
        same_infinity = np.isinf(reference) & (actual == reference)
        overflowed = beyond & ((actual == np.copysign(np.inf, reference)) | at_top)
        return np.asarray(both_nan | same_infinity | overflowed)
    # A dtype without infinity has two modes by definition (OCP 8-bit floating point), NaN and the largest finite value:
    # ml_dtypes has the one and torch the other.
    beyond |= np.isinf(reference)
    return np.asarray(both_nan | (beyond & (np.isnan(actual) | at_top)))


def _compare_bits(dtype: DType) -> CompareBlock:
    """Return a function that compares a block of moved elements: equal bits, or NaN for NaN."""

    def compare_block(actual: Array, reference: Array, _: slice) -> BlockResult:
        moved = round_to(reference, dtype)
        wide_actual, wide_target = _widened(actual), _widened(moved)
        same = _same_bits(actual, moved, dtype)
        error = np.abs(wide_actual - wide_target)
        bound = np.zeros(error.shape)
        odd = ~(np.isfinite(wide_actual) & np.isfinite(wide_target))
        if bool(same.all()):
            return BlockResult(wide_actual, wide_target, error, bound, odd=odd if odd.any() else None)
        wrong = ~same
        nan_differs = np.isnan(wide_actual) != np.isnan(wide_target)
        return BlockResult(
            wide_actual,
            wide_target,
            error,
            bound,
            wrong=wrong,
            odd=odd,
            nan_mismatched=int(np.count_nonzero(nan_differs & wrong)),
            nonfinite_mismatched=int(np.count_nonzero(odd & wrong)),
        )

    return compare_block


def _same_bits(actual: Array, moved: Array, dtype: DType) -> Array:
    """Return a mask of elements with equal bits, or NaN on both sides; complex ones in both components."""
    if not dtype.is_complex:
        return np.asarray((bits(actual) == bits(moved)) | (np.isnan(actual) & np.isnan(moved)))
    part = np.dtype(np.float32 if dtype.bits == 64 else np.float64)
    left = np.ascontiguousarray(actual).view(part)
    right = np.ascontiguousarray(moved).view(part)
    same = (bits(left) == bits(right)) | (np.isnan(left) & np.isnan(right))
    return np.asarray(same.reshape(-1, 2).all(axis=1))


def _compare_integers(allowance: Allowance, dtype: DType) -> CompareBlock:
    """Return a function that compares a block of integers or bool: equal, or within an explicit tolerance."""
    exact = allowance.method is not Method.TOLERANCE or allowance.rtol == allowance.atol == 0.0

    def compare_block(actual: Array, reference: Array, _: slice) -> BlockResult:
        target = round_to(reference, dtype)
        left, right = _widened(actual), _widened(target)
        different = left != right
        if not bool(different.any()):
            nothing = np.zeros(left.shape)
            return BlockResult(left, right, nothing, nothing)
        distance = _integer_distance(left, right, dtype)
        error = distance.astype(np.float64)
        bound = np.zeros(error.shape)
        if not exact:
            bound = allowance.atol + allowance.rtol * np.abs(right.astype(np.float64))
            # In whole numbers; a bound of 2^64 and more accepts every distance, infinity and NaN none.
            is_finite, is_huge = np.isfinite(bound), bound >= 2.0**64
            allowed = np.where(is_finite & ~is_huge, np.floor(bound), 0.0).astype(np.uint64)
            different = ~(((distance <= allowed) | is_huge) & is_finite)
        return BlockResult(left, right, error, bound, wrong=different if different.any() else None)

    return compare_block


def _integer_distance(left: Array, right: Array, dtype: DType) -> Array:
    """Return |a - b| as uint64."""
    if dtype.kind is Kind.BOOL:
        return np.asarray(left != right, dtype=np.uint64)
    signed = dtype.kind is Kind.INT
    wide = np.int64 if signed else np.uint64
    first, second = left.astype(wide), right.astype(wide)
    # Modulo 2^64 the difference of the views is the true one, also for int64 of different signs.
    larger, smaller = np.maximum(first, second), np.minimum(first, second)
    return np.asarray(larger.view(np.uint64) - smaller.view(np.uint64))
