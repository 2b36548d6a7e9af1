"""References, error terms and accepted alternatives of softmax, log_softmax and causal_softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, as_float64, is_double, quiet_hooks, sum_over, widen
from optest.operators.budgets import SUBNORMAL, exponential_sum
from optest.operators.shapes import normalize_dim
from optest.spec import ErrorBudget


def _along_dim(function: Callable[..., Array]) -> Callable[[Inputs, Attributes], tuple[Array, ...]]:
    """Return a reference that applies `function` along dim; it returns an empty input unchanged."""

    def reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
        array = np.asarray(inputs[0])
        x = widen(array)
        dim = normalize_dim(attributes.get("dim", -1), x.ndim)
        if not x.size:
            return (x,)
        # A scalar counts as a row of one element.
        return (function(x.reshape(x.shape or (1,)), dim, extended=is_double(array)).reshape(x.shape),)

    return reference


def _softmax(row: Array, dim: int, *, extended: bool) -> Array:
    # The shift keeps exp from overflowing.
    e = np.exp(row - row.max(dim, keepdims=True))
    total = np.expand_dims(sum_over(e, (dim,), extended=extended), dim)
    return np.asarray(e / total)


def _log_softmax(row: Array, dim: int, *, extended: bool) -> Array:
    """Return (x − max) − ln Σ exp(x − max); `extended` computes in long double."""
    row = row.astype(np.longdouble) if extended else row
    shifted = row - row.max(dim, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(dim, keepdims=True)), dtype=np.float64)


softmax_reference, log_softmax_reference = _along_dim(_softmax), _along_dim(_log_softmax)


def causal_softmax_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """Return softmax over the unmasked columns of each row, and 0 in the masked ones for any input."""
    array = np.asarray(inputs[0])
    x = widen(array)
    if not x.size:
        return (x,)
    mask = visible_columns(x.shape[-2], x.shape[-1])
    # exp(−∞) is 0, so that masked columns add nothing.
    shares = _softmax(np.where(mask, x, -np.inf), x.ndim - 1, extended=is_double(array))
    return (np.where(mask, shares, 0.0),)


def causal_softmax_alternatives(inputs: Inputs, _attributes: Attributes, actual: Sequence[Any]) -> Sequence[Any]:
    """Return a mask that accepts NaN in the masked columns of rows whose unmasked outputs are NaN."""
    x = np.asarray(actual[0])
    if not x.size:
        return (None,)
    (expected,) = causal_softmax_reference(inputs, {})
    is_nan = np.isnan(np.asarray(x, np.float64))
    # A kernel that masks scores before softmax spreads NaN over the whole row.
    is_nan_row = np.isnan(expected[..., :1])
    return (is_nan & is_nan_row & ~visible_columns(x.shape[-2], x.shape[-1]),)


def visible_columns(rows: int, columns: int) -> Array:
    """Return the mask of the columns that each row uses: up to i + (columns − rows), so that the last row uses all."""
    return np.tri(rows, columns, columns - rows, dtype=np.bool_)


def softmax_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the first-order error budget of the shift, exp (3 ulp), the sum and the division (2.5 ulp).

    With d = x − max and n elements in a row, in units of u: exp(d) is off by ``o = 2|d| + 6`` of itself (d is rounded
    once, and once more in the conversion to base 2), the sum by ``Σy·o + 4√n + v`` of itself, the quotient by 5. v is
    the sum of terms below u/2 of the sum, which vanish if terms are added one by one. exp(d) is off by a few subnormals
    of float32, too. If a row repeats few values, n replaces 4√n.

    Errors of the sum are common to a row and do not average out over it; they count with twice their deviation.
    """
    x = as_float64(inputs[0])
    if not x.size:
        return (ErrorBudget(x, x),)
    row = x.reshape(x.shape or (1,))
    dim = normalize_dim(attributes.get("dim", -1), x.ndim)
    worst, variance = _softmax_budget(row, dim, double=is_double(inputs[0]))
    return (ErrorBudget(worst.reshape(x.shape), variance.reshape(x.shape)),)


def _softmax_budget(row: Array, dim: int, *, double: bool) -> tuple[Array, Array]:
    """Return the worst error of softmax along `dim` and its variance (see softmax_terms)."""
    total = exponential_sum(row, dim, double=double)
    y, weighted = total.shares, total.weighted
    worst = weighted + y * (total.worst + 5.0) + SUBNORMAL
    variance = weighted * weighted / 3.0 + y * y * (4.0 * total.variance + 2.0) + SUBNORMAL**2
    return worst, variance


def causal_softmax_terms(inputs: Inputs, _attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the budget of softmax over the unmasked columns of each row; the masked ones are exactly 0."""
    x = as_float64(inputs[0])
    if not x.size:
        return (ErrorBudget(x, x),)
    mask = visible_columns(x.shape[-2], x.shape[-1])
    worst, variance = _softmax_budget(np.where(mask, x, -np.inf), x.ndim - 1, double=is_double(inputs[0]))
    return (ErrorBudget(np.where(mask, worst, 0.0), np.where(mask, variance, 0.0)),)


def log_softmax_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the first-order error budget of the shift, exp (3 ulp), the sum, ln (3 ulp) and two differences.

    With d = x − max, L = ln Σ exp(d) and l = max + L, in units of u: the sum is off by ``Σ share·(2|d| + 6) + 4√n + v``
    of itself (see softmax_terms), which is the absolute error of L; the logarithm adds ``6·L``. (x − max) − L rounds
    ``|d|`` and x − (max + L) rounds ``|l|``; kernels use either. The result rounds ``|y|``.

    Errors of L are common to a row and count with twice their deviation. If a row repeats few values, n replaces 4√n.
    """
    x = as_float64(inputs[0])
    if not x.size:
        return (ErrorBudget(x, x),)
    row = x.reshape(x.shape or (1,))
    sums = exponential_sum(row, normalize_dim(attributes.get("dim", -1), x.ndim), double=is_double(inputs[0]))
    logarithm = np.log(sums.total)
    d, total = np.abs(sums.shifted), np.abs(sums.largest + logarithm)
    y = np.abs(sums.shifted - logarithm)
    worst = sums.worst + 6.0 * logarithm + d + total + y
    shared = sums.variance + 12.0 * logarithm * logarithm + total * total / 3.0
    variance = 4.0 * shared + (d * d + y * y) / 3.0
    return (ErrorBudget(worst.reshape(x.shape), variance.reshape(x.shape)),)


quiet_hooks(globals())
