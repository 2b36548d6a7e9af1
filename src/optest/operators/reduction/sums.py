"""Sums and products over dimensions: sum, mean, prod, cumsum and dot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from optest.operators.calls import MAIN_FLOATS, MILLION, call, normal, table
from optest.operators.describe import BOOL, FLOATS, NUMBERS, accumulate, attribute, composed, in_module
from optest.operators.reduction.helpers import (
    DIMS,
    INT64,
    KEEPDIM,
    ORDINARY,
    REFUSED,
    every_dim,
    long,
    many_rows,
    of_totals,
    reduced,
    rows_with_specials,
    sized,
    specials,
    written,
)
from optest.operators.samples import (
    in_every_dtype,
    integer_exact,
    of_a_million,
    refused,
    standard,
    variations,
    zero_mean,
)
from optest.operators.shapes import Attributes, Outputs, Specs, dense, given, normalize_dim
from optest.spec import DType, Interval, Kind, OperatorDescriptor, Sample, TensorSpec, Tier, UnfitArguments, dtype
from optest.spec.declared_shapes import inference

ONE_OR_MORE_DIMS = attribute(
    "dim|axis|axes: int|ints = None",
    "Dimension to reduce, or several, which torch's own function does not take; none means all.",
)
TOTAL_DTYPE = attribute("dtype: dtype = None", "Convert the input to this dtype first; integers wrap in it.")

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="sum",
        aliases=("vector_sum", "reduce_sum"),
        attributes=(DIMS, KEEPDIM, TOTAL_DTYPE),
        rule=accumulate("terms are the elements"),
        description="Sum over dimensions; integers and bool add up in int64 and wrap there.",
    ),
    OperatorDescriptor(
        name="mean",
        aliases=("reduce_mean",),
        attributes=(DIMS, KEEPDIM),
        dtype_variants=FLOATS,
        infer="helpers:infer_mean",
        rule=accumulate("terms are the elements over n; n + 2 of them"),
        description="Arithmetic mean over dimensions; NaN without elements.",
    ),
    OperatorDescriptor(
        name="prod",
        aliases=("reduce_prod",),
        attributes=(ONE_OR_MORE_DIMS, KEEPDIM, TOTAL_DTYPE),
        infer="infer_sum",
        domain="factors",
        rule=composed("(n − 1)·|y|"),
        description="Product over dimensions; integers and bool multiply in int64 and wrap there.",
    ),
    OperatorDescriptor(
        name="cumsum",
        aliases=("cum_sum", "cumulative_sum"),
        attributes=(
            attribute("dim|axis: int", "Dimension along which it adds up."),
            TOTAL_DTYPE,
            attribute(
                "exclusive: bool = False",
                "Add up to each element without it, as ONNX can; torch has no such attribute.",
            ),
            attribute("reverse: bool = False", "Add up from the end, as ONNX can; torch has no such attribute."),
        ),
        sum_length="..shapes:length_of_dim",
        rule=accumulate("terms of element k are the k elements that it adds up; 4k of them"),
        description="Sum of the elements up to each one along a dimension; integers and bool add up in int64 and wrap.",
    ),
    OperatorDescriptor(
        name="dot",
        signature="input, tensor -> out",
        dtype_variants=NUMBERS,
        sum_length="terms_of_dot",
        rule=accumulate("terms are the products"),
        description="Sum of the products of two vectors; integers keep their dtype and wrap.",
    ),
    twin="reduction_reference",
    dtype_variants=(*NUMBERS, *BOOL),
    sum_length="helpers:terms_of_reduction",
)


def infer_sum(specs: Specs, attributes: Attributes) -> Outputs:
    """Integers and bool add up, or multiply, in int64, as in torch, or in the dtype that is asked for."""
    spec = given(specs, 0, "input")
    return (dense(_total_dtype(spec, attributes), reduced(spec, attributes)),)


def infer_cumsum(specs: Specs, attributes: Attributes) -> Outputs:
    """The input's dtype, int64 for integers and bool, or the one that is asked for."""
    spec = given(specs, 0, "input")
    normalize_dim(attributes["dim"], spec.rank)
    return (dense(_total_dtype(spec, attributes), spec.shape),)


def _total_dtype(spec: TensorSpec, attributes: Attributes) -> DType:
    """The input's, int64 for integers and bool, or the one that is asked for."""
    stated = attributes.get("dtype")
    if stated is None:
        return spec.dtype if spec.dtype.is_inexact else INT64
    result = dtype(stated)
    if result.kind is Kind.BOOL or result.is_complex or result.bits < 8:
        raise UnfitArguments(f"dtype is {result}, but should be an integer of 8 bits and more or a float")
    return result


infer_dot = inference("input: T[length], tensor: T[length] -> T[]")
"""Integers keep their dtype and wrap."""


def factors(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """What is multiplied: near 1 and of either sign, so that thousands of floats stay in range and each one shows;
    small integers without 0, of which a product wraps before it is nothing but factors of 2."""
    spec = given(specs, 0, "input")
    return {"input": Interval(low=-1.125, high=1.125, avoid=0.875) if spec.dtype.is_inexact else _SMALL}


_SMALL = Interval(low=-9, high=9, avoid=1)


def terms_of_dot(specs: Specs, _attributes: Attributes) -> int:
    return given(specs, 0, "input").elements


_SEVERAL = ([0, 1], [-1, 0], [2, 1], [0, 1, 2])
_TWO_BY_ROWS = call({"dim": [1, 2]}, input=(2, 3, 37))
"""Two dimensions of which the inner one is no multiple of a vector."""


def _into_other_dtypes() -> Iterator[Sample]:
    for source, target in (
        ("int8", "int8"),
        ("int32", "int8"),
        ("int32", "float32"),
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("float32", "float64"),
        ("bool", "int32"),
        ("uint8", "int16"),
    ):
        each = call({"dim": 1, "dtype": target}, dtypes=(source,), input=(3, 65))
        yield from variations("attributes", [each])
    whole = call({"dim": 1, "dtype": "int32"}, dtypes=("float32",), input=(3, 65))
    yield from variations("attributes", [whole], tier=Tier.FULL)  # many a backend takes no integer here


def sum_samples() -> Iterator[Sample]:
    variants = (*NUMBERS, *BOOL)
    yield from standard(ORDINARY, variants, sized=sized({"dim": 1}), special=False)
    yield from variations("attributes", every_dim(), dtypes=("float32", "int32"))
    yield from of_totals()
    yield from integer_exact([*ORDINARY, call({"dim": 1}, input=(3, 1025)), call(input=(4099,))])
    for name, value in (("int8", 127), ("uint8", 255), ("int16", -(2**15)), ("int32", 2**31 - 1)):
        largest = {"fill": "full", "value": value}  # beyond twice their bits
        yield from variations("long", [call({"dim": 1}, generator=largest, input=(2, 65_541))], dtypes=(name,))
    yield from variations("long", [call({"dim": 1}, generator="ones", input=(2, 65_541))], dtypes=("bool",))
    tiny = [[1.5 * 2.0**-126, -1.25 * 2.0**-126], [2.0**-126, -(2.0**-130)]]  # their sums are subnormal
    yield from variations("special", [table(tiny, {"dim": 1})], dtypes=("float32", "bfloat16"))
    yield from variations("attributes", [call({"dim": 0, "keepdim": True}, input=(5,)), call({"dim": 1}, input=(1, 5))])
    yield from _into_other_dtypes()
    yield from refused(*REFUSED)
    yield from integer_exact([_TWO_BY_ROWS])
    yield from of_a_million(call({"dim": 1}, input=MILLION), call({"dim": 0}, input=MILLION[::-1]), dtype="float32")


def mean_samples() -> Iterator[Sample]:
    yield from standard(ORDINARY, FLOATS, sized=sized({"dim": 1}), special=False)
    yield from variations("attributes", every_dim(), dtypes=("float32",))
    yield from of_totals()
    # 65,504 is float16's largest: a sum or a count that is kept in it overflows, the mean does not.
    yield from variations("long", [call(generator=normal(3.0, 1.0), input=(70_001,))], dtypes=("float16",))
    yield from variations(
        "long", [call({"dim": 1}, generator=normal(900.0, 100.0), input=(3, 257))], dtypes=MAIN_FLOATS
    )
    yield from integer_exact([*ORDINARY, call({"dim": 1}, input=(3, 1025)), call(input=(4099,))])
    yield from refused(*REFUSED, call(dtypes=("int32",), input=(3, 4)))
    yield from integer_exact([_TWO_BY_ROWS])


def prod_samples() -> Iterator[Sample]:
    calls = [
        call({"dim": 1}, input=(4, 37)),
        call(input=(3, 5, 7)),
        call({"dim": 0, "keepdim": True}, input=(9, 4)),
        call({"dim": 2}, input=(2, 3, 5, 2, 2)),
    ]
    variants = (*NUMBERS, *BOOL)
    yield from standard(calls, variants, sized=sized({"dim": 1}), special=False)
    for dim in (0, 1, -1, -2, -3, None):
        for keepdim in (False, True):
            each = call({"dim": dim, "keepdim": keepdim}, input=(2, 3, 5))
            yield from variations("attributes", [each], dtypes=("float32", "int32"))
    yield from _into_other_dtypes()
    rows = [
        *rows_with_specials()[:4],
        [0.0, 1.0, "inf", 2.0],
        [0.0, 2.0, "nan", 1.0],
        [-0.0, 1.0, 2.0, 3.0],
        [-1.0, -1.0, -1.0, 1.0],
        [0.5, -2.0, 4.0, 1.5],
    ]
    yield from variations("special", [table(rows, {"dim": 1})], dtypes=MAIN_FLOATS)
    powers = [[1 << 31, 2, 1], [1 << 32, 1 << 31, 1], [1 << 32, 1 << 32, 3], [-(1 << 31), 1 << 32, 3], [3, 5, 7]]
    powers.append([(1 << 31) + 1, (1 << 29) - 1, 3])  # what float64 rounds
    yield from variations("special", [table(powers, {"dim": 1}, dtypes=("int64",))])
    yield from variations("special", [table([[100, 100, 100], [-128, 2, 127]], {"dim": 1}, dtypes=("int8",))])
    yield from variations("special", [table([[255, 255, 255, 255], [255, 0, 1, 2]], {"dim": 1}, dtypes=("uint8",))])
    yield from variations("special", [table([[1, 1, 1], [1, 0, 1]], {"dim": 1}, dtypes=("bool",))])
    for name, value in (("int16", 300), ("int32", 70_001), ("float32", -3.0)):  # of many random integers most give 0
        yield from variations("special", [table([[value, 3, 7], [value, -1, 1]], {"dim": 1}, dtypes=(name,))])
    yield from variations(
        "special", [table([[1, 1], [1, 0]], {}, dtypes=("bool",)), table([[1, 1]], {}, dtypes=("bool",))]
    )
    near_one = {"fill": "uniform", "low": 0.97, "high": 1.03}
    yield from variations("long", [call({"dim": 0}, generator=near_one, input=(4097, 3))], dtypes=MAIN_FLOATS)
    longer = [call({"dim": -1}, generator=near_one, input=(3, 4097)), call({"dim": 1}, input=(2, 1025, 3))]
    yield from variations("long", [{**each, "generator": near_one} for each in longer], dtypes=("float32",))
    nearer = {"fill": "uniform", "low": 0.995, "high": 1.005}
    yield from variations("long", [call({"dim": -1}, generator=nearer, input=(2, 65536))], dtypes=("float32",))
    yield from many_rows({})
    several = [call({"dim": dim, "keepdim": keepdim}, input=(2, 3, 5)) for dim in _SEVERAL for keepdim in (False, True)]
    yield from variations("attributes", several, dtypes=("float32", "int32"), tier=Tier.FULL)  # not in torch's words
    empty = [({"dim": 1}, (3, 0)), ({"dim": 0}, (3, 0)), ({}, (0,)), ({"dim": 1}, (5, 1)), ({}, ()), ({"dim": -1}, ())]
    yield from variations("empty", [written(attributes, *shape) for attributes, shape in empty])
    yield from variations("empty", [call({"dim": 1}, input=(3, 0))], dtypes=("int32",))
    yield from refused(call({"dim": 2}, input=(3, 4)), call({"dim": -3}, input=(3, 4)))


def cumsum_samples() -> Iterator[Sample]:
    calls = [
        call({"dim": 1}, input=(4, 37)),
        call({"dim": 0}, input=(33, 5)),
        call({"dim": 1}, input=(3, 5, 7)),
        call({"dim": 2}, input=(2, 3, 5, 2, 2)),
    ]
    variants = (*NUMBERS, *BOOL)
    yield from standard(calls, variants, sized=sized({"dim": 1}))
    dims = [call({"dim": dim}, input=(2, 3, 5)) for dim in (0, 1, 2, -1, -2, -3)]
    yield from variations("attributes", [*dims, call({"dim": 0}, input=()), call({"dim": -1}, input=())])
    # Full checks alone: who makes torch's operator has no such attributes.
    shapes = ((0, (33, 5)), (1, (3, 37)), (-1, (2, 3, 5)), (1, (2, 1025, 3)), (0, ()), (1, (3, 0)))
    for exclusive, reverse in ((True, False), (False, True), (True, True)):
        ways = {"exclusive": exclusive, "reverse": reverse}
        ways_of_onnx = [call({"dim": dim, **ways}, input=shape) for dim, shape in shapes]
        yield from variations("attributes", ways_of_onnx, dtypes=(*MAIN_FLOATS, "int32"), tier=Tier.FULL)
        special_rows = table(rows_with_specials(), {"dim": 1, **ways})
        yield from variations("attributes", [special_rows], dtypes=("float32",), tier=Tier.FULL)
    yield from _into_other_dtypes()
    for name in ("int8", "int16", "int32", "uint8", "int64"):  # beyond what they hold, and of int64 it wraps
        largest = {"fill": "full", "value": dtype(name).max_int}
        yield from variations("long", [call({"dim": 1}, generator=largest, input=(3, 5))], dtypes=(name,))
    yield from variations("long", [call({"dim": 1}, generator="ones", input=(2, 65_541))], dtypes=("bool",))
    yield from specials({})
    yield from long({})
    yield from variations("long", [call({"dim": -1}, input=(65536,))], dtypes=("float32",))
    yield from integer_exact([*calls, call({"dim": 1}, input=(3, 1025))])
    yield from zero_mean([call({"dim": 1}, input=(3, 4097))])
    yield from variations("empty", [call({"dim": 1}, input=(3, 0)), call({"dim": 0}, input=(3, 0))])
    yield from refused(call({"dim": 2}, input=(3, 4)), call({"dim": -3}, input=(3, 4)))


def dot_samples() -> Iterator[Sample]:
    def pair(n: int, *, generator: Any = None) -> dict[str, Any]:
        return call(generator=generator, input=(n,), tensor=(n,))

    variants = NUMBERS
    yield from standard([pair(37), pair(129)], variants, sized=pair, special=False)
    yield from in_every_dtype([pair(1025)], variants)
    written = {"fill": "data", "values": ["nan", 1.0, 2.0, 3.0]}
    zeros = {"fill": "zeros"}
    infinite = {"fill": "data", "values": ["inf", "-inf", 1.0, 2.0]}
    signs = {"fill": "data", "values": [1.0, -1.0, 1.0, 2.0]}
    for left, right in ((written, zeros), (infinite, zeros), (infinite, signs), (signs, infinite), (zeros, signs)):
        yield from variations("special", [pair(4, generator={"input": left, "tensor": right})], dtypes=MAIN_FLOATS)
    yield from variations("long", [pair(4097), pair(65536)], dtypes=MAIN_FLOATS)
    yield from variations("long", [pair(1 << 20)], dtypes=("float32",), tier=Tier.FULL)
    yield from integer_exact([pair(37), pair(1025), pair(4097)])
    yield from zero_mean([pair(4097)])
    yield from variations("empty", [pair(0), pair(1)], dtypes=("float32", "int32"))
    yield from refused(
        call(input=(3,), tensor=(4,)),
        call(input=(3,), tensor=(1,)),
        call(input=(2, 3), tensor=(2, 3)),
        call(dtypes=("float32", "float64"), input=(3,), tensor=(3,)),
    )
