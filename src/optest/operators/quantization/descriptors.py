"""Descriptors of the quantization family as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.quantization.inference import INTEGERS
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass

__all__ = ["DEQUANTIZED", "DESCRIPTORS", "QUANTIZED"]

_INFERENCE = "optest.operators.quantization.inference:"
_REFERENCE = "optest.operators.quantization.references:"
_SAMPLES = "optest.operators.quantization.case_sets:"
_TERMS = "optest.operators.quantization.error_terms:"

_HALVES = ("float16", "bfloat16")
_SCALED = (("float32", "float32"), *((half, scale) for half in _HALVES for scale in ("float32", half)))
_ZERO_POINTS = (*INTEGERS, "int64")
QUANTIZED = (*_SCALED, *((*pair, zero_point) for pair in _SCALED for zero_point in _ZERO_POINTS))
DEQUANTIZED = tuple(
    variant
    for name in INTEGERS
    for scale in ("float32", *_HALVES)
    for variant in ((name, scale), *((name, scale, each) for each in dict.fromkeys((name, "int32", "int64"))))
)

_AXIS = Attribute(
    name="axis",
    type="int",
    default=1,
    aliases=("dim",),
    description="Dimension that several scales are for.",
)

DESCRIPTORS: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="quantize",
        category="quantization",
        signature="input, scale, zero_point? -> out",
        aliases=("QuantizeLinear", "quantize_per_tensor", "quantize_per_channel"),
        attributes=(
            _AXIS,
            Attribute(
                name="dtype",
                type="dtype",
                default=None,
                choices=INTEGERS,
                aliases=("output_dtype",),
                description="Dtype of the result; without one that of zero_point, without that uint8.",
            ),
            Attribute(name="quant_min", type="int", default=None, description="Smallest result; that of the dtype."),
            Attribute(name="quant_max", type="int", default=None, description="Largest result; that of the dtype."),
        ),
        dtype_variants=QUANTIZED,
        infer=_INFERENCE + "infer_quantize",
        reference=_REFERENCE + "quantize_reference",
        alternatives=_REFERENCE + "quantize_alternatives",
        samples=_SAMPLES + "quantize_samples",
        case_sets=("ordinary", "dtypes", "layouts", "sizes", "attributes", "ties", "saturation", "refused"),
        domain=_INFERENCE + "quantize_domain",
        generator={"scale": "uniform", "zero_point": "randint"},
        rule=Rule(
            kind=RuleClass.EXACT,
            source="definition of ONNX QuantizeLinear; OpenCL C 3.0 §7.4 for the quotient",
            formula=(
                "or every integer that a quotient within 3 ulp of float32 rounds to (by division, or by the inverse "
                "of the scale), or one that is rounded to the dtype of a scale of 16 bits; at an exact tie only the "
                "even one"
            ),
        ),
        description=(
            "round(input / scale) with ties to even, plus zero_point, saturated. One scale, 0-d or of one element, for "
            "the tensor, or one for each index along axis. Results are plain integers."
        ),
    ),
    OperatorDescriptor(
        name="dequantize",
        category="quantization",
        signature="input, scale, zero_point? -> out",
        aliases=("DequantizeLinear",),
        attributes=(
            _AXIS,
            Attribute(
                name="dtype",
                type="dtype",
                default=None,
                choices=("float32", *_HALVES),
                aliases=("output_dtype",),
                description="Dtype of the result; without one that of scale.",
            ),
        ),
        dtype_variants=DEQUANTIZED,
        infer=_INFERENCE + "infer_dequantize",
        reference=_REFERENCE + "dequantize_reference",
        terms=_TERMS + "dequantize_terms",
        samples=_SAMPLES + "dequantize_samples",
        case_sets=("ordinary", "dtypes", "layouts", "sizes", "attributes", "extremes", "refused"),
        domain=_INFERENCE + "dequantize_domain",
        generator={"input": "randint", "scale": "uniform", "zero_point": "randint"},
        rule=Rule(
            kind=RuleClass.ULP,
            ulp=0.5,
            source="one product, correctly rounded: IEEE 754-2019 §5.4.1",
            formula="integers beyond 24 bits: |input| + |zero_point| + |input − zero_point|, each times scale, more",
        ),
        description="(input − zero_point) · scale, for the tensor or for each index along axis, as quantize has them.",
    ),
)
