"""The torch calls of the normalization family."""

from __future__ import annotations

import torch
from torch.nn import functional

from optest.backends.torch_operators.calls import Attributes, Tensors, TorchCall

__all__ = ["CALLS"]


def _layer_norm(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, weight, bias = (*tensors, None, None)[:3]
    return functional.layer_norm(
        source, tuple(attributes["normalized_shape"]), weight, bias, attributes.get("eps", 1e-5)
    )


CALLS: dict[str, TorchCall] = {
    "softmax": lambda tensors, attributes: torch.softmax(tensors[0], dim=attributes.get("dim", -1)),
    "layer_norm": _layer_norm,
}
