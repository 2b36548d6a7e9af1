"""What cross_entropy computes, and what it may lose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, inferred, optional_input, quiet_hooks
from optest.operators.budgets import growth_of_sum
from optest.operators.indexing.gather_reference import require_range
from optest.operators.normalization.cross_entropy import class_dim, infer_cross_entropy, infer_cross_entropy_backward
from optest.operators.normalization.softmax_reference import (
    log_softmax_reference,
    log_softmax_terms,
    softmax_reference,
    softmax_terms,
)
from optest.operators.running_errors import Bounded, Number, budgets, constant, exactly, moved
from optest.spec import ErrorBudget


def cross_entropy_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Of no weight at all the mean is NaN, as 0 / 0 is in torch."""
    (array, target, *_), _ = inferred(infer_cross_entropy, inputs, attributes)
    weight = optional_input(inputs, 2)
    dim = class_dim(array.ndim)
    seen = target != attributes.get("ignore_index", -100)
    require_range(np.where(seen, target, 0), array.shape[dim], "target")
    (logarithms,) = log_softmax_reference([array], {"dim": dim})
    weights = _weights(target, weight, attributes)
    losses = np.where(seen, -weights * _chosen(logarithms, target, attributes, dim), 0.0)
    if smoothing := attributes.get("label_smoothing"):
        spread = -np.sum(_of_classes(weight, array.ndim, dim) * logarithms, dim) * smoothing / array.shape[dim]
        losses = np.where(seen, (1.0 - smoothing) * losses + spread, 0.0)
    if attributes.get("reduction") == "none":
        return (losses,)
    total = np.asarray(losses.sum(dtype=np.longdouble))
    if attributes.get("reduction", "mean") == "mean":
        total = np.asarray(total / weights.sum(dtype=np.longdouble))
    return (total.astype(np.float64),)


def _weights(target: Array, weight: Array | None, attributes: Attributes) -> Array:
    """Of each row: 0 where the target is ignored."""
    seen = target != attributes.get("ignore_index", -100)
    if weight is None:
        return np.asarray(seen, np.float64)
    return np.where(seen, as_float64(weight)[np.where(seen, target, 0)], 0.0)


def _of_classes(weight: Array | None, rank: int, dim: int) -> Array:
    """The weights, shaped to broadcast along the classes."""
    return np.ones(()) if weight is None else as_float64(weight).reshape(-1, *(1,) * (rank - 1 - dim))


def _chosen(values: Array, target: Array, attributes: Attributes, dim: int) -> Array:
    """Of each row the value of its target's class, of one whose target is ignored that of the first."""
    places = np.where(target != attributes.get("ignore_index", -100), target, 0).astype(np.int64)
    return np.asarray(np.take_along_axis(values, np.expand_dims(places, dim), dim).squeeze(dim))


def cross_entropy_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """A loss loses w times what log_softmax loses there, and |loss| for the product.

    The sum of n of them adds 4√n·Σ|loss|; the mean divides by Σw, which is off by 4√n of itself if there are weights,
    in 2.5 ulp. Where losses repeat few values, n takes the place of 4√n.

    With label smoothing the sum over n classes loses what log_softmax loses in each of them and 4√n·Σw·(|log_softmax| +
    |input|), since kernels add up log_softmax or the input itself; of these errors no statistic is made.
    """
    array, target = np.asarray(inputs[0]), np.asarray(inputs[1])
    dim = class_dim(array.ndim)
    weight = optional_input(inputs, 2)
    weights = _weights(target, weight, attributes)
    (budget,) = log_softmax_terms([array], {"dim": dim})
    (logarithms,) = log_softmax_reference([array], {"dim": dim})
    loss = np.where(weights > 0.0, weights * np.abs(_chosen(logarithms, target, attributes, dim)), 0.0)
    worst, variance = (_chosen(each, target, attributes, dim) for each in (budget.worst, np.asarray(budget.variance)))
    worst = np.where(weights > 0.0, weights * worst, 0.0) + loss
    variance = np.where(weights > 0.0, weights * weights * variance, 0.0) + loss * loss / 3.0
    if smoothing := attributes.get("label_smoothing"):
        count = array.shape[dim]
        each = _of_classes(weight, array.ndim, dim)
        sizes = np.sum(each * np.abs(logarithms), dim)
        lost = np.sum(each * budget.worst, dim) + 4.0 * math.sqrt(count) * (
            sizes + np.sum(each * np.abs(as_float64(array)), dim)
        )
        worst = worst + np.where(weights > 0.0, (lost + 8.0 * sizes) * smoothing / count + 2.0 * loss, 0.0)
        loss = np.where(weights > 0.0, loss + sizes * smoothing / count, 0.0)
    if attributes.get("reduction") == "none":
        return (ErrorBudget(worst, None if smoothing else variance),)
    growth, spread = (float(each.max()) for each in growth_of_sum(loss.reshape(-1), float(loss.size), (0,)))
    total = loss.sum()
    worst = worst.sum() + growth * total
    variance = variance.sum() + spread * (total * total / 3.0 + (loss * loss).sum() / 2.0)
    if attributes.get("reduction", "mean") == "mean":
        whole = weights.sum()
        own = (0.0 if weight is None else growth) + 5.0
        mean = total / whole
        worst, variance = worst / whole + own * mean, variance / (whole * whole) + (own * mean) ** 2 / 3.0
    return (ErrorBudget(np.asarray(worst), None if smoothing else np.asarray(variance)),)


def _gradient(inputs: Sequence[Any], attributes: Attributes) -> tuple[Number, ...]:
    grad, x, target, weight = (inputs[place] for place in range(4))
    dim = class_dim(len(x.shape))
    count, smoothing = x.shape[dim], attributes.get("label_smoothing", 0.0)
    seen = target != attributes.get("ignore_index", -100)
    require_range(np.where(seen, target, 0), count, "target")
    places = np.expand_dims(np.where(seen, target, 0).astype(np.int64), dim)
    is_target = np.arange(count).reshape(-1, *(1,) * (len(x.shape) - 1 - dim)) == places
    weights = np.ones(()) if weight is None else weight.reshape(-1, *(1,) * (len(x.shape) - 1 - dim))
    own = weights * np.where(is_target, 1.0, 0.0)
    q = own
    if smoothing:
        q = own * constant(1.0 - smoothing, x) + weights * constant(smoothing / count, x) * np.ones(x.shape)
    factor = moved(grad, lambda each: np.expand_dims(each, dim) if each.ndim else each)
    if attributes.get("reduction", "mean") == "mean":
        total = own.sum(axis=dim, keepdims=True) * np.expand_dims(seen, dim)
        factor = factor / total.sum(axis=tuple(range(len(x.shape))), keepdims=True)
    out = factor * (_shares(x, dim) * q.sum(axis=dim, keepdims=True) - q)
    return (moved(out, lambda each: np.where(np.expand_dims(seen, dim), each, 0.0)),)


def _shares(x: Number, dim: int) -> Number:
    """softmax; kernels have it as a quotient or as exp(log_softmax)."""
    if not isinstance(x, Bounded):
        shares = np.exp(x - x.max(dim, keepdims=True)) if x.size else x
        return shares / shares.sum(dim, keepdims=True)
    stored = x.value if x.double else x.value.astype(np.float32)
    (shares,), (budget,) = softmax_reference([x.value], {"dim": dim}), softmax_terms([stored], {"dim": dim})
    (logarithm,), (other,) = log_softmax_reference([x.value], {"dim": dim}), log_softmax_terms([stored], {"dim": dim})
    by_logarithm = np.where(shares > 0.0, shares * (other.worst - logarithm + 6.0), 0.0)
    return Bounded(shares, np.maximum(budget.worst, by_logarithm), double=x.double)


def cross_entropy_backward_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    inferred(infer_cross_entropy_backward, inputs, attributes)
    return exactly(_gradient, inputs, attributes)


def cross_entropy_backward_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """What softmax loses, or exp(log_softmax) with |log_softmax| + 6 for exp, and the running errors of the rest of the
    formula: the products with the weights, their sums, the difference and the quotient."""
    return budgets(_gradient, inputs, attributes)


quiet_hooks(globals())
