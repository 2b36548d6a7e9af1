"""Dtypes that torch does not take together are the case's fault, though float64 has an expected value for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from torch_kit import by, case, compiler_that, tensor, verdict

from optest.spec import ExpectedError, Reason, Status, TestCase
from optest.torch.eager import TorchBackend

LINEAR = "torch.nn.functional.linear(input0, input1)"
MIXED = (tensor((2, 4), "bfloat16"), tensor((3, 4)))


@pytest.mark.parametrize("compiler", [None, "aot_eager"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    ("text", "given"),
    [
        (LINEAR, MIXED),
        ("torch.matmul(input0, input1)", (tensor((2, 3), "float16"), tensor((3, 2)))),
    ],
)
def test_what_torch_on_the_cpu_refuses_as_well_is_a_bad_case(
    compiler: str | None, grad: bool, text: str, given: Any
) -> None:
    found = verdict(case(text, *given, grad=grad), by(compiler) if compiler else None)
    dtypes = " and ".join(spec.dtype.name for spec, _ in given)
    assert found.reason is Reason.BAD_CASE, found
    assert found.message.startswith(f"torch on the CPU refuses {text} of {dtypes}: RuntimeError: ")
    assert found.message.endswith("state one dtype for these tensors, or expects_error if the call should be refused")


class Mixing(TorchBackend):
    """A device that takes the dtypes together."""

    def run(self, case: Any, inputs: Any) -> Any:
        left, right = (np.asarray(each, np.float64) for each in inputs)
        return [(left @ right.T).astype(np.asarray(inputs[0]).dtype)]


def test_a_device_that_takes_them_is_judged() -> None:
    assert verdict(case(LINEAR, *MIXED), Mixing()).reason is not Reason.BAD_CASE


def refused(given: Any, results: Any) -> Any:
    raise RuntimeError("both operands should have one dtype")


@pytest.fixture(scope="module")
def strict() -> TorchBackend:
    """A device whose own check refuses everything."""
    return compiler_that("strict_about_dtypes", refused)


@pytest.mark.parametrize(
    "asked",
    [
        case("torch.mul(input0, input1)", tensor((3, 4), "bfloat16"), tensor((3, 4))),
        case(LINEAR, tensor((2, 4)), tensor((3, 4))),
        case("torch.add(input0, input1)", tensor((3, 4), "float16"), tensor((3, 4), "float16")),
    ],
)
def test_a_device_that_refuses_what_the_cpu_takes_stays_one_that_failed(strict: TorchBackend, asked: TestCase) -> None:
    assert verdict(asked, strict).reason is Reason.RAISED


def test_a_refusal_that_is_expected_is_none_of_the_case() -> None:
    expected = ExpectedError(type="RuntimeError", match="same dtype")
    assert verdict(case(LINEAR, *MIXED, expects_error=expected)).status is Status.PASSED
