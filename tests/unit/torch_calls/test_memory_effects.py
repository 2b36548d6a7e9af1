"""Results that should be views, or have memory of their own, and their strides."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch_kit import by, case, compiler_that, tensor, verdict

from optest.core.results import result_of
from optest.spec import CheckState, Reason, Status, Verdict
from optest.torch.cases import STRIDES, other_strides
from optest.torch.eager import TorchBackend

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


IMAGES = tensor((2, 4, 5, 6), strides=(120, 1, 24, 4))


def told(found: Verdict) -> list[str]:
    return [check.detail for check in found.checks if check.name == STRIDES and check.state is CheckState.NOTE]


def loses_layout(name: str) -> TorchBackend:
    return compiler_that(name, lambda _, results: tuple(each.contiguous() for each in results))


def test_a_lost_memory_format_is_told() -> None:
    found = verdict(case("torch.relu(input0)", IMAGES), loses_layout("optest_no_layout"))
    assert found.status is Status.PASSED
    assert told(found) == ["output0 has the strides [120, 30, 6, 1], torch on the CPU gives it [120, 1, 24, 4]"]


def test_it_fails_where_the_case_asks_for_the_same() -> None:
    wanted = case("torch.relu(input0)", IMAGES)
    wanted.attributes["same_strides"] = True  # type: ignore[index]
    found = verdict(wanted, loses_layout("optest_no_layout_in_case"))
    assert found.reason is Reason.SHAPE, found
    assert "torch on the CPU gives it [120, 1, 24, 4]" in found.message
    assert verdict(wanted, by("aot_eager")).status is Status.PASSED
    assert verdict(wanted).status is Status.PASSED


def test_it_fails_where_the_command_line_does() -> None:
    driver = loses_layout("optest_no_layout_asked")
    driver.configure({"compile_backend": "optest_no_layout_asked", "same_strides": True})
    assert verdict(case("torch.relu(input0)", IMAGES), driver).reason is Reason.SHAPE


@pytest.mark.parametrize("text", ["torch.relu(input0)", "torch.add_(input0, 1.0)", "torch.transpose(input0, 1, 2)"])
def test_torchs_own_are_not_told(text: str) -> None:
    found = verdict(case(text, IMAGES), by("aot_eager"))
    assert (found.status, told(found)) == (Status.PASSED, [])


def test_strides_that_lead_nowhere_are_not_told() -> None:
    def others(_: Any, results: Any) -> Any:
        return (torch.empty_strided((1, 40), (7, 1)).copy_(results[0]),)

    found = verdict(case("torch.exp(input0)", tensor((1, 40))), compiler_that("optest_one_row", others))
    assert (found.status, told(found)) == (Status.PASSED, [])


def test_where_torch_without_values_has_other_strides_the_cpu_decides() -> None:
    """Its kernels for convolutions may choose channels last, which tensors without values do not know."""
    weights, text = tensor((8, 4, 3, 3)), "torch.nn.functional.conv2d(input0, input1)"
    assert told(verdict(case(text, IMAGES, weights), by("aot_eager"))) == []


def test_the_run_says_how_many_there_are() -> None:
    wanted = case("torch.relu(input0)", IMAGES)
    found = verdict(wanted, loses_layout("optest_no_layout_told"))
    [line] = other_strides([result_of(wanted, found)] * 4)
    assert line.startswith("results with other strides than torch on the CPU gives them: 4 cases (")
    assert line.endswith(", …); --same-strides fails such cases")
    assert list(other_strides([result_of(wanted, verdict(wanted))])) == []
