"""The calls by which activations are checked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from optest.operators.samples import (
    EVERY_FLOAT,
    MILLION,
    call,
    of_a_million,
    of_every_value,
    refused,
    standard,
    variations,
    with_further_layouts,
)
from optest.operators.variants import BOOL, FLOATS, INTEGERS, NUMBERS
from optest.spec import Sample

__all__ = [
    "elu_samples",
    "gelu_samples",
    "hardswish_samples",
    "leaky_relu_samples",
    "relu_samples",
    "sigmoid_samples",
    "silu_samples",
    "softplus_samples",
    "swiglu_samples",
]

_SHAPES: tuple[tuple[int, ...], ...] = ((4, 37), (3, 5, 7), (), (2, 1, 3, 2, 2, 3))
_NEAR_ZERO = [sign * 2.0**-power for power in range(2, 14) for sign in (1.0, -1.0)] + [0.0, -0.0]


_FAR = ((-110.0, 110.0), (-1e30, 1e30))
"""On either side of where e^x and e^2x leave float32, and of where x³ does."""
_FAR_IN_FLOAT16 = ((-60.0, 60.0), (-6e4, 6e4))
"""The same for 16 bits: e^x leaves them at 11, x³ at 40."""


def _of_one(
    variants: Sequence[Sequence[str]], *lines: tuple[float, float], far: Sequence[tuple[float, float]] = ()
) -> Iterator[Sample]:
    """What every activation is asked; ``lines`` are ranges for all dtypes, ``far`` for all but float16."""
    calls = [call(input=shape) for shape in _SHAPES]
    yield from standard(calls, variants, sized=lambda n: call(input=(n,)))
    yield from variations("sizes", [call(input=(37, 1))], dtypes=("float32",))
    near = call(input=(len(_NEAR_ZERO),), generator={"input": {"fill": "data", "values": _NEAR_ZERO}})
    yield from variations("range", [near, *(_line(*ends) for ends in lines)], dtypes=EVERY_FLOAT)
    yield from variations("range", [_line(*ends) for ends in (*_FAR, *far)], dtypes=("float32", "bfloat16", "float64"))
    yield from variations("range", [_line(*ends) for ends in _FAR_IN_FLOAT16], dtypes=("float16",))
    ends = ["nan", -0.0, 0.0, "nan"]  # in a vector, and in what is left behind the last
    tail = {"input": {"fill": "data", "values": [*ends, *(0.5 + k / 8 for k in range(9)), *ends]}}
    yield from variations("special", [call(input=(17,), generator=tail)], dtypes=("float32", "float16"))
    if ("uint8",) in variants:  # with the top bit, which the domain keeps random ones from
        high = {"input": {"fill": "data", "values": [0, 1, 127, 128, 200, 255]}}
        yield from variations("dtypes", [call(input=(6,), generator=high)], dtypes=("uint8",))
    yield from of_every_value()


def _line(first: float, last: float, attributes: dict[str, Any] | None = None) -> dict[str, Any]:
    fill = {"fill": "arange", "start": first, "step": (last - first) / 1020}
    return call(attributes, input=(1021,), generator=fill)


def _with(attributes: Sequence[dict[str, Any]], *lines: tuple[float, float]) -> Iterator[Sample]:
    yield from of_every_value(attributes[0])
    calls = [call(each, input=(4, 37)) for each in attributes]
    calls += [_line(*ends, each) for each in attributes for ends in lines]
    yield from variations("attributes", calls, dtypes=EVERY_FLOAT)
    yield from variations("attributes", [_line(*ends, each) for each in attributes for ends in _FAR])
    far = [_line(*ends, each) for each in attributes for ends in _FAR_IN_FLOAT16]
    yield from variations("attributes", far, dtypes=("float16",))


@with_further_layouts
def gelu_samples() -> Iterator[Sample]:
    yield from _of_one(FLOATS, (-9.0, 9.0), (-1.0, 1.0))
    yield from _with([{"approximate": "tanh"}], (-9.0, 9.0), (-1.0, 1.0))
    largest = call(input=(33,), generator={"fill": "full", "value": 3e38})  # what doubles it on the way overflows
    yield from variations("special", [largest], dtypes=("float32", "bfloat16"))


@with_further_layouts
def relu_samples() -> Iterator[Sample]:
    yield from _of_one(NUMBERS, (-9.0, 9.0), (-6e4, 6e4))
    special = call(input=(4, 37), generator="special")
    yield from variations("special", [special], dtypes=[name for (name,) in INTEGERS])
    yield from refused([call(input=(4, 37), dtypes=["bool"])])
    yield from of_a_million(call(input=MILLION), dtype="float32")


@with_further_layouts
def leaky_relu_samples() -> Iterator[Sample]:
    yield from _of_one(FLOATS, (-9.0, 9.0), (-6e4, 6e4))
    yield from _with([{"negative_slope": slope} for slope in (0.3, 0.0, -0.5, 1.0, 2.5)], (-9.0, 9.0))


@with_further_layouts
def sigmoid_samples() -> Iterator[Sample]:
    yield from _of_one((*NUMBERS, *BOOL), (-18.0, 18.0), (-1.0, 1.0))


@with_further_layouts
def silu_samples() -> Iterator[Sample]:
    yield from _of_one(FLOATS, (-18.0, 18.0), (-1.0, 1.0))


@with_further_layouts
def softplus_samples() -> Iterator[Sample]:
    yield from _of_one(FLOATS, (-18.0, 18.0), (-1.0, 1.0))
    attributes = [{"beta": 2.0}, {"beta": 0.3}, {"threshold": 2.0}, {"beta": 0.5, "threshold": 1.0}]
    yield from _with(attributes, (-9.0, 30.0))


@with_further_layouts
def elu_samples() -> Iterator[Sample]:
    yield from _of_one(FLOATS, (-18.0, 18.0), (-1.0, 1.0))
    yield from _with([{"alpha": alpha} for alpha in (0.3, 2.5, -1.5, 0.0)], (-9.0, 9.0))


@with_further_layouts
def hardswish_samples() -> Iterator[Sample]:
    yield from _of_one(FLOATS, (-9.0, 9.0), (-3.01, -2.99), (2.9, 3.1), far=[(5e37, 3e38)])


@with_further_layouts
def swiglu_samples() -> Iterator[Sample]:
    calls = [call(gate=shape, up=shape) for shape in _SHAPES]
    yield from standard(calls, FLOATS, sized=lambda n: call(gate=(3, n), up=(3, n)), special=False)
    # One at a time: whether 0·∞ is asked for depends on where silu(gate) underflows.
    fills = [{"gate": "special", "up": "randn"}, {"gate": "randn", "up": "special"}]
    special = [call(gate=(4, 37), up=(4, 37), generator=each) for each in fills]
    yield from variations("special", special, dtypes=EVERY_FLOAT)
    split = [call(gate=(4, 74)), call(gate=(3, 5, 14)), call(gate=(2,)), call(gate=(3, 0)), call(gate=(16, 2048))]
    yield from variations("attributes", split, dtypes=EVERY_FLOAT)
    yield from variations("attributes", [call(gate=(65_537, 4))], dtypes=("float32",))  # a block for each row
    wide = {"fill": "arange", "start": -18.0, "step": 36.0 / 1020}
    sweep = call(gate=(3, 1021), up=(3, 1021), generator={"gate": wide, "up": "randn"})
    yield from variations("range", [sweep], dtypes=EVERY_FLOAT)
    yield from refused([call(gate=(4, 37), up=(4, 38)), call(gate=(4, 37))])
