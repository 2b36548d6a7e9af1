"""Descriptors of the reduction family as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.variants import (
    BOOL,
    FLOATS,
    INTEGERS,
)
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass

__all__ = ["DESCRIPTORS"]

_INFER = "optest.operators.reduction.inference:infer_"
_REFERENCE = "optest.operators.reduction.references:"
_SAMPLES = "optest.operators.reduction.case_sets:"
_TERMS = "optest.operators.reduction.error_terms:"

DESCRIPTORS: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="sum",
        category="reduction",
        signature="input -> out",
        aliases=("vector_sum", "reduce_sum", "ReduceSum"),
        attributes=(
            Attribute(
                name="dim",
                type="ints",
                default=None,
                aliases=("axis", "axes"),
                description="Dimensions to add over; none means all.",
            ),
            Attribute(
                name="keepdim",
                type="bool",
                default=False,
                aliases=("keepdims",),
                description="Keep summed dimensions with size 1.",
            ),
        ),
        dtype_variants=(*FLOATS, *INTEGERS, *BOOL),
        infer=_INFER + "sum",
        reference=_REFERENCE + "sum_reference",
        terms=_TERMS + "sum_terms",
        samples=_SAMPLES + "sum_samples",
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
        rule=Rule(kind=RuleClass.ACCUMULATE, source="docs/operators.md", formula="terms are the elements"),
        description="Sum over dimensions; integers and bool add up in int64 and wrap there.",
    ),
)
