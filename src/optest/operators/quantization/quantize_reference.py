"""References, error budgets and equally right results of quantize, dequantize and per_token_quant_int8."""

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
    inferred,
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
_EXACT_TIES = 2.0**23
_BEYOND = 2.0**40
_EXACT = 2.0**24


class _Quotient(NamedTuple):
    """What is rounded, the operands that it is made of, and what is added after it."""

    value: Array
    operands: tuple[Array, Array]
    zero_point: Array
    low: int
    high: int
    result: DType


def quantize_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """round(input / scale) to the even neighbour at ties, plus zero_point, saturated; infinity saturates too.

    Raises:
        Fault: BAD_CASE for NaN, of which no integer is defined.
    """
    quotient = _quotient(inputs, attributes)
    return (_stored(np.rint(quotient.value), quotient),)


def quantize_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Array]) -> Sequence[Any]:
    """Every integer that a quotient within 3 ulp of float32 rounds to; of an exact tie only the even one.

    A division may be off by 2.5 ulp (OpenCL C 3.0 §7.4), and so may the inverse of the scale, whose product with the
    input is rounded once more. A quotient that float32 holds and that lies on a tie is one by either way for scales
    that are powers of two; ties of other scales are ties of the division, which is what is defined.

    A scale of 16 bits makes the quotient one of 16 bits, too, as ONNX defines it: what the rounded quotient rounds to.
    """
    quotient = _quotient(inputs, attributes)
    value, (dividend, divisor) = quotient.value, quotient.operands
    is_half = np.abs(value - np.trunc(value)) == 0.5
    is_exact = (value.astype(np.longdouble) * divisor == dividend) & (np.abs(value) < _EXACT_TIES)
    reach = np.where(is_half & is_exact, 0.0, _ULPS * ulp(value, _FLOAT32))
    reach = np.where(np.isfinite(reach), reach, 0.0)
    lowest, highest = (_stored(np.rint(each), quotient) for each in (value - reach, value + reach))
    got = widen(actual[0]).astype(np.int64)
    right = (got >= lowest.astype(np.int64)) & (got <= highest.astype(np.int64))
    scale = spec_of(np.asarray(inputs[1])).dtype
    if scale.name in _HALVES:
        narrow = _stored(np.rint(as_float64(round_to(value, scale))), quotient)
        right |= got == narrow.astype(np.int64)
    return (right,)


def _quotient(inputs: Inputs, attributes: Attributes) -> _Quotient:
    (array, scale, *_), (result,) = inferred(infer_quantize, inputs, attributes)
    low, high = quantized_range(result.dtype, attributes)
    values, divisor = as_float64(array), as_float64(_per_channel(scale, array, scale, attributes))
    quotient = values / divisor
    if np.isnan(quotient).any():
        raise Fault(Reason.BAD_CASE, "input / scale is NaN, for which no integer is defined; choose another fill")
    zero_point = _zero_point(inputs, attributes)
    return _Quotient(quotient, (values, divisor), zero_point, low, high, result.dtype)


def _stored(rounded: Array, quotient: _Quotient) -> Array:
    """Rounded quotients with the zero point added, saturated, in the dtype of the result."""
    integers = np.clip(rounded, -_BEYOND, _BEYOND).astype(np.int64) + quotient.zero_point
    return np.clip(integers, quotient.low, quotient.high).astype(numpy_dtype(quotient.result))


def _zero_point(inputs: Inputs, attributes: Attributes) -> Array:
    """0 where it is left out."""
    given = optional_input(inputs, 2)
    if given is None:
        return np.zeros((), np.int64)
    array, scale = np.asarray(inputs[0]), np.asarray(inputs[1])
    return widen(_per_channel(given, array, scale, attributes)).astype(np.int64)


def _per_channel(parameter: Array, array: Array, scale: Array, attributes: Attributes) -> Array:
    """The scale or the zero point, shaped so that it broadcasts along the input's ``axis``."""
    dim = channel_dim(spec_of(array), spec_of(scale), attributes)
    if dim is None:
        return parameter.reshape(())
    return parameter.reshape(tuple(-1 if each == dim else 1 for each in range(array.ndim)))


def dequantize_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """(input − zero_point) · scale; the difference is exact."""
    values, zero_point, scale = dequantized_parts(inputs, attributes)
    return (np.asarray((values - zero_point).astype(np.float64) * scale),)


def dequantized_parts(inputs: Inputs, attributes: Attributes) -> tuple[Array, Array, Array]:
    """The input and the zero point as int64, and the scale as float64, ready to broadcast."""
    (array, scale, *_), _ = inferred(infer_dequantize, inputs, attributes)
    factor = as_float64(_per_channel(scale, array, scale, attributes))
    return widen(array).astype(np.int64), _zero_point(inputs, attributes), factor


def dequantize_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Integers of up to 24 bits and their difference are exact in float32, so that only the product is rounded.

    Beyond, the conversion of the input, that of the zero point and the difference lose u of themselves each, times
    scale.
    """
    values, zero_point, scale = dequantized_parts(inputs, attributes)
    lost = _beyond(values) + _beyond(zero_point) + _beyond(values - zero_point)
    worst = np.broadcast_to(lost * np.abs(scale), values.shape)
    return (ErrorBudget(worst),)


def _beyond(integers: Array) -> Array:
    magnitude = np.abs(integers.astype(np.float64))
    return np.where(magnitude > _EXACT, magnitude, 0.0)


_LARGEST = 127.0
_REACH = 11.0 * 2.0**-24
"""Scale and its inverse by quotients of 2.5 ulp, and their product with the element."""


def per_token_quant_int8_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Raises:
    Fault: BAD_CASE for NaN and infinity, of which no scale is defined.
    """
    inferred(infer_per_token_quant_int8, inputs, attributes)
    quotient, scale = _by_rows(inputs, attributes)
    if not np.isfinite(quotient).all():
        raise Fault(Reason.BAD_CASE, "input is NaN or infinite, of which no scale is defined; choose another fill")
    return np.rint(quotient).astype(np.int8), scale


def _by_rows(inputs: Inputs, attributes: Attributes) -> tuple[Array, Array]:
    """Return the rows divided by their scales, and the scales."""
    x = as_float64(inputs[0])
    scale = np.maximum(np.abs(x).max(-1, keepdims=True, initial=0.0), attributes["eps"]) / _LARGEST
    return x / np.where(scale == 0.0, 1.0, scale), scale


def per_token_quant_int8_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """The scale is a quotient, 5·|scale| for 2.5 ulp; out is an integer."""
    quotient, scale = _by_rows(inputs, attributes)
    return ErrorBudget(np.zeros(quotient.shape)), ErrorBudget(5.0 * scale)


def per_token_quant_int8_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Any]) -> Sequence[Any]:
    """Either integer at a tie within the errors of scale and quotient: kernels round ties to even, or away from 0."""
    quotient, _ = _by_rows(inputs, attributes)
    out = as_float64(actual[0])
    return (np.abs(out - quotient) <= 0.5 + _REACH * np.abs(quotient)) & (np.abs(out) <= _LARGEST), None


def per_token_quant_int8_may_be_refused(inputs: Inputs, _attributes: Attributes) -> str:
    """An exception is as right as an answer where a row has no maximum, since amax of torch and NumPy raise it."""
    return "a row without elements has no largest magnitude" if 0 in inputs[0].shape[-1:] else ""


quiet_hooks(globals())
