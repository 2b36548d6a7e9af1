"""What the operators that move elements compute, in float64 from the inputs as they are stored."""

from __future__ import annotations

import numpy as np

from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    quiet,
)

__all__ = [
    "transpose_reference",
]


@quiet
def transpose_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    if not array.ndim:
        return (array.copy(),)
    return (np.swapaxes(array, attributes["dim0"], attributes["dim1"]).copy(),)
