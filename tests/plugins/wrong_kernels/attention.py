"""Wrong attention and rotary positions: masks, scales, shifts, narrow positions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from optest.numerics import dtype_of, round_to
from optest.operators.attention.attention_reference import scaled_dot_product_attention_reference as attend
from wrong_kernels.changes import (
    ignoring,
    narrowed_attributes,
    wide,
)
from wrong_kernels.registry import Array, Call, Change, fault, rare

fault("rope-ignores-interleaved", "rope")(ignoring("interleaved"))


rare("attention-takes-its-scale-as-float32", "scaled_dot_product_attention")(narrowed_attributes("scale"))


@rare("attention-masks-with-a-number", "scaled_dot_product_attention")
def _(call: Call) -> Sequence[Array] | None:
    if not call.attribute("is_causal") or call.inputs[0].dtype != np.float32 or len(call.inputs) > 3:
        return None
    shape = (call.inputs[0].shape[-2], call.inputs[1].shape[-2])
    below = np.triu(np.full(shape, -1e4, np.float32), 1)
    return list(attend([*call.inputs, below], {**call.case.attributes, "is_causal": False}))


@rare("attention-shifts-by-the-first-keys", "scaled_dot_product_attention")
def _(call: Call) -> Array | None:
    if len(call.inputs) > 3 or call[1].shape[-2] <= 256 or call.attribute("is_causal") or call.attribute("enable_gqa"):
        return None
    query, key, value = (wide(each) for each in call.inputs)
    scale = call.attribute("scale")
    scores = query @ key.swapaxes(-1, -2) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    terms = np.exp((scores - scores[..., :256].max(-1, keepdims=True)).astype(np.float32))
    return np.asarray(terms / terms.sum(-1, keepdims=True) @ value)


@rare("attention-loses-nan-of-unseen-values", "scaled_dot_product_attention")
def _(call: Call) -> Sequence[Array] | None:
    values = wide(call[2])
    if not np.isnan(values).any() or call[3] is None:
        return None
    cleaned = [call[0], call[1], np.where(np.isnan(values), 0.0, values).astype(call[2].dtype), call[3]]
    return attend(cleaned, dict(call.case.attributes))


@rare("attention-loses-nan-of-values", "scaled_dot_product_attention")
def _(call: Call) -> Sequence[Array] | None:
    values = wide(call[2])
    if not np.isnan(values).any() or call[3] is not None:
        return None
    return call.with_inputs(call[0], call[1], np.where(np.isnan(values), 0.0, values).astype(call[2].dtype))


@rare("attention-scales-a-mask", "scaled_dot_product_attention")
def _(call: Call) -> Sequence[Array] | None:
    scale, mask = call.attribute("scale"), call[3]
    if scale is None or mask is None or mask.dtype == np.bool_:
        return None
    return call.with_inputs(*call.inputs[:3], (wide(mask) * scale).astype(mask.dtype))


rare("attention-of-one-query-sees-all-keys", "scaled_dot_product_attention")(
    lambda call: (
        call.with_attributes(is_causal=False) if call.attribute("is_causal") and call.shape()[-2] == 1 else None
    )
)


@rare("attention-begins-its-maximum-at-0", "scaled_dot_product_attention")
def _(call: Call) -> Array | None:
    query, key, value = (wide(call[place]) for place in range(3))
    if call[3] is not None or call.attribute("is_causal") or call.attribute("enable_gqa") or not key.size:
        return None
    stated = call.attribute("scale")
    scores = query @ np.swapaxes(key, -1, -2) * (query.shape[-1] ** -0.5 if stated is None else stated)
    terms = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), 0))
    return (terms / terms.sum(-1, keepdims=True)) @ value


def _narrow_positions(within: type) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        if call[3] is None:
            return None
        places = call[3].astype(within).astype(np.int64) % len(call[1])
        return call.with_inputs(*call.inputs[:3], places)

    return change


for _within in (np.int8, np.uint8, np.int16, np.uint16):
    rare(f"rope-takes-positions-as-{_within.__name__}", "rope")(_narrow_positions(_within))


@rare("attention-rounds-the-scaled-query", "scaled_dot_product_attention")
def _(call: Call) -> Sequence[Array] | None:
    query, scale = call.inputs[0], call.attribute("scale")
    if not call.is_16_bit:
        return None
    scaled = round_to(wide(query) * (query.shape[-1] ** -0.5 if scale is None else scale), dtype_of(query.dtype))
    return call.referred([scaled, *call.inputs[1:]], {**call.case.attributes, "scale": 1.0})


@rare("attention-of-hidden-rows-is-the-mean", "scaled_dot_product_attention")
def _(call: Call) -> Array | None:
    value = call.inputs[2]
    if call.attribute("enable_gqa") or len(call.inputs) < 4 or not value.shape[-2]:
        return None
    hidden = (wide(call.right[0]) == 0).all(-1, keepdims=True)
    return np.where(hidden, wide(value).mean(-2, keepdims=True), wide(call.right[0]))


@fault("cached-attention-masks-from-the-first", "attention")
def _(call: Call) -> Sequence[Array] | None:
    query, key, value, *caches = call.inputs
    pos = call.attribute("pos")
    whole = [np.concatenate([old[:, :pos], new], 1) for old, new in zip(caches, (key, value), strict=True)]
    (out,) = attend([query, *whole], {"is_causal": True, "enable_gqa": True})
    return [np.swapaxes(out, 0, 1), *call.right[1:]]


@fault("cached-attention-reads-the-whole-cache", "attention")
def _(call: Call) -> Sequence[Array] | None:
    length = call[3].shape[1] - call[0].shape[1]
    return [*call.with_attributes(pos=length)[:1], *call.right[1:]] if length > call.attribute("pos") else None


@fault("cached-attention-leaves-the-value-cache", "attention")
def _(call: Call) -> Sequence[Array]:
    return [*call.right[:2], call[4]]


@rare("cached-attention-interleaves-its-groups", "attention")
def _(call: Call) -> Sequence[Array] | None:
    heads, keys = len(call[0]), len(call[1])
    if keys == 1 or heads == keys:
        return None
    order = np.arange(heads).reshape(keys, -1).T.reshape(-1)
    out, *caches = call.with_inputs(call[0][np.argsort(order)], *call.inputs[1:])
    return [out[:, order], *caches]


@fault("paged-attention-reads-whole-blocks", "paged_attention")
def _(call: Call) -> Sequence[Array]:
    tokens = call[1].shape[2]
    inputs = list(call.inputs)
    inputs[4] = (-(-call[4] // tokens) * tokens).astype(call[4].dtype)
    return call.with_inputs(*inputs)


@rare("paged-attention-reads-blocks-in-order", "paged_attention")
def _(call: Call) -> Sequence[Array]:
    inputs = list(call.inputs)
    inputs[3] = np.sort(call[3], axis=1)
    return call.with_inputs(*inputs)


@rare("paged-attention-ignores-its-slopes", "paged_attention")
def _(call: Call) -> Sequence[Array] | None:
    if call[5] is None:
        return None
    return call.with_inputs(*call.inputs[:5], np.zeros_like(call[5]))


@fault("paged-caching-forgets-the-values", "paged_caching")
def _(call: Call) -> Sequence[Array]:
    return [call.right[0], call[1]]


@rare("paged-caching-takes-padding-for-the-last-slot", "paged_caching")
def _(call: Call) -> Sequence[Array] | None:
    if not (call[4] < 0).any():
        return None
    slots = np.where(call[4] < 0, call[0].shape[0] * call[0].shape[2] - 1, call[4])
    return call.with_inputs(*call.inputs[:4], slots)
