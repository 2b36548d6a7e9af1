"""What the activations compute, in float64 from the inputs as they are stored, with bits to spare."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from optest.numerics import dtype_of
from optest.operators.arrays import (
    Array,
    Attributes,
    Inputs,
    converted,
    quiet,
    widen,
)
from optest.operators.normal_tail import normal_tail
from optest.operators.real_functions import evaluated, spacious, spared
from optest.operators.shapes import as_float

__all__ = [
    "elu_reference",
    "gate_and_up",
    "gelu_reference",
    "hardswish_reference",
    "leaky_relu_reference",
    "relu_reference",
    "sigmoid_reference",
    "silu_reference",
    "softplus_reference",
    "swiglu_reference",
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


@quiet
def leaky_relu_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    slope = attributes.get("negative_slope", 0.01)
    return (_evaluated(lambda x: np.where(x > 0, x, x * slope), inputs),)


@quiet
def sigmoid_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """1 / (1 + exp(−x)); integers and bool are read as float32."""
    array = np.asarray(inputs[0])
    return (evaluated(_sigmoid, converted(array, as_float(dtype_of(array.dtype))), array),)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


@quiet
def silu_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """x · sigmoid(x); NaN for minus infinity, as 0 · ∞ is in torch."""
    return (_evaluated(lambda x: x * _sigmoid(x), inputs),)


@quiet
def softplus_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """log(1 + exp(beta · x)) / beta, and x itself where beta · x is above threshold."""
    beta, threshold = attributes.get("beta", 1.0), attributes.get("threshold", 20.0)
    return (_evaluated(lambda x: np.where(x * beta > threshold, x, np.log1p(np.exp(x * beta)) / beta), inputs),)


@quiet
def elu_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """x above 0, else alpha · (exp(x) − 1)."""
    alpha = attributes.get("alpha", 1.0)
    return (_evaluated(lambda x: np.where(x > 0, x, alpha * np.expm1(x)), inputs),)


@quiet
def hardswish_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """x · min(max(x + 3, 0), 6) / 6; NaN for minus infinity, as 0 · ∞ is in torch."""
    return (_evaluated(lambda x: x * (np.minimum(np.maximum(x + 3, 0), 6) / 6), inputs),)


@quiet
def swiglu_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """silu(gate) · up; without up, the halves of gate along its last dimension."""
    gate, up = (spacious(widen(each), each) for each in gate_and_up(inputs))
    return (spared(gate * _sigmoid(gate) * up),)


def gate_and_up(inputs: Inputs) -> tuple[Array, Array]:
    gate = np.asarray(inputs[0])
    if len(inputs) > 1 and inputs[1] is not None:
        return gate, np.asarray(inputs[1])
    half = gate.shape[-1] // 2
    return gate[..., :half], gate[..., half:]


def _evaluated(function: Callable[[Array], Array], inputs: Inputs) -> Array:
    array = np.asarray(inputs[0])
    return evaluated(function, widen(array), array)
