"""Descriptors of the pooling family as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.variants import FLOATS, NUMBERS, SUMS
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass

__all__ = ["DESCRIPTORS"]

_INFER = "optest.operators.pooling.inference:"
_REFERENCE = "optest.operators.pooling.references:"
_TERMS = "optest.operators.pooling.error_terms:"
_SAMPLES = "optest.operators.pooling.case_sets:"

_KERNEL = Attribute(name="kernel_size", type="ints", description="Height and width of the window, or both at once.")
_STRIDE = Attribute(
    name="stride",
    type="ints",
    default=None,
    aliases=("strides",),
    description="Steps between windows; none means kernel_size.",
)
_CEIL = Attribute(
    name="ceil_mode",
    type="bool",
    default=False,
    description="A last window may reach beyond the padding, if it begins in the input or the padding before it.",
)

DESCRIPTORS: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="max_pool2d",
        category="pooling",
        signature="input -> out",
        attributes=(
            _KERNEL,
            _STRIDE,
            Attribute(
                name="padding",
                type="ints",
                default=(0,),
                description="−∞ on both sides of height and width, half of kernel_size at most. Four "
                "numbers, below kernel_size: before both, then after (torch has no such padding).",
            ),
            Attribute(
                name="dilation",
                type="ints",
                default=(1,),
                aliases=("dilations",),
                description="Steps between the elements of a window.",
            ),
            _CEIL,
        ),
        dtype_variants=NUMBERS,
        infer=_INFER + "infer_max_pool2d",
        reference=_REFERENCE + "max_pool2d_reference",
        samples=_SAMPLES + "max_pool2d_samples",
        case_sets=("ordinary", "dtypes", "layouts", "sizes", "special", "attributes", "negative", "refused"),
        rule=Rule(kind=RuleClass.EXACT, source="one of the elements; of −0 and +0 either"),
        description="Largest element of each window; NaN if there is one. Integers are padded with their smallest.",
    ),
    OperatorDescriptor(
        name="avg_pool2d",
        category="pooling",
        signature="input -> out",
        attributes=(
            _KERNEL,
            _STRIDE,
            Attribute(
                name="padding",
                type="ints",
                default=(0,),
                description="Zeros on both sides of height and width, half of kernel_size at most. Four "
                "numbers, below kernel_size: before both, then after (torch has no such padding).",
            ),
            _CEIL,
            Attribute(
                name="count_include_pad",
                type="bool",
                default=True,
                description="Padding counts in the divisor; what lies beyond it never does.",
            ),
            Attribute(
                name="divisor_override",
                type="int",
                default=None,
                description="What every sum is divided by, in place of the number of elements.",
            ),
        ),
        dtype_variants=FLOATS,
        infer=_INFER + "infer_avg_pool2d",
        reference=_REFERENCE + "avg_pool2d_reference",
        terms=_TERMS + "avg_pool2d_terms",
        sum_length=_INFER + "window_length",
        samples=_SAMPLES + "avg_pool2d_samples",
        case_sets=(
            "ordinary",
            "dtypes",
            "layouts",
            "sizes",
            "special",
            "attributes",
            "long",
            "integer-exact",
            "zero-mean",
            "refused",
        ),
        rule=Rule(
            kind=RuleClass.ACCUMULATE,
            source=SUMS,
            formula="terms are the elements of the window, divided; + 1 for the division",
        ),
        description="Mean of each window.",
    ),
    OperatorDescriptor(
        name="adaptive_avg_pool2d",
        category="pooling",
        signature="input -> out",
        attributes=(
            Attribute(name="output_size", type="ints", description="Height and width of the output, or both at once."),
        ),
        dtype_variants=FLOATS,
        infer=_INFER + "infer_adaptive_avg_pool2d",
        reference=_REFERENCE + "adaptive_avg_pool2d_reference",
        terms=_TERMS + "adaptive_avg_pool2d_terms",
        sum_length=_INFER + "adaptive_window_length",
        samples=_SAMPLES + "adaptive_avg_pool2d_samples",
        case_sets=("ordinary", "dtypes", "layouts", "sizes", "special", "attributes", "long", "zero-mean", "refused"),
        rule=Rule(
            kind=RuleClass.ACCUMULATE,
            source=SUMS,
            formula="terms are the elements of the window, divided; + 1 for the division",
        ),
        description="Means of windows that cover the input evenly: window i of n goes from ⌊i·s/n⌋ to ⌈(i+1)·s/n⌉.",
    ),
)
