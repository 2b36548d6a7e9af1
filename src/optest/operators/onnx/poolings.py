"""Poolings of ONNX: by default windows step by 1, and averages exclude padding."""

from __future__ import annotations

from itertools import starmap
from typing import Any

from optest.operators.describe import attribute
from optest.operators.onnx.padding import WINDOW_ATTRIBUTES, padding_of, per_dimension
from optest.operators.onnx.spelling import input_of, refuse, spelled
from optest.operators.shapes import Attributes, Specs, require_dimensions, require_rank
from optest.spec import Call, UnfitArguments

_RANK = 2
_POOL_ATTRIBUTES = (
    attribute("kernel_shape|kernel_size: ints", "Sizes of the window."),
    *WINDOW_ATTRIBUTES,
    attribute("ceil_mode: bool = False", "The last window may reach beyond the padding."),
)


def _windows(specs: Specs, attributes: Attributes) -> dict[str, Any]:
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
def _max_pool(specs: Specs, attributes: Attributes) -> Call:
    """Return a call of max_pool2d; refuse dilations with which a window has no element of the input."""
    refuse("storage_order", attributes["storage_order"], 0, "it orders the output Indices, which max_pool2d lacks")
    dilation = per_dimension("dilations", attributes["dilations"], _RANK)
    windows = _windows(specs, attributes)
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
def _average_pool(specs: Specs, attributes: Attributes) -> Call:
    dilation = per_dimension("dilations", attributes["dilations"], _RANK)
    refuse("dilations", dilation, (1,) * _RANK, "avg_pool2d has no dilation")
    include = attributes["count_include_pad"]
    return Call(operator="avg_pool2d", attributes={**_windows(specs, attributes), "count_include_pad": include})


@spelled(
    "GlobalAveragePool",
    ("adaptive_avg_pool2d", "mean"),
    "X -> Y",
    description="adaptive_avg_pool2d for four dimensions, else mean over all dimensions after the channels.",
)
def _global_average(specs: Specs, _: Attributes) -> Call:
    x = input_of(specs)
    require_dimensions(x, "X", 3)
    if x.rank == _RANK + 2:
        return Call(operator="adaptive_avg_pool2d", attributes={"output_size": (1,)})
    return Call(operator="mean", attributes={"dim": tuple(range(2, x.rank)), "keepdim": True})


@spelled("GlobalMaxPool", "amax", "X -> Y")
def _global_max(specs: Specs, _: Attributes) -> Call:
    x = input_of(specs)
    require_dimensions(x, "X", 3)
    return Call(operator="amax", attributes={"dim": tuple(range(2, x.rank)), "keepdim": True})
