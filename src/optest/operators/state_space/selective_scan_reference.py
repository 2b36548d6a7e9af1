"""What a selective scan computes, and what it may lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import Array, Attributes, Inputs, inferred, quiet_hooks
from optest.operators.running_errors import Number, budgets, exactly, exp, joined, moved, silu, softplus
from optest.operators.state_space.selective_scan import infer_selective_scan
from optest.spec import ErrorBudget


def _scan(inputs: Sequence[Any], attributes: Attributes) -> tuple[Number, ...]:
    u, delta, a, b, c, d, z, bias = (inputs[place] for place in range(8))
    if bias is not None:
        delta = delta + bias[:, None]
    if attributes.get("delta_softplus"):
        delta = softplus(delta)
    dim, driven = u.shape[1], delta * u
    state: Number = moved(delta[:, :, :1].sum(axis=2), lambda array: np.zeros((*array.shape, a.shape[1]), array.dtype))
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
