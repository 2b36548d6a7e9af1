"""What sums, products and norms compute, in float64 from the inputs as they are stored."""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

import numpy as np

from optest.numerics import dtype_of, numpy_dtype, round_to
from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    is_double,
    quiet,
    sum_over,
    widen,
)
from optest.operators.shapes import (
    normalize_dim,
    reduced_dims,
)
from optest.spec import DType, dtype

__all__ = [
    "Rows",
    "as_asked",
    "cumsum_reference",
    "dot_reference",
    "in_asked_dtype",
    "logsumexp_reference",
    "mean_reference",
    "norm_reference",
    "prod_reference",
    "rows_of",
    "scanned",
    "sum_reference",
    "var_reference",
]


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
    rows = rows_of(_wide(array), attributes)
    return (rows.placed(_float64(rows.values.sum(-1) / rows.length if rows.length else rows.values.sum(-1) * np.nan)),)


@quiet
def prod_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """In long double, whose range holds what partial products of float64 do not; integers in int64, wrapping.

    The input is converted to ``dtype`` first, if one is asked for; integers wrap in it.
    """
    array = as_asked(inputs[0], attributes)
    rows = rows_of(widen(array), attributes)
    if rows.values.dtype.kind in "biu":
        return (rows.placed(in_asked_dtype(rows.values.prod(-1, dtype=np.int64), attributes)),)
    return (rows.placed(_float64(rows.values.prod(-1, dtype=np.longdouble))),)


@quiet
def cumsum_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The input is converted to ``dtype``, if one is asked for, before anything is added."""
    converted = as_asked(inputs[0], attributes)
    values = converted if converted.dtype.kind in "biu" else _wide(converted)
    row = values if values.ndim else values.reshape(1)
    dim = normalize_dim(attributes["dim"], values.ndim)
    if values.dtype.kind in "biu":
        total = in_asked_dtype(scanned(row.astype(np.int64), dim, attributes), attributes)
    else:
        total = _float64(scanned(row, dim, attributes))
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
def var_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Σ(x − mean)² / max(0, n − correction), by two passes; NaN where nothing is divided by nothing."""
    array = np.asarray(inputs[0])
    rows = rows_of(_wide(array), attributes)
    freedom = max(0.0, rows.length - attributes.get("correction", 1.0))
    mean = rows.values.sum(-1, keepdims=True) / max(rows.length, 1)
    centred = rows.values - mean
    centred = centred - centred.sum(-1, keepdims=True) / max(rows.length, 1)  # what rounding the mean left over
    return (rows.placed(_float64((centred * centred).sum(-1) / np.float64(freedom))),)


@quiet
def norm_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """(Σ|x|^p)^(1/p); the largest and the least magnitude for p = ±inf, the number of elements not 0 for p = 0."""
    rows = rows_of(np.abs(_wide(np.asarray(inputs[0]))), attributes)
    sizes, p = rows.values, attributes.get("p", 2.0)
    if p == 0:
        found = np.count_nonzero(sizes, axis=-1).astype(np.float64)
    elif p in (inf, -inf):
        found = sizes.max(-1) if p > 0 else sizes.min(-1)
    elif p == 1:
        found = sizes.sum(-1)
    elif p == 2:
        found = np.sqrt((sizes * sizes).sum(-1))
    else:
        found = (sizes**p).sum(-1) ** (1.0 / p)
    return (rows.placed(_float64(found)),)


@quiet
def dot_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """Integers are multiplied and added modulo 2⁶⁴ and keep their dtype, which keeps the lower bits."""
    left, right = np.asarray(inputs[0]), np.asarray(inputs[1])
    if left.dtype.kind in "iu":
        total = (left.astype(np.int64) * right.astype(np.int64)).sum(dtype=np.int64)
        return (np.asarray(total).astype(left.dtype),)
    return (_float64((_wide(left) * _wide(right)).sum()),)


@quiet
def logsumexp_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """-inf of nothing and of nothing but -inf; infinity as soon as one element is it."""
    rows = rows_of(_wide(np.asarray(inputs[0])), attributes)
    largest = rows.values.max(-1, keepdims=True, initial=-inf)
    largest = np.where(np.isinf(largest), 0.0, largest)
    total = np.exp(rows.values - largest).sum(-1)
    return (rows.placed(_float64(np.log(total) + largest[..., 0])),)


def _wide(array: Array) -> Array:
    """In float64, or in long double where float64 has no bits to spare."""
    return array.astype(np.longdouble) if is_double(array) else widen(array)


def _float64(values: Array) -> Array:
    return np.asarray(values, dtype=np.float64)
