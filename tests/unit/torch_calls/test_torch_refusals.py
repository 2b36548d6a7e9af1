"""A call that torch itself refuses is the case's fault, and is told in torch's words, wrapped by a compiler, too."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from texts import says, says_exactly
from torch_kit import by, case, compiled_as, fails, passes, tensor, verdict

from optest.spec import ExpectedError, Fault, Reason, TestCase
from optest.torch.calls.call import torch_call
from optest.torch.calls.compiled import run_compiled
from optest.torch.calls.device_call import why_no_operator
from optest.torch.calls.device_under_test import DeviceUnderTest
from optest.torch.calls.refusals import in_words_of_eager_torch, refusal_within
from optest.torch.eager import TorchBackend

LINEAR = "torch.nn.functional.linear(input0, input1)"
MIXED = (tensor((2, 4), "bfloat16"), tensor((3, 4)))
COMPILERS = pytest.mark.parametrize("compiler", [None, "aot_eager"])


def refused_case(text: str, kind: str, match: str, *tensors: Any) -> TestCase:
    return case(text, *tensors, expects_error=ExpectedError(type=kind, match=match))


@COMPILERS
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    ("text", "given"),
    [(LINEAR, MIXED), ("torch.matmul(input0, input1)", (tensor((2, 3), "float16"), tensor((3, 2))))],
)
def test_dtypes_refused_on_cpu_are_bad_case(compiler: str | None, grad: bool, text: str, given: Any) -> None:
    message = fails(case(text, *given, grad=grad), by(compiler), reason=Reason.BAD_CASE).message
    dtypes = " and ".join(spec.dtype.name for spec, _ in given)
    assert message.startswith(f"torch on the CPU refuses {text} of {dtypes}: RuntimeError: ")
    assert message.endswith("set one dtype for these tensors, or expects_error if the call should be refused")


@pytest.mark.parametrize(
    "asked",
    [
        case("torch.mul(input0, input1)", tensor((3, 4), "bfloat16"), tensor((3, 4))),
        case(LINEAR, tensor((2, 4)), tensor((3, 4))),
        case("torch.add(input0, input1)", tensor((3, 4), "float16"), tensor((3, 4), "float16")),
    ],
)
def test_refusal_by_device_only_fails(asked: TestCase) -> None:
    def refuses(given: Any, results: Any) -> Any:
        raise RuntimeError("both operands should have one dtype")

    fails(asked, compiled_as(refuses), reason=Reason.RAISED)


def test_expected_refusal_is_no_bad_case() -> None:
    passes(refused_case(LINEAR, "RuntimeError", "same dtype", *MIXED))


class Mixing(TorchBackend):
    """A device that takes the dtypes together."""

    def run(self, case: Any, inputs: Any) -> Any:
        left, right = (np.asarray(each, np.float64) for each in inputs)
        return [(left @ right.T).astype(np.asarray(inputs[0]).dtype)]


def test_a_device_that_takes_them_is_judged() -> None:
    assert verdict(case(LINEAR, *MIXED), Mixing()).reason is not Reason.BAD_CASE


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
    found = fails(case(text, tensor((2, 3)), tensor((2, 3))), reason=Reason.BAD_CASE)
    assert says(found.message, "torch_calls.torch_on_the_cpu_refuses", text=text, words=words)
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
    told = why_no_operator(case(text, *[tensor((2, 3))] * text.count("input0")))
    assert told == f"{text.partition('(')[0]} returns uninitialised memory, so no result is the right one"
    assert why_no_operator(case("torch.zeros_like(input0)", tensor((2, 3)))) is None


def test_missing_cpu_kernel_is_no_bad_case() -> None:
    fails(case("torch.linalg.cholesky(input0)", tensor((2, 2), "float16")), reason=Reason.REFERENCE_FAILED)


@COMPILERS
def test_in_place_on_repeated_elements_is_bad_case(compiler: str | None) -> None:
    repeated = case("torch.add_(input0, 1.0)", tensor((3, 4), strides=(0, 1)))
    assert says(fails(repeated, by(compiler), reason=Reason.BAD_CASE).message, "torch_calls.more_than_one_element")


# Refusals that torch.compile wraps: torch's own error counts, and what a compiler cannot do is no refusal.


ROWS, OTHER = tensor((3, 4)), tensor((5, 6))
CLASSES = tensor(5, "int64", "randint", low=0, high=3)


REFUSALS = [
    ("torch.nn.functional.cross_entropy(input0, input1)", "ValueError", "Expected input batch_size", (ROWS, CLASSES)),
    ("torch.view(input0, [5, 5])", "RuntimeError", "shape '[5, 5]' is invalid", (ROWS,)),
    ("torch.reshape(input0, 'x')", "TypeError", "must be tuple of ints", (ROWS,)),
    ("torch.softmax(input0, 5)", "IndexError", "Dimension out of range", (ROWS,)),
    ("torch.getitem(input0, 9)", "IndexError", "index 9 is out of bounds", (ROWS,)),
]


@pytest.mark.parametrize(("text", "kind", "match", "tensors"), REFUSALS)
def test_torchs_own_error_is_the_refusal(text: str, kind: str, match: str, tensors: Any) -> None:
    found = passes(refused_case(text, kind, match, *tensors), by("aot_eager"))
    assert found.message.startswith(f"refused: {kind}: ")


@pytest.mark.parametrize(("kind", "match"), [("TypeError", ""), ("ValueError", "no such text")])
def test_another_type_or_text_is_another_refusal(kind: str, match: str) -> None:
    of = refused_case(REFUSALS[0][0], kind, match, *REFUSALS[0][3])
    fails(of, by("aot_eager"), reason=Reason.WRONG_ERROR)


def test_compiler_wrapper_text_does_not_match() -> None:
    """The compiler's own exception quotes code, hints and what it was doing."""
    with pytest.raises(torch._dynamo.exc.TorchRuntimeError, match="fake tensor") as raised:
        torch.compile(lambda: torch.ones(3, 4).view(5, 5), backend="aot_eager", fullgraph=True)()
    found = refusal_within(raised.value)
    assert type(found) is RuntimeError
    assert says_exactly(str(found), "torch_calls.shape_is_invalid_for")


def test_what_cannot_be_traced_is_no_refusal() -> None:
    """Dynamo's exceptions are RuntimeErrors, which is the type of most refusals."""

    def not_traced(given: torch.Tensor) -> Any:
        torch._dynamo.graph_break()
        return given + 1

    with pytest.raises(RuntimeError) as raised:
        torch.compile(not_traced, backend="aot_eager", fullgraph=True)(torch.ones(3))
    assert refusal_within(raised.value) is None
    assert refusal_within(torch._dynamo.exc.BackendCompilerFailed(not_traced, ValueError("no"), None)) is None
    assert refusal_within(torch._subclasses.fake_tensor.DataDependentOutputException("f")) is None
    plain = ValueError("no")
    assert refusal_within(plain) is plain


def test_untraceable_call_is_no_refusal() -> None:
    def breaks(given: torch.Tensor) -> list[Any]:
        torch._dynamo.graph_break()
        return [given]

    asked = DeviceUnderTest("torch.f", torch.device("cpu"), "aot_eager")
    with pytest.raises(Fault) as raised:
        run_compiled(breaks, [torch.ones(3)], asked, refuses=True)
    assert raised.value.reason is Reason.COMPILE


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("torch.matmul(input0, input1)", "mat1 and mat2 shapes cannot be multiplied"),
        ("torch.add(input0, input1)", "The size of tensor a (4) must match the size of tensor b (6)"),
    ],
)
def test_tensors_without_values_are_refused_in_other_words(text: str, match: str) -> None:
    """The words are torch's own, and no compiler was asked yet; those of torch on the CPU are the ones that count."""
    found = passes(refused_case(text, "RuntimeError", match, ROWS, OTHER), by("aot_eager"))
    assert says(found.message, "torch_calls.while_it_is_traced")
    other_text = refused_case(text, "RuntimeError", "no such text", ROWS, OTHER)
    fails(other_text, by("aot_eager"), reason=Reason.WRONG_ERROR)


@pytest.mark.parametrize("strides", [(8, 1), (0, 1), (2, 1)])
def test_tensors_without_values_are_refused_with_another_type(strides: tuple[int, ...]) -> None:
    """A view that needs a copy is a RuntimeError on the CPU, and a ValueError of torch's own while it is traced."""
    text, match = "torch.Tensor.view(input0, 12)", "view size is not compatible"
    passes(refused_case(text, "RuntimeError", match, tensor((3, 4), strides=strides)), None, by("aot_eager"))


def test_other_words_of_anyone_else_are_another_refusal() -> None:
    call, arrays = torch_call("torch.add(input0, input1)"), [np.ones((3, 4), np.float32), np.ones((5, 6), np.float32)]
    eager = RuntimeError("The size of tensor a (4) must match")
    for error in (RuntimeError, ValueError):
        assert in_words_of_eager_torch(error("shapes differ"), eager, call, arrays) is None


def test_refusal_log_is_suppressed(caplog: pytest.LogCaptureFixture) -> None:
    """Traced without values, a kernel that refuses is logged with its whole traceback, beside being raised."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.addHandler(caplog.handler)
    try:
        passes(refused_case("torch.addmm(input0, input0, input0)", "RuntimeError", "", ROWS), by("aot_eager"))
        logger.error("another thing")
    finally:
        logger.removeHandler(caplog.handler)
    assert {record.getMessage() for record in caplog.records if record.name == logger.name} == {"another thing"}
