"""The built-in operators as data; hooks are import paths, so that listing them needs neither NumPy nor a framework."""

from __future__ import annotations

from optest.spec import DTYPES, Attribute, Interval, OperatorDescriptor, Rule, RuleClass

__all__ = ["DESCRIPTORS"]

_INFER = "optest.operators.inference:infer_"
_REFERENCE = "optest.operators.reference_impls:"
_TERMS = "optest.operators.error_terms:"

_FLOATS = (("float32",), ("float16",), ("bfloat16",), ("float64",))
_INTEGERS = (("int32",), ("int64",), ("int8",), ("int16",), ("uint8",))
_BOOL = (("bool",),)
_FLOAT8 = (("float8_e4m3fn",), ("float8_e5m2",))
_EVERY = (("float32",), *((entry.name,) for entry in DTYPES if entry.name != "float32"))
_REAL = tuple(variant for variant in _EVERY if not variant[0].startswith("complex"))
_MIXED = tuple(
    pair
    for a, b in (
        ("float32", "float64"),
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("float16", "bfloat16"),
        ("int32", "float32"),
        ("int64", "float16"),
        ("bool", "float32"),
        ("int8", "uint8"),
        ("int32", "int64"),
        ("bool", "int32"),
    )
    for pair in ((a, b), (b, a))
)
_FLOAT32_PARAMETERS = tuple((half, *("float32",) * count) for half in ("float16", "bfloat16") for count in (1, 2))

_CL = "OpenCL C 3.0 §7.4 (full profile)"

_DIM = Attribute(name="dim", type="int", default=-1, aliases=("axis",), description="Dimension along which it works.")


DESCRIPTORS: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="add",
        category="elementwise",
        signature="input, other -> out",
        aliases=("elementwise_add", "Add"),
        attributes=(Attribute(name="alpha", type="float", default=1.0, description="Factor of other."),),
        dtype_variants=(*_FLOATS, *_INTEGERS, *_BOOL, *_MIXED),
        infer=_INFER + "add",
        reference=_REFERENCE + "add_reference",
        terms=_TERMS + "add_terms",
        rule=Rule(
            kind=RuleClass.ULP,
            ulp=0.5,
            source=f"correctly rounded: IEEE 754-2019 §5.4.1, {_CL}",
            formula="alpha ≠ 1: 2·|alpha·other| more",
        ),
        description="input + alpha * other, with broadcasting; bool adds as logical or, integers wrap.",
    ),
    OperatorDescriptor(
        name="div",
        category="elementwise",
        signature="input, other -> out",
        aliases=("elementwise_div", "Div"),
        dtype_variants=(*_FLOATS, *_INTEGERS, *_BOOL, *_MIXED),
        infer=_INFER + "div",
        reference=_REFERENCE + "div_reference",
        rule=Rule(kind=RuleClass.ULP, ulp=2.5, source=_CL),
        domain={"other": Interval(low=-8.0, high=8.0, avoid=0.25)},
        description="True division with broadcasting; integers give float32.",
    ),
    OperatorDescriptor(
        name="exp",
        category="elementwise",
        signature="input -> out",
        aliases=("Exp",),
        dtype_variants=(*_FLOATS, *_INTEGERS, *_BOOL),
        infer=_INFER + "exp",
        reference=_REFERENCE + "exp_reference",
        rule=Rule(kind=RuleClass.ULP, ulp=3.0, source=_CL),
        # exp(11) is the last power below the overflow of float16, exp(-15) still one of its subnormals.
        domain={"input": Interval(low=-15.0, high=11.0)},
        description="Exponential; integers give float32.",
    ),
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
        dtype_variants=_FLOATS,
        infer=_INFER + "same",
        reference=_REFERENCE + "gelu_reference",
        terms=_TERMS + "gelu_terms",
        rule=Rule(
            kind=RuleClass.ULP,
            ulp=16.0,
            source=f"erf: {_CL}",
            formula="8·|x| more for the cancellation, 4·|x| with tanh",
        ),
        domain={"input": Interval(low=-8.0, high=8.0)},
        description="Gaussian error linear unit.",
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
        dtype_variants=_EVERY,
        infer=_INFER + "cast",
        reference=_REFERENCE + "cast_reference",
        rule=Rule(kind=RuleClass.EXACT, source="conversion: rounded once, ties to even; to integers towards zero"),
        # Inside int8 and float8; beyond the range of an integer dtype, conversion is undefined in C and torch.
        domain={"input": Interval(low=-100.0, high=100.0)},
        description="Conversion to another dtype; integers wrap, floats lose their fraction, non-zero is true.",
    ),
    OperatorDescriptor(
        name="relu",
        category="activation",
        signature="input -> out",
        aliases=("Relu",),
        dtype_variants=(*_FLOATS, *_INTEGERS),
        infer=_INFER + "same",
        reference=_REFERENCE + "relu_reference",
        rule=Rule(kind=RuleClass.EXACT, source="a choice between input and 0; nothing is computed"),
        description="The larger of input and 0; NaN stays NaN.",
    ),
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
        dtype_variants=(*_FLOATS, *_INTEGERS, *_BOOL),
        infer=_INFER + "sum",
        reference=_REFERENCE + "sum_reference",
        terms=_TERMS + "sum_terms",
        rule=Rule(kind=RuleClass.ACCUMULATE, source="docs/operators.md", formula="terms are the elements"),
        description="Sum over dimensions; integers and bool add up in int64 and wrap there.",
    ),
    OperatorDescriptor(
        name="matmul",
        category="contraction",
        signature="input, other -> out",
        aliases=("MatMul",),
        dtype_variants=(*_FLOATS, *_INTEGERS, *_FLOAT8),
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
        dtype_variants=(*_FLOATS, *_INTEGERS, *_FLOAT8),
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
    OperatorDescriptor(
        name="softmax",
        category="normalization",
        signature="input -> out",
        aliases=("Softmax",),
        attributes=(_DIM,),
        dtype_variants=_FLOATS,
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
        dtype_variants=(*_FLOATS, *_FLOAT32_PARAMETERS),
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
    OperatorDescriptor(
        name="transpose",
        category="movement",
        signature="input -> out",
        aliases=("Transpose",),
        attributes=(
            Attribute(name="dim0", type="int", description="First dimension to swap."),
            Attribute(name="dim1", type="int", description="Second dimension to swap."),
        ),
        dtype_variants=_EVERY,
        infer=_INFER + "transpose",
        reference=_REFERENCE + "transpose_reference",
        rule=Rule(kind=RuleClass.MOVEMENT, source="elements move and never change"),
        description="Two dimensions swapped.",
    ),
)
