"""The calls by which the operators that index and order elements are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from optest.operators.indexing.descriptors import INDEXED, SCATTERED, SORTED
from optest.operators.samples import (
    CALM_SIZES,
    MAIN_FLOATS,
    SIZES,
    Call,
    call,
    in_every_dtype,
    in_every_layout,
    in_layouts_at_once,
    of_one_element,
    refused,
    standard,
    variations,
    with_further_layouts,
)
from optest.operators.variants import NUMBERS
from optest.spec import Sample, Tier, dtype

__all__ = [
    "embedding_samples",
    "gather_samples",
    "index_select_samples",
    "scatter_add_samples",
    "sort_samples",
    "topk_samples",
]

_TIES = {"fill": "randint", "low": -2, "high": 3}
"""Five values, so that almost every element has equals."""
_BEYOND_16_BITS = 70001
_MOSTLY_SPECIAL = {"fill": "special", "rate": 0.9}
"""So that −0 and NaN are among the few elements that are picked."""


def _full(value: int) -> Mapping[str, Any]:
    return {"fill": "full", "value": value}


def _data(values: Any) -> Mapping[str, Any]:
    return {"fill": "data", "values": values}


def _of(source: str, dtypes: Sequence[str], calls: Iterable[Call]) -> Iterator[Call]:
    """Each call for each dtype of the input ``source``; the others' dtypes follow from it."""
    for each in calls:
        for name in dtypes:
            yield {**each, "dtypes": {source: name}}


def _filled(calls: Iterable[Call], **fills: Any) -> Iterator[Call]:
    for each in calls:
        yield {**each, "generator": fills}


def _indexed(
    source: str,
    calls: Sequence[Call],
    variants: Iterable[Sequence[str]],
    sized: Callable[[int], Call],
    fills: Mapping[str, Any],
) -> Iterator[Sample]:
    """The case sets that no operator with an index goes without; ``fills`` are those of ``special``."""
    yield Sample(case_set="ordinary", case=calls[0], tier=Tier.SMOKE)
    yield from variations("ordinary", _of(source, MAIN_FLOATS, calls))
    yield from in_every_dtype(calls[:1], variants)
    yield from in_every_layout(calls[:1])
    yield from variations("sizes", _of(source, ("float32", "float16"), map(sized, SIZES)))
    yield from variations("special", _of(source, MAIN_FLOATS, _filled(calls[:2], **fills)))
    for each in in_layouts_at_once(calls[:1]):
        yield from variations("layouts", _of(source, ("float32", "float16"), [each.case]))


@with_further_layouts
def gather_samples() -> Iterator[Sample]:
    calls = [
        call({"dim": 1}, input=(5, 37), index=(5, 9)),
        call({"dim": 0}, input=(7, 6), index=(11, 6)),
        call({"dim": 1}, input=(2, 9, 5), index=(2, 13, 5)),
    ]
    yield from _indexed(
        "input", calls, INDEXED, lambda n: call({"dim": 1}, input=(3, n), index=(3, n)), {"input": _MOSTLY_SPECIAL}
    )
    yield from variations("attributes", _gather_attributes())
    yield from variations("indices", _index_patterns(call({"dim": 1}, input=(4, 29), index=(4, 6)), 29))
    yield from variations("indices", [call({"dim": 0}, input=(_BEYOND_16_BITS,), index=(64,))])
    far = call({"dim": 0}, input=(_BEYOND_16_BITS,), index=(64,), dtypes=("float32", "int32"))
    yield from variations("indices", [far, call({"dim": 1}, input=(_BEYOND_16_BITS, 3), index=(_BEYOND_16_BITS, 2))])
    wrong = [
        call({"dim": 2}, input=(3, 4), index=(3, 4)),
        call({"dim": 0}, input=(3, 4), index=(3,)),
        call({"dim": 0}, input=(3, 4), index=(3, 5)),
        call({"dim": 0}, input=(3, 4), index=(3, 4), dtypes=("float32", "float32")),
        call({"dim": 0}, input=(3, 4), index=(3, 4), dtypes=("float32", "int16")),
    ]
    yield from refused(wrong)
    yield from _outside(call({"dim": 1}, input=(2, 5), index=(2, 3)), "index", [[0, 1, 2], [3, 4, 4]], 5)


_IN_PLACE_OF_DIM = [
    call({"dim": 0}, input=(5, 3), index=(2, 4)),
    call({"dim": 1}, input=(4, 5), index=(2, 3)),
    call({"dim": -1}, input=(2, 3, 4), index=(2, 1, 2)),
    call({"dim": 1}, input=(2, 3, 4), index=(0, 2)),
]
"""In full checks alone: torch's operator does not take them."""


@with_further_layouts
def index_select_samples() -> Iterator[Sample]:
    calls = [
        call({"dim": 1}, input=(5, 37), index=(9,)),
        call({"dim": 0}, input=(7, 6), index=(11,)),
        call({"dim": 1}, input=(2, 9, 5), index=(13,)),
    ]
    yield from _indexed(
        "input", calls, INDEXED, lambda n: call({"dim": 1}, input=(3, n), index=(n,)), {"input": _MOSTLY_SPECIAL}
    )
    inner = [call({"dim": 0}, input=(7, n), index=(5,)) for n in CALM_SIZES]
    yield from variations("sizes", _of("input", ("float32",), inner))
    yield from variations("attributes", _index_select_attributes())
    yield from variations("attributes", _of("input", ("float32", "int8"), _IN_PLACE_OF_DIM), tier=Tier.FULL)
    yield from variations("indices", _index_patterns(call({"dim": 1}, input=(4, 29), index=(24,)), 29))
    yield from variations("indices", [call({"dim": 0}, input=(_BEYOND_16_BITS, 2), index=(64,))])
    yield from variations("indices", [call({"dim": 0}, input=(7, 2), index=(_BEYOND_16_BITS,))])
    wrong = [
        call({"dim": 2}, input=(3, 4), index=(3,)),
        call({"dim": -3}, input=(3, 4), index=(3,)),
        call({"dim": 0}, input=(3, 4), index=(3,), dtypes=("float32", "float32")),
        call({"dim": 0}, input=(3, 4), index=(3,), dtypes=("float32", "int16")),
    ]
    yield from refused(wrong)
    for each in _outside(call({"dim": 1}, input=(2, 5), index=(6,)), "index", [[0, 1, 2, 3, 4, 4]], 5):
        yield replace(each, case={**each.case, "generator": {"index": _first_row(each.case["generator"]["index"])}})


def _first_row(fill: Mapping[str, Any]) -> Mapping[str, Any]:
    return _data(fill["values"][0])


def _index_select_attributes() -> Iterator[dict[str, Any]]:
    for dim in (0, 1, 2, -1, -2, -3):
        yield call({"dim": dim}, input=(4, 5, 3), index=(2,))
        yield call({"dim": dim}, input=(4, 5, 3), index=(17,))
    for shape, dim, index in (
        ((6,), 0, (9,)),
        ((6,), 0, ()),
        ((), 0, (1,)),
        ((), -1, ()),
        ((4, 5), 1, (0,)),
        ((4, 5), 0, ()),
        ((4, 0), 0, (3,)),
        ((0, 5), 1, (3,)),
        ((2, 7, 3, 2), 1, (5,)),
        ((2, 3, 2, 4, 3), 3, (9,)),
        ((1, 1), 0, (1,)),
    ):
        yield call({"dim": dim}, input=shape, index=index)


def _gather_attributes() -> Iterator[dict[str, Any]]:
    for dim in (0, 1, 2, -1, -2, -3):
        yield call({"dim": dim}, input=(4, 5, 3), index=(4, 5, 3))
        yield call({"dim": dim}, input=(4, 5, 3), index=(2, 3, 1))
    yield call({"dim": -1}, input=(4, 5), index=(4, 64))
    yield call({"dim": 0}, input=(1025, 3), index=(1025, 3))
    yield call({"dim": 1}, input=(2, 301, 3), index=(2, 301, 3))
    yield call({"dim": 0}, input=(6,), index=(9,))
    yield call({"dim": 0}, input=(), index=())
    yield call({"dim": 0}, input=(), index=(3,))
    yield call({"dim": 1}, input=(4, 5), index=(4, 0))
    yield call({"dim": 1}, input=(2, 7, 3, 2), index=(2, 5, 3, 2))
    yield call({"dim": 3}, input=(2, 3, 2, 4, 3), index=(2, 2, 2, 9, 3))
    yield call({"dim": 0}, input=(4, 5), index=(6, 3))
    gaps = {"shape": [4, 6], "strides": [12, 2]}
    yield call({"dim": 1}, input=(4, 5), index=gaps, dtypes=("float32", "int32"))


def _index_patterns(each: Call, size: int, name: str = "index") -> Iterator[dict[str, Any]]:
    """All the first, all the last, the ends among others, and one after the other; in both index dtypes."""
    source = next(iter(each["shapes"]))
    for fill in ("zeros", _full(size - 1), {"fill": "special", "rate": 0.5}, "arange"):
        for index in ("int64", "int32"):
            yield {**each, "generator": {name: fill}, "dtypes": {source: "float32", name: index}}


def _outside(each: Call, name: str, legal: Sequence[Sequence[int]], size: int) -> Iterator[Sample]:
    """One index before the first and one behind the last element: whoever reads there reads foreign memory."""
    for value in (-1, size, -size, 2**31 - 1):
        rows = [list(row) for row in legal]
        rows[-1][-1] = value
        case = {**each, "generator": {name: _data(rows)}, "expects_error": {"type": "Exception"}}
        yield Sample(case_set="outside", case=case)


@with_further_layouts
def scatter_add_samples() -> Iterator[Sample]:
    calls = [
        call({"dim": 1}, input=(5, 16), index=(5, 37), src=(5, 37)),
        call({"dim": 0}, input=(9, 6), index=(20, 6), src=(20, 6)),
        call({"dim": 1}, input=(3, 7, 5), index=(2, 6, 4), src=(3, 9, 5)),
    ]
    fills = {"input": "special", "src": "special"}
    yield from _indexed(
        "input",
        calls,
        SCATTERED,
        lambda n: call({"dim": 1}, input=(3, n), index=(3, n), src=(3, n)),
        fills,
    )
    each_once = call({"dim": 0}, input=(37,), index=(37,), src=(37,), generator={"index": "arange"})
    yield from variations("ordinary", _of("input", MAIN_FLOATS, [each_once]))
    yield from variations("attributes", _scatter_attributes())
    patterns = call({"dim": 1}, input=(4, 53), index=(4, 12), src=(4, 12))
    yield from variations("indices", _index_patterns(patterns, 53))
    far = call({"dim": 0}, input=(_BEYOND_16_BITS,), index=(64,), src=(64,))
    yield from variations("indices", [far])
    crowded = call({"dim": 1}, input=(3, 4), index=(3, 4096), src=(3, 4096))
    yield from variations("long", _of("input", MAIN_FLOATS, [crowded]))
    one_place = call({"dim": 0}, input=(2,), index=(257,), src=(257,))
    yield from variations("indices", _of("input", ("float32", "int32"), _filled([one_place], index=_full(1))))
    exact = {"input": "integer-exact", "src": "integer-exact"}
    yield from variations("integer-exact", _of("input", MAIN_FLOATS, _filled([*calls, one_place], **exact)))
    yield from variations("zero-mean", _of("input", MAIN_FLOATS, _filled([calls[0]], input="randn", src="randn")))
    wrong = [
        call({"dim": 2}, input=(3, 4), index=(3, 4), src=(3, 4)),
        call({"dim": 0}, input=(3, 4), index=(3, 4), src=(2, 4)),
        call({"dim": 0}, input=(3, 4), index=(3, 5), src=(3, 5)),
        call({"dim": 0}, input=(3, 4), index=(4,), src=(3, 4)),
        call({"dim": 0}, input=(3, 4), index=(3, 4), src=(3, 4), dtypes=("float32", "float32", "float32")),
        call({"dim": 0}, input=(3, 4), index=(3, 4), src=(3, 4), dtypes=("float32", "int64", "float64")),
    ]
    yield from refused(wrong)
    outside = call({"dim": 1}, input=(2, 5), index=(2, 3), src=(2, 3))
    yield from _outside(outside, "index", [[0, 1, 2], [3, 4, 4]], 5)
    long = call({"dim": 1}, input=(3, 16), index=(3, 65536), src=(3, 65536))
    yield from variations("long", [long], tier=Tier.FULL)
    crowd = call({"dim": 0}, input=(3,), index=(1500,), src=(1500,))
    yield from variations("long", _of("input", ("float32", "float16", "bool"), [crowd]))


def _scatter_attributes() -> Iterator[dict[str, Any]]:
    for dim in (0, 1, 2, -1, -2, -3):
        yield call({"dim": dim}, input=(4, 5, 3), index=(4, 5, 3), src=(4, 5, 3))
    yield call({"dim": 0}, input=(4, 5), index=(9, 3), src=(11, 4))
    yield call({"dim": 0}, input=(1025, 3), index=(1025, 3), src=(1025, 3))
    yield call({"dim": 1}, input=(2, 301, 3), index=(2, 301, 3), src=(2, 301, 3))
    yield call({"dim": 1}, input=(4, 5), index=(3, 9), src=(4, 9))
    yield call({"dim": 0}, input=(), index=(), src=())
    yield call({"dim": 0}, input=(), index=(3,), src=(3,))
    yield call({"dim": 1}, input=(4, 5), index=(4, 0), src=(4, 2))
    yield call({"dim": 1}, input=(2, 7, 3, 2), index=(2, 5, 3, 2), src=(2, 6, 3, 2))
    yield call({"dim": 3}, input=(2, 3, 2, 4, 3), index=(2, 2, 2, 9, 3), src=(2, 3, 2, 9, 3))


@with_further_layouts
def embedding_samples() -> Iterator[Sample]:
    calls = [
        call(weight=(11, 17), indices=(3, 5)),
        call(weight=(129, 8), indices=(37,)),
        call(weight=(5, 33), indices=(2, 3, 4)),
    ]
    yield from _indexed(
        "weight", calls, INDEXED, lambda n: call(weight=(7, n), indices=(9,)), {"weight": _MOSTLY_SPECIAL}
    )
    counts = [call(weight=(7, 4), indices=(n,)) for n in CALM_SIZES]
    yield from variations("sizes", _of("weight", ("float32",), counts))
    rows = [call(weight=(n, 4), indices=(33,)) for n in (*CALM_SIZES[1:], 257, 1025)]
    yield from variations("sizes", _of("weight", ("float32",), rows))
    padding = [call({"padding_idx": each}, weight=(3, 5), indices=(4, 6)) for each in (0, 1, 2, -1, -3)]
    shapes = [call(weight=(3, 5), indices=()), call(weight=(3, 0), indices=(2,)), call(weight=(0, 5), indices=(0,))]
    yield from variations("attributes", [*padding, *shapes])
    yield from variations("indices", _index_patterns(call(weight=(29, 5), indices=(4, 6)), 29, "indices"))
    yield from variations("indices", [call(weight=(_BEYOND_16_BITS, 2), indices=(64,))])
    yield from variations("indices", [call(weight=(7, 2), indices=(_BEYOND_16_BITS,))])
    wrong = [
        call(weight=(5,), indices=(3,)),
        call(weight=(5, 3, 2), indices=(3,)),
        call({"padding_idx": 5}, weight=(5, 3), indices=(3,)),
        call(weight=(5, 3), indices=(3,), dtypes=("float32", "float32")),
        call(weight=(5, 3), indices=(3,), dtypes=("float32", "int16")),
    ]
    yield from refused(wrong)
    yield from _outside(call(weight=(5, 3), indices=(2, 3)), "indices", [[0, 1, 2], [3, 4, 4]], 5)
    yield from variations("attributes", [call(weight=(5, 3), indices=(2, 3, 2, 2))])
    yield from of_one_element(call(weight=(1, 1), indices=(1,)), dtypes=())


@with_further_layouts
def topk_samples() -> Iterator[Sample]:
    calls = [
        call({"k": 5}, input=(4, 37)),
        call({"k": 3, "largest": False, "dim": 0}, input=(19, 6)),
        call({"k": 9}, input=(2, 3, 65)),
        call({"k": 3, "dim": 2}, input=(2, 3, 9, 2, 2)),
    ]
    yield from standard(calls, NUMBERS, sized=lambda n: call({"k": min(n, 5)}, input=(3, n)))
    yield from variations("attributes", _topk_attributes(), dtypes=("float32", "int32"))
    tied = [
        call({"k": k, "largest": largest}, input=(5, 33), generator=_TIES)
        for k in (1, 4, 20, 33)
        for largest in (True, False)
    ]
    yield from variations("ties", tied, dtypes=("float32", "float16", "int8"))
    yield from variations("ties", [call({"k": 7}, input=(3, 40), generator="zeros")])
    every = call({"k": 37}, input=(4, 37), generator=_MOSTLY_SPECIAL)
    yield from variations("special", [every, {**every, "attributes": {"k": 20, "largest": False}}], dtypes=MAIN_FLOATS)
    unordered = [
        call({"k": 6, "sorted": False}, input=(4, 37)),
        call({"k": 6, "sorted": False, "largest": False}, input=(4, 37)),
        call({"k": 12, "sorted": False}, input=(4, 33), generator=_TIES),
        call({"k": 5, "sorted": False, "dim": 0}, input=(17, 3), generator="special"),
        call({"k": 300, "sorted": False}, input=(2, 1025)),
    ]
    yield from variations("unordered", unordered, dtypes=("float32", "int32"))
    wrong = [
        call({"k": 5}, input=(3, 4)),
        call({"k": -1}, input=(3, 4)),
        call({"k": 1, "dim": 2}, input=(3, 4)),
        call({"k": 2}, input=()),
    ]
    yield from refused(wrong)
    yield from _of_far_and_close({"k": 3})
    for attributes in ({"k": 4, "largest": False}, {"k": 4}):
        yield from _ends_of_integers(attributes)
        yield from _negative_nan(attributes)
    yield from variations("sizes", [call({"k": 2}, input=(_BEYOND_16_BITS, 3))])
    yield from variations("sizes", [call({"k": 5}, input=(2, 16_411))], dtypes=MAIN_FLOATS[1:])
    yield from variations("sizes", [call({"k": 1100}, input=(2, 1500))], dtypes=("float32", "int32"))
    tied = [call({"k": k}, input=(40,), generator=_TIES) for k in (7, 33)]
    yield from variations("ties", tied, dtypes=("float32", "int32"))
    large = call({"k": 100}, input=(2, 65537))
    yield from variations("sizes", [large], dtypes=MAIN_FLOATS, tier=Tier.FULL)


def _ends_of_integers(attributes: dict[str, Any]) -> Iterator[Sample]:
    """The least number of a type has no opposite: whoever turns keys to turn the order leaves it where it was."""
    for name in ("int8", "int16", "int32", "int64", "uint8"):
        low, high = dtype(name).min_int, dtype(name).max_int
        row = [1, low, high, low + 1, high - 1, 0 if low else 2, 3]
        yield from variations("ordinary", [call(attributes, input=(1, 7), generator=_data([row]))], dtypes=(name,))


def _negative_nan(attributes: dict[str, Any]) -> Iterator[Sample]:
    """What 0/0 and infinity less infinity give on x86: keys made of bits take it for the least number of all."""
    rows = [[1.0, "-nan", -2.0, "inf", "-inf", 0.5], ["nan", "-nan", 3.0, -1.0, 2.0, 0.25]]
    yield from variations("special", [call(attributes, input=(2, 6), generator=_data(rows))], dtypes=MAIN_FLOATS)


def _topk_attributes() -> Iterator[dict[str, Any]]:
    for dim in (0, 1, 2, -1, -2, -3):
        for largest in (True, False):
            yield call({"k": 2, "dim": dim, "largest": largest}, input=(3, 4, 5))
    yield call({"k": 0}, input=(3, 4))
    yield call({"k": 1}, input=(3, 1))
    yield call({"k": 1}, input=())
    yield call({"k": 17}, input=(2, 17))
    yield call({"k": 100}, input=(2, 257))
    yield call({"k": 5, "dim": 0}, input=(1025, 3))
    yield call({"k": 5, "dim": 1}, input=(2, 301, 3))


def _of_far_and_close(attributes: dict[str, Any]) -> Iterator[Sample]:
    """Places that 16 bits do not count, and keys that are alike in a narrower type."""
    climbing = {"fill": "arange", "start": -35_000.0, "step": 1.0}
    yield from variations("sizes", [call(attributes, input=(_BEYOND_16_BITS,), generator=climbing)])
    for name, one, step in (("float64", 1.0, 2.0**-40), ("int64", 2**60, 1), ("int32", 2**28, 1)):
        row = [one + place * step for place in (0, 3, 1, 5, 2, 4)]
        values = _data([row, [-value for value in row]])
        yield from variations("ties", [call(attributes, input=(2, 6), generator=values)], dtypes=(name,))


@with_further_layouts
def sort_samples() -> Iterator[Sample]:
    calls = [
        call(input=(4, 37)),
        call({"dim": 0, "descending": True}, input=(19, 6)),
        call(input=(2, 3, 65)),
        call({"dim": 2}, input=(2, 3, 9, 2, 2)),
    ]
    yield from standard(calls, SORTED, sized=lambda n: call(input=(3, n)))
    yield from variations("attributes", _sort_attributes(), dtypes=("float32", "int32"))
    tied = [
        call({"descending": descending, "stable": stable}, input=(3, n), generator=_TIES)
        for n in (9, 300)
        for descending in (False, True)
        for stable in (False, True)
    ]
    for each in tied:
        name = "stable" if each["attributes"]["stable"] else "ties"
        yield from variations(name, [each], dtypes=("float32", "float16", "int8"))
    for descending in (False, True):
        attributes = {"descending": descending, "stable": True}
        signed_zeros = call(attributes, input=(3, 33), generator=_MOSTLY_SPECIAL)
        yield from variations("stable", [signed_zeros], dtypes=MAIN_FLOATS)
        yield from variations("stable", [call({**attributes, "dim": 0}, input=(129, 3), generator=_TIES)])
        yield from variations("stable", [call(attributes, input=(3, 65))], dtypes=("bool",))
    yield from refused([call({"dim": 2}, input=(3, 4)), call({"dim": -3}, input=(3, 4)), call({"dim": 1}, input=())])
    yield from _of_far_and_close({"descending": True})
    for descending in (False, True):
        yield from _ends_of_integers({"descending": descending})
        yield from _negative_nan({"descending": descending})
    for name, top in (("uint16", 1 << 15), ("uint32", 1 << 31), ("uint64", 1 << 63)):  # largest, not negative
        fill = {"fill": "data", "values": [[1, top, 0, top - 1, 2 * top - 1, top + 1]]}
        yield from variations("ordinary", [call(input=(1, 6), generator=fill)], dtypes=(name,))
    yield from variations("sizes", [call(input=(_BEYOND_16_BITS, 3))])
    yield from variations("sizes", [call(input=(2, 16_411))], dtypes=MAIN_FLOATS[1:])
    yield from _sorted_vectors()
    large = call({"stable": True}, input=(2, 65537), generator={"fill": "randint", "low": 0, "high": 1000})
    yield from variations("stable", [large], dtypes=MAIN_FLOATS, tier=Tier.FULL)


def _sorted_vectors() -> Iterator[Sample]:
    """One dimension alone, which many libraries sort by another kernel, of digits or merged, than rows."""
    for descending in (False, True):
        attributes = {"descending": descending, "stable": True}
        special = call(attributes, input=(37,), generator={"fill": "special", "rate": 0.5})
        yield from variations("stable", [special], dtypes=MAIN_FLOATS)
        yield from variations("stable", [call(attributes, input=(300,), generator=_TIES)], dtypes=("float32", "int32"))
    wide = {"fill": "randint", "low": -(2**30), "high": 2**30}
    yield from variations("sizes", [call(input=(40_001,), generator=wide)], dtypes=("int32", "int64"))


def _sort_attributes() -> Iterator[dict[str, Any]]:
    for dim in (0, 1, 2, -1, -2, -3):
        for descending in (False, True):
            yield call({"dim": dim, "descending": descending}, input=(3, 4, 5))
    yield call(input=())
    yield call({"dim": 0}, input=(0, 3))
    yield call({"descending": True}, input=(3, 1))
    yield call({"dim": 0}, input=(1025, 3))
    yield call({"dim": 1}, input=(2, 301, 3))
