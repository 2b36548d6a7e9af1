"""Sums and products over dimensions: sum, mean, prod, cumsum and dot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from optest.operators.calls import MAIN_FLOATS, MILLION, call, normal, with_values
from optest.operators.describe import BOOL, FLOATS, NUMBERS, accumulate, attribute, composed, in_module
from optest.operators.reduction.helpers import (
    DIMS,
    INT64,
    KEEPDIM,
    ORDINARY,
    REFUSED,
    calls_of_length,
    constant_call,
    every_dim,
    long_samples,
    many_rows,
    reduced_shape,
    rows_with_specials,
    special_samples,
    total_samples,
)
from optest.operators.samples import (
    error_samples,
    in_every_dtype,
    integer_exact,
    million_element_samples,
    standard_samples,
    variations,
    zero_mean,
)
from optest.operators.shapes import Attributes, Outputs, Specs, dense, normalize_dim, require_spec
from optest.spec import DType, Interval, Kind, OperatorDescriptor, Sample, TensorSpec, Tier, UnfitArguments, dtype
from optest.spec.declared_shapes import inference

ONE_OR_MORE_DIMS = attribute(
    "dim|axis|axes: int|ints = None",
    "Dimension to reduce, or several, which torch's function does not accept; None means all.",
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
        domain="factor_domain",
        rule=composed("(n − 1)·|y|"),
        description="Product over dimensions; integers and bool multiply in int64 and wrap there.",
    ),
    OperatorDescriptor(
        name="cumsum",
        aliases=("cum_sum", "cumulative_sum"),
        attributes=(
            attribute("dim|axis: int", "Dimension along which elements are summed."),
            TOTAL_DTYPE,
            attribute(
                "exclusive: bool = False",
                "Sum the elements before each one, without it, as in ONNX; torch has no such attribute.",
            ),
            attribute("reverse: bool = False", "Sum from the end, as in ONNX; torch has no such attribute."),
        ),
        sum_length="..shapes:length_of_dim",
        rule=accumulate("terms of element k are the k elements that it sums; 4k of them"),
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
    """Return the output of sum and prod, without the reduced dimensions; its dtype is that of ``_total_dtype``."""
    spec = require_spec(specs, 0, "input")
    return (dense(_total_dtype(spec, attributes), reduced_shape(spec, attributes)),)


def infer_cumsum(specs: Specs, attributes: Attributes) -> Outputs:
    """Return an output of the input's shape; its dtype is that of ``_total_dtype``."""
    spec = require_spec(specs, 0, "input")
    normalize_dim(attributes["dim"], spec.rank)  # raises for a dimension that is not there
    return (dense(_total_dtype(spec, attributes), spec.shape),)


def _total_dtype(spec: TensorSpec, attributes: Attributes) -> DType:
    """Return the requested dtype of a total, else the input's for floats, int64 for integers and bool, as in torch."""
    requested = attributes.get("dtype")
    if requested is None:
        return spec.dtype if spec.dtype.is_inexact else INT64
    result = dtype(requested)
    if result.kind is Kind.BOOL or result.is_complex or result.bits < 8:
        raise UnfitArguments(f"dtype is {result}, expected an integer of 8 bits and more or a float")
    return result


infer_dot = inference("input: T[length], tensor: T[length] -> T[]")


def factor_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """Return the range of random inputs of prod: floats near ±1, small integers without 0."""
    # Near 1, thousands of factors stay in range, and each one changes the product. Of small integers a product wraps
    # before it has only factors of 2.
    is_float = require_spec(specs, 0, "input").dtype.is_inexact
    return {"input": Interval(low=-1.125, high=1.125, avoid=0.875) if is_float else Interval(low=-9, high=9, avoid=1)}


def terms_of_dot(specs: Specs, _attributes: Attributes) -> int:
    """Return the length of the vectors."""
    return require_spec(specs, 0, "input").elements


_SEVERAL_DIMS = ([0, 1], [-1, 0], [2, 1], [0, 1, 2])
# Two dimensions of which the inner one is no multiple of a vector.
_TWO_OF_THREE_DIMS = call({"dim": [1, 2]}, input=(2, 3, 37))


def _into_other_dtypes() -> Iterator[Sample]:
    """Yield samples with the attribute ``dtype``: narrower, wider, and of another kind."""
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
        converted = call({"dim": 1, "dtype": target}, dtypes=(source,), input=(3, 65))
        yield from variations("attributes", [converted])
    # Many backends have no integer sums of floats.
    truncated = call({"dim": 1, "dtype": "int32"}, dtypes=("float32",), input=(3, 65))
    yield from variations("attributes", [truncated], tier=Tier.FULL)


def sum_samples() -> Iterator[Sample]:
    yield from standard_samples(ORDINARY, (*NUMBERS, *BOOL), sized=calls_of_length({"dim": 1}), special=False)
    yield from variations("attributes", every_dim(), dtypes=("float32", "int32"))
    yield from total_samples()
    yield from integer_exact([*ORDINARY, call({"dim": 1}, input=(3, 1025)), call(input=(4099,))])
    # The sums need more than twice the bits of the elements.
    for name, value in (("int8", 127), ("uint8", 255), ("int16", -(2**15)), ("int32", 2**31 - 1)):
        largest = {"fill": "full", "value": value}
        yield from variations("long", [call({"dim": 1}, generator=largest, input=(2, 65_541))], dtypes=(name,))
    yield from variations("long", [call({"dim": 1}, generator="ones", input=(2, 65_541))], dtypes=("bool",))
    # Normal numbers with subnormal sums.
    tiny = [[1.5 * 2.0**-126, -1.25 * 2.0**-126], [2.0**-126, -(2.0**-130)]]
    yield from variations("special", [with_values(tiny, {"dim": 1})], dtypes=("float32", "bfloat16"))
    yield from variations("attributes", [call({"dim": 0, "keepdim": True}, input=(5,)), call({"dim": 1}, input=(1, 5))])
    yield from _into_other_dtypes()
    yield from error_samples(*REFUSED)
    yield from integer_exact([_TWO_OF_THREE_DIMS])
    yield from million_element_samples(
        call({"dim": 1}, input=MILLION), call({"dim": 0}, input=MILLION[::-1]), dtype="float32"
    )


def mean_samples() -> Iterator[Sample]:
    yield from standard_samples(ORDINARY, FLOATS, sized=calls_of_length({"dim": 1}), special=False)
    yield from variations("attributes", every_dim(), dtypes=("float32",))
    yield from total_samples()
    # float16 ends at 65,504: a sum or a count in it overflows, the mean does not.
    yield from variations("long", [call(generator=normal(3.0, 1.0), input=(70_001,))], dtypes=("float16",))
    yield from variations(
        "long", [call({"dim": 1}, generator=normal(900.0, 100.0), input=(3, 257))], dtypes=MAIN_FLOATS
    )
    yield from integer_exact([*ORDINARY, call({"dim": 1}, input=(3, 1025)), call(input=(4099,))])
    yield from error_samples(*REFUSED, call(dtypes=("int32",), input=(3, 4)))
    yield from integer_exact([_TWO_OF_THREE_DIMS])


def prod_samples() -> Iterator[Sample]:
    calls = [
        call({"dim": 1}, input=(4, 37)),
        call(input=(3, 5, 7)),
        call({"dim": 0, "keepdim": True}, input=(9, 4)),
        call({"dim": 2}, input=(2, 3, 5, 2, 2)),
    ]
    yield from standard_samples(calls, (*NUMBERS, *BOOL), sized=calls_of_length({"dim": 1}), special=False)
    for dim, keepdim in product((0, 1, -1, -2, -3, None), (False, True)):
        reduction = call({"dim": dim, "keepdim": keepdim}, input=(2, 3, 5))
        yield from variations("attributes", [reduction], dtypes=("float32", "int32"))
    yield from _into_other_dtypes()
    rows = [
        *rows_with_specials()[:4],
        [0.0, 1.0, "inf", 2.0],
        [0.0, 2.0, "nan", 1.0],
        [-0.0, 1.0, 2.0, 3.0],
        [-1.0, -1.0, -1.0, 1.0],
        [0.5, -2.0, 4.0, 1.5],
    ]
    yield from variations("special", [with_values(rows, {"dim": 1})], dtypes=MAIN_FLOATS)
    powers = [[1 << 31, 2, 1], [1 << 32, 1 << 31, 1], [1 << 32, 1 << 32, 3], [-(1 << 31), 1 << 32, 3], [3, 5, 7]]
    powers.append([(1 << 31) + 1, (1 << 29) - 1, 3])  # float64 rounds this product
    yield from variations("special", [with_values(powers, {"dim": 1}, dtypes=("int64",))])
    yield from variations("special", [with_values([[100, 100, 100], [-128, 2, 127]], {"dim": 1}, dtypes=("int8",))])
    yield from variations(
        "special", [with_values([[255, 255, 255, 255], [255, 0, 1, 2]], {"dim": 1}, dtypes=("uint8",))]
    )
    yield from variations("special", [with_values([[1, 1, 1], [1, 0, 1]], {"dim": 1}, dtypes=("bool",))])
    # Few factors: products of many random integers are mostly 0 after wrapping.
    for name, value in (("int16", 300), ("int32", 70_001), ("float32", -3.0)):
        yield from variations("special", [with_values([[value, 3, 7], [value, -1, 1]], {"dim": 1}, dtypes=(name,))])
    yield from variations(
        "special",
        [with_values([[1, 1], [1, 0]], {}, dtypes=("bool",)), with_values([[1, 1]], {}, dtypes=("bool",))],
    )
    near_one = {"fill": "uniform", "low": 0.97, "high": 1.03}
    yield from variations("long", [call({"dim": 0}, generator=near_one, input=(4097, 3))], dtypes=MAIN_FLOATS)
    longer = [
        call({"dim": dim}, generator=near_one, input=shape) for dim, shape in ((-1, (3, 4097)), (1, (2, 1025, 3)))
    ]
    yield from variations("long", longer, dtypes=("float32",))
    nearer = {"fill": "uniform", "low": 0.995, "high": 1.005}
    yield from variations("long", [call({"dim": -1}, generator=nearer, input=(2, 65536))], dtypes=("float32",))
    yield from many_rows({})
    # torch.prod reduces one dimension only.
    several = [call({"dim": dim, "keepdim": kept}, input=(2, 3, 5)) for dim in _SEVERAL_DIMS for kept in (False, True)]
    yield from variations("attributes", several, dtypes=("float32", "int32"), tier=Tier.FULL)
    empty = [({"dim": 1}, (3, 0)), ({"dim": 0}, (3, 0)), ({}, (0,)), ({"dim": 1}, (5, 1)), ({}, ()), ({"dim": -1}, ())]
    yield from variations("empty", [constant_call(attributes, *shape) for attributes, shape in empty])
    yield from variations("empty", [call({"dim": 1}, input=(3, 0))], dtypes=("int32",))
    yield from error_samples(call({"dim": 2}, input=(3, 4)), call({"dim": -3}, input=(3, 4)))


def cumsum_samples() -> Iterator[Sample]:
    calls = [
        call({"dim": 1}, input=(4, 37)),
        call({"dim": 0}, input=(33, 5)),
        call({"dim": 1}, input=(3, 5, 7)),
        call({"dim": 2}, input=(2, 3, 5, 2, 2)),
    ]
    yield from standard_samples(calls, (*NUMBERS, *BOOL), sized=calls_of_length({"dim": 1}))
    dims = [call({"dim": dim}, input=(2, 3, 5)) for dim in (0, 1, 2, -1, -2, -3)]
    yield from variations("attributes", [*dims, call({"dim": 0}, input=()), call({"dim": -1}, input=())])
    # In the full set only: torch's operator has no such attributes.
    shapes = ((0, (33, 5)), (1, (3, 37)), (-1, (2, 3, 5)), (1, (2, 1025, 3)), (0, ()), (1, (3, 0)))
    for exclusive, reverse in ((True, False), (False, True), (True, True)):
        order = {"exclusive": exclusive, "reverse": reverse}
        ordered = [call({"dim": dim, **order}, input=shape) for dim, shape in shapes]
        yield from variations("attributes", ordered, dtypes=(*MAIN_FLOATS, "int32"), tier=Tier.FULL)
        special_rows = with_values(rows_with_specials(), {"dim": 1, **order})
        yield from variations("attributes", [special_rows], dtypes=("float32",), tier=Tier.FULL)
    yield from _into_other_dtypes()
    # The sums exceed the dtype, and wrap in int64.
    for name in ("int8", "int16", "int32", "uint8", "int64"):
        largest = {"fill": "full", "value": dtype(name).max_int}
        yield from variations("long", [call({"dim": 1}, generator=largest, input=(3, 5))], dtypes=(name,))
    yield from variations("long", [call({"dim": 1}, generator="ones", input=(2, 65_541))], dtypes=("bool",))
    yield from special_samples({})
    yield from long_samples({})
    yield from variations("long", [call({"dim": -1}, input=(65536,))], dtypes=("float32",))
    yield from integer_exact([*calls, call({"dim": 1}, input=(3, 1025))])
    yield from zero_mean([call({"dim": 1}, input=(3, 4097))])
    yield from variations("empty", [call({"dim": 1}, input=(3, 0)), call({"dim": 0}, input=(3, 0))])
    yield from error_samples(call({"dim": 2}, input=(3, 4)), call({"dim": -3}, input=(3, 4)))


def dot_samples() -> Iterator[Sample]:
    def pair(n: int, *, generator: Any = None) -> dict[str, Any]:
        return call(generator=generator, input=(n,), tensor=(n,))

    yield from standard_samples([pair(37), pair(129)], NUMBERS, sized=pair, special=False)
    yield from in_every_dtype([pair(1025)], NUMBERS)
    nan = {"fill": "data", "values": ["nan", 1.0, 2.0, 3.0]}
    zeros = {"fill": "zeros"}
    infinite = {"fill": "data", "values": ["inf", "-inf", 1.0, 2.0]}
    signs = {"fill": "data", "values": [1.0, -1.0, 1.0, 2.0]}
    for left, right in ((nan, zeros), (infinite, zeros), (infinite, signs), (signs, infinite), (zeros, signs)):
        yield from variations("special", [pair(4, generator={"input": left, "tensor": right})], dtypes=MAIN_FLOATS)
    yield from variations("long", [pair(4097), pair(65536)], dtypes=MAIN_FLOATS)
    yield from variations("long", [pair(1 << 20)], dtypes=("float32",), tier=Tier.FULL)
    yield from integer_exact([pair(37), pair(1025), pair(4097)])
    yield from zero_mean([pair(4097)])
    yield from variations("empty", [pair(0), pair(1)], dtypes=("float32", "int32"))
    yield from error_samples(
        call(input=(3,), tensor=(4,)),
        call(input=(3,), tensor=(1,)),
        call(input=(2, 3), tensor=(2, 3)),
        call(dtypes=("float32", "float64"), input=(3,), tensor=(3,)),
    )
