"""References of indexing operators against torch and definitions, accepted alternatives, and error terms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import by_torch, expected_all, same, strided
from texts import refusal

from optest.numerics import numpy_dtype, round_to, widen
from optest.operators import operators
from optest.operators.indexing.gather_reference import scatter_add_terms
from optest.operators.indexing.sort_reference import sort_alternatives, topk_alternatives
from optest.spec import UnfitArguments, dtype

Array = np.ndarray[Any, Any]
many = settings(deadline=None, max_examples=30)
NAN, INF = math.nan, math.inf


def drawn(shape: tuple[int, ...], name: str, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    entry = dtype(name)
    if entry.is_inexact:
        return round_to(rng.standard_normal(shape) * 3, entry)
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(entry.min_int, min(entry.max_int, 2**62), shape).astype(numpy_dtype(entry))


TORCH = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int64", "bool")
SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=3)


@pytest.mark.torch
@given(SIZES, st.data())
@many
def test_gather_and_scatter_add_equal_torch(sizes: list[int], data: st.DataObject) -> None:
    dim = data.draw(st.integers(-len(sizes), len(sizes) - 1))
    at = dim % len(sizes)
    shape = tuple(data.draw(st.integers(0, size if axis != at else 6))
                  for axis, size in enumerate(sizes))  # fmt: skip
    index = np.random.default_rng(sum(sizes)).integers(0, sizes[at], shape)
    index = index.astype(data.draw(st.sampled_from((np.int64, np.int32))))
    name = data.draw(st.sampled_from(TORCH))
    array, src = strided(drawn(tuple(sizes), name)), drawn(tuple(size + 1 for size in shape), name, 1)
    same(expected_all("gather", array, index, dim=dim), by_torch("gather", array, index, dim=dim))
    output = expected_all("scatter_add", array, index, src, dim=dim)
    expected_output = by_torch("scatter_add", array, index, src, dim=dim)
    if dtype(name).is_inexact:
        np.testing.assert_allclose(output[0], widen(expected_output[0]), rtol=0.03, atol=0.03)
    else:
        same(output, expected_output)


def test_index_select_replaces_dim_by_index_dims() -> None:
    array, index = drawn((4, 5, 3), "float16"), np.array([[0, 4, 4], [1, 0, 2]])
    same(expected_all("index_select", array, index, dim=1), [array[:, index]])
    same(expected_all("index_select", array, index[:, :2] % 3, dim=-1), [array[..., index[:, :2] % 3]])
    same(expected_all("index_select", array, np.array(2), dim=0), [array[2:3]])


def test_scatter_add_equals_its_definition() -> None:
    array, src = drawn((4, 5), "float64"), drawn((6, 7), "float64", 1)
    index = np.random.default_rng(2).integers(0, 4, (6, 3))
    expected_output = array.copy()
    for i in range(6):
        for j in range(3):
            expected_output[index[i, j], j] += src[i, j]
    np.testing.assert_allclose(
        expected_all("scatter_add", array, index, src, dim=0)[0], expected_output, rtol=1e-15, atol=1e-15
    )


def test_scatter_add_wraps_integers_and_ors_bools() -> None:
    index = np.zeros(3, np.int64)
    (output,) = expected_all("scatter_add", np.array([100], np.int8), index, np.array([100, 100, 1], np.int8), dim=0)
    assert output.tolist() == [45]
    (output,) = expected_all("scatter_add", np.array([False, True]), index, np.array([True, True, False]), dim=0)
    assert output.tolist() == [True, True]
    (output,) = expected_all("scatter_add", np.array([1e16]), index, np.array([1.0, 1.0, 1.0]), dim=0)
    assert output.tolist() == [1e16 + 4]  # 1e16 + 3, rounded once; float64 would lose every 1


def test_embedding_selects_rows() -> None:
    weight = drawn((5, 3), "float16")
    indices = np.array([[0, 4], [4, 2]], np.int32)
    same(expected_all("embedding", weight, indices, padding_idx=4), [weight[indices]])
    same(expected_all("embedding", weight, np.array(3)), [weight[3]])


@pytest.mark.parametrize("operator", ["gather", "index_select", "scatter_add", "embedding"])
@pytest.mark.parametrize("value", [-1, 3, 2**31])
def test_index_error_names_value_and_position(operator: str, value: int) -> None:
    array, index = np.zeros((3, 2)), np.array([[0, 1], [2, value]])
    inputs = [array, index, np.zeros((2, 2))][: 3 if operator == "scatter_add" else 2]
    attributes = {} if operator == "embedding" else {"dim": 0}
    with pytest.raises(UnfitArguments, match=rf"{value} at \[1, 1\], expected 0 to 2"):
        expected_all(operator, *inputs, **attributes)


def test_gather_refuses_index_into_empty_dimension() -> None:
    with refusal(UnfitArguments, "operators.the_dimension_is_empty"):
        expected_all("gather", np.zeros((0, 2)), np.zeros((1, 2), np.int64), dim=0)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float32", "bfloat16", "int8", "uint8", "bool", "float64"])
@pytest.mark.parametrize("descending", [False, True])
def test_stable_sort_equals_torch(name: str, descending: bool) -> None:
    for shape, dim in (((), -1), ((0,), 0), ((1,), 0), ((40,), 0), ((3, 17), 1), ((17, 3), 0), ((2, 9, 4), -2)):
        array = _with_ties(shape, name)
        output = expected_all("sort", array, dim=dim, descending=descending, stable=True)
        same(output, by_torch("sort", array, dim=dim, descending=descending, stable=True))


def _with_ties(shape: tuple[int, ...], name: str) -> Array:
    rng = np.random.default_rng(len(shape))
    if not dtype(name).is_inexact:
        return rng.integers(0, 2 if name == "bool" else 4, shape).astype(numpy_dtype(dtype(name)))
    values = np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.5])
    return round_to(values[rng.integers(0, len(values), shape)], dtype(name))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float32", "float16", "int8", "int64", "float64"])
@pytest.mark.parametrize("largest", [False, True])
def test_topk_without_ties_equals_torch(name: str, largest: bool) -> None:
    rng = np.random.default_rng(1)
    for shape, dim, k in (((40,), 0, 7), ((3, 17), 1, 17), ((17, 3), 0, 2), ((2, 9, 4), -2, 1), ((4, 5), -1, 0)):
        array = np.argsort(rng.random(shape), axis=dim)  # a permutation along dim: no two elements are equal
        array = array.astype(numpy_dtype(dtype(name)))
        if shape == (40,) and dtype(name).is_float:
            array[3:5] = [NAN, -INF]
        same(
            expected_all("topk", array, k=k, dim=dim, largest=largest),
            by_torch("topk", array, k=k, dim=dim, largest=largest),
        )


def test_sort_orders_integers_beyond_float64() -> None:
    array = np.array([2**53, 2**53 + 1, 2**53 - 1, -(2**63), 2**63 - 1])
    assert expected_all("sort", array)[1].tolist() == [3, 2, 0, 1, 4]
    assert expected_all("sort", array, descending=True)[1].tolist() == [4, 1, 0, 2, 3]
    wide = np.array([2**64 - 1, 2**63, 1], np.uint64)
    assert expected_all("sort", wide)[1].tolist() == [2, 1, 0]


def accepted(operator: str, array: Array, values: Any, indices: Any, **attributes: Any) -> list[bool]:
    hook = sort_alternatives if operator == "sort" else topk_alternatives
    bound = operators.get(operator).bind(attributes)
    of_values, of_indices = hook([array], bound, [np.array(values, array.dtype), np.array(indices, np.int64)])
    assert of_values is of_indices or np.array_equal(of_values, of_indices)
    mask: list[bool] = np.asarray(of_values).reshape(-1).tolist()
    return mask


def test_ties_accept_any_distinct_indices() -> None:
    array = np.array([3.0, 1.0, 3.0, 2.0, 3.0], np.float32)
    assert accepted("topk", array, [3, 3], [4, 2], k=2) == [True, True]
    assert accepted("topk", array, [3, 3], [2, 2], k=2) == [False, False]  # one index twice
    assert accepted("topk", array, [3, 2], [0, 3], k=2) == [True, False]  # not among the largest
    assert accepted("topk", array, [3, 3], [0, 3], k=2) == [True, False]  # points at 2
    assert accepted("topk", array, [3, 3], [0, -1], k=2) == [True, False]
    assert accepted("topk", array, [3, 3], [0, 5], k=2) == [True, False]
    assert accepted("sort", array, [1, 2, 3, 3, 3], [1, 3, 4, 0, 2]) == [True] * 5
    assert accepted("sort", array, [1, 2, 3, 3, 3], [1, 3, 4, 4, 2]) == [True, True, False, False, True]


def test_stable_sort_accepts_no_alternative() -> None:
    array = np.array([3.0, 3.0], np.float32)
    bound = operators.get("sort").bind({"stable": True})
    assert sort_alternatives([array], bound, [array, np.array([1, 0])]) == (None, None)


def test_signed_zeros_tie_but_keep_their_sign() -> None:
    array = np.array([0.0, -0.0], np.float32)
    assert accepted("sort", array, [-0.0, 0.0], [1, 0]) == [True, True]
    assert accepted("sort", array, [0.0, -0.0], [1, 0]) == [False, False]
    nans = np.array([NAN, 1.0, NAN], np.float32)
    assert accepted("topk", nans, [NAN, NAN], [2, 0], k=2) == [True, True]
    assert accepted("topk", nans, [NAN, 1.0], [2, 1], k=2) == [True, False]


def test_unsorted_rows_are_accepted_as_a_whole() -> None:
    array = np.array([[5.0, 4.0, 4.0, 1.0], [1.0, 2.0, 3.0, 4.0]], np.float32)
    assert accepted("topk", array, [[4, 5], [3, 4]], [[1, 0], [2, 3]], k=2, sorted=False) == [True] * 4
    assert accepted("topk", array, [[4, 4], [4, 3]], [[1, 2], [3, 2]], k=2, sorted=False) == [False, False, True, True]
    assert accepted("topk", array, [[4, 5], [3, 4]], [[1, 0], [2, 2]], k=2, sorted=False) == [True, True, False, False]
    assert accepted("topk", array, [[4, 5], [3, 4]], [[0, 1], [2, 3]], k=2, sorted=False) == [False, False, True, True]
    assert accepted("topk", array, [[5, 4], [4, 3]], [[0, 1], [3, 2]], k=2, sorted=False, dim=-1) == [True] * 4
    assert accepted("topk", array.T, [[4, 3], [5, 4]], [[1, 2], [0, 3]], k=2, sorted=False, dim=0) == [True] * 4


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("width", [1, 17, 4096, 65536])
def test_torch_scatter_add_is_within_the_terms(name: str, width: int) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        array, src = drawn((2, 5), name, seed), drawn((2, width), name, seed + 9)
        index = rng.integers(0, 5, (2, width))
        exact = expected_all("scatter_add", array, index, src, dim=1)[0]
        (terms,) = scatter_add_terms([array, index, src], {"dim": 1})
        allowed = 4 * np.sqrt(terms.count) * 2.0**-24 * terms.absolute
        allowed += 2.0 ** -dtype(name).precision * (np.abs(exact) + allowed)
        (output,) = by_torch("scatter_add", array, index, src, dim=1)
        assert (np.abs(widen(output) - exact) <= allowed).all()


def test_scatter_add_terms_skip_unselected_elements() -> None:
    array, src = np.array([1.0, -2.0, 4.0], np.float32), np.array([3.0, -5.0, 7.0], np.float32)
    (terms,) = scatter_add_terms([array, np.array([1, 1]), src], {"dim": 0})
    assert np.asarray(terms.absolute).tolist() == [0.0, 10.0, 0.0]
    assert np.asarray(terms.squared).tolist() == [0.0, 4.0 + 9.0 + 25.0, 0.0]
    assert np.asarray(terms.count).tolist() == [1, 3, 1]
