"""A small model in ONNX, made by hand, and copies of it that are changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

VALUES = ("norm", "product", "biased", "gelu", "scores", "out")
"""In their order, each by a node of its own."""


def small_model() -> Any:
    """[batch, 8] to [batch, 4]."""
    rng = np.random.default_rng(0)
    shapes = {"gain": (8,), "shift": (8,), "w1": (8, 16), "b1": (16,), "w2": (16, 4)}
    constants = {name: (rng.standard_normal(shape) * 0.5).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("LayerNormalization", ["x", "gain", "shift"], ["norm"]),
        helper.make_node("MatMul", ["norm", "w1"], ["product"]),
        helper.make_node("Add", ["product", "b1"], ["biased"]),
        helper.make_node("Gelu", ["biased"], ["gelu"], approximate="tanh"),
        helper.make_node("MatMul", ["gelu", "w2"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["out"], axis=-1),
    ]
    infos = (helper.make_tensor_value_info(name, 1, ["batch", size]) for name, size in (("x", 8), ("out", 4)))
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "small", *([each] for each in infos), initializer=tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def written(path: Path, change: Callable[[Any], None] = lambda _: None) -> Path:
    """The small model in a file, once ``change`` has changed it."""
    model = small_model()
    change(model)
    onnx.save(model, path)
    return path


def renamed(model: Any, *, outputs: bool = False) -> None:
    """Other names for the values inside, and for the output, too, if so asked."""
    for node in model.graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                if name in VALUES and (outputs or name != "out"):
                    names[place] = f"other_{name}"
    if outputs:
        model.graph.output[0].name = "other_out"


def weighted_model() -> Any:
    """[3, 8] to [3, 8] by weights that are chosen, transposed and scaled first: w, rows, turned; g, gain."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Gather", ["w", "order"], ["rows"], axis=0),
        helper.make_node("Transpose", ["rows"], ["turned"], perm=[1, 0]),
        helper.make_node("Mul", ["g", "half"], ["gain"]),
        helper.make_node("MatMul", ["x", "turned"], ["product"]),
        helper.make_node("Mul", ["product", "gain"], ["scaled"]),
        helper.make_node("Relu", ["scaled"], ["out"]),
    ]
    constants = {
        "w": rng.standard_normal((8, 8)).astype(np.float32),
        "order": np.array([3, 1, 2, 0, 7, 6, 5, 4]),
        "g": rng.standard_normal(8).astype(np.float32),
        "half": np.float32(0.5),
    }
    infos = ([helper.make_tensor_value_info(name, 1, [3, 8])] for name in ("x", "out"))
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "weighted", *infos, initializer=tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _contrib(
    rng: np.random.Generator,
) -> dict[str, tuple[dict[str, Any], dict[str, np.ndarray], list[str], dict[str, Any]]]:
    """Operators of ONNX Runtime: shapes of the inputs, constants, the node's inputs and its attributes."""

    def real(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    norm = {"gamma": real(8), "beta": real(8), "bias": real(8)}
    blocks = {"packed": rng.integers(0, 256, (6, 2, 8)).astype(np.uint8), "scales": real(6, 2)}
    zeros = {**blocks, "zeros": rng.integers(0, 256, (6, 1)).astype(np.uint8), "bias": real(6)}
    two = {"x": [3, 8], "skip": [3, 8]}
    angles = np.outer(np.arange(16), 0.5 ** np.arange(8))
    tables = {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
    first = {**tables, "first": np.array([3])}
    grouped = {"num_heads": 4, "kv_num_heads": 2}
    keys = {"v": real(1, 5, 32), "k": real(1, 5, 32), "last": np.full(1, 4, np.int32), "total": np.int32(5), **tables}
    rotated = ["x", "k", "v", "", "", "last", "total", "cos", "sin"]
    past = {
        **keys,
        "pv": real(1, 2, 3, 8),
        "pk": real(1, 2, 3, 8),
        "last": np.full(1, 7, np.int32),
        "total": np.int32(8),
    }
    packed = ["x", "", "", "pk", "pv", "last", "total"]
    fused = {"w": real(8, 5), "bias": real(5)}
    convolved = {"w": real(4, 3, 3, 3), "bias": real(4), "added": real(1, 4, 4, 4)}
    clipped = {"activation": "Clip", "activation_params": [-1.0, 2.0]}
    quantized = {
        "whole": rng.integers(-64, 64, (8, 5)).astype(np.int8),  # beyond 7 bits sums saturate without VNNI
        "scale": np.abs(real(5)),
        "zero": rng.integers(-9, 9, 5).astype(np.int8),
        "bias": real(5),
        "rows": rng.integers(0, 256, (3, 8)).astype(np.uint8),
    }
    attended = {"v": real(2, 5, 16), "k": real(2, 5, 16), "mask": np.array([[1] * 5, [1, 1, 0, 0, 1]], np.int32)}
    return {
        "GroupQueryAttention": ({"x": [1, 5, 64]}, keys, rotated, {**grouped, "do_rotary": 1, "rotary_interleaved": 1}),
        "GroupQueryAttention after a past": (
            {"x": [1, 5, 64]},
            past,
            packed,
            {**grouped, "scale": 0.3, "local_window_size": 3, "softcap": 2.0},
        ),
        "RotaryEmbedding of halves": ({"x": [1, 2, 5, 16]}, first, ["x", "first", "cos", "sin"], {"scale": 1.0}),
        "RotaryEmbedding": (
            {"x": [2, 5, 32]},
            first,
            ["x", "first", "cos", "sin"],
            {"interleaved": 1},
        ),
        "MultiHeadAttention": ({"x": [2, 3, 16]}, attended, ["x", "k", "v", "", "mask"], {"num_heads": 2}),
        "FastGelu": ({"x": [3, 8]}, norm, ["x", "bias"], {}),
        "BiasGelu": ({"x": [3, 8]}, norm, ["x", "bias"], {}),
        "Gelu": ({"x": [3, 8]}, {}, ["x"], {}),
        "QuickGelu": ({"x": [3, 8]}, {}, ["x"], {"alpha": 1.5}),
        "SkipLayerNormalization": (two, norm, ["x", "skip", "gamma", "beta", "bias"], {"epsilon": 1e-3}),
        "SkipSimplifiedLayerNormalization": (two, norm, ["x", "skip", "gamma", "bias"], {}),
        "SimplifiedLayerNormalization": ({"x": [3, 8]}, norm, ["x", "gamma"], {"epsilon": 1e-6}),
        "MatMulNBits": ({"x": [3, 30]}, blocks, ["x", "packed", "scales"], {"K": 30, "N": 6, "block_size": 16}),
        "MatMulNBits of zero points": (
            {"x": [3, 32]},
            zeros,
            ["x", "packed", "scales", "zeros", "", "bias"],
            {"K": 32, "N": 6, "bits": 4, "block_size": 16},
        ),
        "MatMulNBits of an input in int8": (
            {"x": [3, 30]},
            blocks,
            ["x", "packed", "scales"],
            {"K": 30, "N": 6, "block_size": 16, "accuracy_level": 4},
        ),
        "FusedMatMul": ({"x": [2, 8, 3]}, {"w": real(8, 5)}, ["x", "w"], {"transA": 1, "alpha": -0.5}),
        "FusedMatMul of batches": (
            {"x": [4, 2, 8]},
            {"w": real(5, 2, 8)},
            ["x", "w"],
            {"transBatchA": 1, "transBatchB": 1, "transB": 1},
        ),
        "FusedGemm": ({"x": [3, 8]}, fused, ["x", "w", "bias"], {"activation": "Relu", "alpha": -0.25, "beta": 0.5}),
        "FusedGemm of LeakyRelu": (
            {"x": [3, 8]},
            fused,
            ["x", "w"],
            {"activation": "LeakyRelu", "activation_alpha": 0.1},
        ),
        "FusedConv": ({"x": [1, 3, 6, 6]}, convolved, ["x", "w", "bias"], {**clipped, "pads": [1, 1, 1, 1]}),
        "FusedConv with a sum": ({"x": [1, 3, 6, 6]}, convolved, ["x", "w", "", "added"], {"activation": "Relu"}),
        "DynamicQuantizeMatMul": ({"x": [3, 8]}, quantized, ["x", "whole", "scale", "zero", "bias"], {}),
        "MatMulIntegerToFloat": ({"x": [1]}, quantized, ["rows", "whole", "x", "scale", "", "zero"], {}),
    }


CONTRIB = tuple(_contrib(np.random.default_rng(0)))


def contrib_model(name: str) -> Any:
    """A model of one operator of ONNX Runtime, and a Mul by 2 of its result."""
    sizes, constants, inputs, attributes = _contrib(np.random.default_rng(0))[name]
    operator = name.partition(" ")[0]
    domain = "" if operator == "SimplifiedLayerNormalization" else "com.microsoft"
    # ONNX Runtime 1.32 reads unwritten memory if GroupQueryAttention has a past and no outputs for the present.
    outputs = ["y", "key", "value"] if operator == "GroupQueryAttention" else ["y"]
    nodes = [
        helper.make_node(operator, inputs, outputs, domain=domain, **attributes),
        helper.make_node("Mul", ["y", "two"], ["out"]),
    ]
    constants = {**{each: value for each, value in constants.items() if each in inputs}, "two": np.float32(2)}
    infos = [helper.make_tensor_value_info(each, 1, shape) for each, shape in sizes.items()]
    tensors = [numpy_helper.from_array(np.asarray(value), each) for each, value in constants.items()]
    out = helper.make_tensor_value_info("out", 1, [None] * (2 if sizes["x"] == [1] else len(sizes["x"])))
    graph = helper.make_graph(nodes, "contrib", infos, [out], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)
