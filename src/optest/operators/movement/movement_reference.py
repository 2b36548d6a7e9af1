"""References of the movement operators: the same elements at other positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from optest.numerics import numpy_dtype, round_to
from optest.operators.arrays import Array, Attributes, Inputs, infer_from_arrays, quiet_hooks, round_to_operand_dtype
from optest.operators.movement.concat import (
    infer_concat,
    infer_pad,
    infer_split,
    is_legacy_empty,
    pads_by_dim,
    section_sizes,
    slice_ranges,
)
from optest.operators.movement.copies import infer_broadcast_to, infer_tril, padded_repeats
from optest.operators.movement.helpers import distinct_dims
from optest.operators.movement.transpose import infer_permute, infer_reshape, infer_roll
from optest.operators.shapes import normalize_dim
from optest.spec import DType, Kind


def clone_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    return (np.array(inputs[0], order="C"),)


def zeros_like_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    return (np.zeros(array.shape, array.dtype),)


def ones_like_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    return (np.ones(array.shape, array.dtype),)


def transpose_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    if not array.ndim:
        return (array.copy(),)
    # A copy: outputs must not share memory with inputs.
    return (np.swapaxes(array, attributes["dim0"], attributes["dim1"]).copy(),)


def permute_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    (array,), _ = infer_from_arrays(infer_permute, inputs, attributes)
    return (array.transpose(attributes["dims"]).copy(),)


def reshape_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    (array,), (result,) = infer_from_arrays(infer_reshape, inputs, attributes)
    return (np.ascontiguousarray(array).reshape(result.shape).copy(),)


def broadcast_to_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    (array,), (result,) = infer_from_arrays(infer_broadcast_to, inputs, attributes)
    return (np.broadcast_to(array, result.shape).copy(),)


def tile_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    shape, repeats = padded_repeats(array.shape, attributes["dims"])
    return (np.tile(array.reshape(shape), repeats),)


def flip_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    dims = distinct_dims(attributes["dims"], array.ndim)
    return (np.flip(array, dims).copy() if array.ndim else array.copy(),)


def roll_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    (array,), _ = infer_from_arrays(infer_roll, inputs, attributes)
    shifts, dims = attributes["shifts"], attributes.get("dims")
    if not dims:
        return (np.roll(array.reshape(-1), shifts[0]).reshape(array.shape),)
    return (np.roll(array, shifts, dims),)


def tril_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    return _triangle(inputs, lambda rows, columns: columns - rows <= attributes.get("diagonal", 0))


def triu_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    return _triangle(inputs, lambda rows, columns: columns - rows >= attributes.get("diagonal", 0))


def _triangle(inputs: Inputs, is_kept: Callable[[Array, Array], Array]) -> tuple[Array, ...]:
    """Return the elements at positions that `is_kept` selects, and +0 elsewhere."""
    (array,), _ = infer_from_arrays(infer_tril, inputs, {})
    mask = is_kept(np.arange(array.shape[-2])[:, None], np.arange(array.shape[-1])[None, :])
    # A product with the mask would leave NaN, infinity and −0.
    result = np.zeros(array.shape, array.dtype)
    result[..., mask] = array[..., mask]
    return (result,)


def concat_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the joined tensors in their common dtype, converted exactly or rounded once."""
    arrays, (result,) = infer_from_arrays(infer_concat, inputs, attributes)
    parts = [_converted(array, result.dtype) for array in arrays if not is_legacy_empty(array.shape)]
    if not parts:
        return (np.empty(result.shape, numpy_dtype(result.dtype)),)
    return (np.concatenate(parts, normalize_dim(attributes.get("dim", 0), parts[0].ndim)),)


def _converted(array: Array, target: DType) -> Array:
    """Return `array` in dtype `target`, rounded once."""
    if array.dtype == numpy_dtype(target):
        return array
    # round_to takes complex128 for complex targets.
    if target.is_complex:
        return round_to(array.astype(np.complex128), target)
    return round_to(round_to_operand_dtype(array, target), target)


def split_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    (array,), _ = infer_from_arrays(infer_split, inputs, attributes)
    dim, sizes = section_sizes(array.shape, attributes)
    ends = np.cumsum(sizes, dtype=np.int64)
    return tuple(part.copy() for part in np.split(array, ends[:-1], dim)) if sizes else ()


def slice_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    for dim, picked in slice_ranges(array.shape, attributes):
        array = array.take(np.arange(picked.start, picked.stop, picked.step), dim)
    return (array.copy(),)


def pad_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    (array,), (result,) = infer_from_arrays(infer_pad, inputs, attributes)
    pads = pads_by_dim(array.shape, attributes["pad"])
    mode = attributes.get("mode", "constant")
    if mode == "constant":
        padded = np.empty(result.shape, array.dtype)
        # Rounded once, truncated for integers, true unless 0 for bool.
        value = attributes.get("value", 0.0)
        if result.dtype.kind is Kind.BOOL:
            padded[...] = value != 0
        else:
            number = float(value) if result.dtype.is_inexact else int(value)
            padded[...] = round_to(np.asarray(number), result.dtype)
        # A negative pad crops, so that only a part of the input is copied.
        target = tuple(
            slice(max(before, 0), size - max(after, 0))
            for size, (before, after) in zip(result.shape, pads, strict=True)
        )
        source = tuple(
            slice(max(-before, 0), size - max(-after, 0))
            for size, (before, after) in zip(array.shape, pads, strict=True)
        )
        if all(part.start < part.stop for part in (*target, *source)):
            padded[target] = array[source]
        return (padded,)
    for dim, (before, after) in enumerate(pads):
        if before or after:
            array = array.take(_SOURCE_INDICES[mode](array.shape[dim], before, after), dim)
    return (array.copy(),)


def _circular_indices(size: int, before: int, after: int) -> Array:
    """Return the index of the input element at each position of a dimension with circular pads."""
    # Negative pads crop first, as in torch: only the rest is repeated.
    begin, end = max(-before, 0), size + min(after, 0)
    positions = np.arange(-max(before, 0), end - begin + max(after, 0))
    return begin + positions % max(end - begin, 1)


# By mode, a function of size and pads that returns the index of the input element at each position.
_SOURCE_INDICES: Mapping[str, Callable[[int, int, int], Array]] = {
    "reflect": lambda size, before, after: size - 1 - np.abs(size - 1 - np.abs(np.arange(-before, size + after))),
    "replicate": lambda size, before, after: np.clip(np.arange(-before, size + after), 0, size - 1),
    "circular": _circular_indices,
}


quiet_hooks(globals())
