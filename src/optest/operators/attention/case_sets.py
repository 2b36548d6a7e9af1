"""The calls by which attention and rotary positions are checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from optest.operators.samples import (
    LARGE_SIZE,
    MAIN_FLOATS,
    call,
    in_every_layout,
    integer_exact,
    of_one_element,
    refused,
    standard,
    variations,
    with_further_layouts,
)
from optest.operators.variants import FLOATS
from optest.spec import Sample, Tier

__all__ = ["attention_samples", "rope_samples"]

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


@with_further_layouts
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
        [
            _ask((1, 2, 5, 8), (1, 2, 7, 9)),
            _ask((1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 9, 8)),  # more values than keys: reading them harms nobody
            _ask((1, 4, 5, 8), (1, 2, 7, 8)),
            _ask((1, 4, 5, 8), (1, 3, 7, 8), enable_gqa=True),
            _ask((1, 2, 5, 8), (1, 2, 7, 8), attn_mask=(5, 6)),
            _ask((1, 2, 5, 8), (1, 2, 5, 8), attn_mask=(5, 5), is_causal=True),
        ]
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


@with_further_layouts
def rope_samples() -> Iterator[Sample]:
    calls = [
        call(input=(1, 2, 5, 8), cos=(5, 4), sin=(5, 4)),
        call({"interleaved": True}, input=(2, 3, 7, 16), cos=(7, 8), sin=(7, 8)),
        call(input=(2, 3, 7, 64), cos=(2, 7, 32), sin=(2, 7, 32)),
    ]
    yield from standard(
        calls, FLOATS, sized=_rope_of_size, sizes=(1, 2, 3, 8, 15, 16, 17, 32, 33, 64, 65, 128, 129, 320)
    )
    yield from variations("sizes", (_rope_of_length(n) for n in (0, 1, 15, 17, 65, 1025)), dtypes=("float32",))
    large = [call(input=(2, 4, 129, 66), cos=(129, 33), sin=(129, 33)), _rope_of_length(65_537)]
    large.append(call(input=(1, 9, 17, 8), cos=(17, 4), sin=(17, 4)))
    large.append(call(input=(65_537, 1, 2), cos=(1, 1), sin=(1, 1)))
    large.append(call(input=(5, 5, 8), cos=(5, 4), sin=(5, 4)))  # as many heads as places
    yield from variations("sizes", large, dtypes=("float32",))
    yield from variations("attributes", _rope_attributes(), dtypes=MAIN_FLOATS)
    yield from variations("positions", _rope_positions())
    placed = [each for each in _rope_positions() if each["shapes"]["position_ids"] == [2, 5]]
    yield from variations("ordinary", [*placed[:2], *_rope_positions()][:3])
    yield from in_every_layout(placed[:1])
    yield from variations("positions", _far_positions())
    yield from variations("positions", _placed_forms(), dtypes=("float32",))
    for half in ("float16", "bfloat16"):
        wide = [call({"interleaved": True}, input=(2, 3, 7, 16), cos=(7, 8), sin=(7, 8)), calls[2]]
        yield from variations("dtypes", ({**each, "dtypes": [half, "float32", "float32"]} for each in wide))
    yield from integer_exact(calls)
    yield from refused(
        [
            call(input=(1, 2, 5, 7), cos=(5, 3), sin=(5, 3)),
            call(input=(1, 2, 5, 8), cos=(5, 8), sin=(5, 8)),
            call(input=(1, 2, 5, 8), cos=(6, 4), sin=(6, 4)),
            call(input=(1, 2, 5, 8), cos=(5, 4), sin=(4, 4)),
            call({"rotary_embedding_dim": 10}, input=(1, 2, 5, 8), cos=(5, 5), sin=(5, 5)),
            call(input=(1, 2, 5, 8), cos=(9, 4), sin=(9, 4), position_ids=(6,), dtypes=_PLACED),
            call(input=(2, 3, 5, 8), cos=(9, 4), sin=(9, 4), position_ids=(3, 5), dtypes=_PLACED),
        ]
    )


def _rope_of_size(half: int) -> dict[str, Any]:
    return call({"interleaved": half % 2 == 0}, input=(1, 2, 3, 2 * half), cos=(3, half), sin=(3, half))


def _rope_of_length(length: int) -> dict[str, Any]:
    return call(input=(1, 2, length, 8), cos=(length, 4), sin=(length, 4))


def _rope_attributes() -> Iterator[dict[str, Any]]:
    for interleaved in (False, True):
        for size in (0, 2, 6, 8):
            half = (size or 8) // 2
            attributes = {"interleaved": interleaved, "rotary_embedding_dim": size}
            yield call(attributes, input=(2, 3, 5, 8), cos=(5, half), sin=(5, half))
        yield call({"interleaved": interleaved}, input=(5, 8), cos=(5, 4), sin=(5, 4))
        yield call({"interleaved": interleaved}, input=(3, 5, 8), cos=(3, 5, 4), sin=(3, 5, 4))


_PLACED = ("float32", "float32", "float32", "int64")


def _far_positions() -> Iterator[dict[str, Any]]:
    """Rows of the tables that need every bit of the index, or more than 16: a narrower or a signed one reads others."""
    rows = {"int8": 1 << 7, "uint8": 1 << 8, "int16": 1 << 15, "uint16": 1 << 16}
    for index in ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64"):
        size = rows.get(index, LARGE_SIZE)
        places = [size - 1, size // 2, 0, size // 2 - 1, size - 2]
        yield call(
            dtypes=["float32", "float32", "float32", index],
            generator={"position_ids": {"fill": "data", "values": places}},
            input=(1, 2, 5, 4),
            cos=(size, 2),
            sin=(size, 2),
            position_ids=(5,),
        )


def _placed_forms() -> Iterator[dict[str, Any]]:
    """With positions, what is asked without: vectors of which a part turns, no heads, long sequences."""
    for interleaved in (False, True):
        part = {"interleaved": interleaved, "rotary_embedding_dim": 6}
        yield call(part, input=(2, 3, 5, 8), cos=(33, 3), sin=(33, 3), position_ids=(2, 5), dtypes=_PLACED)
    yield call(input=(5, 8), cos=(33, 4), sin=(33, 4), position_ids=(5,), dtypes=_PLACED)
    yield call(input=(3, 5, 8), cos=(33, 4), sin=(33, 4), position_ids=(3, 5), dtypes=_PLACED)
    yield call(input=(2, 3, 129, 66), cos=(257, 33), sin=(257, 33), position_ids=(2, 129), dtypes=_PLACED)


def _rope_positions() -> Iterator[dict[str, Any]]:
    for dtype, tables, index in (
        ("float32", "float32", "int64"),
        ("float32", "float32", "int32"),
        ("float16", "float16", "int64"),
        ("bfloat16", "float32", "int64"),
        *(("float32", "float32", index) for index in ("int16", "int8", "uint8", "uint16", "uint32", "uint64")),
        ("bfloat16", "bfloat16", "uint8"),
        ("float64", "float64", "int32"),
    ):
        for interleaved in (False, True):
            for rows in ((5,), (2, 5)):
                yield call(
                    {"interleaved": interleaved},
                    dtypes=[dtype, tables, tables, index],
                    input=(2, 3, 5, 8),
                    cos=(33, 4),
                    sin=(33, 4),
                    position_ids=rows,
                )
