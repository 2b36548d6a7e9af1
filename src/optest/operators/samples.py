"""Case sets that many operators share: the calls that every operator of a kind has to be asked.

An operator states a few calls of its own; :func:`standard` derives from them every dtype, layout, size and fill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from optest.operators.calls import (
    LARGE_SIZE,
    LAYOUTS_AT_ONCE,
    MAIN_FLOATS,
    SIZES,
    TILES,
    Call,
    in_dtypes,
    layouts_of,
    padded_where_deep,
)
from optest.operators.calls import call as call
from optest.spec import Sample, Tier


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


def in_layouts_at_once(calls: Iterable[Call], *, names: Sequence[str] = (), dtype: str = "") -> Iterator[Sample]:
    """All inputs (or those in ``names``) with gaps, with padded rows, transposed, offset: a kernel that asks whether
    its operands are alike in memory, and not whether they are dense, passes :func:`in_every_layout`.

    ``dtype`` is that of all inputs; the call's own or the default if it is empty.
    """
    for each in calls:
        shapes = each["shapes"]
        varied = [
            name
            for name, shape in shapes.items()
            if not isinstance(shape, Mapping) and shape and (not names or name in names)
        ]
        deepest = max((len(shapes[name]) for name in varied), default=0)
        for layout in (*LAYOUTS_AT_ONCE, *([padded_where_deep] if deepest > 2 else [])) if varied else ():
            places = {name: layout(shapes[name]) for name in varied}
            stated = {"dtypes": [dtype]} if dtype else {}
            yield Sample(case_set="layouts", case={**each, **stated, "shapes": {**shapes, **places}})


def _rank(stated: Call) -> int:
    """Of the first input."""
    shape = next(iter(stated["shapes"].values()), ())
    return len(shape["shape"] if isinstance(shape, Mapping) else shape)


def with_special_values(calls: Iterable[Call], *, dtypes: Sequence[str] = MAIN_FLOATS) -> Iterator[Sample]:
    """NaN, infinities, signed zeros, subnormals, the largest and smallest values, powers of two.

    A sum meets few of them, so that some results are numbers; in the first dtype it is asked with more, too.
    """
    calls = list(calls)
    yield from variations("special", ({**each, "generator": "special"} for each in calls), dtypes=dtypes)
    yield from variations("special", ({**each, "generator": dict(_MORE)} for each in calls), dtypes=dtypes[:1])


_MORE = {"fill": "special", "rate": 0.12}


def with_special_rows(
    calls: Iterable[Call], names: Iterable[str], *, dtypes: Sequence[str] = MAIN_FLOATS
) -> Iterator[Sample]:
    """Each input of ``names`` in turn with a NaN and both infinities, each in a row and a column of its own.

    Drawn special values are rare where sums are long, and may all be finite; here results of all kinds are sure.
    """
    for each in calls:
        for name in names:
            # Small numbers of both signs, no 0 among them, nested like the shape; a row and a column stay free of the
            # rest.
            shape = each["shapes"][name]
            values: list[Any] = [((7 * index) % 11 - 5.5) / 4 for index in range(prod(shape))]
            width = shape[-1]
            rows = len(values) // max(1, width)
            free = width if len(shape) == 1 else min(rows, width)
            for place, special in enumerate(("nan", "inf", "-inf")[: max(0, free - 1)]):
                values[place if len(shape) == 1 else place * width + place] = special
            for size in reversed(shape[1:]):
                values = [values[start : start + size] for start in range(0, len(values), size)]
            fills = {name: {"fill": "data", "values": values}}
            yield from variations("special", [{**each, "generator": fills}], dtypes=dtypes)


def integer_exact(calls: Iterable[Call], *, dtypes: Sequence[str] = MAIN_FLOATS) -> Iterator[Sample]:
    """Twins whose sums are exact in any order, so that any dropped or doubled term shows."""
    yield from variations("integer-exact", ({**each, "generator": "integer-exact"} for each in calls), dtypes=dtypes)


def zero_mean(calls: Iterable[Call], *, dtypes: Sequence[str] = MAIN_FLOATS) -> Iterator[Sample]:
    """Twins of sums whose terms cancel."""
    yield from variations("zero-mean", ({**each, "generator": "randn"} for each in calls), dtypes=dtypes)


def of_every_magnitude(calls: Iterable[Call], *, dtypes: Sequence[str] = MAIN_FLOATS) -> Iterator[Sample]:
    """Large values (an exponential overflows, a range reduction fails, a fast path is left), values near 0 (where
    1 + x loses x and an epsilon is all there is), and values far from 0 that differ little (where x² - mean² fails).

    A domain still holds for them. Calls that state how their inputs are filled are left out.
    """
    free = [each for each in calls if "generator" not in each]
    for fill in (_LARGE, _NEAR_0, _FAR_FROM_0):
        yield from variations("ordinary", ({**each, "generator": dict(fill)} for each in free), dtypes=dtypes)


_LARGE = {"fill": "randn", "std": 60.0}
"""Beyond 88.7, where exp leaves float32, and with products and short sums that stay in float16."""
_NEAR_0 = {"fill": "randn", "std": 2.0**-9}
_FAR_FROM_0 = {"fill": "uniform", "low": 84.0, "high": 92.0}
"""On both sides of 88.7, and with a variance of 5 under a mean square of 7,749."""


def of_every_value(attributes: Mapping[str, Any] | None = None) -> Iterator[Sample]:
    """Every value of the 16-bit floats, for functions of one number."""
    counted = call(attributes, input=(1 << 16,), generator="optest.operators.every_value:EveryValue")
    yield from variations("exhaustive", [counted], dtypes=MAIN_FLOATS[1:], tier=Tier.FULL)


def of_one_element(*calls: Call, dtypes: Sequence[str] = ("float32", "float16")) -> Iterator[Sample]:
    """Every size is 1: kernels return early there, or take another way."""
    yield from variations("sizes", calls, dtypes=dtypes)


def of_a_million(*calls: Call, dtype: str) -> Iterator[Sample]:
    """More than 2^20 elements: a few calls of each family in the cheapest dtype, 10 to 60 ms each, because kernels of
    one family share their loop."""
    yield from variations("sizes", calls, dtypes=(dtype,))


def refused(*calls: Call) -> Iterator[Sample]:
    """Arguments that fit no tensor: whoever computes something for them reads or writes what is not there."""
    yield from variations("refused", ({**each, "expects_error": {"type": "Exception"}} for each in calls))


def led_by(
    source: str, calls: Sequence[Call], *, dtypes: Sequence[str] = MAIN_FLOATS, names: Sequence[str] = ()
) -> Iterator[Sample]:
    """The smoke test, ordinary calls and layouts (of the inputs in ``names``, or all) where the dtypes follow from that
    of the input ``source``."""
    yield Sample(case_set="ordinary", case=calls[0], tier=Tier.SMOKE)
    yield from variations("ordinary", in_dtypes(source, dtypes, calls))
    for name, own in zip(dtypes, calls, strict=False):
        in_dtype = in_dtypes(source, [name], [own])
        yield from in_every_layout(in_dtype, names=names)
        yield from in_layouts_at_once(in_dtype, names=names)


def standard(
    calls: Sequence[Call],
    variants: Iterable[Sequence[str]],
    *,
    sized: Callable[[int], Call] | None = None,
    sizes: Sequence[int] = SIZES,
    special: bool = True,
) -> Iterator[Sample]:
    """The case sets that no operator goes without; the first call is the smoke test.

    Args:
        calls: ordinary calls, the first the simplest.
        variants: the descriptor's dtypes.
        sized: a call for a size, of a dimension that kernels cut into tiles; asked also beyond 16 bits unless
            ``sizes`` are others, as where the cost grows faster than the size.
    """
    variants = list(variants)
    floats = [name for name in MAIN_FLOATS if (name,) in variants]
    main = floats or [variant[0] for variant in variants if len(variant) == 1][:1]
    yield Sample(case_set="ordinary", case=calls[0], tier=Tier.SMOKE)
    yield from variations("ordinary", calls, dtypes=main)
    yield from of_every_magnitude(calls[:1], dtypes=floats)
    yield from in_every_dtype(calls[:1], variants)
    yield from in_every_layout(calls[:1])
    yield from in_layouts_at_once(calls[:1])
    if len(main) > 1 and "dtypes" not in calls[0]:
        yield from in_layouts_at_once(calls[:1], dtype=main[1])
    deep = max(calls, key=_rank)
    if _rank(deep) > 2 and deep is not calls[0]:
        yield from in_layouts_at_once([deep])
    if sized is not None:
        yield from of_every_size(sized, sizes, dtypes=main[:2])
        if sizes is SIZES:
            yield from of_every_size(sized, (LARGE_SIZE,), dtypes=main[:1])
            others = [name for name in (*MAIN_FLOATS[1:], "float64", "int64", "uint8") if (name,) in variants]
            yield from of_every_size(sized, (TILES,), dtypes=[name for name in others if name not in main[:2]])
    if special and floats:
        yield from with_special_values(calls[:2], dtypes=floats)
