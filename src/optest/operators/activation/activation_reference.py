"""References of the activations, in float64 from the stored inputs, and their error terms in units of u."""

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
    is_double,
    optional_input,
    quiet_hooks,
    round_to_operand_dtype,
    widen,
)
from optest.operators.budgets import unit_roundoff
from optest.operators.real_functions import evaluate_in_spare_precision, normal_tail, to_float64, with_spare_precision
from optest.operators.shapes import as_float
from optest.spec import ErrorBudget

_FLOAT32_U = 2.0**-24
# Beyond it, gelu is 0 or x in every dtype.
_FARTHEST_GELU = 40.0


def gelu_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return x · Φ(x), or its approximation by tanh."""
    x = widen(np.asarray(inputs[0]))
    if attributes.get("approximate", "none") == "tanh":
        # (1 + tanh u) / 2 = 1 / (1 + exp(−2u)), which does not cancel
        argument = np.sqrt(2.0 / np.pi) * x * (1.0 + 0.044715 * x * x)
        return (np.asarray(x / (1.0 + np.exp(-2.0 * argument))),)
    # Below 0, 1 + erf cancels; the tail is computed directly.
    tail = normal_tail(np.abs(x))
    return (np.asarray(x * np.where(x > 0, 1.0 - tail, tail)),)


def relu_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """Return max(x, 0) exactly; NaN stays NaN."""
    values = widen(np.asarray(inputs[0]))
    return (np.asarray(np.maximum(values, values.dtype.type(0))),)


def leaky_relu_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return x above 0, else negative_slope · x."""
    slope = attributes.get("negative_slope", 0.01)
    return (_evaluate(lambda x: np.where(x > 0, x, x * slope), inputs),)


def sigmoid_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """Return 1 / (1 + exp(−x)); integers and bool are rounded to float32 first."""
    array = np.asarray(inputs[0])
    return (
        evaluate_in_spare_precision(_sigmoid, round_to_operand_dtype(array, as_float(dtype_of(array.dtype))), array),
    )


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def silu_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """Return x · sigmoid(x); NaN for minus infinity, as in torch, which multiplies 0 · ∞."""
    return (_evaluate(lambda x: x * _sigmoid(x), inputs),)


def softplus_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return log(1 + exp(beta · x)) / beta, or x if beta · x is above threshold."""
    beta, threshold = attributes.get("beta", 1.0), attributes.get("threshold", 20.0)
    return (_evaluate(lambda x: np.where(x * beta > threshold, x, np.log1p(np.exp(x * beta)) / beta), inputs),)


def elu_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return x above 0, else alpha · (exp(x) − 1)."""
    alpha = attributes.get("alpha", 1.0)
    return (_evaluate(lambda x: np.where(x > 0, x, alpha * np.expm1(x)), inputs),)


# Klambauer, Unterthiner, Mayr and Hochreiter, "Self-Normalizing Neural Networks", 2017, with torch's digits.
_SELU_SCALE = np.longdouble("1.0507009873554804934193349852946")
_SELU_ALPHA = np.longdouble("1.6732632423543772848170429916717")


def selu_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """Return scale · x above 0, else scale · alpha · (exp(x) − 1)."""

    def selu(x: Array) -> Array:
        scale, alpha = _SELU_SCALE.astype(x.dtype), _SELU_ALPHA.astype(x.dtype)
        return np.asarray(scale * np.where(x > 0, x, alpha * np.expm1(x)))

    return (_evaluate(selu, inputs),)


def hardswish_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """Return x · min(max(x + 3, 0), 6) / 6; NaN for minus infinity, as in torch, which multiplies 0 · ∞."""
    return (_evaluate(lambda x: x * (np.minimum(np.maximum(x + 3, 0), 6) / 6), inputs),)


def swiglu_reference(inputs: Inputs, _attributes: Attributes) -> tuple[Array, ...]:
    """Return silu(gate) · up."""
    gate, up = (with_spare_precision(widen(array), array) for array in gate_and_up(inputs))
    return (to_float64(gate * _sigmoid(gate) * up),)


def gelu_and_mul_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return gelu(gate) · up."""
    gate, up = gate_and_up(inputs)
    return (np.asarray(gelu_reference([gate], attributes)[0] * widen(up)),)


def gate_and_up(inputs: Inputs) -> tuple[Array, Array]:
    """Return gate and up; the halves of gate along its last dimension if up is left out."""
    gate, up = np.asarray(inputs[0]), optional_input(inputs, 1)
    if up is not None:
        return gate, up
    half = gate.shape[-1] // 2
    return gate[..., :half], gate[..., half:]


def _evaluate(function: Callable[[Array], Array], inputs: Inputs) -> Array:
    array = np.asarray(inputs[0])
    return evaluate_in_spare_precision(function, widen(array), array)


def gelu_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Bound the cancellation of 1 + erf and 1 + tanh below 0, which |x|/2 multiplies, by 6·|x| and 4·|x|.

    Measured: 5.4·|x| at most with erf (torch, OpenVINO), 3.1·|x| with tanh (JAX, ONNX Runtime). |x| is 40 at most.
    """
    # Of the measured libraries only JAX computes the tail by erfc, without cancellation.
    size = np.minimum(np.abs(as_float64(inputs[0])), _FARTHEST_GELU)
    return (ErrorBudget((4.0 if attributes.get("approximate") == "tanh" else 6.0) * size),)


def leaky_relu_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Bound the rounding of the slope by |out| below 0. Above 0 there is no arithmetic."""
    return (
        ErrorBudget(np.where(as_float64(inputs[0]) < 0, _output_size(leaky_relu_reference(inputs, attributes)), 0.0)),
    )


def sigmoid_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Accept 0 below -86.9 (-709.78 in float64), where exp(-x) nears its overflow; there are no further errors."""
    # (1 + tanh(x/2)) / 2 loses the whole tail, and gets no allowance.
    return (ErrorBudget(_lost_tail(inputs[0], _output_size(sigmoid_reference(inputs, attributes)))),)


def silu_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Accept 0 for inputs below -86.9, as for sigmoid."""
    return (ErrorBudget(_lost_tail(inputs[0], _output_size(silu_reference(inputs, attributes)))),)


def _lost_tail(stored: Any, size: Array) -> Array:
    """Return an error of ``size``, in units of u, for inputs whose exp(-x) nears its overflow; 0 for others."""
    # There the inverse is near the smallest normal number: torch returns 0 below -88.72, OpenVINO below -86.99.
    lost = as_float64(stored) < (-709.78 if is_double(np.asarray(stored)) else -86.9)
    return np.where(lost, size / unit_roundoff(np.asarray(stored)), 0.0)


def softplus_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Bound the error for beta ≠ 1 by 2·|z|·s / beta + 5·|out|, z = beta·x, s = exp(z) / (1 + exp(z)); 0 for beta = 1.

    beta and z are rounded, and the share s of that error remains. The division by beta, 2.5 ulp, adds 5·|out|; it also
    divides the error of a subnormal number, at most 3 times the smallest one. Above a threshold of 20 or more both the
    line and the curve are right; they differ by exp(-z) / beta, which is visible in float64 only.
    """
    # log(1 + exp(x)) loses the tail below 0, and gets no allowance; log1p(exp(x)) does not.
    beta, threshold = attributes.get("beta", 1.0), attributes.get("threshold", 20.0)
    scaled = beta * as_float64(inputs[0])
    worst = np.zeros(scaled.shape)
    if beta != 1:
        share = 1.0 / (1.0 + np.exp(-scaled))
        rounded = np.where(share > 0.0, 2.0 * share * np.abs(scaled), 0.0) + 3.0 * _smallest(inputs[0])
        worst = rounded / beta + 5.0 * _output_size(softplus_reference(inputs, attributes))
    is_line = (scaled > threshold) & (threshold >= 20.0)
    curve = np.where(is_line, np.exp(-scaled) / beta / unit_roundoff(np.asarray(inputs[0])), 0.0)
    return (ErrorBudget(_finite_budget(worst + curve)),)


def elu_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Bound the error of alpha · expm1(x) by 10·|out| below 0. Above 0 there is no arithmetic."""
    # It is 5 ulp at least, for expm1 (JAX reaches 4.65 ulp), alpha and the product. exp(x) - 1 loses small results, and
    # gets no allowance.
    lost = 10.0 * _output_size(elu_reference(inputs, attributes))
    return (ErrorBudget(_finite_budget(np.where(as_float64(inputs[0]) < 0, lost, 0.0))),)


def selu_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Bound the error by |out| above 0, for the rounding of scale, and by 12·|out| below: as elu, and a product."""
    share = np.where(as_float64(inputs[0]) < 0, 12.0, 1.0)
    return (ErrorBudget(_finite_budget(share * _output_size(selu_reference(inputs, attributes)))),)


def hardswish_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Bound the roundings of x + 3, the product and 1/6 by 3·|out|, and the cancellation between -3 and 3 by 2·|x|.

    The cancellation is that of x/6 + ½ below 0: the quotient is 1.25 u off and the sum ½ u, which x multiplies. If 6·x
    overflows float32, so does the formula, and any result is right.
    """
    x, y = np.abs(as_float64(inputs[0])), _output_size(hardswish_reference(inputs, attributes))
    worst = 3.0 * y + np.where(x < 3.0, 2.0 * x, 0.0)
    # No budget of a float64 can be that large. 0.99 of the largest number keeps the budget finite; together with |out|,
    # more than a hundredth of it, every result is within the bound.
    if not is_double(np.asarray(inputs[0])):
        top = float(np.finfo(np.float32).max)
        worst = np.where(x > top / 6.0, 0.99 * top / _FLOAT32_U, worst)
    return (ErrorBudget(_finite_budget(worst)),)


def swiglu_terms(inputs: Inputs, _attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Bound the error of silu(gate), 4 ulp, times up by 8·|silu(gate)·up|; below -86.9 by all of it, as for silu.

    If silu(gate) is subnormal, its error is 3 times the smallest number (2.5 ulp and the rounding), times |up|. The
    rounding of the product is the rule's ceiling.
    """
    gate, up = gate_and_up(inputs)
    size = _output_size(silu_reference([gate], {}))
    lost = 8.0 * size + _lost_tail(gate, size) + 3.0 * _smallest(gate)
    return (ErrorBudget(_finite_budget(_finite_budget(lost) * np.abs(as_float64(up)))),)


def gelu_and_mul_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Bound the error of gelu(gate), 16 ulp and its terms, times |up|; subnormal numbers as for swiglu."""
    gate, up = gate_and_up(inputs)
    (of_gelu,) = gelu_terms([gate], attributes)
    lost = 32.0 * _output_size(gelu_reference([gate], attributes)) + of_gelu.worst + 3.0 * _smallest(gate)
    return (ErrorBudget(_finite_budget(_finite_budget(lost) * np.abs(as_float64(up)))),)


def _output_size(outputs: tuple[Array, ...]) -> Array:
    return np.abs(outputs[0])


def _finite_budget(worst: Array) -> Array:
    # A budget has to be finite.
    return np.asarray(np.minimum(worst, np.finfo(np.float64).max))


def _smallest(stored: Any) -> float:
    """Return the smallest subnormal number of the arithmetic, in units of its u."""
    limits = np.finfo(np.float64 if is_double(np.asarray(stored)) else np.float32)
    return float(limits.smallest_subnormal) / unit_roundoff(np.asarray(stored))


quiet_hooks(globals())
