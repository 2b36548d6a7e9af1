"""References of operators that read by index, and the error terms of scatter_add."""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    infer_from_arrays,
    is_double,
    magnitudes,
    quiet_hooks,
    widen,
)
from optest.operators.budgets import repeats_of
from optest.operators.indexing.gather import (
    infer_embedding,
    infer_gather,
    infer_index_select,
    infer_scatter_add,
    infer_take,
)
from optest.spec import Terms, UnfitArguments


def gather_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    (array, index), _ = infer_from_arrays(infer_gather, inputs, attributes)
    if not index.size:
        # torch checks nothing else of an empty index.
        return (np.empty(index.shape, array.dtype),)
    rows = np.atleast_1d(array)
    coordinates = scatter_coordinates(rows.shape, np.atleast_1d(index), attributes["dim"])
    return (rows[coordinates].reshape(index.shape),)


def index_select_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    (array, index), (out,) = infer_from_arrays(infer_index_select, inputs, attributes)
    rows, dim = np.atleast_1d(array), attributes["dim"]
    require_range(index, rows.shape[dim], "index")
    return (rows.take(index.astype(np.int64), dim).reshape(out.shape),)


def take_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    (array, index), _ = infer_from_arrays(infer_take, inputs, attributes)
    require_range(index, array.size, "index", first=-array.size)
    return (array.reshape(-1)[index.astype(np.int64)],)


def embedding_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    (weight, indices), _ = infer_from_arrays(infer_embedding, inputs, attributes)
    require_range(indices, weight.shape[0], "indices")
    return (weight[indices.astype(np.int64)],)


def scatter_add_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return input with src added by index; integers wrap, bool is logical or."""
    (array, index, src), _ = infer_from_arrays(infer_scatter_add, inputs, attributes)
    wide = widen(array)
    # float64 needs a more exact sum; long double is float64 itself on some platforms.
    total = np.atleast_1d(wide).astype(np.longdouble if is_double(array) else wide.dtype)
    if index.size:
        coordinates, terms = scatter_pairs(array, index, src, attributes["dim"])
        # np.add.at adds repeated indices, unlike total[...] += terms.
        np.add.at(total, coordinates, widen(terms))
    return (total.astype(wide.dtype).reshape(array.shape),)


def scatter_pairs(array: Array, index: Array, src: Array, dim: int) -> tuple[tuple[Array, ...], Array]:
    """Return the coordinates of the outputs that are written, and the part of src that index covers."""
    rows = np.atleast_1d(index)
    terms = np.atleast_1d(src)[tuple(slice(size) for size in rows.shape)]
    return scatter_coordinates(np.atleast_1d(array).shape, rows, dim), terms


def scatter_coordinates(shape: tuple[int, ...], index: Array, dim: int) -> tuple[Array, ...]:
    """Return coordinates for each element of `index`: its own, with the index value along `dim`.

    Raises:
        UnfitArguments: if an index is negative or not below the size of `dim`.
    """
    require_range(index, shape[dim], "index")
    coordinates: list[Any] = list(np.indices(index.shape, sparse=True))
    coordinates[dim] = index.astype(np.int64)
    return tuple(coordinates)


def require_range(index: Array, size: int, name: str, *, first: int = 0) -> None:
    """Raise UnfitArguments for the first element of `index` that is not in [first, size)."""
    outside = (index < first) | (index >= size)
    if not outside.any():
        return
    position = np.unravel_index(int(np.argmax(outside)), outside.shape)
    raise UnfitArguments(
        f"{name} is {index[position]} at {[int(i) for i in position]}, expected {first} to {size - 1}"
        if size
        else f"{name} has {index.size} elements, expected 0, as the indexed dimension is empty"
    )


def scatter_add_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """Return the terms of each output: its own element and every src element added to it.

    An element that no index selects is not added to, so that its terms are 0. The number of terms differs by element.
    """
    array, index, src = (np.asarray(x) for x in inputs)
    coordinates, terms = scatter_pairs(array, index, src, attributes["dim"]) if index.size else (None, src)
    return (terms_of_added(array, coordinates, magnitudes(terms)),)


def terms_of_added(array: Array, coordinates: tuple[Any, ...] | None, sizes: Array) -> Terms:
    """Return the terms of `array` with `sizes` added at `coordinates`; no additions if they are None."""
    elements = magnitudes(np.atleast_1d(array))
    absolute, squared, count = np.zeros(elements.shape), np.zeros(elements.shape), np.zeros(elements.shape, np.int64)
    repeats = np.ones(elements.shape)
    if coordinates is not None:
        sums = np.arange(elements.size).reshape(elements.shape)[coordinates]
        repeats = repeats_of(sums, np.broadcast_to(sizes, sums.shape), elements.shape)
        np.add.at(absolute, coordinates, sizes)
        np.add.at(squared, coordinates, sizes * sizes)
        np.add.at(count, coordinates, 1)
    # An element without additions is a copy, which has no error.
    original = np.where(count > 0, elements, 0.0)
    absolute += original
    squared += original * original
    shape = array.shape
    count, repeats = (count + 1).reshape(shape), repeats.reshape(shape)
    return Terms(absolute.reshape(shape), squared.reshape(shape), count, repeats=repeats)


quiet_hooks(globals())
