"""Reference and error terms of adamw; both evaluate the same formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optest.operators.arrays import Array, Attributes, Inputs, infer_from_arrays, quiet_hooks
from optest.operators.optimizers.adamw import infer_adamw
from optest.operators.running_errors import Bounded, Number, budgets, constant, evaluate, larger_error_of, sqrt
from optest.spec import ErrorBudget


def _adamw_step(inputs: Sequence[Any], attributes: Attributes) -> tuple[Number, ...]:
    """Compute one step: the new param, exp_avg and exp_avg_sq."""
    param, grad, mean, square = (inputs[index] for index in range(4))
    rate, decay = (constant(attributes[name], param) for name in ("lr", "weight_decay"))
    (first, first_left), (second, second_left) = (
        _decays(attributes[name], attributes["step"], param) for name in ("beta1", "beta2")
    )
    grad = -grad if attributes.get("maximize") else grad
    # Kernels based on torch.lerp interpolate, which rounds the old mean even if beta1 is 0.
    mean = larger_error_of(mean * first[0] + grad * first[1], mean + (grad - mean) * first[1])
    square = square * second[0] + grad * grad * second[1]
    divisor = sqrt(square) / sqrt(second_left) + constant(attributes["eps"], param)
    return param * (1.0 - rate * decay) - rate / first_left * mean / divisor, mean, square


def _decays(beta: float, step: int, like: Number) -> tuple[tuple[Number, Number], Number]:
    """Return (β, 1 − β) and 1 − βᵗ in the arithmetic of ``like``."""
    power = beta**step
    if not isinstance(like, Bounded):
        wide = like.dtype.type(beta)
        return (wide, 1.0 - wide), 1.0 - wide**step
    # Kernels compute the power in float64, or as pow (16 ulp, 32 u) of a rounded β, which adds t·u.
    rounded = constant(beta, like)
    return (rounded, 1.0 - rounded), 1.0 - Bounded(power, power * (step + 32.0), double=like.double)


def adamw_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return the new param, exp_avg and exp_avg_sq."""
    infer_from_arrays(infer_adamw, inputs, attributes)
    return evaluate(_adamw_step, inputs, attributes)


def adamw_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Carry running errors through the formula, with m also as exp_avg + (1 − β₁)·(grad − exp_avg).

    1 − β of a rounded β has an error of u, and 1 − βᵗ one of (t + 33)·βᵗ·u.
    """
    return budgets(_adamw_step, inputs, attributes)


quiet_hooks(globals())
