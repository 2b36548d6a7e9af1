"""What the elementwise operators and conversion compute, in float64 from the inputs as they are stored."""

from __future__ import annotations

import numpy as np

from optest.numerics import dtype_of, numpy_dtype
from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    converted,
    quiet,
    spec_of,
    widen,
)
from optest.operators.elementwise.inference import infer_add, infer_div, infer_exp
from optest.spec import DType, Fault, Kind, Reason, dtype

__all__ = [
    "add_reference",
    "cast_reference",
    "div_reference",
    "exp_reference",
]


@quiet
def add_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """input + alpha · other in the common dtype; bool is logical or, integers wrap."""
    left, right = np.asarray(inputs[0]), np.asarray(inputs[1])
    alpha = attributes.get("alpha", 1.0)
    if alpha == 1 and left.dtype == right.dtype and dtype_of(left.dtype).is_inexact:
        return (np.asarray(widen(left) + widen(right)),)  # the common case, without inference
    (result,) = infer_add((spec_of(left), spec_of(right)), attributes)
    a, b = converted(left, result.dtype), converted(right, result.dtype)
    if result.dtype.kind is Kind.BOOL:
        return (a | (b & bool(alpha)),)
    if result.dtype.is_integer:
        return (np.asarray(a + b * a.dtype.type(int(alpha))),)
    if alpha == 1:
        return (np.asarray(a + b),)
    if result.dtype.name == "float64":  # rounded once and without overflow on the way, as fused operations do
        return (np.asarray(a + np.longdouble(alpha) * b).astype(np.float64),)
    return (np.asarray(a + alpha * b),)


@quiet
def div_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    left, right = np.asarray(inputs[0]), np.asarray(inputs[1])
    (result,) = infer_div((spec_of(left), spec_of(right)), attributes)
    return (np.asarray(converted(left, result.dtype) / converted(right, result.dtype)),)


@quiet
def exp_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    (result,) = infer_exp((spec_of(array),), attributes)
    return (np.asarray(np.exp(converted(array, result.dtype))),)


@quiet
def cast_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Conversion as torch and C do it.

    Integers wrap, floats lose their fraction on the way to integers, whatever is not 0 becomes true (NaN too).
    Integers that float64 does not hold are rounded to the target here, once. Floats below 0 wrap in unsigned
    targets, as torch defines it for uint8.

    Raises:
        Fault: BAD_CASE, for a float that an integer target cannot hold, NaN included: its conversion is undefined.
    """
    array, target = np.asarray(inputs[0]), dtype(attributes["dtype"])
    values = widen(array)
    if target.kind is Kind.BOOL:
        return (np.asarray(values != 0),)
    if target.is_integer:
        return (_to_integer(values, target),)
    if target.is_complex:
        return (values.astype(np.complex128),)
    if values.dtype.kind == "f":
        return (np.clip(values, -target.max_finite, target.max_finite) if attributes.get("saturate") else values,)
    return (converted(values, target),)


def _to_integer(values: Array, target: DType) -> Array:
    if values.dtype.kind == "f":
        whole = np.trunc(values)
        _refuse_undefined(values, whole, target)
        # float64 → int64 covers everything but the upper half of uint64.
        high = whole >= 2.0**63
        integers = np.where(high, whole - 2.0**63, whole).astype(np.int64)
        integers = np.where(high, integers ^ np.int64(-(2**63)), integers)
    else:
        integers = values
    if target.bits >= 8:
        return np.asarray(integers.astype(numpy_dtype(target)))
    low = integers.astype(np.uint8) & np.uint8(15)
    if target.kind is Kind.UINT:
        return np.asarray(low)
    return np.asarray((low ^ np.uint8(8)).astype(np.int8) - np.int8(8))


def _refuse_undefined(values: Array, whole: Array, target: DType) -> None:
    lowest = float(target.min_int) if target.kind is Kind.INT else -(2.0**63)
    held = (whole >= lowest) & (whole < 2.0 ** (target.bits - (target.kind is Kind.INT)))
    if held.all():
        return
    place = np.unravel_index(int(np.argmin(held)), held.shape)
    raise Fault(
        Reason.BAD_CASE,
        f"input is {values[place]} at {[int(index) for index in place]}, but should lie in the range of {target}: the "
        "conversion of anything else is undefined; choose another fill or range",
    )
