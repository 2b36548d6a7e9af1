"""References of normalisations against torch in float64, against definitions, and for extreme values."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from references import by_torch, expected, expected_all

from optest.numerics import round_to, widen
from optest.operators import operators
from optest.operators.normalization.norms_reference import layer_norm_reference, layer_norm_terms
from optest.operators.normalization.softmax_reference import causal_softmax_alternatives, causal_softmax_reference
from optest.spec import dtype

Array = np.ndarray[Any, Any]
NAN, INF = math.nan, math.inf


def close(name: str, *inputs: Array | None, rtol: float = 1e-12, atol: float = 1e-13, **attributes: Any) -> None:
    ours, (theirs,) = expected(name, *inputs, **attributes), by_torch(name, *inputs, **attributes)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


def draws(*shapes: tuple[int, ...] | None, seed: int = 0) -> list[Array | None]:
    rng = np.random.default_rng(seed)
    return [None if shape is None else rng.standard_normal(shape) for shape in shapes]


@pytest.mark.torch
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_special_rows_equals_torch(name: str) -> None:
    rows = [
        [-INF, 1.0, -INF],
        [-INF, -INF, -INF],
        [INF, 0.0, 1.0],
        [NAN, 0.0, 1.0],
        [0.0, -0.0, -800.0],
        [5.0, 5.0, 5.0],
    ]
    close(name, np.array(rows), dim=1)
    close(name, np.array(3.0), dim=0)
    close(name, np.zeros((3, 0)), dim=1)
    close(name, np.zeros((0, 3)), dim=-1)


@pytest.mark.torch
@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 9), more=st.integers(0, 9), batch=st.integers(0, 3), seed=st.integers(0, 99))
def test_causal_softmax_equals_torch(rows: int, more: int, batch: int, seed: int) -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(seed).standard_normal((batch, rows, rows + more)) * 10.0
    hidden = np.triu(np.ones((rows, rows + more), bool), more + 1)
    theirs = torch.softmax(torch.from_numpy(np.where(hidden, -INF, x)), -1).numpy()
    np.testing.assert_allclose(expected("causal_softmax", x), theirs, rtol=1e-12, atol=1e-13)


def test_causal_softmax_ignores_masked_columns() -> None:
    x = np.array([[1.0, 2.0, NAN, INF], [1.0, 2.0, 3.0, NAN], [1.0, 2.0, 3.0, 4.0]])
    y = expected("causal_softmax", x)
    np.testing.assert_array_equal(y == 0.0, [[0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]])
    np.testing.assert_allclose(y.sum(-1), 1.0, rtol=1e-15)
    np.testing.assert_allclose(y[0, :2], np.exp([1.0, 2.0]) / np.exp([1.0, 2.0]).sum(), rtol=1e-14)
    np.testing.assert_array_equal(expected("causal_softmax", np.array([[3.0, NAN], [0.0, 0.0]]))[0], [1.0, 0.0])


def test_training_ignores_running_statistics() -> None:
    x, mean, variance = draws((5, 3), (3,), (3,))
    ours = expected("batch_norm", x, None, None, training=True)
    np.testing.assert_array_equal(expected("batch_norm", x, mean, variance, training=True), ours)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_row_norms_of_special_rows_equal_torch(name: str) -> None:
    rows = [[NAN, 1.0, 2.0], [INF, 0.0, 1.0], [0.0, -0.0, 0.0], [7.25, 7.25, 7.25], [0.0, 0.0, 1e3]]
    close(name, np.array(rows), normalized_shape=[3], eps=1e-5)
    close(name, np.zeros((0, 3)), normalized_shape=[3])


@pytest.mark.torch
@pytest.mark.parametrize(("name", "epsilon"), [("float64", 2.0**-52), ("float32", 2.0**-23), ("float16", 2.0**-23)])
def test_default_epsilon_of_rms_norm(name: str, epsilon: float) -> None:
    import torch

    # torch uses the epsilon of float32 for 16-bit inputs, other than documented.
    tiny = round_to(np.full((1, 4), 1e-3), dtype(name))
    q = float(widen(tiny)[0, 0]) ** 2
    expected_output = math.sqrt(q) / math.sqrt(q + epsilon)
    assert expected("rms_norm", tiny, normalized_shape=[4])[0, 0] == pytest.approx(expected_output, rel=1e-12)
    output = torch.nn.functional.rms_norm(torch.from_numpy(tiny), (4,))
    assert float(output[0, 0]) == pytest.approx(expected_output, rel=1e-3)


@settings(max_examples=40, deadline=None)
@given(x=arrays.arrays(np.float64, (3, 9), elements=st.floats(-1e3, 1e3)), shift=st.floats(-1e3, 1e3))
def test_normalised_rows_have_their_invariants(x: Array, shift: float) -> None:
    y = expected("layer_norm", x, normalized_shape=[9], eps=1e-5)
    np.testing.assert_allclose(y.mean(-1), 0.0, atol=1e-9)
    assert (np.square(y).mean(-1) <= 1.0 + 1e-9).all()
    share = expected("softmax", x, dim=1)
    np.testing.assert_allclose(share.sum(-1), 1.0, rtol=1e-13)
    np.testing.assert_allclose(expected("softmax", x + shift, dim=1), share, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(np.exp(expected("log_softmax", x, dim=1)), share, rtol=1e-9, atol=1e-300)


LAYER_NORM = operators.get("layer_norm")


def attributes(**options: Any) -> dict[str, Any]:
    return LAYER_NORM.bind({"normalized_shape": [6], **options})


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6), (6,), (0, 6)])
def test_statistics_add_two_outputs(shape: tuple[int, ...]) -> None:
    x = np.ones(shape, np.float16)
    assert [output.shape for output in expected_all("layer_norm", x, **attributes())] == [shape]
    expected_output = [shape, shape, shape[:-1]]
    assert [output.shape for output in expected_all("layer_norm", x, **attributes(statistics=True))] == expected_output
    assert [np.shape(budget.worst) for budget in layer_norm_terms((x,), attributes(statistics=True))] == expected_output


def test_statistics_equal_their_definition() -> None:
    x = np.random.default_rng(0).normal(3.0, 2.0, (5, 6)).astype(np.float32)
    weight, bias = np.arange(6, dtype=np.float32), np.full(6, 2.0, np.float32)
    out, standardization, std = layer_norm_reference((x, weight, bias), attributes(eps=0.5, statistics=True))
    wide = x.astype(np.float64)
    deviation = np.sqrt(wide.var(-1) + 0.5)
    assert np.allclose(std, deviation, rtol=1e-14)
    assert np.allclose(standardization, (wide - wide.mean(-1, keepdims=True)) / deviation[:, None], rtol=1e-12)
    assert np.allclose(out, standardization * weight + bias, rtol=1e-12)


def test_std_budget_rejects_a_wrong_divisor() -> None:
    x = np.random.default_rng(1).normal(0.0, 1.0, (50, 37)).astype(np.float32)
    bound = LAYER_NORM.bind({"normalized_shape": [37], "statistics": True})
    _, _, std = layer_norm_reference((x,), bound)
    budget = layer_norm_terms((x,), bound)[2]
    unit = 2.0**-24
    assert (np.abs(np.sqrt(x.astype(np.float64).var(-1, ddof=1) + 1e-5) - std) > 20 * unit * budget.worst).all()
    single = np.sqrt(x.var(-1) + np.float32(1e-5))
    assert single.dtype == np.float32
    error = np.abs(single.astype(np.float64) - std)
    assert (error <= unit * budget.worst).all()
    assert np.sqrt((error**2).mean() / ((unit * unit) * np.asarray(budget.variance)).mean()) < 1.0


def test_masked_columns_are_zero_or_spread_nan() -> None:
    x = np.array([[np.nan, 1.0, 2.0], [0.5, 1.0, np.nan], [0.0, 1.0, 2.0]], np.float32)
    (right,) = causal_softmax_reference((x,), {})
    assert np.isnan(right[0, 0])
    assert right[0, 1:].tolist() == [0.0, 0.0]
    assert right[1, 2] == 0.0
    spread = right.copy()
    spread[0] = np.nan
    (mask,) = causal_softmax_alternatives((x,), {}, (spread,))
    assert mask.tolist() == [[False, True, True], [False] * 3, [False] * 3]
    spread[1] = np.nan
    (mask,) = causal_softmax_alternatives((x,), {}, (spread,))
    assert not mask[1].any()
