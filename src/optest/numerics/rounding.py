"""Rounding from float64 to every element type, once, and the size of a unit in the last place."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from optest.numerics.formats import Array, bits, numpy_dtype, widen
from optest.spec import DType, Kind
from optest.spec import dtype as dtype_called

# Arrays without dimensions: as operands they cost a third of what NumPy's scalars do.
_EXPONENT = np.array(0x7FF0_0000_0000_0000, np.uint64)
_BELOW_BFLOAT16 = np.array(0xFFFF, np.uint32)
_TIE_OF_BFLOAT16 = np.array(0x8000, np.uint32)
_BELOW_LEADING = np.array(20, np.uint32)
_FLOAT64 = np.dtype(np.float64)
_COMPLEX128 = np.dtype(np.complex128)
_COMPONENT = {"complex64": dtype_called("float32"), "complex128": dtype_called("float64")}
_BLOCK = 1 << 15
"""Elements that are rounded at a time, so that intermediate results stay in the cache."""


def round_to(values: Any, dtype: DType, *, overflow: str = "ieee", denormals: str = "preserve") -> Array:
    """Round to ``dtype``, directly and once, ties to even; the shape stays.

    ``values`` are float64 or complex128 (rounded by component), narrower floats, or integers, which count as
    exact whatever their size. With ``overflow="ieee"`` what rounds beyond the largest finite value is infinity,
    in float8_e4m3fn, which has none, NaN; with ``"saturate"`` it is the largest finite value, infinities
    included. ``denormals="flush"`` turns results below the smallest normal into zeros of the same sign.

    For integers and bool nothing is rounded: the values have to be there already.

    Values that have the type already come back as they are, not copied.

    Raises:
        ValueError: for an integer or bool target, naming the first value that it cannot hold.
        TypeError: for complex values and a real target, or values that are no numbers.
    """
    if overflow not in ("ieee", "saturate"):
        raise ValueError(f"overflow is {overflow!r}, but should be 'ieee' or 'saturate'")
    if denormals not in ("preserve", "flush"):
        raise ValueError(f"denormals is {denormals!r}, but should be 'preserve' or 'flush'")
    array = values if isinstance(values, np.ndarray) else np.asarray(values)
    target = numpy_dtype(dtype)
    if array.dtype == target and (denormals == "preserve" or not dtype.is_inexact) and overflow == "ieee":
        return array
    if dtype.kind is Kind.FLOAT:
        return _to_float(_as_float64(array, dtype), dtype, overflow, denormals)
    if dtype.kind is Kind.COMPLEX:
        if array.dtype.kind == "O" or array.dtype.itemsize > 16:
            raise TypeError(f"values are {array.dtype}, but should be complex128 to be rounded to {dtype}")
        part = _COMPONENT[dtype.name]
        wide = np.ascontiguousarray(array if array.dtype.kind == "c" else _as_float64(array, part), dtype=_COMPLEX128)
        components = _to_float(wide.reshape(-1).view(_FLOAT64), part, overflow, denormals)
        return components.view(numpy_dtype(dtype)).reshape(array.shape)
    if array.dtype.kind == "c":
        raise TypeError(f"values are {array.dtype}, but should be real to be stored as {dtype}")
    if array.dtype.kind in "iu" and dtype.is_integer and dtype.bits >= 8:
        converted = array.astype(numpy_dtype(dtype))
        if not (converted != array).any():
            return converted
    if array.dtype.kind != "O":
        numbers = widen(array)
    else:  # Python integers as they are; with other numbers among them, all as float64
        numbers = array if all(isinstance(value, int) for value in array.flat) else array.astype(_FLOAT64)
    low, high = (0, 1) if dtype.kind is Kind.BOOL else (dtype.min_int, dtype.max_int)
    if numbers.size and numbers.dtype.kind != "b":
        least, largest = np.asarray(numbers.min()).item(), np.asarray(numbers.max()).item()
        if not (low <= least and largest <= high):  # NaN is in no range
            outside = np.array([not low <= value <= high for value in numbers.reshape(-1).tolist()])
            _refuse(numbers, outside.reshape(numbers.shape), dtype, f"from {low} to {high}")
    if numbers.dtype.kind == "f" and not np.array_equal(numbers, np.rint(numbers)):
        _refuse(numbers, numbers != np.rint(numbers), dtype, "an integer")
    if dtype.bits == 4:
        numbers = numbers.astype(np.int8 if dtype.kind is Kind.INT else np.uint8)
    return numbers.astype(numpy_dtype(dtype), copy=False)


def ulp(values: Any, dtype: DType) -> Array:
    """The gap between neighbouring numbers of ``dtype`` at |value|, as float64 in the shape of ``values``.

    ``2**(max(floor(log2|x|), emin) - (precision - 1))``: above a power of two the gap upwards, below the smallest
    normal and at 0 the smallest subnormal. Beyond the largest finite value the exponents go on. Infinity and NaN
    give infinity. Integers and bool have a gap of 1.

    Raises:
        TypeError: for complex values; their components are rounded apart.
    """
    array = values if isinstance(values, np.ndarray) else np.asarray(values)
    if array.dtype != _FLOAT64:
        array = _as_float64(array, dtype)
    if not dtype.precision:
        return np.ones(array.shape)
    smallest, factor = _gaps(dtype.name)
    exponent: Array = (array.view(np.uint64) & _EXPONENT).view(_FLOAT64)
    return np.multiply(np.maximum(exponent, smallest), factor, out=np.empty(array.shape))


def _to_float(values: Array, dtype: DType, overflow: str, denormals: str) -> Array:
    if overflow == "saturate":
        values = np.clip(values, -dtype.max_finite, dtype.max_finite)
    if dtype.name == "float64":
        rounded = values
    elif dtype.name in ("float32", "float16"):
        with np.errstate(all="ignore"):
            rounded = values.astype(numpy_dtype(dtype))  # NumPy casts float64 to both in one step
    else:
        rounded = _narrow(values, dtype)
    if denormals != "flush":
        return rounded
    # Replace subnormal numbers by zeros of their sign.
    codes = bits(rounded)
    sign = codes.dtype.type(1 << (dtype.bits - 1))
    exponent = codes.dtype.type((1 << (dtype.bits - 1)) - (1 << (dtype.precision - 1)))
    flushed: Array = np.where(codes & exponent, codes, codes & sign)
    return flushed.view(rounded.dtype)


def _narrow(values: Array, dtype: DType) -> Array:
    """Round float64 to a format that fits into float32 (bfloat16, float8)."""
    flat = np.ascontiguousarray(values).reshape(-1)
    round_block = _to_bfloat16 if dtype.name == "bfloat16" else _to_float8
    with np.errstate(all="ignore"):
        if flat.size <= _BLOCK:
            return round_block(flat, dtype).reshape(values.shape)
        result = np.empty(flat.size, numpy_dtype(dtype))
        for start in range(0, flat.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            result[block] = round_block(flat[block], dtype)
    return result.reshape(values.shape)


def _to_bfloat16(values: Array, dtype: DType) -> Array:
    """Round through float32; where that ends on a tie, which the first rounding may have made, round directly."""
    single = values.astype(np.float32)
    result: Array = single.astype(numpy_dtype(dtype))
    ties = (single.view(np.uint32) & _BELOW_BFLOAT16) == _TIE_OF_BFLOAT16
    if ties.any():
        again = _on_grid(values[ties], dtype).astype(np.float32)
        result[ties] = again.astype(result.dtype)
    return result


def _to_float8(values: Array, dtype: DType) -> Array:
    leading = _on_grid(values, dtype).astype(np.float32).view(np.uint32)
    leading >>= _BELOW_LEADING
    result: Array = _of_leading_bits(dtype.name).take(leading)
    return result


def _on_grid(values: Array, dtype: DType) -> Array:
    """Float64 rounded to multiples of an ulp of ``dtype``, by adding and subtracting 1.5 * 2**52 ulp."""
    smallest, beyond, factor = _grid(dtype.name)
    shift: Array = (values.view(np.uint64) & _EXPONENT).view(_FLOAT64)
    np.maximum(shift, smallest, out=shift)
    np.minimum(shift, beyond, out=shift)
    shift *= factor
    rounded: Array = values + shift
    rounded -= shift
    return np.copysign(rounded, values, out=rounded)


@cache
def _grid(name: str) -> tuple[Array, Array, Array]:
    """The first and last exponent that count, as powers, and 1.5 * 2**52 ulp of 1; arrays are quicker operands."""
    dtype = dtype_called(name)
    return (
        np.array(2.0**dtype.emin),
        np.array(2.0 ** (dtype.emax + 1)),
        np.array(1.5 * 2.0 ** (53 - dtype.precision)),
    )


@cache
def _gaps(name: str) -> tuple[Array, Array]:
    """The smallest normal number, and the gap at 1."""
    dtype = dtype_called(name)
    return np.array(2.0**dtype.emin), np.array(2.0 ** (1 - dtype.precision))


@cache
def _of_leading_bits(name: str) -> Array:
    """The values of an 8-bit float by the leading 12 bits of the float32 of the same value."""
    leading = np.arange(1 << 12, dtype=np.uint32) << _BELOW_LEADING
    result: Array = leading.view(np.float32).astype(numpy_dtype(dtype_called(name)))
    return result


def _as_float64(array: Array, dtype: DType) -> Array:
    """The values as float64; integers that it cannot hold become numbers that round to ``dtype`` as they would."""
    if array.dtype == _FLOAT64:
        return array
    if array.dtype.kind == "c":
        raise TypeError(f"values are {array.dtype}, but should be real to be rounded to {dtype}")
    if array.dtype.kind == "O":
        return np.array([_float_of(value, dtype) for value in array.flat], dtype=_FLOAT64).reshape(array.shape)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and dtype.name != "float64":
        plain = array.astype(_FLOAT64)
        large = np.abs(plain) >= 2.0**53
        if large.any():  # rounded to odd, so that one more rounding is the only one
            units = array[large] >> array.dtype.type(11)
            units |= (array[large] & array.dtype.type(0x7FF)) != 0
            plain[large] = units.astype(_FLOAT64) * 2.0**11
        return plain
    return widen(array).astype(_FLOAT64, copy=False)


def _float_of(value: Any, dtype: DType) -> float:
    """A Python number as float64, rounded to odd when it has more bits and another rounding follows."""
    if not isinstance(value, int) or dtype.name == "float64":
        return _float_or_infinity(value)
    spare = max(value.bit_length() - 53, 0)
    units = value >> spare
    return _float_or_infinity((units | (units << spare != value)) << spare)


def _float_or_infinity(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def summation_errors(total: Array, squares: Array, counts: Array, unit: float) -> Array:
    """Errors, shaped like ``total`` in float64, that sums of ``counts`` terms may have: added one after another, each
    partial sum rounded with the roundoff ``unit``. ``squares`` is the sum of squared terms.

    Partial sums drift to √squares by chance, and to the total; so many roundings of them are a random walk: Higham &
    Mary 2019, "A New Approach to Probabilistic Rounding Error Analysis". Signs are drawn, but equal sums have equal
    errors: the mean of such has it, too.
    """
    drawn = np.ascontiguousarray(total).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    drawn ^= drawn >> np.uint64(32)
    signs = 1.0 - 2.0 * (drawn * np.uint64(0xD6E8FEB86659FD93) >> np.uint64(63))
    errors: Array = signs.reshape(total.shape) * unit * np.sqrt(counts * np.maximum(squares, np.square(total)))
    return errors


def _refuse(values: Array, wrong: Array, dtype: DType, should: str) -> None:
    index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    place = [int(axis) for axis in index]
    raise ValueError(f"value at {place} is {values[index]}, but should be {should} to be stored as {dtype}")
