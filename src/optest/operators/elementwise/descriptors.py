"""Descriptors of the elementwise family as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.variants import (
    BOOL,
    EVERY,
    FLOATS,
    INTEGERS,
    MIXED,
    OPENCL,
)
from optest.spec import Attribute, Interval, OperatorDescriptor, Rule, RuleClass

__all__ = ["DESCRIPTORS"]

_INFER = "optest.operators.elementwise.inference:infer_"
_REFERENCE = "optest.operators.elementwise.references:"
_TERMS = "optest.operators.elementwise.error_terms:"

DESCRIPTORS: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="add",
        category="elementwise",
        signature="input, other -> out",
        aliases=("elementwise_add", "Add"),
        attributes=(Attribute(name="alpha", type="float", default=1.0, description="Factor of other."),),
        dtype_variants=(*FLOATS, *INTEGERS, *BOOL, *MIXED),
        infer=_INFER + "add",
        reference=_REFERENCE + "add_reference",
        terms=_TERMS + "add_terms",
        rule=Rule(
            kind=RuleClass.ULP,
            ulp=0.5,
            source=f"correctly rounded: IEEE 754-2019 §5.4.1, {OPENCL}",
            formula="alpha ≠ 1: 2·|alpha·other| more",
        ),
        description="input + alpha * other, with broadcasting; bool adds as logical or, integers wrap.",
    ),
    OperatorDescriptor(
        name="div",
        category="elementwise",
        signature="input, other -> out",
        aliases=("elementwise_div", "Div"),
        dtype_variants=(*FLOATS, *INTEGERS, *BOOL, *MIXED),
        infer=_INFER + "div",
        reference=_REFERENCE + "div_reference",
        rule=Rule(kind=RuleClass.ULP, ulp=2.5, source=OPENCL),
        domain={"other": Interval(low=-8.0, high=8.0, avoid=0.25)},
        description="True division with broadcasting; integers give float32.",
    ),
    OperatorDescriptor(
        name="exp",
        category="elementwise",
        signature="input -> out",
        aliases=("Exp",),
        dtype_variants=(*FLOATS, *INTEGERS, *BOOL),
        infer=_INFER + "exp",
        reference=_REFERENCE + "exp_reference",
        rule=Rule(kind=RuleClass.ULP, ulp=3.0, source=OPENCL),
        # exp(11) is the last power below the overflow of float16, exp(-15) still one of its subnormals.
        domain={"input": Interval(low=-15.0, high=11.0)},
        description="Exponential; integers give float32.",
    ),
    OperatorDescriptor(
        name="cast",
        category="conversion",
        signature="input -> out",
        aliases=("Cast",),
        attributes=(
            Attribute(name="dtype", type="dtype", aliases=("to",), description="Dtype of the result."),
            Attribute(
                name="saturate",
                type="bool",
                default=False,
                description="float8 results stop at the largest finite value in place of infinity or NaN.",
            ),
        ),
        dtype_variants=EVERY,
        infer=_INFER + "cast",
        reference=_REFERENCE + "cast_reference",
        rule=Rule(kind=RuleClass.EXACT, source="conversion: rounded once, ties to even; to integers towards zero"),
        # Inside int8 and float8; beyond the range of an integer dtype, conversion is undefined in C and torch.
        domain={"input": Interval(low=-100.0, high=100.0)},
        description="Conversion to another dtype; integers wrap, floats lose their fraction, non-zero is true.",
    ),
)
