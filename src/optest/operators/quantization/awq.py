"""dequantize_awq."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from optest.operators.declared_shapes import fitted
from optest.operators.describe import in_module, ulp
from optest.operators.indexing.gather import data
from optest.operators.samples import CALM_SIZES, call, in_every_layout, in_layouts_at_once, refused, variations
from optest.operators.shapes import Attributes, Outputs, Specs
from optest.spec import Interval, OperatorDescriptor, Sample, Tier, UnfitArguments, dtype

PACKED = 8
"""Weights of four bits in an int32."""
SCALES = ("float16", "bfloat16", "float32")
INT32 = Interval(low=float(dtype("int32").min_int), high=float(dtype("int32").max_int))

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="dequantize_awq",
        aliases=("awq_dequantize",),
        signature="qweight, scales, zeros -> out",
        dtype_variants=tuple(("int32", name, "int32") for name in SCALES),
        domain={"qweight": INT32, "zeros": INT32, "scales": Interval(low=2.0**-10, high=1.0)},
        generator={"qweight": "randint", "scales": "uniform", "zeros": "randint"},
        rule=ulp(0.5, "one product, correctly rounded: IEEE 754-2019 §5.4.1"),
        description="(weight - zero) * scale of AWQ's packed weights: rows x columns / 8 of int32, which hold eight "
        "columns of four bits in the order 0, 2, 4, 6, 1, 3, 5, 7 from the lowest; zeros are packed like them. scales, "
        "groups x columns, and zeros have a row for each group of as many rows of weights.",
    ),
)


def infer_dequantize_awq(specs: Specs, _attributes: Attributes) -> Outputs:
    declared = "qweight: int32[rows, columns], scales: T[groups, 8*columns], zeros: int32[groups, columns]"
    n, outputs = fitted(specs, f"{declared} -> T[rows, 8*columns]")
    require_groups(n.groups, n.rows)
    return outputs


def require_groups(groups: int, rows: int) -> None:
    if not groups or rows % groups:
        raise UnfitArguments(f"scales has {groups} rows, but should have a divisor of {rows}, the rows of weights")


def _packed(rows: int, columns: int, groups: int, scale: str = "float16", generator: Any = None) -> dict[str, Any]:
    """A call with so many int32 in each row."""
    shapes: dict[str, Any] = {
        "qweight": (rows, columns),
        "scales": (groups, columns * PACKED),
        "zeros": (groups, columns),
    }
    return call(dtypes=("int32", scale, "int32"), generator=generator, **shapes)


def dequantize_awq_samples() -> Iterator[Sample]:
    yield Sample(case_set="ordinary", case=_packed(8, 5, 2), tier=Tier.SMOKE)
    each_bit = {"qweight": data([[1 << 4 * place] for place in range(7)] + [[-(1 << 28)]]), "zeros": "zeros"}
    ends = {"qweight": data([[0, -1], [-1, 0]]), "zeros": data([[-1, -1], [0, -1]])}
    for name in SCALES:
        calls = [_packed(8, 5, 2, name), _packed(16, 4, 1, name), _packed(6, 17, 6, name)]
        yield from variations("ordinary", calls)
        yield from in_every_layout(calls[:1])
        yield from in_layouts_at_once(calls[1:2])
        sizes = [_packed(n * 4, 3, 4, name) for n in CALM_SIZES] + [_packed(4, n, 2, name) for n in CALM_SIZES]
        yield from variations("sizes", sizes)
        yield from variations("bits", [_packed(8, 1, 1, name, each_bit), _packed(2, 2, 2, name, ends)])
        yield from variations("special", [_packed(8, 5, 2, name, {"scales": "special"})])
    yield from variations("sizes", [_packed(4100, 17, 4), _packed(1, 1, 1), _packed(6, 1, 3), _packed(1, 4, 1)])
    kinds = ("int32", "float16", "int32")
    yield from refused(
        _packed(8, 5, 3),
        call(qweight=(8, 5), scales=(2, 39), zeros=(2, 5), dtypes=kinds),
        call(qweight=(8, 5), scales=(2, 40), zeros=(1, 5), dtypes=kinds),
        call(qweight=(8, 5), scales=(2, 40), zeros=(2, 5), dtypes=("int64", "float16", "int32")),
    )
