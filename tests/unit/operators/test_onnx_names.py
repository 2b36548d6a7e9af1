"""ONNX's names in plans: read with ONNX's attributes, and become cases of the catalogue's operators."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from texts import refusal, says_exactly

from optest.api import cases
from optest.core.inputs import make_inputs
from optest.errors import PlanError, UsageError
from optest.operators import OperatorRegistry, operators
from optest.plan.expectations import read_expectations
from optest.plan.explain import explain_case
from optest.spec import OperatorDescriptor, TestCase


def case(op: str, shapes: Mapping[str, str], *attributes: str, dtype: str = "float32") -> TestCase:
    flags = [f"{name}={shape}" for name, shape in shapes.items()]
    (made,) = cases(op=(op,), shape=flags, attr=attributes, dtype=dtype)
    return made


def stated(made: TestCase, *names: str) -> list[Any]:
    return [made.attributes[name] for name in names]


@pytest.mark.parametrize(("rank", "name"), [(1, "conv1d"), (2, "conv2d"), (3, "conv3d")])
def test_conv_goes_by_the_dimensions_of_its_weight(rank: int, name: str) -> None:
    shapes = {"X": "x".join(["1", "2", *["5"] * rank]), "W": "x".join(["3", "2", *["2"] * rank])}
    assert case("Conv", shapes).descriptor.name == name


def test_padding_is_the_operators_own_where_both_sides_are_alike() -> None:
    shapes = {"X": "1x2x8x8", "W": "3x2x3x3"}
    assert stated(case("Conv", shapes, "pads=[1,0,1,0]"), "padding") == [(1, 0)]
    assert stated(case("Conv", shapes, "pads=[1,0,0,2]"), "padding") == [(1, 0, 0, 2)]


def test_defaults_are_those_of_onnx() -> None:
    pooled = case("AveragePool", {"X": "1x2x8x8"}, "kernel_shape=[3,2]")
    assert stated(pooled, "stride", "count_include_pad") == [(1, 1), False]
    assert stated(case("ReduceSum", {"data": "2x3"}), "dim", "keepdim") == [None, True]
    assert stated(case("ArgMax", {"data": "2x3"}), "dim", "keepdim") == [0, True]
    assert stated(case("Transpose", {"data": "2x3x4"}), "dims") == [(2, 1, 0)]
    assert stated(case("RMSNormalization", {"X": "2x3"}), "normalized_shape", "eps") == [(3,), 1e-5]


def test_inputs_go_to_their_places() -> None:
    made = case("BatchNormalization", {"X": "2x3x4", "scale": "3", "B": "3", "input_mean": "3", "input_var": "3"})
    assert [each.name for each in made.inputs] == ["input", "running_mean", "running_var", "weight", "bias"]
    assert [each.path for each in made.inputs] == [f"input{index}" for index in range(5)]


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
    (made,) = cases(plan=str(plan))
    assert [each.fill.kind for each in made.inputs] == ["ones", "zeros", "uniform", "randn", "randn"]
    assert [each.spec.dtype.name for each in made.inputs] == ["float16", *["float32"] * 4]
    assert [layer.output for layer in made.tolerances] == ["output0"]


def test_a_case_is_that_of_the_operators_own_name() -> None:
    theirs = case("ReduceMean", {"data": "4x5"}, "axes=[1]", "keepdims=0")
    own = case("mean", {"input": "4x5"}, "dim=[1]")
    assert (theirs.key, theirs.id) == (own.key, own.id)


def origins(made: TestCase) -> dict[str, str]:
    return {what: origin for what, _, origin in explain_case(made)}


def test_explain_says_which_of_onnxs_attributes_made_one() -> None:
    made = case("Conv", {"X": "1x2x8x8", "W": "3x2x3x3"}, "auto_pad=SAME_UPPER", "group=1", "strides=[1,1]")
    told = origins(made)
    assert says_exactly(told["op"], "operators.command_line_as_conv")
    assert says_exactly(told["padding"], "operators.auto_pad_of_conv")
    assert says_exactly(told["stride"], "operators.strides_of_conv_command")
    assert says_exactly(told["groups"], "operators.group_of_conv_command")
    assert told["dilation"] == told["out_dtype"] == "default of Conv"


def test_explain_names_the_lines_of_a_plan(tmp_path: Path) -> None:
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
    told = origins(cases(plan=str(plan))[0])
    assert says_exactly(told["pad"], "operators.pads_of_pad", plan=plan)
    assert told["mode"] == "default of Pad"


def test_an_integer_exact_fill_knows_the_length_of_the_sums() -> None:
    flags = {"shape": ["X=1x2x8x8", "W=3x2x3x3"], "attr": ["pads=[1,0,0,2]"], "generator": "integer-exact"}
    (theirs,) = cases(op=("Conv",), **flags)
    (own,) = cases(
        op=("conv2d",), **{**flags, "shape": ["input=1x2x8x8", "weight=3x2x3x3"], "attr": ["padding=1x0x0x2"]}
    )
    assert theirs.inputs == own.inputs


REFUSED = [
    ("Conv", {"X": "1x2x8", "W": "3x2x3x3"}, (), "X is 1x2x8, but should have 4 dimensions"),
    ("Conv", {"X": "1x2x8x8", "W": "3x2x3x3"}, ("kernel_shape=[2,2]",), "kernel_shape is [2, 2], but W has 3x3"),
    ("Conv", {"X": "1x2x8x8", "W": "3x2x3x3"}, ("pads=[1,1]",), "pads is [1, 1], but should be 4 numbers"),
    ("Conv", {"X": "1x2x8x8", "W": "3x2x3x3"}, ("pads=[1,1,1,1]", "auto_pad=VALID"), "should be left out"),
    ("Conv", {"X": "1x2x8x8", "W": "3x2x3x3"}, ("auto_pad=same",), "should be one of 'NOTSET'"),
    ("Conv", {"X": "1x2x8x8", "W": "3x2x3x3"}, ("padding=same",), "should be a list of integers"),
    ("MaxPool", {"X": "1x2x8"}, ("kernel_shape=[3]",), "X is 1x2x8, but should have 4 dimensions"),
    ("MaxPool", {"X": "1x2x8x8"}, ("kernel_shape=[3,3]", "storage_order=1"), "storage_order is 1, but should be 0"),
    ("MaxPool", {"X": "1x2x8x8"}, ("kernel_shape=[3,3]", "pads=[3,0,0,0]"), "should be below kernel_size"),
    (
        "AveragePool",
        {"X": "1x2x9x9"},
        ("kernel_shape=[1,1]", "strides=[3,3]", "auto_pad=SAME_LOWER"),
        "implementations",
    ),
    ("AveragePool", {"X": "1x2x8x8"}, ("kernel_shape=[3,3]", "dilations=[2,1]"), "avg_pool2d has none"),
    ("BatchNormalization", {"X": "2x3", "scale": "3", "B": "3"}, (), "needs a shape of input3 (input_mean)"),
    ("ReduceMax", {"data": "2x3"}, ("noop_with_empty_axes=1",), "op: clone"),
    ("ArgMin", {"data": "2x3"}, ("select_last_index=1",), "select_last_index is 1"),
    ("Gather", {"data": "2x3x4", "indices": "scalar"}, (), "indices is a scalar"),
    ("Gather", {"data": "2x3", "indices": "2"}, ("axis=2",), "axis is 2, but should be from -2 to 1"),
    ("ScatterElements", {"data": "2x3", "indices": "2x3", "updates": "2x3"}, (), "reduction is 'none'"),
    ("Split", {"input": "7"}, (), "either split or num_outputs should be stated"),
    ("Split", {"input": "7"}, ("num_outputs=0",), "num_outputs is 0"),
    ("Squeeze", {"data": "2x1"}, ("axes=[0]",), "should name sizes of 1 in 2x1"),
    ("Unsqueeze", {"data": "2x1"}, ("axes=[0,0]",), "should name each axis once"),
    ("Flatten", {"input": "2x3"}, ("axis=3",), "axis is 3, but should be from -2 to 2"),
    ("Reshape", {"data": "6"}, ("shape=[2,3,0]",), "has no size for each 0"),
    ("Pad", {"data": "2x3"}, ("pads=[1,1]",), "pads is [1, 1], but should be 4 numbers"),
    ("Attention", {"Q": "1x2x3x8", "K": "1x2x3x8", "V": "1x2x3x8"}, ("softcap=2.0",), "softcap is 2.0"),
    ("Swish", {"X": "3"}, ("alpha=2.0",), "silu has no other factor"),
    ("ReduceMean", {"data": "2x3"}, ("axess=[0]",), "did you mean axes?"),
    (
        "InstanceNormalization",
        {"input": "5", "scale": "5", "B": "5"},
        (),
        "input is 5, but should have 2 dimensions or more",
    ),
    ("RMSNormalization", {"X": "scalar", "scale": "scalar"}, (), "X is scalar, but should have a dimension or more"),
    ("Squeeze", {"data": "scalar"}, ("axes=[0]",), "axes is 0, but the input is a scalar"),
    ("Squeeze", {"data": "1x3"}, ("axes=[]",), "axes is [], but should name dimensions or be left out"),
    ("Squeeze", {"data": "1x3"}, ("axes=[-1]",), "axes is [-1], but should name sizes of 1 in 1x3"),
    ("Expand", {"input": "1"}, ("shape=[-1]",), "shape is [-1], but should be numbers of 0 or more"),
    ("Clip", {"input": "3"}, (), "op: clone"),
    ("ReduceMean", {"data": "2x0"}, ("axes=[1]",), "ONNX leaves the mean of none undefined"),
    (
        "MaxPool",
        {"X": "1x1x3x1"},
        ("kernel_shape=[1,2]", "dilations=[1,2]", "pads=[0,1,0,1]"),
        "dilations is [1, 2], but should let every window see an element",
    ),
    ("Mod", {"A": "3", "B": "3"}, (), "fmod is 0, but should be 1"),
    (
        "Attention",
        {"Q": "1x2x3x8", "K": "1x2x5x8", "V": "1x2x5x8", "attn_mask": "3x1"},
        (),
        "attn_mask is 3x1, but should end with 5",
    ),
    ("Attention", {"Q": "1x2x3x8", "K": "1x2x3x8", "V": "1x2x3x8"}, ("scale=-1.0",), "scale is -1.0, but should be 0"),
    ("Conv", {"X": "1x2x8x8", "W": "3x2x3x3", "B": "5"}, (), "as conv2d: bias is 5, but should be 3"),
    ("ReduceSum", {"data": "2x3"}, ("axes=[2]",), "as sum: dim is 2"),
]


@pytest.mark.parametrize(("op", "shapes", "attributes", "said"), REFUSED)
def test_what_no_operator_can_do_is_refused(
    op: str, shapes: Mapping[str, str], attributes: tuple[str, ...], said: str
) -> None:
    with pytest.raises(PlanError) as caught:
        case(op, shapes, *attributes)
    assert said in str(caught.value)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceProd"])
def test_integers_keep_their_dtype(op: str) -> None:
    assert [each.dtype.name for each in case(op, {"data": "2x3"}, dtype="int32").outputs] == ["int32"]


OF_DTYPES = [
    ("Clip", {"input": "3"}, ("min=1.5",), "int32", "min is 1.5, but should be a whole number"),
    ("Clip", {"input": "3"}, ("max=9007199254740994",), "int64", "max is 9007199254740994, but should be a whole"),
    (
        "Pad",
        {"data": "3"},
        ("pads=[0,1]", "constant_value=1.5"),
        "int32",
        "constant_value is 1.5, but should be a whole",
    ),
    ("Pad", {"data": "3"}, ("pads=[0,1]", "constant_value=3"), "bool", "constant_value is 3, but should be 0 or 1"),
    ("Div", {"A": "3", "B": "3"}, (), "bool", "ONNX has no Div of bool"),
    ("Pow", {"X": "3", "Y": "3"}, (), "int32,float32", "Pow of int32 and float32 gives int32 in ONNX"),
    ("Pow", {"X": "3", "Y": "3"}, (), "float16,float32", "Pow of float16 and float32 gives float16 in ONNX"),
    ("RMSNormalization", {"X": "2x3", "scale": "3"}, (), "float16,float32", "in ONNX Y is float32, as scale"),
    ("ReduceSum", {"data": "3"}, (), "bool", "ONNX has no ReduceSum of bool"),
    ("ReduceProd", {"data": "3"}, (), "bool", "ONNX has no ReduceProd of bool"),
    ("CumSum", {"x": "3"}, ("axis=0",), "bool", "ONNX has no CumSum of bool"),
]


@pytest.mark.parametrize(("op", "shapes", "attributes", "dtype", "said"), OF_DTYPES)
def test_dtypes_of_which_onnx_means_something_else_are_refused(
    op: str, shapes: Mapping[str, str], attributes: tuple[str, ...], dtype: str, said: str
) -> None:
    with pytest.raises(PlanError) as caught:
        case(op, shapes, *attributes, dtype=dtype)
    assert said in str(caught.value)


def test_softplus_has_no_threshold_that_float64_would_show() -> None:
    assert stated(case("Softplus", {"X": "3"}), "threshold") == [40.0]


def test_batch_norm_of_training_is_refused() -> None:
    shapes = {"X": "2x3x4", "scale": "3", "B": "3", "input_mean": "3", "input_var": "3"}
    with refusal(PlanError, "operators.training_mode_is_but"):
        case("BatchNormalization", shapes, "training_mode=1")


PLAN = """
version: 1
cases:
  - op: Conv
    product: {shapes: [{X: [1, 2, 5], W: [3, 2, 2]}, {X: [1, 2, 5, 5], W: [3, 2, 2, 2]}], dtypes: [float32, float64]}
  - {op: conv2d, shapes: {input: [1, 1, 4, 4], weight: [1, 1, 2, 2]}}
"""


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("conv2d", ["conv2d"] * 3),
        ("conv1d", ["conv1d"] * 2),
        ("Conv", ["conv1d"] * 2 + ["conv2d"] * 3),
    ],
)
def test_operators_are_selected_by_what_a_name_means(asked: str, found: list[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN, encoding="utf-8")
    assert sorted(each.descriptor.name for each in cases(plan=str(plan), op=(asked,))) == found


def test_an_expected_error_has_to_be_asked_under_the_own_name(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "version: 1\ncases:\n"
        "  - {op: Conv, shapes: {X: [1, 2, 5], W: [3, 2, 2, 2]}, expects_error: {type: RuntimeError}}\n",
        encoding="utf-8",
    )
    with refusal(PlanError, "operators.is_tested_with_op"):
        cases(plan=str(plan))


def test_an_expectation_is_of_one_operator(tmp_path: Path) -> None:
    path = tmp_path / "expected.yaml"
    line = "  - {op: NAME, dtype: float16, reason: VALUE, why: rounded twice}\n"
    path.write_text("version: 1\nexpected:\n" + line.replace("NAME", "MaxPool"), encoding="utf-8")
    assert [each.op for each in read_expectations(path, operators=operators).lines] == ["max_pool2d"]
    path.write_text("version: 1\nexpected:\n" + line.replace("NAME", "Conv"), encoding="utf-8")
    with refusal(PlanError, "operators.conv_means_conv_or"):
        read_expectations(path, operators=operators)


def test_a_name_gives_the_operator_that_it_most_often_means() -> None:
    assert operators.get("Conv") is operators.get("conv2d")
    assert operators.meanings("Conv") == ("conv2d", "conv1d", "conv3d")
    assert operators.meanings("Softmax") == ("softmax",)
    assert "Conv" in operators.other_names(operators.get("conv1d"))


def test_an_own_operator_may_have_one_of_the_names() -> None:
    registry = OperatorRegistry("optest.operators.catalogue:DESCRIPTORS", spellings="optest.operators.onnx:SPELLINGS")
    mine = registry.register(OperatorDescriptor(name="RMSNormalization"))
    assert registry.get("RMSNormalization") is mine
    assert registry.spelling("RMSNormalization") is None
    assert "RMSNormalization" not in registry.other_names(registry.get("rms_norm"))
    with pytest.raises(UsageError):
        registry.register(OperatorDescriptor(name="RMSNormalization"))


@pytest.mark.parametrize("pair", [("strides=[1,1]", "stride=[1,1]"), ("stride=[1,1]", "strides=[1,1]")])
def test_an_attribute_under_both_of_its_names_is_told_by_the_other(pair: tuple[str, str]) -> None:
    with pytest.raises(PlanError, match=r"stated twice, also as stride$"):
        case("Conv", {"X": "1x2x8x8", "W": "3x2x3x3"}, *pair)


@pytest.mark.parametrize("name", sorted(name for each in operators for name in each.alias_tensors))
def test_an_alias_takes_onnxs_names_of_the_tensors(name: str) -> None:
    """And those of the operator: each tensor has the same place under both, and as many there are."""
    own, other = operators.get(name).tensors, operators.get(name).tensors_under(name)
    assert other is not None
    assert name in operators.get(name).aliases
    assert [(each.optional, each.variadic) for each in other.inputs] == [
        (each.optional, each.variadic) for each in own.inputs
    ]
    assert len(other.outputs) == len(own.outputs)
    for tensor in {*own.tensor_names()} & {*other.tensor_names()}:
        assert own.locate(tensor) == other.locate(tensor)


def test_tensors_of_an_alias_in_a_plan(tmp_path: Path) -> None:
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
    (made,) = cases(plan=str(plan))
    assert [each.spec.shape for each in made.inputs] == [(4, 5), (5, 3), (3,)]
    inputs, _ = make_inputs(made)
    assert [float(each.flat[0]) for each in inputs] == [2.0, 3.0, 1.0]


@pytest.mark.parametrize(("name", "known"), [("Z", "known: A, B, C, "), ("a", "did you mean A")])
def test_an_unknown_tensor_of_an_alias_is_told_onnxs_names(name: str, known: str) -> None:
    with pytest.raises(PlanError, match=known):
        case("Add", {name: "2x3", "B": "3"})


def test_an_own_operator_of_such_a_name_keeps_its_tensors() -> None:
    registry = OperatorRegistry("optest.operators.catalogue:DESCRIPTORS")
    assert str(registry.get("Add").tensors_under("Add")) == "A, B -> C"
    registry.register(OperatorDescriptor(name="Add", signature="x, y -> z"), replace=True)
    assert registry.get("Add").tensors_under("Add") is None
