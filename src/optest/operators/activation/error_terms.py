"""What the activations may lose beyond their ceiling, in units of the unit roundoff u of the arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from optest.operators.activation.references import (
    elu_reference,
    gate_and_up,
    hardswish_reference,
    leaky_relu_reference,
    sigmoid_reference,
    silu_reference,
    softplus_reference,
)
from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    as_float64,
    is_double,
    quiet,
)
from optest.spec import ErrorBudget

__all__ = [
    "elu_terms",
    "gelu_terms",
    "hardswish_terms",
    "leaky_relu_terms",
    "sigmoid_terms",
    "silu_terms",
    "softplus_terms",
    "swiglu_terms",
]

_FLOAT32_U = 2.0**-24
_FARTHEST = 40.0
"""Beyond it every dtype has 0 or x itself, and |x| counts as 40."""


@quiet
def gelu_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """1 + erf and 1 + tanh cancel below 0, and |x|/2 multiplies what they lost.

    erf may be off by 16 ulp, which are 16 u where it is near 1: 8·|x|. tanh may be off by 5 ulp, its argument and
    the sum by 3 u more: 4·|x|. Beyond 40, where every dtype has 0 or x itself, |x| counts as 40.
    """
    size = np.minimum(np.abs(as_float64(inputs[0])), _FARTHEST)
    return (ErrorBudget((4.0 if attributes.get("approximate") == "tanh" else 8.0) * size),)


@quiet
def leaky_relu_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Below 0 the slope is rounded to the arithmetic before it multiplies: |out|. Above, nothing is computed."""
    return (ErrorBudget(np.where(as_float64(inputs[0]) < 0, _size(leaky_relu_reference(inputs, attributes)), 0.0)),)


@quiet
def sigmoid_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """The exponential may be off by 3 ulp, at most 6 u of it, of which (1 - out) reaches the sum 1 + exp(-x); the sum
    is rounded once: (7 - 6·out)·out. The division is the ceiling.

    Where exp(-x) overflows, out is below the smallest normal number and 0 is right too. Nothing is allowed for
    (1 + tanh(x/2)) / 2, which loses the tail.
    """
    y = _size(sigmoid_reference(inputs, attributes))
    overflow = -as_float64(inputs[0]) > _largest_exponent(inputs[0])
    return (ErrorBudget(np.where(overflow, y / _unit_roundoff(inputs[0]), (7.0 - 6.0 * y) * y)),)


@quiet
def silu_terms(inputs: Inputs, _attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """(1 + tanh(x/2)) / 2 cancels below 0 and is off by 4 u as in gelu, which x multiplies: 4·|x|.

    x / (1 + exp(-x)) loses 8 u of the result at most beside the division, which is less: out is at most |x|/2 there.
    Beyond 40, where every dtype has 0 or x itself, |x| counts as 40.
    """
    return (ErrorBudget(4.0 * np.minimum(np.abs(as_float64(inputs[0])), _FARTHEST)),)


@quiet
def softplus_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """1 + exp(z), z = beta·x, is rounded once, which the logarithm turns into u whatever is left of it: 1 / beta.

    Of the exponential's error, 6 u, and of that of z, |z|·u, the logarithm keeps the share s = exp(z) / (1 + exp(z)):
    (6 + |z|)·s / beta. beta ≠ 1 divides once more, 2.5 ulp: 5·|out|. Beyond 40 |z| counts as 40.

    Where z is above a threshold of 20 or more, the curve is as right as the line, which torch takes for the sake of
    stability: exp(-z) / beta apart, which float64 alone can tell.
    """
    beta, threshold = attributes.get("beta", 1.0), attributes.get("threshold", 20.0)
    scaled = beta * as_float64(inputs[0])
    share = 1.0 / (1.0 + np.exp(-scaled))
    rounded = 0.0 if beta == 1 else 1.0
    worst = (1.0 + share * (6.0 + rounded * np.minimum(np.abs(scaled), _FARTHEST))) / beta
    divided = 5.0 * rounded * _size(softplus_reference(inputs, attributes))
    is_line = (scaled > threshold) & (threshold >= 20.0)
    curve = np.where(is_line, np.exp(-scaled) / beta / _unit_roundoff(inputs[0]), 0.0)
    return (ErrorBudget(_finite(worst + divided + curve)),)


@quiet
def elu_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Below 0, exp(x) - 1 cancels: the exponential is off by 3 ulp, 3 u at most: 3·|alpha|. expm1 itself may be off by
    3 ulp, and alpha and the product are rounded: 8·|out|. Above 0 nothing is computed.
    """
    alpha = abs(attributes.get("alpha", 1.0))
    lost = 3.0 * alpha + 8.0 * _size(elu_reference(inputs, attributes))
    return (ErrorBudget(_finite(np.where(as_float64(inputs[0]) < 0, lost, 0.0))),)


@quiet
def hardswish_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """x + 3 and the product are rounded, and so is 1/6 where it multiplies: 3·|out|. The division is the ceiling.

    Between -3 and 3, x/6 + ½ cancels below 0: the quotient is off by 1.25 u and the sum by ½ u, which x multiplies:
    2·|x|. Where 6·x overflows float32, the formula as it is written does so too, and whatever follows is right: the
    budget is 0.99 of the largest number, to which out adds more than a hundredth.
    """
    x, y = np.abs(as_float64(inputs[0])), _size(hardswish_reference(inputs, attributes))
    worst = 3.0 * y + np.where(x < 3.0, 2.0 * x, 0.0)
    if not is_double(np.asarray(inputs[0])):  # no budget of doubles can be that large
        top = float(np.finfo(np.float32).max)
        worst = np.where(x > top / 6.0, 0.99 * top / _FLOAT32_U, worst)
    return (ErrorBudget(_finite(worst)),)


@quiet
def swiglu_terms(inputs: Inputs, _attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """The budget of silu(gate) and its division, 2.5 ulp, multiplied by up: (4·|gate| + 5·|silu(gate)|)·|up|.

    The product itself is the ceiling. Beyond 40, |gate| counts as 40, as for silu. Where silu(gate) is below the
    smallest normal number, 2.5 ulp and its rounding are 3 times the smallest number, which up multiplies too.
    """
    gate, up = gate_and_up(inputs)
    near = 4.0 * np.minimum(np.abs(as_float64(gate)), _FARTHEST)
    smallest = float(np.finfo(np.float64 if is_double(gate) else np.float32).smallest_subnormal)
    lost = near + 5.0 * _size(silu_reference([gate], {})) + 3.0 * smallest / _unit_roundoff(gate)
    return (ErrorBudget(_finite(_finite(lost) * np.abs(as_float64(up)))),)


def _size(outputs: tuple[Array, ...]) -> Array:
    return np.abs(outputs[0])


def _finite(worst: Array) -> Array:
    """The largest float64 in place of infinity: no bound is infinite."""
    return np.asarray(np.minimum(worst, np.finfo(np.float64).max))


def _unit_roundoff(stored: Any) -> float:
    return 2.0**-53 if is_double(np.asarray(stored)) else _FLOAT32_U


def _largest_exponent(stored: Any) -> float:
    """Up to here exp(x) is finite, whatever its 3 ulp do."""
    return 709.78 if is_double(np.asarray(stored)) else 88.72
