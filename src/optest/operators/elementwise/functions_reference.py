"""References, error terms and alternative results of functions of one number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optest import numerics
from optest.numerics import dtype_of, ulp
from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    Reference,
    as_float64,
    quiet_hooks,
    round_to_operand_dtype,
    widen,
)
from optest.operators.elementwise.arithmetic_reference import DIVISION_ULP, Masks, arithmetic_dtype, finite_bound
from optest.operators.real_functions import (
    PI,
    digamma,
    erf,
    erfinv,
    evaluate_in_spare_precision,
    to_float64,
    with_spare_precision,
)
from optest.operators.shapes import as_float
from optest.spec import ErrorBudget


def _real_function(function: Callable[[Array], Any]) -> Reference:
    """Return the reference that applies ``function`` to floats; integers and bool are rounded to float32 first."""

    def reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
        array = np.asarray(inputs[0])
        return (
            evaluate_in_spare_precision(
                function, round_to_operand_dtype(array, as_float(dtype_of(array.dtype))), array
            ),
        )

    return reference


exp_reference = _real_function(np.exp)
expm1_reference = _real_function(np.expm1)
log_reference = _real_function(np.log)
log1p_reference = _real_function(np.log1p)
sqrt_reference = _real_function(np.sqrt)
rsqrt_reference = _real_function(lambda x: 1 / np.sqrt(x))
reciprocal_reference = _real_function(lambda x: 1 / x)
sin_reference = _real_function(np.sin)
cos_reference = _real_function(np.cos)
tanh_reference = _real_function(np.tanh)
erf_reference = _real_function(erf)
erfinv_reference = _real_function(erfinv)
digamma_reference = _real_function(digamma)


def _exact_function(function: Callable[[Array], Any]) -> Reference:
    """Return the reference that applies ``function`` without a change of dtype: integers stay integers."""

    def reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
        values = widen(np.asarray(inputs[0]))
        return (np.asarray(function(values)).astype(values.dtype, copy=False),)

    return reference


def _of_floats(function: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """Return ``function`` for floats, the identity for other dtypes."""
    return lambda values: function(values) if values.dtype.kind == "f" else values


neg_reference = _exact_function(np.negative)
abs_reference = _exact_function(np.abs)
# 0 for NaN, as torch does; bool unchanged.
sign_reference = _exact_function(
    lambda values: values if values.dtype.kind == "b" else (values > 0).astype(np.int8) - (values < 0).astype(np.int8)
)
floor_reference = _exact_function(_of_floats(np.floor))
ceil_reference = _exact_function(_of_floats(np.ceil))
trunc_reference = _exact_function(_of_floats(np.trunc))


def round_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the input rounded to ``decimals``, ties to even; negative decimals round to tens, hundreds, …."""
    array = np.asarray(inputs[0])
    values, decimals = widen(array), attributes.get("decimals", 0)
    if values.dtype.kind != "f":
        return (values,)
    if not decimals:
        return (np.asarray(np.rint(values)),)
    wide = with_spare_precision(values, array)
    ten = wide.dtype.type(10) ** abs(decimals)
    return (to_float64(np.rint(wide * ten) / ten if decimals > 0 else np.rint(wide / ten) * ten),)


def round_alternatives(inputs: Inputs, attributes: Attributes, actual: Sequence[Any]) -> Masks:
    """Return the mask of outputs that are right, too: the other neighbour of a value within 2.5 ulp of a tie.

    None without ``decimals``.
    """
    decimals, array = attributes.get("decimals", 0), np.asarray(inputs[0])
    if not decimals:
        # Nothing is multiplied, so that every tie is exact.
        return (None,)
    wide, out = with_spare_precision(numerics.widen(array), array), dtype_of(array.dtype)
    ten = wide.dtype.type(10) ** abs(decimals)
    scaled = wide * ten if decimals > 0 else wide / ten
    half = np.floor(scaled) + 0.5
    distance = np.abs(scaled - half)
    spacing = ulp(np.abs(scaled).astype(np.float64), arithmetic_dtype(out))
    is_near = (distance != 0) & (distance <= DIVISION_ULP * spacing)
    neighbour = 2 * half - np.rint(scaled)
    value = (neighbour / ten if decimals > 0 else neighbour * ten).astype(np.float64)
    size = np.abs(value)
    # The division by the power of ten is rounded, too.
    bound = DIVISION_ULP * ulp(size, arithmetic_dtype(out)) + 0.5 * ulp(size, out)
    return (np.asarray(is_near & (np.abs(numerics.widen(np.asarray(actual[0])) - value) <= bound)),)


def exp_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """Return the error budget |x|/16·|out|, at least |x|/32 ulp; None for 16-bit floats.

    Libraries reduce x by multiples of ln 2 that grow with it: OpenVINO is off by 3.3 ulp at 39 and 5.3 at 87.9, JAX by
    5.5 at 88.7. Beyond 88 |x| counts as 88: no library was measured to lose more.
    """
    stored = np.asarray(inputs[0])
    if stored.dtype.itemsize <= 2 and dtype_of(stored.dtype).is_float:
        # The final rounding hides the error.
        return (None,)
    (result,) = exp_reference(inputs, attributes)
    share = np.minimum(np.abs(as_float64(stored)), 88.0) / 16.0
    return (ErrorBudget(finite_bound(share * np.abs(as_float64(result)))),)


def digamma_terms(inputs: Inputs, _attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the error budget of ln z − Σ 1/(x + i), whose terms may cancel; the recurrence leads from x to z above 10.

    The logarithm (3 ulp), each quotient and each partial sum lose 4 of their size together. Below 0 the reflection
    ψ(1 − x) − π/tan(πx) rounds 1 − x, which is less than one of the 4·ln, and π·r, where r is x less the nearest
    integer: 2·π²|r|/sin²(πr) for the argument and 12·|π/tan(πr)| for the tangent (5 ulp) and the quotient.
    """
    array = np.asarray(inputs[0])
    x = as_float64(round_to_operand_dtype(array, as_float(dtype_of(array.dtype))))
    z = np.where(x < 0.0, 1.0 - x, x)
    worst = 4.0 * np.log(np.maximum(z, 10.0))
    for step in range(10):
        worst += np.where(z + step < 10.0, 4.0 / (z + step), 0.0)
    angle = float(PI) * (x - np.rint(x))
    reflected = 2.0 * float(PI) * np.abs(angle) / np.sin(angle) ** 2 + 12.0 * np.abs(float(PI) / np.tan(angle))
    return (ErrorBudget(finite_bound(worst + np.where(x < 0.0, reflected, 0.0))),)


def round_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """Return the error budget of the division of the rounded integer by a power of ten: 5·|out|; None without decimals.

    Beyond 2^23 (float32) the input times the power of ten is an integer already, whose rounding is one of the 5.
    """
    if not attributes.get("decimals", 0):
        return (None,)
    (result,) = round_reference(inputs, attributes)
    return (ErrorBudget(np.minimum(5.0 * np.abs(as_float64(result)), np.finfo(np.float64).max)),)


quiet_hooks(globals())
