"""The torch calls of the pooling family."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from optest.torch.operators.calls import Attributes, Tensors, TorchCall, has_two_sides, padded

__all__ = ["CALLS"]

_RANK = 2


def _max_pool2d(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, padding = tensors[0], attributes.get("padding", 0)

    def largest(x: torch.Tensor, padding: Any) -> torch.Tensor:
        return functional.max_pool2d(
            x,
            attributes["kernel_size"],
            stride=attributes.get("stride"),
            padding=padding,
            dilation=attributes.get("dilation", 1),
            ceil_mode=attributes.get("ceil_mode", False),
        )

    if not has_two_sides(padding, _RANK):
        return largest(source, padding)
    lowest = float("-inf") if source.is_floating_point() else torch.iinfo(source.dtype).min
    return _begun_before_the_end(largest(padded(source, padding, _RANK, lowest), 0), source, attributes)


def _avg_pool2d(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, padding, divisor = tensors[0], attributes.get("padding", 0), attributes.get("divisor_override")
    include = attributes.get("count_include_pad", True)

    def averaged(x: torch.Tensor, **changed: Any) -> torch.Tensor:
        options = {"padding": padding, "count_include_pad": include, "divisor_override": divisor, **changed}
        stride, ceil_mode = attributes.get("stride"), attributes.get("ceil_mode", False)
        return functional.avg_pool2d(x, attributes["kernel_size"], stride=stride, ceil_mode=ceil_mode, **options)

    if not has_two_sides(padding, _RANK):
        return averaged(source)
    whole = padded(source, padding, _RANK)
    if include or divisor is not None:
        return _begun_before_the_end(averaged(whole, padding=0), source, attributes)
    present = padded(torch.ones_like(source), padding, _RANK)
    sums, counts = (averaged(each, padding=0, divisor_override=1) for each in (whole, present))
    return _begun_before_the_end(sums / counts, source, attributes)


def _begun_before_the_end(result: torch.Tensor, source: torch.Tensor, attributes: Attributes) -> torch.Tensor:
    """Without the windows that ``ceil_mode`` begins in the padding after ``source``, of which torch was not told."""
    stride = tuple(attributes.get("stride") or attributes["kernel_size"])
    for dim in range(_RANK):
        step, reach = stride[dim % len(stride)], source.shape[dim - _RANK] + attributes["padding"][dim]
        result = result.narrow(dim - _RANK, 0, min(result.shape[dim - _RANK], -(-reach // step)))
    return result.contiguous()


def _adaptive_avg_pool2d(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    size = attributes["output_size"]
    return functional.adaptive_avg_pool2d(tensors[0], size[0] if len(size) == 1 else size)


CALLS: dict[str, TorchCall] = {
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "adaptive_avg_pool2d": _adaptive_avg_pool2d,
}
