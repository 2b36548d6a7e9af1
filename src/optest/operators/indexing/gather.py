"""Operators that read or add elements by index: gather, index_select, take, scatter_add and embedding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from optest.operators.calls import CALM_SIZES, MAIN_FLOATS, SIZES, Call, call, data_fill, full
from optest.operators.describe import BOOL, EVERY, NUMBERS, accumulate, attribute, in_module, movement
from optest.operators.samples import (
    error_samples,
    in_every_dtype,
    in_every_layout,
    in_layouts_at_once,
    of_one_element,
    variations,
)
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Shape,
    Specs,
    dense,
    first_size,
    index_range,
    normalize_dim,
    require_index,
    require_same_dtype,
    require_spec,
)
from optest.spec import Interval, OperatorDescriptor, Sample, TensorSpec, Tier, UnfitArguments, format_shape
from optest.spec.declared_shapes import inference, match_declaration

MOVED = movement("elements move and never change; indices are exact")
_INDEXED_DIM = attribute("dim|axis: int", "Dimension that is indexed.")
# torch accepts int32 and int64 indices only.
INDEXED = tuple((name, index) for index in ("int64", "int32") for (name,) in EVERY)
SCATTERED = tuple((name, index, name) for index in ("int64", "int32") for (name,) in (*NUMBERS, *BOOL))

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="gather",
        aliases=("gather_elements", "take_along_axis"),
        attributes=(_INDEXED_DIM,),
        description="out[i][j] = input[index[i][j]][j] for dim 0; negative indices are refused, unlike in ONNX.",
    ),
    OperatorDescriptor(
        name="index_select",
        attributes=(_INDEXED_DIM,),
        description="Slices of input along dim, in the order of index. An index of several dimensions, which torch "
        "does not take, replaces dim by its dimensions, as ONNX's Gather. Negative indices are refused.",
    ),
    OperatorDescriptor(
        name="take",
        domain="take_domain",
        description="Elements of input as if it had one dimension, in the shape of index. Negative indices count from "
        "the end.",
    ),
    OperatorDescriptor(
        name="scatter_add",
        signature="input, index, src -> out",
        attributes=(_INDEXED_DIM,),
        dtype_variants=SCATTERED,
        sum_length="longest_scatter",
        rule=accumulate(
            "terms are the element and every src element added to it; an element that no index selects is exact"
        ),
        description="A copy of input with out[index[i][j]][j] += src[i][j] for dim 0; indices may repeat, in any "
        "order. Integers wrap, bool is logical or.",
    ),
    OperatorDescriptor(
        name="embedding",
        signature="weight, indices -> out",
        attributes=(attribute("padding_idx: int = None", "Row without a gradient; it is looked up like any other."),),
        domain="embedding_domain",
        generator={"indices": "randint"},
        description="Rows of weight by index: the shape of indices, then the size of a row.",
    ),
    dtype_variants=INDEXED,
    domain="index_domain",
    generator={"index": "randint"},
    rule=MOVED,
    signature="input, index -> out",
)


def infer_gather(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output spec: the dtype of input, the shape of index.

    index may be smaller than input in every dimension, and larger along dim. An index without elements may have any
    dtype and rank, as in torch.

    Raises:
        UnfitArguments: for another index with elements: of a dtype that is no index, or another rank or a larger size
            than input; and for a dim that is out of range.
    """
    source, index = require_spec(specs, 0, "input"), require_spec(specs, 1, "index")
    dim = normalize_dim(attributes["dim"], source.rank)
    if index.elements:  # torch checks neither dtype nor rank of an empty index
        require_index(index, "index")
        require_same_rank(source, index, "index")
        for axis, (size, limit) in enumerate(zip(sizes_of(index.shape), sizes_of(source.shape), strict=True)):
            if axis != dim and size > limit:
                raise UnfitArguments(
                    f"index is {format_shape(index.shape)}, expected at most {limit} at dimension {axis}, as input"
                )
    return (dense(source.dtype, index.shape),)


def infer_index_select(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output spec: the dimensions of index replace dim.

    A 0-d index counts as 1 element. A 0-d input accepts only an index of 1 element and gives a 0-d output.
    """
    source, index = require_spec(specs, 0, "input"), require_spec(specs, 1, "index")
    dim = normalize_dim(attributes["dim"], source.rank)
    require_index(index, "index")
    if not source.rank:
        if index.elements != 1:
            raise UnfitArguments(f"index is {format_shape(index.shape)}, expected 1 element, as input is a scalar")
        return (dense(source.dtype, ()),)
    return (dense(source.dtype, (*source.shape[:dim], *sizes_of(index.shape), *source.shape[dim + 1 :])),)


infer_take = inference("input: T[*shape], index: index[*sizes] -> T[*sizes]")


def infer_scatter_add(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output spec, of the shape of input.

    index must not be larger than src, nor than input except along dim.
    """
    source, index, src = require_spec(specs, 0, "input"), require_spec(specs, 1, "index"), require_spec(specs, 2, "src")
    dim = normalize_dim(attributes["dim"], source.rank)
    require_same_dtype(source, src, "src")
    if index.elements:
        require_index(index, "index")
        require_same_rank(source, index, "index")
        require_same_rank(source, src, "src")
        sizes = zip(sizes_of(index.shape), sizes_of(source.shape), sizes_of(src.shape), strict=True)
        for axis, (size, in_input, in_src) in enumerate(sizes):
            if (axis != dim and size > in_input) or size > in_src:
                raise UnfitArguments(
                    f"index is {format_shape(index.shape)}, expected no size larger than in src, "
                    f"{format_shape(src.shape)}, or in input, {format_shape(source.shape)} (except along dim {dim})"
                )
    return (dense(source.dtype, source.shape),)


def require_same_rank(source: TensorSpec, spec: TensorSpec, name: str) -> None:
    """Raise UnfitArguments unless `spec` has the rank of `source`; a scalar counts as 1 dimension."""
    if max(spec.rank, 1) != max(source.rank, 1):
        raise UnfitArguments(f"{name} is {format_shape(spec.shape)}, expected {source.rank} dimensions, as input")


def sizes_of(shape: Shape) -> Shape:
    """Return `shape`, or (1,) for a scalar, as torch counts it."""
    return shape or (1,)


def infer_embedding(specs: Specs, attributes: Attributes) -> Outputs:
    n, outputs = match_declaration(specs, "weight: T[rows, columns], indices: index[*shape] -> T[*shape, columns]")
    require_padding(attributes, n.rows)
    return outputs


def require_padding(attributes: Attributes, rows: int) -> None:
    """Raise UnfitArguments unless padding_idx is None or a row of weight, counted from either end."""
    padding = attributes.get("padding_idx")
    if padding is not None and not -rows <= padding < rows:
        raise UnfitArguments(f"padding_idx is {padding}, expected a row of weight, {-rows} to {rows - 1}")


def index_domain(specs: Specs, attributes: Attributes) -> Mapping[str, Interval]:
    """Return the valid range of index along dim of the first input; no range if input or dim is unusable."""
    source, dim = specs[0], attributes["dim"]
    if source is None or not -max(source.rank, 1) <= dim < max(source.rank, 1):
        return {}
    return {"index": index_range(sizes_of(source.shape)[dim])}


def take_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """Return the range of indices into the flattened input."""
    return {"index": index_range(specs[0].elements)} if specs[0] is not None else {}


def embedding_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """Return the range of indices: the rows of weight."""
    return {"indices": index_range(first_size(specs, 0))}


def longest_scatter(specs: Specs, attributes: Attributes) -> int:
    """Return the maximum number of terms of an output: its own element and all indices along dim; 2 without shapes."""
    source, index = specs[0], specs[1]
    if source is None or index is None or not index.rank:
        return 2
    dim: int = attributes["dim"] % max(source.rank, 1)
    return index.shape[dim % index.rank] + 1


BEYOND_16_BITS = 70001
# A high rate, so that −0 and NaN are among the few elements that are selected.
MOSTLY_SPECIAL = {"fill": "special", "rate": 0.9}


def of(source: str, dtypes: Sequence[str], calls: Iterable[Mapping[str, Any]]) -> Iterator[Call]:
    """Yield each call once per dtype of input `source`; the dtypes of the other inputs follow from the descriptor."""
    for case in calls:
        for name in dtypes:
            yield {**case, "dtypes": {source: name}}


def with_fills(calls: Iterable[Call], **fills: Any) -> Iterator[Call]:
    """Yield each call with `fills` as its generator."""
    for case in calls:
        yield {**case, "generator": fills}


def indexed(
    source: str,
    calls: Sequence[Call],
    variants: Iterable[Sequence[str]],
    sized: Callable[[int], Call],
    fills: Mapping[str, Any],
) -> Iterator[Sample]:
    """Yield the case sets that every operator with an index has; `fills` generates the inputs of set special."""
    yield Sample(case_set="ordinary", case=calls[0], tier=Tier.SMOKE)
    yield from variations("ordinary", of(source, MAIN_FLOATS, calls))
    yield from in_every_dtype(calls[:1], variants)
    yield from in_every_layout(calls[:1])
    yield from variations("sizes", of(source, ("float32", "float16"), map(sized, SIZES)))
    yield from variations("special", of(source, MAIN_FLOATS, with_fills(calls[:2], **fills)))
    for sample in in_layouts_at_once(calls[:1]):
        yield from variations("layouts", of(source, ("float32", "float16"), [sample.case]))


def gather_samples() -> Iterator[Sample]:
    calls = [
        call({"dim": 1}, input=(5, 37), index=(5, 9)),
        call({"dim": 0}, input=(7, 6), index=(11, 6)),
        call({"dim": 1}, input=(2, 9, 5), index=(2, 13, 5)),
    ]
    yield from indexed(
        "input", calls, INDEXED, lambda n: call({"dim": 1}, input=(3, n), index=(3, n)), {"input": MOSTLY_SPECIAL}
    )
    attributes = [
        *(
            call({"dim": dim}, input=(4, 5, 3), index=size)
            for dim in (0, 1, 2, -1, -2, -3)
            for size in ((4, 5, 3), (2, 3, 1))
        ),
        call({"dim": -1}, input=(4, 5), index=(4, 64)),
        call({"dim": 0}, input=(1025, 3), index=(1025, 3)),
        call({"dim": 1}, input=(2, 301, 3), index=(2, 301, 3)),
        call({"dim": 0}, input=(6,), index=(9,)),
        call({"dim": 0}, input=(), index=()),
        call({"dim": 0}, input=(), index=(3,)),
        call({"dim": 1}, input=(4, 5), index=(4, 0)),
        call({"dim": 1}, input=(2, 7, 3, 2), index=(2, 5, 3, 2)),
        call({"dim": 3}, input=(2, 3, 2, 4, 3), index=(2, 2, 2, 9, 3)),
        call({"dim": 0}, input=(4, 5), index=(6, 3)),
        call({"dim": 1}, input=(4, 5), index={"shape": [4, 6], "strides": [12, 2]}, dtypes=("float32", "int32")),
    ]
    yield from variations("attributes", attributes)
    yield from variations("indices", index_patterns(call({"dim": 1}, input=(4, 29), index=(4, 6)), 29))
    yield from variations("indices", [call({"dim": 0}, input=(BEYOND_16_BITS,), index=(64,))])
    # A kernel that truncates an index or offset to 16 bits reads a wrong element.
    far = call({"dim": 0}, input=(BEYOND_16_BITS,), index=(64,), dtypes=("float32", "int32"))
    yield from variations("indices", [far, call({"dim": 1}, input=(BEYOND_16_BITS, 3), index=(BEYOND_16_BITS, 2))])
    yield from error_samples(
        call({"dim": 2}, input=(3, 4), index=(3, 4)),
        call({"dim": 0}, input=(3, 4), index=(3,)),
        call({"dim": 0}, input=(3, 4), index=(3, 5)),
        call({"dim": 0}, input=(3, 4), index=(3, 4), dtypes=("float32", "float32")),
        call({"dim": 0}, input=(3, 4), index=(3, 4), dtypes=("float32", "int16")),
    )
    yield from outside(call({"dim": 1}, input=(2, 5), index=(2, 3)), "index", [[0, 1, 2], [3, 4, 4]], 5)


# Only in the full tier: torch rejects an index of several dimensions, ONNX Gather accepts it.
_IN_PLACE_OF_DIM = [
    call({"dim": 0}, input=(5, 3), index=(2, 4)),
    call({"dim": 1}, input=(4, 5), index=(2, 3)),
    call({"dim": -1}, input=(2, 3, 4), index=(2, 1, 2)),
    call({"dim": 1}, input=(2, 3, 4), index=(0, 2)),
]


def index_select_samples() -> Iterator[Sample]:
    calls = [
        call({"dim": 1}, input=(5, 37), index=(9,)),
        call({"dim": 0}, input=(7, 6), index=(11,)),
        call({"dim": 1}, input=(2, 9, 5), index=(13,)),
    ]
    yield from indexed(
        "input", calls, INDEXED, lambda n: call({"dim": 1}, input=(3, n), index=(n,)), {"input": MOSTLY_SPECIAL}
    )
    # Rows of every size around vector widths: kernels copy whole rows.
    inner = [call({"dim": 0}, input=(7, n), index=(5,)) for n in CALM_SIZES]
    yield from variations("sizes", of("input", ("float32",), inner))
    attributes = [
        call({"dim": dim}, input=(4, 5, 3), index=(size,)) for dim in (0, 1, 2, -1, -2, -3) for size in (2, 17)
    ]
    for shape, dim, index in (
        ((6,), 0, (9,)),
        ((6,), 0, ()),
        ((), 0, (1,)),
        ((), -1, ()),
        ((4, 5), 1, (0,)),
        ((4, 5), 0, ()),
        ((4, 0), 0, (3,)),
        ((0, 5), 1, (3,)),
        ((2, 7, 3, 2), 1, (5,)),
        ((2, 3, 2, 4, 3), 3, (9,)),
        ((1, 1), 0, (1,)),
    ):
        attributes.append(call({"dim": dim}, input=shape, index=index))
    yield from variations("attributes", attributes)
    yield from variations("attributes", of("input", ("float32", "int8"), _IN_PLACE_OF_DIM), tier=Tier.FULL)
    yield from variations("indices", index_patterns(call({"dim": 1}, input=(4, 29), index=(24,)), 29))
    yield from variations("indices", [call({"dim": 0}, input=(BEYOND_16_BITS, 2), index=(64,))])
    yield from variations("indices", [call({"dim": 0}, input=(7, 2), index=(BEYOND_16_BITS,))])
    yield from error_samples(
        call({"dim": 2}, input=(3, 4), index=(3,)),
        call({"dim": -3}, input=(3, 4), index=(3,)),
        call({"dim": 0}, input=(3, 4), index=(3,), dtypes=("float32", "float32")),
        call({"dim": 0}, input=(3, 4), index=(3,), dtypes=("float32", "int16")),
    )
    yield from outside(call({"dim": 1}, input=(2, 5), index=(6,)), "index", [[0, 1, 2, 3, 4, 4]], 5)


def take_samples() -> Iterator[Sample]:
    calls = [call(input=(5, 37), index=(9,)), call(input=(7, 6), index=(3, 5)), call(input=(2, 9, 5), index=(2, 13, 3))]
    yield from indexed("input", calls, INDEXED, lambda n: call(input=(n,), index=(n,)), {"input": MOSTLY_SPECIAL})
    shapes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        *(((), ()), ((), (3,)), ((6,), ()), ((4, 5), (0,)), ((0, 5), (0, 2)), ((1, 1), (1,))),
        *(((6, 1), (5, 1)), ((37, 1), (9,)), ((4, 5, 3), (64,))),
        *(((2, 3, 2, 3), (2, 2, 3, 2)), ((2, 3, 2, 4, 3), (2, 2, 2, 2, 3))),
    )
    yield from variations("indices", [call(input=source, index=index) for source, index in shapes])
    yield from variations("indices", index_patterns(call(input=(4, 29), index=(4, 6)), 116))
    yield from variations("indices", [call(input=(BEYOND_16_BITS, 2), index=(64,))])
    yield from variations("indices", [call(input=(7, 2), index=(BEYOND_16_BITS,))])
    # take is the only operator here that counts negative indices from the end.
    from_end = with_fills([call(input=(2, 5), index=(2, 3))], index=data_fill([[-1, -10, 0], [-4, 3, -9]]))
    yield from variations("negative", of("input", ("float32", "int8"), from_end))
    yield from error_samples(
        call(input=(0,), index=(3,)),
        call(input=(3, 4), index=(3,), dtypes=("float32", "float32")),
        call(input=(3, 4), index=(3,), dtypes=("float32", "int16")),
    )
    yield from outside(call(input=(2, 5), index=(2, 3)), "index", [[0, 1, 2], [3, 4, 4]], 10, first=-10)


def index_patterns(case: Call, size: int, name: str = "index") -> Iterator[dict[str, Any]]:
    """Yield the call with indices all first, all last, mixed with both ends, and rising; in both index dtypes."""
    source = next(iter(case["shapes"]))
    for fill in ("zeros", full(size - 1), {"fill": "special", "rate": 0.5}, "arange"):
        for index in ("int64", "int32"):
            yield {**case, "generator": {name: fill}, "dtypes": {source: "float32", name: index}}


def outside(case: Call, name: str, legal: Sequence[Sequence[int]], size: int, *, first: int = 0) -> Iterator[Sample]:
    """Yield cases that expect an error, each with one index below `first` or not below `size`.

    `legal` are rows of valid indices, of which the last one is replaced; a single row makes a vector.
    """
    # A kernel that does not check bounds reads foreign memory here. The last value overflows a 32-bit offset.
    for value in (first - 1, size, first - size, 2**31 - 1):
        rows = [*legal[:-1], [*legal[-1][:-1], value]]
        fill = data_fill(rows if len(rows) > 1 else rows[0])
        failing = {**case, "generator": {name: fill}, "expects_error": {"type": "Exception"}}
        yield Sample(case_set="outside", case=failing)


def scatter_add_samples() -> Iterator[Sample]:
    calls = [
        call({"dim": 1}, input=(5, 16), index=(5, 37), src=(5, 37)),
        call({"dim": 0}, input=(9, 6), index=(20, 6), src=(20, 6)),
        call({"dim": 1}, input=(3, 7, 5), index=(2, 6, 4), src=(3, 9, 5)),
    ]
    fills = {"input": "special", "src": "special"}
    yield from indexed(
        "input", calls, SCATTERED, lambda n: call({"dim": 1}, input=(3, n), index=(3, n), src=(3, n)), fills
    )
    # Each element is selected once, so that the result does not depend on the order of additions.
    each_once = call({"dim": 0}, input=(37,), index=(37,), src=(37,), generator={"index": "arange"})
    yield from variations("ordinary", of("input", MAIN_FLOATS, [each_once]))
    attributes = [
        *(call({"dim": dim}, input=(4, 5, 3), index=(4, 5, 3), src=(4, 5, 3)) for dim in (0, 1, 2, -1, -2, -3)),
        call({"dim": 0}, input=(4, 5), index=(9, 3), src=(11, 4)),
        call({"dim": 0}, input=(1025, 3), index=(1025, 3), src=(1025, 3)),
        call({"dim": 1}, input=(2, 301, 3), index=(2, 301, 3), src=(2, 301, 3)),
        call({"dim": 1}, input=(4, 5), index=(3, 9), src=(4, 9)),
        call({"dim": 0}, input=(), index=(), src=()),
        call({"dim": 0}, input=(), index=(3,), src=(3,)),
        call({"dim": 1}, input=(4, 5), index=(4, 0), src=(4, 2)),
        call({"dim": 1}, input=(2, 7, 3, 2), index=(2, 5, 3, 2), src=(2, 6, 3, 2)),
        call({"dim": 3}, input=(2, 3, 2, 4, 3), index=(2, 2, 2, 9, 3), src=(2, 3, 2, 9, 3)),
    ]
    yield from variations("attributes", attributes)
    patterns = call({"dim": 1}, input=(4, 53), index=(4, 12), src=(4, 12))
    yield from variations("indices", index_patterns(patterns, 53))
    far = call({"dim": 0}, input=(BEYOND_16_BITS,), index=(64,), src=(64,))
    yield from variations("indices", [far])
    # Many additions to one element: a float16 accumulator loses most of them.
    crowded = call({"dim": 1}, input=(3, 4), index=(3, 4096), src=(3, 4096))
    yield from variations("long", of("input", MAIN_FLOATS, [crowded]))
    one_place = call({"dim": 0}, input=(2,), index=(257,), src=(257,))
    yield from variations("indices", of("input", ("float32", "int32"), with_fills([one_place], index=full(1))))
    exact = {"input": "integer-exact", "src": "integer-exact"}
    yield from variations("integer-exact", of("input", MAIN_FLOATS, with_fills([*calls, one_place], **exact)))
    yield from variations("zero-mean", of("input", MAIN_FLOATS, with_fills([calls[0]], input="randn", src="randn")))
    yield from wrong_scatters()
    long = call({"dim": 1}, input=(3, 16), index=(3, 65536), src=(3, 65536))
    yield from variations("long", [long], tier=Tier.FULL)
    crowd = call({"dim": 0}, input=(3,), index=(1500,), src=(1500,))
    yield from variations("long", of("input", ("float32", "float16", "bool"), [crowd]))


def wrong_scatters() -> Iterator[Sample]:
    """Yield calls that scatter operators must refuse, and calls with an index outside of input."""
    yield from error_samples(
        call({"dim": 2}, input=(3, 4), index=(3, 4), src=(3, 4)),
        call({"dim": 0}, input=(3, 4), index=(3, 4), src=(2, 4)),
        call({"dim": 0}, input=(3, 4), index=(3, 5), src=(3, 5)),
        call({"dim": 0}, input=(3, 4), index=(4,), src=(3, 4)),
        call({"dim": 0}, input=(3, 4), index=(3, 4), src=(3, 4), dtypes=("float32", "float32", "float32")),
        call({"dim": 0}, input=(3, 4), index=(3, 4), src=(3, 4), dtypes=("float32", "int64", "float64")),
    )
    beyond = call({"dim": 1}, input=(2, 5), index=(2, 3), src=(2, 3))
    yield from outside(beyond, "index", [[0, 1, 2], [3, 4, 4]], 5)


def embedding_samples() -> Iterator[Sample]:
    calls = [
        call(weight=(11, 17), indices=(3, 5)),
        call(weight=(129, 8), indices=(37,)),
        call(weight=(5, 33), indices=(2, 3, 4)),
    ]
    yield from indexed(
        "weight", calls, INDEXED, lambda n: call(weight=(7, n), indices=(9,)), {"weight": MOSTLY_SPECIAL}
    )
    counts = [call(weight=(7, 4), indices=(n,)) for n in CALM_SIZES]
    yield from variations("sizes", of("weight", ("float32",), counts))
    rows = [call(weight=(n, 4), indices=(33,)) for n in (*CALM_SIZES[1:], 257, 1025)]
    yield from variations("sizes", of("weight", ("float32",), rows))
    padding = [call({"padding_idx": row}, weight=(3, 5), indices=(4, 6)) for row in (0, 1, 2, -1, -3)]
    shapes = [call(weight=(3, 5), indices=()), call(weight=(3, 0), indices=(2,)), call(weight=(0, 5), indices=(0,))]
    yield from variations("attributes", [*padding, *shapes])
    yield from variations("indices", index_patterns(call(weight=(29, 5), indices=(4, 6)), 29, "indices"))
    yield from variations("indices", [call(weight=(BEYOND_16_BITS, 2), indices=(64,))])
    yield from variations("indices", [call(weight=(7, 2), indices=(BEYOND_16_BITS,))])
    yield from error_samples(
        call(weight=(5,), indices=(3,)),
        call(weight=(5, 3, 2), indices=(3,)),
        call({"padding_idx": 5}, weight=(5, 3), indices=(3,)),
        call(weight=(5, 3), indices=(3,), dtypes=("float32", "float32")),
        call(weight=(5, 3), indices=(3,), dtypes=("float32", "int16")),
    )
    yield from outside(call(weight=(5, 3), indices=(2, 3)), "indices", [[0, 1, 2], [3, 4, 4]], 5)
    yield from variations("attributes", [call(weight=(5, 3), indices=(2, 3, 2, 2))])
    yield from of_one_element(call(weight=(1, 1), indices=(1,)), dtypes=())
