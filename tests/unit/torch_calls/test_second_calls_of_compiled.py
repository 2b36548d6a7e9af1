"""What was compiled is called twice: a wrong second result is no pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch_kit import by, case, compiler_that, tensor, verdict

from optest.backends.torch_eager import TorchBackend
from optest.spec import Reason, Status, Verdict

pytestmark = pytest.mark.torch

ROWS = tensor((3, 40))


def judged(name: str, text: str, change: Callable[[int, Sequence[Any], Any], Any], **more: Any) -> Verdict:
    """By a compiler whose call ``n`` (from 1) gives what ``change`` makes of ``n``, the tensors and the results."""
    calls: list[None] = []

    def counted(given: Sequence[Any], results: Any) -> Any:
        calls.append(None)
        return change(len(calls), given, results)

    return verdict(case(text, ROWS, **more), compiler_that(name, counted))


def test_a_second_result_that_is_wrong_is_found() -> None:
    found = judged("optest_worn", "torch.exp(input0)", lambda n, _, results: tuple(each + (n > 1) for each in results))
    assert found.reason is Reason.NONDETERMINISTIC, found
    assert found.message.startswith("called a second time with the same values: output0: 120 of 120")


def test_a_second_result_within_the_rule_passes() -> None:
    def rounded(n: int, _: Any, results: Any) -> Any:
        return tuple(torch.nextafter(each, each + 1) if n > 1 else each for each in results)

    assert judged("optest_rounded", "torch.exp(input0)", rounded).status is Status.PASSED


def test_a_second_call_in_place_begins_with_the_same_values() -> None:
    assert judged("optest_in_place", "torch.add_(input0, 1.0)", lambda n, _, results: results).status is Status.PASSED


def test_a_second_call_that_raises_is_found() -> None:
    def broken(n: int, _: Any, results: Any) -> Any:
        if n > 1:
            raise RuntimeError("stream is gone")
        return results

    found = judged("optest_broken", "torch.exp(input0)", broken)
    assert found.reason is Reason.RAISED, found
    assert "optest_broken compiled raises RuntimeError: stream is gone" in found.message


def test_results_that_the_second_call_writes_over_are_found() -> None:
    kept: list[torch.Tensor] = []

    def into_one_buffer(n: int, _: Any, results: Any) -> Any:
        kept[:] = kept or [results[0].clone()]
        kept[0].copy_(results[0])
        return (kept[0],)

    found = judged("optest_one_buffer", "torch.exp(input0)", into_one_buffer)
    assert found.reason is Reason.STATE, found
    assert "both results are the same memory" in found.message


def test_the_memory_of_the_first_inputs_is_not_what_the_second_call_reads() -> None:
    first: list[torch.Tensor] = []

    def of_first(n: int, given: Sequence[Any], results: Any) -> Any:
        first[:] = first or [given[0]]
        return results if given[0] is first[0] or given[0].data_ptr() != first[0].data_ptr() else (results[0] + 1,)

    assert judged("optest_other_memory", "torch.exp(input0)", of_first).status is Status.PASSED


@pytest.mark.parametrize("text", ["torch.sin(input0)", "torch.transpose(input0, 0, 1)", "torch.add_(input0, 1.0)"])
def test_torchs_own_compiler_passes_twice(text: str) -> None:
    assert verdict(case(text, ROWS), by("aot_eager")).status is Status.PASSED
    assert verdict(case(text, ROWS, grad=True), by("aot_eager")).status is Status.PASSED


def test_gradients_are_asked_for_twice() -> None:
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    calls: list[None] = []

    def back(graph: Any, _: Any) -> Any:
        def made(*given: Any) -> Any:
            calls.append(None)
            return [each + (len(calls) > 1) for each in graph(*given)]

        return make_boxed_func(made)

    forward = aot_autograd(fw_compiler=lambda graph, _: make_boxed_func(graph.forward), bw_compiler=back)
    torch._dynamo.register_backend(forward, name="optest_worn_way_back")
    found = verdict(case("torch.sin(input0)", ROWS, grad=True), by("optest_worn_way_back"))
    assert found.reason is Reason.NONDETERMINISTIC, found
    assert "grad.input0" in found.message


def test_eager_torch_is_called_once() -> None:
    driver = TorchBackend()
    assert verdict(case("torch.exp(input0)", ROWS), driver).status is Status.PASSED
    assert driver.further(case("torch.exp(input0)", ROWS)) == ()


def test_values_that_a_compiler_keeps_are_found() -> None:
    kept: list[Any] = []

    def of_first_values(_: int, __: Any, results: Any) -> Any:
        kept[:] = kept or [each.clone() for each in results]
        return tuple(each.clone() for each in kept)

    found = judged("optest_keeps_results", "torch.exp(input0)", of_first_values)
    assert found.reason is Reason.STATE, found
    assert "with half the values of input0" in found.message


def test_one_operand_that_a_compiler_keeps_is_found() -> None:
    kept: list[torch.Tensor] = []

    def of_first_weights(given: Sequence[torch.Tensor], _: Any) -> Any:
        kept[:] = kept or [given[1].clone()]
        return (given[0] @ kept[0],)

    driver = compiler_that("optest_keeps_weights", of_first_weights)
    found = verdict(case("torch.matmul(input0, input1)", ROWS, tensor((40, 5))), driver)
    assert found.reason is Reason.STATE, found
    assert "with half the values of input1" in found.message


@pytest.mark.parametrize(
    "text",
    ["torch.sign(input0)", "torch.argmax(input0)", "torch.zeros_like(input0)", "torch.nn.functional.normalize(input0)"],
)
def test_results_that_do_not_depend_on_the_size_of_values_pass(text: str) -> None:
    assert verdict(case(text, ROWS), by("aot_eager")).status is Status.PASSED


def refuses_other_values(n: int, _: Any, results: Any) -> Any:
    if n > 2:
        raise RuntimeError("values out of range")
    return results


def test_other_values_that_torch_takes_may_not_be_refused() -> None:
    found = judged("optest_refuses_others", "torch.exp(input0)", refuses_other_values)
    assert found.reason is Reason.RAISED, found
    assert "with half the values of input0, what optest_refuses_others compiled raises RuntimeError: values out" in (
        found.message
    )


def test_other_values_that_torch_refuses_may_be_refused() -> None:
    """Half of the smallest number is 0, and a matrix of it is not positive-definite."""
    smallest = tensor((1, 1), fill="data", values=[[1e-45]])
    seen: list[float] = []

    def noticed(given: Sequence[torch.Tensor], results: Any) -> Any:
        seen.append(float(given[0]))
        return results

    found = verdict(case("torch.linalg.cholesky(input0)", smallest), compiler_that("optest_seen", noticed))
    assert found.status is Status.PASSED, found
    assert seen[:2] == [pytest.approx(1e-45, rel=0.5)] * 2
