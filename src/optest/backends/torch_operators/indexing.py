"""The torch calls of the indexing family."""

from __future__ import annotations

import torch
from torch.nn import functional

from optest.backends.torch_operators.calls import Attributes, Tensors, TorchCall

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


CALLS: dict[str, TorchCall] = {
    "gather": lambda tensors, attributes: torch.gather(tensors[0], attributes["dim"], tensors[1]),
    "scatter_add": lambda tensors, attributes: torch.scatter_add(tensors[0], attributes["dim"], tensors[1], tensors[2]),
    "embedding": lambda tensors, attributes: functional.embedding(
        tensors[1], tensors[0], padding_idx=attributes.get("padding_idx")
    ),
    "topk": _topk,
    "sort": _sort,
}
