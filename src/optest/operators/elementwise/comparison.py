"""Comparisons: eq, ne, lt, le, gt and ge."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from optest.operators.calls import EVERY_FLOAT, call
from optest.operators.describe import EVERYTHING, exact, in_module
from optest.operators.elementwise.helpers import FEW_VALUES, binary, grid
from optest.operators.samples import variations
from optest.spec import OperatorDescriptor, Sample


def _comparison_descriptor(name: str, aliases: tuple[str, ...], description: str) -> OperatorDescriptor:
    return OperatorDescriptor(
        name=name,
        category="comparison",
        signature="input, other -> out",
        aliases=aliases,
        dtype_variants=EVERYTHING,
        infer="helpers:infer_comparison",
        rule=exact("comparison: IEEE 754-2019 §5.11"),
        samples="equality_samples" if name in ("eq", "ne") else "order_samples",
        description=f"True where input is {description} other, in their common dtype; NaN is unequal to everything and "
        "neither less nor greater than anything.",
    )


DESCRIPTORS = in_module(
    __name__,
    _comparison_descriptor("eq", ("equal", "Equal: A, B -> C"), "equal to"),
    _comparison_descriptor("ne", ("not_equal",), "unequal to"),
    _comparison_descriptor("lt", ("less", "Less: A, B -> C"), "less than"),
    _comparison_descriptor("le", ("less_equal", "LessOrEqual: A, B -> C"), "at most"),
    _comparison_descriptor("gt", ("greater", "Greater: A, B -> C"), "greater than"),
    _comparison_descriptor("ge", ("greater_equal", "GreaterOrEqual: A, B -> C"), "at least"),
    twin="comparison_reference",
)


def order_samples(generator: Any = None) -> Iterator[Sample]:
    """Yield samples of comparisons: binary ones, ties, special values, and numbers that differ in one bit."""
    yield from binary(EVERYTHING, generator=generator)
    few = call(input=(16, 37), other=(16, 37), generator=FEW_VALUES)
    yield from variations("ties", [few], dtypes=(*EVERY_FLOAT, "int8", "int32", "int64", "uint8"))
    table = [0.0, -0.0, 1.0, -1.0, "inf", "-inf", "nan"]
    yield from variations("ties", [grid(table, table)], dtypes=EVERY_FLOAT)
    alike = {
        "input": {"fill": "data", "values": [*table, 2.0, 3.0]},
        "other": {"fill": "data", "values": [-0.0, 0.0, *table[2:], 3.0, 2.0]},
    }
    # For kernels that do not broadcast.
    yield from variations("ties", [call(input=(9,), other=(9,), generator=alike)], dtypes=EVERY_FLOAT)
    # Numbers one ulp apart: a kernel with a tolerance, a subtraction, float32 or a lost sign takes them for equal.
    for name, bits in (("float32", 23), ("float16", 10), ("bfloat16", 7), ("float64", 52)):
        above, below = 1.0 + 2.0**-bits, 1.0 - 2.0 ** -(bits + 1)
        close = [1.0, above, below, -1.0, -above, 2.0**-14, 2.0**-14 + 2.0**-40]
        yield from variations("neighbours", [grid(close, close)], dtypes=(name,))
    for name, bits in (("int8", 7), ("int16", 15), ("int32", 31), ("int64", 63)):
        large = [2**bits - 1, 2**bits - 2, -(2**bits), -(2**bits) + 1, -1, 0, 1, 2 ** (bits - 1)]
        yield from variations("neighbours", [grid(large, large)], dtypes=(name,))
    # Integers that float32 rounds to one number, then float64; and those that are negative as int8.
    for integers, dtypes in (
        ([2**24, 2**24 + 1, 2**24 + 2], ("int32", "int64")),
        ([2**53, 2**53 + 1, 2**53 + 2], ("int64",)),
        ([0, 1, 127, 128, 200, 255], ("uint8",)),
    ):
        yield from variations("neighbours", [grid(integers, integers)], dtypes=dtypes)
    # Numbers with equal bits in the narrower or the unsigned type of the two; float16 does not hold the last ones.
    wide, narrow = [2**32 + 1, 1, 2**32 - 1, -1, 2**32], [1, -1, 0]
    signed, unsigned = [-1, 1, -128, 127, -2], [255, 1, 128, 127, 254]
    beyond_float16 = [2048, 2049, 70_000, 70_001, 2**24]
    for names, rows, columns in (
        (("int64", "int32"), wide, narrow),
        (("int32", "int64"), narrow, wide),
        (("int8", "uint8"), signed, unsigned),
        (("uint8", "int8"), unsigned, signed),
        (("int32", "float32"), beyond_float16, beyond_float16),
    ):
        yield Sample(case_set="neighbours", case={**grid(rows, columns), "dtypes": list(names)})


equality_samples = partial(order_samples, FEW_VALUES)
