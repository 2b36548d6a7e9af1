"""Operators that order elements: topk, kthvalue and sort."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from optest.operators.calls import MAIN_FLOATS, ROWS_OF_EVERY_SIGN, call, data_fill
from optest.operators.describe import BOOL, DIM, NUMBERS, attribute, in_module
from optest.operators.indexing.gather import BEYOND_16_BITS, MOSTLY_SPECIAL, MOVED, sizes_of
from optest.operators.samples import error_samples, standard_samples, variations
from optest.operators.shapes import Attributes, Outputs, Specs, dense, normalize_dim, require_spec
from optest.spec import OperatorDescriptor, Sample, Tier, UnfitArguments, dtype

# torch sorts wide unsigned integers and bool, but does not select from them by topk.
SORTED = (*NUMBERS, *BOOL, ("uint16",), ("uint32",), ("uint64",))

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="topk",
        aliases=("TopK: X -> Values, Indices",),
        attributes=(
            attribute("k: int", "Number of elements per row."),
            DIM,
            attribute("largest: bool = True", "Return the largest elements, else the smallest."),
            attribute("sorted: bool = True", "Return elements in order of size, else in any order."),
        ),
        alternatives="topk_alternatives",
        rule=replace(MOVED, formula="any of equal elements, none twice; without sorted in any order"),
        description="The k largest or smallest elements along a dimension with their indices; NaN is the largest. Any "
        "of equal elements may be chosen, but none twice. Without `sorted` a row may have any order.",
    ),
    OperatorDescriptor(
        name="kthvalue",
        attributes=(
            attribute("k: int", "Rank of the element in ascending order, counted from 1."),
            DIM,
            attribute("keepdim: bool = False", "Keep the dimension with size 1."),
        ),
        alternatives="kthvalue_alternatives",
        rule=replace(MOVED, formula="the index of any equal element"),
        description="The k-th smallest element along a dimension with its index; NaN is the largest.",
    ),
    OperatorDescriptor(
        name="sort",
        attributes=(
            DIM,
            attribute("descending: bool = False", "Sort from the largest to the smallest."),
            attribute("stable: bool = False", "Keep the order of equal elements."),
        ),
        dtype_variants=SORTED,
        alternatives="sort_alternatives",
        rule=replace(MOVED, formula="without stable any of equal elements, none twice"),
        description="The elements along a dimension in order, with their indices; NaN is the largest. Without `stable` "
        "equal elements, −0 and 0 among them, may have any order.",
    ),
    signature="input -> values, indices",
    generator=ROWS_OF_EVERY_SIGN,
    dtype_variants=NUMBERS,
)


def infer_topk(specs: Specs, attributes: Attributes) -> Outputs:
    return _infer_picked(specs, attributes, 0, attributes["k"])


def infer_kthvalue(specs: Specs, attributes: Attributes) -> Outputs:
    return _infer_picked(specs, attributes, 1, *([1] if attributes.get("keepdim") else []))


def _infer_picked(specs: Specs, attributes: Attributes, least: int, *kept: int) -> Outputs:
    """Return the specs of values and indices with sizes `kept` in place of the dimension; require k ≥ `least`."""
    spec, k = require_spec(specs, 0, "input"), attributes["k"]
    dim = normalize_dim(attributes.get("dim", -1), spec.rank)
    size = sizes_of(spec.shape)[dim]
    if not least <= k <= size:
        raise UnfitArguments(f"k is {k}, expected {least} to {size}, the size of dimension {dim}")
    shape = (*spec.shape[:dim], *kept, *spec.shape[dim + 1 :]) if spec.rank else ()
    return (dense(spec.dtype, shape), dense(dtype("int64"), shape))


def infer_sort(specs: Specs, attributes: Attributes) -> Outputs:
    spec = require_spec(specs, 0, "input")
    normalize_dim(attributes.get("dim", -1), spec.rank)
    return (dense(spec.dtype, spec.shape), dense(dtype("int64"), spec.shape))


# Five values, so that almost every element has equals.
_TIES = {"fill": "randint", "low": -2, "high": 3}


def topk_samples() -> Iterator[Sample]:
    calls = [
        call({"k": 5}, input=(4, 37)),
        call({"k": 3, "largest": False, "dim": 0}, input=(19, 6)),
        call({"k": 9}, input=(2, 3, 65)),
        call({"k": 3, "dim": 2}, input=(2, 3, 9, 2, 2)),
    ]
    yield from standard_samples(calls, NUMBERS, sized=lambda n: call({"k": min(n, 5)}, input=(3, n)))
    along_dims = [
        *(
            call({"k": 2, "dim": dim, "largest": largest}, input=(3, 4, 5))
            for dim in (0, 1, 2, -1, -2, -3)
            for largest in (True, False)
        ),
        call({"k": 0}, input=(3, 4)),
        call({"k": 1}, input=(3, 1)),
        call({"k": 1}, input=()),
        call({"k": 17}, input=(2, 17)),
        call({"k": 100}, input=(2, 257)),
        call({"k": 5, "dim": 0}, input=(1025, 3)),
        call({"k": 5, "dim": 1}, input=(2, 301, 3)),
    ]
    yield from variations("attributes", along_dims, dtypes=("float32", "int32"))
    tied = [
        call({"k": k, "largest": largest}, input=(5, 33), generator=_TIES)
        for k in (1, 4, 20, 33)
        for largest in (True, False)
    ]
    yield from variations("ties", tied, dtypes=("float32", "float16", "int8"))
    yield from variations("ties", [call({"k": 7}, input=(3, 40), generator="zeros")])
    full_row = call({"k": 37}, input=(4, 37), generator=MOSTLY_SPECIAL)
    yield from variations(
        "special", [full_row, {**full_row, "attributes": {"k": 20, "largest": False}}], dtypes=MAIN_FLOATS
    )
    # Without sorted, kernels return the order of a heap or a partition.
    unordered = [
        call({"k": 6, "sorted": False}, input=(4, 37)),
        call({"k": 6, "sorted": False, "largest": False}, input=(4, 37)),
        call({"k": 12, "sorted": False}, input=(4, 33), generator=_TIES),
        call({"k": 5, "sorted": False, "dim": 0}, input=(17, 3), generator="special"),
        call({"k": 300, "sorted": False}, input=(2, 1025)),
    ]
    yield from variations("unordered", unordered, dtypes=("float32", "int32"))
    yield from error_samples(
        call({"k": 5}, input=(3, 4)),
        call({"k": -1}, input=(3, 4)),
        call({"k": 1, "dim": 2}, input=(3, 4)),
        call({"k": 2}, input=()),
    )
    yield from _long_and_close_rows({"k": 3})
    for attributes in ({"k": 4, "largest": False}, {"k": 4}):
        yield from _integer_limit_samples(attributes)
        yield from _negative_nan_samples(attributes)
    yield from variations("sizes", [call({"k": 2}, input=(BEYOND_16_BITS, 3))])
    yield from variations("sizes", [call({"k": 5}, input=(2, 16_411))], dtypes=MAIN_FLOATS[1:])
    yield from variations("sizes", [call({"k": 1100}, input=(2, 1500))], dtypes=("float32", "int32"))
    tied = [call({"k": k}, input=(40,), generator=_TIES) for k in (7, 33)]
    yield from variations("ties", tied, dtypes=("float32", "int32"))
    large = call({"k": 100}, input=(2, 65537))
    yield from variations("sizes", [large], dtypes=MAIN_FLOATS, tier=Tier.FULL)


def kthvalue_samples() -> Iterator[Sample]:
    calls = [
        call({"k": 5}, input=(4, 37)),
        call({"k": 3, "dim": 0}, input=(17, 6)),
        call({"k": 4, "dim": 1, "keepdim": True}, input=(2, 9, 5)),
    ]
    yield from standard_samples(calls, NUMBERS, sized=lambda n: call({"k": max(1, n // 2)}, input=(3, max(1, n))))
    for dim in (0, 1, 2, -1, -2, -3):
        cases = [call({"k": 2, "dim": dim, "keepdim": keepdim}, input=(3, 4, 5)) for keepdim in (False, True)]
        yield from variations("attributes", cases, dtypes=("float32", "int32"))
    edges = [
        *(call({"k": k}, input=(3, 17)) for k in (1, 16, 17)),
        *(call({"k": 1, "keepdim": keepdim}, input=()) for keepdim in (False, True)),
        call({"k": 1}, input=(3, 1)),
        call({"k": 2}, input=(0, 3)),
        call({"k": 500, "dim": 0}, input=(1025, 3)),
        call({"k": 150, "dim": 1}, input=(2, 301, 3)),
    ]
    yield from variations("attributes", edges)
    tied = [call({"k": k}, input=(5, 33), generator=_TIES) for k in (1, 4, 20, 33)]
    yield from variations("ties", tied, dtypes=("float32", "float16", "int8"))
    special_rows = [call({"k": k}, input=(4, 37), generator=MOSTLY_SPECIAL) for k in (1, 12, 25, 37)]
    yield from variations("special", special_rows, dtypes=MAIN_FLOATS)
    yield from _long_and_close_rows({"k": 4})
    for k in (1, 4, 7):
        yield from _integer_limit_samples({"k": k})
    for k in (1, 6):
        yield from _negative_nan_samples({"k": k})
    yield from variations("sizes", [call({"k": 2}, input=(BEYOND_16_BITS, 3)), call({"k": 9_000}, input=(2, 16_411))])
    yield from error_samples(
        call({"k": 5}, input=(3, 4)),
        call({"k": 0}, input=(3, 4)),
        call({"k": 1, "dim": 2}, input=(3, 4)),
        call({"k": 1}, input=(3, 0)),
    )


def _integer_limit_samples(attributes: dict[str, Any]) -> Iterator[Sample]:
    """Yield a row with both ends of its dtype for int8 to int64 and uint8."""
    # A kernel that negates keys to reverse the order fails for the smallest integer, which has no positive opposite.
    for name in ("int8", "int16", "int32", "int64", "uint8"):
        low, high = dtype(name).min_int, dtype(name).max_int
        row = [1, low, high, low + 1, high - 1, 0 if low else 2, 3]
        yield from variations("ordinary", [call(attributes, input=(1, 7), generator=data_fill([row]))], dtypes=(name,))


def _negative_nan_samples(attributes: dict[str, Any]) -> Iterator[Sample]:
    """Yield rows with NaN of either sign."""
    # 0/0 and inf − inf give a negative NaN on x86; a sort of the bits as integers makes it the smallest.
    rows = [[1.0, "-nan", -2.0, "inf", "-inf", 0.5], ["nan", "-nan", 3.0, -1.0, 2.0, 0.25]]
    yield from variations("special", [call(attributes, input=(2, 6), generator=data_fill(rows))], dtypes=MAIN_FLOATS)


def _long_and_close_rows(attributes: dict[str, Any]) -> Iterator[Sample]:
    """Yield long rows, and keys that differ only beyond the precision of a narrower dtype."""
    rising = {"fill": "arange", "start": -35_000.0, "step": 1.0}
    yield from variations("sizes", [call(attributes, input=(BEYOND_16_BITS,), generator=rising)])
    for name, base, step in (("float64", 1.0, 2.0**-40), ("int64", 2**60, 1), ("int32", 2**28, 1)):
        row = [base + offset * step for offset in (0, 3, 1, 5, 2, 4)]
        values = data_fill([row, [-value for value in row]])
        yield from variations("ties", [call(attributes, input=(2, 6), generator=values)], dtypes=(name,))


def sort_samples() -> Iterator[Sample]:
    calls = [
        call(input=(4, 37)),
        call({"dim": 0, "descending": True}, input=(19, 6)),
        call(input=(2, 3, 65)),
        call({"dim": 2}, input=(2, 3, 9, 2, 2)),
    ]
    yield from standard_samples(calls, SORTED, sized=lambda n: call(input=(3, n)))
    dims = [{"dim": dim, "descending": descending} for dim in (0, 1, 2, -1, -2, -3) for descending in (False, True)]
    edges = [
        call(input=()),
        call({"dim": 0}, input=(0, 3)),
        call({"descending": True}, input=(3, 1)),
        call({"dim": 0}, input=(1025, 3)),
        call({"dim": 1}, input=(2, 301, 3)),
    ]
    sorted_along = [call(attributes, input=(3, 4, 5)) for attributes in dims]
    yield from variations("attributes", [*sorted_along, *edges], dtypes=("float32", "int32"))
    tied = [
        call({"descending": descending, "stable": stable}, input=(3, n), generator=_TIES)
        for n in (9, 300)
        for descending in (False, True)
        for stable in (False, True)
    ]
    for case in tied:
        name = "stable" if case["attributes"]["stable"] else "ties"
        yield from variations(name, [case], dtypes=("float32", "float16", "int8"))
    for descending in (False, True):
        attributes = {"descending": descending, "stable": True}
        signed_zeros = call(attributes, input=(3, 33), generator=MOSTLY_SPECIAL)
        yield from variations("stable", [signed_zeros], dtypes=MAIN_FLOATS)
        yield from variations("stable", [call({**attributes, "dim": 0}, input=(129, 3), generator=_TIES)])
        yield from variations("stable", [call(attributes, input=(3, 65))], dtypes=("bool",))
    yield from error_samples(
        call({"dim": 2}, input=(3, 4)), call({"dim": -3}, input=(3, 4)), call({"dim": 1}, input=())
    )
    yield from _long_and_close_rows({"descending": True})
    for descending in (False, True):
        yield from _integer_limit_samples({"descending": descending})
        yield from _negative_nan_samples({"descending": descending})
    for name, sign_bit in (
        ("uint16", 1 << 15),
        ("uint32", 1 << 31),
        ("uint64", 1 << 63),
    ):  # unsigned: the top bit is no sign
        fill = {"fill": "data", "values": [[1, sign_bit, 0, sign_bit - 1, 2 * sign_bit - 1, sign_bit + 1]]}
        yield from variations("ordinary", [call(input=(1, 6), generator=fill)], dtypes=(name,))
    yield from variations("sizes", [call(input=(BEYOND_16_BITS, 3))])
    yield from variations("sizes", [call(input=(2, 16_411))], dtypes=MAIN_FLOATS[1:])
    # Many libraries sort a vector by a radix or merge sort, and rows by another kernel.
    for descending in (False, True):
        attributes = {"descending": descending, "stable": True}
        special = call(attributes, input=(37,), generator={"fill": "special", "rate": 0.5})
        yield from variations("stable", [special], dtypes=MAIN_FLOATS)
        yield from variations("stable", [call(attributes, input=(300,), generator=_TIES)], dtypes=("float32", "int32"))
    wide = {"fill": "randint", "low": -(2**30), "high": 2**30}
    yield from variations("sizes", [call(input=(40_001,), generator=wide)], dtypes=("int32", "int64"))
    large = call({"stable": True}, input=(2, 65537), generator={"fill": "randint", "low": 0, "high": 1000})
    yield from variations("stable", [large], dtypes=MAIN_FLOATS, tier=Tier.FULL)
