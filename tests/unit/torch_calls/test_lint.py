"""Positions that a call states and masks that choose nothing are faults of the case, said before anything runs."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from torch_kit import case, element, tensor, verdict

from optest.core.runner import why_not_run
from optest.spec import Argument, ExpectedError, Fault, Fill, Reason, Status, TensorSpec, TestCase, dtype
from optest.torch.calls.descriptors import descriptor_of
from optest.torch.calls.indices import literals_of, require_chosen_elements
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch

RANDOM = Fill(kind="randint")
NOWHERE = [
    Fill(kind="zeros"),
    Fill(kind="full", parameters={"value": False}),
    Fill(kind="full", parameters={"value": 0}),
    Fill(kind="data", parameters={"values": [[False, False], [False, False]]}),
    Fill(kind="randint", parameters={"low": 0, "high": 1}),
]
SOMEWHERE = [
    RANDOM,
    Fill(kind="ones"),
    Fill(kind="full", parameters={"value": True}),
    Fill(kind="data", parameters={"values": [[False, False], [True, False]]}),
    Fill(kind="randint", parameters={"low": 0, "high": 2}),
]


def masked_case(text: str, mask: Fill, kind: str = "bool", shape: tuple[int, ...] = (2, 2), **more: Any) -> TestCase:
    """The mask is input1; there are three other tensors of floats."""
    floats = TensorSpec(dtype=dtype("float32"), shape=(2, 2))
    specs = [(floats, Fill(kind="randn"))] * 4
    specs[1] = (TensorSpec(dtype=dtype(kind), shape=shape), mask)
    return TestCase(
        descriptor=descriptor_of(text.partition("(")[0]),
        inputs=tuple(
            Argument(name=f"input{index}", path=f"input{index}", spec=spec, fill=fill)
            for index, (spec, fill) in enumerate(specs)
        ),
        attributes={"call": text},
        **more,
    )


CALLS = [
    "torch.masked_fill(input0, input1, 0.5)",
    "torch.masked_fill_(input0, mask=input1, value=0.5)",
    "torch.ops.aten.masked_fill.Scalar(input0, input1, 0.5)",
    "torch.masked_select(input0, input1)",
    "torch.masked_scatter(input0, input1, input2)",
    "torch.getitem(input0, input1)",
    "torch.setitem(input0, (input1,), 0.5)",
    "torch.ops.aten.index_put.default(input0, [input1], input2)",
]


@pytest.mark.parametrize("text", CALLS)
@pytest.mark.parametrize("fill", NOWHERE, ids=str)
def test_a_mask_that_is_false_everywhere_is_a_fault_of_the_case(text: str, fill: Fill) -> None:
    with pytest.raises(Fault, match=r"input1 is filled by .*but is False everywhere") as raised:
        require_chosen_elements(masked_case(text, fill))
    assert raised.value.reason is Reason.BAD_CASE


@pytest.mark.parametrize("text", CALLS)
@pytest.mark.parametrize("fill", SOMEWHERE, ids=str)
def test_a_mask_that_chooses_something_is_none(text: str, fill: Fill) -> None:
    require_chosen_elements(masked_case(text, fill))


ATTENTION = "torch.nn.functional.scaled_dot_product_attention(input0, input1, input2, input3)"
LEFT_PADDED = [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1]]
"""The first query is of padding, and no query sees the first key."""
MASKS = {
    "some": LEFT_PADDED,
    "all": [[0] * 4] * 4,
}


def attention(mask: str, kind: str, *, is_added: bool = False, grad: bool = False) -> TestCase:
    values = [[0.0 if seen else "-inf" for seen in row] for row in MASKS[mask]] if is_added else MASKS[mask]
    operands = [tensor((2, 4, 8), kind)] * 3
    return case(ATTENTION, *operands, tensor((4, 4), kind if is_added else "bool", "data", values=values), grad=grad)


@pytest.mark.parametrize("kind", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("is_added", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_a_query_without_a_key_has_zeros(mask: str, is_added: bool, kind: str) -> None:
    asked = attention(mask, kind, is_added=is_added)
    assert why_not_run(asked, TorchBackend()) is None
    assert verdict(asked).status is Status.PASSED
    hidden = element(0, lambda was: was * 0 + math.nan)
    assert verdict(asked, hidden).reason is Reason.NAN
    assert verdict(asked, element(0, lambda was: was * 0 + 1)).reason is Reason.VALUE


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
@pytest.mark.parametrize("is_added", [False, True])
def test_the_queries_beside_it_are_judged(is_added: bool, kind: str) -> None:
    asked = attention("some", kind, is_added=is_added)
    for place in (8, 31, 63):
        assert verdict(asked, element(place, lambda was: was * 0 + math.nan)).reason is Reason.NAN
        assert verdict(asked, element(place, lambda was: was + 0.5)).reason is Reason.VALUE


@pytest.mark.parametrize("is_added", [False, True])
def test_gradients_around_a_query_without_a_key_are_numbers(is_added: bool) -> None:
    asked = attention("some", "float32", is_added=is_added, grad=True)
    assert verdict(asked).status is Status.PASSED
    assert verdict(asked, element(0, lambda was: was * 0 + math.nan, output=2)).reason is Reason.NAN


@pytest.mark.parametrize(
    "text", ["torch.where(input1, input0, input2)", "torch.logical_not(input1)", "torch.any(input1)"]
)
def test_where_false_is_an_answer_it_is_no_fault(text: str) -> None:
    require_chosen_elements(masked_case(text, Fill(kind="zeros")))


def test_a_generator_of_ones_own_and_an_expected_refusal_are_left_alone() -> None:
    asked = masked_case(CALLS[0], Fill(kind="zeros"))
    require_chosen_elements(dataclasses.replace(asked, generator="somewhere:Masks"))
    require_chosen_elements(dataclasses.replace(asked, expects_error=ExpectedError()))
    require_chosen_elements(masked_case(CALLS[0], Fill(kind="zeros"), shape=(0, 2)))


def test_it_is_said_before_anything_runs() -> None:
    found = why_not_run(masked_case(CALLS[0], Fill(kind="zeros")), TorchBackend())
    assert found is not None
    assert (found.reason, "is False everywhere" in found.message) == (Reason.BAD_CASE, True)


ROWS = tensor((4, 6))
WRONG = [
    "torch.getitem(input0, 4)",
    "torch.getitem(input0, -5)",
    "torch.getitem(input0, (0, 6))",
    "torch.getitem(input0, (..., 6))",
    "torch.getitem(input0, (None, 1, -7))",
    "torch.getitem(input0, [0, 4])",
    "torch.getitem(input0, (slice(None), [0, 6]))",
    "torch.Tensor.__getitem__(input0, 4)",
    "torch.setitem(input0, 9, 0.0)",
    "torch.select(input0, 0, 9)",
    "torch.select(input0, dim=-1, index=6)",
    "torch.ops.aten.select.int(input0, 1, -7)",
]
RIGHT = [
    "torch.getitem(input0, 3)",
    "torch.getitem(input0, -4)",
    "torch.getitem(input0, (3, 5))",
    "torch.getitem(input0, (..., -6))",
    "torch.getitem(input0, (None, 3, None, 5))",
    "torch.getitem(input0, [0, 3])",
    "torch.getitem(input0, (0, [[0, 3], [1, 2]]))",
    "torch.getitem(input0, (slice(0, 99, 1), [0, 5]))",
    "torch.getitem(input0, (slice(0, 99, None), 5))",
    "torch.getitem(input0, True)",
    "torch.getitem(input0, (True, 3))",
    "torch.setitem(input0, (3, 5), 0.0)",
    "torch.select(input0, 0, 3)",
]


@pytest.mark.parametrize("text", WRONG)
def test_a_position_beyond_the_end_is_told_before_the_call(text: str) -> None:
    found = why_not_run(case(text, ROWS), TorchBackend())
    assert found is not None
    assert (found.reason, "the call states the position" in found.message) == (Reason.BAD_CASE, True)


@pytest.mark.parametrize("text", RIGHT)
def test_a_position_within_is_none_of_its_business(text: str) -> None:
    of = case(text, ROWS)
    assert why_not_run(of, TorchBackend()) is None
    assert verdict(of).status is Status.PASSED


def test_a_call_that_should_be_refused_for_it_is_run() -> None:
    of = case("torch.getitem(input0, 4)", ROWS, expects_error=ExpectedError(type="IndexError", match="index 4"))
    assert why_not_run(of, TorchBackend()) is None
    assert verdict(of).status is Status.PASSED


def test_what_is_no_subscript_of_a_tensor_holds_none() -> None:
    assert literals_of("torch.getitem([input0, input0], 7)", [ROWS[0]]) == []
    assert literals_of("torch.add(input0, 99)", [ROWS[0]]) == []
    assert literals_of("torch.getitem(input0)", [ROWS[0]]) == []
