"""Operators that write slices or elements by index: index_add, index_copy and scatter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from optest.operators.calls import MAIN_FLOATS, Call, call
from optest.operators.describe import EVERY, accumulate, attribute, in_module
from optest.operators.indexing.gather import (
    BEYOND_16_BITS,
    MOSTLY_SPECIAL,
    MOVED,
    SCATTERED,
    index_patterns,
    indexed,
    infer_scatter_add,
    of,
    outside,
    require_same_rank,
    sizes_of,
    with_fills,
    wrong_scatters,
)
from optest.operators.samples import error_samples, variations
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Specs,
    dense,
    normalize_dim,
    require_index,
    require_same_dtype,
    require_scalar,
    require_spec,
)
from optest.spec import OperatorDescriptor, Sample, UnfitArguments, format_shape

_DIM = attribute("dim|axis: int", "Dimension that is indexed.")
_WRITTEN = tuple((name, index, name) for index in ("int64", "int32") for (name,) in EVERY)

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="index_add",
        attributes=(_DIM, attribute("alpha: float = 1.0", "Factor of source.")),
        dtype_variants=SCATTERED,
        sum_length="longest_index_add",
        rule=accumulate(
            "terms are the element and alpha times every source element added to it; an element that no index selects "
            "is exact"
        ),
        description="A copy of input with the slices of alpha * source added to the slices that index selects; "
        "indices may repeat, in any order. Integers wrap, bool is logical or.",
    ),
    OperatorDescriptor(
        name="index_copy",
        alternatives="index_copy_alternatives",
        description="A copy of input in which the slices of source replace the slices selected by index along dim.",
    ),
    OperatorDescriptor(
        name="scatter",
        signature="input, index, src -> out",
        aliases=("scatter_elements",),
        alternatives="scatter_alternatives",
        description="A copy of input with out[index[i][j]][j] = src[i][j] for dim 0.",
    ),
    domain="gather:index_domain",
    generator={"index": "randint"},
    signature="input, index, source -> out",
    attributes=(_DIM,),
    dtype_variants=_WRITTEN,
    rule=replace(MOVED, formula="if an index repeats, any of the elements written to it"),
)

# Both operators accept the same shapes.
infer_scatter = infer_scatter_add


def infer_index_copy(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output spec, of the shape of input.

    source has the sizes of input, but along dim that of index, which has one dimension or is a scalar.
    """
    source, index, written = (
        require_spec(specs, 0, "input"),
        require_spec(specs, 1, "index"),
        require_spec(specs, 2, "source"),
    )
    dim = normalize_dim(attributes["dim"], source.rank)
    require_same_dtype(source, written, "source")
    require_index(index, "index")
    require_same_rank(source, written, "source")
    if index.rank > 1:
        raise UnfitArguments(f"index is {format_shape(index.shape)}, expected 1 dimension")
    sizes = sizes_of(source.shape)
    expected = (*sizes[:dim], *sizes_of(index.shape), *sizes[dim + 1 :])
    if sizes_of(written.shape) != expected:
        raise UnfitArguments(f"source is {format_shape(written.shape)}, expected {format_shape(expected)}")
    return (dense(source.dtype, source.shape),)


def infer_index_add(specs: Specs, attributes: Attributes) -> Outputs:
    require_scalar("alpha", attributes.get("alpha", 1.0), require_spec(specs, 0, "input").dtype)
    return infer_index_copy(specs, attributes)


def longest_index_add(specs: Specs, _dim_and_shape_calls: Attributes) -> int:
    """Return the maximum number of terms of an output: its own element and one for each index."""
    return require_spec(specs, 1, "index").elements + 1


def _slice_call(dim: int, shape: Sequence[int], count: int, **attributes: Any) -> dict[str, Any]:
    """Return a call that writes `count` slices along `dim`."""
    written = list(shape)
    written[dim : dim + 1 or None] = [count]
    return call({"dim": dim, **attributes}, input=shape, index=(count,), source=written)


_ORDINARY = [_slice_call(1, (5, 37), 9), _slice_call(0, (9, 6), 20), _slice_call(1, (3, 7, 5), 6)]


def _slice_samples(variants: Sequence[Sequence[str]]) -> Iterator[Sample]:
    """Yield the case sets of an operator that writes slices, in every variant of dtypes."""
    special = {"input": MOSTLY_SPECIAL, "source": MOSTLY_SPECIAL}
    yield from indexed("input", _ORDINARY, variants, lambda n: _slice_call(1, (3, n), n), special)
    # Each slice is written once, so that the result does not depend on the order of writes.
    each_once = {**_slice_call(0, (37, 3), 37), "generator": {"index": "arange"}}
    yield from variations("ordinary", of("input", MAIN_FLOATS, [each_once]))
    yield from variations("attributes", _dim_and_shape_calls())
    yield from variations("indices", index_patterns(_slice_call(1, (4, 29), 24), 29))
    yield from variations("indices", [_slice_call(0, (BEYOND_16_BITS, 2), 64)])
    yield from error_samples(
        call({"dim": 2}, input=(3, 4), index=(3,), source=(3, 4)),
        call({"dim": 0}, input=(3, 4), index=(2,), source=(3, 4)),
        call({"dim": 0}, input=(3, 4), index=(3, 1), source=(3, 4)),
        call({"dim": 0}, input=(3, 4), index=(3,), source=(3, 5)),
        call({"dim": 0}, input=(3, 4), index=(3,), source=(3, 4), dtypes=("float32", "float32", "float32")),
        call({"dim": 0}, input=(3, 4), index=(3,), source=(3, 4), dtypes=("float32", "int64", "float64")),
    )
    yield from outside(_slice_call(1, (2, 5), 6), "index", [[0, 1, 2, 3, 4, 4]], 5)


index_copy_samples = partial(_slice_samples, _WRITTEN)


def _dim_and_shape_calls() -> Iterator[dict[str, Any]]:
    """Yield calls along each dimension, and with empty, scalar and deep inputs."""
    for dim in (0, 1, 2, -1, -2, -3):
        yield _slice_call(dim, (4, 5, 3), 2)
        yield _slice_call(dim, (4, 5, 3), 17)
    for shape, dim, count in (((6,), 0, 9), ((4, 5), 1, 0), ((0, 5), 1, 3), ((1, 1), 0, 1), ((2, 7, 3, 2), 1, 5)):
        yield _slice_call(dim, shape, count)
    yield call({"dim": 0}, input=(), index=(1,), source=())
    yield _slice_call(3, (2, 3, 2, 4, 3), 9)


def index_add_samples() -> Iterator[Sample]:
    yield from _slice_samples(SCATTERED)
    # A kernel that ignores alpha, or applies it to input, fails for these.
    scaled = [_slice_call(1, (5, 16), 37, alpha=alpha) for alpha in (2.0, -1.5, 0.3, 0.0)]
    yield from variations("attributes", of("input", (*MAIN_FLOATS, "float64"), scaled))
    yield from variations("attributes", of("input", ("int32", "int8"), [_slice_call(1, (5, 16), 37, alpha=-3.0)]))
    # Many slices are added to one: narrow accumulators and lost atomic updates differ.
    crowds = [_slice_call(0, (2, 3), 257), _slice_call(0, (3,), 1500)]
    yield from variations("long", of("input", (*MAIN_FLOATS, "int32", "bool"), crowds))
    exact = {"input": "integer-exact", "source": "integer-exact"}
    yield from variations("integer-exact", of("input", MAIN_FLOATS, with_fills([*_ORDINARY, crowds[0]], **exact)))
    yield from variations(
        "zero-mean", of("input", MAIN_FLOATS, with_fills(_ORDINARY[:1], input="randn", source="randn"))
    )
    yield from error_samples({**_slice_call(0, (3, 4), 3, alpha=0.5), "dtypes": ["int32", "int64", "int32"]})


def scatter_samples() -> Iterator[Sample]:
    calls = [
        call({"dim": 1}, input=(5, 37), index=(5, 9), src=(5, 9)),
        call({"dim": 0}, input=(9, 6), index=(20, 6), src=(20, 6)),
        call({"dim": 1}, input=(3, 7, 5), index=(2, 6, 4), src=(3, 9, 5)),
    ]

    def row_call(n: int) -> Call:
        return call({"dim": 1}, input=(3, n), index=(3, n), src=(3, n))

    yield from indexed("input", calls, _WRITTEN, row_call, {"input": MOSTLY_SPECIAL, "src": MOSTLY_SPECIAL})
    # A permutation: every element is written exactly once.
    each_once = {**row_call(37), "generator": {"index": {"fill": "data", "values": [list(range(36, -1, -1))] * 3}}}
    yield from variations("ordinary", of("input", MAIN_FLOATS, [each_once]))
    for dim in (0, 1, 2, -1, -2, -3):
        yield from variations("attributes", [call({"dim": dim}, input=(4, 5, 3), index=(4, 5, 3), src=(4, 5, 3))])
    shapes: Sequence[tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = (
        (0, (4, 5), (9, 3), (11, 4)),
        (1, (4, 5), (3, 9), (4, 9)),
        (0, (), (), ()),
        (1, (4, 5), (4, 0), (4, 2)),
        (1, (2, 7, 3, 2), (2, 5, 3, 2), (2, 6, 3, 2)),
        (3, (2, 3, 2, 4, 3), (2, 2, 2, 9, 3), (2, 3, 2, 9, 3)),
        (0, (1025, 3), (1025, 3), (1025, 3)),
    )
    cases = [call({"dim": dim}, input=source, index=index, src=src) for dim, source, index, src in shapes]
    yield from variations("attributes", cases)
    patterns = call({"dim": 1}, input=(4, 53), index=(4, 12), src=(4, 12))
    yield from variations("indices", index_patterns(patterns, 53))
    yield from variations("indices", [call({"dim": 0}, input=(BEYOND_16_BITS,), index=(64,), src=(64,))])
    yield from wrong_scatters()
