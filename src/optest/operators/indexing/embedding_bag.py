"""embedding_bag."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from optest.operators.calls import EVERY_FLOAT, LARGE_SIZE, MAIN_FLOATS, SIZES, data, reshaped, without
from optest.operators.describe import FLOATS, accumulate, attribute, in_module
from optest.operators.indexing.gather import outside, require_padding
from optest.operators.samples import in_every_layout, in_layouts_at_once, refused, variations
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Specs,
    all_given,
    dense,
    given,
    optional,
    require_index,
    require_rank,
)
from optest.spec import OperatorDescriptor, Sample, Tier, UnfitArguments
from optest.spec.declared_shapes import fitted

_INDEX = ("int64", "int32")


DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="embedding_bag",
        signature="weight, indices, offsets?, per_sample_weights? -> out",
        attributes=(
            attribute("mode: str = 'mean'", "What is made of the rows of a bag.", choices=("sum", "mean", "max")),
            attribute("padding_idx: int = None", "Index that does not count, in the mean neither."),
            attribute("include_last_offset: bool = False", "The last of offsets is the end of the last bag."),
        ),
        dtype_variants=tuple(
            (name, index, *[index] * has_offsets, *[name] * has_weights)
            for index, (name,), has_offsets, has_weights in product(_INDEX, FLOATS, (True, False), (False, True))
        ),
        domain="gather:embedding_domain",
        generator={"indices": "randint"},
        sum_length="longest_bag",
        rule=accumulate("rows of a bag, of the mean divided by their number; max is exact"),
        description="The sum, mean or maximum of the rows of weight that the indices of a bag name, as torch has it; 0 "
        "for an empty bag. Bags are the rows of indices or, of a vector, begin at offsets, the first of which is 0. A "
        "sum may have a factor for each index.",
    ),
)


def infer_embedding_bag(specs: Specs, attributes: Attributes) -> Outputs:
    indices, has_offsets = given(specs, 1, "indices"), optional(specs, 2) is not None
    require_index(indices, "indices")
    require_rank(indices, "indices", 1 if has_offsets else 2)
    tensors = "weight: T[rows, columns], indices: I[*shape], offsets?: I[starts], per_sample_weights?: T[*shape]"
    n, _ = fitted(specs, tensors)
    bags = n.starts - bool(attributes.get("include_last_offset")) if has_offsets else n.shape[0]
    if bags < 0:
        raise UnfitArguments("offsets is empty, but should have the end of the last bag")
    if optional(specs, 3) is not None and attributes.get("mode", "mean") != "sum":
        raise UnfitArguments("per_sample_weights is given, but should be left out unless mode is sum")
    require_padding(attributes, n.rows)
    return (dense(n.T, (bags, n.columns)),)


def longest_bag(specs: Specs, _attributes: Attributes) -> int:
    """All indices may be those of one bag."""
    _, indices = all_given(specs, "weight", "indices")
    return max(1, indices.shape[-1] if indices.rank else 1)


def _bags(
    rows: int, columns: int, count: int, offsets: list[int] | None = None, index: str = "int64", **attributes: Any
) -> dict[str, Any]:
    """A vector of so many indices with these offsets, or 4 at even distances; with factors for sums."""
    starts = [place * (count // 4) for place in range(4)] if offsets is None else offsets
    shapes = {"weight": [rows, columns], "indices": [count], "offsets": [len(starts)]}
    dtypes = ["float32", index, index]
    if attributes.get("mode") == "sum":
        shapes["per_sample_weights"], dtypes = [count], [*dtypes, "float32"]
    return {"shapes": shapes, "attributes": attributes, "dtypes": dtypes, "generator": {"offsets": data(starts)}}


def _rows(rows: int, columns: int, bags: int, count: int, **attributes: Any) -> dict[str, Any]:
    """A matrix of indices; with factors for sums."""
    case = _bags(rows, columns, count, [], **attributes)
    shapes = {name: [bags, count] if name != "weight" else shape for name, shape in case["shapes"].items()}
    return without({**{key: each for key, each in case.items() if key != "generator"}, "shapes": shapes}, "offsets")


def _of(names: tuple[str, ...], *cases: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In each of these dtypes."""
    for case in cases:
        for name in names:
            yield {**case, "dtypes": [name if each == "float32" else each for each in case["dtypes"]]}


def embedding_bag_samples() -> Iterator[Sample]:
    modes = ("sum", "mean", "max")
    calls = [_bags(7, 37, 9, mode=mode) for mode in modes]
    yield Sample(case_set="ordinary", case=calls[1], tier=Tier.SMOKE)
    matrices = [_rows(11, 5, 3, 7, mode=mode) for mode in modes]
    plain = [without(each, "per_sample_weights") for each in (calls[0], matrices[0])]
    yield from variations("ordinary", _of(EVERY_FLOAT, *calls, *matrices, *plain))
    narrow = [_bags(7, 17, 13, index="int32", mode=mode) for mode in modes]
    yield from variations("dtypes", _of(EVERY_FLOAT, *narrow))
    for case in (calls[0], matrices[0], narrow[0]):
        yield from in_every_layout([case], names=("weight", "indices", "per_sample_weights"))
        yield from in_layouts_at_once(_of(MAIN_FLOATS[:2], case))
    empty = [[0, 0, 4, 4, 9, 9], [0, 9, 9], [0]]
    for mode in modes:
        yield from variations("bags", _of(MAIN_FLOATS, *(_bags(7, 5, 9, each, mode=mode) for each in empty)))
        ends = [_bags(7, 5, 9, [*each, 9], mode=mode, include_last_offset=True) for each in empty[:2]]
        yield from variations("bags", [*ends, _bags(7, 5, 9, [0, 3], mode=mode, include_last_offset=True)])
        for padding in (2, 0, -1):
            case = _bags(7, 5, 8, [0, 3, 5, 5], mode=mode, padding_idx=padding)
            fills = {**case["generator"], "indices": data([2, 0, 6, 2, 2, 6, 6, 0])}
            yield from variations("padding", _of(MAIN_FLOATS, {**case, "generator": fills}))
        yield from variations("padding", [_rows(3, 5, 17, 4, mode=mode, padding_idx=1)])
        yield from variations("sizes", [_rows(9, n, 3, 5, mode=mode) for n in SIZES])
        yield from variations("sizes", [_rows(9, 5, 3, n, mode=mode) for n in SIZES])
        yield from variations("sizes", [_rows(n, 3, n, 2, mode=mode) for n in (1, 65, 1025)])
        yield from variations("sizes", [_rows(LARGE_SIZE, 4, 33, 9, mode=mode), _bags(5, 3, 0, [0, 0], mode=mode)])
        below = {"weight": {"fill": "uniform", "low": -9.0, "high": -1.0}}
        yield from variations(
            "negative", _of(MAIN_FLOATS, {**matrices[2], "attributes": {"mode": mode}, "generator": below})
        )
    large = {"weight": {"fill": "uniform", "low": 90.0, "high": 110.0}}  # partial sums leave 16 bits
    heavy = _rows(9, 5, 3, 700, mode="mean")
    yield from variations("long", _of(MAIN_FLOATS, {**heavy, "generator": large}))
    yield from variations("special", _of(MAIN_FLOATS, {**matrices[1], "generator": {"weight": "special"}}))
    yield from outside(_rows(4, 3, 2, 3, mode="mean"), "indices", [[0, 1, 2], [3, 3, 0]], 4)
    wrong = [("indices", [3, 3]), ("offsets", [2, 2]), ("per_sample_weights", [8])]
    yield from refused(
        *(reshaped({**calls[0], "generator": "zeros"}, **{name: shape}) for name, shape in wrong),
        {**matrices[0], "attributes": {"mode": "mean"}},
        {**calls[1], "attributes": {"padding_idx": 7}},
    )
