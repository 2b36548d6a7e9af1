"""The torch calls of the activation family."""

from __future__ import annotations

import torch
from torch.nn import functional

from optest.backends.torch_operators.calls import Attributes, Tensors, TorchCall

__all__ = ["CALLS"]


def _softplus(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    return functional.softplus(
        tensors[0], beta=attributes.get("beta", 1.0), threshold=attributes.get("threshold", 20.0)
    )


def _swiglu(tensors: Tensors, _attributes: Attributes) -> torch.Tensor:
    """torch has no such operator: one that rounds once is made of those that it has, in float32 at least."""
    gate, up = (*tensors, None)[:2]
    if up is None:
        gate, up = torch.chunk(gate, 2, dim=-1)
    wide = torch.promote_types(gate.dtype, torch.float32)
    return (functional.silu(gate.to(wide)) * up.to(wide)).to(gate.dtype)


CALLS: dict[str, TorchCall] = {
    "gelu": lambda tensors, attributes: functional.gelu(tensors[0], approximate=attributes.get("approximate", "none")),
    "relu": lambda tensors, _: torch.relu(tensors[0]),
    "leaky_relu": lambda tensors, attributes: functional.leaky_relu(
        tensors[0], negative_slope=attributes.get("negative_slope", 0.01)
    ),
    "sigmoid": lambda tensors, _: torch.sigmoid(tensors[0]),
    "silu": lambda tensors, _: functional.silu(tensors[0]),
    "softplus": _softplus,
    "elu": lambda tensors, attributes: functional.elu(tensors[0], alpha=attributes.get("alpha", 1.0)),
    "hardswish": lambda tensors, _: functional.hardswish(tensors[0]),
    "swiglu": _swiglu,
}
