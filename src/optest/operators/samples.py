"""Case sets that operators share. From a few calls, :func:`standard` derives every dtype, layout, size and fill."""

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
    """Yield the calls as samples of the case set ``name``: once for each of ``dtypes``, unless a call sets its own."""
    for case in calls:
        if not dtypes or "dtypes" in case:
            yield Sample(case_set=name, case=case, tier=tier)
            continue
        for dtype in dtypes:
            yield Sample(case_set=name, case={**case, "dtypes": [dtype]}, tier=tier)


def in_every_dtype(calls: Sequence[Call], variants: Iterable[Sequence[str]]) -> Iterator[Sample]:
    """Yield the calls in every combination of dtypes that has one dtype, or as many as the call has inputs."""
    for variant in variants:
        for case in calls:
            if len(variant) in (1, len(case["shapes"])):
                yield Sample(case_set="dtypes", case={**case, "dtypes": list(variant)})


def of_every_size(
    sized: Callable[[int], Call], sizes: Sequence[int] = SIZES, *, dtypes: Sequence[str] = ("float32", "float16")
) -> Iterator[Sample]:
    """Yield the call ``sized(n)`` for each of ``sizes`` and ``dtypes``."""
    for size in sizes:
        for dtype in dtypes:
            yield Sample(case_set="sizes", case={**sized(size), "dtypes": [dtype]})


def in_every_layout(calls: Iterable[Call], *, names: Sequence[str] = ()) -> Iterator[Sample]:
    """Yield the calls with one dense input (of ``names``, or of all) at a time in each layout of its rank."""
    for case in calls:
        for name, shape in case["shapes"].items():
            if isinstance(shape, Mapping) or not shape or (names and name not in names):
                continue
            for layout in layouts_of(shape):
                yield Sample(case_set="layouts", case={**case, "shapes": {**case["shapes"], name: layout}})


def in_layouts_at_once(calls: Iterable[Call], *, names: Sequence[str] = (), dtype: str = "") -> Iterator[Sample]:
    """Yield the calls with all inputs (or those in ``names``) in one layout: gaps, padded, transposed, offset.

    ``dtype`` replaces the call's dtypes.
    """
    # A kernel that only tests whether its operands have equal strides passes `in_every_layout`, but fails here.
    for case in calls:
        shapes = case["shapes"]
        varied = [
            name
            for name, shape in shapes.items()
            if not isinstance(shape, Mapping) and shape and (not names or name in names)
        ]
        deepest = max((len(shapes[name]) for name in varied), default=0)
        for layout in (*LAYOUTS_AT_ONCE, *([padded_where_deep] if deepest > 2 else [])) if varied else ():
            layouts = {name: layout(shapes[name]) for name in varied}
            dtypes = {"dtypes": [dtype]} if dtype else {}
            yield Sample(case_set="layouts", case={**case, **dtypes, "shapes": {**shapes, **layouts}})


def _rank(case: Call) -> int:
    """Return the rank of the first input."""
    shape = next(iter(case["shapes"].values()), ())
    return len(shape["shape"] if isinstance(shape, Mapping) else shape)


def with_special_values(calls: Iterable[Call], *, dtypes: Sequence[str] = MAIN_FLOATS) -> Iterator[Sample]:
    """Yield the calls with NaN, infinities, signed zeros, subnormals and extreme values among random ones.

    The first dtype is repeated with a higher rate of them.
    """
    # The default rate is low: a long sum with many special values is nothing but NaN.
    calls, more = list(calls), {"fill": "special", "rate": 0.12}
    yield from variations("special", ({**case, "generator": "special"} for case in calls), dtypes=dtypes)
    yield from variations("special", ({**case, "generator": dict(more)} for case in calls), dtypes=dtypes[:1])


def with_special_rows(
    calls: Iterable[Call], names: Iterable[str], *, dtypes: Sequence[str] = MAIN_FLOATS
) -> Iterator[Sample]:
    """Yield the calls with a NaN and both infinities in one input of ``names`` at a time, in separate rows and columns.

    At least one row and one column have none of them.
    """
    # Random special values are rare in long sums, and may all be finite; these make results of every kind certain.
    for case in calls:
        for name in names:
            # Small numbers of both signs without 0: 0 · ∞ would add NaNs.
            shape = case["shapes"][name]
            values: list[Any] = [((7 * index) % 11 - 5.5) / 4 for index in range(prod(shape))]
            width = shape[-1]
            rows = len(values) // max(1, width)
            free = width if len(shape) == 1 else min(rows, width)
            for index, special in enumerate(("nan", "inf", "-inf")[: max(0, free - 1)]):
                values[index if len(shape) == 1 else index * width + index] = special
            for size in reversed(shape[1:]):
                values = [values[start : start + size] for start in range(0, len(values), size)]
            fills = {name: {"fill": "data", "values": values}}
            yield from variations("special", [{**case, "generator": fills}], dtypes=dtypes)


def integer_exact(calls: Iterable[Call], *, dtypes: Sequence[str] = MAIN_FLOATS) -> Iterator[Sample]:
    """Yield the calls with small integers, whose sums are exact in any order: a dropped or doubled term is visible."""
    yield from variations("integer-exact", ({**case, "generator": "integer-exact"} for case in calls), dtypes=dtypes)


def zero_mean(calls: Iterable[Call], *, dtypes: Sequence[str] = MAIN_FLOATS) -> Iterator[Sample]:
    """Yield the calls with normally distributed values of mean 0, whose sums cancel."""
    yield from variations("zero-mean", ({**case, "generator": "randn"} for case in calls), dtypes=dtypes)


def of_every_magnitude(calls: Iterable[Call], *, dtypes: Sequence[str] = MAIN_FLOATS) -> Iterator[Sample]:
    """Yield the calls with large values, values near 0, and values far from 0 that differ little.

    The operator's domain still limits them. Calls with a generator are left out.
    """
    fills = (
        # Beyond 88.7 exp overflows float32, range reductions fail, fast paths end. Short sums still fit into float16.
        {"fill": "randn", "std": 60.0},
        # 1 + x loses x here, and an epsilon dominates a variance.
        {"fill": "randn", "std": 2.0**-9},
        # mean(x²) − mean² cancels: a variance of 5 under a mean square of 7,749. Values are on both sides of 88.7.
        {"fill": "uniform", "low": 84.0, "high": 92.0},
    )
    free = [case for case in calls if "generator" not in case]
    for fill in fills:
        yield from variations("ordinary", ({**case, "generator": dict(fill)} for case in free), dtypes=dtypes)


def exhaustive_samples(attributes: Mapping[str, Any] | None = None) -> Iterator[Sample]:
    """Yield calls of an elementwise function with every value of float16 and of bfloat16, in the full tier."""
    counted = call(attributes, input=(1 << 16,), generator="optest.operators.every_value:EveryValue")
    yield from variations("exhaustive", [counted], dtypes=MAIN_FLOATS[1:], tier=Tier.FULL)


def of_one_element(*calls: Call, dtypes: Sequence[str] = ("float32", "float16")) -> Iterator[Sample]:
    """Yield calls whose sizes are all 1 as part of the set ``sizes``."""
    # Kernels return early for one element, or have a separate path.
    yield from variations("sizes", calls, dtypes=dtypes)


def million_element_samples(*calls: Call, dtype: str) -> Iterator[Sample]:
    """Yield calls with more than 2^20 elements in one dtype as part of the set ``sizes``."""
    # They take 10 to 60 ms each. Kernels of a family share their loop, so that a few calls per family are enough.
    yield from variations("sizes", calls, dtypes=(dtype,))


def error_samples(*calls: Call) -> Iterator[Sample]:
    """Yield calls with arguments that do not fit each other, which a backend has to refuse with an exception."""
    # A kernel that computes something for them reads or writes out of bounds.
    yield from variations("refused", ({**case, "expects_error": {"type": "Exception"}} for case in calls))


def samples_by_leading_dtype(
    source: str, calls: Sequence[Call], *, dtypes: Sequence[str] = MAIN_FLOATS, names: Sequence[str] = ()
) -> Iterator[Sample]:
    """Yield smoke test, ordinary calls and layouts for an operator whose dtypes follow from the input ``source``.

    The n-th call gets its layouts in the n-th of ``dtypes``, for the inputs in ``names`` or all.
    """
    yield Sample(case_set="ordinary", case=calls[0], tier=Tier.SMOKE)
    yield from variations("ordinary", in_dtypes(source, dtypes, calls))
    for name, case in zip(dtypes, calls, strict=False):
        in_dtype = in_dtypes(source, [name], [case])
        yield from in_every_layout(in_dtype, names=names)
        yield from in_layouts_at_once(in_dtype, names=names)


def standard_samples(
    calls: Sequence[Call],
    variants: Iterable[Sequence[str]],
    *,
    sized: Callable[[int], Call] | None = None,
    sizes: Sequence[int] = SIZES,
    special: bool = True,
) -> Iterator[Sample]:
    """Yield the case sets of every operator: smoke test, ordinary calls, magnitudes, dtypes, layouts, sizes, special.

    Args:
        calls: ordinary calls, the simplest first, which is the smoke test.
        variants: the descriptor's dtypes.
        sized: function from the size of a dimension that kernels cut into tiles to a call.
        sizes: sizes for ``sized``; with the default ones, sizes beyond 16 bits and of several tiles are added.
        special: add special values, if there are float dtypes.
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
    # Layouts of matrices in a batch need three dimensions, which the simplest call seldom has.
    deep = max(calls, key=_rank)
    if _rank(deep) > 2 and deep is not calls[0]:
        yield from in_layouts_at_once([deep])
    if sized is not None:
        yield from of_every_size(sized, sizes, dtypes=main[:2])
        # Operators whose cost grows faster than the size pass other sizes, and get no large ones.
        if sizes is SIZES:
            yield from of_every_size(sized, (LARGE_SIZE,), dtypes=main[:1])
            others = [name for name in (*MAIN_FLOATS[1:], "float64", "int64", "uint8") if (name,) in variants]
            yield from of_every_size(sized, (TILES,), dtypes=[name for name in others if name not in main[:2]])
    if special and floats:
        yield from with_special_values(calls[:2], dtypes=floats)
