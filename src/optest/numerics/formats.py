"""How the element types of :mod:`optest.spec.dtypes` are stored: their NumPy dtypes, their bits, their exact values."""

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
_OURS: dict[np.dtype[Any], DType] = {_NUMPY[entry.name]: entry for entry in DTYPES}

_UNSIGNED: dict[int, np.dtype[Any]] = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
_UNSIGNED[16] = np.dtype([("real", np.uint64), ("imag", np.uint64)])
_WIDER: dict[np.dtype[Any], np.dtype[Any]] = {
    _NUMPY["int4"]: np.dtype(np.int8),
    _NUMPY["uint4"]: np.dtype(np.uint8),
    _NUMPY["complex64"]: np.dtype(np.complex128),
    **{_NUMPY[entry.name]: np.dtype(np.float64) for entry in DTYPES if entry.is_float and entry.name != "float64"},
}
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


def is_known(dtype: np.dtype[Any]) -> bool:
    """Whether optest knows an element type of this NumPy dtype."""
    return dtype in _OURS


def bits(array: Array) -> Array:
    """The bits of every element as an unsigned integer of the same size, in the same shape.

    A view wherever bytes are bits; 4-bit types are copied, because the upper half of their byte means nothing.
    complex128 gives pairs ``(real, imag)`` of uint64, which compare like numbers.
    """
    entry = dtype_of(array.dtype)
    codes: Array = array.view(_UNSIGNED[entry.itemsize_bytes])
    return codes & _NIBBLE if entry.bits == 4 else codes


def same_bits(one: Sequence[Array], other: Sequence[Array]) -> bool:
    """Whether as many arrays have the same dtypes, shapes and bits, in whatever layout."""
    return len(one) == len(other) and all(
        a.shape == b.shape and a.dtype == b.dtype and bool((bits(a) == bits(b)).all())
        for a, b in zip(one, other, strict=True)
    )


def byte_beyond_bool(array: Array) -> tuple[list[int], int] | None:
    """Index and value of the first byte of a bool array that is neither 0 nor 1; None if there is none.

    NumPy takes it for True in one operation and for a number in another.
    """
    beyond = array.view(np.uint8) > 1
    if not beyond.any():
        return None
    index = [int(axis) for axis in np.unravel_index(int(beyond.argmax()), array.shape)]
    return index, int(array.view(np.uint8)[tuple(index)])


def widen(array: Array, *, quiet: bool = True) -> Array:
    """The same values in a type that NumPy computes in: float64, complex128, int8 for int4, uint8 for uint4.

    Integers of 8 bits and more and bool come back as they are; every value is exact. NumPy would warn of a signalling
    NaN, which foreign memory may well hold; ``quiet=False`` is for callers who have told it not to.
    """
    wide = _WIDER.get(array.dtype)
    if wide is None:
        dtype_of(array.dtype)
        return array
    if array.dtype.itemsize == 1 and wide.kind == "f":
        return np.asarray(_values_of_all_codes(array.dtype.name).take(array.view(np.uint8)))
    if not quiet:
        return array.astype(wide)
    with Quiet():
        return array.astype(wide)


@cache
def _values_of_all_codes(name: str) -> Array:
    """The 256 values of an 8-bit float as float64, by code; ml_dtypes converts one by one and is 10 × slower."""
    values: Array = np.arange(256, dtype=np.uint8).view(_NUMPY[name]).astype(np.float64)
    return values
