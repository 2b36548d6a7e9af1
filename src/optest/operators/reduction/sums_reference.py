"""What sums and products over dimensions compute, and their terms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from optest.numerics import dtype_of, numpy_dtype, round_to
from optest.operators.arrays import Array, Attributes, Inputs, as_float64, is_double, magnitudes, quiet, sum_over, widen
from optest.operators.budgets import growth_of_sum, half_subnormal, unit_roundoff
from optest.operators.shapes import normalize_dim, reduced_dims
from optest.spec import DType, ErrorBudget, Terms, dtype


class Rows(NamedTuple):
    """An input whose reduced dimensions are flattened into the last one."""

    values: Array
    dims: tuple[int, ...]
    kept: bool

    @property
    def length(self) -> int:
        return int(self.values.shape[-1])

    def placed(self, result: Array) -> Array:
        """One value for each row in the shape of the output."""
        result = np.asarray(result)
        return np.expand_dims(result, self.dims) if self.kept else result


def rows_of(array: Array, attributes: Attributes) -> Rows:
    """Rows along ``dim``, which is None, one dimension or several; a scalar is a row of one."""
    dims = tuple(sorted(reduced_dims(attributes.get("dim"), array.ndim)))
    if not array.ndim:
        return Rows(array.reshape(1), (), False)
    kept = tuple(i for i in range(array.ndim) if i not in dims)
    shape = tuple(array.shape[i] for i in kept)
    count = int(np.prod([array.shape[i] for i in dims], dtype=np.int64))
    values = np.ascontiguousarray(array.transpose((*kept, *dims))).reshape((*shape, count))
    return Rows(values, dims, bool(attributes.get("keepdim")))


@quiet
def sum_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Of the input converted to ``dtype``, if one is asked for; integers wrap in it."""
    array = as_asked(inputs[0], attributes)
    dims = tuple(sorted(reduced_dims(attributes.get("dim"), array.ndim)))
    total = in_asked_dtype(sum_over(widen(array), dims, extended=is_double(array)), attributes)
    return (np.expand_dims(total, dims) if attributes.get("keepdim") and array.ndim else total,)


@quiet
def mean_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """NaN of nothing."""
    array = np.asarray(inputs[0])
    rows = rows_of(wide(array), attributes)
    return (rows.placed(float64(rows.values.sum(-1) / rows.length if rows.length else rows.values.sum(-1) * np.nan)),)


@quiet
def prod_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """In long double, whose range holds what partial products of float64 do not; integers in int64, wrapping.

    The input is converted to ``dtype`` first, if one is asked for; integers wrap in it.
    """
    array = as_asked(inputs[0], attributes)
    rows = rows_of(widen(array), attributes)
    if rows.values.dtype.kind in "biu":
        return (rows.placed(in_asked_dtype(rows.values.prod(-1, dtype=np.int64), attributes)),)
    return (rows.placed(float64(rows.values.prod(-1, dtype=np.longdouble))),)


@quiet
def cumsum_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The input is converted to ``dtype``, if one is asked for, before anything is added."""
    converted = as_asked(inputs[0], attributes)
    values = converted if converted.dtype.kind in "biu" else wide(converted)
    row = values if values.ndim else values.reshape(1)
    dim = normalize_dim(attributes["dim"], values.ndim)
    if values.dtype.kind in "biu":
        total = in_asked_dtype(scanned(row.astype(np.int64), dim, attributes), attributes)
    else:
        total = float64(scanned(row, dim, attributes))
    return (total.reshape(values.shape),)


def scanned(row: Array, dim: int, attributes: Attributes) -> Array:
    """Cumulative sums from the front, or with ``reverse`` from the end; with ``exclusive`` of what is before each."""
    ordered = np.flip(row, dim) if attributes.get("reverse") else row
    if attributes.get("exclusive"):
        nothing = np.zeros_like(ordered.take([0], dim)) if ordered.shape[dim] else ordered
        ordered = np.concatenate([nothing, ordered], dim).take(range(ordered.shape[dim]), dim)
    total = ordered.cumsum(dim)
    return np.flip(total, dim) if attributes.get("reverse") else total


def as_asked(source: Any, attributes: Attributes) -> Array:
    """The input, converted to ``dtype`` where the attributes ask for one."""
    array, asked = np.asarray(source), attributes.get("dtype")
    return array if asked is None else _converted(array, dtype(asked))


def in_asked_dtype(total: Array, attributes: Attributes) -> Array:
    """A result in int64 as it wraps in the integer ``dtype`` that is asked for; any other stays."""
    asked = attributes.get("dtype")
    if asked is None or np.asarray(total).dtype.kind not in "iu":
        return total
    return np.asarray(total).astype(numpy_dtype(dtype(asked)))


def _converted(array: Array, target: DType) -> Array:
    if dtype_of(array.dtype) == target:
        return array
    return round_to(array, target) if target.is_inexact else widen(array).astype(numpy_dtype(target))


@quiet
def dot_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """Integers are multiplied and added modulo 2⁶⁴ and keep their dtype, which keeps the lower bits."""
    left, right = np.asarray(inputs[0]), np.asarray(inputs[1])
    if left.dtype.kind in "iu":
        total = (left.astype(np.int64) * right.astype(np.int64)).sum(dtype=np.int64)
        return (np.asarray(total).astype(left.dtype),)
    return (float64((wide(left) * wide(right)).sum()),)


def wide(array: Array) -> Array:
    """In float64, or in long double where float64 has no bits to spare."""
    return array.astype(np.longdouble) if is_double(array) else widen(array)


def float64(values: Array) -> Array:
    return np.asarray(values, dtype=np.float64)


@quiet
def sum_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    values = magnitudes(as_asked(inputs[0], attributes))
    dims = tuple(sorted(reduced_dims(attributes.get("dim"), values.ndim)))
    absolute, squared = sum_over(values, dims), sum_over(values * values, dims)
    if attributes.get("keepdim") and values.ndim:
        absolute, squared = np.expand_dims(absolute, dims), np.expand_dims(squared, dims)
    count = int(np.prod([values.shape[i] for i in dims])) if values.ndim else 1
    return (Terms(absolute, squared, count),)


@quiet
def mean_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """The terms are the elements over n; dividing by n, or multiplying by 1/n, counts as two more."""
    rows = rows_of(magnitudes(inputs[0]), attributes)
    n = max(rows.length, 1)
    absolute = rows.values.sum(-1) / n
    squared = (rows.values * rows.values).sum(-1) / float(n * n)
    return (Terms(rows.placed(absolute), rows.placed(squared), rows.length + 2, divided=True),)


@quiet
def cumsum_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """Element k adds up k terms.

    Each error is in every later element as well: the elements of a row are one random walk and not k draws, and errors
    may be twice as large as those of independent sums. 4k takes the place of k. Where a row repeats few values,
    roundings repeat, and k² takes its place.
    """
    x = magnitudes(inputs[0]) if np.iscomplexobj(inputs[0]) else as_float64(inputs[0])
    row = x.reshape(x.shape or (1,))
    dim = normalize_dim(attributes["dim"], x.ndim)
    k = scanned(np.ones_like(row), dim, attributes)
    repeats = growth_of_sum(row, float(row.shape[dim]), (dim,))[1] > row.shape[dim]
    count = np.where(repeats, np.maximum(k * k, 4.0 * k), 4.0 * k)
    absolute, squared = scanned(np.abs(row), dim, attributes), scanned(row * row, dim, attributes)
    return (Terms(absolute.reshape(x.shape), squared.reshape(x.shape), count.reshape(x.shape)),)


@quiet
def dot_terms(inputs: Inputs, _attributes: Attributes) -> tuple[Terms, ...]:
    products = as_float64(inputs[0]) * as_float64(inputs[1])
    return (Terms(np.abs(products).sum(), (products * products).sum(), products.size),)


@quiet
def prod_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """n − 1 multiplications in any order, each off by u of itself: ``(n − 1)·|y|``, which is certain, not likely.

    (1 + u)^(n−1) − 1 = (n − 1)·u·(1 + (n − 1)·u/2 + …). The statistic takes the roundings as independent and uniform,
    u²/3 each. Where a row repeats few magnitudes, they may all have one sign, and n²/4 takes the place of n. Partial
    products below the smallest normal number of float32 lose up to half a subnormal each.
    """
    array = as_asked(inputs[0], attributes)
    rows = rows_of(as_float64(array), attributes)
    u, steps = unit_roundoff(array), max(rows.length - 1, 0)
    y = np.abs(rows.values.prod(-1))
    lost = steps * half_subnormal(double=is_double(array))
    worst = y * (np.expm1(min(steps * u, 600.0)) / u) + lost
    spread = growth_of_sum(np.abs(rows.values), float(steps), (rows.values.ndim - 1,))[1][..., 0]
    return (ErrorBudget(rows.placed(worst), rows.placed(y * y * (spread / 3.0) + lost * lost)),)
