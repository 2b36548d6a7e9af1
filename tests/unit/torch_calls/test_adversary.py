"""Wrong answers that look right: each of them passed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from texts import says
from torch_kit import Answering, Wrong, case, compiled_as, fails, passes, registered, separates, tensor

from optest.spec import ExpectedError, Fault, Reason, Tolerance
from optest.torch.calls.call import torch_call
from optest.torch.calls.memory_effects import require_inputs_unchanged, require_memory_as_on_cpu
from optest.torch.eager import TorchBackend
from optest.torch.shared_settings import keep_settings

WIDE = Tolerance(rtol=0.01, atol=0.01)


@pytest.mark.parametrize("text", ["torch.argmax(input0, 1)", "torch.topk(input0, 2)"])
def test_value_tolerance_does_not_accept_wrong_positions(text: str) -> None:
    separates(case(text, tensor((4, 5000)), stated=WIDE), Wrong(lambda outputs: [*outputs[:-1], outputs[-1] + 1]))


SLICED = tensor((3, 4), strides=(8, 1))


def test_write_into_input_gaps_fails() -> None:
    def write_gaps(outputs: list[Any], inputs: Sequence[Any]) -> list[Any]:
        np.lib.stride_tricks.as_strided(inputs[0], (8,), (4,))[4:] = 0
        return outputs

    separates(case("torch.exp(input0)", SLICED), Answering(write_gaps), reason=Reason.OUT_OF_BOUNDS)


def write_gaps(given: Sequence[Any], results: Any) -> Any:
    given[0].as_strided((20,), (1,))[4:8] += 1
    return results


def repeated(given: Sequence[Any], _: Any) -> Any:
    return (torch.tensor(3.0).expand(given[0].shape),)


def by_columns(given: Sequence[Any], _: Any) -> Any:
    return (given[0].t().clone(memory_format=torch.contiguous_format).t(),)


ROWS, COLUMNS = tensor((3, 4)), tensor((3, 4), strides=(1, 3))


@pytest.mark.parametrize(
    ("text", "given", "harm", "reason", "words"),
    [
        ("torch.relu_(input0)", SLICED, write_gaps, Reason.OUT_OF_BOUNDS, ""),
        ("torch.clone(input0)", ROWS, lambda given, _: (given[0],), Reason.STATE, "torch_calls.should_have_memory_of"),
        ("torch.full_like(input0, 3.0)", ROWS, repeated, Reason.STATE, "torch_calls.several_elements_of_output"),
        ("torch.relu(input0)", ROWS, lambda _, made: (made[0].to_sparse(),), Reason.SHAPE, "torch.sparse_coo"),
        ("torch.contiguous(input0)", COLUMNS, by_columns, Reason.SHAPE, ""),
    ],
    ids=["write into gaps", "copy is input", "repeated elements", "sparse for strided", "not contiguous"],
)
def test_compiler_with_wrong_memory_fails(text: str, given: Any, harm: Any, reason: Reason, words: str) -> None:
    """``harm`` gets the graph's tensors and its results."""
    passes(case(text, given))
    message = fails(case(text, given), compiled_as(harm), reason=reason).message
    assert says(message, words) if words.startswith("torch_calls.") else words in message


TENTHS = tensor(2, fill="data", values=[0.1, 0.3])


@pytest.mark.parametrize(
    ("text", "given"),
    [
        # A view is the memory of its input.
        ("torch.transpose(input0, 0, 1)", [ROWS]),
        ("torch.contiguous(input0)", [ROWS]),
        ("torch.getitem(input0, 1)", [ROWS]),
        # Torch itself expands the result.
        ("torch.expand(input0, (3, 4))", [tensor(4)]),
        ("torch.broadcast_tensors(input0, input1)", [tensor(4), tensor((3, 1))]),
        ("torch.to_sparse(input0)", [ROWS]),
        # A comparison converts its number: 0.1 as float32 is 0.1 to torch, though not in float64.
        *((f"torch.{name}(input0, 0.1)", [TENTHS]) for name in ("ne", "gt", "le", "Tensor.eq", "ops.aten.eq.Scalar")),
        ("torch.searchsorted(input0, 0.1)", [TENTHS]),
    ],
)
def test_right_call_passes(text: str, given: list[Any]) -> None:
    passes(case(text, *given))


def test_comparison_converts_number_to_tensor_dtype() -> None:
    separates(case("torch.eq(input0, 0.1)", TENTHS), Wrong(lambda outputs: [~outputs[0]]))


def test_a_call_in_place_returns_what_it_changed() -> None:
    call = torch_call("torch.relu_(input0)")
    rows = [np.ones((2, 2), np.float32)]
    changed = torch.ones(2, 2)
    require_memory_as_on_cpu(call, rows, [changed], [changed, changed])
    with pytest.raises(Fault, match="returns another tensor"):
        require_memory_as_on_cpu(call, rows, [changed], [changed.clone(), changed])


@pytest.mark.parametrize(
    ("place", "reason"),
    [((0, 1), Reason.INPUT_MUTATED), ((0, 5), Reason.OUT_OF_BOUNDS)],
)
def test_inputs_on_a_device_are_looked_at_too(place: tuple[int, int], reason: Reason) -> None:
    """The memory of the host is another one there, so it shows nothing."""
    storage = torch.zeros(3, 8)
    array = storage.numpy()[:, :4]
    call = torch_call("torch.exp(input0)")

    def placed(_: int) -> torch.Tensor:
        return storage.clone()[:, :4]

    used = placed(0)
    require_inputs_unchanged(call, [used], [used], placed)
    used.as_strided((3, 8), (8, 1))[place] = 1
    with pytest.raises(Fault) as raised:
        require_inputs_unchanged(call, [used], [used], placed)
    assert raised.value.reason is reason
    assert array.sum() == 0


def test_expanded_input_on_device_is_checked() -> None:
    call = torch_call("torch.exp(input0)")
    used = torch.zeros(4).expand(3, 4)
    require_inputs_unchanged(call, [used], [used], lambda _: torch.zeros(4).expand(3, 4))
    used[0].fill_(1)
    with pytest.raises(Fault, match="input0 was changed"):
        require_inputs_unchanged(call, [used], [used], lambda _: torch.zeros(4).expand(3, 4))


def test_a_compiler_that_fails_refuses_nothing() -> None:
    def refuses(_: Any, __: Any) -> Any:
        raise RuntimeError("no kernel for negative powers")

    refused = case(
        "torch.pow(input0, -1)",
        tensor(3, "int64", "ones"),
        expects_error=ExpectedError(type="RuntimeError", match="negative"),
    )
    separates(refused, registered(refuses), reason=Reason.COMPILE)


# What is set for all of torch stays as it is: a call that changes it decides what others compute.


LONG_ROWS = tensor((3, 40))

DOUBLE, EXP = torch.float64, case("torch.exp(input0)", LONG_ROWS)


def doing(change: Callable[[], Any]) -> TorchBackend:
    """Torch with a compiler whose code changes something and returns the right results."""
    return compiled_as(lambda _, results: (change(), results)[1])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda: torch.set_default_dtype(DOUBLE), f"torch.get_default_dtype() was torch.float32, is {DOUBLE}"),
        (lambda: torch.set_default_device("meta"), "torch.get_default_device() was cpu, is meta"),
        (lambda: torch.use_deterministic_algorithms(True), "torch.get_deterministic_debug_mode() was 0, is 2"),
        (lambda: torch.set_num_threads(torch.get_num_threads() + 1), "torch.get_num_threads() was "),
        (lambda: torch.rand(1), "drew random numbers of torch"),
        (lambda: torch.manual_seed(0), "drew random numbers of torch"),
    ],
)
def test_changed_settings_fail_and_are_restored(change: Callable[[], Any], told: str) -> None:
    with torch.random.fork_rng(devices=()):
        fails(EXP, doing(change), reason=Reason.STATE, words=told)


def test_changed_matmul_precision_fails() -> None:
    """Torch's switch widens the rule of products, and is the user's."""

    def coarse(given: Any, _: Any) -> Any:
        torch.set_float32_matmul_precision("medium")
        return ((given[0].bfloat16() @ given[1].bfloat16()).float(),)

    found = fails(
        case("torch.matmul(input0, input1)", LONG_ROWS, tensor((40, 5))), compiled_as(coarse), reason=Reason.STATE
    )
    assert says(found.message, "torch_calls.torch_get_float_matmul")


def test_conditionally_random_call_may_draw() -> None:
    """What is above 0 rrelu gives back; a compiler may draw the slopes of the others all the same."""
    positive = tensor((3, 40), fill="uniform", low=0.5, high=1.0)
    with torch.random.fork_rng(devices=()):
        passes(case("torch.nn.functional.rrelu(input0, training=True)", positive), doing(lambda: torch.rand(1)))


def test_settings_of_the_user_are_no_fault() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        passes(EXP, compiled_as(lambda _, results: results))
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_refusal_is_told_though_settings_were_changed() -> None:
    def refused() -> None:
        with keep_settings("the call"):
            torch.set_default_dtype(torch.float64)
            raise Fault(Reason.UNSUPPORTED, "no kernel")

    with pytest.raises(Fault, match="no kernel"):
        refused()
    assert torch.get_default_dtype() is torch.float32
