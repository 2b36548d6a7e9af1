"""Other strides than torch's own are told, and fail where a case or the command line asks for the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_kit import by, case, compiler_that, tensor, verdict

from optest.core.results import result_of
from optest.spec import CheckState, Reason, Status, Verdict
from optest.torch.cases import STRIDES, other_strides
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch

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
