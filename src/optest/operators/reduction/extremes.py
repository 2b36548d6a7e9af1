"""Exact reductions: extremes, their indices, all and any."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, MILLION, ROWS_OF_EVERY_SIGN, SIZES, call, with_values
from optest.operators.describe import BOOL, NUMBERS, attribute, exact, in_module
from optest.operators.reduction.helpers import (
    DIMS,
    INT64,
    KEEPDIM,
    ORDINARY,
    every_dim,
    many_rows,
    reduced_shape,
    refuse_empty,
)
from optest.operators.samples import (
    error_samples,
    in_every_layout,
    in_layouts_at_once,
    million_element_samples,
    of_one_element,
    standard_samples,
    variations,
)
from optest.operators.shapes import Attributes, Outputs, Specs, dense, reduced_dims, require_spec
from optest.spec import Kind, OperatorDescriptor, Sample, Tier, UnfitArguments, dtype

ONE_DIM = attribute("dim|axis: int = None", "Dimension to reduce; None means all.")
_EVERY = (*NUMBERS, *BOOL)
_ROWS = {"largest": ROWS_OF_EVERY_SIGN, "least": {**ROWS_OF_EVERY_SIGN, "signs": "+-0"}}
_EXACT = exact("torch: an element of the input, or its index")
_TRUTH = exact("torch: a truth value")

DESCRIPTORS = in_module(
    __name__,
    *(
        OperatorDescriptor(
            name=name,
            signature="input -> values, indices?",
            attributes=(ONE_DIM, KEEPDIM),
            infer="infer_max",
            samples="max_samples",
            generator=_ROWS[word.casefold()],
            description=f"{word} element; with dim also its index, the first of equal ones. NaN wins over numbers.",
        )
        for name, word in (("max", "Largest"), ("min", "Least"))
    ),
    *(
        OperatorDescriptor(
            name=name,
            aliases=(alias,),
            attributes=(DIMS, KEEPDIM),
            infer="infer_amax",
            generator=_ROWS[word.casefold()],
            description=f"{word} element over dimensions. NaN wins over numbers.",
        )
        for name, alias, word in (("amax", "reduce_max", "Largest"), ("amin", "reduce_min", "Least"))
    ),
    *(
        OperatorDescriptor(
            name=name,
            aliases=(alias,),
            attributes=(ONE_DIM, KEEPDIM),
            dtype_variants=NUMBERS,
            infer="infer_argmax",
            samples="argmax_samples",
            generator=_ROWS[word],
            description=f"Index of the {word} element, the first of equal ones; without dim into the flattened input. "
            "NaN wins over numbers.",
        )
        for name, alias, word in (("argmax", "arg_max", "largest"), ("argmin", "arg_min", "least"))
    ),
    *(
        OperatorDescriptor(
            name=name,
            attributes=(DIMS, KEEPDIM),
            infer="infer_truth",
            rule=_TRUTH,
            description=f"True if {word} element is not 0; NaN is not 0. The dtype is bool, but uint8 for uint8.",
        )
        for name, word in (("all", "every"), ("any", "any"))
    ),
    twin="reduction_reference",
    dtype_variants=_EVERY,
    sum_length="helpers:terms_of_reduction",
    rule=_EXACT,
)


def infer_amax(specs: Specs, attributes: Attributes) -> Outputs:
    """Return an output of the input's dtype without the reduced dimensions, which may not be empty."""
    spec = require_spec(specs, 0, "input")
    refuse_empty(spec, reduced_dims(attributes.get("dim"), spec.rank))
    return (dense(spec.dtype, reduced_shape(spec, attributes)),)


def infer_max(specs: Specs, attributes: Attributes) -> Outputs:
    """Return values and int64 indices along ``dim``, which may not be empty; without it a single value."""
    spec, dim = require_spec(specs, 0, "input"), attributes.get("dim")
    if dim is None and attributes.get("keepdim"):
        raise UnfitArguments("keepdim is True without dim, expected False: there is no dimension to keep")
    refuse_empty(spec, reduced_dims(dim, spec.rank))
    shape = reduced_shape(spec, attributes)
    values = dense(spec.dtype, shape)
    return (values,) if dim is None else (values, dense(INT64, shape))


def infer_argmax(specs: Specs, attributes: Attributes) -> Outputs:
    """Return int64 indices along ``dim``, which may not be empty; without it one index into the flattened input."""
    spec = require_spec(specs, 0, "input")
    if spec.dtype.kind is Kind.BOOL:
        raise UnfitArguments("input is bool, expected a number: torch has no argmax of bool")
    refuse_empty(spec, reduced_dims(attributes.get("dim"), spec.rank))
    return (dense(INT64, reduced_shape(spec, attributes)),)


def infer_truth(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output of all and any: bool, but uint8 for uint8, as in torch."""
    spec = require_spec(specs, 0, "input")
    result = spec.dtype if spec.dtype.name == "uint8" else dtype("bool")
    return (dense(result, reduced_shape(spec, attributes)),)


def amax_samples() -> Iterator[Sample]:
    yield from amin_samples()
    yield from million_element_samples(call({"dim": 1}, input=MILLION), call({"dim": 0}, input=MILLION), dtype="uint8")


def _one_dim_samples(variants: tuple[tuple[str, ...], ...], *, keeps_all: bool = False) -> Iterator[Sample]:
    """Yield samples of reductions over one dimension or all; ``keeps_all`` if keepdim is defined for all."""
    calls = [
        call({"dim": 1}, input=(4, 37)),
        call(input=(3, 5, 7)),
        call({"dim": 0}, input=(33, 5)),
        call({"dim": 2}, input=(2, 3, 5, 2, 3)),
    ]
    yield from standard_samples(
        calls, variants, sized=lambda n: call({"dim": 1}, input=(3, n)) if n else _NO_ROWS, special=False
    )
    for dim, keepdim in product((0, 1, -1, -2, -3), (False, True)):
        yield from variations("attributes", [call({"dim": dim, "keepdim": keepdim}, input=(2, 3, 5))])
    yield from variations("attributes", [call({"dim": 0, "keepdim": True}, input=()), call({"dim": -1}, input=())])
    if keeps_all:
        yield from variations("attributes", [call({"keepdim": True}, input=(2, 3, 5))])
        # Indices count rows of the tensor, whatever its strides are.
        yield from in_every_layout([call(input=(4, 37))])
        yield from in_layouts_at_once([call(input=(3, 5, 7))])
    yield from _samples_of_values(calls)
    yield from error_samples(
        call({"dim": 2}, input=(3, 4)),
        call({"dim": 1}, input=(3, 0)),
        call(input=(0,)),
        *([] if keeps_all else [call({"keepdim": True}, input=(3, 4))]),
    )


max_samples = partial(_one_dim_samples, _EVERY)
argmax_samples = partial(_one_dim_samples, NUMBERS, keeps_all=True)


# An empty reduced dimension is refused; another dimension may be empty.
_NO_ROWS = call({"dim": 1}, input=(0, 3))


def amin_samples() -> Iterator[Sample]:
    yield from standard_samples(
        ORDINARY, _EVERY, sized=lambda n: call({"dim": 1}, input=(3, n)) if n else _NO_ROWS, special=False
    )
    yield from variations("attributes", every_dim(), dtypes=("float32",))
    scalars = [call(input=()), call({"dim": 0, "keepdim": True}, input=()), call({"dim": -1}, input=())]
    yield from variations("attributes", scalars, dtypes=("float32", "int32"))
    yield from of_one_element(call({"dim": 1}, input=(1, 1)), call(input=(1,)))
    yield from _samples_of_values(ORDINARY)
    yield from error_samples(
        call({"dim": 2}, input=(3, 4)),
        call({"dim": [0, -2]}, input=(3, 4)),
        call({"dim": 1}, input=(3, 0)),
        call(input=(0,)),
    )


def _samples_of_values(calls: list[dict[str, Any]]) -> Iterator[Sample]:
    """Yield samples with values of one sign, NaN, infinities, ties, neighbours, and long dimensions."""
    # Traps of a kernel that starts at 0, compares in another order, or in a narrower type.
    negative = {"fill": "uniform", "low": -9.0, "high": -1.0}
    positive = {"fill": "uniform", "low": 1.0, "high": 9.0}
    for fill in (negative, positive):
        yield from variations("special", [{**calls[0], "generator": fill}], dtypes=MAIN_FLOATS)
    yield from variations("special", [_placed_specials(dim) for dim in (0, 1)], dtypes=MAIN_FLOATS)
    # Neighbours at the ends of float16, which a lower precision makes equal.
    ends = with_values([[65504.0, 65472.0, -65504.0, -65472.0], [6e-8, 0.0, -6e-8, 1.2e-7]], {"dim": 1})
    yield from variations("special", [ends], dtypes=MAIN_FLOATS)
    few = {"fill": "randint", "low": -3, "high": 4}
    # Many libraries have a separate kernel for whole tensors.
    for fill in (negative, positive):
        yield from variations("special", [call(input=(3, 5, 7), generator=fill)], dtypes=("float32",))
    nans = [with_values(row) for row in (["nan", 1.0, 2.0], [1.0, "nan", 2.0, "nan"], [-3.0, -1.0, "nan"])]
    infinities: tuple[list[Any], ...] = (["-inf"] * 3, ["inf"] * 3, [[1.0, "-inf"], ["inf", 2.0]])
    yield from variations("special", [*nans, *map(with_values, infinities)], dtypes=("float32", "float16"))
    tied = [call(input=shape, generator=few) for shape in ((3, 5, 7), (1025,))]
    yield from variations("ties", tied, dtypes=("float32", "int32"))
    tied = [{**base_call, "generator": few} for base_call in (calls[0], calls[2], call({"dim": 1}, input=(3, 1025)))]
    yield from variations("ties", tied, dtypes=("float32", "bfloat16", "int32", "int8"))
    yield from variations("ties", [with_values([[0.0, -0.0, 0.0, -1.0], [-0.0, 0.0, -1.0, 0.0]], {"dim": 1})])
    extremes = [[-(2**63), 2**63 - 1, 0], [2**63 - 1, 2**63 - 2, -1], [-(2**63), 1 - 2**63, -1]]
    yield from variations("special", [with_values(extremes, {"dim": 1}, dtypes=("int64",))])
    for name, bits in (("float64", 52), ("int64", 62), ("int32", 30), ("int16", 14)):
        # A comparison in half as many bits takes these for equal and returns the index of the first.
        one, step = (1.0, 2.0**-bits) if name == "float64" else (2**bits, 1)
        row = [one, one + step, one + 2 * step, one + step]
        rows = [row, [-value for value in row], row[::-1]]
        yield from variations("ties", [with_values(rows, {"dim": 1}, dtypes=(name,))])
    yield from variations("long", [call({"dim": -1}, input=(2, 65536))], dtypes=("float32", "float16"))
    yield from variations("long", [call({"dim": 0}, input=(4097, 3))], dtypes=("float32",))
    yield from variations("long", [call({"dim": 1}, input=(2, 1025, 3))], dtypes=("float32", "float16"))
    yield from variations("long", [call({"dim": 1}, input=(3, 4099))], dtypes=("int32", "int64", "uint8"))
    yield from many_rows({})
    climbing = [{"fill": "arange", "start": -sign * 35_000.0, "step": sign} for sign in (1.0, -1.0)]
    # 16 bits do not hold the index.
    far = [call({"dim": 0}, generator=fill, input=(70_001,)) for fill in climbing]
    yield from variations("long", far, dtypes=("float32",))
    yield from variations("long", [call({"dim": 0}, input=(65537, 3))], dtypes=("float32",), tier=Tier.FULL)
    yield from variations("empty", [call({"dim": 0}, input=(3, 0)), call({"dim": -1}, input=(0, 3))])
    yield from _of_one_sign(negative, positive)


def _of_one_sign(negative: dict[str, Any], positive: dict[str, Any]) -> Iterator[Sample]:
    """Yield samples with values of one sign: in long dimensions, at the ends of 8 bits, and of 64 bits."""
    # In a kernel that fills idle lanes with 0, that 0 is the extreme.
    shapes = ((1, (3, 1500)), (0, (45, 3)), (None, (1500,)))
    calls = [
        call({} if dim is None else {"dim": dim}, input=shape, generator=fill)
        for dim, shape in shapes
        for fill in (negative, positive)
    ]
    yield from variations("special", calls, dtypes=("float32",))
    low, high = [[-3, -7, -128], [-127, -1, -2]], [[200, 130, 255], [128, 255, 129]]
    yield from variations(
        "special",
        [with_values(low, {"dim": 1}, dtypes=("int8",)), with_values(high, {"dim": 1}, dtypes=("uint8",))],
    )
    # float64 rounds most of them to ±2^60.
    beyond = [2**60, 2**60 + 1, 2**60 - 1, -(2**60), -(2**60) - 1]
    yield from variations("ties", [with_values(beyond, dtypes=("int64",))])
    far = [[5] * 299 + [0], [5] * 299 + [9]]
    yield from variations("long", [with_values(far, {"dim": 1}, dtypes=("uint8",))])
    yield from variations("long", [call({"dim": 1}, input=(LARGE_SIZE, 1))], dtypes=("float32",))


def _placed_specials(dim: int) -> dict[str, Any]:
    """Return a call with NaN first, in the middle, last and twice; infinities, with and without NaN; signed zeros."""
    rows = [
        ["nan", 1.0, 2.0, 3.0, 4.0],
        [1.0, "nan", 2.0, -3.0, "nan"],
        [1.0, 2.0, 3.0, 4.0, "nan"],
        ["inf", "nan", "-inf", 0.0, 1.0],
        ["-inf", 1.0, "inf", 2.0, "inf"],
        ["-inf", "-inf", "-inf", "-inf", "-inf"],
        ["inf", "inf", "inf", "inf", "inf"],
        [-1.0, "-inf", -2.0, -3.0, -4.0],
        [0.0, -0.0, -0.0, 0.0, -0.0],
    ]
    values = rows if dim else [list(column) for column in zip(*rows, strict=True)]
    return with_values(values, {"dim": dim})


def _truth_samples(rows: list[list[int]]) -> Iterator[Sample]:
    """Yield samples of all or any: ``rows``, and rows that are all true, all false, or decided by a single element."""
    small = with_values(rows, {"dim": 1})
    calls = [small, with_values(rows, {}), with_values(rows, {"dim": [0, 1], "keepdim": True})]
    yield Sample(case_set="ordinary", case=small, tier=Tier.SMOKE)
    yield from variations("ordinary", calls, dtypes=("float32", "bool"))
    yield from variations("dtypes", calls[:1], dtypes=[name for (name,) in _EVERY])
    for size in SIZES[1:]:
        ones, zeros = [1] * size, [0] * size
        values = [ones, [*ones[:-1], 0], [0, *ones[1:]], zeros, [*zeros[:-1], 1], [1, *zeros[1:]]]
        yield from variations("sizes", [with_values(values, {"dim": 1})], dtypes=("bool", "float32"))
    yield from in_every_layout([call({"dim": 1}, input=(16, 3), generator=_MIXED)])
    deep = call({"dim": [1, -1]}, input=(2, 2, 3, 5, 2), generator=_MIXED)
    yield from variations("ordinary", [deep], dtypes=("float32", "float16", "bool"))
    for bits in ({"fill": "ones"}, {"fill": "zeros"}, _MIXED):
        yield from variations("long", [call({"dim": -1}, input=(2, 65536), generator=bits)], dtypes=("bool", "float16"))
        tall = [call({"dim": 0}, input=(4097, 3), generator=bits), call({"dim": 1}, input=(2, 1025, 3), generator=bits)]
        yield from variations("long", tall, dtypes=("bool", "float32"))
    odd = [["nan", 1.0], ["nan", 0.0], ["inf", "-inf"], [-0.0, 0.0], [6e-8, 0.5], [-1.0, 1.0]]
    yield from variations("special", [with_values(odd, {"dim": 1})], dtypes=MAIN_FLOATS)
    yield from variations("special", [with_values([[256, 0], [0, 1 << 30]], {"dim": 1}, dtypes=("int32",))])
    yield from variations("special", [with_values([[1 << 32, 0], [1 << 40, 1 << 62]], {"dim": 1}, dtypes=("int64",))])
    # True elements whose sum or product is 0, by cancellation, underflow or wrapping.
    cancelling = [[0.5, -0.5], [2.0**-14, 2.0**-14], [-1.0, -2.0], [2.0**-60, 2.0**-100]]
    yield from variations("special", [with_values(cancelling, {"dim": 1})], dtypes=MAIN_FLOATS)
    wrapping = [[1, -1], [-128, -128], [16, 16], [-2, -3]]
    yield from variations("special", [with_values(wrapping, {"dim": 1})], dtypes=("int8", "int32"))
    # The result is 1, not one of these bytes.
    bytes_of_any_size = [[2, 4], [0, 128], [128, 128], [16, 16], [255, 1], [0, 0]]
    yield from variations("special", [with_values(bytes_of_any_size, {"dim": 1})], dtypes=("uint8",))
    yield from variations(
        "special", [with_values([[1 << 32, 1 << 32], [-(2**63), -(2**63)]], {"dim": 1}, dtypes=("int64",))]
    )
    yield from many_rows({}, generator=_MIXED)
    mixed = [{**base_call, "generator": _MIXED} for base_call in every_dim()]
    yield from variations("attributes", mixed, dtypes=("bool", "uint8"))
    yield from variations("empty", [call({"dim": 1}, input=(3, 0)), call(input=(0,)), call({"dim": 0}, input=(3, 0))])
    yield from error_samples(call({"dim": 2}, input=(3, 4)), call({"dim": [0, 0]}, input=(3, 4)))
    for fill in ("ones", "zeros"):
        scalars = [call(input=(), generator=fill), call({"dim": 0, "keepdim": True}, input=(), generator=fill)]
        yield from variations("attributes", scalars, dtypes=("bool", "float32"))
        yield from of_one_element(call({"dim": 1}, input=(1, 1), generator=fill), dtypes=("bool", "float16"))
    yield from in_layouts_at_once([call({"dim": 1}, input=(16, 3), generator=_MIXED)], dtype="float16")
    # Subnormal: not 0, except for a kernel that flushes them.
    least = {"fill": "full", "value": 2.0**-140}
    yield from variations("special", [call({"dim": 1}, input=(3, 4), generator=least)], dtypes=("float32",))
    bytes_of_0 = {"int16": [[256, 256], [1, -(2**15)], [256, 0]], "int32": [[1 << 30, 256], [1, 65536], [256, 0]]}
    for name, values in bytes_of_0.items():
        yield from variations("special", [with_values(values, {"dim": 1}, dtypes=(name,))])
    yield from variations(
        "special", [with_values([2, 4], dtypes=("uint8",)), with_values([0, 128, 2], dtypes=("uint8",))]
    )
    # The last element of a whole vector decides.
    for row in ([1] * 1500 + [0], [0] * 1500 + [1]):
        yield from variations("long", [with_values(row)], dtypes=("bool", "float32"))


all_samples = partial(_truth_samples, [[1, 1, 1, 1], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 0, 0]])
any_samples = partial(_truth_samples, [[0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0], [1, 1, 1, 1]])
_MIXED = {"fill": "randint", "low": 0, "high": 2}
