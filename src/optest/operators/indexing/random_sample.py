"""random_sample."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, SIZES, call
from optest.operators.describe import FLOATS, attribute, exact, in_module
from optest.operators.samples import of_every_size, refused, standard, variations
from optest.operators.shapes import Attributes, Outputs, Specs, dense, given
from optest.spec import OperatorDescriptor, Sample, UnfitArguments, dtype, format_shape

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="random_sample",
        signature="logits -> out",
        attributes=(
            attribute("random_value: float", "What chance gave, from 0 to 1."),
            attribute("top_p|topp: float = 1.0", "Share of the probability kept."),
            attribute(
                "top_k|topk: int = None",
                "How many of the largest are drawn from; none is all, 0 and 1 give the largest.",
            ),
            attribute("temperature: float = 1.0", "Divides the logits; 0 is the largest."),
            attribute("dtype: dtype = 'int64'", "Integer dtype of the index."),
        ),
        dtype_variants=FLOATS,
        alternatives="random_sample_alternatives",
        generator={"fill": "randn", "std": 2.0},
        rule=exact(
            "the definition; softmax: docs/operators/normalization.md#softmax",
            "or any with as large a logit; the next one too where the sum of probabilities lies within its "
            "error of the limit",
        ),
        description="The index of one of the logits, a 0-d tensor. In descending order, it is the first at which "
        "the running sum of softmax(logits / temperature) is at least random_value · min(top_p, sum of the first "
        "top_k). A largest logit that is not finite is always drawn.",
    ),
)


def infer_random_sample(specs: Specs, attributes: Attributes) -> Outputs:
    """A 0-d index; attributes as libraries refuse them."""
    spec, index = given(specs, 0, "logits"), dtype(attributes.get("dtype", "int64"))
    if spec.rank != 1 or not spec.elements:
        raise UnfitArguments(f"logits is {format_shape(spec.shape)}, but should have 1 dimension and 1 element or more")
    if not index.is_integer or index.bits < 8 or spec.shape[0] - 1 > index.max_int:
        raise UnfitArguments(f"dtype is {index}, but should be an integer that holds the index {spec.shape[0] - 1}")
    if not 0 <= attributes["random_value"] <= 1:
        raise UnfitArguments(f"random_value is {attributes['random_value']:g}, but should be from 0 to 1")
    for name in ("top_p", "top_k", "temperature"):
        value = attributes.get(name)
        if value is not None and not value >= 0:
            raise UnfitArguments(f"{name} is {value:g}, but should be 0 or more")
    return (dense(index, ()),)


_VALUES = (0.0, 0.125, 0.5, 0.8125, 0.9375, 1.0)
"""All attributes are numbers that C's float holds."""
_PLACES = {
    "int64": LARGE_SIZE,
    "int32": LARGE_SIZE,
    "int16": 1 << 15,
    "int8": 1 << 7,
    "uint8": 1 << 8,
    "uint16": 1 << 16,
    "uint32": LARGE_SIZE,
    "uint64": LARGE_SIZE,
}
"""Every dtype of the index, with as many logits as it can index, or more than 16 bits can."""


def _drawn(size: int, value: float = 0.75, **attributes: Any) -> dict[str, Any]:
    return call({"random_value": value, **attributes}, logits=(size,))


def random_sample_samples() -> Iterator[Sample]:
    calls = [
        _drawn(37, top_p=0.875, top_k=20),
        _drawn(512, 0.9375, top_p=0.75, temperature=0.5),
        _drawn(1025, 0.5, top_k=900, temperature=2.0),
    ]
    yield from standard(calls, FLOATS, special=False)
    yield from of_every_size(lambda n: _drawn(n, 0.9375), [n for n in (*SIZES, LARGE_SIZE) if n])
    yield from variations("attributes", _attributes(), dtypes=("float32", "float16"))
    yield from variations("attributes", [_drawn(100, 0.9375, dtype=name) for name in _PLACES], dtypes=("float32",))
    # Of logits that rise the last one is drawn, whose index needs every bit of the dtype.
    last = [{**_drawn(size, 0.0, dtype=name), "generator": "arange"} for name, size in _PLACES.items()]
    yield from variations("attributes", last, dtypes=("float32",))
    few = {"fill": "randint", "low": -2, "high": 3}
    tied = [{**_drawn(33, value, top_k=12), "generator": few} for value in _VALUES]
    yield from variations("ties", [*tied, {**_drawn(9, 0.5), "generator": "zeros"}], dtypes=MAIN_FLOATS)
    masked: list[list[Any]] = [  # −∞ is what a mask leaves: it is never drawn while there is another
        ["-inf", 1.0, "-inf", 0.5, "-inf", 0.25],
        ["-inf", "-inf", "-inf", "-inf", -3.0, "-inf"],
        [-1000.0, 0.0, -1000.0, -0.5, -1000.0, 1.0],
        ["-inf", -29952.0, "-inf", -29824.0, "-inf", -30080.0],  # below whatever finite number a mask may be
    ]
    for row in masked:
        calls = [{**_drawn(6, value), "generator": {"fill": "data", "values": row}} for value in (0.0, 0.75, 1.0)]
        yield from variations("special", calls, dtypes=MAIN_FLOATS)
    for row in ([1.0, "nan", 2.0, 0.5], [1.0, 3.0, "inf", 0.5, 2.0], ["-inf", "nan", "inf", 1.0]):
        stated = {**_drawn(len(row), 0.5), "generator": {"fill": "data", "values": row}}
        yield from variations("special", [stated], dtypes=MAIN_FLOATS)
    # A number that 16 bits make 1: the last of many that hardly count is drawn then.
    falling = {**_drawn(129, 1.0 - 2.0**-13), "generator": {"fill": "arange", "step": -0.25}}
    yield from variations("special", [falling], dtypes=MAIN_FLOATS)
    close = [1.0, 1.0 + 2.0**-52, 1.0 - 2.0**-53, 0.5]  # one number in float32
    beside = {**_drawn(4, 0.0), "generator": {"fill": "data", "values": close}}
    yield from variations("special", [beside], dtypes=("float64",))
    yield from variations(
        "special", [{**_drawn(65, 0.875), "generator": {"fill": "randn", "std": 60.0}}], dtypes=MAIN_FLOATS
    )
    yield from refused(
        call({"random_value": 0.5}, logits=()),
        call({"random_value": 0.5}, logits=(0,)),
        call({"random_value": 0.5}, logits=(3, 4)),
        _drawn(9, 1.5),
        _drawn(9, -0.25),
        _drawn(9, top_p=-0.5),
        _drawn(9, top_k=-1),
        _drawn(9, temperature=-1.0),
        _drawn(200, dtype="int8"),
    )


def _attributes() -> Iterator[dict[str, Any]]:
    for value in _VALUES:
        yield _drawn(65, value)
        yield _drawn(65, value, top_p=0.5)
        yield _drawn(65, value, top_k=5)
        yield _drawn(65, value, temperature=0.25)
        yield _drawn(65, value, top_p=0.25, top_k=3, temperature=4.0)
    for top_k in (0, 1, 2, 64, 65, 66, 1000):
        yield _drawn(65, 0.9375, top_k=top_k)
    for top_p in (0.0, 0.0625, 0.75, 1.0, 2.0):
        yield _drawn(65, 0.9375, top_p=top_p)
    for temperature in (0.0, 0.0625, 0.5, 1.0, 8.0, 64.0):
        yield _drawn(65, 0.9375, temperature=temperature)
