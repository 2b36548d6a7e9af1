"""How two operands meet: in their common dtype, widened."""

from __future__ import annotations

import numpy as np

from optest import numerics
from optest.numerics import dtype_of
from optest.operators.arrays import Array, Inputs, converted, spec_of
from optest.operators.shapes import promote_tensors
from optest.spec import DType

__all__ = ["meet"]


def meet(inputs: Inputs) -> tuple[DType, Array, Array]:
    """The common dtype of the first two inputs, and both as it holds them, widened.

    A 0-d float that is wider than the result is read unrounded.
    """
    left, right = np.asarray(inputs[0]), np.asarray(inputs[1])
    if left.dtype == right.dtype:
        return dtype_of(left.dtype), numerics.widen(left), numerics.widen(right)
    result = promote_tensors((spec_of(left), spec_of(right)))
    return result, converted(left, result), converted(right, result)
