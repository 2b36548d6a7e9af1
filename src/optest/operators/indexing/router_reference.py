"""Which experts are chosen, and what else is as right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, quiet_hooks
from optest.operators.indexing.sort_reference import repeated
from optest.operators.normalization.softmax_reference import softmax_reference, softmax_terms
from optest.spec import ErrorBudget

_U = 2.0**-24
"""Both compute in float32, which their results are, whatever the input is."""
_LAST = {"dim": -1}


def topksoftmax_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The first of equal shares."""
    (shares,) = softmax_reference(inputs, _LAST)
    places = _best(as_float64(inputs[0]), attributes["topk"])
    return _share_of(shares, places, attributes), places.astype(np.int32)


def _best(scores: Array, count: int) -> Array:
    return np.argsort(-scores, axis=-1, kind="stable")[:, :count]


def _share_of(shares: Array, places: Array, attributes: Attributes) -> Array:
    chosen = np.take_along_axis(shares, places, -1)
    return chosen / chosen.sum(-1, keepdims=True) if attributes.get("norm") else chosen


def topksoftmax_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """What softmax loses of the chosen shares. Their sum loses what they lose together and 4√k of itself; 5 is the
    quotient (2.5 ulp)."""
    (budget,) = softmax_terms(inputs, _LAST)
    (shares,) = softmax_reference(inputs, _LAST)
    places = _best(as_float64(inputs[0]), attributes["topk"])
    worst = np.take_along_axis(np.asarray(budget.worst), places, -1)
    if attributes.get("norm"):
        total = np.take_along_axis(shares, places, -1).sum(-1, keepdims=True)
        y = _share_of(shares, places, attributes)
        own = worst.sum(-1, keepdims=True) / total + 4.0 * np.sqrt(places.shape[-1]) + 5.0
        worst = worst / total + y * own
    return ErrorBudget(worst), None


def topksoftmax_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Any]) -> Sequence[Any]:
    """Columns whose share cannot be told from the one that should stand there, none of them twice."""
    (shares,) = softmax_reference(inputs, _LAST)
    (budget,) = softmax_terms(inputs, _LAST)
    places = _best(as_float64(inputs[0]), attributes["topk"])
    return None, _are_as_good(shares, 2.0 * _U * np.asarray(budget.worst), places, np.asarray(actual[1]))


def _are_as_good(scores: Array, error: Array, places: Array, actual: Array) -> Array:
    """Where the score of an actual column is as good as that of the reference's, and no column stands twice."""
    inside = (actual >= 0) & (actual < scores.shape[-1])
    found = np.where(inside, actual, 0).astype(np.int64)
    one, other = (np.take_along_axis(scores, each, -1) for each in (found, places))
    allowed = sum(np.take_along_axis(error, each, -1) for each in (found, places))
    alike = (np.abs(one - other) <= allowed) | (one == other) | (np.isnan(one) & np.isnan(other))
    return np.asarray(inside & alike & ~repeated(actual))


def _sigmoid(x: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def topkrouter_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The first of equal scores."""
    places = _best(_scores(inputs, attributes), attributes["topk"])
    return _routed(inputs, places, attributes), places.astype(np.int32)


def _scores(inputs: Inputs, attributes: Attributes) -> Array:
    """sigmoid(input) + correction_bias, 0 in the groups that are not chosen."""
    scores = _sigmoid(as_float64(inputs[0])) + as_float64(inputs[1])
    count = attributes.get("n_group", 8)
    groups = scores.reshape(len(scores), count, scores.shape[1] // count)
    pairs = np.sort(groups, axis=-1)[:, :, -2:].sum(-1)
    seen = np.zeros(pairs.shape, np.bool_)
    np.put_along_axis(seen, _best(pairs, attributes.get("topk_group", 4)), True, -1)
    return np.where(seen[:, :, None], groups, 0.0).reshape(scores.shape)


def _routed(inputs: Inputs, places: Array, attributes: Attributes) -> Array:
    chosen = np.take_along_axis(_sigmoid(as_float64(inputs[0])), places, -1)
    return np.asarray(attributes.get("routed_scaling_factor", 1.0) * chosen / chosen.sum(-1, keepdims=True))


def topkrouter_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """Of y: sigmoid (4 ulp) 8, their sum 8 + 4√k, rounding the factor 1, its product 1, the quotient (2.5 ulp) 5.

    Libraries add up to 10⁻⁹ to the sum, against a division by 0.
    """
    places = _best(_scores(inputs, attributes), attributes["topk"])
    return ErrorBudget(np.abs(_routed(inputs, places, attributes)) * _relative(inputs, places)), None


def _relative(inputs: Inputs, places: Array) -> Array:
    total = np.take_along_axis(_sigmoid(as_float64(inputs[0])), places, -1).sum(-1, keepdims=True)
    return np.asarray(23.0 + 4.0 * np.sqrt(places.shape[-1]) + 1e-9 / total / _U)


def topkrouter_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Any]) -> Sequence[Any]:
    """Columns whose score cannot be told from the one that should stand there, with the shares that they have.

    Scores lose 4 ulp of the sigmoid and the rounding of the sum.
    """
    scores = _scores(inputs, attributes)
    places, found = _best(scores, attributes["topk"]), np.asarray(actual[1])
    error = _U * (8.0 + np.abs(scores) + np.abs(as_float64(inputs[1])))
    mask = _are_as_good(scores, error, places, found)
    whole = mask.all(-1, keepdims=True)
    own = _routed(inputs, np.where(whole, found, 0).astype(np.int64), attributes)
    near = np.abs(as_float64(actual[0]) - own) <= 2.0 * _U * np.abs(own) * _relative(inputs, places)
    return whole & near, mask


quiet_hooks(globals())
