"""Reductions against torch in float64, against their definitions, and at the values where kernels break."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import by_torch, expected_all

from optest.numerics import dtype_of, round_to
from optest.operators import operators
from optest.spec import dtype

Array = np.ndarray[Any, Any]
NAN, INF = math.nan, math.inf

FLOATING = ("sum", "mean", "prod", "var", "norm", "logsumexp", "amax", "amin", "max", "min")
EVERY = (*FLOATING, "argmax", "argmin", "all", "any")
ONE_DIM = ("max", "min", "argmax", "argmin")


def close(ours: list[Array], theirs: list[Array], rtol: float = 1e-13) -> None:
    assert [each.shape for each in ours] == [each.shape for each in theirs]
    for left, right in zip(ours, theirs, strict=True):
        assert left.dtype == right.dtype
        if left.dtype.kind == "f":
            np.testing.assert_allclose(left, right, rtol=rtol, atol=1e-13)
        else:
            np.testing.assert_array_equal(left, right)


def shapes_and_dims() -> st.SearchStrategy[tuple[tuple[int, ...], Any]]:
    def with_dim(shape: tuple[int, ...]) -> st.SearchStrategy[tuple[tuple[int, ...], Any]]:
        one = st.integers(-len(shape), len(shape) - 1)
        return st.tuples(st.just(shape), st.one_of(st.none(), one, st.permutations(range(len(shape)))))

    return arrays.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=7).flatmap(with_dim)


@pytest.mark.torch
@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=40, deadline=None)
@given(shape_and_dim=shapes_and_dims(), keepdim=st.booleans(), layout=st.sampled_from("CFTR"), seed=st.integers(0, 99))
def test_floats_match_torch(name: str, shape_and_dim: tuple[Any, Any], keepdim: bool, layout: str, seed: int) -> None:
    shape, dim = shape_and_dim
    if name in ONE_DIM and not (dim is None or isinstance(dim, int)):
        dim = dim[0]
    keepdim = keepdim and not (name in ("max", "min") and dim is None)
    x = np.random.default_rng(seed).standard_normal(shape)
    x = {"C": x, "F": np.asfortranarray(x), "T": x.copy().T.copy().T, "R": x[::-1]}[layout]
    attributes = {"dim": dim, "keepdim": keepdim}
    close(expected_all(name, x, **attributes), by_torch(name, np.ascontiguousarray(x), **attributes))


@pytest.mark.torch
@pytest.mark.parametrize("name", [*EVERY, "cumsum"])
@pytest.mark.parametrize("kind", ["int64", "int32", "int8", "int16", "uint8", "bool"])
def test_integers_match_torch(name: str, kind: str) -> None:
    if dtype(kind).name not in {each for variant in operators.get(name).dtype_variants for each in variant}:
        return
    rng = np.random.default_rng(0)
    info = None if kind == "bool" else np.iinfo(kind)
    draw = rng.integers(0, 2, (5, 41)) if info is None else rng.integers(info.min, info.max, (5, 41), endpoint=True)
    x = draw.astype(kind)
    close(expected_all(name, x, dim=1), by_torch(name, x, dim=1))
    if kind not in ("bool", "int64"):
        x[0] = 0
        x[1, :3] = info.max if info else 1
        close(expected_all(name, x, dim=0), by_torch(name, x, dim=0))


@pytest.mark.torch
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_exclusive_and_reverse_cumsum(exclusive: bool, reverse: bool) -> None:
    x = np.arange(1.0, 5.0)
    sums = {
        (False, False): [1.0, 3.0, 6.0, 10.0],
        (True, False): [0.0, 1.0, 3.0, 6.0],
        (False, True): [10.0, 9.0, 7.0, 4.0],
        (True, True): [9.0, 7.0, 4.0, 0.0],
    }
    order = {"exclusive": exclusive, "reverse": reverse}
    assert expected_all("cumsum", x, dim=0, **order)[0].tolist() == sums[exclusive, reverse]
    for shape, dim in (((3, 5), 0), ((2, 3, 4), -1), ((), 0), ((3, 0), 1), ((0, 3), 1)):
        drawn = np.random.default_rng(4).standard_normal(shape)
        for x in (np.asarray(drawn), np.asarray(drawn * 9).astype(np.int8), np.asarray(drawn > 0)):
            close(expected_all("cumsum", x, dim=dim, **order), by_torch("cumsum", x, dim=dim, **order))


@pytest.mark.torch
@pytest.mark.parametrize("name", EVERY)
def test_scalars_and_empty_tensors(name: str) -> None:
    x = np.array(-2.5)
    close(expected_all(name, x), by_torch(name, x))
    close(expected_all(name, x, dim=-1, keepdim=True), by_torch(name, x, dim=-1, keepdim=True))
    close(expected_all(name, np.zeros((3, 0)), dim=0), by_torch(name, np.zeros((3, 0)), dim=0))
    if name not in ("amax", "amin", "max", "min", "argmax", "argmin"):
        close(expected_all(name, np.zeros((3, 0)), dim=1), by_torch(name, np.zeros((3, 0)), dim=1))
        close(expected_all(name, np.zeros(0)), by_torch(name, np.zeros(0)))


def test_results_of_empty_tensors() -> None:
    results = {"sum": 0.0, "mean": NAN, "prod": 1.0, "var": NAN, "norm": 0.0, "logsumexp": -INF, "all": 1, "any": 0}
    for name, value in results.items():
        np.testing.assert_array_equal(expected_all(name, np.zeros((1, 0)), dim=1)[0], [value])


ODD = np.array(
    [
        [NAN, 1.0, 2.0, NAN],
        [1.0, 2.0, 3.0, NAN],
        [INF, 1.0, -INF, 2.0],
        [INF, INF, 0.0, 1.0],
        [-INF, -INF, -INF, -INF],
        [-INF, 1.0, 2.0, 3.0],
        [-0.0, 0.0, -0.0, 0.0],
        [0.0, INF, 1.0, 2.0],
        [-1.0, -2.0, -1.0, -3.0],
    ]
)


@pytest.mark.torch
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", [*EVERY, "cumsum"])
@pytest.mark.parametrize("dim", [0, 1])
def test_special_values_match_torch(name: str, dim: int) -> None:
    close(expected_all(name, ODD, dim=dim), by_torch(name, ODD, dim=dim))


def test_unbiased_variance_of_one_element_is_nan() -> None:
    one = np.array([[3.0]])
    assert math.isnan(expected_all("var", one, dim=1)[0][0])
    assert expected_all("var", one, dim=1, correction=0)[0][0] == 0.0


@given(x=arrays.arrays(np.float32, (3, 8), elements=st.floats(-1e4, 1e4, width=32)), shift=st.integers(-1000, 1000))
@settings(max_examples=40, deadline=None)
def test_variance_matches_definition(x: Array, shift: int) -> None:
    exact = np.array([np.var(row.astype(np.longdouble), ddof=1) for row in x], dtype=np.float64)
    np.testing.assert_allclose(expected_all("var", x, dim=1)[0], exact, rtol=1e-12, atol=1e-18)
    moved = x.astype(np.float64) + shift
    np.testing.assert_allclose(expected_all("var", moved, dim=1)[0], exact, rtol=1e-6, atol=1e-6)


@given(x=arrays.arrays(np.float64, (4, 6), elements=st.floats(-700, 700)))
@settings(max_examples=40, deadline=None)
def test_logsumexp_matches_definition(x: Array) -> None:
    wide = np.log(np.exp(x.astype(np.longdouble)).sum(1)).astype(np.float64)
    np.testing.assert_allclose(expected_all("logsumexp", x, dim=1)[0], wide, rtol=1e-14, atol=1e-14)


@given(x=arrays.arrays(np.int64, (3, 7), elements=st.integers(-(2**63), 2**63 - 1)))
@settings(max_examples=40, deadline=None)
def test_integers_wrap_in_int64(x: Array) -> None:
    def wrapped(value: int) -> int:
        return (value + 2**63) % 2**64 - 2**63

    rows = [[int(each) for each in row] for row in x]
    np.testing.assert_array_equal(expected_all("prod", x, dim=1)[0], [wrapped(math.prod(row)) for row in rows])
    np.testing.assert_array_equal(expected_all("sum", x, dim=1)[0], [wrapped(sum(row)) for row in rows])
    totals = [[wrapped(sum(row[: i + 1])) for i in range(7)] for row in rows]
    np.testing.assert_array_equal(expected_all("cumsum", x, dim=1)[0], totals)
    dots = wrapped(sum(a * b for a, b in zip(rows[0], rows[1], strict=True)))
    assert expected_all("dot", x[0], x[1])[0] == dots


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32"])
def test_dot_of_integers_wraps_in_their_dtype(kind: str) -> None:
    x = np.full(300, 100, dtype=kind)
    (result,) = expected_all("dot", x, x)
    assert result.dtype == np.dtype(kind)
    assert result == np.array(3_000_000).astype(kind)


@given(x=arrays.arrays(np.float64, (4, 9), elements=st.sampled_from([NAN, INF, -INF, -1.0, -0.0, 0.0, 1.0, 2.0])))
@settings(max_examples=40, deadline=None)
def test_index_is_first_nan_or_first_extreme(x: Array) -> None:
    for name, better in (("argmax", max), ("argmin", min)):
        (indices,) = expected_all(name, x, dim=1)
        for row, index in zip(x, indices, strict=True):
            nan = np.flatnonzero(np.isnan(row))
            assert index == (nan[0] if nan.size else row.tolist().index(better(row.tolist())))
    values, indices = expected_all("max", x, dim=1)
    np.testing.assert_array_equal(np.take_along_axis(x, indices[:, None], 1)[:, 0], values)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("source", "target"),
    [("int8", "int8"), ("int32", "int8"), ("int64", "uint8"), ("int32", "float32"), ("float32", "float64")],
)
def test_cumsum_converts_before_adding(source: str, target: str) -> None:
    x = np.random.default_rng(3).integers(-100, 100, (3, 50)).astype(source)
    ours, theirs = expected_all("cumsum", x, dim=1, dtype=target)[0], by_torch("cumsum", x, dim=1, dtype=target)[0]
    np.testing.assert_array_equal(round_to(ours, dtype(target)), theirs)


def test_cumsum_rounds_input_to_requested_dtype() -> None:
    x = np.array([1.0 + 2.0**-20, 1.0 + 2.0**-20], dtype=np.float32)
    np.testing.assert_array_equal(expected_all("cumsum", x, dim=0, dtype="float16")[0], [1.0, 2.0])


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_16_bit_inputs_are_exact(name: str) -> None:
    x = round_to(np.random.default_rng(4).standard_normal((3, 33)), dtype(name))
    assert dtype_of(x.dtype).name == name
    wide = x.astype(np.float64)
    for operator in FLOATING:
        ours, exact = expected_all(operator, x, dim=1), expected_all(operator, wide, dim=1)
        np.testing.assert_allclose(ours[0], exact[0], rtol=1e-14)


def test_partial_products_of_float64_do_not_overflow() -> None:
    x = np.array([1e200, 1e200, 1e-200, 1e-200])
    assert expected_all("prod", x)[0] == pytest.approx(1.0)
