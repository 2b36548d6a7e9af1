"""Bounds of the rules: slightly wrong results fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from judged_arrays import measured, right, rounded, rows, share_of_limit, truncated

from optest.numerics import dtype_of, widen

Array = np.ndarray[Any, Any]
Inputs = list["Array | None"]

f4 = np.float32
NORMALIZATIONS = ("softmax", "log_softmax", "causal_softmax", "layer_norm", "rms_norm", "group_norm", "batch_norm")
REDUCTIONS = ("sum", "mean", "var", "norm", "logsumexp", "cumsum", "prod")


# torch computes them in 16 bits on a CPU, which its expectations record.
def over_rows(operator: str, x: Array, *, affine: bool = False) -> tuple[Inputs, dict[str, Any]]:
    """Return inputs and attributes of a call over the rows of ``x``, with weight and bias if ``affine``."""
    width = x.shape[-1]
    rng, name = np.random.default_rng(width + 1), dtype_of(x.dtype).name
    w, b = (
        rounded(rng.standard_normal(width if operator in ("layer_norm", "rms_norm") else len(x)), name)
        for _ in range(2)
    )
    if operator in ("layer_norm", "rms_norm"):
        parameters: Inputs = [w, b] if operator == "layer_norm" else [w]
        return [x, *(parameters if affine else ())], {"normalized_shape": [width]}
    if operator == "group_norm":
        return ([np.stack([x, x]), w, b] if affine else [x[None]]), {"num_groups": len(x)}
    if operator == "batch_norm" and affine:
        return [x.reshape(1, len(x), width), w, rounded(np.abs(widen(b)), name), b, w], {}
    if operator == "batch_norm":
        return [x, None, None], {"training": True}
    if operator == "causal_softmax":
        return [x[: min(width, len(x))]], {}
    return ([x[0], x[1]], {}) if operator == "dot" else ([x], {"dim": -1})


def is_inside(operator: str, inputs: Inputs, values: Any, attributes: dict[str, Any]) -> bool:
    return measured(operator, inputs, values, **attributes)[0]


@pytest.mark.parametrize(
    ("operator", "kind", "changes", "share"),
    [
        *((name, "normal", {}, 1e-4) for name in NORMALIZATIONS),
        ("cumsum", "uniform", {}, 3e-5),
        ("mean", "uniform", {}, 1e-4),
        ("var", "uniform", {}, 1e-4),
        ("norm", "uniform", {}, 1e-4),
        ("norm", "uniform", {"p": 3.0}, 1e-4),
        ("logsumexp", "normal", {}, 1e-5),
        ("prod", "factors", {}, 3e-5),
    ],
)
def test_slightly_scaled_results_fail(operator: str, kind: str, changes: dict[str, Any], share: float) -> None:
    inputs, attributes = over_rows(operator, rows(kind, 257, "float32"))
    attributes |= changes
    value = right(operator, *inputs, **attributes)
    assert is_inside(operator, inputs, value, attributes)
    assert not is_inside(operator, inputs, value * (1.0 + share), attributes)


def test_slightly_scaled_running_statistics_fail() -> None:
    mean, deviation = rounded(np.random.default_rng(258).standard_normal((2, 257)), "float32")
    inputs: Inputs = [rows("normal", 257, "float32"), mean, np.abs(deviation)]
    value = right("batch_norm", *inputs)
    assert is_inside("batch_norm", inputs, value, {})
    assert not is_inside("batch_norm", inputs, value * 1.00001, {})


def norm_of_squares(x: Array) -> Array:
    """Normalize with the variance E[x²] − E[x]², which cancels."""
    mean, square = x.mean(-1, dtype=f4, keepdims=True), (x * x).mean(-1, dtype=f4, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(np.maximum(square - mean * mean, f4(0)) + f4(1e-5)))


def variance_of_squares(x: Array) -> Array:
    n = f4(x.shape[-1])
    mean, square = x.mean(-1, dtype=f4), (x * x).mean(-1, dtype=f4)
    return np.asarray(np.maximum(square - mean * mean, f4(0)) * (n / (n - f4(1))))


def normalized(x: Array, eps: float, *, outside: bool = False) -> Array:
    """Compute layer_norm in float64, with ``eps`` added to the variance, or to the root if ``outside``."""
    values = widen(x).astype(np.float64)
    centred, variance = values - values.mean(-1, keepdims=True), values.var(-1, keepdims=True)
    return np.asarray(centred / (np.sqrt(variance) + eps if outside else np.sqrt(variance + eps)))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, dtype=f4, keepdims=True))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("operator", "kind", "width", "formula"),
    [
        ("layer_norm", "far offset", 257, norm_of_squares),
        ("layer_norm", "tiny", 257, lambda x: normalized(x, 1e-5, outside=True)),
        ("layer_norm", "tiny", 257, lambda x: normalized(x, 1e-4)),
        ("rms_norm", "tiny", 257, lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + f4(1e-5))),
        ("softmax", "normal", 257, lambda x: right("softmax", x, dim=-1) * (1.0 + 2e-5 * np.sin(widen(x) * 50.0))),
        ("log_softmax", "wide", 257, lambda x: np.log(softmax(x))),
        ("var", "offset", 257, variance_of_squares),
        ("prod", "exponents", 9, lambda x: np.exp(np.log(x).sum(-1))),
        ("mean", "uniform", 257, lambda x: right("mean", x, dim=-1) * np.r_[1.001, np.ones(len(x) - 1)]),
    ],
)
def test_imprecise_formulas_fail(operator: str, kind: str, width: int, formula: Callable[[Array], Array]) -> None:
    x = rows(kind, width, "float32")
    inputs, attributes = over_rows(operator, x)
    assert is_inside(operator, inputs, right(operator, *inputs, **attributes), attributes)
    assert not is_inside(operator, inputs, formula(x), attributes)


@pytest.mark.parametrize(
    ("operator", "changes", "share"),
    [
        ("layer_norm", {}, 4e-5),
        ("rms_norm", {}, 2e-5),
        ("group_norm", {}, 5e-5),
        ("batch_norm", {}, 3e-5),
        ("softmax", {}, 4e-5),
        ("log_softmax", {}, 2e-5),
        ("prod", {}, 3e-6),
        ("var", {}, 1e-5),
        ("norm", {}, 5e-6),
        ("norm", {"p": 3.0}, 3e-5),
        ("logsumexp", {}, 1e-5),
        ("cumsum", {}, 4e-6),
        ("mean", {}, 1e-5),
    ],
)
def test_single_slightly_wrong_element_fails(operator: str, changes: dict[str, Any], share: float) -> None:
    # The statistic over thousands of elements misses it: the bound of the element has to be sharp.
    x = rows("normal", 257, "float32")
    if operator in REDUCTIONS:
        x = rounded(np.random.default_rng(5).uniform(0.9, 1.1, (8192, 9)), "float32")
    inputs, attributes = over_rows(operator, x)
    attributes |= changes
    value = right(operator, *inputs, **attributes)
    flat = value.reshape(-1)
    flat[np.argsort(np.abs(flat))[flat.size // 2]] *= 1.0 + share
    passed, measure = measured(operator, inputs, value, **attributes)
    assert not passed
    assert measure.mismatched == 1
    assert share_of_limit(measure) < 1.0, "the statistic alone would have found it"


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("operator", [*NORMALIZATIONS, *REDUCTIONS])
def test_truncated_results_fail(operator: str, name: str) -> None:
    x = rows("normal", 65, name)
    if operator in REDUCTIONS:
        kind = {"prod": "factors", "logsumexp": "normal"}.get(operator, "uniform")
        x = np.concatenate([rows(kind, 65, name, seed) for seed in range(16)])
    inputs, attributes = over_rows(operator, x)
    value = right(operator, *inputs, **attributes)
    assert is_inside(operator, inputs, value, attributes)
    assert not is_inside(operator, inputs, truncated(value, name), attributes)
