"""Torch calls of contraction, attention and pooling operators, composed in float32 or wider if torch lacks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch.nn import functional

from optest.torch.operators.calls import Attributes, Tensors, TorchCall, factor, has_two_sides, padded
from optest.torch.tensors import TORCH_DTYPES


def _with_out_dtype(call: Callable[[Tensors, Attributes], torch.Tensor]) -> TorchCall:
    """Return ``call`` with the attribute ``out_dtype``, which torch has for few operators and on few devices.

    The operands are widened before the call, floats to float32, integers to the output's dtype.
    """

    def widened(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
        name = attributes.get("out_dtype")
        if name is None or TORCH_DTYPES[name] == tensors[0].dtype:
            return call(tensors, attributes)
        target = TORCH_DTYPES[name]
        # Products of 16-bit floats are exact in float32, and integers are exact in the wider dtype.
        within = torch.float32 if target.is_floating_point else target
        wide = [None if tensor is None else tensor.to(within) for tensor in tensors]
        return call(wide, attributes).to(target)

    return widened


def _gemm(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    a, b, c = tensors if len(tensors) == 3 else (*tensors, None)
    a = a.transpose(-1, -2) if attributes.get("trans_a") else a
    b = b.transpose(-1, -2) if attributes.get("trans_b") else b
    alpha, beta = factor(attributes.get("alpha", 1.0), a.dtype), factor(attributes.get("beta", 1.0), a.dtype)
    if c is None:
        # addmm applies alpha before it rounds; alpha * (a @ b) would round twice.
        c, beta = a.new_zeros(()), 0
    function = torch.addmm if a.dim() == 2 else torch.baddbmm
    return function(c, a, b, alpha=alpha, beta=beta)


def _linear(tensors: Tensors, _: Attributes) -> torch.Tensor:
    source, weight, bias = (*tensors, None)[:3]
    return functional.linear(source, weight, bias)


def _grouped_matmul(tensors: Tensors, _: Attributes) -> torch.Tensor:
    # Expert by expert, because torch's grouped_mm has few dtypes and devices.
    source, weight, offs = tensors
    ends = [0, *offs.tolist()]
    if len(offs) != len(weight) or sorted(ends) != ends or ends[-1] > len(source):
        expected = f"ascending ends of {len(weight)} experts in {len(source)} rows"
        raise ValueError(f"offs is {offs.tolist()}, expected {expected}")
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
        options = {name: attributes.get(name, 1) for name in ("stride", "padding", "dilation", "groups")}
        return function(source, weight, bias, **{**options, "padding": padding})

    return convolve


def _attention(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """Return torch's attention; a window becomes a mask, and ``softcap``, which torch lacks, is composed."""
    query, key, value, mask = (*tensors, None)[:4]
    causal, window = attributes.get("is_causal", False), tuple(attributes.get("window_size", (-1, -1)))
    if len(window) != 2 or attributes.get("softcap", 0.0) < 0 or (causal and mask is not None):
        expected = "two window sizes, a softcap of 0 or more, and no mask if it is causal"
        raise ValueError(f"attention has {dict(attributes)}, expected {expected}")
    if window != (-1, -1) or attributes.get("softcap"):
        visible = _visible_keys(query, key, window, causal)
        causal, mask = False, visible if mask is None else torch.where(visible, *_additive_mask(mask, query))
    if attributes.get("softcap"):
        return _capped_attention(query, key, value, mask, attributes)
    options = {"scale": attributes.get("scale"), "enable_gqa": attributes.get("enable_gqa", False)}
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, **options)


def _visible_keys(query: Any, key: Any, window: Sequence[int], causal: bool, first: int = 0) -> torch.Tensor:
    """Return the mask of the keys that tensor query sees; the first query is at position ``first`` of the keys."""
    left, right = window[0], 0 if causal else window[1]
    queries, keys = (torch.arange(tensor.shape[-2], device=query.device) for tensor in (query, key))
    distance = keys - first - queries[:, None]
    return ((distance >= -left) | (left < 0)) & ((distance <= right) | (right < 0))


def _additive_mask(mask: torch.Tensor, query: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mask as numbers to add to the scores, and -inf, the number for a hidden key."""
    hidden = torch.tensor(float("-inf"), dtype=query.dtype, device=query.device)
    return torch.where(mask, torch.zeros_like(hidden), hidden) if mask.dtype == torch.bool else mask, hidden


def _capped_attention(query: Any, key: Any, value: Any, mask: Any, attributes: Attributes) -> torch.Tensor:
    if attributes.get("enable_gqa"):
        key, value = (tensor.repeat_interleave(query.shape[-3] // tensor.shape[-3], -3) for tensor in (key, value))
    scores = _scores(query, key, mask, attributes)
    # A query that sees no key has the output 0, but softmax of -inf only is NaN.
    shares = torch.softmax(scores, -1).masked_fill((scores == float("-inf")).all(-1, keepdim=True), 0.0)
    return (shares @ value.to(scores.dtype)).to(query.dtype)


def _scores(query: Any, key: Any, mask: Any, attributes: Attributes) -> torch.Tensor:
    """Return the scores with cap and mask, in float32 or wider."""
    wide = torch.promote_types(query.dtype, torch.float32)
    scale, cap = attributes.get("scale"), attributes.get("softcap")
    scores = query.to(wide) @ key.to(wide).mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = cap * torch.tanh(scores / cap) if cap else scores
    return scores + _additive_mask(mask, scores)[0]


def _cached_attention(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, ...]:
    """Return the attention over the cached tokens and the new ones, and copies of the caches with the new tokens."""
    query, key, value, key_cache, value_cache = tensors
    pos, tokens = attributes["pos"], query.shape[1]
    if pos < 0 or min(key_cache.shape[1], value_cache.shape[1]) < pos + tokens or query.shape[0] % key.shape[0]:
        shapes = f"{tuple(key_cache.shape)} and {tuple(key.shape)}"
        raise ValueError(f"{pos} cached tokens in a cache and a key of {shapes} do not fit {tokens} new tokens")
    caches = [cache.clone(memory_format=torch.contiguous_format) for cache in (key_cache, value_cache)]
    for cache, new in zip(caches, (key, value), strict=True):
        cache[:, pos : pos + tokens] = new
    keys, values = (cache[None, :, : pos + tokens] for cache in caches)
    out, *lse = _sequence_attention(query, keys[0], values[0], attributes, pos)
    return out.contiguous(), *caches, *lse


def _sequence_attention(
    query: Any, key: Any, value: Any, attributes: Attributes, first: int, slopes: Any = None
) -> list[torch.Tensor]:
    """Return one sequence's attention, and the log-sum-exps if the attributes request them; ``slopes`` are ALiBi's.

    Inputs are heads x tokens x E, the output is tokens x heads x E. The first query is at position ``first``.
    """
    wide = torch.promote_types(query.dtype, torch.float32)
    window = attributes.get("window_size", (-1, -1))
    mask = _visible_keys(query, key, window, attributes.get("is_causal", True), first)[None, None]
    if slopes is not None:
        queries, keys = (torch.arange(tensor.shape[1], device=query.device, dtype=wide) for tensor in (query, key))
        bias = slopes.to(wide)[:, None, None] * (keys - first - queries[:, None])
        mask = torch.where(mask, bias, float("-inf"))
    options = {"enable_gqa": True, **{name: attributes[name] for name in ("scale", "softcap") if name in attributes}}
    out = _attention((*(tensor[None].to(wide) for tensor in (query, key, value)), mask), options)
    key = key.repeat_interleave(query.shape[0] // key.shape[0], 0)
    lse = [_scores(query, key, mask[0], options).logsumexp(-1)] if attributes.get("return_lse") else []
    return [out[0].transpose(0, 1).to(query.dtype), *lse]


def _paged_attention(tensors: Tensors, offsets: torch.Tensor, slopes: Any, attributes: Attributes) -> torch.Tensor:
    """Return the attention over the blocks of a paged cache; queries of a sequence begin at its offset."""
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
        queries = query[start:stop].transpose(0, 1)
        out[start:stop] = _sequence_attention(queries, key, value, attributes, length - queries.shape[1], slopes)[0]
    return out


def _varlen_attention(tensors: Tensors, attributes: Attributes) -> Tensors:
    """Return the attention of packed sequences, and the log-sum-exps if requested, sequence by sequence."""
    query, key, value = tensors[:3]
    starts, key_starts = (tensor.tolist() for tensor in tensors[3:])
    if len(starts) != len(key_starts) or sorted(starts) != starts or starts[-1] > len(query):
        raise ValueError(f"offsets are {starts} and {key_starts}, expected ascending ones up to {len(query)} tokens")
    outs = [query.new_zeros((*query.shape[:2], value.shape[2]))]
    if attributes.get("return_lse"):
        outs.append(query.new_zeros(query.shape[1::-1], dtype=torch.promote_types(query.dtype, torch.float32)))
    for (start, stop), (first, last) in zip(pairwise(starts), pairwise(key_starts), strict=True):
        parts = (query[start:stop], key[first:last], value[first:last])
        queries, keys, values = (part.transpose(0, 1) for part in parts)
        options = {"is_causal": False, **attributes}
        result = _sequence_attention(queries, keys, values, options, last - first - (stop - start))
        outs[0][start:stop] = result[0]
        for out, lse in zip(outs[1:], result[1:], strict=True):
            out[:, start:stop] = lse
    return outs


def _paged_caching(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, torch.Tensor]:
    """Return copies of the caches with the tokens stored in their slots; a negative slot drops its token."""
    *caches, key, value, slots = tensors
    if key.shape[0] != slots.shape[0]:
        raise ValueError(f"there are {slots.shape[0]} slots for {key.shape[0]} tokens")
    kept, outs = slots >= 0, []
    for cache, tokens in zip(caches, (key, value), strict=True):
        out = cache.clone(memory_format=torch.contiguous_format)
        blocks = out if attributes.get("kv_layout", "HND") == "NHD" else out.transpose(1, 2)
        if blocks.shape[0] * blocks.shape[1]:
            slot = slots[kept].long()
            blocks[slot // blocks.shape[1], slot % blocks.shape[1]] = tokens[kept]
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
        raise ValueError(f"rotary_embedding_dim is {size}, expected at most {source.shape[-1]}, the input's last size")
    if cos.dim() > 2:
        shape = (cos.shape[0], *(1,) * (source.dim() - 3), *cos.shape[1:])
        cos, sin = cos.reshape(shape), sin.reshape(shape)
    part, rest = x[..., :size], x[..., size:]
    # Pairs to rotate: neighbours, as in GPT-J, or elements half the size apart, as in GPT-NeoX.
    if attributes.get("interleaved"):
        first, second = part[..., 0::2], part[..., 1::2]
    else:
        first, second = part[..., : size // 2], part[..., size // 2 :]
    pair = (first * cos - second * sin, second * cos + first * sin)
    rotated = torch.stack(pair, dim=-1).flatten(-2) if attributes.get("interleaved") else torch.cat(pair, dim=-1)
    return torch.cat((rotated, rest), dim=-1).to(source.dtype)


def _rotary_embedding(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, ...]:
    positions, query, key, cache = tensors
    half = cache.shape[1] // 2
    if cache.shape[1] != 2 * half or positions.shape != query.shape[:1] or key.shape[0] != query.shape[0]:
        raise ValueError(f"{tuple(positions.shape)} rows of {tuple(cache.shape)} do not fit {tuple(query.shape)}")
    options = {"interleaved": not attributes.get("is_neox", True), "rotary_embedding_dim": 2 * half}
    return tuple(
        _rope((x.transpose(0, 1), cache[:, :half], cache[:, half:], positions), options).transpose(0, 1).contiguous()
        for x in (query, key)
    )


# Dimensions of a window of ``max_pool2d`` and ``avg_pool2d``.
_RANK = 2


def _max_pool2d(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, padding = tensors[0], attributes.get("padding", 0)

    def largest(x: torch.Tensor, padding: Any) -> torch.Tensor:
        options = {"stride": attributes.get("stride"), "padding": padding, "dilation": attributes.get("dilation", 1)}
        return functional.max_pool2d(
            x, attributes["kernel_size"], **options, ceil_mode=attributes.get("ceil_mode", False)
        )

    if not has_two_sides(padding, _RANK):
        return largest(source, padding)
    lowest = float("-inf") if source.is_floating_point() else torch.iinfo(source.dtype).min
    return _drop_windows_in_padding(largest(padded(source, padding, _RANK, lowest), 0), source, attributes)


def _avg_pool2d(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, padding, divisor = tensors[0], attributes.get("padding", 0), attributes.get("divisor_override")
    include = attributes.get("count_include_pad", True)

    def averaged(x: torch.Tensor, **changed: Any) -> torch.Tensor:
        options = {"padding": padding, "count_include_pad": include, "divisor_override": divisor, **changed}
        stride, ceil_mode = attributes.get("stride"), attributes.get("ceil_mode", False)
        return functional.avg_pool2d(x, attributes["kernel_size"], stride=stride, ceil_mode=ceil_mode, **options)

    if not has_two_sides(padding, _RANK):
        return averaged(source)
    values = padded(source, padding, _RANK)
    if include or divisor is not None:
        return _drop_windows_in_padding(averaged(values, padding=0), source, attributes)
    # torch counts the padding as elements, as it does not know of it: divide by the number of real elements.
    ones = padded(torch.ones_like(source), padding, _RANK)
    sums, counts = (averaged(tensor, padding=0, divisor_override=1) for tensor in (values, ones))
    return _drop_windows_in_padding(sums / counts, source, attributes)


def _drop_windows_in_padding(result: torch.Tensor, source: torch.Tensor, attributes: Attributes) -> torch.Tensor:
    """Return the result without windows that begin in the padding after ``source``, which ``ceil_mode`` adds."""
    stride = tuple(attributes.get("stride") or attributes["kernel_size"])
    for dim in range(_RANK):
        step, reach = stride[dim % len(stride)], source.shape[dim - _RANK] + attributes["padding"][dim]
        result = result.narrow(dim - _RANK, 0, min(result.shape[dim - _RANK], -(-reach // step)))
    return result.contiguous()


def _adaptive_avg_pool2d(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    size = attributes["output_size"]
    return functional.adaptive_avg_pool2d(tensors[0], size[0] if len(size) == 1 else size)


CALLS: dict[str, TorchCall] = {
    "matmul": _with_out_dtype(lambda tensors, _: torch.matmul(tensors[0], tensors[1])),
    "bmm": _with_out_dtype(lambda tensors, _: torch.bmm(tensors[0], tensors[1])),
    "gemm": _with_out_dtype(_gemm),
    "linear": _with_out_dtype(_linear),
    # If only one operand has a label, torch sums integers in int64 and returns int64.
    "einsum": lambda tensors, attributes: torch.einsum(attributes["equation"], *tensors).to(tensors[0].dtype),
    "grouped_matmul": _grouped_matmul,
    "conv1d": _with_out_dtype(_convolution(functional.conv1d, 1)),
    "conv2d": _with_out_dtype(_convolution(functional.conv2d, 2)),
    "conv3d": _with_out_dtype(_convolution(functional.conv3d, 3)),
    "scaled_dot_product_attention": _attention,
    "attention": _cached_attention,
    "paged_attention": lambda tensors, attributes: _paged_attention(
        tensors[:5], torch.arange(len(tensors[0]) + 1), (*tensors, None)[5], attributes
    ),
    "paged_prefill_attention": lambda tensors, attributes: _paged_attention(
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
