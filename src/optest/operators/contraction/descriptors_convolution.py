"""Descriptors of the convolutions as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.contraction.variants import OUT_DTYPE, accumulating
from optest.operators.variants import FLOATS, INTEGERS, SUMS
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass

__all__ = ["CONVOLUTIONS"]

_INFER = "optest.operators.contraction.inference:"
_HOOKS = "optest.operators.contraction.convolution:"
_SAMPLES = "optest.operators.contraction.case_sets_convolution:"

_ATTRIBUTES = (
    Attribute(
        name="stride",
        type="ints",
        default=(1,),
        aliases=("strides",),
        description="Steps between positions, one number or one for each dimension.",
    ),
    Attribute(
        name="padding",
        type="ints|str",
        default=(0,),
        description="Zeros on both sides of each dimension; 'same' keeps the sizes with stride 1, the odd zero last; "
        "'valid' is 0. Twice as many numbers: before each dimension, then after (torch has no such padding).",
    ),
    Attribute(
        name="dilation",
        type="ints",
        default=(1,),
        aliases=("dilations",),
        description="Steps between the elements that the kernel sees.",
    ),
    Attribute(
        name="groups",
        type="int",
        default=1,
        aliases=("group",),
        description="Channels are split into so many groups that do not see each other.",
    ),
    OUT_DTYPE,
)


def _convolution(rank: int, text: str) -> OperatorDescriptor:
    name = f"conv{rank}d"
    return OperatorDescriptor(
        name=name,
        category="contraction",
        signature="input, weight, bias? -> out",
        attributes=_ATTRIBUTES,
        dtype_variants=(*FLOATS, *INTEGERS, *accumulating(2)),
        infer=f"{_INFER}infer_{name}",
        reference=f"{_HOOKS}{name}_reference",
        terms=f"{_HOOKS}{name}_terms",
        sum_length=f"{_INFER}{name}_length",
        operations=f"optest.operators.contraction.operations:{name}_operations",
        samples=f"{_SAMPLES}{name}_samples",
        case_sets=(
            "ordinary",
            "dtypes",
            "layouts",
            "sizes",
            "special",
            "attributes",
            "accumulator",
            "integer-exact",
            "zero-mean",
            "refused",
            "long",
        ),
        rule=Rule(
            kind=RuleClass.ACCUMULATE,
            source=SUMS,
            formula="terms are the products under the kernel; + 1 for the bias",
        ),
        description=text,
    )


CONVOLUTIONS: tuple[OperatorDescriptor, ...] = (
    _convolution(1, "Cross-correlation of (batch, channels, length) with (output channels, channels / groups, taps)."),
    _convolution(2, "Cross-correlation of (batch, channels, height, width) with a kernel that is not flipped."),
    _convolution(3, "Cross-correlation of (batch, channels, depth, height, width) with a kernel that is not flipped."),
)
