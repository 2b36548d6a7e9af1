"""Calls of torch judged by the rules of the catalogue: bound by the names that torch gives its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch_kit
from texts import says
from torch_kit import Answering, Outputs, Wrong, passes, separates, tensor

from optest.operators import operators
from optest.spec import RuleClass, TestCase
from optest.torch.calls.binding import CannotBind, bind_call

ROWS = (4, 33)
HEADS = (1, 2, 7, 16)
ATTENTION = "torch.nn.functional.scaled_dot_product_attention(input0, input1, input2, is_causal=True, scale=0.125)"


def case(text: str, *shapes: tuple[int, ...], of: str = "bfloat16", fill: str = "randn") -> TestCase:
    return torch_kit.case(text, *(tensor(shape, of, fill) for shape in shapes))


@pytest.mark.parametrize("of", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("text", "shapes", "rule"),
    [
        ("torch.softmax(input0, -1)", [ROWS], "composed"),
        ("torch.nn.functional.softmax(input0, dim=-1)", [ROWS], "composed"),
        ("torch.ops.aten.softmax.int(input0, -1)", [ROWS], "composed"),
        ("torch.nn.functional.softmax(input0, dim=-1, dtype=torch.float64)", [ROWS], "composed"),
        ("torch.nn.functional.gelu(input0, approximate='tanh')", [ROWS], "ulp"),
        ("torch.sum(input0, -1, keepdim=True)", [ROWS], "accumulate"),
        ("torch.Tensor.sum(input0, 1)", [ROWS], "accumulate"),
        ("torch.sum(input0)", [ROWS], "accumulate"),
        ("torch.mean(input0, dim=1)", [ROWS], "accumulate"),
        ("torch.nn.functional.layer_norm(input0, [33], input1, input2, 1e-05)", [ROWS, (33,), (33,)], "composed"),
        ("torch.rms_norm(input0, (33,), input1, 1e-06)", [ROWS, (33,)], "composed"),
        ("torch.add(input0, input1)", [ROWS, ROWS], "ulp"),
        ("torch.mul(input0, 12.0)", [ROWS], "ulp"),
        ("torch.max(input0, dim=1)", [ROWS], "exact"),
        ("torch.clamp(input0, min=None, max=0.5)", [ROWS], "exact"),
        ("torch.topk(input0, 4, dim=-1)", [ROWS], "movement"),
        ("torch.cumsum(input0, 1)", [ROWS], "accumulate"),
        (ATTENTION, [HEADS, HEADS, HEADS], "composed"),
        ("torch.nn.functional.max_pool2d(input0, 2)", [(1, 3, 8, 8)], "exact"),
        ("torch.Tensor.__add__(input0, input1)", [ROWS, ROWS], "ulp"),
        ("torch.add_(input0, input1)", [ROWS, ROWS], "ulp"),
    ],
)
def test_call_without_tolerance_uses_operator_rule(
    text: str, shapes: list[tuple[int, ...]], rule: str, of: str
) -> None:
    found = passes(case(text, *shapes, of=of))
    assert found.measures[0].rule.name == rule


def test_the_rule_is_sharper_than_any_flat_tolerance() -> None:
    asked = case("torch.softmax(input0, -1)", ROWS, of="float32")
    separates(asked, Wrong(lambda outputs: [outputs[0] * np.float32(1 + 1e-4)]))


def test_another_place_of_a_tie_is_as_right() -> None:
    def last(outputs: Outputs, inputs: Sequence[Any]) -> Outputs:
        return [outputs[0], inputs[0].shape[1] - 1 - inputs[0][:, ::-1].argmax(1, keepdims=True)]

    asked = case("torch.topk(input0, 1, dim=1)", (3, 5), of="float32", fill="ones")
    passes(asked, Answering(last))


def test_arguments_are_bound_by_torch_names() -> None:
    left, right = np.ones((2, 3), np.float32), np.full((2, 3), 2.0, np.float32)
    found = bind_call(operators.get("add"), "torch.add(input1, other=input0, alpha=3)", [left, right])
    assert [array is wanted for array, wanted in zip(found.inputs, [right, left], strict=True)] == [True, True]
    assert found.attributes["alpha"] == 3
    found = bind_call(operators.get("layer_norm"), "torch.nn.functional.layer_norm(input0, [3], eps=1e-3)", [left])
    assert found.inputs[1:] == [None, None]
    assert (found.attributes["normalized_shape"], found.attributes["eps"]) == ((3,), 1e-3)


def test_unknown_catalogue_argument_is_not_bound() -> None:
    with pytest.raises(CannotBind, match="has no dim"):
        bind_call(operators.get("rms_norm"), "torch.sum(input0, dim=3)", [np.ones(3, np.float32)])
    found = passes(case("torch.softmax(input0, -1, dtype=torch.float16)", ROWS, of="float32"))
    assert says(str(found.measures[0]), "torch_calls.the_catalogue_rule_cannot")


def test_in_place_operator_uses_same_rule() -> None:
    assert operators.get("torch.add_").rule == operators.get("add").rule
    rule = operators.get("torch.Tensor.sigmoid_").rule
    assert rule is not None
    assert rule.kind is RuleClass.ULP
