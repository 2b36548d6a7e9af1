"""A call that torch itself refuses is the case's fault, and is told in torch's words."""

from __future__ import annotations

import pytest
from torch_kit import by, case, tensor, verdict

from optest.spec import Reason
from optest.torch.calls.device_call import why_no_operator

pytestmark = pytest.mark.torch


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
