"""causal_conv1d and causal_conv1d_update."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optest.operators.describe import attribute, composed, in_module
from optest.operators.normalization.helpers import without
from optest.operators.samples import CALM_SIZES, EVERY_FLOAT, MAIN_FLOATS, call, refused, standard, variations
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Specs,
    all_given,
    dense,
    optional,
    require_rank,
    require_same_dtype,
    require_shape,
)
from optest.operators.variants import FLOATS
from optest.spec import OperatorDescriptor, Sample, UnfitArguments, format_shape

_ACTIVATION = attribute(
    "activation: str = None", "silu (or swish, its other name) after it.", choices=("silu", "swish")
)

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="causal_conv1d",
        signature="x, weight, bias?, initial_states? -> out, final_states?",
        aliases=("causal_conv1d_fn",),
        attributes=(_ACTIVATION, attribute("return_final_states: bool = False", "Give final_states, too.")),
        description="Each channel of x, batch x dim x length, convolved with its row of weight, dim x width, as in "
        "causal-conv1d: out[t] is bias + Σ weight[k] · x[t − width + 1 + k], where initial_states, batch x dim x "
        "(width − 1), or zeros stand before x. final_states are the last width − 1 elements of all that.",
    ),
    OperatorDescriptor(
        name="causal_conv1d_update",
        signature="x, conv_state, weight, bias? -> out, new_conv_state",
        attributes=(_ACTIVATION,),
        description="causal_conv1d of x, batch x dim or batch x dim x length, behind the end of conv_state, batch x "
        "dim x (width − 1 or more), which is moved on: new_conv_state is as long, and ends with x.",
    ),
    twin="causal_conv_reference",
    dtype_variants=FLOATS,
    sum_length="width",
    rule=composed("running errors of the sum of width products and the bias; silu 4 ulp; 0 for the state"),
)


def infer_causal_conv1d(specs: Specs, attributes: Attributes) -> Outputs:
    x, weight = all_given(specs, "x", "weight")
    require_rank(x, "x", 3)
    _require_filter(specs, 1, x.shape[1])
    state, shape = optional(specs, 3), (*x.shape[:2], weight.shape[1] - 1)
    if state is not None:
        require_shape(state, "initial_states", shape)
        require_same_dtype(x, state, "initial_states")
    out = dense(x.dtype, x.shape)
    return (out, dense(x.dtype, shape)) if attributes.get("return_final_states") else (out,)


def infer_causal_conv1d_update(specs: Specs, _attributes: Attributes) -> Outputs:
    x, state, weight = all_given(specs, "x", "conv_state", "weight")
    require_rank(x, "x", 2, 3)
    _require_filter(specs, 2, x.shape[1])
    require_same_dtype(x, state, "conv_state")
    if state.shape[:-1] != x.shape[:2] or state.shape[-1] < weight.shape[1] - 1:
        raise UnfitArguments(
            f"conv_state is {format_shape(state.shape)}, but should be {format_shape(x.shape[:2])} with "
            f"{weight.shape[1] - 1} elements or more"
        )
    return (dense(x.dtype, x.shape), dense(x.dtype, state.shape))


def _require_filter(specs: Specs, place: int, channels: int) -> None:
    x, weight, bias = specs[0], specs[place], optional(specs, place + 1)
    assert x is not None
    assert weight is not None
    require_rank(weight, "weight", 2)
    if weight.shape[0] != channels or not weight.shape[1]:
        raise UnfitArguments(f"weight is {format_shape(weight.shape)}, but should have {channels} rows, of 1 or more")
    require_same_dtype(x, weight, "weight")
    if bias is not None:
        require_shape(bias, "bias", (channels,))
        require_same_dtype(x, bias, "bias")


def width(specs: Specs, _attributes: Attributes) -> int:
    """And the bias."""
    return 1 + max((each.shape[1] for each in specs[1:3] if each is not None and each.rank == 2), default=1)


def _conv(batch: int, dim: int, length: int, width: int = 4, **attributes: Any) -> dict[str, Any]:
    shapes: dict[str, Any] = {"x": (batch, dim, length), "weight": (dim, width), "bias": (dim,)}
    return call(attributes, **shapes, initial_states=(batch, dim, width - 1))


def causal_conv1d_samples() -> Iterator[Sample]:
    calls = [
        _conv(2, 5, 37, activation="silu", return_final_states=True),
        without(_conv(2, 3, 17, 3), "initial_states"),
        without(_conv(1, 9, 33, 2, activation="swish"), "bias"),
    ]
    sized = lambda n: _conv(2, 3, n, activation="silu", return_final_states=True)  # noqa: E731
    yield from standard(calls, FLOATS, sized=sized)
    more = [
        without(_conv(2, 5, 9, activation="silu", return_final_states=True), "bias", "initial_states"),
        _conv(3, 2, 8, 1),
        _conv(3, 2, 8, 7, activation="silu"),
        without(_conv(2, 3, 2, 4, return_final_states=True), "initial_states"),
        _conv(2, 3, 1, 4, return_final_states=True),
        _conv(2, 3, 2, 4, return_final_states=True),
    ]
    yield from variations("attributes", more, dtypes=EVERY_FLOAT)
    yield from variations("sizes", [_conv(2, n, 5, activation="silu") for n in CALM_SIZES], dtypes=MAIN_FLOATS)
    steep = {
        "x": {"fill": "uniform", "low": -60.0, "high": 10.0},
        "weight": {"fill": "uniform", "low": 0.0, "high": 1.0},
    }
    yield from variations("long tail", [{**calls[0], "generator": steep}], dtypes=EVERY_FLOAT)
    yield from refused(
        call(x=(2, 5, 9), weight=(4, 4)),
        call(x=(2, 5, 9), weight=(5, 4), bias=(4,)),
        call(x=(2, 5, 9), weight=(5, 4), bias=(5,), initial_states=(2, 5, 4)),
        call(x=(5, 9), weight=(5, 4)),
    )


def _update(batch: int, dim: int, length: int, width: int = 4, state: int = 3, **attributes: Any) -> dict[str, Any]:
    """A length of 0 is one token without a dimension of its own."""
    x = (batch, dim, length) if length else (batch, dim)
    return call(attributes, x=x, conv_state=(batch, dim, state), weight=(dim, width), bias=(dim,))


def causal_conv1d_update_samples() -> Iterator[Sample]:
    calls = [
        _update(3, 37, 0, activation="silu"),
        _update(2, 5, 3, 4, 6, activation="silu"),
        without(_update(2, 9, 0, 2, 5), "bias"),
    ]
    yield from standard(calls, FLOATS, sized=lambda n: _update(2, n, 0, activation="silu"))
    more = [_update(2, 5, length, 4, state) for length, state in ((1, 3), (2, 3), (7, 3), (7, 9), (1, 4))]
    more += [_update(2, 5, 0, 3, 2), _update(2, 5, 0, 1, 1, activation="swish"), without(calls[1], "bias")]
    yield from variations("attributes", more, dtypes=EVERY_FLOAT)
    yield from variations("sizes", [_update(n, 5, 0, activation="silu") for n in CALM_SIZES], dtypes=MAIN_FLOATS)
    yield from refused(
        call(x=(2, 5), conv_state=(2, 5, 2), weight=(5, 4)),
        call(x=(2, 5), conv_state=(2, 4, 3), weight=(5, 4)),
        call(x=(2, 5), conv_state=(2, 5, 3), weight=(4, 4)),
    )
