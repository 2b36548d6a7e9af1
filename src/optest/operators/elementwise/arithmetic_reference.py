"""References, error terms and alternative results of sums, products, powers, quotients and remainders."""

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
    infer_from_arrays,
    quiet_hooks,
    round_to_operand_dtype,
    spec_of,
    widen,
)
from optest.operators.budgets import half_subnormal
from optest.operators.elementwise.arithmetic import infer_add, infer_logaddexp, infer_sub
from optest.operators.elementwise.helpers import infer_number
from optest.operators.real_functions import to_float64, with_spare_precision
from optest.operators.shapes import as_float, promote_tensors
from optest.spec import AsRight, DType, ErrorBudget, Kind, dtype

# Ceiling of a quotient: OpenCL C 3.0 §7.4.
DIVISION_ULP = 2.5
Masks = tuple[Array | AsRight | None, ...]
_FLOAT32_U = 2.0**-24
_SQRT5 = 5.0**0.5


def add_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return input + alpha · other in the common dtype; bool is logical or, integers wrap."""
    result, a, b = promote_inputs(inputs)
    alpha = attributes.get("alpha", 1.0)
    if alpha == 1 and result.is_inexact:
        # The common case; nothing can be refused, so that inference is not needed.
        return (np.asarray(a + b),)
    infer_from_arrays(infer_add, inputs, attributes)
    if result.kind is Kind.BOOL:
        return (a | (b & bool(alpha)),)
    return (_scaled_sum(result, a, b, alpha),)


def sub_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return input - alpha · other in the common dtype; integers wrap."""
    infer_from_arrays(infer_sub, inputs, attributes)
    result, a, b = promote_inputs(inputs)
    alpha = attributes.get("alpha", 1.0)
    if result.is_integer:
        return (np.asarray(a - b * a.dtype.type(int(alpha))),)
    return (np.asarray(a - b) if alpha == 1 else _scaled_sum(result, a, b, -alpha),)


def _scaled_sum(result: DType, a: Array, b: Array, alpha: float) -> Array:
    if result.is_integer:
        return np.asarray(a + b * a.dtype.type(int(alpha)))
    if result.name == "float64":
        # As fused operations do: rounded once, without an intermediate overflow.
        return np.asarray(a + np.longdouble(alpha) * b).astype(np.float64)
    return np.asarray(a + alpha * b)


def mul_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """Return input · other in the common dtype; bool is logical and, integers wrap."""
    result, a, b = promote_inputs(inputs)
    return (np.asarray(a & b if result.kind is Kind.BOOL else a * b),)


def div_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the quotient: true without a ``rounding_mode``, else rounded towards zero (trunc) or downwards (floor)."""
    mode = attributes.get("rounding_mode")
    if mode == "floor":
        return floor_divide_reference(inputs, attributes)
    if mode is not None:
        return (_of_numbers(trunc_quotient, inputs, attributes),)
    result, a, b = promote_inputs(inputs)
    if result.is_inexact:
        return (np.asarray(a / b),)
    # Integers are rounded to float32 from their own dtypes, not from their common dtype.
    quotient = as_float(result)
    left, right = (round_to_operand_dtype(np.asarray(operand), quotient) for operand in inputs[:2])
    return (np.asarray(left / right),)


# Elements for which a quotient or remainder of integers is undefined hold any value in the references below: their
# ``alternatives`` exempt these elements from the comparison.


def floor_divide_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the quotient rounded downwards, with torch's results for operands that are not finite."""
    return (_of_numbers(floor_quotient, inputs, attributes),)


def remainder_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the remainder of the division rounded downwards, with the sign of the divisor."""
    return (_of_numbers(floor_remainder, inputs, attributes),)


def fmod_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the remainder of the division rounded towards zero, with the sign of the dividend."""
    return (_of_numbers(trunc_remainder, inputs, attributes),)


def _of_numbers(function: Callable[[Array, Array], Array], inputs: Inputs, attributes: Attributes) -> Array:
    """Return ``function`` of both operands in their common dtype; raise UnfitArguments if that is bool."""
    infer_from_arrays(infer_number, inputs, attributes)
    return _in_spare_precision(function, inputs)


def _in_spare_precision(function: Callable[[Array, Array], Array], inputs: Inputs) -> Array:
    """Return ``function`` of both operands in their common dtype; of floats with more precision, as float64.

    That is long double if one of them is stored as float64, else float64.
    """
    _, a, b = promote_inputs(inputs)
    if a.dtype.kind in "iu":
        return np.asarray(function(a, b))
    stored = tuple(np.asarray(operand) for operand in inputs[:2])
    return to_float64(function(with_spare_precision(a, *stored), with_spare_precision(b, *stored)))


def pow_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return input to the power of exponent, with the special cases of C (Annex F.10.4.4) and IEEE 754-2019 §9.2.1.

    Integers wrap; to a negative power 1 gives 1, -1 gives 1 or -1, and everything else 0, as in torch.
    """
    return (_of_numbers(_power, inputs, attributes),)


def logaddexp_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return max + log1p(exp(−|input − other|)); two equal infinities give that infinity."""
    infer_from_arrays(infer_logaddexp, inputs, attributes)
    return (_in_spare_precision(np.logaddexp, inputs),)


def _power(base: Array, exponent: Array) -> Array:
    if base.dtype.kind not in "iu":
        return np.asarray(np.power(base, exponent))
    # NumPy refuses negative powers of integers.
    negative = exponent < 0
    power = np.power(base, np.where(negative, 0, exponent).astype(base.dtype))
    if not negative.any():
        return np.asarray(power)
    one = base.dtype.type(1)
    of_minus_one = np.where(exponent & one, -one, one)
    inverse = np.where(base == 1, one, np.where(base == -1, of_minus_one, base.dtype.type(0)))
    return np.asarray(np.where(negative, inverse, power), dtype=base.dtype)


def arithmetic_dtype(result: DType) -> DType:
    """Return the dtype in which a kernel computes a float result: float64 for float64, else float32."""
    return result if result.name == "float64" else dtype("float32")


class _NearInteger(NamedTuple):
    """The integer nearest to each quotient, and whether the quotient may round to it: within 2.5 ulp, but unequal."""

    nearest: Array
    is_near: Array


def _near_integer(result: DType, a: Array, b: Array) -> _NearInteger:
    rest = np.fmod(a, b)
    share = np.abs(rest / b)
    sign = np.sign(a) * np.sign(b)
    nearest = np.rint((a - rest) / b) + np.where(share > 0.5, sign, 0.0)
    bound = DIVISION_ULP * ulp(np.abs(a / b).astype(np.float64), arithmetic_dtype(result))
    # An infinite divisor leaves no choice: torch defines that floor_divide(-5, inf) is -1.
    return _NearInteger(nearest, (rest != 0) & np.isfinite(b) & (np.minimum(share, 1 - share) <= bound))


def _float_operands(inputs: Inputs) -> tuple[DType, Array, Array] | None:
    """Return the common dtype and both operands with spare precision; None if that dtype is no float."""
    result, a, b = promote_inputs(inputs)
    if not result.is_float:
        return None
    stored = tuple(np.asarray(operand) for operand in inputs[:2])
    return result, with_spare_precision(a, *stored), with_spare_precision(b, *stored)


def _output_equals(actual: Any, alternative: Array) -> Array:
    """Return the mask of output elements that equal ``alternative`` rounded to the output's dtype."""
    output = np.asarray(actual)
    rounded = round_to(alternative.astype(np.float64), dtype_of(output.dtype))
    return np.asarray(numerics.widen(output) == numerics.widen(rounded))


def floor_divide_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Any]) -> Masks:
    """Return the mask of outputs that are right, too: see :func:`div_alternatives`."""
    return div_alternatives(inputs, {**attributes, "rounding_mode": "floor"}, actual)


def div_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Any]) -> Masks:
    """Return the mask of rounded quotients that are right, too; None for true division.

    Of floats, the integer on the other side of one that is within 2.5 ulp of the quotient; of integers, any result of
    an undefined division.
    """
    mode = attributes.get("rounding_mode")
    if mode is None:
        return (None,)
    operands = _float_operands(inputs)
    if operands is None:
        return _undefined_elements(inputs, overflows=True)
    nearest, is_near = _near_integer(*operands)
    # The two candidates are nearest and nearest − 1 (floor) or nearest and one less in magnitude (trunc).
    if mode == "floor":
        alternative = 2 * nearest - 1 - floor_quotient(*operands[1:])
    else:
        alternative = 2 * nearest - np.sign(nearest) - trunc_quotient(*operands[1:])
    return (is_near & _output_equals(actual[0], alternative),)


def remainder_alternatives(inputs: Inputs, _attributes: Attributes, actual: Sequence[Any]) -> Masks:
    """Return the mask of remainders that are right, too.

    Of floats, one divisor more or less if the quotient is within 2.5 ulp of an integer; of integers, any result of an
    undefined division.
    """
    operands = _float_operands(inputs)
    if operands is None:
        return _undefined_elements(inputs, overflows=False)
    _, a, b = operands
    nearest, is_near = _near_integer(*operands)
    rest = floor_remainder(a, b)
    alternative = np.where(floor_quotient(a, b) == nearest, rest + b, rest - b)
    return (is_near & _output_equals(actual[0], alternative),)


def fmod_alternatives(inputs: Inputs, _attributes: Attributes, _actual: Sequence[Any]) -> Masks:
    """Return the mask of integer remainders that are undefined; None for floats, whose fmod is exact."""
    return (None,) if promote_inputs(inputs)[0].is_float else _undefined_elements(inputs, overflows=False)


def _undefined_elements(inputs: Inputs, *, overflows: bool) -> Masks:
    """Return the mask of undefined integer divisions, a doubt if all are; None if none is."""
    _, a, b = promote_inputs(inputs)
    mask = np.broadcast_to(is_undefined(a, b, overflows=overflows), np.broadcast_shapes(a.shape, b.shape))
    if not mask.any():
        return (None,)
    doubt = "every element is an integer divided by 0, or the smallest one by -1, which has no correct result"
    return (AsRight(mask, doubt if mask.all() else ""),)


def quotient_may_be_refused(inputs: Inputs, attributes: Attributes) -> str:
    """Return the reason why the kernel may raise in place of a rounded integer quotient; "" if it may not."""
    return "" if attributes.get("rounding_mode", "floor") is None else _reason_to_refuse(inputs, overflows=True)


def remainder_may_be_refused(inputs: Inputs, _attributes: Attributes) -> str:
    """Return the reason why the kernel may raise in place of an integer remainder; "" if it may not."""
    return _reason_to_refuse(inputs, overflows=False)


def _reason_to_refuse(inputs: Inputs, *, overflows: bool) -> str:
    result, a, b = promote_inputs(inputs)
    if result.is_float or not is_undefined(a, b, overflows=overflows).any():
        return ""
    return "an integer divided by 0 has no correct result" + (", nor has the smallest one by -1" if overflows else "")


def add_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """Return the error budget beyond the final rounding: that of rounding alpha and alpha · other; None for alpha = 1.

    If the result is narrower than float32, both may also be rounded to its dtype, as torch on a CPU does in some
    elements of a tensor: the difference, 0 for alphas such as 2 or 0.5, is added.

    Complex: each component is rounded, so that the error reaches u of the magnitude. Half an ulp of it may be
    only u/2; the rest is added.
    """
    alpha = attributes.get("alpha", 1.0)
    if _is_complex(inputs):
        return _complex_sum_terms(inputs, alpha)
    if alpha == 1:
        return (None,)
    (_, right), (result,) = infer_from_arrays(infer_add, inputs, attributes)
    product = alpha * as_float64(right)
    worst = 2.0 * np.abs(product)
    if result.dtype.is_float and result.dtype.bits < 32:
        # alpha, then the product, in the dtype of the result.
        read = float(widen(round_to(np.float64(alpha), result.dtype))) * as_float64(right)
        rounded = widen(round_to(read, result.dtype))
        worst = worst + np.maximum(np.abs(read - product), np.abs(rounded - product)) / _FLOAT32_U
    return (ErrorBudget(np.minimum(np.broadcast_to(worst, result.shape), np.finfo(np.float64).max)),)


def sub_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """Return the error budget of the difference, which is that of the sum with the opposite alpha."""
    if _is_complex(inputs):
        return _complex_sum_terms(inputs, -attributes.get("alpha", 1.0))
    return add_terms(inputs, attributes)


def _is_complex(inputs: Inputs) -> bool:
    return any(np.asarray(operand).dtype.kind == "c" for operand in inputs[:2])


def _complex_sum_terms(inputs: Inputs, alpha: Any) -> tuple[ErrorBudget]:
    _, a, b = promote_inputs(inputs)
    scaled = 0.0 if abs(alpha) == 1 else 2.0 * np.abs(alpha * b)
    return (ErrorBudget(finite_bound(0.5 * np.abs(a + alpha * b) + scaled)),)


def mul_terms(inputs: Inputs, _attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """Return the error budget of complex products; None for real numbers, whose product is correctly rounded.

    A component of a complex product is a difference or a sum of two products, which may cancel. The product is off by
    √5·u·|a·b| at most, however it cancels (Brent, Percival, Zimmermann, "Error bounds on complex floating-point
    multiplication", Math. Comp. 76, 2007). Half an ulp of |a·b|, at least u/2 of it, is allowed already. Each of the
    four products may be rounded to a subnormal number.
    """
    if not _is_complex(inputs):
        return (None,)
    result, a, b = promote_inputs(inputs)
    subnormal = 2.0**1.5 * half_subnormal(double=result.name == "complex128")
    return (ErrorBudget(finite_bound((_SQRT5 - 0.5) * np.abs(a) * np.abs(b) + subnormal)),)


def logaddexp_terms(inputs: Inputs, _attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the error budget of max + L before that sum is rounded, with d = |input − other|, L = log1p(exp(−d)).

    exp(−d) is off by ``2d + 6`` of itself: d is rounded once, and once more in the conversion to base 2; exp loses
    3 ulp. Of it L keeps the share s = 1 / (1 + exp(d)). The logarithm loses 3 ulp, 6·L. A logarithm of the rounded
    1 + exp(−d) would lose u, which is all of L if d is large.
    """
    _, a, b = promote_inputs(inputs)
    d = np.abs(a - b).astype(np.float64)
    e = np.exp(-d)
    error_of_exp = np.where(e > 0.0, e / (1.0 + e) * (2.0 * d + 6.0), 0.0)
    return (ErrorBudget(finite_bound(6.0 * np.log1p(e) + error_of_exp)),)


def finite_bound(worst: Array) -> Array:
    """Replace NaN by 0 and infinity by the largest float64 in an error bound."""
    # If the result is NaN or infinite, its class is compared, not its distance.
    return np.asarray(np.nan_to_num(worst, nan=0.0, posinf=np.finfo(np.float64).max))


def promote_inputs(inputs: Inputs) -> tuple[DType, Array, Array]:
    """Return the common dtype of the first two inputs, and both converted to it and widened.

    A 0-d float that is wider than the common dtype is not rounded to it.
    """
    left, right = np.asarray(inputs[0]), np.asarray(inputs[1])
    if left.dtype == right.dtype:
        return dtype_of(left.dtype), numerics.widen(left), numerics.widen(right)
    result = promote_tensors((spec_of(left), spec_of(right)))
    return result, round_to_operand_dtype(left, result), round_to_operand_dtype(right, result)


def floor_quotient(a: Array, b: Array) -> Array:
    """Return ⌊a / b⌋ of floats or integers; NaN for an infinite float a, ±infinity for a float a ≠ 0 over 0."""
    if a.dtype.kind in "iu":
        return np.asarray(np.floor_divide(a, _defined_divisor(a, b)))
    rest = np.fmod(a, b)
    integer = np.rint((a - rest) / b)
    return np.where(b == 0, a / b, np.where(_have_other_sign(rest, b), integer - 1, _with_sign_of(a / b, integer)))


def trunc_quotient(a: Array, b: Array) -> Array:
    """Return a / b of floats or integers, rounded towards zero; ±infinity or NaN as a / b gives them."""
    if a.dtype.kind in "iu":
        divisor = _defined_divisor(a, b)
        return np.asarray((a - np.fmod(a, divisor)) // divisor)
    quotient = a / b
    integer = _with_sign_of(quotient, np.rint((a - np.fmod(a, b)) / b))
    return np.where((b == 0) | np.isinf(a), quotient, integer)


def _with_sign_of(quotient: Array, integer: Array) -> Array:
    """Return the integers to which ``quotient`` was rounded, zeros with the quotient's sign."""
    # IEEE 754-2019 §5.9.
    return np.asarray(np.where(integer == 0, np.copysign(integer, quotient), integer))


def floor_remainder(a: Array, b: Array) -> Array:
    """Return a - b·⌊a / b⌋ of floats or integers, with the sign of b."""
    if a.dtype.kind in "iu":
        return np.asarray(np.remainder(a, _defined_divisor(a, b)))
    rest = np.fmod(a, b)
    return np.where(_have_other_sign(rest, b), rest + b, rest)


def trunc_remainder(a: Array, b: Array) -> Array:
    """Return a - b·trunc(a / b) of floats or integers, with the sign of a."""
    return np.asarray(np.fmod(a, _defined_divisor(a, b) if a.dtype.kind in "iu" else b))


def _have_other_sign(rest: Array, b: Array) -> Array:
    """Return where the remainder is not 0 and differs in sign from b: there floor and trunc differ by 1."""
    return np.asarray((rest != 0) & ((rest < 0) != (b < 0)))


def is_undefined(a: Array, b: Array, *, overflows: bool) -> Array:
    """Return the mask of integer divisions that C leaves undefined (C17 6.5.5): divisors of 0.

    With ``overflows``, for quotients, also the smallest integer over -1, whose remainder is defined.
    """
    undefined = np.asarray(b == 0)
    if overflows and a.dtype.kind == "i":
        undefined = undefined | ((a == np.iinfo(a.dtype).min) & (b == -1))
    return undefined


def _defined_divisor(a: Array, b: Array) -> Array:
    """Return b with 1 in place of divisors with which the quotient is undefined."""
    # NumPy warns of undefined quotients. A divisor of 1 has the remainder of -1, which is 0.
    return np.where(is_undefined(a, b, overflows=True), np.ones_like(b), b)


quiet_hooks(globals())
