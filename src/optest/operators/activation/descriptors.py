"""Descriptors of the activation family as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.variants import (
    BOOL,
    FLOATS,
    MEASURED,
    NUMBERS,
    OPENCL,
)
from optest.spec import Attribute, Interval, OperatorDescriptor, Rule, RuleClass

__all__ = ["DESCRIPTORS"]

_FAMILY = "optest.operators.activation."
_INFER = _FAMILY + "inference:infer_"
_REFERENCE = _FAMILY + "references:"
_TERMS = _FAMILY + "error_terms:"
_SAMPLES = _FAMILY + "case_sets:"

_COMMON_SETS = ("ordinary", "dtypes", "layouts", "sizes", "special", "range")
_OF_ONE = (*_COMMON_SETS, "exhaustive")
_IDENTITY = "a choice between input and a product, which is correctly rounded: IEEE 754-2019 §5.4.1"

DESCRIPTORS: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="gelu",
        category="activation",
        signature="input -> out",
        aliases=("Gelu",),
        attributes=(
            Attribute(
                name="approximate",
                type="str",
                default="none",
                choices=("none", "tanh"),
                description="The exact x·Φ(x), or its approximation by tanh.",
            ),
        ),
        dtype_variants=FLOATS,
        infer=_INFER + "floating",
        reference=_REFERENCE + "gelu_reference",
        terms=_TERMS + "gelu_terms",
        rule=Rule(
            kind=RuleClass.ULP,
            ulp=16.0,
            cpu_ulp=6.0,
            source=f"erf: {OPENCL}; {MEASURED}",
            formula="6·|x| more for the cancellation, 4·|x| with tanh",
        ),
        domain={"input": Interval(low=-8.0, high=8.0)},
        samples=_SAMPLES + "gelu_samples",
        case_sets=(*_OF_ONE, "attributes"),
        description="Gaussian error linear unit.",
    ),
    OperatorDescriptor(
        name="relu",
        category="activation",
        signature="input -> out",
        aliases=("Relu",),
        dtype_variants=NUMBERS,
        infer=_INFER + "relu",
        reference=_REFERENCE + "relu_reference",
        rule=Rule(kind=RuleClass.EXACT, source="a choice between input and 0; nothing is computed"),
        samples=_SAMPLES + "relu_samples",
        case_sets=(*_OF_ONE, "refused"),
        description="The larger of input and 0; NaN stays NaN.",
    ),
    OperatorDescriptor(
        name="leaky_relu",
        category="activation",
        signature="input -> out",
        aliases=("LeakyRelu",),
        attributes=(
            Attribute(
                name="negative_slope",
                type="float",
                default=0.01,
                aliases=("alpha",),
                description="Factor of what is below 0.",
            ),
        ),
        dtype_variants=FLOATS,
        infer=_INFER + "floating",
        reference=_REFERENCE + "leaky_relu_reference",
        terms=_TERMS + "leaky_relu_terms",
        rule=Rule(kind=RuleClass.ULP, ulp=0.5, source=_IDENTITY, formula="|out| more below 0"),
        samples=_SAMPLES + "leaky_relu_samples",
        case_sets=(*_OF_ONE, "attributes"),
        description="input above 0, else negative_slope * input.",
    ),
    OperatorDescriptor(
        name="sigmoid",
        category="activation",
        signature="input -> out",
        aliases=("Sigmoid",),
        dtype_variants=(*NUMBERS, *BOOL),
        infer=_INFER + "float",
        reference=_REFERENCE + "sigmoid_reference",
        terms=_TERMS + "sigmoid_terms",
        rule=Rule(
            kind=RuleClass.ULP,
            ulp=4.0,
            source=MEASURED,
            formula="below -86.9 also 0",
        ),
        domain={"input": Interval(low=-15.0, high=15.0)},
        samples=_SAMPLES + "sigmoid_samples",
        case_sets=_OF_ONE,
        description="1 / (1 + exp(-input)); integers give float32.",
    ),
    OperatorDescriptor(
        name="silu",
        category="activation",
        signature="input -> out",
        aliases=("swish",),
        dtype_variants=FLOATS,
        infer=_INFER + "floating",
        reference=_REFERENCE + "silu_reference",
        terms=_TERMS + "silu_terms",
        rule=Rule(
            kind=RuleClass.ULP,
            ulp=4.0,
            source=MEASURED,
            formula="below -86.9 also 0",
        ),
        domain={"input": Interval(low=-15.0, high=15.0)},
        samples=_SAMPLES + "silu_samples",
        case_sets=_OF_ONE,
        description="Sigmoid linear unit: input * sigmoid(input).",
    ),
    OperatorDescriptor(
        name="softplus",
        category="activation",
        signature="input -> out",
        attributes=(
            Attribute(name="beta", type="float", default=1.0, description="Sharpness of the bend, above 0."),
            Attribute(
                name="threshold",
                type="float",
                default=20.0,
                description="Where beta * input is above it, the result is input.",
            ),
        ),
        dtype_variants=FLOATS,
        infer=_INFER + "softplus",
        reference=_REFERENCE + "softplus_reference",
        terms=_TERMS + "softplus_terms",
        rule=Rule(
            kind=RuleClass.ULP,
            ulp=4.0,
            source=MEASURED,
            formula="beta ≠ 1: 2·|input|·s + 5·|out| more, s = sigmoid(beta·input)",
        ),
        domain={"input": Interval(low=-30.0, high=30.0)},
        samples=_SAMPLES + "softplus_samples",
        case_sets=(*_OF_ONE, "attributes"),
        description="log(1 + exp(beta * input)) / beta.",
    ),
    OperatorDescriptor(
        name="elu",
        category="activation",
        signature="input -> out",
        aliases=("Elu",),
        attributes=(Attribute(name="alpha", type="float", default=1.0, description="Factor of what is below 0."),),
        dtype_variants=FLOATS,
        infer=_INFER + "floating",
        reference=_REFERENCE + "elu_reference",
        terms=_TERMS + "elu_terms",
        rule=Rule(
            kind=RuleClass.ULP,
            ulp=0.5,
            source=f"{_IDENTITY}; {MEASURED}",
            formula="10·|out| more below 0",
        ),
        domain={"input": Interval(low=-15.0, high=15.0)},
        samples=_SAMPLES + "elu_samples",
        case_sets=(*_OF_ONE, "attributes"),
        description="input above 0, else alpha * (exp(input) - 1).",
    ),
    OperatorDescriptor(
        name="hardswish",
        category="activation",
        signature="input -> out",
        aliases=("hard_swish", "HardSwish"),
        dtype_variants=FLOATS,
        infer=_INFER + "floating",
        reference=_REFERENCE + "hardswish_reference",
        terms=_TERMS + "hardswish_terms",
        rule=Rule(
            kind=RuleClass.ULP,
            ulp=2.5,
            cpu_ulp=1.0,
            source=f"the division: {OPENCL}",
            formula="3·|out| more, and between -3 and 3 also 2·|input|",
        ),
        domain={"input": Interval(low=-8.0, high=8.0)},
        samples=_SAMPLES + "hardswish_samples",
        case_sets=_OF_ONE,
        description="input * min(max(input + 3, 0), 6) / 6.",
    ),
    OperatorDescriptor(
        name="swiglu",
        category="activation",
        signature="gate, up? -> out",
        aliases=("SwiGLU", "silu_and_mul"),
        dtype_variants=FLOATS,
        infer=_INFER + "swiglu",
        reference=_REFERENCE + "swiglu_reference",
        terms=_TERMS + "swiglu_terms",
        rule=Rule(
            kind=RuleClass.ULP,
            ulp=0.5,
            source=f"the product is correctly rounded; silu: {MEASURED}",
            formula="8·|silu(gate)·up| more; below -86.9 silu(gate) may be 0",
        ),
        domain={"gate": Interval(low=-15.0, high=15.0)},
        samples=_SAMPLES + "swiglu_samples",
        case_sets=(*_COMMON_SETS, "attributes", "refused"),
        description="silu(gate) * up, of two tensors of one shape. Without up, gate is split along its last dimension: "
        "the first half is the gate, the second is up, as in fused gate-and-up projections.",
    ),
)
