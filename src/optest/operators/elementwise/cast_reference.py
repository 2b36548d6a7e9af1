"""What conversion gives."""

from __future__ import annotations

import numpy as np

from optest.numerics import numpy_dtype
from optest.operators.arrays import Array, Attributes, Inputs, converted, quiet_hooks, widen
from optest.spec import DType, Fault, Kind, Reason, dtype


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
    if values.dtype.kind in "iu":
        return (_integers_as_floats(values, target, saturate=bool(attributes.get("saturate"))),)
    return (converted(values, target),)


def _integers_as_floats(values: Array, target: DType, *, saturate: bool) -> Array:
    """Rounded to ``target`` here, once, but for those beyond its range, which float64 tells apart well enough."""
    if target.max_finite >= 2.0**64:
        return np.asarray(converted(values, target))
    exact = values.astype(np.float64)
    beyond = np.abs(exact) > target.max_finite
    rounded = converted(np.where(beyond, np.zeros((), values.dtype), values), target).astype(np.float64)
    limit = target.max_finite if saturate else np.inf
    return np.where(beyond, np.clip(exact, -limit, limit), rounded)


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


quiet_hooks(globals())
