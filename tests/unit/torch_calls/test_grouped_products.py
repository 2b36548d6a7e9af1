"""Products of groups, which torch has in no float64: their truth is known all the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch_kit import case, tensor, verdict  # noqa: E402

from optest.core.runner import execute  # noqa: E402
from optest.spec import Reason, Status, TestCase, Verdict  # noqa: E402
from optest.torch.eager import TorchBackend  # noqa: E402

pytestmark = pytest.mark.torch

ROWS, LONG = 8, 4096
A, B = tensor((ROWS, LONG)), tensor((3, LONG, 16))
ENDS = tensor(3, "int32", "data", values=[2, 2, ROWS])
NAMES = ["torch.nn.functional.grouped_mm", "torch._grouped_mm", "torch.ops.aten._grouped_mm.default"]


class Exact(TorchBackend):
    """Adds up in float64; ``harm`` is added to one element."""

    def __init__(self, harm: float = 0.0) -> None:
        super().__init__()
        self._harm = harm

    def run(self, case: TestCase, inputs: Sequence[Any]) -> Sequence[Any]:
        (made,) = super().run(case, inputs)
        one, other, ends = [np.asarray(each, dtype=np.float64) for each in inputs]
        begins = [0, *ends[:-1]]
        parts = [one[int(b) : int(e)] @ other[g] for g, (b, e) in enumerate(zip(begins, ends, strict=True))]
        found = np.concatenate(parts).astype(made.dtype)
        found[1, 1] += self._harm
        return [found]


def judged(asked: TestCase, driver: TorchBackend) -> Verdict:
    return execute([asked], driver).verdicts[0]


@pytest.mark.parametrize("name", NAMES)
def test_an_exact_sum_is_right_and_one_that_lost_a_term_is_not(name: str) -> None:
    asked = case(f"{name}(input0, input1, offs=input2)", A, B, ENDS)
    assert judged(asked, TorchBackend()).status is Status.PASSED
    assert judged(asked, Exact()).status is Status.PASSED
    assert judged(asked, Exact(harm=0.25)).status is Status.FAILED


@pytest.mark.parametrize(
    ("shapes", "ends"),
    [
        (((3, 4, 8), (3, 8, 4)), None),
        (((3, 4, 8), (8, 12)), [4, 8, 12]),
        (((4, 12), (12, 8)), [4, 4, 12]),
        (((12, 8), (3, 8, 4)), [4, 8, 12]),
    ],
)
def test_each_way_to_group_passes_against_itself_backward_too(shapes: Any, ends: list[int] | None) -> None:
    operands = [tensor(shape) for shape in shapes]
    offsets = [tensor(3, "int32", "data", values=ends)] if ends else []
    text = f"torch._grouped_mm(input0, input1{', input2' if ends else ''})"
    for more in ({}, {"grad": True}):
        found = verdict(case(text, *operands, *offsets, **more))
        assert found.status is Status.PASSED, found


@pytest.mark.parametrize(("ends", "reason"), [([2, 4, 6], Reason.UNSUPPORTED), ([4, 2, ROWS], Reason.BAD_CASE)])
def test_rows_of_no_group_have_no_right_answer(ends: list[int], reason: Reason) -> None:
    asked = case("torch._grouped_mm(input0, input1, input2)", A, B, tensor(3, "int32", "data", values=ends))
    assert judged(asked, TorchBackend()).reason is reason


def test_a_bias_which_torch_refuses_has_no_right_answer() -> None:
    asked = case("torch._grouped_mm(input0, input1, input2, input3)", A, B, ENDS, tensor((3, 16)))
    assert judged(asked, TorchBackend()).reason in {Reason.UNSUPPORTED, Reason.REFERENCE_FAILED}
