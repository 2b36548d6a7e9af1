"""The torch calls of the contraction family."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from optest.torch.operators.calls import Attributes, Tensors, TorchCall, factor
from optest.torch.operators.padding import has_two_sides, padded
from optest.torch.tensors import TORCH_DTYPES

__all__ = ["CALLS"]


def _into(call: Callable[[Tensors, Attributes], torch.Tensor]) -> TorchCall:
    """``call`` with ``out_dtype``, which torch has for few of these operators and on few devices.

    Integers are exact in the wider dtype, and so are products of 16-bit floats in float32: the operands are widened
    first. 8-bit floats go through float32 to 16 bits.
    """

    def widened(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
        stated = attributes.get("out_dtype")
        if stated is None or TORCH_DTYPES[stated] == tensors[0].dtype:
            return call(tensors, attributes)
        wanted = TORCH_DTYPES[stated]
        within = torch.float32 if wanted.is_floating_point else wanted
        wide = [None if each is None else each.to(within) for each in tensors]
        return call(wide, attributes).to(wanted)

    return widened


def _gemm(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    a, b, c = tensors if len(tensors) == 3 else (*tensors, None)
    a = a.transpose(-1, -2) if attributes.get("trans_a") else a
    b = b.transpose(-1, -2) if attributes.get("trans_b") else b
    alpha, beta = factor(attributes.get("alpha", 1.0), a.dtype), factor(attributes.get("beta", 1.0), a.dtype)
    if c is None:
        c, beta = a.new_zeros(()), 0  # addmm applies alpha before it rounds; alpha * (a @ b) would round twice
    function = torch.addmm if a.dim() == 2 else torch.baddbmm
    return function(c, a, b, alpha=alpha, beta=beta)


def _linear(tensors: Tensors, _: Attributes) -> torch.Tensor:
    source, weight, bias = (*tensors, None)[:3]
    return functional.linear(source, weight, bias)


def _einsum(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """Where a label is of one operand alone, torch adds integers up in int64 and leaves them there."""
    return torch.einsum(attributes["equation"], *tensors).to(tensors[0].dtype)


def _convolution(function: Callable[..., torch.Tensor], rank: int) -> Callable[[Tensors, Attributes], torch.Tensor]:
    def convolve(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
        source, weight, bias = (*tensors, None)[:3]
        padding = attributes.get("padding", 0)
        if has_two_sides(padding, rank):
            source, padding = padded(source, padding, rank), 0
        return function(
            source,
            weight,
            bias,
            stride=attributes.get("stride", 1),
            padding=padding,
            dilation=attributes.get("dilation", 1),
            groups=attributes.get("groups", 1),
        )

    return convolve


CALLS: dict[str, TorchCall] = {
    "matmul": _into(lambda tensors, _: torch.matmul(tensors[0], tensors[1])),
    "bmm": _into(lambda tensors, _: torch.bmm(tensors[0], tensors[1])),
    "gemm": _into(_gemm),
    "linear": _into(_linear),
    "einsum": _einsum,
    "conv1d": _into(_convolution(functional.conv1d, 1)),
    "conv2d": _into(_convolution(functional.conv2d, 2)),
    "conv3d": _into(_convolution(functional.conv3d, 3)),
}
