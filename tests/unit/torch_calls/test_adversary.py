"""Wrong answers that look right: each of them passed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from texts import says
from torch_kit import Answering, by, case, compiler_that, tensor
from torch_kit import verdict as of

from optest.spec import ExpectedError, Fault, Reason, Status, Tolerance, Verdict
from optest.torch.calls.call import torch_call
from optest.torch.calls.memory_effects import require_inputs_unchanged, require_memory_as_on_cpu
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch

WIDE = Tolerance(rtol=0.01, atol=0.01)


def verdict(text: str, *inputs: Any, driver: TorchBackend | None = None, stated: Tolerance | None = None) -> Verdict:
    return of(case(text, *inputs, stated=stated), driver)


@pytest.mark.parametrize("text", ["torch.argmax(input0, 1)", "torch.topk(input0, 2)"])
def test_value_tolerance_does_not_accept_wrong_positions(text: str) -> None:
    def beside(outputs: list[Any], _: Sequence[Any]) -> list[Any]:
        return [*outputs[:-1], outputs[-1] + 1]

    rows = tensor((4, 5000))
    assert verdict(text, rows, stated=WIDE).status is Status.PASSED
    assert verdict(text, rows, stated=WIDE, driver=Answering(beside)).reason is Reason.VALUE


def test_write_into_input_gaps_fails() -> None:
    def write_gaps(outputs: list[Any], inputs: Sequence[Any]) -> list[Any]:
        np.lib.stride_tricks.as_strided(inputs[0], (8,), (4,))[4:] = 0
        return outputs

    rows = tensor((3, 4), strides=(8, 1))
    assert verdict("torch.exp(input0)", rows).status is Status.PASSED
    assert verdict("torch.exp(input0)", rows, driver=Answering(write_gaps)).reason is Reason.OUT_OF_BOUNDS


SLICED = tensor((3, 4), strides=(8, 1))


def compiled_wrongly(name: str, text: str, *inputs: Any, harm: Callable[[Sequence[Any], Any], Any]) -> Verdict:
    """The verdict where a compiler of that name does harm: ``harm`` gets the graph's tensors and its results."""
    return verdict(text, *inputs, driver=compiler_that(name, harm))


def test_in_place_write_into_gaps_fails() -> None:
    def write_gaps(given: Sequence[Any], results: Any) -> Any:
        given[0].as_strided((20,), (1,))[4:8] += 1
        return results

    assert verdict("torch.relu_(input0)", SLICED).status is Status.PASSED
    found = compiled_wrongly("optest_gaps", "torch.relu_(input0)", SLICED, harm=write_gaps)
    assert found.reason is Reason.OUT_OF_BOUNDS, found


def test_a_copy_has_memory_of_its_own() -> None:
    assert verdict("torch.clone(input0)", tensor((3, 4))).status is Status.PASSED
    found = compiled_wrongly("optest_no_copy", "torch.clone(input0)", tensor((3, 4)), harm=lambda given, _: (given[0],))
    assert found.reason is Reason.STATE, found
    assert says(found.message, "torch_calls.should_have_memory_of")


@pytest.mark.parametrize(
    "text", ["torch.transpose(input0, 0, 1)", "torch.contiguous(input0)", "torch.getitem(input0, 1)"]
)
def test_a_view_is_the_memory_of_its_input(text: str) -> None:
    assert verdict(text, tensor((3, 4))).status is Status.PASSED


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


def test_repeated_elements_of_result_fail() -> None:
    def repeated(given: Sequence[Any], _: Any) -> Any:
        return (torch.tensor(3.0).expand(given[0].shape),)

    rows = tensor((3, 4))
    assert verdict("torch.full_like(input0, 3.0)", rows).status is Status.PASSED
    found = compiled_wrongly("optest_repeated", "torch.full_like(input0, 3.0)", rows, harm=repeated)
    assert found.reason is Reason.STATE, found
    assert says(found.message, "torch_calls.several_elements_of_output")


def test_a_result_that_torch_itself_expands_passes() -> None:
    assert verdict("torch.expand(input0, (3, 4))", tensor((4,))).status is Status.PASSED
    assert verdict("torch.broadcast_tensors(input0, input1)", tensor((4,)), tensor((3, 1))).status is (Status.PASSED)


def test_sparse_result_for_strided_fails() -> None:
    rows = tensor((3, 4))
    found = compiled_wrongly("optest_sparse", "torch.relu(input0)", rows, harm=lambda _, made: (made[0].to_sparse(),))
    assert found.reason is Reason.SHAPE, found
    assert "torch.sparse_coo" in found.message
    assert verdict("torch.to_sparse(input0)", rows).status is Status.PASSED


TENTHS = tensor(2, fill="data", values=[0.1, 0.3])


@pytest.mark.parametrize("name", ["eq", "ne", "gt", "le", "Tensor.eq", "ops.aten.eq.Scalar", "searchsorted"])
def test_comparison_converts_number_to_tensor_dtype(name: str) -> None:
    """0.1 as float32 is 0.1 to torch, though not in float64."""
    assert verdict(f"torch.{name}(input0, 0.1)", TENTHS).status is Status.PASSED
    if name == "eq":
        found = verdict("torch.eq(input0, 0.1)", TENTHS, driver=Answering(lambda outputs, _: [~outputs[0]]))
        assert found.reason is Reason.VALUE


def test_a_compiler_that_fails_refuses_nothing() -> None:
    def fails(_: Any, __: Any) -> Any:
        raise RuntimeError("no kernel for negative powers")

    torch._dynamo.register_backend(fails, name="optest_no_pow")
    refused = case(
        "torch.pow(input0, -1)",
        tensor(3, "int64", "ones"),
        expects_error=ExpectedError(type="RuntimeError", match="negative"),
    )
    assert of(refused).status is Status.PASSED
    assert of(refused, by("optest_no_pow")).reason is Reason.COMPILE


def test_contiguous_is_contiguous() -> None:
    columns = tensor((3, 4), strides=(1, 3))
    assert verdict("torch.contiguous(input0)", columns).status is Status.PASSED
    found = compiled_wrongly(
        "optest_strided",
        "torch.contiguous(input0)",
        columns,
        harm=lambda given, _: (given[0].t().clone(memory_format=torch.contiguous_format).t(),),
    )
    assert found.reason is Reason.SHAPE, found
