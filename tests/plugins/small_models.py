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
