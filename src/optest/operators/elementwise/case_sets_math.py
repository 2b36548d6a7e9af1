"""The calls by which functions of one number are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from optest.operators.elementwise.case_sets import line, unary
from optest.operators.samples import (
    EVERY_FLOAT,
    MILLION,
    call,
    of_a_million,
    of_every_value,
    refused,
    variations,
    with_further_layouts,
)
from optest.operators.variants import BOOL, INTEGERS, NUMBERS
from optest.spec import Sample, dtype

__all__ = [
    "abs_samples",
    "ceil_samples",
    "cos_samples",
    "erf_samples",
    "exp_samples",
    "expm1_samples",
    "floor_samples",
    "log1p_samples",
    "log_samples",
    "neg_samples",
    "reciprocal_samples",
    "round_samples",
    "rsqrt_samples",
    "sign_samples",
    "sin_samples",
    "sqrt_samples",
    "tanh_samples",
    "trunc_samples",
]


Samples = Callable[[], Iterator[Sample]]


def _table(values: Sequence[Any], attributes: dict[str, Any] | None = None) -> dict[str, Any]:
    return call(attributes, input=(len(values),), generator={"input": {"fill": "data", "values": list(values)}})


def _real(*lines: tuple[float, float], far: tuple[float, float], beyond: tuple[float, float] | None = None) -> Samples:
    """``lines`` are ranges in which every dtype is asked 1,021 values; ``far`` is one for 32 bits and more.

    ``beyond`` is where nothing but a limit is left, of both signs, and its like for 16 bits.

    Powers of two close to 0 on both sides show what cancels there.
    """
    tiny = [sign * 2.0**-power for power in range(2, 14) for sign in (1.0, -1.0)]

    def samples() -> Iterator[Sample]:
        yield from unary((*NUMBERS, *BOOL))
        calls = [line(*ends, 1021) for ends in lines]
        yield from variations("range", [*calls, _table(tiny)], dtypes=EVERY_FLOAT)
        wide = [line(*ends, 1021) for ends in (far, beyond) if ends is not None]
        yield from variations("range", wide, dtypes=("float32", "bfloat16", "float64"))
        if beyond is not None:
            yield from variations("range", [line(-6e4, 6e4, 1021), line(-60.0, 60.0, 1021)], dtypes=("float16",))
        yield from of_every_value()

    return with_further_layouts(samples)


exp_samples = _real((-18.0, 12.0), (-0.01, 0.01), far=(-104.0, 89.0), beyond=(-1e4, 1e4))
expm1_samples = _real((-18.0, 12.0), (-0.01, 0.01), far=(-104.0, 89.0), beyond=(-1e4, 1e4))
log_samples = _real((2.0**-10, 4.0), (0.96, 1.04), (4.0, 6e4), far=(1e5, 3e38))
log1p_samples = _real((-0.99, 3.0), (-0.01, 0.01), (4.0, 6e4), far=(1e5, 3e38))
sqrt_samples = _real((2.0**-10, 4.0), (4.0, 6e4), far=(1e5, 3e38))
rsqrt_samples = _real((2.0**-10, 4.0), (4.0, 6e4), far=(1e5, 3e38))
reciprocal_samples = _real((2.0**-10, 4.0), (-6e4, -4.0), far=(1e5, 8e37))
sin_samples = _real((-7.0, 7.0), (-0.01, 0.01), (80.0, 2000.0), far=(1e4, 1e6))
cos_samples = _real((-7.0, 7.0), (1.55, 1.59), (80.0, 2000.0), far=(1e4, 1e6))
tanh_samples = _real((-12.0, 12.0), (-0.01, 0.01), (-0.7, 0.7), far=(-100.0, 100.0), beyond=(-1e30, 1e30))
erf_samples = _real((-8.0, 8.0), (-0.01, 0.01), (-1.0, 1.0), far=(-100.0, 100.0), beyond=(-1e30, 1e30))

_HALVES = [sign * (whole + part) for whole in range(6) for part in (0.0, 0.25, 0.5, 0.75) for sign in (1.0, -1.0)]
_LARGE = [
    sign * value for value in (1022.5, 1023.5, 2**22 + 0.5, 2**23 + 1.0, 2**31 + 0.0, 3e9, 1e10) for sign in (1, -1)
]


def _steps() -> Iterator[Sample]:
    """Whole numbers and halves of both signs, right beside them, and beyond the range of integers."""
    yield from variations("ties", [_table(_HALVES), line(-31.75, 32.0, 256)], dtypes=EVERY_FLOAT)
    beside = [
        sign * (whole + part) for whole in (1.0, 1.5, 2.5) for part in (2.0**-20, -(2.0**-20)) for sign in (1, -1)
    ]
    beside += [0.5 - 2.0**-25, -0.5 + 2.0**-25]  # floor(x + 0.5) makes 1 of it
    yield from variations("ties", [_table(beside), _table(_LARGE)], dtypes=("float32", "float64"))


def _stepping() -> Samples:
    def samples() -> Iterator[Sample]:
        yield from unary(NUMBERS)
        yield from _steps()
        yield from of_every_value()

    return with_further_layouts(samples)


floor_samples = _stepping()
ceil_samples = _stepping()
trunc_samples = _stepping()


@with_further_layouts
def round_samples() -> Iterator[Sample]:
    yield from unary(NUMBERS)
    yield from _steps()
    yield from of_every_value()
    for decimals in (1, 2, 3, -1, -2):
        ten = 10.0**decimals
        calls = [
            call({"decimals": decimals}, input=(4, 37)),
            line(-30.25 / ten, 33.5 / ten, 256, {"decimals": decimals}),
        ]
        yield from variations("attributes", calls, dtypes=EVERY_FLOAT)
    yield from variations("attributes", [_table([-2.5, -1.25, 0.125, 0.375, 2.675, 15.0], {"decimals": 2})])
    yield from variations("attributes", [_table([-25.0, -15.0, 5.0, 15.0, 25.0, 149.0], {"decimals": -1})])


@with_further_layouts
def neg_samples() -> Iterator[Sample]:
    yield from _sign_bit()
    yield from refused([call(input=(4, 37), dtypes=["bool"])])


@with_further_layouts
def abs_samples() -> Iterator[Sample]:
    yield from _sign_bit()


def _sign_bit() -> Iterator[Sample]:
    yield from unary(NUMBERS)
    yield from of_a_million(call(input=MILLION), dtype="float32")
    for (name,) in INTEGERS:
        ends = [dtype(name).min_int, dtype(name).min_int + 1, 0, 1, dtype(name).max_int]
        yield from variations("wraps", [_table(ends)], dtypes=[name])
    yield from of_every_value()
    yield from variations("special", [call(input=(4, 37), generator="special")], dtypes=[each for (each,) in INTEGERS])


@with_further_layouts
def sign_samples() -> Iterator[Sample]:
    yield from unary((*NUMBERS, *BOOL))
    yield from of_every_value()
    yield from variations("special", [call(input=(4, 37), generator="special")], dtypes=[each for (each,) in INTEGERS])
    yield from variations("ties", [_table([0.0, -0.0, 2.0**-14, -(2.0**-14), "inf", "-inf", "nan"])], dtypes=EVERY_FLOAT)
