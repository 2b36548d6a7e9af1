"""Descriptors of the activation family as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.variants import (
    FLOATS,
    INTEGERS,
    OPENCL,
)
from optest.spec import Attribute, Interval, OperatorDescriptor, Rule, RuleClass

__all__ = ["DESCRIPTORS"]

_INFER = "optest.operators.activation.inference:infer_"
_REFERENCE = "optest.operators.activation.references:"
_TERMS = "optest.operators.activation.error_terms:"

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
        infer=_INFER + "same",
        reference=_REFERENCE + "gelu_reference",
        terms=_TERMS + "gelu_terms",
        rule=Rule(
            kind=RuleClass.ULP,
            ulp=16.0,
            source=f"erf: {OPENCL}",
            formula="8·|x| more for the cancellation, 4·|x| with tanh",
        ),
        domain={"input": Interval(low=-8.0, high=8.0)},
        description="Gaussian error linear unit.",
    ),
    OperatorDescriptor(
        name="relu",
        category="activation",
        signature="input -> out",
        aliases=("Relu",),
        dtype_variants=(*FLOATS, *INTEGERS),
        infer=_INFER + "same",
        reference=_REFERENCE + "relu_reference",
        rule=Rule(kind=RuleClass.EXACT, source="a choice between input and 0; nothing is computed"),
        description="The larger of input and 0; NaN stays NaN.",
    ),
)
