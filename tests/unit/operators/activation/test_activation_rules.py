"""Rules of activations: common formulas pass in every dtype and at every width, others fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from judged_arrays import verdict_of

from optest.numerics import round_to, widen
from optest.operators import operators
from optest.operators.real_functions import normal_tail
from optest.registry import load_object
from optest.spec import Status, dtype

Array = np.ndarray[Any, Any]

FLOATS = ("float32", "float16", "bfloat16", "float64")


def inputs_of(operator: str, name: str, width: int, seed: int) -> list[Array]:
    """Return random inputs, half of them near 0, half up to the overflow of the exponential."""
    rng = np.random.default_rng([seed, width])
    near, far = rng.standard_normal(width), rng.uniform(-110, 110, width)
    x = np.where(rng.random(width) < 0.5, near, far)
    count = len(operators.get(operator).tensors.inputs)
    return [round_to(each, dtype(name)) for each in (x, rng.standard_normal(width) * 3)[:count]]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def stable_sigmoid(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small, 1) / (1 + small)


def tanh_sigmoid(x: Any) -> Any:
    half = x.dtype.type(0.5)
    return half + half * np.tanh(x * half)


def sixth(x: Any) -> Any:
    return x.dtype.type(1 / 6)


def erf(x: Any) -> Any:
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)


FORMULAS: dict[tuple[str, str], Callable[..., Any]] = {
    ("sigmoid", "plain"): sigmoid,
    ("sigmoid", "stable"): stable_sigmoid,
    ("sigmoid", "by powers of two"): lambda x: 1 / (1 + np.exp(-x)),
    ("silu", "x / (1 + exp(-x))"): lambda x: x / (1 + np.exp(-x)),
    ("silu", "x * sigmoid"): lambda x: x * stable_sigmoid(x),
    ("softplus", "log1p of exp"): lambda x: np.where(x > 20, x, np.log1p(np.exp(x))),
    ("softplus", "stable"): lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    ("softplus", "logaddexp"): lambda x: np.logaddexp(x, x.dtype.type(0)),
    ("elu", "expm1"): lambda x: np.where(x > 0, x, np.expm1(x)),
    ("hardswish", "division by 6"): lambda x: x * np.clip(x + 3, 0, 6) / 6,
    ("hardswish", "times 1/6"): lambda x: x * np.clip(x + 3, 0, 6) * sixth(x),
    ("hardswish", "hard sigmoid"): lambda x: x * np.clip(x / 6 + x.dtype.type(0.5), 0, 1),
    ("hardswish", "hard sigmoid times 1/6"): lambda x: x * np.clip(x * sixth(x) + x.dtype.type(0.5), 0, 1),
    ("gelu", "1 + erf"): lambda x: x * x.dtype.type(0.5) * (1 + erf(x * x.dtype.type(math.sqrt(0.5)))),
    ("gelu", "by the tail"): lambda x: x * np.where(x > 0, 1 - normal_tail(np.abs(x)), normal_tail(np.abs(x))),
    ("swiglu", "x / (1 + exp(-x)) * up"): lambda gate, up: gate / (1 + np.exp(-gate)) * up,
    ("swiglu", "gate * up * sigmoid"): lambda gate, up: gate * up * stable_sigmoid(gate),
}

# They lose small results; of common libraries only a few functions do.
CANCELLING: dict[tuple[str, str], Callable[..., Any]] = {
    ("silu", "by tanh"): lambda x: x * tanh_sigmoid(x),
    ("softplus", "log(1 + exp)"): lambda x: np.where(x > 20, x, np.log(1 + np.exp(x))),
    ("elu", "exp - 1"): lambda x: np.where(x > 0, x, np.exp(x) - 1),
    ("swiglu", "by tanh"): lambda gate, up: gate * tanh_sigmoid(gate) * up,
}


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize(("operator", "formula"), FORMULAS)
def test_common_formulas_pass(operator: str, formula: str, name: str) -> None:
    for width in (1, 17, 20000):
        for seed in range(3):
            inputs = inputs_of(operator, name, width, seed)
            wide = np.float64 if name == "float64" else np.float32
            with np.errstate(all="ignore"):
                output = FORMULAS[operator, formula](*(widen(each).astype(wide) for each in inputs)).astype(wide)
            verdict = verdict_of(operator, inputs, [round_to(output.astype(np.float64), dtype(name))])
            assert verdict.status is Status.PASSED, (width, seed, verdict.message, verdict.measures)


@pytest.mark.parametrize(("operator", "formula"), CANCELLING)
def test_cancelling_formulas_fail(operator: str, formula: str) -> None:
    inputs = inputs_of(operator, "float32", 4096, 0)
    with np.errstate(all="ignore"):
        output = CANCELLING[operator, formula](*inputs).astype(np.float32)
    assert verdict_of(operator, inputs, [output]).status is Status.FAILED


@pytest.mark.parametrize(
    ("operator", "low", "high", "factor"),
    [
        ("softplus", -80.0, -17.0, 0.0),
        ("softplus", -15.5, -14.5, 1.17),
        ("sigmoid", -80.0, -18.0, 0.0),
        ("silu", -80.0, -18.0, 0.0),
        ("elu", -1e-6, -1e-9, 0.99),
    ],
)
def test_lost_tails_fail(operator: str, low: float, high: float, factor: float) -> None:
    x = np.linspace(low, high, 100).astype(np.float32)
    (right,) = load_object(operators.get(operator).reference)([x], {})
    assert verdict_of(operator, [x], [right.astype(np.float32)]).status is Status.PASSED
    assert verdict_of(operator, [x], [(factor * right).astype(np.float32)]).status is Status.FAILED


def test_swiglu_budget_is_equal_for_split_gate() -> None:
    rng = np.random.default_rng(0)
    gate, up = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    terms = load_object(str(operators.get("swiglu").terms))
    (split,), (pair,) = terms([np.concatenate([gate, up], -1)], {}), terms([gate, up], {})
    assert np.array_equal(split.worst, pair.worst)


def test_only_zero_is_accepted_at_exponential_overflow() -> None:
    x = np.array([-89.0], np.float32)
    tail = float(np.exp(-89.0))
    assert verdict_of("sigmoid", [x], [np.array([0.0], np.float32)]).status is Status.PASSED
    assert verdict_of("sigmoid", [x], [np.array([tail], np.float32)]).status is Status.PASSED
    assert verdict_of("sigmoid", [x], [np.array([3 * tail], np.float32)]).status is Status.FAILED
    nearer = np.array([-80.0], np.float32)
    assert verdict_of("sigmoid", [nearer], [np.array([0.0], np.float32)]).status is Status.FAILED


@pytest.mark.parametrize("name", FLOATS[:3])
def test_gelu_by_wrong_formula_fails(name: str) -> None:
    x = round_to(np.linspace(-8.0, 8.0, 4001), dtype(name))
    reference = load_object(str(operators.get("gelu").reference))
    for requested, applied in (("none", "tanh"), ("tanh", "none")):
        (output,) = reference([x], {"approximate": applied})
        assert verdict_of("gelu", [x], [round_to(output, dtype(name))], approximate=requested).status is Status.FAILED
