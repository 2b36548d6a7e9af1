"""Calls that change more than they return: running statistics and clipped weights are outputs, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from optest.core.runner import execute
from optest.operators import operators
from optest.spec import (
    Argument,
    Fill,
    Layer,
    Reason,
    Status,
    TensorSpec,
    TestCase,
    Tolerance,
    ToleranceLayer,
    Verdict,
    dtype,
)
from optest.torch.calls.call import torch_call
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch

NORM = "torch.nn.functional.batch_norm(input0, input1, input2"


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        (f"{NORM})", ()),
        (f"{NORM}, training=True)", (1, 2)),
        (f"{NORM}, input3, input4, True, 0.5, 1e-05)", (1, 2)),
        (f"{NORM}, training=False)", ()),
        ("torch.nn.functional.batch_norm(input0, None, None, training=True)", ()),
        ("torch.native_batch_norm(input0, input1, input2, input3, input4, True, 0.5, 0.1)", (3, 4)),
        ("torch.nn.functional.instance_norm(input0, input1, input2)", (1, 2)),
        ("torch.nn.functional.instance_norm(input0, input1, input2, use_input_stats=False)", ()),
        ("torch.nn.functional.embedding(input0, input1)", ()),
        ("torch.nn.functional.embedding(input0, input1, max_norm=1.0)", (1,)),
        ("torch.nn.functional.embedding_bag(input0, input1, max_norm=1.0)", (1,)),
    ],
)
def test_inputs_that_are_changed_where_the_call_asks_for_it(text: str, changed: tuple[int, ...]) -> None:
    assert torch_call(text).mutates == changed


STATED = (ToleranceLayer(layer=Layer.CASE, tolerance=Tolerance(rtol=1e-5, atol=1e-6)),)


def verdict(
    text: str,
    kinds: list[tuple[str, tuple[int, ...], Fill]],
    driver: TorchBackend | None = None,
    tolerances: tuple[ToleranceLayer, ...] = STATED,
) -> Verdict:
    inputs = tuple(
        Argument(name=f"input{index}", path=f"input{index}", spec=TensorSpec(dtype=dtype(kind), shape=shape), fill=fill)
        for index, (kind, shape, fill) in enumerate(kinds)
    )
    case = TestCase(
        descriptor=operators.get(text.partition("(")[0]),
        inputs=inputs,
        attributes={"call": text},
        tolerances=tolerances,
    )
    return execute([case], driver or TorchBackend()).verdicts[0]


ROWS = [
    ("float32", (6, 5), Fill(kind="randn")),
    *[("float32", (5,), Fill(kind="uniform", parameters={"low": 0.5, "high": 2.0}))] * 2,
]


def test_running_statistics_are_judged() -> None:
    found = verdict(f"{NORM}, training=True, momentum=0.3)", ROWS)
    assert found.status is Status.PASSED, found
    assert [each.output for each in found.measures] == ["output0", "input1 afterwards", "input2 afterwards"]


class Forgetful(TorchBackend):
    """Torch that leaves the running variance as it was."""

    def run(self, case: TestCase, inputs: Any) -> Any:
        first, mean, _ = super().run(case, inputs)
        return [first, mean, np.array(inputs[2])]


@pytest.mark.parametrize("tolerances", [STATED, ()], ids=["stated", "not-stated"])
def test_running_statistics_that_stay_are_found(tolerances: tuple[ToleranceLayer, ...]) -> None:
    found = verdict(f"{NORM}, training=True, momentum=0.3)", ROWS, Forgetful(), tolerances)
    assert found.reason is Reason.VALUE
    assert "input2 afterwards" in found.message


def test_running_statistics_have_a_rule_of_their_own_where_nothing_is_stated() -> None:
    found = verdict(f"{NORM}, training=True)", ROWS, tolerances=())
    assert found.status is Status.PASSED, found


@pytest.mark.parametrize("name", ["double", "to"])
def test_what_is_made_float64_is_float64(name: str) -> None:
    text = "torch.Tensor.double(input0)" if name == "double" else "torch.Tensor.to(input0, torch.float64)"
    assert verdict(text, ROWS[:1]).status is Status.PASSED


@pytest.mark.parametrize("name", ["torch.linalg.norm", "torch.masked.norm"])
def test_another_operator_of_the_same_name_has_no_rule_of_the_catalogue(name: str) -> None:
    rule = operators.get(name).rule
    assert rule is not None
    assert rule != operators.get("norm").rule
    assert operators.get("torch.norm").rule == operators.get("norm").rule
