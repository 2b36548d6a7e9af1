"""ONNX's names in plans: they accept ONNX's attributes and become cases of the catalogue's operators."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from texts import refusal, says_exactly

from optest.api import cases
from optest.core.expected import make_inputs
from optest.errors import PlanError, UsageError
from optest.operators import OperatorRegistry, operators
from optest.plan.expectations import read_expectations
from optest.plan.explain import explain_case
from optest.spec import OperatorDescriptor, TestCase


def case_of(op: str, shapes: Mapping[str, str], *attributes: str, dtype: str = "float32") -> TestCase:
    flags = [f"{name}={shape}" for name, shape in shapes.items()]
    (case,) = cases(op=(op,), shape=flags, attr=attributes, dtype=dtype)
    return case


def values_of(case: TestCase, *names: str) -> list[Any]:
    return [case.attributes[name] for name in names]


@pytest.mark.parametrize(("rank", "name"), [(1, "conv1d"), (2, "conv2d"), (3, "conv3d")])
def test_conv_is_selected_by_weight_rank(rank: int, name: str) -> None:
    shapes = {"X": "x".join(["1", "2", *["5"] * rank]), "W": "x".join(["3", "2", *["2"] * rank])}
    assert case_of("Conv", shapes).descriptor.name == name


def test_symmetric_padding_has_one_number_per_dimension() -> None:
    shapes = {"X": "1x2x8x8", "W": "3x2x3x3"}
    assert values_of(case_of("Conv", shapes, "pads=[1,0,1,0]"), "padding") == [(1, 0)]
    assert values_of(case_of("Conv", shapes, "pads=[1,0,0,2]"), "padding") == [(1, 0, 0, 2)]


def test_defaults_are_those_of_onnx() -> None:
    pooled = case_of("AveragePool", {"X": "1x2x8x8"}, "kernel_shape=[3,2]")
    assert values_of(pooled, "stride", "count_include_pad") == [(1, 1), False]
    assert values_of(case_of("ReduceSum", {"data": "2x3"}), "dim", "keepdim") == [None, True]
    assert values_of(case_of("ArgMax", {"data": "2x3"}), "dim", "keepdim") == [0, True]
    assert values_of(case_of("Transpose", {"data": "2x3x4"}), "dims") == [(2, 1, 0)]
    assert values_of(case_of("RMSNormalization", {"X": "2x3"}), "normalized_shape", "eps") == [(3,), 1e-5]


def test_inputs_are_reordered() -> None:
    case = case_of("BatchNormalization", {"X": "2x3x4", "scale": "3", "B": "3", "input_mean": "3", "input_var": "3"})
    assert [each.name for each in case.inputs] == ["input", "running_mean", "running_var", "weight", "bias"]
    assert [each.path for each in case.inputs] == [f"input{index}" for index in range(5)]


def test_fills_and_dtypes_follow_their_tensors(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        """
version: 1
cases:
  - op: BatchNormalization
    shapes: {X: [2, 3, 4], scale: [3], B: [3], input_mean: [3], input_var: [3]}
    dtypes: {X: float16, scale: float32, B: float32, input_mean: float32, input_var: float32}
    generator: {X: ones, input3: zeros, running_var: uniform}
    tolerance: {Y: {rtol: 0.5}}
""",
        encoding="utf-8",
    )
    (case,) = cases(plan=str(plan))
    assert [each.fill.kind for each in case.inputs] == ["ones", "zeros", "uniform", "randn", "randn"]
    assert [each.spec.dtype.name for each in case.inputs] == ["float16", *["float32"] * 4]
    assert [layer.output for layer in case.tolerances] == ["output0"]


def test_case_equals_that_of_operator_name() -> None:
    by_onnx = case_of("ReduceMean", {"data": "4x5"}, "axes=[1]", "keepdims=0")
    by_operator = case_of("mean", {"input": "4x5"}, "dim=[1]")
    assert (by_onnx.key, by_onnx.id) == (by_operator.key, by_operator.id)


def origins_of(case: TestCase) -> dict[str, str]:
    return {name: origin for name, _, origin in explain_case(case)}


def test_explain_names_onnx_attribute_of_value() -> None:
    case = case_of("Conv", {"X": "1x2x8x8", "W": "3x2x3x3"}, "auto_pad=SAME_UPPER", "group=1", "strides=[1,1]")
    origins = origins_of(case)
    assert says_exactly(origins["op"], "operators.command_line_as_conv")
    assert says_exactly(origins["padding"], "operators.auto_pad_of_conv")
    assert says_exactly(origins["stride"], "operators.strides_of_conv_command")
    assert says_exactly(origins["groups"], "operators.group_of_conv_command")
    assert origins["dilation"] == origins["out_dtype"] == "default of Conv"


def test_explain_names_lines_of_plan(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        """version: 1
cases:
  - op: Pad
    shapes: {data: [2, 3]}
    attributes: {pads: [0, 1, 0, 1]}
""",
        encoding="utf-8",
    )
    origins = origins_of(cases(plan=str(plan))[0])
    assert says_exactly(origins["pad"], "operators.pads_of_pad", plan=plan)
    assert origins["mode"] == "default of Pad"


def test_integer_exact_fill_depends_on_sum_length() -> None:
    flags = {"shape": ["X=1x2x8x8", "W=3x2x3x3"], "attr": ["pads=[1,0,0,2]"], "generator": "integer-exact"}
    (by_onnx,) = cases(op=("Conv",), **flags)
    (by_operator,) = cases(
        op=("conv2d",), **{**flags, "shape": ["input=1x2x8x8", "weight=3x2x3x3"], "attr": ["padding=1x0x0x2"]}
    )
    assert by_onnx.inputs == by_operator.inputs


REFUSED = [
    ("Conv", {"X": "1x2x8", "W": "3x2x3x3"}, (), "X is 1x2x8, expected 4 dimensions"),
    ("Conv", {"X": "1x2x8x8", "W": "3x2x3x3"}, ("kernel_shape=[2,2]",), "kernel_shape is [2, 2], expected [3, 3]"),
    ("Conv", {"X": "1x2x8x8", "W": "3x2x3x3"}, ("pads=[1,1]",), "pads is [1, 1], expected 4 numbers"),
    ("Conv", {"X": "1x2x8x8", "W": "3x2x3x3"}, ("pads=[1,1,1,1]", "auto_pad=VALID"), "expected no pads with auto_pad"),
    ("Conv", {"X": "1x2x8x8", "W": "3x2x3x3"}, ("auto_pad=same",), "expected one of 'NOTSET'"),
    ("Conv", {"X": "1x2x8x8", "W": "3x2x3x3"}, ("padding=same",), "expected a list of integers"),
    ("MaxPool", {"X": "1x2x8"}, ("kernel_shape=[3]",), "X is 1x2x8, expected 4 dimensions"),
    ("MaxPool", {"X": "1x2x8x8"}, ("kernel_shape=[3,3]", "storage_order=1"), "storage_order is 1, expected 0"),
    ("MaxPool", {"X": "1x2x8x8"}, ("kernel_shape=[3,3]", "pads=[3,0,0,0]"), "expected numbers below kernel_size"),
    (
        "AveragePool",
        {"X": "1x2x9x9"},
        ("kernel_shape=[1,1]", "strides=[3,3]", "auto_pad=SAME_LOWER"),
        "implementations",
    ),
    ("AveragePool", {"X": "1x2x8x8"}, ("kernel_shape=[3,3]", "dilations=[2,1]"), "dilations is (2, 1), expected"),
    ("BatchNormalization", {"X": "2x3", "scale": "3", "B": "3"}, (), "needs a shape of input3 (input_mean)"),
    ("ReduceMax", {"data": "2x3"}, ("noop_with_empty_axes=1",), "op: clone"),
    ("ArgMin", {"data": "2x3"}, ("select_last_index=1",), "select_last_index is 1"),
    ("Gather", {"data": "2x3x4", "indices": "scalar"}, (), "indices is a scalar"),
    ("Gather", {"data": "2x3", "indices": "2"}, ("axis=2",), "axis is 2, expected -2 to 1"),
    ("ScatterElements", {"data": "2x3", "indices": "2x3", "updates": "2x3"}, (), "reduction is 'none'"),
    ("Split", {"input": "7"}, (), "split and num_outputs are missing"),
    ("Split", {"input": "7"}, ("num_outputs=0",), "num_outputs is 0"),
    ("Squeeze", {"data": "2x1"}, ("axes=[0]",), "expected dimensions of size 1 in 2x1"),
    ("Unsqueeze", {"data": "2x1"}, ("axes=[0,0]",), "expected each axis once"),
    ("Flatten", {"input": "2x3"}, ("axis=3",), "axis is 3, expected -2 to 2"),
    ("Reshape", {"data": "6"}, ("shape=[2,3,0]",), "zeros only at the 1 dimensions of data"),
    ("Pad", {"data": "2x3"}, ("pads=[1,1]",), "pads is [1, 1], expected 4 numbers"),
    ("Attention", {"Q": "1x2x3x8", "K": "1x2x3x8", "V": "1x2x3x8"}, ("softcap=2.0",), "softcap is 2.0"),
    ("Swish", {"X": "3"}, ("alpha=2.0",), "alpha is 2.0, expected 1.0"),
    ("ReduceMean", {"data": "2x3"}, ("axess=[0]",), "did you mean axes?"),
    ("InstanceNormalization", {"input": "5", "scale": "5", "B": "5"}, (), "expected 2 dimensions or more"),
    ("RMSNormalization", {"X": "scalar", "scale": "scalar"}, (), "X is scalar, expected a dimension or more"),
    ("Squeeze", {"data": "scalar"}, ("axes=[0]",), "axes is 0, expected an input with dimensions"),
    ("Squeeze", {"data": "1x3"}, ("axes=[]",), "axes is [], expected dimensions"),
    ("Squeeze", {"data": "1x3"}, ("axes=[-1]",), "axes is [-1], expected dimensions of size 1 in 1x3"),
    ("Expand", {"input": "1"}, ("shape=[-1]",), "shape is [-1], expected numbers of 0 or more"),
    ("Clip", {"input": "3"}, (), "op: clone"),
    ("ReduceMean", {"data": "2x0"}, ("axes=[1]",), "data is 2x0, expected elements to reduce"),
    (
        "MaxPool",
        {"X": "1x1x3x1"},
        ("kernel_shape=[1,2]", "dilations=[1,2]", "pads=[0,1,0,1]"),
        "dilations is [1, 2], expected dilations with an element of X",
    ),
    ("Mod", {"A": "3", "B": "3"}, (), "fmod is 0, expected 1"),
    (
        "Attention",
        {"Q": "1x2x3x8", "K": "1x2x5x8", "V": "1x2x5x8", "attn_mask": "3x1"},
        (),
        "attn_mask is 3x1, expected a last size of 5",
    ),
    ("Attention", {"Q": "1x2x3x8", "K": "1x2x3x8", "V": "1x2x3x8"}, ("scale=-1.0",), "scale is -1.0, expected 0"),
    ("Conv", {"X": "1x2x8x8", "W": "3x2x3x3", "B": "5"}, (), "as conv2d: bias is 5, expected 3"),
    ("ReduceSum", {"data": "2x3"}, ("axes=[2]",), "as sum: dim is 2"),
]


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceProd"])
def test_integers_keep_their_dtype(op: str) -> None:
    assert [each.dtype.name for each in case_of(op, {"data": "2x3"}, dtype="int32").outputs] == ["int32"]


OF_DTYPES = [
    ("Clip", {"input": "3"}, ("min=1.5",), "int32", "min is 1.5, expected an integer"),
    ("Clip", {"input": "3"}, ("max=9007199254740994",), "int64", "max is 9007199254740994, expected an integer"),
    (
        "Pad",
        {"data": "3"},
        ("pads=[0,1]", "constant_value=1.5"),
        "int32",
        "constant_value is 1.5, expected an integer",
    ),
    ("Pad", {"data": "3"}, ("pads=[0,1]", "constant_value=3"), "bool", "constant_value is 3, expected 0 or 1"),
    ("Div", {"A": "3", "B": "3"}, (), "bool", "ONNX has no Div of bool"),
    ("Pow", {"X": "3", "Y": "3"}, (), "int32,float32", "Pow of int32 and float32 returns int32 in ONNX"),
    ("Pow", {"X": "3", "Y": "3"}, (), "float16,float32", "Pow of float16 and float32 returns float16 in ONNX"),
    ("RMSNormalization", {"X": "2x3", "scale": "3"}, (), "float16,float32", "in ONNX Y is float32, as scale"),
    ("ReduceSum", {"data": "3"}, (), "bool", "ONNX has no ReduceSum of bool"),
    ("ReduceProd", {"data": "3"}, (), "bool", "ONNX has no ReduceProd of bool"),
    ("CumSum", {"x": "3"}, ("axis=0",), "bool", "ONNX has no CumSum of bool"),
]


OF_FLOAT32 = [(*row[:3], "float32", row[3]) for row in REFUSED]


@pytest.mark.parametrize(("op", "shapes", "attributes", "dtype", "message"), [*OF_FLOAT32, *OF_DTYPES])
def test_unsupported_onnx_arguments_are_refused(
    op: str, shapes: Mapping[str, str], attributes: tuple[str, ...], dtype: str, message: str
) -> None:
    with pytest.raises(PlanError) as caught:
        case_of(op, shapes, *attributes, dtype=dtype)
    assert message in str(caught.value)


def test_softplus_threshold_is_invisible_in_float64() -> None:
    assert values_of(case_of("Softplus", {"X": "3"}), "threshold") == [40.0]


def test_training_batch_norm_is_refused() -> None:
    shapes = {"X": "2x3x4", "scale": "3", "B": "3", "input_mean": "3", "input_var": "3"}
    with refusal(PlanError, "operators.training_mode_is_but"):
        case_of("BatchNormalization", shapes, "training_mode=1")


PLAN = """
version: 1
cases:
  - op: Conv
    product: {shapes: [{X: [1, 2, 5], W: [3, 2, 2]}, {X: [1, 2, 5, 5], W: [3, 2, 2, 2]}], dtypes: [float32, float64]}
  - {op: conv2d, shapes: {input: [1, 1, 4, 4], weight: [1, 1, 2, 2]}}
"""


@pytest.mark.parametrize(
    ("selected", "names"),
    [
        ("conv2d", ["conv2d"] * 3),
        ("conv1d", ["conv1d"] * 2),
        ("Conv", ["conv1d"] * 2 + ["conv2d"] * 3),
    ],
)
def test_spelling_selects_all_its_operators(selected: str, names: list[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN, encoding="utf-8")
    assert sorted(each.descriptor.name for each in cases(plan=str(plan), op=(selected,))) == names


def test_expected_error_requires_operator_name(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "version: 1\ncases:\n"
        "  - {op: Conv, shapes: {X: [1, 2, 5], W: [3, 2, 2, 2]}, expects_error: {type: RuntimeError}}\n",
        encoding="utf-8",
    )
    with refusal(PlanError, "operators.is_tested_with_op"):
        cases(plan=str(plan))


def test_expectation_refuses_ambiguous_spelling(tmp_path: Path) -> None:
    path = tmp_path / "expected.yaml"
    line = "  - {op: NAME, dtype: float16, reason: VALUE, why: rounded twice}\n"
    path.write_text("version: 1\nexpected:\n" + line.replace("NAME", "MaxPool"), encoding="utf-8")
    assert [each.op for each in read_expectations(path, operators=operators).lines] == ["max_pool2d"]
    path.write_text("version: 1\nexpected:\n" + line.replace("NAME", "Conv"), encoding="utf-8")
    with refusal(PlanError, "operators.conv_means_conv_or"):
        read_expectations(path, operators=operators)


def test_spelling_returns_most_common_operator() -> None:
    assert operators.get("Conv") is operators.get("conv2d")
    assert operators.meanings("Conv") == ("conv2d", "conv1d", "conv3d")
    assert operators.meanings("Softmax") == ("softmax",)
    assert "Conv" in operators.other_names(operators.get("conv1d"))


def test_registered_operator_overrides_spelling() -> None:
    registry = OperatorRegistry("optest.operators.catalogue:DESCRIPTORS", spellings="optest.operators.onnx:SPELLINGS")
    mine = registry.register(OperatorDescriptor(name="RMSNormalization"))
    assert registry.get("RMSNormalization") is mine
    assert registry.spelling("RMSNormalization") is None
    assert "RMSNormalization" not in registry.other_names(registry.get("rms_norm"))
    with pytest.raises(UsageError):
        registry.register(OperatorDescriptor(name="RMSNormalization"))


@pytest.mark.parametrize("pair", [("strides=[1,1]", "stride=[1,1]"), ("stride=[1,1]", "strides=[1,1]")])
def test_attribute_under_two_names_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(PlanError, match=r"set twice, also as stride$"):
        case_of("Conv", {"X": "1x2x8x8", "W": "3x2x3x3"}, *pair)


@pytest.mark.parametrize("name", sorted(name for each in operators for name in each.alias_tensors))
def test_alias_accepts_onnx_tensor_names(name: str) -> None:
    # Each tensor has the same position under the names of ONNX and of the operator.
    by_operator, other = operators.get(name).tensors, operators.get(name).tensors_under(name)
    assert other is not None
    assert name in operators.get(name).aliases
    assert [(each.optional, each.variadic) for each in other.inputs] == [
        (each.optional, each.variadic) for each in by_operator.inputs
    ]
    assert len(other.outputs) == len(by_operator.outputs)
    for tensor in {*by_operator.tensor_names()} & {*other.tensor_names()}:
        assert by_operator.locate(tensor) == other.locate(tensor)


def test_plan_accepts_tensor_names_of_alias(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        """
version: 1
cases:
  - op: Gemm
    dtypes: {B: float64, A: float64, c: float64}
    shapes: {B: [5, 3], A: [4, 5], C: [3]}
    attributes: {transB: 0}
    generator: {A: {fill: full, value: 2}, input1: {fill: full, value: 3}, C: {fill: full, value: 1}}
    tolerance: {Y: {atol: 0.5}}
""",
        encoding="utf-8",
    )
    (case,) = cases(plan=str(plan))
    assert [each.spec.shape for each in case.inputs] == [(4, 5), (5, 3), (3,)]
    inputs, _ = make_inputs(case)
    assert [float(each.flat[0]) for each in inputs] == [2.0, 3.0, 1.0]


@pytest.mark.parametrize(("name", "known"), [("Z", "known: A, B, C, "), ("a", "did you mean A")])
def test_unknown_alias_tensor_lists_onnx_names(name: str, known: str) -> None:
    with pytest.raises(PlanError, match=known):
        case_of("Add", {name: "2x3", "B": "3"})


def test_registered_operator_keeps_its_tensor_names() -> None:
    registry = OperatorRegistry("optest.operators.catalogue:DESCRIPTORS")
    assert str(registry.get("Add").tensors_under("Add")) == "A, B -> C"
    registry.register(OperatorDescriptor(name="Add", signature="x, y -> z"), replace=True)
    assert registry.get("Add").tensors_under("Add") is None
