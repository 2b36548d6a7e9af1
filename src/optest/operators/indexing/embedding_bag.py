"""The operator embedding_bag: descriptor, shape inference and samples."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from optest.operators.calls import EVERY_FLOAT, LARGE_SIZE, MAIN_FLOATS, SIZES, data_fill, reshaped, without
from optest.operators.describe import FLOATS, accumulate, attribute, in_module
from optest.operators.indexing.gather import outside, require_padding
from optest.operators.samples import error_samples, in_every_layout, in_layouts_at_once, variations
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Specs,
    dense,
    optional_spec,
    require_index,
    require_rank,
    require_spec,
    required_inputs,
)
from optest.spec import OperatorDescriptor, Sample, Tier, UnfitArguments
from optest.spec.declared_shapes import match_declaration

# torch accepts these two index dtypes.
_INDEX = ("int64", "int32")


DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="embedding_bag",
        signature="weight, indices, offsets?, per_sample_weights? -> out",
        attributes=(
            attribute("mode: str = 'mean'", "How the rows of a bag are reduced.", choices=("sum", "mean", "max")),
            attribute("padding_idx: int = None", "Index whose rows are skipped; they do not count in the mean either."),
            attribute("include_last_offset: bool = False", "The last element of offsets is the end of the last bag."),
        ),
        dtype_variants=tuple(
            (name, index, *[index] * has_offsets, *[name] * has_weights)
            for index, (name,), has_offsets, has_weights in product(_INDEX, FLOATS, (True, False), (False, True))
        ),
        domain="gather:embedding_domain",
        generator={"indices": "randint"},
        sum_length="longest_bag",
        rule=accumulate("terms are the rows of a bag, for the mean divided by their number; max is exact"),
        description="Sum, mean or maximum of the rows of weight that the indices of a bag select, as in torch; 0 for "
        "an empty bag. A matrix of indices has one bag per row. A vector of indices is cut into bags at offsets, which "
        "start with 0. A sum may have a factor for each index (per_sample_weights).",
    ),
)


def infer_embedding_bag(specs: Specs, attributes: Attributes) -> Outputs:
    indices, has_offsets = require_spec(specs, 1, "indices"), optional_spec(specs, 2) is not None
    require_index(indices, "indices")
    require_rank(indices, "indices", 1 if has_offsets else 2)
    tensors = "weight: T[rows, columns], indices: I[*shape], offsets?: I[starts], per_sample_weights?: T[*shape]"
    n, _ = match_declaration(specs, tensors)
    bags = n.starts - bool(attributes.get("include_last_offset")) if has_offsets else n.shape[0]
    if bags < 0:
        raise UnfitArguments("offsets is empty, expected the end of the last bag, as include_last_offset is true")
    mode = attributes.get("mode", "mean")
    if optional_spec(specs, 3) is not None and mode != "sum":
        raise UnfitArguments(f"per_sample_weights is given with mode {mode}, expected only with mode sum")
    require_padding(attributes, n.rows)
    return (dense(n.T, (bags, n.columns)),)


def longest_bag(specs: Specs, _attributes: Attributes) -> int:
    """Return the maximum number of rows that are added: all indices of a row or vector may be in one bag."""
    _, indices = required_inputs(specs, "weight", "indices")
    return max(1, indices.shape[-1] if indices.rank else 1)


def _bags(
    rows: int, columns: int, count: int, offsets: list[int] | None = None, index: str = "int64", **attributes: Any
) -> dict[str, Any]:
    """Return a call with a vector of `count` indices, cut at `offsets` or into 4 equal bags; mode sum adds factors."""
    starts = [bag * (count // 4) for bag in range(4)] if offsets is None else offsets
    shapes = {"weight": [rows, columns], "indices": [count], "offsets": [len(starts)]}
    dtypes = ["float32", index, index]
    if attributes.get("mode") == "sum":
        shapes["per_sample_weights"], dtypes = [count], [*dtypes, "float32"]
    return {"shapes": shapes, "attributes": attributes, "dtypes": dtypes, "generator": {"offsets": data_fill(starts)}}


def _matrix_bags(rows: int, columns: int, bags: int, count: int, **attributes: Any) -> dict[str, Any]:
    """Return a call with a bags x count matrix of indices; mode sum adds factors."""
    case = without(_bags(rows, columns, count, [], **attributes), "offsets")
    del case["generator"]
    shapes = {name: [bags, count] if name != "weight" else shape for name, shape in case["shapes"].items()}
    return {**case, "shapes": shapes}


def _in_dtypes(names: tuple[str, ...], *cases: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each call with float32 replaced by each dtype of `names`."""
    for case in cases:
        for name in names:
            yield {**case, "dtypes": [name if dtype == "float32" else dtype for dtype in case["dtypes"]]}


def embedding_bag_samples() -> Iterator[Sample]:
    modes = ("sum", "mean", "max")
    calls = [_bags(7, 37, 9, mode=mode) for mode in modes]
    yield Sample(case_set="ordinary", case=calls[1], tier=Tier.SMOKE)
    matrices = [_matrix_bags(11, 5, 3, 7, mode=mode) for mode in modes]
    without_factors = [without(case, "per_sample_weights") for case in (calls[0], matrices[0])]
    yield from variations("ordinary", _in_dtypes(EVERY_FLOAT, *calls, *matrices, *without_factors))
    # int32 indices and offsets.
    narrow = [_bags(7, 17, 13, index="int32", mode=mode) for mode in modes]
    yield from variations("dtypes", _in_dtypes(EVERY_FLOAT, *narrow))
    for case in (calls[0], matrices[0], narrow[0]):
        yield from in_every_layout([case], names=("weight", "indices", "per_sample_weights"))
        yield from in_layouts_at_once(_in_dtypes(MAIN_FLOATS[:2], case))
    # Repeated offsets make empty bags at the start, in the middle and at the end.
    with_empty_bags = [[0, 0, 4, 4, 9, 9], [0, 9, 9], [0]]
    for mode in modes:
        yield from variations(
            "bags", _in_dtypes(MAIN_FLOATS, *(_bags(7, 5, 9, offsets, mode=mode) for offsets in with_empty_bags))
        )
        with_end_offsets = [
            _bags(7, 5, 9, [*offsets, 9], mode=mode, include_last_offset=True) for offsets in with_empty_bags[:2]
        ]
        yield from variations("bags", [*with_end_offsets, _bags(7, 5, 9, [0, 3], mode=mode, include_last_offset=True)])
        for padding in (2, 0, -1):
            # A negative padding_idx counts from the end; bags of padding only are empty.
            case = _bags(7, 5, 8, [0, 3, 5, 5], mode=mode, padding_idx=padding)
            fills = {**case["generator"], "indices": data_fill([2, 0, 6, 2, 2, 6, 6, 0])}
            yield from variations("padding", _in_dtypes(MAIN_FLOATS, {**case, "generator": fills}))
        yield from variations("padding", [_matrix_bags(3, 5, 17, 4, mode=mode, padding_idx=1)])
        yield from variations("sizes", [_matrix_bags(9, n, 3, 5, mode=mode) for n in SIZES])
        yield from variations("sizes", [_matrix_bags(9, 5, 3, n, mode=mode) for n in SIZES])
        yield from variations("sizes", [_matrix_bags(n, 3, n, 2, mode=mode) for n in (1, 65, 1025)])
        yield from variations(
            "sizes", [_matrix_bags(LARGE_SIZE, 4, 33, 9, mode=mode), _bags(5, 3, 0, [0, 0], mode=mode)]
        )
        # A maximum that starts at 0 instead of the first element is wrong for these.
        negative_weights = {"weight": {"fill": "uniform", "low": -9.0, "high": -1.0}}
        yield from variations(
            "negative",
            _in_dtypes(MAIN_FLOATS, {**matrices[2], "attributes": {"mode": mode}, "generator": negative_weights}),
        )
    large_weights = {"weight": {"fill": "uniform", "low": 90.0, "high": 110.0}}  # partial sums leave 16 bits
    large_bags = _matrix_bags(9, 5, 3, 700, mode="mean")
    yield from variations("long", _in_dtypes(MAIN_FLOATS, {**large_bags, "generator": large_weights}))
    yield from variations("special", _in_dtypes(MAIN_FLOATS, {**matrices[1], "generator": {"weight": "special"}}))
    yield from outside(_matrix_bags(4, 3, 2, 3, mode="mean"), "indices", [[0, 1, 2], [3, 3, 0]], 4)
    wrong_shapes = [("indices", [3, 3]), ("offsets", [2, 2]), ("per_sample_weights", [8])]
    yield from error_samples(
        *(reshaped({**calls[0], "generator": "zeros"}, **{name: shape}) for name, shape in wrong_shapes),
        {**matrices[0], "attributes": {"mode": "mean"}},
        {**calls[1], "attributes": {"padding_idx": 7}},
    )
