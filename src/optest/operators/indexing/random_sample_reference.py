"""Reference and accepted alternatives of random_sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from optest.numerics import numpy_dtype
from optest.operators.arrays import Array, Attributes, Inputs, as_float64, infer_from_arrays, is_double, quiet_hooks
from optest.operators.budgets import exponential_sum, unit_roundoff
from optest.operators.indexing.random_sample import infer_random_sample


class _Draw(NamedTuple):
    """Sorted logits of a random_sample call and the position at which the draw stops."""

    logits: Array  # in descending order, NaN first
    order: Array  # original index of each
    kept: int  # number of logits to draw from
    sums: Array | None  # cumulative probabilities; None if the largest logit is always drawn
    limit: float  # cumulative probability at which the draw stops
    position: int  # first position whose sum reaches the limit


def random_sample_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the index of the drawn logit.

    In descending order, it is the first at which the sum of softmax(logits / temperature) is at least random_value ·
    min(top_p, sum of the first top_k).
    """
    _, (spec,) = infer_from_arrays(infer_random_sample, inputs, attributes)
    draw = _locate_draw(inputs, attributes)
    return (np.asarray(draw.order[draw.position], numpy_dtype(spec.dtype)),)


def _locate_draw(inputs: Inputs, attributes: Attributes) -> _Draw:
    """Sort the logits and find the position at which the cumulative probability reaches the limit."""
    values = as_float64(inputs[0])
    order = np.argsort(-values, kind="stable")
    nans = np.isnan(values[order])
    order = np.concatenate((order[nans], order[~nans]))  # NaN sorts last, but is the largest here
    logits = values[order]
    top_k, top_p = attributes.get("top_k"), attributes.get("top_p", 1.0)
    temperature = attributes.get("temperature", 1.0)
    kept = logits.size if top_k is None else max(1, min(top_k, logits.size))
    if kept == 1 or top_p == 0 or temperature == 0 or not np.isfinite(logits[0]):
        return _Draw(logits, order, 1, None, 0.0, 0)
    shares = np.exp((logits - logits[0]) / temperature)
    sums = np.cumsum(shares)
    sums /= sums[-1]
    limit = float(attributes["random_value"] * min(top_p, sums[kept - 1]))
    return _Draw(logits, order, kept, sums, limit, int(np.argmax(sums[:kept] >= limit)))


def random_sample_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Any]) -> Sequence[Any]:
    """Return a mask that accepts indices of equal logits, and an index at which the sum is close to the limit.

    Close means within the error of the sum, but not equal. The error is that of a sum of exponentials, taken twice (for
    the partial and the total sum), and 16 u for the division, the limit and rounded attributes, all of it relative to
    the limit.
    """
    array, index = np.asarray(inputs[0]), int(np.asarray(actual[0]))
    draw = _locate_draw((array,), attributes)
    if not 0 <= index < array.size:
        return (np.zeros((), np.bool_),)
    value = as_float64(array)[index]
    is_equal = (draw.logits == value) | (np.isnan(draw.logits) & np.isnan(value))
    is_accepted = np.zeros(draw.logits.size, np.bool_)
    is_accepted[draw.position] = True
    if draw.sums is not None:  # rounding may stop at another position
        row = (draw.logits / attributes.get("temperature", 1.0)).reshape(1, -1)
        worst = float(exponential_sum(row, 1, double=is_double(array)).worst.item())
        margin = unit_roundoff(array) * (2.0 * worst + 16.0) * draw.limit
        before = np.concatenate(([-np.inf], draw.sums[:-1]))
        starts = (before < draw.limit) | ((before > draw.limit) & (before - draw.limit <= margin))
        reaches = draw.sums >= draw.limit - margin
        is_accepted |= starts & reaches & (np.arange(draw.sums.size) < draw.kept)
    return (np.asarray((is_equal & is_accepted).any()),)


quiet_hooks(globals())
