"""What only moves elements is judged bit for bit, also where the file states a tolerance."""

from __future__ import annotations

from typing import Any

import pytest
from torch_kit import case, element, tensor, verdict, zeros

from optest.spec import Reason, Status, Tolerance

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
    assert verdict(asked).status is Status.PASSED
    assert verdict(asked, element(0, lambda was: was * 1.001)).status is Status.FAILED


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
    assert verdict(asked).status is Status.PASSED
    assert verdict(asked, zeros()).reason in (Reason.VALUE, Reason.NAN)


def test_infinity_that_is_computed_proves_little() -> None:
    assert (
        verdict(case("torch.mul(input0, inf)", tensor(4, fill="uniform", low=1.0, high=2.0))).status is Status.SUSPECT
    )
