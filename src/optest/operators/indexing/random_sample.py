"""The operator random_sample: draw a token with a given random number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, SIZES, call
from optest.operators.describe import FLOATS, attribute, exact, in_module
from optest.operators.samples import error_samples, of_every_size, standard_samples, variations
from optest.operators.shapes import Attributes, Outputs, Specs, dense, require_spec
from optest.spec import OperatorDescriptor, Sample, UnfitArguments, dtype, format_shape

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="random_sample",
        signature="logits -> out",
        attributes=(
            attribute("random_value: float", "Random number that selects the token, from 0 to 1."),
            attribute("top_p|topp: float = 1.0", "Share of the probability that is kept."),
            attribute(
                "top_k|topk: int = None",
                "Number of largest logits to draw from; None is all, 0 and 1 give the largest.",
            ),
            attribute("temperature: float = 1.0", "Divisor of the logits; 0 selects the largest."),
            attribute("dtype: dtype = 'int64'", "Integer dtype of the index."),
        ),
        dtype_variants=FLOATS,
        alternatives="random_sample_alternatives",
        generator={"fill": "randn", "std": 2.0},
        rule=exact(
            "the definition; softmax: docs/operators/normalization.md#softmax",
            "or an index of an equal logit; the next one too if the sum of probabilities is within its error of "
            "the limit",
        ),
        description="The index of one of the logits, a 0-d tensor. In descending order, it is the first at which "
        "the running sum of softmax(logits / temperature) is at least random_value · min(top_p, sum of the first "
        "top_k). A largest logit that is not finite is always drawn.",
    ),
)


def infer_random_sample(specs: Specs, attributes: Attributes) -> Outputs:
    """Return a 0-d spec of the index dtype; raise UnfitArguments for attributes that libraries refuse."""
    spec, index = require_spec(specs, 0, "logits"), dtype(attributes.get("dtype", "int64"))
    if spec.rank != 1 or not spec.elements:
        raise UnfitArguments(f"logits is {format_shape(spec.shape)}, expected 1 dimension and 1 element or more")
    if not index.is_integer or index.bits < 8 or spec.shape[0] - 1 > index.max_int:
        raise UnfitArguments(f"dtype is {index}, expected an integer dtype that holds index {spec.shape[0] - 1}")
    if not 0 <= attributes["random_value"] <= 1:
        raise UnfitArguments(f"random_value is {attributes['random_value']:g}, expected 0 to 1")
    for name in ("top_p", "top_k", "temperature"):
        value = attributes.get(name)
        if value is not None and not value >= 0:
            raise UnfitArguments(f"{name} is {value:g}, expected 0 or more")
    return (dense(index, ()),)


# All attributes are exact in float32: C interfaces take them as float.
_VALUES = (0.0, 0.125, 0.5, 0.8125, 0.9375, 1.0)
# Index dtype: number of logits, the most that it can index or more than 16 bits can.
_LARGEST_SIZES = {
    "int64": LARGE_SIZE,
    "int32": LARGE_SIZE,
    "int16": 1 << 15,
    "int8": 1 << 7,
    "uint8": 1 << 8,
    "uint16": 1 << 16,
    "uint32": LARGE_SIZE,
    "uint64": LARGE_SIZE,
}


def _sample_call(size: int, value: float = 0.75, **attributes: Any) -> dict[str, Any]:
    """Return a call over `size` logits with random number `value`."""
    return call({"random_value": value, **attributes}, logits=(size,))


def random_sample_samples() -> Iterator[Sample]:
    calls = [
        _sample_call(37, top_p=0.875, top_k=20),
        _sample_call(512, 0.9375, top_p=0.75, temperature=0.5),
        _sample_call(1025, 0.5, top_k=900, temperature=2.0),
    ]
    yield from standard_samples(calls, FLOATS, special=False)
    yield from of_every_size(lambda n: _sample_call(n, 0.9375), [n for n in (*SIZES, LARGE_SIZE) if n])
    yield from variations("attributes", _attribute_calls(), dtypes=("float32", "float16"))
    yield from variations(
        "attributes", [_sample_call(100, 0.9375, dtype=name) for name in _LARGEST_SIZES], dtypes=("float32",)
    )
    # The last of rising logits is drawn, whose index needs every bit of the dtype.
    last = [{**_sample_call(size, 0.0, dtype=name), "generator": "arange"} for name, size in _LARGEST_SIZES.items()]
    yield from variations("attributes", last, dtypes=("float32",))
    few = {"fill": "randint", "low": -2, "high": 3}
    tied = [{**_sample_call(33, value, top_k=12), "generator": few} for value in _VALUES]
    yield from variations("ties", [*tied, {**_sample_call(9, 0.5), "generator": "zeros"}], dtypes=MAIN_FLOATS)
    masked: list[list[Any]] = [  # a masked logit (−∞) must not be drawn
        ["-inf", 1.0, "-inf", 0.5, "-inf", 0.25],
        ["-inf", "-inf", "-inf", "-inf", -3.0, "-inf"],
        [-1000.0, 0.0, -1000.0, -0.5, -1000.0, 1.0],
        ["-inf", -29952.0, "-inf", -29824.0, "-inf", -30080.0],  # below finite numbers that kernels use as a mask
    ]
    for row in masked:
        calls = [{**_sample_call(6, value), "generator": {"fill": "data", "values": row}} for value in (0.0, 0.75, 1.0)]
        yield from variations("special", calls, dtypes=MAIN_FLOATS)
    for row in ([1.0, "nan", 2.0, 0.5], [1.0, 3.0, "inf", 0.5, 2.0], ["-inf", "nan", "inf", 1.0]):
        case = {**_sample_call(len(row), 0.5), "generator": {"fill": "data", "values": row}}
        yield from variations("special", [case], dtypes=MAIN_FLOATS)
    # Rounded to 16 bits, this random number is 1 and would draw the last of many improbable tokens.
    falling = {**_sample_call(129, 1.0 - 2.0**-13), "generator": {"fill": "arange", "step": -0.25}}
    yield from variations("special", [falling], dtypes=MAIN_FLOATS)
    close = [1.0, 1.0 + 2.0**-52, 1.0 - 2.0**-53, 0.5]  # equal when rounded to float32
    close_logits = {**_sample_call(4, 0.0), "generator": {"fill": "data", "values": close}}
    yield from variations("special", [close_logits], dtypes=("float64",))
    yield from variations(
        "special", [{**_sample_call(65, 0.875), "generator": {"fill": "randn", "std": 60.0}}], dtypes=MAIN_FLOATS
    )
    yield from error_samples(
        call({"random_value": 0.5}, logits=()),
        call({"random_value": 0.5}, logits=(0,)),
        call({"random_value": 0.5}, logits=(3, 4)),
        _sample_call(9, 1.5),
        _sample_call(9, -0.25),
        _sample_call(9, top_p=-0.5),
        _sample_call(9, top_k=-1),
        _sample_call(9, temperature=-1.0),
        _sample_call(200, dtype="int8"),
    )


def _attribute_calls() -> Iterator[dict[str, Any]]:
    """Yield calls with each attribute at, within and beyond its limits."""
    for value in _VALUES:
        yield _sample_call(65, value)
        yield _sample_call(65, value, top_p=0.5)
        yield _sample_call(65, value, top_k=5)
        yield _sample_call(65, value, temperature=0.25)
        yield _sample_call(65, value, top_p=0.25, top_k=3, temperature=4.0)
    for top_k in (0, 1, 2, 64, 65, 66, 1000):
        yield _sample_call(65, 0.9375, top_k=top_k)
    for top_p in (0.0, 0.0625, 0.75, 1.0, 2.0):
        yield _sample_call(65, 0.9375, top_p=top_p)
    for temperature in (0.0, 0.0625, 0.5, 1.0, 8.0, 64.0):
        yield _sample_call(65, 0.9375, temperature=temperature)
