"""What was compiled is called twice: a wrong second result is no pass."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from texts import says
from torch_kit import by, case, compiler_that, tensor, verdict

from optest.spec import Reason, Status, Verdict
from optest.torch.calls.recompiled_calls import other_values
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch

ROWS = tensor((3, 40))


def judged(name: str, text: str, change: Callable[[int, Sequence[Any], Any], Any]) -> Verdict:
    """Return the verdict on a compiler whose call ``n`` (from 1) gives ``change`` of ``n``, tensors and results."""
    count = itertools.count(1)
    driver = compiler_that(name, lambda given, results: change(next(count), given, results))
    tensors = [POSITIONS] if name.endswith("integers") else [ROWS, tensor(40)][: text.count("input")]
    return verdict(case(text, *tensors), driver)


Later = Callable[[int, Sequence[Any], Any], Any]
EXP = "torch.exp(input0)"
SECOND = "called a second time with the same values"
HALVED = "with half the values of input0"
LAST = "called again with the first values, after calls with other ones"
POSITIONS = tensor(6, "int64", "data", values=[0, 2, 2, 1, 0, 1])


def added(is_wrong: Callable[[int], bool]) -> Later:
    """Return a change that adds 1 to the results of some calls."""
    return lambda n, _, results: tuple(result + is_wrong(n) for result in results)


def raised(after: int, words: str) -> Later:
    def change(n: int, _: Any, results: Any) -> Any:
        if n > after:
            raise RuntimeError(words)
        return results

    return change


def kept(keep: Callable[[Sequence[Any], Any], Sequence[Any]], use: Callable[..., Any] = lambda _, *own: own) -> Later:
    """Return a change that keeps tensors of the first call, and ``use`` of results, inputs and copies of these."""
    first: list[torch.Tensor] = []

    def change(_: int, given: Sequence[Any], results: Any) -> Any:
        first[:] = first or [tensor.clone() for tensor in keep(given, results)]
        return use((results, given), *(tensor.clone() for tensor in first))

    return change


def into_buffers(count: int) -> Later:
    """Return a change that writes the results of call n into buffer n modulo ``count``."""
    buffers: dict[int, torch.Tensor] = {}

    def change(n: int, _: Any, results: Any) -> Any:
        return (buffers.setdefault(n % count, results[0].clone()).copy_(results[0]),)

    return change


def donated(call: int) -> Later:
    def change(n: int, given: Sequence[Any], results: Any) -> Any:
        results = tuple(result.clone() for result in results)
        if n == call:
            given[0].mul_(3)
        return results

    return change


OVERWRITES = "a later call of the code compiled by optest_later_{} overwrites the results of its first call"
FAULTS: dict[str, tuple[str, Later, Reason, str]] = {
    "worn": (EXP, added(lambda n: n > 1), Reason.NONDETERMINISTIC, f"{SECOND}: output0: 120 of 120"),
    "tired": (EXP, added(lambda n: n > 2), Reason.NONDETERMINISTIC, f"{LAST}: output0: 120 of"),
    "nan": (EXP, lambda *x: tuple(torch.full_like(result, torch.nan) for result in x[2]), Reason.NAN, ""),
    "nan_sum": (
        "torch.sum(input0, 1)",
        lambda *x: tuple(torch.full_like(result, torch.nan) for result in x[2]),
        Reason.NAN,
        "",
    ),
    "broken": (
        EXP,
        raised(1, "stream is gone"),
        Reason.RAISED,
        "optest_later_broken raises RuntimeError: stream is gone",
    ),
    "refuses": (EXP, raised(2, "out of range"), Reason.RAISED, f"{HALVED}, the code compiled by"),
    "one_buffer": (EXP, into_buffers(1), Reason.STATE, "both results have the same memory"),
    "two_buffers": (EXP, into_buffers(2), Reason.STATE, OVERWRITES.format("two_buffers")),
    "two_buffers_2": ("torch.add(input0, input1)", into_buffers(2), Reason.STATE, OVERWRITES.format("two_buffers_2")),
    "two_buffers_of_sum": (
        "torch.add(input0, 1.0)",
        into_buffers(2),
        Reason.STATE,
        OVERWRITES.format("two_buffers_of_sum"),
    ),
    "keeps_results": (EXP, kept(lambda _, results: results), Reason.STATE, HALVED),
    "keeps_integers": ("torch.add(input0, 3)", kept(lambda _, results: results), Reason.STATE, ""),
    "keeps_largest": (
        "torch.aminmax(input0)",
        kept(lambda _, results: results[1:], lambda call, own: (call[0][0], own)),
        Reason.STATE,
        HALVED,
    ),
    "keeps_operand": (
        "torch.mul(input0, input1)",
        kept(lambda given, _: given[1:], lambda call, own: (call[1][0] * own,)),
        Reason.STATE,
        "with half the values of input1",
    ),
    "donates_2": (EXP, donated(2), Reason.INPUT_MUTATED, f"{SECOND}: input0 was changed on the device"),
    "donates_3": (EXP, donated(3), Reason.INPUT_MUTATED, f"{HALVED}: input0 was changed on the device"),
    "donates_4": (EXP, donated(4), Reason.INPUT_MUTATED, f"{LAST}: input0 was changed on the device"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_later_call_is_found(name: str) -> None:
    text, change, reason, words = FAULTS[name]
    found = judged(f"optest_later_{name}", text, change)
    assert found.reason is reason, found
    assert words in found.message


BLOCK = torch.zeros(16, 3, 40)


@pytest.mark.parametrize(
    ("name", "text", "change"),
    [
        ("rounded", EXP, lambda n, _, results: tuple(torch.nextafter(x, x + 1) if n > 1 else x for x in results)),
        ("in_place", "torch.add_(input0, 1.0)", lambda n, _, results: results),
        ("one_block", EXP, lambda n, _, results: (BLOCK[n].copy_(results[0]),)),
    ],
)
def test_right_later_call_passes(name: str, text: str, change: Later) -> None:
    assert judged(f"optest_later_{name}", text, change).status is Status.PASSED


def test_second_call_uses_other_input_memory() -> None:
    first: list[torch.Tensor] = []

    def of_first(n: int, given: Sequence[Any], results: Any) -> Any:
        first[:] = first or [given[0]]
        return results if given[0] is first[0] or given[0].data_ptr() != first[0].data_ptr() else (results[0] + 1,)

    assert judged("optest_other_memory", EXP, of_first).status is Status.PASSED


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


@pytest.mark.parametrize(
    "text",
    ["torch.sign(input0)", "torch.argmax(input0)", "torch.zeros_like(input0)", "torch.nn.functional.normalize(input0)"],
)
def test_results_independent_of_magnitude_pass(text: str) -> None:
    assert verdict(case(text, ROWS), by("aot_eager")).status is Status.PASSED


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
    assert other_values(call, 0, offsets) is None
    assert other_values(call, 0, offsets.float()) is not None


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
