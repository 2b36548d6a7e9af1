"""Slices and elements that are written by index: index_add, index_copy and scatter."""

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
    filled,
    index_patterns,
    indexed,
    infer_scatter_add,
    of,
    outside,
    require_same_rank,
    sizes_of,
    wrong_scatters,
)
from optest.operators.samples import refused, variations
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Specs,
    dense,
    given,
    normalize_dim,
    require_index,
    require_same_dtype,
    require_scalar,
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
        rule=accumulate("terms are the element and alpha times every source that names it, none where no index does"),
        description="A copy of input with the slices of alpha * source added to those that index names along dim; "
        "indices may repeat, in any order. Integers wrap, bool is logical or.",
    ),
    OperatorDescriptor(
        name="index_copy",
        alternatives="index_copy_alternatives",
        description="A copy of input with the slices of source in place of those that index names along dim.",
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
    rule=replace(MOVED, formula="where an index repeats, any of the elements that it names"),
)

infer_scatter = infer_scatter_add


def infer_index_copy(specs: Specs, attributes: Attributes) -> Outputs:
    """As large as input; source has its sizes, but for dim that of index, which has one dimension or is a scalar."""
    source, index, copied = given(specs, 0, "input"), given(specs, 1, "index"), given(specs, 2, "source")
    dim = normalize_dim(attributes["dim"], source.rank)
    require_same_dtype(source, copied, "source")
    require_index(index, "index")
    require_same_rank(source, copied, "source")
    if index.rank > 1:
        raise UnfitArguments(f"index is {format_shape(index.shape)}, but should have 1 dimension")
    sizes = sizes_of(source.shape)
    fitting = (*sizes[:dim], *sizes_of(index.shape), *sizes[dim + 1 :])
    if sizes_of(copied.shape) != fitting:
        raise UnfitArguments(f"source is {format_shape(copied.shape)}, but should be {format_shape(fitting)}")
    return (dense(source.dtype, source.shape),)


def infer_index_add(specs: Specs, attributes: Attributes) -> Outputs:
    require_scalar("alpha", attributes.get("alpha", 1.0), given(specs, 0, "input").dtype)
    return infer_index_copy(specs, attributes)


def longest_index_add(specs: Specs, _attributes: Attributes) -> int:
    """All indices may name one slice, which holds elements already."""
    return given(specs, 1, "index").elements + 1


def _slices(dim: int, shape: Sequence[int], count: int, **attributes: Any) -> dict[str, Any]:
    """A call that writes so many slices."""
    written = list(shape)
    written[dim : dim + 1 or None] = [count]
    return call({"dim": dim, **attributes}, input=shape, index=(count,), source=written)


_ORDINARY = [_slices(1, (5, 37), 9), _slices(0, (9, 6), 20), _slices(1, (3, 7, 5), 6)]


def _of_slices(variants: Sequence[Sequence[str]]) -> Iterator[Sample]:
    special = {"input": MOSTLY_SPECIAL, "source": MOSTLY_SPECIAL}
    yield from indexed("input", _ORDINARY, variants, lambda n: _slices(1, (3, n), n), special)
    each_once = {**_slices(0, (37, 3), 37), "generator": {"index": "arange"}}
    yield from variations("ordinary", of("input", MAIN_FLOATS, [each_once]))
    yield from variations("attributes", _attributes())
    yield from variations("indices", index_patterns(_slices(1, (4, 29), 24), 29))
    yield from variations("indices", [_slices(0, (BEYOND_16_BITS, 2), 64)])
    yield from refused(
        call({"dim": 2}, input=(3, 4), index=(3,), source=(3, 4)),
        call({"dim": 0}, input=(3, 4), index=(2,), source=(3, 4)),
        call({"dim": 0}, input=(3, 4), index=(3, 1), source=(3, 4)),
        call({"dim": 0}, input=(3, 4), index=(3,), source=(3, 5)),
        call({"dim": 0}, input=(3, 4), index=(3,), source=(3, 4), dtypes=("float32", "float32", "float32")),
        call({"dim": 0}, input=(3, 4), index=(3,), source=(3, 4), dtypes=("float32", "int64", "float64")),
    )
    yield from outside(_slices(1, (2, 5), 6), "index", [[0, 1, 2, 3, 4, 4]], 5)


index_copy_samples = partial(_of_slices, _WRITTEN)


def _attributes() -> Iterator[dict[str, Any]]:
    for dim in (0, 1, 2, -1, -2, -3):
        yield _slices(dim, (4, 5, 3), 2)
        yield _slices(dim, (4, 5, 3), 17)
    for shape, dim, count in (((6,), 0, 9), ((4, 5), 1, 0), ((0, 5), 1, 3), ((1, 1), 0, 1), ((2, 7, 3, 2), 1, 5)):
        yield _slices(dim, shape, count)
    yield call({"dim": 0}, input=(), index=(1,), source=())
    yield _slices(3, (2, 3, 2, 4, 3), 9)


def index_add_samples() -> Iterator[Sample]:
    yield from _of_slices(SCATTERED)
    scaled = [_slices(1, (5, 16), 37, alpha=alpha) for alpha in (2.0, -1.5, 0.3, 0.0)]
    yield from variations("attributes", of("input", (*MAIN_FLOATS, "float64"), scaled))
    yield from variations("attributes", of("input", ("int32", "int8"), [_slices(1, (5, 16), 37, alpha=-3.0)]))
    crowds = [_slices(0, (2, 3), 257), _slices(0, (3,), 1500)]
    yield from variations("long", of("input", (*MAIN_FLOATS, "int32", "bool"), crowds))
    exact = {"input": "integer-exact", "source": "integer-exact"}
    yield from variations("integer-exact", of("input", MAIN_FLOATS, filled([*_ORDINARY, crowds[0]], **exact)))
    yield from variations("zero-mean", of("input", MAIN_FLOATS, filled(_ORDINARY[:1], input="randn", source="randn")))
    yield from refused({**_slices(0, (3, 4), 3, alpha=0.5), "dtypes": ["int32", "int64", "int32"]})


def scatter_samples() -> Iterator[Sample]:
    calls = [
        call({"dim": 1}, input=(5, 37), index=(5, 9), src=(5, 9)),
        call({"dim": 0}, input=(9, 6), index=(20, 6), src=(20, 6)),
        call({"dim": 1}, input=(3, 7, 5), index=(2, 6, 4), src=(3, 9, 5)),
    ]

    def rows(n: int) -> Call:
        return call({"dim": 1}, input=(3, n), index=(3, n), src=(3, n))

    yield from indexed("input", calls, _WRITTEN, rows, {"input": MOSTLY_SPECIAL, "src": MOSTLY_SPECIAL})
    each_once = {**rows(37), "generator": {"index": {"fill": "data", "values": [list(range(36, -1, -1))] * 3}}}
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
    several = [call({"dim": dim}, input=source, index=index, src=src) for dim, source, index, src in shapes]
    yield from variations("attributes", several)
    patterns = call({"dim": 1}, input=(4, 53), index=(4, 12), src=(4, 12))
    yield from variations("indices", index_patterns(patterns, 53))
    yield from variations("indices", [call({"dim": 0}, input=(BEYOND_16_BITS,), index=(64,), src=(64,))])
    yield from wrong_scatters()
