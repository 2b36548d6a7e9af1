"""The operator rotary_embedding: rope of query and key in one call, in the layout of serving frameworks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, call, data_fill, in_dtypes
from optest.operators.describe import FLOATS, accumulate, attribute, in_module
from optest.operators.samples import error_samples, samples_by_leading_dtype, variations
from optest.operators.shapes import Attributes, Outputs, Specs, first_size, index_range
from optest.spec import Interval, OperatorDescriptor, Sample, UnfitArguments
from optest.spec.declared_shapes import match_declaration

_INDICES = ("int64", "int32")
# Serving frameworks keep the cache in float32 for 16-bit queries, too.
_VARIANTS = (
    *((index, *(name,) * 3) for index in _INDICES for (name,) in FLOATS),
    *((index, half, half, "float32") for index in _INDICES for half in ("float16", "bfloat16")),
)

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="rotary_embedding",
        signature="positions, query, key, cos_sin_cache -> query_out, key_out",
        aliases=("apply_rope_with_cos_sin_cache",),
        attributes=(
            attribute(
                "is_neox: bool = True", "Pairs are elements (i, i + n/2) of the halves; else neighbours, as in GPT-J."
            ),
        ),
        dtype_variants=_VARIANTS,
        sum_length="rope:rope_length",
        domain="rotary_positions_domain",
        generator={"positions": "randint"},
        rule=accumulate("as rope"),
        description="rope of query and key, tokens x heads x E, as in vLLM, SGLang and FlashInfer. Row positions[t] of "
        "cos_sin_cache holds the cosines of token t, followed by its sines, half of the rotated size each; elements "
        "after the rotated ones of a head are unchanged.",
    ),
    twin="rope_reference",
)


def infer_rotary_embedding(specs: Specs, _attributes: Attributes) -> Outputs:
    tensors = "positions: index[tokens], query: T[tokens, heads, size], key: T[tokens, key_heads, size]"
    outs = "T[tokens, heads, size], T[tokens, key_heads, size]"
    n, outputs = match_declaration(specs, f"{tensors}, cos_sin_cache: T|float32[rows, rotated] -> {outs}")
    if n.rotated % 2 or not 0 < n.rotated <= n.size or (n.tokens and not n.rows):
        raise UnfitArguments(f"cos_sin_cache is {n.rows}x{n.rotated}, expected rows of an even size up to {n.size}")
    return outputs


def rotary_positions_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """Return the range of positions: the rows of cos_sin_cache."""
    return {"positions": index_range(first_size(specs, 3))}


def _rotary(
    tokens: int, heads: int, key_heads: int, size: int, rotated: int = 0, rows: int = 33, **options: Any
) -> dict[str, Any]:
    """Return a call with a table of `rows` rows; all elements of a head are rotated if `rotated` is 0."""
    attributes = {"is_neox": options.pop("is_neox")} if "is_neox" in options else {}
    table = (rows, rotated or size)
    query, key = (tokens, heads, size), (tokens, key_heads, size)
    return call(attributes, positions=(tokens,), query=query, key=key, cos_sin_cache=table, **options)


def rotary_embedding_samples() -> Iterator[Sample]:
    calls = [_rotary(5, 4, 2, 8), _rotary(7, 3, 1, 64, 32, is_neox=False), _rotary(17, 6, 2, 128, rows=257)]
    yield from samples_by_leading_dtype("query", calls)
    yield from variations("dtypes", [{**case, "dtypes": list(dtypes)} for dtypes in _VARIANTS for case in calls[:2]])
    # Half sizes around vector widths.
    halves = (1, 2, 3, 8, 15, 16, 17, 32, 33, 64, 65, 128)
    sizes = [_rotary(3, 2, 1, 2 * half, is_neox=half % 2 == 0) for half in halves]
    sizes += [_rotary(n, 2, 1, 8, rows=max(n, 1)) for n in (0, 1, 15, 17, 65, 1025)]
    sizes += [_rotary(5, n, n, 8) for n in (1, 5, 16, 17)]
    sizes += [_rotary(1, 1, 1, 2, rows=1), _rotary(129, 9, 3, 66)]
    yield from variations("sizes", in_dtypes("query", MAIN_FLOATS[:2], sizes))
    yield from variations("sizes", [_rotary(LARGE_SIZE, 1, 1, 18)])
    parts = [_rotary(5, 2, 3, 16, size, is_neox=kind) for size in (2, 6, 8, 16) for kind in (True, False)]
    yield from variations("attributes", in_dtypes("query", MAIN_FLOATS, parts))
    # Consecutive sequences, a token far from the start, and rows that need more than 16 bits.
    tables: tuple[tuple[Sequence[int], int], ...] = (
        ((0, 1, 2, 3, 0, 1, 2), 9),
        ((32, 32, 0, 5, 5), 33),
        ((LARGE_SIZE - 1, LARGE_SIZE // 2, 0, 1), LARGE_SIZE),
    )
    for positions, length in tables:
        for index in _INDICES:
            dtypes, fills = [index, *["float32"] * 3], {"positions": data_fill(list(positions))}
            case = _rotary(len(positions), 2, 1, 8, 4, rows=length, dtypes=dtypes, generator=fills)
            yield from variations("positions", [case])
    # The table stays ordinary, so that special values come from the rotated tensors only.
    special = {"query": "special", "key": "special"}
    yield from variations(
        "special", [_rotary(5, 4, 2, 16, 8, is_neox=kind, generator=special) for kind in (True, False)]
    )
    yield from error_samples(
        call(positions=(5,), query=(5, 2, 8), key=(4, 2, 8), cos_sin_cache=(9, 8)),
        call(positions=(4,), query=(5, 2, 8), key=(5, 2, 8), cos_sin_cache=(9, 8)),
        call(positions=(5,), query=(5, 2, 8), key=(5, 2, 8), cos_sin_cache=(9, 10)),
        call(positions=(5,), query=(5, 2, 8), key=(5, 2, 8), cos_sin_cache=(9, 7)),
    )
