"""Activations that bend at 0: relu, leaky_relu, elu and hardswish."""

from __future__ import annotations

from collections.abc import Iterator

from optest.operators.activation.helpers import of_one, with_attributes
from optest.operators.describe import attribute, exact, in_module, ulp
from optest.operators.samples import MILLION, call, of_a_million, refused, variations
from optest.operators.shapes import Attributes, Outputs, Specs, dense, given
from optest.operators.variants import FLOATS, INTEGERS, MEASURED, NUMBERS, OPENCL
from optest.spec import Interval, Kind, OperatorDescriptor, Sample, UnfitArguments

_IDENTITY = "a choice between input and a product, which is correctly rounded: IEEE 754-2019 §5.4.1"

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="relu",
        aliases=("Relu: X -> Y",),
        dtype_variants=NUMBERS,
        infer="infer_relu",
        rule=exact("a choice between input and 0; nothing is computed"),
        description="The larger of input and 0; NaN stays NaN.",
    ),
    OperatorDescriptor(
        name="leaky_relu",
        aliases=("LeakyRelu: X -> Y",),
        attributes=(attribute("negative_slope|alpha: float = 0.01", "Factor of what is below 0."),),
        terms="leaky_relu_terms",
        rule=ulp(0.5, _IDENTITY, "|out| more below 0"),
        description="input above 0, else negative_slope * input.",
    ),
    OperatorDescriptor(
        name="elu",
        aliases=("Elu: X -> Y",),
        attributes=(attribute("alpha: float = 1.0", "Factor of what is below 0."),),
        terms="elu_terms",
        rule=ulp(0.5, f"{_IDENTITY}; {MEASURED}", "10·|out| more below 0"),
        domain={"input": Interval(low=-15.0, high=15.0)},
        description="input above 0, else alpha * (exp(input) - 1).",
    ),
    OperatorDescriptor(
        name="hardswish",
        aliases=("hard_swish", "HardSwish: X -> Y"),
        terms="hardswish_terms",
        rule=ulp(2.5, f"the division: {OPENCL}", "3·|out| more, and between -3 and 3 also 2·|input|", cpu=1.0),
        domain={"input": Interval(low=-8.0, high=8.0)},
        description="input * min(max(input + 3, 0), 6) / 6.",
    ),
    twin="activation_reference",
    dtype_variants=FLOATS,
    infer="helpers:infer_floating",
)


def infer_relu(specs: Specs, _attributes: Attributes) -> Outputs:
    """One output like the input, which should be a number."""
    spec = given(specs, 0, "input")
    if spec.dtype.kind is Kind.BOOL:
        raise UnfitArguments("input is bool, but should be a number")
    return (dense(spec.dtype, spec.shape),)


def relu_samples() -> Iterator[Sample]:
    yield from of_one(NUMBERS, (-9.0, 9.0), (-6e4, 6e4))
    special = call(input=(4, 37), generator="special")
    yield from variations("special", [special], dtypes=[name for (name,) in INTEGERS])
    yield from refused(call(input=(4, 37), dtypes=["bool"]))
    yield from of_a_million(call(input=MILLION), dtype="float32")


def leaky_relu_samples() -> Iterator[Sample]:
    yield from of_one(FLOATS, (-9.0, 9.0), (-6e4, 6e4))
    yield from with_attributes([{"negative_slope": slope} for slope in (0.3, 0.0, -0.5, 1.0, 2.5)], (-9.0, 9.0))


def elu_samples() -> Iterator[Sample]:
    yield from of_one(FLOATS, (-18.0, 18.0), (-1.0, 1.0))
    yield from with_attributes([{"alpha": alpha} for alpha in (0.3, 2.5, -1.5, 0.0)], (-9.0, 9.0))


def hardswish_samples() -> Iterator[Sample]:
    yield from of_one(FLOATS, (-9.0, 9.0), (-3.01, -2.99), (2.9, 3.1), far=[(5e37, 3e38)])
