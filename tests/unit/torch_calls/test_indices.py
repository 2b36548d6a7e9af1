"""Which tensors of a call hold positions, and what is said of fills, literals and masks that cannot be right."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from texts import refusal
from torch_kit import Wrong, case, element, fails, passes, separates, tensor

from optest.core.runner import why_not_run
from optest.spec import ExpectedError, Fault, Fill, Reason, TensorSpec, TestCase, dtype
from optest.torch.calls.indices import (
    index_intervals,
    literals_of,
    positions_of,
    require_chosen_elements,
    require_legal_positions,
)
from optest.torch.eager import TorchBackend


def specs(*tensors: tuple[str, tuple[int, ...]]) -> list[TensorSpec]:
    return [TensorSpec(dtype=dtype(name), shape=shape) for name, shape in tensors]


FLOATS, INDICES, MASK = ("float32", (5, 7, 3)), ("int64", (4,)), ("bool", (5, 7))

PLANES = (("float32", (1, 5, 2, 3)), ("int64", (1, 5, 2, 3)))
POOLS = [("int64", (5, 2, 3)), ("float32", (5, 2, 3)), ("float32", (5, 4, 6))]
CLASSES_2D = [("float32", (2, 9, 2)), ("int64", (2, 2))]
LOSS = [("float32", ()), ("float32", (4, 9)), INDICES, ("float32", ())]
ATEN = "torch.ops.aten"
POOLED = f"{ATEN}.max_pool2d_with_indices_backward.default"


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
        (f"{ATEN}.nll_loss2d_forward.default(input0, input1, None, 1, -1)", CLASSES_2D, [(1, 0, 8)]),
        (f"{ATEN}.nll_loss_backward.default(input0, input1, input2, None, 1, -100, input3)", LOSS, [(2, 0, 8)]),
        (f"{ATEN}.embedding_dense_backward.default(input0, input1, 11, -1, False)", [FLOATS, INDICES], [(1, 0, 10)]),
        ("torch.ops.aten.max_unpool2d.default(input0, input1, [4, 6])", [*PLANES], [(1, 0, 23)]),
        ("torch.nn.functional.max_unpool2d(input0, input1, 2)", [*PLANES], [(1, 0, 23)]),
        ("torch.nn.functional.max_unpool2d(input0, input1, (2, 3), (1, 2), (0, 1), None)", [*PLANES], [(1, 0, 14)]),
        ("torch.nn.functional.max_unpool1d(input0, input1, 2, output_size=(1, 5, 7))", [*PLANES], [(1, 0, 6)]),
        (f"{POOLED}(input1, input2, [2, 2], [2, 2], [0, 0], [1, 1], False, input0)", POOLS, [(0, 0, 23)]),
        (f"{ATEN}.adaptive_max_pool2d_backward.default(input1, input2, input0)", POOLS, [(0, 0, 23)]),
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
    assert {name: (each.low, each.high) for name, each in found.items()} == {"input0": (0.0, 10.0)}


def embedding(kind: str, rows: int = 272, **parameters: Any) -> TestCase:
    """Return a case with four positions of that fill in a table with rows."""
    places, table = tensor(4, "int64", kind, **parameters), tensor((rows, 3))
    return case("torch.nn.functional.embedding(input0, input1)", places, table)


@pytest.mark.parametrize(
    ("of", "reached", "bounds"),
    [
        (embedding("randint", low=0, high=1000), 999, "high: 272"),
        (embedding("randint", low=-1, high=5), -1, "low: 0 and high: 272"),
        (embedding("full", value=272), 272, "high: 272"),
        (embedding("data", values=[0, 1, 2, 300]), 300, "high: 272"),
        (embedding("arange", start=270), 273, "high: 272"),
    ],
)
def test_fill_beyond_end_is_bad_case(of: TestCase, reached: int, bounds: str) -> None:
    message = f"reaches {reached}, but holds positions in dimension 0 of input1.*; set {bounds}"
    with pytest.raises(Fault, match=message) as raised:
        require_legal_positions(of)
    assert raised.value.reason is Reason.BAD_CASE


def test_empty_table_has_no_positions() -> None:
    with pytest.raises(Fault, match="dimension 0 of input1, which has the size 0, but it is empty") as raised:
        require_legal_positions(embedding("randint", rows=0))
    assert raised.value.reason is Reason.BAD_CASE


@pytest.mark.parametrize(
    "of",
    [
        embedding("randint", low=0, high=272),
        embedding("randint"),
        embedding("zeros"),
        embedding("ones"),
        embedding("data", values=[0, 1, 2, 271]),
    ],
)
def test_legal_positions_are_legal(of: TestCase) -> None:
    require_legal_positions(of)


def test_ones_exceed_single_position() -> None:
    with refusal(Fault, "torch_calls.reaches_but_holds_positions"):
        require_legal_positions(embedding("ones", rows=1))


def losses(values: list[int], text: str = "") -> TestCase:
    call = f"torch.nn.functional.cross_entropy(input0, input1{text})"
    return case(call, tensor((4, 9)), tensor(4, "int64", "data", values=values))


def test_a_class_that_is_ignored_is_legal() -> None:
    require_legal_positions(losses([0, -100, 8, 1]))
    require_legal_positions(losses([0, 99, 8, 1], ", ignore_index=99"))
    with pytest.raises(Fault, match="reaches -1"):
        require_legal_positions(losses([0, -1, 8, 1]))
    require_legal_positions(losses([0, -1, 8, 1], ", None, None, -1"))


# Positions that a call states and masks that choose nothing are faults of the case, said before anything runs.


def fill(kind: str, **parameters: Any) -> Fill:
    return Fill(kind=kind, parameters=parameters)


NOWHERE = [
    *(fill("zeros"), fill("full", value=False), fill("full", value=0), fill("randint", low=0, high=1)),
    fill("data", values=[[False, False], [False, False]]),
]
SOMEWHERE = [
    *(fill("randint"), fill("ones"), fill("full", value=True), fill("randint", low=0, high=2)),
    fill("data", values=[[False, False], [True, False]]),
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
    "torch.Tensor.__getitem__(input0, input1)",
    "torch.Tensor.getitem(input0, input1)",
    "torch.setitem(input0, (input1,), 0.5)",
    "torch.ops.aten.index_put.default(input0, [input1], input2)",
]


@pytest.mark.parametrize("text", CALLS)
@pytest.mark.parametrize("fill", [*NOWHERE, *SOMEWHERE], ids=str)
def test_all_false_mask_is_bad_case(text: str, fill: Fill) -> None:
    if fill in SOMEWHERE:
        require_chosen_elements(masked_case(text, fill))
        return
    with pytest.raises(Fault, match=r"input1, the mask of .*False everywhere") as raised:
        require_chosen_elements(masked_case(text, fill))
    assert raised.value.reason is Reason.BAD_CASE


ATTENTION = "torch.nn.functional.scaled_dot_product_attention(input0, input1, input2, input3)"


LEFT_PADDED = [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 1]]
"""The first query is of padding, and no query sees the first key."""

MASKS = {"some": LEFT_PADDED, "all": [[0] * 4] * 4}


def attention(mask: str, kind: str, *, is_added: bool = False, grad: bool = False) -> TestCase:
    values = [[0.0 if seen else "-inf" for seen in row] for row in MASKS[mask]] if is_added else MASKS[mask]
    operands = [tensor((2, 4, 8), kind)] * 3
    return case(ATTENTION, *operands, tensor((4, 4), kind if is_added else "bool", "data", values=values), grad=grad)


def not_a_number(place: int, output: int = 0) -> Wrong:
    return element(place, lambda was: was * 0 + math.nan, output)


@pytest.mark.parametrize("kind", ["float64", "bfloat16"])
@pytest.mark.parametrize("is_added", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_a_query_without_a_key_has_zeros(mask: str, is_added: bool, kind: str) -> None:
    asked = attention(mask, kind, is_added=is_added)
    runs(asked)
    fails(asked, not_a_number(0), reason=Reason.NAN)
    fails(asked, element(0, lambda was: was * 0 + 1))


@pytest.mark.parametrize("place", [8, 31, 63])
@pytest.mark.parametrize(("kind", "is_added"), [("float32", False), ("bfloat16", True)])
def test_the_queries_beside_it_are_judged(kind: str, is_added: bool, place: int) -> None:
    asked = attention("some", kind, is_added=is_added)
    fails(asked, not_a_number(place), reason=Reason.NAN)
    fails(asked, element(place, lambda was: was + 0.5))


@pytest.mark.parametrize("is_added", [False, True])
def test_query_without_key_has_finite_gradients(is_added: bool) -> None:
    separates(attention("some", "float32", is_added=is_added, grad=True), not_a_number(0, 2), reason=Reason.NAN)


ACCEPTED = ["torch.where(input1, input0, input2)", "torch.logical_not(input1)", "torch.any(input1)"]
NO_ELEMENT = masked_case(CALLS[0], fill("zeros"))


@pytest.mark.parametrize(
    "of",
    [
        *(masked_case(text, fill("zeros")) for text in ACCEPTED),
        masked_case(CALLS[0], fill("zeros"), shape=(0, 2)),
        dataclasses.replace(NO_ELEMENT, generator="somewhere:Masks"),
        dataclasses.replace(NO_ELEMENT, expects_error=ExpectedError()),
    ],
)
def test_all_false_mask_is_accepted(of: TestCase) -> None:
    """The call has a result, there is no element at all, a generator draws the mask, or a refusal is expected."""
    require_chosen_elements(of)


def test_bad_case_is_reported_before_run() -> None:
    is_bad_case(NO_ELEMENT, "False everywhere")


def is_bad_case(of: TestCase, words: str) -> None:
    found = why_not_run(of, TorchBackend())
    assert (found.reason, words in found.message) == (Reason.BAD_CASE, True)


ROWS = tensor((4, 6))

WRONG = [
    *("4", "-5", "(0, 6)", "(..., 6)", "(None, 1, -7)", "[0, 4]", "(slice(None), [0, 6])"),
    "torch.Tensor.__getitem__(input0, 4)",
    "torch.setitem(input0, 9, 0.0)",
    "torch.select(input0, 0, 9)",
    "torch.select(input0, dim=-1, index=6)",
    "torch.ops.aten.select.int(input0, 1, -7)",
]
RIGHT = [
    *("3", "-4", "(3, 5)", "(..., -6)", "(None, 3, None, 5)", "[0, 3]", "(0, [[0, 3], [1, 2]])", "True", "(True, 3)"),
    *("(slice(0, 99, 1), [0, 5])", "(slice(0, 99, None), 5)"),
    "torch.setitem(input0, (3, 5), 0.0)",
    "torch.select(input0, 0, 3)",
]
"""Calls, and positions of torch.getitem."""


def of_rows(text: str) -> TestCase:
    return case(text if text.startswith("torch") else f"torch.getitem(input0, {text})", ROWS)


@pytest.mark.parametrize("text", WRONG)
def test_literal_position_beyond_end_is_bad_case(text: str) -> None:
    is_bad_case(of_rows(text), "the position in dimension")


def test_expected_index_error_is_run() -> None:
    runs(case("torch.getitem(input0, 4)", ROWS, expects_error=ExpectedError(type="IndexError", match="index 4")))


@pytest.mark.parametrize("text", RIGHT)
def test_a_position_within_is_none_of_its_business(text: str) -> None:
    runs(of_rows(text))


def runs(of: TestCase) -> None:
    assert why_not_run(of, TorchBackend()) is None
    passes(of)


def test_other_arguments_hold_no_positions() -> None:
    for text in ("torch.getitem([input0, input0], 7)", "torch.add(input0, 99)", "torch.getitem(input0)"):
        assert literals_of(text, [ROWS[0]]) == []
