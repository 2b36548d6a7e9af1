"""Wrong attention and rotary positions: masks, scales, shifts, narrow positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from optest.numerics import dtype_of, round_to
from optest.operators.attention.attention_reference import attention_operands
from optest.operators.attention.attention_reference import scaled_dot_product_attention_reference as attend
from optest.spec import Reason
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


# Windows and caps


def _capped(call: Call, cap: Callable[[Array, float], Array], *, masked: bool = False) -> Array | None:
    """Attention whose scores go through ``cap``; behind the mask if they are ``masked``."""
    operands = attention_operands(call.inputs, call.case.attributes)
    if not operands.softcap or (masked and operands.mask is None) or not operands.key.size:
        return None
    scores = operands.scale * (operands.query @ np.swapaxes(operands.key, -1, -2))
    mask = 0.0 if operands.mask is None else operands.mask
    scores = cap(scores + mask, operands.softcap) if masked else cap(scores, operands.softcap) + mask
    terms = np.exp(scores - scores.max(-1, keepdims=True))
    return terms / terms.sum(-1, keepdims=True) @ operands.value


_SDPA = "scaled_dot_product_attention"
rare("attention-caps-behind-the-mask", _SDPA)(lambda call: _capped(call, lambda s, c: c * np.tanh(s / c), masked=True))
rare("attention-scales-no-cap-back", _SDPA)(lambda call: _capped(call, lambda s, c: np.tanh(s / c)))
rare("attention-clips-at-its-cap", _SDPA)(lambda call: _capped(call, lambda s, c: np.clip(s, -c, c)))
rare("attention-caps-in-float16", _SDPA)(
    lambda call: _capped(call, lambda s, c: c * np.tanh(s / c).astype(np.float16)) if not call.is_16_bit else None
)


@rare("attention-caps-before-it-scales", _SDPA)
def _(call: Call) -> Sequence[Array] | None:
    cap, scale = call.attribute("softcap"), call.attribute("scale")
    scale = call.shape()[-1] ** -0.5 if scale is None else scale
    return call.with_attributes(softcap=cap * scale) if cap else None


@fault("attention-scales-twice", _SDPA)
def _(call: Call) -> Sequence[Array]:
    scale = call.attribute("scale")
    return call.with_attributes(scale=(call.shape()[-1] or 1) ** -1.0 if scale is None else scale * scale)


def _window(step: int, place: int) -> Change:
    """One end of the window moved by a key."""

    def change(call: Call) -> Sequence[Array] | None:
        window = list(call.attribute("window_size"))
        if window[place] < 0 or window[place] + step < 0:
            return None
        window[place] += step
        return call.with_attributes(window_size=tuple(window))

    return change


for _op in (_SDPA, "attention", "paged_attention", "paged_prefill_attention", "varlen_attention"):
    rare(f"{_op}-sees-a-key-too-many", _op)(_window(1, 0))
    rare(f"{_op}-sees-a-key-too-few", _op)(_window(-1, 0))
    fault(f"{_op}-ignores-its-cap", _op)(ignoring("softcap"))
    fault(f"{_op}-ignores-its-window", _op)(ignoring("window_size"))
for _op in (_SDPA, "varlen_attention"):
    rare(f"{_op}-sees-a-later-key-too-many", _op)(_window(1, 1))


def _heads_in_turn(call: Call) -> Sequence[Array] | None:
    """Query head h reads key head h % key heads, in place of h // group."""
    axis = -3 if call.case.descriptor.name == _SDPA else 1
    heads, keys = call[0].shape[axis] if call[0].ndim > 2 else 1, _key_heads(call)
    if keys in (1, heads) or (call.case.descriptor.name == _SDPA and call[3] is not None):
        return None
    order = np.arange(heads).reshape(-1, keys).T.reshape(-1)
    out, *rest = call.with_inputs(np.take(call[0], order, axis), *call.inputs[1:])
    return [np.take(out, np.argsort(order), axis), *rest]


def _key_heads(call: Call) -> int:
    by_token = call.case.attributes.get("kv_layout") == "NHD"
    axis = {_SDPA: -3, "varlen_attention": 1}.get(call.case.descriptor.name, 2 if by_token else 1)
    return int(call[1].shape[axis]) if call[1].ndim > 2 else 1


for _op in (_SDPA, "paged_attention", "paged_prefill_attention", "varlen_attention"):
    rare(f"{_op}-shares-heads-in-turn", _op)(_heads_in_turn)


# Blocks of caches


@fault("paged-attention-misses-the-last-block", "paged_attention")
def _(call: Call) -> Sequence[Array] | None:
    size = call[1].shape[1 if call.attribute("kv_layout") == "NHD" else 2]
    whole = np.where(call[4] >= size, call[4] // max(size, 1) * size, call[4]).astype(call[4].dtype)
    return call.with_inputs(*call.inputs[:4], whole, *call.inputs[5:])


@fault("paged-attention-misses-the-last-token", "paged_attention")
def _(call: Call) -> Sequence[Array]:
    return call.with_inputs(*call.inputs[:4], np.maximum(call[4] - 1, 0).astype(call[4].dtype), *call.inputs[5:])


for _op in ("paged_attention", "paged_prefill_attention"):

    @rare(f"{_op}-reads-the-table-of-the-next-sequence", _op)
    def _(call: Call) -> Sequence[Array]:
        return call.with_inputs(*call.inputs[:3], np.roll(call[3], 1, 0), *call.inputs[4:])


for _op in ("paged_attention", "paged_prefill_attention", "paged_caching"):

    @rare(f"{_op}-takes-heads-for-tokens", _op)
    def _(call: Call) -> Sequence[Array] | None:
        cache = call[0 if call.case.descriptor.name == "paged_caching" else 1]
        if call.attribute("kv_layout") == "HND" or cache.shape[1] != cache.shape[2]:
            return None
        return call.with_attributes(kv_layout="HND")


@fault("paged-prefill-masks-from-the-first-token", "paged_prefill_attention")
def _(call: Call) -> Sequence[Array]:
    queries = np.diff(call[5]).astype(call[4].dtype)
    return call.with_inputs(*call.inputs[:4], np.minimum(queries, call[4]), *call.inputs[5:])


@rare("paged-prefill-sees-all-keys", "paged_prefill_attention")
def _(call: Call) -> Array | None:
    out = np.array(call.right[0])
    last = call[5][1:] - 1
    for start, end in zip(call[5][:-1], last, strict=True):
        out[start : end + 1] = out[max(end, 0)] if end >= start else out[start : end + 1]
    return out


@rare("paged-caching-fills-block-by-block", "paged_caching")
def _(call: Call) -> Sequence[Array]:
    """Fill the slots from the first one on, and ignore the others."""
    slots = call[4]
    kept = slots >= 0
    room = call[0].shape[0] * call[0].shape[3 - (2 if call.attribute("kv_layout") == "NHD" else 1)]
    first = slots[kept][0] if kept.any() else 0
    in_order = np.where(kept, (first + np.cumsum(kept) - 1) % max(room, 1), slots).astype(slots.dtype)
    return call.with_inputs(*call.inputs[:4], in_order)


# Packed sequences


@fault("varlen-masks-from-the-first-key", "varlen_attention")
def _(call: Call) -> Array | None:
    if not call.attribute("is_causal"):
        return None
    out = np.array(wide(call.right[0]))
    for start, stop, first, last in zip(call[3], call[3][1:], call[4], call[4][1:], strict=False):
        own, *whole = (
            np.swapaxes(each, 0, 1) for each in (call[0][start:stop], call[1][first:last], call[2][first:last])
        )
        stated = {"is_causal": True, "enable_gqa": True, "scale": call.attribute("scale")}
        out[start:stop] = np.swapaxes(attend([own, *whole], stated)[0], 0, 1)
    return out


@rare("varlen-takes-the-offsets-of-queries-for-keys", "varlen_attention")
def _(call: Call) -> Sequence[Array] | None:
    return call.with_inputs(*call.inputs[:4], call[3].astype(call[4].dtype)) if call[3][-1] <= len(call[1]) else None


@rare("varlen-reads-the-first-key-of-the-next-sequence", "varlen_attention")
def _(call: Call) -> Array | None:
    if call.attribute("is_causal") or call.attribute("softcap") or call.attribute("window_size") != (-1, -1):
        return None
    out = np.array(wide(call.right[0]))
    for start, stop, first, last in zip(call[3], call[3][1:], call[4], call[4][1:], strict=False):
        own, *whole = (
            np.swapaxes(each, 0, 1)
            for each in (call[0][start:stop], call[1][first : last + 1], call[2][first : last + 1])
        )
        stated = {"enable_gqa": True, "scale": call.attribute("scale")}
        out[start:stop] = np.swapaxes(attend([own, *whole], stated)[0], 0, 1)
    return out


@rare("varlen-of-no-keys-is-nan", "varlen_attention", Reason.NAN)
def _(call: Call) -> Array:
    out = np.array(wide(call.right[0]))
    out[(out == 0).all((1, 2))] = np.nan
    return out


# Rotary positions of query and key


fault("rotary-embedding-ignores-is-neox", "rotary_embedding")(ignoring("is_neox"))


@fault("rotary-embedding-leaves-the-key", "rotary_embedding")
def _(call: Call) -> Sequence[Array]:
    return [call.right[0], call[2]]


@fault("rotary-embedding-takes-sines-for-cosines", "rotary_embedding")
def _(call: Call) -> Sequence[Array]:
    half = call[3].shape[1] // 2
    return call.with_inputs(*call.inputs[:3], np.roll(call[3], half, 1))


@rare("rotary-embedding-counts-tokens", "rotary_embedding")
def _(call: Call) -> Sequence[Array]:
    return call.with_inputs(np.arange(len(call[0])) % max(len(call[3]), 1), *call.inputs[1:])


@rare("rotary-embedding-rotates-whole-heads", "rotary_embedding")
def _(call: Call) -> Sequence[Array] | None:
    """Halves of the head, not of what is rotated."""
    size, rotated = call[1].shape[2], call[3].shape[1]
    if rotated == size or not call.attribute("is_neox"):
        return None
    order = [*range(rotated // 2), *range(size // 2, size // 2 + rotated // 2)]
    order += [place for place in range(size) if place not in order]
    outs = call.with_inputs(call[0], call[1][..., order], call[2][..., order], call[3])
    return [each[..., np.argsort(order)] for each in outs]


# Log-sum-exps as outputs, and merged states

_MERGE = "merge_attention_states"


def _lse(change: Callable[[Call, Array], Array | None]) -> Change:
    """Return a change of the log-sum-exp, for calls that request it."""

    def changed(call: Call) -> Sequence[Array] | None:
        if not call.attribute("return_lse"):
            return None
        lse = change(call, wide(call.right[-1]))
        return None if lse is None else [*call.right[:-1], lse]

    return changed


for _op in ("attention", "varlen_attention"):
    fault(f"{_op}-lse-of-base-2", _op)(_lse(lambda call, lse: lse / math.log(2)))
    fault(f"{_op}-lse-without-the-maximum", _op)(_lse(lambda call, lse: np.log1p(np.exp(-np.abs(lse)))))
    fault(f"{_op}-lse-in-16-bits", _op)(_lse(lambda call, lse: lse.astype(np.float16).astype(np.float64)))
    rare(f"{_op}-lse-overflows", _op)(_lse(lambda call, lse: np.where(lse > 88.7, np.inf, lse)))
    rare(f"{_op}-lse-of-the-scores-without-their-cap", _op)(
        lambda call: (
            [*call.right[:-1], call.with_attributes(softcap=0.0)[-1]]
            if call.attribute("return_lse") and call.attribute("softcap")
            else None
        )
    )
    rare(f"{_op}-lse-of-all-keys", _op)(
        lambda call: (
            [*call.right[:-1], call.with_attributes(window_size=(-1, -1))[-1]]
            if call.attribute("return_lse") and call.attribute("window_size") != (-1, -1)
            else None
        )
    )
    fault(f"{_op}-lse-of-tokens-and-heads", _op)(_lse(lambda call, lse: lse.T.reshape(lse.shape)))
rare("varlen-lse-of-no-keys-is-zero", "varlen_attention")(
    _lse(lambda call, lse: np.where(lse == -np.inf, 0.0, lse) if (lse == -np.inf).any() else None)
)
rare("varlen-lse-takes-the-scale-for-1", "varlen_attention")(
    lambda call: [*call.right[:-1], call.with_attributes(scale=1.0)[-1]] if call.attribute("return_lse") else None
)


def _merged(weights: Callable[[Array, Array], tuple[Array, Array, Array]]) -> Change:
    """Merged by both shares and the log-sum-exp of ``weights``."""

    def change(call: Call) -> Sequence[Array]:
        prefix, a, suffix, b = map(wide, call.inputs)
        first, second, lse = weights(a, b)
        return [prefix * first.T[..., None] + suffix * second.T[..., None], lse]

    return change


def _shares(a: Array, b: Array, shift: Array, base: float = math.e) -> tuple[Array, Array, Array]:
    first, second = (
        np.exp((a - shift) * a.dtype.type(math.log(base))),
        np.exp((b - shift) * a.dtype.type(math.log(base))),
    )
    return first / (first + second), second / (first + second), np.log(first + second) / math.log(base) + shift


def _safe(a: Array, b: Array) -> Array:
    return np.where(np.maximum(a, b) == -np.inf, 0.0, np.maximum(a, b))


fault("merge-with-base-2", _MERGE)(_merged(lambda a, b: _shares(a, b, _safe(a, b), 2.0)))
fault("merge-without-the-maximum", _MERGE)(_merged(lambda a, b: _shares(np.float32(a), np.float32(b), np.float32(0.0))))
fault("merge-shifts-by-the-prefix", _MERGE)(_merged(lambda a, b: _shares(np.float32(a), np.float32(b), np.float32(a))))
fault("merge-forgets-the-division", _MERGE)(
    _merged(lambda a, b: (np.exp(a - _safe(a, b)), np.exp(b - _safe(a, b)), np.logaddexp(a, b)))
)
fault("merge-exchanges-the-weights", _MERGE)(
    _merged(lambda a, b: (*_shares(a, b, _safe(a, b))[1::-1], np.logaddexp(a, b)))
)
fault("merge-returns-the-larger", _MERGE)(_merged(lambda a, b: (*_shares(a, b, _safe(a, b))[:2], np.maximum(a, b))))
fault("merge-takes-heads-for-tokens", _MERGE)(
    _merged(
        lambda a, b: (
            *(each.T.reshape(each.shape) for each in _shares(a, b, _safe(a, b))[:2]),
            np.logaddexp(a, b),
        )
    )
)
fault("merge-averages", _MERGE)(
    _merged(lambda a, b: (0 * _safe(a, b) + 0.5, 0 * _safe(a, b) + 0.5, np.logaddexp(a, b)))
)
rare("merge-of-two-empty-sets-is-nan", _MERGE)(_merged(lambda a, b: _shares(a, b, np.maximum(a, b))))
rare("merge-of-an-empty-set-keeps-the-prefix", _MERGE)(
    lambda call: (
        [
            np.where(
                (call[3] == -np.inf).T[..., None] | (call[1] == -np.inf).T[..., None],
                wide(call[0]),
                wide(call.right[0]),
            ),
            call.right[1],
        ]
        if (call[1] == -np.inf).any()
        else None
    )
)
rare("merge-keeps-its-weights-in-16-bits", _MERGE)(
    _merged(
        lambda a, b: (
            *(each.astype(np.float16).astype(float) for each in _shares(a, b, _safe(a, b))[:2]),
            np.logaddexp(a, b),
        )
    )
)
