"""Values that come from outside: torch, NumPy, DLPack, lists, files; their dtype, shape and strides are held to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from optest.errors import UsageError
from optest.infiniop.datatypes import COMPONENTS, InfiniDtype, element_of
from optest.infiniop.elements import to_codes, to_torch_dtype
from optest.infiniop.torch_bridge import is_torch, to_array
from optest.numerics import Array, is_known, numpy_dtype, round_to, widen
from optest.spec import DType, TensorSpec, format_shape

__all__ = ["codes_of", "gathered", "strides_of", "whole_file"]


def codes_of(given: Any, dt: InfiniDtype, shape: tuple[int, ...]) -> Array:
    """Given values as they lie in memory, in ``shape``; sizes of 1 repeat. Values of another dtype are converted:
    a torch tensor as torch does, which cuts off fractions of integers, everything else rounded once.

    Raises:
        UsageError: for a shape that does not fit; for numbers that an integer type does not hold.
    """
    if is_torch(given) and dt not in COMPONENTS:
        given = given.to(to_torch_dtype(dt))
    array = _array(given)
    if array.dtype != numpy_dtype(element_of(dt)):
        array = _converted(array, dt)
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise UsageError(
            f"values have the shape {format_shape(array.shape)}, but should have {format_shape(shape)}"
        ) from None


def _array(given: Any) -> Array:
    if is_torch(given):
        return to_array(given)
    if isinstance(given, np.ndarray):
        return given
    return gathered(given) if hasattr(given, "__dlpack__") else np.asarray(given)


def _converted(values: Array, dt: InfiniDtype) -> Array:
    """Numbers in the element type."""
    element = element_of(dt)
    if dt in COMPONENTS:
        return to_codes(values, dt)
    if element.is_inexact:
        return round_to(_widest(values, element), element)
    if element.is_integer and values.size and not element.min_int <= values.min() <= values.max() <= element.max_int:
        raise UsageError(f"values reach from {values.min()} to {values.max()}, which {dt.name} does not hold")
    exact: Array = values.astype(numpy_dtype(element))
    if not np.array_equal(exact, values):
        raise UsageError(f"values have fractions, which {dt.name} does not hold")
    return exact


def _widest(values: Array, element: DType) -> Array:
    wide = widen(values) if is_known(values.dtype) else values
    return wide.astype(np.complex128 if element.is_complex else np.float64)


def gathered(source: Any) -> Array:
    """The array behind ``__dlpack__``, in this machine's memory.

    Raises:
        UsageError: for memory that is elsewhere, or a dtype that NumPy cannot take over.
    """
    if is_torch(source):
        return to_array(source)
    try:
        return np.from_dlpack(source)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(f"the tensor cannot be taken over by DLPack: {error}") from None


def strides_of(array: Array) -> tuple[int, ...]:
    """The strides in elements.

    Raises:
        UsageError: for strides that are no multiple of the element, or a dtype that optest does not know.
    """
    if not is_known(array.dtype):
        raise UsageError(f"array is {array.dtype}, which is no dtype of infinicore.h")
    size = array.itemsize
    if any(stride % size for stride in array.strides):
        raise UsageError(f"strides are {array.strides} bytes, but should be multiples of {size}, the element's size")
    return tuple(stride // size for stride in array.strides)


def whole_file(path: Path, spec: TensorSpec) -> Array:
    """The raw elements of a file.

    Raises:
        UsageError: for a file that cannot be read or has another number of bytes.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"file {path} cannot be read: {error.strerror}") from None
    wanted = spec.storage_elements * spec.dtype.itemsize_bytes
    if len(content) != wanted:
        raise UsageError(f"file {path} has {len(content)} bytes, but should have {wanted} for {spec}")
    elements: Array = np.frombuffer(bytearray(content), np.uint8).view(numpy_dtype(spec.dtype))
    return elements
