"""Sums, products and powers: add, sub, mul, pow and logaddexp."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from optest.operators.calls import EVERY_FLOAT, LARGE_SIZE, MAIN_FLOATS, MILLION, call
from optest.operators.describe import (
    EVERYTHING,
    FLOATS,
    INTEGERS,
    MIXED,
    NUMBERS_AND_MIXED,
    OPENCL,
    UNSIGNED,
    attribute,
    in_module,
    ulp,
)
from optest.operators.elementwise.helpers import (
    SMALL_INTEGERS,
    binary,
    grid,
    is_integer,
    promote_operands,
    refuse_bool,
    two_matrices,
)
from optest.operators.samples import error_samples, in_layouts_at_once, million_element_samples, variations
from optest.operators.shapes import Attributes, Outputs, Specs, require_scalar, require_spec
from optest.spec import Interval, OperatorDescriptor, Sample, UnfitArguments, dtype

_CORRECT = f"correctly rounded: IEEE 754-2019 §5.4.1, {OPENCL}"
_ALPHA = attribute("alpha: float = 1.0", "Factor of other.")
_SCALED = ulp(0.5, _CORRECT, "alpha ≠ 1: 2·|alpha·other| more")
_LOGARITHMS = (*FLOATS, *(dtypes for dtypes in MIXED if "float" in f"{dtypes}"))

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="add",
        aliases=("elementwise_add", "Add: A, B -> C"),
        attributes=(_ALPHA,),
        dtype_variants=(*EVERYTHING, *UNSIGNED),
        terms="add_terms",
        rule=_SCALED,
        signed_zeros=True,  # IEEE 754-2019 §6.3: -0 + -0 = -0, x - x = +0
        description="input + alpha * other, with broadcasting; bool adds as logical or, integers wrap.",
    ),
    OperatorDescriptor(
        name="sub",
        aliases=("subtract", "elementwise_sub", "Sub: A, B -> C"),
        attributes=(_ALPHA,),
        dtype_variants=(*NUMBERS_AND_MIXED, *UNSIGNED),
        terms="sub_terms",
        rule=_SCALED,
        signed_zeros=True,  # IEEE 754-2019 §6.3
        description="input - alpha * other, with broadcasting; integers wrap, bool is refused.",
    ),
    OperatorDescriptor(
        name="mul",
        aliases=("multiply", "elementwise_mul", "Mul: A, B -> C"),
        dtype_variants=(*EVERYTHING, *UNSIGNED),
        infer="helpers:infer_binary",
        terms="mul_terms",
        rule=ulp(0.5, _CORRECT, "complex: √5·u·|input·other|"),
        signed_zeros=True,  # IEEE 754-2019 §6.3: the exclusive or of both signs
        description="input * other, with broadcasting; bool multiplies as logical and, integers wrap.",
    ),
    OperatorDescriptor(
        name="pow",
        signature="input, exponent -> out",
        aliases=("elementwise_pow",),
        dtype_variants=NUMBERS_AND_MIXED,
        infer="helpers:infer_number",
        rule=ulp(16.0, OPENCL, cpu=2.0),
        domain="pow_domain",
        signed_zeros=True,  # C Annex F.10.4.4
        description="Power with broadcasting; integers wrap, and to a negative power give 0, except for 1 and -1.",
    ),
    OperatorDescriptor(
        name="logaddexp",
        dtype_variants=_LOGARITHMS,
        terms="logaddexp_terms",
        rule=ulp(
            1.0,  # the rounding of 1 + exp(−d) before a logarithm is half an ulp of results above 1
            f"the sum: IEEE 754-2019 §5.4.1; exp and log1p: {OPENCL}",
            "6·L + s·(2d + 6) more, d = |input − other|, L = log1p(exp(−d)), s = 1/(1 + exp(d))",
        ),
        description="ln(exp(input) + exp(other)) with broadcasting, as max + log1p(exp(−|input − other|)).",
    ),
    twin="arithmetic_reference",
    signature="input, other -> out",
)


def infer_add(specs: Specs, attributes: Attributes) -> Outputs:
    """Return an output of the common dtype, which has to hold alpha, and the broadcast shape."""
    result, outputs = promote_operands(specs)
    require_scalar("alpha", attributes.get("alpha", 1.0), result)
    return outputs


def infer_sub(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output of ``infer_add``; raise UnfitArguments if an operand is bool, as torch does."""
    for index, name in enumerate(("input", "other")):
        refuse_bool(require_spec(specs, index, name).dtype, name)
    return infer_add(specs, attributes)


def infer_logaddexp(specs: Specs, _attributes: Attributes) -> Outputs:
    """Return an output of the common dtype and the broadcast shape; raise UnfitArguments unless the dtype is a float.

    torch has no logaddexp of two integers.
    """
    result, outputs = promote_operands(specs)
    if not result.is_float:
        raise UnfitArguments(f"the common dtype is {result}, expected a float")
    return outputs


def pow_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """Return the ranges of random inputs of pow.

    Two integers: any base, exponents from -2 to 66. Else positive bases whose powers float16 holds.
    """
    base, exponent = (specs[index] if index < len(specs) else None for index in range(2))
    if is_integer(base) and is_integer(exponent):
        return {"exponent": Interval(low=-2, high=66)}
    return {"input": Interval(low=0.0625, high=8.0), "exponent": Interval(low=-4.0, high=4.0)}


# Ranges of integers that the dtype holds; of their sums it holds every second one, the others are ties.
_TERMS_OF_TIES = {"float16": (1025, 2047), "bfloat16": (129, 255), "float32": (2**23 + 1, 2**24 - 1)}
# For products.
_FACTORS_OF_TIES = {"float16": (46, 63), "bfloat16": (17, 22), "float32": (4097, 5792)}
_EXACT = {"tolerance": {"rtol": 0.0, "atol": 0.0}}
# Bits of the significand, and the exponents of the smallest and the largest normal number.
_FORMATS = {
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
    "float32": (24, -126, 127),
    "float64": (53, -1022, 1023),
}


def _samples_of_ties(ranges: Mapping[str, tuple[int, int]], *, sign: int = 1) -> Iterator[Sample]:
    """Yield samples with integer operands and tolerance 0; about half the sums, or a quarter of the products, are ties.

    ``ranges`` are the operands' ends by dtype; the second operand has the sign of the first times ``sign``.
    """

    # Both neighbours of a tie are half an ulp off, but only one is right: ties to even. Wider arithmetic is exact
    # here, so that the final rounding is the only one.
    def integers(first: int, last: int) -> dict[str, Any]:
        return {"fill": "randint", "low": min(first, last), "high": max(first, last)}

    for name, (low, high) in ranges.items():
        for side in (1, -1):
            fills = {"input": integers(side * low, side * high)}
            fills["other"] = integers(side * sign * low, side * sign * high)
            yield from variations("ties", [{**two_matrices(generator=fills), **_EXACT}], dtypes=[name])


def _ends_of_range() -> Iterator[Sample]:
    """Yield samples that pair subnormal and the largest numbers of each float dtype, without tolerance."""
    # Results half an ulp beyond the largest number are where overflow begins; random operands never reach it.
    for name, (precision, lowest, highest) in _FORMATS.items():
        step = 2.0 ** (lowest + 1 - precision)
        smallest, half_an_ulp = 2.0**lowest, 2.0 ** (highest - precision)
        largest = 2.0**highest * (2.0 - 2.0 ** (1 - precision))
        values = [step, 3 * step, smallest - step, smallest, half_an_ulp, half_an_ulp / 2, largest, 0.5]
        signed = [*values, *(-value for value in values)]
        yield from variations("special", [{**grid(signed, signed), **_EXACT}], dtypes=[name])


def add_samples() -> Iterator[Sample]:
    yield from binary((*EVERYTHING, *UNSIGNED))
    yield from _alpha_samples()
    yield from _unsigned()
    yield from _wrapping()
    yield from _samples_of_ties(_TERMS_OF_TIES)
    yield from _ends_of_range()
    yield from variations("attributes", [two_matrices({"alpha": 3.0})], dtypes=("bool",))
    yield from variations("sizes", [call(input=(LARGE_SIZE, 1), other=(2,))], dtypes=("float32",))
    yield from million_element_samples(
        call(input=MILLION, other=MILLION), call(input=MILLION, other=(17,)), dtype="float32"
    )


def sub_samples() -> Iterator[Sample]:
    yield from binary((*NUMBERS_AND_MIXED, *UNSIGNED))
    yield from _alpha_samples()
    yield from _unsigned()
    yield from _wrapping()
    yield from _samples_of_ties(_TERMS_OF_TIES, sign=-1)
    yield from _ends_of_range()
    yield from error_samples(two_matrices(dtypes=["bool"]))


def _alpha_samples() -> Iterator[Sample]:
    """Yield samples of add and sub with factors alpha of every dtype, and one that int32 does not hold."""
    for alphas, dtypes in (
        ((2.0, -1.5, 0.0, 0.3, 1000.0), (*MAIN_FLOATS, "float64")),
        ((2.0, -3.0, 0.0), ("int32", "int64", "int8", "int16")),
        ((3.0, 0.0), ("uint8", "uint16", "uint32", "uint64")),
    ):
        yield from variations("attributes", [two_matrices({"alpha": alpha}) for alpha in alphas], dtypes=dtypes)
    yield from variations("attributes", [call({"alpha": -2.0}, input=(4, 1), other=(37,))], dtypes=MAIN_FLOATS)
    scalars = [call({"alpha": -2.0}, input=left, other=right) for left, right in (((4, 37), ()), ((), (4, 37)))]
    yield from variations("attributes", scalars, dtypes=("float32",))
    close = grid([1.0, 1.0009765625, 1024.5, -3.0078125], [1.0, -1.0, 1.0078125, -1024.0, 3.0])
    yield from variations("cancellation", [close], dtypes=(*MAIN_FLOATS, "float64"))
    yield from error_samples(two_matrices({"alpha": 0.5}, dtypes=["int32"]))


def mul_samples() -> Iterator[Sample]:
    yield from binary((*EVERYTHING, *UNSIGNED))
    yield from _unsigned()
    yield from _wrapping()
    yield from _samples_of_ties(_FACTORS_OF_TIES)
    yield from _ends_of_range()


def _unsigned() -> Iterator[Sample]:
    """Yield samples of the wide unsigned dtypes: with a tail behind whole vectors, broadcast, and not dense."""
    # Many libraries have separate kernels for them.
    names = [name for (name,) in UNSIGNED]
    calls = [call(input=(3, 5, 7), other=(3, 5, 7)), call(input=(4, 1), other=(37,)), call(input=(), other=(4, 37))]
    yield from variations("broadcast", calls, dtypes=names)
    for name in names:
        yield from in_layouts_at_once([two_matrices()], dtype=name)


def _wrapping() -> Iterator[Sample]:
    """Yield samples that pair the ends of the range of each integer dtype."""
    # Random integers are small: there a kernel that saturates in place of wrapping is right, too.
    for (name,) in (*INTEGERS, *UNSIGNED):
        ends = [dtype(name).min_int, dtype(name).min_int + 1, dtype(name).max_int - 1, dtype(name).max_int]
        values = [*ends, dtype(name).max_int // 2 + 1, 2, 1, 0, *([-1] if dtype(name).min_int else [])]
        yield from variations("wraps", [grid(values, values)], dtypes=[name])


def pow_samples() -> Iterator[Sample]:
    yield from binary(NUMBERS_AND_MIXED, second="exponent")
    integral = [float(k) for k in range(-4, 6)]
    bases = [-3.0, -2.5, -1.5, -1.0, -0.75, -0.5, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0]
    floats = (*MAIN_FLOATS, "float64")
    yield from variations("negative bases", [grid(bases, integral, second="exponent")], dtypes=floats)
    specials = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, "inf", "-inf", "nan"]
    exponents = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, "inf", "-inf", "nan"]
    yield from variations("special powers", [grid(specials, exponents, second="exponent")], dtypes=floats)
    near_one = grid([0.99609375, 1.0, 1.00390625, 1.5], [-100.0, -17.5, 17.5, 100.0], second="exponent")
    yield from variations("negative bases", [near_one], dtypes=floats)
    integers = grid(SMALL_INTEGERS, [-3, -2, -1, 0, 1, 2, 3, 7, 8, 31, 32, 63], second="exponent")
    yield from variations("integer powers", [integers], dtypes=("int32", "int64", "int8", "int16"))
    unsigned = grid([0, 1, 2, 3, 7, 16, 255], [0, 1, 2, 3, 7, 8, 31, 255], second="exponent")
    yield from variations("integer powers", [unsigned], dtypes=("uint8",))


def logaddexp_samples() -> Iterator[Sample]:
    yield from binary(_LOGARITHMS)
    ends = [-200.0, -104.0, -88.0, -30.0, -16.0, -1.0, -0.0, 0.25, 3.0, 11.0, 88.5, 200.0, 3e4]
    yield from variations("range", [grid(ends, ends)], dtypes=EVERY_FLOAT)
    apart = {"input": {"fill": "arange", "start": -40.0, "step": 80.0 / 1020}, "other": "zeros"}
    yield from variations("range", [call(input=(1021,), other=(1021,), generator=apart)], dtypes=EVERY_FLOAT)
    # About −ln 2: exp(half) + exp(half) is nearly 1, so that the sum max + log1p(…) cancels.
    half = -0.693359375
    yield from variations("cancellation", [grid([half, -0.6875, -0.7], [half, -0.75, -0.69])], dtypes=EVERY_FLOAT)
    huge = grid([3e38, -3e38, 0.0], [3e38, -3e38, 1e38])
    yield from variations("range", [huge], dtypes=("float32", "bfloat16"))
    yield from error_samples(two_matrices(dtypes=["int32"]))
