"""What the reductions may lose."""

from __future__ import annotations

import numpy as np

from optest.operators.arrays import (
    Attributes,
    Inputs,
    as_float64,
    quiet,
    sum_over,
)
from optest.operators.shapes import (
    reduced_dims,
)
from optest.spec import Terms

__all__ = [
    "sum_terms",
]

_FLOAT32_U = 2.0**-24


@quiet
def sum_terms(inputs: Inputs, attributes: Attributes) -> tuple[Terms, ...]:
    values = as_float64(inputs[0])
    dims = tuple(sorted(reduced_dims(attributes.get("dim"), values.ndim)))
    absolute, squared = sum_over(np.abs(values), dims), sum_over(values * values, dims)
    if attributes.get("keepdim") and values.ndim:
        absolute, squared = np.expand_dims(absolute, dims), np.expand_dims(squared, dims)
    count = int(np.prod([values.shape[i] for i in dims])) if values.ndim else 1
    return (Terms(absolute, squared, count),)
