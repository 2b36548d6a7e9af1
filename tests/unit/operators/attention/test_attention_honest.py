"""Samples of attention and rope pass for correct kernels in float32."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from sample_questions import widened_as_kernels_do as working
from sample_questions import wrong_answers

from optest.api.checking import sample_cases
from optest.core.expected import make_inputs
from optest.numerics import dtype_of, round_to, widen
from optest.operators import operators
from optest.registry import load_object
from optest.spec import UnfitArguments

Inputs = Sequence[Any]
Attributes = Mapping[str, Any]


def in_input_dtype(values: Any, like: Any) -> Any:
    """Return `values` rounded to the dtype of `like` if it has 16 bits, else unchanged."""
    if np.asarray(like).dtype.itemsize != 2:
        return values
    return widen(round_to(values.astype(np.float64), dtype_of(np.asarray(like).dtype))).astype(values.dtype)


def attention(inputs: Inputs, attributes: Attributes, variant: str = "") -> Any:
    q, k, v = (working(x) for x in inputs[:3])
    mask = inputs[3] if len(inputs) > 3 else None
    if attributes["enable_gqa"]:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
    scale = 1.0 / math.sqrt(q.shape[-1]) if attributes["scale"] is None else attributes["scale"]
    if variant == "scale on both sides" and scale > 0:
        root = q.dtype.type(math.sqrt(scale))
        scores = (q * root) @ (k * root).swapaxes(-1, -2)
    else:
        scores = q.dtype.type(scale) * (q @ k.swapaxes(-1, -2))
    if attributes["softcap"]:
        scores = cap_scores(scores, q.dtype.type(attributes["softcap"]), variant)
    (left, right), distance = attributes["window_size"], np.arange(k.shape[-2]) - np.arange(q.shape[-2])[:, None]
    right = 0 if attributes["is_causal"] else right
    scores = np.where(((distance < -left) & (left >= 0)) | ((distance > right) & (right >= 0)), -np.inf, scores)
    if mask is not None and np.asarray(mask).dtype == np.bool_:
        scores = np.where(np.asarray(mask), scores, -np.inf)
    elif mask is not None:
        scores = scores + working(mask)
    scores = scores.astype(q.dtype)
    shift: Any = scores.max(-1, keepdims=True, initial=-np.inf)
    shift = np.where(shift == -np.inf, 0, shift)
    p = np.exp(scores - shift)
    if variant == "powers of two":
        p = np.exp2((scores - shift) * q.dtype.type(1.4426950408889634))
    total = p.sum(-1, keepdims=True)
    total = np.where(total == 0, 1, total)
    if variant == "weights in 16 bits, normalised":
        return in_input_dtype(p / total, inputs[0]) @ v
    return (in_input_dtype(p, inputs[0]) if variant == "weights in 16 bits" else p) @ v / total


def cap_scores(scores: Any, cap: Any, variant: str) -> Any:
    """Return cap · tanh(scores / cap), for powers of two by exponentials as in vLLM."""
    if variant != "powers of two":
        return cap * np.tanh(scores / cap)
    up, down = np.exp(scores / cap), np.exp(-scores / cap)
    return cap * ((up - down) / (up + down))


@pytest.mark.parametrize(
    "variant", ["", "powers of two", "scale on both sides", "weights in 16 bits", "weights in 16 bits, normalised"]
)
def test_attention_variants_pass(variant: str) -> None:
    # Units for 16-bit matrices require weights in 16 bits.
    assert wrong_answers("sdpa", lambda inputs, attributes: attention(inputs, attributes, variant)) == []


def attention_in_blocks(inputs: Inputs, attributes: Attributes, block: int) -> Any:
    """Return attention in blocks of keys with a running maximum and 16-bit weights, as in fused kernels."""
    plain = attributes["window_size"] == (-1, -1) and not attributes["softcap"]
    if not plain or attributes["enable_gqa"] or attributes["is_causal"] or (len(inputs) > 3 and inputs[3] is not None):
        return attention(inputs, attributes)
    q, k, v = (working(x) for x in inputs[:3])
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
        result = result * rescale + in_input_dtype(p, inputs[0]) @ v[..., start : start + block, :]
        largest = above
    return result / np.where(total == 0, 1, total)


@pytest.mark.parametrize("block", [16, 64])
def test_attention_in_blocks_passes(block: int) -> None:
    assert wrong_answers("sdpa", lambda inputs, attributes: attention_in_blocks(inputs, attributes, block)) == []


def rope(inputs: Inputs, attributes: Attributes) -> Any:
    source, cos, sin, positions = (*inputs, None)[:4]
    x, cos, sin = working(source).copy(), working(cos), working(sin)
    if positions is not None:
        rows = np.asarray(positions).astype(np.int64)
        cos, sin = cos[rows], sin[rows]
    if cos.ndim > 2:
        shape = (cos.shape[0], *(1,) * (x.ndim - 3), *cos.shape[1:])
        cos, sin = cos.reshape(shape), sin.reshape(shape)
    size = attributes["rotary_embedding_dim"] or x.shape[-1]
    if attributes["interleaved"]:
        a, b = x[..., 0:size:2].copy(), x[..., 1:size:2].copy()
        x[..., 0:size:2], x[..., 1:size:2] = a * cos - b * sin, b * cos + a * sin
    else:
        a, b = x[..., : size // 2].copy(), x[..., size // 2 : size].copy()
        x[..., : size // 2], x[..., size // 2 : size] = a * cos - b * sin, b * cos + a * sin
    return x


def test_rope_passes() -> None:
    assert wrong_answers("rope", rope) == []


def test_prefill_samples_have_no_more_queries_than_tokens() -> None:
    # More queries than tokens are outside of the description; kernels may refuse them, and the reference does.
    for case in sample_cases("paged_prefill_attention"):
        if case.expects_error is None:
            for seed in (0, 1, 2):
                inputs = make_inputs(dataclasses.replace(case, seed=seed))[0]
                assert (np.diff(inputs[5].astype(int)) <= inputs[4]).all(), case.id
    early = [np.ones((3, 1, 2), np.float32), *[np.ones((1, 1, 4, 2), np.float32)] * 2]
    tables, lengths, offsets = (np.array(x, np.int64) for x in ([[0]], [2], [0, 3]))
    reference = load_object(str(operators.get("paged_prefill_attention").reference))
    with pytest.raises(UnfitArguments, match="seq_lens is 2"):
        reference([*early, tables, lengths, offsets], {"window_size": (-1, -1), "softcap": 0.0})


def merge(inputs: Inputs, attributes: Attributes, variant: str) -> tuple[Any, ...]:
    prefix, a, suffix, b = map(working, inputs)
    if variant == "by a sigmoid":  # as in ring attention
        apart = np.where(a == b, 0, b - a).astype(a.dtype)
        share = 1 / (1 + np.exp(-apart))
        lse = np.where(a == -np.inf, b, a + np.maximum(apart, 0) + np.log1p(np.exp(-np.abs(apart))))
        return prefix - share.T[..., None] * (prefix - suffix), np.where(b == -np.inf, a, lse)
    base = a.dtype.type(math.log(2) if variant == "base 2" else 1)
    empty = np.maximum(a, b) == -np.inf
    shift = np.where(empty, 0, np.maximum(a, b))
    power = np.exp2 if variant == "base 2" else np.exp
    first, second = (power((x - shift) / base) for x in (a, b))
    total = np.where(empty, 1, first + second)
    lse = np.where(empty, -np.inf, np.log(total) + shift)
    if variant == "by the result's log-sum-exp":  # as in FlashAttention and in the description
        first, second = (np.exp(np.where(empty, -np.inf, x - lse)) for x in (a, b))
        return prefix * first.T[..., None] + suffix * second.T[..., None], lse
    if variant == "divided at the end":
        return (prefix * first.T[..., None] + suffix * second.T[..., None]) / total.T[..., None], lse
    return prefix * (first / total).T[..., None] + suffix * (second / total).T[..., None], lse


@pytest.mark.parametrize("variant", ["", "base 2", "divided at the end", "by the result's log-sum-exp", "by a sigmoid"])
@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.heavy)])
def test_merge_variants_pass(variant: str, seed: int) -> None:
    assert wrong_answers("merge_attention_states", lambda *call: merge(*call, variant), seed) == []


def varlen(inputs: Inputs, attributes: Attributes, block: int) -> tuple[Any, ...]:
    """Return attention per sequence in blocks of keys with a running maximum, and its log-sum-exp."""
    query, key, value = map(working, inputs[:3])
    of_queries, of_keys = (np.asarray(x).astype(int) for x in inputs[3:5])
    kind = query.dtype.type
    out = np.zeros((*query.shape[:2], value.shape[2]), kind)
    lse = np.zeros(query.shape[1::-1], kind)
    scale = kind(query.shape[2] ** -0.5 if attributes["scale"] is None else attributes["scale"])
    left, right = attributes["window_size"]
    right = 0 if attributes["is_causal"] else right
    for start, stop, first, last in zip(of_queries, of_queries[1:], of_keys, of_keys[1:], strict=False):
        q, k, v = (np.swapaxes(x, 0, 1) for x in (query[start:stop], key[first:last], value[first:last]))
        k, v = (np.repeat(x, len(q) // len(x), 0) for x in (k, v))
        distance = np.arange(last - first) - (last - first - stop + start) - np.arange(stop - start)[:, None]
        is_visible = ((distance >= -left) | (left < 0)) & ((distance <= right) | (right < 0))
        largest = np.full((*q.shape[:2], 1), -np.inf, kind)
        total, result = np.zeros_like(largest), np.zeros((*q.shape[:2], v.shape[2]), kind)
        for tile in range(0, last - first, block):
            keys = slice(tile, tile + block)
            scores = q @ k[:, keys].swapaxes(1, 2) * scale
            scores = cap_scores(scores, kind(attributes["softcap"]), "") if attributes["softcap"] else scores
            scores = np.where(is_visible[:, keys], scores, -np.inf)
            higher = np.maximum(largest, scores.max(-1, keepdims=True))
            shift = np.where(higher == -np.inf, 0, higher)
            weights, rescale = np.exp(scores - shift), np.exp(largest - shift)
            total, result = (
                total * rescale + weights.sum(-1, keepdims=True),
                result * rescale + in_input_dtype(weights, inputs[0]) @ v[:, keys],
            )
            largest = higher
        out[start:stop] = np.swapaxes(result / np.where(total == 0, 1, total), 0, 1)
        lse[:, start:stop] = (largest + np.log(np.where(total == 0, 1, total)))[..., 0]
    return (out, lse)[: 1 + attributes["return_lse"]]


@pytest.mark.parametrize("block", [16, 1000])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.heavy)])
def test_varlen_attention_in_blocks_passes(block: int, seed: int) -> None:
    assert wrong_answers("varlen_attention", lambda *call: varlen(*call, block), seed) == []
