"""Calls in the form of a plan, and their parts: sizes, dtypes, fills and layouts of inputs.

A call is plain data, a case without ``op``: ``{"shapes": {"input": [2, 3]}, "attributes": {"dim": -1}}``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optest.spec import contiguous_strides

Call = dict[str, Any]
Layout = dict[str, Any]
Fill = dict[str, Any]
# Empty, one, primes, and the sizes around the tiles and vectors of today's kernels.
SIZES = (0, 1, 2, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 257, 1023, 1025)
# Several tiles and a tail, for the dtypes that do not get every size.
TILES = 4_099
# Beyond the range of 16-bit indices, and more than one block of threads on every device.
LARGE_SIZE = 65_537
# More than 2^20 elements, where grid-stride loops need a second iteration, and more rows than the 65,535 blocks that
# CUDA and HIP launch in a grid's second dimension.
MILLION = (65_537, 17)
# A short form of SIZES for operators with slow references.
CALM_SIZES = (0, 1, 7, 17, 64, 129)
# The float dtypes of most case sets.
MAIN_FLOATS = ("float32", "float16", "bfloat16")
EVERY_FLOAT = (*MAIN_FLOATS, "float64")


def call(
    attributes: Mapping[str, Any] | None = None, *, dtypes: Sequence[str] = (), generator: Any = None, **shapes: Any
) -> dict[str, Any]:
    """Build a call: ``call({"dim": 0}, input=(2, 3))``. A shape may be a mapping with strides; see :func:`laid`."""
    laid_out = {name: dict(shape) if isinstance(shape, Mapping) else list(shape) for name, shape in shapes.items()}
    case: dict[str, Any] = {"shapes": laid_out}
    if attributes:
        case["attributes"] = dict(attributes)
    if dtypes:
        case["dtypes"] = list(dtypes)
    if generator is not None:
        case["generator"] = generator
    return case


def with_values(
    values: Sequence[Any], attributes: Mapping[str, Any] | None = None, *, dtypes: Sequence[str] = ()
) -> dict[str, Any]:
    """Build a call whose ``input`` has these values: a vector, or a matrix from a list of rows."""
    shape = (len(values), len(values[0])) if isinstance(values[0], list) else (len(values),)
    return call(attributes, dtypes=dtypes, generator={"input": data_fill(list(values))}, input=shape)


def linspace_call(
    first: float, last: float, attributes: Mapping[str, Any] | None = None, *, count: int = 1021
) -> dict[str, Any]:
    """Build a call whose ``input`` is a vector of ``count`` evenly spaced values from ``first`` to ``last``."""
    step = (last - first) / (count - 1)
    return call(attributes, input=(count,), generator={"fill": "arange", "start": first, "step": step})


def data_fill(values: Any) -> Fill:
    """Build a fill with these values, nested like the shape."""
    return {"fill": "data", "values": values}


def full(value: Any) -> Fill:
    """Build a fill with one value for all elements."""
    return {"fill": "full", "value": value}


def uniform(low: float, high: float) -> Fill:
    """Build a fill with random values, uniform between ``low`` and ``high``."""
    return {"fill": "uniform", "low": low, "high": high}


def normal(mean: float, std: float) -> Fill:
    """Build a fill with random values of a normal distribution."""
    return {"fill": "randn", "mean": mean, "std": std}


# In rows of one sign, a kernel that pads with 0 has the largest or the smallest element wrong.
ROWS_OF_EVERY_SIGN = {"fill": "randn", "signs": "-+0"}
# Without the shift by the maximum, exp is infinite or 0 in float32 throughout a row; padding with 0 outweighs the
# negative rows. The range is narrow, so that every term still counts in the sum.
NEAR_OVERFLOW = {**uniform(104.0, 112.0), "signs": "-+"}


def without(case: Call, *names: str) -> dict[str, Any]:
    """Return a copy of the call without the named inputs, and without their dtypes if each input has one."""
    shapes = {name: shape for name, shape in case["shapes"].items() if name not in names}
    dtypes = case.get("dtypes", [])
    kept = [dtypes[i] for i, name in enumerate(case["shapes"]) if name not in names] if len(dtypes) > 1 else dtypes
    return {**case, "shapes": shapes, **({"dtypes": kept} if dtypes else {})}


def reshaped(case: Call, **shapes: Any) -> dict[str, Any]:
    """Return a copy of the call with other shapes or layouts for the named inputs."""
    return {**case, "shapes": {**case["shapes"], **shapes}}


def in_dtypes(source: str, dtypes: Sequence[str], calls: Sequence[Call]) -> list[dict[str, Any]]:
    """Return every call once for each dtype of the input ``source``; the dtypes of other inputs follow from it."""
    return [{**case, "dtypes": {source: name}} for name in dtypes for case in calls]


def layouts_of(shape: Sequence[int]) -> Iterator[Layout]:
    """Yield layouts that are not dense, as far as the rank allows them.

    They are gaps, an offset, swapped dimensions, strides of 0 (one row, one column), negative strides of the first and
    the last dimension, padded rows and matrices, and channels last.
    """
    rank, dense = len(shape), strides_of(shape)
    yield with_gaps(shape)
    yield with_offset(shape)
    if rank > 1:
        yield transposed(shape)
        yield with_strides(shape, [0, *dense[1:]])
    yield with_strides(shape, [*dense[:-1], 0])
    yield with_strides(shape, [-dense[0], *dense[1:]], offset=dense[0] * (shape[0] - 1))
    if rank > 1:
        yield with_padded_rows(shape)
        yield backwards(shape)
    if rank > 2:
        *lead, rows, columns = strides_of([*shape[:-2], shape[-1], shape[-2]])
        yield with_strides(shape, [*lead, columns, rows])
        yield _with_padded_matrices(shape)
    if rank == 4:
        # N×C×H×W stored as N×H×W×C.
        n, h, w, c = strides_of([shape[0], shape[2], shape[3], shape[1]])
        yield with_strides(shape, [n, c, h, w])


def with_strides(shape: Sequence[int], strides: Sequence[int], **offset: int) -> Layout:
    """Build an input with strides in elements, in the form of a plan."""
    return {"shape": list(shape), "strides": list(strides), **offset}


def strides_of(shape: Sequence[int]) -> list[int]:
    """Return the strides of a dense tensor in elements."""
    return list(contiguous_strides(tuple(shape)))


def with_gaps(shape: Sequence[int]) -> Layout:
    """Return a layout in which every other element of the memory belongs to the tensor."""
    return with_strides(shape, [2 * stride for stride in strides_of(shape)])


def with_padded_rows(shape: Sequence[int]) -> Layout:
    """Return a layout with three unused elements after each row: a leading dimension that is not the row length."""
    return with_strides(shape, strides_of([*shape[:-1], shape[-1] + 3]))


def with_offset(shape: Sequence[int]) -> Layout:
    """Return a dense layout that starts three elements into its memory, where no vector load is aligned."""
    return with_strides(shape, strides_of(shape), offset=3)


def transposed(shape: Sequence[int]) -> Layout:
    """Return a layout with the first dimension innermost, as of a transposed tensor."""
    return with_strides(shape, strides_of(shape[::-1])[::-1])


def backwards(shape: Sequence[int]) -> Layout:
    """Return a layout with a stride of -1 in the last dimension."""
    return with_strides(shape, [*strides_of(shape)[:-1], -1], offset=shape[-1] - 1)


def _with_padded_matrices(shape: Sequence[int]) -> Layout:
    """Return a layout with two unused rows after each matrix, as of a cache that is not full."""
    return with_strides(shape, strides_of([*shape[:-2], shape[-2] + 2, shape[-1]]))


def padded_where_deep(shape: Sequence[int]) -> Layout:
    """Return a layout with padded matrices; with padded rows if the tensor has fewer than three dimensions."""
    return _with_padded_matrices(shape) if len(shape) > 2 else with_padded_rows(shape)


LAYOUTS_AT_ONCE = (with_gaps, with_padded_rows, transposed, with_offset)
