"""Descriptors of the contraction family as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.variants import (
    FLOAT8,
    FLOATS,
    INTEGERS,
)
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass

__all__ = ["DESCRIPTORS"]

_INFER = "optest.operators.contraction.inference:infer_"
_REFERENCE = "optest.operators.contraction.references:"
_TERMS = "optest.operators.contraction.error_terms:"

DESCRIPTORS: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="matmul",
        category="contraction",
        signature="input, other -> out",
        aliases=("MatMul",),
        dtype_variants=(*FLOATS, *INTEGERS, *FLOAT8),
        infer=_INFER + "matmul",
        reference=_REFERENCE + "matmul_reference",
        terms=_TERMS + "matmul_terms",
        rule=Rule(kind=RuleClass.ACCUMULATE, source="docs/operators.md", formula="terms are the products"),
        description="Matrix product with torch.matmul's vectors and batches; integers keep their dtype and wrap.",
    ),
    OperatorDescriptor(
        name="gemm",
        category="contraction",
        signature="a, b, c? -> out",
        aliases=("Gemm",),
        attributes=(
            Attribute(name="alpha", type="float", default=1.0, description="Factor of the product."),
            Attribute(name="beta", type="float", default=1.0, description="Factor of c; with 0, c is not read."),
            Attribute(name="trans_a", type="bool", default=False, aliases=("transA",), description="Transpose a."),
            Attribute(name="trans_b", type="bool", default=False, aliases=("transB",), description="Transpose b."),
        ),
        dtype_variants=(*FLOATS, *INTEGERS, *FLOAT8),
        infer=_INFER + "gemm",
        reference=_REFERENCE + "gemm_reference",
        terms=_TERMS + "gemm_terms",
        rule=Rule(
            kind=RuleClass.ACCUMULATE,
            source="docs/operators.md",
            formula="terms are alpha·products and beta·c; K + 1 for alpha ≠ 1, + 1 for c, + 1 for beta ≠ 1",
        ),
        description="alpha · a @ b + beta · c for matrices; c broadcasts.",
    ),
)
