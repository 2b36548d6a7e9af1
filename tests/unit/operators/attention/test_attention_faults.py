"""The samples of attention and rope find faults of every kind, and nothing in kernels that are right."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from sample_questions import wrong_answers

from optest.numerics import dtype_of, round_to, widen
from optest.spec import dtype

Array = np.ndarray[Any, Any]
Attributes = Mapping[str, Any]


def working(array: Any) -> Any:
    wide = widen(np.asarray(array))
    return wide if np.asarray(array).dtype == np.float64 else wide.astype(np.float32)


def half(values: Any, like: Any) -> Any:
    """Rounded to the dtype of 16-bit inputs; as they are for others."""
    if np.asarray(like).dtype.itemsize != 2:
        return values
    return widen(round_to(values.astype(np.float64), dtype_of(np.asarray(like).dtype))).astype(values.dtype)


def attention(inputs: Sequence[Any], attributes: Attributes, fault: str = "") -> Any:
    q, k, v = (working(each) for each in inputs[:3])
    mask = inputs[3] if len(inputs) > 3 else None
    if attributes["enable_gqa"]:
        times = q.shape[-3] // k.shape[-3]
        if fault == "heads taken in turn":
            k, v = np.concatenate([k] * times, axis=-3), np.concatenate([v] * times, axis=-3)
        else:
            k, v = np.repeat(k, times, axis=-3), np.repeat(v, times, axis=-3)
        if fault == "first head for all":
            k, v = (np.broadcast_to(each[..., :1, :, :], each.shape) for each in (k, v))
    length, keys = q.shape[-2], k.shape[-2]
    scale = attributes["scale"]
    if scale is None or fault == "scale attribute ignored":
        scale = 1.0 / math.sqrt(q.shape[-1])
    if fault == "scale missing":
        scale = 1.0
    if fault == "scale by the number of keys" and keys:
        scale = 1.0 / math.sqrt(keys)
    if fault == "scale on both sides" and scale > 0:
        root = q.dtype.type(math.sqrt(scale))
        scores = (q * root) @ (k * root).swapaxes(-1, -2)
    elif fault == "16-bit operands":
        q, k = half(q, inputs[0]) * q.dtype.type(1), k
        q = half(q * q.dtype.type(scale), inputs[0])
        scores = q @ k.swapaxes(-1, -2)
    else:
        scores = q.dtype.type(scale) * (q @ k.swapaxes(-1, -2))
    if fault == "scores in 16 bits":
        scores = half(scores, inputs[0])
    if attributes["is_causal"] and fault != "causal ignored":
        diagonal = {"causal one too many": 1, "causal one too few": -1, "causal from the end": keys - length}.get(
            fault, 0
        )
        scores = np.where(np.tri(length, keys, diagonal, dtype=bool), scores, -np.inf)
    if mask is not None and fault != "mask ignored":
        array = np.asarray(mask)
        if array.dtype == np.bool_:
            seen = ~array if fault == "bool mask inverted" else array
            hidden = -10.0 if fault == "hidden scores are only small" else -np.inf
            scores = (
                scores + np.where(seen, 1.0, 0.0) if fault == "bool mask as numbers" else np.where(seen, scores, hidden)
            )
        else:
            scores = scores + working(mask) * (2 if fault == "mask added twice" else 1)
            if fault == "mask before scale":
                scores = scores + working(mask) * (scores.dtype.type(scale) - 1)
    scores = scores.astype(q.dtype)
    shift: Any = scores.max(-1, keepdims=True, initial=-np.inf)
    if fault != "masked rows are NaN":
        shift = np.where(shift == -np.inf, 0, shift)
    if fault == "no shift by the maximum":
        shift = 0
    p = np.exp(scores - shift)
    if fault == "powers of two":
        p = np.exp2((scores - shift) * q.dtype.type(1.4426950408889634))
    total = p.sum(-1, keepdims=True)
    if fault == "masked rows are the mean" and keys:
        p, total = np.where(total == 0, 1, p), np.where(total == 0, keys, total)
    if fault == "last key is lost" and keys > 1:
        p = p.copy()
        p[..., -1] = 0
    if fault == "last tile of the keys is lost" and keys > 16 and keys % 16:
        p = p.copy()
        p[..., keys - keys % 16 :] = 0
        total = p.sum(-1, keepdims=True)
    if fault in ("weights in 16 bits", "weights in 16 bits, normalised"):
        p = half(p / np.where(total == 0, 1, total) if "normalised" in fault else p, inputs[0])
        total = np.ones_like(total) if "normalised" in fault else total
    if fault == "not normalised":
        total = np.ones_like(total)
    if fault == "sum in 16 bits":
        total = np.zeros_like(total)
        for key in range(keys):
            total = half(total + p[..., key : key + 1], inputs[0])
    if fault == "weights in 8 bits":
        p = widen(round_to(p.astype(np.float64), dtype("float8_e4m3fn"))).astype(p.dtype)
    if fault != "masked rows are NaN":
        total = np.where(total == 0, 1, total)
    result = p @ v / total
    if fault == "softmax over queries" and length == keys:
        p = np.exp(scores - scores.max(-2, keepdims=True, initial=-np.inf))
        result = p / p.sum(-2, keepdims=True) @ v
    return result


ATTENTIONS = (
    "heads taken in turn",
    "first head for all",
    "scale attribute ignored",
    "scale missing",
    "scale by the number of keys",
    "scores in 16 bits",
    "16-bit operands",
    "causal ignored",
    "causal one too many",
    "causal one too few",
    "causal from the end",
    "mask ignored",
    "bool mask inverted",
    "bool mask as numbers",
    "hidden scores are only small",
    "mask added twice",
    "mask before scale",
    "masked rows are NaN",
    "masked rows are the mean",
    "no shift by the maximum",
    "last key is lost",
    "last tile of the keys is lost",
    "not normalised",
    "sum in 16 bits",
    "weights in 8 bits",
    "softmax over queries",
)


@pytest.mark.parametrize(
    "way", ["", "powers of two", "scale on both sides", "weights in 16 bits", "weights in 16 bits, normalised"]
)
def test_honest_attention_raises_no_alarm(way: str) -> None:
    """Rounding the weights to the inputs' 16 bits is what units for 16-bit matrices ask for."""
    assert wrong_answers("sdpa", lambda inputs, attributes: attention(inputs, attributes, way)) == []


@pytest.mark.parametrize("fault", ATTENTIONS)
def test_faulty_attention_is_found(fault: str) -> None:
    assert wrong_answers("sdpa", lambda inputs, attributes: attention(inputs, attributes, fault), first=True)


def online(inputs: Sequence[Any], attributes: Attributes, block: int = 16) -> Any:
    """Attention in blocks of keys with a running maximum, weights in 16 bits, as fused kernels compute it."""
    if attributes["enable_gqa"] or attributes["is_causal"] or (len(inputs) > 3 and inputs[3] is not None):
        return attention(inputs, attributes)
    q, k, v = (working(each) for each in inputs[:3])
    kind = q.dtype.type
    scale = kind(attributes["scale"] if attributes["scale"] is not None else 1.0 / math.sqrt(q.shape[-1]))
    largest = np.full((*q.shape[:-1], 1), -np.inf, q.dtype)
    total, result = np.zeros_like(largest), np.zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    for start in range(0, k.shape[-2], block):
        scores = scale * (q @ k[..., start : start + block, :].swapaxes(-1, -2))
        above = np.maximum(largest, scores.max(-1, keepdims=True))
        p = np.exp(scores - np.where(above == -np.inf, 0, above))
        rescale = np.exp(largest - np.where(above == -np.inf, 0, above))
        total = total * rescale + p.sum(-1, keepdims=True)
        result = result * rescale + half(p, inputs[0]) @ v[..., start : start + block, :]
        largest = above
    return result / np.where(total == 0, 1, total)


@pytest.mark.parametrize("block", [1, 16, 64])
def test_online_softmax_raises_no_alarm(block: int) -> None:
    assert wrong_answers("sdpa", lambda inputs, attributes: online(inputs, attributes, block)) == []


def rope(inputs: Sequence[Any], attributes: Attributes, fault: str = "") -> Any:
    source, cos, sin, positions = (*inputs, None)[:4]
    x, cos, sin = working(source).copy(), working(cos), working(sin)
    if positions is not None:
        rows = np.asarray(positions).astype(np.int64)
        if fault == "positions ignored":
            rows = np.broadcast_to(np.arange(rows.shape[-1]), rows.shape)
        if fault == "positions of the first batch":
            rows = rows[:1] if rows.ndim == 2 else rows
        cos, sin = cos[rows], sin[rows]
    if cos.ndim > 2:
        if fault == "tables of the first batch":
            cos, sin = cos[:1], sin[:1]
        shape = (cos.shape[0], *(1,) * (x.ndim - 3), *cos.shape[1:])
        cos, sin = cos.reshape(shape), sin.reshape(shape)
    size = attributes["rotary_embedding_dim"] or x.shape[-1]
    if fault == "everything rotated" and size == x.shape[-1] // 2:
        return rope((source, *inputs[1:]), {**attributes, "rotary_embedding_dim": size}, "sign")
    interleaved = attributes["interleaved"]
    if fault == "pairs the other way":
        interleaved = not interleaved
    part = x[..., :size]
    if interleaved:
        a, b = part[..., 0::2], part[..., 1::2]
    else:
        a, b = part[..., : size // 2], part[..., size // 2 :]
    if fault == "pairs swapped":
        a, b = b, a
    if fault == "cos and sin swapped":
        cos, sin = sin, cos
    sign = -1 if fault == "sign" else 1
    products = [a * cos, b * sin * sign, b * cos, a * sin * sign]
    if fault == "products in 16 bits":
        products = [half(each, source) for each in products]
    first, second = products[0] - products[1], products[2] + products[3]
    if fault == "second from the new first":
        second = b * cos + first * sin
    if fault == "both signs minus":
        second = products[2] - products[3]
    if interleaved:
        x[..., 0:size:2], x[..., 1:size:2] = first, second
    else:
        x[..., : size // 2], x[..., size // 2 : size] = first, second
    if fault == "rest is zero":
        x[..., size:] = 0
    if fault == "interleaved result of halves" and not attributes["interleaved"]:
        x[..., 0:size:2], x[..., 1:size:2] = first, second
    return x


ROPES = (
    "pairs the other way",
    "pairs swapped",
    "cos and sin swapped",
    "sign",
    "products in 16 bits",
    "second from the new first",
    "both signs minus",
    "rest is zero",
    "interleaved result of halves",
    "positions ignored",
    "positions of the first batch",
    "tables of the first batch",
)


def test_an_honest_rope_raises_no_alarm() -> None:
    assert wrong_answers("rope", rope) == []


@pytest.mark.parametrize("fault", ROPES)
def test_faulty_ropes_are_found(fault: str) -> None:
    assert wrong_answers("rope", lambda inputs, attributes: rope(inputs, attributes, fault), first=True)
