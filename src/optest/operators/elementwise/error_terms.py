"""What the elementwise operators and conversion may lose beyond their ceiling."""

from __future__ import annotations

import numpy as np

from optest.numerics import round_to
from optest.operators.arrays import (
    Attributes,
    Inputs,
    as_float64,
    quiet,
    spec_of,
    widen,
)
from optest.operators.elementwise.inference import infer_add
from optest.operators.elementwise.references_math import round_reference
from optest.spec import ErrorBudget

__all__ = [
    "add_terms",
    "round_terms",
]

_FLOAT32_U = 2.0**-24


def add_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """The addition itself is correctly rounded; alpha ≠ 1 adds the roundings of alpha and of alpha · other.

    Where the result is narrower than float32, both may also be rounded to its dtype, as torch on a CPU does in some
    elements of a tensor and not in others: what that changes is allowed for, which is nothing for 2 or 0.5.
    """
    alpha = attributes.get("alpha", 1.0)
    return (None,) if alpha == 1 else _scaled_add_terms(inputs, attributes)


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
def round_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget | None, ...]:
    """Without decimals nothing is lost. With them, the whole number is divided by a power of ten: 2.5 ulp, 5·|out|.

    Beyond 2^23 (float32) the input times the power of ten is a whole number already, whose rounding is one of the 5.
    """
    if not attributes.get("decimals", 0):
        return (None,)
    (result,) = round_reference(inputs, attributes)
    return (ErrorBudget(np.minimum(5.0 * np.abs(as_float64(result)), np.finfo(np.float64).max)),)
