"""The operator varlen_attention: attention within sequences of different lengths in one packed tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from optest.operators.attention.attention import SCALE, SOFTCAP, WINDOW, require_shared_heads, require_window
from optest.operators.attention.cached_attention import RETURN_LSE, VIEWS, log_sum_exps
from optest.operators.calls import MAIN_FLOATS, call, data_fill
from optest.operators.describe import FLOATS, attribute, composed, in_module
from optest.operators.samples import error_samples, in_every_layout, in_layouts_at_once, variations
from optest.operators.shapes import Attributes, Outputs, Specs
from optest.spec import OperatorDescriptor, Sample, Tier
from optest.spec.declared_shapes import match_declaration

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="varlen_attention",
        signature="query, key, value, cu_seqlens_q, cu_seqlens_k -> out, lse?",
        aliases=("flash_attn_varlen_func: q, k, v, cu_seqlens_q, cu_seqlens_k -> out, softmax_lse?",),
        attributes=(
            attribute(
                "is_causal|causal: bool = False",
                "The last query of a sequence attends to keys up to its last key, the one before to one key less, and "
                "so on.",
            ),
            SCALE,
            WINDOW,
            SOFTCAP,
            RETURN_LSE,
        ),
        dtype_variants=tuple((*(name,) * 3, index, index) for index in ("int32", "int64") for (name,) in FLOATS),
        alternatives="varlen_attention_alternatives",
        generator={"cu_seqlens_q": "arange", "cu_seqlens_k": "arange"},
        rule=composed("as scaled_dot_product_attention"),
        description="Attention within each of several sequences. query, key and value are tokens x heads x E; value "
        "may have another E. Sequence i has the queries cu_seqlens_q[i] to cu_seqlens_q[i + 1] and the keys "
        "cu_seqlens_k[i] to cu_seqlens_k[i + 1]. The last query and the last key of a sequence have the same position, "
        "as in FlashAttention since 2.1. Groups of heads of query share a head of key and value. A query without any "
        "key gives zeros; rows after the last sequence are not compared.",
    ),
    twin="cached_attention_reference",
)


def infer_varlen_attention(specs: Specs, attributes: Attributes) -> Outputs:
    tensors = "query: T[tokens, heads, size], key: T[keys, key_heads, size], value: T[keys, key_heads, width]"
    offsets = "cu_seqlens_q: index[offsets], cu_seqlens_k: index[offsets]"
    n, outputs = match_declaration(specs, f"{tensors}, {offsets} -> T[tokens, heads, width]")
    require_window(attributes)
    require_shared_heads("key", n.key_heads, n.heads)
    return (*outputs, *log_sum_exps(outputs[0], n.heads, n.tokens, attributes))


def _varlen(
    queries: Sequence[int],
    keys: Sequence[int] | None = None,
    *,
    heads: int = 2,
    key_heads: int = 0,
    size: int = 16,
    width: int = 0,
    index: str = "int32",
    dtype: str = "float32",
    generator: Any = None,
    **attributes: Any,
) -> dict[str, Any]:
    """Return a call with numbers of `queries` and `keys` of each sequence (equal if `keys` is None)."""
    keys, key_heads = queries if keys is None else keys, key_heads or heads
    offsets = {
        name: data_fill([sum(lengths[:row]) for row in range(len(lengths) + 1)])
        for name, lengths in (("cu_seqlens_q", queries), ("cu_seqlens_k", keys))
    }
    return call(
        attributes,
        dtypes=[*[dtype] * 3, index, index],
        generator={**offsets, **(generator or {})},
        query=(sum(queries), heads, size),
        key=(sum(keys), key_heads, size),
        value=(sum(keys), key_heads, width or size),
        cu_seqlens_q=(len(queries) + 1,),
        cu_seqlens_k=(len(keys) + 1,),
    )


def varlen_attention_samples() -> Iterator[Sample]:
    ordinary: tuple[dict[str, Any], ...] = (
        {"queries": (5, 1, 9), "is_causal": True},
        {"queries": (3, 17, 2), "keys": (7, 33, 2), "heads": 4, "key_heads": 2, "size": 37, "is_causal": True},
        {"queries": (4, 6), "keys": (9, 1), "heads": 6, "key_heads": 2, "size": 64, "width": 32},
    )
    yield Sample(case_set="ordinary", case=_varlen(**ordinary[0]), tier=Tier.SMOKE)
    for dtype in (*MAIN_FLOATS, "float64"):
        yield from variations("ordinary", [_varlen(**options, dtype=dtype) for options in ordinary])
    indices = [_varlen(**options, dtype=dtype, index="int64") for options in ordinary for dtype in MAIN_FLOATS]
    yield from variations("dtypes", indices)
    for dtype, options in zip(MAIN_FLOATS, ordinary, strict=True):
        laid = [_varlen(**options, dtype=dtype)]
        yield from in_every_layout(laid, names=["query", "key", "value"])
        yield from in_layouts_at_once(laid)
        yield from in_layouts_at_once(laid, names=["cu_seqlens_q", "cu_seqlens_k"])
    for dtype in ("float32", "float16"):
        yield from variations("sizes", _size_calls(dtype))
    for dtype in MAIN_FLOATS:
        # Empty sequences, sequences with fewer keys than queries, and grouped heads.
        unequal = [
            _varlen((0, 5, 0, 3), dtype=dtype, is_causal=True),
            _varlen((4, 3, 2), (6, 0, 5), dtype=dtype),
            _varlen((9, 2), (5, 2), dtype=dtype, is_causal=True),  # the first queries have no key
            _varlen((1, 1, 1, 1), (33, 1, 65, 17), heads=8, key_heads=2, dtype=dtype, is_causal=True),
            _varlen((16, 16), (48, 16), heads=6, key_heads=2, dtype=dtype, is_causal=True),
            _varlen((7, 8), (8, 7), heads=6, key_heads=3, dtype=dtype),
        ]
        yield from variations("lengths", unequal)
        views = [_varlen((33, 2, 40), heads=4, key_heads=2, dtype=dtype, is_causal=True, **view) for view in VIEWS]
        # Windows that are unlimited on one side.
        open_windows = ((4, 0), (0, 3), (16, -1), (-1, 7))
        views += [_varlen((9, 5), (33, 7), dtype=dtype, window_size=window) for window in open_windows]
        views += [_varlen((9, 5), (17, 7), dtype=dtype, scale=scale) for scale in (1.0, -0.5)]
        yield from variations("attributes", views)
        large = {name: {"fill": "uniform", "low": 4.0, "high": 8.0} for name in ("query", "key")}
        for view in ({"is_causal": True}, {"scale": 0.3}, {"softcap": 2.0, "window_size": (4, 0)}):
            lengths = [_varlen((9, 2, 0, 5), (5, 0, 3, 33), heads=4, key_heads=2, dtype=dtype, return_lse=True, **view)]
            lengths.append(_varlen((7, 3), (17, 129), dtype=dtype, return_lse=True, generator=large, **view))
            yield from variations("log-sum-exp", lengths)
    # Values of one sign do not cancel, so that an error of the sum of weights is visible.
    positive = {"value": {"fill": "uniform", "low": 1.0, "high": 2.0}}
    long = [_varlen((9, 3), (129, 1025), dtype=name, generator=positive, is_causal=True) for name in MAIN_FLOATS]
    yield from variations("long", long)
    # The middle sequence is NaN: a neighbour that reads one of its rows becomes NaN.
    rows = [[[1.0, 0.5]], [["nan", "nan"]], [["nan", "nan"]], [[0.25, -1.0]], [[1.0, 2.0]]]
    for name in MAIN_FLOATS:
        fills = dict.fromkeys(("query", "key", "value"), data_fill(rows))
        case = _varlen((1, 2, 2), heads=1, size=2, dtype=name, generator=fills, is_causal=True)
        yield from variations("special", [case])
    yield from error_samples(
        _varlen((5, 3), heads=4, key_heads=3),
        {**_varlen((5, 3)), "generator": {"cu_seqlens_q": data_fill([0, 6, 5]), "cu_seqlens_k": data_fill([0, 5, 8])}},
        {**_varlen((5, 3)), "generator": {"cu_seqlens_q": data_fill([0, 5, 9]), "cu_seqlens_k": data_fill([0, 5, 8])}},
        _varlen((5, 3), (5, 2, 1)),
    )


def _size_calls(dtype: str) -> Iterator[dict[str, Any]]:
    """Yield numbers of queries, sizes of vectors and numbers of sequences around tile sizes."""
    for n in (1, 2, 15, 16, 17, 33, 63, 65, 129):
        yield _varlen((n, 3), dtype=dtype, is_causal=True)
    for n in (1, 7, 33, 129, 256):
        yield _varlen((5, 4), size=n, dtype=dtype)
    yield _varlen((2,) * 65, heads=1, size=8, dtype=dtype, is_causal=True)
    yield _varlen((1,), heads=1, size=1, dtype=dtype)
    yield _varlen((), dtype=dtype)
    yield _varlen((33,) * 33, heads=4, size=17, dtype=dtype, is_causal=True)
