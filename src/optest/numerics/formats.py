"""How the element types of :mod:`optest.spec.dtypes` are stored: their NumPy dtypes, their bits, their exact values."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from optest.errors import UnknownName
from optest.spec import DTYPES, DType, Kind, dtype_names

__all__ = ["Array", "bits", "dtype_of", "numpy_dtype", "widen"]

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]

_ML_DTYPES = {"int4", "uint4", "bfloat16", "float8_e4m3fn", "float8_e5m2"}

_NUMPY: dict[str, np.dtype[Any]] = {
    entry.name: np.dtype(getattr(ml_dtypes, entry.name) if entry.name in _ML_DTYPES else entry.name) for entry in DTYPES
}
_OURS: dict[np.dtype[Any], DType] = {_NUMPY[entry.name]: entry for entry in DTYPES}

_UNSIGNED: dict[int, np.dtype[Any]] = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
_UNSIGNED[16] = np.dtype([("real", np.uint64), ("imag", np.uint64)])
_NIBBLE = np.uint8(0x0F)


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of an element type; bfloat16, float8 and int4 are those of ml_dtypes."""
    return _NUMPY[dtype.name]


def dtype_of(dtype: np.dtype[Any]) -> DType:
    """The element type of a NumPy dtype.

    Raises:
        UnknownName: for a dtype that optest does not know, foreign byte order included.
    """
    found = _OURS.get(dtype)
    if found is None:
        raise UnknownName("dtype", np.dtype(dtype).name, dtype_names())
    return found


def bits(array: Array) -> Array:
    """The bits of every element as an unsigned integer of the same size, in the same shape.

    A view wherever bytes are bits; 4-bit types are copied, because the upper half of their byte means nothing.
    complex128 gives pairs ``(real, imag)`` of uint64, which compare like numbers.
    """
    entry = dtype_of(array.dtype)
    codes: Array = array.view(_UNSIGNED[entry.itemsize_bytes])
    return codes & _NIBBLE if entry.bits == 4 else codes


def widen(array: Array) -> Array:
    """The same values in a type that NumPy computes in: float64, complex128, int8 for int4, uint8 for uint4.

    Integers of 8 bits and more and bool come back as they are; every value is exact.
    """
    entry = dtype_of(array.dtype)
    if entry.bits == 4:
        return array.astype(np.uint8 if entry.kind is Kind.UINT else np.int8)
    if not entry.is_inexact or array.dtype == np.float64 or array.dtype == np.complex128:
        return array
    if entry.bits == 8:
        return np.asarray(_values_of_all_codes(entry.name).take(array.view(np.uint8)))
    with np.errstate(invalid="ignore"):  # a signalling NaN, which foreign memory may well hold
        return array.astype(np.float64 if entry.kind is Kind.FLOAT else np.complex128)


@cache
def _values_of_all_codes(name: str) -> Array:
    """The 256 values of an 8-bit float as float64, by code; ml_dtypes converts one by one and is 10 × slower."""
    values: Array = np.arange(256, dtype=np.uint8).view(_NUMPY[name]).astype(np.float64)
    return values
