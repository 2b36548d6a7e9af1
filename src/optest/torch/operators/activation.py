"""The torch calls of the activation family."""

from __future__ import annotations

import torch
from torch.nn import functional

from optest.torch.operators.calls import Attributes, Tensors, TorchCall
from optest.torch.tensors import Inexpressible

__all__ = ["CALLS"]


def _gelu(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """oneDNN takes a stride of 0 where the size is 1 for one that repeats and leaves elements unwritten; it keeps that
    kernel for the shape, so that dense tensors in the same process get wrong results from then on."""
    given, approximate = tensors[0], attributes.get("approximate", "none")
    strides = [stride for size, stride in zip(given.shape, given.stride(), strict=True) if size == 1]
    if given.device.type == "cpu" and approximate == "none" and 0 in strides:
        raise Inexpressible("torch's gelu leaves elements unwritten where a stride is 0 behind a size of 1")
    return functional.gelu(given, approximate=approximate)


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
    "gelu": _gelu,
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
