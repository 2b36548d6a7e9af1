"""Promotion, and shapes and dtypes of sums and products, with random arguments."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import FLOATS, INTEGERS, inferred, of_torch, spec

from optest.operators import shapes
from optest.spec import DTYPES, UnfitArguments, dtype

SIZES = st.integers(0, 3)
SHAPES = st.lists(SIZES, max_size=3).map(tuple)
TORCH_DTYPES = ("bool", *INTEGERS, *FLOATS, "complex64", "complex128")


def meta(shape: tuple[int, ...], name: str = "float32") -> Any:
    torch = pytest.importorskip("torch")
    return torch.empty(shape, dtype=getattr(torch, name), device="meta")


@pytest.mark.torch
def test_promotion_table_is_torchs() -> None:
    import torch

    known = [each.name for each in DTYPES if each.bits >= 8]
    for a, b in itertools.product(known, known):
        try:
            expected = str(torch.promote_types(getattr(torch, a), getattr(torch, b))).removeprefix("torch.")
        except RuntimeError:
            expected = "none"
        try:
            got = shapes.promote_dtypes(dtype(a), dtype(b)).name
        except UnfitArguments:
            got = "none"
        assert got == expected, f"{a} with {b}"


@pytest.mark.torch
@given(SHAPES, SHAPES, st.sampled_from(FLOATS), st.sampled_from(FLOATS))
@settings(max_examples=100, deadline=None)
def test_matmul_as_torch(left: tuple[int, ...], right: tuple[int, ...], a: str, b: str) -> None:
    got = inferred("matmul", spec(left, a), spec(right, b))
    if a != b:
        assert got is None  # torch refuses too, but not for every empty tensor
    else:
        assert got == of_torch(lambda: meta(left, a) @ meta(right, b))


@given(st.lists(SIZES, max_size=2).map(tuple), SIZES, SIZES, SIZES)
@settings(max_examples=100, deadline=None)
def test_matmul_accepts_fitting_shapes(batch: tuple[int, ...], m: int, k: int, n: int) -> None:
    assert inferred("matmul", spec((*batch, m, k)), spec((*batch, k, n))) == [("float32", (*batch, m, n))]
    assert inferred("matmul", spec((*batch, m, k)), spec((k,))) == [("float32", (*batch, m))]
    assert inferred("matmul", spec((m, k)), spec((k + 1, n))) is None


@pytest.mark.torch
@given(SHAPES, SHAPES, SHAPES, st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=100, deadline=None)
def test_gemm_as_torch(
    a: tuple[int, ...], b: tuple[int, ...], c: tuple[int, ...], trans_a: bool, trans_b: bool, with_c: bool
) -> None:
    import torch

    def addmm() -> Any:
        left, right = torch.ones(a), torch.ones(b)  # without data, torch takes a c that does not fit
        if left.dim() not in (2, 3) or left.shape[:-2] != right.shape[:-2] or left.dim() != right.dim():
            raise ValueError
        left, right = left.mT if trans_a else left, right.mT if trans_b else right
        function = torch.addmm if left.dim() == 2 else torch.baddbmm
        return function(torch.ones(c), left, right) if with_c else left @ right

    got = inferred("gemm", spec(a), spec(b), spec(c) if with_c else None, trans_a=trans_a, trans_b=trans_b)
    assert got == of_torch(addmm)


def test_cast_returns_requested_dtype() -> None:
    assert inferred("cast", spec((2, 3)), to="half") == [("float16", (2, 3))]


def test_listing_samples_needs_no_numpy() -> None:
    code = (
        "import sys; from optest.operators import operators; from optest.registry import load_object;"
        "assert all([list(load_object(each.samples)()) for each in operators]);"
        "assert 'numpy' not in sys.modules, 'numpy was imported'"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
