"""What case sets are made of: the calls that every operator of a kind has to be asked.

An operator states a few calls of its own as plan cases without ``op``; :func:`standard` derives from them every dtype,
layout, size and fill. A call is plain data: ``{"shapes": {"input": [2, 3]}, "attributes": {"dim": -1}}``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from optest.spec import Sample, Tier, contiguous_strides

Call = Mapping[str, Any]
Layout = dict[str, Any]

SIZES = (0, 1, 2, 7, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 257, 1023, 1025)
"""Nothing, one, primes, and the sizes around the tiles and vectors of today's kernels."""
_TILES = 4_099
"""Several tiles and a tail, asked of the dtypes that are not asked every size."""
LARGE_SIZE = 65_537
"""Beyond what 16 bits index, and more than one block of threads on every device."""
MILLION = (65_537, 17)
"""More than 2^20 elements, where loops over a grid of threads have to go round again, and more rows than the 65,535
blocks that CUDA and HIP launch in a grid's second dimension."""
CALM_SIZES = (0, 1, 7, 17, 64, 129)
"""The same idea where every size costs much."""
MAIN_FLOATS = ("float32", "float16", "bfloat16")
"""The float dtypes that most sets ask."""
EVERY_FLOAT = (*MAIN_FLOATS, "float64")


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


def table(
    values: Sequence[Any], attributes: Mapping[str, Any] | None = None, *, dtypes: Sequence[str] = ()
) -> dict[str, Any]:
    """A call with these values as input."""
    fills = {"input": {"fill": "data", "values": list(values)}}
    return call(attributes, dtypes=dtypes, generator=fills, input=(len(values),))


def line(
    first: float, last: float, attributes: Mapping[str, Any] | None = None, *, count: int = 1021
) -> dict[str, Any]:
    """A call over evenly spaced values, beyond the range of random inputs too."""
    step = (last - first) / (count - 1)
    return call(attributes, input=(count,), generator={"fill": "arange", "start": first, "step": step})


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
        for layout in (*LAYOUTS_AT_ONCE, *([_padded_where_deep] if deepest > 2 else [])) if varied else ():
            places = {name: layout(shapes[name]) for name in varied}
            stated = {"dtypes": [dtype]} if dtype else {}
            yield Sample(case_set="layouts", case={**each, **stated, "shapes": {**shapes, **places}})


def layouts_of(shape: Sequence[int]) -> Iterator[Layout]:
    """Layouts of a tensor that are not dense: gaps, padded rows, swapped dimensions, an offset, strides of 0 (one row,
    one column), channels last, negative strides of the first and the last dimension."""
    rank, dense = len(shape), strides_of(shape)
    yield with_gaps(shape)
    yield with_offset(shape)
    if rank > 1:
        yield transposed(shape)
        yield laid(shape, [0, *dense[1:]])
    yield laid(shape, [*dense[:-1], 0])
    yield laid(shape, [-dense[0], *dense[1:]], offset=dense[0] * (shape[0] - 1))
    if rank > 1:
        yield with_padded_rows(shape)
        yield backwards(shape)
    if rank > 2:
        yield _with_last_two_swapped(shape)
        yield _with_padded_matrices(shape)
    if rank == 4:
        yield _channels_last(shape)


def laid(shape: Sequence[int], strides: Sequence[int], **offset: int) -> Layout:
    """An input with strides, as a plan states it."""
    return {"shape": list(shape), "strides": list(strides), **offset}


def strides_of(shape: Sequence[int]) -> list[int]:
    """Those of a dense tensor."""
    return list(contiguous_strides(tuple(shape)))


def with_gaps(shape: Sequence[int]) -> Layout:
    return laid(shape, [2 * stride for stride in strides_of(shape)])


def with_padded_rows(shape: Sequence[int]) -> Layout:
    """Rows stand three elements apart: a leading dimension that is no size."""
    return laid(shape, strides_of([*shape[:-1], shape[-1] + 3]))


def with_offset(shape: Sequence[int]) -> Layout:
    """The data begin where no vector load is aligned."""
    return laid(shape, strides_of(shape), offset=3)


def transposed(shape: Sequence[int]) -> Layout:
    return laid(shape, strides_of(shape[::-1])[::-1])


def backwards(shape: Sequence[int]) -> Layout:
    """From the last column to the first."""
    return laid(shape, [*strides_of(shape)[:-1], -1], offset=shape[-1] - 1)


def _with_padded_matrices(shape: Sequence[int]) -> Layout:
    """Rows are adjacent and matrices stand two rows apart, as those of a cache that is not full."""
    return laid(shape, strides_of([*shape[:-2], shape[-2] + 2, shape[-1]]))


def _with_last_two_swapped(shape: Sequence[int]) -> Layout:
    *lead, rows, columns = strides_of([*shape[:-2], shape[-1], shape[-2]])
    return laid(shape, [*lead, columns, rows])


def _channels_last(shape: Sequence[int]) -> Layout:
    """Strides of N×C×H×W data that lie as N×H×W×C."""
    n, h, w, c = strides_of([shape[0], shape[2], shape[3], shape[1]])
    return laid(shape, [n, c, h, w])


def _padded_where_deep(shape: Sequence[int]) -> Layout:
    return _with_padded_matrices(shape) if len(shape) > 2 else with_padded_rows(shape)


LAYOUTS_AT_ONCE = (with_gaps, with_padded_rows, transposed, with_offset)


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
            values = _rows_with_special(each["shapes"][name])
            fills = {name: {"fill": "data", "values": values}}
            yield from variations("special", [{**each, "generator": fills}], dtypes=dtypes)


def _rows_with_special(shape: Sequence[int]) -> Any:
    """Small numbers of both signs, no 0 among them, nested like the shape; a row and a column stay free of the rest."""
    values: list[Any] = [((7 * index) % 11 - 5.5) / 4 for index in range(prod(shape))]
    width = shape[-1]
    rows = len(values) // max(1, width)
    free = width if len(shape) == 1 else min(rows, width)
    for place, special in enumerate(("nan", "inf", "-inf")[: max(0, free - 1)]):
        values[place if len(shape) == 1 else place * width + place] = special
    for size in reversed(shape[1:]):
        values = [values[start : start + size] for start in range(0, len(values), size)]
    return values


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
            yield from of_every_size(sized, (_TILES,), dtypes=[name for name in others if name not in main[:2]])
    if special and floats:
        yield from with_special_values(calls[:2], dtypes=floats)
