"""Running errors against the real errors of float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sample_questions import questions

from optest.operators import running_errors
from optest.operators.running_errors import Bounded, constant, exp, joined, silu, softplus, sqrt

Array = np.ndarray[Any, Any]
U = 2.0**-24
RANDOM = np.random.default_rng(7)
X, Y = (RANDOM.uniform(0.25, 4.0, (64, 257)) * RANDOM.choice([-1.0, 1.0], (64, 257)) for _ in range(2))
FORMULAS: dict[str, Callable[[Any, Any], Any]] = {
    "product and sum": lambda x, y: x * y + x,
    "difference that cancels": lambda x, y: (x * 3.0 + y) - x * 3.0,
    "quotient": lambda x, y: x / (y * y + 1.0),
    "inverse root": lambda x, y: 1.0 / sqrt(x * x + y * y),
    "row sum": lambda x, y: (x * y).sum(axis=1, keepdims=True) * x,
    "sum of all": lambda x, y: (x * y).sum(axis=(0, 1)),
    "exp": lambda x, y: exp(x * y),
    "silu": lambda x, y: silu(x * y),
    "softplus": lambda x, y: softplus(x * y),
    "negated and subtracted from a number": lambda x, y: 1.0 - -x * y,
    "joined": lambda x, y: joined([x * y, x], lambda parts: np.concatenate(parts, -1)),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_bound_holds_for_float32_and_is_tight(name: str) -> None:
    formula = FORMULAS[name]
    stored = [each.astype(np.float32) for each in (X, Y)]
    bounded = formula(*map(Bounded, stored))
    exact = formula(*(each.astype(np.float64) for each in stored))
    error = np.abs(np.asarray(formula(*stored), np.float64) - exact)
    np.testing.assert_allclose(bounded.value, exact, rtol=1e-13, atol=1e-13)
    assert (error <= bounded.worst * U).all()
    assert error.max() > 0
    if "sum" not in name:  # of pairs, where the bound is that of any order
        assert np.median(bounded.worst) * U < 30.0 * np.sqrt(np.mean(error * error))


def test_exact_values_have_no_error() -> None:
    moved = Bounded(X)[:, None, 3:5].reshape(-1)
    assert not moved.worst.any()
    assert (constant(0.1, moved).worst, constant(0.1, X)) == (0.1, 0.1)


def test_error_of_infinity_is_finite() -> None:
    with np.errstate(all="ignore"):
        out = Bounded([np.inf, 1.0]) * Bounded([2.0, 3.0])
        (budget,) = running_errors.budgets(lambda inputs, _: [inputs[0] - inputs[0]], [np.float32([np.inf, 1])], {})
    assert out.worst[1] == pytest.approx(3.0)
    assert np.isfinite(budget.worst).all()


def test_doubles_are_evaluated_in_long_double() -> None:
    tiny = np.array([1.0, 2.0**-60])
    (out,) = running_errors.evaluate(lambda inputs, _: [(inputs[0][0] + inputs[0][1]) - inputs[0][0]], [tiny], {})
    assert out == (2.0**-60 if np.finfo(np.longdouble).nmant > 60 else 0.0)


@pytest.mark.parametrize("scale", [0.0, 2.0**-149, 2.0**-140, 2.0**-100, 1.0])
def test_root_near_zero_has_finite_bound(scale: float) -> None:
    # The square is rounded to a subnormal number or 0; the root is also a term of a divisor.
    x = np.float32(RANDOM.uniform(0.0, scale, 257))
    half = np.float32(0.5)
    with np.errstate(all="ignore"):
        root = sqrt(Bounded(x) * 0.5)
    error = np.abs(np.sqrt(x * half) - np.sqrt(x.astype(np.float64) * 0.5))
    assert np.isfinite(root.worst).all()
    assert (error <= root.worst * U).all()
    quotient = Bounded(x) / (root + 1e-8)
    assert np.isfinite(quotient.worst).all()


def test_results_computed_from_infinity_have_finite_bounds() -> None:
    x = np.float32([[np.inf, 1.0], [2.0, 3.0]])
    with np.errstate(all="ignore"):
        (budget,) = running_errors.budgets(
            lambda inputs, _: [inputs[0] * 3.0 - 1.0 / inputs[0].sum(axis=1, keepdims=True)], [x], {}
        )
    assert np.isfinite(budget.worst).all()
    assert (budget.worst[[0, 1, 1], [1, 0, 1]] >= 3.0).all()


@pytest.mark.slow
@pytest.mark.parametrize("op", ["adamw", "rms_norm_backward", "layer_norm_backward", "merge_attention_states"])
def test_finite_results_have_finite_bounds(op: str) -> None:
    # A bound of NaN rejects every result, and an infinite one accepts every result.
    for each in questions(op):
        for expected in each.expected:
            numbers = np.isfinite(np.asarray(expected.value, np.float64))
            assert np.isfinite(np.asarray(expected.terms.worst)[numbers]).all(), each.case.id
