"""Reference and error terms of attention, and the parts that cached and packed attention share."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from optest.numerics import dtype_of
from optest.operators.arrays import Array, Attributes, Inputs, as_float64, is_double, optional_input, quiet_hooks
from optest.operators.budgets import growth_of_sum, half_subnormal, unit_roundoff
from optest.spec import ErrorBudget

# Maximum number of products query · key · value in the exact variance of cut operands; they take milliseconds.
_MOST_PRODUCTS = 1 << 22


class AttentionOperands(NamedTuple):
    """Operands in float64, with heads of key and value repeated for those of query; `mask` is added to the scores."""

    query: Array
    key: Array
    value: Array
    mask: Array | None
    scale: float
    softcap: float


class Weights(NamedTuple):
    """Scores after cap and mask, and the softmax over them; a row without any key has zeros."""

    scores: Array
    tanh: Array | None  # factor of softcap, None without a cap
    shifted: Array  # scores minus the maximum of their row
    shares: Array  # weights of the rows of value, which sum to 1
    total: Array  # Σ exp(shifted), 1 in a row without any key


def scaled_dot_product_attention_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return softmax(cap(scale · query · keyᵀ) + mask) · value; a query without any key gives zeros, as in torch."""
    operands = attention_operands(inputs, attributes)
    return (np.asarray(attention_weights(operands).shares @ operands.value),)


def log_sum_exp(inputs: Inputs, attributes: Attributes) -> tuple[Array, ErrorBudget]:
    """Return the log-sum-exp of the scores of each query, and its error budget in units of u.

    A share p of a sum moves its logarithm by p times its relative error: the absolute error of the score, and ``2|d| +
    6`` for exp. The sum adds ``4√S`` and the shares below u/2, its logarithm ``6·|ln Σ|`` (3 ulp), and the maximum one
    rounding of the result.
    """
    first, operands = np.asarray(inputs[0]), attention_operands(inputs, attributes)
    weights = attention_weights(operands)
    p, total, least = weights.shares, np.log(weights.total[..., 0]), unit_roundoff(first)
    lse = weights.scores.max(-1, initial=-np.inf) + total
    off = _errors_of_scores(operands, weights, first)[0] + 2.0 * np.minimum(np.abs(weights.shifted), 1000.0) + 6.0
    growth = growth_of_sum(weights.scores, float(p.shape[-1]), (p.ndim - 1,))[0][..., 0]
    lost = 0.0 if is_double(first) else np.where(p < 0.5 * least, p, 0.0).sum(-1) / least
    worst = _weighted_error(p, off).sum(-1) + growth + lost + 6.0 * np.abs(total) + np.abs(lse)
    cut = _weighted_error(p, 2.0 * _slope_of_cap(weights) * _terms_of_scores(operands)[0]).sum(-1)
    return lse, ErrorBudget(np.where(lse == -np.inf, 0.0, worst), None, (cut, cut * cut))


def attention_operands(inputs: Inputs, attributes: Attributes) -> AttentionOperands:
    """Return the operands of a call; is_causal and window_size become part of the mask."""
    query, key, value = (as_float64(x) for x in inputs[:3])
    if attributes.get("enable_gqa"):
        # head h of query reads head h // (heads of query / heads of key)
        key, value = (np.repeat(x, query.shape[-3] // x.shape[-3], axis=-3) for x in (key, value))
    scale = attributes.get("scale")
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1] or 1)
    mask = optional_input(inputs, 3)
    if mask is not None:
        mask = np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else as_float64(mask)
    visible = visible_keys_mask(query.shape[-2], key.shape[-2], attributes)
    if visible is not None:
        mask = np.where(visible, 0.0 if mask is None else mask, -np.inf)
    return AttentionOperands(query, key, value, mask, scale, attributes.get("softcap", 0.0))


def visible_keys_mask(queries: int, keys: int, attributes: Attributes, first: int = 0) -> Array | None:
    """Return the mask of keys that each query attends to by is_causal and window_size, None for all keys.

    Query i has the position `first` + i.
    """
    left, right = attributes.get("window_size", (-1, -1))
    right = 0 if attributes.get("is_causal") else right
    if left < 0 and right < 0:
        return None
    # Only set by diagnosis, as a hypothesis on a wrong kernel.
    offset = attributes.get("position of the first query", 0)
    first = keys - queries - first if offset == "end" else first + offset
    distance = np.arange(keys) - first - np.arange(queries)[:, None]
    return np.asarray(((distance >= -left) | (left < 0)) & ((distance <= right) | (right < 0)))


def attention_weights(operands: AttentionOperands) -> Weights:
    """Compute scores, their softmax and its parts for all queries."""
    scores = operands.scale * (operands.query @ np.swapaxes(operands.key, -1, -2))
    tanh = np.tanh(scores / operands.softcap) if operands.softcap else None
    scores = scores if tanh is None else operands.softcap * tanh
    if operands.mask is not None:
        scores = scores + operands.mask
    # initial allows rows without keys.
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    shifted = scores - np.where(largest == -np.inf, 0.0, largest)
    shares = np.exp(shifted)
    total = shares.sum(-1, keepdims=True)
    # A row without any key has a sum of 0; its shares must be 0, not NaN.
    total = np.where(total == 0.0, 1.0, total)
    shares /= total
    return Weights(scores, tanh, shifted, shares, total)


def scaled_dot_product_attention_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the first-order error budget of the scores, of the softmax of inexact scores and of the weighted sum.

    For one query with S keys of E elements: t are the terms scale·qᵢ·kᵢ of a score s (mask included), d = s − max, p
    the weights and y = Σp·v. In units of u:

    - a score is off by ``(4√E + 3)·Σ|t| + |s|``: its sum, scale (as one factor, or its root on both sides, before or
      after the sum) and the mask; an error common to all scores of a query has no effect;
    - a cap c multiplies that by its slope, 1 − tanh², and adds ``c·(8 + 2|tanh|)``: tanh by exponentials is off by some
      u of 1, not of itself; for 16-bit inputs also 2⁻¹¹ of itself, as the GPU instruction (PTX ISA: tanh.approx.f32);
    - exp(d) is off by ``2|d| + 6`` of itself, as in softmax;
    - for 16-bit inputs a weight may be rounded to their dtype before it is multiplied by value: ``r = u₁₆/u`` of
      itself, in float16 half a subnormal more. Units that multiply 16-bit matrices take no other operands, so that
      every fused kernel does it. Scores are not operands of a product: rounding them to 16 bits is an error;
    - weights of any size are off by a few subnormals;
    - with ε the sum of the relative errors, y is off by ``Σp·ε·|v − y|`` ≤ ``Σp·ε·|v| + |y|·Σp·ε``;
    - the two sums over the keys add ``4√S·(Σp|v| + |y|)``, and weights below u/2 of the sum may vanish from it;
    - division, and rescaling of partial sums in an online softmax, which multiplies both sums alike: ``8·|y|``.

    If the scores of a query repeat few values, S replaces 4√S. Variances assume independent roundings; |v − y|² is
    bounded by 2v² + 2y².

    If a backend truncates float32 operands before it multiplies them, in units of that roundoff: ``2Σ|t|`` for a score,
    as each product has two operands, ``2Σp|v|`` for the weighted sum, and |y| for weights that were summed after
    truncation.
    """
    first = np.asarray(inputs[0])
    operands = attention_operands(inputs, attributes)
    weights, value = attention_weights(operands), operands.value
    p = weights.shares
    y, size = p @ value, np.abs(value)
    if not y.size:
        return (ErrorBudget(y, y),)
    count = float(p.shape[-1])

    scores_worst, scores_variance = _errors_of_scores(operands, weights, first)
    exp_error = 2.0 * np.minimum(np.abs(weights.shifted), 1000.0) + 6.0  # beyond 1000, exp(d) is exactly 0
    # Fused kernels round weights to the 16-bit input dtype before the second product.
    narrowed = dtype_of(first.dtype).unit_roundoff / unit_roundoff(first) if first.dtype.itemsize == 2 else 0.0
    error = _weighted_error(p, scores_worst + exp_error + narrowed)
    square = _weighted_error(p * p, scores_variance + (exp_error * exp_error + narrowed * narrowed) / 3.0)

    growth, growth_variance = growth_of_sum(weights.scores, count, (p.ndim - 1,))
    least = unit_roundoff(first)
    lost = 0.0 if is_double(first) else np.where(p < 0.5 * least, p, 0.0).sum(-1, keepdims=True) / least
    # float16 weights lose half a subnormal of float16 more.
    tiny = 8.0 * half_subnormal(double=is_double(first)) + (0.5 if first.dtype == np.float16 else 0.0)

    worst = error @ size + np.abs(y) * error.sum(-1, keepdims=True)
    worst += growth * (p @ size) + np.abs(y) * (growth + lost + 8.0) + tiny * size.sum(-2, keepdims=True)
    squares, values = value * value, y * y
    variance = 2.0 * (square @ squares + values * square.sum(-1, keepdims=True))
    variance += growth_variance * (values / 3.0 + (p * p) @ squares / 2.0)
    variance += values * (
        growth_variance * (1.0 / 3.0 + (p * p).sum(-1, keepdims=True) / 2.0) + 4.0 * lost * lost + 4.0
    )
    variance += tiny * tiny / 3.0 * squares.sum(-2, keepdims=True)
    # Only float32 operands are truncated, as to TF32; 16-bit ones are multiplied as they are.
    may_be_cut = any(np.asarray(x).dtype == np.float32 for x in inputs[:3])
    return (ErrorBudget(worst, variance, _truncation_error(operands, weights, y) if may_be_cut else None),)


def _truncation_error(operands: AttentionOperands, weights: Weights, y: Array) -> tuple[Array, Array]:
    """Return the worst error of y and its variance if the operands of both products are truncated."""
    p, slope = weights.shares, _slope_of_cap(weights)
    terms, squares = (np.where(weights.scores != -np.inf, x, 0.0) for x in _terms_of_scores(operands))
    terms, squares = slope * terms, slope * slope * squares
    size, magnitude = np.abs(_finite_or_zero(operands.value)), np.abs(y)
    error = _weighted_error(p, 2.0 * terms)
    worst = error @ size + magnitude * (error.sum(-1, keepdims=True) + 1.0) + 2.0 * (p @ size)
    of_keys = _weighted_error(p * p, squares)
    variance = 3.0 * ((p * p) @ (size * size)) + 2.0 * y * y * (p * p).sum(-1, keepdims=True)
    variance += 2.0 * (of_keys @ (size * size) + y * y * of_keys.sum(-1, keepdims=True))
    # A rounding of the query affects all keys: Σᵢ scale²·qᵢ²·(Σⱼ pⱼ·kᵢⱼ·(vⱼ − y))². Large calls use its bound by the
    # Cauchy–Schwarz inequality: Σⱼ pⱼ·Σᵢtᵢⱼ² · Σⱼ pⱼ·(vⱼ − y)².
    query, key, value = (_finite_or_zero(x) for x in (operands.query, operands.key, operands.value))
    if y.size * key.shape[-2] * key.shape[-1] > _MOST_PRODUCTS:
        of_queries = _weighted_error(p, squares).sum(-1, keepdims=True) * np.maximum(p @ (value * value) - y * y, 0.0)
    else:
        capped = p * slope
        shared = np.einsum("...ls,...si,...se->...lie", capped, key, value, optimize=True)
        shared = shared - (capped @ key)[..., :, None] * y[..., None, :]
        of_queries = operands.scale**2 * np.einsum("...li,...lie->...le", query * query, shared * shared)
    return np.asarray(worst), np.asarray(variance + of_queries)


def _finite_or_zero(array: Array) -> Array:
    """Return `array` with NaN and infinity replaced by 0."""
    # A non-finite element has a weight of 0, or makes an output that is not finite and has no error budget.
    return np.nan_to_num(array, nan=0.0, posinf=0.0, neginf=0.0)


def _errors_of_scores(operands: AttentionOperands, weights: Weights, first: Array) -> tuple[Array, Array]:
    """Return the worst error of each score and its variance; both are 0 for a score of −∞."""
    scores, query, key = weights.scores, operands.query, np.swapaxes(operands.key, -1, -2)
    elements = float(query.shape[-1])
    terms, squares = _terms_of_scores(operands)
    uncapped = operands.scale * (query @ key)
    worst = (4.0 * np.sqrt(elements) + 3.0) * terms
    variance = elements * (uncapped * uncapped / 3.0 + squares / 2.0) + squares
    if weights.tanh is not None:
        slope, size = _slope_of_cap(weights), np.abs(weights.tanh)
        instruction = 2.0**-11 / unit_roundoff(first) if first.dtype.itemsize == 2 else 0.0
        cap_error = operands.softcap * (8.0 + (2.0 + instruction) * size)
        worst, variance = (
            slope * (worst + np.abs(uncapped)) + cap_error,
            slope * slope * variance + cap_error * cap_error / 3.0,
        )
    with_mask = np.abs(scores)
    worst, variance = worst + with_mask, variance + with_mask * with_mask / 3.0
    is_visible = scores != -np.inf
    return np.where(is_visible, worst, 0.0), np.where(is_visible, variance, 0.0)


def _slope_of_cap(weights: Weights) -> Any:
    """Return the derivative of the capped score by the score."""
    return 1.0 if weights.tanh is None else 1.0 - weights.tanh * weights.tanh


def _terms_of_scores(operands: AttentionOperands) -> tuple[Array, Array]:
    """Return Σ|t| and Σt² over the terms t of each score."""
    query, key = operands.query, np.swapaxes(operands.key, -1, -2)
    squares = operands.scale**2 * ((query * query) @ (key * key))
    return np.asarray(abs(operands.scale) * (np.abs(query) @ np.abs(key))), np.asarray(squares)


def _weighted_error(weights: Array, errors: Array) -> Array:
    """Return weights · errors, with 0 for a weight of 0 even if its error is not finite."""
    return np.asarray(np.where(weights == 0.0, 0.0, weights * errors))


quiet_hooks(globals())
