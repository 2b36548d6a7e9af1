"""Positions that are written out in a call are looked at before it is made."""

from __future__ import annotations

import pytest
from torch_kit import case, tensor, verdict

from optest.core.runner import why_not_run
from optest.spec import ExpectedError, Reason, Status
from optest.torch.calls.indices import literals_of
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch

ROWS = tensor((4, 6))
WRONG = [
    "torch.getitem(input0, 4)",
    "torch.getitem(input0, -5)",
    "torch.getitem(input0, (0, 6))",
    "torch.getitem(input0, (..., 6))",
    "torch.getitem(input0, (None, 1, -7))",
    "torch.getitem(input0, [0, 4])",
    "torch.getitem(input0, (slice(None), [0, 6]))",
    "torch.Tensor.__getitem__(input0, 4)",
    "torch.setitem(input0, 9, 0.0)",
    "torch.select(input0, 0, 9)",
    "torch.select(input0, dim=-1, index=6)",
    "torch.ops.aten.select.int(input0, 1, -7)",
]
RIGHT = [
    "torch.getitem(input0, 3)",
    "torch.getitem(input0, -4)",
    "torch.getitem(input0, (3, 5))",
    "torch.getitem(input0, (..., -6))",
    "torch.getitem(input0, (None, 3, None, 5))",
    "torch.getitem(input0, [0, 3])",
    "torch.getitem(input0, (0, [[0, 3], [1, 2]]))",
    "torch.getitem(input0, (slice(0, 99, 1), [0, 5]))",
    "torch.getitem(input0, (slice(0, 99, None), 5))",
    "torch.getitem(input0, True)",
    "torch.getitem(input0, (True, 3))",
    "torch.setitem(input0, (3, 5), 0.0)",
    "torch.select(input0, 0, 3)",
]


@pytest.mark.parametrize("text", WRONG)
def test_a_position_beyond_the_end_is_told_before_the_call(text: str) -> None:
    found = why_not_run(case(text, ROWS), TorchBackend())
    assert found is not None
    assert (found.reason, "the call states the position" in found.message) == (Reason.BAD_CASE, True)


@pytest.mark.parametrize("text", RIGHT)
def test_a_position_within_is_none_of_its_business(text: str) -> None:
    of = case(text, ROWS)
    assert why_not_run(of, TorchBackend()) is None
    assert verdict(of).status is Status.PASSED


def test_a_call_that_should_be_refused_for_it_is_run() -> None:
    of = case("torch.getitem(input0, 4)", ROWS, expects_error=ExpectedError(type="IndexError", match="index 4"))
    assert why_not_run(of, TorchBackend()) is None
    assert verdict(of).status is Status.PASSED


def test_what_is_no_subscript_of_a_tensor_holds_none() -> None:
    assert literals_of("torch.getitem([input0, input0], 7)", [ROWS[0]]) == []
    assert literals_of("torch.add(input0, 99)", [ROWS[0]]) == []
    assert literals_of("torch.getitem(input0)", [ROWS[0]]) == []
