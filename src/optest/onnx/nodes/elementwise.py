"""ONNX nodes of elementwise operators, activations, casts and quantization."""

from __future__ import annotations

from math import exp, inf
from typing import Any

from optest.onnx.nodes.node import Differs, Node, NodeOf, OnnxCall
from optest.spec import dtype


def _div(call: OnnxCall) -> Node:
    is_integer, mode = call.spec().dtype.is_integer, call["rounding_mode"]
    if mode != ("trunc" if is_integer else None):
        raise Differs("Div rounds integers towards zero, and does not round floats")
    return Node(op="Div")


def _softplus(call: OnnxCall) -> Node:
    # Above torch's threshold, exp(-threshold) is dropped; by default that matters for float64 only.
    if call["beta"] != 1:
        raise Differs("Softplus has no beta")
    least, entry = call["threshold"], call.spec().dtype
    if least <= 0 or exp(-min(least, 700.0)) > entry.unit_roundoff * least / 4:
        raise Differs("Softplus has no threshold above which it returns its input")
    return Node(op="Softplus")


def _cast(call: OnnxCall) -> Node:
    is_narrow = call["dtype"].startswith("float8")
    return Node(op="Cast", attributes={"to": dtype(call["dtype"]), "saturate": call["saturate"] if is_narrow else None})


def _quantize(call: OnnxCall) -> Node:
    if call["quant_min"] is not None or call["quant_max"] is not None:
        raise Differs("QuantizeLinear has no bounds except those of the dtype")
    stated = None if call["dtype"] is None or call.has(2) else dtype(call["dtype"])
    if call.has(2) and call["dtype"] not in (None, call.spec(2).dtype.name):
        raise Differs("the result of QuantizeLinear has the dtype of the zero point")
    return Node(op="QuantizeLinear", attributes={"axis": call["axis"], "output_dtype": stated})


def _dequantize(call: OnnxCall) -> Node:
    stated: Any = None if call["dtype"] in (None, call.spec(1).dtype.name) else dtype(call["dtype"])
    return Node(op="DequantizeLinear", attributes={"axis": call["axis"], "output_dtype": stated})


def _clip(call: OnnxCall) -> Node:
    # In ONNX an omitted bound is the lowest or largest finite number, which would clip infinities.
    bounds = {name: call[name] for name in ("min", "max")}
    if bounds["min"] is None and bounds["max"] is None:
        raise Differs("Clip without bounds replaces infinities by finite numbers")
    if call.spec().dtype.is_float:
        for name, none in (("min", -inf), ("max", inf)):
            bounds[name] = none if bounds[name] is None else bounds[name]
    return Node(op="Clip", attributes=bounds)


def _truth(op: str) -> NodeOf:
    """Return a builder of ``op`` on operands cast to bool, the only dtype that it accepts in ONNX."""
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
