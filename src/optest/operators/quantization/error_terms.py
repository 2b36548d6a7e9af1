"""What the inverse of quantization may lose before its product is rounded."""

from __future__ import annotations

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, quiet
from optest.operators.quantization.references import dequantized_parts
from optest.spec import ErrorBudget

__all__ = ["dequantize_terms"]

_EXACT = 2.0**24


@quiet
def dequantize_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Integers of up to 24 bits and their difference are exact in float32, so that only the product is rounded.

    Beyond, the conversion of the input, that of the zero point and the difference lose u of themselves each, times
    scale.
    """
    values, zero_point, scale = dequantized_parts(inputs, attributes)
    lost = _beyond(values) + _beyond(zero_point) + _beyond(values - zero_point)
    worst = np.broadcast_to(lost * np.abs(scale), values.shape)
    return (ErrorBudget(worst),)


def _beyond(integers: Array) -> Array:
    magnitude = np.abs(integers.astype(np.float64))
    return np.where(magnitude > _EXACT, magnitude, 0.0)
