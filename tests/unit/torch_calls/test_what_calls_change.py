"""Calls that change more than they return: running statistics and clipped weights are outputs, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_kit import Wrong, by, case, element, tensor, verdict

from optest.operators import operators
from optest.spec import Reason, Status, TestCase, Tolerance
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


STATED = Tolerance(rtol=1e-5, atol=1e-6)
ROWS = [tensor((6, 5)), *[tensor(5, fill="uniform", low=0.5, high=2.0)] * 2]
TRAINED = f"{NORM}, training=True, momentum=0.3)"


def test_running_statistics_are_judged() -> None:
    found = verdict(case(TRAINED, *ROWS, stated=STATED))
    assert found.status is Status.PASSED, found
    assert [each.output for each in found.measures] == ["output0", "input1 afterwards", "input2 afterwards"]


@pytest.mark.parametrize("stated", [STATED, None], ids=["stated", "not-stated"])
def test_running_statistics_that_stay_are_found(stated: Tolerance | None) -> None:
    class Forgetful(TorchBackend):
        """Torch that leaves the running variance as it was."""

        def run(self, case: TestCase, inputs: Any) -> Any:
            first, mean, _ = super().run(case, inputs)
            return [first, mean, np.array(inputs[2])]

    found = verdict(case(TRAINED, *ROWS, stated=stated), Forgetful())
    assert found.reason is Reason.VALUE
    assert "input2 afterwards" in found.message


def test_running_statistics_have_a_rule_of_their_own_where_nothing_is_stated() -> None:
    found = verdict(case(f"{NORM}, training=True)", *ROWS))
    assert found.status is Status.PASSED, found


@pytest.mark.parametrize("name", ["double", "to"])
def test_what_is_made_float64_is_float64(name: str) -> None:
    text = "torch.Tensor.double(input0)" if name == "double" else "torch.Tensor.to(input0, torch.float64)"
    assert verdict(case(text, *ROWS[:1])).status is Status.PASSED


@pytest.mark.parametrize("name", ["torch.linalg.norm", "torch.masked.norm"])
def test_another_operator_of_the_same_name_has_no_rule_of_the_catalogue(name: str) -> None:
    rule = operators.get(name).rule
    assert rule is not None
    assert rule != operators.get("norm").rule
    assert operators.get("torch.norm").rule == operators.get("norm").rule


# ``embedding`` with ``max_norm`` clips rows of its weight before it takes them: what it computes is not exact.

CLIPPED = "torch.nn.functional.embedding(input0, input1, max_norm=1.0)"
PLACES = tensor(20, "int64", "data", values=[0, 1, 2, 3] * 5)


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("grad", [False, True])
def test_clipped_rows_are_right_to_within_a_rounding(kind: str, grad: bool) -> None:
    of = case(CLIPPED, PLACES, tensor((6, 16), kind), grad=grad)
    found = verdict(of)
    assert found.status is Status.PASSED, found
    assert [each.output for each in found.measures][:2] == ["output0", "input1 afterwards"]

    def next_value(outputs: list[Any]) -> list[Any]:
        return [outputs[0] * (1 + np.finfo(np.float32).eps).astype(outputs[0].dtype), *outputs[1:]]

    if kind == "float32" and not grad:
        assert verdict(of, Wrong(next_value)).status is Status.PASSED


EMBEDDED = case(CLIPPED, PLACES, tensor((6, 16)))


@pytest.mark.parametrize("output", [0, 1])
def test_a_wrong_element_of_what_is_returned_or_changed_is_found(output: int) -> None:
    found = verdict(EMBEDDED, element(7, lambda value: value * np.float32(1.001), output))
    assert (found.reason, found.message.partition(":")[0]) == (Reason.VALUE, ["output0", "input1 afterwards"][output])


def test_a_weight_that_stays_or_is_clipped_where_nothing_is_taken_is_found() -> None:
    assert verdict(EMBEDDED, Wrong(lambda outputs: [outputs[0], outputs[1] * np.float32(2)])).reason is Reason.VALUE
    assert verdict(EMBEDDED, element(4 * 16 + 3, lambda value: value * np.float32(0.5), 1)).reason is Reason.VALUE


def test_it_is_compiled_too() -> None:
    found = verdict(EMBEDDED, by("aot_eager"))
    assert found.status is Status.PASSED, found
