"""Fills without random values: zeros, ones, full and arange."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from optest.numerics import Array, numpy_dtype, round_to
from optest.spec import DType, Fault, Kind, Reason

# (case key, argument path, number of elements) -> new one-dimensional array
StorageFactory = Callable[[str, str, int], Array]


def _full(parameters: Mapping[str, Any], dtype: DType) -> StorageFactory:
    value = stored([exact_scalar(parameters["value"], dtype)], dtype, "value of generator full")
    return lambda _key, _path, count: np.full(count, value[0], numpy_dtype(dtype))


def _arange(parameters: Mapping[str, Any], dtype: DType) -> StorageFactory:
    """Return a factory of ``start + i * step``; ``i`` restarts at 0 before the type can no longer hold the value."""
    start, step = parameters["start"], parameters["step"]
    period = _steps_until_inexact(start, step, dtype)
    is_integral = isinstance(start, int) and isinstance(step, int) and not dtype.is_inexact

    def create(_key: str, _path: str, count: int) -> Array:
        index = np.arange(min(count, period))
        # In 64 bits only Python's integers are exact.
        values = start + index.astype(object) * step if is_integral and dtype.bits == 64 else start + index * step
        values = np.trunc(values) if dtype.is_integer and not is_integral else values
        return np.resize(stored(values, dtype, "generator arange"), count)

    return create


def _steps_until_inexact(start: float, step: float, dtype: DType) -> int:
    """Return how many values from ``start`` on are in the range of an integer type or the exact integers of a float."""
    if dtype.kind is Kind.BOOL:
        low, high = 0, 1
    elif dtype.is_integer:
        low, high = dtype.min_int, dtype.max_int
    else:
        low, high = -(2**dtype.precision), 2**dtype.precision
    if step == 0 or not low <= start <= high:
        return 1
    room = high - start if step > 0 else start - low
    return min(math.floor(room / abs(step)) + 1, 2**62)


# By fill: (parameters, dtype) -> factory of storages.
CONSTANTS: Mapping[str, Callable[[Mapping[str, Any], DType], StorageFactory]] = {
    "zeros": lambda _, dtype: lambda _key, _path, count: np.zeros(count, numpy_dtype(dtype)),
    "ones": lambda _, dtype: _full({"value": 1}, dtype),
    "full": _full,
    "arange": _arange,
}


def exact_scalar(value: Any, dtype: DType) -> Any:
    """Return a number of a plan; parse strings such as ``"nan"``, ``"-inf"`` and ``"1+2j"``.

    Raises:
        Fault: BAD_CASE for an imaginary part if ``dtype`` is real.
    """
    if not isinstance(value, str):
        return value
    number = complex(value)
    if dtype.is_complex:
        return number
    if number.imag:
        raise Fault(Reason.BAD_CASE, f"value is {value!r}, expected a real number for {dtype}")
    return int(value) if value.lstrip("+-").isdigit() else number.real


def stored(values: Any, dtype: DType, origin: str) -> Array:
    """Round numbers to ``dtype``.

    Raises:
        Fault: BAD_CASE, naming ``origin``, for a number that the type cannot hold.
    """
    array = values if isinstance(values, np.ndarray) else _to_array(values, dtype)
    try:
        return round_to(array, dtype)
    except (ValueError, TypeError) as error:
        raise Fault(Reason.BAD_CASE, f"{origin}: {error}") from error


def _to_array(values: Any, dtype: DType) -> Array:
    """Convert a list to an array without rounding: Python integers stay exact."""
    if dtype.is_complex:
        return np.array(values, np.complex128)
    array = np.array(values, dtype=object)
    if dtype.is_inexact and not any(isinstance(value, int) and abs(value) > 2**53 for value in array.flat):
        return array.astype(np.float64)
    return array
