"""The torch calls of the pooling family."""

from __future__ import annotations

import torch
from torch.nn import functional

from optest.backends.torch_operators.calls import Attributes, Tensors, TorchCall

__all__ = ["CALLS"]


def _max_pool2d(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    return functional.max_pool2d(
        tensors[0],
        attributes["kernel_size"],
        stride=attributes.get("stride"),
        padding=attributes.get("padding", 0),
        dilation=attributes.get("dilation", 1),
        ceil_mode=attributes.get("ceil_mode", False),
    )


def _avg_pool2d(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    return functional.avg_pool2d(
        tensors[0],
        attributes["kernel_size"],
        stride=attributes.get("stride"),
        padding=attributes.get("padding", 0),
        ceil_mode=attributes.get("ceil_mode", False),
        count_include_pad=attributes.get("count_include_pad", True),
        divisor_override=attributes.get("divisor_override"),
    )


def _adaptive_avg_pool2d(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    size = attributes["output_size"]
    return functional.adaptive_avg_pool2d(tensors[0], size[0] if len(size) == 1 else size)


CALLS: dict[str, TorchCall] = {
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "adaptive_avg_pool2d": _adaptive_avg_pool2d,
}
