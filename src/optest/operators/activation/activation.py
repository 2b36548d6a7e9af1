"""Descriptors, inference and samples of the activations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from optest.operators.calls import EVERY_FLOAT, MILLION, call, full, linspace_call, with_values
from optest.operators.describe import (
    BOOL,
    FLOATS,
    INTEGERS,
    MEASURED,
    NUMBERS,
    OPENCL,
    attribute,
    exact,
    in_module,
    ulp,
)
from optest.operators.samples import (
    error_samples,
    exhaustive_samples,
    million_element_samples,
    standard_samples,
    variations,
)
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Specs,
    dense,
    infer_same,
    optional_spec,
    require_float,
    require_spec,
)
from optest.spec import Interval, OperatorDescriptor, Sample, UnfitArguments, format_shape
from optest.spec.declared_shapes import match_declaration

_IDENTITY = "input or a product, which is correctly rounded: IEEE 754-2019 §5.4.1"

_APPROXIMATE = attribute(
    "approximate: str = 'none'", "The exact x·Φ(x), or its approximation by tanh.", choices=("none", "tanh")
)

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="relu",
        aliases=("Relu: X -> Y",),
        dtype_variants=NUMBERS,
        infer="..elementwise.rounding:infer_integral",
        rule=exact("input or 0; no arithmetic"),
        description="The larger of input and 0; NaN stays NaN.",
    ),
    OperatorDescriptor(
        name="leaky_relu",
        aliases=("LeakyRelu: X -> Y",),
        attributes=(attribute("negative_slope|alpha: float = 0.01", "Factor below 0."),),
        terms="leaky_relu_terms",
        rule=ulp(0.5, _IDENTITY, "|out| more below 0"),
        description="input above 0, else negative_slope * input.",
    ),
    OperatorDescriptor(
        name="elu",
        aliases=("Elu: X -> Y",),
        attributes=(attribute("alpha: float = 1.0", "Factor below 0."),),
        terms="elu_terms",
        rule=ulp(0.5, f"{_IDENTITY}; {MEASURED}", "10·|out| more below 0"),
        domain={"input": Interval(low=-15.0, high=15.0)},
        description="input above 0, else alpha * (exp(input) - 1).",
    ),
    OperatorDescriptor(
        name="selu",
        terms="selu_terms",
        rule=ulp(0.5, f"{_IDENTITY}; {MEASURED}", "|out| more, 12·|out| below 0"),
        domain={"input": Interval(low=-15.0, high=15.0)},
        description="scale * input above 0, else scale * alpha * (exp(input) - 1), where scale is 1.0507009873554805 "
        "and alpha 1.6732632423543773.",
    ),
    OperatorDescriptor(
        name="hardswish",
        aliases=("hard_swish", "HardSwish: X -> Y"),
        terms="hardswish_terms",
        rule=ulp(2.5, f"the division: {OPENCL}", "3·|out| more, and between -3 and 3 also 2·|input|", cpu=1.0),
        domain={"input": Interval(low=-8.0, high=8.0)},
        description="input * min(max(input + 3, 0), 6) / 6.",
    ),
    OperatorDescriptor(
        name="gelu",
        aliases=("Gelu: X -> Y",),
        attributes=(_APPROXIMATE,),
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
        terms="silu_terms",
        rule=ulp(4.0, MEASURED, "below -86.9 also 0"),
        domain={"input": Interval(low=-15.0, high=15.0)},
        description="Sigmoid linear unit: input * sigmoid(input).",
    ),
    OperatorDescriptor(
        name="softplus",
        infer="infer_softplus",
        attributes=(
            attribute("beta: float = 1.0", "Sharpness of the bend, above 0."),
            attribute("threshold: float = 20.0", "The result is input if beta * input is above it."),
        ),
        terms="softplus_terms",
        rule=ulp(5.0, MEASURED, "beta ≠ 1: 2·|input|·s + 5·|out| more, s = sigmoid(beta·input)"),
        domain={"input": Interval(low=-30.0, high=30.0)},
        description="log(1 + exp(beta * input)) / beta.",
    ),
    OperatorDescriptor(
        name="gelu_and_mul",
        infer="infer_swiglu",
        signature="gate, up? -> out",
        aliases=("geglu",),
        attributes=(_APPROXIMATE,),
        terms="gelu_and_mul_terms",
        rule=ulp(
            0.5,
            f"the product is correctly rounded; gelu: {OPENCL}; {MEASURED}",
            "(32·|gelu(gate)| + 6·|gate|)·|up| more, 4·|gate| with tanh",
        ),
        domain={"gate": Interval(low=-8.0, high=8.0)},
        description="gelu(gate) * up, of two tensors of one shape or of the halves of one, as swiglu. With tanh it is "
        "gelu_tanh_and_mul of vLLM and FlashInfer.",
    ),
    OperatorDescriptor(
        name="swiglu",
        infer="infer_swiglu",
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
    dtype_variants=FLOATS,
    infer="infer_floating",
)


def infer_floating(specs: Specs, attributes: Attributes) -> Outputs:
    """Return one output like the input; refuse dtypes that are no real floats."""
    require_float(require_spec(specs, 0, "input"), "input")
    return infer_same(specs, attributes)


def infer_softplus(specs: Specs, attributes: Attributes) -> Outputs:
    if not attributes.get("beta", 1.0) > 0:
        raise UnfitArguments(f"beta is {attributes['beta']:g}, expected a number above 0")
    return infer_floating(specs, attributes)


def infer_swiglu(specs: Specs, _attributes: Attributes) -> Outputs:
    """Return an output like gate, or half as long in the last dimension if up is left out."""
    n, outputs = match_declaration(specs, "gate: T[*shape], up?: T[*shape] -> T[*shape]")
    require_float(require_spec(specs, 0, "gate"), "gate")
    if optional_spec(specs, 1) is not None:
        return outputs
    if not n.shape or n.shape[-1] % 2:
        raise UnfitArguments(f"gate is {format_shape(n.shape)}, expected an even last dimension, as up is left out")
    return (dense(n.T, (*n.shape[:-1], n.shape[-1] // 2)),)


# Also a scalar, and more dimensions than a launch grid has.
_SHAPES: tuple[tuple[int, ...], ...] = ((4, 37), (3, 5, 7), (), (2, 1, 3, 2, 2, 3))
_NEAR_ZERO = [sign * 2.0**-power for power in range(2, 14) for sign in (1.0, -1.0)] + [0.0, -0.0]
# eˣ overflows float32 at 88.7, e²ˣ at 44.4 and x³ at 7e12: values on both sides of each.
_FAR = ((-110.0, 110.0), (-1e30, 1e30))
# The same for float16, which eˣ overflows at 11 and x³ at 40.
_FAR_IN_FLOAT16 = ((-60.0, 60.0), (-6e4, 6e4))


def _elementwise(
    variants: Sequence[Sequence[str]], *lines: tuple[float, float], far: Sequence[tuple[float, float]] = ()
) -> Iterator[Sample]:
    """Yield the samples of every activation; ``lines`` are ranges of inputs, ``far`` ranges that float16 lacks."""
    calls = [call(input=shape) for shape in _SHAPES]
    yield from standard_samples(calls, variants, sized=lambda n: call(input=(n,)))
    yield from variations("sizes", [call(input=(37, 1))], dtypes=("float32",))
    yield from variations(
        "range", [with_values(_NEAR_ZERO), *(linspace_call(*ends) for ends in lines)], dtypes=EVERY_FLOAT
    )
    yield from variations(
        "range", [linspace_call(*ends) for ends in (*_FAR, *far)], dtypes=("float32", "bfloat16", "float64")
    )
    yield from variations("range", [linspace_call(*ends) for ends in _FAR_IN_FLOAT16], dtypes=("float16",))
    # NaN and signed zeros both in a full vector and in the remainder after the last one, which another loop handles.
    ends = ["nan", -0.0, 0.0, "nan"]
    tail = with_values([*ends, *(0.5 + k / 8 for k in range(9)), *ends])
    yield from variations("special", [tail], dtypes=("float32", "float16"))
    if ("uint8",) in variants:
        # With the top bit, which the domain excludes from random values.
        yield from variations("dtypes", [with_values([0, 1, 127, 128, 200, 255])], dtypes=("uint8",))
    yield from exhaustive_samples()


def _with_attributes(attributes: Sequence[dict[str, Any]], *lines: tuple[float, float]) -> Iterator[Sample]:
    yield from exhaustive_samples(attributes[0])
    calls = [call(each, input=(4, 37)) for each in attributes]
    calls += [linspace_call(*ends, each) for each in attributes for ends in lines]
    yield from variations("attributes", calls, dtypes=EVERY_FLOAT)
    yield from variations("attributes", [linspace_call(*ends, each) for each in attributes for ends in _FAR])
    far = [linspace_call(*ends, each) for each in attributes for ends in _FAR_IN_FLOAT16]
    yield from variations("attributes", far, dtypes=("float16",))


def relu_samples() -> Iterator[Sample]:
    yield from _elementwise(NUMBERS, (-9.0, 9.0), (-6e4, 6e4))
    special = call(input=(4, 37), generator="special")
    yield from variations("special", [special], dtypes=[name for (name,) in INTEGERS])
    yield from error_samples(call(input=(4, 37), dtypes=["bool"]))
    yield from million_element_samples(call(input=MILLION), dtype="float32")


def leaky_relu_samples() -> Iterator[Sample]:
    yield from _elementwise(FLOATS, (-9.0, 9.0), (-6e4, 6e4))
    yield from _with_attributes([{"negative_slope": slope} for slope in (0.3, 0.0, -0.5, 1.0, 2.5)], (-9.0, 9.0))


def elu_samples() -> Iterator[Sample]:
    yield from _elementwise(FLOATS, (-18.0, 18.0), (-1.0, 1.0))
    yield from _with_attributes([{"alpha": alpha} for alpha in (0.3, 2.5, -1.5, 0.0)], (-9.0, 9.0))


selu_samples = silu_samples = partial(_elementwise, FLOATS, (-18.0, 18.0), (-1.0, 1.0))
sigmoid_samples = partial(_elementwise, (*NUMBERS, *BOOL), (-18.0, 18.0), (-1.0, 1.0))
hardswish_samples = partial(_elementwise, FLOATS, (-9.0, 9.0), (-3.01, -2.99), (2.9, 3.1), far=[(5e37, 3e38)])


def gelu_samples() -> Iterator[Sample]:
    yield from _elementwise(FLOATS, (-9.0, 9.0), (-1.0, 1.0))
    yield from _with_attributes([{"approximate": "tanh"}], (-9.0, 9.0), (-1.0, 1.0))
    # A formula that doubles its argument overflows.
    largest = call(input=(33,), generator=full(3e38))
    yield from variations("special", [largest], dtypes=("float32", "bfloat16"))


def softplus_samples() -> Iterator[Sample]:
    yield from _elementwise(FLOATS, (-18.0, 18.0), (-1.0, 1.0))
    attributes = [{"beta": 2.0}, {"beta": 0.3}, {"threshold": 2.0}, {"beta": 0.5, "threshold": 1.0}]
    yield from _with_attributes(attributes, (-9.0, 30.0))


def swiglu_samples() -> Iterator[Sample]:
    yield from _gated_samples((-18.0, 18.0))


def gelu_and_mul_samples() -> Iterator[Sample]:
    yield from _gated_samples((-9.0, 9.0))
    tanh = {"approximate": "tanh"}
    calls = [call(tanh, gate=(4, 37), up=(4, 37)), call(tanh, gate=(4, 74)), call(tanh, gate=(3, 2050))]
    yield from variations("attributes", calls, dtypes=EVERY_FLOAT)
    yield from variations("range", [_sweep(tanh, -9.0, 9.0)], dtypes=EVERY_FLOAT)
    largest = {"gate": full(3e38), "up": full(0.5)}  # as for gelu
    yield from variations("special", [call(gate=(33,), up=(33,), generator=largest)], dtypes=("float32", "bfloat16"))


def _sweep(attributes: dict[str, Any], low: float, high: float) -> dict[str, Any]:
    wide = {"fill": "arange", "start": low, "step": (high - low) / 1020}
    return call(attributes, gate=(3, 1021), up=(3, 1021), generator={"gate": wide, "up": "randn"})


def _gated_samples(ends: tuple[float, float]) -> Iterator[Sample]:
    calls = [call(gate=shape, up=shape) for shape in _SHAPES]
    yield from standard_samples(calls, FLOATS, sized=lambda n: call(gate=(3, n), up=(3, n)), special=False)
    # One at a time: the underflow of silu(gate) differs between kernels, and would decide about 0·∞.
    fills = [{"gate": "special", "up": "randn"}, {"gate": "randn", "up": "special"}]
    special = [call(gate=(4, 37), up=(4, 37), generator=fill) for fill in fills]
    yield from variations("special", special, dtypes=EVERY_FLOAT)
    split = [call(gate=(4, 74)), call(gate=(3, 5, 14)), call(gate=(2,)), call(gate=(3, 0)), call(gate=(16, 2048))]
    yield from variations("attributes", split, dtypes=EVERY_FLOAT)
    # Kernels with one block for each row exceed a grid's second dimension.
    yield from variations("attributes", [call(gate=(65_537, 4))], dtypes=("float32",))
    yield from variations("range", [_sweep({}, *ends)], dtypes=EVERY_FLOAT)
    yield from error_samples(call(gate=(4, 37), up=(4, 38)), call(gate=(4, 37)))
