"""The calls by which normalisations are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from optest.operators.samples import (
    LARGE_SIZE,
    SIZES,
    call,
    in_every_layout,
    of_one_element,
    refused,
    standard,
    variations,
    with_further_layouts,
    with_special_values,
    zero_mean,
)
from optest.operators.variants import FLOATS
from optest.spec import Sample, Tier

__all__ = [
    "batch_norm_samples",
    "causal_softmax_samples",
    "group_norm_samples",
    "layer_norm_samples",
    "log_softmax_samples",
    "rms_norm_samples",
    "softmax_samples",
]

_HALVES = ("float32", "float16", "bfloat16")
_Call = dict[str, Any]


def _uniform(low: float, high: float) -> _Call:
    return {"fill": "uniform", "low": low, "high": high}


def _normal(mean: float, std: float) -> _Call:
    return {"fill": "randn", "mean": mean, "std": std}


def _written(rows: Sequence[Sequence[Any]], attributes: Mapping[str, Any]) -> _Call:
    fill = {"fill": "data", "values": [list(row) for row in rows]}
    return call(attributes, generator={"input": fill}, input=(len(rows), len(rows[0])))


_RANGES = (_uniform(-110.0, -95.0), _uniform(-1.0, 1.0), _uniform(-200.0, 200.0), _uniform(900.0, 1000.0))
"""Where exp underflows without a shift, plain ones, shares that vanish, where exp overflows in every type."""
_RISING = {"fill": "arange", "start": -200.0, "step": 0.5}
"""So far that exp overflows unless it is shifted by the largest of all, which is the last."""
_MASKED: tuple[tuple[Any, ...], ...] = (
    ("-inf", 1.0, "-inf", 2.0),
    ("-inf", "-inf", "-inf", -3.0),
    ("-inf", "-inf", "-inf", "-inf"),
    ("inf", 0.0, "-inf", 1.0),
    (0.0, "nan", 1.0, 2.0),
    (0.0, -0.0, 0.0, -104.0),
    (5.0, 5.0, 5.0, 5.0),
)


@with_further_layouts
def softmax_samples() -> Iterator[Sample]:
    yield from _softmaxes()


@with_further_layouts
def log_softmax_samples() -> Iterator[Sample]:
    yield from _softmaxes()
    # The share of a term 90 below the maximum is a subnormal of float32, its logarithm an ordinary number.
    low: list[list[Any]] = [[0.0, -90.0, -100.0, -103.0], [0.0, -200.0, -1000.0, -60000.0], [0.0, -17.0, -20.0, -30.0]]
    yield from variations("special", [_written(low, {"dim": 1})], dtypes=_HALVES)


def _softmaxes() -> Iterator[Sample]:
    calls = [
        call({"dim": -1}, input=(4, 37)),
        call({"dim": 1}, input=(3, 5, 7)),
        call({"dim": 0}, input=(33, 5)),
        call({"dim": 2}, input=(2, 3, 7, 2, 3)),
    ]
    yield from standard(calls, FLOATS, sized=lambda n: call({"dim": 1}, input=(3, n)), special=False)
    for dim in (0, 1, 2, -1, -2, -3):
        yield from variations("attributes", [call({"dim": dim}, input=(2, 3, 5))], dtypes=("float32", "float16"))
    yield from variations("attributes", [call({"dim": 0}, input=()), call({"dim": -1}, input=())])
    for fill in _RANGES:
        each = [call({"dim": 1}, generator=fill, input=(4, 65)), call({"dim": 0}, generator=fill, input=(65, 4))]
        yield from variations("special", each, dtypes=_HALVES)
    yield from variations("special", [_written(_MASKED, {"dim": 1})], dtypes=_HALVES)
    rising = [call({"dim": 1}, generator=_RISING, input=(1, 801)), call({"dim": 0}, generator=_RISING, input=(801, 1))]
    yield from variations("long", rising, dtypes=_HALVES)
    yield from with_special_values([call({"dim": 1}, input=(16, 37)), call({"dim": 0}, input=(9, 35))])
    yield from variations("long", [call({"dim": -1}, input=(2, 65536))], dtypes=_HALVES)
    yield from variations("long", [call({"dim": 0}, input=(4097, 3))], dtypes=("float32", "float16"))
    yield from variations("long", [call({"dim": 1}, input=(LARGE_SIZE, 3))], dtypes=("float32",))
    yield from variations("long", [call({"dim": 1}, input=(2, 1025, 3))], dtypes=("float32", "float16"))
    yield from variations("long", [call({"dim": 0}, input=(65537, 3))], dtypes=("float32",), tier=Tier.FULL)
    yield from zero_mean([call({"dim": 1}, input=(3, 4097)), call({"dim": 1}, input=(64, 33))])
    nothing = [call({"dim": 1}, input=(0, 3)), call({"dim": 0}, input=(3, 0)), call({"dim": 0}, input=(0,))]
    yield from variations("empty", nothing)
    yield from refused([call({"dim": 2}, input=(3, 4)), call({"dim": -3}, input=(3, 4)), call({"dim": 1}, input=())])
    between = [call({"dim": 1}, input=(3, n)) for n in (513, 781)]  # odd, between two sizes of a block
    yield from variations("long", between, dtypes=("float32", "float64", "float16"))
    yield from variations("long", [call({"dim": 0}, input=(257,))], dtypes=_HALVES)
    low = call({"dim": 1}, generator=_uniform(-210.0, -190.0), input=(2, 1500))  # a maximum that begins at 0
    far = call({"dim": 1}, generator=_uniform(-30000.0, -29000.0), input=(3, 33))  # or at some other finite number
    yield from variations("long", [low, far], dtypes=_HALVES)
    yield from variations("long", [call({"dim": 0}, input=(2, LARGE_SIZE))], dtypes=("float32",))


@with_further_layouts
def causal_softmax_samples() -> Iterator[Sample]:
    calls = [call(input=(5, 37)), call(input=(2, 3, 7, 7)), call(input=(3, 1, 9))]
    yield from standard(calls, FLOATS, sized=lambda n: call(input=(min(n, 3), n)), special=False)
    yield from variations("sizes", [call(input=(n, n)) for n in (1, 2, 16, 33, 65)], dtypes=("float32",))
    for fill in _RANGES:
        yield from variations("special", [call(generator=fill, input=(2, 17, 33))], dtypes=_HALVES)
    yield from variations("special", [_unseen()], dtypes=_HALVES)
    yield from with_special_values([call(input=(33, 37))])
    low: list[list[Any]] = [[-6e4, 1.0, 2.0], [-6e4, -6e4, 3.0], ["-inf", "-inf", -6e4]]
    yield from variations("special", [_written(low, {})], dtypes=_HALVES)  # a mask that is finite outweighs these
    yield from variations("long", [call(generator=_RISING, input=(1, 801))], dtypes=_HALVES)
    lower = [[-1e30, 1.0, 2.0], [-1e30, -1e30, 3.0], [-3e38, -3e38, -3e38]]
    yield from variations("special", [_written(lower, {})], dtypes=("float32", "bfloat16"))
    yield from variations("long", [call(input=(LARGE_SIZE, 2, 2))], dtypes=("float32",))
    yield from variations("long", [call(input=(3, 65536)), call(input=(129, 257))], dtypes=_HALVES)
    yield from variations("long", [call(input=(2, 1025, 1025))], dtypes=("float32", "float16"), tier=Tier.FULL)
    yield from zero_mean([call(input=(4, 33, 65))])
    nothing = [call(input=(0, 3)), call(input=(0, 3, 3)), call(input=(0, 0))]
    yield from variations("empty", nothing)
    yield from refused([call(input=(4, 3)), call(input=(3,))])


def _unseen() -> _Call:
    """NaN, infinity and the largest values above the diagonal must not reach what is seen."""
    rows: list[list[Any]] = [
        [1.0, 2.0, "nan", 60000.0],
        [0.5, -1.0, 3.0, "inf"],
        [0.5, -1.0, 3.0, 1.5],
    ]
    return _written(rows, {})


@with_further_layouts
def layer_norm_samples() -> Iterator[Sample]:
    def whole(rows: Sequence[int], *shape: int, **attributes: Any) -> _Call:
        stated = {"normalized_shape": list(shape), **attributes}
        return call(stated, input=(*rows, *shape), weight=shape, bias=shape)

    calls = [whole((4,), 37), whole((3,), 5, 7), whole((2, 3), 16)]
    yield from standard(calls, FLOATS, sized=lambda n: whole((3,), n), special=False)
    for half in ("float16", "bfloat16"):
        mixed = {**calls[0], "dtypes": [half, "float32", "float32"]}
        yield from variations("dtypes", [mixed, _without(mixed, "bias"), _without(mixed, "weight")])
    yield from variations("attributes", [_without(calls[0], "bias"), _without(calls[0], "weight")], dtypes=_HALVES)
    yield from variations("attributes", [_without(calls[1], "weight", "bias")], dtypes=_HALVES)
    yield from variations("attributes", [whole((), 3, 5), whole((2,), 3, 1, 5), whole((4, 3), 1)])
    yield from _of_rows(whole)
    yield from _with_statistics(whole)
    yield from variations("empty", [whole((0,), 4), whole((2, 0), 3)])
    yield from of_one_element(whole((1,), 1), dtypes=("float32",))
    yield from refused(
        [
            call({"normalized_shape": [5]}, input=(3, 4)),
            call({"normalized_shape": [3]}, input=(3, 4)),
            call({"normalized_shape": [4]}, input=(3, 4), weight=(3,)),
            call({"normalized_shape": [4]}, input=(3, 4), weight=(4,), bias=(1,)),
            call({"normalized_shape": []}, input=(3, 4)),
        ]
    )


def _with_statistics(whole: Callable[..., _Call]) -> Iterator[Sample]:
    """Three outputs: of every dtype, size and kind of input, since none of them shows in the result alone."""
    calls = [whole((4,), 37, statistics=True), whole((3,), 5, 7, statistics=True), whole((2, 3), 16, statistics=True)]
    yield from variations("statistics", calls, dtypes=(*_HALVES, "float64"))
    yield from variations("statistics", [_without(calls[0], "bias"), _without(calls[0], "weight", "bias")])
    yield from in_every_layout(calls[:1])
    for half in ("float16", "bfloat16"):
        yield from variations("statistics", [{**calls[0], "dtypes": [half, "float32", "float32"]}])
    yield from variations("statistics", [whole((3,), n, statistics=True) for n in (1, 2, 17, 129, 1025, 65536)])
    for eps, fill in ((1e-5, _normal(0.0, 1e-3)), (0.125, _normal(0.0, 0.5)), (1e-5, {"fill": "full", "value": 7.25})):
        rows = _filled(whole((4,), 65, eps=eps, statistics=True), fill)
        yield from variations("statistics", [rows], dtypes=_HALVES)
    far = _filled(whole((4,), 257, statistics=True), _normal(30.0, 0.5))
    yield from variations("statistics", [far, whole((64,), 33, statistics=True)], dtypes=_HALVES)
    yield from variations("statistics", [whole((0,), 4, statistics=True), whole((), 5, statistics=True)])


@with_further_layouts
def rms_norm_samples() -> Iterator[Sample]:
    def whole(rows: Sequence[int], *shape: int, **attributes: Any) -> _Call:
        return call({"normalized_shape": list(shape), **attributes}, input=(*rows, *shape), weight=shape)

    calls = [whole((4,), 37), whole((3,), 5, 7), whole((2, 3), 16, eps=1e-6)]
    yield from standard(calls, FLOATS, sized=lambda n: whole((3,), n), special=False)
    for half in ("float16", "bfloat16"):
        yield from variations("dtypes", [{**calls[0], "dtypes": [half, "float32"]}])
    yield from variations("attributes", [_without(calls[0], "weight"), _without(calls[1], "weight")], dtypes=_HALVES)
    yield from variations("attributes", [whole((), 3, 5), whole((2,), 3, 1, 5), whole((4, 3), 1)])
    yield from _of_rows(whole, has_mean=False)
    yield from variations("empty", [whole((0,), 4), whole((2, 0), 3)])
    tiny = [_filled(whole((4,), 65), _normal(0.0, std)) for std in (1e-3, 3e-4)]
    yield from variations("epsilon", tiny, dtypes=_HALVES)  # of none
    yield from of_one_element(whole((1,), 1), dtypes=("float32",))
    yield from refused(
        [
            call({"normalized_shape": [5]}, input=(3, 4)),
            call({"normalized_shape": [4]}, input=(3, 4), weight=(3,)),
            call({"normalized_shape": []}, input=(3, 4)),
        ]
    )


def _without(case: _Call, *names: str) -> _Call:
    """The call without some of its inputs."""
    shapes = {name: shape for name, shape in case["shapes"].items() if name not in names}
    dtypes = case.get("dtypes", [])
    kept = [dtypes[i] for i, name in enumerate(case["shapes"]) if name not in names] if len(dtypes) > 1 else dtypes
    return {**case, "shapes": shapes, **({"dtypes": kept} if dtypes else {})}


def _filled(case: _Call, fill: _Call) -> _Call:
    return {**case, "generator": {"input": fill}}


def _of_rows(call_of: Callable[..., _Call], *, has_mean: bool = True) -> Iterator[Sample]:
    """What every normalisation of rows is asked: eps against the variance, large means, long rows, special values."""
    for std, eps in ((1e-3, 1e-5), (1e-3, 1e-6), (0.5, 0.1)):
        yield from variations("epsilon", [_filled(call_of((4,), 65, eps=eps), _normal(0.0, std))], dtypes=_HALVES)
    constant = {"fill": "full", "value": 7.25}
    zeros = [_filled(call_of((3,), 33, eps=1e-5), fill) for fill in (constant, {"fill": "zeros"})]
    yield from variations("epsilon", zeros, dtypes=_HALVES)
    less = _filled(call_of((3,), 33, eps=1e-8), constant)  # than a float16 holds
    yield from variations("epsilon", [less], dtypes=_HALVES[1:])
    none = _filled(call_of((4,), 65, eps=0.0), _normal(0.0, 1e-3))  # which is not the default
    yield from variations("epsilon", [none], dtypes=("float32",))
    if has_mean:
        yield from variations(
            "mean beside std", [_filled(call_of((4,), 257), _normal(1000.0, 1.0))], dtypes=("float32",)
        )
        yield from variations("mean beside std", [_filled(call_of((4,), 257), _normal(1e5, 1.0))], dtypes=("float64",))
        for mean, std in ((-300.0, 2.0), (30.0, 0.5)):
            yield from variations("mean beside std", [_filled(call_of((4,), 257), _normal(mean, std))], dtypes=_HALVES)
    # Squares of 300 are beyond float16, and so is a sum of 65 numbers around 1,500.
    yield from variations("long", [_filled(call_of((3,), 65), _normal(1500.0, 300.0))], dtypes=_HALVES)
    yield from variations("long", [call_of((2,), 65536)], dtypes=_HALVES)
    yield from variations("long", [call_of((300,), 17)], dtypes=("float32", "float16"))
    yield from variations("long", [call_of((LARGE_SIZE,), 3)], dtypes=("float32",))
    yield from variations("epsilon", [_filled(call_of((4,), 65, eps=1e-6), _normal(0.0, 1e-3))], dtypes=("float64",))
    yield from variations("long", [call_of((3,), 1 << 20)], dtypes=("float32",), tier=Tier.FULL)
    yield from zero_mean([call_of((3,), 4097), call_of((64,), 33)])
    yield from variations("special", [_with_odd_rows(call_of)], dtypes=_HALVES)
    yield from variations("special", [_filled(call_of((16,), 37), {"fill": "special"})], dtypes=_HALVES)


def _with_odd_rows(call_of: Callable[..., _Call]) -> _Call:
    """NaN and infinity stay in their row; one value far from the others; signed zeros."""
    rows = [
        ["nan", 1.0, 2.0, 3.0],
        [1.0, 2.0, 3.0, "inf"],
        ["-inf", 1.0, "inf", 3.0],
        [0.0, -0.0, 0.0, -0.0],
        [0.0, 0.0, 0.0, 1000.0],
        [1.0, -1.0, 1.0, -1.0],
        [0.5, -2.0, 4.0, 1.5],
    ]
    case = call_of((7,), 4)
    values = [rows] if len(case["shapes"]["input"]) == 3 else rows
    return _filled(case, {"fill": "data", "values": values})


@with_further_layouts
def group_norm_samples() -> Iterator[Sample]:
    def whole(groups: int, *shape: int, **attributes: Any) -> _Call:
        channels = shape[1]
        return call({"num_groups": groups, **attributes}, input=shape, weight=(channels,), bias=(channels,))

    calls = [whole(2, 2, 6, 5), whole(3, 2, 6, 3, 5), whole(1, 3, 4, 7), whole(4, 2, 4, 9), whole(2, 4, 8)]
    yield from standard(calls, FLOATS, sized=lambda n: whole(2, 2, 4, n), special=False)
    for half in ("float16", "bfloat16"):
        mixed = {**calls[0], "dtypes": [half, "float32", "float32"]}
        yield from variations("dtypes", [mixed, _without(mixed, "bias"), _without(mixed, "weight")])
    yield from variations("attributes", [_without(calls[0], "bias"), _without(calls[0], "weight")], dtypes=_HALVES)
    yield from variations("attributes", [_without(calls[1], "weight", "bias")], dtypes=_HALVES)
    for groups in (1, 2, 3, 4, 6, 12):
        yield from variations("attributes", [whole(groups, 2, 12, 3, 2), whole(groups, 2, 12, 1)])
    yield from variations("attributes", [whole(3, 2, 6, 2, 3, 2)], dtypes=("float32",))

    def rows_of(rows: Sequence[int], width: int, **attributes: Any) -> _Call:
        return whole(rows[0], 1, rows[0], width, **attributes)

    yield from _of_rows(rows_of)
    yield from variations("long", [whole(1, LARGE_SIZE, 2, 1)], dtypes=("float32",))
    yield from variations("empty", [whole(2, 0, 4, 3), whole(2, 2, 4, 0)])
    yield from in_every_layout([whole(3, 2, 6, 3, 5)], names=("input",))
    yield from refused(
        [
            call({"num_groups": 4}, input=(2, 6, 3)),
            call({"num_groups": 0}, input=(2, 6, 3)),
            call({"num_groups": 2}, input=(2, 6, 3), weight=(3,)),
            call({"num_groups": 2}, input=(2, 6, 3), weight=(6,), bias=(2,)),
            call({"num_groups": 1}, input=(6,)),
            call({"num_groups": 6}, input=(1, 6)),
        ]
    )
    wide = [whole(3, 2, 6, 9, 11), whole(2, 1, 4, 13, 5)]  # planes that are no multiple of a vector
    yield from variations("attributes", wide, dtypes=("float32", "float16"))


@with_further_layouts
def batch_norm_samples() -> Iterator[Sample]:
    calls = [_channelwise(3, 5, 7), _channelwise(2, 3, 4, 5), _channelwise(6, 5), _channelwise(2, 17, 3, 2, 2)]
    # torch refuses weights of no channel, and a size of 0 is asked of the other dimensions below.
    yield from standard(calls, FLOATS, sized=lambda n: _channelwise(2, n, 3), sizes=SIZES[1:], special=False)
    for half in ("float16", "bfloat16"):
        mixed = {**calls[0], "dtypes": [half, *["float32"] * 4]}
        yield from variations(
            "dtypes",
            [mixed, _without(mixed, "bias"), _without(mixed, "weight"), _without(mixed, "weight", "bias")],
        )
    some = [_without(calls[0], "bias"), _without(calls[0], "weight"), _without(calls[1], "weight", "bias")]
    yield from variations("attributes", some, dtypes=_HALVES)
    yield from in_every_layout([calls[1]], names=("input",))
    # eps far above, beside and far below the running variance; a variance of 0.
    for largest, eps in ((1e-4, 1e-5), (1e-6, 1e-3), (1e-2, 0.5), (1e-3, 1e-6), (1e-3, 0.0)):
        fills = {"running_var": _uniform(0.0, largest)}
        each = {**_channelwise(2, 9, 5, eps=eps), "generator": fills}
        yield from variations("epsilon", [each], dtypes=_HALVES)
    yield from variations("epsilon", [{**calls[0], "generator": {"running_var": {"fill": "zeros"}}}], dtypes=_HALVES)
    large = {"input": _normal(1000.0, 1.0), "running_mean": _normal(1000.0, 1.0)}
    yield from variations("mean beside std", [{**calls[0], "generator": large}], dtypes=("float32", "bfloat16"))
    yield from _in_training()
    odd = [[["nan", 1.0], [2.0, 3.0]], [["inf", "-inf"], [0.0, -0.0]], [[1.0, 2.0], [3.0, 4.0]]]
    special = {**_channelwise(3, 2, 2), "generator": {"input": {"fill": "data", "values": odd}}}
    yield from variations("special", [special], dtypes=_HALVES)
    yield from variations(
        "special", [{**_channelwise(4, 9, 5), "generator": {"input": {"fill": "special"}}}], dtypes=_HALVES
    )
    yield from variations("long", [_channelwise(2, 3, 65536), _channelwise(2, 4097, 3)], dtypes=_HALVES)
    yield from variations("long", [_channelwise(LARGE_SIZE, 3)], dtypes=("float32",))
    yield from variations("empty", [_channelwise(0, 3), _channelwise(2, 3, 0)])
    yield from variations("sizes", [_channelwise(4, 3, 1), _channelwise(2, 3, 5, 1)], dtypes=("float32",))
    yield from of_one_element(_channelwise(1, 1), _channelwise(1, 1, 1))
    yield from _refused_channels()
    last = {"shape": [2, 3, 4, 5], "strides": [60, 1, 15, 3]}
    for training in (False, True):
        images = _channelwise(2, 3, 4, 5, training=training)
        laid = {**images, "shapes": {**images["shapes"], "input": last}}
        yield from variations("layouts", [laid], dtypes=("float16",))


def _channelwise(*shape: int, **attributes: Any) -> _Call:
    of_channel = (shape[1],)
    return call(
        attributes,
        input=shape,
        running_mean=of_channel,
        running_var=of_channel,
        weight=of_channel,
        bias=of_channel,
    )


def _in_training() -> Iterator[Sample]:
    """By the statistics of the batch, which the running ones must not replace."""

    def batch(*shape: int, **attributes: Any) -> _Call:
        return _without(_channelwise(*shape, training=True, **attributes), "running_mean", "running_var")

    calls = [batch(5, 7, 3), batch(4, 3, 5, 6), batch(9, 5), batch(7, 7)]
    yield from variations("attributes", calls, dtypes=_HALVES)
    yield from variations("attributes", [_without(calls[0], "weight", "bias")], dtypes=_HALVES)
    yield from variations("attributes", [_channelwise(5, 7, 3, training=True)], dtypes=_HALVES)
    yield from in_every_layout([batch(3, 4, 5)], names=("input",))
    for std, eps in ((1e-3, 1e-5), (0.5, 0.1)):
        yield from variations("epsilon", [_filled(batch(9, 4, 7, eps=eps), _normal(0.0, std))], dtypes=_HALVES)
    yield from variations("mean beside std", [_filled(batch(33, 4, 7), _normal(1000.0, 1.0))], dtypes=("float32",))
    yield from variations("mean beside std", [_filled(batch(33, 4, 7), _normal(-300.0, 2.0))], dtypes=_HALVES)
    yield from variations("long", [batch(2, 3, 32768)], dtypes=_HALVES)
    yield from variations("long", [batch(4097, 3)], dtypes=("float32",))
    yield from zero_mean([batch(16, 3, 257), batch(257, 9)])


def _refused_channels() -> Iterator[Sample]:
    shapes: dict[str, Any] = {"running_mean": (4,), "running_var": (4,)}
    yield from refused(
        [
            call(input=(3, 4)),
            call(input=(3, 4), running_mean=(4,)),
            call(input=(3, 4), running_mean=(3,), running_var=(4,)),
            call(input=(3, 4), **shapes, weight=(3,)),
            call(input=(3, 4), **shapes, weight=(4,), bias=(1,)),
            call({"training": True}, input=(1, 4)),
            call({"eps": -1.0}, input=(3, 4), **shapes),
        ]
    )
