"""ONNX nodes of elementwise operators, casts, quantization, reductions, normalizations, contractions and pooling."""

from __future__ import annotations

from math import exp, inf, prod
from typing import Any

from optest.onnx.nodes.node import NODES, Differs, Filled, Node, NodeOf, OnnxCall, builds, node_with_attributes
from optest.operators.shapes import for_each_dim
from optest.spec import dtype


@builds("div")
def _div_node(call: OnnxCall) -> Node:
    is_integer, mode = call.spec().dtype.is_integer, call["rounding_mode"]
    if mode != ("trunc" if is_integer else None):
        raise Differs("Div rounds integers towards zero, and does not round floats")
    return Node(op="Div")


@builds("softplus")
def _softplus_node(call: OnnxCall) -> Node:
    # Above torch's threshold, exp(-threshold) is dropped; by default that matters for float64 only.
    if call["beta"] != 1:
        raise Differs("Softplus has no beta")
    least, entry = call["threshold"], call.spec().dtype
    if least <= 0 or exp(-min(least, 700.0)) > entry.unit_roundoff * least / 4:
        raise Differs("Softplus has no threshold above which it returns its input")
    return Node(op="Softplus")


@builds("cast")
def _cast_node(call: OnnxCall) -> Node:
    is_narrow = call["dtype"].startswith("float8")
    return Node(op="Cast", attributes={"to": dtype(call["dtype"]), "saturate": call["saturate"] if is_narrow else None})


@builds("quantize")
def _quantize_node(call: OnnxCall) -> Node:
    if call["quant_min"] is not None or call["quant_max"] is not None:
        raise Differs("QuantizeLinear has no bounds except those of the dtype")
    stated = None if call["dtype"] is None or call.has(2) else dtype(call["dtype"])
    if call.has(2) and call["dtype"] not in (None, call.spec(2).dtype.name):
        raise Differs("the result of QuantizeLinear has the dtype of the zero point")
    return Node(op="QuantizeLinear", attributes={"axis": call["axis"], "output_dtype": stated})


@builds("dequantize")
def _dequantize_node(call: OnnxCall) -> Node:
    stated: Any = None if call["dtype"] in (None, call.spec(1).dtype.name) else dtype(call["dtype"])
    return Node(op="DequantizeLinear", attributes={"axis": call["axis"], "output_dtype": stated})


@builds("clip")
def _clip_node(call: OnnxCall) -> Node:
    # In ONNX an omitted bound is the lowest or largest finite number, which would clip infinities.
    bounds = {name: call[name] for name in ("min", "max")}
    if bounds["min"] is None and bounds["max"] is None:
        raise Differs("Clip without bounds replaces infinities by finite numbers")
    if call.spec().dtype.is_float:
        for name, none in (("min", -inf), ("max", inf)):
            bounds[name] = none if bounds[name] is None else bounds[name]
    return Node(op="Clip", attributes=bounds)


# Reductions and normalizations


def _reduced_node(op: str) -> NodeOf:
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
        return Node(op=op, attributes={"axes": axes, "keepdims": call["keepdim"]}, within=_accumulator(call))

    return node


def _accumulator(call: OnnxCall) -> str | None:
    """Return the dtype to which the input of a sum or product is cast, since ONNX accumulates in it; None if none."""
    if not any(attribute.name == "dtype" for attribute in call.case.descriptor.attributes):
        return None
    kind = call.spec().dtype
    target = call["dtype"] or (kind.name if kind.is_inexact else "int64")
    return None if target == kind.name else str(target)


@builds("norm")
def _norm_node(call: OnnxCall) -> Node:
    if call["p"] not in (1, 2):
        raise Differs("ONNX has only the norms ReduceL1 and ReduceL2")
    return _reduced_node(f"ReduceL{int(call['p'])}")(call)


def _extreme_node(op: str) -> NodeOf:
    def node(call: OnnxCall) -> Node:
        if call.is_refused and call["dim"] is None and call["keepdim"]:
            raise Differs(f"{op} accepts keepdims without an axis")
        if call["dim"] is not None:
            raise Differs(f"{op} returns no indices")
        return _reduced_node(op)(call)

    return node


def _of_bool(op: str, build: NodeOf) -> NodeOf:
    """Return ``build`` for inputs of bool; it raises Differs for others, which ONNX's ``op`` does not take as truth."""

    def node(call: OnnxCall) -> Node:
        if kind := next((spec.dtype.name for spec in call.specs if spec is not None and spec.dtype.name != "bool"), ""):
            raise Differs(f"{op} takes only bool, not {kind}")
        return build(call)

    return node


def _arg_extreme_node(op: str) -> NodeOf:
    def node(call: OnnxCall) -> Node:
        if call["dim"] is None:
            raise Differs(f"{op} accepts one dimension, not all")
        return Node(op=op, attributes={"axis": call["dim"], "keepdims": call["keepdim"]})

    return node


@builds("cumsum")
def _cumsum_node(call: OnnxCall) -> Node:
    attributes = {"axis": call["dim"], "exclusive": call["exclusive"], "reverse": call["reverse"]}
    return Node(op="CumSum", attributes=attributes, within=_accumulator(call))


def _over_last_node(op: str, eps: float, eps_of_float64: float | None = None) -> NodeOf:
    """Return a builder of a normalization over the last dimensions; ONNX requires the scale, not the bias.

    ``eps`` replaces an epsilon of None, ``eps_of_float64`` that of float64 if it is set.
    """

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
        usual = eps_of_float64 if eps_of_float64 and call.dtype == "float64" else eps
        attributes = {"axis": -len(shape), "epsilon": usual if call["eps"] is None else call["eps"]}
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


@builds("group_norm")
def _group_norm_node(call: OnnxCall) -> Node:
    parameters = _by_channel(call, "GroupNormalization", 1)
    if call.is_refused and call["num_groups"] == prod(call.spec().shape[1:]):
        raise Differs("GroupNormalization accepts groups of one element")
    # By default the first stage is computed in float32, even for float64.
    stash = dtype("float64") if call.dtype == "float64" else None
    attributes = {"num_groups": call["num_groups"], "epsilon": call["eps"], "stash_type": stash}
    return Node(op="GroupNormalization", attributes=attributes, inputs=(0, *parameters))


@builds("batch_norm")
def _batch_norm_node(call: OnnxCall) -> Node:
    if call["training"] or not (call.has(1) and call.has(2)):
        raise Differs("BatchNormalization returns its running statistics as outputs in training")
    if call["eps"] < 0:
        raise Differs("BatchNormalization accepts any epsilon")
    parameters = _by_channel(call, "BatchNormalization", 3)
    return Node(op="BatchNormalization", attributes={"epsilon": call["eps"]}, inputs=(0, *parameters, 1, 2))


@builds("cross_entropy")
def _cross_entropy_node(call: OnnxCall) -> Node:
    if call.rank < 2:
        raise Differs("SoftmaxCrossEntropyLoss needs a batch")
    if call["label_smoothing"]:
        raise Differs("SoftmaxCrossEntropyLoss has no label smoothing")
    attributes = {name: call[name] for name in ("ignore_index", "reduction")}
    return Node(op="SoftmaxCrossEntropyLoss", attributes=attributes)


# Contractions, attention and pooling


def _within(call: OnnxCall, integer_op: str | None = None) -> tuple[str | None, str | None]:
    """Return how ``out_dtype`` is reached: the dtype to cast operands to, or ``integer_op`` for int32 of integers."""
    target, kind = call["out_dtype"], call.spec().dtype
    if target is None or target == kind.name:
        return None, None
    if kind.is_integer and target == "int32" and integer_op is not None:
        return None, integer_op
    return target, None


@builds("dot")
def _dot_node(call: OnnxCall) -> Node:
    call.require_rank("MatMul of vectors", 1, 0, 1)
    return Node(op="MatMul")


@builds("bmm")
def _bmm_node(call: OnnxCall) -> Node:
    call.require_rank("MatMul of batches", 3, 0, 1)
    if call.is_refused:
        raise Differs("MatMul accepts batches of different sizes, which it broadcasts")
    return _product_node(call)


@builds("matmul")
def _product_node(call: OnnxCall) -> Node:
    within, op = _within(call, "MatMulInteger")
    return Node(op=op or "MatMul", within=within)


@builds("gemm")
def _gemm_node(call: OnnxCall) -> Node:
    call.require_rank("Gemm", 2, 0, 1)
    within, _ = _within(call)
    stated = {"transA": call["trans_a"], "transB": call["trans_b"], "alpha": call["alpha"], "beta": call["beta"]}
    return Node(op="Gemm", attributes=stated, within=within)


@builds("linear")
def _linear_node(call: OnnxCall) -> Node:
    call.require_rank("Gemm", 2, 0, 1)
    if call.is_refused and call.has(2):
        raise Differs("Gemm accepts a bias of another shape, which it broadcasts")
    within, _ = _within(call)
    return Node(op="Gemm", attributes={"transB": 1}, within=within)


def _convolution_node(rank: int) -> NodeOf:
    def node(call: OnnxCall) -> Node:
        call.require_rank("Conv", rank + 2)
        within, op = _within(call, "ConvInteger")
        if op is not None and call.has(2):
            raise Differs("ConvInteger has no bias")
        stated: dict[str, Any] = {"group": call["groups"]}
        for name, attribute in (("strides", "stride"), ("dilations", "dilation")):
            stated[name] = for_each_dim(call[attribute], rank)
        padding = call["padding"]
        if isinstance(padding, str) and call.is_refused:
            raise Differs("auto_pad SAME_UPPER accepts any stride")
        if padding == "same" and max(stated["dilations"]) > 1:  # most runtimes refuse auto_pad with dilations
            kernel = call.spec(1).shape[2:]
            totals = [(size - 1) * gap for size, gap in zip(kernel, stated["dilations"], strict=True)]
            stated["pads"] = (*(total // 2 for total in totals), *(total - total // 2 for total in totals))
        elif isinstance(padding, str):
            stated["auto_pad"] = {"same": "SAME_UPPER", "valid": "VALID"}[padding]
        else:
            stated["pads"] = _pads(padding, rank)
        return Node(op=op or "Conv", attributes=stated, within=within)

    return node


def _pads(padding: Any, rank: int) -> tuple[int, ...]:
    """Return the padding before each dimension, then the padding after each."""
    stated = for_each_dim(padding, rank)
    return stated if len(stated) == 2 * rank else stated * 2


@builds("scaled_dot_product_attention")
def _attention_node(call: OnnxCall) -> Node:
    call.require_rank("Attention", 4, 0, 1, 2)
    if call.is_refused and not call["enable_gqa"] and call.spec().shape[1] != call.spec(1).shape[1]:
        raise Differs("Attention always accepts fewer heads of K than of Q")
    if call.is_refused and call.has(3):
        raise Differs("Attention pads a short mask, and accepts a mask together with is_causal")
    if call["softcap"] or tuple(call["window_size"]) != (-1, -1):
        raise Differs("Attention has no window, and applies softcap after the mask")
    (batch, heads), key, value = call.spec().shape[:2], call.spec(1).shape[:2], call.spec(2).shape[:2]
    if not call.is_refused and (key != value or batch != key[0] or heads % max(key[1], 1)):
        raise Differs("Attention broadcasts neither batches nor heads")
    # The default is the precision of the operands; for 16-bit floats the operator requires float32.
    precision = dtype("float32") if call.spec().dtype.bits == 16 else None
    stated = {"is_causal": call["is_causal"], "scale": call["scale"], "softmax_precision": precision}
    return Node(op="Attention", attributes=stated)


@builds("rope")
def _rope_node(call: OnnxCall) -> Node:
    call.require_rank("RotaryEmbedding without num_heads", 4)
    call.require_rank("cos of RotaryEmbedding here", 2 if call.has(3) else 3, 1)
    if call.has(3):
        call.require_rank("position_ids", 2, 3)
    return node_with_attributes("RotaryEmbedding")(call)


def _windows_node(call: OnnxCall, op: str, **more: Any) -> Node:
    call.require_rank(f"{op} of planes", 4)
    kernel = for_each_dim(call["kernel_size"], 2)
    stated = {
        "kernel_shape": kernel,
        "strides": for_each_dim(call["stride"] or kernel, 2),
        "pads": _pads(call["padding"], 2),
        "ceil_mode": call["ceil_mode"],
    }
    if call.is_refused:
        raise Differs(f"{op} accepts padding of more than half of the window")
    return Node(op=op, attributes={**stated, **more})


@builds("adaptive_avg_pool2d")
def _global_average_node(call: OnnxCall) -> Node:
    call.require_rank("GlobalAveragePool of planes", 4)
    if for_each_dim(call["output_size"], 2) != (1, 1):
        raise Differs("GlobalAveragePool has only output size 1 x 1")
    return Node(op="GlobalAveragePool")


@builds("avg_pool2d")
def _average_pool_node(call: OnnxCall) -> Node:
    if call["divisor_override"] is not None:
        raise Differs("AveragePool has no divisor_override")
    return _windows_node(call, "AveragePool", count_include_pad=call["count_include_pad"])


NODES.update(
    {
        "pow": lambda _: Node(op="Pow"),
        "remainder": lambda _: Node(op="Mod", attributes={"fmod": 0}),
        "fmod": lambda _: Node(op="Mod", attributes={"fmod": 1}),
        "logical_and": _of_bool("And", lambda _: Node(op="And")),
        "logical_or": _of_bool("Or", lambda _: Node(op="Or")),
        "logical_xor": _of_bool("Xor", lambda _: Node(op="Xor")),
        "logical_not": _of_bool("Not", lambda _: Node(op="Not")),
        "selu": lambda _: Node(op="Selu"),
        "silu": lambda _: Node(op="Swish"),
        "sum": _reduced_node("ReduceSum"),
        "mean": _reduced_node("ReduceMean"),
        "prod": _reduced_node("ReduceProd"),
        "amax": _reduced_node("ReduceMax"),
        "amin": _reduced_node("ReduceMin"),
        "logsumexp": _reduced_node("ReduceLogSumExp"),
        "max": _extreme_node("ReduceMax"),
        "min": _extreme_node("ReduceMin"),
        "all": _of_bool("ReduceMin", _reduced_node("ReduceMin")),
        "any": _of_bool("ReduceMax", _reduced_node("ReduceMax")),
        "argmax": _arg_extreme_node("ArgMax"),
        "argmin": _arg_extreme_node("ArgMin"),
        "layer_norm": _over_last_node("LayerNormalization", 1e-5),
        "rms_norm": _over_last_node("RMSNormalization", 2.0**-23, 2.0**-52),
        "conv1d": _convolution_node(1),
        "conv2d": _convolution_node(2),
        "conv3d": _convolution_node(3),
        "max_pool2d": lambda call: _windows_node(call, "MaxPool", dilations=for_each_dim(call["dilation"], 2)),
    }
)
