"""Which torch function computes which operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

from optest.backends.torch_tensors import TORCH_DTYPES
from optest.spec import dtype

__all__ = ["TORCH_OPERATORS"]

Tensors = Sequence[Any]
Attributes = Mapping[str, Any]


def _add(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    left, right = tensors
    alpha = attributes.get("alpha", 1.0)
    if alpha == 1:
        return torch.add(left, right)
    return torch.add(left, right, alpha=_factor(alpha, torch.result_type(left, right)))


def _cast(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    target = dtype(attributes["dtype"])
    source = tensors[0]
    if attributes.get("saturate") and target.is_float and source.is_floating_point():
        source = torch.clamp(source, -target.max_finite, target.max_finite)
    return source.to(TORCH_DTYPES[target.name])


def _sum(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    return torch.sum(tensors[0], dim=attributes.get("dim") or None, keepdim=attributes.get("keepdim", False))


def _gemm(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    a, b, c = tensors if len(tensors) == 3 else (*tensors, None)
    a = a.t() if attributes.get("trans_a") else a
    b = b.t() if attributes.get("trans_b") else b
    alpha, beta = _factor(attributes.get("alpha", 1.0), a.dtype), _factor(attributes.get("beta", 1.0), a.dtype)
    if c is None:
        c, beta = a.new_zeros(()), 0  # addmm applies alpha before it rounds; alpha * (a @ b) would round twice
    return torch.addmm(c, a, b, alpha=alpha, beta=beta)


def _layer_norm(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, weight, bias = (*tensors, None, None)[:3]
    return functional.layer_norm(
        source, tuple(attributes["normalized_shape"]), weight, bias, attributes.get("eps", 1e-5)
    )


def _transpose(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """``torch.transpose`` is a view; ``contiguous`` is the kernel that moves the elements."""
    return torch.transpose(tensors[0], attributes["dim0"], attributes["dim1"]).contiguous()


def _factor(value: float, result: torch.dtype) -> float | int:
    """torch takes whole factors of integer results as int alone."""
    return value if result.is_floating_point or result.is_complex else int(value)


TORCH_OPERATORS: dict[str, Callable[[Tensors, Attributes], torch.Tensor]] = {
    "add": _add,
    "div": lambda tensors, _: torch.div(tensors[0], tensors[1]),
    "exp": lambda tensors, _: torch.exp(tensors[0]),
    "gelu": lambda tensors, attributes: functional.gelu(tensors[0], approximate=attributes.get("approximate", "none")),
    "cast": _cast,
    "relu": lambda tensors, _: torch.relu(tensors[0]),
    "sum": _sum,
    "matmul": lambda tensors, _: torch.matmul(tensors[0], tensors[1]),
    "gemm": _gemm,
    "softmax": lambda tensors, attributes: torch.softmax(tensors[0], dim=attributes.get("dim", -1)),
    "layer_norm": _layer_norm,
    "transpose": _transpose,
}
"""By canonical name; ``tensors`` stand at the places of the operator's signature, None for one left out."""
