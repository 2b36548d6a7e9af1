"""What operators that write by index compute, what is as right where an index repeats, and the terms of index_add."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, inferred, is_double, magnitudes, quiet_hooks, widen
from optest.operators.indexing.gather_reference import require_range, scattered, terms_of_added
from optest.operators.indexing.index_copy import infer_index_add, infer_index_copy, infer_scatter
from optest.operators.indexing.sort_reference import same_bits
from optest.spec import Terms

Places = tuple[Any, ...]


def index_add_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Integers wrap, bool is logical or; float64 adds up in long double where there is one."""
    (array, index, source), _ = inferred(infer_index_add, inputs, attributes)
    wide = widen(array)
    total = np.atleast_1d(wide).astype(np.longdouble if is_double(array) else wide.dtype)
    places, terms = _slices(array, index, source, attributes["dim"])
    np.add.at(total, places, terms * total.dtype.type(attributes.get("alpha", 1.0)))
    return (total.astype(wide.dtype).reshape(array.shape),)


def index_copy_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Where an index repeats, the last slice."""
    (array, index, source), _ = inferred(infer_index_copy, inputs, attributes)
    return (_written(array, *_slices(array, index, source, attributes["dim"], stored=True)),)


def scatter_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Where an index repeats, the last element."""
    (array, index, src), _ = inferred(infer_scatter, inputs, attributes)
    return (_written(array, *scattered(array, index, src, attributes["dim"])) if index.size else array.copy(),)


def index_copy_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Any of the elements that are written to a place."""
    array, index, source = (np.asarray(each) for each in inputs)
    return (is_one_of(array, *_slices(array, index, source, attributes["dim"], stored=True), actual[0]),)


def scatter_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Any of the elements that are written to a place."""
    array, index, src = (np.asarray(each) for each in inputs)
    if not index.size:
        return (None,)
    return (is_one_of(array, *scattered(array, index, src, attributes["dim"]), actual[0]),)


def _slices(array: Array, index: Array, source: Array, dim: int, *, stored: bool = False) -> tuple[Places, Array]:
    """Where each slice of source goes, and the slices, widened unless as they are ``stored``."""
    rows = np.atleast_1d(array)
    indices = np.atleast_1d(index)
    require_range(indices, rows.shape[dim], "index")
    places = (*[slice(None)] * (dim % rows.ndim), indices.astype(np.int64))
    return places, np.atleast_1d(source if stored else widen(source))


def _written(array: Array, places: Places, values: Array) -> Array:
    out = np.array(np.atleast_1d(array))
    out[places] = values
    return np.asarray(out.reshape(array.shape))


def is_one_of(array: Array, places: Places, values: Array, actual: Array) -> Array:
    """Where an actual element is one of the ``values`` that are written to its place."""
    mask = np.zeros(np.atleast_1d(array).shape, np.bool_)
    np.logical_or.at(mask, places, same_bits(np.atleast_1d(actual)[places], values))
    return np.asarray(mask.reshape(array.shape))


def index_add_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    """The terms of an element are its own value and alpha times every source that names it.

    Of the k there are two or more, so that their bound has room for rounding alpha and the product. An element that
    no index names is not added to: its terms are 0.
    """
    array, index, source = (np.asarray(each) for each in inputs)
    places, terms = _slices(array, index, source, attributes["dim"])
    return (terms_of_added(array, places, abs(attributes.get("alpha", 1.0)) * magnitudes(terms)),)


quiet_hooks(globals())
