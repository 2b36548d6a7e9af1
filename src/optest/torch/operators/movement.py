"""The torch calls of the movement family."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from optest.torch.operators.calls import Attributes, Tensors, TorchCall

__all__ = ["CALLS"]


def _transpose(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """``torch.transpose`` is a view; ``contiguous`` is the kernel that moves the elements."""
    return torch.transpose(tensors[0], attributes["dim0"], attributes["dim1"]).contiguous()


def _roll(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    return torch.roll(tensors[0], attributes["shifts"], attributes.get("dims") or ())


def _split(tensors: Tensors, attributes: Attributes) -> list[torch.Tensor]:
    sizes = attributes["split_size_or_sections"]
    parts = torch.split(tensors[0], sizes if isinstance(sizes, int) else list(sizes), dim=attributes.get("dim", 0))
    return [part.contiguous() for part in parts]


def _slice(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """torch's own slices; a negative step, which it does not have, is an ``index_select``."""
    result = tensors[0]
    stated = [attributes.get(name) for name in ("dim", "start", "end", "step")]
    count = max((len(values) for values in stated if values is not None), default=1)
    dims = stated[0] or range(count)
    bounds = [values or (None,) * count for values in stated[1:]]
    for dim, start, end, step in zip(dims, *bounds, strict=True):
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


CALLS: dict[str, TorchCall] = {
    "transpose": _transpose,
    "permute": lambda tensors, attributes: torch.permute(tensors[0], attributes["dims"]).contiguous(),
    "reshape": lambda tensors, attributes: torch.reshape(tensors[0], attributes["shape"]).contiguous(),
    "broadcast_to": lambda tensors, attributes: torch.broadcast_to(tensors[0], attributes["size"]).contiguous(),
    "tile": lambda tensors, attributes: torch.tile(tensors[0], attributes["dims"]),
    "flip": lambda tensors, attributes: torch.flip(tensors[0], attributes["dims"]),
    "roll": _roll,
    "tril": lambda tensors, attributes: torch.tril(tensors[0], attributes.get("diagonal", 0)),
    "triu": lambda tensors, attributes: torch.triu(tensors[0], attributes.get("diagonal", 0)),
    "concat": lambda tensors, attributes: torch.cat(list(tensors), dim=attributes.get("dim", 0)),
    "split": _split,
    "slice": _slice,
    "pad": _pad,
    "clone": lambda tensors, _attributes: torch.clone(tensors[0], memory_format=torch.contiguous_format),
    "zeros_like": lambda tensors, _attributes: torch.zeros_like(tensors[0], memory_format=torch.contiguous_format),
    "ones_like": lambda tensors, _attributes: torch.ones_like(tensors[0], memory_format=torch.contiguous_format),
}
