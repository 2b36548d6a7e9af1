"""Each of ONNX's names means here what ONNX Runtime computes under it: the same attributes, inputs and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from optest.api import cases
from optest.core.expected import make_inputs
from optest.errors import PlanError
from optest.numerics import round_to
from optest.operators import operators
from optest.operators.onnx import SPELLINGS
from optest.registry import load_object
from optest.spec import Signature, TestCase

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

OPSET = 23
RUNTIME_ERRORS = (
    runtime.capi.onnxruntime_pybind11_state.InvalidArgument,
    runtime.capi.onnxruntime_pybind11_state.RuntimeException,
    runtime.capi.onnxruntime_pybind11_state.Fail,
)
PLANE = {"X": (2, 3, 8, 7)}
IMAGE = {"X": (1, 4, 8, 9), "W": (6, 4, 3, 2), "B": (6,)}
NORMED = {"X": (2, 3, 5), "Scale": (5,), "B": (5,)}
DATA = {"data": (2, 3, 4)}


@dataclass(frozen=True)
class Node:
    """A call as both sides have it; ``later`` are attributes that this version of ONNX takes as inputs, by place."""

    op: str
    shapes: Mapping[str, tuple[int, ...]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    later: Mapping[str, int] = field(default_factory=dict)
    dtypes: str = "float32"
    generator: Mapping[str, Any] | str | None = None
    opset: int = OPSET

    def __str__(self) -> str:
        return f"{self.op}({', '.join(f'{name}={value}' for name, value in self.attributes.items())})"


def reductions() -> list[Node]:
    found = []
    for op in ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2"):
        axes = {"axes": (1,)}
        found += [
            Node(op, DATA, later={"axes": 1}),
            Node(op, DATA, axes, later={"axes": 1}),
            Node(op, DATA, {"axes": (-1,), "keepdims": 0}, later={"axes": 1}),
        ]
    return [
        *found,
        Node("ReduceLogSumExp", DATA, {"axes": (0, 2)}, later={"axes": 1}),
        Node("ReduceSum", DATA, {"axes": (0, 2)}, later={"axes": 1}, dtypes="int64"),
        Node("ReduceSum", DATA, {"axes": (1,)}, later={"axes": 1}, dtypes="int32"),
        Node("ReduceMean", {"data": (2, 0)}, {"axes": (0,)}, later={"axes": 1}),
        Node("ReduceProd", DATA, {"axes": (2,)}, later={"axes": 1}, dtypes="int32"),
        Node("ArgMax", DATA),
        Node("ArgMax", DATA, {"axis": 2, "keepdims": 0}),
        Node("ArgMin", DATA, {"axis": -2}),
        Node("CumSum", {"x": (3, 4)}, {"axis": 1}, later={"axis": 1}),
        Node("CumSum", {"x": (3, 4)}, {"axis": 0}, later={"axis": 1}, dtypes="int32"),
        Node("CumSum", {"x": (3, 4)}, {"axis": 1, "exclusive": 1}, later={"axis": 1}),
        Node("CumSum", {"x": (3, 4, 2)}, {"axis": -2, "reverse": 1}, later={"axis": 1}),
        Node("CumSum", {"x": (3, 4)}, {"axis": 1, "exclusive": 1, "reverse": 1}, later={"axis": 1}, dtypes="int32"),
        Node("ReduceProd", DATA, {"axes": (-1, 0)}, later={"axes": 1}),
        Node("ReduceProd", DATA, {"axes": (1, 2), "keepdims": 0}, later={"axes": 1}, dtypes="int32"),
    ]


def windows() -> list[Node]:
    kernel = {"kernel_shape": (3, 2)}
    found = []
    for op in ("MaxPool", "AveragePool"):
        found += [
            Node(op, PLANE, kernel),
            Node(op, PLANE, {**kernel, "strides": (2, 3), "pads": (1, 1, 0, 1)}),
            Node(op, PLANE, {**kernel, "strides": (2, 2), "pads": (0, 0, 1, 1), "ceil_mode": 1}),
            Node(op, PLANE, {**kernel, "strides": (3, 2), "pads": (1, 0, 1, 0), "ceil_mode": 1}),
            Node(op, PLANE, {**kernel, "auto_pad": "SAME_UPPER", "strides": (2, 2)}),
            Node(op, PLANE, {**kernel, "auto_pad": "SAME_LOWER"}),
            Node(op, PLANE, {**kernel, "auto_pad": "VALID", "strides": (2, 1)}),
        ]
    return [
        *found,
        Node("MaxPool", PLANE, {**kernel, "pads": (2, 1, 2, 1)}),
        Node("AveragePool", PLANE, {**kernel, "pads": (0, 1, 2, 0), "strides": (2, 2), "ceil_mode": 1}),
        Node("MaxPool", PLANE, {**kernel, "dilations": (2, 3), "pads": (1, 0, 1, 1)}),
        Node("MaxPool", {"X": (1, 1, 5, 5)}, {"kernel_shape": (2, 2), "dilations": (2, 2), "pads": (1, 1, 1, 1)}),
        Node("AveragePool", PLANE, {**kernel, "count_include_pad": 1, "pads": (1, 0, 0, 1)}),
        Node("GlobalAveragePool", PLANE),
        Node("GlobalAveragePool", {"X": (2, 3, 7)}),
        Node("GlobalMaxPool", PLANE),
    ]


def contractions() -> list[Node]:
    return [
        Node("Conv", IMAGE),
        Node("Conv", IMAGE, {"kernel_shape": (3, 2), "strides": (2, 1), "pads": (1, 0, 2, 1)}),
        Node("Conv", IMAGE, {"auto_pad": "SAME_UPPER", "strides": (2, 2)}),
        Node("Conv", IMAGE, {"auto_pad": "SAME_LOWER", "strides": (3, 2)}),
        Node("Conv", {"X": (1, 4, 8, 9), "W": (6, 2, 3, 2)}, {"group": 2, "dilations": (2, 3), "pads": (2, 2, 2, 2)}),
        Node("Conv", {"X": (1, 2, 8, 8), "W": (3, 2, 1, 1)}, {"auto_pad": "SAME_UPPER", "strides": (2, 3)}),
        Node("Conv", {"X": (2, 3, 9), "W": (4, 3, 2)}, {"pads": (1, 0), "strides": (2,)}),
        Node("Conv", {"X": (1, 2, 5, 6, 7), "W": (3, 2, 2, 3, 2)}, {"pads": (1, 0, 0, 0, 1, 1)}),
        Node("ConvInteger", {"x": (1, 2, 6, 5), "w": (3, 2, 3, 3)}, {"pads": (1, 0, 1, 1)}, dtypes="uint8"),
        Node("MatMulInteger", {"A": (3, 17), "B": (17, 4)}, dtypes="uint8"),
        Node("Attention", {"Q": (1, 2, 3, 8), "K": (1, 2, 5, 8), "V": (1, 2, 5, 8)}),
        Node("Attention", {"Q": (1, 4, 3, 8), "K": (1, 2, 3, 8), "V": (1, 2, 3, 8)}, {"is_causal": 1, "scale": 0.5}),
    ]


def normalizations() -> list[Node]:
    statistics = {"X": (2, 3, 4, 5), "scale": (3,), "B": (3,), "input_mean": (3,), "input_var": (3,)}
    return [
        Node("LayerNormalization", NORMED),
        Node("LayerNormalization", {"X": (2, 3, 5), "Scale": (3, 5), "B": (3, 5)}, {"axis": 1, "epsilon": 0.5}),
        Node("RMSNormalization", {"X": (2, 3, 5), "scale": (5,)}),
        Node("RMSNormalization", {"X": (2, 3, 5), "scale": (3, 5)}, {"axis": -2, "epsilon": 0.25}),
        Node("BatchNormalization", statistics),
        Node("BatchNormalization", statistics, {"epsilon": 0.125, "momentum": 0.5}),
        Node("InstanceNormalization", {"input": (2, 3, 4, 5), "scale": (3,), "B": (3,)}, {"epsilon": 0.5}),
    ]


def movements() -> list[Node]:
    indices = {"data": "randn", "indices": {"fill": "randint", "low": 0, "high": 2}}
    elements = {"data": (3, 4), "indices": (2, 4)}
    return [
        Node("Transpose", DATA),
        Node("Transpose", DATA, {"perm": (1, 2, 0)}),
        Node("Reshape", DATA, {"shape": (0, -1)}, later={"shape": 1}),
        Node("Reshape", {"data": (0, 3)}, {"shape": (3, 0), "allowzero": 1}, later={"shape": 1}),
        Node("Flatten", {"input": (2, 3, 4)}),
        Node("Flatten", {"input": (2, 3, 4)}, {"axis": 3}),
        Node("Flatten", {"input": (2, 3, 4)}, {"axis": -1}),
        Node("Squeeze", {"data": (1, 3, 1, 2)}, later={"axes": 1}),
        Node("Squeeze", {"data": (1, 3, 1, 2)}, {"axes": (-2,)}, later={"axes": 1}),
        Node("Unsqueeze", {"data": (3, 2)}, {"axes": (0, -1)}, later={"axes": 1}),
        Node("Expand", {"input": (3, 1)}, {"shape": (2, 1, 4)}, later={"shape": 1}),
        Node("Split", {"input": (7, 2)}, {"num_outputs": 3}),
        Node("Split", {"input": (3, 7)}, {"split": (2, 4, 1), "axis": 1}, later={"split": 1}),
        Node("Pad", DATA, {"pads": (0, 1, 2, 1, 0, 3)}, later={"pads": 1}),
        Node(
            "Pad",
            DATA,
            {"pads": (1, 2, 0, 1), "constant_value": 1.5, "axes": (2, 0)},
            later={"pads": 1, "constant_value": 2, "axes": 3},
        ),
        Node("Pad", DATA, {"pads": (0, 1, 2, 0, 2, 1), "mode": "reflect"}, later={"pads": 1}),
        Node("Pad", DATA, {"pads": (0, 1, 2, 0, 0, 1), "mode": "edge"}, later={"pads": 1}),
        Node("Pad", DATA, {"pads": (0, 1, 2, 0, 0, 1), "mode": "wrap"}, later={"pads": 1}),
        Node("Pad", DATA, {"pads": (0, -1, 0, 0, 2, -2)}, later={"pads": 1}),
        Node("Pad", DATA, {"pads": (0, 1, 0, 0, 0, 2)}, later={"pads": 1}, dtypes="int32"),
        Node("Trilu", {"input": (4, 5)}),
        Node("Trilu", {"input": (4, 5)}, {"upper": 0, "k": -1}, later={"k": 1}),
        Node("Gather", {"data": (5, 3), "indices": (2, 4)}, dtypes="float32,int64"),
        Node("Gather", {"data": (5, 3), "indices": (4,)}, {"axis": 1}, dtypes="float32,int32"),
        Node("Gather", {"data": (2, 5, 3), "indices": (2, 4)}, {"axis": -2}, dtypes="int8,int64"),
        Node("Gather", {"data": (5,), "indices": (2, 4)}, dtypes="float32,int64"),
        Node("GatherElements", elements, dtypes="float32,int64", generator=indices),
        Node("GatherElements", {"data": (3, 4), "indices": (3, 2)}, {"axis": 1}, dtypes="float32,int64"),
        Node("ScatterElements", {**elements, "updates": (2, 4)}, {"reduction": "add"}, dtypes="float32,int64,float32"),
    ]


def elementwise() -> list[Node]:
    whole = {"fill": "randint", "low": 1, "high": 9}
    signs = {"fill": "randint", "low": -9, "high": 9}
    pair = {"A": (3, 4), "B": (4,)}
    return [
        Node("Div", pair),
        *(Node("Div", pair, dtypes=name, generator={"A": signs, "B": whole}) for name in ("int32", "int64", "int8")),
        Node("Div", pair, dtypes="uint8", generator={"A": whole, "B": whole}),
        Node("Pow", {"X": (3, 4), "Y": (4,)}, generator={"X": {"fill": "uniform", "low": 0.5, "high": 2.0}}),
        Node("Pow", {"X": (3, 4), "Y": (4,)}, dtypes="float32,int32", generator={"Y": {**whole, "high": 4}}),
        Node("Pow", {"X": (3, 4), "Y": (4,)}, dtypes="int64,int32", generator={"X": whole, "Y": {**whole, "high": 4}}),
        Node("Clip", {"input": (3, 4)}, {"min": -0.5, "max": 0.25}, later={"min": 1, "max": 2}),
        Node("Clip", {"input": (3, 4)}, {"min": 0.5, "max": -0.5}, later={"min": 1, "max": 2}),
        Node("Clip", {"input": (3, 4)}, {"min": -3, "max": 5}, later={"min": 1, "max": 2}, dtypes="int64"),
        Node("Softplus", {"X": (3, 4)}, generator={"X": {"fill": "uniform", "low": -60.0, "high": 60.0}}),
        Node("Mod", {"A": (3, 4), "B": (4,)}, dtypes="int32", generator={"A": "randint", "B": whole}),
        Node("Mod", {"A": (3, 4), "B": (4,)}, {"fmod": 1}, dtypes="int32", generator={"A": "randint", "B": whole}),
        Node("Mod", {"A": (3, 4), "B": (4,)}, {"fmod": 1}),
        Node("Cast", {"input": (3, 4)}, {"to": "float16"}),
        Node("Swish", {"X": (3, 4)}, opset=24),
    ]


NODES = [*reductions(), *windows(), *contractions(), *normalizations(), *movements(), *elementwise()]


def plan_of(node: Node, folder: Path) -> Path:
    entry: dict[str, Any] = {"op": node.op, "shapes": {name: list(shape) for name, shape in node.shapes.items()}}
    entry["dtypes"] = node.dtypes.split(",")
    entry["attributes"] = {name: list(v) if isinstance(v, tuple) else v for name, v in node.attributes.items()}
    if node.generator is not None:
        entry["generator"] = node.generator
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump({"version": 1, "backend": "numpy", "cases": [entry]}), encoding="utf-8")
    return path


def ours(node: Node, case: TestCase) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The inputs in ONNX's order, and what the reference makes of them."""
    inputs, _ = make_inputs(case)
    reference = case.descriptor.reference
    outputs = load_object(reference)(inputs, case.attributes) if isinstance(reference, str) else None
    assert outputs is not None
    rounded = [round_to(each, spec.dtype) for each, spec in zip(outputs, case.outputs, strict=True)]
    order = SPELLINGS[node.op].inputs or range(len(inputs))
    in_order = dict(zip(order, inputs, strict=False))
    return [in_order[place] for place in sorted(in_order)], rounded


def theirs(node: Node, inputs: list[np.ndarray], outputs: int) -> list[np.ndarray]:
    helper = onnx.helper
    attributes = {name: value for name, value in node.attributes.items() if name not in node.later}
    if node.op == "Cast":
        attributes["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(attributes["to"]))
    feeds = dict(zip(node.shapes, inputs, strict=True))
    names = list(feeds)
    for name, place in node.later.items():
        if name not in node.attributes:
            continue
        names += [""] * (place - len(names)) + [name]
        stated = node.attributes[name]
        feeds[name] = np.array(stated, np.float32 if isinstance(stated, float) else np.int64)
    made = helper.make_node(node.op, names, [f"out{index}" for index in range(outputs)], **attributes)
    graph = helper.make_graph(
        [made],
        "one",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ],
        [onnx.ValueInfoProto(name=f"out{index}") for index in range(outputs)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", node.opset)], ir_version=10)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(None, feeds)
    return found


@pytest.mark.parametrize("node", NODES, ids=str)
def test_the_same_is_computed(node: Node, tmp_path: Path) -> None:
    (case,) = cases(plan=str(plan_of(node, tmp_path)))
    assert case.descriptor.name in operators.meanings(node.op)
    inputs, expected = ours(node, case)
    found = theirs(node, inputs, len(expected))
    for one, other in zip(expected, found, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=2e-5, atol=1e-5)


numbers = st.integers(1, 4)
pairs = st.tuples(numbers, numbers)


@st.composite
def walks(draw: st.DrawFn) -> Node:
    """A convolution or pooling with whatever ONNX lets be stated together."""
    op = draw(st.sampled_from(("Conv", "MaxPool", "AveragePool")))
    kernel = draw(pairs)
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": draw(pairs)}
    if draw(st.booleans()):
        attributes["pads"] = tuple(draw(st.integers(0, size - 1)) for size in kernel * 2)
    else:
        attributes["auto_pad"] = draw(st.sampled_from(("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")))
    is_same = attributes.get("auto_pad", "").startswith("SAME")
    if op == "Conv" or (op == "MaxPool" and not is_same):  # of MaxPool with both, ONNX Runtime forgets the dilation
        attributes["dilations"] = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    if op != "Conv":
        attributes["ceil_mode"] = int(draw(st.booleans()))
    if op == "AveragePool":
        attributes["count_include_pad"] = int(draw(st.booleans()))
    shapes = {"X": (1, 2, draw(st.integers(4, 9)), draw(st.integers(4, 9)))}
    return Node(op, shapes | ({"W": (3, 2, *kernel)} if op == "Conv" else {}), attributes)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(node=walks())
def test_windows_go_where_they_go_there(node: Node, tmp_path: Path) -> None:
    try:
        (case,) = cases(plan=str(plan_of(node, tmp_path)))
    except PlanError:
        assume(False)  # a kernel that does not fit, or a SAME that implementations do not agree on
    inputs, expected = ours(node, case)
    try:
        found = theirs(node, inputs, 1)
    except RUNTIME_ERRORS:
        assume(False)  # it refuses dilations beside SAME, and padding as large as a dilated kernel
    assert found[0].shape == expected[0].shape
    np.testing.assert_allclose(expected[0], found[0], rtol=2e-5, atol=1e-5)


def test_every_name_is_asked() -> None:
    assert {node.op for node in NODES} == set(SPELLINGS)


ALIASES = {name: tensors for each in operators for name, tensors in each.alias_tensors.items() if onnx.defs.has(name)}


@pytest.mark.parametrize("name", sorted(ALIASES))
def test_the_tensors_of_an_alias_have_onnxs_names(name: str) -> None:
    """The same names in the same order; of any number of tensors, and of inputs that are attributes here, the first."""
    schema, signature = onnx.defs.get_schema(name), Signature.parse(ALIASES[name])
    formal = [each.name for each in schema.inputs]
    own = [each.name for each in signature.inputs]
    assert own == (["data_0", "data_1"] if formal == ["data_0"] else formal[: len(own)])
    assert list(signature.outputs) == [each.name for each in schema.outputs][: len(signature.outputs)]


def test_every_alias_that_is_one_of_onnxs_operators_has_its_tensors() -> None:
    ours = {each.name for each in onnx.defs.get_all_schemas() if each.domain == ""} & {
        alias for descriptor in operators for alias in descriptor.aliases
    }
    assert ours == set(ALIASES)
