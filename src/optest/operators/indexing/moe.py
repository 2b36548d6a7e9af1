"""Operators around the matrix products of a mixture of experts: moe_align and moe_combine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, call, data_fill, in_dtypes, with_strides
from optest.operators.describe import FLOATS, accumulate, attribute, in_module, movement
from optest.operators.samples import (
    error_samples,
    in_every_layout,
    in_layouts_at_once,
    samples_by_leading_dtype,
    variations,
)
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Specs,
    dense,
    first_size,
    index_range,
    optional_spec,
    require_index,
    require_spec,
)
from optest.spec import Interval, OperatorDescriptor, Sample, Tier, UnfitArguments, dtype
from optest.spec.declared_shapes import match_declaration

# Kernels take router weights in the dtype of the tokens or in float32.
_WEIGHTED = (*FLOATS, *((half, "float32") for half in ("float16", "bfloat16")))
_PLACED = tuple(
    (*(variant * 2 if len(variant) == 1 else variant), index) for index in ("int32", "int64") for variant in _WEIGHTED
)

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="moe_align",
        signature="topk_ids -> sorted_token_ids, expert_ids, num_tokens_post_pad",
        aliases=("moe_align_block_size",),
        attributes=(
            attribute("block_size: int", "Number of rows of a tile; all rows of a tile belong to one expert."),
            attribute("num_experts: int", "Number of experts."),
        ),
        dtype_variants=(("int32",), ("int64",)),
        alternatives="moe_align_alternatives",
        domain="experts_domain",
        generator="randint",
        rule=movement(
            "docs/operators/indexing.md#moe_align",
            "any order within an expert; elements behind num_tokens_post_pad are not compared",
        ),
        description="Flat indices into topk_ids, sorted by expert. The indices of each expert are padded to whole "
        "blocks with n, the number of elements of topk_ids. expert_ids has the expert of each block, "
        "num_tokens_post_pad the end of the last block. As in vLLM and SGLang, sorted_token_ids has n + num_experts · "
        "(block_size - 1) elements; all outputs are int32.",
    ),
    OperatorDescriptor(
        name="moe_combine",
        signature="input, topk_weights, inv_permuted_idx? -> out",
        aliases=("moe_unpermute",),
        dtype_variants=(*_PLACED, *_WEIGHTED),
        sum_length="experts_of_a_token",
        domain="rows_domain",
        generator={"topk_weights": "uniform", "inv_permuted_idx": "randint"},
        rule=accumulate("terms are the products"),
        description="Σ topk_weights[t, k] · input[inv_permuted_idx[t, k]] for each token t; a negative index is "
        "skipped, as for an expert on another device. input has a row for each output of an expert; without "
        "inv_permuted_idx the rows of a token are adjacent, in order.",
    ),
)


def infer_moe_align(specs: Specs, attributes: Attributes) -> Outputs:
    spec = require_spec(specs, 0, "topk_ids")
    require_index(spec, "topk_ids")
    block, experts = attributes["block_size"], attributes["num_experts"]
    if block < 1 or experts < 1:
        raise UnfitArguments(f"block_size is {block} and num_experts {experts}, expected both to be 1 or more")
    capacity = spec.elements + experts * (block - 1)
    return tuple(dense(dtype("int32"), (size,)) for size in (capacity, -(-capacity // block), 1))


def infer_moe_combine(specs: Specs, _attributes: Attributes) -> Outputs:
    declared = "input: T[rows, size], topk_weights: T|float32[tokens, topk], inv_permuted_idx?: index[tokens, topk]"
    n, outputs = match_declaration(specs, f"{declared} -> T[tokens, size]")
    if optional_spec(specs, 2) is None and n.rows != n.tokens * n.topk:
        raise UnfitArguments(f"input has {n.rows} rows, expected {n.tokens * n.topk}, one for each weight")
    return outputs


def experts_of_a_token(specs: Specs, _attributes: Attributes) -> int:
    """Return the number of terms of an output: the experts of a token."""
    return require_spec(specs, 1, "topk_weights").shape[-1]


def experts_domain(_specs: Specs, attributes: Attributes) -> Mapping[str, Interval]:
    """Return the range of expert indices."""
    return {"topk_ids": index_range(attributes["num_experts"])}


def rows_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """Return the ranges of row indices and of weights."""
    return {"inv_permuted_idx": index_range(first_size(specs, 0)), "topk_weights": Interval(low=0.0, high=1.0)}


def _align(*shape: int, block: int = 4, experts: int = 8, **options: Any) -> dict[str, Any]:
    """Return a moe_align call for topk_ids of `shape`."""
    return call({"block_size": block, "num_experts": experts}, topk_ids=shape, **options)


def moe_align_samples() -> Iterator[Sample]:
    calls = [_align(5, 2), _align(17, 8, block=16, experts=64), _align(3, 37, block=1)]
    yield Sample(case_set="ordinary", case=calls[0], tier=Tier.SMOKE)
    yield from variations("ordinary", calls, dtypes=("int32", "int64"))
    for index_dtype, case in zip(("int32", "int64"), calls, strict=False):
        yield from in_every_layout([{**case, "dtypes": [index_dtype]}])
        yield from in_layouts_at_once([case], dtype=index_dtype)
    sizes = [_align(n, 2, block=16) for n in (0, 1, 7, 8, 9, 63, 64, 65, 257, 1025)]
    sizes += [_align(LARGE_SIZE, 17, block=64), _align(1, 1, block=1, experts=1), _align(2, 3, 2, 2, 2, 5)]
    yield from variations("sizes", [*sizes, _align(1, 2), _align(33, 1), _align(LARGE_SIZE, block=1)])
    # Dimensions of size 1 or 0 may have any stride.
    for shape, strides in (((33, 1), (2, 1)), ((17, 1), (5, 1)), ((0, 2), (0, 0)), ((0, 3), (0, 0))):
        strided = {**_align(*shape), "shapes": {"topk_ids": with_strides(shape, strides)}}
        yield from variations("layouts", [strided], dtypes=("int32", "int64"))
    cases = [_align(33, 4, block=b, experts=e) for b in (1, 2, 16, 32, 128) for e in (4, 7, 60, 256)]
    yield from variations("attributes", cases)
    # Only whole blocks; experts without tokens; all tokens for the last or the first expert; one row per expert.
    rows: Sequence[Sequence[int]] = (
        [0, 0, 0, 0, 3, 3, 3, 3], [7] * 9, [0] * 8, [7, 0, 6, 1, 5, 2], [4, 4, 4, 4, 4, 1, 1, 1, 1, 1],
    )  # fmt: skip
    yield from variations("experts", [_align(len(row), generator={"topk_ids": data_fill(list(row))}) for row in rows])
    yield from variations("experts", [_align(LARGE_SIZE, experts=2, block=128, generator="zeros")])
    yield from error_samples(
        _align(5, 2, block=0), _align(5, 2, experts=0), _align(2, generator={"topk_ids": data_fill([8, 0])})
    )


def _combine(
    tokens: int, topk: int, size: int, *, rows: int = 0, indexed: bool = True, **options: Any
) -> dict[str, Any]:
    """Return a moe_combine call over `rows` rows (one for each weight if 0), with indices if `placed`."""
    shapes: dict[str, Any] = {"input": (rows or tokens * topk, size), "topk_weights": (tokens, topk)}
    if indexed:
        shapes["inv_permuted_idx"] = (tokens, topk)
    return call(**shapes, **options)


def moe_combine_samples() -> Iterator[Sample]:
    calls = [_combine(5, 2, 37), _combine(3, 8, 64), _combine(7, 6, 16, indexed=False)]
    yield from samples_by_leading_dtype("input", calls)
    yield from variations("dtypes", [{**calls[0], "dtypes": list(variant)} for variant in _PLACED])
    without_indices = [
        {**calls[2], "dtypes": list(variant)}
        for variant in (("float64",), ("float16", "float32"), ("bfloat16", "float32"))
    ]
    yield from variations("dtypes", without_indices)
    sizes = [_combine(3, 2, n) for n in (0, 1, 7, 15, 16, 17, 33, 64, 129, 1025)]
    sizes += [_combine(n, 2, 16) for n in (0, 1, 17, 65, 1025)]
    sizes += [_combine(3, n, 16) for n in (1, 3, 4, 9, 22)]
    sizes += [_combine(1, 1, 1), _combine(4, 2, 16, rows=3), _combine(9, 2, 16, rows=40)]
    yield from variations("sizes", in_dtypes("input", MAIN_FLOATS[:2], sizes))
    yield from variations("sizes", [_combine(LARGE_SIZE, 1, 17), _combine(LARGE_SIZE, 1, 17, indexed=False)])
    skipped_indices = {"inv_permuted_idx": data_fill([[3, -1], [-1, 0], [-1, -1], [2, 2]])}
    with_skipped = [_combine(4, 2, 17, rows=5, generator=skipped_indices)]
    yield from variations("indices", in_dtypes("input", MAIN_FLOATS, with_skipped))
    # No index selects the last row.
    nan_unselected = {**skipped_indices, "input": data_fill([[1.0], [2.0], [0.5], [-1.0], ["nan"]])}
    yield from variations("special", [_combine(4, 2, 1, rows=5, generator=nan_unselected)])
    yield from variations("special", [_combine(3, 2, 17, generator={"input": {"fill": "special", "rate": 0.1}})])
    exact = [{**case, "generator": {"input": "integer-exact", "topk_weights": "ones"}} for case in calls]
    yield from variations("integer-exact", in_dtypes("input", MAIN_FLOATS, exact))
    yield from error_samples(
        _combine(3, 2, 8, rows=5, indexed=False),
        call(input=(6, 8), topk_weights=(3, 2), inv_permuted_idx=(3, 3)),
        _combine(2, 1, 8, generator={"inv_permuted_idx": data_fill([[0], [2]])}),
    )
