"""The torch calls of the activation family."""

from __future__ import annotations

import torch
from torch.nn import functional

from optest.backends.torch_operators.calls import TorchCall

__all__ = ["CALLS"]


CALLS: dict[str, TorchCall] = {
    "gelu": lambda tensors, attributes: functional.gelu(tensors[0], approximate=attributes.get("approximate", "none")),
    "relu": lambda tensors, _: torch.relu(tensors[0]),
}
