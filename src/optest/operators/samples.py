"""What case sets are made of: the calls that every operator of a kind has to be asked.

An operator states a few calls of its own as plan cases without ``op``; :func:`standard` derives from them every dtype,
layout, size and fill. A call is plain data: ``{"shapes": {"input": [2, 3]}, "attributes": {"dim": -1}}``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from optest.spec import Sample, Tier

__all__ = [
    "CALM_SIZES",
    "SIZES",
    "Call",
    "call",
    "in_every_dtype",
    "in_every_layout",
    "integer_exact",
    "of_every_size",
    "refused",
    "standard",
    "variations",
    "with_special_values",
    "zero_mean",
]

Call = Mapping[str, Any]

SIZES = (0, 1, 2, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 257, 1023, 1025)
"""Nothing, one, primes, and the sizes around the tiles and vectors of today's kernels."""
CALM_SIZES = (0, 1, 7, 17, 64, 129)
"""The same idea where every size costs much."""
_FLOATS = ("float32", "float16", "bfloat16")


def call(
    attributes: Mapping[str, Any] | None = None, *, dtypes: Sequence[str] = (), generator: Any = None, **shapes: Any
) -> dict[str, Any]:
    """A call as a plan states it: ``call({"dim": 0}, input=(2, 3))``; an input may be a mapping with strides."""
    stated: dict[str, Any] = {"shapes": {name: _layout(shape) for name, shape in shapes.items()}}
    if attributes:
        stated["attributes"] = dict(attributes)
    if dtypes:
        stated["dtypes"] = list(dtypes)
    if generator is not None:
        stated["generator"] = generator
    return stated


def _layout(shape: Any) -> Any:
    return dict(shape) if isinstance(shape, Mapping) else list(shape)


def variations(
    name: str, calls: Iterable[Call], *, dtypes: Sequence[str] = (), tier: Tier = Tier.PARITY
) -> Iterator[Sample]:
    """The calls as a case set of their own, each in every one of ``dtypes`` (in its own or the default if none)."""
    for each in calls:
        if not dtypes or "dtypes" in each:
            yield Sample(case_set=name, case=each, tier=tier)
            continue
        for dtype in dtypes:
            yield Sample(case_set=name, case={**each, "dtypes": [dtype]}, tier=tier)


def in_every_dtype(calls: Sequence[Call], variants: Iterable[Sequence[str]]) -> Iterator[Sample]:
    """The calls in every combination of dtypes that the operator is defined for and that has the call's inputs."""
    for variant in variants:
        for each in calls:
            if len(variant) in (1, len(each["shapes"])):
                yield Sample(case_set="dtypes", case={**each, "dtypes": list(variant)})


def of_every_size(
    sized: Callable[[int], Call], sizes: Sequence[int] = SIZES, *, dtypes: Sequence[str] = ("float32", "float16")
) -> Iterator[Sample]:
    """``sized(n)`` for sizes 0, 1, primes and those around tiles."""
    for size in sizes:
        for dtype in dtypes:
            yield Sample(case_set="sizes", case={**sized(size), "dtypes": [dtype]})


def in_every_layout(calls: Iterable[Call], *, names: Sequence[str] = ()) -> Iterator[Sample]:
    """Each input in turn (those in ``names``, or all) strided, transposed, offset, repeated and backwards."""
    for each in calls:
        for name, shape in each["shapes"].items():
            if isinstance(shape, Mapping) or not shape or (names and name not in names):
                continue
            for layout in layouts_of(shape):
                yield Sample(case_set="layouts", case={**each, "shapes": {**each["shapes"], name: layout}})


def layouts_of(shape: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Layouts of a tensor that are not dense: gaps, swapped dimensions, an offset, stride 0, a negative stride."""
    shape = list(shape)
    dense = _dense_strides(shape)
    yield {"shape": shape, "strides": [2 * stride for stride in dense]}
    yield {"shape": shape, "strides": dense, "offset": 3}
    if len(shape) > 1:
        yield {"shape": shape, "strides": _dense_strides(shape[::-1])[::-1]}
        yield {"shape": shape, "strides": [0, *dense[1:]]}
    yield {"shape": shape, "strides": [*dense[:-1], 0]}
    span = dense[0] * (shape[0] - 1)
    yield {"shape": shape, "strides": [-dense[0], *dense[1:]], "offset": span}


def _dense_strides(shape: Sequence[int]) -> list[int]:
    strides = [1]
    for size in list(shape)[:0:-1]:
        strides.insert(0, strides[0] * max(size, 1))
    return strides


def with_special_values(calls: Iterable[Call], *, dtypes: Sequence[str] = _FLOATS) -> Iterator[Sample]:
    """NaN, infinities, signed zeros, subnormals, the largest and smallest values, powers of two."""
    yield from variations("special", ({**each, "generator": "special"} for each in calls), dtypes=dtypes)


def integer_exact(calls: Iterable[Call], *, dtypes: Sequence[str] = _FLOATS) -> Iterator[Sample]:
    """Twins whose sums are exact in any order, so that any dropped or doubled term shows."""
    yield from variations("integer-exact", ({**each, "generator": "integer-exact"} for each in calls), dtypes=dtypes)


def zero_mean(calls: Iterable[Call], *, dtypes: Sequence[str] = _FLOATS) -> Iterator[Sample]:
    """Twins of sums whose terms cancel."""
    yield from variations("zero-mean", ({**each, "generator": "randn"} for each in calls), dtypes=dtypes)


def refused(calls: Iterable[Call], *, match: str = "") -> Iterator[Sample]:
    """Arguments that fit no tensor: whoever computes something for them reads or writes what is not there."""
    error = {"type": "Exception", **({"match": match} if match else {})}
    yield from variations("refused", ({**each, "expects_error": error} for each in calls))


def standard(
    calls: Sequence[Call],
    variants: Iterable[Sequence[str]],
    *,
    sized: Callable[[int], Call] | None = None,
    sizes: Sequence[int] = SIZES,
    special: bool = True,
    layouts: Sequence[str] = (),
) -> Iterator[Sample]:
    """The case sets that no operator goes without; the first call is the smoke test.

    Args:
        calls: ordinary calls, the first the simplest.
        variants: the descriptor's dtypes.
        sized: a call for a size, of a dimension that kernels cut into tiles.
        layouts: the inputs whose layout is varied; all if none.
    """
    variants = list(variants)
    floats = [name for name in _FLOATS if (name,) in variants]
    main = floats or [variant[0] for variant in variants if len(variant) == 1][:1]
    yield Sample(case_set="ordinary", case=calls[0], tier=Tier.SMOKE)
    yield from variations("ordinary", calls, dtypes=main)
    yield from in_every_dtype(calls[:1], variants)
    yield from in_every_layout(calls[:1], names=layouts)
    if sized is not None:
        yield from of_every_size(sized, sizes, dtypes=main[:2])
    if special and floats:
        yield from with_special_values(calls[:2], dtypes=floats)
