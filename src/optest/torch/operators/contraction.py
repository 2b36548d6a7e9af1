"""The torch calls of the contraction, the attention and the pooling family.

Rope is composed of torch's elementwise operators, in float32 and wider.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.nn import functional

from optest.torch.operators.calls import Attributes, Tensors, TorchCall, factor, has_two_sides, padded
from optest.torch.tensors import TORCH_DTYPES


def _into(call: Callable[[Tensors, Attributes], torch.Tensor]) -> TorchCall:
    """``call`` with ``out_dtype``, which torch has for few of these operators and on few devices.

    Integers are exact in the wider dtype, and so are products of 16-bit floats in float32: the operands are widened
    first. 8-bit floats go through float32 to 16 bits.
    """

    def widened(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
        stated = attributes.get("out_dtype")
        if stated is None or TORCH_DTYPES[stated] == tensors[0].dtype:
            return call(tensors, attributes)
        target = TORCH_DTYPES[stated]
        within = torch.float32 if target.is_floating_point else target
        wide = [None if each is None else each.to(within) for each in tensors]
        return call(wide, attributes).to(target)

    return widened


def _gemm(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    a, b, c = tensors if len(tensors) == 3 else (*tensors, None)
    a = a.transpose(-1, -2) if attributes.get("trans_a") else a
    b = b.transpose(-1, -2) if attributes.get("trans_b") else b
    alpha, beta = factor(attributes.get("alpha", 1.0), a.dtype), factor(attributes.get("beta", 1.0), a.dtype)
    if c is None:
        c, beta = a.new_zeros(()), 0  # addmm applies alpha before it rounds; alpha * (a @ b) would round twice
    function = torch.addmm if a.dim() == 2 else torch.baddbmm
    return function(c, a, b, alpha=alpha, beta=beta)


def _linear(tensors: Tensors, _: Attributes) -> torch.Tensor:
    source, weight, bias = (*tensors, None)[:3]
    return functional.linear(source, weight, bias)


def _grouped_matmul(tensors: Tensors, _: Attributes) -> torch.Tensor:
    """One expert after another, as torch's own grouped_mm has few dtypes and devices."""
    source, weight, offs = tensors
    ends = [0, *offs.tolist()]
    if len(offs) != len(weight) or sorted(ends) != ends or ends[-1] > len(source):
        raise ValueError(f"{offs.tolist()} are not the ends of {len(weight)} experts in {len(source)} rows")
    out = source.new_zeros((len(source), weight.shape[2]))
    for expert, (start, stop) in enumerate(pairwise(ends)):
        out[start:stop] = source[start:stop] @ weight[expert]
    return out


def _convolution(function: Callable[..., torch.Tensor], rank: int) -> Callable[[Tensors, Attributes], torch.Tensor]:
    def convolve(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
        source, weight, bias = (*tensors, None)[:3]
        padding = attributes.get("padding", 0)
        if has_two_sides(padding, rank):
            source, padding = padded(source, padding, rank), 0
        return function(
            source,
            weight,
            bias,
            stride=attributes.get("stride", 1),
            padding=padding,
            dilation=attributes.get("dilation", 1),
            groups=attributes.get("groups", 1),
        )

    return convolve


def _attention(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """A window becomes a mask. torch caps no scores: that is composed, in float32 and wider."""
    query, key, value, mask = (*tensors, None)[:4]
    causal, window = attributes.get("is_causal", False), tuple(attributes.get("window_size", (-1, -1)))
    if len(window) != 2 or attributes.get("softcap", 0.0) < 0 or (causal and mask is not None):
        raise ValueError(f"{dict(attributes)} is no attention")
    if window != (-1, -1) or attributes.get("softcap"):
        seen = _seen(query, key, window, causal)
        causal, mask = False, seen if mask is None else torch.where(seen, *_added(mask, query))
    if attributes.get("softcap"):
        return _capped_attention(query, key, value, mask, attributes)
    return functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=causal,
        scale=attributes.get("scale"),
        enable_gqa=attributes.get("enable_gqa", False),
    )


def _seen(query: Any, key: Any, window: Sequence[int], causal: bool, first: int = 0) -> torch.Tensor:
    """Which keys each query sees, where the first query has the place ``first``."""
    left, right = window[0], 0 if causal else window[1]
    queries, keys = (torch.arange(each.shape[-2], device=query.device) for each in (query, key))
    behind = keys - first - queries[:, None]
    return ((behind >= -left) | (left < 0)) & ((behind <= right) | (right < 0))


def _added(mask: torch.Tensor, query: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What a mask adds to the scores, and what a hidden key gets."""
    below = torch.tensor(float("-inf"), dtype=query.dtype, device=query.device)
    return torch.where(mask, torch.zeros_like(below), below) if mask.dtype == torch.bool else mask, below


def _capped_attention(query: Any, key: Any, value: Any, mask: Any, attributes: Attributes) -> torch.Tensor:
    if attributes.get("enable_gqa"):
        key, value = (each.repeat_interleave(query.shape[-3] // each.shape[-3], -3) for each in (key, value))
    scores = _scores(query, key, mask, attributes)
    shares = torch.softmax(scores, -1).masked_fill((scores == float("-inf")).all(-1, keepdim=True), 0.0)
    return (shares @ value.to(scores.dtype)).to(query.dtype)


def _scores(query: Any, key: Any, mask: Any, attributes: Attributes) -> torch.Tensor:
    """Return the scores with cap and mask, in float32 and wider."""
    wide = torch.promote_types(query.dtype, torch.float32)
    scale, cap = attributes.get("scale"), attributes.get("softcap")
    scores = query.to(wide) @ key.to(wide).mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = cap * torch.tanh(scores / cap) if cap else scores
    return scores + _added(mask, scores)[0]


def _cached_attention(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, ...]:
    """torch's attention, given the tokens of the caches and the new ones, and a mask that ends at the last."""
    query, key, value, key_cache, value_cache = tensors
    pos, tokens = attributes["pos"], query.shape[1]
    if pos < 0 or min(key_cache.shape[1], value_cache.shape[1]) < pos + tokens or query.shape[0] % key.shape[0]:
        raise ValueError(f"{pos} tokens of {tuple(key_cache.shape)} and {tuple(key.shape)} are not those of the query")
    caches = [cache.clone(memory_format=torch.contiguous_format) for cache in (key_cache, value_cache)]
    for cache, new in zip(caches, (key, value), strict=True):
        cache[:, pos : pos + tokens] = new
    keys, values = (cache[None, :, : pos + tokens] for cache in caches)
    out, *lse = _of_sequence(query, keys[0], values[0], attributes, pos)
    return out.contiguous(), *caches, *lse


def _of_sequence(
    query: Any, key: Any, value: Any, attributes: Attributes, first: int, slopes: Any = None
) -> list[torch.Tensor]:
    """torch's attention of heads x tokens x E, in float32 and wider, as tokens x heads x E, and the log-sum-exps if the
    attributes request them. The first query has the place ``first``."""
    wide = torch.promote_types(query.dtype, torch.float32)
    window = attributes.get("window_size", (-1, -1))
    mask = _seen(query, key, window, attributes.get("is_causal", True), first)[None, None]
    if slopes is not None:
        queries, keys = (torch.arange(each.shape[1], device=query.device, dtype=wide) for each in (query, key))
        bias = slopes.to(wide)[:, None, None] * (keys - first - queries[:, None])
        mask = torch.where(mask, bias, float("-inf"))
    stated = {"enable_gqa": True, **{name: attributes[name] for name in ("scale", "softcap") if name in attributes}}
    out = _attention((*(each[None].to(wide) for each in (query, key, value)), mask), stated)
    key = key.repeat_interleave(query.shape[0] // key.shape[0], 0)
    lse = [_scores(query, key, mask[0], stated).logsumexp(-1)] if attributes.get("return_lse") else []
    return [out[0].transpose(0, 1).to(query.dtype), *lse]


def _of_blocks(tensors: Tensors, offsets: torch.Tensor, slopes: Any, attributes: Attributes) -> torch.Tensor:
    """One sequence after another."""
    query, key_cache, value_cache, tables, lengths = tensors
    if attributes.get("kv_layout", "HND") == "NHD":
        key_cache, value_cache = key_cache.transpose(1, 2), value_cache.transpose(1, 2)
    out = torch.zeros_like(query, memory_format=torch.contiguous_format)
    if len(offsets) != len(lengths) + 1 or lengths.shape != tables.shape[:1] or query.shape[1] % key_cache.shape[1]:
        raise ValueError(f"block_tables and seq_lens of {tuple(lengths.shape)} do not fit {tuple(query.shape)}")
    for row, (length, start, stop) in enumerate(
        zip(lengths.tolist(), offsets.tolist(), offsets[1:].tolist(), strict=False)
    ):
        key, value = (
            cache[tables[row].long()].transpose(0, 1).flatten(1, 2)[:, :length] for cache in (key_cache, value_cache)
        )
        own = query[start:stop].transpose(0, 1)
        out[start:stop] = _of_sequence(own, key, value, attributes, length - own.shape[1], slopes)[0]
    return out


def _varlen_attention(tensors: Tensors, attributes: Attributes) -> Tensors:
    """One sequence after another."""
    query, key, value, of_queries, of_keys = (
        each.tolist() if place > 2 else each for place, each in enumerate(tensors)
    )
    if len(of_queries) != len(of_keys) or sorted(of_queries) != of_queries or of_queries[-1] > len(query):
        raise ValueError(f"{of_queries} and {of_keys} are not the offsets of sequences")
    outs = [query.new_zeros((*query.shape[:2], value.shape[2]))]
    if attributes.get("return_lse"):
        outs.append(query.new_zeros(query.shape[1::-1], dtype=torch.promote_types(query.dtype, torch.float32)))
    for start, stop, first, last in zip(of_queries, of_queries[1:], of_keys, of_keys[1:], strict=False):
        own, keys, values = (each.transpose(0, 1) for each in (query[start:stop], key[first:last], value[first:last]))
        stated = {"is_causal": False, **attributes}
        result = _of_sequence(own, keys, values, stated, last - first - (stop - start))
        outs[0][start:stop] = result[0]
        for out, lse in zip(outs[1:], result[1:], strict=True):
            out[:, start:stop] = lse
    return outs


def _paged_caching(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, torch.Tensor]:
    """Put together from torch's assignment by index."""
    *caches, key, value, slots = tensors
    if key.shape[0] != slots.shape[0]:
        raise ValueError(f"there are {slots.shape[0]} slots for {key.shape[0]} tokens")
    kept, outs = slots >= 0, []
    for cache, tokens in zip(caches, (key, value), strict=True):
        out = cache.clone(memory_format=torch.contiguous_format)
        places = out if attributes.get("kv_layout", "HND") == "NHD" else out.transpose(1, 2)
        if places.shape[0] * places.shape[1]:
            where = slots[kept].long()
            places[where // places.shape[1], where % places.shape[1]] = tokens[kept]
        outs.append(out)
    return outs[0], outs[1]


def _rope(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, cos, sin, positions = (*tensors, None)[:4]
    within = torch.promote_types(source.dtype, torch.float32)
    x, cos, sin = source.to(within), cos.to(within), sin.to(within)
    if positions is not None:
        cos, sin = cos[positions.long()], sin[positions.long()]
    size = attributes.get("rotary_embedding_dim") or source.shape[-1]
    if size > source.shape[-1]:
        raise ValueError(f"{size} elements are rotated, but input has {source.shape[-1]}")
    if cos.dim() > 2:
        between = (cos.shape[0], *(1,) * (source.dim() - 3), *cos.shape[1:])
        cos, sin = cos.reshape(between), sin.reshape(between)
    part, rest = x[..., :size], x[..., size:]
    if attributes.get("interleaved"):
        first, second = part[..., 0::2], part[..., 1::2]
    else:
        first, second = part[..., : size // 2], part[..., size // 2 :]
    pair = (first * cos - second * sin, second * cos + first * sin)
    turned = torch.stack(pair, dim=-1).flatten(-2) if attributes.get("interleaved") else torch.cat(pair, dim=-1)
    return torch.cat((turned, rest), dim=-1).to(source.dtype)


def _rotary_embedding(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, ...]:
    positions, query, key, cache = tensors
    half = cache.shape[1] // 2
    if cache.shape[1] != 2 * half or positions.shape != query.shape[:1] or key.shape[0] != query.shape[0]:
        raise ValueError(f"{tuple(positions.shape)} rows of {tuple(cache.shape)} do not fit {tuple(query.shape)}")
    stated = {"interleaved": not attributes.get("is_neox", True), "rotary_embedding_dim": 2 * half}
    return tuple(
        _rope((each.transpose(0, 1), cache[:, :half], cache[:, half:], positions), stated).transpose(0, 1).contiguous()
        for each in (query, key)
    )


_RANK = 2
"""Dimensions of a window of ``max_pool2d`` and ``avg_pool2d``."""


def _max_pool2d(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, padding = tensors[0], attributes.get("padding", 0)

    def largest(x: torch.Tensor, padding: Any) -> torch.Tensor:
        return functional.max_pool2d(
            x,
            attributes["kernel_size"],
            stride=attributes.get("stride"),
            padding=padding,
            dilation=attributes.get("dilation", 1),
            ceil_mode=attributes.get("ceil_mode", False),
        )

    if not has_two_sides(padding, _RANK):
        return largest(source, padding)
    lowest = float("-inf") if source.is_floating_point() else torch.iinfo(source.dtype).min
    return _begun_before_the_end(largest(padded(source, padding, _RANK, lowest), 0), source, attributes)


def _avg_pool2d(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, padding, divisor = tensors[0], attributes.get("padding", 0), attributes.get("divisor_override")
    include = attributes.get("count_include_pad", True)

    def averaged(x: torch.Tensor, **changed: Any) -> torch.Tensor:
        options = {"padding": padding, "count_include_pad": include, "divisor_override": divisor, **changed}
        stride, ceil_mode = attributes.get("stride"), attributes.get("ceil_mode", False)
        return functional.avg_pool2d(x, attributes["kernel_size"], stride=stride, ceil_mode=ceil_mode, **options)

    if not has_two_sides(padding, _RANK):
        return averaged(source)
    whole = padded(source, padding, _RANK)
    if include or divisor is not None:
        return _begun_before_the_end(averaged(whole, padding=0), source, attributes)
    present = padded(torch.ones_like(source), padding, _RANK)
    sums, counts = (averaged(each, padding=0, divisor_override=1) for each in (whole, present))
    return _begun_before_the_end(sums / counts, source, attributes)


def _begun_before_the_end(result: torch.Tensor, source: torch.Tensor, attributes: Attributes) -> torch.Tensor:
    """Without the windows that ``ceil_mode`` begins in the padding after ``source``, of which torch was not told."""
    stride = tuple(attributes.get("stride") or attributes["kernel_size"])
    for dim in range(_RANK):
        step, reach = stride[dim % len(stride)], source.shape[dim - _RANK] + attributes["padding"][dim]
        result = result.narrow(dim - _RANK, 0, min(result.shape[dim - _RANK], -(-reach // step)))
    return result.contiguous()


def _adaptive_avg_pool2d(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    size = attributes["output_size"]
    return functional.adaptive_avg_pool2d(tensors[0], size[0] if len(size) == 1 else size)


CALLS: dict[str, TorchCall] = {
    "matmul": _into(lambda tensors, _: torch.matmul(tensors[0], tensors[1])),
    "bmm": _into(lambda tensors, _: torch.bmm(tensors[0], tensors[1])),
    "gemm": _into(_gemm),
    "linear": _into(_linear),
    # If only one operand has a label, torch sums integers in int64 and returns int64.
    "einsum": lambda tensors, attributes: torch.einsum(attributes["equation"], *tensors).to(tensors[0].dtype),
    "grouped_matmul": _grouped_matmul,
    "conv1d": _into(_convolution(functional.conv1d, 1)),
    "conv2d": _into(_convolution(functional.conv2d, 2)),
    "conv3d": _into(_convolution(functional.conv3d, 3)),
    "scaled_dot_product_attention": _attention,
    "attention": _cached_attention,
    "paged_attention": lambda tensors, attributes: _of_blocks(
        tensors[:5], torch.arange(len(tensors[0]) + 1), (*tensors, None)[5], attributes
    ),
    "paged_prefill_attention": lambda tensors, attributes: _of_blocks(
        tensors[:5], tensors[5], (*tensors, None)[6], attributes
    ),
    "paged_caching": _paged_caching,
    "varlen_attention": _varlen_attention,
    "rope": _rope,
    "rotary_embedding": _rotary_embedding,
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "adaptive_avg_pool2d": _adaptive_avg_pool2d,
}
