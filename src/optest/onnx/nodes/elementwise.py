"""Elementwise operators, activations, casts and quantization."""

from __future__ import annotations

from math import exp, inf
from typing import Any

from optest.onnx.nodes.node import Asked, Differs, Node, NodeOf
from optest.spec import dtype


def _div(asked: Asked) -> Node:
    whole, mode = asked.spec().dtype.is_integer, asked["rounding_mode"]
    if mode != ("trunc" if whole else None):
        raise Differs("Div rounds integers towards zero and floats not at all")
    return Node(op="Div")


def _softplus(asked: Asked) -> Node:
    """torch's threshold leaves exp(-threshold) out, which is a part of the last place of float64 alone."""
    if asked["beta"] != 1:
        raise Differs("Softplus has no beta")
    least, entry = asked["threshold"], asked.spec().dtype
    if least <= 0 or exp(-min(least, 700.0)) > entry.unit_roundoff * least / 4:
        raise Differs("Softplus has no threshold, and leaves nothing out above it")
    return Node(op="Softplus")


def _cast(asked: Asked) -> Node:
    is_narrow = asked["dtype"].startswith("float8")
    return Node(
        op="Cast", attributes={"to": dtype(asked["dtype"]), "saturate": asked["saturate"] if is_narrow else None}
    )


def _quantize(asked: Asked) -> Node:
    if asked["quant_min"] is not None or asked["quant_max"] is not None:
        raise Differs("QuantizeLinear has no bounds but those of the dtype")
    stated = None if asked["dtype"] is None or asked.has(2) else dtype(asked["dtype"])
    if asked.has(2) and asked["dtype"] not in (None, asked.spec(2).dtype.name):
        raise Differs("QuantizeLinear has the result in the dtype of the zero point")
    return Node(op="QuantizeLinear", attributes={"axis": asked["axis"], "output_dtype": stated})


def _dequantize(asked: Asked) -> Node:
    stated: Any = None if asked["dtype"] in (None, asked.spec(1).dtype.name) else dtype(asked["dtype"])
    return Node(op="DequantizeLinear", attributes={"axis": asked["axis"], "output_dtype": stated})


def _clip(asked: Asked) -> Node:
    """A bound that is left out is the lowest or largest finite number in ONNX, which infinities exceed."""
    bounds = {name: asked[name] for name in ("min", "max")}
    if bounds["min"] is None and bounds["max"] is None:
        raise Differs("Clip without bounds clips infinities")
    if asked.spec().dtype.is_float:
        for name, none in (("min", -inf), ("max", inf)):
            bounds[name] = none if bounds[name] is None else bounds[name]
    return Node(op="Clip", attributes=bounds)


def _truth(op: str) -> NodeOf:
    """A number that is not zero is true; ONNX takes truth values alone."""
    return lambda _: Node(op=op, within="bool")


NODES: dict[str, NodeOf] = {
    "div": _div,
    "pow": lambda _: Node(op="Pow"),
    "remainder": lambda _: Node(op="Mod", attributes={"fmod": 0}),
    "fmod": lambda _: Node(op="Mod", attributes={"fmod": 1}),
    "clip": _clip,
    **{f"logical_{name.lower()}": _truth(name) for name in ("And", "Or", "Xor", "Not")},
    "selu": lambda _: Node(op="Selu"),
    "silu": lambda _: Node(op="Swish"),
    "softplus": _softplus,
    "cast": _cast,
    "quantize": _quantize,
    "dequantize": _dequantize,
}
