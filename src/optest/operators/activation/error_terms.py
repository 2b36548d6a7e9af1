"""What the activations may lose."""

from __future__ import annotations

import numpy as np

from optest.operators.arrays import (
    Attributes,
    Inputs,
    as_float64,
    quiet,
)
from optest.spec import ErrorBudget

__all__ = [
    "gelu_terms",
]

_FLOAT32_U = 2.0**-24


@quiet
def gelu_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """1 + erf and 1 + tanh cancel below 0, and |x|/2 multiplies what they lost.

    erf may be off by 16 ulp, which are 16 u where it is near 1: 8·|x|. tanh may be off by 5 ulp, its argument and
    the sum by 3 u more: 4·|x|. Beyond 40, where every dtype has 0 or x itself, |x| counts as 40.
    """
    size = np.minimum(np.abs(as_float64(inputs[0])), 40.0)
    return (ErrorBudget((4.0 if attributes.get("approximate") == "tanh" else 8.0) * size),)
