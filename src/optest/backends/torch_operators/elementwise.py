"""The torch calls of the elementwise family."""

from __future__ import annotations

import torch

from optest.backends.torch_operators.calls import Attributes, Tensors, TorchCall, factor
from optest.backends.torch_tensors import TORCH_DTYPES
from optest.spec import dtype

__all__ = ["CALLS"]


def _add(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    left, right = tensors
    alpha = attributes.get("alpha", 1.0)
    if alpha == 1:
        return torch.add(left, right)
    return torch.add(left, right, alpha=factor(alpha, torch.result_type(left, right)))


def _cast(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    target = dtype(attributes["dtype"])
    source = tensors[0]
    if attributes.get("saturate") and target.is_float and source.is_floating_point():
        source = torch.clamp(source, -target.max_finite, target.max_finite)
    return source.to(TORCH_DTYPES[target.name])


CALLS: dict[str, TorchCall] = {
    "add": _add,
    "div": lambda tensors, _: torch.div(tensors[0], tensors[1]),
    "exp": lambda tensors, _: torch.exp(tensors[0]),
    "cast": _cast,
}
