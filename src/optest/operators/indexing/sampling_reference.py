"""References and accepted alternatives of top_k_top_p_mask and top_k_top_p_sampling, and the test of frequencies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from optest.numerics import numpy_dtype
from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    as_float64,
    infer_from_arrays,
    optional_input,
    quiet_hooks,
)
from optest.operators.budgets import exponential_sum, unit_roundoff
from optest.operators.indexing.sampling import infer_top_k_top_p_mask, infer_top_k_top_p_sampling
from optest.operators.indexing.sort_reference import same_bits_or_nan
from optest.spec import AsRight, UnfitArguments

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_ENOUGH_ROWS = 512
_SHOWN_TOKENS = 3
_FALSE_ALARM = 1e-12


class _Kept(NamedTuple):
    """Masks over logits (rows x width) for a call with top_k and top_p, and the probabilities of the draw."""

    possible: Array  # may be kept within rounding errors
    sure: Array  # is kept in spite of rounding errors
    in_reference: Array  # is kept by the reference
    least: Array  # minimum number of kept logits of each row
    probabilities: Array  # probabilities by which the reference draws


def top_k_top_p_mask_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return logits with −∞ outside of top_k and top_p; of equal logits the first are kept."""
    (logits, *_), _ = infer_from_arrays(infer_top_k_top_p_mask, inputs, attributes)
    out = np.array(logits)
    out[~_kept_masks(inputs).in_reference] = -np.inf
    return (out,)


def top_k_top_p_mask_alternatives(inputs: Inputs, _attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Return a mask that accepts logits that may be kept and −∞ for those that may be dropped, in rows that keep
    enough."""
    kept, out = _kept_masks(inputs), np.asarray(actual[0])
    same = same_bits_or_nan(out, np.asarray(inputs[0])) & kept.possible
    enough = same.sum(1, keepdims=True) >= kept.least[:, None]
    return ((same | ((out == -np.inf) & ~kept.sure)) & enough,)


def top_k_top_p_sampling_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return one index per row, by inversion of evenly spread numbers, multiples of the golden ratio."""
    _, (spec,) = infer_from_arrays(infer_top_k_top_p_sampling, inputs, attributes)
    probabilities = _kept_masks(inputs).probabilities
    numbers = np.arange(1, len(probabilities) + 1) * _GOLDEN % 1.0
    drawn = (np.cumsum(probabilities, 1) <= numbers[:, None]).sum(1)
    # If rounding leaves the sum below the number, the last possible index is drawn.
    last = probabilities.shape[1] - 1 - np.argmax(probabilities[:, ::-1] > 0.0, axis=1)
    return (np.minimum(drawn, last).astype(numpy_dtype(spec.dtype)),)


def top_k_top_p_sampling_alternatives(
    inputs: Inputs, _attributes: Attributes, actual: Sequence[Array]
) -> Sequence[Any]:
    """Return a mask that accepts indices that may be kept, and rejects equal rows with wrong frequencies."""
    drawn, kept = np.asarray(actual[0]).astype(np.int64), _kept_masks(inputs)
    inside = (drawn >= 0) & (drawn < kept.probabilities.shape[1])
    mask = inside & np.take_along_axis(kept.possible, np.where(inside, drawn, 0)[:, None], 1)[:, 0]
    uneven = ""
    rows = np.concatenate([as_float64(x).reshape(len(drawn), -1) for x in inputs if x is not None], axis=1)
    if len(rows) >= _ENOUGH_ROWS:
        _, groups, sizes = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
        for group in np.flatnonzero(sizes >= _ENOUGH_ROWS):
            equal_rows = np.flatnonzero(groups.reshape(-1) == group)
            # A group with logits that may or may not be kept has no known probabilities.
            is_certain = not (kept.possible[equal_rows[0]] != kept.sure[equal_rows[0]]).any()
            if (
                is_certain
                and mask[equal_rows].all()
                and (message := _uneven(drawn[equal_rows], kept.probabilities[equal_rows[0]]))
            ):
                mask[equal_rows] = False
                uneven = uneven or message
    return (AsRight(mask, uneven=uneven),)


def _uneven(drawn: Array, p: Array) -> str:
    """Return a message if the draws contradict the probabilities `p`, else an empty string.

    Of n draws, index i is expected n·p[i] times, and the mean of log p is compared, which a wrong temperature changes
    most. By Bernstein, a sum of n numbers of variance v that differ from their mean by at most m is off by t or more
    with a probability of 2·exp(−t²/(2n·v + 2m·t/3)), which is set to the false-alarm rate of each sum.
    """
    count, log_rate = len(drawn), math.log(2.0 * (p.size + 1) / _FALSE_ALARM)

    def margin(variance: Any, most: Any) -> Any:
        return log_rate * most / 3.0 + np.sqrt((log_rate * most / 3.0) ** 2 + 2.0 * log_rate * count * variance)

    counts, margins = np.bincount(drawn, minlength=p.size), margin(p * (1.0 - p), 1.0)
    share_of_margin = np.abs(counts - count * p) / margins
    log_p = np.log(p, out=np.zeros_like(p), where=p > 0.0)
    mean = float(p @ log_p)
    deviation = np.where(p > 0.0, log_p - mean, 0.0)
    bias, bias_margin = float(counts @ deviation), float(margin(p @ deviation**2, np.abs(deviation).max()))
    if share_of_margin.max() <= 1.0 and abs(bias) <= bias_margin:
        return ""
    findings = [
        f"index {i} is drawn {counts[i]} times, expected {count * p[i]:.0f} ± {margins[i]:.0f}"
        for i in np.argsort(-share_of_margin)[:_SHOWN_TOKENS]
    ]
    if abs(bias) > bias_margin:
        findings.append(f"{'less' if bias < 0 else 'more'} likely indices too often, as with a wrong temperature")
    return f"{count} draws from equal rows: {'; '.join(findings)}"


def _kept_masks(inputs: Inputs) -> _Kept:
    """Compute which logits may be kept, must be kept, and are kept by the reference.

    The sum of larger probabilities is off by twice the error of a sum of exponentials, and 16 u of the total. Equal
    logits may come in any order; those at the end of top_k may all be kept, which makes the total larger.
    """
    stored, top_k, top_p = np.asarray(inputs[0]), optional_input(inputs, 1), optional_input(inputs, 2)
    x, width = as_float64(stored), stored.shape[1]
    count = np.full((len(x), 1), width) if top_k is None else top_k.astype(np.int64)[:, None]
    share = np.full((len(x), 1), np.inf) if top_p is None else as_float64(top_p)[:, None]
    if (count < 1).any() or (count > width).any():
        raise UnfitArguments(f"top_k is {count.min()} to {count.max()}, expected 1 to {width}")
    order = np.argsort(-x, axis=1, kind="stable")
    s = np.take_along_axis(x, order, 1)
    terms = np.exp(s - s[:, :1])
    sums = np.concatenate((np.zeros((len(x), 1)), np.cumsum(terms, 1)), axis=1)
    positions = np.broadcast_to(np.arange(width), s.shape)
    # first and last are the ends of each run of equal logits, which may be kept in any order.
    starts = np.concatenate((np.ones((len(x), 1), np.bool_), s[:, 1:] != s[:, :-1]), axis=1)
    first = np.maximum.accumulate(np.where(starts, positions, 0), axis=1)
    ends = np.concatenate((starts[:, 1:], np.ones((len(x), 1), np.bool_)), axis=1)
    last = np.minimum.accumulate(np.where(ends, positions + 1, width)[:, ::-1], axis=1)[:, ::-1]
    lowest, beyond = (np.take_along_axis(values, count - 1, 1) for values in (s, last))
    smallest_total, largest_total = (np.take_along_axis(sums, values, 1) for values in (count, beyond))
    error = unit_roundoff(stored) * (2.0 * exponential_sum(x, 1, double=False).worst + 16.0)
    before = sums[:, :-1]

    drawable = s > -np.inf
    possible = drawable & (s >= lowest) & (np.take_along_axis(sums, first, 1) <= (share + error) * largest_total)
    surely = (share - error) * smallest_total
    sure = drawable & ((s > lowest) | (beyond <= count)) & (s >= lowest)
    sure &= (np.take_along_axis(sums, last, 1) - terms < surely) | (last == 1)
    in_reference = (positions < count) & ((before < share * smallest_total) | (positions == 0))
    number = np.maximum(1, (drawable & (positions < count) & (before < surely)).sum(1))
    chosen = np.where(in_reference, terms, 0.0)
    probabilities = chosen / chosen.sum(1, keepdims=True)
    original = np.argsort(order, 1)
    possible, sure, in_reference, probabilities = (
        np.take_along_axis(values, original, 1) for values in (possible, sure, in_reference, probabilities)
    )
    return _Kept(possible, sure, in_reference, number, probabilities)


quiet_hooks(globals())
