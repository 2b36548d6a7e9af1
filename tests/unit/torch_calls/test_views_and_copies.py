"""Results that are views have to be, and results with memory of their own must not share it."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch_kit import by, case, compiler_that, tensor, verdict

from optest.spec import Reason, Status

pytestmark = pytest.mark.torch

ROWS = tensor((4, 6))
NAMES = itertools.count()
VIEWS = [
    "torch.transpose(input0, 0, 1)",
    "torch.view(input0, [6, 4])",
    "torch.getitem(input0, (0, slice(1, 3)))",
    "torch.unbind(input0)",
    "torch.chunk(input0, 2)",
    "torch.expand(input0, [2, 4, 6])",
    "torch.ops.aten.permute.default(input0, [1, 0])",
    "torch.Tensor.__getitem__(input0, 1)",
]
MAY_COPY = ["torch.reshape(input0, [6, 4])", "torch.contiguous(input0)", "torch.flatten(input0)"]


@pytest.mark.parametrize("text", VIEWS)
def test_a_copy_is_no_view(text: str) -> None:
    of = case(text, ROWS)
    assert verdict(of).status is Status.PASSED
    assert verdict(of, by("aot_eager")).status is Status.PASSED
    copies = compiler_that(f"optest_copies_{next(NAMES)}", lambda _, results: [each.clone() for each in results])
    found = verdict(of, copies)
    assert (found.reason, "should be a view of input0" in found.message) == (Reason.STATE, True)


@pytest.mark.parametrize("text", ["torch.getitem(input0, [0, 2])", "torch.nn.functional.unfold(input1, 2)"])
def test_what_is_no_view_on_the_cpu_may_be_a_copy(text: str) -> None:
    assert verdict(case(text, ROWS, tensor((1, 1, 4, 4)))).status is Status.PASSED


@pytest.mark.parametrize("text", MAY_COPY)
def test_what_may_copy_may(text: str) -> None:
    copies = compiler_that(f"optest_may_copy_{next(NAMES)}", lambda _, results: [each.clone() for each in results])
    assert verdict(case(text, ROWS), copies).status is Status.PASSED


def test_two_results_have_memory_of_their_own_each() -> None:
    """Of ones the smallest is the largest, so that no value shows it."""
    of = case("torch.aminmax(input0)", tensor((4, 6), fill="ones"))
    assert verdict(of).status is Status.PASSED
    found = verdict(of, compiler_that("optest_one_for_two", lambda _, results: [results[0], results[0]]))
    assert (found.reason, "output0 and output1 are the same memory" in found.message) == (Reason.STATE, True)


def test_views_of_one_input_share_its_memory() -> None:
    assert verdict(case("torch.chunk(input0, 2)", ROWS)).status is Status.PASSED
    assert verdict(case("torch.broadcast_tensors(input0, input0)", ROWS)).status is Status.PASSED


def test_the_sign_of_a_zero_is_what_copysign_is_about() -> None:
    signs = [tensor(3, "float32", "data", values=values) for values in ([0.0, 1.0, 2.0], [-1.0, -1.0, 1.0])]
    of = case("torch.copysign(input0, input1)", *signs)
    assert verdict(of).status is Status.PASSED
    assert verdict(of, by("aot_eager")).status is Status.PASSED
    driver = compiler_that("optest_zero_sign", lambda _, results: tuple(each + 0.0 for each in results))
    assert verdict(of, driver).reason is Reason.VALUE
    assert verdict(case("torch.copysign(input0, input1)", tensor(9), tensor(9), grad=True)).status is Status.PASSED
    assert verdict(case("torch.copysign(input0, -1)", tensor(9, "int64", "randint", low=-5, high=5))).status is (
        Status.PASSED
    )


@pytest.mark.parametrize("dim", [0, -1])
def test_results_may_be_parts_of_one_block(dim: int) -> None:
    """One behind the other, or one among the other: what is written into one of them changes no other."""
    together = compiler_that(f"optest_block_{dim + 1}", lambda _, results: torch.stack(results, dim).unbind(dim))
    assert verdict(case("torch.var_mean(input0, 1)", ROWS), together).status is Status.PASSED
