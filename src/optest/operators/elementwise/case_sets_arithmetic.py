"""The calls by which sums, products, quotients and powers are checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from optest.operators.elementwise.case_sets import binary, grid
from optest.operators.samples import (
    LARGE_SIZE,
    MAIN_FLOATS,
    MILLION,
    call,
    in_layouts_at_once,
    of_a_million,
    refused,
    variations,
    with_further_layouts,
)
from optest.operators.variants import (
    EVERYTHING,
    INTEGERS,
    NUMBERS_AND_MIXED,
    UNSIGNED,
)
from optest.spec import Sample, dtype

__all__ = [
    "add_samples",
    "div_samples",
    "floor_divide_samples",
    "fmod_samples",
    "mul_samples",
    "pow_samples",
    "remainder_samples",
    "sub_samples",
]


_DIVIDENDS = (0.0, -0.0, 0.75, -0.75, 5.0, -5.0, 7.5, -7.5, 1e4, -1e4, "inf", "-inf", "nan")
_DIVISORS = (1.0, -1.0, 2.0, -2.0, 2.5, -2.5, 0.5, "inf", "-inf", "nan")
_WHOLE = (-128, -127, -9, -8, -7, -2, -1, 0, 1, 2, 6, 7, 8, 9, 126, 127)


_TERMS_OF_TIES = {"float16": (1025, 2047), "bfloat16": (129, 255), "float32": (2**23 + 1, 2**24 - 1)}
"""Whole numbers that the dtype holds, every one, and every second of their sums: the others are ties."""
_FACTORS_OF_TIES = {"float16": (46, 63), "bfloat16": (17, 22), "float32": (4097, 5792)}
"""The same for products."""
_EXACT = {"tolerance": {"rtol": 0.0, "atol": 0.0}}
_FORMATS = {
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
    "float32": (24, -126, 127),
    "float64": (53, -1022, 1023),
}
"""Bits of a significand, and the exponents of the smallest and the largest normal number."""


def _ties(numbers: Mapping[str, tuple[int, int]], *, sign: int = 1) -> Iterator[Sample]:
    """Results that lie in the middle between two numbers: half an ulp off on either side, but one of them is right.

    Nothing but the final rounding rounds, since wider arithmetic is exact here.
    """
    for name, (low, high) in numbers.items():
        for side in (1, -1):
            fills = {
                "input": _between(side * low, side * high),
                "other": _between(side * sign * low, side * sign * high),
            }
            yield from variations("ties", [{**_pair(generator=fills), **_EXACT}], dtypes=[name])


def _between(one: int, other: int) -> dict[str, Any]:
    return {"fill": "randint", "low": min(one, other), "high": max(one, other)}


def _ends_of_range() -> Iterator[Sample]:
    """Subnormals with one another, and results around half an ulp beyond the largest number: drawn ones never meet."""
    for name, (precision, lowest, highest) in _FORMATS.items():
        step = 2.0 ** (lowest + 1 - precision)
        smallest, half_an_ulp = 2.0**lowest, 2.0 ** (highest - precision)
        largest = 2.0**highest * (2.0 - 2.0 ** (1 - precision))
        values = [step, 3 * step, smallest - step, smallest, half_an_ulp, half_an_ulp / 2, largest, 0.5]
        signed = [*values, *(-value for value in values)]
        yield from variations("special", [{**grid(signed, signed), **_EXACT}], dtypes=[name])


@with_further_layouts
def add_samples() -> Iterator[Sample]:
    yield from binary((*EVERYTHING, *UNSIGNED))
    yield from _scaled()
    yield from _unsigned()
    yield from _wrapping()
    yield from _ties(_TERMS_OF_TIES)
    yield from _ends_of_range()
    yield from variations("attributes", [_pair({"alpha": 3.0})], dtypes=("bool",))
    yield from variations("sizes", [call(input=(LARGE_SIZE, 1), other=(2,))], dtypes=("float32",))
    yield from of_a_million(call(input=MILLION, other=MILLION), call(input=MILLION, other=(17,)), dtype="float32")


@with_further_layouts
def sub_samples() -> Iterator[Sample]:
    yield from binary((*NUMBERS_AND_MIXED, *UNSIGNED))
    yield from _scaled()
    yield from _unsigned()
    yield from _wrapping()
    yield from _ties(_TERMS_OF_TIES, sign=-1)
    yield from _ends_of_range()
    yield from refused([_pair(dtypes=["bool"])])


def _pair(attributes: dict[str, Any] | None = None, **stated: Any) -> dict[str, Any]:
    return call(attributes, input=(4, 37), other=(4, 37), **stated)


def _scaled() -> Iterator[Sample]:
    factors = [{"alpha": alpha} for alpha in (2.0, -1.5, 0.0, 0.3, 1000.0)]
    yield from variations("attributes", [_pair(each) for each in factors], dtypes=(*MAIN_FLOATS, "float64"))
    whole = [{"alpha": alpha} for alpha in (2.0, -3.0, 0.0)]
    yield from variations("attributes", [_pair(each) for each in whole], dtypes=("int32", "int64", "int8", "int16"))
    natural = [_pair({"alpha": alpha}) for alpha in (3.0, 0.0)]
    yield from variations("attributes", natural, dtypes=("uint8", "uint16", "uint32", "uint64"))
    yield from variations("attributes", [call({"alpha": -2.0}, input=(4, 1), other=(37,))], dtypes=MAIN_FLOATS)
    scalars = [call({"alpha": -2.0}, input=left, other=right) for left, right in (((4, 37), ()), ((), (4, 37)))]
    yield from variations("attributes", scalars, dtypes=("float32",))
    close = grid([1.0, 1.0009765625, 1024.5, -3.0078125], [1.0, -1.0, 1.0078125, -1024.0, 3.0])
    yield from variations("cancellation", [close], dtypes=(*MAIN_FLOATS, "float64"))
    yield from refused([_pair({"alpha": 0.5}, dtypes=["int32"])])


@with_further_layouts
def mul_samples() -> Iterator[Sample]:
    yield from binary((*EVERYTHING, *UNSIGNED))
    yield from _unsigned()
    yield from _wrapping()
    yield from _ties(_FACTORS_OF_TIES)
    yield from _ends_of_range()


@with_further_layouts
def div_samples() -> Iterator[Sample]:
    yield from binary(EVERYTHING)
    for mode in ("trunc", "floor"):
        attributes = {"rounding_mode": mode}
        yield from variations("attributes", [_pair(attributes)], dtypes=("int8", "int16", "int32", "int64", "uint8"))
        yield from _rounded_quotients(attributes)
        yield from _float_divisors(attributes)
        yield from _undefined_quotients(attributes)
    yield from _float_divisors(None)
    # The inverse of a subnormal is infinity, that of a divisor beyond 2^126 subnormal.
    far = [2.0**-149, 2.0**-130, 3e-39, 1.2e-38, 1.5 * 2.0**126, 3e38]
    yield from variations("special", [grid(far, far)], dtypes=("float32", "bfloat16"))
    half = [2.0**-24, 3e-6, 6.2e-5, 40000.0, 65504.0]
    yield from variations("special", [grid(half, half)], dtypes=("float16",))


@with_further_layouts
def floor_divide_samples() -> Iterator[Sample]:
    yield from binary(NUMBERS_AND_MIXED)
    yield from _rounded_quotients(None)
    yield from _float_divisors(None)
    yield from _undefined_quotients(None)


@with_further_layouts
def remainder_samples() -> Iterator[Sample]:
    yield from binary(NUMBERS_AND_MIXED)
    yield from _rounded_quotients(None)
    yield from _float_divisors(None)
    yield from _undefined_quotients(None)


@with_further_layouts
def fmod_samples() -> Iterator[Sample]:
    yield from binary(NUMBERS_AND_MIXED)
    yield from _rounded_quotients(None)
    yield from _float_divisors(None)
    yield from _undefined_quotients(None)


def _rounded_quotients(attributes: dict[str, Any] | None) -> Iterator[Sample]:
    """Quotients on a step and right beside one, of either sign."""
    fills = [{"input": _fill(-60, 60), "other": _fill(1, 8)}, {"input": _fill(-60, 60), "other": _fill(-7, 0)}]
    calls = [call(attributes, input=(16, 37), other=(16, 37), generator=each) for each in fills]
    tenths = grid([k / 10 for k in range(-20, 21)], [0.1, 0.3, -0.1, -0.7], attributes)
    large = grid(
        [67.5, -67.5, 822.0, -1024.0, 3018.0], [0.357421875, -0.3056640625, 0.4365234375, -0.72265625], attributes
    )
    yield from variations("steps", [*calls, tenths, large], dtypes=(*MAIN_FLOATS, "float64"))
    beyond_float32 = grid([123456789012.25, -98765432109.5, 1e15], [0.3, -7.0, 1.7], attributes)
    yield from variations("steps", [beyond_float32], dtypes=("float64",))
    yield from variations("signs" if attributes is None else "attributes", calls, dtypes=("int32", "int64", "int8"))
    every_sign = grid(_WHOLE[1:], [value for value in _WHOLE if value], attributes)
    yield from variations("signs" if attributes is None else "attributes", [every_sign], dtypes=("int8", "int32"))


def _unsigned() -> Iterator[Sample]:
    """Kernels of their own in many libraries: with a tail, broadcast and not dense, as those of int32 are asked."""
    names = [name for (name,) in UNSIGNED]
    calls = [call(input=(3, 5, 7), other=(3, 5, 7)), call(input=(4, 1), other=(37,)), call(input=(), other=(4, 37))]
    yield from variations("broadcast", calls, dtypes=names)
    for name in names:
        yield from in_layouts_at_once([_pair()], dtype=name)


def _wrapping() -> Iterator[Sample]:
    """The ends of each range with one another: random integers are small, and whoever saturates is as right there."""
    for (name,) in (*INTEGERS, *UNSIGNED):
        ends = [dtype(name).min_int, dtype(name).min_int + 1, dtype(name).max_int - 1, dtype(name).max_int]
        values = [*ends, dtype(name).max_int // 2 + 1, 2, 1, *([0] if dtype(name).min_int == 0 else [0, -1])]
        yield from variations("wraps", [grid(values, values)], dtypes=[name])


def _fill(low: int, high: int) -> dict[str, Any]:
    return {"fill": "randint", "low": low, "high": high}


def _float_divisors(attributes: dict[str, Any] | None) -> Iterator[Sample]:
    """Zeros, infinities and NaN on either side."""
    table = grid(_DIVIDENDS, [0.0, -0.0, *_DIVISORS], attributes)
    yield from variations("zero divisors", [table], dtypes=(*MAIN_FLOATS, "float64"))


def _undefined_quotients(attributes: dict[str, Any] | None) -> Iterator[Sample]:
    """Integers divided by 0, and the smallest one by -1: what comes of them is open, but nothing may crash, and what
    stands beside them has a right answer."""
    for name in ("int8", "int32", "int64", "uint8"):
        low, high = dtype(name).min_int, dtype(name).max_int
        values = [low, low + 1, 1, 7, high - 1, high]
        yield from variations("zero divisors", [grid(values, [1, 2, 0, 3], attributes)], dtypes=[name])
        if low < 0:
            yield from variations("zero divisors", [grid(values, [1, 2, -1, -3], attributes)], dtypes=[name])


@with_further_layouts
def pow_samples() -> Iterator[Sample]:
    yield from binary(NUMBERS_AND_MIXED, second="exponent")
    whole = [float(k) for k in range(-4, 6)]
    bases = [-3.0, -2.5, -1.5, -1.0, -0.75, -0.5, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0]
    floats = (*MAIN_FLOATS, "float64")
    yield from variations("negative bases", [grid(bases, whole, second="exponent")], dtypes=floats)
    specials = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, "inf", "-inf", "nan"]
    exponents = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, "inf", "-inf", "nan"]
    yield from variations("special powers", [grid(specials, exponents, second="exponent")], dtypes=floats)
    near_one = grid([0.99609375, 1.0, 1.00390625, 1.5], [-100.0, -17.5, 17.5, 100.0], second="exponent")
    yield from variations("negative bases", [near_one], dtypes=floats)
    integers = grid(_WHOLE, [-3, -2, -1, 0, 1, 2, 3, 7, 8, 31, 32, 63], second="exponent")
    yield from variations("integer powers", [integers], dtypes=("int32", "int64", "int8", "int16"))
    unsigned = grid([0, 1, 2, 3, 7, 16, 255], [0, 1, 2, 3, 7, 8, 31, 255], second="exponent")
    yield from variations("integer powers", [unsigned], dtypes=("uint8",))
