"""Convolutions, integer products and attention of ONNX."""

from __future__ import annotations

from optest.operators.describe import attribute
from optest.operators.onnx.padding import WINDOW_ATTRIBUTES, padding_of, per_dimension
from optest.operators.onnx.spelling import input_of, refuse, spelled
from optest.operators.shapes import Attributes, Specs, optional_input, require_rank, require_spec
from optest.spec import Call, UnfitArguments, format_shape

_CONVOLUTIONS = ("conv2d", "conv1d", "conv3d")
_CONV_ATTRIBUTES = (
    attribute("kernel_shape: ints = None", "Sizes of W after its channels, which are the default."),
    *WINDOW_ATTRIBUTES,
    attribute("group|groups: int = 1", "Groups of channels."),
)


@spelled("Conv", _CONVOLUTIONS, "X, W, B? -> Y", *_CONV_ATTRIBUTES, description="Selected by the dimensions of W.")
def _conv(specs: Specs, attributes: Attributes) -> Call:
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
def _conv_integer(specs: Specs, attributes: Attributes) -> Call:
    call = _conv(specs, attributes)
    return Call(operator=call.operator, attributes={**call.attributes, "out_dtype": "int32"})


@spelled("MatMulInteger", "matmul", "A, B -> Y", description="The result is int32. Zero points are not supported.")
def _matmul_integer(_: Specs, __: Attributes) -> Call:
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
def _attention(specs: Specs, attributes: Attributes) -> Call:
    query, key = input_of(specs, "Q"), require_spec(specs, 1, "K")
    require_rank(query, "Q", 4)
    require_rank(key, "K", 4)
    if attributes["scale"] is not None and attributes["scale"] < 0:
        raise UnfitArguments(f"scale is {attributes['scale']}, expected 0 or more: ONNX takes its square root")
    mask = optional_input(specs, 3)
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
