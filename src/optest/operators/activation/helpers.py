"""What activations share: inference, and calls that each is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from optest.operators.samples import EVERY_FLOAT, call, line, of_every_value, standard, table, variations
from optest.operators.shapes import Attributes, Outputs, Specs, dense, given
from optest.spec import DType, Sample, UnfitArguments

SHAPES: tuple[tuple[int, ...], ...] = ((4, 37), (3, 5, 7), (), (2, 1, 3, 2, 2, 3))
_NEAR_ZERO = [sign * 2.0**-power for power in range(2, 14) for sign in (1.0, -1.0)] + [0.0, -0.0]
_FAR = ((-110.0, 110.0), (-1e30, 1e30))
"""On either side of where e^x and e^2x leave float32, and of where x³ does."""
_FAR_IN_FLOAT16 = ((-60.0, 60.0), (-6e4, 6e4))
"""The same for 16 bits: e^x leaves them at 11, x³ at 40."""


def infer_floating(specs: Specs, _attributes: Attributes) -> Outputs:
    """One output like the input, which should be of a float dtype."""
    spec = given(specs, 0, "input")
    require_float(spec.dtype, "input")
    return (dense(spec.dtype, spec.shape),)


def require_float(entry: DType, name: str) -> None:
    if not entry.is_float:
        raise UnfitArguments(f"{name} is {entry}, but should be a float dtype")


def of_one(
    variants: Sequence[Sequence[str]], *lines: tuple[float, float], far: Sequence[tuple[float, float]] = ()
) -> Iterator[Sample]:
    """What every activation is asked; ``lines`` are ranges for all dtypes, ``far`` for all but float16."""
    calls = [call(input=shape) for shape in SHAPES]
    yield from standard(calls, variants, sized=lambda n: call(input=(n,)))
    yield from variations("sizes", [call(input=(37, 1))], dtypes=("float32",))
    yield from variations("range", [table(_NEAR_ZERO), *(line(*ends) for ends in lines)], dtypes=EVERY_FLOAT)
    yield from variations("range", [line(*ends) for ends in (*_FAR, *far)], dtypes=("float32", "bfloat16", "float64"))
    yield from variations("range", [line(*ends) for ends in _FAR_IN_FLOAT16], dtypes=("float16",))
    ends = ["nan", -0.0, 0.0, "nan"]  # in a vector, and in what is left behind the last
    tail = table([*ends, *(0.5 + k / 8 for k in range(9)), *ends])
    yield from variations("special", [tail], dtypes=("float32", "float16"))
    if ("uint8",) in variants:  # with the top bit, which the domain keeps random ones from
        yield from variations("dtypes", [table([0, 1, 127, 128, 200, 255])], dtypes=("uint8",))
    yield from of_every_value()


def with_attributes(attributes: Sequence[dict[str, Any]], *lines: tuple[float, float]) -> Iterator[Sample]:
    yield from of_every_value(attributes[0])
    calls = [call(each, input=(4, 37)) for each in attributes]
    calls += [line(*ends, each) for each in attributes for ends in lines]
    yield from variations("attributes", calls, dtypes=EVERY_FLOAT)
    yield from variations("attributes", [line(*ends, each) for each in attributes for ends in _FAR])
    far = [line(*ends, each) for each in attributes for ends in _FAR_IN_FLOAT16]
    yield from variations("attributes", far, dtypes=("float16",))
