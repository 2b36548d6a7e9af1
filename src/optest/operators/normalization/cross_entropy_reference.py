"""References and error terms of cross_entropy and cross_entropy_backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    as_float64,
    infer_from_arrays,
    optional_input,
    quiet_hooks,
)
from optest.operators.budgets import growth_of_sum
from optest.operators.indexing.gather_reference import require_range
from optest.operators.normalization.cross_entropy import class_dim, infer_cross_entropy, infer_cross_entropy_backward
from optest.operators.normalization.softmax_reference import (
    log_softmax_reference,
    log_softmax_terms,
    softmax_reference,
    softmax_terms,
)
from optest.operators.running_errors import Bounded, Number, budgets, constant, evaluate, move_elements
from optest.spec import ErrorBudget


def cross_entropy_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the losses, their sum or their mean; the mean is NaN if all weights are 0, as in torch."""
    (array, target, *_), _ = infer_from_arrays(infer_cross_entropy, inputs, attributes)
    weight = optional_input(inputs, 2)
    dim = class_dim(array.ndim)
    is_counted = target != attributes.get("ignore_index", -100)
    # An ignored target may be any number, also one that is no class.
    require_range(np.where(is_counted, target, 0), array.shape[dim], "target")
    (logarithms,) = log_softmax_reference([array], {"dim": dim})
    weights = _row_weights(target, weight, attributes)
    losses = np.where(is_counted, -weights * _target_values(logarithms, target, attributes, dim), 0.0)
    if smoothing := attributes.get("label_smoothing"):
        spread = -np.sum(_class_weights(weight, array.ndim, dim) * logarithms, dim) * smoothing / array.shape[dim]
        losses = np.where(is_counted, (1.0 - smoothing) * losses + spread, 0.0)
    if attributes.get("reduction") == "none":
        return (losses,)
    # float64 inputs need a sum that is more exact than float64.
    total = np.asarray(losses.sum(dtype=np.longdouble))
    if attributes.get("reduction", "mean") == "mean":
        total = np.asarray(total / weights.sum(dtype=np.longdouble))
    return (total.astype(np.float64),)


def _row_weights(target: Array, weight: Array | None, attributes: Attributes) -> Array:
    """Return the weight of each row, 0 for an ignored target."""
    is_counted = target != attributes.get("ignore_index", -100)
    if weight is None:
        return np.asarray(is_counted, np.float64)
    return np.where(is_counted, as_float64(weight)[np.where(is_counted, target, 0)], 0.0)


def _class_weights(weight: Array | None, rank: int, dim: int) -> Array:
    """Return the weights, shaped to broadcast along the dimension of classes."""
    return np.ones(()) if weight is None else as_float64(weight).reshape(-1, *(1,) * (rank - 1 - dim))


def _target_values(values: Array, target: Array, attributes: Attributes, dim: int) -> Array:
    """Return the value of the target's class of each row, of the first class for an ignored target."""
    classes = np.where(target != attributes.get("ignore_index", -100), target, 0).astype(np.int64)
    return np.asarray(np.take_along_axis(values, np.expand_dims(classes, dim), dim).squeeze(dim))


def cross_entropy_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the budget of each loss, w · (error of log_softmax + |log_softmax|), or of their sum or mean.

    The sum of n losses adds 4√n·Σ|loss|; the mean divides by Σw, which is off by 4√n of itself if there are weights, in
    2.5 ulp. If losses repeat few values, n replaces 4√n.

    With label smoothing the sum over n classes loses what log_softmax loses in each of them and 4√n·Σw·(|log_softmax| +
    |input|), since kernels sum log_softmax or the input itself; there is no variance for these errors.
    """
    array, target = np.asarray(inputs[0]), np.asarray(inputs[1])
    dim = class_dim(array.ndim)
    weight = optional_input(inputs, 2)
    weights = _row_weights(target, weight, attributes)
    (budget,) = log_softmax_terms([array], {"dim": dim})
    (logarithms,) = log_softmax_reference([array], {"dim": dim})
    loss = np.where(weights > 0.0, weights * np.abs(_target_values(logarithms, target, attributes, dim)), 0.0)
    worst, variance = (_target_values(x, target, attributes, dim) for x in (budget.worst, np.asarray(budget.variance)))
    worst = np.where(weights > 0.0, weights * worst, 0.0) + loss
    variance = np.where(weights > 0.0, weights * weights * variance, 0.0) + loss * loss / 3.0
    if smoothing := attributes.get("label_smoothing"):
        count = array.shape[dim]
        by_class = _class_weights(weight, array.ndim, dim)
        sizes = np.sum(by_class * np.abs(logarithms), dim)
        inputs_sum = np.sum(by_class * np.abs(as_float64(array)), dim)
        lost = np.sum(by_class * budget.worst, dim) + 4.0 * math.sqrt(count) * (sizes + inputs_sum)
        worst = worst + np.where(weights > 0.0, (lost + 8.0 * sizes) * smoothing / count + 2.0 * loss, 0.0)
        loss = np.where(weights > 0.0, loss + sizes * smoothing / count, 0.0)
    if attributes.get("reduction") == "none":
        return (ErrorBudget(worst, None if smoothing else variance),)
    growth, spread = (float(x.max()) for x in growth_of_sum(loss.reshape(-1), float(loss.size), (0,)))
    total = loss.sum()
    worst = worst.sum() + growth * total
    variance = variance.sum() + spread * (total * total / 3.0 + (loss * loss).sum() / 2.0)
    if attributes.get("reduction", "mean") == "mean":
        sum_of_weights = weights.sum()
        relative_error_of_mean = (0.0 if weight is None else growth) + 5.0
        mean = total / sum_of_weights
        worst = worst / sum_of_weights + relative_error_of_mean * mean
        variance = variance / (sum_of_weights * sum_of_weights) + (relative_error_of_mean * mean) ** 2 / 3.0
    return (ErrorBudget(np.asarray(worst), None if smoothing else np.asarray(variance)),)


def _input_gradient(inputs: Sequence[Any], attributes: Attributes) -> tuple[Number, ...]:
    """Compute the gradient of the loss by its formula, with running errors for Bounded inputs."""
    grad, x, target, weight = (inputs[i] for i in range(4))  # an optional input that is missing is None
    dim = class_dim(len(x.shape))
    count, smoothing = x.shape[dim], attributes.get("label_smoothing", 0.0)
    is_counted = target != attributes.get("ignore_index", -100)
    require_range(np.where(is_counted, target, 0), count, "target")
    target_classes = np.expand_dims(np.where(is_counted, target, 0).astype(np.int64), dim)
    is_target = np.arange(count).reshape(-1, *(1,) * (len(x.shape) - 1 - dim)) == target_classes
    weights = np.ones(()) if weight is None else weight.reshape(-1, *(1,) * (len(x.shape) - 1 - dim))
    target_weights = weights * np.where(is_target, 1.0, 0.0)
    q = target_weights
    if smoothing:
        q = target_weights * constant(1.0 - smoothing, x) + weights * constant(smoothing / count, x) * np.ones(x.shape)
    factor = move_elements(grad, lambda v: np.expand_dims(v, dim) if v.ndim else v)
    if attributes.get("reduction", "mean") == "mean":
        total = target_weights.sum(axis=dim, keepdims=True) * np.expand_dims(is_counted, dim)
        factor = factor / total.sum(axis=tuple(range(len(x.shape))), keepdims=True)
    out = factor * (_softmax_with_errors(x, dim) * q.sum(axis=dim, keepdims=True) - q)
    return (move_elements(out, lambda v: np.where(np.expand_dims(is_counted, dim), v, 0.0)),)


def _softmax_with_errors(x: Number, dim: int) -> Number:
    """Return softmax along `dim`; its error covers a quotient and exp(log_softmax), as kernels use either."""
    if not isinstance(x, Bounded):
        shares = np.exp(x - x.max(dim, keepdims=True)) if x.size else x
        return shares / shares.sum(dim, keepdims=True)
    # softmax_terms reads the precision of the arithmetic from the dtype.
    stored = x.value if x.double else x.value.astype(np.float32)
    (shares,), (budget,) = softmax_reference([x.value], {"dim": dim}), softmax_terms([stored], {"dim": dim})
    (logarithm,) = log_softmax_reference([x.value], {"dim": dim})
    (of_logarithm,) = log_softmax_terms([stored], {"dim": dim})
    by_logarithm = np.where(shares > 0.0, shares * (of_logarithm.worst - logarithm + 6.0), 0.0)
    return Bounded(shares, np.maximum(budget.worst, by_logarithm), double=x.double)


def cross_entropy_backward_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    infer_from_arrays(infer_cross_entropy_backward, inputs, attributes)
    return evaluate(_input_gradient, inputs, attributes)


def cross_entropy_backward_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the running errors of the formula, with softmax as a quotient or as exp(log_softmax), the worse of both.

    exp adds |log_softmax| + 6. The rest are the products with the weights, their sums, the difference and the quotient.
    """
    return budgets(_input_gradient, inputs, attributes)


quiet_hooks(globals())
