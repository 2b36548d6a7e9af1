"""The torch calls of the movement family."""

from __future__ import annotations

import torch

from optest.backends.torch_operators.calls import Attributes, Tensors, TorchCall

__all__ = ["CALLS"]


def _transpose(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """``torch.transpose`` is a view; ``contiguous`` is the kernel that moves the elements."""
    return torch.transpose(tensors[0], attributes["dim0"], attributes["dim1"]).contiguous()


CALLS: dict[str, TorchCall] = {
    "transpose": _transpose,
}
