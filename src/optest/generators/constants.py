"""Fills that draw nothing: zeros, ones, one value, and arange."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from optest.numerics import Array, numpy_dtype, round_to
from optest.spec import DType, Fault, Kind, Reason

Maker = Callable[[str, str, int], Array]


def _full(stated: Mapping[str, Any], dtype: DType) -> Maker:
    value = stored([exact_scalar(stated["value"], dtype)], dtype, "value of generator full")
    return lambda _key, _path, count: np.full(count, value[0], numpy_dtype(dtype))


def _arange(stated: Mapping[str, Any], dtype: DType) -> Maker:
    """``start + i * step``, with ``i`` starting again before the exact integers (the range) of the type end."""
    start, step = stated["start"], stated["step"]
    period = _steps_until_inexact(start, step, dtype)
    whole = isinstance(start, int) and isinstance(step, int) and not dtype.is_inexact

    def make(_key: str, _path: str, count: int) -> Array:
        index = np.arange(min(count, period))
        values = start + index.astype(object) * step if whole and dtype.bits == 64 else start + index * step
        values = np.trunc(values) if dtype.is_integer and not whole else values
        return np.resize(stored(values, dtype, "generator arange"), count)

    return make


def _steps_until_inexact(start: float, step: float, dtype: DType) -> int:
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


CONSTANTS: Mapping[str, Callable[[Mapping[str, Any], DType], Maker]] = {
    "zeros": lambda _, dtype: lambda _key, _path, count: np.zeros(count, numpy_dtype(dtype)),
    "ones": lambda _, dtype: _full({"value": 1}, dtype),
    "full": _full,
    "arange": _arange,
}
"""What makes a storage, by fill."""


def exact_scalar(value: Any, dtype: DType) -> Any:
    """A number as a plan states it; strings such as ``"nan"``, ``"-inf"`` and ``"1+2j"`` are read."""
    if not isinstance(value, str):
        return value
    number = complex(value)
    if dtype.is_complex:
        return number
    if number.imag:
        raise Fault(Reason.BAD_CASE, f"value is {value!r}, but should be real")
    return int(value) if value.lstrip("+-").isdigit() else number.real


def stored(values: Any, dtype: DType, what: str) -> Array:
    """Numbers rounded to ``dtype``.

    Raises:
        Fault: BAD_CASE for a number that the type cannot take.
    """
    array = values if isinstance(values, np.ndarray) else _numbers(values, dtype)
    try:
        return round_to(array, dtype)
    except (ValueError, TypeError) as error:
        raise Fault(Reason.BAD_CASE, f"{what}: {error}") from error


def _numbers(values: Any, dtype: DType) -> Array:
    """A list as an array that rounds nothing yet: Python integers stay exact."""
    if dtype.is_complex:
        return np.array(values, np.complex128)
    array = np.array(values, dtype=object)
    if dtype.is_inexact and not any(isinstance(value, int) and abs(value) > 2**53 for value in array.flat):
        return array.astype(np.float64)
    return array
