"""Operators of torch.ops.aten as compilers and captures at that level call them: several outputs, some left empty."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from texts import says
from torch_kit import Wrong, case, fails, passes, tensor, verdict, zeros

from optest.compare.assert_close import close_tolerance, fitting_tolerance
from optest.operators import operators
from optest.spec import Reason, RuleClass, dtype
from optest.torch.calls.call import torch_call


def rand(*shape: int) -> Any:
    return tensor(shape, fill="uniform", low=0.1, high=1.0)


BATCH_NORM = [tensor((8, 6, 5, 5)), *[rand(6)] * 4]
ROWS = [tensor((8, 60)), *[rand(60)] * 2]
ATTENTION = [*[tensor((2, 7, 16))] * 3, *(tensor(shape) for shape in ((48, 16), 48, (16, 16), 16))]
HEADS = "torch.ops.aten._native_multi_head_attention.default(input0, input1, input2, 16, 4, input3, input4, input5, "


def norm(training: bool, name: str = "native_batch_norm") -> str:
    return f"torch.ops.aten.{name}.default(input0, input1, input2, input3, input4, {training}, 0.1, 1e-05)"


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
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
    passes(case(text, *(tensor(spec.shape, kind, fill.kind, **fill.parameters) for spec, fill in given)))


def test_running_statistics_are_changed_in_training_alone() -> None:
    calls = norm(True), norm(True, "_native_batch_norm_legit"), norm(False)
    assert [torch_call(call).mutates for call in calls] == [(3, 4), (3, 4), ()]


@pytest.mark.parametrize("end", [", need_weights=False)", ")"])
def test_attention_that_leaves_its_weights_out(end: str) -> None:
    passes(case(f"{HEADS}input6{end}", *ATTENTION))


def test_nothing_but_empty_outputs_compares_nothing() -> None:
    fails(case("torch.ops.aten.slice.Tensor(input0, 1, 4)", rand(1, 4)), reason=Reason.NOTHING_COMPARED)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_the_largest_numbers_are_those_of_the_dtype(kind: str) -> None:
    """In float64 they would be others."""
    infinite = tensor(3, kind, "data", values=["inf", "-inf", 0.5])
    passes(case("torch.nan_to_num(input0, nan=0.1)", infinite))


def test_further_output_may_be_empty() -> None:
    asked = case(norm(False), *BATCH_NORM)
    found = verdict(asked)
    assert [measure.compared for measure in found.measures] == [1200, 0, 0]
    assert "output1: empty, 0" in found.message
    only_first = Wrong(lambda outputs: [outputs[0], *(np.zeros((3,), other.dtype) for other in outputs[1:])])
    fails(asked, only_first, reason=Reason.SHAPE)


@pytest.mark.parametrize(
    "text",
    [
        "torch.ops.aten.scalar_tensor.default(1e-08)",
        "torch.tensor(1e-08)",
        "torch.full([3], 1e-08)",
        "torch.ops.aten.full.default([3], 1e-08, dtype=torch.float16)",
    ],
)
def test_constant_tensor_has_exact_result(text: str) -> None:
    descriptor = operators.get(text.partition("(")[0])
    assert descriptor.rule.kind is RuleClass.EXACT
    passes(case(text))


CONVOLVED = [tensor((2, 32, 16, 16)), tensor((8, 32, 3, 3))]
ABOVE = [tensor((2, 8, 16, 16)), *CONVOLVED]
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
    found = passes(case(text, *given))
    assert {measure.rule.name for measure in found.measures if measure.rule and measure.compared} == {"accumulate"}
    fails(case(text, *given), zeros())


def test_small_results_are_looked_at() -> None:
    """torch.testing's atol of 1e-5 would let zeros pass."""
    asked = case("torch.special.i1(input0)", tensor(40, fill="uniform", low=1e-9, high=1e-8))
    fails(asked, zeros())
    rule = passes(asked).measures[0].rule
    assert rule is not None
    assert says(rule.text, "torch_calls.or_zeros_would_pass")


def test_fitted_tolerance_keeps_torch_default_against_zeros() -> None:
    single = dtype("float32")
    for values in (np.array([1.0, 1e-9]), np.zeros(3), None):
        assert fitting_tolerance(single, values) == close_tolerance(single)
    assert fitting_tolerance(single, np.array([1e-6, -2e-6])) == (1.3e-6, 1.3e-6 * 2e-6)
