"""The operator scaled_dot_product_attention: descriptor, shape inference and samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod, sqrt
from typing import Any

from optest.operators.calls import EVERY_FLOAT, MAIN_FLOATS, call
from optest.operators.describe import FLOATS, attribute, composed, in_module
from optest.operators.samples import error_samples, in_every_layout, of_one_element, standard_samples, variations
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Shape,
    Specs,
    broadcast_shapes,
    broadcasts_to,
    dense,
    optional_spec,
    require_spec,
)
from optest.spec import Kind, OperatorDescriptor, Sample, Tier, UnfitArguments, format_shape
from optest.spec.declared_shapes import match_declaration

_BOOL_MASKS = tuple((name, name, name, "bool") for name in EVERY_FLOAT)

SCALE = replace(
    attribute("scale|softmax_scale|sm_scale: float = None", "Factor of the scores; None means 1/√E."),
    implied=lambda spec: 1.0 / sqrt(spec.shape[-1] or 1),
)
SOFTCAP = attribute(
    "softcap|logits_soft_cap: float = 0.0",
    "Replace scores s by softcap · tanh(s / softcap) before the mask, as in Gemma 2; 0 disables it.",
)
WINDOW = attribute(
    "window_size: ints = (-1, -1)",
    "Number of keys before and after its own position that a query attends to; -1 is all.",
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
                "Query i attends to keys 0 to i, counted from the first query and key, for any number of keys.",
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
        rule=composed("Σp·ε·|v| + |y|·Σp·ε + 4√S·(Σp|v| + |y|) + 8|y|"),
        description="softmax(scale · query @ keyᵀ + attn_mask) @ value. A bool mask is true for keys that are attended "
        "to; a query without any key gives zeros. A masked key has the weight 0: NaN or infinity in its value gives "
        "NaN. Positions for window_size are counted as for is_causal.",
    ),
)


def infer_scaled_dot_product_attention(specs: Specs, attributes: Attributes) -> Outputs:
    """Return the output spec: (…, heads, L, E), (…, heads, S, E) and (…, heads, S, Ev) give (…, heads, L, Ev)."""
    n, _ = match_declaration(specs, "query: T[*q, queries, size], key: T[*k, keys, size], value: T[*v, keys, width]")
    require_window(attributes)
    batch = (_grouped_batch if attributes.get("enable_gqa") else broadcast_shapes)(n.q, n.k, n.v)
    if (mask := optional_spec(specs, 3)) is not None:
        scores = (*batch, n.queries, n.keys)
        if attributes.get("is_causal"):
            raise UnfitArguments("attn_mask is given and is_causal is true, expected only one of them")
        if mask.dtype.kind is not Kind.BOOL and mask.dtype != n.T:
            raise UnfitArguments(f"attn_mask is {mask.dtype}, expected bool or {n.T}, as query")
        if mask.rank < 2 or not broadcasts_to(mask.shape, scores):
            raise UnfitArguments(
                f"attn_mask is {format_shape(mask.shape)}, expected 2 dimensions or more that broadcast to "
                f"{format_shape(scores)}"
            )
    return (dense(n.T, (*batch, n.queries, n.width)),)


def require_window(attributes: Attributes) -> None:
    """Raise UnfitArguments unless window_size is two numbers of -1 or more and softcap is 0 or more."""
    window, softcap = attributes.get("window_size", (-1, -1)), attributes.get("softcap", 0.0)
    if len(window) != 2 or min(window) < -1:
        raise UnfitArguments(f"window_size is {list(window)}, expected two numbers of -1 or more")
    if not softcap >= 0:
        raise UnfitArguments(f"softcap is {softcap:g}, expected 0 or more")


def _grouped_batch(query: Shape, key: Shape, value: Shape) -> Shape:
    """Return the batch shape for grouped heads; require heads of key and value to divide those of query."""
    if not (query and key and value):
        raise UnfitArguments(
            "query, key or value has 2 dimensions, expected 3 or more with heads, as enable_gqa is true"
        )
    heads = query[-1]
    require_shared_heads("key", key[-1], heads)
    require_shared_heads("value", value[-1], heads)
    return (*broadcast_shapes(query[:-1], key[:-1], value[:-1]), heads)


def require_shared_heads(name: str, heads: int, of_query: int) -> None:
    """Raise UnfitArguments unless `heads` of input `name` divide the heads of query."""
    if not heads or of_query % heads:
        raise UnfitArguments(f"{name} has {heads} heads, expected a divisor of {of_query}, the heads of query")


def attention_length(specs: Specs, _scale_and_shape_calls: Attributes) -> int:
    """Return the length of the longer sum: over the elements of a vector, or over the keys."""
    key = require_spec(specs, 1, "key")
    return max(key.shape[-2:], default=1)


def scaled_dot_product_attention_operations(specs: Specs, attributes: Attributes) -> int:
    """Return 2 · pairs · (E + Ev) for each head of each batch.

    A mask does not reduce the pairs of query and key; is_causal and window_size do.
    """
    out = infer_scaled_dot_product_attention(specs, attributes)[0]
    queries, width = out.shape[-2:]
    keys = require_spec(specs, 1, "key").shape[-2]
    left, right = attributes.get("window_size", (-1, -1))
    before = range(queries) if left < 0 else [min(row, left) for row in range(queries)]
    behind = 0 if attributes.get("is_causal") else keys if right < 0 else right
    pairs: int = sum(max(0, min(row + behind + 1, keys) - (row - back)) for row, back in enumerate(before))
    return 2 * prod(out.shape[:-2]) * pairs * (require_spec(specs, 0, "query").shape[-1] + width)


_SPREAD = {"query": {"fill": "randn", "std": 4.0}, "key": {"fill": "randn", "std": 4.0}}
_POSITIVE = {"value": {"fill": "uniform", "low": 1.0, "high": 2.0}}
_LARGE = {"query": {"fill": "uniform", "low": 4.0, "high": 8.0}, "key": {"fill": "uniform", "low": 4.0, "high": 8.0}}


def _sdpa(
    query: Sequence[int],
    key: Sequence[int],
    value: Sequence[int] | None = None,
    attn_mask: Sequence[int] | None = None,
    *,
    dtypes: Sequence[str] = (),
    generator: Any = None,
    **attributes: Any,
) -> dict[str, Any]:
    """Return a call; value has the shape of key unless given."""
    shapes = {"query": query, "key": key, "value": key if value is None else value}
    if attn_mask is not None:
        shapes["attn_mask"] = attn_mask
    return call(attributes, dtypes=dtypes, generator=generator, **shapes)


def scaled_dot_product_attention_samples() -> Iterator[Sample]:
    calls = [
        _sdpa((1, 2, 5, 8), (1, 2, 7, 8)),
        _sdpa((2, 3, 17, 16), (2, 3, 17, 16), is_causal=True),
        _sdpa((1, 4, 33, 64), (1, 2, 33, 64), enable_gqa=True),
    ]
    yield from standard_samples(calls, FLOATS, special=False)
    for name in ("query", "key"):
        yield from in_every_layout([_sdpa((2, 2, 16, 8), (2, 2, 16, 8), is_causal=True)], names=[name])
    yield from in_every_layout([_sdpa((2, 2, 9, 8), (2, 2, 17, 8), attn_mask=(9, 17))], names=["attn_mask"])
    yield from _size_samples()
    yield from variations("attributes", _scale_and_shape_calls(), dtypes=("float32", "bfloat16"))
    yield from variations("attributes", [_sdpa((1, 2, 9, 32), (1, 2, 17, 32), scale=0.3)], dtypes=("float64",))
    yield from _mask_samples()
    yield from _outweighing_masked_scores()
    yield from variations("grouped heads", _grouped_head_calls(), dtypes=("float32", "float16"))
    large = [
        # Exp overflows without the shift by the maximum.
        _sdpa((1, 2, 9, 16), (1, 2, 19, 16), generator=_LARGE),
        _sdpa((1, 2, 19, 16), (1, 2, 19, 16), is_causal=True, generator=_LARGE),
        _sdpa((1, 4, 17, 24), (1, 4, 33, 24), generator=_SPREAD),  # rounding errors grow with the scores
    ]
    yield from variations("large scores", large, dtypes=MAIN_FLOATS)
    # Values of one sign do not cancel, so that an error of the sum of weights is visible.
    yield from variations(
        "long",
        [_sdpa((1, 4, 9, 16), (1, 4, 129, 16), (1, 4, 129, 32), generator=_POSITIVE)],
        dtypes=MAIN_FLOATS,
    )
    yield from _special_value_samples()
    yield from variations("long", [_sdpa((1, 1, 3, 8), (1, 1, 4096, 8))], dtypes=MAIN_FLOATS)
    # The last key has by far the largest score: the maximum of an earlier block is not that of the row.
    rising = {"query": "ones", "key": {"fill": "arange", "start": -200.0, "step": 0.5}}
    yield from variations(
        "long", [_sdpa((1, 1, 3, 1), (1, 1, 801, 1), generator=rising, scale=1.0)], dtypes=MAIN_FLOATS
    )
    yield from error_samples(
        _sdpa((1, 2, 5, 8), (1, 2, 7, 9)),
        # More values than keys; a kernel that reads only the first goes unnoticed.
        _sdpa((1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 9, 8)),
        _sdpa((1, 4, 5, 8), (1, 2, 7, 8)),
        _sdpa((1, 4, 5, 8), (1, 3, 7, 8), enable_gqa=True),
        _sdpa((1, 2, 5, 8), (1, 2, 7, 8), attn_mask=(5, 6)),
        _sdpa((1, 2, 5, 8), (1, 2, 5, 8), attn_mask=(5, 5), is_causal=True),
    )
    model = [
        _sdpa((1, 8, 512, 64), (1, 8, 512, 64), is_causal=True),
        _sdpa((1, 8, 1, 128), (1, 2, 2048, 128), enable_gqa=True),
    ]
    yield from variations("long", model, dtypes=MAIN_FLOATS, tier=Tier.FULL)
    # Counted from the first: it attends to one key.
    one_query = _sdpa((1, 2, 1, 16), (1, 2, 9, 16), is_causal=True)
    adjacent_heads = {"shape": [2, 3, 9, 16], "strides": [432, 16, 48, 1]}  # heads of one position are adjacent
    packed = _sdpa((2, 3, 9, 16), (2, 3, 9, 16))
    packed["shapes"] = dict.fromkeys(packed["shapes"], adjacent_heads)
    yield from variations("attributes", [one_query, packed], dtypes=("float32", "float16"))
    negative_scores = {"query": {"fill": "full", "value": 8.0}, "key": {"fill": "uniform", "low": -40.0, "high": -30.0}}
    # A running maximum that starts at 0 stays 0.
    lowest_scores = _sdpa((1, 2, 5, 8), (1, 2, 7, 8), scale=1.0, generator=negative_scores)
    yield from variations("large scores", [lowest_scores], dtypes=MAIN_FLOATS)
    yield from _window_samples()


def _window_samples() -> Iterator[Sample]:
    """Yield windows that end inside, at and beyond a tile, and caps above, near and below the scores."""
    calls = [
        _sdpa((1, 2, 33, 16), (1, 2, 35, 16), window_size=window) for window in ((4, 0), (0, 3), (15, 16), (-1, 0))
    ]
    calls.append(_sdpa((1, 2, 9, 16), (1, 2, 17, 16), attn_mask=(9, 17), window_size=(3, 4)))
    yield from variations("window", calls, dtypes=("float32",))
    # The last queries have no key.
    short_keys = _sdpa((1, 4, 40, 8), (1, 2, 24, 8), enable_gqa=True, window_size=(5, 5))
    yield from variations("window", [short_keys], dtypes=("float16",))
    causal = _sdpa((1, 2, 65, 16), (1, 2, 65, 16), is_causal=True, window_size=(31, -1))
    yield from variations("window", [causal], dtypes=("float32", "bfloat16"))
    spread = [_sdpa((1, 2, 9, 32), (1, 2, 17, 32), softcap=cap, generator=_SPREAD) for cap in (1.0, 30.0)]
    yield from variations("softcap", spread, dtypes=("float32", "float16"))
    grouped = _sdpa((1, 4, 17, 64), (1, 2, 17, 64), enable_gqa=True, is_causal=True, softcap=50.0)
    yield from variations("softcap", [grouped], dtypes=("float32", "bfloat16"))
    masked = _sdpa((1, 2, 9, 16), (1, 2, 17, 16), attn_mask=(9, 17), scale=0.3, softcap=2.0)
    yield from variations("softcap", [masked], dtypes=("float32",))
    windowed_and_capped = _sdpa((1, 2, 33, 16), (1, 2, 33, 16), is_causal=True, window_size=(7, 0), softcap=5.0)
    yield from variations("softcap", [windowed_and_capped], dtypes=("bfloat16",))
    shapes = ((1, 2, 5, 8), (1, 2, 5, 8))
    yield from error_samples(_sdpa(*shapes, window_size=(3,)), _sdpa(*shapes, softcap=-1.0))


def _special_value_samples() -> Iterator[Sample]:
    """Yield special values anywhere in value, and at one position of query or key."""
    anywhere = {"value": {"fill": "special", "rate": 0.02}}
    yield from variations("special", [_sdpa((1, 2, 9, 8), (1, 2, 6, 8), generator=anywhere)], dtypes=MAIN_FLOATS)
    for value in ("nan", "inf"):
        # Every query attends to every value, so that one NaN reaches all outputs.
        placed = {"value": {"fill": "data", "values": [[[[1.0, 2.0], [0.25, -1.0], [value, 1.0], [0.5, -1.0]]]]}}
        yield from variations("special", [_sdpa((1, 1, 4, 2), (1, 1, 4, 2), generator=placed)], dtypes=MAIN_FLOATS)
    # The weight of a masked key is 0, and 0 times NaN is NaN.
    unseen = {
        "value": {"fill": "data", "values": [[[[1.0, 2.0], [0.25, -1.0], ["nan", 1.0], [0.5, -1.0]]]]},
        "attn_mask": {"fill": "data", "values": [[True, True, False, False]] * 4},
    }
    masked = _sdpa((1, 1, 4, 2), (1, 1, 4, 2), attn_mask=(4, 4), generator=unseen)
    yield from variations("special", [{**masked, "dtypes": ["float32"] * 3 + ["bool"]}])
    for name in ("query", "key"):
        for value in ("nan", "inf", "-inf"):
            rows = [[1.0, 2.0], [0.25, -1.0], [value, 1.0], [0.5, -1.0]]
            placed = {name: {"fill": "data", "values": [[rows]]}}
            yield from variations("special", [_sdpa((1, 1, 4, 2), (1, 1, 4, 2), generator=placed)], dtypes=("float32",))


def _size_samples() -> Iterator[Sample]:
    """Yield numbers of queries, keys and elements around the tile sizes of fused kernels."""
    calls = [_sdpa((1, 1, 3, 16), (1, 1, n, 16)) for n in (1, 15, 16, 17, 31, 33, 63, 65, 127, 129, 1025)]
    calls += [_sdpa((1, 1, n, 16), (1, 1, n, 16), is_causal=True) for n in (1, 2, 15, 16, 17, 33, 65, 129)]
    calls += [_sdpa((1, 1, 5, n), (1, 1, 9, n)) for n in (1, 7, 15, 17, 33, 80, 129)]
    calls += [_sdpa((1, 1, 5, 8), (1, 1, 9, 8), (1, 1, 9, n)) for n in (1, 7, 17, 33)]
    # Without keys the output is zeros; without queries it is empty.
    calls += [_sdpa((0, 2, 5, 8), (0, 2, 7, 8)), _sdpa((1, 2, 0, 8), (1, 2, 7, 8)), _sdpa((1, 2, 5, 8), (1, 2, 0, 8))]
    yield from variations("sizes", calls, dtypes=("float32", "float16"))
    yield from variations("sizes", [_sdpa((1, 1, 5, 257), (1, 1, 9, 257))], dtypes=("float32", "float16"))
    yield from of_one_element(_sdpa((1, 1, 1, 1), (1, 1, 1, 1)), _sdpa((1, 1), (1, 1), is_causal=True))
    large = [_sdpa((65_537, 1, 1, 2), (65_537, 1, 2, 2)), _sdpa((2, 16, 129, 17), (2, 16, 5, 17))]
    yield from variations("sizes", large, dtypes=("float32",))  # more heads, and more outputs, than 16 bits count


def _scale_and_shape_calls() -> Iterator[dict[str, Any]]:
    """Yield calls with scales, causal masks, and 2 to 5 dimensions that broadcast."""
    for scale in (1.0, 0.05, -0.5, 0.0):
        yield _sdpa((1, 2, 9, 32), (1, 2, 17, 32), scale=scale)
    yield _sdpa((1, 2, 9, 32), (1, 2, 17, 32), scale=0.3, is_causal=True)
    yield _sdpa((1, 2, 17, 16), (1, 2, 9, 16), is_causal=True)  # more queries than keys
    # More keys: a mask aligned to the last key differs.
    yield _sdpa((1, 2, 9, 16), (1, 2, 17, 16), is_causal=True)
    yield _sdpa((9, 16), (17, 16))
    yield _sdpa((3, 9, 16), (3, 17, 16), is_causal=True)
    yield _sdpa((2, 3, 2, 9, 16), (2, 3, 2, 17, 16))
    yield _sdpa((3, 1, 9, 16), (1, 2, 17, 16))  # query broadcasts one batch dimension, key the other
    yield _sdpa((3, 2, 9, 16), (3, 1, 17, 16))
    yield _sdpa((3, 1, 2, 9, 16), (1, 2, 2, 17, 16))


def _mask_samples() -> Iterator[Sample]:
    """Yield bool and float masks that broadcast, and rows without any key."""
    shapes = [(9, 17), (1, 17), (9, 1), (2, 3, 9, 17), (1, 3, 1, 17), (2, 1, 9, 17)]
    calls = [_sdpa((2, 3, 9, 16), (2, 3, 17, 16), attn_mask=shape) for shape in shapes]
    yield from variations("masks", calls, dtypes=("float32", "bfloat16"))
    for dtype in ("float32", "float16", "bfloat16", "float64"):
        yield from variations("masks", ({**case, "dtypes": [dtype, dtype, dtype, "bool"]} for case in calls))
    # The scale must not apply to the mask.
    scaled = _sdpa((2, 3, 9, 16), (2, 3, 17, 16), attn_mask=(9, 17), scale=0.7)
    yield from variations("masks", [scaled], dtypes=MAIN_FLOATS)
    wider = ((1, 2, 9, 16), (1, 2, 17, 16), (1, 2, 17, 32))
    further_calls = [
        _sdpa((1, 6, 5, 16), (1, 2, 9, 16), attn_mask=(5, 9), enable_gqa=True),
        _sdpa((2, 3, 1, 16), (2, 3, 33, 16), attn_mask=(2, 1, 1, 33)),
        _sdpa(*wider, attn_mask=(9, 17)),
    ]
    yield from variations(
        "masks", ({**case, "dtypes": [*["float32"] * 3, "bool"]} for case in (scaled, *further_calls))
    )
    yield from variations("masks", [_sdpa(*wider, is_causal=True)], dtypes=MAIN_FLOATS)
    visible_keys = [[True, False, True, True], [False, False, False, False], [False, False, False, True]]
    bool_mask = {"attn_mask": {"fill": "data", "values": visible_keys}}
    infinite = [[0.0 if is_seen else "-inf" for is_seen in row] for row in visible_keys]
    float_mask = {"attn_mask": {"fill": "data", "values": infinite}}
    small = {"query": (1, 2, 3, 8), "key": (1, 2, 4, 8), "attn_mask": (3, 4)}
    for dtype in MAIN_FLOATS:
        yield from variations(
            "masks",
            [
                _sdpa(**small, dtypes=[dtype, dtype, dtype, "bool"], generator=bool_mask),
                _sdpa(**small, dtypes=[dtype], generator=float_mask),
            ],
        )


def _outweighing_masked_scores() -> Iterator[Sample]:
    """Yield masked keys whose scores exceed the others by far."""
    for size, dtypes in ((1e5, ("float32", "bfloat16")), (200.0, MAIN_FLOATS)):
        # A mask that adds a finite number instead of −∞ does not hide these keys.
        rows = {"query": [[size]] * 3, "key": [[-size], [0.0], [size]], "value": [[1.0], [2.0], [3.0]]}
        fills: dict[str, Any] = {name: {"fill": "data", "values": [[value]]} for name, value in rows.items()}
        shapes = ((1, 1, 3, 1),) * 3
        yield from variations("masks", [_sdpa(*shapes, generator=fills, is_causal=True)], dtypes=dtypes)
        visible_keys = [[True, False, False], [True, True, False], [True, False, True]]
        fills = {**fills, "attn_mask": {"fill": "data", "values": visible_keys}}
        for name in dtypes:
            case = _sdpa(*shapes, (3, 3), dtypes=[name, name, name, "bool"], generator=fills)
            yield from variations("masks", [case])


def _grouped_head_calls() -> Iterator[dict[str, Any]]:
    """Yield calls in which several heads of query share a head of key and value."""
    for heads, shared in ((4, 2), (6, 2), (6, 3), (8, 1), (4, 4)):
        yield _sdpa((2, heads, 5, 16), (2, shared, 9, 16), enable_gqa=True)
    yield _sdpa((1, 6, 9, 16), (1, 2, 9, 16), enable_gqa=True, is_causal=True)
    yield _sdpa((1, 6, 5, 16), (1, 2, 9, 16), attn_mask=(1, 6, 5, 9), enable_gqa=True)
    yield _sdpa((1, 6, 5, 16), (1, 2, 9, 16), enable_gqa=True, scale=0.7)
    # One query, as in token generation, for which libraries have separate kernels.
    yield _sdpa((2, 8, 1, 16), (2, 2, 33, 16), enable_gqa=True)
    yield _sdpa((2, 4, 1, 16), (2, 2, 33, 16), attn_mask=(2, 1, 1, 33), enable_gqa=True)
