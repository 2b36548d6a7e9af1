"""The torch calls of the elementwise, the activation and the quantization family."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

from optest.spec import dtype
from optest.torch.operators.calls import Attributes, Tensors, TorchCall, factor
from optest.torch.tensors import TORCH_DTYPES, Inexpressible, torch_dtype


def _of_all(function: Callable[..., torch.Tensor]) -> TorchCall:
    """A call of the tensors alone."""
    return lambda tensors, _: function(*tensors)


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


def _cast(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    target = dtype(attributes["dtype"])
    source = tensors[0]
    if attributes.get("saturate") and target.is_float and source.is_floating_point():
        source = torch.clamp(source, -target.max_finite, target.max_finite)
    return source.to(torch_dtype(target))


_PLAIN = (
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
    "erfinv",
    "digamma",
    "selu",
    "floor",
    "ceil",
    "trunc",
    "logical_not",
    "bitwise_not",
    "relu",
    "sigmoid",
    "where",
    "mul",
    "floor_divide",
    "remainder",
    "fmod",
    "pow",
    "logaddexp",
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


def _gelu(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """oneDNN takes a stride of 0 where the size is 1 for one that repeats and leaves elements unwritten; it keeps that
    kernel for the shape, so that dense tensors in the same process get wrong results from then on."""
    given, approximate = tensors[0], attributes.get("approximate", "none")
    strides = [stride for size, stride in zip(given.shape, given.stride(), strict=True) if size == 1]
    if given.device.type == "cpu" and approximate == "none" and 0 in strides:
        raise Inexpressible("torch's gelu leaves elements unwritten where a stride is 0 behind a size of 1")
    return functional.gelu(given, approximate=approximate)


def _gated(tensors: Tensors, activation: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """torch has no such operator: one that rounds once is made of those that it has, in float32 at least."""
    gate, up = (*tensors, None)[:2]
    if up is None:
        gate, up = torch.chunk(gate, 2, dim=-1)
    wide = torch.promote_types(gate.dtype, torch.float32)
    return (activation(gate.to(wide)) * up.to(wide)).to(gate.dtype)


# Quantization. torch's quantized tensors are deprecated, so these are the calls that its export makes in their place:
# the inverse of the scale times the input, rounded; and the difference times the scale.


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


def _dequantize_awq(tensors: Tensors, _: Attributes) -> torch.Tensor:
    """torch has no such operator: it is put together from shifts, in float32 and wider."""
    weight, scales, zeros = tensors
    if not len(scales) or len(weight) % len(scales) or len(zeros) != len(scales) or weight.dtype != torch.int32:
        raise ValueError(f"{tuple(scales.shape)} scales of groups do not fit {weight.dtype} {tuple(weight.shape)}")
    shifts = 4 * torch.tensor((0, 4, 1, 5, 2, 6, 3, 7), dtype=torch.int32, device=weight.device)
    values, zero = ((each.unsqueeze(2) >> shifts & 15).flatten(1) for each in (weight, zeros))
    size = len(weight) // len(scales)
    factor_of, less = (each.repeat_interleave(size, 0) for each in (scales.float(), zero))
    return ((values - less) * factor_of).to(scales.dtype)


CALLS: dict[str, TorchCall] = {
    **{name: _of_all(getattr(torch, name)) for name in _PLAIN},
    "add": _scaled(torch.add),
    "sub": _scaled(torch.sub),
    "div": _div,
    "round": _round,
    "clip": _clip,
    "cast": _cast,
    "gelu": _gelu,
    "leaky_relu": lambda tensors, attributes: functional.leaky_relu(
        tensors[0], negative_slope=attributes.get("negative_slope", 0.01)
    ),
    "silu": _of_all(functional.silu),
    "softplus": lambda tensors, attributes: functional.softplus(
        tensors[0], beta=attributes.get("beta", 1.0), threshold=attributes.get("threshold", 20.0)
    ),
    "elu": lambda tensors, attributes: functional.elu(tensors[0], alpha=attributes.get("alpha", 1.0)),
    "hardswish": _of_all(functional.hardswish),
    "swiglu": lambda tensors, _attributes: _gated(tensors, functional.silu),
    "gelu_and_mul": lambda tensors, attributes: _gated(
        tensors, partial(functional.gelu, approximate=attributes.get("approximate", "none"))
    ),
    "quantize": _quantize,
    "dequantize": _dequantize,
    "dequantize_awq": _dequantize_awq,
}
