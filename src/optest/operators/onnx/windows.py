"""Convolutions, integer products, attention and poolings of ONNX, and the attributes of windows.

Padding is written as beginnings and ends of every dimension, or as an ``auto_pad`` rule. By default windows of poolings
step by 1, and averages exclude padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap
from typing import Any

from optest.operators.describe import attribute
from optest.operators.onnx.spelling import input_of, refuse, spelled
from optest.operators.shapes import (
    Attributes,
    Shape,
    Specs,
    optional_spec,
    require_dimensions,
    require_rank,
    require_spec,
)
from optest.spec import Call, UnfitArguments, format_shape

WINDOW_ATTRIBUTES = (
    attribute("strides|stride: ints = None", "Steps between windows; 1 by default."),
    attribute("pads|padding: ints = None", "Beginnings of every dimension, then ends."),
    attribute(
        "auto_pad: str = 'NOTSET'",
        "SAME_UPPER and SAME_LOWER pad until the output has ⌈size / stride⌉, an odd element at the end or beginning.",
        choices=("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    ),
    attribute("dilations|dilation: ints = None", "Steps between the elements of a window; 1 by default."),
)


def per_dimension(name: str, numbers: Sequence[int] | None, rank: int) -> Shape:
    """Return ``rank`` numbers, one for each dimension; ones for None.

    Raises:
        UnfitArguments: for another count, or numbers below 1.
    """
    if numbers is None:
        return (1,) * rank
    if len(numbers) != rank or min(numbers) < 1:
        raise UnfitArguments(f"{name} is {list(numbers)}, expected {rank} numbers of 1 or more")
    return tuple(numbers)


def padding_of(sizes: Shape, kernel: Shape, attributes: Attributes) -> tuple[Shape, Shape]:
    """Return the padding at the beginning and at the end of each dimension, from ``pads`` or ``auto_pad``.

    Raises:
        UnfitArguments: for a wrong number of ``pads``, ``pads`` with ``auto_pad``, or negative padding by SAME.
    """
    rank, pads, rule = len(sizes), attributes["pads"], attributes["auto_pad"]
    if pads is None and rule.startswith("SAME"):
        # ONNX pads (⌈size / stride⌉ − 1) · stride + (kernel − 1) · dilation + 1 − size in all. It is negative for
        # windows that step over elements: implementations treat −1 as 0; below it some of them crop both ends.
        strides, dilations = (per_dimension(name, attributes[name], rank) for name in ("strides", "dilations"))
        rows = zip(sizes, kernel, strides, dilations, strict=True)
        totals = [(-(-size // step) - 1) * step + (k - 1) * dilation + 1 - size for size, k, step, dilation in rows]
        if min(totals) < -1:
            raise UnfitArguments(
                f"auto_pad is {rule}, expected pads: the rule adds {totals} elements here, and implementations differ "
                "in the meaning of negative padding"
            )
        totals = [max(0, total) for total in totals]
        smaller, larger = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
        return (smaller, larger) if rule == "SAME_UPPER" else (larger, smaller)
    if pads is None:
        return (0,) * rank, (0,) * rank
    if rule != "NOTSET":
        raise UnfitArguments(f"pads is {list(pads)}, expected no pads with auto_pad {rule}")
    if len(pads) != 2 * rank or min(pads) < 0:
        raise UnfitArguments(f"pads is {list(pads)}, expected {2 * rank} numbers of 0 or more: beginnings, then ends")
    return tuple(pads[:rank]), tuple(pads[rank:])


# Convolutions, products and attention

_CONVOLUTIONS = ("conv2d", "conv1d", "conv3d")
_CONV_ATTRIBUTES = (
    attribute("kernel_shape: ints = None", "Sizes of W after its channels, which are the default."),
    *WINDOW_ATTRIBUTES,
    attribute("group|groups: int = 1", "Groups of channels."),
)


@spelled("Conv", _CONVOLUTIONS, "X, W, B? -> Y", *_CONV_ATTRIBUTES, description="Selected by the dimensions of W.")
def _conv_call(specs: Specs, attributes: Attributes) -> Call:
    """Return a call of conv1d, conv2d or conv3d, by the dimensions of W."""
    x, weight = input_of(specs), require_spec(specs, 1, "W")
    require_rank(weight, "W", 3, 4, 5)
    require_rank(x, "X", weight.rank)
    rank, kernel = weight.rank - 2, weight.shape[2:]
    shape = attributes["kernel_shape"]
    if shape is not None and tuple(shape) != kernel:
        raise UnfitArguments(f"kernel_shape is {list(shape)}, expected {list(kernel)}, as in W")
    begins, ends = padding_of(x.shape[2:], kernel, attributes)
    return Call(
        operator=f"conv{rank}d",
        attributes={
            "stride": per_dimension("strides", attributes["strides"], rank),
            "padding": begins if begins == ends else begins + ends,
            "dilation": per_dimension("dilations", attributes["dilations"], rank),
            "groups": attributes["group"],
        },
    )


@spelled(
    "ConvInteger",
    _CONVOLUTIONS,
    "x, w -> y",
    *_CONV_ATTRIBUTES,
    description="The result is int32. Zero points are not supported.",
)
def _conv_integer_call(specs: Specs, attributes: Attributes) -> Call:
    call = _conv_call(specs, attributes)
    return Call(operator=call.operator, attributes={**call.attributes, "out_dtype": "int32"})


@spelled("MatMulInteger", "matmul", "A, B -> Y", description="The result is int32. Zero points are not supported.")
def _matmul_integer_call(_: Specs, __: Attributes) -> Call:
    return Call(operator="matmul", attributes={"out_dtype": "int32"})


@spelled(
    "Attention",
    "scaled_dot_product_attention",
    "Q, K, V, attn_mask? -> Y",
    attribute("is_causal: bool = False", "Query i attends to keys 0 to i."),
    attribute("scale: float = None", "Factor of the scores; 1/√E by default."),
    attribute("softcap: float = 0.0", "Only 0 is accepted."),
    description="Inputs have four dimensions (batch, heads, length, size), without a past.",
)
def _attention_call(specs: Specs, attributes: Attributes) -> Call:
    query, key = input_of(specs, "Q"), require_spec(specs, 1, "K")
    require_rank(query, "Q", 4)
    require_rank(key, "K", 4)
    if attributes["scale"] is not None and attributes["scale"] < 0:
        raise UnfitArguments(f"scale is {attributes['scale']}, expected 0 or more: ONNX takes its square root")
    mask = optional_spec(specs, 3)
    if mask is not None and mask.rank and mask.shape[-1] != key.shape[2]:
        raise UnfitArguments(
            f"attn_mask is {format_shape(mask.shape)}, expected a last size of {key.shape[2]}, the length of K: ONNX "
            "pads a shorter mask with -inf, but scaled_dot_product_attention broadcasts it"
        )
    refuse("softcap", attributes["softcap"], 0.0, "scaled_dot_product_attention has no softcap")
    return Call(
        operator="scaled_dot_product_attention",
        attributes={
            "is_causal": attributes["is_causal"],
            "scale": attributes["scale"],
            "enable_gqa": query.shape[1] != key.shape[1],
        },
    )


# Poolings

_RANK = 2
_POOL_ATTRIBUTES = (
    attribute("kernel_shape|kernel_size: ints", "Sizes of the window."),
    *WINDOW_ATTRIBUTES,
    attribute("ceil_mode: bool = False", "The last window may reach beyond the padding."),
)


def _window_attributes(specs: Specs, attributes: Attributes) -> dict[str, Any]:
    """Return the attributes of max_pool2d and avg_pool2d for ONNX's window attributes."""
    x = input_of(specs)
    require_rank(x, "X", _RANK + 2)
    kernel = per_dimension("kernel_shape", attributes["kernel_shape"], _RANK)
    begins, ends = padding_of(x.shape[2:], kernel, attributes)
    # Two numbers where torch has such padding, so that the case equals one that is written for torch.
    is_torchs = begins == ends and all(2 * pad <= size for pad, size in zip(begins, kernel, strict=True))
    return {
        "kernel_size": kernel,
        "stride": per_dimension("strides", attributes["strides"], _RANK),
        "padding": begins if is_torchs else begins + ends,
        "ceil_mode": attributes["ceil_mode"],
    }


@spelled(
    "MaxPool",
    "max_pool2d",
    "X -> Y",
    *_POOL_ATTRIBUTES,
    attribute("storage_order: int = 0", "Only 0 is accepted."),
    description="X has four dimensions. The output Indices is not supported.",
)
def _max_pool_call(specs: Specs, attributes: Attributes) -> Call:
    """Return a call of max_pool2d; refuse dilations with which a window has no element of the input."""
    refuse("storage_order", attributes["storage_order"], 0, "it orders the output Indices, which max_pool2d lacks")
    dilation = per_dimension("dilations", attributes["dilations"], _RANK)
    windows = _window_attributes(specs, attributes)
    sizes, padding = input_of(specs).shape[2:], windows["padding"]
    last = windows["stride"] if attributes["ceil_mode"] else (1,) * _RANK
    rows = zip(
        *(sizes, windows["kernel_size"], windows["stride"], last, padding[:_RANK], padding[-_RANK:], dilation),
        strict=True,
    )
    if max(dilation) > 1 and any(starmap(_misses, rows)):
        raise UnfitArguments(
            f"dilations is {list(dilation)}, expected dilations with an element of X in every window: for padding "
            "only, implementations return -inf or the lowest number"
        )
    return Call(operator="max_pool2d", attributes={**windows, "dilation": dilation})


def _misses(size: int, kernel: int, stride: int, last: int, begin: int, end: int, dilation: int) -> bool:
    """Return whether a window steps over all elements of one dimension.

    ``last`` is the number of positions, from 1 on, that a window may start beyond the last complete one.
    """
    span = (kernel - 1) * dilation + 1
    starts = range(-begin, min(size, size + end - span + last), stride)
    return size > 0 and any(all(not 0 <= start + step * dilation < size for step in range(kernel)) for start in starts)


@spelled(
    "AveragePool",
    "avg_pool2d",
    "X -> Y",
    *_POOL_ATTRIBUTES,
    attribute("count_include_pad: bool = False", "Padding counts in the divisor."),
    description="X has four dimensions.",
)
def _average_pool_call(specs: Specs, attributes: Attributes) -> Call:
    dilation = per_dimension("dilations", attributes["dilations"], _RANK)
    refuse("dilations", dilation, (1,) * _RANK, "avg_pool2d has no dilation")
    include = attributes["count_include_pad"]
    return Call(
        operator="avg_pool2d", attributes={**_window_attributes(specs, attributes), "count_include_pad": include}
    )


@spelled(
    "GlobalAveragePool",
    ("adaptive_avg_pool2d", "mean"),
    "X -> Y",
    description="adaptive_avg_pool2d for four dimensions, else mean over all dimensions after the channels.",
)
def _global_average_call(specs: Specs, _: Attributes) -> Call:
    x = input_of(specs)
    require_dimensions(x, "X", 3)
    if x.rank == _RANK + 2:
        return Call(operator="adaptive_avg_pool2d", attributes={"output_size": (1,)})
    return Call(operator="mean", attributes={"dim": tuple(range(2, x.rank)), "keepdim": True})


@spelled("GlobalMaxPool", "amax", "X -> Y")
def _global_max_call(specs: Specs, _: Attributes) -> Call:
    x = input_of(specs)
    require_dimensions(x, "X", 3)
    return Call(operator="amax", attributes={"dim": tuple(range(2, x.rank)), "keepdim": True})
