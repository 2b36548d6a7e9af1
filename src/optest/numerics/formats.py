"""Storage of the element types of :mod:`optest.spec.dtypes`: their NumPy dtypes, their bits, their exact values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from optest.errors import UnknownName
from optest.numerics.float_state import Quiet
from optest.spec import DTYPES, DType, dtype_names

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]

_ML_DTYPES = {"int4", "uint4", "bfloat16", "float8_e4m3fn", "float8_e5m2"}

_NUMPY: dict[str, np.dtype[Any]] = {
    entry.name: np.dtype(getattr(ml_dtypes, entry.name) if entry.name in _ML_DTYPES else entry.name) for entry in DTYPES
}
_ELEMENT_TYPES: dict[np.dtype[Any], DType] = {_NUMPY[entry.name]: entry for entry in DTYPES}

_UNSIGNED: dict[int, np.dtype[Any]] = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
# NumPy has no integers of 128 bits.
_UNSIGNED[16] = np.dtype([("real", np.uint64), ("imag", np.uint64)])
_WIDER: dict[np.dtype[Any], np.dtype[Any]] = {
    _NUMPY["int4"]: np.dtype(np.int8),
    _NUMPY["uint4"]: np.dtype(np.uint8),
    _NUMPY["complex64"]: np.dtype(np.complex128),
    **{_NUMPY[entry.name]: np.dtype(np.float64) for entry in DTYPES if entry.is_float and entry.name != "float64"},
}
_NIBBLE = np.uint8(0x0F)


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return the NumPy dtype of an element type; bfloat16, float8 and 4-bit integers are those of ml_dtypes."""
    return _NUMPY[dtype.name]


def dtype_of(dtype: np.dtype[Any]) -> DType:
    """Return the element type of a NumPy dtype.

    Raises:
        UnknownName: for a dtype that optest does not know, foreign byte order included.
    """
    entry = _ELEMENT_TYPES.get(dtype)
    if entry is None:
        raise UnknownName("dtype", np.dtype(dtype).name, dtype_names())
    return entry


def is_known(dtype: np.dtype[Any]) -> bool:
    """Return whether optest has an element type of this NumPy dtype."""
    return dtype in _ELEMENT_TYPES


def bits(array: Array) -> Array:
    """Return the bits of every element as an unsigned integer of the same size, in the same shape.

    The result is a view of ``array``, but a copy for 4-bit types. complex128 gives pairs ``(real, imag)`` of uint64,
    which compare like numbers.
    """
    entry = dtype_of(array.dtype)
    codes: Array = array.view(_UNSIGNED[entry.itemsize_bytes])
    # A 4-bit element has a byte of its own, whose upper half has no meaning.
    return codes & _NIBBLE if entry.bits == 4 else codes


def same_bits(first: Sequence[Array], second: Sequence[Array]) -> bool:
    """Return whether both sequences have equally many arrays of pairwise the same dtype, shape and bits.

    Strides do not count.
    """
    return len(first) == len(second) and all(
        a.shape == b.shape and a.dtype == b.dtype and bool((bits(a) == bits(b)).all())
        for a, b in zip(first, second, strict=True)
    )


def byte_beyond_bool(array: Array) -> tuple[list[int], int] | None:
    """Return index and value of the first byte of a bool array that is neither 0 nor 1; None if there is none."""
    # NumPy takes such a byte for True in one operation and for a number in another.
    beyond = array.view(np.uint8) > 1
    if not beyond.any():
        return None
    index = [int(axis) for axis in np.unravel_index(int(beyond.argmax()), array.shape)]
    return index, int(array.view(np.uint8)[tuple(index)])


def widen(array: Array, *, quiet: bool = True) -> Array:
    """Convert exactly to a dtype that NumPy computes in: floats to float64, complex64 to complex128, int4 to int8.

    uint4 becomes uint8. float64, complex128, bool and integers of 8 bits and more are returned unchanged, not copied.
    ``quiet=False`` leaves NumPy's error mode as it is, for callers who have silenced it.

    Raises:
        UnknownName: for a dtype that optest does not know.
    """
    wide = _WIDER.get(array.dtype)
    if wide is None:
        dtype_of(array.dtype)  # raises for unknown dtypes
        return array
    if array.dtype.itemsize == 1 and wide.kind == "f":
        return np.asarray(_values_of_all_codes(array.dtype.name).take(array.view(np.uint8)))
    if not quiet:
        return array.astype(wide)
    # NumPy warns of signalling NaNs, which poisoned or foreign memory may hold.
    with Quiet():
        return array.astype(wide)


@cache
def _values_of_all_codes(name: str) -> Array:
    """Return the values of the 256 bit patterns of an 8-bit float as float64, indexed by bit pattern."""
    # ml_dtypes converts one element at a time, which is ten times slower than a look-up in this table.
    values: Array = np.arange(256, dtype=np.uint8).view(_NUMPY[name]).astype(np.float64)
    return values
