"""The torch calls of the quantization family.

torch's quantized tensors are deprecated, so these are the calls that its export makes in their place: the inverse of
the scale times the input, rounded; and the difference times the scale.
"""

from __future__ import annotations

from typing import Any

import torch

from optest.spec import dtype
from optest.torch.operators.calls import Attributes, Tensors, TorchCall
from optest.torch.tensors import TORCH_DTYPES

__all__ = ["CALLS"]


def _quantize(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, scale, zero_point = (*tensors, None)[:3]
    result = _result(zero_point, attributes)
    if result.name not in TORCH_DTYPES:
        raise NotImplementedError(f"there are no tensors of {result}")
    low, high = attributes.get("quant_min"), attributes.get("quant_max")
    inverse = 1.0 / _along(scale, source, attributes).float()
    # float64 holds every int32, where float32 would round the largest one up and out of the range.
    rounded = torch.round(source.float() * inverse).double()
    if zero_point is not None:
        rounded = rounded + _along(zero_point, source, attributes)
    limited = torch.clamp(rounded, result.min_int if low is None else low, result.max_int if high is None else high)
    return limited.to(TORCH_DTYPES[result.name])


def _result(zero_point: torch.Tensor | None, attributes: Attributes) -> Any:
    stated = attributes.get("dtype")
    if stated is not None:
        return dtype(stated)
    return dtype("uint8" if zero_point is None else str(zero_point.dtype))


def _dequantize(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, scale, zero_point = (*tensors, None)[:3]
    difference = source.float()
    if zero_point is not None:
        difference = difference - _along(zero_point, source, attributes).float()
    product = difference * _along(scale, source, attributes).float()
    stated = attributes.get("dtype")
    return product.to(scale.dtype if stated is None else TORCH_DTYPES[stated])


def _along(parameter: torch.Tensor, source: torch.Tensor, attributes: Attributes) -> torch.Tensor:
    """One entry for all elements, or one for each index along ``axis``; ``expand`` refuses what does not fit."""
    if parameter.numel() == 1:
        return parameter.reshape(())
    shape = [1] * source.dim()
    shape[attributes.get("axis", 1)] = -1
    return parameter.reshape(shape).expand_as(source)


CALLS: dict[str, TorchCall] = {
    "quantize": _quantize,
    "dequantize": _dequantize,
}
