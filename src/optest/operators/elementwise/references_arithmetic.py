"""Sums, products, quotients and powers, in float64 from the inputs as they are stored; integers are exact and wrap."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, converted, quiet, spec_of
from optest.operators.elementwise.inference import infer_add, infer_number, infer_sub
from optest.operators.elementwise.operands import meet
from optest.operators.elementwise.quotients import floor_quotient, floor_remainder, trunc_quotient, trunc_remainder
from optest.operators.real_functions import spacious, spared
from optest.operators.shapes import as_float
from optest.spec import DType, Kind

__all__ = [
    "add_reference",
    "div_reference",
    "floor_divide_reference",
    "fmod_reference",
    "mul_reference",
    "pow_reference",
    "remainder_reference",
    "sub_reference",
]


@quiet
def add_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """input + alpha · other in the common dtype; bool is logical or, integers wrap."""
    result, a, b = meet(inputs)
    alpha = attributes.get("alpha", 1.0)
    if alpha == 1 and result.is_inexact:
        return (np.asarray(a + b),)  # the common case, without inference
    infer_add((spec_of(np.asarray(inputs[0])), spec_of(np.asarray(inputs[1]))), attributes)
    if result.kind is Kind.BOOL:
        return (a | (b & bool(alpha)),)
    return (_scaled_sum(result, a, b, alpha),)


@quiet
def sub_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """input - alpha · other in the common dtype; integers wrap."""
    infer_sub((spec_of(np.asarray(inputs[0])), spec_of(np.asarray(inputs[1]))), attributes)
    result, a, b = meet(inputs)
    alpha = attributes.get("alpha", 1.0)
    if result.is_integer:
        return (np.asarray(a - b * a.dtype.type(int(alpha))),)
    return (np.asarray(a - b) if alpha == 1 else _scaled_sum(result, a, b, -alpha),)


def _scaled_sum(result: DType, a: Array, b: Array, alpha: float) -> Array:
    if result.is_integer:
        return np.asarray(a + b * a.dtype.type(int(alpha)))
    if result.name == "float64":  # rounded once and without overflow on the way, as fused operations do
        return np.asarray(a + np.longdouble(alpha) * b).astype(np.float64)
    return np.asarray(a + alpha * b)


@quiet
def mul_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """input · other in the common dtype; bool is logical and, integers wrap."""
    result, a, b = meet(inputs)
    return (np.asarray(a & b if result.kind is Kind.BOOL else a * b),)


@quiet
def div_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The quotient: true, towards zero (``trunc``) or downwards (``floor``)."""
    mode = attributes.get("rounding_mode")
    if mode is not None:
        return _rounded_quotient(inputs, attributes, mode)
    result, a, b = meet(inputs)
    if result.is_inexact:
        return (np.asarray(a / b),)
    quotient = as_float(result)  # integers of any dtype are rounded to float32 themselves, not their common dtype
    left, right = (converted(np.asarray(each), quotient) for each in inputs[:2])
    return (np.asarray(left / right),)


@quiet
def floor_divide_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The quotient rounded downwards, as torch has it where operands are not finite: the floor of what ``fmod`` leaves.

    What stands where a quotient of integers is undefined, here and below, is judged by nobody: see ``alternatives``.
    """
    return _rounded_quotient(inputs, attributes, "floor")


def _rounded_quotient(inputs: Inputs, attributes: Attributes, mode: str) -> tuple[Array, ...]:
    infer_number((spec_of(np.asarray(inputs[0])), spec_of(np.asarray(inputs[1]))), attributes)
    _, a, b = meet(inputs)
    function = floor_quotient if mode == "floor" else trunc_quotient
    return (_with_room(function, inputs, a, b),)


@quiet
def remainder_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """What the division downwards leaves, with the sign of the divisor."""
    infer_number((spec_of(np.asarray(inputs[0])), spec_of(np.asarray(inputs[1]))), attributes)
    _, a, b = meet(inputs)
    return (_with_room(floor_remainder, inputs, a, b),)


@quiet
def fmod_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """What the division towards zero leaves, with the sign of the dividend."""
    infer_number((spec_of(np.asarray(inputs[0])), spec_of(np.asarray(inputs[1]))), attributes)
    _, a, b = meet(inputs)
    return (_with_room(trunc_remainder, inputs, a, b),)


def _with_room(function: Callable[[Array, Array], Array], inputs: Inputs, a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu":
        return np.asarray(function(a, b))
    stored = tuple(np.asarray(each) for each in inputs[:2])
    return spared(function(spacious(a, *stored), spacious(b, *stored)))


@quiet
def pow_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """input to the power of exponent, with the special cases of C (Annex F.10.4.4) and IEEE 754-2019 §9.2.1.

    Integers wrap; to a negative power 1 gives 1, -1 gives 1 or -1, and everything else 0, as in torch.
    """
    infer_number((spec_of(np.asarray(inputs[0])), spec_of(np.asarray(inputs[1]))), attributes)
    _, base, exponent = meet(inputs)
    if base.dtype.kind in "iu":
        return (_integer_power(base, exponent),)
    return (_with_room(np.power, inputs, base, exponent),)


def _integer_power(base: Array, exponent: Array) -> Array:
    negative = exponent < 0
    power = np.power(base, np.where(negative, 0, exponent).astype(base.dtype))
    if not negative.any():
        return np.asarray(power)
    one = base.dtype.type(1)
    of_minus_one = np.where(exponent & one, -one, one)
    inverse = np.where(base == 1, one, np.where(base == -1, of_minus_one, base.dtype.type(0)))
    return np.asarray(np.where(negative, inverse, power), dtype=base.dtype)
