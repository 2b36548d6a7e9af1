"""What only moves elements is judged bit for bit, also where the file states a tolerance."""

from __future__ import annotations

from typing import Any

import pytest
from torch_kit import case, element, tensor, verdict

from optest.spec import Status, Tolerance

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
def test_a_tolerance_of_the_file_lets_no_bit_change(text: str, given: tuple[Any, ...]) -> None:
    asked = case(text, *given, stated=LOOSE)
    assert verdict(asked).status is Status.PASSED
    assert verdict(asked, element(0, lambda was: was * 1.001)).status is Status.FAILED
