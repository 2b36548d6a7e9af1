"""The torch calls of the indexing family."""

from __future__ import annotations

import torch
from torch.nn import functional

from optest.torch.operators.calls import Attributes, Tensors, TorchCall
from optest.torch.tensors import TORCH_DTYPES

__all__ = ["CALLS"]


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


CALLS: dict[str, TorchCall] = {
    "gather": lambda tensors, attributes: torch.gather(tensors[0], attributes["dim"], tensors[1]),
    "index_select": _index_select,
    "scatter_add": lambda tensors, attributes: torch.scatter_add(tensors[0], attributes["dim"], tensors[1], tensors[2]),
    "embedding": lambda tensors, attributes: functional.embedding(
        tensors[1], tensors[0], padding_idx=attributes.get("padding_idx")
    ),
    "topk": _topk,
    "sort": _sort,
    "random_sample": _random_sample,
}
