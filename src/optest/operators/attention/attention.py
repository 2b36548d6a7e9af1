"""scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod, sqrt
from typing import Any

from optest.operators.calls import EVERY_FLOAT, MAIN_FLOATS, call
from optest.operators.describe import FLOATS, attribute, composed, in_module
from optest.operators.samples import in_every_layout, of_one_element, refused, standard, variations
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Shape,
    Specs,
    broadcast_shapes,
    broadcasts_to,
    dense,
    given,
    optional,
)
from optest.spec import Kind, OperatorDescriptor, Sample, Tier, UnfitArguments, format_shape
from optest.spec.declared_shapes import fitted

_BOOL_MASKS = tuple((name, name, name, "bool") for name in EVERY_FLOAT)

SCALE = replace(
    attribute("scale|softmax_scale|sm_scale: float = None", "Factor of the scores; none means 1/√E."),
    implied=lambda spec: 1.0 / sqrt(spec.shape[-1] or 1),
)
SOFTCAP = attribute(
    "softcap|logits_soft_cap: float = 0.0",
    "Scores s become softcap · tanh(s / softcap) before the mask, as in Gemma 2; 0 leaves them.",
)
WINDOW = attribute(
    "window_size: ints = (-1, -1)", "How many keys before and behind its own place a query sees; -1 is all."
)

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="scaled_dot_product_attention",
        signature="query, key, value, attn_mask? -> out",
        aliases=("sdpa",),
        attributes=(
            attribute(
                "is_causal: bool = False",
                "Query i sees keys 0 to i, counted from the first of both, whatever their number.",
            ),
            SCALE,
            attribute(
                "enable_gqa: bool = False",
                "Groups of heads of query share a head of key and value: h reads h // (heads / key heads).",
            ),
            WINDOW,
            SOFTCAP,
        ),
        dtype_variants=(*FLOATS, *_BOOL_MASKS),
        sum_length="attention_length",
        operations="scaled_dot_product_attention_operations",
        samples="attention_samples",
        rule=composed("Σp·ε·|v| + |y|·Σp·ε + 4√S·(Σp|v| + |y|) + 8|y|"),
        description="softmax(scale · query @ keyᵀ + attn_mask) @ value. A bool mask is true where a key is seen; a "
        "query that sees none gets zeros. A masked key has the weight 0: NaN or infinity in its value gives NaN. "
        "Places for window_size are counted as for is_causal.",
    ),
)


def infer_scaled_dot_product_attention(specs: Specs, attributes: Attributes) -> Outputs:
    """torch's: (…, heads, L, E), (…, heads, S, E), (…, heads, S, Ev) make (…, heads, L, Ev)."""
    n, _ = fitted(specs, "query: T[*q, queries, size], key: T[*k, keys, size], value: T[*v, keys, width]")
    require_window(attributes)
    batch = (_grouped_batch if attributes.get("enable_gqa") else broadcast_shapes)(n.q, n.k, n.v)
    if (mask := optional(specs, 3)) is not None:
        scores = (*batch, n.queries, n.keys)
        if attributes.get("is_causal"):
            raise UnfitArguments("attn_mask is given and is_causal is true, but should be one of them")
        if mask.dtype.kind is not Kind.BOOL and mask.dtype != n.T:
            raise UnfitArguments(f"attn_mask is {mask.dtype}, but should be bool or {n.T}, as query")
        if mask.rank < 2 or not broadcasts_to(mask.shape, scores):
            raise UnfitArguments(
                f"attn_mask is {format_shape(mask.shape)}, but should have 2 dimensions or more and broadcast to "
                f"{format_shape(scores)}"
            )
    return (dense(n.T, (*batch, n.queries, n.width)),)


def require_window(attributes: Attributes) -> None:
    """Two sizes, and a cap of 0 or more."""
    window, softcap = attributes.get("window_size", (-1, -1)), attributes.get("softcap", 0.0)
    if len(window) != 2 or min(window) < -1:
        raise UnfitArguments(f"window_size is {list(window)}, but should be two numbers of -1 or more")
    if not softcap >= 0:
        raise UnfitArguments(f"softcap is {softcap:g}, but should be 0 or more")


def _grouped_batch(query: Shape, key: Shape, value: Shape) -> Shape:
    """With grouped heads the last batch dimension counts heads; those of key and value divide those of query."""
    if not (query and key and value):
        raise UnfitArguments("query, key and value should have a dimension of heads, as enable_gqa is true")
    heads = query[-1]
    require_shared_heads("key", key[-1], heads)
    require_shared_heads("value", value[-1], heads)
    return (*broadcast_shapes(query[:-1], key[:-1], value[:-1]), heads)


def require_shared_heads(name: str, heads: int, of_query: int) -> None:
    if not heads or of_query % heads:
        raise UnfitArguments(f"{name} has {heads} heads, but should have a divisor of {of_query}, as query has")


def attention_length(specs: Specs, _attributes: Attributes) -> int:
    """The longer of the two sums: over the elements of a vector, and over the keys."""
    key = given(specs, 1, "key")
    return max(key.shape[-2:], default=1)


def scaled_dot_product_attention_operations(specs: Specs, attributes: Attributes) -> int:
    """2·pairs·(E + Ev) for each head of each batch; a mask leaves no pair out, causality and a window do."""
    out = infer_scaled_dot_product_attention(specs, attributes)[0]
    queries, width = out.shape[-2:]
    keys = given(specs, 1, "key").shape[-2]
    left, right = attributes.get("window_size", (-1, -1))
    before = range(queries) if left < 0 else [min(row, left) for row in range(queries)]
    behind = 0 if attributes.get("is_causal") else keys if right < 0 else right
    pairs: int = sum(max(0, min(row + behind + 1, keys) - (row - back)) for row, back in enumerate(before))
    return 2 * prod(out.shape[:-2]) * pairs * (given(specs, 0, "query").shape[-1] + width)


_SPREAD = {"query": {"fill": "randn", "std": 4.0}, "key": {"fill": "randn", "std": 4.0}}
_POSITIVE = {"value": {"fill": "uniform", "low": 1.0, "high": 2.0}}
_LARGE = {"query": {"fill": "uniform", "low": 4.0, "high": 8.0}, "key": {"fill": "uniform", "low": 4.0, "high": 8.0}}


def _ask(
    query: Sequence[int],
    key: Sequence[int],
    value: Sequence[int] | None = None,
    attn_mask: Sequence[int] | None = None,
    *,
    dtypes: Sequence[str] = (),
    generator: Any = None,
    **attributes: Any,
) -> dict[str, Any]:
    """A call with a value like the key, and perhaps a mask."""
    shapes = {"query": query, "key": key, "value": key if value is None else value}
    if attn_mask is not None:
        shapes["attn_mask"] = attn_mask
    return call(attributes, dtypes=dtypes, generator=generator, **shapes)


def attention_samples() -> Iterator[Sample]:
    calls = [
        _ask((1, 2, 5, 8), (1, 2, 7, 8)),
        _ask((2, 3, 17, 16), (2, 3, 17, 16), is_causal=True),
        _ask((1, 4, 33, 64), (1, 2, 33, 64), enable_gqa=True),
    ]
    yield from standard(calls, FLOATS, special=False)
    for name in ("query", "key"):
        yield from in_every_layout([_ask((2, 2, 16, 8), (2, 2, 16, 8), is_causal=True)], names=[name])
    yield from in_every_layout([_ask((2, 2, 9, 8), (2, 2, 17, 8), attn_mask=(9, 17))], names=["attn_mask"])
    yield from _sizes()
    yield from variations("attributes", _attributes(), dtypes=("float32", "bfloat16"))
    yield from variations("attributes", [_ask((1, 2, 9, 32), (1, 2, 17, 32), scale=0.3)], dtypes=("float64",))
    yield from _masks()
    yield from _outweighed()
    yield from variations("grouped heads", _groups(), dtypes=("float32", "float16"))
    large = [
        _ask((1, 2, 9, 16), (1, 2, 19, 16), generator=_LARGE),  # without the shift by the maximum exp overflows
        _ask((1, 2, 19, 16), (1, 2, 19, 16), is_causal=True, generator=_LARGE),
        _ask((1, 4, 17, 24), (1, 4, 33, 24), generator=_SPREAD),  # roundings of scores grow with them
    ]
    yield from variations("large scores", large, dtypes=MAIN_FLOATS)
    # Values of one sign do not average out, so that an error of the sum of weights shows.
    yield from variations(
        "long", [_ask((1, 4, 9, 16), (1, 4, 129, 16), (1, 4, 129, 32), generator=_POSITIVE)], dtypes=MAIN_FLOATS
    )
    yield from _special()
    yield from variations("long", [_ask((1, 1, 3, 8), (1, 1, 4096, 8))], dtypes=MAIN_FLOATS)
    # The last key has by far the largest score: a block's own maximum is none of the row.
    rising = {"query": "ones", "key": {"fill": "arange", "start": -200.0, "step": 0.5}}
    yield from variations("long", [_ask((1, 1, 3, 1), (1, 1, 801, 1), generator=rising, scale=1.0)], dtypes=MAIN_FLOATS)
    yield from refused(
        _ask((1, 2, 5, 8), (1, 2, 7, 9)),
        _ask((1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 9, 8)),  # more values than keys: reading them harms nobody
        _ask((1, 4, 5, 8), (1, 2, 7, 8)),
        _ask((1, 4, 5, 8), (1, 3, 7, 8), enable_gqa=True),
        _ask((1, 2, 5, 8), (1, 2, 7, 8), attn_mask=(5, 6)),
        _ask((1, 2, 5, 8), (1, 2, 5, 8), attn_mask=(5, 5), is_causal=True),
    )
    model = [
        _ask((1, 8, 512, 64), (1, 8, 512, 64), is_causal=True),
        _ask((1, 8, 1, 128), (1, 2, 2048, 128), enable_gqa=True),
    ]
    yield from variations("long", model, dtypes=MAIN_FLOATS, tier=Tier.FULL)
    alone = _ask((1, 2, 1, 16), (1, 2, 9, 16), is_causal=True)  # counted from the first: it sees one key
    together = {"shape": [2, 3, 9, 16], "strides": [432, 16, 48, 1]}  # heads of one place lie side by side
    packed = _ask((2, 3, 9, 16), (2, 3, 9, 16))
    packed["shapes"] = dict.fromkeys(packed["shapes"], together)
    yield from variations("attributes", [alone, packed], dtypes=("float32", "float16"))
    below = {"query": {"fill": "full", "value": 8.0}, "key": {"fill": "uniform", "low": -40.0, "high": -30.0}}
    lowest = _ask((1, 2, 5, 8), (1, 2, 7, 8), scale=1.0, generator=below)  # a maximum that begins at 0 stays there
    yield from variations("large scores", [lowest], dtypes=MAIN_FLOATS)
    yield from _windows()


def _windows() -> Iterator[Sample]:
    """Windows that end inside, at and beyond a tile, and caps that scores stay far below, reach and exceed."""
    calls = [_ask((1, 2, 33, 16), (1, 2, 35, 16), window_size=each) for each in ((4, 0), (0, 3), (15, 16), (-1, 0))]
    calls.append(_ask((1, 2, 9, 16), (1, 2, 17, 16), attn_mask=(9, 17), window_size=(3, 4)))
    yield from variations("window", calls, dtypes=("float32",))
    late = _ask((1, 4, 40, 8), (1, 2, 24, 8), enable_gqa=True, window_size=(5, 5))  # the last see no key
    yield from variations("window", [late], dtypes=("float16",))
    causal = _ask((1, 2, 65, 16), (1, 2, 65, 16), is_causal=True, window_size=(31, -1))
    yield from variations("window", [causal], dtypes=("float32", "bfloat16"))
    spread = [_ask((1, 2, 9, 32), (1, 2, 17, 32), softcap=cap, generator=_SPREAD) for cap in (1.0, 30.0)]
    yield from variations("softcap", spread, dtypes=("float32", "float16"))
    grouped = _ask((1, 4, 17, 64), (1, 2, 17, 64), enable_gqa=True, is_causal=True, softcap=50.0)
    yield from variations("softcap", [grouped], dtypes=("float32", "bfloat16"))
    masked = _ask((1, 2, 9, 16), (1, 2, 17, 16), attn_mask=(9, 17), scale=0.3, softcap=2.0)
    yield from variations("softcap", [masked], dtypes=("float32",))
    both = _ask((1, 2, 33, 16), (1, 2, 33, 16), is_causal=True, window_size=(7, 0), softcap=5.0)
    yield from variations("softcap", [both], dtypes=("bfloat16",))
    same = ((1, 2, 5, 8), (1, 2, 5, 8))
    yield from refused(_ask(*same, window_size=(3,)), _ask(*same, softcap=-1.0))


def _special() -> Iterator[Sample]:
    """Special values anywhere in value, which every query reads; in query and key one at a place."""
    anywhere = {"value": {"fill": "special", "rate": 0.02}}
    yield from variations("special", [_ask((1, 2, 9, 8), (1, 2, 6, 8), generator=anywhere)], dtypes=MAIN_FLOATS)
    for value in ("nan", "inf"):
        placed = {"value": {"fill": "data", "values": [[[[1.0, 2.0], [0.25, -1.0], [value, 1.0], [0.5, -1.0]]]]}}
        yield from variations("special", [_ask((1, 1, 4, 2), (1, 1, 4, 2), generator=placed)], dtypes=MAIN_FLOATS)
    # The weight of an unseen key is 0, and 0 times NaN is NaN.
    unseen = {
        "value": {"fill": "data", "values": [[[[1.0, 2.0], [0.25, -1.0], ["nan", 1.0], [0.5, -1.0]]]]},
        "attn_mask": {"fill": "data", "values": [[True, True, False, False]] * 4},
    }
    masked = _ask((1, 1, 4, 2), (1, 1, 4, 2), attn_mask=(4, 4), generator=unseen)
    yield from variations("special", [{**masked, "dtypes": ["float32"] * 3 + ["bool"]}])
    for name in ("query", "key"):
        for value in ("nan", "inf", "-inf"):
            rows = [[1.0, 2.0], [0.25, -1.0], [value, 1.0], [0.5, -1.0]]
            placed = {name: {"fill": "data", "values": [[rows]]}}
            yield from variations("special", [_ask((1, 1, 4, 2), (1, 1, 4, 2), generator=placed)], dtypes=("float32",))


def _sizes() -> Iterator[Sample]:
    """Queries, keys and elements around the tiles of fused kernels, one after another."""
    calls = [_ask((1, 1, 3, 16), (1, 1, n, 16)) for n in (1, 15, 16, 17, 31, 33, 63, 65, 127, 129, 1025)]
    calls += [_ask((1, 1, n, 16), (1, 1, n, 16), is_causal=True) for n in (1, 2, 15, 16, 17, 33, 65, 129)]
    calls += [_ask((1, 1, 5, n), (1, 1, 9, n)) for n in (1, 7, 15, 17, 33, 80, 129)]
    calls += [_ask((1, 1, 5, 8), (1, 1, 9, 8), (1, 1, 9, n)) for n in (1, 7, 17, 33)]
    calls += [_ask((0, 2, 5, 8), (0, 2, 7, 8)), _ask((1, 2, 0, 8), (1, 2, 7, 8)), _ask((1, 2, 5, 8), (1, 2, 0, 8))]
    yield from variations("sizes", calls, dtypes=("float32", "float16"))
    yield from variations("sizes", [_ask((1, 1, 5, 257), (1, 1, 9, 257))], dtypes=("float32", "float16"))
    yield from of_one_element(_ask((1, 1, 1, 1), (1, 1, 1, 1)), _ask((1, 1), (1, 1), is_causal=True))
    large = [_ask((65_537, 1, 1, 2), (65_537, 1, 2, 2)), _ask((2, 16, 129, 17), (2, 16, 5, 17))]
    yield from variations("sizes", large, dtypes=("float32",))  # more heads, and more results, than 16 bits count


def _attributes() -> Iterator[dict[str, Any]]:
    for scale in (1.0, 0.05, -0.5, 0.0):
        yield _ask((1, 2, 9, 32), (1, 2, 17, 32), scale=scale)
    yield _ask((1, 2, 9, 32), (1, 2, 17, 32), scale=0.3, is_causal=True)
    yield _ask((1, 2, 17, 16), (1, 2, 9, 16), is_causal=True)  # more queries than keys
    yield _ask((1, 2, 9, 16), (1, 2, 17, 16), is_causal=True)  # more keys: a mask that ends at the last is another
    yield _ask((9, 16), (17, 16))
    yield _ask((3, 9, 16), (3, 17, 16), is_causal=True)
    yield _ask((2, 3, 2, 9, 16), (2, 3, 2, 17, 16))
    yield _ask((3, 1, 9, 16), (1, 2, 17, 16))  # batches that repeat, each on its side
    yield _ask((3, 2, 9, 16), (3, 1, 17, 16))
    yield _ask((3, 1, 2, 9, 16), (1, 2, 2, 17, 16))


def _masks() -> Iterator[Sample]:
    """bool and float masks that broadcast, rows that see nothing, and a mask that would be felt if it counted twice."""
    shapes = [(9, 17), (1, 17), (9, 1), (2, 3, 9, 17), (1, 3, 1, 17), (2, 1, 9, 17)]
    calls = [_ask((2, 3, 9, 16), (2, 3, 17, 16), attn_mask=shape) for shape in shapes]
    yield from variations("masks", calls, dtypes=("float32", "bfloat16"))
    for dtype in ("float32", "float16", "bfloat16", "float64"):
        yield from variations("masks", ({**each, "dtypes": [dtype, dtype, dtype, "bool"]} for each in calls))
    scaled = _ask((2, 3, 9, 16), (2, 3, 17, 16), attn_mask=(9, 17), scale=0.7)
    yield from variations("masks", [scaled], dtypes=MAIN_FLOATS)
    wider = ((1, 2, 9, 16), (1, 2, 17, 16), (1, 2, 17, 32))
    others = [
        _ask((1, 6, 5, 16), (1, 2, 9, 16), attn_mask=(5, 9), enable_gqa=True),
        _ask((2, 3, 1, 16), (2, 3, 33, 16), attn_mask=(2, 1, 1, 33)),
        _ask(*wider, attn_mask=(9, 17)),
    ]
    yield from variations("masks", ({**each, "dtypes": [*["float32"] * 3, "bool"]} for each in (scaled, *others)))
    yield from variations("masks", [_ask(*wider, is_causal=True)], dtypes=MAIN_FLOATS)
    nothing = [[True, False, True, True], [False, False, False, False], [False, False, False, True]]
    seen = {"attn_mask": {"fill": "data", "values": nothing}}
    below = [[0.0 if each else "-inf" for each in row] for row in nothing]
    unseen = {"attn_mask": {"fill": "data", "values": below}}
    small = {"query": (1, 2, 3, 8), "key": (1, 2, 4, 8), "attn_mask": (3, 4)}
    for dtype in MAIN_FLOATS:
        yield from variations(
            "masks",
            [
                _ask(**small, dtypes=[dtype, dtype, dtype, "bool"], generator=seen),
                _ask(**small, dtypes=[dtype], generator=unseen),
            ],
        )


def _outweighed() -> Iterator[Sample]:
    """Scores of unseen keys far above those of seen ones: a mask that adds a finite number lets them through."""
    for size, dtypes in ((1e5, ("float32", "bfloat16")), (200.0, MAIN_FLOATS)):
        rows = {"query": [[size]] * 3, "key": [[-size], [0.0], [size]], "value": [[1.0], [2.0], [3.0]]}
        fills: dict[str, Any] = {name: {"fill": "data", "values": [[value]]} for name, value in rows.items()}
        same = ((1, 1, 3, 1),) * 3
        yield from variations("masks", [_ask(*same, generator=fills, is_causal=True)], dtypes=dtypes)
        seen = [[True, False, False], [True, True, False], [True, False, True]]
        fills = {**fills, "attn_mask": {"fill": "data", "values": seen}}
        for name in dtypes:
            case = _ask(*same, (3, 3), dtypes=[name, name, name, "bool"], generator=fills)
            yield from variations("masks", [case])


def _groups() -> Iterator[dict[str, Any]]:
    for heads, shared in ((4, 2), (6, 2), (6, 3), (8, 1), (4, 4)):
        yield _ask((2, heads, 5, 16), (2, shared, 9, 16), enable_gqa=True)
    yield _ask((1, 6, 9, 16), (1, 2, 9, 16), enable_gqa=True, is_causal=True)
    yield _ask((1, 6, 5, 16), (1, 2, 9, 16), attn_mask=(1, 6, 5, 9), enable_gqa=True)
    yield _ask((1, 6, 5, 16), (1, 2, 9, 16), enable_gqa=True, scale=0.7)
    # One query, as where a model speaks: libraries have kernels of their own for it.
    yield _ask((2, 8, 1, 16), (2, 2, 33, 16), enable_gqa=True)
    yield _ask((2, 4, 1, 16), (2, 2, 33, 16), attn_mask=(2, 1, 1, 33), enable_gqa=True)
