"""Descriptors of the normalization family as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.variants import (
    DIM,
    FLOAT32_PARAMETERS,
    FLOATS,
)
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass

__all__ = ["DESCRIPTORS"]

_INFER = "optest.operators.normalization.inference:infer_"
_REFERENCE = "optest.operators.normalization.references:"
_TERMS = "optest.operators.normalization.error_terms:"

DESCRIPTORS: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="softmax",
        category="normalization",
        signature="input -> out",
        aliases=("Softmax",),
        attributes=(DIM,),
        dtype_variants=FLOATS,
        infer=_INFER + "softmax",
        reference=_REFERENCE + "softmax_reference",
        terms=_TERMS + "softmax_terms",
        rule=Rule(
            kind=RuleClass.COMPOSED,
            source="docs/operators.md#softmax",
            formula="y·(2|x−max| + Σ2y|x−max| + 4√n + 17)",
        ),
        # Above 88.7 an exp without the shift by the maximum overflows in float32; the range is narrow, so that every
        # term still counts in the sum.
        generator={"fill": "uniform", "low": 84.0, "high": 92.0},
        description="exp(x − max) / Σ exp(x − max) along a dimension.",
    ),
    OperatorDescriptor(
        name="layer_norm",
        category="normalization",
        signature="input, weight?, bias? -> out",
        aliases=("LayerNormalization",),
        attributes=(
            Attribute(name="normalized_shape", type="ints", description="The last sizes of input."),
            Attribute(name="eps", type="float", default=1e-5, aliases=("epsilon",), description="Added to variance."),
        ),
        dtype_variants=(*FLOATS, *FLOAT32_PARAMETERS),
        infer=_INFER + "layer_norm",
        reference=_REFERENCE + "layer_norm_reference",
        terms=_TERMS + "layer_norm_terms",
        rule=Rule(
            kind=RuleClass.COMPOSED,
            source="docs/operators.md#layer_norm",
            formula="|w|·((4√n·mean|x| + |x| + 2|mean|)·r + |z|·(2√n + 2κ + 9)) + |y|",
        ),
        description="(x − mean) / √(variance + eps) · weight + bias over the last dimensions.",
    ),
)
