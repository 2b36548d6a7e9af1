"""What attention and rotary positions compute, in float64 from the inputs as they are stored."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, quiet, spec_of
from optest.operators.attention.inference import rotated_size

__all__ = [
    "AttentionOperands",
    "Weights",
    "attention_operands",
    "attention_weights",
    "rope_parts",
    "rope_reference",
    "rotated",
    "scaled_dot_product_attention_reference",
]


class AttentionOperands(NamedTuple):
    """Widened, with as many heads of key and value as query has; ``mask`` is what is added to the scores."""

    query: Array
    key: Array
    value: Array
    mask: Array | None
    scale: float


class Weights(NamedTuple):
    """Scores with their mask, and what the rows of value are weighted with; a row without any key has zeros."""

    scores: Array
    shifted: Array
    shares: Array
    total: Array


@quiet
def scaled_dot_product_attention_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """softmax(scale · query · keyᵀ + mask) · value. As in torch, a query that sees no key gets zeros."""
    operands = attention_operands(inputs, attributes)
    return (np.asarray(attention_weights(operands).shares @ operands.value),)


def attention_operands(inputs: Inputs, attributes: Attributes) -> AttentionOperands:
    query, key, value = (as_float64(each) for each in inputs[:3])
    given = inputs[3] if len(inputs) > 3 else None
    if attributes.get("enable_gqa"):
        # head h of query reads head h // (heads of query / heads of key)
        key, value = (np.repeat(each, query.shape[-3] // each.shape[-3], axis=-3) for each in (key, value))
    stated = attributes.get("scale")
    scale = stated if stated is not None else 1.0 / math.sqrt(query.shape[-1] or 1)
    return AttentionOperands(query, key, value, _mask(given, query, key, bool(attributes.get("is_causal"))), scale)


def _mask(given: object, query: Array, key: Array, causal: bool) -> Array | None:
    """−∞ where a key is not seen. The causal mask starts at the first query and the first key."""
    if causal:
        return np.where(np.tri(query.shape[-2], key.shape[-2], dtype=bool), 0.0, -np.inf)
    if given is None:
        return None
    mask = np.asarray(given)
    return np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else as_float64(mask)


def attention_weights(operands: AttentionOperands) -> Weights:
    scores = operands.scale * (operands.query @ np.swapaxes(operands.key, -1, -2))
    if operands.mask is not None:
        scores = scores + operands.mask
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    shifted = scores - np.where(largest == -np.inf, 0.0, largest)
    shares = np.exp(shifted)
    total = shares.sum(-1, keepdims=True)
    total = np.where(total == 0.0, 1.0, total)
    shares /= total
    return Weights(scores, shifted, shares, total)


@quiet
def rope_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """(x₁·cos − x₂·sin, x₂·cos + x₁·sin) for each pair; what is beyond the rotated part stays."""
    first, second, cos, sin = rope_parts(inputs, attributes)
    x = as_float64(inputs[0])
    return (rotated(x, first * cos - second * sin, second * cos + first * sin, attributes),)


def rope_parts(inputs: Inputs, attributes: Attributes) -> tuple[Array, Array, Array, Array]:
    """The first and the second elements of the pairs, and cos and sin broadcast to them."""
    x, cos, sin = (as_float64(each) for each in inputs[:3])
    size = rotated_size(spec_of(np.asarray(inputs[0])), attributes)
    if len(inputs) > 3 and inputs[3] is not None:
        positions = np.asarray(inputs[3]).astype(np.int64)
        cos, sin = cos[positions], sin[positions]
    if cos.ndim > 2:  # one set for each batch: the heads lie between
        between = (cos.shape[0], *(1,) * (x.ndim - 3), *cos.shape[1:])
        cos, sin = cos.reshape(between), sin.reshape(between)
    part = x[..., :size]
    if attributes.get("interleaved"):
        return part[..., 0::2], part[..., 1::2], cos, sin
    return part[..., : size // 2], part[..., size // 2 :], cos, sin


def rotated(x: Array, first: Array, second: Array, attributes: Attributes) -> Array:
    """``x`` with its pairs replaced."""
    out: Array = x.copy()
    half = first.shape[-1]
    if attributes.get("interleaved"):
        out[..., 0 : 2 * half : 2], out[..., 1 : 2 * half : 2] = first, second
    else:
        out[..., :half], out[..., half : 2 * half] = first, second
    return out
