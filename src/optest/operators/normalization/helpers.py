"""Attributes and case sets that normalisations share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, Call, normal, without
from optest.operators.describe import attribute
from optest.operators.samples import variations, zero_mean
from optest.spec import Sample, Tier

EPS = attribute("eps|epsilon: float = 1e-05", "Number added to the variance.")


def of_weight_and_bias(calls: Sequence[Call]) -> Iterator[Sample]:
    """Yield calls with float32 parameters for 16-bit inputs, and without weight or bias."""
    for half in ("float16", "bfloat16"):
        mixed = {**calls[0], "dtypes": [half, "float32", "float32"]}
        yield from variations("dtypes", [mixed, without(mixed, "bias"), without(mixed, "weight")])
    yield from variations("attributes", [without(calls[0], "bias"), without(calls[0], "weight")], dtypes=MAIN_FLOATS)
    yield from variations("attributes", [without(calls[1], "weight", "bias")], dtypes=MAIN_FLOATS)


def filled(case: Call, fill: Call) -> Call:
    """Return the call with `fill` as the generator of input."""
    return {**case, "generator": {"input": fill}}


def of_rows(call_of: Callable[..., Call], *, has_mean: bool = True) -> Iterator[Sample]:
    """Yield the case sets of a normalisation of rows: eps against the variance, large means, long rows, special values.

    `call_of(rows, *sizes, **attributes)` builds the calls.
    """
    for std, eps in ((1e-3, 1e-5), (1e-3, 1e-6), (0.5, 0.1)):
        yield from variations("epsilon", [filled(call_of((4,), 65, eps=eps), normal(0.0, std))], dtypes=MAIN_FLOATS)
    constant = {"fill": "full", "value": 7.25}
    # A variance of 0: only eps is left under the root.
    no_variance = [filled(call_of((3,), 33, eps=1e-5), fill) for fill in (constant, {"fill": "zeros"})]
    yield from variations("epsilon", no_variance, dtypes=MAIN_FLOATS)
    tiny_eps = filled(call_of((3,), 33, eps=1e-8), constant)  # float16 rounds this eps to 0
    yield from variations("epsilon", [tiny_eps], dtypes=MAIN_FLOATS[1:])
    zero_eps = filled(call_of((4,), 65, eps=0.0), normal(0.0, 1e-3))  # a kernel must not use the default for 0
    yield from variations("epsilon", [zero_eps], dtypes=("float32",))
    # A mean far above the deviation: E[x²] − E[x]² cancels.
    if has_mean:
        yield from variations("mean beside std", [filled(call_of((4,), 257), normal(1000.0, 1.0))], dtypes=("float32",))
        yield from variations("mean beside std", [filled(call_of((4,), 257), normal(1e5, 1.0))], dtypes=("float64",))
        for mean, std in ((-300.0, 2.0), (30.0, 0.5)):
            yield from variations(
                "mean beside std", [filled(call_of((4,), 257), normal(mean, std))], dtypes=MAIN_FLOATS
            )
        yield from variations(
            "mean beside std", [filled(call_of((2, 3), 257), normal(1000.0, 1.0))], dtypes=("float32",)
        )
    # float16 overflows for squares of 300, and for a sum of 65 numbers around 1,500.
    yield from variations("long", [filled(call_of((3,), 65), normal(1500.0, 300.0))], dtypes=MAIN_FLOATS)
    yield from variations("long", [call_of((2,), 65536)], dtypes=MAIN_FLOATS)
    yield from variations("long", [call_of((300,), 17)], dtypes=("float32", "float16"))
    yield from variations("long", [call_of((LARGE_SIZE,), 3)], dtypes=("float32",))
    yield from variations("epsilon", [filled(call_of((4,), 65, eps=1e-6), normal(0.0, 1e-3))], dtypes=("float64",))
    yield from variations("long", [call_of((3,), 1 << 20)], dtypes=("float32",), tier=Tier.FULL)
    yield from zero_mean([call_of((3,), 4097), call_of((64,), 33)])
    # NaN and infinity stay in their row; one value far from the others; signed zeros.
    rows = [
        ["nan", 1.0, 2.0, 3.0],
        [1.0, 2.0, 3.0, "inf"],
        ["-inf", 1.0, "inf", 3.0],
        [0.0, -0.0, 0.0, -0.0],
        [0.0, 0.0, 0.0, 1000.0],
        [1.0, -1.0, 1.0, -1.0],
        [0.5, -2.0, 4.0, 1.5],
    ]
    # group_norm has a dimension of batches in front of the rows.
    case = call_of((7,), 4)
    values = [rows] if len(case["shapes"]["input"]) == 3 else rows
    odd_rows = filled(case, {"fill": "data", "values": values})
    yield from variations("special", [odd_rows], dtypes=MAIN_FLOATS)
    yield from variations("special", [filled(call_of((16,), 37), {"fill": "special"})], dtypes=MAIN_FLOATS)
