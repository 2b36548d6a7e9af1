"""What random_sample draws, and what is as right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from optest.numerics import numpy_dtype
from optest.operators.arrays import Array, Attributes, Inputs, as_float64, inferred, is_double, quiet_hooks
from optest.operators.budgets import exponential_sum, unit_roundoff
from optest.operators.indexing.random_sample import infer_random_sample


class _Draw(NamedTuple):
    """Logits from the largest on, where they stand, how many are drawn from, and the first at which the sum of
    probabilities reaches ``limit``; ``sums`` is None where the largest is drawn whatever they are."""

    logits: Array
    order: Array
    kept: int
    sums: Array | None
    limit: float
    place: int


def random_sample_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The first index, from the largest logit on, at which the sum of the first probabilities of
    softmax(logits / temperature) is at least random_value · min(top_p, sum of the first top_k)."""
    _, (spec,) = inferred(infer_random_sample, inputs, attributes)
    draw = _draw(inputs, attributes)
    return (np.asarray(draw.order[draw.place], numpy_dtype(spec.dtype)),)


def _draw(inputs: Inputs, attributes: Attributes) -> _Draw:
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
    """Any of equal logits, since their probabilities are equal; and the index at which the sum is within its error
    of the limit, but not on it.

    The error is that of a sum of exponentials, taken twice, for the sum and for the whole, and 16 u for the division,
    the limit and attributes that are rounded, all of it times the limit.
    """
    array, index = np.asarray(inputs[0]), int(np.asarray(actual[0]))
    return (_is_right(array, attributes, index),)


def _is_right(array: Array, attributes: Attributes, index: int) -> Array:
    draw = _draw((array,), attributes)
    if not 0 <= index < array.size:
        return np.zeros((), np.bool_)
    value = as_float64(array)[index]
    same = (draw.logits == value) | (np.isnan(draw.logits) & np.isnan(value))
    right = np.zeros(draw.logits.size, np.bool_)
    right[draw.place] = True
    if draw.sums is not None:  # an arithmetic with errors may stop elsewhere
        row = (draw.logits / attributes.get("temperature", 1.0)).reshape(1, -1)
        worst = float(exponential_sum(row, 1, double=is_double(array)).worst.item())
        allowed = unit_roundoff(array) * (2.0 * worst + 16.0) * draw.limit
        before = np.concatenate(([-np.inf], draw.sums[:-1]))
        starts = (before < draw.limit) | ((before > draw.limit) & (before - draw.limit <= allowed))
        reaches = draw.sums >= draw.limit - allowed
        right |= starts & reaches & (np.arange(draw.sums.size) < draw.kept)
    return np.asarray((same & right).any())


quiet_hooks(globals())
