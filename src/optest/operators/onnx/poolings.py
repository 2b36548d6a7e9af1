"""Poolings of ONNX: windows step by 1, and averages leave padding out, unless they are told otherwise."""

from __future__ import annotations

from itertools import starmap
from typing import Any

from optest.operators.describe import attribute
from optest.operators.onnx.padding import WINDOW_ATTRIBUTES, each, padding_of
from optest.operators.onnx.spelling import input_of, refuse, spelled
from optest.operators.shapes import Attributes, Specs, require_dimensions, require_rank
from optest.spec import Call, TensorSpec, UnfitArguments

_RANK = 2
_POOL_ATTRIBUTES = (
    attribute("kernel_shape|kernel_size: ints", "Sizes of the window."),
    *WINDOW_ATTRIBUTES,
    attribute("ceil_mode: bool = False", "A last window may reach beyond the padding."),
)


def _windows(specs: Specs, attributes: Attributes) -> dict[str, Any]:
    x = input_of(specs)
    require_rank(x, "X", _RANK + 2)
    kernel = each("kernel_shape", attributes["kernel_shape"], _RANK)
    begins, ends = padding_of(x.shape[2:], kernel, attributes)
    is_torchs = begins == ends and all(2 * pad <= size for pad, size in zip(begins, kernel, strict=True))
    return {
        "kernel_size": kernel,
        "stride": each("strides", attributes["strides"], _RANK),
        "padding": begins if is_torchs else begins + ends,
        "ceil_mode": attributes["ceil_mode"],
    }


@spelled(
    "MaxPool",
    "max_pool2d",
    "X -> Y",
    *_POOL_ATTRIBUTES,
    attribute("storage_order: int = 0", "0 alone."),
    description="Of four dimensions; Indices are no result here.",
)
def _max_pool(specs: Specs, attributes: Attributes) -> Call:
    refuse("storage_order", attributes["storage_order"], 0, "indices are no result here")
    dilation = each("dilations", attributes["dilations"], _RANK)
    windows = _windows(specs, attributes)
    sizes, padding = input_of(specs).shape[2:], windows["padding"]
    last = windows["stride"] if attributes["ceil_mode"] else (1,) * _RANK
    rows = zip(
        *(sizes, windows["kernel_size"], windows["stride"], last, padding[:_RANK], padding[-_RANK:], dilation),
        strict=True,
    )
    if max(dilation) > 1 and any(starmap(_misses, rows)):
        raise UnfitArguments(
            f"dilations is {list(dilation)}, but should let every window see an element: of padding alone "
            "implementations make -inf or the lowest number"
        )
    return Call(operator="max_pool2d", attributes={**windows, "dilation": dilation})


def _misses(size: int, kernel: int, stride: int, last: int, begin: int, end: int, gap: int) -> bool:
    """Whether a window steps over all elements of one dimension; ``last`` is how far one may reach out at the end."""
    span = (kernel - 1) * gap + 1
    starts = range(-begin, min(size, size + end - span + last), stride)
    return size > 0 and any(all(not 0 <= start + step * gap < size for step in range(kernel)) for start in starts)


@spelled(
    "AveragePool",
    "avg_pool2d",
    "X -> Y",
    *_POOL_ATTRIBUTES,
    attribute("count_include_pad: bool = False", "Padding counts in the divisor."),
    description="Of four dimensions.",
)
def _average_pool(specs: Specs, attributes: Attributes) -> Call:
    refuse("dilations", each("dilations", attributes["dilations"], _RANK), (1,) * _RANK, "avg_pool2d has none")
    include = attributes["count_include_pad"]
    return Call(operator="avg_pool2d", attributes={**_windows(specs, attributes), "count_include_pad": include})


@spelled(
    "GlobalAveragePool",
    ("adaptive_avg_pool2d", "mean"),
    "X -> Y",
    description="adaptive_avg_pool2d of four dimensions, else a mean.",
)
def _global_average(specs: Specs, _: Attributes) -> Call:
    """adaptive_avg_pool2d of planes, else the mean over all dimensions after the channels."""
    x = _with_channels(input_of(specs))
    if x.rank == _RANK + 2:
        return Call(operator="adaptive_avg_pool2d", attributes={"output_size": (1,)})
    return Call(operator="mean", attributes={"dim": tuple(range(2, x.rank)), "keepdim": True})


@spelled("GlobalMaxPool", "amax", "X -> Y")
def _global_max(specs: Specs, _: Attributes) -> Call:
    x = _with_channels(input_of(specs))
    return Call(operator="amax", attributes={"dim": tuple(range(2, x.rank)), "keepdim": True})


def _with_channels(x: TensorSpec) -> TensorSpec:
    require_dimensions(x, "X", 3)
    return x
