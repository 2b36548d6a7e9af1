"""The operators softmax, log_softmax and causal_softmax: descriptors, shape inference and samples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, NEAR_OVERFLOW, call, uniform, with_values
from optest.operators.describe import DIM, FLOATS, composed, in_module
from optest.operators.samples import error_samples, standard_samples, variations, with_special_values, zero_mean
from optest.operators.shapes import Attributes, Outputs, Specs, dense, normalize_dim, require_dimensions, require_spec
from optest.spec import OperatorDescriptor, Sample, Tier, UnfitArguments, format_shape

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="softmax",
        aliases=("Softmax: input -> output",),
        attributes=(DIM,),
        rule=composed("y·(2|x−max| + Σ2y|x−max| + 4√n + 17)"),
        description="exp(x − max) / Σ exp(x − max) along a dimension.",
    ),
    OperatorDescriptor(
        name="log_softmax",
        aliases=("LogSoftmax: input -> output",),
        attributes=(DIM,),
        infer="infer_softmax",
        rule=composed("Σ share·(2|x−max| + 6) + 4√n + 6·L + |x−max| + |max + L| + |y|, L = ln Σ exp(x − max)"),
        description="x − max − ln Σ exp(x − max) along a dimension.",
    ),
    OperatorDescriptor(
        name="causal_softmax",
        alternatives="causal_softmax_alternatives",
        rule=composed("as softmax over the unmasked columns; 0 for the others"),
        description="softmax over the last dimension. Row i of the last two dimensions uses the columns up to "
        "i + (columns − rows); outputs of the other columns are 0 for any input (or NaN in a row that is NaN). There "
        "are at least as many columns as rows.",
    ),
    dtype_variants=FLOATS,
    generator=NEAR_OVERFLOW,
    sum_length="..shapes:length_of_dim",
)


def infer_softmax(specs: Specs, attributes: Attributes) -> Outputs:
    spec = require_spec(specs, 0, "input")
    normalize_dim(attributes.get("dim", -1), spec.rank)
    return (dense(spec.dtype, spec.shape),)


def infer_causal_softmax(specs: Specs, _attributes: Attributes) -> Outputs:
    """Return the spec of input; raise UnfitArguments if it has fewer columns than rows."""
    spec = require_spec(specs, 0, "input")
    require_dimensions(spec, "input", 2)
    if spec.shape[-1] < spec.shape[-2]:
        raise UnfitArguments(
            f"input is {format_shape(spec.shape)}, expected at least as many columns as rows, "
            "as the first rows would have no column"
        )
    return (dense(spec.dtype, spec.shape),)


# Without a shift by the maximum, exp underflows, is harmless, loses small terms, and overflows in every dtype.
_RANGES = (uniform(-110.0, -95.0), uniform(-1.0, 1.0), uniform(-200.0, 200.0), uniform(900.0, 1000.0))
# exp overflows unless it is shifted by the maximum of the whole row, which is the last element.
_RISING = {"fill": "arange", "start": -200.0, "step": 0.5}
_MASKED: list[list[Any]] = [
    ["-inf", 1.0, "-inf", 2.0],
    ["-inf", "-inf", "-inf", -3.0],
    ["-inf", "-inf", "-inf", "-inf"],
    ["inf", 0.0, "-inf", 1.0],
    [0.0, "nan", 1.0, 2.0],
    [0.0, -0.0, 0.0, -104.0],
    [5.0, 5.0, 5.0, 5.0],
]


def log_softmax_samples() -> Iterator[Sample]:
    yield from softmax_samples()
    # exp(−90) is subnormal in float32, but the logarithm of this share is an ordinary number.
    low: list[list[Any]] = [[0.0, -90.0, -100.0, -103.0], [0.0, -200.0, -1000.0, -60000.0], [0.0, -17.0, -20.0, -30.0]]
    yield from variations("special", [with_values(low, {"dim": 1})], dtypes=MAIN_FLOATS)


def softmax_samples() -> Iterator[Sample]:
    calls = [
        call({"dim": -1}, input=(4, 37)),
        call({"dim": 1}, input=(3, 5, 7)),
        call({"dim": 0}, input=(33, 5)),
        call({"dim": 2}, input=(2, 3, 7, 2, 3)),
    ]
    yield from standard_samples(calls, FLOATS, sized=lambda n: call({"dim": 1}, input=(3, n)), special=False)
    for dim in (0, 1, 2, -1, -2, -3):
        yield from variations("attributes", [call({"dim": dim}, input=(2, 3, 5))], dtypes=("float32", "float16"))
    yield from variations("attributes", [call({"dim": 0}, input=()), call({"dim": -1}, input=())])
    for fill in _RANGES:
        cases = [call({"dim": 1}, generator=fill, input=(4, 65)), call({"dim": 0}, generator=fill, input=(65, 4))]
        yield from variations("special", cases, dtypes=MAIN_FLOATS)
    yield from variations("special", [with_values(_MASKED, {"dim": 1})], dtypes=MAIN_FLOATS)
    rising = [call({"dim": 1}, generator=_RISING, input=(1, 801)), call({"dim": 0}, generator=_RISING, input=(801, 1))]
    yield from variations("long", rising, dtypes=MAIN_FLOATS)
    yield from with_special_values([call({"dim": 1}, input=(16, 37)), call({"dim": 0}, input=(9, 35))])
    yield from variations("long", [call({"dim": -1}, input=(2, 65536))], dtypes=MAIN_FLOATS)
    yield from variations("long", [call({"dim": 0}, input=(4097, 3))], dtypes=("float32", "float16"))
    yield from variations("long", [call({"dim": 1}, input=(LARGE_SIZE, 3))], dtypes=("float32",))
    yield from variations("long", [call({"dim": 1}, input=(2, 1025, 3))], dtypes=("float32", "float16"))
    yield from variations("long", [call({"dim": 0}, input=(65537, 3))], dtypes=("float32",), tier=Tier.FULL)
    yield from zero_mean([call({"dim": 1}, input=(3, 4097)), call({"dim": 1}, input=(64, 33))])
    empty = [call({"dim": 1}, input=(0, 3)), call({"dim": 0}, input=(3, 0)), call({"dim": 0}, input=(0,))]
    yield from variations("empty", empty)
    yield from error_samples(
        call({"dim": 2}, input=(3, 4)), call({"dim": -3}, input=(3, 4)), call({"dim": 1}, input=())
    )
    between = [call({"dim": 1}, input=(3, n)) for n in (513, 781)]  # odd sizes between two block sizes
    yield from variations("long", between, dtypes=("float32", "float64", "float16"))
    yield from variations("long", [call({"dim": 0}, input=(257,))], dtypes=MAIN_FLOATS)
    low = call({"dim": 1}, generator=uniform(-210.0, -190.0), input=(2, 1500))  # for a maximum that starts at 0
    far = call({"dim": 1}, generator=uniform(-30000.0, -29000.0), input=(3, 33))  # or at another finite number
    yield from variations("long", [low, far], dtypes=MAIN_FLOATS)
    yield from variations("long", [call({"dim": 0}, input=(2, LARGE_SIZE))], dtypes=("float32",))


def causal_softmax_samples() -> Iterator[Sample]:
    calls = [call(input=(5, 37)), call(input=(2, 3, 7, 7)), call(input=(3, 1, 9))]
    yield from standard_samples(calls, FLOATS, sized=lambda n: call(input=(min(n, 3), n)), special=False)
    yield from variations("sizes", [call(input=(n, n)) for n in (1, 2, 16, 33, 65)], dtypes=("float32",))
    for fill in _RANGES:
        yield from variations("special", [call(generator=fill, input=(2, 17, 33))], dtypes=MAIN_FLOATS)
    # NaN, infinity and large values above the diagonal must not reach the unmasked elements.
    masked_values: list[list[Any]] = [[1.0, 2.0, "nan", 60000.0], [0.5, -1.0, 3.0, "inf"], [0.5, -1.0, 3.0, 1.5]]
    yield from variations("special", [with_values(masked_values, {})], dtypes=MAIN_FLOATS)
    yield from with_special_values([call(input=(33, 37))])
    below_finite_masks: list[list[Any]] = [[-6e4, 1.0, 2.0], [-6e4, -6e4, 3.0], ["-inf", "-inf", -6e4]]
    # A finite mask value does not hide these.
    yield from variations("special", [with_values(below_finite_masks, {})], dtypes=MAIN_FLOATS)
    yield from variations("long", [call(generator=_RISING, input=(1, 801))], dtypes=MAIN_FLOATS)
    far_below_masks = [[-1e30, 1.0, 2.0], [-1e30, -1e30, 3.0], [-3e38, -3e38, -3e38]]
    yield from variations("special", [with_values(far_below_masks, {})], dtypes=("float32", "bfloat16"))
    yield from variations("long", [call(input=(LARGE_SIZE, 2, 2))], dtypes=("float32",))
    yield from variations("long", [call(input=(3, 65536)), call(input=(129, 257))], dtypes=MAIN_FLOATS)
    yield from variations("long", [call(input=(2, 1025, 1025))], dtypes=("float32", "float16"), tier=Tier.FULL)
    yield from zero_mean([call(input=(4, 33, 65))])
    empty = [call(input=(0, 3)), call(input=(0, 3, 3)), call(input=(0, 0))]
    yield from variations("empty", empty)
    yield from error_samples(call(input=(4, 3)), call(input=(3,)))
