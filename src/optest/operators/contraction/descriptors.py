"""Descriptors of the contraction family as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.contraction.descriptors_convolution import CONVOLUTIONS
from optest.operators.contraction.variants import OUT_DTYPE, accumulating
from optest.operators.variants import FLOAT8, FLOATS, INTEGERS, NUMBERS, SUMS
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass

__all__ = ["DESCRIPTORS"]

_INFER = "optest.operators.contraction.inference:"
_REFERENCE = "optest.operators.contraction.references:"
_TERMS = "optest.operators.contraction.error_terms:"
_EINSUM = "optest.operators.contraction.einsum:"
_OPERATIONS = "optest.operators.contraction.operations:"
_SAMPLES = "optest.operators.contraction.case_sets:"

_PRODUCTS = Rule(kind=RuleClass.ACCUMULATE, source=SUMS, formula="terms are the products")
_WITH_BIAS = Rule(kind=RuleClass.ACCUMULATE, source=SUMS, formula="terms are the products; + 1 for the bias")
_SETS = ("ordinary", "dtypes", "layouts", "sizes", "special", "accumulator", "integer-exact", "zero-mean", "refused")

DESCRIPTORS: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="matmul",
        category="contraction",
        signature="input, other -> out",
        aliases=("MatMul",),
        attributes=(OUT_DTYPE,),
        dtype_variants=(*NUMBERS, *FLOAT8),
        infer=_INFER + "infer_matmul",
        reference=_REFERENCE + "matmul_reference",
        terms=_TERMS + "matmul_terms",
        sum_length=_INFER + "last_size",
        operations=_OPERATIONS + "matmul_operations",
        samples=_SAMPLES + "matmul_samples",
        case_sets=(*_SETS, "broadcast", "long"),
        rule=_PRODUCTS,
        description="Matrix product with torch.matmul's vectors and batches; integers keep their dtype and wrap.",
    ),
    OperatorDescriptor(
        name="bmm",
        category="contraction",
        signature="input, mat2 -> out",
        attributes=(OUT_DTYPE,),
        dtype_variants=(*NUMBERS, *FLOAT8),
        infer=_INFER + "infer_bmm",
        reference=_REFERENCE + "bmm_reference",
        terms=_TERMS + "bmm_terms",
        sum_length=_INFER + "last_size",
        operations=_OPERATIONS + "bmm_operations",
        samples=_SAMPLES + "bmm_samples",
        case_sets=_SETS,
        rule=_PRODUCTS,
        description="Products of the matrices of two batches of one size; nothing broadcasts.",
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
            OUT_DTYPE,
        ),
        dtype_variants=(*FLOATS, *INTEGERS, *FLOAT8, *accumulating(2)),
        infer=_INFER + "infer_gemm",
        reference=_REFERENCE + "gemm_reference",
        terms=_TERMS + "gemm_terms",
        sum_length=_INFER + "gemm_length",
        operations=_OPERATIONS + "gemm_operations",
        samples=_SAMPLES + "gemm_samples",
        case_sets=(*_SETS, "attributes", "batched", "beta", "broadcast", "long"),
        rule=Rule(
            kind=RuleClass.ACCUMULATE,
            source=SUMS,
            formula="terms are alpha·products and beta·c; K + 1 for alpha ≠ 1, + 1 for c, + 1 for beta ≠ 1",
        ),
        description="alpha · a @ b + beta · c for matrices, or for as many pairs of matrices as the first of three "
        "dimensions says; c broadcasts.",
    ),
    OperatorDescriptor(
        name="linear",
        category="contraction",
        signature="input, weight, bias? -> out",
        attributes=(OUT_DTYPE,),
        dtype_variants=(*FLOATS, *INTEGERS, *FLOAT8, *accumulating(2)),
        infer=_INFER + "infer_linear",
        reference=_REFERENCE + "linear_reference",
        terms=_TERMS + "linear_terms",
        sum_length=_INFER + "last_size",
        operations=_OPERATIONS + "linear_operations",
        samples=_SAMPLES + "linear_samples",
        case_sets=(*_SETS, "attributes"),
        rule=_WITH_BIAS,
        description="input @ weightᵀ + bias over the last dimension; weight has a row for each output feature.",
    ),
    OperatorDescriptor(
        name="einsum",
        category="contraction",
        signature="*operands -> out",
        aliases=("Einsum",),
        attributes=(
            Attribute(
                name="equation",
                type="str",
                description="Labels of the operands, '->' and those of the output, as torch.einsum reads them.",
            ),
        ),
        dtype_variants=NUMBERS,
        infer=_INFER + "infer_einsum",
        reference=_EINSUM + "einsum_reference",
        terms=_EINSUM + "einsum_terms",
        sum_length=_INFER + "einsum_length",
        operations=_OPERATIONS + "einsum_operations",
        samples=_SAMPLES + "einsum_samples",
        case_sets=(
            "ordinary",
            "dtypes",
            "layouts",
            "sizes",
            "equations",
            "special",
            "integer-exact",
            "zero-mean",
            "refused",
        ),
        rule=Rule(
            kind=RuleClass.ACCUMULATE,
            source=SUMS,
            formula="terms are the products of one element of each operand; + 1 for each operand beyond two",
        ),
        description="Sums of products over the labels that the output does not have; repeated labels are diagonals. "
        "Whatever the order of contraction, 16-bit results are computed in float32 and rounded once.",
    ),
    *CONVOLUTIONS,
)
