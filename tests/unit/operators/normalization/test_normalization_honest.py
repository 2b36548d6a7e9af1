"""Samples of normalisations pass for correct kernels in float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from sample_questions import by_reference, wrong_answers
from sample_questions import widened_as_kernels_do as single

from optest.operators.normalization.softmax_reference import visible_columns

Array = np.ndarray[Any, Any]
Inputs = Sequence[Any]
Attributes = Mapping[str, Any]
Kernel = Callable[[Inputs, Attributes], Any]


def eps_of(inputs: Inputs, attributes: Attributes) -> float:
    eps = attributes["eps"]
    return float(eps if eps is not None else 2.0**-52 if inputs[0].dtype == np.float64 else 2.0**-23)


def rows_of(inputs: Inputs, attributes: Attributes) -> tuple[Array, tuple[int, ...]]:
    """Return the input of layer_norm or rms_norm as rows, and its shape."""
    x = np.asarray(inputs[0])
    width = int(np.prod(attributes["normalized_shape"]))
    return x.reshape(x.size // max(width, 1), width), x.shape


def scaled_and_shifted(y: Array, shape: tuple[int, ...], weight: Any, bias: Any = None) -> Array:
    y = y.reshape(shape)
    y = y if weight is None else y * single(weight)
    return np.asarray(y if bias is None else y + single(bias))


Formula = Callable[[Array, float], Array]


def layer_norm_by(formula: Formula) -> Kernel:
    def call(inputs: Inputs, attributes: Attributes) -> Any:
        rows, shape = rows_of(inputs, attributes)
        weight, bias = (*inputs, None, None)[1:3]
        return scaled_and_shifted(formula(single(rows), attributes["eps"]), shape, weight, bias)

    return call


def rms_norm_by(formula: Formula) -> Kernel:
    def call(inputs: Inputs, attributes: Attributes) -> Any:
        rows, shape = rows_of(inputs, attributes)
        return scaled_and_shifted(formula(single(rows), eps_of(inputs, attributes)), shape, (*inputs, None)[1])

    return call


def two_pass(x: Array, eps: float) -> Array:
    n = x.dtype.type(max(x.shape[-1], 1))
    centred = x - x.sum(-1, keepdims=True) / n
    return np.asarray(centred / np.sqrt((centred * centred).sum(-1, keepdims=True) / n + x.dtype.type(eps)))


def rms(x: Array, eps: float) -> Array:
    return np.asarray(x * (x.dtype.type(1) / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(eps))))


def softmax_by(formula: Callable[[Array], Array]) -> Kernel:
    """Return a softmax or log_softmax kernel that applies `formula` along the last axis."""

    def call(inputs: Inputs, attributes: Attributes) -> Any:
        x = single(inputs[0])
        if not x.size:
            return x
        row = x.reshape(x.shape or (1,))
        moved = np.moveaxis(row, attributes["dim"], -1)
        return np.moveaxis(formula(moved), -1, attributes["dim"]).reshape(x.shape)

    return call


def softmax_rows(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def log_softmax_rows(x: Array) -> Array:
    d = x - x.max(-1, keepdims=True)
    return np.asarray(d - np.log(np.exp(d).sum(-1, keepdims=True)))


def folded_batch_norm(inputs: Inputs, attributes: Attributes) -> Any:
    """Return batch_norm by running statistics as x·scale + shift in float32; in training the reference."""
    x, mean, variance, weight, bias = (*inputs, None, None, None, None)[:5]
    if attributes["training"]:
        return by_reference("batch_norm")(inputs, attributes)
    x, mean, variance = single(x), single(mean), single(variance)
    scale = (x.dtype.type(1) if weight is None else single(weight)) / np.sqrt(
        variance + x.dtype.type(attributes["eps"])
    )
    shift = (x.dtype.type(0) if bias is None else single(bias)) - mean * scale
    shape = (-1, *(1,) * (x.ndim - 2))
    return x * scale.reshape(shape) + shift.reshape(shape)


def folded_group_norm(inputs: Inputs, attributes: Attributes) -> Any:
    """Return group_norm as x·scale + shift in float32."""
    x, weight, bias = single(inputs[0]), *(*inputs, None, None)[1:3]
    if not x.size:
        return x
    rows = x.reshape(len(x) * attributes["num_groups"], -1)
    t = x.dtype.type
    mean = rows.sum(-1, keepdims=True) / t(rows.shape[-1])
    variance = ((rows - mean) ** 2).sum(-1, keepdims=True) / t(rows.shape[-1])
    channels_per_group = x.shape[1] // attributes["num_groups"]
    by_channel = (len(x), x.shape[1], *(1,) * (x.ndim - 2))
    mean, r = (
        np.repeat(v, channels_per_group, axis=1).reshape(by_channel)
        for v in (mean, t(1) / np.sqrt(variance + t(attributes["eps"])))
    )
    channel = (1, -1, *(1,) * (x.ndim - 2))
    scale = r if weight is None else single(weight).reshape(channel) * r
    return x * scale + ((t(0) if bias is None else single(bias).reshape(channel)) - mean * scale)


def folded_training_batch_norm(inputs: Inputs, attributes: Attributes) -> Any:
    """Return batch_norm as x·scale + shift in float32, in training by the statistics of the batch."""
    if not attributes["training"]:
        return folded_batch_norm(inputs, attributes)
    x, t = single(inputs[0]), single(inputs[0]).dtype.type
    if not x.size:
        return x
    dims = (0, *range(2, x.ndim))
    count = t(x.size / x.shape[1])
    mean = x.sum(dims) / count
    centred = x - mean.reshape(-1, *(1,) * (x.ndim - 2))
    variance = (centred * centred).sum(dims) / count
    weight, bias = (*inputs, None, None, None, None)[3:5]
    return folded_batch_norm([x, mean, variance, weight, bias], {**attributes, "training": False})


def layer_norm_with_statistics(inputs: Inputs, attributes: Attributes) -> Any:
    """Return all outputs of layer_norm in float32 arithmetic."""
    out = layer_norm_by(two_pass)(inputs, attributes)
    if not attributes["statistics"]:
        return out
    rows, shape = rows_of(inputs, attributes)
    x = single(rows)
    t = x.dtype.type
    centred = x - (x.sum(-1, keepdims=True) / t(x.shape[-1]))
    std = np.sqrt((centred * centred).sum(-1) / t(x.shape[-1]) + t(attributes["eps"]))
    lead = shape[: len(shape) - len(attributes["normalized_shape"])]
    return out, layer_norm_by(two_pass)(inputs[:1], attributes), std.reshape(lead)


def causal(inputs: Inputs, _: Attributes) -> Any:
    x = single(inputs[0])
    return softmax_rows(np.where(visible_columns(*x.shape[-2:]), x, x.dtype.type(-np.inf))) if x.size else x


KERNELS: dict[str, Kernel] = {
    "group_norm": folded_group_norm,
    "batch_norm": folded_training_batch_norm,
    "layer_norm": layer_norm_with_statistics,
    "rms_norm": rms_norm_by(rms),
    "softmax": softmax_by(softmax_rows),
    "log_softmax": softmax_by(log_softmax_rows),
    "causal_softmax": causal,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operator", KERNELS)
def test_correct_kernels_pass(operator: str) -> None:
    assert wrong_answers(operator, KERNELS[operator]) == []
