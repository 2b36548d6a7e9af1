"""What the rules of normalisations allow: right float32 kernels stay inside, wrong ones are outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from judged_arrays import measured, right, rounded, rows, share_of_limit, truncated, verdict_of
from references import by_torch

from optest.numerics import widen
from optest.spec import Status

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
    """x·scale + shift, for one weight and bias for each row (a group of one channel)."""
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
def test_right_norms_stay_inside(kind: str, name: str, add: Kernel) -> None:
    for width in WIDTHS:
        x, (w, b) = rows(kind, width, name), parameters(width, name)
        values, eps = (wide(x), wide(w), wide(b)), 1e-5
        stated = {"normalized_shape": [width], "eps": eps}
        asked = [
            ("layer_norm", [x, w, b], layer_norm(*values, eps, add), stated),
            ("rms_norm", [x, w], rms_norm(values[0], values[1], eps, add), stated),
        ]
        if width >= len(x):
            w, b = w[: len(x)], b[: len(x)]
            y = folded(values[0], wide(w), wide(b), eps, add)
            asked.append(("group_norm", [x[None], w, b], y[None], {"num_groups": len(x), "eps": eps}))
            channels = np.ascontiguousarray(x[:, None].swapaxes(0, 1))
            training = {"training": True, "eps": eps}
            asked.append(("batch_norm", [channels, None, None, w, b], y[None], training))
        for operator, inputs, values_, attributes in asked:
            passed, measure = measured(operator, inputs, values_, **attributes)
            assert passed, (operator, width, measure)
            assert share_of_limit(measure) <= 0.81, (operator, width, measure)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("is_folded", [False, True])
def test_batch_norm_by_running_statistics_stays_inside(is_folded: bool, name: str) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        channels = int(rng.integers(1, 40))
        x = rounded(rng.standard_normal((4, channels, 9)) * 3 + rng.choice([0.0, 30.0]), name)
        mean, w, b = (rounded(rng.standard_normal(channels), name) for _ in range(3))
        variance = rounded(rng.random(channels) * rng.choice([1.0, 1e-4]), name)
        m, v, weight, bias = (wide(each)[:, None] for each in (mean, variance, w, b))
        scale = weight * (f4(1) / np.sqrt(v + f4(1e-5)))
        y = wide(x) * scale + (bias - m * scale) if is_folded else (wide(x) - m) * scale + bias
        passed, measure = measured("batch_norm", [x, mean, variance, w, b], y)
        assert passed, measure
        assert share_of_limit(measure) <= 0.81


@pytest.mark.parametrize("add", [one_by_one, pairwise])
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("kind", ["normal", "uniform", "offset", "constant", "few", "exponents", "wide"])
def test_right_softmaxes_stay_inside(kind: str, name: str, add: Kernel) -> None:
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


def test_softmax_through_powers_of_two_stays_inside() -> None:
    for kind in ("normal", "constant", "wide", "exponents"):
        x = rows(kind, 4096, "float32")
        e = np.exp2((x - x.max(-1, keepdims=True)) * f4(1.4426950408889634))
        assert measured("softmax", [x], e * (f4(1) / pairwise(e)))[0]


def test_softmax_of_terms_that_vanish_one_by_one_stays_inside() -> None:
    x = np.random.default_rng(0).uniform(80.0, 100.0, (2, 65536)).astype(f4)
    assert measured("softmax", [x], softmax(x, one_by_one))[0]


@pytest.mark.parametrize("name", DTYPES)
def test_right_causal_softmaxes_stay_inside(name: str) -> None:
    for count, width in ((5, 37), (33, 33), (129, 257)):
        x = rounded(np.random.default_rng(width).uniform(84.0, 92.0, (2, count, width)), name)
        seen = np.tri(count, width, width - count, dtype=bool)
        y = softmax(np.where(seen, wide(x), -np.inf).astype(f4), pairwise)
        assert measured("causal_softmax", [x], y)[0]


NAMES = ("softmax", "log_softmax", "causal_softmax", "layer_norm", "rms_norm", "group_norm", "batch_norm")
ROUNDED_ON_THE_WAY = {("log_softmax", name) for name in ("float16", "bfloat16")}
"""What torch on a CPU computes in 16 bits; stated among the expectations of that backend."""


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float64", *DTYPES])
@pytest.mark.parametrize("operator", NAMES)
def test_torch_stays_inside(operator: str, name: str) -> None:
    """With one seed; benchmarks/widths.py asks a hundred."""
    if (operator, name) not in ROUNDED_ON_THE_WAY:
        for width in (1, 17, 4096, 65536):
            check_torch(operator, name, width)


def check_torch(operator: str, name: str, width: int) -> None:
    kind = "exponents" if "softmax" in operator else "normal"
    x = rows(kind, width, name)[: 2 if width > 4096 else 32]
    w, b = parameters(width if operator in ("layer_norm", "rms_norm") else len(x), name)
    attributes: dict[str, Any] = {}
    inputs: list[Array | None] = [x]
    if operator in ("layer_norm", "rms_norm"):
        attributes, inputs = {"normalized_shape": [width]}, [x, w, b] if operator == "layer_norm" else [x, w]
    elif operator == "group_norm":
        inputs = [np.concatenate([x[None], x[None]]), w, b]
        attributes = {"num_groups": len(x)}
    elif operator == "batch_norm":
        inputs = [x.reshape(1, len(x), width), w, rounded(np.abs(widen(b)), name), b, w]
    elif operator == "causal_softmax":
        inputs = [x[: min(width, len(x))]]
    verdict = verdict_of(operator, inputs, by_torch(operator, *inputs, **attributes), **attributes)
    assert verdict.status is Status.PASSED, (width, verdict.message)


def from_squares(x: Array, eps: float) -> Array:
    n = f4(x.shape[-1])
    mean = pairwise(x) / n
    return np.asarray((x - mean) / np.sqrt(np.maximum(pairwise(x * x) / n - mean * mean, f4(0)) + f4(eps)))


def bare(operator: str, x: Array) -> tuple[list[Array | None], dict[str, Any]]:
    """The inputs and attributes of a call over the rows of ``x`` without a weight."""
    if operator in ("layer_norm", "rms_norm"):
        return [x], {"normalized_shape": [x.shape[-1]]}
    if operator == "group_norm":
        return [x[None]], {"num_groups": len(x)}
    return ([x, None, None], {"training": True}) if operator == "batch_norm" else ([x], {})


@pytest.mark.parametrize("operator", NAMES)
def test_results_that_are_all_a_little_too_large_are_outside(operator: str) -> None:
    inputs, attributes = bare(operator, rows("normal", 257, "float32"))
    value = right(operator, *inputs, **attributes)
    assert measured(operator, inputs, value, **attributes)[0]
    assert not measured(operator, inputs, value * 1.0001, **attributes)[0]


def test_results_of_running_statistics_that_are_a_little_too_large_are_outside() -> None:
    x, (mean, deviation) = rows("normal", 257, "float32"), parameters(257, "float32")
    inputs: list[Array | None] = [x, mean, np.abs(deviation)]
    assert measured("batch_norm", inputs, right("batch_norm", *inputs))[0]
    assert not measured("batch_norm", inputs, right("batch_norm", *inputs) * 1.00001)[0]


def eps_outside(x: Array) -> Array:
    values = widen(x)
    return np.asarray((values - values.mean(-1, keepdims=True)) / (values.std(-1, keepdims=True) + 1e-5))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("operator", "kind", "formula"),
    [
        ("layer_norm", "far offset", lambda x: from_squares(x, 1e-5)),
        ("layer_norm", "tiny", eps_outside),
        ("layer_norm", "tiny", lambda x: layer_norm(x, f4(1), f4(0), 1e-4, pairwise)),
        ("rms_norm", "tiny", lambda x: rms_norm(x, f4(1), 1e-5, pairwise)),
        ("softmax", "normal", lambda x: right("softmax", x, dim=-1) * (1.0 + 2e-5 * np.sin(widen(x) * 50.0))),
        ("log_softmax", "wide", lambda x: np.log(softmax(x, pairwise))),
    ],
)
def test_formulas_that_lose_precision_are_outside(operator: str, kind: str, formula: Kernel) -> None:
    x = rows(kind, 257, "float32")
    inputs, attributes = bare(operator, x)
    assert measured(operator, inputs, right(operator, *inputs, **attributes), **attributes)[0]
    assert not measured(operator, inputs, formula(x), **attributes)[0]


@pytest.mark.parametrize(
    ("operator", "share"),
    [
        ("layer_norm", 4e-5),
        ("rms_norm", 2e-5),
        ("group_norm", 5e-5),
        ("batch_norm", 3e-5),
        ("softmax", 4e-5),
        ("log_softmax", 2e-5),
    ],
)
def test_one_element_that_is_little_off_is_outside(operator: str, share: float) -> None:
    """Too little for the statistic over thousands of elements: the bound of the element has to be sharp."""
    inputs, attributes = bare(operator, rows("normal", 257, "float32"))
    value = right(operator, *inputs, **attributes)
    flat = value.reshape(-1)
    place = int(np.argsort(np.abs(flat))[flat.size // 2])
    flat[place] *= 1.0 + share
    passed, measure = measured(operator, inputs, value, **attributes)
    assert not passed
    assert measure.mismatched == 1
    assert share_of_limit(measure) < 1.0, "the statistic alone would have found it"


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("operator", NAMES)
def test_truncated_results_are_outside(operator: str, name: str) -> None:
    inputs, attributes = bare(operator, rows("normal", 65, name))
    value = right(operator, *inputs, **attributes)
    assert measured(operator, inputs, value, **attributes)[0]
    assert not measured(operator, inputs, truncated(value, name), **attributes)[0]
