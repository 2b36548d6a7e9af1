"""Attention over cached keys and values, writes into the caches, and the merge of attention over two sets of keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from optest.operators.attention.attention import SCALE, SOFTCAP, WINDOW, require_shared_heads, require_window
from optest.operators.calls import CALM_SIZES, EVERY_FLOAT, MAIN_FLOATS, call, data_fill, in_dtypes, reshaped, uniform
from optest.operators.describe import FLOATS, attribute, composed, in_module
from optest.operators.indexing.gather import MOVED
from optest.operators.samples import (
    error_samples,
    in_every_layout,
    in_layouts_at_once,
    samples_by_leading_dtype,
    variations,
)
from optest.operators.shapes import Attributes, Outputs, Specs, dense, index_range
from optest.spec import Interval, OperatorDescriptor, Sample, TensorSpec, Tier, UnfitArguments, dtype
from optest.spec.declared_shapes import match_declaration

_PAGED = tuple((*(name,) * 3, index, index) for index in ("int64", "int32") for name in EVERY_FLOAT)
_PREFILL = tuple((*variant, variant[3]) for variant in _PAGED)
_KV_LAYOUT = attribute(
    "kv_layout: str = 'HND'",
    "Caches are blocks x key heads x tokens x E, or with NHD blocks x tokens x key heads x E, as in FlashAttention and "
    "vLLM; the names are FlashInfer's.",
    choices=("HND", "NHD"),
)
RETURN_LSE = attribute(
    "return_lse: bool = False",
    "Return lse, too: the natural log-sum-exp of each query's scores, heads x tokens, float32 for 16-bit inputs; −∞ "
    "for a query without any key.",
)

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="attention",
        signature="query, key, value, key_cache, value_cache -> out, key_cache_out, value_cache_out, lse?",
        attributes=(attribute("pos: int", "Number of tokens in the caches."), WINDOW, SOFTCAP, RETURN_LSE),
        dtype_variants=FLOATS,
        rule=composed("as scaled_dot_product_attention; the caches are exact"),
        description="scaled_dot_product_attention of heads x tokens x E over the first pos tokens of the caches, "
        "followed by key and value; token i attends to the first pos + i + 1 of them. out is tokens x heads x E. "
        "Groups of heads of query share a head of key and value. key_cache_out and value_cache_out are copies of the "
        "caches, which may be longer, with key and value from token pos on.",
    ),
    OperatorDescriptor(
        name="paged_attention",
        signature="query, key_cache, value_cache, block_tables, seq_lens, alibi_slopes? -> out",
        attributes=(SCALE, WINDOW, SOFTCAP, _KV_LAYOUT),
        dtype_variants=(*_PAGED, *((*variant, "float32") for variant in _PAGED)),
        domain="paged_attention_domain",
        generator={"block_tables": "randint", "seq_lens": "randint", "alibi_slopes": "uniform"},
        rule=composed("as scaled_dot_product_attention"),
        description="Attention of one query per sequence, its last token; query is sequences x heads x E, the caches "
        "are blocks x key heads x tokens x E. A sequence consists of the first seq_lens tokens of the blocks in its "
        "row of block_tables. alibi_slopes, one per head, times the distance to the query is subtracted from the "
        "scores.",
    ),
    OperatorDescriptor(
        name="paged_prefill_attention",
        signature="query, key_cache, value_cache, block_tables, seq_lens, cu_seqlens_q, alibi_slopes? -> out",
        attributes=(SCALE, WINDOW, SOFTCAP, _KV_LAYOUT),
        dtype_variants=(*_PREFILL, *((*variant, "float32") for variant in _PREFILL)),
        domain="paged_attention_domain",
        generator={
            "block_tables": "randint",
            "seq_lens": "randint",
            "cu_seqlens_q": "arange",
            "alibi_slopes": "uniform",
        },
        rule=composed("as scaled_dot_product_attention"),
        description="paged_attention of several queries per sequence, which are its last tokens; each attends to the "
        "tokens up to itself. query is tokens x heads x E; the queries of sequence i are rows cu_seqlens_q[i] to "
        "cu_seqlens_q[i + 1], as in FlashAttention's calls with a block table and FlashInfer's append. Rows after "
        "the last sequence are not compared.",
        alternatives="paged_prefill_attention_alternatives",
    ),
    OperatorDescriptor(
        name="paged_caching",
        signature="key_cache, value_cache, key, value, slot_mapping -> key_cache_out, value_cache_out",
        attributes=(_KV_LAYOUT,),
        dtype_variants=tuple((*(name,) * 4, index) for index in ("int64", "int32") for name in EVERY_FLOAT),
        alternatives="paged_caching_alternatives",
        domain="paged_caching_domain",
        generator={"slot_mapping": "randint"},
        rule=replace(MOVED, formula="if a slot repeats, any of the elements written to it"),
        description="Copies of the caches, blocks x heads x tokens x E, with each token of key and value, "
        "tokens x heads x E, in its slot: token slot % tokens of block slot // tokens; a negative slot is skipped. "
        "With kv_layout NHD it is reshape_and_cache_flash of vLLM.",
    ),
    OperatorDescriptor(
        name="merge_attention_states",
        signature="prefix_output, prefix_lse, suffix_output, suffix_lse -> out, lse",
        aliases=("merge_attn_states",),
        dtype_variants=(("float32",), ("float64",), *((half, "float32") * 2 for half in ("float16", "bfloat16"))),
        rule=composed("running errors: exp and log 3 ulp, weights by a quotient, from lse, or by a sigmoid of 2.5 ulp"),
        description="Attention over two sets of keys, from the outputs and the log-sum-exps of attention over each, as "
        "in vLLM: lse = ln(exp(prefix_lse) + exp(suffix_lse)) and out = prefix_output · exp(prefix_lse − lse) + "
        "suffix_output · exp(suffix_lse − lse). Outputs are tokens x heads x E, log-sum-exps heads x tokens. A set "
        "without keys has the log-sum-exp −∞ and an output of zeros; so has the result if both sets are empty.",
    ),
)


def log_sum_exps(out: TensorSpec, heads: int, tokens: int, attributes: Attributes) -> Outputs:
    """Return the spec of the log-sum-exps (heads, tokens) that belong to `out`, or nothing without return_lse."""
    # Kernels return log-sum-exps in the dtype of their accumulators.
    kind = dtype("float32") if out.dtype.bits == 16 else out.dtype
    return (dense(kind, (heads, tokens)),) if attributes.get("return_lse") else ()


def infer_attention(specs: Specs, attributes: Attributes) -> Outputs:
    declared = "query: T[heads, tokens, size], key: T[key_heads, tokens, size], value: T[key_heads, tokens, size], "
    declared += "key_cache: T[key_heads, keys, size], value_cache: T[key_heads, values, size]"
    outs = "T[tokens, heads, size], T[key_heads, keys, size], T[key_heads, values, size]"
    n, outputs = match_declaration(specs, f"{declared} -> {outs}")
    require_window(attributes)
    require_shared_heads("key", n.key_heads, n.heads)
    length = attributes["pos"] + n.tokens
    for name, capacity in (("key_cache", n.keys), ("value_cache", n.values)):
        if attributes["pos"] < 0 or capacity < length:
            raise UnfitArguments(f"{name} has {capacity} tokens, expected {length} or more")
    return (*outputs, *log_sum_exps(outputs[0], n.heads, n.tokens, attributes))


def infer_paged_attention(specs: Specs, attributes: Attributes) -> Outputs:
    return _infer_paged(specs, attributes, "T[sequences, heads, size]", "")


def infer_paged_prefill_attention(specs: Specs, attributes: Attributes) -> Outputs:
    return _infer_paged(specs, attributes, "T[tokens, heads, size]", "cu_seqlens_q: index[sequences+1], ")


def _infer_paged(specs: Specs, attributes: Attributes, query: str, offsets: str) -> Outputs:
    """Return the output spec of a paged attention with declared shapes of query and, if any, its offsets."""
    cache = _declared_cache(attributes)
    tensors = f"query: {query}, key_cache: {cache}, value_cache: {cache}, block_tables: index[sequences, columns]"
    parameters = f"seq_lens: index[sequences], {offsets}alibi_slopes?: [heads]"
    n, outputs = match_declaration(specs, f"{tensors}, {parameters} -> {query}")
    require_window(attributes)
    require_shared_heads("key_cache", n.key_heads, n.heads)
    return outputs


def _declared_cache(attributes: Attributes) -> str:
    """Return the declared shape of a paged cache in the layout of kv_layout."""
    # NHD has tokens before heads.
    by_token = attributes.get("kv_layout", "HND") == "NHD"
    return f"T[blocks, {'slots, key_heads' if by_token else 'key_heads, slots'}, size]"


def _block_tokens(cache: TensorSpec, attributes: Attributes) -> int:
    """Return the number of tokens of a cache block."""
    return cache.shape[1 if attributes.get("kv_layout", "HND") == "NHD" else 2]


def infer_paged_caching(specs: Specs, attributes: Attributes) -> Outputs:
    cache, new = _declared_cache(attributes), "T[count, key_heads, size]"
    declared = f"key_cache: {cache}, value_cache: {cache}, key: {new}, value: {new}, slot_mapping: index[count]"
    n, outputs = match_declaration(specs, f"{declared} -> {cache}, {cache}")
    if n.count and not n.blocks * n.slots:
        raise UnfitArguments(f"slot_mapping has {n.count} elements, expected 0, as the caches have no slots")
    return outputs


def infer_merge_attention_states(specs: Specs, _attributes: Attributes) -> Outputs:
    output, lse = "T[tokens, heads, size]", "P[heads, tokens]"
    inputs = f"prefix_output: {output}, prefix_lse: {lse}, suffix_output: {output}, suffix_lse: {lse}"
    return match_declaration(specs, f"{inputs} -> {output}, {lse}")[1]


def paged_attention_domain(specs: Specs, attributes: Attributes) -> Mapping[str, Interval]:
    """Return ranges of block indices, sequence lengths and ALiBi slopes; none if shapes are unusable."""
    cache, tables = specs[1], specs[3]
    if cache is None or tables is None or cache.rank != 4 or tables.rank != 2:
        return {}
    # A sequence cannot be longer than all blocks of its row.
    longest = float(tables.shape[1] * _block_tokens(cache, attributes))
    return {
        "block_tables": index_range(cache.shape[0]),
        "seq_lens": Interval(low=min(longest, 1.0), high=longest),
        "alibi_slopes": Interval(low=2.0**-8, high=0.5),
    }


def paged_caching_domain(specs: Specs, attributes: Attributes) -> Mapping[str, Interval]:
    """Return the range of slots of the caches."""
    cache = specs[0]
    slots = cache.shape[0] * _block_tokens(cache, attributes) if cache is not None and cache.rank == 4 else 1
    return {"slot_mapping": index_range(slots)}


def _cached_call(
    heads: int,
    tokens: int,
    size: int,
    pos: int,
    *,
    keys: int = 0,
    length: int = 0,
    attributes: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Return an attention call with `keys` heads of key (all if 0) and caches of `length` tokens (full if 0)."""
    keys = keys or heads
    new, cache = (keys, tokens, size), (keys, length or pos + tokens, size)
    return call(
        {"pos": pos, **(attributes or {})},
        query=(heads, tokens, size),
        key=new,
        value=new,
        key_cache=cache,
        value_cache=cache,
        **options,
    )


def attention_samples() -> Iterator[Sample]:
    calls = [
        _cached_call(4, 5, 8, 7, keys=2, length=17),
        _cached_call(3, 17, 16, 0),
        _cached_call(6, 1, 37, 12, keys=2, length=20),
    ]
    yield from samples_by_leading_dtype(
        "query", calls, dtypes=EVERY_FLOAT, names=("query", "key", "key_cache", "value_cache")
    )
    sizes = [
        *(_cached_call(2, n, 16, 3) for n in (1, 2, 15, 16, 33, 65)),
        *(_cached_call(2, 3, n, 5, length=11) for n in (1, 7, 33, 64, 129)),
        *(_cached_call(2, 2, 16, n) for n in (1, 14, 31, 63, 127, 1025)),
        *(_cached_call(8, 3, 16, 4, keys=n) for n in (1, 2, 4)),
        _cached_call(1, 1, 1, 0),
        _cached_call(3, 1, 1, 4),
        _cached_call(2, 3, 64, 9, length=1030),
    ]
    yield from variations("sizes", sizes, dtypes=("float32", "float16"))
    yield from variations("sizes", [_cached_call(4, 0, 8, 5), _cached_call(2, 0, 16, 3, length=9)])
    large = {"query": {"fill": "uniform", "low": 4.0, "high": 8.0}, "key": {"fill": "uniform", "low": 4.0, "high": 8.0}}
    yield from variations("large scores", [_cached_call(2, 9, 16, 8, generator=large)], dtypes=MAIN_FLOATS)
    positive = {name: {"fill": "uniform", "low": 1.0, "high": 2.0} for name in ("value", "value_cache")}
    yield from variations("long", [_cached_call(4, 9, 16, 120, keys=2, generator=positive)], dtypes=MAIN_FLOATS)
    yield from variations(
        "attributes", [_cached_call(4, 5, 16, 28, keys=2, attributes=view) for view in VIEWS], dtypes=MAIN_FLOATS
    )
    for view in ({}, *VIEWS):
        attributes = {"return_lse": True, **view}
        calls = [_cached_call(4, 5, 16, 28, keys=2, attributes=attributes, generator=fills) for fills in (None, large)]
        yield from variations("log-sum-exp", calls, dtypes=EVERY_FLOAT)
    partly_filled_cache = _cached_call(1, 1, 2, 2, length=4)
    unwritten_tokens = {"key_cache": data_fill([[[1.0, 0.5], [-1.0, 0.25], ["nan", "nan"], ["inf", "nan"]]])}
    yield from variations("special", [{**partly_filled_cache, "generator": unwritten_tokens}], dtypes=MAIN_FLOATS)
    yield from error_samples(
        _cached_call(4, 5, 8, 7, length=11), _cached_call(4, 5, 8, 7, keys=3), _cached_call(4, 5, 8, -1, length=9)
    )


_VIEW_NAMES = ("window_size", "softcap")
# Attributes that limit or cap scores: windows that end within a block, and caps.
VIEWS: tuple[dict[str, Any], ...] = (
    {"window_size": (3, -1)},
    {"window_size": (0, 0)},
    {"window_size": (15, -1), "softcap": 2.0},
    {"softcap": 30.0},
)


def _paged(
    sequences: int,
    heads: int,
    size: int,
    *,
    keys: int = 0,
    blocks: int = 6,
    tokens: int = 4,
    columns: int = 3,
    **options: Any,
) -> dict[str, Any]:
    """Return a call over `blocks` of `tokens` each, with `columns` blocks per sequence.

    With `queries`, the number of queries of each sequence, it is a call of paged_prefill_attention.
    """
    slopes = {"alibi_slopes": (heads,)} if options.pop("alibi", False) else {}
    attributes = {name: options.pop(name) for name in ("scale", *_VIEW_NAMES, "kv_layout") if name in options}
    by_token = attributes.get("kv_layout") == "NHD"
    cache = (blocks, tokens, keys or heads, size) if by_token else (blocks, keys or heads, tokens, size)
    queries: Sequence[int] | None = options.pop("queries", None)
    shapes: dict[str, Any] = {
        "query": (sequences if queries is None else sum(queries), heads, size),
        "key_cache": cache,
        "value_cache": cache,
        "block_tables": (sequences, columns),
        "seq_lens": (sequences,),
        **({} if queries is None else {"cu_seqlens_q": (sequences + 1,)}),
        **slopes,
    }
    if queries is not None:
        offsets = {"cu_seqlens_q": data_fill([sum(queries[:row]) for row in range(sequences + 1)])}
        options["generator"] = {**offsets, **options.get("generator", {})}
    return call(attributes, **shapes, **options)


def paged_attention_samples() -> Iterator[Sample]:
    calls = [_paged(5, 4, 16, keys=2), _paged(3, 2, 37, alibi=True), _paged(2, 8, 64, keys=1, tokens=16)]
    names = ("query", "key_cache", "value_cache", "block_tables", "seq_lens", "alibi_slopes")
    yield from samples_by_leading_dtype("query", calls, dtypes=EVERY_FLOAT, names=names)
    sizes = [
        *(_paged(n, 2, 16) for n in (1, 17, 65)),
        *(_paged(3, 2, n) for n in (1, 2, 17, 129, 256)),
        *(_paged(3, 2, 16, tokens=n) for n in (1, 3, 16, 32)),
        *(_paged(2, 8, 32, keys=n) for n in (2, 4, 8)),
        _paged(2, 2, 32, blocks=130, tokens=16, columns=64),
        _paged(1, 1, 1, blocks=1, tokens=1, columns=1),
        _paged(4, 1, 1, columns=1),
    ]
    yield from variations("sizes", in_dtypes("query", MAIN_FLOATS[:2], sizes))
    yield from variations("sizes", [_paged(0, 2, 8), _paged(0, 3, 16)])
    attributes = [
        *(_paged(3, 4, 16, keys=2, scale=scale) for scale in (1.0, 0.05, -0.5)),
        *(_paged(3, heads, 16, keys=2, alibi=True) for heads in (2, 6)),
        *(_paged(4, 4, 16, keys=2, tokens=16, **view) for view in VIEWS),
        _paged(3, 4, 16, keys=2, kv_layout="NHD"),
        _paged(5, 6, 37, keys=3, tokens=3, alibi=True, kv_layout="NHD", window_size=(4, -1)),
    ]
    narrow = [{**case, "dtypes": [*["float32"] * 3, "int32", "int32"]} for case in calls[::2]]
    yield from variations("dtypes", narrow)
    yield from variations("attributes", in_dtypes("query", MAIN_FLOATS, attributes))
    ends = {
        "seq_lens": data_fill([1, 4, 5, 12]),
        "block_tables": data_fill([[0, 0, 0], [5, 0, 0], [3, 1, 0], [2, 2, 2]]),
    }
    yield from variations("indices", [_paged(4, 2, 16, generator=ends)])
    partly_filled_block = [[[[1.0], [2.0], ["nan"], ["inf"]]]]  # tokens after the last one of a sequence are unwritten
    unwritten_tokens = {
        "value_cache": data_fill(partly_filled_block),
        "seq_lens": data_fill([2, 1]),
        "block_tables": data_fill([[0], [0]]),
    }
    yield from variations("special", [_paged(2, 1, 1, blocks=1, columns=1, generator=unwritten_tokens)])
    yield from error_samples(
        _paged(3, 4, 16, keys=3),
        reshaped(_paged(3, 2, 16), seq_lens=[4]),
        reshaped(_paged(3, 2, 16), block_tables=[2, 3]),
    )


def _prefill(queries: Sequence[int], lengths: Sequence[int], heads: int, size: int, **options: Any) -> dict[str, Any]:
    """Return a paged_prefill_attention call with numbers of `queries` and total `lengths` of each sequence."""
    options["generator"] = {"seq_lens": data_fill(list(lengths)), **options.get("generator", {})}
    return _paged(len(queries), heads, size, queries=queries, **options)


def paged_prefill_attention_samples() -> Iterator[Sample]:
    queries, lengths = (5, 1, 3), (12, 7, 3)
    calls = [
        _prefill(queries, lengths, 4, 16, keys=2),
        _prefill((17, 2), (33, 45), 2, 37, alibi=True, tokens=16),
        _prefill((4, 0, 9), (4, 5, 12), 8, 64, keys=1, kv_layout="NHD"),
    ]
    # Random lengths, as a layout with a stride of 0 cannot store a list of different ones.
    random_lengths = [
        {**case, "generator": {**case["generator"], "seq_lens": {"fill": "randint", "low": limit, "high": limit + 4}}}
        for case, limit in zip(calls, (5, 17, 9), strict=True)
    ]
    names = ("query", "key_cache", "value_cache", "block_tables", "seq_lens", "alibi_slopes")
    yield from samples_by_leading_dtype("query", random_lengths, dtypes=EVERY_FLOAT, names=names)
    yield from variations("ordinary", calls)
    yield from in_layouts_at_once(calls, names=["cu_seqlens_q"])
    sizes = [
        *(_prefill((n,), (n,), 2, 16, tokens=16, columns=5) for n in (1, 15, 16, 17, 33, 65)),
        *(_prefill((3, 2), (9, 12), 2, n) for n in (1, 2, 17, 64, 129, 256)),
        *(_prefill((3, 2), (2 * n + 1, 3 * n), 2, 16, tokens=n) for n in (1, 3, 16, 32)),
        _prefill((1, 1, 1), (4, 8, 12), 8, 32, keys=2),
        _prefill((7, 130), (1000, 130), 2, 32, blocks=130, tokens=16, columns=64),
        _prefill((1,), (1,), 1, 1, blocks=1, tokens=1, columns=1),
        _prefill((3,) * 40, (9,) * 40, 1, 8),
    ]
    yield from variations("sizes", in_dtypes("query", MAIN_FLOATS[:2], sizes))
    yield from variations("sizes", [_prefill((), (), 2, 8), _prefill((0, 0), (3, 4), 2, 8)])
    views = [_prefill((17, 1, 5), (40, 33, 5), 4, 16, keys=2, tokens=16, **view) for view in VIEWS]
    views += [_prefill(queries, lengths, 4, 16, keys=2, scale=scale) for scale in (1.0, -0.5)]
    # Equal numbers of heads and tokens of a block hide a swapped layout in shapes.
    by_token = {"keys": 4, "kv_layout": "NHD"}
    views.append(_prefill((9, 4), (12, 8), 8, 16, alibi=True, window_size=(4, -1), **by_token))
    yield from variations("attributes", in_dtypes("query", MAIN_FLOATS, views))
    yield from variations("dtypes", [{**case, "dtypes": {"query": "float16", "seq_lens": "int32"}} for case in calls])
    shared = {"block_tables": data_fill([[0, 1, 2], [0, 5, 5], [4, 3, 2]])}  # a shared prefix, and blocks out of order
    yield from variations("indices", [_prefill(queries, lengths, 4, 16, keys=2, generator=shared)])
    partly_filled_block = [[[[1.0], [2.0], ["nan"], ["inf"]]]]
    unwritten_tokens = {"value_cache": data_fill(partly_filled_block), "block_tables": data_fill([[0]])}
    yield from variations("special", [_prefill((2,), (2,), 1, 1, blocks=1, columns=1, generator=unwritten_tokens)])
    yield from error_samples(
        _prefill(queries, lengths, 4, 16, keys=3),
        reshaped({**calls[0], "generator": "randn"}, cu_seqlens_q=[3]),
        reshaped({**calls[0], "generator": "randn"}, seq_lens=[4]),
    )


def _caching(blocks: int, heads: int, tokens: int, size: int, count: int, **options: Any) -> dict[str, Any]:
    """Return a paged_caching call that writes `count` tokens."""
    cache, new = (blocks, heads, tokens, size), (count, heads, size)
    return call(key_cache=cache, value_cache=cache, key=new, value=new, slot_mapping=(count,), **options)


def paged_caching_samples() -> Iterator[Sample]:
    calls = [_caching(4, 2, 5, 17, 6), _caching(3, 1, 16, 37, 9), _caching(6, 3, 1, 8, 2)]
    names = ("key_cache", "value_cache", "key", "value")
    yield from samples_by_leading_dtype("key_cache", calls, dtypes=EVERY_FLOAT, names=(*names, "slot_mapping"))
    # Distinct slots: the result does not depend on the order of writes.
    in_order = {"slot_mapping": "arange"}
    sizes = [
        *(_caching(8, 2, 16, 8, n, generator=in_order) for n in (0, 1, 17, 64, 128)),
        *(_caching(4, 2, 4, n, 7, generator=in_order) for n in (1, 7, 33, 64, 129)),
        *(_caching(1, 1, 1, n, 1) for n in (1, 2)),
        _caching(0, 2, 4, 8, 0),
        _caching(4097, 2, 8, 17, 300),
    ]
    yield from variations("sizes", sizes)
    skipped_slots = {"slot_mapping": data_fill([3, -1, 19, -1, 0, 7])}
    with_skipped = _caching(4, 2, 5, 17, 6, generator=skipped_slots)
    yield from variations("indices", in_dtypes("key_cache", MAIN_FLOATS, [with_skipped]))
    flash = [_in_nhd_layout(case) for case in (*calls, with_skipped, _caching(5, 4, 4, 8, 9))]
    yield from variations("attributes", in_dtypes("key_cache", MAIN_FLOATS, flash))
    yield from variations("dtypes", [{**flash[0], "dtypes": [*["float16"] * 4, "int32"]}])
    special = dict.fromkeys(names, "special")
    yield from variations("special", [_caching(4, 2, 5, 17, 6, generator=special)])
    yield from error_samples(
        call(key_cache=(4, 2, 5, 8), value_cache=(4, 2, 5, 8), key=(6, 3, 8), value=(6, 3, 8), slot_mapping=(6,)),
        call(key_cache=(4, 2, 5, 8), value_cache=(4, 2, 5, 8), key=(6, 2, 8), value=(6, 2, 8), slot_mapping=(5,)),
        call(key_cache=(4, 5, 8), value_cache=(4, 5, 8), key=(6, 5, 8), value=(6, 5, 8), slot_mapping=(6,)),
        _caching(4, 2, 5, 8, 2, generator={"slot_mapping": data_fill([0, 20])}),
    )


def _in_nhd_layout(case: dict[str, Any]) -> dict[str, Any]:
    """Return the call with caches in the layout NHD: tokens before heads."""
    blocks, heads, tokens, size = case["shapes"]["key_cache"]
    cache = [blocks, tokens, heads, size]
    shapes = {**case["shapes"], "key_cache": cache, "value_cache": cache}
    return {**case, "shapes": shapes, "attributes": {"kv_layout": "NHD"}}


def _merge(tokens: int, heads: int, size: int, kind: str = "float32", **fills: Any) -> dict[str, Any]:
    """Return a merge_attention_states call; log-sum-exps are float32 for 16-bit outputs."""
    output, lse = (tokens, heads, size), (heads, tokens)
    dtypes = (kind, "float32") * 2 if kind in ("float16", "bfloat16") else (kind,)
    names = ("prefix_output", "prefix_lse", "suffix_output", "suffix_lse")
    shapes: dict[str, Any] = dict(zip(names, (output, lse) * 2, strict=True))
    return call(dtypes=dtypes, generator=fills or None, **shapes)


def merge_attention_states_samples() -> Iterator[Sample]:
    yield Sample(case_set="ordinary", case=_merge(5, 2, 16), tier=Tier.SMOKE)
    # An empty set of keys has the log-sum-exp −∞ and an output of zeros.
    rows, nothing = [[0.5, -2.0], [3.0, 0.25]], [[0.0, 0.0], [0.0, 0.0]]
    empty: dict[str, Any] = {  # the prefix, the suffix, both and neither
        "prefix_output": data_fill([nothing, rows, nothing, rows]),
        "prefix_lse": data_fill([["-inf", 2.0, "-inf", 0.5]] * 2),
        "suffix_output": data_fill([rows, nothing, nothing, rows]),
        "suffix_lse": data_fill([[-1.0, "-inf", "-inf", 700.0]] * 2),
    }
    for kind in EVERY_FLOAT:
        calls = [_merge(5, 2, 16, kind), _merge(7, 3, 37, kind), _merge(4, 4, 64, kind), _merge(1, 8, 128, kind)]
        yield from variations("ordinary", calls)
        yield from in_layouts_at_once(calls[:2])
        scores = [uniform(-200.0, 200.0), uniform(90.0, 110.0), uniform(-120.0, -90.0), uniform(700.0, 702.0)]
        drawn = [{"prefix_lse": score, "suffix_lse": score} for score in scores]  # exp overflows, or is 0
        yield from variations("large scores", [_merge(9, 3, 16, kind, **fills) for fills in drawn])
        # Outputs of opposite sign cancel in the sum.
        cancelling = {"prefix_output": uniform(3.0, 3.01), "suffix_output": uniform(-3.01, -3.0)}
        yield from variations("zero-mean", [_merge(33, 4, 2, kind, **cancelling)])
        special = _merge(7, 3, 16, kind, suffix_output="special")
        yield from variations("special", [_merge(4, 2, 2, kind, **empty), special])
    yield from in_every_layout([_merge(4, 3, 8), _merge(3, 2, 5, "bfloat16")])
    for n in (*CALM_SIZES, 256):
        sizes = [(n, 2, 16), (3, n, 8), (3, 2, n)]
        yield from variations("sizes", [_merge(*size, kind) for size in sizes for kind in MAIN_FLOATS[:2]])
    yield from variations("sizes", [_merge(65_537, 1, 17), _merge(1, 1, 1), _merge(300, 32, 128, "bfloat16")])
    wrong = [{"prefix_lse": [2, 4]}, {"suffix_output": [5, 2, 8]}, {"suffix_lse": [5, 2]}, {"prefix_output": [5, 16]}]
    yield from error_samples(*(reshaped(_merge(5, 2, 16), **shapes) for shapes in wrong))
