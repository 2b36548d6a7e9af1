"""Which results beside the reference's are as right, where a function jumps: the other side of a step that the
arithmetic cannot tell from this one. On the step itself (an exact tie) one answer alone is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from optest import numerics
from optest.numerics import dtype_of, round_to, ulp
from optest.operators.arrays import Array, Attributes, Inputs
from optest.operators.elementwise.operands import meet
from optest.operators.elementwise.quotients import floor_quotient, floor_remainder, is_undefined, trunc_quotient
from optest.operators.real_functions import spacious
from optest.spec import AsRight, DType, dtype

__all__ = [
    "div_alternatives",
    "floor_divide_alternatives",
    "fmod_alternatives",
    "quotient_may_be_refused",
    "remainder_alternatives",
    "remainder_may_be_refused",
    "round_alternatives",
]

_DIVISION_ULP = 2.5
"""Of a quotient: OpenCL C 3.0 §7.4."""

Masks = tuple[Array | AsRight | None, ...]


def _arithmetic(result: DType) -> DType:
    return result if result.name == "float64" else dtype("float32")


class _Step(NamedTuple):
    """The whole number next to a quotient, and whether the quotient lies within its own bound of it but not on it.

    Beside an infinite divisor there is no step to miss: -5 is divided by infinity into -1 as PyTorch defines it.
    """

    nearest: Array
    is_near: Array


def _step(result: DType, a: Array, b: Array) -> _Step:
    left = np.fmod(a, b)
    share = np.abs(left / b)
    sign = np.sign(a) * np.sign(b)
    nearest = np.rint((a - left) / b) + np.where(share > 0.5, sign, 0.0)
    bound = _DIVISION_ULP * ulp(np.abs(a / b).astype(np.float64), _arithmetic(result))
    return _Step(nearest, (left != 0) & np.isfinite(b) & (np.minimum(share, 1 - share) <= bound))


def _operands(inputs: Inputs) -> tuple[DType, Array, Array] | None:
    result, a, b = meet(inputs)
    if not result.is_float:
        return None
    stored = tuple(np.asarray(each) for each in inputs[:2])
    return result, spacious(a, *stored), spacious(b, *stored)


def _holds(actual: Any, other: Array) -> Array:
    """Where the output is ``other`` in its dtype."""
    got = np.asarray(actual)
    return np.asarray(numerics.widen(got) == numerics.widen(round_to(other.astype(np.float64), dtype_of(got.dtype))))


def floor_divide_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Any]) -> Masks:
    return div_alternatives(inputs, {**attributes, "rounding_mode": "floor"}, actual)


def div_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Any]) -> Masks:
    """The whole number on the other side of the step, where the quotient lies within 2.5 ulp of one."""
    mode = attributes.get("rounding_mode")
    if mode is None:
        return (None,)
    operands = _operands(inputs)
    if operands is None:
        return _undefined(inputs, overflows=True)
    with np.errstate(all="ignore"):
        nearest, is_near = _step(*operands)
        if mode == "floor":
            other = 2 * nearest - 1 - floor_quotient(*operands[1:])
        else:
            other = 2 * nearest - np.sign(nearest) - trunc_quotient(*operands[1:])
        return (is_near & _holds(actual[0], other),)


def remainder_alternatives(inputs: Inputs, _attributes: Attributes, actual: Sequence[Any]) -> Masks:
    """One divisor more or less, where the quotient lies within 2.5 ulp of a whole number."""
    operands = _operands(inputs)
    if operands is None:
        return _undefined(inputs, overflows=False)
    _, a, b = operands
    with np.errstate(all="ignore"):
        nearest, is_near = _step(*operands)
        left = floor_remainder(a, b)
        other = np.where(floor_quotient(a, b) == nearest, left + b, left - b)
        return (is_near & _holds(actual[0], other),)


def fmod_alternatives(inputs: Inputs, _attributes: Attributes, _actual: Sequence[Any]) -> Masks:
    """Anything where a remainder of integers is undefined."""
    return (None,) if meet(inputs)[0].is_float else _undefined(inputs, overflows=False)


def _undefined(inputs: Inputs, *, overflows: bool) -> Masks:
    _, a, b = meet(inputs)
    mask = np.broadcast_to(is_undefined(a, b, overflows=overflows), np.broadcast_shapes(a.shape, b.shape))
    if not mask.any():
        return (None,)
    doubt = "every element is an integer divided by 0, or the smallest one by -1, which has no right answer"
    return (AsRight(mask, doubt if mask.all() else ""),)


def quotient_may_be_refused(inputs: Inputs, attributes: Attributes) -> str:
    """Why an exception is as right as an answer, "" where it is not."""
    return "" if attributes.get("rounding_mode", "floor") is None else _why_refused(inputs, overflows=True)


def remainder_may_be_refused(inputs: Inputs, _attributes: Attributes) -> str:
    """See :func:`quotient_may_be_refused`."""
    return _why_refused(inputs, overflows=False)


def _why_refused(inputs: Inputs, *, overflows: bool) -> str:
    result, a, b = meet(inputs)
    if result.is_float or not is_undefined(a, b, overflows=overflows).any():
        return ""
    return "an integer divided by 0 has no right answer" + (", nor has the smallest one by -1" if overflows else "")


def round_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Any]) -> Masks:
    """The decimal on the other side, where the input times the power of ten lies within 2.5 ulp of a half.

    Without decimals nothing is multiplied and every half is exact.
    """
    decimals, array = attributes.get("decimals", 0), np.asarray(inputs[0])
    if not decimals:
        return (None,)
    return (_other_decimal(array, decimals, actual[0]),)


def _other_decimal(array: Array, decimals: int, actual: Any) -> Array:
    wide, out = spacious(numerics.widen(array), array), dtype_of(array.dtype)
    ten = wide.dtype.type(10) ** abs(decimals)
    with np.errstate(all="ignore"):
        scaled = wide * ten if decimals > 0 else wide / ten
        half = np.floor(scaled) + 0.5
        distance = np.abs(scaled - half)
        spacing = ulp(np.abs(scaled).astype(np.float64), _arithmetic(out))
        is_near = (distance != 0) & (distance <= _DIVISION_ULP * spacing)
        other = 2 * half - np.rint(scaled)
        value = (other / ten if decimals > 0 else other * ten).astype(np.float64)
        size = np.abs(value)
        lost = _DIVISION_ULP * ulp(size, _arithmetic(out)) + 0.5 * ulp(size, out)
        return np.asarray(is_near & (np.abs(numerics.widen(np.asarray(actual)) - value) <= lost))
