"""The calls by which the operators that join, cut and extend tensors are checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optest.operators.movement.case_sets import moved
from optest.operators.samples import MILLION, call, of_one_element, refused, variations, with_further_layouts
from optest.operators.variants import MIXED
from optest.spec import Sample, Tier

__all__ = ["concat_samples", "pad_samples", "slice_samples", "split_samples"]

_SMALL = {"fill": "randint", "low": 0, "high": 2}
"""What every dtype holds, so that no conversion is undefined."""
_FARTHEST = 2**63 - 1


@with_further_layouts
def concat_samples() -> Iterator[Sample]:
    yield from moved(
        [
            call({"dim": 1}, tensors0=(5, 17), tensors1=(5, 20)),
            call({"dim": 0}, tensors0=(3, 7), tensors1=(1, 7), tensors2=(4, 7)),
        ],
        lambda n: call({"dim": 1}, tensors0=(3, n), tensors1=(3, 5)),
        _concat_attributes(),
        [
            call({"dim": 0}, tensors0=(2, 3), tensors1=(2, 4)),
            call({"dim": 0}, tensors0=(2, 3), tensors1=(2, 3, 1)),
            call({"dim": 2}, tensors0=(2, 3), tensors1=(2, 3)),
            call({"dim": 0}, tensors0=(), tensors1=()),
        ],
        large=[call({"dim": 0}, tensors0=MILLION, tensors1=(3, 17))],
    )
    for pair in MIXED:
        case = call({"dim": 0}, dtypes=pair, generator=_SMALL, tensors0=(2, 5), tensors1=(3, 5))
        yield Sample(case_set="promotion", case=case)
        yield Sample(case_set="promotion", case={key: value for key, value in case.items() if key != "generator"})
    rounded = call(
        {"dim": 0}, dtypes=("int32", "float32"), generator={"fill": "randint", "low": 2**24, "high": 2**30},
        tensors0=(33,), tensors1=(5,),
    )  # fmt: skip
    yield from variations("promotion", [rounded])
    scattered: dict[str, Any] = {
        "tensors0": {"shape": (4, 5), "strides": (1, 4)},
        "tensors1": {"shape": (4, 3), "strides": (0, 1)},
    }
    yield from variations("layouts", [call({"dim": 1}, **scattered), call({"dim": 0}, tensors0=(3,), tensors1=(4,))])
    yield from of_one_element(call({"dim": 0}, tensors0=(1,), tensors1=(1,)), call({"dim": 0}, tensors0=(1, 1)))


def _concat_attributes() -> Iterator[dict[str, Any]]:
    for dim in (0, 1, 2, -1, -2, -3):
        yield call({"dim": dim}, tensors0=(2, 3, 4), tensors1=(2, 3, 4))
    yield call({"dim": -2}, tensors0=(2, 3, 4), tensors1=(2, 1, 4), tensors2=(2, 5, 4))
    yield call({"dim": 1}, tensors0=(2, 3), tensors1=(2, 0), tensors2=(2, 4))
    yield call({"dim": 1}, tensors0=(3, 4), tensors1=(3, 4), tensors2=(3, 4), tensors3=(3, 4))
    yield call({"dim": 1}, tensors0=(0,), tensors1=(2, 3), tensors2=(2, 4))
    yield call({"dim": 0}, tensors0=(0,), tensors1=(0,))
    yield call({"dim": 0}, tensors0=(0, 3), tensors1=(0, 3))
    yield call({"dim": 0}, tensors0=(1025, 3), tensors1=(7, 3))
    yield call({"dim": 1}, tensors0=(2, 301, 3), tensors1=(2, 5, 3))
    yield call({"dim": 1}, tensors0=(4, 5))
    yield call({"dim": 0}, tensors0=(4, 1), tensors1=(3, 1))
    yield call({"dim": 2}, tensors0=(2, 3, 4, 2, 2), tensors1=(2, 3, 1, 2, 2))
    tall: dict[str, Any] = {f"tensors{index}": (index % 3 + 1, 5) for index in range(17)}
    wide: dict[str, Any] = {f"tensors{index}": (3, index % 4) for index in range(33)}
    yield call({"dim": 0}, **tall)
    yield call({"dim": 1}, **wide)
    many: dict[str, Any] = {f"tensors{index}": (index % 2 + 1,) for index in range(130)}
    yield call({"dim": 0}, **many)


@with_further_layouts
def split_samples() -> Iterator[Sample]:
    stated: list[dict[str, Any]] = [
        {"split_size": 2, "dim": 1},
        {"split_size": 3, "dim": 1},
        {"split_size": 1, "dim": -1},
        {"split_size": 7, "dim": 1},
        {"split_size": 9, "dim": 1},
        {"split_size": 2, "dim": -3},
        {"sections": [3, 4], "dim": 1},
        {"sections": [1, 0, 6], "dim": 1},
        {"sections": [7], "dim": -2},
        {"sections": [2, 1, 2], "dim": 2},
        {"split_size": 1, "dim": 0},  # halves of one size, as of a fused gate
    ]
    yield from moved(
        [call({"split_size": 16, "dim": 1}, input=(5, 37)), call({"sections": [1, 4, 2]}, input=(7, 9))],
        lambda n: call({"sections": [5, n], "dim": 1}, input=(3, n + 5)),
        [
            *(call(attributes, input=(2, 7, 5)) for attributes in stated),
            call({"split_size": 2, "dim": 2}, input=(2, 3, 5, 2, 2)),
            call({"split_size": 0}, input=(0, 3)),
            call({"split_size": 2}, input=(5, 1)),
            call({"split_size": 2}, input=(0, 3)),
            call({"sections": [1, 3], "dim": 1}, input=(2, 4, 3, 2)),
            call({"split_size": 1, "dim": 0}, input=(2, 4, 3, 2)),
            call({"split_size": 2, "dim": 0}, input={"shape": [5, 3], "strides": [1, 5]}),
        ],
        [
            call({"split_size": 0}, input=(4, 3)),
            call({"split_size": -1}, input=(4, 3)),
            call({"sections": [1, 2]}, input=(4, 3)),
            call({"sections": [5, -1]}, input=(4, 3)),
            call({"split_size": 2, "dim": 2}, input=(4, 3)),
            call({"split_size": 1}, input=()),
        ],
        large=[call({"split_size": 8, "dim": 1}, input=MILLION)],
    )
    whole = [call({"split_size": 3, "dim": 1}, input=(3, n)) for n in (16, 32, 257, 1023)]
    yield from variations("sizes", whole, dtypes=("float32", "int8"))
    yield from of_one_element(call({"split_size": 1}, input=(1,)), call({"split_size": 3, "dim": 1}, input=(1, 1)))


@with_further_layouts
def slice_samples() -> Iterator[Sample]:
    stated: list[dict[str, Any]] = [
        {"dim": 1, "start": 0, "end": 9},
        {"dim": 1, "start": 3},
        {"dim": 1, "end": -2},
        {"dim": 1, "start": -4, "end": -1},
        {"dim": -1, "start": 1, "end": _FARTHEST},
        {"dim": 1, "start": 2, "end": 8, "step": 3},
        {"dim": 1, "start": 1, "end": 8, "step": 3},
        {"dim": 1, "step": 2},
        {"dim": 1, "step": 4},
        {"dim": 1, "start": -100, "end": 100, "step": 8},
        {"dim": 1, "start": 5, "end": 3},
        {"dim": 1, "start": 9},
        {"dim": [0, 1, 2], "start": [1, 2, 0], "end": [3, 9, 5], "step": [1, 2, 3]},
        {"dim": [2, 0], "start": [1, 0], "end": [-1, 2]},
        {"start": [1, 2], "end": [3, 5]},
        *({"dim": 1, "start": start, "end": end} for start, end in ((3, 10), (-4, 12), (0, 19), (-12, 4), (-30, -2))),
        {"dim": [0, 2], "start": [1, -2], "end": [5, 9], "step": [1, 2]},
    ]
    backwards: list[dict[str, Any]] = [
        {"dim": 1, "step": -1},
        {"dim": 1, "start": -1, "end": 0, "step": -1},
        {"dim": 1, "start": 7, "end": 1, "step": -2},
        {"dim": 1, "start": 12, "end": 1, "step": -2},
        {"dim": 1, "start": _FARTHEST, "end": -_FARTHEST, "step": -3},
        {"dim": [0, 2], "start": [2, 3], "end": [-100, 0], "step": [-2, -1]},
    ]
    yield from moved(
        [
            call({"dim": 1, "start": 3, "end": 20}, input=(5, 37)),
            call({"dim": [0, 1], "start": [1, 2], "end": [4, 30], "step": [2, 3]}, input=(5, 33)),
        ],
        lambda n: call({"dim": 1, "start": 1, "end": -1}, input=(3, n)),
        [
            *(call(attributes, input=(3, 9, 5)) for attributes in (*stated, *backwards)),
            call({"dim": [1, 3], "start": [1, 0], "end": [3, 4], "step": [1, 2]}, input=(2, 3, 2, 5, 3)),
            call({"dim": 0, "start": 0, "end": 3}, input=(0, 3)),
            call({"dim": 3, "start": 1, "end": 4}, input=(2, 3, 2, 5)),
        ],
        [
            call({"dim": 2, "start": 0, "end": 1}, input=(3, 4)),
            call({"dim": 0, "start": 0, "end": 2, "step": 0}, input=(3, 4)),
            call({"dim": 0, "start": 0, "end": 1}, input=()),
        ],
        large=[call({"dim": 1, "start": 1, "end": 16}, input=(70_001, 17))],
    )
    ends: list[dict[str, Any]] = [
        {"dim": 0, "start": 0, "end": 1},
        {"dim": 0, "start": -1, "end": _FARTHEST, "step": 2},
    ]
    yield from of_one_element(*(call(attributes, input=(1,)) for attributes in ends))


@with_further_layouts
def pad_samples() -> Iterator[Sample]:
    yield from moved(
        [
            call({"pad": [1, 2], "value": 1.0}, input=(5, 17)),
            call({"pad": [2, 1, 0, 3]}, input=(3, 4, 5)),
            call({"pad": [2, 1], "mode": "reflect"}, input=(3, 17)),
        ],
        lambda n: call({"pad": [3, 0], "value": 2.0}, input=(3, n)),
        [*_constant_pads(), *_repeating_pads()],
        [
            call({"pad": [1]}, input=(3, 4)),
            call({"pad": [1, 1, 1, 1]}, input=(4,)),
            call({"pad": [-3, -2]}, input=(3, 4)),
            call({"pad": [4, 0], "mode": "reflect"}, input=(2, 4)),
            call({"pad": [5, 0], "mode": "circular"}, input=(2, 4)),
            call({"pad": [1, 1], "mode": "replicate"}, input=(2, 0)),
        ],
        large=[call({"pad": [1, 2], "value": 2.0}, input=(65_537, 14))],
    )
    yield from refused([call({"pad": [1, 1], "value": 300.0}, dtypes=("int8",), input=(4,))])
    alone = [call({"pad": [1, 2], "value": 1.5}, input=(1,)), call({"pad": [2, 1], "mode": "replicate"}, input=(1, 1))]
    yield from of_one_element(*alone)
    values = [call({"pad": [1, 2], "value": value}, input=(4, 5)) for value in (-3.0, 100.0)]
    yield from variations("attributes", values, dtypes=("int8", "int32", "float16", "bfloat16", "complex64"))
    yield from variations("attributes", [call({"pad": [1, 2], "value": 1.0}, input=(4, 5))], dtypes=("bool", "uint8"))
    endless = [call({"pad": [1, 2], "value": value}, input=(4, 5)) for value in (float("-inf"), float("nan"))]
    yield from variations("attributes", endless, dtypes=("float32", "float16", "bfloat16"))
    yield from variations(
        "attributes", [call({"pad": [1, 2], "value": 0.1}, input=(4, 5))], dtypes=("float64", "float32")
    )
    large = call({"pad": [3, 4, 1, 2], "mode": "circular"}, input=(2, 3, 129, 255))
    yield from variations("sizes", [large], dtypes=("float32",), tier=Tier.FULL)


def _constant_pads() -> Iterator[dict[str, Any]]:
    for pad in ([3, 0], [0, 3], [0, 0, 2, 0], [0, 0, 0, 2], [1, 2, 3, 4, 5, 6], [0, 0], []):
        yield call({"pad": pad, "value": -1.5}, input=(2, 3, 4))
    for pad in ([-1, 2], [2, -1], [-1, -1], [1, 1, -1, 0], [-2, -2]):
        yield call({"pad": pad, "value": 0.5}, input=(2, 3, 4))
    yield call({"pad": [1, 2], "value": 3.0}, input=(0,))
    yield call({"pad": [1, 2], "value": 3.0}, input=(2, 0))
    yield call({"pad": [1, 1]}, input=(3, 5))
    yield call({"pad": [1, 2, 3, 0], "value": 0.5}, input=(2, 2, 4, 5))
    yield call({"pad": [-1, 2], "value": 0.5}, input=(4, 6))
    yield call({"pad": [1, 0, 0, 1, 1, 0, 0, 2, 1, 1], "value": 0.5}, input=(2, 2, 2, 2, 3))


def _repeating_pads() -> Iterator[dict[str, Any]]:
    for mode in ("reflect", "replicate", "circular"):
        for pad in ([3, 0], [0, 2], [2, 3], [-1, 2] if mode != "circular" else [-1, -1]):
            yield call({"pad": pad, "mode": mode}, input=(2, 3, 4))
        yield call({"pad": [1, 2, 3, 0], "mode": mode}, input=(2, 4, 5))
        yield call({"pad": [1, 2, 0, 3], "mode": mode}, input=(2, 2, 4, 5))
        yield call({"pad": [1, 0, 2, 1, 0, 1], "mode": mode}, input=(1, 2, 2, 4, 5))
    yield call({"pad": [5, 6], "mode": "replicate"}, input=(2, 4))
    yield call({"pad": [4, 4], "mode": "circular"}, input=(2, 4))
    yield call({"pad": [1, 2], "mode": "circular"}, input=(2, 4), dtypes=("int64",))
    for mode in ("reflect", "replicate", "circular"):
        yield call({"pad": [2, 1], "mode": mode}, input={"shape": [2, 3, 4], "strides": [12, 1, 3]})
