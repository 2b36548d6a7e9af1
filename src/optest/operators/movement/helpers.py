"""What movement operators share: their rule, and calls that each is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from optest.operators.calls import LARGE_SIZE, SIZES, Call
from optest.operators.describe import EVERY, movement
from optest.operators.samples import of_a_million, of_every_size, refused, standard, variations
from optest.operators.shapes import normalize_dim
from optest.spec import Sample, Tier, UnfitArguments

MOVED = movement("elements move and never change")
SOME = ("float32", "int8")
"""A 4-byte and a 1-byte type: kernels move words, and tails come where bytes do not fill one."""
_SPECIAL = ("float32", "bfloat16", "float16", "float64", "float8_e4m3fn", "float8_e5m2")


def distinct_dims(dims: Sequence[int], rank: int, name: str = "dims") -> tuple[int, ...]:
    """Dimensions counted from the front, in the order in which they are named.

    Raises:
        UnfitArguments: for one out of range, or named twice.
    """
    found = tuple(normalize_dim(dim, rank, name) for dim in dims)
    if len(set(found)) < len(found):
        raise UnfitArguments(f"{name} is {list(dims)}, but should name a dimension once")
    return found


def moved(
    calls: Sequence[Call],
    sized: Callable[[int], Call],
    attributes: Iterable[Call],
    wrong: Iterable[Call],
    *,
    large: Iterable[Call] = (),
) -> Iterator[Sample]:
    """The case sets of one movement operator. The first call is laid out in every way, and asked in every dtype."""
    yield from standard(calls, EVERY)
    yield from of_every_size(sized, (*SIZES, LARGE_SIZE), dtypes=SOME)
    mostly_special = {**calls[0], "generator": {"fill": "special", "rate": 0.9}}
    yield from variations("special", [mostly_special], dtypes=_SPECIAL)
    yield from variations("attributes", attributes, dtypes=("float32",))
    yield from refused(*wrong)
    yield from variations("sizes", [sized(4099)], dtypes=("float16", "int64"))
    yield from of_a_million(*large, dtype="float32")
    yield from variations("sizes", [sized(4099)], dtypes=("float32", "int8"), tier=Tier.FULL)
