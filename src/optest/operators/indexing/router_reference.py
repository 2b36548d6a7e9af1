"""References, error terms and accepted alternatives of topksoftmax and topkrouter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, quiet_hooks
from optest.operators.indexing.sort_reference import repeated
from optest.operators.normalization.softmax_reference import softmax_reference, softmax_terms
from optest.spec import ErrorBudget

# Unit roundoff of float32, in which both operators compute for every input dtype.
_U = 2.0**-24
_LAST = {"dim": -1}


def topksoftmax_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the topk largest probabilities and their columns, the first columns of equal ones."""
    (probabilities,) = softmax_reference(inputs, _LAST)
    columns = _best_columns(as_float64(inputs[0]), attributes["topk"])
    return _chosen_probabilities(probabilities, columns, attributes), columns.astype(np.int32)


def _best_columns(scores: Array, count: int) -> Array:
    """Return the columns of the `count` largest scores of each row, in descending order."""
    return np.argsort(-scores, axis=-1, kind="stable")[:, :count]


def _chosen_probabilities(probabilities: Array, columns: Array, attributes: Attributes) -> Array:
    """Return the probabilities at `columns`, divided by their sum if norm is set."""
    chosen = np.take_along_axis(probabilities, columns, -1)
    return chosen / chosen.sum(-1, keepdims=True) if attributes.get("norm") else chosen


def topksoftmax_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """Return the error budget of the chosen probabilities, that of softmax; columns are exact.

    With norm, the sum loses what its terms lose together and 4√k of itself; the quotient (2.5 ulp) adds 5.
    """
    (budget,) = softmax_terms(inputs, _LAST)
    (probabilities,) = softmax_reference(inputs, _LAST)
    columns = _best_columns(as_float64(inputs[0]), attributes["topk"])
    worst = np.take_along_axis(np.asarray(budget.worst), columns, -1)
    if attributes.get("norm"):
        total = np.take_along_axis(probabilities, columns, -1).sum(-1, keepdims=True)
        y = _chosen_probabilities(probabilities, columns, attributes)
        relative_error_of_sum = worst.sum(-1, keepdims=True) / total + 4.0 * np.sqrt(columns.shape[-1]) + 5.0
        worst = worst / total + y * relative_error_of_sum
    return ErrorBudget(worst), None


def topksoftmax_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Any]) -> Sequence[Any]:
    """Return masks that accept columns whose probability cannot be distinguished from the reference's, none twice."""
    (probabilities,) = softmax_reference(inputs, _LAST)
    (budget,) = softmax_terms(inputs, _LAST)
    columns = _best_columns(as_float64(inputs[0]), attributes["topk"])
    return None, _is_accepted_column(probabilities, 2.0 * _U * np.asarray(budget.worst), columns, np.asarray(actual[1]))


def _is_accepted_column(scores: Array, error: Array, columns: Array, actual: Array) -> Array:
    """Return a mask of columns whose score equals the reference's within both errors, and which occur once per row."""
    inside = (actual >= 0) & (actual < scores.shape[-1])
    actual_columns = np.where(inside, actual, 0).astype(np.int64)
    score, expected = (np.take_along_axis(scores, x, -1) for x in (actual_columns, columns))
    margin = sum(np.take_along_axis(error, x, -1) for x in (actual_columns, columns))
    # Infinite scores are equal although their difference is NaN.
    is_equal = (np.abs(score - expected) <= margin) | (score == expected) | (np.isnan(score) & np.isnan(expected))
    return np.asarray(inside & is_equal & ~repeated(actual))


def _logistic(x: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))


def topkrouter_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the weights and columns of the topk best scores, the first columns of equal ones."""
    columns = _best_columns(_router_scores(inputs, attributes), attributes["topk"])
    return _expert_weights(inputs, columns, attributes), columns.astype(np.int32)


def _router_scores(inputs: Inputs, attributes: Attributes) -> Array:
    """Return sigmoid(input) + correction_bias, with 0 in the groups that are not chosen."""
    scores = _logistic(as_float64(inputs[0])) + as_float64(inputs[1])
    count = attributes.get("n_group", 8)
    groups = scores.reshape(len(scores), count, scores.shape[1] // count)
    # A group is ranked by its two best scores, as in DeepSeek-V3.
    pairs = np.sort(groups, axis=-1)[:, :, -2:].sum(-1)
    is_chosen = np.zeros(pairs.shape, np.bool_)
    np.put_along_axis(is_chosen, _best_columns(pairs, attributes.get("topk_group", 4)), True, -1)
    return np.where(is_chosen[:, :, None], groups, 0.0).reshape(scores.shape)


def _expert_weights(inputs: Inputs, columns: Array, attributes: Attributes) -> Array:
    """Return the weights of `columns`: sigmoid(input) over its sum, times routed_scaling_factor."""
    chosen = np.take_along_axis(_logistic(as_float64(inputs[0])), columns, -1)
    return np.asarray(attributes.get("routed_scaling_factor", 1.0) * chosen / chosen.sum(-1, keepdims=True))


def topkrouter_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """Return the error budget of the weights y, 8 + 8 + 4√k + 1 + 1 + 5 of |y|; columns are exact.

    These are sigmoid (4 ulp) 8, the sum 8 + 4√k, rounding the factor 1, its product 1, the quotient (2.5 ulp) 5.
    Libraries add up to 10⁻⁹ to the sum, against a division by 0.
    """
    columns = _best_columns(_router_scores(inputs, attributes), attributes["topk"])
    return ErrorBudget(np.abs(_expert_weights(inputs, columns, attributes)) * _relative_error(inputs, columns)), None


def _relative_error(inputs: Inputs, columns: Array) -> Array:
    """Return the relative error of the weights in units of u (see topkrouter_terms)."""
    total = np.take_along_axis(_logistic(as_float64(inputs[0])), columns, -1).sum(-1, keepdims=True)
    return np.asarray(23.0 + 4.0 * np.sqrt(columns.shape[-1]) + 1e-9 / total / _U)


def topkrouter_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Any]) -> Sequence[Any]:
    """Return masks that accept columns whose score equals the reference's within its error, and their weights.

    A score loses 4 ulp of the sigmoid and the rounding of the sum.
    """
    scores = _router_scores(inputs, attributes)
    columns, actual_columns = _best_columns(scores, attributes["topk"]), np.asarray(actual[1])
    error = _U * (8.0 + np.abs(scores) + np.abs(as_float64(inputs[1])))
    mask = _is_accepted_column(scores, error, columns, actual_columns)
    # Each weight depends on all columns of its row, so that one wrong column makes the row wrong.
    is_right_row = mask.all(-1, keepdims=True)
    weights = _expert_weights(inputs, np.where(is_right_row, actual_columns, 0).astype(np.int64), attributes)
    near = np.abs(as_float64(actual[0]) - weights) <= 2.0 * _U * np.abs(weights) * _relative_error(inputs, columns)
    return is_right_row & near, mask


quiet_hooks(globals())
