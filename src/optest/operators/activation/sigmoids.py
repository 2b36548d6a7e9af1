"""Smooth activations: gelu, sigmoid, silu, softplus and swiglu."""

from __future__ import annotations

from collections.abc import Iterator

from optest.operators.activation.helpers import (
    SHAPES,
    infer_floating,
    of_one,
    require_float,
    with_attributes,
)
from optest.operators.describe import attribute, in_module, ulp
from optest.operators.samples import EVERY_FLOAT, call, refused, standard, variations
from optest.operators.shapes import Attributes, Outputs, Specs, dense, given, optional, require_same_dtype
from optest.operators.variants import BOOL, FLOATS, MEASURED, NUMBERS, OPENCL
from optest.spec import Interval, OperatorDescriptor, Sample, UnfitArguments, format_shape

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="gelu",
        aliases=("Gelu: X -> Y",),
        attributes=(
            attribute(
                "approximate: str = 'none'", "The exact x·Φ(x), or its approximation by tanh.", choices=("none", "tanh")
            ),
        ),
        infer="helpers:infer_floating",
        terms="gelu_terms",
        rule=ulp(16.0, f"erf: {OPENCL}; {MEASURED}", "6·|x| more for the cancellation, 4·|x| with tanh", cpu=6.0),
        domain={"input": Interval(low=-8.0, high=8.0)},
        description="Gaussian error linear unit.",
    ),
    OperatorDescriptor(
        name="sigmoid",
        aliases=("Sigmoid: X -> Y",),
        dtype_variants=(*NUMBERS, *BOOL),
        infer="..shapes:infer_float",
        terms="sigmoid_terms",
        rule=ulp(4.0, MEASURED, "below -86.9 also 0"),
        domain={"input": Interval(low=-15.0, high=15.0)},
        description="1 / (1 + exp(-input)); integers give float32.",
    ),
    OperatorDescriptor(
        name="silu",
        aliases=("swish",),
        infer="helpers:infer_floating",
        terms="silu_terms",
        rule=ulp(4.0, MEASURED, "below -86.9 also 0"),
        domain={"input": Interval(low=-15.0, high=15.0)},
        description="Sigmoid linear unit: input * sigmoid(input).",
    ),
    OperatorDescriptor(
        name="softplus",
        attributes=(
            attribute("beta: float = 1.0", "Sharpness of the bend, above 0."),
            attribute("threshold: float = 20.0", "Where beta * input is above it, the result is input."),
        ),
        terms="softplus_terms",
        rule=ulp(4.0, MEASURED, "beta ≠ 1: 2·|input|·s + 5·|out| more, s = sigmoid(beta·input)"),
        domain={"input": Interval(low=-30.0, high=30.0)},
        description="log(1 + exp(beta * input)) / beta.",
    ),
    OperatorDescriptor(
        name="swiglu",
        signature="gate, up? -> out",
        aliases=("SwiGLU: A, B? -> Y", "silu_and_mul"),
        terms="swiglu_terms",
        rule=ulp(
            0.5,
            f"the product is correctly rounded; silu: {MEASURED}",
            "8·|silu(gate)·up| more; below -86.9 silu(gate) may be 0",
        ),
        domain={"gate": Interval(low=-15.0, high=15.0)},
        description="silu(gate) * up, of two tensors of one shape. Without up, gate is split along its last dimension: "
        "the first half is the gate, the second is up, as in fused gate-and-up projections.",
    ),
    twin="activation_reference",
    dtype_variants=FLOATS,
)


def infer_softplus(specs: Specs, attributes: Attributes) -> Outputs:
    if not attributes.get("beta", 1.0) > 0:
        raise UnfitArguments(f"beta is {attributes['beta']:g}, but should be above 0")
    return infer_floating(specs, attributes)


def infer_swiglu(specs: Specs, _attributes: Attributes) -> Outputs:
    """Like gate; without up, half as wide in the last dimension, whose second half is up."""
    gate = given(specs, 0, "gate")
    require_float(gate.dtype, "gate")
    up = optional(specs, 1)
    if up is None:
        if not gate.rank or gate.shape[-1] % 2:
            raise UnfitArguments(
                f"gate is {format_shape(gate.shape)}, but should have an even last dimension, as up is left out"
            )
        return (dense(gate.dtype, (*gate.shape[:-1], gate.shape[-1] // 2)),)
    require_same_dtype(gate, up, "up")
    if up.shape != gate.shape:
        raise UnfitArguments(f"up is {format_shape(up.shape)}, but should be {format_shape(gate.shape)}, as gate")
    return (dense(gate.dtype, gate.shape),)


def gelu_samples() -> Iterator[Sample]:
    yield from of_one(FLOATS, (-9.0, 9.0), (-1.0, 1.0))
    yield from with_attributes([{"approximate": "tanh"}], (-9.0, 9.0), (-1.0, 1.0))
    largest = call(input=(33,), generator={"fill": "full", "value": 3e38})  # what doubles it on the way overflows
    yield from variations("special", [largest], dtypes=("float32", "bfloat16"))


def sigmoid_samples() -> Iterator[Sample]:
    yield from of_one((*NUMBERS, *BOOL), (-18.0, 18.0), (-1.0, 1.0))


def silu_samples() -> Iterator[Sample]:
    yield from of_one(FLOATS, (-18.0, 18.0), (-1.0, 1.0))


def softplus_samples() -> Iterator[Sample]:
    yield from of_one(FLOATS, (-18.0, 18.0), (-1.0, 1.0))
    attributes = [{"beta": 2.0}, {"beta": 0.3}, {"threshold": 2.0}, {"beta": 0.5, "threshold": 1.0}]
    yield from with_attributes(attributes, (-9.0, 30.0))


def swiglu_samples() -> Iterator[Sample]:
    calls = [call(gate=shape, up=shape) for shape in SHAPES]
    yield from standard(calls, FLOATS, sized=lambda n: call(gate=(3, n), up=(3, n)), special=False)
    # One at a time: whether 0·∞ is asked for depends on where silu(gate) underflows.
    fills = [{"gate": "special", "up": "randn"}, {"gate": "randn", "up": "special"}]
    special = [call(gate=(4, 37), up=(4, 37), generator=each) for each in fills]
    yield from variations("special", special, dtypes=EVERY_FLOAT)
    split = [call(gate=(4, 74)), call(gate=(3, 5, 14)), call(gate=(2,)), call(gate=(3, 0)), call(gate=(16, 2048))]
    yield from variations("attributes", split, dtypes=EVERY_FLOAT)
    yield from variations("attributes", [call(gate=(65_537, 4))], dtypes=("float32",))  # a block for each row
    wide = {"fill": "arange", "start": -18.0, "step": 36.0 / 1020}
    sweep = call(gate=(3, 1021), up=(3, 1021), generator={"gate": wide, "up": "randn"})
    yield from variations("range", [sweep], dtypes=EVERY_FLOAT)
    yield from refused(call(gate=(4, 37), up=(4, 38)), call(gate=(4, 37)))
