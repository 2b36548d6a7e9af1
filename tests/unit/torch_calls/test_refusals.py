"""A call that torch itself refuses is the case's fault, and is told in torch's words; mixed dtypes, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
from torch_kit import by, case, compiler_that, tensor, verdict

from optest.spec import ExpectedError, Reason, Status, TestCase
from optest.torch.calls.device_call import why_no_operator
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch

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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("torch.matmul(input0, input1)", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"),
        ("torch.relu(input0, foo=3)", "TypeError: relu() got an unexpected keyword argument 'foo'"),
        ("torch.sum(input0, dim=7)", "IndexError: Dimension out of range"),
        ("torch.imag(input0)", "RuntimeError: imag is not implemented for tensors with non-complex dtypes"),
        ("torch.reshape(input0, [4])", "RuntimeError: shape '[4]' is invalid for input of size 6"),
    ],
)
def test_a_refused_call_is_a_bad_case(text: str, words: str) -> None:
    found = verdict(case(text, tensor((2, 3)), tensor((2, 3))))
    assert found.reason is Reason.BAD_CASE
    assert f"torch on the CPU refuses {text}: {words}" in found.message
    assert "traceback_tail" not in found.details


@pytest.mark.parametrize(
    "text",
    [
        "torch.empty_like(input0)",
        "torch.empty([2, 3])",
        "torch.Tensor.new_empty(input0, [3])",
        "torch.ops.aten.empty.memory_format([2])",
        "torch.empty_strided([2], [1])",
    ],
)
def test_memory_that_nobody_has_written_is_not_compared(text: str) -> None:
    tensors = [tensor((2, 3))] if "input0" in text else []
    assert why_no_operator(case(text, *tensors)) == (
        f"{text.partition('(')[0]} returns memory that nobody has written, so no result is the right one"
    )
    assert why_no_operator(case("torch.zeros_like(input0)", tensor((2, 3)))) is None


def test_a_kernel_that_the_cpu_has_not_got_is_no_fault_of_the_case() -> None:
    found = verdict(case("torch.linalg.cholesky(input0)", tensor((2, 2), "float16")))
    assert found.reason is Reason.REFERENCE_FAILED


@pytest.mark.parametrize("compiler", [None, "aot_eager"])
def test_a_change_in_place_of_repeated_elements_is_a_bad_case(compiler: str | None) -> None:
    repeated = case("torch.add_(input0, 1.0)", tensor((3, 4), strides=(0, 1)))
    found = verdict(repeated, by(compiler) if compiler else None)
    assert found.reason is Reason.BAD_CASE, found
    assert "more than one element of the written-to tensor" in found.message
