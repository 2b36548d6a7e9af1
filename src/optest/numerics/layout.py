"""Tensors in memory: a view of a storage as a spec describes it, and copies that keep strides and overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optest.numerics.formats import Array, dtype_of, numpy_dtype
from optest.spec import TensorSpec


def empty_storage(spec: TensorSpec) -> Array:
    """Return an uninitialised one-dimensional array large enough for every element of ``spec``, offset and gaps too."""
    return np.empty(spec.storage_elements, numpy_dtype(spec.dtype))


def view(storage: Array, spec: TensorSpec) -> Array:
    """Return a view of ``storage`` with the shape, strides and offset of ``spec``; elements may overlap.

    ``storage`` is one-dimensional, contiguous and of the spec's dtype. The view is writeable if ``storage`` is.

    Raises:
        ValueError: if the storage has another dtype, is not contiguous, or ends before the last element.
    """
    if storage.dtype != numpy_dtype(spec.dtype):
        raise ValueError(f"storage is {storage.dtype}, expected {spec.dtype}")
    if storage.ndim != 1 or not storage.flags.c_contiguous:
        raise ValueError(
            f"storage has shape {storage.shape} and strides {storage.strides}, expected a contiguous vector"
        )
    if storage.size < spec.storage_elements:
        raise ValueError(f"storage has {storage.size} elements, expected {spec.storage_elements} or more for {spec}")
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
    """Return a writeable copy with the same strides; elements that share memory in ``array`` share it in the copy.

    The memory in the gaps of a strided array is copied, too. The copy begins ``before`` elements after the start of its
    own memory, uninitialised: kernels with vector loads depend on the alignment that a storage offset causes.
    """
    if not before and is_packed(array):
        copy: Array = array.copy()
        return copy
    return copy_between(array, np.empty, before * array.itemsize, 0)[0]


def copy_between(
    array: Array, allocate: Callable[[int, Any], Array], before: int, behind: int
) -> tuple[Array, Array, int, int]:
    """Copy ``array`` with its strides and gaps into new memory, ``before`` bytes after its start.

    ``allocate(n, np.uint8)`` returns an array of n bytes, as ``np.empty`` does; ``behind`` bytes follow the copy.

    Returns:
        The copy, the whole memory, and the byte positions in it at which the copy begins and ends.
    """
    memory, first = _memory_of(array) if array.size else (np.empty(0, np.uint8), 0)
    end = before + memory.size
    storage = allocate(end + behind, np.uint8)
    storage[before:end] = memory
    copy: Array = np.ndarray(array.shape, array.dtype, buffer=storage, offset=before + first, strides=array.strides)
    return copy, storage, before, end


def have_same_gaps(first: Array, second: Array) -> bool:
    """Return whether the memory between the elements of two arrays is equal, as bytes.

    Both have the same layout and equal elements. Arrays without gaps and of 4-bit types always agree.
    """
    # The unused upper halves of 4-bit elements may differ.
    if first.size == 0 or is_packed(first) or dtype_of(first.dtype).bits == 4:
        return True
    return bool((_memory_of(first)[0] == _memory_of(second)[0]).all())


# Two blocks and the result of their comparison stay in the second-level cache.
_BLOCK_BYTES = 1 << 18


def are_same_memory(first: Array, second: Array) -> bool:
    """Return whether two arrays of one layout are equal byte for byte, the memory between their elements included."""
    if first.size == 0:
        return True
    left, right = _memory_of(first)[0], _memory_of(second)[0]
    blocks = range(0, left.size, _BLOCK_BYTES)
    return all(bool((left[at : at + _BLOCK_BYTES] == right[at : at + _BLOCK_BYTES]).all()) for at in blocks)


def storage_of(array: Array, spec: TensorSpec) -> Array:
    """Copy the memory under ``array``, gaps included, into a vector of which ``view`` with ``spec`` is the same tensor.

    ``spec`` has the strides of ``array``. Elements of the vector before the lowest element of ``array`` are 0.
    """
    storage = np.zeros(spec.storage_elements, array.dtype)
    if array.size:
        memory, _ = _memory_of(array)
        first = spec.lowest_index * array.itemsize
        storage.view(np.uint8)[first : first + memory.size] = memory
    return storage


def is_packed(array: Array) -> bool:
    """Return whether an array is row-major without gaps, by the strides of every dimension.

    Dimensions of size 1 count, too, unlike in NumPy's ``c_contiguous``: libraries are passed their strides.
    """
    if array.size and not array.flags.c_contiguous:
        return False
    step = array.itemsize
    for size, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        if stride != step:
            return False
        step *= max(size, 1)
    return True


def _memory_of(array: Array) -> tuple[Array, int]:
    """Return a view of the bytes from the lowest to the highest element, and the position of element [0, 0, …] in it.

    ``array`` has one element or more.
    """
    if array.flags.c_contiguous:
        packed: Array = array.reshape(-1).view(np.uint8)
        return packed, 0
    reaches = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    first = -sum(min(0, reach) for reach in reaches)
    length = first + sum(max(0, reach) for reach in reaches) + array.itemsize
    # Slices keep the array's base alive and its dtype intact; as_strided on bytes then reaches the gaps.
    lowest: Array = array[tuple(slice(-1 if stride < 0 else 0, None) for stride in array.strides)]
    corner: Array = lowest[(slice(0, 1),) * array.ndim].reshape(1).view(np.uint8)
    memory: Array = np.lib.stride_tricks.as_strided(corner, (length,), (1,))
    return memory, first
