"""Tensors in memory: a view of a storage as a spec describes it, and copies that keep strides and overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optest.numerics.formats import Array, dtype_of, numpy_dtype
from optest.spec import TensorSpec


def empty_storage(spec: TensorSpec) -> Array:
    """An uninitialised one-dimensional array that holds every element of ``spec``."""
    return np.empty(spec.storage_elements, numpy_dtype(spec.dtype))


def view(storage: Array, spec: TensorSpec) -> Array:
    """The tensor that ``spec`` describes, in the memory of ``storage``; overlap, stride 0 and gaps included.

    ``storage`` is one-dimensional, contiguous and of the spec's dtype. The view is writeable if it is.

    Raises:
        ValueError: if the storage has another dtype, is not contiguous, or ends before the last element.
    """
    if storage.dtype != numpy_dtype(spec.dtype):
        raise ValueError(f"storage is {storage.dtype}, but should be {spec.dtype}")
    if storage.ndim != 1 or not storage.flags.c_contiguous:
        raise ValueError(f"storage has strides {storage.strides}, but should be one-dimensional and contiguous")
    if storage.size < spec.storage_elements:
        raise ValueError(f"storage has {storage.size} elements, but should have {spec.storage_elements} for {spec}")
    if spec.strides is None:
        return storage[spec.offset : spec.offset + spec.elements].reshape(spec.shape)
    size = storage.itemsize
    tensor: Array = np.ndarray(
        spec.shape,
        storage.dtype,
        buffer=storage.view(np.uint8),  # ml_dtypes arrays have no buffer interface, bytes do
        offset=spec.offset * size,
        strides=tuple(stride * size for stride in spec.strides),
    )
    return tensor


def private_copy(array: Array, before: int = 0) -> Array:
    """A writeable copy with the same strides: elements that share memory in ``array`` share it in the copy.

    What lies in the gaps of a strided array is copied too. ``before`` is how many elements of the storage lie below
    the lowest one: it decides how the copy is aligned.
    """
    if not before and is_packed(array):
        copy: Array = array.copy()
        return copy
    return copy_between(array, np.empty, before * array.itemsize, 0)[0]


def copy_between(
    array: Array, allocate: Callable[[int, Any], Array], before: int, behind: int
) -> tuple[Array, Array, int, int]:
    """A private copy with so many bytes of its storage on either side; that storage, and where in it the copy begins
    and ends. ``allocate`` makes bytes, as ``np.empty`` does."""
    memory, first = _span(array) if array.size else (np.empty(0, np.uint8), 0)
    end = before + memory.size
    storage = allocate(end + behind, np.uint8)
    storage[before:end] = memory
    copy: Array = np.ndarray(array.shape, array.dtype, buffer=storage, offset=before + first, strides=array.strides)
    return copy, storage, before, end


def have_same_gaps(one: Array, other: Array) -> bool:
    """Whether two arrays of one layout, equal in their elements, also agree in the memory between these."""
    if one.size == 0 or is_packed(one) or dtype_of(one.dtype).bits == 4:
        return True
    return bool((_span(one)[0] == _span(other)[0]).all())


def are_same_memory(one: Array, other: Array) -> bool:
    """Whether two arrays of one layout agree byte for byte, in the memory between their elements, too."""
    if one.size == 0:
        return True
    left, right = _span(one)[0], _span(other)[0]
    blocks = range(0, left.size, _BLOCK_BYTES)
    return all(bool((left[at : at + _BLOCK_BYTES] == right[at : at + _BLOCK_BYTES]).all()) for at in blocks)


_BLOCK_BYTES = 1 << 18
"""Both and what is made of them stay in the second-level cache."""


def storage_of(array: Array, spec: TensorSpec) -> Array:
    """A one-dimensional copy of the memory below ``array``, gaps included; ``view`` of it is the same tensor.

    ``spec`` has the strides of ``array``. What lies before its lowest element is not known and is 0.
    """
    storage = np.zeros(spec.storage_elements, array.dtype)
    if array.size:
        memory, _ = _span(array)
        first = spec.lowest_index * array.itemsize
        storage.view(np.uint8)[first : first + memory.size] = memory
    return storage


def is_packed(array: Array) -> bool:
    """Row-major down to the strides of dimensions of size 1, which NumPy's own flag does not look at."""
    if array.size and not array.flags.c_contiguous:
        return False
    step = array.itemsize
    for size, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if stride != step:
            return False
        step *= max(size, 1)
    return True


def _span(array: Array) -> tuple[Array, int]:
    """The bytes from the lowest to the highest element, and where among them element [0, 0, …] begins."""
    if array.flags.c_contiguous:
        packed: Array = array.reshape(-1).view(np.uint8)
        return packed, 0
    reaches = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    first = -sum(min(0, reach) for reach in reaches)
    length = first + sum(max(0, reach) for reach in reaches) + array.itemsize
    lowest: Array = array[tuple(slice(-1 if stride < 0 else 0, None) for stride in array.strides)]
    corner: Array = lowest[(slice(0, 1),) * array.ndim].reshape(1).view(np.uint8)
    memory: Array = np.lib.stride_tricks.as_strided(corner, (length,), (1,))
    return memory, first
