"""Quotients and remainders: div, floor_divide, remainder and fmod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from optest.operators.calls import MAIN_FLOATS, call
from optest.operators.describe import EVERYTHING, NUMBERS_AND_MIXED, OPENCL, attribute, exact, in_module, ulp
from optest.operators.elementwise.helpers import (
    SMALL_INTEGERS,
    binary,
    grid,
    infer_number,
    is_integer,
    promote_operands,
    two_matrices,
)
from optest.operators.samples import variations
from optest.operators.shapes import Attributes, Outputs, Specs, as_float, dense
from optest.spec import Interval, OperatorDescriptor, Sample, dtype

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="div",
        infer="infer_div",
        aliases=("divide", "elementwise_div"),
        attributes=(
            attribute(
                "rounding_mode: str = None",
                "None divides truly, trunc rounds the quotient towards zero, floor downwards.",
                choices=("trunc", "floor"),
            ),
        ),
        dtype_variants=EVERYTHING,
        alternatives="div_alternatives",
        rule=ulp(2.5, OPENCL, "with a rounding_mode also the adjacent integer"),
        domain="div_domain",
        signed_zeros=True,  # IEEE 754-2019 §6.3; a rounded quotient keeps the sign
        description="Division with broadcasting; true division gives float32 for integers, a rounded one their dtype.",
    ),
    OperatorDescriptor(
        name="floor_divide",
        samples="rounded_quotient_samples",
        alternatives="floor_divide_alternatives",
        rule=ulp(2.5, f"the division: {OPENCL}", "or the adjacent integer"),
        description="Quotient rounded downwards. If the quotient is within 2.5 ulp of an integer, but not equal to "
        "it, both adjacent integers are right. A float over 0 gives infinity or NaN.",
    ),
    OperatorDescriptor(
        name="remainder",
        samples="rounded_quotient_samples",
        alternatives="remainder_alternatives",
        may_refuse="remainder_may_be_refused",
        rule=ulp(0.5, f"fmod is exact and the sum correctly rounded: {OPENCL}", "or one divisor more or less"),
        description="Remainder of division rounded downwards, with the sign of the divisor, as Python's %. If the "
        "quotient is within 2.5 ulp of an integer, but not equal to it, one divisor more or less is right, too.",
    ),
    OperatorDescriptor(
        name="fmod",
        samples="rounded_quotient_samples",
        alternatives="fmod_alternatives",
        may_refuse="remainder_may_be_refused",
        rule=exact(f"fmod is exact: C Annex F.10.7.1, {OPENCL}", formula="any result for an integer over 0"),
        signed_zeros=True,  # C Annex F.10.7.1: the sign of the dividend; of `remainder` libraries differ
        description="Remainder of division rounded towards zero, with the sign of the dividend, as C's fmod and %.",
    ),
    twin="arithmetic_reference",
    signature="input, other -> out",
    dtype_variants=NUMBERS_AND_MIXED,
    infer="helpers:infer_number",
    domain="quotient_domain",
    may_refuse="quotient_may_be_refused",
)


def infer_div(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the broadcast output; a true quotient of integers or bool is float32, any other has the common dtype."""
    result, (spec,) = promote_operands(specs)
    if attributes.get("rounding_mode") is None:
        return (dense(as_float(result), spec.shape),)
    return infer_number(specs, attributes)


_DIVISOR = Interval(low=-8.0, high=8.0, avoid=0.25)


def div_domain(specs: Specs, attributes: Attributes) -> Mapping[str, Interval]:
    """Return the ranges of random inputs of div: divisors away from 0, those of ``quotient_domain`` if it rounds."""
    return {"other": _DIVISOR} if attributes.get("rounding_mode") is None else quotient_domain(specs, attributes)


def quotient_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """Return the ranges of random inputs of rounded division: no divisor 0, no smallest integer as dividend."""
    # torch raises for an integer over 0, and the smallest integer over -1 is undefined in C.
    dividend, divisor = (specs[index] if index < len(specs) else None for index in range(2))
    divisors = Interval(avoid=1) if is_integer(divisor) else _DIVISOR
    if dividend is not None and is_integer(dividend):
        return {"input": Interval(low=-dividend.dtype.max_int, high=dividend.dtype.max_int), "other": divisors}
    return {"other": divisors}


_DIVIDENDS = (0.0, -0.0, 0.75, -0.75, 5.0, -5.0, 7.5, -7.5, 1e4, -1e4, "inf", "-inf", "nan")
_DIVISORS = (1.0, -1.0, 2.0, -2.0, 2.5, -2.5, 0.5, "inf", "-inf", "nan")


def div_samples() -> Iterator[Sample]:
    yield from binary(EVERYTHING)
    for mode in ("trunc", "floor"):
        attributes = {"rounding_mode": mode}
        yield from variations(
            "attributes", [two_matrices(attributes)], dtypes=("int8", "int16", "int32", "int64", "uint8")
        )
        yield from _rounded_quotients(attributes)
        yield from _float_divisors(attributes)
        yield from _undefined_quotients(attributes)
    yield from _float_divisors(None)
    # Traps of a kernel that multiplies by the reciprocal: it is infinite for subnormals and subnormal beyond 2^126.
    far = [2.0**-149, 2.0**-130, 3e-39, 1.2e-38, 1.5 * 2.0**126, 3e38]
    yield from variations("special", [grid(far, far)], dtypes=("float32", "bfloat16"))
    half = [2.0**-24, 3e-6, 6.2e-5, 40000.0, 65504.0]
    yield from variations("special", [grid(half, half)], dtypes=("float16",))


def rounded_quotient_samples() -> Iterator[Sample]:
    yield from binary(NUMBERS_AND_MIXED)
    yield from _rounded_quotients(None)
    yield from _float_divisors(None)
    yield from _undefined_quotients(None)


def _rounded_quotients(attributes: dict[str, Any] | None) -> Iterator[Sample]:
    """Yield samples with quotients that are integers or next to one, of either sign."""
    dividends = {"fill": "randint", "low": -60, "high": 60}
    calls = [
        call(
            attributes,
            input=(16, 37),
            other=(16, 37),
            generator={"input": dividends, "other": {"fill": "randint", "low": low, "high": high}},
        )
        for low, high in ((1, 8), (-7, 0))
    ]
    tenths = grid([k / 10 for k in range(-20, 21)], [0.1, 0.3, -0.1, -0.7], attributes)
    large = grid(
        [67.5, -67.5, 822.0, -1024.0, 3018.0], [0.357421875, -0.3056640625, 0.4365234375, -0.72265625], attributes
    )
    yield from variations("steps", [*calls, tenths, large], dtypes=(*MAIN_FLOATS, "float64"))
    beyond_float32 = grid([123456789012.25, -98765432109.5, 1e15], [0.3, -7.0, 1.7], attributes)
    yield from variations("steps", [beyond_float32], dtypes=("float64",))
    yield from variations("signs" if attributes is None else "attributes", calls, dtypes=("int32", "int64", "int8"))
    every_sign = grid(SMALL_INTEGERS[1:], [value for value in SMALL_INTEGERS if value], attributes)
    yield from variations("signs" if attributes is None else "attributes", [every_sign], dtypes=("int8", "int32"))


def _float_divisors(attributes: dict[str, Any] | None) -> Iterator[Sample]:
    """Yield samples that pair zeros, infinities, NaN and finite floats with one another."""
    table = grid(_DIVIDENDS, [0.0, -0.0, *_DIVISORS], attributes)
    yield from variations("zero divisors", [table], dtypes=(*MAIN_FLOATS, "float64"))


def _undefined_quotients(attributes: dict[str, Any] | None) -> Iterator[Sample]:
    """Yield samples of integers divided by 0, and of the smallest one divided by -1, among defined quotients."""
    # Any result is accepted for them, but the kernel must not crash, and the elements next to them are compared.
    for name in ("int8", "int32", "int64", "uint8"):
        low, high = dtype(name).min_int, dtype(name).max_int
        values = [low, low + 1, 1, 7, high - 1, high]
        yield from variations("zero divisors", [grid(values, [1, 2, 0, 3], attributes)], dtypes=[name])
        if low < 0:
            yield from variations("zero divisors", [grid(values, [1, 2, -1, -3], attributes)], dtypes=[name])
        # The same pairs in operands of one shape, for kernels that do not broadcast.
        divisors = [1, 2, 0, 3, *([-1, -3] if low < 0 else [])]
        pairs = {"input": [value for value in values for _ in divisors], "other": divisors * len(values)}
        generator = {tensor: {"fill": "data", "values": elements} for tensor, elements in pairs.items()}
        shapes: dict[str, Any] = dict.fromkeys(pairs, (len(pairs["other"]),))
        yield from variations("zero divisors", [call(attributes, generator=generator, **shapes)], dtypes=[name])
