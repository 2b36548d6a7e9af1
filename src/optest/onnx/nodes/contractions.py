"""ONNX nodes of contractions, attention and pooling."""

from __future__ import annotations

from typing import Any

from optest.onnx.nodes.node import Differs, Node, NodeOf, OnnxCall, named
from optest.operators.shapes import for_each_dim
from optest.spec import dtype


def _within(call: OnnxCall, integer_op: str | None = None) -> tuple[str | None, str | None]:
    """Return how ``out_dtype`` is reached: the dtype to cast operands to, or ``integer_op`` for int32 of integers."""
    target, kind = call["out_dtype"], call.spec().dtype
    if target is None or target == kind.name:
        return None, None
    if kind.is_integer and target == "int32" and integer_op is not None:
        return None, integer_op
    return target, None


def _product(call: OnnxCall) -> Node:
    within, op = _within(call, "MatMulInteger")
    return Node(op=op or "MatMul", within=within)


def _bmm(call: OnnxCall) -> Node:
    call.require_rank("MatMul of batches", 3, 0, 1)
    if call.is_refused:
        raise Differs("MatMul accepts batches of different sizes, which it broadcasts")
    return _product(call)


def _gemm(call: OnnxCall) -> Node:
    call.require_rank("Gemm", 2, 0, 1)
    within, _ = _within(call)
    stated = {"transA": call["trans_a"], "transB": call["trans_b"], "alpha": call["alpha"], "beta": call["beta"]}
    return Node(op="Gemm", attributes=stated, within=within)


def _linear(call: OnnxCall) -> Node:
    call.require_rank("Gemm", 2, 0, 1)
    if call.is_refused and call.has(2):
        raise Differs("Gemm accepts a bias of another shape, which it broadcasts")
    within, _ = _within(call)
    return Node(op="Gemm", attributes={"transB": 1}, within=within)


def _dot(call: OnnxCall) -> Node:
    call.require_rank("MatMul of vectors", 1, 0, 1)
    return Node(op="MatMul")


def _convolution(rank: int) -> NodeOf:
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


def _attention(call: OnnxCall) -> Node:
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


def _rope(call: OnnxCall) -> Node:
    call.require_rank("RotaryEmbedding without num_heads", 4)
    call.require_rank("cos of RotaryEmbedding here", 2 if call.has(3) else 3, 1)
    if call.has(3):
        call.require_rank("position_ids", 2, 3)
    return named("RotaryEmbedding")(call)


def _windows(call: OnnxCall, op: str, **more: Any) -> Node:
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


def _average_pool(call: OnnxCall) -> Node:
    if call["divisor_override"] is not None:
        raise Differs("AveragePool has no divisor_override")
    return _windows(call, "AveragePool", count_include_pad=call["count_include_pad"])


def _global_average(call: OnnxCall) -> Node:
    call.require_rank("GlobalAveragePool of planes", 4)
    if for_each_dim(call["output_size"], 2) != (1, 1):
        raise Differs("GlobalAveragePool has only output size 1 x 1")
    return Node(op="GlobalAveragePool")


NODES: dict[str, NodeOf] = {
    "matmul": _product,
    "bmm": _bmm,
    "gemm": _gemm,
    "linear": _linear,
    "dot": _dot,
    "conv1d": _convolution(1),
    "conv2d": _convolution(2),
    "conv3d": _convolution(3),
    "scaled_dot_product_attention": _attention,
    "rope": _rope,
    "max_pool2d": lambda call: _windows(call, "MaxPool", dilations=for_each_dim(call["dilation"], 2)),
    "avg_pool2d": _average_pool,
    "adaptive_avg_pool2d": _global_average,
}
