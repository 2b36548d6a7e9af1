"""The torch calls of the reduction family."""

from __future__ import annotations

import torch

from optest.backends.torch_operators.calls import Attributes, Tensors, TorchCall

__all__ = ["CALLS"]


def _sum(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    return torch.sum(tensors[0], dim=attributes.get("dim") or None, keepdim=attributes.get("keepdim", False))


CALLS: dict[str, TorchCall] = {
    "sum": _sum,
}
