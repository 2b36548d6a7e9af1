"""Which tensors of a call hold positions, and what is said of fills that reach past the end."""

from __future__ import annotations

import dataclasses

import pytest

from optest.spec import Argument, Fault, Fill, Reason, TensorSpec, TestCase, dtype
from optest.torch.calls.descriptors import descriptor_of
from optest.torch.calls.indices import domain, positions_of, require_legal_positions


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
    found = domain(specs(INDICES, ("float32", (11, 3))), {"call": text})
    assert (found["input0"].low, found["input0"].high) == (0.0, 10.0)
    assert set(found) == {"input0"}


def embedding(fill: Fill) -> TestCase:
    indices, weight = specs(INDICES, ("float32", (272, 3)))
    return TestCase(
        descriptor=descriptor_of("torch.nn.functional.embedding"),
        inputs=(
            Argument(name="input0", path="input0", spec=indices, fill=fill),
            Argument(name="input1", path="input1", spec=weight, fill=Fill(kind="randn")),
        ),
        attributes={"call": "torch.nn.functional.embedding(input0, input1)"},
    )


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
def test_a_fill_that_reaches_past_the_end_is_a_fault_of_the_case(fill: Fill, value: int) -> None:
    with pytest.raises(
        Fault, match=f"reaches {value}, but holds positions in dimension 0 of input1.*high: 272"
    ) as raised:
        require_legal_positions(embedding(fill))
    assert raised.value.reason is Reason.BAD_CASE


def test_a_fill_that_begins_too_low_is_told_where_to_begin() -> None:
    with pytest.raises(Fault, match=r"reaches -1, .*; state low: 0 and high: 272"):
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
    scores, classes = specs(("float32", (4, 9)), INDICES)
    call = f"torch.nn.functional.cross_entropy(input0, input1{text})"
    return TestCase(
        descriptor=descriptor_of("torch.nn.functional.cross_entropy"),
        inputs=(
            Argument(name="input0", path="input0", spec=scores, fill=Fill(kind="randn")),
            Argument(name="input1", path="input1", spec=classes, fill=Fill(kind="data", parameters={"values": values})),
        ),
        attributes={"call": call},
    )


def test_a_class_that_is_ignored_is_legal() -> None:
    require_legal_positions(losses([0, -100, 8, 1]))
    require_legal_positions(losses([0, 99, 8, 1], ", ignore_index=99"))
    with pytest.raises(Fault, match="reaches -1"):
        require_legal_positions(losses([0, -1, 8, 1]))
    require_legal_positions(losses([0, -1, 8, 1], ", None, None, -1"))


def test_ones_are_too_large_where_there_is_one_place() -> None:
    case = embedding(Fill(kind="ones"))
    require_legal_positions(case)
    (narrow,) = specs(("float32", (1, 3)))
    small = dataclasses.replace(case, inputs=(case.inputs[0], dataclasses.replace(case.inputs[1], spec=narrow)))
    with pytest.raises(Fault, match="reaches 1, but holds positions in dimension 0"):
        require_legal_positions(small)


def test_what_is_empty_has_no_positions() -> None:
    case = embedding(Fill(kind="randint"))
    (empty,) = specs(("float32", (0, 3)))
    none = dataclasses.replace(case, inputs=(case.inputs[0], dataclasses.replace(case.inputs[1], spec=empty)))
    with pytest.raises(Fault, match="there are none") as raised:
        require_legal_positions(none)
    assert raised.value.reason is Reason.BAD_CASE
