"""Contractions, attention and poolings."""

from __future__ import annotations

from typing import Any

from optest.onnx.nodes.node import Asked, Differs, Node, NodeOf, named
from optest.operators.shapes import for_each_dim
from optest.spec import dtype


def _within(asked: Asked, integer_op: str | None = None) -> tuple[str | None, str | None]:
    """The dtype to which operands are cast for ``out_dtype``, and the operator that has int32 of narrower integers."""
    stated, own = asked["out_dtype"], asked.spec().dtype
    if stated is None or stated == own.name:
        return None, None
    if own.is_integer and stated == "int32" and integer_op is not None:
        return None, integer_op
    return stated, None


def _product(asked: Asked) -> Node:
    within, op = _within(asked, "MatMulInteger")
    return Node(op=op or "MatMul", within=within)


def _bmm(asked: Asked) -> Node:
    asked.require_rank("MatMul of batches", 3, 0, 1)
    if asked.is_refused:
        raise Differs("MatMul broadcasts batches")
    return _product(asked)


def _gemm(asked: Asked) -> Node:
    asked.require_rank("Gemm", 2, 0, 1)
    within, _ = _within(asked)
    stated = {"transA": asked["trans_a"], "transB": asked["trans_b"], "alpha": asked["alpha"], "beta": asked["beta"]}
    return Node(op="Gemm", attributes=stated, within=within)


def _linear(asked: Asked) -> Node:
    asked.require_rank("Gemm", 2, 0, 1)
    if asked.is_refused and asked.has(2):
        raise Differs("Gemm broadcasts the bias")
    within, _ = _within(asked)
    return Node(op="Gemm", attributes={"transB": 1}, within=within)


def _dot(asked: Asked) -> Node:
    asked.require_rank("MatMul of vectors", 1, 0, 1)
    return Node(op="MatMul")


def _convolution(rank: int) -> NodeOf:
    def node(asked: Asked) -> Node:
        asked.require_rank("Conv", rank + 2)
        within, op = _within(asked, "ConvInteger")
        if op is not None and asked.has(2):
            raise Differs("ConvInteger has no bias")
        stated: dict[str, Any] = {"group": asked["groups"]}
        for name, own in (("strides", "stride"), ("dilations", "dilation")):
            stated[name] = for_each_dim(asked[own], rank)
        padding = asked["padding"]
        if isinstance(padding, str) and asked.is_refused:
            raise Differs("SAME_UPPER takes any stride")
        if padding == "same" and max(stated["dilations"]) > 1:  # auto_pad is taken without dilations by most runtimes
            kernel = asked.spec(1).shape[2:]
            totals = [(size - 1) * gap for size, gap in zip(kernel, stated["dilations"], strict=True)]
            stated["pads"] = (*(total // 2 for total in totals), *(total - total // 2 for total in totals))
        elif isinstance(padding, str):
            stated["auto_pad"] = {"same": "SAME_UPPER", "valid": "VALID"}[padding]
        else:
            stated["pads"] = _pads(padding, rank)
        return Node(op=op or "Conv", attributes=stated, within=within)

    return node


def _pads(padding: Any, rank: int) -> tuple[int, ...]:
    """Beginnings, then ends."""
    stated = for_each_dim(padding, rank)
    return stated if len(stated) == 2 * rank else stated * 2


def _attention(asked: Asked) -> Node:
    asked.require_rank("Attention", 4, 0, 1, 2)
    if asked.is_refused and not asked["enable_gqa"] and asked.spec().shape[1] != asked.spec(1).shape[1]:
        raise Differs("Attention takes fewer heads of K than of Q without being told")
    if asked.is_refused and asked.has(3):
        raise Differs("Attention pads a mask, and takes one beside is_causal")
    if asked["softcap"] or tuple(asked["window_size"]) != (-1, -1):
        raise Differs("Attention has no window, and caps scores behind the mask")
    (batch, heads), key, value = asked.spec().shape[:2], asked.spec(1).shape[:2], asked.spec(2).shape[:2]
    if not asked.is_refused and (key != value or batch != key[0] or heads % max(key[1], 1)):
        raise Differs("Attention broadcasts neither batches nor heads")
    # The default is the precision of the operands, which is narrower than what the catalogue asks of 16 bits.
    precision = dtype("float32") if asked.spec().dtype.bits == 16 else None
    stated = {"is_causal": asked["is_causal"], "scale": asked["scale"], "softmax_precision": precision}
    return Node(op="Attention", attributes=stated)


def _rope(asked: Asked) -> Node:
    asked.require_rank("RotaryEmbedding without num_heads", 4)
    asked.require_rank("cos of RotaryEmbedding here", 2 if asked.has(3) else 3, 1)
    if asked.has(3):
        asked.require_rank("position_ids", 2, 3)
    return named("RotaryEmbedding")(asked)


def _windows(asked: Asked, op: str, **more: Any) -> Node:
    asked.require_rank(f"{op} of planes", 4)
    kernel = for_each_dim(asked["kernel_size"], 2)
    stated = {
        "kernel_shape": kernel,
        "strides": for_each_dim(asked["stride"] or kernel, 2),
        "pads": _pads(asked["padding"], 2),
        "ceil_mode": asked["ceil_mode"],
    }
    if asked.is_refused:
        raise Differs(f"{op} takes padding that is more than half of the window")
    return Node(op=op, attributes={**stated, **more})


def _average_pool(asked: Asked) -> Node:
    if asked["divisor_override"] is not None:
        raise Differs("AveragePool has no divisor_override")
    return _windows(asked, "AveragePool", count_include_pad=asked["count_include_pad"])


def _global_average(asked: Asked) -> Node:
    asked.require_rank("GlobalAveragePool of planes", 4)
    if for_each_dim(asked["output_size"], 2) != (1, 1):
        raise Differs("GlobalAveragePool has one element for each plane")
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
    "max_pool2d": lambda asked: _windows(asked, "MaxPool", dilations=for_each_dim(asked["dilation"], 2)),
    "avg_pool2d": _average_pool,
    "adaptive_avg_pool2d": _global_average,
}
