"""What was compiled is called twice: a wrong second result is no pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from texts import says, says_exactly
from torch_kit import by, case, compiler_that, tensor, verdict

from optest.spec import Reason, Status, Verdict
from optest.torch.calls.recompiled_calls import changed_values
from optest.torch.eager import TorchBackend

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


@pytest.mark.parametrize("text", ["torch.exp(input0)", "torch.sum(input0, 1)"])
def test_a_compiler_that_yields_nan_kept_no_values(text: str) -> None:
    nan = judged(
        f"optest_{text[6:9]}_nan", text, lambda *given: tuple(torch.full_like(each, torch.nan) for each in given[2])
    )
    assert nan.reason is Reason.NAN, nan


def test_a_second_result_within_the_rule_passes() -> None:
    def rounded(n: int, _: Any, results: Any) -> Any:
        return tuple(torch.nextafter(each, each + 1) if n > 1 else each for each in results)

    assert judged("optest_rounded", "torch.exp(input0)", rounded).status is Status.PASSED


def test_second_in_place_call_gets_same_values() -> None:
    assert judged("optest_in_place", "torch.add_(input0, 1.0)", lambda n, _, results: results).status is Status.PASSED


def test_a_second_call_that_raises_is_found() -> None:
    def broken(n: int, _: Any, results: Any) -> Any:
        if n > 1:
            raise RuntimeError("stream is gone")
        return results

    found = judged("optest_broken", "torch.exp(input0)", broken)
    assert found.reason is Reason.RAISED, found
    assert says(found.message, "torch_calls.optest_broken_compiled_raises")


def test_second_call_overwriting_results_fails() -> None:
    kept: list[torch.Tensor] = []

    def into_one_buffer(n: int, _: Any, results: Any) -> Any:
        kept[:] = kept or [results[0].clone()]
        kept[0].copy_(results[0])
        return (kept[0],)

    found = judged("optest_one_buffer", "torch.exp(input0)", into_one_buffer)
    assert found.reason is Reason.STATE, found
    assert says(found.message, "torch_calls.both_results_are_the")


def test_second_call_uses_other_input_memory() -> None:
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
    assert says(found.message, "torch_calls.with_half_the_values")


def test_one_operand_that_a_compiler_keeps_is_found() -> None:
    kept: list[torch.Tensor] = []

    def of_first_weights(given: Sequence[torch.Tensor], _: Any) -> Any:
        kept[:] = kept or [given[1].clone()]
        return (given[0] @ kept[0],)

    driver = compiler_that("optest_keeps_weights", of_first_weights)
    found = verdict(case("torch.matmul(input0, input1)", ROWS, tensor((40, 5))), driver)
    assert found.reason is Reason.STATE, found
    assert says(found.message, "torch_calls.with_half_the_values_of")


@pytest.mark.parametrize(
    "text",
    ["torch.sign(input0)", "torch.argmax(input0)", "torch.zeros_like(input0)", "torch.nn.functional.normalize(input0)"],
)
def test_results_independent_of_magnitude_pass(text: str) -> None:
    assert verdict(case(text, ROWS), by("aot_eager")).status is Status.PASSED


def refuses_other_values(n: int, _: Any, results: Any) -> Any:
    if n > 2:
        raise RuntimeError("values out of range")
    return results


def test_refusal_of_legal_values_fails() -> None:
    found = judged("optest_refuses_others", "torch.exp(input0)", refuses_other_values)
    assert found.reason is Reason.RAISED, found
    assert says(found.message, "torch_calls.with_half_the_values_of_input")


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


FIRST_OF = {"elements": "the elements of input1 in the reverse order", "half": "half the values of input1"}
POSITIONS = tensor(6, "int64", "data", values=[0, 2, 2, 1, 0, 1])


@pytest.mark.parametrize(
    ("text", "other", "how"),
    [
        ("torch.index_select(input0, 0, input1)", POSITIONS, FIRST_OF["elements"]),
        ("torch.masked_fill(input0, input1, 3.0)", tensor((3, 40), "bool"), FIRST_OF["elements"]),
        ("torch.add(input0, input1)", tensor(40, "int32", "arange"), FIRST_OF["elements"]),
        ("torch.mul(input0, input1)", tensor(40, "complex64"), FIRST_OF["half"]),
    ],
)
def test_kept_integers_masks_and_complex_fail(text: str, other: Any, how: str) -> None:
    kept: list[torch.Tensor] = []

    def compiler(graph: Any, _: Any) -> Any:
        def made(*given: Any) -> Any:
            kept[:] = kept or [each.clone() for each in given if each.dtype is not torch.float32]
            return graph(*[each if each.dtype is torch.float32 else kept[0] for each in given])

        return made

    name = f"optest_keeps_{other[0].dtype}"
    torch._dynamo.register_backend(compiler, name=name)
    found = verdict(case(text, ROWS, other), by(name))
    assert found.reason is Reason.STATE, found
    assert found.message.startswith(f"with {how}, the code compiled by {name} returns its first results")
    assert verdict(case(text, ROWS, other), by("aot_eager")).status is Status.PASSED


def test_kept_integer_results_fail() -> None:
    kept: list[Any] = []

    def of_first_values(_: Sequence[Any], results: Any) -> Any:
        kept[:] = kept or [each.clone() for each in results]
        return tuple(each.clone() for each in kept)

    found = verdict(case("torch.add(input0, 3)", POSITIONS), compiler_that("optest_keeps_integers", of_first_values))
    assert found.reason is Reason.STATE, found


@pytest.mark.parametrize("call", [2, 3, 4])
def test_inputs_that_a_later_call_changes_are_found(call: int) -> None:
    def written(n: int, given: Sequence[Any], results: Any) -> Any:
        results = tuple(each.clone() for each in results)
        if n == call:
            given[0].mul_(3)
        return results

    found = judged(f"optest_donates_{call}", "torch.exp(input0)", written)
    assert found.reason is Reason.INPUT_MUTATED, found
    how = {
        2: "called a second time with the same values",
        3: "with half the values of input0",
        4: "called again with the first values, after calls with other ones",
    }
    assert found.message == f"{how[call]}: input0 was changed on the device"


def test_wrong_last_call_fails() -> None:
    found = judged("optest_tired", "torch.exp(input0)", lambda n, _, results: tuple(each + (n > 2) for each in results))
    assert found.reason is Reason.NONDETERMINISTIC, found
    assert found.message.startswith("called again with the first values, after calls with other ones: output0: 120 of")


@pytest.mark.parametrize("text", ["torch.exp(input0)", "torch.add(input0, input1)", "torch.add(input0, 1.0)"])
def test_third_call_overwriting_results_fails(text: str) -> None:
    buffers: dict[int, torch.Tensor] = {}
    calls: list[None] = []

    def in_turns(_: Sequence[Any], results: Any) -> Any:
        calls.append(None)
        turn = len(calls) % 2
        buffers.setdefault(turn, results[0].clone()).copy_(results[0])
        return (buffers[turn],)

    name = f"optest_two_buffers_{len(text)}"
    found = verdict(case(text, ROWS, *[tensor(40)] * text.count("input1")), compiler_that(name, in_turns))
    assert found.reason is Reason.STATE, found
    assert says_exactly(found.message, "torch_calls.the_results_of_the", name=name)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2", "uint16", "uint64"])
def test_unsigned_and_float8_inputs_are_compared(kind: str) -> None:
    numbers = tensor(8, kind, "data", values=[0, 1, 2, 3, 4, 5, 6, 7])
    assert verdict(case("torch.Tensor.float(input0)", numbers), by("aot_eager")).status is Status.PASSED
    wrong = compiler_that(f"optest_off_by_one_{kind}", lambda _, results: tuple(each + 1 for each in results))
    assert verdict(case("torch.Tensor.float(input0)", numbers), wrong).reason is Reason.VALUE


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        (
            "torch.nn.functional.embedding_bag(input0, input1, input2)",
            (POSITIONS, tensor((3, 4)), tensor(3, "int64", "data", values=[0, 1, 4])),
        ),
        (
            "torch.segment_reduce(input0, 'sum', lengths=input1)",
            (tensor(6), tensor(3, "int64", "data", values=[1, 2, 3])),
        ),
        ("torch.bucketize(input0, input1)", (tensor(6), tensor(3, "int64", "data", values=[-1, 0, 1]))),
        ("torch.gather(input0, 1, input1)", (ROWS, tensor((3, 4), "int64", strides=(8, 2)))),
    ],
)
def test_integers_in_an_order_of_their_own_pass(text: str, inputs: Any) -> None:
    assert verdict(case(text, *inputs), by("aot_eager")).status is Status.PASSED


@pytest.mark.parametrize("function", ["torch._grouped_mm", "torch.tensor_split", "torch.ops.aten._jagged_to_padded"])
def test_offsets_are_not_put_in_the_reverse_order(function: str) -> None:
    """A group would begin after its end, and nobody says what a kernel does then."""
    call: Any = SimpleNamespace(call=SimpleNamespace(function=function))
    offsets = torch.tensor([3, 8], dtype=torch.int32)
    assert changed_values(call, 0, offsets) is None
    assert changed_values(call, 0, offsets.float()) is not None


def test_single_kept_result_fails() -> None:
    kept: list[torch.Tensor] = []

    def largest_of_first(_: Sequence[Any], results: Any) -> Any:
        kept[:] = kept or [results[1].clone()]
        return (results[0], kept[0].clone())

    found = verdict(case("torch.aminmax(input0)", ROWS), compiler_that("optest_keeps_largest", largest_of_first))
    assert found.reason is Reason.STATE, found
    assert says(found.message, "torch_calls.with_half_the_values")


@pytest.mark.parametrize("kept_on_the_way", ["there", "back"])
def test_kept_gradients_fail(kept_on_the_way: str) -> None:
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    kept: list[Any] = []

    def keeping(graph: Any, _: Any) -> Any:
        def made(*given: Any) -> Any:
            kept[:] = kept or [each.clone() for each in graph(*given)]
            return [each.clone() for each in kept]

        return make_boxed_func(made)

    def honest(graph: Any, _: Any) -> Any:
        return make_boxed_func(graph.forward)

    there, back = (keeping, honest) if kept_on_the_way == "there" else (honest, keeping)
    name = f"optest_keeps_{kept_on_the_way}"
    torch._dynamo.register_backend(aot_autograd(fw_compiler=there, bw_compiler=back), name=name)
    found = verdict(case("torch.sin(input0)", ROWS, grad=True), by(name))
    assert found.reason is Reason.STATE, found
    assert says(found.message, "torch_calls.with_half_the_values")


def test_results_may_share_an_allocation() -> None:
    block = torch.zeros(16, 3, 40)
    calls: list[None] = []

    def from_block(_: Sequence[Any], results: Any) -> Any:
        calls.append(None)
        return (block[len(calls)].copy_(results[0]),)

    found = verdict(case("torch.exp(input0)", ROWS), compiler_that("optest_one_block", from_block))
    assert found.status is Status.PASSED, found
