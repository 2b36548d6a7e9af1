"""Torch kernels with one fault each, by the cause that the first failure block has to name.

Every kernel computes in float64 and rounds once, so that nothing but the fault is wrong. ``words`` were fixed before
the diagnosis knew the cause; in ``HONEST`` are kernels without such a fault, for which no cause may be named.
"""

# ruff: noqa: A001, A002 - parameters have the operators' names

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name that torch's documentation uses

Kernel = Callable[..., Any]
Tensor = torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """Wrong kernel of an operator, the hypothesis that holds for it, and the words that name the cause."""

    hypothesis: str
    name: str
    operator: str
    kernel: Kernel
    words: str


PLANTED: list[Planted] = []
HONEST: list[Planted] = []
"""``words`` are those that may be said all the same."""

_WORDS = {
    "copy": "returned unchanged",
    "exchanged": "exchanged|interleaved",
    "term": "ignored|missing",
    "shifted": "shifted by one",
    "heads": r"h % \d",
    "stride": "elements apart",
    "last": r"\bthe last\b",
    "causal": "the other end",
    "no key": "sees? no key",
    "hidden": "do not count",
    "squares": "mean of squares",
}


def planted(hypothesis: str, operator: str, name: str, words: str = "") -> Callable[[Kernel], Kernel]:
    """Keep a kernel as a fault of ``operator``; ``words`` replace those of the hypothesis."""

    def keep(kernel: Kernel) -> Kernel:
        entry = Planted(
            hypothesis=hypothesis,
            name=f"{operator}: {name}",
            operator=operator,
            kernel=kernel,
            words=words or _WORDS[hypothesis],
        )
        PLANTED.append(entry)
        return kernel

    return keep


def honest(operator: str, name: str, words: str = "") -> Callable[[Kernel], Kernel]:
    def keep(kernel: Kernel) -> Kernel:
        HONEST.append(Planted(hypothesis="", name=f"{operator}: {name}", operator=operator, kernel=kernel, words=words))
        return kernel

    return keep


# Kernels without a fault, with arguments by which faults come in


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    first: int = 0,
    scale: float | None = None,
    modulo: bool = False,
    empty: float | None = 0.0,
    hidden: float = -math.inf,
) -> Tensor:
    """heads x tokens x size; ``empty`` is the result of a query that sees no key, None for what comes out."""
    groups = query.shape[-3] // max(key.shape[-3], 1)
    if groups > 1:
        spread = (lambda x: x.repeat(*[1] * (x.ndim - 3), groups, 1, 1)) if modulo else None
        key, value = (spread(each) if spread else each.repeat_interleave(groups, dim=-3) for each in (key, value))
    scores = query.double() @ key.double().mT * (1 / math.sqrt(query.shape[-1] or 1) if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, hidden) if mask.dtype == torch.bool else scores + mask.double()
    if causal:
        behind = torch.arange(scores.shape[-1]) - first - torch.arange(scores.shape[-2])[:, None]
        scores = scores.masked_fill(behind > 0, hidden)
    weights = torch.softmax(scores, -1)
    if empty is not None and scores.shape[-1]:
        weights = torch.where((scores == -math.inf).all(-1, keepdim=True), empty, weights)
    return (weights @ value.double()).to(query.dtype)


def packed(query: Tensor, key: Tensor, value: Tensor, starts_q: Tensor, starts_k: Tensor, **how: Any) -> Tensor:
    """Attention within each sequence, with the last query and the last key at one position unless ``top`` is true."""
    out = torch.zeros(*query.shape[:2], value.shape[-1], dtype=query.dtype)
    top, more = how.pop("top", False), how.pop("more", 0)
    for i in range(len(starts_q) - 1):
        q0, q1, k0, k1 = int(starts_q[i]), int(starts_q[i + 1]), int(starts_k[i]), int(starts_k[i + 1])
        k1 = min(k1 + more, len(key))
        parts = (query[q0:q1], key[k0:k1], value[k0:k1])
        first = 0 if top else k1 - k0 - (q1 - q0)
        out[q0:q1] = attend(*(each.transpose(0, 1) for each in parts), first=first, **how).transpose(0, 1)
    return out


def paged(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    tables: Tensor,
    lengths: Tensor,
    starts: Tensor | None = None,
    *,
    slopes: Tensor | None = None,
    kv_layout: str = "HND",
    stride: Callable[[Tensor, Tensor, int], int] | None = None,
    length_of: Callable[[int, int], int] = lambda length, _size: length,
    top: bool = False,
    spill: bool = False,
    **how: Any,
) -> Tensor:
    """Causal attention over blocks of a cache; ``starts`` are those of the queries, one for each sequence if None."""
    if kv_layout == "NHD":
        key_cache, value_cache = key_cache.transpose(1, 2), value_cache.transpose(1, 2)
    size, out = max(key_cache.shape[2], 1), torch.zeros(*query.shape[:2], value_cache.shape[-1], dtype=query.dtype)
    starts = torch.arange(len(query) + 1) if starts is None else starts
    flat, columns = tables.reshape(-1), stride(tables, lengths, size) if stride else tables.shape[1]
    for i, stated in enumerate(lengths.tolist()):
        length = min(length_of(stated, size), tables.shape[1] * size)
        places = [min(i * columns + j, len(flat) - 1) for j in range(-(-length // size))]
        blocks = flat[places].long()
        keys, values = (
            cache[blocks].transpose(0, 1).reshape(cache.shape[1], -1, cache.shape[-1])[:, :length].double()
            for cache in (key_cache, value_cache)
        )
        own = query[int(starts[i]) : int(starts[i + 1])].transpose(0, 1)
        first = 0 if top else stated - own.shape[1]
        mask = None
        if slopes is not None and spill:
            raise NotImplementedError("no bias of ALiBi")
        if slopes is not None:
            distance = torch.arange(length) - first - torch.arange(own.shape[1])[:, None]
            mask = slopes.double()[:, None, None] * distance
        if spill:  # whole blocks, with a mask
            whole_k, whole_v = (
                cache[blocks].transpose(0, 1).reshape(cache.shape[1], -1, cache.shape[-1])
                for cache in (key_cache, value_cache)
            )
            seen = (torch.arange(whole_k.shape[1]) < length).expand(own.shape[1], -1)
            done = attend(own, whole_k, whole_v, seen, causal=True, first=first, **how)
        else:
            done = attend(own, keys, values, mask, causal=not length_of(1, 1) > 1, first=first, **how)
        out[int(starts[i]) : int(starts[i + 1])] = done.to(out.dtype).transpose(0, 1)
    return out


def product(one: Tensor, other: Tensor) -> Tensor:
    """In float64; of integers in 64 bits, which wrap."""
    wide = torch.float64 if one.dtype.is_floating_point else torch.int64
    return (one.to(wide) @ other.to(wide)).to(one.dtype)


def sdpa_kernel(**fault: Any) -> Kernel:
    def kernel(query: Tensor, key: Any, value: Any, attn_mask: Any = None, *, is_causal: bool = False,
               scale: Any = None, enable_gqa: bool = False) -> Tensor:  # fmt: skip
        return attend(query, key, value, attn_mask, causal=is_causal, scale=scale, **fault)

    return kernel


def varlen_kernel(**fault: Any) -> Kernel:
    def kernel(query: Tensor, key: Any, value: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, *, is_causal: bool = False,
               scale: Any = None) -> Tensor:  # fmt: skip
        return packed(query, key, value, cu_seqlens_q, cu_seqlens_k, causal=is_causal, scale=scale, **fault)

    return kernel


def paged_kernel(**fault: Any) -> Kernel:
    def kernel(query: Tensor, key_cache: Any, value_cache: Any, block_tables: Any, seq_lens: Any,
               alibi_slopes: Any = None, *, scale: Any = None, kv_layout: str = "HND") -> Tensor:  # fmt: skip
        caches = key_cache, value_cache, block_tables, seq_lens
        return paged(query, *caches, **{"slopes": alibi_slopes, "scale": scale, "kv_layout": kv_layout, **fault})

    return kernel


def prefill_kernel(**fault: Any) -> Kernel:
    def kernel(query: Tensor, key_cache: Any, value_cache: Any, block_tables: Any, seq_lens: Any, cu_seqlens_q: Any,
               alibi_slopes: Any = None, *, scale: Any = None, kv_layout: str = "HND") -> Tensor:  # fmt: skip
        caches = key_cache, value_cache, block_tables, seq_lens, cu_seqlens_q
        return paged(query, *caches, slopes=alibi_slopes, scale=scale, kv_layout=kv_layout, **fault)

    return kernel


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the two halves of the last dimension; keep the elements behind them."""
    half, wide = cos.shape[-1], x.double()
    one, two, rest = wide[..., :half], wide[..., half : 2 * half], wide[..., 2 * half :]
    cos, sin = cos.double(), sin.double()
    return torch.cat((one * cos - two * sin, two * cos + one * sin, rest), -1).to(x.dtype)


def angles(x: Tensor, cos: Tensor, sin: Tensor, position_ids: Tensor | None, by: int = 0) -> tuple[Tensor, Tensor]:
    if position_ids is not None:
        places = (position_ids.long() + by).clamp(0, len(cos) - 1)
        cos, sin = cos[places], sin[places]
    elif by:
        places = (torch.arange(cos.shape[-2]) + by).clamp(0, cos.shape[-2] - 1)
        cos, sin = cos[..., places, :], sin[..., places, :]
    while 2 < cos.ndim < x.ndim:
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return cos, sin


def normal(x: Tensor, dims: int, weight: Tensor | None, bias: Tensor | None, eps: float, mean: bool = True) -> Tensor:
    wide, over = x.double(), tuple(range(-dims, 0))
    if mean:
        wide = wide - wide.mean(over, keepdim=True)
    out = wide * torch.rsqrt((wide * wide).mean(over, keepdim=True) + eps)
    out = out if weight is None else out * weight.double()
    return (out if bias is None else out + bias.double()).to(x.dtype)


def by_squares(x: Tensor, over: tuple[int, ...], clip: bool = False) -> tuple[Tensor, Tensor]:
    """Mean and variance in float32, as the mean of squares minus the square of the mean."""
    wide = x.float() if x.dtype != torch.float64 else x
    mean, square = wide.mean(over, keepdim=True), (wide * wide).mean(over, keepdim=True)
    variance = square - mean * mean
    return mean, variance.clamp(min=0) if clip else variance


# copy: the output is an input


@planted("copy", "layer_norm", "the kernel never ran on its output")
def copy_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    return input.clone()


@planted("copy", "rope", "nothing is rotated")
def copy_rope(input: Tensor, cos: Tensor, sin: Tensor, position_ids: Any = None) -> Tensor:
    return input.clone()


@planted("copy", "cumsum", "sums of blocks are never added", "returned unchanged")
def copy_cumsum(input: Tensor, dim: int) -> Tensor:
    return input.clone()


@planted("copy", "clip", "bounds are never compared", r"returned unchanged|min.*ignored|max.*ignored|min were|max were")
def copy_clip(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    return input.clone()


@planted("copy", "add_rms_norm", "the residual is one operand")
def copy_add_rms_norm(input: Tensor, other: Tensor, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    total = (input.double() + other.double()).to(input.dtype)
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    return normal(total, len(normalized_shape), weight, None, eps, mean=False), input.clone()


# exchanged: two inputs, or two halves


@planted("exchanged", "swiglu", "halves of the fused projection")
def exchanged_swiglu(gate: Tensor, up: Any = None) -> Tensor:
    one, two = gate.double().chunk(2, -1) if up is None else (up.double(), gate.double())
    if up is not None:
        one, two = two, one
        return (F.silu(one) * two).to(gate.dtype)
    return (F.silu(two) * one).to(gate.dtype)


@planted("exchanged", "gelu_and_mul", "gate and up")
def exchanged_gelu_and_mul(gate: Tensor, up: Any = None, approximate: str = "none") -> Tensor:
    one, two = gate.double().chunk(2, -1) if up is None else (gate.double(), up.double())
    return (F.gelu(two, approximate=approximate) * one).to(gate.dtype)


@planted("exchanged", "swiglu", "gate and up in turn, not in halves")
def exchanged_swiglu_2(gate: Tensor, up: Any = None) -> Tensor:
    one, two = (gate[..., ::2], gate[..., 1::2]) if up is None else (gate, up)
    return (F.silu(one.double()) * two.double()).to(gate.dtype)


@planted("exchanged", "rope", "cos and sin")
def exchanged_rope(input: Tensor, cos: Tensor, sin: Tensor, position_ids: Any = None) -> Tensor:
    cos, sin = angles(input, cos, sin, position_ids)
    return rotated(input, sin, cos)


@planted("exchanged", "rope", "halves of the input")
def exchanged_rope_2(input: Tensor, cos: Tensor, sin: Tensor, position_ids: Any = None) -> Tensor:
    cos, sin = angles(input, cos, sin, position_ids)
    half = cos.shape[-1]
    turned = torch.cat((input[..., half : 2 * half], input[..., :half], input[..., 2 * half :]), -1)
    return rotated(turned, cos, sin)


@planted("exchanged", "rotary_embedding", "sines before cosines in the cache")
def exchanged_rotary_embedding(positions: Tensor, query: Tensor, key: Tensor, cos_sin_cache: Tensor) -> Any:
    sin, cos = cos_sin_cache[positions.long()].chunk(2, -1)
    return tuple(rotated(each, cos[:, None], sin[:, None]) for each in (query, key))


@planted("exchanged", "scaled_dot_product_attention", "key and value")
def exchanged_sdpa(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, is_causal: bool = False) -> Tensor:
    if key.shape != value.shape or query.shape[:-2] != key.shape[:-2]:
        return attend(query, key, value, attn_mask, causal=is_causal)
    return attend(query, value, key, attn_mask, causal=is_causal)


@planted("exchanged", "scaled_dot_product_attention", "heads and sequence", "dimensions 1 and 2 .* exchanged")
def sdpa_of_heads_behind(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    query, key, value = (each.movedim(1, -2) for each in (query, key, value))
    return attend(query, key, value, None, scale=scale).movedim(1, -2)


@planted("exchanged", "where", "branches", "exchanged|condition were inverted")  # which is the same
def exchanged_where(condition: Tensor, input: Tensor, other: Tensor) -> Tensor:
    return torch.where(condition, other, input)


@planted("exchanged", "div", "the quotient of the other by the input", r"exchanged|1 ?/")
def exchanged_div(input: Tensor, other: Tensor) -> Tensor:
    kind = torch.result_type(input, other)
    return (other.double() / input.double()).to(kind if kind.is_floating_point else torch.float32)


# term: one is missing


@planted("term", "linear", "bias is never added", "bias.*ignored")
def term_linear(input: Tensor, weight: Tensor, bias: Any = None) -> Tensor:
    return product(input, weight.mT)


@planted("term", "conv2d", "bias is never added", "bias.*ignored")
def term_conv2d(
    input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
):  # type: ignore[no-untyped-def]
    out = F.conv2d(input.double(), weight.double(), None, stride, padding, dilation, groups)
    return out.to(input.dtype)


@planted("term", "add_rms_norm", "other is never added", "other.*ignored")
def term_add_rms_norm(input: Tensor, other: Tensor, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    eps = torch.finfo(input.dtype).eps if eps is None else eps
    return normal(input, len(normalized_shape), weight, None, eps, mean=False), input.clone()


@planted("term", "rope", "the product with sin", "sin.*ignored")
def term_rope(input: Tensor, cos: Tensor, sin: Tensor, position_ids: Any = None) -> Tensor:
    cos, sin = angles(input, cos, sin, position_ids)
    return rotated(input, cos, torch.zeros_like(sin))


@planted("term", "layer_norm", "the mean is not subtracted", "mean.*(ignored|missing|not subtracted)")
def term_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    return normal(input, len(normalized_shape), weight, bias, eps, mean=False)


@planted("term", "dequantize", "the zero point", "zero_point.*ignored")
def term_dequantize(input: Tensor, scale: Tensor, zero_point: Any = None, axis: int = 1, dtype: Any = None) -> Tensor:
    return _dequantized(input, scale, None, axis, dtype)


@planted("term", "layer_norm", "the bias", "bias.*ignored")
def term_layer_norm_2(
    input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    return normal(input, len(normalized_shape), weight, None, eps)


term_paged_attention = planted("term", "paged_attention", "the bias of ALiBi", "alibi_slopes.*ignored")(
    paged_kernel(slopes=None)
)


def _dequantized(input: Tensor, scale: Tensor, zero: Any, axis: int, dtype: Any, by: int = 0) -> Tensor:
    kind = dtype if isinstance(dtype, torch.dtype) else getattr(torch, str(dtype)) if dtype else torch.float32
    if scale.ndim and scale.numel() != 1:
        shape = [1] * input.ndim
        shape[axis] = -1
        scale, zero = scale.reshape(shape), None if zero is None else zero.reshape(shape)
    wide = input.double() - (0 if zero is None else zero.double()) - by
    return (wide * scale.double()).to(kind)


# shifted: an index is off by one


@planted("shifted", "rope", "positions")
def shifted_rope(input: Tensor, cos: Tensor, sin: Tensor, position_ids: Any = None) -> Tensor:
    return rotated(input, *angles(input, cos, sin, position_ids, by=1))


@planted("shifted", "rotary_embedding", "positions count from one")
def shifted_rotary_embedding(positions: Tensor, query: Tensor, key: Tensor, cos_sin_cache: Tensor) -> Any:
    places = (positions.long() - 1).clamp(min=0)
    cos, sin = cos_sin_cache[places].chunk(2, -1)
    return tuple(rotated(each, cos[:, None], sin[:, None]) for each in (query, key))


@planted("shifted", "embedding", "the row before")
def shifted_embedding(weight: Tensor, indices: Tensor) -> Tensor:
    return weight[(indices.long() - 1) % max(len(weight), 1)]


@planted("shifted", "dequantize", "the zero point")
def shifted_dequantize(
    input: Tensor, scale: Tensor, zero_point: Any = None, axis: int = 1, dtype: Any = None
) -> Tensor:
    return _dequantized(input, scale, zero_point, axis, dtype, by=0 if zero_point is None else 1)


@planted("shifted", "gather", "the next element")
def shifted_gather(input: Tensor, index: Tensor, dim: int) -> Tensor:
    return torch.gather(input, dim, (index.long() + 1).clamp(max=input.shape[dim] - 1))


@planted("shifted", "index_select", "the element before, around the end")
def shifted_index_select(input: Tensor, index: Tensor, dim: int) -> Tensor:
    return torch.index_select(input, dim, (index.long() - 1) % max(1, input.shape[dim]))


@planted("shifted", "cross_entropy", "targets count from one")
def shifted_cross_entropy(
    input: Tensor, target: Tensor, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    classes = input.shape[1] if input.ndim > 1 else len(input)
    kept = torch.where(target == ignore_index, target, (target.long() - 1).clamp(min=0) if classes else target)
    return _entropy(input, kept.long(), weight, ignore_index, reduction)


@planted("shifted", "grouped_matmul", "the matrix of the next expert")
def shifted_grouped_matmul(input: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    return _by_expert(input, weight, offs, lambda expert: min(expert + 1, len(weight) - 1))


@planted("shifted", "roll", "one place too far", "shifts|shifted by one")
def shifted_roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    if dims:
        return torch.roll(input, [each + 1 for each in shifts], dims)
    return torch.roll(input.reshape(-1), shifts[0] + 1).reshape(input.shape)


def _entropy(input: Tensor, target: Tensor, weight: Any, ignored: int, reduction: str) -> Tensor:
    wide = None if weight is None else weight.double()
    return F.cross_entropy(input.double(), target, wide, ignore_index=ignored, reduction=reduction).to(input.dtype)


def _by_expert(input: Tensor, weight: Tensor, offs: Tensor, of: Callable[[int], int] = lambda expert: expert) -> Tensor:
    out, begin = torch.zeros(len(input), weight.shape[-1], dtype=input.dtype), 0
    for expert, end in enumerate(offs.tolist()):
        out[begin:end] = (input[begin:end].double() @ weight[of(expert)].double()).to(input.dtype)
        begin = end
    return out


# heads: head h reads head h % (heads of key)


heads_sdpa = planted("heads", "scaled_dot_product_attention", "grouped heads")(sdpa_kernel(modulo=True))


heads_paged_attention = planted("heads", "paged_attention", "grouped heads")(paged_kernel(modulo=True))


heads_varlen_attention = planted("heads", "varlen_attention", "grouped heads")(varlen_kernel(modulo=True))


@planted("heads", "attention", "grouped heads")
def heads_attention(query: Tensor, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, pos: int) -> Any:
    return _cached(query, key, value, key_cache, value_cache, pos, first=pos, modulo=True)


def _cached(query: Tensor, key: Any, value: Any, key_cache: Any, value_cache: Any, pos: int, **how: Any) -> Any:
    caches = key_cache.clone(), value_cache.clone()
    for cache, new in zip(caches, (key, value), strict=True):
        cache[:, pos : pos + new.shape[1]] = new
    keys, values = (each[:, : pos + key.shape[1]] for each in caches)
    return attend(query, keys, values, causal=True, **how).transpose(0, 1), *caches


# stride: a table is read with another


stride_paged_attention = planted("stride", "paged_attention", "rows of the block table are as long as needed")(
    paged_kernel(stride=lambda tables, lengths, size: -(-int(lengths.max()) // size) if len(lengths) else 1)
)


stride_paged_prefill_attention = planted(
    "stride", "paged_prefill_attention", "rows of the block table are one less apart"
)(prefill_kernel(stride=lambda tables, lengths, size: max(1, tables.shape[1] - 1)))


@planted("stride", "embedding", "rows one element farther apart")
def stride_embedding(weight: Tensor, indices: Tensor) -> Tensor:
    return _rows_apart(weight, weight.shape[1] + 1)[indices.long()]


@planted("stride", "rotary_embedding", "rows of half the cache")
def stride_rotary_embedding(positions: Tensor, query: Tensor, key: Tensor, cos_sin_cache: Tensor) -> Any:
    cos, sin = _rows_apart(cos_sin_cache, cos_sin_cache.shape[1] // 2)[positions.long()].chunk(2, -1)
    return tuple(rotated(each, cos[:, None], sin[:, None]) for each in (query, key))


stride_paged_attention_2 = planted(
    "stride", "paged_attention", "rows of the block table as far apart as there are sequences"
)(paged_kernel(stride=lambda tables, lengths, size: len(lengths)))


def _rows_apart(table: Tensor, apart: int) -> Tensor:
    """Rows of a matrix whose beginnings are ``apart`` elements from each other, as far as it has some."""
    flat = table.reshape(-1)
    places = torch.arange(table.shape[0])[:, None] * apart + torch.arange(table.shape[1])
    return flat[places.clamp(max=max(0, len(flat) - 1))] if len(flat) else table


# last: the last row or tile is lost


@planted("last", "softmax", "the last row is not written")
def last_softmax(input: Tensor, dim: int = -1) -> Tensor:
    out = torch.softmax(input.double(), dim).to(input.dtype)
    if input.ndim > 1 and len(out) > 1:
        out[-1] = 0
    return out


@planted("last", "matmul", "products beyond whole tiles of 16")
def last_matmul(input: Tensor, other: Tensor) -> Tensor:
    whole = input.shape[-1] // 16 * 16 or input.shape[-1]
    other = other[..., :whole, :] if other.ndim > 1 else other[:whole]
    return product(input[..., :whole], other)


@planted("last", "bmm", "rows beyond whole tiles of 8")
def last_bmm(input: Tensor, mat2: Tensor) -> Tensor:
    out = product(input, mat2)
    out[:, out.shape[1] // 8 * 8 or out.shape[1] :] = 0
    return out


@planted("last", "layer_norm", "the last row is as it was")
def last_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    out = normal(input, len(normalized_shape), weight, bias, eps)
    rows = out.reshape(-1, math.prod(normalized_shape)).clone() if out.numel() else out
    if out.numel() and len(rows) > 1:
        rows[-1] = input.reshape(rows.shape)[-1]
    return rows.reshape(out.shape)


@planted("last", "scaled_dot_product_attention", "keys beyond whole blocks of 16")
def last_sdpa(query: Tensor, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False, scale: Any = None,
      enable_gqa: bool = False) -> Tensor:  # fmt: skip
    whole = key.shape[-2] // 16 * 16 or key.shape[-2]
    mask = attn_mask if attn_mask is None or attn_mask.shape[-1] == 1 else attn_mask[..., :whole]
    return attend(query, key[..., :whole, :], value[..., :whole, :], mask, causal=is_causal, scale=scale)


@planted("last", "varlen_attention", "the last sequence")
def last_varlen_attention(query: Tensor, key: Any, value: Any, cu_seqlens_q: Any, cu_seqlens_k: Any,
      is_causal: bool = False,       scale: Any = None) -> Tensor:  # fmt: skip
    out = packed(query, key, value, cu_seqlens_q, cu_seqlens_k, causal=is_causal, scale=scale)
    if len(cu_seqlens_q) > 2:
        out[int(cu_seqlens_q[-2]) :] = 0
    return out


@planted("last", "sum", "elements beyond whole vectors of 4")
def last_sum(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    dims = [each % max(1, input.ndim) for each in dim] if dim is not None else list(range(input.ndim))
    if input.ndim and input.ndim - 1 in dims:
        input = input[..., : input.shape[-1] // 4 * 4 or input.shape[-1]]
    kind = input.dtype if input.dtype.is_floating_point else torch.int64
    wide = input.double() if input.dtype.is_floating_point else input.long()
    return wide.sum(tuple(dims), keepdim=keepdim).to(kind) if input.ndim else wide.to(kind)


@planted("last", "amax", "elements beyond whole vectors of 8")
def last_amax(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    dims = list(range(input.ndim)) if dim is None or dim == () else [each % max(1, input.ndim) for each in dim]
    if input.ndim and input.ndim - 1 in dims:
        input = input[..., : input.shape[-1] // 8 * 8 or input.shape[-1]]
    return torch.amax(input, dims, keepdim=keepdim) if input.ndim else input.clone()


@planted("last", "conv2d", "the last channel of the output")
def last_conv2d(
    input: Tensor, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
):  # type: ignore[no-untyped-def]
    wide = None if bias is None else bias.double()
    out = F.conv2d(input.double(), weight.double(), wide, stride, padding, dilation, groups).to(input.dtype)
    if out.shape[1] > 1:
        out[:, -1] = 0
    return out


@planted("last", "cross_entropy", "the last row is not added")
def last_cross_entropy(
    input: Tensor, target: Tensor, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    if reduction != "none" and input.ndim > 1 and len(input) > 1:
        input, target = input[:-1], target[:-1]
    return _entropy(input, target.long(), weight, ignore_index, reduction)


@planted("last", "softmax", "the sum leaves out what is beyond whole vectors of 4")
def last_softmax_2(input: Tensor, dim: int = -1) -> Tensor:
    wide = input.double()
    shares = torch.exp(wide - wide.amax(dim, keepdim=True)) if wide.numel() else wide
    size = wide.shape[dim] if wide.ndim else 1
    total = shares.narrow(dim, 0, size // 4 * 4 or size).sum(dim, keepdim=True) if wide.ndim else shares
    return (shares / total).to(input.dtype)


# changed: an input with other values


@planted("changed", "rms_norm", "the weight is 1 + weight, as Gemma stores it", "weight were increased by 1")
def changed_rms_norm(input: Tensor, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Tensor:
    return root_mean_square(input, len(normalized_shape), None if weight is None else weight.double() + 1, eps)


@planted("changed", "linear", "each of two splits adds the bias", "bias were doubled")
def changed_linear(input: Tensor, weight: Tensor, bias: Any = None) -> Tensor:
    wide = input.double() @ weight.double().mT if weight.ndim > 1 else input.double() @ weight.double()
    return (wide if bias is None else wide + 2 * bias.double()).to(input.dtype)


@planted("changed", "layer_norm", "divides by the weight", "weight were their reciprocals")
def changed_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    return normal(input, len(normalized_shape), None if weight is None else 1 / weight.double(), bias, eps)


# step: one more or less at the end


@planted("step", "var", "the standard deviation", "the square root of it")
def step_var(input: Tensor, dim: Any = None, correction: int = 1, keepdim: bool = False) -> Tensor:
    return torch.std(input.double(), dim, correction=correction, keepdim=keepdim).to(input.dtype)


@planted("step", "logsumexp", "the logarithm is forgotten", "the exponential of it")
def step_logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    return torch.logsumexp(input.double(), dim, keepdim).exp().to(input.dtype)


@planted("step", "log_softmax", "the logarithm is forgotten", "the exponential of it")
def step_log_softmax(input: Tensor, dim: int = -1) -> Tensor:
    return torch.softmax(input.double(), dim).to(input.dtype)


@planted("step", "matmul", "no negative results, as of a fused relu", "0 where negative")
def step_matmul(input: Tensor, other: Tensor) -> Tensor:
    return product(input, other).clamp(min=0)


# scaled: a factor before a step that is not linear


@planted("scaled", "softmax", "powers of 2 in place of e", "multiplied by ln 2")
def scaled_softmax(input: Tensor, dim: int = -1) -> Tensor:
    return torch.softmax(input.double() * math.log(2), dim).to(input.dtype)


@planted("scaled", "softmax", "powers of 2, multiplied in the dtype of the input", "multiplied by ln 2")
def rounded_softmax(input: Tensor, dim: int = -1) -> Tensor:
    return torch.softmax(input * math.log(2), dim)


@planted("scaled", "logsumexp", "twice the input", "multiplied by 2")
def scaled_logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    return torch.logsumexp(2 * input.double(), dim, keepdim).to(input.dtype)


@planted("scaled", "silu", "sigmoid and input by half", "multiplied by 1/2")
def scaled_silu(input: Tensor) -> Tensor:
    return F.silu(input.double() / 2).to(input.dtype)


# naive: exponentials of large numbers, without a subtracted maximum


@planted("naive", "softmax", "no maximum is subtracted", "maximum were not subtracted")
def naive_softmax(input: Tensor, dim: int = -1) -> Tensor:
    powers = torch.exp(input.float())
    return (powers / powers.sum(dim, keepdim=True)).to(input.dtype)


@planted("naive", "logsumexp", "no maximum is subtracted", "maximum were not subtracted")
def naive_logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    return input.float().exp().sum(dim, keepdim).log().to(input.dtype)


@planted("naive", "log_softmax", "no maximum is subtracted", "maximum were not subtracted")
def naive_log_softmax(input: Tensor, dim: int = -1) -> Tensor:
    powers = torch.exp(input.float())
    return (powers / powers.sum(dim, keepdim=True)).log().to(input.dtype)


# carried: blocks and ends that know nothing of the others


@planted("carried", "cumsum", "each block of 16 begins at 0", "16 elements along dimension|started anew")
def carried_cumsum(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    if not input.ndim:
        return input.clone()
    parts = [part.double().cumsum(dim) for part in input.split(16, dim)]
    return torch.cat(parts, dim).to(dtype or (input.dtype if input.dtype.is_floating_point else torch.int64))


@planted("carried", "matmul", "the last tile repeats the one before", "those 16 before")
def carried_matmul(input: Tensor, other: Tensor) -> Tensor:
    out = product(input, other)
    if out.ndim == 2 and 16 < out.shape[1] < 32:
        out[:, 16:] = out[:, : out.shape[1] - 16]
    return out


@planted("carried", "argmax", "of equal elements the last", "last of equal elements")
def carried_argmax(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    if dim is None:
        last = input.numel() - 1 - input.reshape(-1).flip(0).argmax()
        return last.reshape([1] * input.ndim) if keepdim else last
    return input.shape[dim] - 1 - input.flip(dim).argmax(dim, keepdim)


# repeated: of additions at one place the last one counts


def added_once(input: Tensor, index: Tensor, source: Tensor, dim: int) -> Tensor:
    """``scatter_add`` that reads every element before it adds."""
    out = input.clone()
    if source.numel() and input.ndim:
        out.scatter_(dim, index.long(), input.gather(dim, index.long()) + source[tuple(map(slice, index.shape))])
    return out


@planted("repeated", "scatter_add", "of several threads one wins", "only the last added")
def repeated_scatter_add(input: Tensor, index: Tensor, src: Tensor, dim: int) -> Tensor:
    return added_once(input, index, src, dim)


@planted("repeated", "index_add", "of several threads one wins", "only the last added")
def repeated_index_add(input: Tensor, index: Tensor, source: Tensor, dim: int, alpha: float = 1.0) -> Tensor:
    if not input.ndim:
        return torch.index_add(input, dim, index.long(), source, alpha=alpha)
    shape = [1] * input.ndim
    shape[dim] = -1
    return added_once(input, index.reshape(shape).expand(source.shape), (source * alpha).to(input.dtype), dim)


# eps: at another place, or another one


def root_mean_square(x: Tensor, dims: int, weight: Any, eps: Any, *, is_outside: bool = False) -> Tensor:
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    square = x.double().square().mean(tuple(range(-dims, 0)), keepdim=True)
    out = x.double() / ((square.sqrt() + eps) if is_outside else (square + eps).sqrt())
    return (out if weight is None else out * weight.double()).to(x.dtype)


@planted("eps", "rms_norm", "added to the root", "eps were added to the root")
def eps_rms_norm(input: Tensor, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Tensor:
    return root_mean_square(input, len(normalized_shape), weight, eps, is_outside=True)


@planted("eps", "layer_norm", "added to the root", "eps were added to the root")
def eps_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    dims = tuple(range(-len(normalized_shape), 0))
    wide = input.double()
    deviation = wide.var(dims, correction=0, keepdim=True).sqrt() + eps
    out = (wide - wide.mean(dims, keepdim=True)) / deviation
    out = out if weight is None else out * weight.double()
    return (out if bias is None else out + bias.double()).to(input.dtype)


@planted("eps", "layer_norm", "always 1e-6", "eps were 1e-06")
def eps_layer_norm_2(
    input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    return normal(input, len(normalized_shape), weight, bias, 1e-6)


# causal: counted from the other end


@planted("causal", "scaled_dot_product_attention", "the last query sees the last key")
def causal_sdpa(query: Tensor, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False, scale: Any = None,
      enable_gqa: bool = False) -> Tensor:  # fmt: skip
    first = key.shape[-2] - query.shape[-2]
    return attend(query, key, value, attn_mask, causal=is_causal, scale=scale, first=first)


causal_varlen_attention = planted("causal", "varlen_attention", "the first query sees the first key")(
    varlen_kernel(top=True)
)


causal_paged_prefill_attention = planted("causal", "paged_prefill_attention", "the first new token sees the first key")(
    prefill_kernel(top=True)
)


@planted("causal", "attention", "new tokens see as many of the cache as new ones", "the other end|pos were 0")
def causal_attention(
    query: Tensor, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, pos: int
) -> Any:
    return _cached(query, key, value, key_cache, value_cache, pos, first=0)


# no key: rows that see none


no_key_sdpa = planted("no key", "scaled_dot_product_attention", "0 / 0")(sdpa_kernel(empty=None))


no_key_sdpa_2 = planted("no key", "scaled_dot_product_attention", "the mean of all values")(sdpa_kernel(hidden=-1e30))


no_key_varlen_attention = planted("no key", "varlen_attention", "0 / 0")(varlen_kernel(empty=None))


no_key_varlen_attention_2 = planted("no key", "varlen_attention", "the mean of all values")(varlen_kernel(hidden=-1e30))


# hidden: padding, or elements behind the length


hidden_paged_attention = planted("hidden", "paged_attention", "the whole last block is read")(
    paged_kernel(length_of=lambda length, size: -(-length // size) * size if size > 1 else length + 1)
)


hidden_paged_attention_2 = planted("hidden", "paged_attention", "a weight of 0 times what is behind the length")(
    paged_kernel(spill=True)
)


hidden_paged_attention_3 = planted(
    "hidden", "paged_attention", "one token too many", "do not count|shifted by one|one more"
)(paged_kernel(length_of=lambda length, size: length + 1))


@planted("hidden", "max_pool2d", "padding is 0", "padding|do not count")
def hidden_max_pool2d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1
) -> Tensor:
    sides = [each for pad in reversed(list(padding) * (1 if len(padding) > 1 else 2)) for each in (pad, pad)]
    return F.max_pool2d(F.pad(input, sides), kernel_size, stride or kernel_size, 0, dilation)


hidden_varlen_attention = planted(
    "hidden", "varlen_attention", "the first key of the next sequence", "do not count|shifted by one|one more"
)(varlen_kernel(more=1))


@planted("hidden", "varlen_attention", "keys of all sequences", "do not count|one sequence|cu_seqlens")
def hidden_varlen_attention_2(
    query: Tensor, key: Any, value: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, scale: Any = None
) -> Tensor:
    whole = [torch.tensor([0, len(each)]) for each in (query, key)]
    return packed(query, key, value, *whole, scale=scale)


# squares: the mean of squares minus the square of the mean


@planted("squares", "layer_norm", "in float32")
def squares_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    over = tuple(range(-len(normalized_shape), 0))
    return _affine(input, *by_squares(input, over), eps, weight, bias)


@planted("squares", "layer_norm", "in float32, not below 0")
def squares_layer_norm_2(
    input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    over = tuple(range(-len(normalized_shape), 0))
    return _affine(input, *by_squares(input, over, clip=True), eps, weight, bias)


@planted("squares", "batch_norm", "in float32")
def squares_batch_norm(input: Tensor, running_mean: Any = None, running_var: Any = None, weight: Any = None,
      bias: Any = None,       training: bool = False, eps: float = 1e-5) -> Tensor:  # fmt: skip
    shape = [-1] + [1] * (input.ndim - 2)
    if training or running_mean is None:
        mean, variance = by_squares(input, (0, *range(2, input.ndim)))
    else:
        mean, variance = (each.double().reshape(shape) for each in (running_mean, running_var))
    spread = [None if each is None else each.reshape(shape) for each in (weight, bias)]
    return _affine(input, mean, variance, eps, *spread)


@planted("squares", "group_norm", "in float32, not below 0")
def squares_group_norm(
    input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    grouped = input.reshape(input.shape[0], num_groups, math.prod(input.shape[1:]) // num_groups)
    out = _affine(grouped, *by_squares(grouped, (2,), clip=True), eps, None, None, torch.float64).reshape(input.shape)
    shape = [-1] + [1] * (input.ndim - 2)
    out = out if weight is None else out * weight.double().reshape(shape)
    return (out if bias is None else out + bias.double().reshape(shape)).to(input.dtype)


@planted("squares", "var", "in float32")
def squares_var(input: Tensor, dim: Any = None, correction: float = 1.0, keepdim: bool = False) -> Tensor:
    dims = tuple(range(input.ndim)) if dim is None else tuple(each % max(1, input.ndim) for each in dim)
    _, variance = by_squares(input, dims)
    count = math.prod(input.shape[each] for each in dims)
    out = variance.double() * (count / (count - correction) if count > correction else math.nan)
    return (out if keepdim else out.reshape([s for i, s in enumerate(input.shape) if i not in dims])).to(input.dtype)


def _affine(x: Tensor, mean: Tensor, variance: Tensor, eps: float, weight: Any, bias: Any, kind: Any = None) -> Tensor:
    out = (x.double() - mean.double()) * torch.rsqrt(variance.double() + eps)
    out = out if weight is None else out * weight.double()
    return (out if bias is None else out + bias.double()).to(kind or x.dtype)


# Without any of these faults


@honest("softmax", "steps in float16", "float16")
def honest_softmax(input: Tensor, dim: int = -1) -> Tensor:
    wide = input.float()
    shares = torch.exp(wide - wide.amax(dim, keepdim=True)).half() if wide.numel() else wide
    return (shares.float() / shares.float().sum(dim, keepdim=True)).to(input.dtype)


@honest("layer_norm", "noise")
def honest_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    out = normal(input, len(normalized_shape), weight, bias, eps).double()
    noise = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (out + 0.05 * noise).to(input.dtype)


@honest("matmul", "operands in bfloat16", "bfloat16")
def honest_matmul(input: Tensor, other: Tensor) -> Tensor:
    return (input.bfloat16().double() @ other.bfloat16().double()).to(input.dtype)


@honest("scaled_dot_product_attention", "weights in 8 bits", "bfloat16|float16")
def honest_sdpa(query: Tensor, key: Any, value: Any, attn_mask: Any = None, is_causal: bool = False, scale: Any = None,
      enable_gqa: bool = False) -> Tensor:  # fmt: skip
    wide = attend(query.double(), key, value, attn_mask, causal=is_causal, scale=scale)
    return (wide * (1 + 0.03 * torch.sin(1000 * wide))).to(query.dtype)


@honest("rope", "noise")
def honest_rope(input: Tensor, cos: Tensor, sin: Tensor, position_ids: Any = None) -> Tensor:
    out = rotated(input, *angles(input, cos, sin, position_ids)).double()
    noise = torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return (out + 0.1 * noise).to(input.dtype)


@honest("var", "of a sample of the elements")
def honest_var(input: Tensor, dim: Any = None, correction: float = 1.0, keepdim: bool = False) -> Tensor:
    dims = tuple(range(input.ndim)) if dim is None else tuple(dim)
    out = torch.var(input.double(), dims, correction=correction, keepdim=keepdim)
    places = torch.arange(out.numel()).reshape(out.shape)  # of the output alone, small ones would have one ratio
    return (out * (1 + 0.02 * torch.cos(3 * out + places))).to(input.dtype)


@honest("embedding", "single rows are random")
def honest_embedding(weight: Tensor, indices: Tensor) -> Tensor:
    out = weight[indices.long()].clone()
    if out.numel() > 8:
        flat = out.reshape(-1)
        flat[torch.arange(3, len(flat), 7)] = 0.5
    return out


@honest("paged_attention", "noise")
def honest_paged_attention(query: Tensor, key_cache: Any, value_cache: Any, block_tables: Any, seq_lens: Any,
                           alibi_slopes: Any = None, scale: Any = None, kv_layout: str = "HND") -> Tensor:  # fmt: skip
    caches = key_cache, value_cache, block_tables, seq_lens
    out = paged(query, *caches, slopes=alibi_slopes, scale=scale, kv_layout=kv_layout).double()
    noise = torch.randn(out.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return (out + 0.1 * noise).to(query.dtype)


def importable() -> Iterator[tuple[str, Planted]]:
    """Every entry with the name that its kernel has in this module."""
    names = {id(each): name for name, each in globals().items() if callable(each)}
    return ((names[id(each.kernel)], each) for each in (*PLANTED, *HONEST))
