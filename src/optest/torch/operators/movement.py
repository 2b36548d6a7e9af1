"""Torch calls of the movement and indexing operators."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from optest.operators.shapes import slices_of
from optest.torch.operators.calls import Attributes, Tensors, TorchCall, factor


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


def _index_select(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, index = tensors
    if index.dim() < 2:
        return torch.index_select(source, attributes["dim"], index)
    # torch accepts only 1-d indices.
    dim = attributes["dim"] % max(source.dim(), 1)
    result = torch.index_select(source, dim, index.flatten())
    return result.reshape((*source.shape[:dim], *index.shape, *source.shape[dim + 1 :]))


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
    # torch refuses a value for other modes than constant.
    "pad": lambda tensors, attributes: functional.pad(
        tensors[0],
        attributes["pad"],
        mode=(mode := attributes.get("mode", "constant")),
        value=attributes.get("value", 0.0) if mode == "constant" else None,
    ),
    "clone": lambda tensors, _attributes: torch.clone(tensors[0], memory_format=torch.contiguous_format),
    "zeros_like": lambda tensors, _attributes: torch.zeros_like(tensors[0], memory_format=torch.contiguous_format),
    "ones_like": lambda tensors, _attributes: torch.ones_like(tensors[0], memory_format=torch.contiguous_format),
    "gather": lambda tensors, attributes: torch.gather(tensors[0], attributes["dim"], tensors[1]),
    "index_select": _index_select,
    "scatter_add": lambda tensors, attributes: torch.scatter_add(tensors[0], attributes["dim"], tensors[1], tensors[2]),
    "take": _with_int64_index(torch.take),
    # A fraction goes to torch as it is, which refuses it for integers.
    "index_add": lambda tensors, attributes: torch.index_add(
        tensors[0],
        attributes["dim"],
        *tensors[1:],
        alpha=factor(alpha, tensors[0].dtype) if (alpha := attributes.get("alpha", 1.0)) == alpha // 1 else alpha,
    ),
    "index_copy": _with_int64_index(torch.index_copy),
    "scatter": _with_int64_index(torch.scatter),
    "kthvalue": lambda tensors, attributes: tuple(torch.kthvalue(tensors[0], **{"dim": -1, **attributes})),
    "embedding": lambda tensors, attributes: functional.embedding(
        tensors[1], tensors[0], padding_idx=attributes.get("padding_idx")
    ),
    "topk": lambda tensors, attributes: tuple(torch.topk(tensors[0], **attributes)),
    "sort": lambda tensors, attributes: tuple(torch.sort(tensors[0], **{"stable": False, **attributes})),
}
