"""rotary_embedding: rope of query and key at once, in the layout of serving frameworks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, call, data, in_dtypes
from optest.operators.describe import FLOATS, accumulate, attribute, in_module
from optest.operators.samples import led_by, refused, variations
from optest.operators.shapes import Attributes, Outputs, Specs, below, rows_of
from optest.spec import Interval, OperatorDescriptor, Sample, UnfitArguments
from optest.spec.declared_shapes import fitted

_INDICES = ("int64", "int32")
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
                "is_neox: bool = True", "Pairs are those of the halves (i, i + n/2); else neighbours, as in GPT-J."
            ),
        ),
        dtype_variants=_VARIANTS,
        sum_length="rope:rope_length",
        domain="rotary_positions_domain",
        generator={"positions": "randint"},
        rule=accumulate("as rope"),
        description="rope of query and key, tokens x heads x E, as in vLLM, SGLang and FlashInfer. Row positions[t] of "
        "cos_sin_cache has the cosines of token t and behind them its sines, half of the rotated size each; what is "
        "behind the rotated elements of a head stays.",
    ),
    twin="rope_reference",
)


def infer_rotary_embedding(specs: Specs, _attributes: Attributes) -> Outputs:
    tensors = "positions: index[tokens], query: T[tokens, heads, size], key: T[tokens, key_heads, size]"
    outs = "T[tokens, heads, size], T[tokens, key_heads, size]"
    n, outputs = fitted(specs, f"{tensors}, cos_sin_cache: T|float32[rows, rotated] -> {outs}")
    if n.rotated % 2 or not 0 < n.rotated <= n.size or (n.tokens and not n.rows):
        raise UnfitArguments(
            f"cos_sin_cache is {n.rows}x{n.rotated}, but should have rows of an even size up to {n.size}"
        )
    return outputs


def rotary_positions_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    return {"positions": below(rows_of(specs, 3))}


def _rotated(
    tokens: int, heads: int, key_heads: int, size: int, rotated: int = 0, rows: int = 33, **more: Any
) -> dict[str, Any]:
    """A call with a table of so many rows; all elements of a head are rotated if ``rotated`` is 0."""
    attributes = {"is_neox": more.pop("is_neox")} if "is_neox" in more else {}
    table = (rows, rotated or size)
    query, key = (tokens, heads, size), (tokens, key_heads, size)
    return call(attributes, positions=(tokens,), query=query, key=key, cos_sin_cache=table, **more)


def rotary_embedding_samples() -> Iterator[Sample]:
    calls = [_rotated(5, 4, 2, 8), _rotated(7, 3, 1, 64, 32, is_neox=False), _rotated(17, 6, 2, 128, rows=257)]
    yield from led_by("query", calls)
    yield from variations("dtypes", [{**each, "dtypes": list(own)} for own in _VARIANTS for each in calls[:2]])
    halves = (1, 2, 3, 8, 15, 16, 17, 32, 33, 64, 65, 128)
    several = [_rotated(3, 2, 1, 2 * half, is_neox=half % 2 == 0) for half in halves]
    several += [_rotated(n, 2, 1, 8, rows=max(n, 1)) for n in (0, 1, 15, 17, 65, 1025)]
    several += [_rotated(5, n, n, 8) for n in (1, 5, 16, 17)]
    several += [_rotated(1, 1, 1, 2, rows=1), _rotated(129, 9, 3, 66)]
    yield from variations("sizes", in_dtypes("query", MAIN_FLOATS[:2], several))
    yield from variations("sizes", [_rotated(LARGE_SIZE, 1, 1, 18)])
    parts = [_rotated(5, 2, 3, 16, size, is_neox=kind) for size in (2, 6, 8, 16) for kind in (True, False)]
    yield from variations("attributes", in_dtypes("query", MAIN_FLOATS, parts))
    # Sequences one behind another, one token far on, and rows that need more than 16 bits.
    tables: tuple[tuple[Sequence[int], int], ...] = (
        ((0, 1, 2, 3, 0, 1, 2), 9),
        ((32, 32, 0, 5, 5), 33),
        ((LARGE_SIZE - 1, LARGE_SIZE // 2, 0, 1), LARGE_SIZE),
    )
    for places, length in tables:
        for index in _INDICES:
            stated: dict[str, Any] = {
                "dtypes": [index, *["float32"] * 3],
                "generator": {"positions": data(list(places))},
            }
            yield from variations("positions", [_rotated(len(places), 2, 1, 8, 4, rows=length, **stated)])
    special = {"query": "special", "key": "special"}
    yield from variations(
        "special", [_rotated(5, 4, 2, 16, 8, is_neox=kind, generator=special) for kind in (True, False)]
    )
    yield from refused(
        call(positions=(5,), query=(5, 2, 8), key=(4, 2, 8), cos_sin_cache=(9, 8)),
        call(positions=(4,), query=(5, 2, 8), key=(5, 2, 8), cos_sin_cache=(9, 8)),
        call(positions=(5,), query=(5, 2, 8), key=(5, 2, 8), cos_sin_cache=(9, 10)),
        call(positions=(5,), query=(5, 2, 8), key=(5, 2, 8), cos_sin_cache=(9, 7)),
    )
