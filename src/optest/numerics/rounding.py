"""Rounding from float64 to every element type in one step, and the size of a unit in the last place (ulp)."""

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
# Elements rounded at a time, so that intermediate results stay in the cache.
_BLOCK = 1 << 15


def round_to(values: Any, dtype: DType, *, overflow: str = "ieee", denormals: str = "preserve") -> Array:
    """Round to ``dtype`` in one step, ties to even; return an array of the same shape.

    ``values`` are float64 or complex128 (rounded by component), narrower floats, or integers, which count as exact
    whatever their size. With ``overflow="ieee"`` values that round beyond the largest finite value become infinity, or
    NaN in float8_e4m3fn, which has no infinity; with ``"saturate"`` they, and infinities, become the largest finite
    value. ``denormals="flush"`` turns results below the smallest normal into zeros of the same sign.

    Integer and bool targets convert without rounding: the values have to be integers in range. Arrays that have the
    dtype already are returned unchanged, not copied.

    Raises:
        ValueError: for an integer or bool target, naming the first value that it cannot hold, or an unknown mode.
        TypeError: for complex values and a real target, or Python objects and wider floats and a complex target.
    """
    if overflow not in ("ieee", "saturate"):
        raise ValueError(f"overflow is {overflow!r}, expected 'ieee' or 'saturate'")
    if denormals not in ("preserve", "flush"):
        raise ValueError(f"denormals is {denormals!r}, expected 'preserve' or 'flush'")
    array = values if isinstance(values, np.ndarray) else np.asarray(values)
    target = numpy_dtype(dtype)
    if array.dtype == target and (denormals == "preserve" or not dtype.is_inexact) and overflow == "ieee":
        return array
    if dtype.kind is Kind.FLOAT:
        return _to_float(_as_float64(array, dtype), dtype, overflow, denormals)
    if dtype.kind is Kind.COMPLEX:
        if array.dtype.kind == "O" or array.dtype.itemsize > 16:
            raise TypeError(f"values are {array.dtype}, expected complex128 to round to {dtype}")
        part = _COMPONENT[dtype.name]
        wide = np.ascontiguousarray(array if array.dtype.kind == "c" else _as_float64(array, part), dtype=_COMPLEX128)
        components = _to_float(wide.reshape(-1).view(_FLOAT64), part, overflow, denormals)
        return components.view(numpy_dtype(dtype)).reshape(array.shape)
    return _to_integer_dtype(array, dtype)


def ulp(values: Any, dtype: DType) -> Array:
    """Return the distance between neighbouring numbers of ``dtype`` at |value|: float64 in the shape of ``values``.

    It is ``2**(max(floor(log2|x|), emin) - (precision - 1))``: at a power of two the distance upwards, below the
    smallest normal and at 0 the smallest subnormal. Exponents continue beyond the largest finite value. Infinity and
    NaN give infinity. Integers and bool have a distance of 1.

    Raises:
        TypeError: for complex values; call it for their components.
    """
    array = values if isinstance(values, np.ndarray) else np.asarray(values)
    if array.dtype != _FLOAT64:
        array = _as_float64(array, dtype)
    if not dtype.precision:
        return np.ones(array.shape)
    smallest, factor = _smallest_and_epsilon(dtype.name)
    # The bits of the exponent as a float64 are the power of two at or below |x|, infinity for infinity and NaN.
    exponent: Array = (array.view(np.uint64) & _EXPONENT).view(_FLOAT64)
    return np.multiply(np.maximum(exponent, smallest), factor, out=np.empty(array.shape))


def _to_integer_dtype(array: Array, dtype: DType) -> Array:
    """Convert to an integer dtype or bool; raise TypeError for complex values, ValueError for any it cannot hold."""
    if array.dtype.kind == "c":
        raise TypeError(f"values are {array.dtype}, expected real numbers to store as {dtype}")
    if array.dtype.kind in "iu" and dtype.is_integer and dtype.bits >= 8:
        # The common case, without a search for the value out of range.
        converted = array.astype(numpy_dtype(dtype))
        if not (converted != array).any():
            return converted
    if array.dtype.kind != "O":
        numbers = widen(array)
    else:
        # Python integers stay exact; with other numbers among them, all become float64.
        numbers = array if all(isinstance(value, int) for value in array.flat) else array.astype(_FLOAT64)
    low, high = (0, 1) if dtype.kind is Kind.BOOL else (dtype.min_int, dtype.max_int)
    if numbers.size and numbers.dtype.kind != "b":
        least, largest = np.asarray(numbers.min()).item(), np.asarray(numbers.max()).item()
        if not (low <= least and largest <= high):  # NaN is in no range
            outside = np.array([not low <= value <= high for value in numbers.reshape(-1).tolist()])
            _refuse_first(numbers, outside.reshape(numbers.shape), dtype, f"a value from {low} to {high}")
    if numbers.dtype.kind == "f" and not np.array_equal(numbers, np.rint(numbers)):
        _refuse_first(numbers, numbers != np.rint(numbers), dtype, "an integer")
    if dtype.bits == 4:
        numbers = numbers.astype(np.int8 if dtype.kind is Kind.INT else np.uint8)
    return numbers.astype(numpy_dtype(dtype), copy=False)


def _to_float(values: Array, dtype: DType, overflow: str, denormals: str) -> Array:
    """Round float64 values to a float dtype, with the modes of :func:`round_to`."""
    if overflow == "saturate":
        values = np.clip(values, -dtype.max_finite, dtype.max_finite)
    if dtype.name == "float64":
        rounded = values
    elif dtype.name in ("float32", "float16"):
        with np.errstate(all="ignore"):
            rounded = values.astype(numpy_dtype(dtype))  # NumPy casts float64 to both in one step
    else:
        rounded = _to_narrow_float(values, dtype)
    if denormals != "flush":
        return rounded
    codes = bits(rounded)
    sign = codes.dtype.type(1 << (dtype.bits - 1))
    exponent = codes.dtype.type((1 << (dtype.bits - 1)) - (1 << (dtype.precision - 1)))
    # Subnormal numbers have no bit in the exponent: keep their sign only.
    flushed: Array = np.where(codes & exponent, codes, codes & sign)
    return flushed.view(rounded.dtype)


def _to_narrow_float(values: Array, dtype: DType) -> Array:
    """Round float64 values to bfloat16 or float8, block by block; return an array of the same shape."""
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
    """Round a float64 vector to bfloat16 by way of float32, but directly if the float32 value is a tie of bfloat16."""
    # Only a tie may be the work of the first rounding; a second one would then round the wrong way.
    single = values.astype(np.float32)
    result: Array = single.astype(numpy_dtype(dtype))
    ties = (single.view(np.uint32) & _BELOW_BFLOAT16) == _TIE_OF_BFLOAT16
    if ties.any():
        direct = _round_in_float64(values[ties], dtype).astype(np.float32)
        result[ties] = direct.astype(result.dtype)
    return result


def _to_float8(values: Array, dtype: DType) -> Array:
    """Round a float64 vector to an 8-bit float, by a look-up of the leading bits of the rounded value."""
    leading = _round_in_float64(values, dtype).astype(np.float32).view(np.uint32)
    leading >>= _BELOW_LEADING
    result: Array = _float8_by_leading_bits(dtype.name).take(leading)
    return result


def _round_in_float64(values: Array, dtype: DType) -> Array:
    """Round float64 values to multiples of an ulp of ``dtype``, by adding and subtracting 1.5 * 2**52 ulp."""
    smallest, beyond, factor = _rounding_constants(dtype.name)
    shift: Array = (values.view(np.uint64) & _EXPONENT).view(_FLOAT64)
    np.maximum(shift, smallest, out=shift)
    np.minimum(shift, beyond, out=shift)
    shift *= factor
    rounded: Array = values + shift
    rounded -= shift
    # The subtraction loses the sign of zeros.
    return np.copysign(rounded, values, out=rounded)


@cache
def _rounding_constants(name: str) -> tuple[Array, Array, Array]:
    """Return the smallest normal number, the first power of two out of range, and 1.5 * 2**52 ulp of 1."""
    dtype = dtype_called(name)
    return (
        np.array(2.0**dtype.emin),
        np.array(2.0 ** (dtype.emax + 1)),
        np.array(1.5 * 2.0 ** (53 - dtype.precision)),
    )


@cache
def _smallest_and_epsilon(name: str) -> tuple[Array, Array]:
    """Return the smallest normal number, and the ulp of 1."""
    dtype = dtype_called(name)
    return np.array(2.0**dtype.emin), np.array(2.0 ** (1 - dtype.precision))


@cache
def _float8_by_leading_bits(name: str) -> Array:
    """Return the values of an 8-bit float, indexed by the leading 12 bits of the float32 of the same value."""
    # Sign, 8 bits of exponent and 3 of significand: all that a value of 8 bits needs in float32.
    leading = np.arange(1 << 12, dtype=np.uint32) << _BELOW_LEADING
    result: Array = leading.view(np.float32).astype(numpy_dtype(dtype_called(name)))
    return result


def _as_float64(array: Array, dtype: DType) -> Array:
    """Convert real numbers to float64; integers that it cannot hold become numbers that round to ``dtype`` alike.

    Raises:
        TypeError: for complex values.
    """
    if array.dtype == _FLOAT64:
        return array
    if array.dtype.kind == "c":
        raise TypeError(f"values are {array.dtype}, expected real numbers to round to {dtype}")
    if array.dtype.kind == "O":
        return np.array([_python_number(value, dtype) for value in array.flat], dtype=_FLOAT64).reshape(array.shape)
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and dtype.name != "float64":
        nearest = array.astype(_FLOAT64)
        large = np.abs(nearest) >= 2.0**53
        if large.any():
            # Round to odd: then the rounding to ``dtype`` gives the same as from the integer itself.
            units = array[large] >> array.dtype.type(11)
            units |= (array[large] & array.dtype.type(0x7FF)) != 0
            nearest[large] = units.astype(_FLOAT64) * 2.0**11
        return nearest
    return widen(array).astype(_FLOAT64, copy=False)


def _python_number(value: Any, dtype: DType) -> float:
    """Convert a Python number to float: a long integer is rounded to odd if a rounding to ``dtype`` follows."""
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
    """Return plausible errors, float64 in the shape of ``total``, of sums of ``counts`` terms added one by one.

    Every partial sum is rounded with the unit roundoff ``unit``; ``squares`` is the sum of squared terms. The size is
    that of a random walk: unit·√(counts·max(squares, total²)), after Higham & Mary 2019, "A New Approach to
    Probabilistic Rounding Error Analysis". Signs are pseudo-random.
    """
    # Hash the bits of the sum for its sign: equal sums have equal errors, and so has their mean.
    drawn = np.ascontiguousarray(total).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    drawn ^= drawn >> np.uint64(32)
    signs = 1.0 - 2.0 * (drawn * np.uint64(0xD6E8FEB86659FD93) >> np.uint64(63))
    errors: Array = signs.reshape(total.shape) * unit * np.sqrt(counts * np.maximum(squares, np.square(total)))
    return errors


def _refuse_first(values: Array, is_wrong: Array, dtype: DType, expected: str) -> None:
    """Raise ValueError for the first of ``values`` that ``is_wrong`` marks."""
    index = np.unravel_index(int(np.argmax(is_wrong)), is_wrong.shape)
    position = [int(axis) for axis in index]
    raise ValueError(f"value at {position} is {values[index]}, expected {expected} to store as {dtype}")
