"""Normalisations against torch in float64, against their definitions, and at the values where kernels break."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optest.numerics import round_to, widen
from optest.operators import operators
from optest.registry import load_object
from optest.spec import dtype

Array = np.ndarray[Any, Any]
NAN, INF = math.nan, math.inf


def reference(name: str, *inputs: Array | None, **attributes: Any) -> Array:
    descriptor = operators.get(name)
    (output,) = load_object(str(descriptor.reference))(inputs, descriptor.bind(attributes))
    return np.asarray(output)


def by_torch(name: str, *inputs: Array | None, **attributes: Any) -> Array:
    torch = pytest.importorskip("torch")
    from optest.torch.operators.reduction import CALLS

    tensors = [None if each is None else torch.from_numpy(each.copy(order="C")) for each in inputs]
    return np.asarray(CALLS[name](tensors, operators.get(name).bind(attributes)).numpy())


def same(name: str, *inputs: Array | None, rtol: float = 1e-12, atol: float = 1e-13, **attributes: Any) -> None:
    ours, theirs = reference(name, *inputs, **attributes), by_torch(name, *inputs, **attributes)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=atol)


def draws(*shapes: tuple[int, ...] | None, seed: int = 0) -> list[Array | None]:
    rng = np.random.default_rng(seed)
    return [None if shape is None else rng.standard_normal(shape) for shape in shapes]


any_shape = arrays.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=7)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@settings(max_examples=40, deadline=None)
@given(shape=any_shape, place=st.integers(0, 3), seed=st.integers(0, 99), scale=st.sampled_from([1.0, 50.0, 1000.0]))
def test_softmax_against_torch(name: str, shape: tuple[int, ...], place: int, seed: int, scale: float) -> None:
    x = np.random.default_rng(seed).standard_normal(shape) * scale
    same(name, x, dim=place % len(shape))
    same(name, np.asfortranarray(x)[::-1], dim=place % len(shape) - len(shape))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_odd_rows(name: str) -> None:
    rows = [
        [-INF, 1.0, -INF],
        [-INF, -INF, -INF],
        [INF, 0.0, 1.0],
        [NAN, 0.0, 1.0],
        [0.0, -0.0, -800.0],
        [5.0, 5.0, 5.0],
    ]
    same(name, np.array(rows), dim=1)
    same(name, np.array(3.0), dim=0)
    same(name, np.zeros((3, 0)), dim=1)
    same(name, np.zeros((0, 3)), dim=-1)


@pytest.mark.torch
@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 9), more=st.integers(0, 9), batch=st.integers(0, 3), seed=st.integers(0, 99))
def test_causal_softmax_against_torch(rows: int, more: int, batch: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((batch, rows, rows + more)) * 10.0
    same("causal_softmax", x)


def test_causal_softmax_sees_the_columns_before_it_alone() -> None:
    x = np.array([[1.0, 2.0, NAN, INF], [1.0, 2.0, 3.0, NAN], [1.0, 2.0, 3.0, 4.0]])
    y = reference("causal_softmax", x)
    np.testing.assert_array_equal(y == 0.0, [[0, 0, 1, 1], [0, 0, 0, 1], [0, 0, 0, 0]])
    np.testing.assert_allclose(y.sum(-1), 1.0, rtol=1e-15)
    np.testing.assert_allclose(y[0, :2], np.exp([1.0, 2.0]) / np.exp([1.0, 2.0]).sum(), rtol=1e-14)
    np.testing.assert_array_equal(reference("causal_softmax", np.array([[3.0, NAN], [0.0, 0.0]]))[0], [1.0, 0.0])


@pytest.mark.torch
@settings(max_examples=40, deadline=None)
@given(
    shape=any_shape,
    trailing=st.integers(1, 3),
    given_=st.sampled_from(["", "w", "b", "wb"]),
    eps=st.sampled_from([1e-5, 0.1, 0.0]),
    seed=st.integers(0, 99),
)
def test_layer_and_rms_norm_against_torch(
    shape: tuple[int, ...], trailing: int, given_: str, eps: float, seed: int
) -> None:
    normalized = shape[-min(trailing, len(shape)) :]
    weight, bias = normalized if "w" in given_ else None, normalized if "b" in given_ else None
    x, w, b = draws(shape, weight, bias, seed=seed)
    eps = 1e-5 if math.prod(normalized) == 1 else eps
    same("layer_norm", x, w, b, normalized_shape=list(normalized), eps=eps, rtol=1e-10)
    same("rms_norm", x, w, normalized_shape=list(normalized), eps=eps)


@pytest.mark.torch
@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 4),
    groups=st.integers(1, 4),
    each=st.integers(1, 4),
    rest=st.lists(st.integers(1, 5), max_size=3),
    given_=st.sampled_from(["", "w", "b", "wb"]),
    seed=st.integers(0, 99),
)
def test_group_norm_against_torch(batch: int, groups: int, each: int, rest: list[int], given_: str, seed: int) -> None:
    channels = (groups * each,)
    x, w, b = draws(
        (batch, *channels, *rest), channels if "w" in given_ else None, channels if "b" in given_ else None, seed=seed
    )
    if batch * each * math.prod(rest) > 1:
        assert x is not None
        # torch takes x·s + t, whose terms cancel where a group has one element: s is up to |w| / √ε
        largest_scale = (1.0 if w is None else float(np.abs(w).max())) / math.sqrt(1e-5)
        rounding = 4 * np.finfo(np.float64).eps * float(np.abs(x).max()) * largest_scale
        same("group_norm", x, w, b, num_groups=groups, rtol=1e-9, atol=1e-13 + rounding)
        if each * math.prod(rest) == 1 and b is None:
            np.testing.assert_array_equal(reference("group_norm", x, w, None, num_groups=groups), 0.0)


@pytest.mark.torch
@settings(max_examples=40, deadline=None)
@given(
    batch=st.integers(1, 4),
    channels=st.integers(1, 6),
    rest=st.lists(st.integers(1, 5), max_size=3),
    given_=st.sampled_from(["", "w", "b", "wb"]),
    training=st.booleans(),
    seed=st.integers(0, 99),
)
def test_batch_norm_against_torch(
    batch: int, channels: int, rest: list[int], given_: str, training: bool, seed: int
) -> None:
    of = (channels,)
    x, mean, variance, w, b = draws(
        (batch, channels, *rest), of, of, of if "w" in given_ else None, of if "b" in given_ else None, seed=seed
    )
    assert variance is not None
    if not training or batch * math.prod(rest) > 1:
        same("batch_norm", x, mean, np.abs(variance), w, b, training=training, rtol=1e-9)


def test_running_statistics_do_not_matter_in_training() -> None:
    x, mean, variance = draws((5, 3), (3,), (3,))
    ours = reference("batch_norm", x, None, None, training=True)
    np.testing.assert_array_equal(reference("batch_norm", x, mean, variance, training=True), ours)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_odd_rows(name: str) -> None:
    rows = [[NAN, 1.0, 2.0], [INF, 0.0, 1.0], [0.0, -0.0, 0.0], [7.25, 7.25, 7.25], [0.0, 0.0, 1e3]]
    same(name, np.array(rows), normalized_shape=[3], eps=1e-5)
    same(name, np.zeros((0, 3)), normalized_shape=[3])


@pytest.mark.torch
@pytest.mark.parametrize(("name", "epsilon"), [("float64", 2.0**-52), ("float32", 2.0**-23), ("float16", 2.0**-23)])
def test_the_epsilon_of_rms_norm_where_none_is_stated(name: str, epsilon: float) -> None:
    """torch's default is that of float32 for 16 bits too, whatever its page says."""
    import torch

    tiny = round_to(np.full((1, 4), 1e-3), dtype(name))
    q = float(widen(tiny)[0, 0]) ** 2
    wanted = math.sqrt(q) / math.sqrt(q + epsilon)
    assert reference("rms_norm", tiny, normalized_shape=[4])[0, 0] == pytest.approx(wanted, rel=1e-12)
    got = torch.nn.functional.rms_norm(torch.from_numpy(tiny), (4,))
    assert float(got[0, 0]) == pytest.approx(wanted, rel=1e-3)


@settings(max_examples=40, deadline=None)
@given(x=arrays.arrays(np.float64, (3, 9), elements=st.floats(-1e3, 1e3)), shift=st.floats(-1e3, 1e3))
def test_what_normalised_rows_are(x: Array, shift: float) -> None:
    y = reference("layer_norm", x, normalized_shape=[9], eps=1e-5)
    np.testing.assert_allclose(y.mean(-1), 0.0, atol=1e-9)
    assert (np.square(y).mean(-1) <= 1.0 + 1e-9).all()
    share = reference("softmax", x, dim=1)
    np.testing.assert_allclose(share.sum(-1), 1.0, rtol=1e-13)
    np.testing.assert_allclose(reference("softmax", x + shift, dim=1), share, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(np.exp(reference("log_softmax", x, dim=1)), share, rtol=1e-9, atol=1e-300)
