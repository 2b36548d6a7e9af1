"""What cross_entropy computes, and what it may lose."""

from __future__ import annotations

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, inferred, optional_input, quiet_hooks
from optest.operators.budgets import growth_of_sum
from optest.operators.indexing.gather_reference import require_range
from optest.operators.normalization.cross_entropy import class_dim, infer_cross_entropy
from optest.operators.normalization.softmax_reference import log_softmax_reference, log_softmax_terms
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


def _chosen(values: Array, target: Array, attributes: Attributes, dim: int) -> Array:
    """Of each row the value of its target's class, of one whose target is ignored that of the first."""
    places = np.where(target != attributes.get("ignore_index", -100), target, 0).astype(np.int64)
    return np.asarray(np.take_along_axis(values, np.expand_dims(places, dim), dim).squeeze(dim))


def cross_entropy_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """A loss loses w times what log_softmax loses there, and |loss| for the product.

    The sum of n of them adds 4√n·Σ|loss|; the mean divides by Σw, which is off by 4√n of itself if there are weights,
    in 2.5 ulp. Where losses repeat few values, n takes the place of 4√n.
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
    if attributes.get("reduction") == "none":
        return (ErrorBudget(worst, variance),)
    growth, spread = (float(each.max()) for each in growth_of_sum(loss.reshape(-1), float(loss.size), (0,)))
    total = loss.sum()
    worst = worst.sum() + growth * total
    variance = variance.sum() + spread * (total * total / 3.0 + (loss * loss).sum() / 2.0)
    if attributes.get("reduction", "mean") == "mean":
        whole = weights.sum()
        own = (0.0 if weight is None else growth) + 5.0
        mean = total / whole
        worst, variance = worst / whole + own * mean, variance / (whole * whole) + (own * mean) ** 2 / 3.0
    return (ErrorBudget(np.asarray(worst), np.asarray(variance)),)


quiet_hooks(globals())
