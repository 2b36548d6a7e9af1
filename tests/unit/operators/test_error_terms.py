"""Bounds of the rules: torch passes at every width, slightly wrong results fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from judged_arrays import measured, right, rounded, rows, share_of_limit, truncated, verdict_of
from references import by_torch

from optest.numerics import dtype_of, round_to, widen
from optest.operators import operators
from optest.spec import Status, dtype

Array = np.ndarray[Any, Any]
Inputs = list["Array | None"]

f4 = np.float32
DTYPES = ("float64", "float32", "float16", "bfloat16")
WIDTHS = (1, 17, 4096, 65536)

FUNCTIONS: dict[str, tuple[float, float]] = {
    "exp": (-15, 11),
    "expm1": (-15, 11),
    "log": (1e-3, 1e3),
    "log1p": (-0.99, 1e3),
    "sqrt": (0, 1e3),
    "rsqrt": (1e-3, 1e3),
    "reciprocal": (0.01, 100),
    "sin": (-100, 100),
    "cos": (-100, 100),
    "tanh": (-10, 10),
    "erf": (-6, 6),
    "erfinv": (-1, 1),
    "digamma": (0.1, 1e3),
    "floor": (-1e3, 1e3),
    "ceil": (-1e3, 1e3),
    "round": (-1e3, 1e3),
    "trunc": (-1e3, 1e3),
    "neg": (-9, 9),
    "abs": (-9, 9),
    "sign": (-9, 9),
}
BINARY = ("add", "sub", "mul", "div", "floor_divide", "remainder", "pow", "maximum", "minimum", "eq", "lt", "logaddexp")
ACTIVATIONS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ("relu", "leaky_relu", "sigmoid", "silu", "softplus", "elu", "selu", "hardswish", "gelu")),
    ("leaky_relu", {"negative_slope": -0.3}),
    ("softplus", {"beta": 0.3, "threshold": 2.0}),
    ("softplus", {"beta": 3.0}),
    ("elu", {"alpha": -1.7}),
    ("gelu", {"approximate": "tanh"}),
]
NORMALIZATIONS = ("softmax", "log_softmax", "causal_softmax", "layer_norm", "rms_norm", "group_norm", "batch_norm")
REDUCTIONS = ("sum", "mean", "var", "norm", "logsumexp", "cumsum", "prod")
# torch computes them in 16 bits on a CPU, which its expectations record.
ROUNDED_ON_THE_WAY = ("rsqrt", "erf", "floor_divide", "log_softmax", "prod", "logsumexp")


def drawn(operator: str, name: str, width: int) -> list[Array]:
    """Return random inputs of an elementwise operator; for activations half of them are near 0."""
    rng = np.random.default_rng([0, width])
    count = len(operators.get(operator).tensors.inputs)
    if operator in FUNCTIONS:
        values = [rng.uniform(*FUNCTIONS[operator], width)]
    elif operator == "pow":
        values = [rng.uniform(0.1, 8, width), rng.uniform(-4, 4, width)]
    elif operator in BINARY:
        values = [rng.standard_normal(width) * 3, rng.uniform(0.25, 8, width) * rng.choice([-1.0, 1.0], width)]
    else:
        near, far = rng.standard_normal(width), rng.uniform(-110, 110, width)
        values = [np.where(rng.random(width) < 0.5, near, far), rng.standard_normal(width) * 3]
    return [round_to(each, dtype(name)) for each in values[:count]]


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


@pytest.mark.torch
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize(
    ("operator", "attributes"), [*((each, {}) for each in (*FUNCTIONS, *BINARY)), *ACTIVATIONS], ids=str
)
def test_torch_elementwise_stays_within_bounds(operator: str, attributes: dict[str, Any], name: str) -> None:
    # One seed here and below; benchmarks/honest.py --source widths uses a hundred.
    for width in (1, WIDTHS[-1]):
        assert_inside(operator, list(drawn(operator, name, width)), attributes, name)


@pytest.mark.torch
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("operator", [*(x for x in NORMALIZATIONS if x != "causal_softmax"), *REDUCTIONS, "dot"])
def test_torch_rows_stay_within_bounds(operator: str, name: str) -> None:
    kind = "exponents" if "softmax" in operator or operator == "logsumexp" else "normal"
    for width in WIDTHS:
        if operator != "var" or width > 1:
            x = rows("factors" if operator == "prod" else kind, width, name)[: 2 if width > 4096 else 32]
            assert_inside(operator, *over_rows(operator, x, affine=True), name)


def assert_inside(operator: str, inputs: Inputs, attributes: dict[str, Any], name: str) -> None:
    if name in ("float16", "bfloat16") and operator in ROUNDED_ON_THE_WAY:
        return
    verdict = verdict_of(operator, inputs, by_torch(operator, *inputs, **attributes), **attributes)
    assert verdict.status is Status.PASSED, verdict.message


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
