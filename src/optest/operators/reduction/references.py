"""What the reductions compute, in float64 from the inputs as they are stored."""

from __future__ import annotations

import numpy as np

from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    is_double,
    quiet,
    sum_over,
    widen,
)
from optest.operators.shapes import (
    reduced_dims,
)

__all__ = [
    "sum_reference",
]


@quiet
def sum_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    array = np.asarray(inputs[0])
    dims = tuple(sorted(reduced_dims(attributes.get("dim"), array.ndim)))
    total = sum_over(widen(array), dims, extended=is_double(array))
    return (np.expand_dims(total, dims) if attributes.get("keepdim") and array.ndim else total,)
