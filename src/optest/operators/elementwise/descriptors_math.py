"""Descriptors of functions of one number as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.variants import BOOL, FLOATS, INTEGERS, MEASURED, NUMBERS, OPENCL
from optest.spec import Attribute, Interval, OperatorDescriptor, Rule, RuleClass

__all__ = ["MATH"]

_FAMILY = "optest.operators.elementwise."
_INFER = _FAMILY + "inference:infer_"
_REFERENCE = _FAMILY + "references_math:"
_TERMS = _FAMILY + "error_terms:"
_SAMPLES = _FAMILY + "case_sets_math:"
_ALTERNATIVES = _FAMILY + "alternatives:"

_COMMON_SETS = ("ordinary", "dtypes", "layouts", "sizes", "special", "exhaustive")
_SIGN_BIT = "a change of the sign bit alone: IEEE 754-2019 §5.5.1"
_WHOLE = "a whole number of the dtype: IEEE 754-2019 §5.9"


def _real(
    name: str,
    ulp: float,
    low: float,
    high: float,
    description: str,
    *,
    avoid: float = 0.0,
    aliases: tuple[str, ...] = (),
    source: str = OPENCL,
    cpu_ulp: float | None = None,
    more: str = "",
) -> OperatorDescriptor:
    """A function whose results are rounded; the range is what random inputs are drawn from.

    ``more`` says what its error terms add. A ceiling above OpenCL's, and each for CPUs, holds for NumPy, torch, JAX,
    ONNX Runtime and OpenVINO as measured on a CPU against 200-bit values: docs/verdicts.md has the figures.
    """
    return OperatorDescriptor(
        name=name,
        category="elementwise",
        signature="input -> out",
        aliases=aliases,
        dtype_variants=(*NUMBERS, *BOOL),
        infer=_INFER + "float",
        reference=f"{_REFERENCE}{name}_reference",
        terms=f"{_TERMS}{name}_terms" if more else None,
        rule=Rule(kind=RuleClass.ULP, ulp=ulp, cpu_ulp=cpu_ulp, source=source, formula=more),
        domain={"input": Interval(low=low, high=high, avoid=avoid)},
        samples=f"{_SAMPLES}{name}_samples",
        case_sets=(*_COMMON_SETS, "range"),
        signed_zeros=True,  # C Annex F.10: f(±0) = ±0 where f is odd there, log(1) = +0, exp(-∞) = +0, 1/±∞ = ±0
        description=f"{description}; integers give float32.",
    )


def _number(
    name: str,
    description: str,
    *,
    kind: RuleClass = RuleClass.EXACT,
    source: str = _WHOLE,
    aliases: tuple[str, ...] = (),
    sets: tuple[str, ...] = ("ties",),
    infer: str = "integral",
    bool_too: bool = False,
    signed_zeros: bool = True,
) -> OperatorDescriptor:
    """A function that rounds nothing."""
    return OperatorDescriptor(
        name=name,
        category="elementwise",
        signature="input -> out",
        aliases=aliases,
        dtype_variants=(*FLOATS, *INTEGERS, *(BOOL if bool_too else ())),
        infer=_INFER + infer,
        reference=f"{_REFERENCE}{name}_reference",
        rule=Rule(kind=kind, source=source),
        samples=f"{_SAMPLES}{name}_samples",
        case_sets=(*_COMMON_SETS, *sets),
        signed_zeros=signed_zeros,  # IEEE 754-2019 §5.9: a zero result has the sign of the operand
        description=description,
    )


MATH: tuple[OperatorDescriptor, ...] = (
    _number(
        "neg",
        "input with its sign turned, that of 0 and infinity too; integers wrap.",
        kind=RuleClass.MOVEMENT,
        source=_SIGN_BIT,
        aliases=("negative", "Neg"),
        sets=("refused", "wraps"),
    ),
    _number(
        "abs",
        "input without its sign, that of 0 too; the smallest integer stays what it is.",
        kind=RuleClass.MOVEMENT,
        source=_SIGN_BIT,
        aliases=("absolute", "Abs"),
        sets=("wraps",),
    ),
    _number(
        "sign",
        "-1, 0 or 1; 0 for NaN; bool stays as it is.",
        source="comparison with 0",
        aliases=("Sign",),
        sets=("ties",),
        infer="same",
        bool_too=True,
        signed_zeros=False,  # JAX keeps the sign of -0, NumPy and torch do not
    ),
    # exp(11) is the last power below the overflow of float16, exp(-15) still one of its subnormals.
    _real("exp", 3.0, -15.0, 11.0, "Exponential", aliases=("Exp",), more="|input|/16·|out| more, up to |input| = 88"),
    # 3 in OpenCL C, but NumPy reaches 3.83 at 0.783 and ONNX Runtime 3.47 at 1.133.
    _real("log", 4.0, 2.0**-14, 65504.0, "Natural logarithm", aliases=("Log",), source=MEASURED),
    # 2 in OpenCL C, but JAX reaches 2.52 at 0.415.
    _real(
        "log1p",
        3.0,
        -0.9990234375,
        65504.0,
        "Natural logarithm of 1 + input, also where that rounds to 1",
        source=MEASURED,
    ),
    _real("expm1", 3.0, -15.0, 11.0, "Exponential less 1, also where that cancels"),
    _real(
        "sqrt",
        3.0,
        0.0,
        65504.0,
        "Square root, which IEEE 754 rounds correctly and fast hardware does not",
        aliases=("Sqrt",),
        cpu_ulp=1.0,
    ),
    _real("rsqrt", 2.0, 2.0**-14, 65504.0, "Reciprocal of the square root"),
    _real("reciprocal", 2.5, -1024.0, 1024.0, "1 / input", avoid=2.0**-10, aliases=("Reciprocal",), cpu_ulp=1.0),
    _real("sin", 4.0, -100.0, 100.0, "Sine of radians of any size", aliases=("Sin",), cpu_ulp=3.0),
    _real("cos", 4.0, -100.0, 100.0, "Cosine of radians of any size", aliases=("Cos",), cpu_ulp=3.0),
    # 5 in OpenCL C, but ONNX Runtime reaches 5.46 at 8.48 and JAX 4.90 at 5.13.
    _real("tanh", 6.0, -10.0, 10.0, "Hyperbolic tangent", aliases=("Tanh",), source=MEASURED),
    _real("erf", 16.0, -6.0, 6.0, "Error function", aliases=("Erf",), cpu_ulp=8.0),
    _number("floor", "The largest whole number that is not above input.", aliases=("Floor",)),
    _number("ceil", "The smallest whole number that is not below input.", aliases=("Ceil",)),
    OperatorDescriptor(
        name="round",
        category="elementwise",
        signature="input -> out",
        aliases=("Round",),
        attributes=(
            Attribute(
                name="decimals",
                type="int",
                default=0,
                description="Decimal places to round to; negative ones count tens, hundreds, ….",
            ),
        ),
        dtype_variants=NUMBERS,
        infer=_INFER + "round",
        reference=_REFERENCE + "round_reference",
        terms=_TERMS + "round_terms",
        alternatives=_ALTERNATIVES + "round_alternatives",
        rule=Rule(
            kind=RuleClass.ULP,
            ulp=0.5,
            source=f"{_WHOLE}; decimals by division: {OPENCL}",
            formula="decimals ≠ 0: 5·|out| more, or one step beside it",
        ),
        samples=_SAMPLES + "round_samples",
        case_sets=(*_COMMON_SETS, "ties", "attributes"),
        signed_zeros=True,  # IEEE 754-2019 §5.9
        description="The nearest whole number, of two equally near ones the even; with decimals, also the other side "
        "of a half that the multiplication by ten cannot tell from this one.",
    ),
    _number("trunc", "input without its fraction.", aliases=("fix",)),
)
