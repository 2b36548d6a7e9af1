"""References and error terms of state space models; both evaluate the same formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, infer_from_arrays, quiet_hooks
from optest.operators.running_errors import Number, budgets, evaluate, exp, joined, move_elements, silu, softplus
from optest.operators.state_space.state_space import (
    infer_causal_conv1d,
    infer_causal_conv1d_update,
    infer_selective_scan,
)
from optest.spec import ErrorBudget


def _causal_conv1d(inputs: Sequence[Any], attributes: Attributes) -> tuple[Number, ...]:
    """Compute causal_conv1d: out, and with ``return_final_states`` the last width − 1 elements."""
    x, weight, bias, state = (inputs[index] for index in range(4))
    kept = weight.shape[1] - 1
    if state is not None:
        sequence = joined([state, x], lambda parts: np.concatenate(parts, -1))
    else:
        sequence = move_elements(x, lambda array: np.pad(array, ((0, 0), (0, 0), (kept, 0))))
    out = _convolved(sequence, weight, bias, x.shape[-1], attributes)
    # Not [-kept:], which is everything for a width of 1.
    end = sequence.shape[-1]
    return (out, sequence[:, :, end - kept :]) if attributes.get("return_final_states") else (out,)


def _causal_conv1d_update(inputs: Sequence[Any], attributes: Attributes) -> tuple[Number, ...]:
    """Compute causal_conv1d_update: out and the new state."""
    x, state, weight, bias = (inputs[index] for index in range(4))
    tokens = x if len(x.shape) == 3 else x[:, :, None]
    sequence = joined([state, tokens], lambda parts: np.concatenate(parts, -1))
    length = tokens.shape[-1]
    out = _convolved(sequence, weight, bias, length, attributes)
    return out.reshape(x.shape), sequence[:, :, length:]


def _convolved(sequence: Number, weight: Number, bias: Any, length: int, attributes: Attributes) -> Number:
    """Return bias plus convolution, and the activation, for the last ``length`` elements of the sequence."""
    first = sequence.shape[-1] - length - weight.shape[1] + 1
    terms = [sequence[:, :, first + k : first + k + length] * weight[:, k, None] for k in range(weight.shape[1])]
    out = joined(terms, lambda parts: np.stack(parts, -1)).sum(axis=-1)
    if bias is not None:
        out = out + bias[:, None]
    return silu(out) if attributes.get("activation") else out


def causal_conv1d_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return out, and with ``return_final_states`` the final states."""
    infer_from_arrays(infer_causal_conv1d, inputs, attributes)
    return evaluate(_causal_conv1d, inputs, attributes)


def causal_conv1d_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Carry running errors through width products, their sum (4√width·Σ|t|) and the bias; states have no error.

    silu adds 4 ulp and at most 1.1 times the error of its argument.
    """
    return budgets(_causal_conv1d, inputs, attributes)


def causal_conv1d_update_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return out and the new state."""
    infer_from_arrays(infer_causal_conv1d_update, inputs, attributes)
    return evaluate(_causal_conv1d_update, inputs, attributes)


def causal_conv1d_update_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Carry running errors through the formula, as for causal_conv1d."""
    return budgets(_causal_conv1d_update, inputs, attributes)


def _selective_scan(inputs: Sequence[Any], attributes: Attributes) -> tuple[Number, ...]:
    """Compute selective_scan step by step: out, and with ``return_last_state`` the last state."""
    u, delta, a, b, c, d, z, bias, state = (inputs[index] for index in range(9))
    if bias is not None:
        delta = delta + bias[:, None]
    if attributes.get("delta_softplus"):
        delta = softplus(delta)
    dim, driven = u.shape[1], delta * u
    if state is None:
        shape = (*u.shape[:2], a.shape[1])
        state = move_elements(delta, lambda array: np.zeros(shape, array.dtype))
    outs = []
    for t in range(u.shape[2]):
        state = exp(delta[:, :, t, None] * a) * state + driven[:, :, t, None] * _at_time(b, t, dim)
        outs.append((state * _at_time(c, t, dim)).sum(axis=-1))
    out = joined(outs, lambda parts: np.stack(parts, -1)) if outs else u
    if d is not None:
        out = out + u * d[:, None]
    if z is not None:
        out = out * silu(z)
    return (out, state) if attributes.get("return_last_state") else (out,)


def _at_time(values: Number, t: int, dim: int) -> Number:
    """Return B or C at time ``t`` in a shape that broadcasts with batch x dim x states."""
    if len(values.shape) == 2:
        return values[None]
    if len(values.shape) == 3:
        return values[:, None, :, t]
    return move_elements(values[:, :, :, t], lambda array: np.repeat(array, dim // array.shape[1], 1))


def selective_scan_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    """Return out, and with ``return_last_state`` the last state."""
    infer_from_arrays(infer_selective_scan, inputs, attributes)
    return evaluate(_selective_scan, inputs, attributes)


def selective_scan_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """Carry running errors through the recurrence: exp(δ·A) adds 2·|δ·A| + 6 and the error of δ, times itself.

    Each step adds one product and one sum to the state's error, which decays as the state does. The order in which
    kernels scan and join chunks makes no difference: each step has its products and its sum in either order.
    """
    return budgets(_selective_scan, inputs, attributes)


quiet_hooks(globals())
