"""References and accepted alternatives of topk, kthvalue and sort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.numerics import bits
from optest.operators.arrays import Array, Attributes, Inputs, infer_from_arrays, quiet_hooks, widen
from optest.operators.indexing.sort import infer_kthvalue, infer_sort, infer_topk


def sort_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return sorted values and their indices in stable order; NaN is the largest."""
    (array,), _ = infer_from_arrays(infer_sort, inputs, attributes)
    # The stable order is valid without `stable`, too.
    return _sorted_with_indices(
        array, attributes.get("dim", -1), descending=attributes.get("descending", False), count=None
    )


def topk_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the k largest or smallest values in order and their indices, the first of equal ones; NaN is largest."""
    (array,), _ = infer_from_arrays(infer_topk, inputs, attributes)
    descending = attributes.get("largest", True)
    return _sorted_with_indices(array, attributes.get("dim", -1), descending=descending, count=attributes["k"])


def kthvalue_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the k-th smallest value and its index, the first of equal ones; NaN is the largest."""
    (array,), (out, _) = infer_from_arrays(infer_kthvalue, inputs, attributes)
    dim = attributes.get("dim", -1)
    both = _sorted_with_indices(array, dim, descending=False, count=attributes["k"])
    return tuple(x.take(-1, dim).reshape(out.shape) if x.ndim else x for x in both)


def _sorted_with_indices(array: Array, dim: int, *, descending: bool, count: int | None) -> tuple[Array, Array]:
    """Return the first `count` values in stable order along `dim` (all if None), and their indices."""
    rows = np.atleast_1d(array)
    order = np.moveaxis(_sorting_indices(np.moveaxis(_sortable(rows), dim, -1), descending=descending), -1, dim)
    chosen = order.take(np.arange(rows.shape[dim] if count is None else count), dim)
    values = np.take_along_axis(rows, chosen, dim)
    if not array.ndim:  # torch returns a scalar unchanged, even for k = 0
        return array.copy(), np.zeros((), np.int64)
    return values, chosen.astype(np.int64)


def _sorting_indices(values: Array, *, descending: bool) -> Array:
    """Return the indices that sort `values` along the last dimension, stable in both directions."""
    if not descending:
        return np.argsort(values, axis=-1, kind="stable")
    # Sorting the reversed row and reversing the result keeps equal elements in order.
    backwards = np.argsort(values[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return np.asarray(values.shape[-1] - 1 - backwards)


def sort_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Return masks that accept equal elements in any order unless stable is set; then accept nothing else."""
    if attributes.get("stable", False):
        return (None, None)
    return _accepted_elements(inputs, attributes, actual, sort_reference(inputs, attributes)[0], ordered=True)


def topk_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Return masks that accept any of equal elements; without sorted, accept rows in any order."""
    ordered = attributes.get("sorted", True)
    return _accepted_elements(inputs, attributes, actual, topk_reference(inputs, attributes)[0], ordered=ordered)


def kthvalue_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Return masks that accept the index of any equal element; None for a scalar input."""
    array, dim = np.asarray(inputs[0]), attributes.get("dim", -1)
    (expected_values, _) = kthvalue_reference(inputs, attributes)
    if not array.ndim:
        return (None, None)
    rows = [np.expand_dims(np.asarray(x).reshape(np.delete(array.shape, dim)), dim) for x in (*actual, expected_values)]
    masks = _accepted_elements([array], attributes, rows[:2], rows[2], ordered=True)
    return tuple(mask.reshape(expected_values.shape) for mask in masks)


def _accepted_elements(
    inputs: Inputs, attributes: Attributes, actual: Sequence[Array], expected_values: Array, *, ordered: bool
) -> tuple[Array, Array]:
    """Return the same mask for values and indices: True for elements as right as the reference's.

    An element is right if its index points at exactly this element, occurs once in the row, and the element equals the
    expected one. If not `ordered`, the row is right as a whole: all elements match their indices, and sorted they equal
    the sorted expected ones.
    """
    array, dim = np.atleast_1d(np.asarray(inputs[0])), attributes.get("dim", -1)
    values, indices, expected = (np.moveaxis(np.atleast_1d(x), dim, -1) for x in (*actual, expected_values))
    rows = np.moveaxis(array, dim, -1)
    inside = (indices >= 0) & (indices < rows.shape[-1])
    pointed = np.take_along_axis(rows, np.where(inside, indices, 0), -1)
    mask = inside & same_bits_or_nan(pointed, values) & ~repeated(indices)
    if ordered:
        mask &= _equal_or_nan(values, expected)
    else:
        rows_in_order = (np.sort(_sortable(x), axis=-1) for x in (values, expected))
        in_order = _equal_or_nan(*rows_in_order).all(-1, keepdims=True)
        mask = np.broadcast_to(mask.all(-1, keepdims=True) & in_order, mask.shape)
    full_mask = np.moveaxis(mask, -1, dim).reshape(np.shape(expected_values))
    return full_mask, full_mask


def _sortable(values: Array) -> Array:
    """Return `values` widened to a dtype that NumPy sorts."""
    return widen(np.ascontiguousarray(values))


def _equal_or_nan(left: Array, right: Array) -> Array:
    """Return a mask of equal numbers; −0 equals 0, NaN equals NaN."""
    a, b = _sortable(left), _sortable(right)
    return np.asarray((a == b) | ((a != a) & (b != b)))


def same_bits_or_nan(left: Array, right: Array) -> Array:
    """Return a mask of elements that have the same bits, or are both NaN."""
    a, b = np.ascontiguousarray(left), np.ascontiguousarray(right)
    wide_a, wide_b = _sortable(a), _sortable(b)
    return np.asarray((bits(a) == bits(b)) | ((wide_a != wide_a) & (wide_b != wide_b)))


def repeated(indices: Array) -> Array:
    """Return a mask of indices that occur more than once in their row."""
    order = np.argsort(indices, axis=-1, kind="stable")
    ordered = np.take_along_axis(indices, order, -1)
    has_equal_neighbour = np.zeros(indices.shape, np.bool_)
    if indices.shape[-1] > 1:
        equal = ordered[..., 1:] == ordered[..., :-1]
        has_equal_neighbour[..., 1:] |= equal
        has_equal_neighbour[..., :-1] |= equal
    in_row_order = np.empty_like(has_equal_neighbour)
    np.put_along_axis(in_row_order, order, has_equal_neighbour, -1)
    return in_row_order


quiet_hooks(globals())
