"""Reference of cast."""

from __future__ import annotations

import numpy as np

from optest.numerics import numpy_dtype
from optest.operators.arrays import Array, Attributes, Inputs, quiet_hooks, round_to_operand_dtype, widen
from optest.spec import DType, Fault, Kind, Reason, dtype


def cast_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the input in the requested dtype, unrounded if that is a float: conversion as torch and C define it.

    Integers wrap, floats lose their fraction in integers, every value except 0 becomes true (NaN too). Negative
    floats wrap in unsigned targets, as torch defines it for uint8. Integers are rounded to a float target here.

    Raises:
        Fault: BAD_CASE, for a float that an integer target cannot hold, NaN included: its conversion is undefined.
    """
    array, target = np.asarray(inputs[0]), dtype(attributes["dtype"])
    values = widen(array)
    if target.kind is Kind.BOOL:
        return (np.asarray(values != 0),)
    if target.is_integer:
        return (_as_integers(values, target),)
    if target.is_complex:
        return (values.astype(np.complex128),)
    if values.dtype.kind == "f":
        return (np.clip(values, -target.max_finite, target.max_finite) if attributes.get("saturate") else values,)
    if values.dtype.kind in "iu":
        return (_integers_as_floats(values, target, saturate=bool(attributes.get("saturate"))),)
    return (round_to_operand_dtype(values, target),)


def _integers_as_floats(values: Array, target: DType, *, saturate: bool) -> Array:
    """Return integers rounded to ``target``; those beyond its range become infinite, or its largest if ``saturate``."""
    # float64 does not hold every integer, and a rounding to it first would be one too many.
    if target.max_finite >= 2.0**64:
        return np.asarray(round_to_operand_dtype(values, target))
    exact = values.astype(np.float64)
    beyond = np.abs(exact) > target.max_finite
    rounded = round_to_operand_dtype(np.where(beyond, np.zeros((), values.dtype), values), target).astype(np.float64)
    limit = target.max_finite if saturate else np.inf
    return np.where(beyond, np.clip(exact, -limit, limit), rounded)


def _as_integers(values: Array, target: DType) -> Array:
    """Return the values as integers of ``target``: integers wrap, floats lose their fraction or raise Fault."""
    if values.dtype.kind == "f":
        integral = np.trunc(values)
        _refuse_undefined(values, integral, target)
        # float64 → int64 covers everything except the upper half of uint64.
        high = integral >= 2.0**63
        integers = np.where(high, integral - 2.0**63, integral).astype(np.int64)
        integers = np.where(high, integers ^ np.int64(-(2**63)), integers)
    else:
        integers = values
    if target.bits >= 8:
        return np.asarray(integers.astype(numpy_dtype(target)))
    # 4-bit integers, in two's complement: keep the lower half of the byte and extend its sign.
    low = integers.astype(np.uint8) & np.uint8(15)
    if target.kind is Kind.UINT:
        return np.asarray(low)
    return np.asarray((low ^ np.uint8(8)).astype(np.int8) - np.int8(8))


def _refuse_undefined(values: Array, integral: Array, target: DType) -> None:
    """Raise Fault for the first float whose integral part ``target`` cannot hold; negative ones wrap if unsigned."""
    lowest = float(target.min_int) if target.kind is Kind.INT else -(2.0**63)
    is_defined = (integral >= lowest) & (integral < 2.0 ** (target.bits - (target.kind is Kind.INT)))
    if is_defined.all():
        return
    index = np.unravel_index(int(np.argmin(is_defined)), is_defined.shape)
    raise Fault(
        Reason.BAD_CASE,
        f"input is {values[index]} at {[int(axis) for axis in index]}, expected a value in the range of {target}: the "
        "conversion of any other is undefined; choose another fill or range",
    )


quiet_hooks(globals())
