"""What topk, kthvalue and sort give, and what is as right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.numerics import bits
from optest.operators.arrays import Array, Attributes, Inputs, inferred, quiet_hooks, widen
from optest.operators.indexing.sort import infer_kthvalue, infer_sort, infer_topk


def sort_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """In the stable order, which is one of those that are right without ``stable`` too; NaN is larger than all."""
    (array,), _ = inferred(infer_sort, inputs, attributes)
    return _picked(array, attributes.get("dim", -1), descending=attributes.get("descending", False), count=None)


def topk_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The first of equal elements, in order of size; NaN is larger than all."""
    (array,), _ = inferred(infer_topk, inputs, attributes)
    descending = attributes.get("largest", True)
    return _picked(array, attributes.get("dim", -1), descending=descending, count=attributes["k"])


def kthvalue_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The first of equal elements; NaN is larger than all."""
    (array,), (out, _) = inferred(infer_kthvalue, inputs, attributes)
    dim = attributes.get("dim", -1)
    both = _picked(array, dim, descending=False, count=attributes["k"])
    return tuple(each.take(-1, dim).reshape(out.shape) if each.ndim else each for each in both)


def _picked(array: Array, dim: int, *, descending: bool, count: int | None) -> tuple[Array, Array]:
    rows = np.atleast_1d(array)
    order = np.moveaxis(_order(np.moveaxis(_comparable(rows), dim, -1), descending=descending), -1, dim)
    chosen = order.take(np.arange(rows.shape[dim] if count is None else count), dim)
    values = np.take_along_axis(rows, chosen, dim)
    if not array.ndim:  # a scalar is its own top, and torch gives it for a k of 0 too
        return array.copy(), np.zeros((), np.int64)
    return values, chosen.astype(np.int64)


def _order(values: Array, *, descending: bool) -> Array:
    """The stable order along the last dimension; backwards, it is that of the reversed row, reversed."""
    if not descending:
        return np.argsort(values, axis=-1, kind="stable")
    backwards = np.argsort(values[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return np.asarray(values.shape[-1] - 1 - backwards)


def sort_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Without ``stable``, equal elements may come in any order."""
    if attributes.get("stable", False):
        return (None, None)
    return _as_right(inputs, attributes, actual, sort_reference(inputs, attributes)[0], ordered=True)


def topk_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Any of equal elements may be chosen; without ``sorted``, rows may come in any order."""
    ordered = attributes.get("sorted", True)
    return _as_right(inputs, attributes, actual, topk_reference(inputs, attributes)[0], ordered=ordered)


def kthvalue_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Any of equal elements."""
    array, dim = np.asarray(inputs[0]), attributes.get("dim", -1)
    (wanted, _) = kthvalue_reference(inputs, attributes)
    if not array.ndim:
        return (None, None)
    rows = [np.expand_dims(np.asarray(each).reshape(np.delete(array.shape, dim)), dim) for each in (*actual, wanted)]
    masks = _as_right([array], attributes, rows[:2], rows[2], ordered=True)
    return tuple(mask.reshape(wanted.shape) for mask in masks)


def _as_right(
    inputs: Inputs, attributes: Attributes, actual: Sequence[Array], wanted: Array, *, ordered: bool
) -> tuple[Array, Array]:
    """One mask for both outputs, True where an element and its index are as right as the reference's.

    The index points at exactly this element, no other place of the row has the same index, and the element equals the
    one that should stand there. Where the order is free, all elements of the row have to be right together: each is
    such an element, and in order they equal those that should be there.
    """
    array, dim = np.atleast_1d(np.asarray(inputs[0])), attributes.get("dim", -1)
    values, indices, right = (np.moveaxis(np.atleast_1d(each), dim, -1) for each in (*actual, wanted))
    rows = np.moveaxis(array, dim, -1)
    inside = (indices >= 0) & (indices < rows.shape[-1])
    pointed = np.take_along_axis(rows, np.where(inside, indices, 0), -1)
    mask = inside & same_bits(pointed, values) & ~repeated(indices)
    if ordered:
        mask &= _equal(values, right)
    else:
        rows_in_order = (np.sort(_comparable(each), axis=-1) for each in (values, right))
        in_order = _equal(*rows_in_order).all(-1, keepdims=True)
        mask = np.broadcast_to(mask.all(-1, keepdims=True) & in_order, mask.shape)
    placed = np.moveaxis(mask, -1, dim).reshape(np.shape(wanted))
    return placed, placed


def _comparable(values: Array) -> Array:
    return widen(np.ascontiguousarray(values))


def _equal(left: Array, right: Array) -> Array:
    """Equal numbers, −0 and 0 among them, and NaN for NaN."""
    a, b = _comparable(left), _comparable(right)
    return np.asarray((a == b) | ((a != a) & (b != b)))


def same_bits(left: Array, right: Array) -> Array:
    """Where both have the same bits, or NaN of any kind."""
    a, b = np.ascontiguousarray(left), np.ascontiguousarray(right)
    wide_a, wide_b = _comparable(a), _comparable(b)
    return np.asarray((bits(a) == bits(b)) | ((wide_a != wide_a) & (wide_b != wide_b)))


def repeated(indices: Array) -> Array:
    """Which indices occur more than once in their row."""
    order = np.argsort(indices, axis=-1, kind="stable")
    ordered = np.take_along_axis(indices, order, -1)
    again = np.zeros(indices.shape, np.bool_)
    if indices.shape[-1] > 1:
        equal = ordered[..., 1:] == ordered[..., :-1]
        again[..., 1:] |= equal
        again[..., :-1] |= equal
    found = np.empty_like(again)
    np.put_along_axis(found, order, again, -1)
    return found


quiet_hooks(globals())
