"""What the elementwise operators and conversion may lose beyond their ceiling."""

from __future__ import annotations

import numpy as np

from optest.numerics import dtype_of, round_to
from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    as_float64,
    quiet,
    spec_of,
    widen,
)
from optest.operators.budgets import half_subnormal
from optest.operators.elementwise.inference import infer_add
from optest.operators.elementwise.operands import meet
from optest.operators.elementwise.references_math import exp_reference, round_reference
from optest.spec import ErrorBudget

__all__ = [
    "add_terms",
    "exp_terms",
    "mul_terms",
    "round_terms",
    "sub_terms",
]

_FLOAT32_U = 2.0**-24
_SQRT5 = 5.0**0.5


def add_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """The addition itself is correctly rounded; alpha ≠ 1 adds the roundings of alpha and of alpha · other.

    Where the result is narrower than float32, both may also be rounded to its dtype, as torch on a CPU does in some
    elements of a tensor and not in others: what that changes is allowed for, which is nothing for 2 or 0.5.

    Of complex numbers each component is rounded, so that the error reaches u of the magnitude, of which half an ulp of
    the magnitude may be only half: u/2 more.
    """
    alpha = attributes.get("alpha", 1.0)
    if _is_complex(inputs):
        return _complex_sum_terms(inputs, attributes)
    return (None,) if alpha == 1 else _scaled_add_terms(inputs, attributes)


def sub_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """As :func:`add_terms`."""
    if _is_complex(inputs):
        return _complex_sum_terms(inputs, {"alpha": -attributes.get("alpha", 1.0)})
    return add_terms(inputs, attributes)


def _is_complex(inputs: Inputs) -> bool:
    return any(np.asarray(each).dtype.kind == "c" for each in inputs[:2])


@quiet
def _complex_sum_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget]:
    _, a, b = meet(inputs)
    alpha = attributes.get("alpha", 1.0)
    scaled = 0.0 if abs(alpha) == 1 else 2.0 * np.abs(alpha * b)
    return (ErrorBudget(_finite(0.5 * np.abs(a + alpha * b) + scaled)),)


@quiet
def mul_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """Nothing for real numbers, whose product is correctly rounded.

    A component of a complex product is a difference or a sum of two products, which may cancel. The whole is off by
    √5·u·|a·b| at most, however it cancels (Brent, Percival, Zimmermann, "Error bounds on complex floating-point
    multiplication", Math. Comp. 76, 2007), of which half an ulp of |a·b|, u/2 and more of it, is allowed already. Of
    the four products each may be rounded to a subnormal number.
    """
    return _complex_mul_terms(inputs, attributes) if _is_complex(inputs) else (None,)


@quiet
def _complex_mul_terms(inputs: Inputs, _attributes: Attributes) -> tuple[ErrorBudget]:
    result, a, b = meet(inputs)
    lost = 2.0**1.5 * half_subnormal(double=result.name == "complex128")
    return (ErrorBudget(_finite((_SQRT5 - 0.5) * np.abs(a) * np.abs(b) + lost)),)


def _finite(worst: Array) -> Array:
    """No bound is infinite or NaN: where the result is, its class decides."""
    return np.asarray(np.nan_to_num(worst, nan=0.0, posinf=np.finfo(np.float64).max))


@quiet
def _scaled_add_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget]:
    alpha = attributes["alpha"]
    left, right = np.asarray(inputs[0]), np.asarray(inputs[1])
    (result,) = infer_add((spec_of(left), spec_of(right)), attributes)
    product = alpha * as_float64(right)
    worst = 2.0 * np.abs(product)
    if result.dtype.is_float and result.dtype.bits < 32:
        read = float(widen(round_to(np.float64(alpha), result.dtype))) * as_float64(right)
        rounded = widen(round_to(read, result.dtype))
        worst = worst + np.maximum(np.abs(read - product), np.abs(rounded - product)) / _FLOAT32_U
    return (ErrorBudget(np.minimum(np.broadcast_to(worst, result.shape), np.finfo(np.float64).max)),)


@quiet
def exp_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """|x|/16·|out|, |x|/32 ulp at least: libraries reduce x by multiples of ln 2 that grow with it.

    OpenVINO is off by 3.3 ulp at 39 and 5.3 at 87.9, JAX by 5.5 at 88.7. Beyond 88 |x| counts as 88, since nobody was
    seen to lose more.

    Results of 16 bits do not show it.
    """
    stored = np.asarray(inputs[0])
    if stored.dtype.itemsize <= 2 and dtype_of(stored.dtype).is_float:
        return (None,)
    (result,) = exp_reference(inputs, attributes)
    share = np.minimum(np.abs(as_float64(stored)), 88.0) / 16.0
    return (ErrorBudget(_finite(share * np.abs(as_float64(result)))),)


@quiet
def round_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """Without decimals nothing is lost. With them, the whole number is divided by a power of ten: 2.5 ulp, 5·|out|.

    Beyond 2^23 (float32) the input times the power of ten is a whole number already, whose rounding is one of the 5.
    """
    if not attributes.get("decimals", 0):
        return (None,)
    (result,) = round_reference(inputs, attributes)
    return (ErrorBudget(np.minimum(5.0 * np.abs(as_float64(result)), np.finfo(np.float64).max)),)
