"""What state space models compute, and what they may lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, inferred, quiet_hooks
from optest.operators.running_errors import Number, budgets, exactly, exp, joined, moved, silu, softplus
from optest.operators.state_space.state_space import (
    infer_causal_conv1d,
    infer_causal_conv1d_update,
    infer_selective_scan,
)
from optest.spec import ErrorBudget


def _conv(inputs: Sequence[Any], attributes: Attributes) -> tuple[Number, ...]:
    x, weight, bias, state = (inputs[place] for place in range(4))
    kept = weight.shape[1] - 1
    if state is not None:
        whole = _behind(state, x)
    else:
        whole = moved(x, lambda array: np.pad(array, ((0, 0), (0, 0), (kept, 0))))
    out = _convolved(whole, weight, bias, x.shape[-1], attributes)
    last = whole.shape[-1]
    return (out, whole[:, :, last - kept :]) if attributes.get("return_final_states") else (out,)


def _update(inputs: Sequence[Any], attributes: Attributes) -> tuple[Number, ...]:
    x, state, weight, bias = (inputs[place] for place in range(4))
    whole = _behind(state, x if len(x.shape) == 3 else x[:, :, None])
    length = whole.shape[-1] - state.shape[-1]
    out = _convolved(whole, weight, bias, length, attributes)
    return out.reshape(x.shape), whole[:, :, length:]


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


def _scan(inputs: Sequence[Any], attributes: Attributes) -> tuple[Number, ...]:
    u, delta, a, b, c, d, z, bias, state = (inputs[place] for place in range(9))
    if bias is not None:
        delta = delta + bias[:, None]
    if attributes.get("delta_softplus"):
        delta = softplus(delta)
    dim, driven = u.shape[1], delta * u
    if state is None:
        shape = (*u.shape[:2], a.shape[1])
        state = moved(delta, lambda array: np.zeros(shape, array.dtype))
    outs = []
    for t in range(u.shape[2]):
        state = exp(delta[:, :, t, None] * a) * state + driven[:, :, t, None] * _at(b, t, dim)
        outs.append((state * _at(c, t, dim)).sum(axis=-1))
    out = joined(outs, lambda parts: np.stack(parts, -1)) if outs else u
    if d is not None:
        out = out + u * d[:, None]
    if z is not None:
        out = out * silu(z)
    return (out, state) if attributes.get("return_last_state") else (out,)


def _at(values: Number, t: int, dim: int) -> Number:
    """B or C at a time, in a shape that broadcasts with batch x dim x states."""
    if len(values.shape) == 2:
        return values[None]
    if len(values.shape) == 3:
        return values[:, None, :, t]
    return moved(values[:, :, :, t], lambda array: np.repeat(array, dim // array.shape[1], 1))


def selective_scan_reference(inputs: Inputs, attributes: Attributes) -> tuple[Array, ...]:
    inferred(infer_selective_scan, inputs, attributes)
    return exactly(_scan, inputs, attributes)


def selective_scan_terms(inputs: Inputs, attributes: Attributes) -> tuple[ErrorBudget, ...]:
    """The running errors of the recurrence: at each step exp(δ·A) is off by (2·|δ·A| + 6) and what δ is, the state by
    that, one product and one sum, all of which decays as the state does. The order in which chunks are scanned and
    joined makes no difference to that: each step has its products and its sum in either."""
    return budgets(_scan, inputs, attributes)


quiet_hooks(globals())
