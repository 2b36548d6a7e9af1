"""Correct float32 kernels of normalisations are within the error budgets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from judged_arrays import measured, rounded, rows, share_of_limit

from optest.numerics import widen

Array = np.ndarray[Any, Any]
Kernel = Callable[..., Array]

f4 = np.float32
DTYPES = ("float32", "float16", "bfloat16")
WIDTHS = (2, 17, 257, 4096)
FILLS = ("normal", "uniform", "offset", "constant", "large constant", "few", "tiny", "tiny with offset", "scaled rows")


def parameters(width: int, name: str) -> tuple[Array, Array]:
    rng = np.random.default_rng(width + 1)
    return rounded(rng.standard_normal(width), name), rounded(rng.standard_normal(width), name)


def wide(array: Array) -> Array:
    return widen(array).astype(f4)


def one_by_one(x: Array) -> Array:
    return np.asarray(np.add.accumulate(x, axis=-1, dtype=f4)[..., -1:])


def pairwise(x: Array) -> Array:
    return np.asarray(x.sum(-1, dtype=f4, keepdims=True))


def row_statistics(x: Array, eps: float, add: Kernel) -> tuple[Array, Array]:
    n = f4(x.shape[-1])
    mean = add(x) / n
    centred = x - mean
    return mean, f4(1) / np.sqrt(add(centred * centred) / n + f4(eps))


def layer_norm(x: Array, w: Array, b: Array, eps: float, add: Kernel) -> Array:
    mean, r = row_statistics(x, eps, add)
    return np.asarray((x - mean) * r * w + b)


def folded(x: Array, w: Array, b: Array, eps: float, add: Kernel) -> Array:
    """Return x·scale + shift, with one weight and bias per row (a group of one channel)."""
    mean, r = row_statistics(x, eps, add)
    scale = w[: len(x), None] * r
    return np.asarray(x * scale + (b[: len(x), None] - mean * scale))


def rms_norm(x: Array, w: Array, eps: float, add: Kernel) -> Array:
    return np.asarray(x * (f4(1) / np.sqrt(add(x * x) / f4(x.shape[-1]) + f4(eps))) * w)


def softmax(x: Array, add: Kernel) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / add(e))


@pytest.mark.parametrize("add", [one_by_one, pairwise])
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("kind", FILLS)
def test_correct_norms_are_within_budget(kind: str, name: str, add: Kernel) -> None:
    for width in WIDTHS:
        x, (w, b) = rows(kind, width, name), parameters(width, name)
        values, eps = (wide(x), wide(w), wide(b)), 1e-5
        row_attributes = {"normalized_shape": [width], "eps": eps}
        calls = [
            ("layer_norm", [x, w, b], layer_norm(*values, eps, add), row_attributes),
            ("rms_norm", [x, w], rms_norm(values[0], values[1], eps, add), row_attributes),
        ]
        if width >= len(x):
            w, b = w[: len(x)], b[: len(x)]
            y = folded(values[0], wide(w), wide(b), eps, add)
            calls.append(("group_norm", [x[None], w, b], y[None], {"num_groups": len(x), "eps": eps}))
            channels = np.ascontiguousarray(x[:, None].swapaxes(0, 1))
            training = {"training": True, "eps": eps}
            calls.append(("batch_norm", [channels, None, None, w, b], y[None], training))
        for operator, inputs, output, attributes in calls:
            passed, measure = measured(operator, inputs, output, **attributes)
            assert passed, (operator, width, measure)
            assert share_of_limit(measure) <= 0.81, (operator, width, measure)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("is_folded", [False, True])
def test_batch_norm_by_running_statistics_within_budget(is_folded: bool, name: str) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        channels = int(rng.integers(1, 40))
        x = rounded(rng.standard_normal((4, channels, 9)) * 3 + rng.choice([0.0, 30.0]), name)
        mean, w, b = (rounded(rng.standard_normal(channels), name) for _ in range(3))
        variance = rounded(rng.random(channels) * rng.choice([1.0, 1e-4]), name)
        m, v, weight, bias = (wide(a)[:, None] for a in (mean, variance, w, b))
        scale = weight * (f4(1) / np.sqrt(v + f4(1e-5)))
        y = wide(x) * scale + (bias - m * scale) if is_folded else (wide(x) - m) * scale + bias
        passed, measure = measured("batch_norm", [x, mean, variance, w, b], y)
        assert passed, measure
        assert share_of_limit(measure) <= 0.81


@pytest.mark.parametrize("add", [one_by_one, pairwise])
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("kind", ["normal", "uniform", "offset", "constant", "few", "exponents", "wide"])
def test_correct_softmaxes_are_within_budget(kind: str, name: str, add: Kernel) -> None:
    for width in WIDTHS:
        x = rows(kind, width, name)
        values = wide(x)
        shifted = values - values.max(-1, keepdims=True)
        logarithm = np.log(add(np.exp(shifted)))
        for operator, y in (
            ("softmax", softmax(values, add)),
            ("log_softmax", shifted - logarithm),
            ("log_softmax", values - (values.max(-1, keepdims=True) + logarithm)),
        ):
            passed, measure = measured(operator, [x], y, dim=-1)
            assert passed, (operator, width, measure)
            assert share_of_limit(measure) <= 0.81


def test_softmax_by_exp2_is_within_budget() -> None:
    for kind in ("normal", "constant", "wide", "exponents"):
        x = rows(kind, 4096, "float32")
        e = np.exp2((x - x.max(-1, keepdims=True)) * f4(1.4426950408889634))
        assert measured("softmax", [x], e * (f4(1) / pairwise(e)))[0]


def test_softmax_with_vanishing_terms_within_budget() -> None:
    x = np.random.default_rng(0).uniform(80.0, 100.0, (2, 65536)).astype(f4)
    assert measured("softmax", [x], softmax(x, one_by_one))[0]
