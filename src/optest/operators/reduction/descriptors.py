"""Descriptors of the reduction family as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.reduction.attributes import DIMS, EVERY_SET, KEEPDIM, ONE_OR_MORE_DIMS, TOTAL_DTYPE
from optest.operators.reduction.descriptors_extremes import EXTREMES
from optest.operators.variants import BOOL, FLOATS, NUMBERS, SUMS
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass

__all__ = ["DESCRIPTORS"]

_INFER = "optest.operators.reduction.inference:infer_"
_LENGTH = "optest.operators.reduction.inference:terms_of_"
_REFERENCE = "optest.operators.reduction.references:"
_SAMPLES = "optest.operators.reduction.case_sets:"
_TERMS = "optest.operators.reduction.error_terms:"

_COMPOSED_SETS = tuple(name for name in EVERY_SET if name != "integer-exact")

_SUMS: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="sum",
        category="reduction",
        signature="input -> out",
        aliases=("vector_sum", "reduce_sum"),
        attributes=(DIMS, KEEPDIM, TOTAL_DTYPE),
        dtype_variants=(*NUMBERS, *BOOL),
        infer=_INFER + "sum",
        reference=_REFERENCE + "sum_reference",
        terms=_TERMS + "sum_terms",
        sum_length=_LENGTH + "reduction",
        samples=_SAMPLES + "sum_samples",
        case_sets=EVERY_SET,
        rule=Rule(kind=RuleClass.ACCUMULATE, source=SUMS, formula="terms are the elements"),
        description="Sum over dimensions; integers and bool add up in int64 and wrap there.",
    ),
    OperatorDescriptor(
        name="mean",
        category="reduction",
        signature="input -> out",
        aliases=("reduce_mean",),
        attributes=(DIMS, KEEPDIM),
        dtype_variants=FLOATS,
        infer=_INFER + "mean",
        reference=_REFERENCE + "mean_reference",
        terms=_TERMS + "mean_terms",
        sum_length=_LENGTH + "reduction",
        samples=_SAMPLES + "mean_samples",
        case_sets=EVERY_SET,
        rule=Rule(
            kind=RuleClass.ACCUMULATE,
            source=SUMS,
            formula="terms are the elements over n; n + 2 of them",
        ),
        description="Arithmetic mean over dimensions; NaN of nothing.",
    ),
    OperatorDescriptor(
        name="prod",
        category="reduction",
        signature="input -> out",
        aliases=("reduce_prod",),
        attributes=(ONE_OR_MORE_DIMS, KEEPDIM, TOTAL_DTYPE),
        dtype_variants=(*NUMBERS, *BOOL),
        infer=_INFER + "prod",
        reference=_REFERENCE + "prod_reference",
        terms=_TERMS + "prod_terms",
        sum_length=_LENGTH + "reduction",
        samples=_SAMPLES + "prod_samples",
        case_sets=tuple(name for name in EVERY_SET if name not in ("zero-mean", "integer-exact")),
        domain="optest.operators.reduction.inference:factors",
        rule=Rule(kind=RuleClass.COMPOSED, source="docs/operators/reduction.md#prod", formula="(n − 1)·|y|"),
        description="Product over dimensions; integers and bool multiply in int64 and wrap there.",
    ),
    OperatorDescriptor(
        name="cumsum",
        category="reduction",
        signature="input -> out",
        aliases=("cum_sum",),
        attributes=(
            Attribute(name="dim", type="int", aliases=("axis",), description="Dimension along which it adds up."),
            TOTAL_DTYPE,
            Attribute(
                name="exclusive",
                type="bool",
                default=False,
                description="Add up to each element without it, as ONNX can; torch has no such attribute.",
            ),
            Attribute(
                name="reverse",
                type="bool",
                default=False,
                description="Add up from the end, as ONNX can; torch has no such attribute.",
            ),
        ),
        dtype_variants=(*NUMBERS, *BOOL),
        infer=_INFER + "cumsum",
        reference=_REFERENCE + "cumsum_reference",
        terms=_TERMS + "cumsum_terms",
        sum_length=_LENGTH + "scan",
        samples=_SAMPLES + "cumsum_samples",
        case_sets=EVERY_SET,
        rule=Rule(
            kind=RuleClass.ACCUMULATE,
            source=SUMS,
            formula="terms of element k are the k elements that it adds up; 4k of them",
        ),
        description="Sum of the elements up to each one along a dimension; integers and bool add up in int64 and wrap.",
    ),
    OperatorDescriptor(
        name="dot",
        category="reduction",
        signature="input, tensor -> out",
        dtype_variants=NUMBERS,
        infer=_INFER + "dot",
        reference=_REFERENCE + "dot_reference",
        terms=_TERMS + "dot_terms",
        sum_length=_LENGTH + "dot",
        samples=_SAMPLES + "dot_samples",
        case_sets=tuple(name for name in EVERY_SET if name != "attributes"),
        rule=Rule(kind=RuleClass.ACCUMULATE, source=SUMS, formula="terms are the products"),
        description="Sum of the products of two vectors; integers keep their dtype and wrap.",
    ),
)

_COMPOSED: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="var",
        category="reduction",
        signature="input -> out",
        attributes=(
            DIMS,
            Attribute(
                name="correction",
                type="float",
                default=1.0,
                description="Taken from n in the divisor: 1 is unbiased, 0 biased; the divisor is never below 0.",
            ),
            KEEPDIM,
        ),
        dtype_variants=FLOATS,
        infer=_INFER + "mean",
        reference=_REFERENCE + "var_reference",
        terms=_TERMS + "var_terms",
        sum_length=_LENGTH + "reduction",
        samples=_SAMPLES + "var_samples",
        case_sets=(*_COMPOSED_SETS, "mean beside std"),
        rule=Rule(
            kind=RuleClass.COMPOSED,
            source="docs/operators/reduction.md#var",
            formula="y·(4√n + 4κ + 8) + u·(4√n·mean|x| + |mean|)²·n/(n − correction)",
        ),
        description="Variance over dimensions; NaN where nothing is divided by nothing, as of one element.",
    ),
    OperatorDescriptor(
        name="norm",
        category="reduction",
        signature="input -> out",
        aliases=("vector_norm", "reduce_l2"),
        attributes=(
            Attribute(
                name="p",
                type="float",
                default=2.0,
                aliases=("ord",),
                description="Order: 1, 2, inf, -inf, 0 (how many are not 0) or any other number.",
            ),
            DIMS,
            KEEPDIM,
        ),
        dtype_variants=FLOATS,
        infer=_INFER + "norm",
        reference=_REFERENCE + "norm_reference",
        terms=_TERMS + "norm_terms",
        sum_length=_LENGTH + "reduction",
        samples=_SAMPLES + "norm_samples",
        case_sets=_COMPOSED_SETS,
        rule=Rule(
            kind=RuleClass.COMPOSED,
            source="docs/operators/reduction.md#norm",
            formula="y·(2√n + 10) for p = 2; y·4√n for 1; 0 for 0 and ±inf; y·((4√n + 33)/|p| + |ln y| + 33) else",
        ),
        description="(Σ|x|^p)^(1/p) over dimensions, as torch.linalg.vector_norm: a matrix is a vector too.",
    ),
    OperatorDescriptor(
        name="logsumexp",
        category="reduction",
        signature="input -> out",
        aliases=("reduce_logsumexp",),
        attributes=(DIMS, KEEPDIM),
        dtype_variants=FLOATS,
        infer=_INFER + "logsumexp",
        reference=_REFERENCE + "logsumexp_reference",
        terms=_TERMS + "logsumexp_terms",
        sum_length=_LENGTH + "reduction",
        samples=_SAMPLES + "logsumexp_samples",
        case_sets=_COMPOSED_SETS,
        rule=Rule(
            kind=RuleClass.COMPOSED,
            source="docs/operators/reduction.md#logsumexp",
            formula="Σ share·(2|x−max| + 6) + 4√n + 6·ln Σ + |y|",
        ),
        # Above 88.7 an exp without the shift by the maximum overflows in float32.
        generator={"fill": "uniform", "low": 84.0, "high": 92.0},
        description="ln Σ exp(x) over dimensions; -inf of nothing and of nothing but -inf.",
    ),
)

DESCRIPTORS: tuple[OperatorDescriptor, ...] = (*_SUMS, *_COMPOSED, *EXTREMES)
