"""Calls as a plan states them, and what they are made of: sizes, dtypes, fills and layouts of inputs.

A call is plain data, a case without ``op``: ``{"shapes": {"input": [2, 3]}, "attributes": {"dim": -1}}``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optest.spec import contiguous_strides

Call = dict[str, Any]
Layout = dict[str, Any]
Fill = dict[str, Any]
SIZES = (0, 1, 2, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 257, 1023, 1025)
"""Nothing, one, primes, and the sizes around the tiles and vectors of today's kernels."""
TILES = 4_099
"""Several tiles and a tail, asked of the dtypes that are not asked every size."""
LARGE_SIZE = 65_537
"""Beyond what 16 bits index, and more than one block of threads on every device."""
MILLION = (65_537, 17)
"""More than 2^20 elements, where loops over a grid of threads have to go round again, and more rows than the 65,535
blocks that CUDA and HIP launch in a grid's second dimension."""
CALM_SIZES = (0, 1, 7, 17, 64, 129)
"""The same idea where every size costs much."""
MAIN_FLOATS = ("float32", "float16", "bfloat16")
"""The float dtypes that most sets ask."""
EVERY_FLOAT = (*MAIN_FLOATS, "float64")


def call(
    attributes: Mapping[str, Any] | None = None, *, dtypes: Sequence[str] = (), generator: Any = None, **shapes: Any
) -> dict[str, Any]:
    """A call as a plan states it: ``call({"dim": 0}, input=(2, 3))``; an input may be a mapping with strides."""
    laid_out = {name: dict(shape) if isinstance(shape, Mapping) else list(shape) for name, shape in shapes.items()}
    stated: dict[str, Any] = {"shapes": laid_out}
    if attributes:
        stated["attributes"] = dict(attributes)
    if dtypes:
        stated["dtypes"] = list(dtypes)
    if generator is not None:
        stated["generator"] = generator
    return stated


def table(
    values: Sequence[Any], attributes: Mapping[str, Any] | None = None, *, dtypes: Sequence[str] = ()
) -> dict[str, Any]:
    """A call with these values as input, a vector or rows of a matrix."""
    shape = (len(values), len(values[0])) if isinstance(values[0], list) else (len(values),)
    return call(attributes, dtypes=dtypes, generator={"input": data(list(values))}, input=shape)


def line(
    first: float, last: float, attributes: Mapping[str, Any] | None = None, *, count: int = 1021
) -> dict[str, Any]:
    """A call over evenly spaced values, beyond the range of random inputs too."""
    step = (last - first) / (count - 1)
    return call(attributes, input=(count,), generator={"fill": "arange", "start": first, "step": step})


def data(values: Any) -> Fill:
    """The fill of these values, nested like the shape."""
    return {"fill": "data", "values": values}


def full(value: Any) -> Fill:
    return {"fill": "full", "value": value}


def uniform(low: float, high: float) -> Fill:
    return {"fill": "uniform", "low": low, "high": high}


def normal(mean: float, std: float) -> Fill:
    return {"fill": "randn", "mean": mean, "std": std}


ROWS_OF_EVERY_SIGN = {"fill": "randn", "signs": "-+0"}
"""Rows of one sign, in which padding with 0 is the largest or the least element, and rows of both."""
NEAR_OVERFLOW = {**uniform(104.0, 112.0), "signs": "-+"}
"""Without the shift by the maximum, exp is infinite or 0 in float32 throughout a row; padding with 0 outweighs the
negative rows. The range is narrow, so that every term still counts in the sum."""


def without(stated: Call, *names: str) -> dict[str, Any]:
    """The call without some of its inputs."""
    shapes = {name: shape for name, shape in stated["shapes"].items() if name not in names}
    dtypes = stated.get("dtypes", [])
    kept = [dtypes[i] for i, name in enumerate(stated["shapes"]) if name not in names] if len(dtypes) > 1 else dtypes
    return {**stated, "shapes": shapes, **({"dtypes": kept} if dtypes else {})}


def reshaped(stated: Call, **shapes: Any) -> dict[str, Any]:
    """The call with inputs of other shapes or layouts."""
    return {**stated, "shapes": {**stated["shapes"], **shapes}}


def in_dtypes(source: str, dtypes: Sequence[str], calls: Sequence[Call]) -> list[dict[str, Any]]:
    """The calls in each dtype of the input ``source``, from which those of the others follow."""
    return [{**each, "dtypes": {source: name}} for name in dtypes for each in calls]


def layouts_of(shape: Sequence[int]) -> Iterator[Layout]:
    """Layouts of a tensor that are not dense: gaps, padded rows, swapped dimensions, an offset, strides of 0 (one row,
    one column), channels last, negative strides of the first and the last dimension."""
    rank, dense = len(shape), strides_of(shape)
    yield with_gaps(shape)
    yield with_offset(shape)
    if rank > 1:
        yield transposed(shape)
        yield laid(shape, [0, *dense[1:]])
    yield laid(shape, [*dense[:-1], 0])
    yield laid(shape, [-dense[0], *dense[1:]], offset=dense[0] * (shape[0] - 1))
    if rank > 1:
        yield with_padded_rows(shape)
        yield backwards(shape)
    if rank > 2:
        *lead, rows, columns = strides_of([*shape[:-2], shape[-1], shape[-2]])
        yield laid(shape, [*lead, columns, rows])
        yield _with_padded_matrices(shape)
    if rank == 4:
        yield _channels_last(shape)


def laid(shape: Sequence[int], strides: Sequence[int], **offset: int) -> Layout:
    """An input with strides, as a plan states it."""
    return {"shape": list(shape), "strides": list(strides), **offset}


def strides_of(shape: Sequence[int]) -> list[int]:
    """Those of a dense tensor."""
    return list(contiguous_strides(tuple(shape)))


def with_gaps(shape: Sequence[int]) -> Layout:
    return laid(shape, [2 * stride for stride in strides_of(shape)])


def with_padded_rows(shape: Sequence[int]) -> Layout:
    """Rows stand three elements apart: a leading dimension that is no size."""
    return laid(shape, strides_of([*shape[:-1], shape[-1] + 3]))


def with_offset(shape: Sequence[int]) -> Layout:
    """The data begin where no vector load is aligned."""
    return laid(shape, strides_of(shape), offset=3)


def transposed(shape: Sequence[int]) -> Layout:
    return laid(shape, strides_of(shape[::-1])[::-1])


def backwards(shape: Sequence[int]) -> Layout:
    """From the last column to the first."""
    return laid(shape, [*strides_of(shape)[:-1], -1], offset=shape[-1] - 1)


def _with_padded_matrices(shape: Sequence[int]) -> Layout:
    """Rows are adjacent and matrices stand two rows apart, as those of a cache that is not full."""
    return laid(shape, strides_of([*shape[:-2], shape[-2] + 2, shape[-1]]))


def _channels_last(shape: Sequence[int]) -> Layout:
    """Strides of N×C×H×W data that lie as N×H×W×C."""
    n, h, w, c = strides_of([shape[0], shape[2], shape[3], shape[1]])
    return laid(shape, [n, c, h, w])


def padded_where_deep(shape: Sequence[int]) -> Layout:
    return _with_padded_matrices(shape) if len(shape) > 2 else with_padded_rows(shape)


LAYOUTS_AT_ONCE = (with_gaps, with_padded_rows, transposed, with_offset)
