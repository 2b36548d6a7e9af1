"""Faults for models that ONNX Runtime has optimised: edits of its graph, each with the values that are wrong by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["CONFIGS", "FAULTS", "Fault"]

CONFIGS: Mapping[str, Sequence[str]] = {
    "gpt2": ["n_layer=4"],
    "llama": [],
    "resnet34": ["image_size=32"],
    "mobilenet_v2": ["image_size=32"],
}
"""Of the models that they are planted in; weights are drawn as the preset ``balanced`` says."""
Edit = Callable[[Any, Mapping[str, Any]], "tuple[str, ...]"]
"""Changes a graph, given the state dict of the torch model; returns the values that are then wrong by themselves."""


def nth(graph: Any, operator: str, number: int) -> Any:
    return [node for node in graph.node if node.op_type == operator][number]


def set_attribute(node: Any, name: str, value: Any) -> tuple[str, ...]:
    kept = [each for each in node.attribute if each.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])
    return (node.output[0],)


def initializer(graph: Any, name: str) -> np.ndarray:
    return numpy_helper.to_array(next(each for each in graph.initializer if each.name == name))


def new_constant(graph: Any, node: Any, place: int, value: np.ndarray) -> tuple[str, ...]:
    """Give a node another constant, of its own."""
    name = f"{node.output[0]}_planted_{place}"
    graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
    node.input[place] = name
    return (node.output[0],)


def behind(graph: Any, node: Any, *added: tuple[str, Sequence[str], dict[str, Any]]) -> tuple[str, ...]:
    """Put nodes (operator, further inputs, attributes) between a node and the readers of its value."""
    name = node.output[0]
    node.output[0] = last = f"{name}_before"
    place = list(graph.node).index(node) + 1
    for number, (operator, inputs, attributes) in enumerate(added):
        out = name if number == len(added) - 1 else f"{name}_between_{number}"
        graph.node.insert(place + number, helper.make_node(operator, [last, *inputs], [out], **attributes))
        last = out
    return (name,)


def stated(operator: str, number: int, name: str, value: Any) -> Edit:
    return lambda graph, _: set_attribute(nth(graph, operator, number), name, value)


def rms_epsilon(graph: Any, _: Mapping[str, Any]) -> tuple[str, ...]:
    mean = nth(graph, "ReduceMean", 2).output[0]
    node = next(each for each in graph.node if mean in each.input)
    return new_constant(graph, node, 1, np.float32(1e-6))


def mask_left_out(graph: Any, _: Mapping[str, Any]) -> tuple[str, ...]:
    node = nth(graph, "Where", 2)
    return new_constant(graph, node, 0, np.zeros((16, 16), bool))


def bias(graph: Any, _: Mapping[str, Any]) -> tuple[str, ...]:
    node = nth(graph, "Gemm", 10)
    value = initializer(graph, node.input[2]).copy()
    value[7] += 1e-4
    new_constant(graph, node, 2, value)
    return (next(each for each in graph.node if node.output[0] in each.input).output[0],)  # the Reshape behind it


def heads_exchanged(graph: Any, _: Mapping[str, Any]) -> tuple[str, ...]:
    node = nth(graph, "Transpose", 6)  # the second block's values, [batch, heads, tokens, width]
    graph.initializer.append(numpy_helper.from_array(np.array([1, 0, 2, 3]), "planted_order"))
    return behind(graph, node, ("Gather", ["planted_order"], {"axis": 1}))


def rotary(graph: Any, _: Mapping[str, Any]) -> tuple[str, ...]:
    wrong: list[str] = []
    for name in ("cos", "sin"):
        node = [each for each in graph.node if name in each.input][2]
        wrong += new_constant(graph, node, 1, np.roll(initializer(graph, name), -1, axis=0))
    return tuple(node.output[0] for node in graph.node if node.output[0] in wrong)


def scaled_twice(graph: Any, _: Mapping[str, Any]) -> tuple[str, ...]:
    node = nth(graph, "Mul", 1)
    return new_constant(graph, node, 1, initializer(graph, node.input[1]) ** 2)


def transposition_dropped(graph: Any, _: Mapping[str, Any]) -> tuple[str, ...]:
    node = next(
        each for each in graph.node if each.op_type == "Transpose" and list(each.attribute[0].ints) == [0, 2, 3, 1]
    )
    return set_attribute(node, "perm", [0, 2, 1, 3])  # as many tokens as a head is wide: the shapes are equal


def other_residual(graph: Any, _: Mapping[str, Any]) -> tuple[str, ...]:
    node, earlier = nth(graph, "Add", 5), nth(graph, "Add", 3)
    node.input[0] = earlier.output[0]
    return (node.output[0],)


def weights_in_float16(graph: Any, _: Mapping[str, Any]) -> tuple[str, ...]:
    to = [{"to": kind} for kind in (onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT)]
    return behind(graph, nth(graph, "Softmax", 2), *(("Cast", [], each) for each in to))


def batch_norm(change: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> Edit:
    """A convolution into which a batch norm was folded: ``change`` is given the variance and the mean that were."""

    def edit(graph: Any, state: Mapping[str, Any]) -> tuple[str, ...]:
        node = next(each for each in graph.node if "layer2.1.conv2.weight" in each.input)
        prefix = "layer2.1.bn2"
        gain, beta, mean, variance = (
            state[f"{prefix}.{name}"].double().numpy() for name in ("weight", "bias", "running_mean", "running_var")
        )
        used, center = change(variance, mean)
        scale = gain / np.sqrt(used)
        plain = state["layer2.1.conv2.weight"].double().numpy()
        new_constant(graph, node, 1, (plain * scale[:, None, None, None]).astype(np.float32))
        return new_constant(graph, node, 2, (beta - center * scale).astype(np.float32))

    return edit


def kernel_in_bfloat16(graph: Any, _: Mapping[str, Any]) -> tuple[str, ...]:
    node = nth(graph, "FusedConv", 8)
    value = initializer(graph, node.input[1])
    return new_constant(graph, node, 1, value.astype(ml_dtypes.bfloat16).astype(np.float32))


def unbounded(graph: Any, _: Mapping[str, Any]) -> tuple[str, ...]:
    return new_constant(graph, nth(graph, "Clip", 3), 2, np.float32(1e9))


class Fault(NamedTuple):
    what: str
    model: str
    level: str
    edit: Edit


FAULTS = (
    Fault("epsilon of a layer norm 1e-6, not 1e-5", "gpt2", "basic", stated("LayerNormalization", 4, "epsilon", 1e-6)),
    Fault("the same of a fused one", "gpt2", "extended", stated("SkipLayerNormalization", 0, "epsilon", 1e-6)),
    Fault("epsilon of an RMS norm 1e-6, not 1e-5", "llama", "extended", rms_epsilon),
    Fault("gelu by erf, not tanh", "gpt2", "basic", stated("Gelu", 1, "approximate", "none")),
    Fault("sigmoid of 1.702 x in silu", "llama", "extended", stated("QuickGelu", 1, "alpha", 1.702)),
    Fault("mask left out", "gpt2", "basic", mask_left_out),
    Fault("one Softmax over the other axis", "gpt2", "basic", stated("Softmax", 1, "axis", -2)),
    Fault("attention weights rounded to float16", "gpt2", "basic", weights_in_float16),
    Fault("one element of a bias + 1e-4", "gpt2", "basic", bias),
    Fault("two heads of the values exchanged", "gpt2", "basic", heads_exchanged),
    Fault("rotary position off by one", "llama", "extended", rotary),
    Fault("scale of the scores applied twice", "gpt2", "basic", scaled_twice),
    Fault("scale fused with 0.125, not 0.25", "gpt2", "extended", stated("FusedMatMul", 2, "alpha", 0.125)),
    Fault("transposition dropped, of equal sizes", "gpt2", "basic", transposition_dropped),
    Fault("residual of an earlier block added", "gpt2", "basic", other_residual),
    Fault("batch norm folded with epsilon 1e-3", "resnet34", "extended", batch_norm(lambda v, m: (v + 1e-3, m))),
    Fault("batch norm folded without its epsilon", "resnet34", "extended", batch_norm(lambda v, m: (v, m))),
    Fault("batch norm folded without its mean", "resnet34", "extended", batch_norm(lambda v, m: (v + 1e-5, 0 * m))),
    Fault("a kernel rounded to bfloat16", "resnet34", "extended", kernel_in_bfloat16),
    Fault("padding at the wrong end", "mobilenet_v2", "basic", stated("Conv", 13, "pads", [0, 0, 2, 2])),
    Fault("relu6 without its bound", "mobilenet_v2", "basic", unbounded),
)  # fmt: skip
