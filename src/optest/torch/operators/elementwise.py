"""The torch calls of the elementwise family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from optest.spec import dtype
from optest.torch.operators.calls import Attributes, Tensors, TorchCall, factor
from optest.torch.tensors import Inexpressible, torch_dtype

__all__ = ["CALLS"]


def _unary(function: Callable[[Any], torch.Tensor]) -> TorchCall:
    return lambda tensors, _: function(tensors[0])


def _binary(function: Callable[[Any, Any], torch.Tensor]) -> TorchCall:
    return lambda tensors, _: function(tensors[0], tensors[1])


def _scaled(function: Callable[..., torch.Tensor]) -> TorchCall:
    def call(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
        left, right = tensors
        alpha = attributes.get("alpha", 1.0)
        if alpha == 1:
            return function(left, right)
        whole = factor(alpha, torch.result_type(left, right)) if alpha == alpha // 1 else alpha
        return function(left, right, alpha=whole)

    return call


def _div(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    mode, (left, right) = attributes.get("rounding_mode"), tensors
    crashes = mode == "trunc" and left.dtype in (torch.int32, torch.int64) and left.device.type == "cpu"
    if crashes and bool(((left == torch.iinfo(left.dtype).min) & (right == -1)).any()):
        raise Inexpressible("torch's div dies of SIGFPE where the smallest integer is divided by -1")
    return torch.div(left, right, rounding_mode=mode)


def _round(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    decimals = attributes.get("decimals", 0)
    return torch.round(tensors[0], decimals=decimals) if decimals else torch.round(tensors[0])


def _clip(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """Whole bounds of integers go in as int: a float one would make the result float32."""
    bounds = {name: attributes.get(name) for name in ("min", "max")}
    source = tensors[0]
    if all(value is None or value == value // 1 for value in bounds.values()):
        bounds = {name: value if value is None else factor(value, source.dtype) for name, value in bounds.items()}
    return torch.clamp(source, **bounds)


def _where(tensors: Tensors, _attributes: Attributes) -> torch.Tensor:
    return torch.where(tensors[0], tensors[1], tensors[2])


def _cast(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    target = dtype(attributes["dtype"])
    source = tensors[0]
    if attributes.get("saturate") and target.is_float and source.is_floating_point():
        source = torch.clamp(source, -target.max_finite, target.max_finite)
    return source.to(torch_dtype(target))


_UNARY = (
    "neg",
    "abs",
    "sign",
    "exp",
    "log",
    "log1p",
    "expm1",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sin",
    "cos",
    "tanh",
    "erf",
    "floor",
    "ceil",
    "trunc",
    "logical_not",
    "bitwise_not",
)
_BINARY = (
    "mul",
    "floor_divide",
    "remainder",
    "fmod",
    "pow",
    "maximum",
    "minimum",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
)

CALLS: dict[str, TorchCall] = {
    **{name: _unary(getattr(torch, name)) for name in _UNARY},
    **{name: _binary(getattr(torch, name)) for name in _BINARY},
    "add": _scaled(torch.add),
    "sub": _scaled(torch.sub),
    "div": _div,
    "round": _round,
    "clip": _clip,
    "where": _where,
    "cast": _cast,
}
