"""What was compiled is called twice: a wrong second result is no pass."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch_kit
from texts import says
from torch_kit import by, case, changing_results, compiled_as, compiled_both_ways, fails, passes, tensor

from optest.spec import Reason, TestCase
from optest.torch.calls.recompiled_calls import other_values
from optest.torch.eager import TorchBackend

ROWS = tensor((3, 40))
POSITIONS = tensor(6, "int64", "data", values=[0, 2, 2, 1, 0, 1])


Later = Callable[[int, Sequence[Any], Any], Any]


def later(change: Later, name: str = "") -> TorchBackend:
    """Torch with a compiler whose call ``n`` (from 1) returns ``change`` of ``n``, tensors and results."""
    count = itertools.count(1)
    return compiled_as(lambda given, results: change(next(count), given, results), name)


def of_rows(text: str) -> TestCase:
    return case(text, *[ROWS, tensor(40)][: text.count("input")])


EXP, ADD = "torch.exp(input0)", "torch.add(input0, input1)"

SECOND = "called a second time with the same values"
HALVED = "with half the values of input0"
LAST = "called again with the first values, after calls with other ones"


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


def all_nan(_: int, __: Any, results: Any) -> Any:
    return tuple(torch.full_like(result, torch.nan) for result in results)


OVERWRITES = "a later call of the code compiled by optest_later_{name} overwrites the results of its first call"
CHANGED = "input0 was changed on the device"
KEEPS_LARGEST = kept(lambda _, results: results[1:], lambda call, own: (call[0][0], own))
KEEPS_OPERAND = kept(lambda given, _: given[1:], lambda call, own: (call[1][0] * own,))
FAULTS: dict[str, tuple[str, Later, Reason, str]] = {
    "worn": (EXP, added(lambda n: n > 1), Reason.NONDETERMINISTIC, f"{SECOND}: output0: 120 of 120"),
    "tired": (EXP, added(lambda n: n > 2), Reason.NONDETERMINISTIC, f"{LAST}: output0: 120 of"),
    "nan": (EXP, all_nan, Reason.NAN, ""),
    "nan_sum": ("torch.sum(input0, 1)", all_nan, Reason.NAN, ""),
    "broken": (EXP, raised(1, "stream is gone"), Reason.RAISED, "{name} raises RuntimeError: stream is gone"),
    "refuses": (EXP, raised(2, "out of range"), Reason.RAISED, f"{HALVED}, the code compiled by"),
    "one_buffer": (EXP, into_buffers(1), Reason.STATE, "both results have the same memory"),
    "two_buffers": (EXP, into_buffers(2), Reason.STATE, OVERWRITES),
    "two_buffers_2": (ADD, into_buffers(2), Reason.STATE, OVERWRITES),
    "two_buffers_of_sum": ("torch.add(input0, 1.0)", into_buffers(2), Reason.STATE, OVERWRITES),
    "keeps_results": (EXP, kept(lambda _, results: results), Reason.STATE, HALVED),
    "keeps_integers": ("torch.add(input0, 3)", kept(lambda _, results: results), Reason.STATE, ""),
    "keeps_largest": ("torch.aminmax(input0)", KEEPS_LARGEST, Reason.STATE, HALVED),
    "keeps_operand": ("torch.mul(input0, input1)", KEEPS_OPERAND, Reason.STATE, "with half the values of input1"),
    "donates_2": (EXP, donated(2), Reason.INPUT_MUTATED, f"{SECOND}: {CHANGED}"),
    "donates_3": (EXP, donated(3), Reason.INPUT_MUTATED, f"{HALVED}: {CHANGED}"),
    "donates_4": (EXP, donated(4), Reason.INPUT_MUTATED, f"{LAST}: {CHANGED}"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_later_call_is_found(name: str) -> None:
    text, change, reason, words = FAULTS[name]
    of = case(text, POSITIONS) if name == "keeps_integers" else of_rows(text)
    fails(of, later(change, f"optest_later_{name}"), reason=reason, words=words.format(name=name))


BLOCK = torch.zeros(16, 3, 40)
FIRST: list[torch.Tensor] = []


def follows_first(_: int, given: Sequence[Any], results: Any) -> Any:
    """Change the results where another tensor has the memory of the first call's."""
    FIRST[:] = FIRST or [given[0]]
    return results if given[0] is FIRST[0] or given[0].data_ptr() != FIRST[0].data_ptr() else (results[0] + 1,)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (EXP, lambda n, _, results: tuple(torch.nextafter(x, x + 1) if n > 1 else x for x in results)),
        ("torch.add_(input0, 1.0)", lambda n, _, results: results),
        (EXP, lambda n, _, results: (BLOCK[n].copy_(results[0]),)),
        (EXP, follows_first),
    ],
    ids=["rounded", "in place", "one block", "other memory"],
)
def test_right_later_call_passes(text: str, change: Later) -> None:
    passes(of_rows(text), later(change))


def test_gradients_are_asked_for_twice() -> None:
    calls: list[None] = []

    def worn(gradients: Sequence[Any]) -> list[Any]:
        calls.append(None)
        return [each + (len(calls) > 1) for each in gradients]

    driver = compiled_both_ways(backward=changing_results(worn))
    fails(case("torch.sin(input0)", ROWS, grad=True), driver, reason=Reason.NONDETERMINISTIC, words="grad.input0")


def test_eager_torch_is_called_once() -> None:
    driver = TorchBackend()
    passes(of_rows(EXP), driver)
    assert driver.further(of_rows(EXP)) == ()


def test_other_values_that_torch_refuses_may_be_refused() -> None:
    """Half of the smallest number is 0, and a matrix of it is not positive-definite."""
    smallest = tensor((1, 1), fill="data", values=[[1e-45]])
    seen: list[float] = []

    def noticed(given: Sequence[torch.Tensor], results: Any) -> Any:
        seen.append(float(given[0]))
        return results

    passes(case("torch.linalg.cholesky(input0)", smallest), compiled_as(noticed))
    assert seen[:2] == [pytest.approx(1e-45, rel=0.5)] * 2


ELEMENTS, HALF = "the elements of input1 in the reverse order", "half the values of input1"


@pytest.mark.parametrize(
    ("text", "other", "how"),
    [
        ("torch.index_select(input0, 0, input1)", POSITIONS, ELEMENTS),
        ("torch.masked_fill(input0, input1, 3.0)", tensor((3, 40), "bool"), ELEMENTS),
        ("torch.add(input0, input1)", tensor(40, "int32", "arange"), ELEMENTS),
        ("torch.mul(input0, input1)", tensor(40, "complex64"), HALF),
    ],
)
def test_kept_integers_masks_and_complex_fail(text: str, other: Any, how: str) -> None:
    kept: list[torch.Tensor] = []

    def compiler(graph: Any, _: Any) -> Any:
        def made(*given: Any) -> Any:
            kept[:] = kept or [each.clone() for each in given if each.dtype is not torch.float32]
            return graph(*[each if each.dtype is torch.float32 else kept[0] for each in given])

        return made

    driver = torch_kit.registered(compiler)
    words = f"with {how}, the code compiled by {driver.compiler} returns its first results"
    assert fails(case(text, ROWS, other), driver, reason=Reason.STATE).message.startswith(words)
    passes(case(text, ROWS, other), by("aot_eager"))


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2", "uint16", "uint64"])
def test_unsigned_and_float8_inputs_are_compared(kind: str) -> None:
    of = case("torch.Tensor.float(input0)", tensor(8, kind, "data", values=[0, 1, 2, 3, 4, 5, 6, 7]))
    passes(of, by("aot_eager"))
    fails(of, compiled_as(lambda _, results: tuple(each + 1 for each in results)))


def integers(*values: int) -> Any:
    return tensor(len(values), "int64", "data", values=[*values])


TWICE = ["torch.sin(input0)", "torch.transpose(input0, 0, 1)", "torch.add_(input0, 1.0)"]
BAG = "torch.nn.functional.embedding_bag(input0, input1, input2)"


@pytest.mark.parametrize(
    "of",
    [
        *(case(text, ROWS, grad=grad) for text in TWICE for grad in (False, True)),
        # Integers in an order of their own.
        case(BAG, POSITIONS, tensor((3, 4)), integers(0, 1, 4)),
        case("torch.segment_reduce(input0, 'sum', lengths=input1)", tensor(6), integers(1, 2, 3)),
        case("torch.bucketize(input0, input1)", tensor(6), integers(-1, 0, 1)),
        case("torch.gather(input0, 1, input1)", ROWS, tensor((3, 4), "int64", strides=(8, 2))),
        # Results that do not depend on the magnitude.
        case("torch.sign(input0)", ROWS),
        case("torch.argmax(input0)", ROWS),
        case("torch.zeros_like(input0)", ROWS),
        case("torch.nn.functional.normalize(input0)", ROWS),
    ],
    ids=lambda of: of.attributes["call"],
)
def test_compiled_call_passes(of: TestCase) -> None:
    passes(of, by("aot_eager"))


@pytest.mark.parametrize("function", ["torch._grouped_mm", "torch.tensor_split", "torch.ops.aten._jagged_to_padded"])
def test_offsets_are_not_put_in_the_reverse_order(function: str) -> None:
    """A group would begin after its end, and nobody says what a kernel does then."""
    call: Any = SimpleNamespace(call=SimpleNamespace(function=function))
    offsets = torch.tensor([3, 8], dtype=torch.int32)
    assert other_values(call, 0, offsets) is None
    assert other_values(call, 0, offsets.float()) is not None


@pytest.mark.parametrize("kept_on_the_way", ["forward", "backward"])
def test_kept_gradients_fail(kept_on_the_way: str) -> None:
    kept: list[Any] = []

    def keeping(results: Sequence[Any]) -> list[Any]:
        kept[:] = kept or [each.clone() for each in results]
        return [each.clone() for each in kept]

    driver = compiled_both_ways(**{kept_on_the_way: changing_results(keeping)})
    found = fails(case("torch.sin(input0)", ROWS, grad=True), driver, reason=Reason.STATE)
    assert says(found.message, "torch_calls.with_half_the_values")
