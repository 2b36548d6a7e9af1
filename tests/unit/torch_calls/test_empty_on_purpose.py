"""Calls whose results have no elements: meant where an input is stated so, else nothing was compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from torch_kit import Wrong, case, tensor, verdict

from optest.spec import Reason, Status, TestCase

RELU = "torch.nn.functional.relu(input0)"
EMPTY = tensor((0, 4))


@pytest.mark.parametrize(
    ("asked", "note"),
    [
        (case(RELU, EMPTY), "output0: empty as input0 is, 0x4"),
        (case("torch.matmul(input0, input1)", tensor((2, 4)), tensor((4, 0))), "output0: empty as input1 is, 2x0"),
        (case("torch.cat([input0, input1])", EMPTY, EMPTY), "output0: empty as input0 is, 0x4"),
        (case("torch.add_(input0, 1)", EMPTY), "output0: empty as input0 is, 0x4; output1: empty as input0 is, 0x4"),
        (case("torch.split(input0, 1, 1)", tensor((0, 1))), "output0: empty as input0 is, 0x1"),
        (
            case("torch.index_select(input0, 0, input1)", tensor(3), tensor(0, "int64")),
            "output0: empty as input1 is, 0",
        ),
    ],
)
def test_explicit_empty_input_is_accepted(asked: TestCase, note: str) -> None:
    found = verdict(asked)
    assert (found.status, found.message) == (Status.PASSED, note)
    assert {measure.compared for measure in found.measures} == {0}


def test_its_gradients_are_judged_beside_it() -> None:
    found = verdict(case("torch.matmul(input0, input1)", EMPTY, tensor((4, 3)), grad=True))
    assert found.status is Status.PASSED
    assert {measure.output: measure.compared for measure in found.measures} == {
        "output0": 0,
        "grad.exists": 2,
        "grad.input0": 0,
        "grad.input1": 12,
    }


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (np.zeros((0, 5), np.float32), Reason.SHAPE),
        (np.zeros((4, 0), np.float32), Reason.SHAPE),
        (np.zeros((1, 4), np.float32), Reason.SHAPE),
        (np.zeros((0, 4), np.float16), Reason.DTYPE),
        (None, Reason.MISSING_OUTPUT),
    ],
)
def test_what_can_be_told_of_it_is(answer: Any, reason: Reason) -> None:
    assert verdict(case(RELU, EMPTY), Wrong(lambda _: [] if answer is None else [answer])).reason is reason


@pytest.mark.parametrize(
    "asked",
    [
        case("torch.getitem(input0, slice(4, None, None))", tensor((4, 4))),
        case("torch.nonzero(input0)", tensor(4, fill="zeros")),
        case("torch.zeros(0)"),
    ],
)
def test_a_result_that_is_empty_otherwise_compares_nothing(asked: TestCase) -> None:
    assert verdict(asked).reason is Reason.NOTHING_COMPARED
