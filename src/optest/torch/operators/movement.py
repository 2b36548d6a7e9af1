"""Torch calls of movement, indexing, sampling and routing operators; those that torch lacks are composed of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from optest.operators.shapes import slices_of
from optest.torch.operators.calls import Attributes, Tensors, TorchCall, factor
from optest.torch.tensors import TORCH_DTYPES


def _split(tensors: Tensors, attributes: Attributes) -> list[torch.Tensor]:
    sizes = attributes["split_size_or_sections"]
    parts = torch.split(tensors[0], sizes if isinstance(sizes, int) else list(sizes), dim=attributes.get("dim", 0))
    return [part.contiguous() for part in parts]


def _slice(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    result = tensors[0]
    for dim, start, end, stride in slices_of(attributes):
        step = 1 if stride is None else stride
        if step >= 0:
            result = torch.ops.aten.slice.Tensor(result, dim, start, end, step)
            continue
        # torch has no slices with a negative step.
        size = result.shape[dim]
        first = size - 1 if start is None else max(min(start + size * (start < 0), size - 1), 0)
        last = -1 if end is None else max(end + size * (end < 0), -1)
        indices = list(range(first, last, step)) if size else []
        result = result.index_select(dim, torch.tensor(indices, dtype=torch.int64, device=result.device))
    return result.contiguous()


def _pad(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    mode = attributes.get("mode", "constant")
    value: Any = attributes.get("value", 0.0) if mode == "constant" else None
    return functional.pad(tensors[0], attributes["pad"], mode=mode, value=value)


def _topk(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, torch.Tensor]:
    options = {"dim": -1, "largest": True, "sorted": True} | dict(attributes)
    result = torch.topk(tensors[0], options.pop("k"), **options)
    return result.values, result.indices


def _sort(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, torch.Tensor]:
    options = {"stable": False, "dim": -1, "descending": False} | dict(attributes)
    result = torch.sort(tensors[0], **options)
    return result.values, result.indices


def _random_sample(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """Return the index of the sorted logits at which the cumulated probability passes ``random_value``."""
    logits, value = tensors[0], attributes["random_value"]
    top_k, top_p, temperature = (attributes.get(name) for name in ("top_k", "top_p", "temperature"))
    limits = [limit for limit in (top_k, top_p, temperature) if limit is not None]
    index = TORCH_DTYPES[attributes.get("dtype", "int64")]
    if logits.dim() != 1 or not len(logits) or not 0 <= value <= 1 or min(limits, default=0) < 0:
        raise ValueError(f"logits of {tuple(logits.shape)} cannot be sampled with {dict(attributes)}")
    if len(logits) - 1 > torch.iinfo(index).max:
        raise ValueError(f"{index} cannot hold the index {len(logits) - 1}")
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    ordered, order = torch.sort(wide, descending=True, stable=True)
    kept = len(logits) if top_k is None else max(1, min(top_k, len(logits)))
    if kept == 1 or top_p == 0 or temperature == 0 or not torch.isfinite(ordered[0]):
        return order[0].to(index)
    sums = torch.softmax(ordered / (1.0 if temperature is None else temperature), 0).cumsum(0)
    limit = value * torch.clamp(sums[kept - 1], max=1.0 if top_p is None else top_p)
    return order[min(int((sums[:kept] < limit).sum()), kept - 1)].to(index)


def _index_select(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, index = tensors
    if index.dim() < 2:
        return torch.index_select(source, attributes["dim"], index)
    # torch accepts only 1-d indices.
    dim = attributes["dim"] % max(source.dim(), 1)
    result = torch.index_select(source, dim, index.flatten())
    return result.reshape((*source.shape[:dim], *index.shape, *source.shape[dim + 1 :]))


def _index_add(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, index, values = tensors
    alpha = attributes.get("alpha", 1.0)
    # A fraction goes to torch as it is, which refuses it for integers.
    scale = factor(alpha, source.dtype) if alpha == alpha // 1 else alpha
    return torch.index_add(source, attributes["dim"], index, values, alpha=scale)


def _kthvalue(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, torch.Tensor]:
    result = torch.kthvalue(tensors[0], attributes["k"], attributes.get("dim", -1), attributes.get("keepdim", False))
    return result.values, result.indices


def _require_topk(scores: torch.Tensor, topk: int, count: int) -> None:
    if scores.dim() != 2 or not 1 <= topk <= count:
        raise ValueError(f"topk is {topk} for scores {tuple(scores.shape)}, expected 1 to {count} for a matrix")


def _float32_or_wider(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _topksoftmax(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, torch.Tensor]:
    _require_topk(tensors[0], attributes["topk"], tensors[0].shape[-1])
    shares = torch.softmax(_float32_or_wider(tensors[0]), dim=1)
    values, indices = torch.topk(shares, attributes["topk"], dim=1)
    if attributes.get("norm"):
        values = values / values.sum(1, keepdim=True)
    return values, indices.int()


def _topkrouter(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, torch.Tensor]:
    count, groups_chosen = attributes.get("n_group", 8), attributes.get("topk_group", 4)
    size = tensors[0].shape[-1] // count
    _require_topk(tensors[0], attributes["topk"], groups_chosen * size)
    shares = torch.sigmoid(_float32_or_wider(tensors[0]))
    rows, width = shares.shape
    groups = (shares + tensors[1]).reshape(rows, count, size)
    pairs = groups.topk(2, dim=2).values.sum(2)
    chosen = pairs.topk(groups_chosen, dim=1).indices
    is_chosen = torch.zeros_like(pairs).scatter(1, chosen, 1.0).unsqueeze(2) > 0
    indices = torch.where(is_chosen, groups, 0.0).reshape(rows, width).topk(attributes["topk"], dim=1).indices
    values = shares.gather(1, indices)
    factor = attributes.get("routed_scaling_factor", 1.0)
    # The summand prevents 0 / 0 if all chosen shares underflow.
    return factor * values / (values.sum(1, keepdim=True) + 1e-20), indices.int()


def _top_k_top_p_mask(tensors: Tensors, _: Attributes) -> torch.Tensor:
    """Return the logits with -inf for all except the top k, and of these the first whose shares sum to top p."""
    logits, top_k, top_p = (*tensors, None, None)[:3]
    if any(x is not None and x.shape != logits.shape[:1] for x in (top_k, top_p)) or not logits.shape[1]:
        shapes = [None if x is None else tuple(x.shape) for x in (top_k, top_p)]
        raise ValueError(f"top_k and top_p have shapes {shapes}, expected one value per row of {tuple(logits.shape)}")
    ordered, order = torch.sort(_float32_or_wider(logits), descending=True, stable=True)
    ranks = torch.arange(logits.shape[1], device=logits.device)
    kept = torch.ones_like(order, dtype=torch.bool) if top_k is None else ranks < top_k[:, None]
    if top_p is not None:
        shares = torch.softmax(ordered.masked_fill(~kept, float("-inf")), 1)
        kept &= (shares.cumsum(1) - shares < top_p[:, None]) | (ranks == 0)
    return logits.masked_fill(~torch.zeros_like(kept).scatter(1, order, kept), float("-inf"))


def _top_k_top_p_sampling(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    index = TORCH_DTYPES[attributes.get("dtype", "int32")]
    shares = torch.softmax(_float32_or_wider(_top_k_top_p_mask(tensors, attributes)), 1)
    if not len(shares):
        return shares.new_empty((0,), dtype=index)
    # Seeded, so that repeated runs of a case return the same indices.
    generator = torch.Generator("cpu" if shares.is_meta else shares.device).manual_seed(0)
    return torch.multinomial(shares, 1, generator=generator)[:, 0].to(index)


def _moe_align(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, ...]:
    """Return tokens sorted by expert with each expert padded to whole blocks, the expert per block, and the length."""
    chosen, block, experts = tensors[0].flatten().long(), attributes["block_size"], attributes["num_experts"]
    if min(block, experts) < 1 or (len(chosen) and int(chosen.max()) >= experts):
        raise ValueError(f"block_size is {block}, num_experts {experts}, expected 1 or more, and experts in that range")
    counts = torch.bincount(chosen, minlength=experts)
    blocks = (counts + block - 1) // block
    starts = (blocks.cumsum(0) - blocks) * block
    order = torch.sort(chosen, stable=True).indices
    # Position of each token among those of its expert.
    rank = torch.arange(len(chosen), device=chosen.device) - (counts.cumsum(0) - counts)[chosen[order]]
    room = len(chosen) + experts * (block - 1)
    ids = torch.full((room,), len(chosen), dtype=torch.int32, device=chosen.device)
    ids[starts[chosen[order]] + rank] = order.int()
    owners = torch.repeat_interleave(torch.arange(experts, device=chosen.device), blocks)
    expert_ids = torch.zeros(-(-room // block), dtype=torch.int32, device=chosen.device)
    expert_ids[: len(owners)] = owners.int()
    return ids, expert_ids, (blocks.sum() * block).int().reshape(1)


def _moe_combine(tensors: Tensors, _: Attributes) -> torch.Tensor:
    """Return the weighted sum of each token's rows; a negative row index contributes nothing."""
    source, weights, indices = (*tensors, None)[:3]
    if indices is None:
        indices = torch.arange(len(source), device=source.device).reshape(weights.shape)
    kept, rows = indices >= 0, _float32_or_wider(source)
    if len(source) == 0:
        return source.new_zeros((len(weights), source.shape[1]))
    chosen = torch.where(kept[..., None], rows[indices.long().clamp_min(0)], 0.0)
    return (weights.to(rows.dtype)[..., None] * chosen).sum(1).to(source.dtype)


def _with_int64_index(function: Callable[..., torch.Tensor]) -> TorchCall:
    """Return a call of a function that accepts only int64 indices, with int32 indices converted."""

    def call(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
        source, index, *values = tensors
        index = index.long() if index.dtype == torch.int32 else index
        return function(source, *attributes.values(), index, *values)

    return call


CALLS: dict[str, TorchCall] = {
    # torch returns views, which move no elements; ``contiguous`` runs the kernel that does.
    "transpose": lambda tensors, attributes: torch.transpose(
        tensors[0], attributes["dim0"], attributes["dim1"]
    ).contiguous(),
    "permute": lambda tensors, attributes: torch.permute(tensors[0], attributes["dims"]).contiguous(),
    "reshape": lambda tensors, attributes: torch.reshape(tensors[0], attributes["shape"]).contiguous(),
    "broadcast_to": lambda tensors, attributes: torch.broadcast_to(tensors[0], attributes["size"]).contiguous(),
    "tile": lambda tensors, attributes: torch.tile(tensors[0], attributes["dims"]),
    "flip": lambda tensors, attributes: torch.flip(tensors[0], attributes["dims"]),
    "roll": lambda tensors, attributes: torch.roll(tensors[0], attributes["shifts"], attributes.get("dims") or ()),
    "tril": lambda tensors, attributes: torch.tril(tensors[0], attributes.get("diagonal", 0)),
    "triu": lambda tensors, attributes: torch.triu(tensors[0], attributes.get("diagonal", 0)),
    "concat": lambda tensors, attributes: torch.cat(list(tensors), dim=attributes.get("dim", 0)),
    "split": _split,
    "slice": _slice,
    "pad": _pad,
    "clone": lambda tensors, _attributes: torch.clone(tensors[0], memory_format=torch.contiguous_format),
    "zeros_like": lambda tensors, _attributes: torch.zeros_like(tensors[0], memory_format=torch.contiguous_format),
    "ones_like": lambda tensors, _attributes: torch.ones_like(tensors[0], memory_format=torch.contiguous_format),
    "gather": lambda tensors, attributes: torch.gather(tensors[0], attributes["dim"], tensors[1]),
    "index_select": _index_select,
    "scatter_add": lambda tensors, attributes: torch.scatter_add(tensors[0], attributes["dim"], tensors[1], tensors[2]),
    "take": _with_int64_index(torch.take),
    "index_add": _index_add,
    "index_copy": _with_int64_index(torch.index_copy),
    "scatter": _with_int64_index(torch.scatter),
    "kthvalue": _kthvalue,
    "top_k_top_p_mask": _top_k_top_p_mask,
    "top_k_top_p_sampling": _top_k_top_p_sampling,
    "moe_align": _moe_align,
    "moe_combine": _moe_combine,
    "topksoftmax": _topksoftmax,
    "topkrouter": _topkrouter,
    "embedding": lambda tensors, attributes: functional.embedding(
        tensors[1], tensors[0], padding_idx=attributes.get("padding_idx")
    ),
    "topk": _topk,
    "sort": _sort,
    "random_sample": _random_sample,
}
