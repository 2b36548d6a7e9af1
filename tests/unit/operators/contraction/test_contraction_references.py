"""References and inference of the contractions against torch in float64, exact integers and definitions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import double, drawn, expected_sum, inferred, of_torch, spec

from optest.operators import operators
from optest.operators.contraction.einsum import read_equation
from optest.spec import UnfitArguments

Array = np.ndarray[Any, Any]


def close(got: Array, want: Any) -> None:
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["int8", "uint8", "int32"])
def test_integers_wrap_except_in_wider_out_dtype(name: str) -> None:
    x, weight, bias = drawn((1, 9, 5, 6), name), drawn((4, 9, 3, 3), name, 1), drawn((4,), "int32", 2)
    wide = [array.astype(np.int64) for array in (x, weight)]
    exact = np.zeros((1, 4, 3, 4), np.int64)
    for i in range(3):
        for j in range(4):
            exact[0, :, i, j] = (wide[0][0, None, :, i : i + 3, j : j + 3] * wide[1]).sum((1, 2, 3))
    assert np.array_equal(expected_sum("conv2d", x, weight), exact.astype(x.dtype))
    if name != "int32":
        got = expected_sum("conv2d", x, weight, bias, out_dtype="int32")
        assert np.array_equal(got, (exact + bias[:, None, None]).astype(np.int32))
    rows, columns = x.reshape(9, 30), weight.reshape(9, 36)
    product = rows.T.astype(np.int64) @ columns.astype(np.int64)
    assert np.array_equal(expected_sum("matmul", rows.T, columns, out_dtype="int64"), product)
    assert np.array_equal(expected_sum("gemm", rows, columns, trans_a=True), product.astype(x.dtype))
    assert np.array_equal(expected_sum("linear", rows.T, columns.T, out_dtype="int64"), product)


def test_int64_products_wrap_beyond_float64() -> None:
    a, b = drawn((3, 5), "int64") * 2**58 + 1, drawn((5, 4), "int64", 1) * 2**57 + 3
    exact = np.array([[sum(int(p) * int(q) for p, q in zip(row, column, strict=True)) for column in b.T] for row in a])
    wrapped = np.array([[(int(each) + 2**63) % 2**64 - 2**63 for each in row] for row in exact], np.int64)
    assert np.array_equal(expected_sum("matmul", a, b), wrapped)
    assert np.array_equal(expected_sum("einsum", a, b, equation="ij,jk->ik"), wrapped)


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ("int8", "int32"),
        ("int16", "int64"),
        ("float16", "float32"),
        ("float8_e4m3fn", "bfloat16"),
        ("float32", "float32"),
    ],
)
def test_out_dtype_widens(narrow: str, wide: str) -> None:
    square = spec((3, 3), narrow)
    assert inferred("matmul", square, square, out_dtype=wide) == [(wide, (3, 3))]


LETTERS = "abcAB"


@st.composite
def equations(draw: Any) -> tuple[str, list[tuple[int, ...]]]:
    size = {letter: draw(st.integers(1, 4)) for letter in LETTERS}
    terms = draw(st.lists(st.text(LETTERS, min_size=0, max_size=4), min_size=1, max_size=3))
    used = sorted(set("".join(terms)))
    output = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
    text = ",".join(terms) + draw(st.sampled_from(["", "->" + "".join(output)]))
    return text, [tuple(size[letter] for letter in term) for term in terms]


@pytest.mark.torch
@settings(max_examples=40, deadline=None)
@given(equations())
def test_einsum_of_any_equation(call: tuple[str, list[tuple[int, ...]]]) -> None:
    import torch

    equation, shapes = call
    inputs = [drawn(shape, "float64", seed) for seed, shape in enumerate(shapes)]
    want = torch.einsum(equation, *map(double, inputs))
    close(expected_sum("einsum", *inputs, equation=equation), want)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (4, 5)]),
        ("ij->ii", [(2, 3)]),
        ("ij->iz", [(2, 3)]),
        ("ijk->i", [(2, 3)]),
        ("ii->i", [(2, 3)]),
        ("ij,jk", [(2, 3)]),
        ("ij,j;->i", [(2, 3), (3,)]),
        ("ij", [(2, 3), (3,)]),
        ("i1->i", [(2, 3)]),
    ],
)
def test_einsum_refuses_equations_as_torch(equation: str, shapes: list[tuple[int, ...]]) -> None:
    import torch

    with pytest.raises(RuntimeError):
        torch.einsum(equation, *[torch.ones(shape) for shape in shapes])
    with pytest.raises(UnfitArguments):
        read_equation(equation, shapes)


CONV_CALLS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 4, 9, 9), (3, 2, 3, 3), {}),
    ((1, 4, 9, 9), (4, 2, 3, 3), {"groups": 2}),
    ((1, 4, 9, 9), (3, 2, 3, 3), {"groups": 2}),
    ((1, 4, 2, 9), (3, 4, 3, 3), {}),
    ((1, 4, 2, 9), (3, 4, 3, 3), {"padding": [1, 0]}),
    ((1, 4, 9, 9), (3, 4, 3, 3), {"padding": "same", "stride": 2}),
    ((1, 4, 9, 9), (3, 4, 3, 3), {"padding": "valid", "stride": 2}),
    ((1, 4, 9, 9), (3, 4, 3, 3), {"padding": "full"}),
    ((1, 4, 9, 9), (3, 4, 3, 3), {"stride": 0}),
    ((1, 4, 9, 9), (3, 4, 3, 3), {"dilation": 0}),
    ((1, 4, 9, 9), (3, 4, 3, 3), {"padding": -1}),
    ((1, 4, 9, 9), (3, 4, 3, 3), {"stride": [1, 1, 1]}),
    ((4, 9, 9), (3, 4, 3, 3), {}),
    ((4, 9), (3, 4, 3, 3), {}),
    ((1, 4, 9, 9), (3, 4, 3), {}),
    ((0, 4, 9, 9), (3, 4, 3, 3), {}),
]


@pytest.mark.torch
@pytest.mark.parametrize(("x", "weight", "attributes"), CONV_CALLS)
def test_conv2d_attributes_match_torch(x: Any, weight: Any, attributes: dict[str, Any]) -> None:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tensors = [torch.ones(shape) for shape in (x, weight)]  # with meta tensors, torch raises less often
        output = of_torch(lambda: torch.nn.functional.conv2d(*tensors, **attributes))
    assert inferred("conv2d", spec(x), spec(weight), **attributes) == output


def test_padding_binds_string_or_numbers() -> None:
    conv2d = operators.get("conv2d")
    assert conv2d.bind({"padding": "same"})["padding"] == "same"
    assert conv2d.bind({"padding": 2})["padding"] == (2,)
