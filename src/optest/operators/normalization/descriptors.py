"""Descriptors of the normalization family as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.variants import (
    DIM,
    FLOAT32_PARAMETERS,
    FLOATS,
)
from optest.spec import Attribute, Interval, OperatorDescriptor, Rule, RuleClass

__all__ = ["DESCRIPTORS"]

_INFER = "optest.operators.normalization.inference:infer_"
_LENGTH = "optest.operators.normalization.inference:terms_of_"
_REFERENCE = "optest.operators.normalization.references:"
_SAMPLES = "optest.operators.normalization.case_sets:"
_TERMS = "optest.operators.normalization.error_terms:"

_SOFTMAX_SETS = (
    "ordinary",
    "dtypes",
    "layouts",
    "sizes",
    "special",
    "attributes",
    "long",
    "zero-mean",
    "empty",
    "refused",
)
_NORM_SETS = (*_SOFTMAX_SETS, "epsilon", "mean beside std")
_FLOAT32_CHANNELS = tuple((half, *("float32",) * count) for half in ("float16", "bfloat16") for count in (1, 2, 3, 4))
_NORMALIZED_SHAPE = Attribute(name="normalized_shape", type="ints", description="The last sizes of input.")
_EPS = Attribute(name="eps", type="float", default=1e-5, aliases=("epsilon",), description="Added to variance.")
_STATISTICS = Attribute(
    name="statistics", type="bool", default=False, description="Give standardization and std beside the result."
)
# Above 88.7 an exp without the shift by the maximum overflows in float32; the range is narrow, so that every term still
# counts in the sum.
_NEAR_OVERFLOW = {"fill": "uniform", "low": 84.0, "high": 92.0}

_SOFTMAXES: tuple[OperatorDescriptor, ...] = (
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
        sum_length=_LENGTH + "dim",
        samples=_SAMPLES + "softmax_samples",
        case_sets=_SOFTMAX_SETS,
        rule=Rule(
            kind=RuleClass.COMPOSED,
            source="docs/operators.md#softmax",
            formula="y·(2|x−max| + Σ2y|x−max| + 4√n + 17)",
        ),
        generator=_NEAR_OVERFLOW,
        description="exp(x − max) / Σ exp(x − max) along a dimension.",
    ),
    OperatorDescriptor(
        name="log_softmax",
        category="normalization",
        signature="input -> out",
        aliases=("LogSoftmax",),
        attributes=(DIM,),
        dtype_variants=FLOATS,
        infer=_INFER + "softmax",
        reference=_REFERENCE + "log_softmax_reference",
        terms=_TERMS + "log_softmax_terms",
        sum_length=_LENGTH + "dim",
        samples=_SAMPLES + "log_softmax_samples",
        case_sets=_SOFTMAX_SETS,
        rule=Rule(
            kind=RuleClass.COMPOSED,
            source="docs/operators.md#log_softmax",
            formula="Σ share·(2|x−max| + 6) + 4√n + 6·L + |x−max| + |max + L| + |y|, L = ln Σ exp(x − max)",
        ),
        generator=_NEAR_OVERFLOW,
        description="x − max − ln Σ exp(x − max) along a dimension.",
    ),
    OperatorDescriptor(
        name="causal_softmax",
        category="normalization",
        signature="input -> out",
        dtype_variants=FLOATS,
        infer=_INFER + "causal_softmax",
        reference=_REFERENCE + "causal_softmax_reference",
        alternatives=_REFERENCE + "causal_softmax_alternatives",
        terms=_TERMS + "causal_softmax_terms",
        sum_length=_LENGTH + "last",
        samples=_SAMPLES + "causal_softmax_samples",
        case_sets=tuple(name for name in _SOFTMAX_SETS if name != "attributes"),
        rule=Rule(
            kind=RuleClass.COMPOSED,
            source="docs/operators.md#softmax",
            formula="as softmax over the columns that are seen; 0 for the others",
        ),
        generator=_NEAR_OVERFLOW,
        description="softmax over the last dimension, where row i of the last two dimensions sees the columns up to "
        "i + (columns − rows); the others are 0, whatever stands in them (or NaN in a row "
        "that sees NaN). There are no fewer columns than rows.",
    ),
)

_NORMS: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="layer_norm",
        category="normalization",
        signature="input, weight?, bias? -> out, standardization?, std?",
        aliases=("layer_normalization",),
        attributes=(_NORMALIZED_SHAPE, _EPS, _STATISTICS),
        dtype_variants=(*FLOATS, *FLOAT32_PARAMETERS),
        infer=_INFER + "layer_norm",
        reference=_REFERENCE + "layer_norm_reference",
        terms=_TERMS + "layer_norm_terms",
        sum_length=_LENGTH + "normalized_shape",
        samples=_SAMPLES + "layer_norm_samples",
        case_sets=(*_NORM_SETS, "statistics"),
        rule=Rule(
            kind=RuleClass.COMPOSED,
            source="docs/operators.md#layer_norm",
            formula="|w|·((4√n·mean|x| + |x| + 2|mean|)·r + |z|·(2√n + 2κ + 9)) + |y|; std·(s·(2√n + 2) + 2κ·s + 10)",
        ),
        description="(x − mean) / √(variance + eps) · weight + bias over the last dimensions. With `statistics` also "
        "standardization, (x − mean) / std, and std, √(variance + eps), which has the dimensions before them.",
    ),
    OperatorDescriptor(
        name="rms_norm",
        category="normalization",
        signature="input, weight? -> out",
        attributes=(
            _NORMALIZED_SHAPE,
            Attribute(
                name="eps",
                type="float",
                default=None,
                aliases=("epsilon",),
                description="Added to the mean square; none is 2⁻²³, for float64 2⁻⁵². torch documents "
                "finfo(input.dtype).eps, but takes float32's, in which it computes, for 16-bit inputs too.",
            ),
        ),
        dtype_variants=(*FLOATS, ("float16", "float32"), ("bfloat16", "float32")),
        infer=_INFER + "rms_norm",
        reference=_REFERENCE + "rms_norm_reference",
        terms=_TERMS + "rms_norm_terms",
        sum_length=_LENGTH + "normalized_shape",
        samples=_SAMPLES + "rms_norm_samples",
        case_sets=_NORM_SETS[:-1],
        rule=Rule(
            kind=RuleClass.COMPOSED,
            source="docs/operators.md#rms_norm",
            formula="|y|·(s·(2√n + 2) + 7), s = mean x²/(mean x² + eps)",
        ),
        description="x / √(mean x² + eps) · weight over the last dimensions.",
    ),
    OperatorDescriptor(
        name="group_norm",
        category="normalization",
        signature="input, weight?, bias? -> out",
        aliases=("GroupNormalization",),
        attributes=(
            Attribute(name="num_groups", type="int", description="Groups of neighbouring channels (dimension 1)."),
            _EPS,
        ),
        dtype_variants=(*FLOATS, *FLOAT32_PARAMETERS),
        infer=_INFER + "group_norm",
        reference=_REFERENCE + "group_norm_reference",
        terms=_TERMS + "group_norm_terms",
        sum_length=_LENGTH + "groups",
        samples=_SAMPLES + "group_norm_samples",
        case_sets=_NORM_SETS,
        rule=Rule(
            kind=RuleClass.COMPOSED,
            source="docs/operators.md#group_norm",
            formula="|w|·((4√n·mean|x| + |x| + 4|mean|)·r + |z|·(2√n + 2κ + 9)) + |b| + |y|",
        ),
        description="(x − mean) / √(variance + eps) over each group of each sample, · weight + bias by channel.",
    ),
    OperatorDescriptor(
        name="batch_norm",
        category="normalization",
        signature="input, running_mean?, running_var?, weight?, bias? -> out",
        attributes=(
            Attribute(
                name="training",
                type="bool",
                default=False,
                description="Normalise by the batch's own mean and biased variance; the running statistics, if given, "
                "stay as they are.",
            ),
            _EPS,
        ),
        dtype_variants=(*FLOATS, *_FLOAT32_CHANNELS),
        infer=_INFER + "batch_norm",
        reference=_REFERENCE + "batch_norm_reference",
        terms=_TERMS + "batch_norm_terms",
        sum_length=_LENGTH + "channels",
        samples=_SAMPLES + "batch_norm_samples",
        case_sets=_NORM_SETS,
        domain={"running_var": Interval(low=0.0)},
        rule=Rule(
            kind=RuleClass.COMPOSED,
            source="docs/operators.md#batch_norm",
            formula="|w|·(6|z| + (|x| + 2|running_mean|)·r) + |b| + |y|; in training that of group_norm",
        ),
        description="(x − running_mean) / √(running_var + eps) · weight + bias by channel, which is dimension 1.",
    ),
)

DESCRIPTORS: tuple[OperatorDescriptor, ...] = (*_SOFTMAXES, *_NORMS)
