"""What causal convolutions compute, and what they may lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, inferred, quiet_hooks
from optest.operators.running_errors import Number, budgets, exactly, joined, moved, silu
from optest.operators.state_space.causal_conv import infer_causal_conv1d, infer_causal_conv1d_update
from optest.spec import ErrorBudget


def _conv(inputs: Sequence[Any], attributes: Attributes) -> tuple[Number, ...]:
    x, weight, bias, state = (inputs[place] for place in range(4))
    kept = weight.shape[1] - 1
    whole = _behind(state, x) if state is not None else moved(x, lambda array: _zeros_before(array, kept))
    out = _convolved(whole, weight, bias, x.shape[-1], attributes)
    last = whole.shape[-1]
    return (out, whole[:, :, last - kept :]) if attributes.get("return_final_states") else (out,)


def _update(inputs: Sequence[Any], attributes: Attributes) -> tuple[Number, ...]:
    x, state, weight, bias = (inputs[place] for place in range(4))
    whole = _behind(state, x if len(x.shape) == 3 else x[:, :, None])
    length = whole.shape[-1] - state.shape[-1]
    out = _convolved(whole, weight, bias, length, attributes)
    return out.reshape(x.shape), whole[:, :, length:]


def _zeros_before(array: Array, count: int) -> Array:
    return np.pad(array, ((0, 0), (0, 0), (count, 0)))


def _behind(state: Number, x: Number) -> Number:
    return joined([state, x], lambda parts: np.concatenate(parts, -1))


def _convolved(whole: Number, weight: Number, bias: Any, length: int, attributes: Attributes) -> Number:
    """Of the last ``length`` places of ``whole``."""
    first = whole.shape[-1] - length - weight.shape[1] + 1
    terms = [whole[:, :, first + k : first + k + length] * weight[:, k, None] for k in range(weight.shape[1])]
    out = joined(terms, lambda parts: np.stack(parts, -1)).sum(axis=-1)
    if bias is not None:
        out = out + bias[:, None]
    return silu(out) if attributes.get("activation") else out


def causal_conv1d_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    inferred(infer_causal_conv1d, inputs, attributes)
    return exactly(_conv, inputs, attributes)


def causal_conv1d_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """The running errors of width products, their sum, 4√width·Σ|t|, and the bias; silu adds 4 ulp, and at most 1.1 of
    what its argument is off. States are moved."""
    return budgets(_conv, inputs, attributes)


def causal_conv1d_update_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    inferred(infer_causal_conv1d_update, inputs, attributes)
    return exactly(_update, inputs, attributes)


def causal_conv1d_update_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """As causal_conv1d."""
    return budgets(_update, inputs, attributes)


quiet_hooks(globals())
