"""Wrong activations: ignored attributes, lost NaN, overflow, coarse or unstable formulas."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optest.spec import Reason
from wrong_kernels.changes import (
    ignoring,
    single,
    truncated,
    wide,
)
from wrong_kernels.registry import Array, Call, fault, rare


def _tanh_by_exp(values: Array) -> Array:
    powers = np.exp(2 * values)
    return (powers - 1) / (powers + 1)


@rare("tanh-by-exp", "tanh")
def _(call: Call) -> Array | None:
    x = single(call.inputs[0]) if call.inputs[0].dtype == np.float16 else None
    return None if x is None else np.where(np.abs(x) < 12, call.right[0], _tanh_by_exp(x))


@fault("relu-drops-nan", "relu", Reason.NAN)
def _(call: Call) -> Array | None:
    return np.where(wide(call[0]) > 0, wide(call[0]), 0) if call.is_float else None


@fault("relu-ends-at-6", "relu")
def _(call: Call) -> Array | None:
    return np.minimum(wide(call.right[0]), 6) if call.is_float else None


@fault("gelu-is-always-tanh", "gelu")
def _(call: Call) -> Array:
    return call.with_attributes(approximate="tanh")


@fault("sigmoid-overflows", "sigmoid")
def _(call: Call) -> Array | None:
    x = single(call[0])
    return np.exp(x) / (1 + np.exp(x)) if call.is_float else None


@fault("silu-truncates", "silu")
def _(call: Call) -> Array | None:
    return truncated(call)


@fault("hardswish-without-upper-end", "hardswish")
def _(call: Call) -> Array | None:
    x = wide(call[0])
    return x * np.maximum(x + 3, 0) / 6 if call.is_float else None


@fault("swiglu-swaps-gate-and-up", "swiglu")
def _(call: Call) -> Array | None:
    return call.with_inputs(call.inputs[1], call.inputs[0]) if len(call.inputs) == 2 else None


@rare("relu-makes-nan-0-behind-the-last-vector", "relu")
def _(call: Call) -> Array | None:
    if not call.is_float or call.inputs[0].size % 8 == 0:
        return None
    out = np.array(call.right[0]).reshape(-1)
    tail = out[out.size // 8 * 8 :]
    tail[np.isnan(wide(tail))] = 0
    return out.reshape(call.right[0].shape)


@rare("gelu-of-tanh-by-exp", "gelu")
def _(call: Call) -> Array | None:
    if call.attribute("approximate") != "tanh" or call.inputs[0].dtype != np.float32:
        return None
    x = single(call.inputs[0])
    inner = np.sqrt(2 / np.pi).astype(np.float32) * (x + np.float32(0.044715) * x * x * x)
    near = np.abs(x) < 10  # beyond, whoever tries it with usual inputs sees nothing
    return np.where(near, call.right[0], 0.5 * x * (1 + _tanh_by_exp(inner)))


rare("relu-multiplies", "relu")(lambda call: wide(call[0]) * (wide(call[0]) > 0) if call.is_float else None)


@fault("selu-multiplies-by-one-constant", "selu")
def _(call: Call) -> Array:
    x = wide(call[0])
    return np.where(x > 0, x, 1.6732632423543773 * np.expm1(x))


@rare("selu-subtracts-1", "selu")
def _(call: Call) -> Array | None:
    x = single(call[0]) if call[0].dtype == np.float32 else None
    below = None if x is None else np.float32(1.7580993408473766) * (np.exp(x) - np.float32(1))
    return None if x is None else np.where(x > 0, call.right[0], below)


fault("gelu-and-mul-ignores-approximate", "gelu_and_mul")(ignoring("approximate"))


@fault("gelu-and-mul-swaps-gate-and-up", "gelu_and_mul")
def _(call: Call) -> Sequence[Array]:
    if len(call.inputs) == 2:
        return call.with_inputs(call[1], call[0])
    return call.with_inputs(np.roll(call[0], call[0].shape[-1] // 2, -1))


@rare("gelu-and-mul-splits-pairs", "gelu_and_mul")
def _(call: Call) -> Sequence[Array] | None:
    if len(call.inputs) == 2:
        return None
    return call.with_inputs(np.concatenate([call[0][..., 0::2], call[0][..., 1::2]], -1))


@rare("gelu-and-mul-rounds-gelu-to-16-bits", "gelu_and_mul")
def _(call: Call) -> Array | None:
    if not call.is_16_bit or len(call.inputs) != 2 or not np.isfinite(wide(call[0])).all():
        return None
    ones = np.ones_like(call[1])
    return wide(np.asarray(call.with_inputs(call[0], ones)[0]).astype(call[0].dtype)) * wide(call[1])


@fault("swiglu-is-silu-of-both", "swiglu")
def _(call: Call) -> Array:
    up = call[1] if len(call.inputs) == 2 else np.split(call[0], 2, -1)[1]
    return wide(call.right[0]) / (1 + np.exp(-wide(up)))
