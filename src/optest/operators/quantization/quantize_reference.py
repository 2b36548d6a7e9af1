"""References, error terms and accepted alternatives of quantize, dequantize and per_token_quant_int8."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from optest.numerics import numpy_dtype, round_to, ulp
from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    as_float64,
    infer_from_arrays,
    optional_input,
    quiet_hooks,
    spec_of,
    widen,
)
from optest.operators.quantization.quantize import (
    channel_dim,
    infer_dequantize,
    infer_per_token_quant_int8,
    infer_quantize,
    quantized_range,
)
from optest.spec import DType, ErrorBudget, Fault, Reason, dtype

_FLOAT32 = dtype("float32")
_HALVES = ("float16", "bfloat16")
_ULPS = 3.0
# float32 holds halves below this number.
_EXACT_TIES = 2.0**23
_BEYOND_EVERY_DTYPE = 2.0**40
# float32 holds all integers up to this number.
_LARGEST_EXACT = 2.0**24


class _Quotient(NamedTuple):
    """Quotient of a quantize call before rounding, its operands, and the parameters applied after it."""

    value: Array
    operands: tuple[Array, Array]
    zero_point: Array
    low: int
    high: int
    result: DType


def quantize_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return round(input / scale) with ties to even, plus zero_point, saturated; infinity saturates, too.

    Raises:
        Fault: BAD_CASE for NaN, for which no integer is defined.
    """
    quotient = _quotient(inputs, attributes)
    return (_saturate(np.rint(quotient.value), quotient),)


def quantize_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Return a mask that accepts integers near the quotient, within 3 ulp of float32; of exact ties only the even one.

    A division may be off by 2.5 ulp (OpenCL C 3.0 §7.4), and so may the inverse of the scale, whose product with the
    input is rounded once more. An exact tie that float32 holds is a tie by either way if the scale is a power of two;
    for other scales the division decides, as it is the definition.

    For a 16-bit scale, the quotient may be rounded to 16 bits first, as ONNX defines it.
    """
    quotient = _quotient(inputs, attributes)
    value, (dividend, divisor) = quotient.value, quotient.operands
    is_half = np.abs(value - np.trunc(value)) == 0.5
    # The product shows whether the quotient is exact or was rounded to float64.
    is_exact = (value.astype(np.longdouble) * divisor == dividend) & (np.abs(value) < _EXACT_TIES)
    reach = np.where(is_half & is_exact, 0.0, _ULPS * ulp(value, _FLOAT32))
    # The ulp of infinity is not finite.
    reach = np.where(np.isfinite(reach), reach, 0.0)
    lowest, highest = (_saturate(np.rint(x), quotient) for x in (value - reach, value + reach))
    integers = widen(actual[0]).astype(np.int64)
    is_accepted = (integers >= lowest.astype(np.int64)) & (integers <= highest.astype(np.int64))
    scale = spec_of(np.asarray(inputs[1])).dtype
    if scale.name in _HALVES:
        narrow = _saturate(np.rint(as_float64(round_to(value, scale))), quotient)
        is_accepted |= integers == narrow.astype(np.int64)
    return (is_accepted,)


def _quotient(inputs: Inputs, attributes: Attributes) -> _Quotient:
    """Return the quotient of a call; raise Fault BAD_CASE if it is NaN."""
    (array, scale, *_), (result,) = infer_from_arrays(infer_quantize, inputs, attributes)
    low, high = quantized_range(result.dtype, attributes)
    values, divisor = as_float64(array), as_float64(_parameter_by_channel(scale, array, scale, attributes))
    quotient = values / divisor
    if np.isnan(quotient).any():
        raise Fault(Reason.BAD_CASE, "input / scale is NaN, for which no integer is defined; choose another fill")
    zero_point = _zero_point(inputs, attributes)
    return _Quotient(quotient, (values, divisor), zero_point, low, high, result.dtype)


def _saturate(rounded: Array, quotient: _Quotient) -> Array:
    """Return rounded quotients plus zero_point, saturated, in the output dtype."""
    # int64 cannot hold every float64; _BEYOND is beyond the range of every output dtype.
    integers = np.clip(rounded, -_BEYOND_EVERY_DTYPE, _BEYOND_EVERY_DTYPE).astype(np.int64) + quotient.zero_point
    return np.clip(integers, quotient.low, quotient.high).astype(numpy_dtype(quotient.result))


def _zero_point(inputs: Inputs, attributes: Attributes) -> Array:
    """Return the zero point as int64, ready to broadcast; 0 if it is missing."""
    zero_point = optional_input(inputs, 2)
    if zero_point is None:
        return np.zeros((), np.int64)
    array, scale = np.asarray(inputs[0]), np.asarray(inputs[1])
    return widen(_parameter_by_channel(zero_point, array, scale, attributes)).astype(np.int64)


def _parameter_by_channel(parameter: Array, array: Array, scale: Array, attributes: Attributes) -> Array:
    """Return `parameter` (scale or zero point), shaped to broadcast along axis of the input."""
    dim = channel_dim(spec_of(array), spec_of(scale), attributes)
    if dim is None:
        return parameter.reshape(())
    return parameter.reshape(tuple(-1 if i == dim else 1 for i in range(array.ndim)))


def dequantize_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return (input − zero_point) · scale, with an exact difference."""
    values, zero_point, scale = dequantized_parts(inputs, attributes)
    return (np.asarray((values - zero_point).astype(np.float64) * scale),)


def dequantized_parts(inputs: Inputs, attributes: Attributes) -> tuple[Array, Array, Array]:
    """Return input and zero point as int64, and scale as float64, ready to broadcast."""
    (array, scale, *_), _ = infer_from_arrays(infer_dequantize, inputs, attributes)
    factor = as_float64(_parameter_by_channel(scale, array, scale, attributes))
    return widen(array).astype(np.int64), _zero_point(inputs, attributes), factor


def dequantize_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the budget of integers beyond 24 bits; others lose nothing before the product.

    Integers of up to 24 bits and their difference are exact in float32. Beyond, converting the input and the zero point
    and their difference lose u of themselves each, times scale.
    """
    values, zero_point, scale = dequantized_parts(inputs, attributes)
    lost = _inexact_magnitude(values) + _inexact_magnitude(zero_point) + _inexact_magnitude(values - zero_point)
    worst = np.broadcast_to(lost * np.abs(scale), values.shape)
    return (ErrorBudget(worst),)


def _inexact_magnitude(integers: Array) -> Array:
    """Return the magnitude of integers that float32 cannot represent exactly, 0 for the others."""
    magnitude = np.abs(integers.astype(np.float64))
    return np.where(magnitude > _LARGEST_EXACT, magnitude, 0.0)


_LARGEST = 127.0
# Relative error of a quotient: scale and its inverse by quotients of 2.5 ulp, and their product with the element.
_REACH = 11.0 * 2.0**-24


def per_token_quant_int8_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the rows divided by their scales and rounded to int8, and the scales.

    Raises:
        Fault: BAD_CASE for NaN and infinity, for which no scale is defined.
    """
    infer_from_arrays(infer_per_token_quant_int8, inputs, attributes)
    quotient, scale = _divide_rows(inputs, attributes)
    if not np.isfinite(quotient).all():
        raise Fault(Reason.BAD_CASE, "input has NaN or infinity, for which no scale is defined; choose another fill")
    return np.rint(quotient).astype(np.int8), scale


def _divide_rows(inputs: Inputs, attributes: Attributes) -> tuple[Array, Array]:
    """Return the rows divided by their scales, and the scales."""
    x = as_float64(inputs[0])
    scale = np.maximum(np.abs(x).max(-1, keepdims=True, initial=0.0), attributes["eps"]) / _LARGEST
    return x / np.where(scale == 0.0, 1.0, scale), scale


def per_token_quant_int8_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return no error for out, an integer, and 5·|scale| for the scale, a quotient of 2.5 ulp."""
    quotient, scale = _divide_rows(inputs, attributes)
    return ErrorBudget(np.zeros(quotient.shape)), ErrorBudget(5.0 * scale)


def per_token_quant_int8_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Any]) -> Sequence[Any]:
    """Return a mask that accepts either integer at a tie within the errors of scale and quotient."""
    quotient, _ = _divide_rows(inputs, attributes)
    out = as_float64(actual[0])
    # Kernels round ties to even, or away from 0.
    return (np.abs(out - quotient) <= 0.5 + _REACH * np.abs(quotient)) & (np.abs(out) <= _LARGEST), None


def per_token_quant_int8_may_be_refused(inputs: Inputs, _attributes: Attributes) -> str:
    """Return why a call may raise an exception, for rows without elements; else an empty string."""
    # torch.amax and numpy.max raise for an empty row.
    return "a row without elements has no largest magnitude" if 0 in inputs[0].shape[-1:] else ""


quiet_hooks(globals())
