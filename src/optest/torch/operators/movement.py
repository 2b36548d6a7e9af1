"""The torch calls of the movement and the indexing family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from optest.operators.shapes import stated_slices
from optest.torch.operators.calls import Attributes, Tensors, TorchCall, factor
from optest.torch.tensors import TORCH_DTYPES


def _split(tensors: Tensors, attributes: Attributes) -> list[torch.Tensor]:
    sizes = attributes["split_size_or_sections"]
    parts = torch.split(tensors[0], sizes if isinstance(sizes, int) else list(sizes), dim=attributes.get("dim", 0))
    return [part.contiguous() for part in parts]


def _slice(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """torch's own slices; a negative step, which it does not have, is an ``index_select``."""
    result = tensors[0]
    for dim, start, end, step in stated_slices(attributes):
        result = _sliced(result, dim, start, end, 1 if step is None else step)
    return result.contiguous()


def _sliced(tensor: torch.Tensor, dim: int, start: int | None, end: int | None, step: int) -> torch.Tensor:
    if step >= 0:
        sliced: torch.Tensor = torch.ops.aten.slice.Tensor(tensor, dim, start, end, step)
        return sliced
    size = tensor.shape[dim]
    first = size - 1 if start is None else max(min(start + size * (start < 0), size - 1), 0)
    last = -1 if end is None else max(end + size * (end < 0), -1)
    places = list(range(first, last, step)) if size else []
    return tensor.index_select(dim, torch.tensor(places, dtype=torch.int64, device=tensor.device))


def _pad(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    mode = attributes.get("mode", "constant")
    value: Any = attributes.get("value", 0.0) if mode == "constant" else None
    return functional.pad(tensors[0], attributes["pad"], mode=mode, value=value)


def _topk(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, torch.Tensor]:
    found = torch.topk(
        tensors[0],
        attributes["k"],
        dim=attributes.get("dim", -1),
        largest=attributes.get("largest", True),
        sorted=attributes.get("sorted", True),
    )
    return found.values, found.indices


def _sort(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, torch.Tensor]:
    found = torch.sort(
        tensors[0],
        stable=attributes.get("stable", False),
        dim=attributes.get("dim", -1),
        descending=attributes.get("descending", False),
    )
    return found.values, found.indices


def _random_sample(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """Put together from torch's sort, softmax and cumsum, in float32 and wider."""
    logits, value = tensors[0], attributes["random_value"]
    top_k, top_p, temperature = (attributes.get(name) for name in ("top_k", "top_p", "temperature"))
    stated = [each for each in (top_k, top_p, temperature) if each is not None]
    index = TORCH_DTYPES[attributes.get("dtype", "int64")]
    if logits.dim() != 1 or not len(logits) or not 0 <= value <= 1 or min(stated, default=0) < 0:
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
    place = min(int((sums[:kept] < limit).sum()), kept - 1)
    return order[place].to(index)


def _index_select(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """torch takes an index of one dimension: several are made one, and put in its place afterwards."""
    source, index = tensors
    if index.dim() < 2:
        return torch.index_select(source, attributes["dim"], index)
    dim = attributes["dim"] % max(source.dim(), 1)
    found = torch.index_select(source, dim, index.flatten())
    return found.reshape((*source.shape[:dim], *index.shape, *source.shape[dim + 1 :]))


def _index_add(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, index, added = tensors
    alpha = attributes.get("alpha", 1.0)
    whole = factor(alpha, source.dtype) if alpha == alpha // 1 else alpha
    return torch.index_add(source, attributes["dim"], index, added, alpha=whole)


def _kthvalue(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, torch.Tensor]:
    found = torch.kthvalue(tensors[0], attributes["k"], attributes.get("dim", -1), attributes.get("keepdim", False))
    return found.values, found.indices


# torch has neither of the next two: they are put together in float32, which their results are.


def _require_matrix(scores: torch.Tensor, topk: int, most: int) -> None:
    if scores.dim() != 2 or not 1 <= topk <= most:
        raise ValueError(f"{topk} of {most} cannot be chosen from {tuple(scores.shape)}")


def _float32_or_wider(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _topksoftmax(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, torch.Tensor]:
    _require_matrix(tensors[0], attributes["topk"], tensors[0].shape[-1])
    shares = torch.softmax(_float32_or_wider(tensors[0]), dim=1)
    values, indices = torch.topk(shares, attributes["topk"], dim=1)
    if attributes.get("norm"):
        values = values / values.sum(1, keepdim=True)
    return values, indices.int()


def _topkrouter(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, torch.Tensor]:
    count, groups_chosen = attributes.get("n_group", 8), attributes.get("topk_group", 4)
    size = tensors[0].shape[-1] // count
    _require_matrix(tensors[0], attributes["topk"], groups_chosen * size)
    shares = torch.sigmoid(_float32_or_wider(tensors[0]))
    rows, width = shares.shape
    groups = (shares + tensors[1]).reshape(rows, count, size)
    pairs = groups.topk(2, dim=2).values.sum(2)
    chosen = pairs.topk(groups_chosen, dim=1).indices
    seen = torch.zeros_like(pairs).scatter(1, chosen, 1.0).unsqueeze(2) > 0
    indices = torch.where(seen, groups, 0.0).reshape(rows, width).topk(attributes["topk"], dim=1).indices
    values = shares.gather(1, indices)
    factor = attributes.get("routed_scaling_factor", 1.0)
    return factor * values / (values.sum(1, keepdim=True) + 1e-20), indices.int()


def _top_k_top_p_mask(tensors: Tensors, _: Attributes) -> torch.Tensor:
    """Put together from torch's sort, softmax and cumsum, in float32 and wider."""
    logits, top_k, top_p = (*tensors, None, None)[:3]
    if any(each is not None and each.shape != logits.shape[:1] for each in (top_k, top_p)) or not logits.shape[1]:
        raise ValueError(f"{tuple(logits.shape)} cannot be cut so")
    ordered, order = torch.sort(_float32_or_wider(logits), descending=True, stable=True)
    places = torch.arange(logits.shape[1], device=logits.device)
    kept = torch.ones_like(order, dtype=torch.bool) if top_k is None else places < top_k[:, None]
    if top_p is not None:
        shares = torch.softmax(ordered.masked_fill(~kept, float("-inf")), 1)
        kept &= (shares.cumsum(1) - shares < top_p[:, None]) | (places == 0)
    return logits.masked_fill(~torch.zeros_like(kept).scatter(1, order, kept), float("-inf"))


def _top_k_top_p_sampling(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """Seeded, so that a case says the same each time."""
    index = TORCH_DTYPES[attributes.get("dtype", "int32")]
    shares = torch.softmax(_float32_or_wider(_top_k_top_p_mask(tensors, attributes)), 1)
    if not len(shares):
        return shares.new_empty((0,), dtype=index)
    generator = torch.Generator("cpu" if shares.is_meta else shares.device).manual_seed(0)
    return torch.multinomial(shares, 1, generator=generator)[:, 0].to(index)


def _moe_align(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, ...]:
    """Put together from torch's sort and counts."""
    chosen, block, experts = tensors[0].flatten().long(), attributes["block_size"], attributes["num_experts"]
    if min(block, experts) < 1 or (len(chosen) and int(chosen.max()) >= experts):
        raise ValueError(f"there are no blocks of {block} for {experts} experts")
    counts = torch.bincount(chosen, minlength=experts)
    blocks = (counts + block - 1) // block
    starts = (blocks.cumsum(0) - blocks) * block
    order = torch.sort(chosen, stable=True).indices
    rank = torch.arange(len(chosen), device=chosen.device) - (counts.cumsum(0) - counts)[chosen[order]]
    room = len(chosen) + experts * (block - 1)
    ids = torch.full((room,), len(chosen), dtype=torch.int32, device=chosen.device)
    ids[starts[chosen[order]] + rank] = order.int()
    owners = torch.repeat_interleave(torch.arange(experts, device=chosen.device), blocks)
    expert_ids = torch.zeros(-(-room // block), dtype=torch.int32, device=chosen.device)
    expert_ids[: len(owners)] = owners.int()
    return ids, expert_ids, (blocks.sum() * block).int().reshape(1)


def _moe_combine(tensors: Tensors, _: Attributes) -> torch.Tensor:
    """Put together in float32 and wider."""
    source, weights, places = (*tensors, None)[:3]
    if places is None:
        places = torch.arange(len(source), device=source.device).reshape(weights.shape)
    kept, rows = places >= 0, _float32_or_wider(source)
    if len(source) == 0:
        return source.new_zeros((len(weights), source.shape[1]))
    chosen = torch.where(kept[..., None], rows[places.long().clamp_min(0)], 0.0)
    return (weights.to(rows.dtype)[..., None] * chosen).sum(1).to(source.dtype)


def _by_int64(function: Callable[..., torch.Tensor]) -> TorchCall:
    """Of functions that take an index of int64 alone: one of int32 becomes one."""

    def call(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
        source, index, *written = tensors
        index = index.long() if index.dtype == torch.int32 else index
        return function(source, *attributes.values(), index, *written)

    return call


CALLS: dict[str, TorchCall] = {
    # Views, as ``torch.transpose`` yields, move no elements; ``contiguous`` is the kernel that does.
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
    "take": _by_int64(torch.take),
    "index_add": _index_add,
    "index_copy": _by_int64(torch.index_copy),
    "scatter": _by_int64(torch.scatter),
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
