"""Torch calls of the contraction, attention and pooling operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from optest.torch.operators.calls import Attributes, Tensors, TorchCall, factor, has_two_sides, padded
from optest.torch.tensors import TORCH_DTYPES, Inexpressible


def _with_out_dtype(call: Callable[[Tensors, Attributes], torch.Tensor]) -> TorchCall:
    """Return ``call`` with the attribute ``out_dtype``, which torch has for few operators and on few devices.

    The operands are widened before the call, floats to float32, integers to the output's dtype.
    """

    def widened(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
        name = attributes.get("out_dtype")
        if name is None or TORCH_DTYPES[name] == tensors[0].dtype:
            return call(tensors, attributes)
        target = TORCH_DTYPES[name]
        # Products of 16-bit floats are exact in float32, and integers are exact in the wider dtype.
        within = torch.float32 if target.is_floating_point else target
        wide = [None if tensor is None else tensor.to(within) for tensor in tensors]
        return call(wide, attributes).to(target)

    return widened


def _gemm(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    a, b, c = tensors if len(tensors) == 3 else (*tensors, None)
    a = a.transpose(-1, -2) if attributes.get("trans_a") else a
    b = b.transpose(-1, -2) if attributes.get("trans_b") else b
    alpha, beta = factor(attributes.get("alpha", 1.0), a.dtype), factor(attributes.get("beta", 1.0), a.dtype)
    if c is None:
        # addmm applies alpha before it rounds; alpha * (a @ b) would round twice.
        c, beta = a.new_zeros(()), 0
    function = torch.addmm if a.dim() == 2 else torch.baddbmm
    return function(c, a, b, alpha=alpha, beta=beta)


# Of torch.nn.functional.grouped_mm: dtypes, and bytes of which each stride is a multiple.
_GROUPED_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_GROUPED_ALIGNMENT = 16


def _has_aligned_rows(tensor: torch.Tensor) -> bool:
    """Return whether the rows or the columns of matrices are dense, apart, and multiples of 16 bytes apart."""
    (rows, columns), (by_row, by_column) = tensor.shape[-2:], tensor.stride()[-2:]
    apart = by_row if by_column == 1 and by_row >= columns else by_column if by_row == 1 and by_column >= rows else 0
    return apart > 0 and apart * tensor.element_size() % _GROUPED_ALIGNMENT == 0


def _grouped_matmul(tensors: Tensors, _: Attributes) -> torch.Tensor:
    """Return torch's grouped_mm. Raise Inexpressible for dtypes and strides that it lacks."""
    source, weight, offs = tensors
    ends = [0, *offs.tolist()]
    if len(offs) != len(weight) or sorted(ends) != ends or ends[-1] > len(source):
        expected = f"ascending ends of {len(weight)} experts in {len(source)} rows"
        raise ValueError(f"offs is {offs.tolist()}, expected {expected}")
    is_aligned = all(map(_has_aligned_rows, (source, weight, source.new_empty(len(source), weight.shape[2]))))
    if source.dtype not in _GROUPED_DTYPES or not is_aligned:
        raise Inexpressible("torch's grouped_mm takes floats of 16 and 32 bits, in rows of a multiple of 16 bytes")
    return functional.grouped_mm(source, weight, offs=offs.int())


def _convolution(function: Callable[..., torch.Tensor], rank: int) -> Callable[[Tensors, Attributes], torch.Tensor]:
    def convolve(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
        source, weight, bias = (*tensors, None)[:3]
        padding = attributes.get("padding", 0)
        if has_two_sides(padding, rank):
            source, padding = padded(source, padding, rank), 0
        options = {name: attributes.get(name, 1) for name in ("stride", "padding", "dilation", "groups")}
        return function(source, weight, bias, **{**options, "padding": padding})

    return convolve


def _attention(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """Return torch's attention; a window becomes a mask. Raise Inexpressible for ``softcap``, which torch lacks."""
    query, key, value, mask = (*tensors, None)[:4]
    causal, window = attributes.get("is_causal", False), tuple(attributes.get("window_size", (-1, -1)))
    if len(window) != 2 or attributes.get("softcap", 0.0) < 0 or (causal and mask is not None):
        expected = "two window sizes, a softcap of 0 or more, and no mask if it is causal"
        raise ValueError(f"attention has {dict(attributes)}, expected {expected}")
    if attributes.get("softcap"):
        raise Inexpressible("torch's scaled_dot_product_attention has no softcap")
    if window != (-1, -1):
        left, right = window[0], 0 if causal else window[1]
        queries, keys = (torch.arange(tensor.shape[-2], device=query.device) for tensor in (query, key))
        distance = keys - queries[:, None]
        visible = ((distance >= -left) | (left < 0)) & ((distance <= right) | (right < 0))
        # A mask of numbers is added to the scores: -inf hides a key.
        is_added = mask is not None and mask.dtype != torch.bool
        mask = visible if mask is None else torch.where(visible, mask, float("-inf")) if is_added else visible & mask
        causal = False
    options = {"scale": attributes.get("scale"), "enable_gqa": attributes.get("enable_gqa", False)}
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, **options)


# Dimensions of a window of ``max_pool2d`` and ``avg_pool2d``.
_RANK = 2


def _max_pool2d(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, padding = tensors[0], attributes.get("padding", 0)

    def largest(x: torch.Tensor, padding: Any) -> torch.Tensor:
        options = {"stride": attributes.get("stride"), "padding": padding, "dilation": attributes.get("dilation", 1)}
        return functional.max_pool2d(
            x, attributes["kernel_size"], **options, ceil_mode=attributes.get("ceil_mode", False)
        )

    if not has_two_sides(padding, _RANK):
        return largest(source, padding)
    lowest = float("-inf") if source.is_floating_point() else torch.iinfo(source.dtype).min
    return _drop_windows_in_padding(largest(padded(source, padding, _RANK, lowest), 0), source, attributes)


def _avg_pool2d(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, padding, divisor = tensors[0], attributes.get("padding", 0), attributes.get("divisor_override")
    include = attributes.get("count_include_pad", True)

    def averaged(x: torch.Tensor, **changed: Any) -> torch.Tensor:
        options = {"padding": padding, "count_include_pad": include, "divisor_override": divisor, **changed}
        stride, ceil_mode = attributes.get("stride"), attributes.get("ceil_mode", False)
        return functional.avg_pool2d(x, attributes["kernel_size"], stride=stride, ceil_mode=ceil_mode, **options)

    if not has_two_sides(padding, _RANK):
        return averaged(source)
    values = padded(source, padding, _RANK)
    if include or divisor is not None:
        return _drop_windows_in_padding(averaged(values, padding=0), source, attributes)
    # torch counts the padding as elements, as it does not know of it: divide by the number of real elements.
    ones = padded(torch.ones_like(source), padding, _RANK)
    sums, counts = (averaged(tensor, padding=0, divisor_override=1) for tensor in (values, ones))
    return _drop_windows_in_padding(sums / counts, source, attributes)


def _drop_windows_in_padding(result: torch.Tensor, source: torch.Tensor, attributes: Attributes) -> torch.Tensor:
    """Return the result without windows that begin in the padding after ``source``, which ``ceil_mode`` adds."""
    stride = tuple(attributes.get("stride") or attributes["kernel_size"])
    for dim in range(_RANK):
        step, reach = stride[dim % len(stride)], source.shape[dim - _RANK] + attributes["padding"][dim]
        result = result.narrow(dim - _RANK, 0, min(result.shape[dim - _RANK], -(-reach // step)))
    return result.contiguous()


CALLS: dict[str, TorchCall] = {
    "matmul": _with_out_dtype(lambda tensors, _: torch.matmul(tensors[0], tensors[1])),
    "bmm": _with_out_dtype(lambda tensors, _: torch.bmm(tensors[0], tensors[1])),
    "gemm": _with_out_dtype(_gemm),
    "linear": _with_out_dtype(lambda tensors, _: functional.linear(*tensors)),
    # If only one operand has a label, torch sums integers in int64 and returns int64.
    "einsum": lambda tensors, attributes: torch.einsum(attributes["equation"], *tensors).to(tensors[0].dtype),
    "grouped_matmul": _grouped_matmul,
    "conv1d": _with_out_dtype(_convolution(functional.conv1d, 1)),
    "conv2d": _with_out_dtype(_convolution(functional.conv2d, 2)),
    "conv3d": _with_out_dtype(_convolution(functional.conv3d, 3)),
    "scaled_dot_product_attention": _attention,
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
    "adaptive_avg_pool2d": lambda tensors, attributes: functional.adaptive_avg_pool2d(
        tensors[0], size[0] if len(size := attributes["output_size"]) == 1 else size
    ),
}
