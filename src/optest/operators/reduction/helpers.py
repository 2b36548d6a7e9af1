"""What reductions share: attributes, inference, and calls that each is asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from math import prod
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, call, table
from optest.operators.describe import attribute
from optest.operators.samples import variations, with_special_values, zero_mean
from optest.operators.shapes import Attributes, Outputs, Shape, Specs, dense, given, reduced_dims
from optest.spec import Sample, TensorSpec, Tier, UnfitArguments, dtype, format_shape

DIMS = attribute("dim|axis|axes: ints = None", "Dimensions to reduce; none means all.")
KEEPDIM = attribute("keepdim|keepdims: bool = False", "Keep reduced dimensions with size 1.")
INT64 = dtype("int64")
DIMS_OF_THREE = (0, 1, -1, -2, -3, [0, 1], [-1, 0], [2, 1], [0, 1, 2], None)
REFUSED = [call({"dim": 2}, input=(3, 4)), call({"dim": [0, 0]}, input=(3, 4)), call({"dim": -3}, input=(3, 4))]
ORDINARY = [
    call({"dim": 1}, input=(4, 37)),
    call(input=(3, 5, 7)),
    call({"dim": [0, 2], "keepdim": True}, input=(3, 5, 7)),
    call({"dim": [1, -1]}, input=(2, 3, 2, 5, 3)),
]


def infer_mean(specs: Specs, attributes: Attributes) -> Outputs:
    """Of floats alone: the mean, the variance, and whatever else keeps their dtype."""
    spec = given(specs, 0, "input")
    require_float(spec)
    return (dense(spec.dtype, reduced(spec, attributes)),)


def terms_of_reduction(specs: Specs, attributes: Attributes) -> int:
    """How many elements one result is made of."""
    spec = given(specs, 0, "input")
    return prod(spec.shape[each] for each in reduced_dims(attributes.get("dim"), spec.rank) if spec.rank)


def reduced(spec: TensorSpec, attributes: Attributes) -> Shape:
    dims = reduced_dims(attributes.get("dim"), spec.rank)
    if attributes.get("keepdim"):
        return tuple(1 if i in dims else size for i, size in enumerate(spec.shape))
    return tuple(size for i, size in enumerate(spec.shape) if i not in dims)


def refuse_nothing(spec: TensorSpec, dims: Collection[int]) -> None:
    """An empty reduction that has no neutral element has no result."""
    empty = [dim for dim in sorted(dims) if dim < spec.rank and spec.shape[dim] == 0]
    if empty:
        raise UnfitArguments(
            f"input is {format_shape(spec.shape)}, but should have 1 or more elements along dimension {empty[0]}, "
            "which is reduced"
        )


def require_float(spec: TensorSpec) -> None:
    if not spec.dtype.is_inexact:
        raise UnfitArguments(f"input is {spec.dtype}, but should be a float")


def every_dim(**attributes: Any) -> Iterator[dict[str, Any]]:
    """Each dimension from either end, several in either order, all, with and without keepdim."""
    for dim in DIMS_OF_THREE:
        for keepdim in (False, True):
            yield call({**attributes, "dim": dim, "keepdim": keepdim}, input=(2, 3, 5))


def written(attributes: Mapping[str, Any], *shape: int) -> dict[str, Any]:
    """A call with nothing, or with 1.5 everywhere, written down: NaN or infinity may be all that comes out."""
    values: Any = 1.5
    for size in reversed(shape):
        values = [values] * size
    return call(attributes, generator={"fill": "data", "values": values}, input=shape)


def sized(attributes: Mapping[str, Any], rows: int = 3) -> Callable[[int], dict[str, Any]]:
    """A call for a length of the reduced dimension."""

    def of(size: int) -> dict[str, Any]:
        return call(attributes, input=(rows, size)) if size > 1 else written(attributes, rows, size)

    return of


def rows_with_specials() -> list[list[Any]]:
    """NaN first and last, infinities alone and opposed, signed zeros, a row of plain numbers."""
    return [
        ["nan", 1.0, 2.0, 3.0],
        [1.0, 2.0, 3.0, "nan"],
        ["inf", 1.0, -2.0, 3.0],
        [1.0, "-inf", 2.0, 3.0],
        ["inf", 1.0, 2.0, "-inf"],
        ["inf", "inf", "inf", "inf"],
        ["-inf", "-inf", "-inf", "-inf"],
        [-0.0, -0.0, -0.0, -0.0],
        [0.5, -2.0, 4.0, 1.5],
    ]


def specials(attributes: Mapping[str, Any]) -> Iterator[Sample]:
    yield from variations("special", [table(rows_with_specials(), {**attributes, "dim": 1})], dtypes=MAIN_FLOATS)
    columns = [list(column) for column in zip(*rows_with_specials(), strict=True)]
    yield from variations("special", [table(columns, {**attributes, "dim": 0})], dtypes=("float32",))
    sprinkled = [call({**attributes, "dim": 1}, input=(16, 37)), call({**attributes, "dim": 0}, input=(9, 35))]
    yield from with_special_values(sprinkled)


def long(attributes: Mapping[str, Any]) -> Iterator[Sample]:
    """Rows of which every length is beyond a tile, a warp, a thread block; the longest down a column in full checks."""
    rows = call({**attributes, "dim": -1}, input=(2, 65536))
    columns = call({**attributes, "dim": 0}, input=(4097, 3))
    yield from variations("long", [rows], dtypes=MAIN_FLOATS)
    yield from variations("long", [columns], dtypes=("float32", "float16"))
    middle = call({**attributes, "dim": 1}, input=(2, 1025, 3))
    yield from variations("long", [middle], dtypes=("float32",))
    yield from many_rows(attributes)
    longest = call({**attributes, "dim": 0}, input=(65537, 3))
    yield from variations("long", [longest], dtypes=("float32",), tier=Tier.FULL)


def many_rows(attributes: Mapping[str, Any], *, generator: Any = None) -> Iterator[Sample]:
    """More results than 16 bits count: a kernel with a block for each row loses those beyond its grid."""
    rows = call({**attributes, "dim": 1}, generator=generator, input=(LARGE_SIZE, 3))
    yield from variations("long", [rows], dtypes=("float32",))


def all_of_many() -> Iterator[Sample]:
    """One result of a vector of one sign: a kernel of its own in many libraries, and partial sums do not cancel."""
    positive = {"fill": "uniform", "low": 1.0, "high": 1.7}
    yield from variations("long", [call(generator=positive, input=(4099,))], dtypes=MAIN_FLOATS)


def of_totals() -> Iterator[Sample]:
    """What sums of every kind are asked."""
    yield from specials({})
    yield from long({})
    yield from all_of_many()
    yield from zero_mean([call({"dim": 1}, input=(3, 4097))])
    yield from of_nothing()


def of_nothing(attributes: Mapping[str, Any] | None = None) -> Iterator[Sample]:
    """Rows of no element have a result each; no rows have none; one element; a scalar."""
    stated = dict(attributes or {})
    calls = [
        written({**stated, "dim": 1}, 3, 0),
        written({**stated, "dim": 0}, 3, 0),
        written(stated, 0),
        written({**stated, "dim": [0, 1], "keepdim": True}, 2, 0, 3),
        written({**stated, "dim": 1}, 5, 1),
        written(stated),
        written({**stated, "dim": -1, "keepdim": True}),
    ]
    yield from variations("empty", calls)
