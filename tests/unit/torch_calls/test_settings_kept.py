"""What is set for all of torch stays as it is: a call that changes it decides what others compute."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from texts import says
from torch_kit import case, compiler_that, tensor, verdict

from optest.spec import Fault, Reason, Status
from optest.torch.shared_settings import keep_settings

pytestmark = pytest.mark.torch

ROWS = tensor((3, 40))
NAMES = itertools.count()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda: torch.set_default_dtype(torch.float64),
            "torch.get_default_dtype() was torch.float32, is torch.float64",
        ),
        (lambda: torch.set_default_device("meta"), "torch.get_default_device() was cpu, is meta"),
        (lambda: torch.use_deterministic_algorithms(True), "torch.get_deterministic_debug_mode() was 0, is 2"),
        (lambda: torch.set_num_threads(torch.get_num_threads() + 1), "torch.get_num_threads() was "),
        (lambda: torch.rand(1), "drew random numbers of torch"),
        (lambda: torch.manual_seed(0), "drew random numbers of torch"),
    ],
)
def test_changed_settings_fail_and_are_restored(change: Callable[[], Any], told: str) -> None:
    def changing(_: Any, results: Any) -> Any:
        change()
        return results

    with torch.random.fork_rng(devices=()):
        found = verdict(case("torch.exp(input0)", ROWS), compiler_that(f"optest_changes_{next(NAMES)}", changing))
    assert found.reason is Reason.STATE, found
    assert told in found.message


def test_changed_matmul_precision_fails() -> None:
    """Torch's switch widens the rule of products, and is the user's."""

    def coarse(given: Any, _: Any) -> Any:
        torch.set_float32_matmul_precision("medium")
        return ((given[0].bfloat16() @ given[1].bfloat16()).float(),)

    product = case("torch.matmul(input0, input1)", ROWS, tensor((40, 5)))
    found = verdict(product, compiler_that("optest_coarse", coarse))
    assert found.reason is Reason.STATE, found
    assert says(found.message, "torch_calls.torch_get_float_matmul")


def test_conditionally_random_call_may_draw() -> None:
    """What is above 0 rrelu gives back; a compiler may draw the slopes of the others all the same."""

    def drawing(_: Any, results: Any) -> Any:
        torch.rand(1)
        return results

    positive = case(
        "torch.nn.functional.rrelu(input0, training=True)", tensor((3, 40), fill="uniform", low=0.5, high=1.0)
    )
    with torch.random.fork_rng(devices=()):
        found = verdict(positive, compiler_that("optest_draws_slopes", drawing))
    assert found.status is Status.PASSED, found


def test_a_refusal_is_told_though_settings_were_changed() -> None:
    def refused() -> None:
        with keep_settings("the call"):
            torch.set_default_dtype(torch.float64)
            raise Fault(Reason.UNSUPPORTED, "no kernel")

    with pytest.raises(Fault, match="no kernel"):
        refused()
    assert torch.get_default_dtype() is torch.float32


def test_settings_of_the_user_are_no_fault() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        found = verdict(case("torch.exp(input0)", ROWS), compiler_that("optest_leaves", lambda _, results: results))
    finally:
        torch.use_deterministic_algorithms(False)
    assert found.status is Status.PASSED, found
