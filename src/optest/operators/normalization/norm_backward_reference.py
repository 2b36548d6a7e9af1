"""References and error terms of rms_norm_backward and layer_norm_backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, quiet_hooks
from optest.operators.normalization.norms_reference import (
    deviation_budget,
    moments,
    normalized_budget,
    rms_epsilon,
    trailing_dims,
)
from optest.operators.running_errors import Bounded, Number, budgets, evaluate, sqrt
from optest.spec import ErrorBudget


def _rms_norm_gradients(inputs: Sequence[Any], attributes: Attributes) -> tuple[Number, ...]:
    """Compute the gradients by their formula, with running errors for Bounded inputs."""
    grad, x, weight = (inputs[i] for i in range(3))
    dims = _row_dims(x, attributes)
    # exactly() passes long double for float64 inputs, budgets() passes Bounded.
    double = x.double if isinstance(x, Bounded) else x.dtype == np.longdouble
    r = 1.0 / sqrt(_mean(x * x, dims) + rms_epsilon(attributes, double=double))
    z = x * r
    g = grad if weight is None else grad * weight
    grad_input = r * (g - z * _mean(g * z, dims))
    rows = tuple(range(dims[0]))
    return (grad_input,) if weight is None else (grad_input, (grad * z).sum(axis=rows))


def _layer_norm_gradients(inputs: Sequence[Any], attributes: Attributes) -> tuple[Number, ...]:
    """Compute the gradients by their formula, with running errors for Bounded inputs."""
    grad, x, weight = (inputs[i] for i in range(3))
    dims = _row_dims(x, attributes)
    z, r = _standardized(x, dims, attributes["eps"])
    g = grad if weight is None else grad * weight
    grad_input = r * (g - _mean(g, dims) - z * _mean(g * z, dims))
    if weight is None:
        return (grad_input,)
    rows = tuple(range(dims[0]))
    # torch returns no grad_bias for a layer without bias.
    bias_gradient = (grad.sum(axis=rows),) if attributes.get("bias", True) else ()
    return (grad_input, (grad * z).sum(axis=rows), *bias_gradient)


def _standardized(x: Number, dims: tuple[int, ...], eps: float) -> tuple[Number, Number]:
    """Return (x − mean) / std and 1 / std; for Bounded `x` with the errors of layer_norm."""
    values = x.value if isinstance(x, Bounded) else x
    # The mean of an empty row is NaN.
    if not values.size:
        return x, x
    centred, _, variance = moments(values, dims)
    std = np.sqrt(variance + eps)
    if not isinstance(x, Bounded):
        return centred / std, 1.0 / std
    # Running errors would count the error of the mean in the variance, where it cancels.
    worst, _ = normalized_budget(values, dims, eps, None, None, double=x.double)
    std_error = deviation_budget(values, dims, eps, double=x.double).worst
    return Bounded(centred / std, worst, double=x.double), 1.0 / Bounded(
        std, std_error.reshape(std.shape), double=x.double
    )


def _row_dims(x: Number, attributes: Attributes) -> tuple[int, ...]:
    """Return the dimensions of a row, for an array or a Bounded."""
    return trailing_dims(x.value if isinstance(x, Bounded) else x, attributes)


def _mean(values: Number, dims: tuple[int, ...]) -> Number:
    """Return the mean over `dims`, kept with size 1; 0 / 1 for empty dimensions."""
    return values.sum(axis=dims, keepdims=True) / float(max(1, np.prod([values.shape[dim] for dim in dims])))


def rms_norm_backward_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    return evaluate(_rms_norm_gradients, inputs, attributes)


def rms_norm_backward_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the running errors of the formula.

    These are the mean square, of which r takes half and the gradient r three times, both products and the mean of g·z,
    their difference, and 4√m·Σ|t| of a sum over m rows.
    """
    return budgets(_rms_norm_gradients, inputs, attributes)


def layer_norm_backward_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    return evaluate(_layer_norm_gradients, inputs, attributes)


def layer_norm_backward_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Return the errors of z and std in layer_norm, and the running errors of the rest of the formula.

    These are the products, both means, the differences, and 4√m·Σ|t| of a sum over m rows.
    """
    return budgets(_layer_norm_gradients, inputs, attributes)


quiet_hooks(globals())
