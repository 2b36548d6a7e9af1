"""Reductions and normalizations."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from optest.onnx.nodes.node import Asked, Differs, Filled, Node, NodeOf
from optest.spec import dtype


def _reduced(op: str) -> NodeOf:
    def node(asked: Asked) -> Node:
        dims = asked["dim"]
        axes = (dims,) if isinstance(dims, int) else tuple(dims or ()) or None
        if asked.is_refused:
            # What ONNX gives a meaning to, or does not speak of, need not be refused.
            shape = asked.spec().shape
            if axes is not None and all(-len(shape) <= axis < len(shape) for axis in axes):
                if len({axis % len(shape) for axis in axes}) < len(axes):
                    raise Differs(f"{op} says nothing of an axis that is stated twice")
                shape = tuple(shape[axis] for axis in axes)
            if 0 in shape:
                raise Differs(f"{op} has a value of no elements")
            if asked.spec().dtype.is_integer:
                raise Differs(f"{op} takes integers")
        return Node(op=op, attributes={"axes": axes, "keepdims": asked["keepdim"]}, within=_result(asked))

    return node


def _result(asked: Asked) -> str | None:
    """The dtype of sums and products, which ONNX has in that of the input."""
    if not any(each.name == "dtype" for each in asked.case.descriptor.attributes):
        return None
    own = asked.spec().dtype
    wanted = asked["dtype"] or (own.name if own.is_inexact else "int64")
    return None if wanted == own.name else str(wanted)


def _norm(asked: Asked) -> Node:
    if asked["p"] not in (1, 2):
        raise Differs("ONNX has ReduceL1 and ReduceL2, and no other order")
    return _reduced(f"ReduceL{int(asked['p'])}")(asked)


def _extreme(op: str) -> NodeOf:
    def node(asked: Asked) -> Node:
        if asked.is_refused and asked["dim"] is None and asked["keepdim"]:
            raise Differs(f"{op} keeps dimensions without an axis")
        if asked["dim"] is not None:
            raise Differs(f"{op} has no indices among its results")
        return _reduced(op)(asked)

    return node


def _truth(op: str) -> NodeOf:
    """The least and the largest truth value; a number that is not zero is true."""

    def node(asked: Asked) -> Node:
        if asked.dtype == "uint8":
            raise Differs(f"{op} of bool gives bool, not uint8")
        return replace(_reduced(op)(asked), within="bool")

    return node


def _place(op: str) -> NodeOf:
    def node(asked: Asked) -> Node:
        if asked["dim"] is None:
            raise Differs(f"{op} takes one dimension, not all")
        return Node(op=op, attributes={"axis": asked["dim"], "keepdims": asked["keepdim"]})

    return node


def _cumsum(asked: Asked) -> Node:
    ways = {name: asked[name] for name in ("exclusive", "reverse")}
    return Node(op="CumSum", attributes={"axis": asked["dim"], **ways}, within=_result(asked))


def _over_last(op: str, eps: float) -> NodeOf:
    """The normalized dimensions begin at an axis; Scale is no option in ONNX, and B is one."""

    def node(asked: Asked) -> Node:
        if asked.case.attributes.get("statistics"):
            raise Differs(f"{op} gives mean and 1/std, not what the statistics are here")
        shape = tuple(asked["normalized_shape"])
        if not shape or (asked.is_refused and shape != asked.spec().shape[-len(shape) :]):
            raise Differs(f"{op} takes an axis, and sizes from its inputs")
        if asked.is_refused and any(asked.has(place) and asked.spec(place).shape != shape for place in (1, 2)):
            raise Differs(f"{op} broadcasts scale and bias")
        scale = 1 if asked.has(1) else Filled(shape, 1.0)
        bias = (2,) if asked.has(2) else ()
        attributes = {"axis": -len(shape), "epsilon": eps if asked["eps"] is None else asked["eps"]}
        return Node(op=op, attributes=attributes, inputs=(0, scale, *bias))

    return node


def _by_channel(asked: Asked, op: str, weight: int) -> tuple[int | Filled, int | Filled]:
    """Scale and bias are no option in ONNX."""
    if asked.rank < 2:
        raise Differs(f"{op} takes two dimensions or more")
    channels = (asked.spec().shape[1],)
    return (
        weight if asked.has(weight) else Filled(channels, 1.0),
        weight + 1 if asked.has(weight + 1) else Filled(channels, 0.0),
    )


def _group_norm(asked: Asked) -> Node:
    parameters = _by_channel(asked, "GroupNormalization", 1)
    if asked.is_refused and asked["num_groups"] == prod(asked.spec().shape[1:]):
        raise Differs("GroupNormalization takes groups of one element")
    # The first stage is computed in float32, in float64 too, unless this attribute says otherwise.
    stash = dtype("float64") if asked.dtype == "float64" else None
    attributes = {"num_groups": asked["num_groups"], "epsilon": asked["eps"], "stash_type": stash}
    return Node(op="GroupNormalization", attributes=attributes, inputs=(0, *parameters))


def _batch_norm(asked: Asked) -> Node:
    if asked["training"] or not (asked.has(1) and asked.has(2)):
        raise Differs("BatchNormalization has its running statistics among the results in training")
    if asked["eps"] < 0:
        raise Differs("BatchNormalization takes any epsilon")
    parameters = _by_channel(asked, "BatchNormalization", 3)
    return Node(op="BatchNormalization", attributes={"epsilon": asked["eps"]}, inputs=(0, *parameters, 1, 2))


def _cross_entropy(asked: Asked) -> Node:
    if asked.rank < 2:
        raise Differs("SoftmaxCrossEntropyLoss takes a batch")
    if asked["label_smoothing"]:
        raise Differs("SoftmaxCrossEntropyLoss smooths no labels")
    attributes = {name: asked[name] for name in ("ignore_index", "reduction")}
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
    "argmax": _place("ArgMax"),
    "argmin": _place("ArgMin"),
    "cumsum": _cumsum,
    "layer_norm": _over_last("LayerNormalization", 1e-5),
    "rms_norm": lambda asked: _over_last("RMSNormalization", 2.0 ** (-52 if asked.dtype == "float64" else -23))(asked),
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "cross_entropy": _cross_entropy,
}
