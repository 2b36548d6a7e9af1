"""References and error terms of the reductions."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

import numpy as np

from optest.numerics import dtype_of, numpy_dtype, round_to
from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    Reference,
    as_float64,
    is_double,
    magnitudes,
    quiet_hooks,
    sum_over,
    widen,
    widen_further,
    with_rows,
)
from optest.operators.budgets import exponential_sum, growth_of_sum, half_subnormal, unit_roundoff
from optest.operators.shapes import normalize_dim, reduced_dims
from optest.spec import ErrorBudget, Terms, dtype


class Rows(NamedTuple):
    """An input whose reduced dimensions ``dims`` are flattened into the last one of ``values``."""

    values: Array
    dims: tuple[int, ...]
    keepdim: bool

    @property
    def length(self) -> int:
        """Number of elements in a row."""
        return int(self.values.shape[-1])

    def in_output_shape(self, result: Array) -> Array:
        """Return an array of one value per row, with size 1 in the reduced dimensions if ``keepdim``."""
        result = np.asarray(result)
        return np.expand_dims(result, self.dims) if self.keepdim else result


def rows_of(array: Array, attributes: Attributes) -> Rows:
    """Flatten the dimensions in ``dim`` (one, several, or None for all) into rows; a scalar is a row of one."""
    dims = tuple(sorted(reduced_dims(attributes.get("dim"), array.ndim)))
    if not array.ndim:
        return Rows(array.reshape(1), (), False)
    return Rows(with_rows(array, dims), dims, bool(attributes.get("keepdim")))


def sum_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the sum of the input, converted to ``dtype`` first if that is set; integers wrap in int64 or ``dtype``."""
    array = input_in_dtype(inputs[0], attributes)
    dims = tuple(sorted(reduced_dims(attributes.get("dim"), array.ndim)))
    total = total_in_dtype(sum_over(widen(array), dims, extended=is_double(array)), attributes)
    return (np.expand_dims(total, dims) if attributes.get("keepdim") and array.ndim else total,)


def mean_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the mean, NaN of no elements."""
    rows = rows_of(widen_further(np.asarray(inputs[0])), attributes)
    mean = rows.values.sum(-1) / (rows.length or np.nan)
    return (rows.in_output_shape(float64(mean)),)


def prod_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the product of the input, converted to ``dtype`` first if that is set; integers wrap in it or in int64."""
    array = input_in_dtype(inputs[0], attributes)
    rows = rows_of(widen(array), attributes)
    if rows.values.dtype.kind in "biu":
        return (rows.in_output_shape(total_in_dtype(rows.values.prod(-1, dtype=np.int64), attributes)),)
    # Partial products may leave the range of float64, although the product is in it.
    return (rows.in_output_shape(float64(rows.values.prod(-1, dtype=np.longdouble))),)


def cumsum_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return cumulative sums of the input, converted to ``dtype`` first if that is set; integers wrap as in sum."""
    converted = input_in_dtype(inputs[0], attributes)
    values = converted if converted.dtype.kind in "biu" else widen_further(converted)
    row = values if values.ndim else values.reshape(1)
    dim = normalize_dim(attributes["dim"], values.ndim)
    if values.dtype.kind in "biu":
        total = total_in_dtype(_cumulative_sums(row.astype(np.int64), dim, attributes), attributes)
    else:
        total = float64(_cumulative_sums(row, dim, attributes))
    return (total.reshape(values.shape),)


def _cumulative_sums(row: Array, dim: int, attributes: Attributes) -> Array:
    """Return the sums up to each element; from the last one if ``reverse``, without the element if ``exclusive``."""
    ordered = np.flip(row, dim) if attributes.get("reverse") else row
    if attributes.get("exclusive"):
        zero = np.zeros_like(ordered.take([0], dim)) if ordered.shape[dim] else ordered
        ordered = np.concatenate([zero, ordered], dim).take(range(ordered.shape[dim]), dim)
    total = ordered.cumsum(dim)
    return np.flip(total, dim) if attributes.get("reverse") else total


def input_in_dtype(source: Any, attributes: Attributes) -> Array:
    """Return the input as an array, converted to the attribute ``dtype`` if that is set."""
    array, requested = np.asarray(source), attributes.get("dtype")
    if requested is None or dtype_of(array.dtype) == (target := dtype(requested)):
        return array
    return round_to(array, target) if target.is_inexact else widen(array).astype(numpy_dtype(target))


def total_in_dtype(total: Array, attributes: Attributes) -> Array:
    """Wrap an integer result to the attribute ``dtype`` if that is set; return any other result unchanged."""
    requested = attributes.get("dtype")
    if requested is None or np.asarray(total).dtype.kind not in "iu":
        return total
    return np.asarray(total).astype(numpy_dtype(dtype(requested)))


def dot_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """Return the sum of products of two vectors; integers keep their dtype and wrap."""
    left, right = np.asarray(inputs[0]), np.asarray(inputs[1])
    if left.dtype.kind in "iu":
        # Modulo 2^64, which leaves the lower bits right.
        total = (left.astype(np.int64) * right.astype(np.int64)).sum(dtype=np.int64)
        return (np.asarray(total).astype(left.dtype),)
    return (float64((widen_further(left) * widen_further(right)).sum()),)


def float64(values: Array) -> Array:
    return np.asarray(values, dtype=np.float64)


def sum_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """Return the terms of each sum: its elements."""
    values = magnitudes(input_in_dtype(inputs[0], attributes))
    dims = tuple(sorted(reduced_dims(attributes.get("dim"), values.ndim)))
    absolute, squared = sum_over(values, dims), sum_over(values * values, dims)
    if attributes.get("keepdim") and values.ndim:
        absolute, squared = np.expand_dims(absolute, dims), np.expand_dims(squared, dims)
    count = int(np.prod([values.shape[i] for i in dims])) if values.ndim else 1
    return (Terms(absolute, squared, count),)


def mean_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """Return the terms of each mean: its elements over n, and two more for dividing by n or multiplying by 1/n."""
    rows = rows_of(magnitudes(inputs[0]), attributes)
    n = max(rows.length, 1)
    absolute = rows.values.sum(-1) / n
    squared = (rows.values * rows.values).sum(-1) / float(n * n)
    return (Terms(rows.in_output_shape(absolute), rows.in_output_shape(squared), rows.length + 2, divided=True),)


def cumsum_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """Return the terms of each cumulative sum: its k elements, with a count of 4k, or k² in rows of repeated values.

    Each error is in every later element as well: the elements of a row are one random walk and not k draws, and errors
    may be twice as large as those of independent sums, hence 4k for k. If a row repeats few values, roundings repeat,
    too, hence k².
    """
    x = magnitudes(inputs[0]) if np.iscomplexobj(inputs[0]) else as_float64(inputs[0])
    row = x.reshape(x.shape or (1,))
    dim = normalize_dim(attributes["dim"], x.ndim)
    k = _cumulative_sums(np.ones_like(row), dim, attributes)
    repeats = growth_of_sum(row, float(row.shape[dim]), (dim,))[1] > row.shape[dim]
    count = np.where(repeats, np.maximum(k * k, 4.0 * k), 4.0 * k)
    absolute, squared = _cumulative_sums(np.abs(row), dim, attributes), _cumulative_sums(row * row, dim, attributes)
    return (Terms(absolute.reshape(x.shape), squared.reshape(x.shape), count.reshape(x.shape)),)


def dot_terms(inputs: Inputs, _attributes: Attributes) -> tuple[Terms, ...]:
    """Return the terms of the scalar product: its products."""
    products = as_float64(inputs[0]) * as_float64(inputs[1])
    return (Terms(np.abs(products).sum(), (products * products).sum(), products.size),)


def prod_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the error budget of n − 1 multiplications in any order, each off by u of itself: at most ``(n − 1)·|y|``.

    (1 + u)^(n−1) − 1 = (n − 1)·u·(1 + (n − 1)·u/2 + …). The statistic takes the roundings as independent and uniform,
    u²/3 each. If a row repeats few magnitudes, they may all have one sign, and n²/4 takes the place of n. Partial
    products below the smallest normal number of float32 lose up to half a subnormal each.
    """
    array = input_in_dtype(inputs[0], attributes)
    rows = rows_of(as_float64(array), attributes)
    u, steps = unit_roundoff(array), max(rows.length - 1, 0)
    y = np.abs(rows.values.prod(-1))
    lost = steps * half_subnormal(double=is_double(array))
    # exp(steps · u) is above (1 + u)^steps; 600 keeps it in the range of float64.
    worst = y * (np.expm1(min(steps * u, 600.0)) / u) + lost
    spread = growth_of_sum(np.abs(rows.values), float(steps), (rows.values.ndim - 1,))[1][..., 0]
    return (ErrorBudget(rows.in_output_shape(worst), rows.in_output_shape(y * y * (spread / 3.0) + lost * lost)),)


def _of_rows(function: Callable[[Array], Any]) -> Reference:
    """Return the reference that applies an exact ``function`` to the last dimension of the rows."""

    # NumPy's functions treat NaN as the operators do: it is the extreme of any row that has one. Of equal elements, ±0
    # included, the index of the first counts.
    def reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
        rows = rows_of(widen(np.asarray(inputs[0])), attributes)
        return (rows.in_output_shape(function(rows.values)),)

    return reference


def _with_index(extreme: Reference, index: Reference) -> Reference:
    """Return the reference that returns the extreme, and with ``dim`` its index, too."""

    def reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
        values = extreme(inputs, attributes)
        return values if attributes.get("dim") is None else (*values, *index(inputs, attributes))

    return reference


def _as_truth(values: Array, truth: Array) -> Array:
    """Return ``truth`` as bool, but as uint8 for uint8 ``values``."""
    return np.asarray(truth, np.uint8 if values.dtype == np.uint8 else np.bool_)


amax_reference = _of_rows(lambda values: values.max(-1))
amin_reference = _of_rows(lambda values: values.min(-1))
argmax_reference = _of_rows(lambda values: values.argmax(-1).astype(np.int64))
argmin_reference = _of_rows(lambda values: values.argmin(-1).astype(np.int64))
max_reference = _with_index(amax_reference, argmax_reference)
min_reference = _with_index(amin_reference, argmin_reference)
all_reference = _of_rows(lambda values: _as_truth(values, (values != 0).all(-1)))
any_reference = _of_rows(lambda values: _as_truth(values, (values != 0).any(-1)))


def var_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return Σ(x − mean)² / max(0, n − correction), computed in two passes; NaN for 0 / 0."""
    array = np.asarray(inputs[0])
    rows = rows_of(widen_further(array), attributes)
    freedom = max(0.0, rows.length - attributes.get("correction", 1.0))
    mean = rows.values.sum(-1, keepdims=True) / max(rows.length, 1)
    centred = rows.values - mean
    # Subtract the rounding error of the mean.
    centred = centred - centred.sum(-1, keepdims=True) / max(rows.length, 1)
    return (rows.in_output_shape(float64((centred * centred).sum(-1) / np.float64(freedom))),)


def norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return (Σ|x|^p)^(1/p); the extreme magnitude for p = ±inf, the number of elements other than 0 for p = 0."""
    rows = rows_of(np.abs(widen_further(np.asarray(inputs[0]))), attributes)
    sizes, p = rows.values, attributes.get("p", 2.0)
    if p == 0:
        norm = np.count_nonzero(sizes, axis=-1).astype(np.float64)
    elif p in (inf, -inf):
        norm = sizes.max(-1) if p > 0 else sizes.min(-1)
    elif p == 1:
        norm = sizes.sum(-1)
    elif p == 2:
        norm = np.sqrt((sizes * sizes).sum(-1))
    else:
        norm = (sizes**p).sum(-1) ** (1.0 / p)
    return (rows.in_output_shape(float64(norm)),)


def logsumexp_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return ln Σ exp(x): -inf if there are no elements or all are -inf, infinity if one element is infinite."""
    rows = rows_of(widen_further(np.asarray(inputs[0])), attributes)
    largest = rows.values.max(-1, keepdims=True, initial=-inf)
    # An infinite maximum would make NaN of ∞ − ∞.
    largest = np.where(np.isinf(largest), 0.0, largest)
    total = np.exp(rows.values - largest).sum(-1)
    return (rows.in_output_shape(float64(np.log(total) + largest[..., 0])),)


def var_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the error budget of the mean, the differences, their squares, the sum and the division.

    With κ = √(1 + mean²/var), a = mean|x|, n elements in a row and d = n − correction, in units of u:

    - rounding x − mean (u) and squaring (2u with it), the sum of the squares, and the division (2.5 ulp):
      ``y·(4√n + 8)``;
    - updating formulas (Welford), whose running mean is rounded n times: ``4κ·y`` (Chan, Golub, LeVeque 1983: errors
      of E[x²] − E[x]² grow with κ²·u and are outside, those of updating and of two passes with κ·u);
    - a mean that is off by δ = 4√n·a + |mean| adds δ² to each square, of second order: ``u·δ²·n/d``;
    - each square, and the quotient, may be rounded to a subnormal number: ``n/d + 1`` halves of the smallest.

    If a row repeats few values, n takes the place of 4√n.
    """
    array = np.asarray(inputs[0])
    rows = rows_of(as_float64(array), attributes)
    x, n, u = rows.values, float(max(rows.length, 1)), unit_roundoff(array)
    freedom = np.float64(max(0.0, rows.length - attributes.get("correction", 1.0)))
    mean = x.sum(-1, keepdims=True) / n
    terms = (x - mean) ** 2 / freedom
    y, squares = terms.sum(-1, keepdims=True), (terms * terms).sum(-1, keepdims=True)
    conditioned = np.sqrt(y * (y + mean * mean))  # κ·y, finite if the variance is 0
    size = np.abs(x).mean(-1, keepdims=True) if rows.length else mean
    square = (x * x).mean(-1, keepdims=True) if rows.length else mean
    growth, growth_variance = growth_of_sum(x, n, (x.ndim - 1,))

    shift = growth * size + np.abs(mean)
    lost = half_subnormal(double=is_double(array)) * (n / freedom + 1.0)
    worst = y * (growth + 8.0) + 4.0 * conditioned + u * shift * shift * n / freedom + lost

    shift_variance = growth_variance * (mean * mean / 3.0 + square / (2.0 * n)) + mean * mean / 3.0
    expected = growth_variance * (y * y / 3.0 + squares / 2.0) + 2.0 * squares + 2.0 * y * y
    expected = expected + 4.0 * conditioned * conditioned + 3.0 * (u * shift_variance * n / freedom) ** 2 + lost * lost
    return (ErrorBudget(rows.in_output_shape(worst[..., 0]), rows.in_output_shape(expected[..., 0])),)


def norm_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the error budget of the powers, the sum and the root, in first order, relative to the result y.

    In units of u:

    - p = 1: the sum, ``4√n``;
    - p = 2: squares and their sum over 2, √ (3 ulp), and a scale divided out before and multiplied in after:
      ``2√n + 10``;
    - p = ±inf, 0: no error;
    - any other p: ``(4√n + 33)/|p| + |ln y| + 33``: both powers are pow (16 ulp), 1/p is rounded.

    Only for p > 1 and inputs narrower than float64, squares and powers below the smallest normal number of float32 may
    vanish, e = n·2⁻¹²⁶ in all, which takes ``min(e/(p·y^(p−1)), e^(1/p))`` from y. If a row repeats few values, n takes
    the place of 4√n. A norm that is 0 or infinite, and one of no elements, has no other error than that.
    """
    return (norm_budget(inputs, attributes, 2.0**-126),)


def norm_budget(inputs: Inputs, attributes: Attributes, smallest: float) -> ErrorBudget:
    """Return the error budget of ``norm_terms``, with powers of float32 each of which may be off by ``smallest``."""
    array = np.asarray(inputs[0])
    rows = rows_of(np.abs(as_float64(array)), attributes)
    p = attributes.get("p", 2.0)
    if p in (0.0, inf, -inf) or not rows.length:
        return _no_error(rows)
    powers = rows.values**p
    total = powers.sum(-1)
    y = total ** (1.0 / p)
    # The relative error of a sum of terms of one sign, at worst and in variance.
    worst, variance = growth_of_sum(powers, float(rows.length), (powers.ndim - 1,))
    squares = (powers * powers).sum(-1) / (total * total)
    growth, spread = worst[..., 0], variance[..., 0] * (1.0 / 3.0 + squares / 2.0)
    of_powers = 0.0 if p == 1 else 10.0 if p == 2 else 33.0 / abs(p) + 33.0 + np.abs(np.log(y))
    lost = rows.length * smallest
    vanished: Any = 0.0
    if p > 1 and not is_double(array):
        vanished = np.fmin(lost / p / y ** (p - 1.0), lost ** (1.0 / p)) / 2.0**-24
    worst = y * (growth / abs(p) + of_powers) + vanished
    variance = y * y * (spread / (p * p) + of_powers * of_powers / 3.0) + vanished * vanished
    # The norm of zeros is exactly 0, for negative p by way of infinity.
    exact = (total == 0.0) | np.isinf(total)
    worst, variance = np.where(exact, vanished, worst), np.where(exact, vanished * vanished, variance)
    return ErrorBudget(rows.in_output_shape(worst), rows.in_output_shape(variance))


def _no_error(rows: Rows) -> ErrorBudget:
    zeros = rows.in_output_shape(np.zeros(rows.values.shape[:-1]))
    return ErrorBudget(zeros, zeros)


def logsumexp_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the error budget of the sum of exp(x − max), its logarithm (3 ulp) and the sum with the maximum.

    With d = x − max, share = exp(d)/Σ and n elements in a row, to first order in units of u: the sum is off by
    ``Σ share·(2|d| + 6) + 4√n + v`` of itself (see softmax), which is the absolute error of its logarithm L; log adds
    ``6·L``, the last sum ``|y|``. If a row repeats few values, n takes the place of 4√n.
    """
    array = np.asarray(inputs[0])
    rows = rows_of(as_float64(array), attributes)
    if not rows.values.size:
        return (_no_error(rows),)
    exponentials = exponential_sum(rows.values, rows.values.ndim - 1, double=is_double(array))
    logarithm = np.log(exponentials.total)
    y = np.abs(exponentials.largest + logarithm)
    worst = exponentials.worst + 6.0 * logarithm + y
    variance = exponentials.variance + 12.0 * logarithm * logarithm + y * y / 3.0
    return (ErrorBudget(rows.in_output_shape(worst[..., 0]), rows.in_output_shape(variance[..., 0])),)


quiet_hooks(globals())
