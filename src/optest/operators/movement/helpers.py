"""Rule, dtypes and case sets that movement operators share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from optest.operators.calls import LARGE_SIZE, SIZES, Call
from optest.operators.describe import EVERY, movement
from optest.operators.samples import error_samples, million_element_samples, of_every_size, standard_samples, variations
from optest.operators.shapes import normalize_dim
from optest.spec import Sample, Tier, UnfitArguments

MOVED = movement("elements move and never change")
# A 4-byte and a 1-byte dtype: kernels move words, and need a tail for bytes that do not fill one.
SOME = ("float32", "int8")
_SPECIAL = ("float32", "bfloat16", "float16", "float64", "float8_e4m3fn", "float8_e5m2")


def distinct_dims(dims: Sequence[int], rank: int, name: str = "dims") -> tuple[int, ...]:
    """Return non-negative dimensions in the order of `dims`.

    Raises:
        UnfitArguments: for one that is out of range or repeated.
    """
    normalized = tuple(normalize_dim(dim, rank, name) for dim in dims)
    if len(set(normalized)) < len(normalized):
        raise UnfitArguments(f"{name} is {list(dims)}, expected each dimension at most once")
    return normalized


def movement_samples(
    calls: Sequence[Call],
    sized: Callable[[int], Call],
    attributes: Iterable[Call],
    wrong: Iterable[Call],
    *,
    large: Iterable[Call] = (),
) -> Iterator[Sample]:
    """Yield the case sets of a movement operator.

    The first of `calls` is used for the smoke test, all layouts and all dtypes. `sized(n)` builds a call of size n,
    `attributes` are calls for attributes, `wrong` calls to refuse, `large` calls of a million elements.
    """
    yield from standard_samples(calls, EVERY)
    yield from of_every_size(sized, (*SIZES, LARGE_SIZE), dtypes=SOME)
    # Payloads of NaN and the sign of 0 must survive the move.
    mostly_special = {**calls[0], "generator": {"fill": "special", "rate": 0.9}}
    yield from variations("special", [mostly_special], dtypes=_SPECIAL)
    yield from variations("attributes", attributes, dtypes=("float32",))
    yield from error_samples(*wrong)
    yield from variations("sizes", [sized(4099)], dtypes=("float16", "int64"))
    yield from million_element_samples(*large, dtype="float32")
    yield from variations("sizes", [sized(4099)], dtypes=("float32", "int8"), tier=Tier.FULL)
