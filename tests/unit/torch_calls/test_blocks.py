"""Large contractions are made block by block, and are the same as in one piece."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from optest.torch.calls import contraction_blocks, reference
from optest.torch.calls.call import torch_call
from optest.torch.calls.contraction_blocks import in_blocks
from optest.torch.calls.reference import terms

CALLS = {
    "torch.nn.functional.linear(input0, input1)": [(3, 16), (50, 16)],
    "torch.nn.functional.linear(input0, input1, input2)": [(2, 3, 16), (50, 16), (50,)],
    "torch.nn.functional.linear(input0, input1, bias=input2)": [(3, 16), (50, 16), (50,)],
    "torch.nn.functional.linear(input0, input1, None)": [(90, 16), (5, 16)],
    "torch.matmul(input0, input1)": [(3, 16), (16, 70)],
    "torch.mm(input0, input1)": [(80, 16), (16, 5)],
    "torch.bmm(input0, input1)": [(5, 3, 16), (5, 16, 20)],
    "torch.Tensor.matmul(input1, input0)": [(16, 7), (2, 64, 16)],
    "torch.ops.aten.mm.default(input0, input1)": [(3, 16), (16, 70)],
    "torch.matmul(input0, input2)": [(90, 16), (1,), (16,)],
}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "_LARGE", 1)
    monkeypatch.setattr(contraction_blocks, "_BLOCK", 100)


def drawn(shapes: list[tuple[int, ...]]) -> list[Any]:
    random = np.random.default_rng(5)
    arrays = [random.standard_normal(shape).astype(np.float16) for shape in shapes]
    for array in arrays:
        array.setflags(write=False)
    return arrays


@pytest.mark.parametrize("text", CALLS)
@pytest.mark.usefixtures("small_blocks")
def test_blocks_are_the_result(text: str) -> None:
    inputs = drawn(CALLS[text])
    call = torch_call(text)
    kept = [array.copy() for array in inputs]
    found = in_blocks(call, inputs, [torch.Tensor.abs_, torch.Tensor.square_])
    assert found is not None
    absolute = [torch.from_numpy(np.abs(array.astype(np.float64))) for array in inputs]
    (wanted,) = call.on(absolute, torch.device("cpu"))()
    (squares,) = call.on([each.square() for each in absolute], torch.device("cpu"))()
    torch.testing.assert_close(found[0], wanted, rtol=1e-14, atol=0.0)
    torch.testing.assert_close(found[1], squares, rtol=1e-14, atol=0.0)
    assert all(np.array_equal(array, before) for array, before in zip(inputs, kept, strict=True))


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("torch.matmul(input0, input0)", [(16, 16)]),
        ("torch.add(input0, input1)", [(9, 9), (9, 9)]),
        ("torch.addmm(input0, input1, input2)", [(9, 9), (9, 9), (9, 9)]),
        ("torch.nn.functional.linear(input0, input1)", [(30,), (30,)]),
        ("torch.matmul(input0, input1)", [(30,), (30,)]),
    ],
)
@pytest.mark.usefixtures("small_blocks")
def test_what_cannot_be_cut_is_made_in_one_piece(text: str, shapes: list[tuple[int, ...]]) -> None:
    assert in_blocks(torch_call(text), drawn(shapes), [torch.Tensor.abs_]) is None


@pytest.mark.usefixtures("small_blocks")
def test_error_terms_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "torch.nn.functional.linear(input0, input1, input2)"
    inputs = drawn([(3, 16), (50, 16), (50,)])
    (by_blocks,) = terms(inputs, {"call": text})
    monkeypatch.setattr(reference, "_LARGE", 1 << 30)
    (whole,) = terms(inputs, {"call": text})
    assert by_blocks.count == whole.count == 17
    np.testing.assert_allclose(by_blocks.absolute, whole.absolute, rtol=1e-14)
    np.testing.assert_allclose(by_blocks.squared, whole.squared, rtol=1e-14)


@pytest.mark.usefixtures("small_blocks")
def test_torch_has_as_many_threads_as_before() -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            inputs = drawn([(3, 16), (50, 16)])
            text = "torch.nn.functional.linear(input0, input1)"
            found = in_blocks(torch_call(text), inputs, [torch.Tensor.abs_])
            assert found is not None
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("small_blocks")
def test_what_a_block_raises_is_raised() -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        in_blocks(torch_call("torch.mm(input0, input1)"), drawn([(3, 16), (17, 70)]), [torch.Tensor.abs_])
