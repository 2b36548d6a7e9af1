"""What is drawn from, what is as right where ends are close, and how often each token is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from optest.numerics import numpy_dtype
from optest.operators.arrays import Array, Attributes, Inputs, as_float64, inferred, optional_input, quiet_hooks
from optest.operators.budgets import exponential_sum, unit_roundoff
from optest.operators.indexing.sampling import infer_top_k_top_p_mask, infer_top_k_top_p_sampling
from optest.operators.indexing.sort_reference import same_bits
from optest.spec import AsRight, UnfitArguments

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_ENOUGH_ROWS = 512
_SHOWN_TOKENS = 3
_FALSE_ALARM = 1e-12


class _Kept(NamedTuple):
    """Of each logit whether it may be kept, is kept whatever the arithmetic does, and is kept by the reference; of each
    row the least number that is kept; and the probabilities that the reference draws by."""

    possible: Array
    sure: Array
    own: Array
    least: Array
    shares: Array


def top_k_top_p_mask_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The first of equal logits."""
    (logits, *_), _ = inferred(infer_top_k_top_p_mask, inputs, attributes)
    out = np.array(logits)
    out[~_kept(inputs).own] = -np.inf
    return (out,)


def top_k_top_p_mask_alternatives(inputs: Inputs, _attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Logits that may be kept, -∞ where one may be left out, in rows that keep enough of them."""
    kept, out = _kept(inputs), np.asarray(actual[0])
    same = same_bits(out, np.asarray(inputs[0])) & kept.possible
    enough = same.sum(1, keepdims=True) >= kept.least[:, None]
    return ((same | ((out == -np.inf) & ~kept.sure)) & enough,)


def top_k_top_p_sampling_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """By inversion of numbers that are spread evenly over rows, multiples of the golden ratio."""
    _, (spec,) = inferred(infer_top_k_top_p_sampling, inputs, attributes)
    shares = _kept(inputs).shares
    numbers = np.arange(1, len(shares) + 1) * _GOLDEN % 1.0
    drawn = (np.cumsum(shares, 1) <= numbers[:, None]).sum(1)
    last = shares.shape[1] - 1 - np.argmax(shares[:, ::-1] > 0.0, axis=1)  # where the sum ends below its number
    return (np.minimum(drawn, last).astype(numpy_dtype(spec.dtype)),)


def top_k_top_p_sampling_alternatives(
    inputs: Inputs, _attributes: Attributes, actual: Sequence[Array]
) -> Sequence[Any]:
    """Any logit that may be kept and has a probability; of equal rows, none of draws that do not follow these."""
    drawn, kept = np.asarray(actual[0]).astype(np.int64), _kept(inputs)
    inside = (drawn >= 0) & (drawn < kept.shares.shape[1])
    mask = inside & np.take_along_axis(kept.possible, np.where(inside, drawn, 0)[:, None], 1)[:, 0]
    uneven = ""
    rows = np.concatenate([as_float64(each).reshape(len(drawn), -1) for each in inputs if each is not None], axis=1)
    if len(rows) >= _ENOUGH_ROWS:
        _, groups, sizes = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
        for group in np.flatnonzero(sizes >= _ENOUGH_ROWS):
            places = np.flatnonzero(groups.reshape(-1) == group)
            certain = not (kept.possible[places[0]] != kept.sure[places[0]]).any()
            if certain and mask[places].all() and (words := _uneven(drawn[places], kept.shares[places[0]])):
                mask[places] = False
                uneven = uneven or words
    return (AsRight(mask, uneven=uneven),)


def _uneven(drawn: Array, p: Array) -> str:
    """How draws do not follow the probabilities p, empty where they may: each logit is drawn n·p times of n, and
    log p is its mean on average, which another temperature moves most.

    A sum of n numbers of variance v that differ from their mean by m at most is off by t or more in a share of
    2·exp(−t²/(2n·v + 2m·t/3)), by Bernstein; here that is a false alarm's share for each of these sums.
    """
    n, least = len(drawn), math.log(2.0 * (p.size + 1) / _FALSE_ALARM)

    def allowed(variance: Any, most: Any) -> Any:
        return least * most / 3.0 + np.sqrt((least * most / 3.0) ** 2 + 2.0 * least * n * variance)

    counts, ends = np.bincount(drawn, minlength=p.size), allowed(p * (1.0 - p), 1.0)
    used = np.abs(counts - n * p) / ends
    likely = np.log(p, out=np.zeros_like(p), where=p > 0.0)
    mean = float(p @ likely)
    apart = np.where(p > 0.0, likely - mean, 0.0)
    lean, end = float(counts @ apart), float(allowed(p @ apart**2, np.abs(apart).max()))
    if used.max() <= 1.0 and abs(lean) <= end:
        return ""
    tokens = [
        f"{each} is drawn {counts[each]} times, but should be {n * p[each]:.0f} ± {ends[each]:.0f}"
        for each in np.argsort(-used)[:_SHOWN_TOKENS]
    ]
    if abs(lean) > end:
        tokens.append(f"{'less' if lean < 0 else 'more'} likely ones too often, as by another temperature")
    return f"{n} draws from equal rows: {'; '.join(tokens)}"


def _kept(inputs: Inputs) -> _Kept:
    """The sum of larger probabilities is off by what a sum of exponentials loses, twice, and 16 u of the whole.

    Equal logits may come in any order; those at the end of top_k may all be kept, which makes the whole larger.
    """
    stored, top_k, top_p = np.asarray(inputs[0]), optional_input(inputs, 1), optional_input(inputs, 2)
    x, width = as_float64(stored), stored.shape[1]
    count = np.full((len(x), 1), width) if top_k is None else top_k.astype(np.int64)[:, None]
    share = np.full((len(x), 1), np.inf) if top_p is None else as_float64(top_p)[:, None]
    if (count < 1).any() or (count > width).any():
        raise UnfitArguments(f"top_k is {count.min()} to {count.max()}, but should be 1 to {width}")
    order = np.argsort(-x, axis=1, kind="stable")
    s = np.take_along_axis(x, order, 1)
    terms = np.exp(s - s[:, :1])
    sums = np.concatenate((np.zeros((len(x), 1)), np.cumsum(terms, 1)), axis=1)
    places = np.broadcast_to(np.arange(width), s.shape)
    starts = np.concatenate((np.ones((len(x), 1), np.bool_), s[:, 1:] != s[:, :-1]), axis=1)
    first = np.maximum.accumulate(np.where(starts, places, 0), axis=1)
    ends = np.concatenate((starts[:, 1:], np.ones((len(x), 1), np.bool_)), axis=1)
    last = np.minimum.accumulate(np.where(ends, places + 1, width)[:, ::-1], axis=1)[:, ::-1]
    lowest, beyond = (np.take_along_axis(each, count - 1, 1) for each in (s, last))
    least, most = (np.take_along_axis(sums, each, 1) for each in (count, beyond))
    error = unit_roundoff(stored) * (2.0 * exponential_sum(x, 1, double=False).worst + 16.0)
    before = sums[:, :-1]

    drawable = s > -np.inf
    possible = drawable & (s >= lowest) & (np.take_along_axis(sums, first, 1) <= (share + error) * most)
    surely = (share - error) * least
    sure = drawable & ((s > lowest) | (beyond <= count)) & (s >= lowest)
    sure &= (np.take_along_axis(sums, last, 1) - terms < surely) | (last == 1)
    own = (places < count) & ((before < share * least) | (places == 0))
    number = np.maximum(1, (drawable & (places < count) & (before < surely)).sum(1))
    chosen = np.where(own, terms, 0.0)
    shares = chosen / chosen.sum(1, keepdims=True)
    possible, sure, own, shares = (_unsorted(each, order) for each in (possible, sure, own, shares))
    return _Kept(possible, sure, own, number, shares)


def _unsorted(values: Array, order: Array) -> Array:
    out = np.empty_like(values)
    np.put_along_axis(out, order, values, 1)
    return out


quiet_hooks(globals())
