"""What lies around the products of a mixture of experts: moe_align and moe_combine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, call, data, in_dtypes, laid
from optest.operators.describe import FLOATS, accumulate, attribute, in_module, movement
from optest.operators.samples import in_every_layout, in_layouts_at_once, led_by, refused, variations
from optest.operators.shapes import Attributes, Outputs, Specs, below, dense, given, optional, require_index, rows_of
from optest.spec import Interval, OperatorDescriptor, Sample, Tier, UnfitArguments, dtype
from optest.spec.declared_shapes import fitted

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
            attribute("block_size: int", "Rows of a tile, which belong to one expert."),
            attribute("num_experts: int", "How many experts there are."),
        ),
        dtype_variants=(("int32",), ("int64",)),
        alternatives="moe_align_alternatives",
        domain="experts_domain",
        generator="randint",
        rule=movement(
            "docs/operators/indexing.md#moe_align", "in any order within an expert; behind num_tokens_post_pad anything"
        ),
        description="Places of topk_ids, which are counted as if it had one dimension, in the order of their experts. "
        "Those of each expert fill whole blocks, behind them stands the number of places, n. expert_ids has the expert "
        "of each block, num_tokens_post_pad the end of the last. As in vLLM and SGLang there is room for n + "
        "num_experts · (block_size - 1) places, in int32.",
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
        description="Σ topk_weights[t, k] · input[inv_permuted_idx[t, k]] for each token t; a negative index is left "
        "out, as of an expert that is elsewhere. input has a row for each result of an expert; without "
        "inv_permuted_idx those of a token stand together, in order.",
    ),
)


def infer_moe_align(specs: Specs, attributes: Attributes) -> Outputs:
    spec = given(specs, 0, "topk_ids")
    require_index(spec, "topk_ids")
    block, experts = attributes["block_size"], attributes["num_experts"]
    if block < 1 or experts < 1:
        raise UnfitArguments(f"block_size is {block} and num_experts {experts}, but should be 1 or more")
    places = spec.elements + experts * (block - 1)
    return tuple(dense(dtype("int32"), (size,)) for size in (places, -(-places // block), 1))


def infer_moe_combine(specs: Specs, _attributes: Attributes) -> Outputs:
    declared = "input: T[rows, size], topk_weights: T|float32[tokens, topk], inv_permuted_idx?: index[tokens, topk]"
    n, outputs = fitted(specs, f"{declared} -> T[tokens, size]")
    if optional(specs, 2) is None and n.rows != n.tokens * n.topk:
        raise UnfitArguments(f"input has {n.rows} rows, but should have {n.tokens * n.topk}, one for each weight")
    return outputs


def experts_of_a_token(specs: Specs, _attributes: Attributes) -> int:
    return given(specs, 1, "topk_weights").shape[-1]


def experts_domain(_specs: Specs, attributes: Attributes) -> Mapping[str, Interval]:
    return {"topk_ids": below(attributes["num_experts"])}


def rows_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    return {"inv_permuted_idx": below(rows_of(specs, 0)), "topk_weights": Interval(low=0.0, high=1.0)}


def _aligned(*shape: int, block: int = 4, experts: int = 8, **more: Any) -> dict[str, Any]:
    return call({"block_size": block, "num_experts": experts}, topk_ids=shape, **more)


def moe_align_samples() -> Iterator[Sample]:
    calls = [_aligned(5, 2), _aligned(17, 8, block=16, experts=64), _aligned(3, 37, block=1)]
    yield Sample(case_set="ordinary", case=calls[0], tier=Tier.SMOKE)
    yield from variations("ordinary", calls, dtypes=("int32", "int64"))
    for dtype_, each in zip(("int32", "int64"), calls, strict=False):
        yield from in_every_layout([{**each, "dtypes": [dtype_]}])
        yield from in_layouts_at_once([each], dtype=dtype_)
    sizes = [_aligned(n, 2, block=16) for n in (0, 1, 7, 8, 9, 63, 64, 65, 257, 1025)]
    sizes += [_aligned(LARGE_SIZE, 17, block=64), _aligned(1, 1, block=1, experts=1), _aligned(2, 3, 2, 2, 2, 5)]
    yield from variations("sizes", [*sizes, _aligned(1, 2), _aligned(33, 1), _aligned(LARGE_SIZE, block=1)])
    for shape, strides in (((33, 1), (2, 1)), ((17, 1), (5, 1)), ((0, 2), (0, 0)), ((0, 3), (0, 0))):
        strided = {**_aligned(*shape), "shapes": {"topk_ids": laid(shape, strides)}}
        yield from variations("layouts", [strided], dtypes=("int32", "int64"))
    several = [_aligned(33, 4, block=b, experts=e) for b in (1, 2, 16, 32, 128) for e in (4, 7, 60, 256)]
    yield from variations("attributes", several)
    # Whole blocks, none left over, experts that nobody chose, the last one alone, all that 16 bits do not count.
    rows: Sequence[Sequence[int]] = (
        [0, 0, 0, 0, 3, 3, 3, 3], [7] * 9, [0] * 8, [7, 0, 6, 1, 5, 2], [4, 4, 4, 4, 4, 1, 1, 1, 1, 1],
    )  # fmt: skip
    yield from variations("experts", [_aligned(len(row), generator={"topk_ids": data(list(row))}) for row in rows])
    yield from variations("experts", [_aligned(LARGE_SIZE, experts=2, block=128, generator="zeros")])
    yield from refused(
        _aligned(5, 2, block=0), _aligned(5, 2, experts=0), _aligned(2, generator={"topk_ids": data([8, 0])})
    )


def _combined(tokens: int, topk: int, size: int, *, rows: int = 0, placed: bool = True, **more: Any) -> dict[str, Any]:
    """A call over ``rows`` rows, by default as many as there are weights."""
    shapes: dict[str, Any] = {"input": (rows or tokens * topk, size), "topk_weights": (tokens, topk)}
    if placed:
        shapes["inv_permuted_idx"] = (tokens, topk)
    return call(**shapes, **more)


def moe_combine_samples() -> Iterator[Sample]:
    calls = [_combined(5, 2, 37), _combined(3, 8, 64), _combined(7, 6, 16, placed=False)]
    yield from led_by("input", calls)
    yield from variations("dtypes", [{**calls[0], "dtypes": list(variant)} for variant in _PLACED])
    plain = [
        {**calls[2], "dtypes": list(each)} for each in (("float64",), ("float16", "float32"), ("bfloat16", "float32"))
    ]
    yield from variations("dtypes", plain)
    sizes = [_combined(3, 2, n) for n in (0, 1, 7, 15, 16, 17, 33, 64, 129, 1025)]
    sizes += [_combined(n, 2, 16) for n in (0, 1, 17, 65, 1025)]
    sizes += [_combined(3, n, 16) for n in (1, 3, 4, 9, 22)]
    sizes += [_combined(1, 1, 1), _combined(4, 2, 16, rows=3), _combined(9, 2, 16, rows=40)]
    yield from variations("sizes", in_dtypes("input", MAIN_FLOATS[:2], sizes))
    yield from variations("sizes", [_combined(LARGE_SIZE, 1, 17), _combined(LARGE_SIZE, 1, 17, placed=False)])
    left_out = {"inv_permuted_idx": data([[3, -1], [-1, 0], [-1, -1], [2, 2]])}
    absent = [_combined(4, 2, 17, rows=5, generator=left_out)]
    yield from variations("indices", in_dtypes("input", MAIN_FLOATS, absent))
    beside = {**left_out, "input": data([[1.0], [2.0], [0.5], [-1.0], ["nan"]])}  # no place names the last row
    yield from variations("special", [_combined(4, 2, 1, rows=5, generator=beside)])
    yield from variations("special", [_combined(3, 2, 17, generator={"input": {"fill": "special", "rate": 0.1}})])
    exact = [{**each, "generator": {"input": "integer-exact", "topk_weights": "ones"}} for each in calls]
    yield from variations("integer-exact", in_dtypes("input", MAIN_FLOATS, exact))
    yield from refused(
        _combined(3, 2, 8, rows=5, placed=False),
        call(input=(6, 8), topk_weights=(3, 2), inv_permuted_idx=(3, 3)),
        _combined(2, 1, 8, generator={"inv_permuted_idx": data([[0], [2]])}),
    )
