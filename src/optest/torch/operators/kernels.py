"""The torch calls of what people write kernels of: gradients, optimizer steps, state spaces, packed weights, float8.

Where torch has a function it is called; what it has no function for is put together, in float32 and wider.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from optest.torch.operators.calls import Attributes, Tensors, TorchCall

__all__ = ["CALLS"]


def _wide(*tensors: Any) -> list[Any]:
    """In float32 or wider."""
    return [None if each is None else each.to(torch.promote_types(each.dtype, torch.float32)) for each in tensors]


def _gradients(output: Callable[..., torch.Tensor], grad: torch.Tensor, *inputs: Any) -> list[torch.Tensor]:
    """By autograd; of the inputs that are given."""
    with torch.enable_grad():
        leaves = [None if each is None else each.detach().requires_grad_() for each in inputs]
        given = [each for each in leaves if each is not None]
        return list(torch.autograd.grad(output(*leaves), given, grad))


def _require_alike(*tensors: torch.Tensor) -> None:
    if len({(each.shape, each.dtype) for each in tensors}) > 1:
        raise ValueError(f"{[(each.dtype, tuple(each.shape)) for each in tensors]} are not alike")


def _rms_norm_backward(tensors: Tensors, attributes: Attributes) -> list[torch.Tensor]:
    grad, source, weight = (*tensors, None)[:3]
    _require_alike(grad, source)
    shape, eps = tuple(attributes["normalized_shape"]), attributes.get("eps")
    wide = _wide(grad, source, weight)
    found = _gradients(lambda x, w: functional.rms_norm(x, shape, w, eps), *wide)
    return [found[0].to(source.dtype), *(each.to(weight.dtype) for each in found[1:])]


def _layer_norm_backward(tensors: Tensors, attributes: Attributes) -> list[torch.Tensor]:
    grad, source, weight = (*tensors, None)[:3]
    _require_alike(grad, source)
    shape, eps = tuple(attributes["normalized_shape"]), attributes.get("eps", 1e-5)
    wide, x, scale = _wide(grad, source, weight)
    bias = None if scale is None else torch.zeros_like(scale)
    _, mean, rstd = torch.native_layer_norm(x, shape, scale, bias, eps)
    mask = [True, scale is not None, scale is not None]
    found = torch.ops.aten.native_layer_norm_backward(wide, x, shape, mean, rstd, scale, bias, mask)
    if weight is None:
        return [found[0].to(source.dtype)]
    last = 3 if attributes.get("bias", True) else 2
    return [found[0].to(source.dtype), *(each.to(weight.dtype) for each in found[1:last])]


CALLS: dict[str, TorchCall] = {
    "rms_norm_backward": _rms_norm_backward,
    "layer_norm_backward": _layer_norm_backward,
}
