"""What indexed operators compute, and the terms of scatter_add."""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, inferred, is_double, magnitudes, quiet_hooks, widen
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
    (array, index), _ = inferred(infer_gather, inputs, attributes)
    if not index.size:
        return (np.empty(index.shape, array.dtype),)
    rows = np.atleast_1d(array)
    places = scatter_places(rows.shape, np.atleast_1d(index), attributes["dim"])
    return (rows[places].reshape(index.shape),)


def index_select_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    (array, index), (out,) = inferred(infer_index_select, inputs, attributes)
    rows, dim = np.atleast_1d(array), attributes["dim"]
    require_range(index, rows.shape[dim], "index")
    return (rows.take(index.astype(np.int64), dim).reshape(out.shape),)


def take_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    (array, index), _ = inferred(infer_take, inputs, attributes)
    require_range(index, array.size, "index", first=-array.size)
    return (array.reshape(-1)[index.astype(np.int64)],)


def embedding_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    (weight, indices), _ = inferred(infer_embedding, inputs, attributes)
    require_range(indices, weight.shape[0], "indices")
    return (weight[indices.astype(np.int64)],)


def scatter_add_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Integers wrap, bool is logical or; float64 adds up in long double where there is one."""
    (array, index, src), _ = inferred(infer_scatter_add, inputs, attributes)
    wide = widen(array)
    total = np.atleast_1d(wide).astype(np.longdouble if is_double(array) else wide.dtype)
    if index.size:
        places, terms = scattered(array, index, src, attributes["dim"])
        np.add.at(total, places, widen(terms))
    return (total.astype(wide.dtype).reshape(array.shape),)


def scattered(array: Array, index: Array, src: Array, dim: int) -> tuple[tuple[Array, ...], Array]:
    """Where each term goes, and the terms: the corner of src that index covers."""
    rows = np.atleast_1d(index)
    terms = np.atleast_1d(src)[tuple(slice(size) for size in rows.shape)]
    return scatter_places(np.atleast_1d(array).shape, rows, dim), terms


def scatter_places(shape: tuple[int, ...], index: Array, dim: int) -> tuple[Array, ...]:
    """For each element of ``index`` its own coordinates, with the index itself in place of that along ``dim``.

    Raises:
        UnfitArguments: for an index that is not in ``shape``; negative ones are not counted from the end.
    """
    require_range(index, shape[dim], "index")
    places: list[Any] = list(np.indices(index.shape, sparse=True))
    places[dim] = index.astype(np.int64)
    return tuple(places)


def require_range(index: Array, size: int, name: str, *, first: int = 0) -> None:
    outside = (index < first) | (index >= size)
    if not outside.any():
        return
    place = np.unravel_index(int(np.argmax(outside)), outside.shape)
    raise UnfitArguments(
        f"{name} is {index[place]} at {[int(each) for each in place]}, but should be {first} to {size - 1}"
        if size
        else f"{name} has elements, but should have none: the dimension is empty"
    )


def scatter_add_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """The terms of an element are its own value and every src that names it; their number differs by element.

    An element that no index names is not added to, so it has nothing to lose: its terms are 0.
    """
    array, index, src = (np.asarray(each) for each in inputs)
    places, terms = scattered(array, index, src, attributes["dim"]) if index.size else (None, src)
    return (terms_of_added(array, places, magnitudes(terms)),)


def terms_of_added(array: Array, places: tuple[Any, ...] | None, sizes: Array) -> Terms:
    """Those of an array to whose ``places`` terms of these ``sizes`` are added; None for none."""
    own = magnitudes(np.atleast_1d(array))
    absolute, squared, count = np.zeros(own.shape), np.zeros(own.shape), np.zeros(own.shape, np.int64)
    repeats = np.ones(own.shape)
    if places is not None:
        sums = np.arange(own.size).reshape(own.shape)[places]
        repeats = repeats_of(sums, np.broadcast_to(sizes, sums.shape), own.shape)
        np.add.at(absolute, places, sizes)
        np.add.at(squared, places, sizes * sizes)
        np.add.at(count, places, 1)
    named = count > 0
    absolute += np.where(named, own, 0.0)
    squared += np.where(named, own * own, 0.0)
    shape = array.shape
    count, repeats = (count + 1).reshape(shape), repeats.reshape(shape)
    return Terms(absolute.reshape(shape), squared.reshape(shape), count, repeats=repeats)


quiet_hooks(globals())
