"""ONNX nodes of reductions and normalizations."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from optest.onnx.nodes.node import Differs, Filled, Node, NodeOf, OnnxCall
from optest.spec import dtype


def _reduced(op: str) -> NodeOf:
    def node(call: OnnxCall) -> Node:
        dims = call["dim"]
        axes = (dims,) if isinstance(dims, int) else tuple(dims or ()) or None
        if call.is_refused:
            # A runtime need not refuse a call that ONNX defines or leaves undefined.
            shape = call.spec().shape
            if axes is not None and all(-len(shape) <= axis < len(shape) for axis in axes):
                if len({axis % len(shape) for axis in axes}) < len(axes):
                    raise Differs(f"{op} does not define a repeated axis")
                shape = tuple(shape[axis] for axis in axes)
            if 0 in shape:
                raise Differs(f"{op} defines the result of no elements")
            if call.spec().dtype.is_integer:
                raise Differs(f"{op} accepts integers")
        return Node(op=op, attributes={"axes": axes, "keepdims": call["keepdim"]}, within=_result(call))

    return node


def _result(call: OnnxCall) -> str | None:
    """Return the dtype to which the input of a sum or product is cast, since ONNX accumulates in it; None if none."""
    if not any(attribute.name == "dtype" for attribute in call.case.descriptor.attributes):
        return None
    kind = call.spec().dtype
    target = call["dtype"] or (kind.name if kind.is_inexact else "int64")
    return None if target == kind.name else str(target)


def _norm(call: OnnxCall) -> Node:
    if call["p"] not in (1, 2):
        raise Differs("ONNX has only the norms ReduceL1 and ReduceL2")
    return _reduced(f"ReduceL{int(call['p'])}")(call)


def _extreme(op: str) -> NodeOf:
    def node(call: OnnxCall) -> Node:
        if call.is_refused and call["dim"] is None and call["keepdim"]:
            raise Differs(f"{op} accepts keepdims without an axis")
        if call["dim"] is not None:
            raise Differs(f"{op} returns no indices")
        return _reduced(op)(call)

    return node


def _truth(op: str) -> NodeOf:
    """Return a builder of all or any: the minimum or maximum of the input cast to bool."""

    def node(call: OnnxCall) -> Node:
        if call.dtype == "uint8":
            raise Differs(f"{op} of bool returns bool, not uint8")
        return replace(_reduced(op)(call), within="bool")

    return node


def _arg_extreme(op: str) -> NodeOf:
    def node(call: OnnxCall) -> Node:
        if call["dim"] is None:
            raise Differs(f"{op} accepts one dimension, not all")
        return Node(op=op, attributes={"axis": call["dim"], "keepdims": call["keepdim"]})

    return node


def _cumsum(call: OnnxCall) -> Node:
    attributes = {"axis": call["dim"], "exclusive": call["exclusive"], "reverse": call["reverse"]}
    return Node(op="CumSum", attributes=attributes, within=_result(call))


def _over_last(op: str, eps: float) -> NodeOf:
    """Return a builder of a normalization over the last dimensions; ONNX requires the scale, not the bias."""

    def node(call: OnnxCall) -> Node:
        if call.case.attributes.get("statistics"):
            raise Differs(f"{op} returns mean and 1/std, not these statistics")
        shape = tuple(call["normalized_shape"])
        if not shape or (call.is_refused and shape != call.spec().shape[-len(shape) :]):
            raise Differs(f"{op} accepts an axis, and takes the sizes from its inputs")
        if call.is_refused and any(call.has(index) and call.spec(index).shape != shape for index in (1, 2)):
            raise Differs(f"{op} broadcasts scale and bias")
        scale = 1 if call.has(1) else Filled(shape, 1.0)
        bias = (2,) if call.has(2) else ()
        attributes = {"axis": -len(shape), "epsilon": eps if call["eps"] is None else call["eps"]}
        return Node(op=op, attributes=attributes, inputs=(0, scale, *bias))

    return node


def _by_channel(call: OnnxCall, op: str, weight: int) -> tuple[int | Filled, int | Filled]:
    """Return scale and bias by channel: the inputs from ``weight`` on, or ones and zeros, since ONNX requires them."""
    if call.rank < 2:
        raise Differs(f"{op} needs at least two dimensions")
    channels = (call.spec().shape[1],)
    return (
        weight if call.has(weight) else Filled(channels, 1.0),
        weight + 1 if call.has(weight + 1) else Filled(channels, 0.0),
    )


def _group_norm(call: OnnxCall) -> Node:
    parameters = _by_channel(call, "GroupNormalization", 1)
    if call.is_refused and call["num_groups"] == prod(call.spec().shape[1:]):
        raise Differs("GroupNormalization accepts groups of one element")
    # By default the first stage is computed in float32, even for float64.
    stash = dtype("float64") if call.dtype == "float64" else None
    attributes = {"num_groups": call["num_groups"], "epsilon": call["eps"], "stash_type": stash}
    return Node(op="GroupNormalization", attributes=attributes, inputs=(0, *parameters))


def _batch_norm(call: OnnxCall) -> Node:
    if call["training"] or not (call.has(1) and call.has(2)):
        raise Differs("BatchNormalization returns its running statistics as outputs in training")
    if call["eps"] < 0:
        raise Differs("BatchNormalization accepts any epsilon")
    parameters = _by_channel(call, "BatchNormalization", 3)
    return Node(op="BatchNormalization", attributes={"epsilon": call["eps"]}, inputs=(0, *parameters, 1, 2))


def _cross_entropy(call: OnnxCall) -> Node:
    if call.rank < 2:
        raise Differs("SoftmaxCrossEntropyLoss needs a batch")
    if call["label_smoothing"]:
        raise Differs("SoftmaxCrossEntropyLoss has no label smoothing")
    attributes = {name: call[name] for name in ("ignore_index", "reduction")}
    return Node(op="SoftmaxCrossEntropyLoss", attributes=attributes)


NODES: dict[str, NodeOf] = {
    "sum": _reduced("ReduceSum"),
    "mean": _reduced("ReduceMean"),
    "prod": _reduced("ReduceProd"),
    "amax": _reduced("ReduceMax"),
    "amin": _reduced("ReduceMin"),
    "logsumexp": _reduced("ReduceLogSumExp"),
    "norm": _norm,
    "max": _extreme("ReduceMax"),
    "min": _extreme("ReduceMin"),
    "all": _truth("ReduceMin"),
    "any": _truth("ReduceMax"),
    "argmax": _arg_extreme("ArgMax"),
    "argmin": _arg_extreme("ArgMin"),
    "cumsum": _cumsum,
    "layer_norm": _over_last("LayerNormalization", 1e-5),
    "rms_norm": lambda call: _over_last("RMSNormalization", 2.0 ** (-52 if call.dtype == "float64" else -23))(call),
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "cross_entropy": _cross_entropy,
}
