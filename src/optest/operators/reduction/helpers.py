"""Shared by the reductions: attributes, inference, and case sets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from math import prod
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, call, with_values
from optest.operators.describe import attribute
from optest.operators.samples import variations, with_special_values, zero_mean
from optest.operators.shapes import Attributes, Outputs, Shape, Specs, dense, reduced_dims, require_spec
from optest.spec import Sample, TensorSpec, Tier, UnfitArguments, dtype, format_shape

DIMS = attribute("dim|axis|axes: ints = None", "Dimensions to reduce; None means all.")
KEEPDIM = attribute("keepdim|keepdims: bool = False", "Keep reduced dimensions with size 1.")
INT64 = dtype("int64")
REFUSED = [call({"dim": 2}, input=(3, 4)), call({"dim": [0, 0]}, input=(3, 4)), call({"dim": -3}, input=(3, 4))]
ORDINARY = [
    call({"dim": 1}, input=(4, 37)),
    call(input=(3, 5, 7)),
    call({"dim": [0, 2], "keepdim": True}, input=(3, 5, 7)),
    call({"dim": [1, -1]}, input=(2, 3, 2, 5, 3)),
]


def infer_mean(specs: Specs, attributes: Attributes) -> Outputs:
    """Return an output of the input's dtype without the reduced dimensions; raise UnfitArguments unless a float."""
    spec = require_spec(specs, 0, "input")
    require_inexact(spec)
    return (dense(spec.dtype, reduced_shape(spec, attributes)),)


def terms_of_reduction(specs: Specs, attributes: Attributes) -> int:
    """Return the number of elements that one output element reduces."""
    spec = require_spec(specs, 0, "input")
    return prod(spec.shape[dim] for dim in reduced_dims(attributes.get("dim"), spec.rank) if spec.rank)


def reduced_shape(spec: TensorSpec, attributes: Attributes) -> Shape:
    """Return the shape without the dimensions in ``dim``, or with size 1 there if ``keepdim``."""
    dims = reduced_dims(attributes.get("dim"), spec.rank)
    if attributes.get("keepdim"):
        return tuple(1 if i in dims else size for i, size in enumerate(spec.shape))
    return tuple(size for i, size in enumerate(spec.shape) if i not in dims)


def refuse_empty(spec: TensorSpec, dims: Collection[int]) -> None:
    """Raise UnfitArguments if one of the reduced ``dims`` is empty: for reductions without a neutral element."""
    empty = [dim for dim in sorted(dims) if dim < spec.rank and spec.shape[dim] == 0]
    if empty:
        raise UnfitArguments(
            f"input is {format_shape(spec.shape)}, expected 1 or more elements along dimension {empty[0]}, "
            "which is reduced"
        )


def require_inexact(spec: TensorSpec) -> None:
    """Raise UnfitArguments if the input is an integer or bool."""
    if not spec.dtype.is_inexact:
        raise UnfitArguments(f"input is {spec.dtype}, expected a float")


def every_dim(**attributes: Any) -> Iterator[dict[str, Any]]:
    """Yield calls that reduce each dimension, several in either order, and all, with and without keepdim."""
    for dim in (0, 1, -1, -2, -3, [0, 1], [-1, 0], [2, 1], [0, 1, 2], None):
        for keepdim in (False, True):
            yield call({**attributes, "dim": dim, "keepdim": keepdim}, input=(2, 3, 5))


def constant_call(attributes: Mapping[str, Any], *shape: int) -> dict[str, Any]:
    """Return a call with 1.5 in every element of a shape, or no elements, as explicit values."""
    # Results may all be NaN or infinity here, which a case with random values must not have.
    values: Any = 1.5
    for size in reversed(shape):
        values = [values] * size
    return call(attributes, generator={"fill": "data", "values": values}, input=shape)


def calls_of_length(attributes: Mapping[str, Any], rows: int = 3) -> Callable[[int], dict[str, Any]]:
    """Return a function that returns a call for a length of the last dimension, which is reduced."""
    return lambda size: call(attributes, input=(rows, size)) if size > 1 else constant_call(attributes, rows, size)


def rows_with_specials() -> list[list[Any]]:
    """Return rows with NaN first and last, infinities of one and of both signs, negative zeros, and finite numbers."""
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


def special_samples(attributes: Mapping[str, Any]) -> Iterator[Sample]:
    """Yield samples with special values, in rows and columns and at random positions."""
    yield from variations("special", [with_values(rows_with_specials(), {**attributes, "dim": 1})], dtypes=MAIN_FLOATS)
    columns = [list(column) for column in zip(*rows_with_specials(), strict=True)]
    yield from variations("special", [with_values(columns, {**attributes, "dim": 0})], dtypes=("float32",))
    random = [call({**attributes, "dim": 1}, input=(16, 37)), call({**attributes, "dim": 0}, input=(9, 35))]
    yield from with_special_values(random)


def long_samples(attributes: Mapping[str, Any]) -> Iterator[Sample]:
    """Yield samples that reduce rows, columns and a middle dimension longer than a tile, a warp or a thread block."""
    for dim, shape, dtypes in (
        (-1, (2, 65536), MAIN_FLOATS),
        (0, (4097, 3), ("float32", "float16")),
        (1, (2, 1025, 3), ("float32",)),
    ):
        yield from variations("long", [call({**attributes, "dim": dim}, input=shape)], dtypes=dtypes)
    yield from many_rows(attributes)
    longest = call({**attributes, "dim": 0}, input=(65537, 3))
    yield from variations("long", [longest], dtypes=("float32",), tier=Tier.FULL)


def many_rows(attributes: Mapping[str, Any], *, generator: Any = None) -> Iterator[Sample]:
    """Yield a sample with more rows than 16 bits count."""
    # A kernel with a block for each row loses those beyond its grid.
    rows = call({**attributes, "dim": 1}, generator=generator, input=(LARGE_SIZE, 3))
    yield from variations("long", [rows], dtypes=("float32",))


def long_total() -> Iterator[Sample]:
    """Yield samples that reduce a whole vector of positive numbers."""
    # Many libraries have a separate kernel for it. With one sign, partial sums do not cancel.
    positive = {"fill": "uniform", "low": 1.0, "high": 1.7}
    yield from variations("long", [call(generator=positive, input=(4099,))], dtypes=MAIN_FLOATS)


def total_samples() -> Iterator[Sample]:
    """Yield the samples that every kind of sum has: special, long, of zero mean, and empty."""
    yield from special_samples({})
    yield from long_samples({})
    yield from long_total()
    yield from zero_mean([call({"dim": 1}, input=(3, 4097))])
    yield from empty_samples()


def empty_samples(attributes: Mapping[str, Any] | None = None) -> Iterator[Sample]:
    """Yield samples without elements, with rows of one element, and with a scalar."""
    common = dict(attributes or {})
    calls = [
        constant_call({**common, "dim": 1}, 3, 0),
        constant_call({**common, "dim": 0}, 3, 0),
        constant_call(common, 0),
        constant_call({**common, "dim": [0, 1], "keepdim": True}, 2, 0, 3),
        constant_call({**common, "dim": 1}, 5, 1),
        constant_call(common),
        constant_call({**common, "dim": -1, "keepdim": True}),
    ]
    yield from variations("empty", calls)
