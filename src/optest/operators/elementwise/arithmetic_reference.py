"""What sums, products, powers and quotients compute, what they may lose, and what is as right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from optest import numerics
from optest.numerics import dtype_of, round_to, ulp
from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    as_float64,
    converted,
    inferred,
    quiet_hooks,
    spec_of,
    widen,
)
from optest.operators.budgets import half_subnormal
from optest.operators.elementwise.arithmetic import infer_add, infer_logaddexp, infer_sub
from optest.operators.elementwise.helpers import infer_number
from optest.operators.real_functions import spacious, spared
from optest.operators.shapes import as_float, promote_tensors
from optest.spec import AsRight, DType, ErrorBudget, Kind, dtype

DIVISION_ULP = 2.5
"""Of a quotient: OpenCL C 3.0 §7.4."""
Masks = tuple[Array | AsRight | None, ...]
_FLOAT32_U = 2.0**-24
_SQRT5 = 5.0**0.5


def add_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """input + alpha · other in the common dtype; bool is logical or, integers wrap."""
    result, a, b = meet(inputs)
    alpha = attributes.get("alpha", 1.0)
    if alpha == 1 and result.is_inexact:
        return (np.asarray(a + b),)  # the common case, without inference
    inferred(infer_add, inputs, attributes)
    if result.kind is Kind.BOOL:
        return (a | (b & bool(alpha)),)
    return (_scaled_sum(result, a, b, alpha),)


def sub_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """input - alpha · other in the common dtype; integers wrap."""
    inferred(infer_sub, inputs, attributes)
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


def mul_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """input · other in the common dtype; bool is logical and, integers wrap."""
    result, a, b = meet(inputs)
    return (np.asarray(a & b if result.kind is Kind.BOOL else a * b),)


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


def floor_divide_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """The quotient rounded downwards, as torch has it where operands are not finite: the floor of what ``fmod`` leaves.

    What stands where a quotient of integers is undefined, here and below, is judged by nobody: see ``alternatives``.
    """
    return _rounded_quotient(inputs, attributes, "floor")


def _rounded_quotient(inputs: Inputs, attributes: Attributes, mode: str) -> tuple[Array, ...]:
    a, b = _numbers(inputs, attributes)
    function = floor_quotient if mode == "floor" else trunc_quotient
    return (_with_room(function, inputs, a, b),)


def remainder_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """What the division downwards leaves, with the sign of the divisor."""
    a, b = _numbers(inputs, attributes)
    return (_with_room(floor_remainder, inputs, a, b),)


def fmod_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """What the division towards zero leaves, with the sign of the dividend."""
    a, b = _numbers(inputs, attributes)
    return (_with_room(trunc_remainder, inputs, a, b),)


def _numbers(inputs: Inputs, attributes: Attributes) -> tuple[Array, Array]:
    """Both operands, which should not be bool."""
    inferred(infer_number, inputs, attributes)
    return meet(inputs)[1:]


def _with_room(function: Callable[[Array, Array], Array], inputs: Inputs, a: Array, b: Array) -> Array:
    if a.dtype.kind in "iu":
        return np.asarray(function(a, b))
    stored = tuple(np.asarray(each) for each in inputs[:2])
    return spared(function(spacious(a, *stored), spacious(b, *stored)))


def pow_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """input to the power of exponent, with the special cases of C (Annex F.10.4.4) and IEEE 754-2019 §9.2.1.

    Integers wrap; to a negative power 1 gives 1, -1 gives 1 or -1, and everything else 0, as in torch.
    """
    base, exponent = _numbers(inputs, attributes)
    if base.dtype.kind in "iu":
        return (_integer_power(base, exponent),)
    return (_with_room(np.power, inputs, base, exponent),)


def logaddexp_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """max + log1p(exp(−|input − other|)), and the infinity itself of two that are equal."""
    inferred(infer_logaddexp, inputs, attributes)
    return (_with_room(np.logaddexp, inputs, *meet(inputs)[1:]),)


def _integer_power(base: Array, exponent: Array) -> Array:
    negative = exponent < 0
    power = np.power(base, np.where(negative, 0, exponent).astype(base.dtype))
    if not negative.any():
        return np.asarray(power)
    one = base.dtype.type(1)
    of_minus_one = np.where(exponent & one, -one, one)
    inverse = np.where(base == 1, one, np.where(base == -1, of_minus_one, base.dtype.type(0)))
    return np.asarray(np.where(negative, inverse, power), dtype=base.dtype)


def arithmetic(result: DType) -> DType:
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
    bound = DIVISION_ULP * ulp(np.abs(a / b).astype(np.float64), arithmetic(result))
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


def add_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """The addition itself is correctly rounded; alpha ≠ 1 adds the roundings of alpha and of alpha · other.

    Where the result is narrower than float32, both may also be rounded to its dtype, as torch on a CPU does in some
    elements of a tensor. The rule allows the difference, which is nothing for 2 or 0.5.

    Complex: each component is rounded, so the error reaches u of the magnitude. Half an ulp of the magnitude may be
    only u/2; the rest is added.
    """
    alpha = attributes.get("alpha", 1.0)
    if _is_complex(inputs):
        return _complex_sum_terms(inputs, attributes)
    if alpha == 1:
        return (None,)
    (_, right), (result,) = inferred(infer_add, inputs, attributes)
    product = alpha * as_float64(right)
    worst = 2.0 * np.abs(product)
    if result.dtype.is_float and result.dtype.bits < 32:
        read = float(widen(round_to(np.float64(alpha), result.dtype))) * as_float64(right)
        rounded = widen(round_to(read, result.dtype))
        worst = worst + np.maximum(np.abs(read - product), np.abs(rounded - product)) / _FLOAT32_U
    return (ErrorBudget(np.minimum(np.broadcast_to(worst, result.shape), np.finfo(np.float64).max)),)


def sub_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """As for add."""
    if _is_complex(inputs):
        return _complex_sum_terms(inputs, {"alpha": -attributes.get("alpha", 1.0)})
    return add_terms(inputs, attributes)


def _is_complex(inputs: Inputs) -> bool:
    return any(np.asarray(each).dtype.kind == "c" for each in inputs[:2])


def _complex_sum_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget]:
    _, a, b = meet(inputs)
    alpha = attributes.get("alpha", 1.0)
    scaled = 0.0 if abs(alpha) == 1 else 2.0 * np.abs(alpha * b)
    return (ErrorBudget(finite(0.5 * np.abs(a + alpha * b) + scaled)),)


def mul_terms(inputs: Inputs, _attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """None for real numbers, whose product is correctly rounded.

    A component of a complex product is a difference or a sum of two products, which may cancel. The whole is off by
    √5·u·|a·b| at most, however it cancels (Brent, Percival, Zimmermann, "Error bounds on complex floating-point
    multiplication", Math. Comp. 76, 2007). Half an ulp of |a·b|, at least u/2 of it, is allowed already. Each of the
    four products may be rounded to a subnormal number.
    """
    if not _is_complex(inputs):
        return (None,)
    result, a, b = meet(inputs)
    lost = 2.0**1.5 * half_subnormal(double=result.name == "complex128")
    return (ErrorBudget(finite((_SQRT5 - 0.5) * np.abs(a) * np.abs(b) + lost)),)


def logaddexp_terms(inputs: Inputs, _attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """What max + L loses before that sum is rounded, with d = |input − other| and L = log1p(exp(−d)).

    exp(−d) is off by ``2d + 6`` of itself: d is rounded once, and once more on the way to base 2; exp loses 3 ulp. Of
    it L keeps the share s = 1 / (1 + exp(d)). The logarithm loses 3 ulp, 6·L. A logarithm of the rounded 1 + exp(−d)
    would lose u, which is all of L where d is large.
    """
    _, a, b = meet(inputs)
    d = np.abs(a - b).astype(np.float64)
    e = np.exp(-d)
    lost = np.where(e > 0.0, e / (1.0 + e) * (2.0 * d + 6.0), 0.0)
    return (ErrorBudget(finite(6.0 * np.log1p(e) + lost)),)


def finite(worst: Array) -> Array:
    """No bound is infinite or NaN: where the result is, its class decides."""
    return np.asarray(np.nan_to_num(worst, nan=0.0, posinf=np.finfo(np.float64).max))


def meet(inputs: Inputs) -> tuple[DType, Array, Array]:
    """The common dtype of the first two inputs, and both as it holds them, widened.

    A 0-d float that is wider than the result is read unrounded.
    """
    left, right = np.asarray(inputs[0]), np.asarray(inputs[1])
    if left.dtype == right.dtype:
        return dtype_of(left.dtype), numerics.widen(left), numerics.widen(right)
    result = promote_tensors((spec_of(left), spec_of(right)))
    return result, converted(left, result), converted(right, result)


def floor_quotient(a: Array, b: Array) -> Array:
    """⌊a / b⌋ of floats or integers; NaN where a is infinite, the sign's infinity where only b is 0."""
    if a.dtype.kind in "iu":
        return np.asarray(np.floor_divide(a, _divisor(a, b)))
    left = np.fmod(a, b)
    whole = np.rint((a - left) / b)
    return np.where(b == 0, a / b, np.where(_crosses(left, b), whole - 1, _signed(whole, a / b)))


def trunc_quotient(a: Array, b: Array) -> Array:
    """a / b without its fraction."""
    if a.dtype.kind in "iu":
        divisor = _divisor(a, b)
        return np.asarray((a - np.fmod(a, divisor)) // divisor)
    quotient = a / b
    return np.where((b == 0) | np.isinf(a), quotient, _signed(np.rint((a - np.fmod(a, b)) / b), quotient))


def _signed(whole: Array, quotient: Array) -> Array:
    """A quotient that is rounded to 0 keeps its sign: IEEE 754-2019 §5.9."""
    return np.asarray(np.where(whole == 0, np.copysign(whole, quotient), whole))


def floor_remainder(a: Array, b: Array) -> Array:
    """a - b·⌊a / b⌋, of the sign of b."""
    if a.dtype.kind in "iu":
        return np.asarray(np.remainder(a, _divisor(a, b)))
    left = np.fmod(a, b)
    return np.where(_crosses(left, b), left + b, left)


def trunc_remainder(a: Array, b: Array) -> Array:
    """a - b·trunc(a / b), of the sign of a."""
    return np.asarray(np.fmod(a, _divisor(a, b) if a.dtype.kind in "iu" else b))


def _crosses(left: Array, b: Array) -> Array:
    """Where rounding towards zero is not rounding downwards."""
    return np.asarray((left != 0) & ((left < 0) != (b < 0)))


def is_undefined(a: Array, b: Array, *, overflows: bool) -> Array:
    """Where C leaves the quotient of integers undefined (C17 6.5.5): a divisor of 0; where it ``overflows``, as a
    quotient does and a remainder does not, also the smallest number over -1."""
    undefined = np.asarray(b == 0)
    if overflows and a.dtype.kind == "i":
        undefined = undefined | ((a == np.iinfo(a.dtype).min) & (b == -1))
    return undefined


def _divisor(a: Array, b: Array) -> Array:
    """1 where the quotient is undefined: NumPy would warn. It leaves the remainder that -1 leaves, 0."""
    return np.where(is_undefined(a, b, overflows=True), np.ones_like(b), b)


quiet_hooks(globals())
