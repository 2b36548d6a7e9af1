"""What the activations compute, in float64 from the inputs as they are stored."""

from __future__ import annotations

import numpy as np

from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    quiet,
    widen,
)
from optest.operators.normal_tail import normal_tail

__all__ = [
    "gelu_reference",
    "relu_reference",
]


@quiet
def gelu_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """x · Φ(x), with Φ below 0 from the tail itself and not from 1 + erf, which cancels."""
    x = widen(np.asarray(inputs[0]))
    if attributes.get("approximate", "none") == "tanh":
        # (1 + tanh u) / 2 = 1 / (1 + exp(−2u))
        argument = np.sqrt(2.0 / np.pi) * x * (1.0 + 0.044715 * x * x)
        return (np.asarray(x / (1.0 + np.exp(-2.0 * argument))),)
    tail = normal_tail(np.abs(x))
    return (np.asarray(x * np.where(x > 0, 1.0 - tail, tail)),)


@quiet
def relu_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    values = widen(np.asarray(inputs[0]))
    return (np.asarray(np.maximum(values, values.dtype.type(0))),)
