"""What attention computes, and what it may lose."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from optest.numerics import dtype_of
from optest.operators.arrays import Array, Attributes, Inputs, as_float64, is_double, optional_input, quiet_hooks
from optest.operators.budgets import growth_of_sum, half_subnormal, unit_roundoff
from optest.spec import ErrorBudget

_MOST_PRODUCTS = 1 << 22
"""Of a query, a key and a value, which is some milliseconds."""


class AttentionOperands(NamedTuple):
    """Widened, with as many heads of key and value as query has; ``mask`` is what is added to the scores."""

    query: Array
    key: Array
    value: Array
    mask: Array | None
    scale: float
    softcap: float


class Weights(NamedTuple):
    """Scores with their mask, and what the rows of value are weighted with; a row without any key has zeros.
    ``tanh`` is what the cap is multiplied by, None without one."""

    scores: Array
    tanh: Array | None
    shifted: Array
    shares: Array
    total: Array


def scaled_dot_product_attention_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """softmax(cap(scale · query · keyᵀ) + mask) · value. As in torch, a query that sees no key gets zeros."""
    operands = attention_operands(inputs, attributes)
    return (np.asarray(attention_weights(operands).shares @ operands.value),)


def log_sum_exp(inputs: Inputs, attributes: Attributes) -> tuple[Array, ErrorBudget]:
    """Return the log-sum-exp of the scores of each query, and what it may lose, in units of u.

    A share p of a sum moves its logarithm by p of what it is off: a score by its own error, exp by ``2|d| + 6``. The
    sum adds ``4√S`` and the shares below u/2, its logarithm ``6·|ln Σ|`` (3 ulp), and the maximum a rounding of itself.
    """
    first, operands = np.asarray(inputs[0]), attention_operands(inputs, attributes)
    weights = attention_weights(operands)
    p, total, least = weights.shares, np.log(weights.total[..., 0]), unit_roundoff(first)
    lse = weights.scores.max(-1, initial=-np.inf) + total
    off = _errors_of_scores(operands, weights, first)[0] + 2.0 * np.minimum(np.abs(weights.shifted), 1000.0) + 6.0
    growth = growth_of_sum(weights.scores, float(p.shape[-1]), (p.ndim - 1,))[0][..., 0]
    lost = 0.0 if is_double(first) else np.where(p < 0.5 * least, p, 0.0).sum(-1) / least
    worst = _times(p, off).sum(-1) + growth + lost + 6.0 * np.abs(total) + np.abs(lse)
    cut = _times(p, 2.0 * _slope(weights) * _terms_of_scores(operands)[0]).sum(-1)
    return lse, ErrorBudget(np.where(lse == -np.inf, 0.0, worst), None, (cut, cut * cut))


def attention_operands(inputs: Inputs, attributes: Attributes) -> AttentionOperands:
    query, key, value = (as_float64(each) for each in inputs[:3])
    if attributes.get("enable_gqa"):
        # head h of query reads head h // (heads of query / heads of key)
        key, value = (np.repeat(each, query.shape[-3] // each.shape[-3], axis=-3) for each in (key, value))
    stated = attributes.get("scale")
    scale = stated if stated is not None else 1.0 / math.sqrt(query.shape[-1] or 1)
    mask = optional_input(inputs, 3)
    if mask is not None:
        mask = np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else as_float64(mask)
    seen = seen_keys(query.shape[-2], key.shape[-2], attributes)
    if seen is not None:
        mask = np.where(seen, 0.0 if mask is None else mask, -np.inf)
    return AttentionOperands(query, key, value, mask, scale, attributes.get("softcap", 0.0))


def seen_keys(queries: int, keys: int, attributes: Attributes, first: int = 0) -> Array | None:
    """Which keys each query sees by ``is_causal`` and ``window_size``, where query i has the place ``first`` + i; None
    if all of them."""
    left, right = attributes.get("window_size", (-1, -1))
    right = 0 if attributes.get("is_causal") else right
    if left < 0 and right < 0:
        return None
    move = attributes.get("position of the first query", 0)  # only set by diagnosis, as a hypothesis on a wrong kernel
    first = keys - queries - first if move == "end" else first + move
    behind = np.arange(keys) - first - np.arange(queries)[:, None]
    return np.asarray(((behind >= -left) | (left < 0)) & ((behind <= right) | (right < 0)))


def attention_weights(operands: AttentionOperands) -> Weights:
    scores = operands.scale * (operands.query @ np.swapaxes(operands.key, -1, -2))
    tanh = np.tanh(scores / operands.softcap) if operands.softcap else None
    scores = scores if tanh is None else operands.softcap * tanh
    if operands.mask is not None:
        scores = scores + operands.mask
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    shifted = scores - np.where(largest == -np.inf, 0.0, largest)
    shares = np.exp(shifted)
    total = shares.sum(-1, keepdims=True)
    total = np.where(total == 0.0, 1.0, total)
    shares /= total
    return Weights(scores, tanh, shifted, shares, total)


def scaled_dot_product_attention_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Errors of the scores, of the softmax of perturbed scores and of the weighted sum, first order.

    For one query with S keys of E elements: t are the terms scale·qᵢ·kᵢ of a score s (mask included), d = s − max,
    p the weights and y = Σp·v. In units of u:

    - a score is off by ``(4√E + 3)·Σ|t| + |s|``: its sum, scale (whole, or its root on both sides, before or after
      the sum) and the mask; an error common to all scores of a query has no effect;
    - a cap c multiplies that by its slope, 1 − tanh², and adds ``c·(8 + 2|tanh|)``: tanh by exponentials is off by some
      u of 1, not of itself. For 16-bit inputs 2⁻¹¹ of itself more, as GPUs' instruction (PTX ISA: tanh.approx.f32);
    - exp(d) is off by ``2|d| + 6`` of itself, as in softmax;
    - for 16-bit inputs a weight may be rounded to their type before it meets value: ``r = u₁₆/u`` of itself, in
      float16 half a subnormal more. Units that multiply 16-bit matrices take no other operands, so every fused
      kernel does it. Scores are not operands of anything: rounding them to 16 bits is an error;
    - whatever their size, weights are off by a few subnormals;
    - with ε the sum of the relative ones, y is off by ``Σp·ε·|v − y|`` ≤ ``Σp·ε·|v| + |y|·Σp·ε``;
    - the two sums over the keys add ``4√S·(Σp|v| + |y|)``, and weights below u/2 of the sum may vanish from it;
    - dividing, and rescaling what an online softmax has summed so far, which multiplies both sums alike: ``8·|y|``.

    Where the scores of a query repeat few values, S takes the place of 4√S. Variances are those of independent
    roundings; |v − y|² is taken as 2v² + 2y².

    Where a backend cuts float32 operands before it multiplies them, in units of the roundoff that they are cut to:
    ``2Σ|t|`` for a score, as each product has two, ``2Σp|v|`` for the weighted sum, and |y| for weights that were added
    up after they were cut.
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
    own = 2.0 * np.minimum(np.abs(weights.shifted), 1000.0) + 6.0  # beyond, exp(d) is 0 without any error
    narrowed = dtype_of(first.dtype).unit_roundoff / unit_roundoff(first) if first.dtype.itemsize == 2 else 0.0
    error = _times(p, scores_worst + own + narrowed)
    square = _times(p * p, scores_variance + (own * own + narrowed * narrowed) / 3.0)

    growth, growth_variance = growth_of_sum(weights.scores, count, (p.ndim - 1,))
    least = unit_roundoff(first)
    lost = 0.0 if is_double(first) else np.where(p < 0.5 * least, p, 0.0).sum(-1, keepdims=True) / least
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
    may_be_cut = any(np.asarray(each).dtype == np.float32 for each in inputs[:3])
    return (ErrorBudget(worst, variance, _of_cut_operands(operands, weights, y) if may_be_cut else None),)


def _of_cut_operands(operands: AttentionOperands, weights: Weights, y: Array) -> tuple[Array, Array]:
    """What y loses if the operands of both products are cut: at worst, and its variance."""
    p, slope = weights.shares, _slope(weights)
    terms, squares = (np.where(weights.scores != -np.inf, each, 0.0) for each in _terms_of_scores(operands))
    terms, squares = slope * terms, slope * slope * squares
    size, magnitude = np.abs(_finite(operands.value)), np.abs(y)
    error = _times(p, 2.0 * terms)
    worst = error @ size + magnitude * (error.sum(-1, keepdims=True) + 1.0) + 2.0 * (p @ size)
    of_keys = _times(p * p, squares)
    variance = 3.0 * ((p * p) @ (size * size)) + 2.0 * y * y * (p * p).sum(-1, keepdims=True)
    variance += 2.0 * (of_keys @ (size * size) + y * y * of_keys.sum(-1, keepdims=True))
    # Roundings of the query meet every key: Σᵢ scale²·qᵢ²·(Σⱼ pⱼ·kᵢⱼ·(vⱼ − y))². Of a large call the bound by Cauchy
    # and Schwarz: Σⱼ pⱼ·Σᵢtᵢⱼ² · Σⱼ pⱼ·(vⱼ − y)².
    query, key, value = (_finite(each) for each in (operands.query, operands.key, operands.value))
    if y.size * key.shape[-2] * key.shape[-1] > _MOST_PRODUCTS:
        of_queries = _times(p, squares).sum(-1, keepdims=True) * np.maximum(p @ (value * value) - y * y, 0.0)
    else:
        capped = p * slope
        shared = np.einsum("...ls,...si,...se->...lie", capped, key, value, optimize=True)
        shared = shared - (capped @ key)[..., :, None] * y[..., None, :]
        of_queries = operands.scale**2 * np.einsum("...li,...lie->...le", query * query, shared * shared)
    return np.asarray(worst), np.asarray(variance + of_queries)


def _finite(array: Array) -> Array:
    """Without what meets no weight, or makes a result that is not finite either."""
    return np.nan_to_num(array, nan=0.0, posinf=0.0, neginf=0.0)


def _errors_of_scores(operands: AttentionOperands, weights: Weights, first: Array) -> tuple[Array, Array]:
    """The worst error of each score and its variance; 0 where a score is −∞, which no error reaches."""
    scores, query, key = weights.scores, operands.query, np.swapaxes(operands.key, -1, -2)
    elements = float(query.shape[-1])
    terms, squares = _terms_of_scores(operands)
    plain = operands.scale * (query @ key)
    worst = (4.0 * np.sqrt(elements) + 3.0) * terms
    variance = elements * (plain * plain / 3.0 + squares / 2.0) + squares
    if weights.tanh is not None:
        slope, size = _slope(weights), np.abs(weights.tanh)
        instruction = 2.0**-11 / unit_roundoff(first) if first.dtype.itemsize == 2 else 0.0
        own = operands.softcap * (8.0 + (2.0 + instruction) * size)
        worst, variance = slope * (worst + np.abs(plain)) + own, slope * slope * variance + own * own / 3.0
    with_mask = np.abs(scores)
    worst, variance = worst + with_mask, variance + with_mask * with_mask / 3.0
    seen = scores != -np.inf
    return np.where(seen, worst, 0.0), np.where(seen, variance, 0.0)


def _slope(weights: Weights) -> Any:
    """By how much a score grows with what is capped."""
    return 1.0 if weights.tanh is None else 1.0 - weights.tanh * weights.tanh


def _terms_of_scores(operands: AttentionOperands) -> tuple[Array, Array]:
    """Σ|t| and Σt² of each score."""
    query, key = operands.query, np.swapaxes(operands.key, -1, -2)
    squares = operands.scale**2 * ((query * query) @ (key * key))
    return np.asarray(abs(operands.scale) * (np.abs(query) @ np.abs(key))), np.asarray(squares)


def _times(weights: Array, errors: Array) -> Array:
    """The product, 0 for a weight of 0 whatever its error."""
    return np.asarray(np.where(weights == 0.0, 0.0, weights * errors))


quiet_hooks(globals())
