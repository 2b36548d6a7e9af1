"""What only moves elements is judged bit for bit, whatever tolerance the file has, and so is a result without any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch_kit import Wrong, case, element, fails, passes, separates, tensor, verdict, zeros

from optest.spec import Reason, Status, TestCase, Tolerance

LOOSE = Tolerance(rtol=0.01, atol=0.0)
IMAGE, MATRIX, ROW = tensor((1, 4, 4, 4)), tensor((3, 4)), tensor(4)
CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("torch.nn.functional.pixel_shuffle(input0, 2)", (IMAGE,)),
    ("torch.nn.functional.pixel_unshuffle(input0, 2)", (IMAGE,)),
    ("torch.nn.functional.channel_shuffle(input0, 2)", (IMAGE,)),
    ("torch.meshgrid(input0, input1, indexing='ij')", (ROW, ROW)),
    ("torch.cartesian_prod(input0, input1)", (ROW, ROW)),
    ("torch.block_diag(input0, input1)", (MATRIX, MATRIX)),
    ("torch.diag(input0)", (MATRIX,)),
    ("torch.diag_embed(input0)", (ROW,)),
    ("torch.diagonal_scatter(input0, input1)", (tensor((4, 4)), ROW)),
    ("torch.as_strided(input0, (2, 2), (4, 1))", (MATRIX,)),
    ("torch.ops.aten.slice.Tensor(input0, 0, 1, 3)", (MATRIX,)),
    ("torch.ops.aten.unsafe_split.Tensor(input0, 2)", (MATRIX,)),
    ("torch.ops.aten.permute_copy.default(input0, [1, 0])", (MATRIX,)),
]


@pytest.mark.parametrize(("text", "given"), CALLS)
def test_file_tolerance_does_not_apply_to_moves(text: str, given: tuple[Any, ...]) -> None:
    asked = case(text, *given, stated=LOOSE)
    separates(asked, element(0, lambda was: was * 1.001))


FILLED = [
    ("torch.full((2, 3), {})", ()),
    ("torch.full((2, 3), {}, dtype=torch.float16)", ()),
    ("torch.Tensor.new_full(input0, (2, 3), {})", (ROW,)),
    ("torch.full_like(input0, {})", (MATRIX,)),
    ("torch.masked_fill(input0, input1, {})", (MATRIX, tensor((3, 4), "bool", "ones"))),
    ("torch.Tensor.fill_(input0, {})", (MATRIX,)),
    ("torch.setitem(input0, slice(None), {})", (MATRIX,)),
    ("torch.nn.functional.pad(input0, (2, 2), value={})", (tensor(0),)),
]


@pytest.mark.parametrize("value", ["-inf", "nan"])
@pytest.mark.parametrize("stated", [None, LOOSE])
@pytest.mark.parametrize(("text", "given"), FILLED)
def test_a_fill_that_is_met_is_a_pass(text: str, given: tuple[Any, ...], stated: Tolerance | None, value: str) -> None:
    """Infinity and NaN everywhere are what the call states, and nothing was lost on the way."""
    asked = case(text.format(value), *given, stated=stated)
    passes(asked)
    assert verdict(asked, zeros()).reason in (Reason.VALUE, Reason.NAN)


def test_infinity_that_is_computed_proves_little() -> None:
    positive = tensor(4, fill="uniform", low=1.0, high=2.0)
    assert verdict(case("torch.mul(input0, inf)", positive)).status is Status.SUSPECT


# Calls whose results have no elements: meant if an input is explicitly empty, else nothing was compared.


RELU = "torch.nn.functional.relu(input0)"
EMPTY, NONE = tensor((0, 4)), tensor(0, "int64")


@pytest.mark.parametrize(
    ("asked", "note"),
    [
        (case(RELU, EMPTY), "output0: empty as input0 is, 0x4"),
        (case("torch.matmul(input0, input1)", tensor((2, 4)), tensor((4, 0))), "output0: empty as input1 is, 2x0"),
        (case("torch.cat([input0, input1])", EMPTY, EMPTY), "output0: empty as input0 is, 0x4"),
        (case("torch.add_(input0, 1)", EMPTY), "output0: empty as input0 is, 0x4; output1: empty as input0 is, 0x4"),
        (case("torch.split(input0, 1, 1)", tensor((0, 1))), "output0: empty as input0 is, 0x1"),
        (case("torch.index_select(input0, 0, input1)", ROW, NONE), "output0: empty as input1 is, 0"),
    ],
)
def test_explicit_empty_input_is_accepted(asked: TestCase, note: str) -> None:
    found = verdict(asked)
    assert (found.status, found.message) == (Status.PASSED, note)
    assert {measure.compared for measure in found.measures} == {0}


def test_its_gradients_are_judged_beside_it() -> None:
    found = passes(case("torch.matmul(input0, input1)", EMPTY, tensor((4, 3)), grad=True))
    compared = {measure.output: measure.compared for measure in found.measures}
    assert compared == {"output0": 0, "grad.exists": 2, "grad.input0": 0, "grad.input1": 12}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (np.zeros((0, 5), np.float32), Reason.SHAPE),
        (np.zeros((4, 0), np.float32), Reason.SHAPE),
        (np.zeros((1, 4), np.float32), Reason.SHAPE),
        (np.zeros((0, 4), np.float16), Reason.DTYPE),
        (None, Reason.MISSING_OUTPUT),
    ],
)
def test_what_can_be_told_of_it_is(answer: Any, reason: Reason) -> None:
    assert verdict(case(RELU, EMPTY), Wrong(lambda _: [] if answer is None else [answer])).reason is reason


@pytest.mark.parametrize(
    "asked",
    [
        case("torch.getitem(input0, slice(4, None, None))", tensor((4, 4))),
        case("torch.nonzero(input0)", tensor(4, fill="zeros")),
        case("torch.zeros(0)"),
    ],
)
def test_a_result_that_is_empty_otherwise_compares_nothing(asked: TestCase) -> None:
    fails(asked, reason=Reason.NOTHING_COMPARED)
