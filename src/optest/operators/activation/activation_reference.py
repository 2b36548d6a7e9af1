"""What the activations compute, in float64 from the inputs as stored, and what they may lose, in units of u."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from optest.numerics import dtype_of
from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    as_float64,
    converted,
    is_double,
    optional_input,
    quiet_hooks,
    widen,
)
from optest.operators.budgets import unit_roundoff
from optest.operators.real_functions import evaluated, normal_tail, spacious, spared
from optest.operators.shapes import as_float
from optest.spec import ErrorBudget

_FLOAT32_U = 2.0**-24
_FARTHEST = 40.0
"""Beyond it every dtype has 0 or x itself, and |x| counts as 40."""


def gelu_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """x · Φ(x), with Φ below 0 from the tail itself and not from 1 + erf, which cancels."""
    x = widen(np.asarray(inputs[0]))
    if attributes.get("approximate", "none") == "tanh":
        # (1 + tanh u) / 2 = 1 / (1 + exp(−2u))
        argument = np.sqrt(2.0 / np.pi) * x * (1.0 + 0.044715 * x * x)
        return (np.asarray(x / (1.0 + np.exp(-2.0 * argument))),)
    tail = normal_tail(np.abs(x))
    return (np.asarray(x * np.where(x > 0, 1.0 - tail, tail)),)


def relu_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    values = widen(np.asarray(inputs[0]))
    return (np.asarray(np.maximum(values, values.dtype.type(0))),)


def leaky_relu_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    slope = attributes.get("negative_slope", 0.01)
    return (_evaluated(lambda x: np.where(x > 0, x, x * slope), inputs),)


def sigmoid_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """1 / (1 + exp(−x)); integers and bool are read as float32."""
    array = np.asarray(inputs[0])
    return (evaluated(_sigmoid, converted(array, as_float(dtype_of(array.dtype))), array),)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def silu_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """x · sigmoid(x); NaN for minus infinity, as 0 · ∞ is in torch."""
    return (_evaluated(lambda x: x * _sigmoid(x), inputs),)


def softplus_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """log(1 + exp(beta · x)) / beta, and x itself where beta · x is above threshold."""
    beta, threshold = attributes.get("beta", 1.0), attributes.get("threshold", 20.0)
    return (_evaluated(lambda x: np.where(x * beta > threshold, x, np.log1p(np.exp(x * beta)) / beta), inputs),)


def elu_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """x above 0, else alpha · (exp(x) − 1)."""
    alpha = attributes.get("alpha", 1.0)
    return (_evaluated(lambda x: np.where(x > 0, x, alpha * np.expm1(x)), inputs),)


# Klambauer, Unterthiner, Mayr and Hochreiter, "Self-Normalizing Neural Networks", 2017, as torch writes them.
_SELU_SCALE = np.longdouble("1.0507009873554804934193349852946")
_SELU_ALPHA = np.longdouble("1.6732632423543772848170429916717")


def selu_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """scale · x above 0, else scale · alpha · (exp(x) − 1)."""

    def selu(x: Array) -> Array:
        scale, alpha = _SELU_SCALE.astype(x.dtype), _SELU_ALPHA.astype(x.dtype)
        return np.asarray(scale * np.where(x > 0, x, alpha * np.expm1(x)))

    return (_evaluated(selu, inputs),)


def hardswish_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """x · min(max(x + 3, 0), 6) / 6; NaN for minus infinity, as 0 · ∞ is in torch."""
    return (_evaluated(lambda x: x * (np.minimum(np.maximum(x + 3, 0), 6) / 6), inputs),)


def swiglu_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """silu(gate) · up; without up, the halves of gate along its last dimension."""
    gate, up = (spacious(widen(each), each) for each in gate_and_up(inputs))
    return (spared(gate * _sigmoid(gate) * up),)


def gelu_and_mul_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    gate, up = gate_and_up(inputs)
    return (np.asarray(gelu_reference([gate], attributes)[0] * widen(up)),)


def gate_and_up(inputs: Inputs) -> tuple[Array, Array]:
    gate, up = np.asarray(inputs[0]), optional_input(inputs, 1)
    if up is not None:
        return gate, up
    half = gate.shape[-1] // 2
    return gate[..., :half], gate[..., half:]


def _evaluated(function: Callable[[Array], Array], inputs: Inputs) -> Array:
    array = np.asarray(inputs[0])
    return evaluated(function, widen(array), array)


def gelu_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """1 + erf and 1 + tanh cancel below 0, and |x|/2 multiplies what they lost; JAX alone has the tail from erfc.

    Measured: 5.4·|x| at most with erf (torch, OpenVINO), 3.1·|x| with tanh (JAX, ONNX Runtime). Beyond 40, where every
    dtype has 0 or x itself, |x| counts as 40.
    """
    size = np.minimum(np.abs(as_float64(inputs[0])), _FARTHEST)
    return (ErrorBudget((4.0 if attributes.get("approximate") == "tanh" else 6.0) * size),)


def leaky_relu_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Below 0 the slope is rounded to the arithmetic before it multiplies: |out|. Above, nothing is computed."""
    return (ErrorBudget(np.where(as_float64(inputs[0]) < 0, _size(leaky_relu_reference(inputs, attributes)), 0.0)),)


def sigmoid_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """None, but 0 is right too where exp(-x) nears its overflow. (1 + tanh(x/2)) / 2 loses the tail."""
    return (ErrorBudget(_lost_tail(inputs[0], _size(sigmoid_reference(inputs, attributes)))),)


def silu_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """As for sigmoid."""
    return (ErrorBudget(_lost_tail(inputs[0], _size(silu_reference(inputs, attributes)))),)


def _lost_tail(stored: Any, size: Array) -> Array:
    """All of an output of this ``size`` where exp(-x) overflows, or is so large that its inverse is near the smallest
    normal number: torch gives 0 below -88.72, OpenVINO below -86.99."""
    lost = as_float64(stored) < (-709.78 if is_double(np.asarray(stored)) else -86.9)
    return np.where(lost, size / unit_roundoff(np.asarray(stored)), 0.0)


def softplus_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """None for beta = 1: log1p(exp(x)) loses no tail, as log(1 + exp(x)) does.

    Else beta and z = beta·x are rounded, and the share s = exp(z) / (1 + exp(z)) of that error remains:
    2·|z|·s / beta. The division by beta, 2.5 ulp, adds 5·|out|; it also divides what was lost below the smallest normal
    number, 3 times the smallest at most.

    Above a threshold of 20 or more torch takes the line in place of the curve. Both are right: they differ by
    exp(-z) / beta, which float64 alone shows.
    """
    beta, threshold = attributes.get("beta", 1.0), attributes.get("threshold", 20.0)
    scaled = beta * as_float64(inputs[0])
    worst = np.zeros(scaled.shape)
    if beta != 1:
        share = 1.0 / (1.0 + np.exp(-scaled))
        rounded = np.where(share > 0.0, 2.0 * share * np.abs(scaled), 0.0) + 3.0 * _smallest(inputs[0])
        worst = rounded / beta + 5.0 * _size(softplus_reference(inputs, attributes))
    is_line = (scaled > threshold) & (threshold >= 20.0)
    curve = np.where(is_line, np.exp(-scaled) / beta / unit_roundoff(np.asarray(inputs[0])), 0.0)
    return (ErrorBudget(_finite(worst + curve)),)


def elu_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Below 0, alpha · expm1(x): 10·|out|, which is 5 ulp at least (JAX reaches 4.65) and has room for rounding alpha
    and the product. exp(x) - 1 loses small results. Above 0 nothing is computed.
    """
    lost = 10.0 * _size(elu_reference(inputs, attributes))
    return (ErrorBudget(_finite(np.where(as_float64(inputs[0]) < 0, lost, 0.0))),)


def selu_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """scale is rounded before it multiplies: |out|. Below 0 as elu, with room for a product more: 12·|out|."""
    share = np.where(as_float64(inputs[0]) < 0, 12.0, 1.0)
    return (ErrorBudget(_finite(share * _size(selu_reference(inputs, attributes)))),)


def hardswish_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """x + 3 and the product are rounded, and so is 1/6 where it multiplies: 3·|out|. The division is the ceiling.

    Between -3 and 3, x/6 + ½ cancels below 0: the quotient is off by 1.25 u and the sum by ½ u, which x multiplies:
    2·|x|. Where 6·x overflows float32, so does the formula as it is written, and any result is right: the budget is
    0.99 of the largest number, to which out adds more than a hundredth.
    """
    x, y = np.abs(as_float64(inputs[0])), _size(hardswish_reference(inputs, attributes))
    worst = 3.0 * y + np.where(x < 3.0, 2.0 * x, 0.0)
    if not is_double(np.asarray(inputs[0])):  # no budget of doubles can be that large
        top = float(np.finfo(np.float32).max)
        worst = np.where(x > top / 6.0, 0.99 * top / _FLOAT32_U, worst)
    return (ErrorBudget(_finite(worst)),)


def swiglu_terms(inputs: Inputs, _attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """silu(gate), 4 ulp, multiplied by up: 8·|silu(gate)·up|, and below -86.9 all of it, as for silu.

    The product itself is the ceiling. Where silu(gate) is below the smallest normal number, 2.5 ulp and its rounding
    are 3 times the smallest number, which up multiplies too.
    """
    gate, up = gate_and_up(inputs)
    size = _size(silu_reference([gate], {}))
    lost = 8.0 * size + _lost_tail(gate, size) + 3.0 * _smallest(gate)
    return (ErrorBudget(_finite(_finite(lost) * np.abs(as_float64(up)))),)


def gelu_and_mul_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """gelu(gate), 16 ulp and its own terms, multiplied by up; below the normal range as for swiglu."""
    gate, up = gate_and_up(inputs)
    (own,) = gelu_terms([gate], attributes)
    lost = 32.0 * _size(gelu_reference([gate], attributes)) + own.worst + 3.0 * _smallest(gate)
    return (ErrorBudget(_finite(_finite(lost) * np.abs(as_float64(up)))),)


def _size(outputs: tuple[Array, ...]) -> Array:
    return np.abs(outputs[0])


def _finite(worst: Array) -> Array:
    """The largest float64 in place of infinity: no bound is infinite."""
    return np.asarray(np.minimum(worst, np.finfo(np.float64).max))


def _smallest(stored: Any) -> float:
    """The smallest subnormal number of the arithmetic, in units of its u."""
    limits = np.finfo(np.float64 if is_double(np.asarray(stored)) else np.float32)
    return float(limits.smallest_subnormal) / unit_roundoff(np.asarray(stored))


quiet_hooks(globals())
