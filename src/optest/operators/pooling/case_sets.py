"""The calls by which poolings are checked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optest.operators.samples import (
    call,
    of_one_element,
    refused,
    standard,
    variations,
    with_further_layouts,
    zero_mean,
)
from optest.operators.variants import FLOATS, NUMBERS
from optest.spec import Sample, Tier

__all__ = ["adaptive_avg_pool2d_samples", "avg_pool2d_samples", "max_pool2d_samples"]

_SIZES = (2, 3, 7, 15, 16, 17, 31, 33, 65, 129)
_NEGATIVE = {"fill": "uniform", "low": -9.0, "high": -1.0}


@with_further_layouts
def max_pool2d_samples() -> Iterator[Sample]:
    calls = [
        call({"kernel_size": 2}, input=(2, 3, 6, 8)),
        call({"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)}, input=(1, 3, 9, 7)),
        call({"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, input=(2, 2, 8, 10)),
    ]
    yield from standard(
        calls,
        NUMBERS,
        sized=lambda n: call({"kernel_size": 2, "stride": 1}, input=(1, 2, 3, n)),
        sizes=_SIZES,
    )
    yield from _beyond_16_bits({"kernel_size": 2, "stride": (1, 2)})
    yield from variations("sizes", [call({"kernel_size": 2, "stride": 1}, input=(1, 2, 3, 257))], dtypes=("float16",))
    yield from of_one_element(call({"kernel_size": 1}, input=(1, 1, 1, 1)))
    yield from variations(
        "sizes", [call({"kernel_size": (3, 1), "stride": 1}, input=(2, 3, 9, 1))], dtypes=("float32",)
    )
    yield from variations("attributes", _walks(dilations=[(1, 1), (2, 1), (1, 3)]), dtypes=("float32",))
    yield from variations("attributes", _forms(), dtypes=("float32",))
    whole = {"kernel_size": (2, 3), "stride": (2, 1), "padding": 1, "dilation": (2, 1), "ceil_mode": True}
    mixed = call(whole, input=(1, 2, 8, 9))
    yield from variations("attributes", [mixed], dtypes=("float16", "bfloat16", "int32", "uint8"))
    padded = [*calls[1:], mixed, call({"kernel_size": 2, "stride": 3, "padding": 1}, input=(1, 1, 7, 7))]
    yield from variations(
        "negative", ({**each, "generator": _NEGATIVE} for each in padded), dtypes=("float32", "float16", "bfloat16")
    )
    corner = [[["-inf", "-inf", 1.0, 2.0], ["-inf", "-inf", 3.0, -1.0]]]
    lowest = call({"kernel_size": 2}, input=(1, 1, 2, 4), generator={"fill": "data", "values": [corner]})
    yield from variations("negative", [lowest], dtypes=("float32", "float16", "bfloat16", "float64"))
    below = {"fill": "randint", "low": -100, "high": -10}
    yield from variations(
        "negative", ({**each, "generator": below} for each in padded), dtypes=("int8", "int16", "int32", "int64")
    )
    yield from refused(
        [
            call({"kernel_size": 3, "padding": 2}, input=(1, 2, 6, 6)),
            call({"kernel_size": 4}, input=(1, 2, 3, 3)),
            call({"kernel_size": 2}, input=(1, 0, 6, 6)),
            call({"kernel_size": 2}, input=(6, 6)),
            call({"kernel_size": 2, "stride": 0}, input=(1, 2, 6, 6)),
        ]
    )
    yield from variations(
        "sizes", [call({"kernel_size": 3, "stride": 2, "padding": 1}, input=(1, 64, 112, 112))], tier=Tier.FULL
    )


@with_further_layouts
def avg_pool2d_samples() -> Iterator[Sample]:
    calls = [
        call({"kernel_size": 2}, input=(2, 3, 6, 8)),
        call({"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)}, input=(1, 3, 9, 7)),
        call({"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}, input=(2, 2, 8, 10)),
    ]
    yield from standard(
        calls,
        FLOATS,
        sized=lambda n: call({"kernel_size": 2, "stride": 1}, input=(1, 2, 3, n)),
        sizes=_SIZES,
    )
    yield from _beyond_16_bits({"kernel_size": 2, "stride": (1, 2)})
    yield from variations("sizes", [call({"kernel_size": 2, "stride": 1}, input=(1, 2, 3, 257))], dtypes=("float16",))
    yield from of_one_element(call({"kernel_size": 1}, input=(1, 1, 1, 1)))
    yield from variations(
        "sizes", [call({"kernel_size": (3, 1), "stride": 1}, input=(2, 3, 9, 1))], dtypes=("float32",)
    )
    yield from variations("attributes", _walks(dilations=None), dtypes=("float32",))
    yield from variations("attributes", _forms(), dtypes=("float32",))
    yield from variations("attributes", _divisors(), dtypes=("float32", "float16"))
    yield from variations("long", [call({"kernel_size": 64}, input=(1, 3, 128, 64))], dtypes=("float32", "float16"))
    thirds = call({"kernel_size": (3, 5)}, input=(2, 3, 15, 40))  # by a power of two no division rounds
    yield from variations("ordinary", [thirds], dtypes=("float16", "bfloat16"))
    exact = {"fill": "integer-exact", "operands": 1}
    sums = [
        call({**each["attributes"], "divisor_override": 1}, input=tuple(each["shapes"]["input"]), generator=exact)
        for each in (*calls, call({"kernel_size": (17, 33)}, input=(1, 2, 17, 66)))
    ]
    yield from variations("integer-exact", sums, dtypes=("float32", "float16", "bfloat16"))
    yield from zero_mean([call({"kernel_size": 9, "stride": 3, "padding": 4}, input=(1, 9, 30, 33))])
    large = {**calls[0], "generator": {"fill": "uniform", "low": 30000.0, "high": 40000.0}}
    yield from variations("ordinary", [large], dtypes=("float16",))  # sums beyond what it holds, of four
    yield from refused(
        [
            call({"kernel_size": 3, "padding": 2}, input=(1, 2, 6, 6)),
            call({"kernel_size": 4}, input=(1, 2, 3, 3)),
            call({"kernel_size": 2, "divisor_override": 0}, input=(1, 2, 6, 6)),
            call({"kernel_size": 2}, input=(6, 6)),
        ]
    )


def _beyond_16_bits(attributes: dict[str, Any]) -> Iterator[Sample]:
    """More results, or more planes, than 16 bits count: a grid of a device has such limits in some dimensions."""
    calls = [call(attributes, input=(1, 2, 370, 366)), call(attributes, input=(65_537, 1, 2, 2))]
    yield from variations("sizes", calls, dtypes=("float32",))


def _walks(dilations: list[tuple[int, int]] | None) -> Iterator[dict[str, Any]]:
    """Height and width never alike, so that they cannot be swapped."""
    for stride in (None, (1, 1), (2, 3), (4, 1)):
        for padding in ((0, 0), (1, 0), (0, 1)):
            for ceil_mode in (False, True):
                attributes: dict[str, Any] = {"kernel_size": (2, 3), "padding": padding, "ceil_mode": ceil_mode}
                if stride is not None:
                    attributes["stride"] = stride
                if dilations is not None:
                    attributes["dilation"] = dilations[(sum(padding) + sum(stride or (0,)) + ceil_mode) % 3]
                yield call(attributes, input=(1, 2, 8, 9))


def _forms() -> Iterator[dict[str, Any]]:
    yield call({"kernel_size": 1}, input=(1, 2, 3, 4))
    yield call({"kernel_size": 1, "stride": 2}, input=(1, 2, 5, 4))
    yield call({"kernel_size": (5, 7)}, input=(2, 3, 5, 7))
    yield call({"kernel_size": 2}, input=(3, 6, 7))
    yield call({"kernel_size": 2}, input=(0, 3, 6, 7))
    yield call({"kernel_size": 3, "ceil_mode": True}, input=(1, 2, 2, 7))
    yield call({"kernel_size": (3, 4), "stride": (2, 1), "padding": (2, 1, 0, 3)}, input=(1, 2, 7, 8))  # before, after
    yield call({"kernel_size": 2, "stride": 3, "padding": 1, "ceil_mode": True}, input=(1, 1, 3, 5))
    yield call({"kernel_size": 3, "stride": 1, "padding": 1}, input=(2, 17, 5, 5))
    yield call({"kernel_size": 2}, input=(2, 67, 4, 5))
    yield call({"kernel_size": 1, "stride": 2, "ceil_mode": True}, input=(1, 2, 6, 7))


def _divisors() -> Iterator[dict[str, Any]]:
    for include in (True, False):
        for ceil_mode in (True, False):
            walk: dict[str, Any] = {"kernel_size": (3, 4), "stride": (2, 3), "padding": (1, 2)}
            yield call({**walk, "ceil_mode": ceil_mode, "count_include_pad": include}, input=(1, 2, 8, 9))
    yield call({"kernel_size": 3, "padding": 1, "divisor_override": 5}, input=(1, 2, 7, 7))
    yield call({"kernel_size": 3, "padding": 1, "divisor_override": -2, "count_include_pad": False}, input=(1, 2, 7, 7))


@with_further_layouts
def adaptive_avg_pool2d_samples() -> Iterator[Sample]:
    calls = [
        call({"output_size": (3, 2)}, input=(2, 3, 7, 9)),
        call({"output_size": 1}, input=(2, 17, 7, 7)),
        call({"output_size": 4}, input=(1, 2, 8, 12)),
    ]
    yield from standard(
        calls,
        FLOATS,
        sized=lambda n: call({"output_size": (2, 3)}, input=(1, 2, 3, n)),
        sizes=(1, *_SIZES),
    )
    large = [
        call({"output_size": (259, 254)}, input=(1, 1, 370, 366)),
        call({"output_size": 1}, input=(65_537, 1, 2, 2)),
    ]
    yield from variations("sizes", large, dtypes=("float32",))
    yield from variations("sizes", [call({"output_size": (2, 3)}, input=(1, 2, 3, 257))], dtypes=("float16",))
    yield from of_one_element(call({"output_size": 1}, input=(1, 1, 1, 1)))
    attributes = [
        call({"output_size": size}, input=(1, 2, 7, 10))
        for size in ((1, 1), (7, 10), (5, 3), (3, 5), (1, 10), (7, 1), (9, 13), (6, 9), (0, 2))
    ]
    attributes += [call({"output_size": 2}, input=(2, 67, 5, 4))]
    attributes += [call({"output_size": (2, 3)}, input=(3, 5, 7)), call({"output_size": (2, 3)}, input=(0, 3, 5, 7))]
    yield from variations("attributes", attributes, dtypes=("float32", "bfloat16"))
    yield from variations("long", [call({"output_size": (1, 2)}, input=(1, 3, 64, 129))], dtypes=("float32", "float16"))
    yield from zero_mean([call({"output_size": (2, 3)}, input=(2, 33, 33, 31))])
    whole = call({"output_size": 1}, input=(1, 2, 33, 37), generator={"fill": "uniform", "low": 60.0, "high": 100.0})
    yield from variations("long", [whole], dtypes=("float32", "float16"))  # sums beyond float16
    yield from refused(
        [
            call({"output_size": 2}, input=(6, 6)),
            call({"output_size": -1}, input=(1, 2, 6, 6)),
            call({"output_size": (2, 2, 2)}, input=(1, 2, 6, 6)),
        ]
    )
