"""Conversion to another dtype: cast."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, SIZES, call, with_values
from optest.operators.describe import EVERY, REAL, attribute, exact, in_module
from optest.operators.samples import in_every_layout, variations
from optest.operators.shapes import Attributes, Outputs, Specs, dense, require_spec
from optest.spec import DType, Interval, Kind, OperatorDescriptor, Sample, Tier, UnfitArguments, dtype

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="cast",
        category="conversion",
        aliases=("astype",),
        attributes=(
            attribute("dtype|to: dtype", "Dtype of the result."),
            attribute(
                "saturate: bool = False", "float8 results stop at the largest finite value instead of infinity or NaN."
            ),
        ),
        dtype_variants=EVERY,
        rule=exact("conversion: rounded once, ties to even; to integers towards zero"),
        # Inside int8 and float8; beyond the range of an integer dtype, conversion is undefined in C and torch.
        domain={"input": Interval(low=-100.0, high=100.0)},
        signed_zeros=True,  # IEEE 754-2019 §6.3
        description="Conversion to another dtype; integers wrap, floats lose their fraction, non-zero is true.",
    ),
)


def infer_cast(specs: Specs, attributes: Attributes) -> Outputs:
    """Return an output of the requested dtype; raise UnfitArguments for complex numbers to a real dtype."""
    spec, target = require_spec(specs, 0, "input"), dtype(attributes["dtype"])
    if spec.dtype.is_complex and not target.is_complex and target.kind is not Kind.BOOL:
        raise UnfitArguments(f"dtype is {target} for a {spec.dtype} input, expected complex or bool")
    return (dense(target, spec.shape),)


_EVERY = ("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool")
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
_RARE = ("uint16", "uint32", "uint64", "int4", "uint4")
# Pairs, in both directions, of which the other case sets have few samples or none.
_SELDOM = [
    *({rare, common} for rare in _RARE for common in ("float32", "bfloat16", "int64", "uint8")),
    *({small, common} for small in _FLOAT8 for common in ("float64", "int32", "int64", "uint8")),
]
# Beyond the largest value by less than half an ulp: they are rounded to it.
_BELOW_THE_OVERFLOW = (
    ("float32", "float16", (65504.0, 65505.0, 65519.0, 65519.99)),
    ("float32", "bfloat16", (3.39e38, 3.395e38)),
    ("float64", "float32", (3.4028234e38, 3.4028235e38, 3.40282356e38)),
    ("float32", "float8_e4m3fn", (448.0, 449.0, 463.0)),
    ("float32", "float8_e5m2", (57344.0, 57345.0, 61439.0)),
)


def cast_samples() -> Iterator[Sample]:
    plain = call({"dtype": "float16"}, input=(4, 37))
    yield Sample(case_set="ordinary", case=plain, tier=Tier.SMOKE)
    for shape in ((4, 37), (3, 5, 7), (), (2, 1, 3, 2, 2, 3), (37, 1)):
        yield from (_cast_sample("ordinary", "float32", to, input=shape) for to in ("float16", "bfloat16", "int32"))
    for source in _EVERY:
        yield from (_cast_sample("dtypes", source, to, input=(4, 37)) for to in _EVERY if to != source)
    for small in _FLOAT8:
        yield from (_cast_sample("dtypes", source, small, input=(4, 37)) for source in ("float32", *MAIN_FLOATS[1:]))
        yield from (_cast_sample("dtypes", small, to, input=(4, 37)) for to in MAIN_FLOATS)
    complex_pairs = (("complex64", "complex128"), ("complex128", "complex64"))
    for source, target in (*complex_pairs, ("float32", "complex64"), ("complex64", "bool")):
        yield _cast_sample("dtypes", source, target, input=(4, 37))
    # Every type into every other: integers at the ends of their range, floats that every target holds. Random values
    # are small, so that a conversion of one type by way of another, or without its sign, is right there.
    for (source,) in REAL:
        for (target,) in REAL:
            if source != target:
                values = (
                    _floats_for(dtype(source), dtype(target))
                    if dtype(source).is_float
                    else _ends_of_range(dtype(source))
                )
                pair = _sample_of_values("pairs", source, target, values)
                yield pair if {source, target} in _SELDOM else replace(pair, tier=Tier.FULL)
    yield from in_every_layout([plain, call({"dtype": "float32"}, input=(4, 37), dtypes=["bfloat16"])])
    yield from (
        _cast_sample("sizes", "float32", to, input=(n,)) for n in (*SIZES, LARGE_SIZE) for to in ("float16", "int8")
    )
    yield from _special_values()
    yield from _tie_samples()
    yield from _integers_beyond_the_target()
    yield from _ties_of_double_rounding()
    # Only the upper bytes differ from 0.
    yield _sample_of_values("truth", "int64", "bool", [0, 1, 256, 65536, 2**32, 2**40, -1])
    yield _sample_of_values("truth", "int32", "bool", [0, 1, 256, 65536, -(2**31), -1])
    yield _sample_of_values("truth", "int16", "bool", [0, 1, 256, -(2**15), -1])


def _special_values() -> Iterator[Sample]:
    """Yield samples with NaN, infinities and values around the overflow of the target, saturating or not."""
    odd_nans = {"generator": "optest.operators.every_value:OddNans"}
    for source, target in (
        ("float32", "bfloat16"),
        ("float32", "float16"),
        ("float64", "float32"),
        ("float32", "bool"),
    ):
        yield _cast_sample("special", source, target, input=(16,), **odd_nans)
    for source in ("float32", "float16", "bfloat16", "float64"):
        for target in ("float32", "float16", "bfloat16", "float64", "bool", *_FLOAT8):
            if target != source and not (source == "float64" and target in _FLOAT8):
                yield _cast_sample("special", source, target, input=(4, 37), generator="special")
    for saturate in (True, False):
        for target in _FLOAT8:
            attributes = {"dtype": target, "saturate": saturate}
            far = call(attributes, input=(4, 37), generator={"fill": "arange", "start": -60000.0, "step": 811.0})
            yield from variations("attributes", [far], dtypes=("float32", "int32"))
            outside = [1e6, -1e6, 465.0, -465.0, 65000.0, 1.5, *(["inf", "-inf", "nan"] if saturate else [])]
            yield from variations("attributes", [with_values(outside, attributes)], dtypes=("float32",))
    for source, target, limits in _BELOW_THE_OVERFLOW:
        yield _sample_of_values("special", source, target, _signed(list(limits)))
    for source in ("int64", "int32", "int16"):
        for target in ("int8", "uint8", "int32"):
            yield _cast_sample("special", source, target, input=(4, 37), generator="special")


def _tie_samples() -> Iterator[Sample]:
    """Yield samples with ties between floats, fractions that integers drop, and the truth of floats."""
    for target, bits in (("float16", 10), ("bfloat16", 7)):
        steps = [1.0 + k * 2.0 ** -(bits + 1) for k in range(16)]
        adjacent = [value + 2.0**-22 for value in steps] + [value - 2.0**-22 for value in steps]
        yield _sample_of_values("ties", "float32", target, _signed([*steps, *adjacent]))
    for target, bits in (("float8_e4m3fn", 3), ("float8_e5m2", 2)):
        yield _sample_of_values("ties", "float32", target, _signed([1.0 + k * 2.0 ** -(bits + 1) for k in range(16)]))
    fractions = _signed([integer + part for integer in (0, 1, 2, 99) for part in (0.0, 0.25, 0.5, 0.75, 0.999)])
    for source in ("float32", "float16", "bfloat16", "float64"):
        yield from (_sample_of_values("ties", source, target, fractions) for target in ("int8", "int32", "int64"))
        yield _sample_of_values("truth", source, "bool", [0.0, -0.0, 0.25, -0.25, 2.0**-14, 256.0, "inf", "nan"])
    yield _sample_of_values(
        "ties", "int32", "float32", [2**24 + k for k in range(8)] + [-(2**24) - k for k in range(8)]
    )
    yield _sample_of_values(
        "ties", "int64", "float64", [2**53 + k for k in range(8)] + [-(2**53) - k for k in range(8)]
    )


def _integers_beyond_the_target() -> Iterator[Sample]:
    """Yield samples with integers beyond the range of the target, and with a sign bit that conversion must heed."""
    # The domain keeps random integers within the range of int8.
    beyond = [127, 128, 129, 200, 255, 256, 32767]
    beyond = [*beyond, *(-value for value in beyond)]
    wide = [*beyond, 32768, 65535, 65536, -32769, 2**31 - 1, -(2**31)]
    for target in ("int8", "uint8"):
        yield _sample_of_values("dtypes", "int16", target, beyond)
    for source, values in (("int32", wide), ("int64", [*wide, 2**31, 2**40 + 1, -(2**40) - 1])):
        yield from (
            _sample_of_values("dtypes", source, to, values) for to in ("int8", "uint8", "int16", "float32", "float64")
        )
    yield _sample_of_values("dtypes", "int64", "int32", [*wide, 2**31, 2**32 + 7, -(2**40) - 1])
    for target in ("float32", "float16", "int8", "int16", "int32", "int64"):
        yield _sample_of_values("dtypes", "uint8", target, [0, 1, 127, 128, 200, 255])
    for target in ("float32", "uint8", "int16", "int32", "int64", "uint16", "uint32", "uint64"):
        yield _sample_of_values("dtypes", "int8", target, [-128, -127, -1, 0, 127])


def _ties_of_double_rounding() -> Iterator[Sample]:
    """Yield samples that a conversion by way of float32 or float64 gets wrong."""
    exact = [2.0**24 + 1, -(2.0**24) - 1.5, 2.0**30 + 0.75]
    yield _sample_of_values("ties", "float64", "int32", exact)
    yield _sample_of_values("ties", "float64", "int64", [*exact, 2.0**40 + 1, -(2.0**52) - 1])
    yield _sample_of_values("ties", "float32", "int64", [2.0**31, 2.0**40, -(2.0**62)])
    # Adjacent to a tie by less than an ulp of float32, or of float64 for int64: the first rounding makes it a tie.
    for target, bits in (("float16", 10), ("bfloat16", 7)):
        ties = [1.0 + k * 2.0**-bits + 2.0 ** -(bits + 1) for k in range(4)]
        yield _sample_of_values(
            "ties", "float64", target, _signed([tie + step for tie in ties for step in (2.0**-40, -(2.0**-40))])
        )
    for source, target, first, spacing in (("int32", "bfloat16", 2**30, 2**23), ("int64", "float32", 2**60, 2**37)):
        middles = [first + k * spacing + spacing // 2 for k in range(4)]
        yield _sample_of_values(
            "ties", source, target, _signed([middle + step for middle in middles for step in (1, -1)])
        )


def _signed(values: list[Any]) -> list[Any]:
    return [sign * value for value in values for sign in (1, -1)]


def _cast_sample(case_set: str, source: str, target: str, **fields: Any) -> Sample:
    return Sample(case_set=case_set, case=call({"dtype": target}, dtypes=[source], **fields))


def _ends_of_range(source: DType) -> list[Any]:
    """Return the ends and the middle of an integer dtype's range and small numbers, or both values of bool."""
    if source.name == "bool":
        return [True, False, True]
    ends = [source.min_int, source.max_int, source.max_int // 2, source.max_int // 2 + 1, 0, 1, 2, 7]
    return [*ends, *((-1, -2, -8) if source.min_int < 0 else ())]


def _floats_for(source: DType, target: DType) -> list[Any]:
    """Return fractions and integers that both dtypes hold.

    Negative ones for a signed target, one that needs the highest bit of an integer, NaN and infinities for other ones.
    """
    values: list[Any] = [0.0, 0.5, 1.0, 1.5, 2.75, 7.0]
    if target.name == "bool" or target.is_float:
        return [*values, -0.0, -1.5, -7.0, 96.0, "inf", "-inf", "nan"]
    top = 2.0 ** ((target.max_int + 1).bit_length() - 2)  # half of what is beyond the range
    highest = {"float8_e4m3fn": 256.0, "float8_e5m2": 2.0**15, "float16": 2.0**15}.get(source.name, top)
    return [*values, min(top, highest), *((-0.75, -2.0, -7.5) if target.min_int < 0 else ())]


def _sample_of_values(case_set: str, source: str, target: str, values: list[Any]) -> Sample:
    return Sample(case_set=case_set, case=with_values(values, {"dtype": target}, dtypes=[source]))
