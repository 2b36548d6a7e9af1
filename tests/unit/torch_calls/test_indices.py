"""Which tensors of a call hold positions, and what is said of fills, literals and masks that cannot be right."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from texts import refusal
from torch_kit import case, element, tensor, verdict

from optest.core.runner import why_not_run
from optest.spec import ExpectedError, Fault, Fill, Reason, Status, TensorSpec, TestCase, dtype
from optest.torch.calls.indices import (
    index_intervals,
    literals_of,
    positions_of,
    require_chosen_elements,
    require_legal_positions,
)
from optest.torch.eager import TorchBackend

pytestmark = pytest.mark.torch


def specs(*tensors: tuple[str, tuple[int, ...]]) -> list[TensorSpec]:
    return [TensorSpec(dtype=dtype(name), shape=shape) for name, shape in tensors]


FLOATS, INDICES, MASK = ("float32", (5, 7, 3)), ("int64", (4,)), ("bool", (5, 7))
PLANES = (("float32", (1, 5, 2, 3)), ("int64", (1, 5, 2, 3)))


@pytest.mark.parametrize(
    ("text", "tensors", "found"),
    [
        ("torch.nn.functional.embedding(input0, input1)", [INDICES, ("float32", (11, 3))], [(0, 0, 10)]),
        ("torch.ops.aten.embedding.default(input1, input0)", [INDICES, ("float32", (11, 3))], [(0, 0, 10)]),
        ("torch.index_select(input0, 1, input1)", [FLOATS, INDICES], [(1, 0, 6)]),
        ("torch.index_select(input0, dim=-1, index=input1)", [FLOATS, INDICES], [(1, 0, 2)]),
        ("torch.index_copy_(input0, 2, input1, input2)", [FLOATS, INDICES, FLOATS], [(1, 0, 2)]),
        ("torch.index_fill(input0, 1, input1, 3.0)", [FLOATS, INDICES], [(1, -7, 6)]),
        ("torch.ops.aten.index_fill_.int_Scalar(input0, -1, input1, 3.0)", [FLOATS, INDICES], [(1, -3, 2)]),
        ("torch.gather(input0, 0, input1)", [FLOATS, ("int64", (2, 7, 3))], [(1, 0, 4)]),
        ("torch.take(input0, input1)", [FLOATS, INDICES], [(1, -105, 104)]),
        ("torch.getitem(input0, input1)", [FLOATS, INDICES], [(1, -5, 4)]),
        ("torch.getitem(input0, (..., input1))", [FLOATS, INDICES], [(1, -3, 2)]),
        ("torch.getitem(input0, (None, slice(None, 2, None), input1))", [FLOATS, INDICES], [(1, -7, 6)]),
        ("torch.getitem(input0, (input1, input2))", [FLOATS, MASK, INDICES], [(2, -3, 2)]),
        ("torch.setitem(input0, (0, input1), 1.0)", [FLOATS, INDICES], [(1, -7, 6)]),
        ("torch.ops.aten.index.Tensor(input0, [None, input1])", [FLOATS, INDICES], [(1, -7, 6)]),
        ("torch.nn.functional.cross_entropy(input0, input1)", [("float32", (4, 9)), INDICES], [(1, 0, 8)]),
        (
            "torch.ops.aten.nll_loss2d_forward.default(input0, input1, None, 1, -1)",
            [("float32", (2, 9, 2)), ("int64", (2, 2))],
            [(1, 0, 8)],
        ),
        (
            "torch.ops.aten.nll_loss_backward.default(input0, input1, input2, None, 1, -100, input3)",
            [("float32", ()), ("float32", (4, 9)), INDICES, ("float32", ())],
            [(2, 0, 8)],
        ),
        (
            "torch.ops.aten.embedding_dense_backward.default(input0, input1, 11, -1, False)",
            [("float32", (4, 3)), INDICES],
            [(1, 0, 10)],
        ),
        ("torch.ops.aten.max_unpool2d.default(input0, input1, [4, 6])", [*PLANES], [(1, 0, 23)]),
        ("torch.nn.functional.max_unpool2d(input0, input1, 2)", [*PLANES], [(1, 0, 23)]),
        ("torch.nn.functional.max_unpool2d(input0, input1, (2, 3), (1, 2), (0, 1), None)", [*PLANES], [(1, 0, 14)]),
        ("torch.nn.functional.max_unpool1d(input0, input1, 2, output_size=(1, 5, 7))", [*PLANES], [(1, 0, 6)]),
        (
            "torch.ops.aten.max_pool2d_with_indices_backward.default("
            "input1, input2, [2, 2], [2, 2], [0, 0], [1, 1], False, input0)",
            [("int64", (5, 2, 3)), ("float32", (5, 2, 3)), ("float32", (5, 4, 6))],
            [(0, 0, 23)],
        ),
        (
            "torch.ops.aten.adaptive_max_pool2d_backward.default(input1, input2, input0)",
            [("int64", (5, 2, 3)), ("float32", (5, 2, 3)), ("float32", (5, 4, 6))],
            [(0, 0, 23)],
        ),
        ("torch.put_(input0, input1, input2)", [FLOATS, INDICES, FLOATS], [(1, -105, 104)]),
        ("torch.nn.functional.one_hot(input0, num_classes=6)", [INDICES], [(0, 0, 5)]),
        ("torch.nn.functional.one_hot(input0)", [INDICES], []),
        ("torch.nn.functional.embedding_bag(input0, input1)", [("int64", (2, 4)), FLOATS], [(0, 0, 4)]),
        ("torch.getitem(input0, input1)", [FLOATS, MASK], []),
        ("torch.add(input0, input1)", [INDICES, INDICES], []),
        ("torch.gather(input0)", [FLOATS], []),
    ],
)
def test_positions_and_their_ranges(
    text: str, tensors: list[tuple[str, tuple[int, ...]]], found: list[tuple[int, int, int]]
) -> None:
    assert [(each.index, each.low, each.high) for each in positions_of(text, specs(*tensors))] == found


def test_fills_without_bounds_are_drawn_within_the_dimension() -> None:
    text = "torch.nn.functional.embedding(input0, input1)"
    found = index_intervals(specs(INDICES, ("float32", (11, 3))), {"call": text})
    assert (found["input0"].low, found["input0"].high) == (0.0, 10.0)
    assert set(found) == {"input0"}


def embedding(fill: Fill, rows: int = 272) -> TestCase:
    (indices,) = specs(INDICES)
    return case("torch.nn.functional.embedding(input0, input1)", (indices, fill), tensor((rows, 3)))


@pytest.mark.parametrize(
    ("fill", "value"),
    [
        (Fill(kind="randint", parameters={"low": 0, "high": 1000}), 999),
        (Fill(kind="randint", parameters={"low": -1, "high": 5}), -1),
        (Fill(kind="full", parameters={"value": 272}), 272),
        (Fill(kind="data", parameters={"values": [0, 1, 2, 300]}), 300),
        (Fill(kind="arange", parameters={"start": 270}), 273),
    ],
)
def test_fill_beyond_end_is_bad_case(fill: Fill, value: int) -> None:
    with pytest.raises(
        Fault, match=f"reaches {value}, but holds positions in dimension 0 of input1.*high: 272"
    ) as raised:
        require_legal_positions(embedding(fill))
    assert raised.value.reason is Reason.BAD_CASE


def test_low_fill_message_names_lower_bound() -> None:
    with pytest.raises(Fault, match=r"reaches -1, .*; set low: 0 and high: 272"):
        require_legal_positions(embedding(Fill(kind="randint", parameters={"low": -1, "high": 5})))


@pytest.mark.parametrize(
    "fill",
    [
        Fill(kind="randint", parameters={"low": 0, "high": 272}),
        Fill(kind="randint"),
        Fill(kind="zeros"),
        Fill(kind="data", parameters={"values": [0, 1, 2, 271]}),
    ],
)
def test_legal_positions_are_legal(fill: Fill) -> None:
    require_legal_positions(embedding(fill))


def losses(values: list[int], text: str = "") -> TestCase:
    call = f"torch.nn.functional.cross_entropy(input0, input1{text})"
    return case(call, tensor((4, 9)), tensor(4, "int64", "data", values=values))


def test_a_class_that_is_ignored_is_legal() -> None:
    require_legal_positions(losses([0, -100, 8, 1]))
    require_legal_positions(losses([0, 99, 8, 1], ", ignore_index=99"))
    with pytest.raises(Fault, match="reaches -1"):
        require_legal_positions(losses([0, -1, 8, 1]))
    require_legal_positions(losses([0, -1, 8, 1], ", None, None, -1"))


def test_ones_exceed_single_position() -> None:
    require_legal_positions(embedding(Fill(kind="ones")))
    with refusal(Fault, "torch_calls.reaches_but_holds_positions"):
        require_legal_positions(embedding(Fill(kind="ones"), rows=1))


def test_what_is_empty_has_no_positions() -> None:
    with pytest.raises(Fault, match="there are none") as raised:
        require_legal_positions(embedding(Fill(kind="randint"), rows=0))
    assert raised.value.reason is Reason.BAD_CASE


# Positions that a call states and masks that choose nothing are faults of the case, said before anything runs.


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
    (spec,) = specs((kind, shape))
    return case(text, tensor((2, 2)), (spec, mask), tensor((2, 2)), tensor((2, 2)), **more)


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
def test_all_false_mask_is_bad_case(text: str, fill: Fill) -> None:
    with pytest.raises(Fault, match=r"input1, the mask of .*False everywhere") as raised:
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


@pytest.mark.parametrize("kind", ["float64", "bfloat16"])
@pytest.mark.parametrize("is_added", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_a_query_without_a_key_has_zeros(mask: str, is_added: bool, kind: str) -> None:
    asked = attention(mask, kind, is_added=is_added)
    assert why_not_run(asked, TorchBackend()) is None
    assert verdict(asked).status is Status.PASSED
    hidden = element(0, lambda was: was * 0 + math.nan)
    assert verdict(asked, hidden).reason is Reason.NAN
    assert verdict(asked, element(0, lambda was: was * 0 + 1)).reason is Reason.VALUE


@pytest.mark.parametrize(("kind", "is_added"), [("float32", False), ("bfloat16", True)])
def test_the_queries_beside_it_are_judged(kind: str, is_added: bool) -> None:
    asked = attention("some", kind, is_added=is_added)
    for place in (8, 31, 63):
        assert verdict(asked, element(place, lambda was: was * 0 + math.nan)).reason is Reason.NAN
        assert verdict(asked, element(place, lambda was: was + 0.5)).reason is Reason.VALUE


@pytest.mark.parametrize("is_added", [False, True])
def test_query_without_key_has_finite_gradients(is_added: bool) -> None:
    asked = attention("some", "float32", is_added=is_added, grad=True)
    assert verdict(asked).status is Status.PASSED
    assert verdict(asked, element(0, lambda was: was * 0 + math.nan, output=2)).reason is Reason.NAN


@pytest.mark.parametrize(
    "text", ["torch.where(input1, input0, input2)", "torch.logical_not(input1)", "torch.any(input1)"]
)
def test_all_false_mask_with_result_is_accepted(text: str) -> None:
    require_chosen_elements(masked_case(text, Fill(kind="zeros")))


def test_generator_and_expected_refusal_are_not_checked() -> None:
    asked = masked_case(CALLS[0], Fill(kind="zeros"))
    require_chosen_elements(dataclasses.replace(asked, generator="somewhere:Masks"))
    require_chosen_elements(dataclasses.replace(asked, expects_error=ExpectedError()))
    require_chosen_elements(masked_case(CALLS[0], Fill(kind="zeros"), shape=(0, 2)))


def test_it_is_said_before_anything_runs() -> None:
    found = why_not_run(masked_case(CALLS[0], Fill(kind="zeros")), TorchBackend())
    assert found is not None
    assert (found.reason, "False everywhere" in found.message) == (Reason.BAD_CASE, True)


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
def test_literal_position_beyond_end_is_bad_case(text: str) -> None:
    found = why_not_run(case(text, ROWS), TorchBackend())
    assert found is not None
    assert (found.reason, "the position in dimension" in found.message) == (Reason.BAD_CASE, True)


@pytest.mark.parametrize("text", RIGHT)
def test_a_position_within_is_none_of_its_business(text: str) -> None:
    of = case(text, ROWS)
    assert why_not_run(of, TorchBackend()) is None
    assert verdict(of).status is Status.PASSED


def test_expected_index_error_is_run() -> None:
    of = case("torch.getitem(input0, 4)", ROWS, expects_error=ExpectedError(type="IndexError", match="index 4"))
    assert why_not_run(of, TorchBackend()) is None
    assert verdict(of).status is Status.PASSED


def test_other_arguments_hold_no_positions() -> None:
    assert literals_of("torch.getitem([input0, input0], 7)", [ROWS[0]]) == []
    assert literals_of("torch.add(input0, 99)", [ROWS[0]]) == []
    assert literals_of("torch.getitem(input0)", [ROWS[0]]) == []
