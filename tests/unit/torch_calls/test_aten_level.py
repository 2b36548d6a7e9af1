"""Operators of torch.ops.aten as compilers and captures at that level call them: several outputs, some left empty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optest.compare.assert_close import close_tolerance, fitting_tolerance
from optest.core.runner import execute
from optest.operators import operators
from optest.spec import Argument, Fill, Reason, RuleClass, Status, TensorSpec, TestCase, Verdict, dtype
from optest.torch.calls.call import torch_call
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch

RAND = Fill(kind="uniform", parameters={"low": 0.1, "high": 1.0})
BATCH_NORM = [((8, 6, 5, 5), Fill(kind="randn")), *[((6,), RAND)] * 4]
ROWS = [((8, 60), Fill(kind="randn")), *[((60,), RAND)] * 2]
ATTENTION = [
    *[((2, 7, 16), Fill(kind="randn"))] * 3,
    ((48, 16), Fill(kind="randn")),
    ((48,), Fill(kind="randn")),
    ((16, 16), Fill(kind="randn")),
    ((16,), Fill(kind="randn")),
]
HEADS = "torch.ops.aten._native_multi_head_attention.default(input0, input1, input2, 16, 4, input3, input4, input5, "


def case(text: str, given: list[tuple[tuple[int, ...], Fill]], kind: str = "float32") -> TestCase:
    return TestCase(
        descriptor=operators.get(text.partition("(")[0]),
        inputs=tuple(
            Argument(
                name=f"input{index}", path=f"input{index}", spec=TensorSpec(dtype=dtype(kind), shape=shape), fill=fill
            )
            for index, (shape, fill) in enumerate(given)
        ),
        attributes={"call": text},
    )


def verdict(asked: TestCase, driver: TorchBackend | None = None) -> Verdict:
    return execute([asked], driver or TorchBackend()).verdicts[0]


def norm(training: bool, name: str = "native_batch_norm") -> str:
    return f"torch.ops.aten.{name}.default(input0, input1, input2, input3, input4, {training}, 0.1, 1e-05)"


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("text", "given"),
    [
        (norm(True), BATCH_NORM),
        (norm(False), BATCH_NORM),
        (norm(True, "_native_batch_norm_legit"), BATCH_NORM),
        ("torch.ops.aten.native_layer_norm.default(input0, [60], input1, input2, 1e-05)", ROWS),
        ("torch.ops.aten.native_group_norm.default(input0, None, None, 8, 6, 25, 2, 1e-05)", BATCH_NORM[:1]),
    ],
)
def test_norms_with_their_statistics(text: str, given: list[Any], kind: str) -> None:
    found = verdict(case(text, given, kind))
    assert found.status is Status.PASSED, found.message


def test_running_statistics_are_changed_in_training_alone() -> None:
    assert torch_call(norm(True)).mutates == (3, 4)
    assert torch_call(norm(True, "_native_batch_norm_legit")).mutates == (3, 4)
    assert torch_call(norm(False)).mutates == ()


def test_attention_that_leaves_its_weights_out() -> None:
    assert verdict(case(f"{HEADS}input6, need_weights=False)", ATTENTION)).status is Status.PASSED
    assert verdict(case(f"{HEADS}input6)", ATTENTION)).status is Status.PASSED


class OnlyFirst(TorchBackend):
    """Torch whose first output is all that is right."""

    def run(self, case: TestCase, inputs: Any) -> Any:
        first, *others = super().run(case, inputs)
        return [first, *(np.zeros((3,), each.dtype) for each in others)]


def test_an_output_beside_others_is_left_empty_and_nothing_else() -> None:
    asked = case(norm(False), BATCH_NORM)
    found = verdict(asked)
    assert [measure.compared for measure in found.measures] == [1200, 0, 0]
    assert "output1: empty, 0" in found.message
    assert verdict(asked, OnlyFirst()).reason is Reason.SHAPE


def test_nothing_but_empty_outputs_compares_nothing() -> None:
    asked = case("torch.ops.aten.slice.Tensor(input0, 1, 4)", [((1, 4), RAND)])
    assert verdict(asked).reason is Reason.NOTHING_COMPARED


@pytest.mark.parametrize(
    "text",
    [
        "torch.ops.aten.scalar_tensor.default(1e-08)",
        "torch.tensor(1e-08)",
        "torch.full([3], 1e-08)",
        "torch.ops.aten.full.default([3], 1e-08, dtype=torch.float16)",
    ],
)
def test_a_tensor_of_one_number_has_one_right_answer(text: str) -> None:
    descriptor = operators.get(text.partition("(")[0])
    assert descriptor.rule is not None
    assert descriptor.rule.kind is RuleClass.EXACT
    assert verdict(case(text, [])).status is Status.PASSED


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_the_largest_numbers_are_those_of_the_dtype(kind: str) -> None:
    """In float64 they would be others."""
    infinite = [((3,), Fill(kind="data", parameters={"values": ["inf", "-inf", 0.5]}))]
    found = verdict(case("torch.nan_to_num(input0, nan=0.1)", infinite, kind))
    assert found.status is Status.PASSED, found.message


CONVOLVED = [((2, 32, 16, 16), Fill(kind="randn")), ((8, 32, 3, 3), Fill(kind="randn"))]
ABOVE = [((2, 8, 16, 16), Fill(kind="randn")), *CONVOLVED]
FORWARD = "torch.ops.aten.convolution.default(input0, input1, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)"
BACKWARD = (
    "torch.ops.aten.convolution_backward.default("
    "input0, input1, input2, [8], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, "
)


@pytest.mark.parametrize(
    ("text", "given"),
    [(FORWARD, CONVOLVED), (f"{BACKWARD}[True, True, True])", ABOVE), (f"{BACKWARD}[False, True, False])", ABOVE)],
)
def test_convolutions_are_judged_by_the_rule_for_sums(text: str, given: list[Any]) -> None:
    """torch.testing's default is too narrow for sums of 512 products: torch failed it itself."""
    found = verdict(case(text, given))
    assert found.status is Status.PASSED, found.message
    assert {measure.rule.name for measure in found.measures if measure.rule and measure.compared} == {"accumulate"}
    assert verdict(case(text, given), Zeros()).reason is Reason.VALUE


class Zeros(TorchBackend):
    def run(self, case: TestCase, inputs: Any) -> Any:
        return [np.zeros_like(each) for each in super().run(case, inputs)]


def test_small_results_are_looked_at() -> None:
    """torch.testing's atol of 1e-5 would let zeros pass."""
    tiny = [((40,), Fill(kind="uniform", parameters={"low": 1e-9, "high": 1e-8}))]
    asked = case("torch.special.i1(input0)", tiny)
    assert verdict(asked).status is Status.PASSED
    assert verdict(asked, Zeros()).reason is Reason.VALUE
    rule = verdict(asked).measures[0].rule
    assert rule is not None
    assert "or zeros would pass" in rule.text


def test_the_fitting_tolerance_is_torchs_own_wherever_that_sees_zeros() -> None:
    single = dtype("float32")
    assert fitting_tolerance(single, np.array([1.0, 1e-9])) == close_tolerance(single)
    assert fitting_tolerance(single, np.zeros(3)) == close_tolerance(single)
    assert fitting_tolerance(single, None) == close_tolerance(single)
    assert fitting_tolerance(single, np.array([1e-6, -2e-6])) == (1.3e-6, 1.3e-6 * 2e-6)
