"""Reductions composed of several operations: var, norm and logsumexp."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isnan

from optest.operators.calls import MAIN_FLOATS, NEAR_OVERFLOW, call, normal, with_values
from optest.operators.describe import FLOATS, attribute, composed, in_module
from optest.operators.reduction.helpers import (
    DIMS,
    KEEPDIM,
    ORDINARY,
    REFUSED,
    calls_of_length,
    empty_samples,
    every_dim,
    infer_mean,
    long_samples,
    long_total,
    reduced_shape,
    refuse_empty,
    require_inexact,
    rows_with_specials,
    special_samples,
    total_samples,
)
from optest.operators.samples import error_samples, standard_samples, variations, zero_mean
from optest.operators.shapes import Attributes, Outputs, Specs, dense, reduced_dims, require_spec
from optest.spec import OperatorDescriptor, Sample, UnfitArguments

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="var",
        attributes=(
            DIMS,
            attribute(
                "correction: float = 1.0",
                "Subtracted from n in the divisor: 1 is unbiased, 0 biased; the divisor is never below 0.",
            ),
            KEEPDIM,
        ),
        infer="helpers:infer_mean",
        rule=composed("y·(4√n + 4κ + 8) + u·(4√n·mean|x| + |mean|)²·n/(n − correction)"),
        description="Variance over dimensions; NaN for 0 / 0, as of one element.",
    ),
    OperatorDescriptor(
        name="norm",
        aliases=("vector_norm", "reduce_l2"),
        attributes=(
            attribute(
                "p|ord: float = 2.0", "Order: 1, 2, inf, -inf, 0 (counts elements other than 0) or any other number."
            ),
            DIMS,
            KEEPDIM,
        ),
        rule=composed("y·(2√n + 10) for p = 2; y·4√n for 1; 0 for 0 and ±inf; y·((4√n + 33)/|p| + |ln y| + 33) else"),
        description="(Σ|x|^p)^(1/p) over dimensions, as torch.linalg.vector_norm: a matrix counts as a vector.",
    ),
    OperatorDescriptor(
        name="logsumexp",
        aliases=("reduce_logsumexp",),
        attributes=(DIMS, KEEPDIM),
        rule=composed("Σ share·(2|x−max| + 6) + 4√n + 6·ln Σ + |y|"),
        generator=NEAR_OVERFLOW,
        description="ln Σ exp(x) over dimensions; -inf if all elements are -inf or there are none.",
    ),
    twin="reduction_reference",
    dtype_variants=FLOATS,
    sum_length="helpers:terms_of_reduction",
)

infer_logsumexp = infer_mean


def infer_norm(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output of norm; raise UnfitArguments unless a float, for p = NaN, and for p without an empty norm."""
    spec = require_spec(specs, 0, "input")
    require_inexact(spec)
    p = attributes.get("p", 2.0)
    if isnan(p):
        raise UnfitArguments("p is NaN, expected a number, inf or -inf")
    # The norm of no elements is 0 for p from 0 on, except for inf, and has no value for the others.
    if p < 0 or p == inf:
        refuse_empty(spec, reduced_dims(attributes.get("dim"), spec.rank))
    return (dense(spec.dtype, reduced_shape(spec, attributes)),)


def var_samples() -> Iterator[Sample]:
    yield from standard_samples(ORDINARY, FLOATS, sized=calls_of_length({"dim": 1}), special=False)
    yield from variations("attributes", every_dim(), dtypes=("float32",))
    for correction in (0.0, 1.0, 2.0, 0.5, 4.0):
        attributes = {"dim": 1, "correction": correction}
        yield from variations("attributes", [call(attributes, input=(5, 7))], dtypes=MAIN_FLOATS)
    biased = [call({"correction": 0.0}, input=(3, 5, 7)), call({"dim": [0, 2], "correction": 0.0}, input=(3, 5, 7))]
    yield from variations("attributes", biased, dtypes=("float32",))
    # One element more than the correction, as many, fewer: a number, infinity or NaN, NaN.
    for width in (1, 2, 3):
        yield from variations(
            "attributes",
            [with_values([[1.0, 4.0, 2.5][:width]], {"dim": 1, "correction": c}) for c in (0.0, 2.0, 3.0)],
        )
    # E[x²] − E[x]² cancels if the mean is large compared with the deviation.
    for mean, std, dtypes in (
        (1000.0, 1.0, ("float32", "float64")),
        (-300.0, 2.0, MAIN_FLOATS),
        (30.0, 0.5, MAIN_FLOATS),
    ):
        fill = normal(mean, std)
        calls = [call({"dim": 1}, generator=fill, input=(4, 257)), call({"dim": 0}, generator=fill, input=(257, 3))]
        yield from variations("mean beside std", calls, dtypes=dtypes)
    yield from variations(
        "mean beside std", [call({"dim": 1}, generator={"fill": "full", "value": 7.3}, input=(3, 65))]
    )
    yield from total_samples()
    yield from error_samples(*REFUSED, call(dtypes=("int32",), input=(3, 4)))
    for fill in (normal(1000.0, 1.0), normal(-300.0, 2.0)):
        rows = call({"dim": 1, "correction": 0.0}, generator=fill, input=(4, 257))
        yield from variations("mean beside std", [rows], dtypes=("float32",))
    # The variance is 40,000, but 129 squares add up beyond the range of float16.
    wide = call({"dim": 1}, generator=normal(0.0, 200.0), input=(3, 129))
    yield from variations("long", [wide], dtypes=("float16",))


def norm_samples() -> Iterator[Sample]:
    yield from standard_samples(ORDINARY, FLOATS, sized=calls_of_length({"dim": 1}), special=False)
    yield from variations("attributes", every_dim(), dtypes=("float32",))
    orders = (0.0, 1.0, 2.0, 3.0, 0.5, 2.5, -1.0, -2.0, float("inf"), float("-inf"))
    positive = {"fill": "uniform", "low": 0.25, "high": 4.0}
    for p in orders:
        yield from variations("attributes", [call({"p": p, "dim": 1}, input=(4, 65))], dtypes=(*MAIN_FLOATS, "float64"))
        yield from variations("attributes", [call({"p": p, "dim": [2, 0], "keepdim": True}, input=(3, 5, 7))])
        yield from variations("attributes", [call({"p": p}, generator=positive, input=(33,))])
        zeros = [[0.0, -0.0, 0.0, 0.0], [0.0, 1.0, -2.0, 0.0], [3.0, -4.0, 0.0, 12.0]]
        yield from variations("special", [with_values(zeros, {"p": p, "dim": 1})])
        yield from variations("special", [with_values(rows_with_specials(), {"p": p, "dim": 1})])
    yield from variations("special", [with_values(rows_with_specials(), {"p": 2.0, "dim": 1})], dtypes=("float16",))
    for p in (0.0, 1.0, 2.0, 3.0):
        yield from empty_samples({"p": p})
    for p in (1.0, 2.0):
        yield from variations("attributes", [call({"p": p}, input=(37,)), call({"p": p}, input=(129,))])
    # Squares of these overflow float32, their root does not: a norm has to be scaled.
    vast = {"fill": "uniform", "low": -1.0e25, "high": 1.0e25}
    yield from variations("special", [call({"p": 2.0}, generator=vast, input=(37,))], dtypes=("float32",))
    # 70,000 is beyond float16: squares of 300 overflow there, their root does not.
    yield from variations("long", [call({"dim": 1}, generator=normal(300.0, 30.0), input=(3, 129))], dtypes=MAIN_FLOATS)
    yield from long_samples({})
    yield from long_total()
    yield from long_samples({"p": 1.0})
    yield from zero_mean([call({"dim": 1}, input=(3, 4097))])
    yield from error_samples(
        *REFUSED,
        call({"p": float("inf")}, input=(0,)),
        call({"p": float("inf"), "dim": 1}, input=(3, 0)),
        call({"p": -1.0}, input=(0,)),
        call(dtypes=("int32",), input=(3, 4)),
    )
    # Their squares vanish in float16.
    small = with_values([[1e-4, -1e-4, 7e-5], [6.2e-5, 6.5e-5, 0.0]], {"p": 2.0, "dim": 1})
    yield from variations("special", [small], dtypes=("float16",))


def logsumexp_samples() -> Iterator[Sample]:
    yield from standard_samples(ORDINARY, FLOATS, sized=calls_of_length({"dim": 1}), special=False)
    yield from variations("attributes", every_dim(), dtypes=("float32",))
    for low, high in ((-110.0, -95.0), (-1.0, 1.0), (-200.0, 200.0), (900.0, 1000.0)):
        fill = {"fill": "uniform", "low": low, "high": high}
        calls = [call({"dim": 1}, generator=fill, input=(4, 65)), call({"dim": 0}, generator=fill, input=(65, 3))]
        yield from variations("special", calls, dtypes=MAIN_FLOATS)
    rising = {"fill": "arange", "start": -200.0, "step": 0.5}
    yield from variations("long", [call({"dim": 1}, generator=rising, input=(1, 801))], dtypes=MAIN_FLOATS)
    # About −ln 2 and −ln 3: the maximum and the logarithm of the sum cancel.
    cancelling = [[-0.6931472, -0.6931472], [-0.6931472, -0.6931471], [-1.0986123, -1.0986123], [0.0, -104.0]]
    yield from variations("special", [with_values(cancelling, {"dim": 1})])
    masked = [["-inf", 1.0, "-inf"], ["-inf", "-inf", -3.0], ["inf", "-inf", 0.0], ["nan", "-inf", "inf"]]
    yield from variations("special", [with_values(masked, {"dim": 1})], dtypes=MAIN_FLOATS)
    yield from special_samples({})
    yield from long_samples({})
    yield from zero_mean([call({"dim": 1}, input=(3, 4097))])
    yield from empty_samples()
    yield from error_samples(*REFUSED)
