"""Dtype variants, attributes and sources that many descriptors share."""

from __future__ import annotations

from optest.spec import DTYPES, Attribute

FLOATS = (("float32",), ("float16",), ("bfloat16",), ("float64",))
INTEGERS = (("int32",), ("int64",), ("int8",), ("int16",), ("uint8",))
UNSIGNED = (("uint16",), ("uint32",), ("uint64",))
BOOL = (("bool",),)
FLOAT8 = (("float8_e4m3fn",), ("float8_e5m2",))
EVERY = (("float32",), *((entry.name,) for entry in DTYPES if entry.name != "float32"))
REAL = tuple(variant for variant in EVERY if not variant[0].startswith("complex"))
MIXED = tuple(
    pair
    for a, b in (
        ("float32", "float64"),
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("float16", "bfloat16"),
        ("int32", "float32"),
        ("int64", "float16"),
        ("int32", "float16"),
        ("int32", "bfloat16"),
        ("bool", "float32"),
        ("int8", "uint8"),
        ("int32", "int64"),
        ("bool", "int32"),
    )
    for pair in ((a, b), (b, a))
)
MIXED_NUMBERS = tuple(pair for pair in MIXED if "bool" not in pair)
NUMBERS = (*FLOATS, *INTEGERS)
NUMBERS_AND_MIXED = (*NUMBERS, *MIXED_NUMBERS)
EVERYTHING = (*NUMBERS, *BOOL, *MIXED)
FLOAT32_PARAMETERS = tuple((half, *("float32",) * count) for half in ("float16", "bfloat16") for count in (1, 2))

OPENCL = "OpenCL C 3.0 §7.4 (full profile)"
MEASURED = "measured in five libraries: docs/verdicts.md"
SUMS = "growth as √k: Higham and Mary, 2019 (SIAM J. Sci. Comput. 41, A2815); figures: docs/verdicts.md"

DIM = Attribute(name="dim", type="int", default=-1, aliases=("axis",), description="Dimension along which it works.")
