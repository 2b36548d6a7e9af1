"""Descriptors of sums, products, quotients and powers as data; hooks are import paths."""

from __future__ import annotations

from optest.operators.variants import (
    EVERYTHING,
    NUMBERS_AND_MIXED,
    OPENCL,
    UNSIGNED,
)
from optest.spec import Attribute, OperatorDescriptor, Rule, RuleClass

__all__ = ["ARITHMETIC"]

_FAMILY = "optest.operators.elementwise."
_INFER = _FAMILY + "inference:infer_"
_REFERENCE = _FAMILY + "references_arithmetic:"
_TERMS = _FAMILY + "error_terms:"
_SAMPLES = _FAMILY + "case_sets_arithmetic:"
_DOMAIN = _FAMILY + "domains:"
_ALTERNATIVES = _FAMILY + "alternatives:"

_CORRECT = f"correctly rounded: IEEE 754-2019 §5.4.1, {OPENCL}"
_COMMON_SETS = ("ordinary", "dtypes", "layouts", "sizes", "special", "broadcast", "refused")
_ALPHA = Attribute(name="alpha", type="float", default=1.0, description="Factor of other.")
_SCALED = Rule(kind=RuleClass.ULP, ulp=0.5, source=_CORRECT, formula="alpha ≠ 1: 2·|alpha·other| more")

ARITHMETIC: tuple[OperatorDescriptor, ...] = (
    OperatorDescriptor(
        name="add",
        category="elementwise",
        signature="input, other -> out",
        aliases=("elementwise_add", "Add"),
        attributes=(_ALPHA,),
        dtype_variants=(*EVERYTHING, *UNSIGNED),
        infer=_INFER + "add",
        reference=_REFERENCE + "add_reference",
        terms=_TERMS + "add_terms",
        rule=_SCALED,
        samples=_SAMPLES + "add_samples",
        case_sets=(*_COMMON_SETS, "attributes", "cancellation", "ties", "wraps"),
        signed_zeros=True,  # IEEE 754-2019 §6.3: -0 + -0 = -0, x - x = +0
        description="input + alpha * other, with broadcasting; bool adds as logical or, integers wrap.",
    ),
    OperatorDescriptor(
        name="sub",
        category="elementwise",
        signature="input, other -> out",
        aliases=("subtract", "elementwise_sub", "Sub"),
        attributes=(_ALPHA,),
        dtype_variants=(*NUMBERS_AND_MIXED, *UNSIGNED),
        infer=_INFER + "sub",
        reference=_REFERENCE + "sub_reference",
        terms=_TERMS + "sub_terms",
        rule=_SCALED,
        samples=_SAMPLES + "sub_samples",
        case_sets=(*_COMMON_SETS, "attributes", "cancellation", "ties", "wraps"),
        signed_zeros=True,  # IEEE 754-2019 §6.3
        description="input - alpha * other, with broadcasting; integers wrap, bool is refused.",
    ),
    OperatorDescriptor(
        name="mul",
        category="elementwise",
        signature="input, other -> out",
        aliases=("multiply", "elementwise_mul", "Mul"),
        dtype_variants=(*EVERYTHING, *UNSIGNED),
        infer=_INFER + "binary",
        reference=_REFERENCE + "mul_reference",
        terms=_TERMS + "mul_terms",
        rule=Rule(kind=RuleClass.ULP, ulp=0.5, source=_CORRECT, formula="complex: √5·u·|input·other|"),
        samples=_SAMPLES + "mul_samples",
        case_sets=(*_COMMON_SETS, "ties", "wraps"),
        signed_zeros=True,  # IEEE 754-2019 §6.3: the exclusive or of both signs
        description="input * other, with broadcasting; bool multiplies as logical and, integers wrap.",
    ),
    OperatorDescriptor(
        name="div",
        category="elementwise",
        signature="input, other -> out",
        aliases=("divide", "elementwise_div"),
        attributes=(
            Attribute(
                name="rounding_mode",
                type="str",
                default=None,
                choices=("trunc", "floor"),
                description="None divides truly, trunc rounds the quotient towards zero, floor downwards.",
            ),
        ),
        dtype_variants=EVERYTHING,
        infer=_INFER + "div",
        reference=_REFERENCE + "div_reference",
        alternatives=_ALTERNATIVES + "div_alternatives",
        may_refuse=_ALTERNATIVES + "quotient_may_be_refused",
        rule=Rule(kind=RuleClass.ULP, ulp=2.5, source=OPENCL, formula="with a rounding_mode also the step beside it"),
        domain=_DOMAIN + "div_domain",
        samples=_SAMPLES + "div_samples",
        case_sets=(*_COMMON_SETS, "attributes", "steps", "zero divisors"),
        signed_zeros=True,  # IEEE 754-2019 §6.3; a rounded quotient keeps the sign
        description="Division with broadcasting; true division gives float32 for integers, a rounded one their dtype.",
    ),
    OperatorDescriptor(
        name="floor_divide",
        category="elementwise",
        signature="input, other -> out",
        dtype_variants=NUMBERS_AND_MIXED,
        infer=_INFER + "number",
        reference=_REFERENCE + "floor_divide_reference",
        alternatives=_ALTERNATIVES + "floor_divide_alternatives",
        may_refuse=_ALTERNATIVES + "quotient_may_be_refused",
        rule=Rule(kind=RuleClass.ULP, ulp=2.5, source=f"the division: {OPENCL}", formula="or one step beside it"),
        domain=_DOMAIN + "quotient_domain",
        samples=_SAMPLES + "floor_divide_samples",
        case_sets=(*_COMMON_SETS, "steps", "zero divisors", "signs"),
        description="The quotient rounded downwards; where the quotient is within 2.5 ulp of a whole number, but not "
        "on it, both sides of the step are right. A float over 0 gives infinity or NaN.",
    ),
    OperatorDescriptor(
        name="remainder",
        category="elementwise",
        signature="input, other -> out",
        dtype_variants=NUMBERS_AND_MIXED,
        infer=_INFER + "number",
        reference=_REFERENCE + "remainder_reference",
        alternatives=_ALTERNATIVES + "remainder_alternatives",
        may_refuse=_ALTERNATIVES + "remainder_may_be_refused",
        rule=Rule(
            kind=RuleClass.ULP,
            ulp=0.5,
            source=f"fmod is exact and the sum correctly rounded: {OPENCL}",
            formula="or one divisor beside it",
        ),
        domain=_DOMAIN + "quotient_domain",
        samples=_SAMPLES + "remainder_samples",
        case_sets=(*_COMMON_SETS, "steps", "zero divisors", "signs"),
        description="What division rounded downwards leaves, with the sign of the divisor, as Python's %; where the "
        "quotient is within 2.5 ulp of a whole number, but not on it, one divisor more or less is right too.",
    ),
    OperatorDescriptor(
        name="fmod",
        category="elementwise",
        signature="input, other -> out",
        dtype_variants=NUMBERS_AND_MIXED,
        infer=_INFER + "number",
        reference=_REFERENCE + "fmod_reference",
        alternatives=_ALTERNATIVES + "fmod_alternatives",
        may_refuse=_ALTERNATIVES + "remainder_may_be_refused",
        rule=Rule(kind=RuleClass.EXACT, source=f"fmod loses nothing: C Annex F.10.7.1, {OPENCL}"),
        domain=_DOMAIN + "quotient_domain",
        samples=_SAMPLES + "fmod_samples",
        case_sets=(*_COMMON_SETS, "steps", "zero divisors", "signs"),
        signed_zeros=True,  # C Annex F.10.7.1: the sign of the dividend; of `remainder` libraries differ
        description="What division rounded towards zero leaves, with the sign of the dividend, as C's fmod and %.",
    ),
    OperatorDescriptor(
        name="pow",
        category="elementwise",
        signature="input, exponent -> out",
        aliases=("elementwise_pow",),
        dtype_variants=NUMBERS_AND_MIXED,
        infer=_INFER + "number",
        reference=_REFERENCE + "pow_reference",
        rule=Rule(kind=RuleClass.ULP, ulp=16.0, cpu_ulp=2.0, source=OPENCL),
        domain=_DOMAIN + "pow_domain",
        samples=_SAMPLES + "pow_samples",
        case_sets=(*_COMMON_SETS, "negative bases", "special powers", "integer powers"),
        signed_zeros=True,  # C Annex F.10.4.4
        description="Power with broadcasting; integers wrap, and to a negative power give 0 but for 1 and -1.",
    ),
)
