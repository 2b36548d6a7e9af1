"""Torch calls of the elementwise, activation and quantization operators."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from optest.spec import dtype
from optest.torch.operators.calls import Attributes, Tensors, TorchCall, factor
from optest.torch.tensors import TORCH_DTYPES, Inexpressible, torch_dtype


def _without_attributes(function: Callable[..., torch.Tensor]) -> TorchCall:
    return lambda tensors, _: function(*tensors)


def _with_alpha(function: Callable[..., torch.Tensor]) -> TorchCall:
    """Return a call of ``add`` or ``sub`` with the attribute ``alpha``, as an int if the result is integer."""

    def call(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
        left, right = tensors
        alpha = attributes.get("alpha", 1.0)
        if alpha == 1:
            return function(left, right)
        # A fraction goes to torch as it is, which refuses it for integers.
        scale = factor(alpha, torch.result_type(left, right)) if alpha == alpha // 1 else alpha
        return function(left, right, alpha=scale)

    return call


def _div(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    mode, (left, right) = attributes.get("rounding_mode"), tensors
    crashes = mode == "trunc" and left.dtype in (torch.int32, torch.int64) and left.device.type == "cpu"
    if crashes and bool(((left == torch.iinfo(left.dtype).min) & (right == -1)).any()):
        raise Inexpressible("torch's div crashes with SIGFPE when the smallest integer is divided by -1")
    return torch.div(left, right, rounding_mode=mode)


def _clip(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    bounds = {name: attributes.get(name) for name in ("min", "max")}
    source = tensors[0]
    # Bounds of integers must be int: a float would make the result float32.
    if all(value is None or value == value // 1 for value in bounds.values()):
        bounds = {name: value if value is None else factor(value, source.dtype) for name, value in bounds.items()}
    return torch.clamp(source, **bounds)


def _cast(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    target = dtype(attributes["dtype"])
    source = tensors[0]
    if attributes.get("saturate") and target.is_float and source.is_floating_point():
        source = torch.clamp(source, -target.max_finite, target.max_finite)
    return source.to(torch_dtype(target))


# Operators that are the torch function of the same name, without attributes.
_SAME_NAME = """
neg abs sign exp log log1p expm1 sqrt rsqrt reciprocal sin cos tanh erf erfinv digamma selu floor ceil trunc logical_not
bitwise_not relu sigmoid where mul floor_divide remainder fmod pow logaddexp maximum minimum eq ne lt le gt ge
logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor
"""


def _gelu(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    # oneDNN takes a stride of 0 of a size of 1 for a repeated dimension and leaves elements unwritten. It caches that
    # kernel for the shape, so that dense tensors in the same process get wrong results from then on.
    source, approximate = tensors[0], attributes.get("approximate", "none")
    strides = [stride for size, stride in zip(source.shape, source.stride(), strict=True) if size == 1]
    if source.device.type == "cpu" and approximate == "none" and 0 in strides:
        raise Inexpressible("torch's gelu leaves elements unwritten if a dimension of size 1 has stride 0")
    return functional.gelu(source, approximate=approximate)


def _quantize(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, scale, zero_point = (*tensors, None)[:3]
    default = "uint8" if zero_point is None else str(zero_point.dtype)
    result = dtype(attributes["dtype"] if attributes.get("dtype") is not None else default)
    if result.name not in TORCH_DTYPES:
        raise NotImplementedError(f"torch has no tensors of {result}")
    low, high = attributes.get("quant_min"), attributes.get("quant_max")
    # torch's quantized tensors are deprecated, so this is the call that torch.export writes in their place.
    inverse = 1.0 / _along(scale, source, attributes).float()
    # float64 holds every int32, where float32 would round the largest one up and out of the range.
    rounded = torch.round(source.float() * inverse).double()
    if zero_point is not None:
        rounded = rounded + _along(zero_point, source, attributes)
    limited = torch.clamp(rounded, result.min_int if low is None else low, result.max_int if high is None else high)
    return limited.to(TORCH_DTYPES[result.name])


def _dequantize(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, scale, zero_point = (*tensors, None)[:3]
    difference = source.float()
    if zero_point is not None:
        difference = difference - _along(zero_point, source, attributes).float()
    product = difference * _along(scale, source, attributes).float()
    name = attributes.get("dtype")
    return product.to(scale.dtype if name is None else TORCH_DTYPES[name])


def _along(parameter: torch.Tensor, source: torch.Tensor, attributes: Attributes) -> torch.Tensor:
    """Return a scale or zero point, one element or one per index of ``axis``, in the shape of ``source``."""
    if parameter.numel() == 1:
        return parameter.reshape(())
    shape = [1] * source.dim()
    shape[attributes.get("axis", 1)] = -1
    return parameter.reshape(shape).expand_as(source)


CALLS: dict[str, TorchCall] = {
    **{name: _without_attributes(getattr(torch, name)) for name in _SAME_NAME.split()},
    "add": _with_alpha(torch.add),
    "sub": _with_alpha(torch.sub),
    "div": _div,
    # torch has no decimals for integers, not even 0.
    "round": lambda tensors, attributes: torch.round(
        tensors[0], **({"decimals": attributes["decimals"]} if attributes.get("decimals") else {})
    ),
    "clip": _clip,
    "cast": _cast,
    "gelu": _gelu,
    "leaky_relu": lambda tensors, attributes: functional.leaky_relu(
        tensors[0], negative_slope=attributes.get("negative_slope", 0.01)
    ),
    "silu": _without_attributes(functional.silu),
    "softplus": lambda tensors, attributes: functional.softplus(
        tensors[0], beta=attributes.get("beta", 1.0), threshold=attributes.get("threshold", 20.0)
    ),
    "elu": lambda tensors, attributes: functional.elu(tensors[0], alpha=attributes.get("alpha", 1.0)),
    "hardswish": _without_attributes(functional.hardswish),
    "quantize": _quantize,
    "dequantize": _dequantize,
}
