"""References and accepted alternatives of operators that write by index, and the error terms of index_add."""

from __future__ import annotations

from collections.abc import Sequence
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
from optest.operators.indexing.gather_reference import require_range, scatter_pairs, terms_of_added
from optest.operators.indexing.index_copy import infer_index_add, infer_index_copy, infer_scatter
from optest.operators.indexing.sort_reference import same_bits_or_nan
from optest.spec import Terms

Coordinates = tuple[Any, ...]


def index_add_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return input with alpha * source added by index; integers wrap, bool is logical or."""
    (array, index, source), _ = infer_from_arrays(infer_index_add, inputs, attributes)
    wide = widen(array)
    # float64 needs a more exact sum; long double is float64 itself on some platforms.
    total = np.atleast_1d(wide).astype(np.longdouble if is_double(array) else wide.dtype)
    coordinates, terms = _slice_coordinates(array, index, source, attributes["dim"])
    np.add.at(total, coordinates, terms * total.dtype.type(attributes.get("alpha", 1.0)))
    return (total.astype(wide.dtype).reshape(array.shape),)


def index_copy_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return input with slices of source written by index; if an index repeats, the last slice wins."""
    (array, index, source), _ = infer_from_arrays(infer_index_copy, inputs, attributes)
    return (_written(array, *_slice_coordinates(array, index, source, attributes["dim"], stored=True)),)


def scatter_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return input with elements of src written by index; if an index repeats, the last element wins."""
    (array, index, src), _ = infer_from_arrays(infer_scatter, inputs, attributes)
    if not index.size:
        return (array.copy(),)
    return (_written(array, *scatter_pairs(array, index, src, attributes["dim"])),)


def index_copy_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Return masks that accept any of the elements that are written to an output."""
    array, index, source = (np.asarray(x) for x in inputs)
    return (is_one_of(array, *_slice_coordinates(array, index, source, attributes["dim"], stored=True), actual[0]),)


def scatter_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Return masks that accept any of the elements that are written to an output; None for an empty index."""
    array, index, src = (np.asarray(x) for x in inputs)
    if not index.size:
        return (None,)
    return (is_one_of(array, *scatter_pairs(array, index, src, attributes["dim"]), actual[0]),)


def _slice_coordinates(
    array: Array, index: Array, source: Array, dim: int, *, stored: bool = False
) -> tuple[Coordinates, Array]:
    """Return the coordinates of the slices that are written, and source, widened unless `stored`."""
    rows = np.atleast_1d(array)
    indices = np.atleast_1d(index)
    require_range(indices, rows.shape[dim], "index")
    coordinates = (*[slice(None)] * (dim % rows.ndim), indices.astype(np.int64))
    return coordinates, np.atleast_1d(source if stored else widen(source))


def _written(array: Array, coordinates: Coordinates, values: Array) -> Array:
    """Return a copy of `array` with `values` written at `coordinates`."""
    out = np.array(np.atleast_1d(array))
    out[coordinates] = values
    return np.asarray(out.reshape(array.shape))


def is_one_of(array: Array, coordinates: Coordinates, values: Array, actual: Array) -> Array:
    """Return a mask of the elements of `actual` that equal one of the `values` written to their coordinates."""
    # logical_or.at visits every write to an element; plain indexing would keep only the last.
    mask = np.zeros(np.atleast_1d(array).shape, np.bool_)
    np.logical_or.at(mask, coordinates, same_bits_or_nan(np.atleast_1d(actual)[coordinates], values))
    return np.asarray(mask.reshape(array.shape))


def index_add_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """Return the terms of each output: its own element and alpha times every source element added to it.

    An element that no index selects is not added to: its terms are 0. Any other has two terms or more, so that their
    bound also covers rounding alpha and the product.
    """
    array, index, source = (np.asarray(x) for x in inputs)
    coordinates, terms = _slice_coordinates(array, index, source, attributes["dim"])
    return (terms_of_added(array, coordinates, abs(attributes.get("alpha", 1.0)) * magnitudes(terms)),)


quiet_hooks(globals())
