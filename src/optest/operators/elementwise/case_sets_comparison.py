"""The calls by which comparison, logic and bitwise operators are checked."""

from __future__ import annotations

from collections.abc import Iterator

from optest.operators.elementwise.case_sets import binary, grid, unary
from optest.operators.samples import EVERY_FLOAT, call, variations, with_further_layouts
from optest.operators.variants import BOOL, EVERYTHING, INTEGERS, NUMBERS
from optest.spec import Sample

__all__ = [
    "bitwise_not_samples",
    "bitwise_samples",
    "equality_samples",
    "logic_samples",
    "logical_not_samples",
    "order_samples",
]

_TRUTHS = [0.0, -0.0, 1.0, -1.0, 0.25, 2.0, 256.0, "inf", "-inf", "nan"]
_WIDE_TRUTHS = (
    ("int64", [0, 1, 256, 65536, 2**31, 2**32, 2**40]),
    ("int32", [0, 1, 256, 65536, -(2**31)]),
    ("int16", [0, 1, 256, -(2**15)]),
)
"""True, with lower bytes that are all 0."""


_FEW = {"fill": "randint", "low": -1, "high": 2}
"""Values of which a third are equal, or 0: random floats never are, and a kernel that answers nothing would pass."""


@with_further_layouts
def equality_samples() -> Iterator[Sample]:
    yield from binary(EVERYTHING, generator=_FEW)
    yield from _ties()
    yield from _neighbours()


@with_further_layouts
def order_samples() -> Iterator[Sample]:
    yield from binary(EVERYTHING)
    yield from _ties()
    yield from _neighbours()


def _ties() -> Iterator[Sample]:
    few = call(input=(16, 37), other=(16, 37), generator=_FEW)
    yield from variations("ties", [few], dtypes=(*EVERY_FLOAT, "int8", "int32", "int64", "uint8"))
    table = [0.0, -0.0, 1.0, -1.0, "inf", "-inf", "nan"]
    yield from variations("ties", [grid(table, table)], dtypes=EVERY_FLOAT)
    alike = {
        "input": {"fill": "data", "values": [*table, 2.0, 3.0]},
        "other": {"fill": "data", "values": [-0.0, 0.0, *table[2:], 3.0, 2.0]},
    }
    yield from variations("ties", [call(input=(9,), other=(9,), generator=alike)], dtypes=EVERY_FLOAT)  # nothing broadcasts


def _neighbours() -> Iterator[Sample]:
    """Numbers one unit apart: what tolerance, subtraction, float32 or a lost sign take for equal."""
    for name, bits in (("float32", 23), ("float16", 10), ("bfloat16", 7), ("float64", 52)):
        close = [
            1.0,
            1.0 + 2.0**-bits,
            1.0 - 2.0 ** -(bits + 1),
            -1.0,
            -1.0 - 2.0**-bits,
            2.0**-14,
            2.0**-14 + 2.0**-40,
        ]
        yield from variations("neighbours", [grid(close, close)], dtypes=(name,))
    for name, bits in (("int8", 7), ("int16", 15), ("int32", 31), ("int64", 63)):
        large = [2**bits - 1, 2**bits - 2, -(2**bits), -(2**bits) + 1, -1, 0, 1, 2 ** (bits - 1)]
        yield from variations("neighbours", [grid(large, large)], dtypes=(name,))
    beyond = [2**24, 2**24 + 1, 2**24 + 2]
    yield from variations("neighbours", [grid(beyond, beyond)], dtypes=("int32", "int64"))
    beyond = [2**53, 2**53 + 1, 2**53 + 2]
    yield from variations("neighbours", [grid(beyond, beyond)], dtypes=("int64",))
    unsigned = [0, 1, 127, 128, 200, 255]
    yield from variations("neighbours", [grid(unsigned, unsigned)], dtypes=("uint8",))
    yield from _neighbours_of_two_types()


def _neighbours_of_two_types() -> Iterator[Sample]:
    """Numbers whose bits are alike in the narrower or the unsigned type of the two."""
    wide, narrow = [2**32 + 1, 1, 2**32 - 1, -1, 2**32], [1, -1, 0]
    signed, unsigned = [-1, 1, -128, 127, -2], [255, 1, 128, 127, 254]
    beyond_half = [2048, 2049, 70_000, 70_001, 2**24]
    for names, rows, columns in (
        (("int64", "int32"), wide, narrow),
        (("int32", "int64"), narrow, wide),
        (("int8", "uint8"), signed, unsigned),
        (("uint8", "int8"), unsigned, signed),
        (("int32", "float32"), beyond_half, beyond_half),
    ):
        yield Sample(case_set="neighbours", case={**grid(rows, columns), "dtypes": list(names)})


@with_further_layouts
def logic_samples() -> Iterator[Sample]:
    yield from binary(EVERYTHING, generator=_FEW)
    yield from variations("truth", [grid(_TRUTHS, _TRUTHS)], dtypes=EVERY_FLOAT)
    whole = [0, 1, 2, 4, 16, 64]
    yield from variations("truth", [grid(whole, whole)], dtypes=("uint8", "int8", "int32", "int64"))
    for name, wide in _WIDE_TRUTHS:
        yield from variations("truth", [grid(wide, wide)], dtypes=(name,))


@with_further_layouts
def logical_not_samples() -> Iterator[Sample]:
    yield from unary((*NUMBERS, *BOOL), generator=_FEW)
    table = call(input=(len(_TRUTHS),), generator={"input": {"fill": "data", "values": _TRUTHS}})
    yield from variations("truth", [table], dtypes=EVERY_FLOAT)
    for name, wide in _WIDE_TRUTHS:
        table = call(input=(len(wide),), generator={"input": {"fill": "data", "values": wide}})
        yield from variations("truth", [table], dtypes=(name,))


@with_further_layouts
def bitwise_samples() -> Iterator[Sample]:
    mixed = (("int8", "uint8"), ("uint8", "int8"), ("int32", "int64"), ("int64", "int32"), ("bool", "int32"))
    yield from binary((*INTEGERS, *BOOL, *mixed, ("int32", "bool")))
    shape = call(input=(4, 37), other=(4, 37), generator="special")
    yield from variations("special", [shape], dtypes=[name for (name,) in (*INTEGERS, *BOOL)])


@with_further_layouts
def bitwise_not_samples() -> Iterator[Sample]:
    yield from unary((*INTEGERS, *BOOL))
