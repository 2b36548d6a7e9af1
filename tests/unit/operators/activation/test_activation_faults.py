"""`optest check` with default settings finds faulty activations of every kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from elementwise_kernels import (
    Attributes,
    Fault,
    Inputs,
    Right,
    asked,
    changed,
    fitting,
    instead,
    is_found,
    with_attributes,
)

from optest.operators.real_functions import normal_tail


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def tanh_sigmoid(x: Any) -> Any:
    return (1 + np.tanh(x / 2)) / 2


def nan_as_zero(out: Any, _: Inputs) -> Any:
    return np.where(np.isnan(out), 0.0, out) if out.dtype.kind == "f" else out


def gelu(x: Any) -> Any:
    return x * np.where(x > 0, 1 - normal_tail(np.abs(x)), normal_tail(np.abs(x)))


def halves(function: Any) -> Fault:
    """A kernel of gate and up, for both ways to give them."""

    def fault(inputs: Inputs, _: Attributes, right: Right) -> Right:
        gate, up = inputs[0], inputs[1] if len(inputs) > 1 else None
        is_split = up is None
        if is_split:
            gate, up = np.split(gate, 2, axis=-1)
        wide = np.float64 if gate.dtype == np.float64 else np.float32
        with np.errstate(all="ignore"):
            found = function(np.asarray(gate).astype(wide), np.asarray(up).astype(wide), is_split)
        return [fitting(np.asarray(found).astype(np.float64), right[0])]

    return fault


def interleaved(inputs: Inputs, _: Attributes, right: Right) -> Right:
    """Gate and up are taken in turn, not as halves."""
    if len(inputs) > 1 and inputs[1] is not None:
        return right
    gate, up = inputs[0][..., ::2].astype(np.float64), inputs[0][..., 1::2].astype(np.float64)
    with np.errstate(all="ignore"):
        return [fitting(gate * sigmoid(gate) * up, right[0])]


TABLE: dict[str, dict[str, Fault]] = {
    "relu": {
        "NaN becomes 0": changed(nan_as_zero),
        "absolute value": asked(np.abs),
        "capped at 6": asked(lambda x: np.clip(x, 0, 6)),
        "leaky": asked(lambda x: np.where(x > 0, x, x * np.float32(0.01))),
        "1 for positive numbers": asked(lambda x: (x > 0).astype(np.float32)),
        "by multiplication": asked(lambda x: x * (x > 0)),
    },
    "leaky_relu": {
        "slope ignored": with_attributes("leaky_relu", negative_slope=0.01),
        "slope of both sides": asked(lambda x, stated: x * np.float32(stated["negative_slope"]), attributes=True),
        "max(x, slope * x)": asked(
            lambda x, stated: np.maximum(x, x * np.float32(stated["negative_slope"])), attributes=True
        ),
        "relu": instead("relu"),
        "slope of 16 bits": asked(
            lambda x, stated: np.where(x > 0, x, x * np.float32(np.float16(stated["negative_slope"]))), attributes=True
        ),
        "NaN becomes 0": changed(nan_as_zero),
    },
    "sigmoid": {
        "tanh form, which loses the tail": asked(tanh_sigmoid),
        "hard": asked(lambda x: np.clip(x / 6 + np.float32(0.5), 0, 1)),
        "clamped at 15": asked(lambda x: sigmoid(np.clip(x, -15, 15))),
        "exp(x) / (1 + exp(x)), which overflows": asked(lambda x: np.exp(x) / (1 + np.exp(x))),
        "of -x": asked(lambda x: sigmoid(-x)),
        "approximate exponential": asked(lambda x: 1 / (1 + np.exp2(-x * np.float32(1.4427)))),
        "softsign": asked(lambda x: (1 + x / (1 + np.abs(x))) / 2),
        "NaN becomes 0": changed(nan_as_zero),
    },
    "silu": {
        "sigmoid": instead("sigmoid"),
        "gelu": instead("gelu"),
        "hardswish": instead("hardswish"),
        "relu": instead("relu"),
        "slope 1.702": asked(lambda x: x * sigmoid(np.float32(1.702) * x)),
        "x exp(x) / (1 + exp(x)), which overflows": asked(lambda x: x * np.exp(x) / (1 + np.exp(x))),
        "exponential of 16 bits": asked(lambda x: x / (1 + np.exp(-x).astype(np.float16).astype(np.float32))),
        "0 below -10": asked(lambda x: np.where(x < -10, 0, x * sigmoid(x))),
        "NaN becomes 0": changed(nan_as_zero),
    },
    "softplus": {
        "beta ignored": with_attributes("softplus", beta=1.0),
        "threshold ignored": with_attributes("softplus", threshold=1e30),
        "threshold against x": asked(
            lambda x, stated: np.where(
                x > stated["threshold"],
                x,
                np.log1p(np.exp(x * np.float32(stated["beta"]))) / np.float32(stated["beta"]),
            ),
            attributes=True,
        ),
        "not divided by beta": asked(
            lambda x, stated: np.where(
                x * np.float32(stated["beta"]) > stated["threshold"],
                x,
                np.log1p(np.exp(x * np.float32(stated["beta"]))),
            ),
            attributes=True,
        ),
        "without threshold, which overflows": asked(
            lambda x, stated: np.log1p(np.exp(x * np.float32(stated["beta"]))) / np.float32(stated["beta"]),
            attributes=True,
        ),
        "relu": instead("relu"),
        "0 below -5": asked(lambda x: np.where(x < -5, 0, np.where(x > 20, x, np.log1p(np.exp(x))))),
        "base 2": asked(lambda x: np.where(x > 20, x, np.log2(1 + np.exp2(x)))),
    },
    "elu": {
        "alpha ignored": with_attributes("elu", alpha=1.0),
        "alpha of the argument": asked(
            lambda x, stated: np.where(x > 0, x, np.expm1(np.float32(stated["alpha"]) * x)), attributes=True
        ),
        "selu": asked(lambda x: np.float32(1.0507) * np.where(x > 0, x, np.float32(1.6733) * np.expm1(x))),
        "not minus 1": asked(
            lambda x, stated: np.where(x > 0, x, np.float32(stated["alpha"]) * np.exp(x)), attributes=True
        ),
        "max(x, 0) + min(alpha (exp(x) - 1), 0)": asked(
            lambda x, stated: np.maximum(x, 0) + np.minimum(np.float32(stated["alpha"]) * np.expm1(x), 0),
            attributes=True,
        ),
        "exponential of 16 bits": asked(
            lambda x, stated: np.where(
                x > 0, x, np.float32(stated["alpha"]) * (np.exp(x).astype(np.float16).astype(np.float32) - 1)
            ),
            attributes=True,
        ),
        "celu": asked(
            lambda x, stated: np.where(
                x > 0, x, np.float32(stated["alpha"]) * np.expm1(x / np.float32(stated["alpha"] or 1.0))
            ),
            attributes=True,
        ),
    },
    "hardswish": {
        "silu": instead("silu"),
        "without division": asked(lambda x: x * np.clip(x + 3, 0, 6)),
        "hard sigmoid": asked(lambda x: np.clip(x + 3, 0, 6) / 6),
        "slope 0.2": asked(lambda x: x * np.clip(x * np.float32(0.2) + np.float32(0.5), 0, 1)),
        "1/6 of 16 bits": asked(lambda x: x * np.clip(x + 3, 0, 6) * np.float32(np.float16(1 / 6))),
        "0 below -2.9": asked(lambda x: np.where(x < -2.995, 0, x * np.clip(x + 3, 0, 6) / 6)),
        "NaN becomes 0": changed(nan_as_zero),
    },
    "gelu": {
        "approximate ignored": with_attributes("gelu", approximate="none"),
        "always approximate": with_attributes("gelu", approximate="tanh"),
        "sigmoid form": asked(lambda x: x * sigmoid(np.float32(1.702) * x)),
        "silu": instead("silu"),
        "without sqrt 2": asked(lambda x: x * (1 - normal_tail(np.abs(x * math.sqrt(2)))) * (x > 0)),
        "relu": instead("relu"),
        "0 below -3": asked(lambda x: np.where(x < -3, 0, gelu(x))),
    },
    "swiglu": {
        "operands swapped": halves(lambda gate, up, _: up * sigmoid(up) * gate),
        "halves swapped": halves(
            lambda gate, up, is_split: up * sigmoid(up) * gate if is_split else gate * sigmoid(gate) * up
        ),
        "interleaved": interleaved,
        "sigmoid gate": halves(lambda gate, up, _: sigmoid(gate) * up),
        "gelu gate": halves(lambda gate, up, _: gelu(gate) * up),
        "silu of the product": halves(lambda gate, up, _: gate * up * sigmoid(gate * up)),
        "gate of 16 bits": halves(
            lambda gate, up, _: (gate * sigmoid(gate)).astype(np.float16).astype(np.float32) * up
        ),
        "up ignored": halves(lambda gate, up, _: gate * sigmoid(gate)),
    },
}

SPECIFIC = [(operator, name) for operator, faults in TABLE.items() for name in faults]


@pytest.mark.parametrize(("operator", "name"), SPECIFIC)
def test_faults_of_the_activation_are_found(operator: str, name: str) -> None:
    assert is_found(operator, TABLE[operator][name])
