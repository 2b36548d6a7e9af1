"""Weights of four bits as AWQ and GPTQ pack them: dequantize_awq, dequantize_gptq, gptq_gemm and awq_gemm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from optest.operators.calls import CALM_SIZES, call, data, reshaped
from optest.operators.describe import attribute, composed, in_module, ulp
from optest.operators.samples import in_every_layout, in_layouts_at_once, refused, variations
from optest.operators.shapes import Attributes, Outputs, Specs, below, optional, rows_of
from optest.spec import Interval, OperatorDescriptor, Sample, Tier, UnfitArguments, dtype
from optest.spec.declared_shapes import fitted

PACKED = 8
"""Weights of four bits in an int32."""
_SCALES = ("float16", "bfloat16", "float32")
_INT32 = Interval(low=float(dtype("int32").min_int), high=float(dtype("int32").max_int))
_SCALE = Interval(low=2.0**-10, high=1.0)

_ZERO = attribute(
    "use_v2_format: bool = False",
    "Zero points are as they are stored; else, as GPTQ first had them, they are one more.",
)
_PRODUCT = "4√k·Σ|t| for k + 2 terms, and what rounding the weights to the dtype changes: {4√Σt² + Σ|t|/4, Σ|t|} of it"

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="dequantize_awq",
        aliases=("awq_dequantize",),
        signature="qweight, scales, zeros -> out",
        dtype_variants=tuple(("int32", name, "int32") for name in _SCALES),
        domain={"qweight": _INT32, "zeros": _INT32, "scales": _SCALE},
        generator={"qweight": "randint", "scales": "uniform", "zeros": "randint"},
        rule=ulp(0.5, "one product, correctly rounded: IEEE 754-2019 §5.4.1"),
        description="(weight - zero) * scale of AWQ's packed weights: rows x columns / 8 of int32, which hold eight "
        "columns of four bits in the order 0, 2, 4, 6, 1, 3, 5, 7 from the lowest; zeros are packed like them. scales, "
        "groups x columns, and zeros have a row for each group of as many rows of weights.",
    ),
    OperatorDescriptor(
        name="dequantize_gptq",
        signature="qweight, qzeros, scales, g_idx? -> out",
        attributes=(_ZERO,),
        dtype_variants=tuple(("int32", "int32", name, *more) for name in _SCALES for more in ((), ("int32",))),
        domain="dequantize_gptq_domain",
        generator={"qweight": "randint", "qzeros": "randint", "scales": "uniform", "g_idx": "randint"},
        rule=ulp(0.5, "one product, correctly rounded: IEEE 754-2019 §5.4.1"),
        description="(weight − zero) · scale of GPTQ's packed weights. qweight is rows / 8 x columns of int32, each of "
        "which holds eight rows of four bits from the lowest; scales are groups x columns and qzeros groups x columns "
        "/ 8, eight columns in an int32 from the lowest. g_idx is the group of each row; without it groups are as many "
        "rows each, in order.",
    ),
    OperatorDescriptor(
        name="gptq_gemm",
        signature="input, qweight, qzeros, scales, g_idx? -> out",
        attributes=(_ZERO,),
        dtype_variants=tuple((name, "int32", "int32", name, *more) for name in _SCALES for more in ((), ("int32",))),
        domain="gptq_gemm_domain",
        generator={"qweight": "randint", "qzeros": "randint", "scales": "uniform", "g_idx": "randint"},
        sum_length="..shapes:length_of_dim",
        rule=composed(_PRODUCT),
        description="input @ dequantize_gptq of the others. Kernels multiply weights that are rounded to the dtype, or "
        "such as are not, and add up in float32.",
    ),
    OperatorDescriptor(
        name="awq_gemm",
        signature="input, qweight, scales, qzeros -> out",
        dtype_variants=tuple((name, "int32", name, "int32") for name in _SCALES),
        domain={"qweight": _INT32, "qzeros": _INT32, "scales": _SCALE},
        generator={"qweight": "randint", "qzeros": "randint", "scales": "uniform"},
        sum_length="..shapes:length_of_dim",
        rule=composed(_PRODUCT),
        description="input @ (weight − zero) · scale of AWQ's packed weights, which are those of dequantize_awq. "
        "Kernels multiply weights that are rounded to the dtype, or such as are not, and add up in float32.",
    ),
)


def infer_dequantize_awq(specs: Specs, _attributes: Attributes) -> Outputs:
    declared = "qweight: int32[rows, columns], scales: T[groups, 8*columns], zeros: int32[groups, columns]"
    n, outputs = fitted(specs, f"{declared} -> T[rows, 8*columns]")
    _require_groups(n.groups, n.rows)
    return outputs


def _require_groups(groups: int, rows: int) -> None:
    if not groups or rows % groups:
        raise UnfitArguments(f"scales has {groups} rows, but should have a divisor of {rows}, the rows of weights")


def _packed(rows: int, columns: int, groups: int, scale: str = "float16", generator: Any = None) -> dict[str, Any]:
    """A call with so many int32 in each row."""
    shapes = {"qweight": [rows, columns], "scales": [groups, columns * PACKED], "zeros": [groups, columns]}
    stated = {} if generator is None else {"generator": generator}
    return {"shapes": shapes, "dtypes": ["int32", scale, "int32"], **stated}


def dequantize_awq_samples() -> Iterator[Sample]:
    yield Sample(case_set="ordinary", case=_packed(8, 5, 2), tier=Tier.SMOKE)
    each_bit = {"qweight": data([[1 << 4 * place] for place in range(7)] + [[-(1 << 28)]]), "zeros": "zeros"}
    ends = {"qweight": data([[0, -1], [-1, 0]]), "zeros": data([[-1, -1], [0, -1]])}
    for name in _SCALES:
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


def infer_dequantize_gptq(specs: Specs, _attributes: Attributes) -> Outputs:
    declared = "qweight: int32[rows, width], qzeros: int32[groups, columns], scales: T[groups, width]"
    n, outputs = fitted(specs, f"{declared}, g_idx?: index[8*rows] -> T[8*rows, width]")
    if n.width != PACKED * n.columns:
        raise UnfitArguments(f"qzeros has {n.columns} columns, but should have {n.width / PACKED:g}, as scales / 8")
    if optional(specs, 3) is None:
        _require_groups(n.groups, PACKED * n.rows)
    return outputs


def infer_gptq_gemm(specs: Specs, attributes: Attributes) -> Outputs:
    return _product(specs, infer_dequantize_gptq(specs[1:], attributes))


def infer_awq_gemm(specs: Specs, attributes: Attributes) -> Outputs:
    return _product(specs, infer_dequantize_awq(specs[1:], attributes))


def _product(specs: Specs, weights: Outputs) -> Outputs:
    return fitted([*weights, specs[0]], "weights: T[depth, width], input: T[rows, depth] -> T[rows, width]")[1]


def dequantize_gptq_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    return {"qweight": _INT32, "qzeros": _INT32, "scales": _SCALE, "g_idx": below(rows_of(specs, 2))}


def gptq_gemm_domain(specs: Specs, attributes: Attributes) -> Mapping[str, Interval]:
    return dequantize_gptq_domain(specs[1:], attributes)


def _weights(
    rows: int, columns: int, groups: int, kind: str = "float16", *, group_of: bool = False, **stated: Any
) -> Any:
    """A call of dequantize_gptq, with ``rows`` and ``columns`` of int32 and of zeros."""
    shapes = {"qweight": [rows, columns * PACKED], "qzeros": [groups, columns], "scales": [groups, columns * PACKED]}
    dtypes = ["int32", "int32", kind]
    if group_of:
        shapes["g_idx"], dtypes = [rows * PACKED], [*dtypes, "int32"]
    return {"shapes": shapes, "dtypes": dtypes, **stated}


def dequantize_gptq_samples() -> Iterator[Sample]:
    yield Sample(case_set="ordinary", case=_weights(5, 3, 4), tier=Tier.SMOKE)
    bits = [[1 << 4 * place for place in range(7)] + [-(1 << 28)]]
    each_bit = {"qweight": data(bits), "qzeros": "zeros"}
    ends = {"qweight": data([[0, -1] * 4, [-1, 0] * 4]), "qzeros": data([[-1], [0]])}
    for name in _SCALES:
        calls = [_weights(5, 3, 4, name), _weights(6, 5, 2, name, group_of=True), _weights(3, 2, 24, name)]
        v2 = [{**each, "attributes": {"use_v2_format": True}} for each in calls]
        yield from variations("ordinary", [*calls, *v2])
        yield from in_every_layout(calls[:2])
        yield from in_layouts_at_once(calls[:2])
        sizes = [_weights(n, 2, 4, name) for n in CALM_SIZES] + [_weights(2, n, 2, name) for n in CALM_SIZES]
        yield from variations("sizes", sizes)
        yield from variations(
            "bits", [_weights(1, 1, 1, name, generator=each_bit), _weights(2, 1, 2, name, generator=ends)]
        )
        yield from variations("special", [_weights(5, 3, 2, name, generator={"scales": "special"})])
    yield from variations("sizes", [_weights(520, 17, 4), _weights(1, 1, 1), _weights(65, 1, 65), _weights(1, 2, 8)])
    wrong = [{"scales": [3, 24], "qzeros": [3, 3]}, {"qzeros": [4, 4]}, {"scales": [4, 23]}, {"qweight": [5, 23]}]
    yield from _refused(calls[0], wrong, "qweight")
    yield from _refused(calls[1], [{"g_idx": [47]}], "qzeros")


def _refused(ordinary: dict[str, Any], wrong: list[dict[str, Any]], integer: str) -> Iterator[Sample]:
    yield from refused(*(reshaped(ordinary, **each) for each in wrong))
    place = list(ordinary["shapes"]).index(integer)
    yield from refused({**ordinary, "dtypes": [*ordinary["dtypes"][:place], "int64", *ordinary["dtypes"][place + 1 :]]})


def _multiplied(
    rows: int, depth: int, columns: int, groups: int, kind: str = "float16", **stated: Any
) -> dict[str, Any]:
    """A call of gptq_gemm, with ``depth`` and ``columns`` of int32 and of zeros."""
    case = _weights(depth, columns, groups, kind, **stated)
    shapes = {"input": [rows, depth * PACKED], **case["shapes"]}
    return {**case, "shapes": shapes, "dtypes": [kind, *case["dtypes"]]}


def gptq_gemm_samples() -> Iterator[Sample]:
    yield Sample(case_set="ordinary", case=_multiplied(3, 5, 3, 4), tier=Tier.SMOKE)
    for name in _SCALES:
        calls = [_multiplied(3, 5, 3, 4, name), _multiplied(17, 6, 5, 2, name, group_of=True)]
        calls += [_multiplied(2, 128, 2, 8, name), _multiplied(1, 3, 9, 24, name)]
        v2 = [{**each, "attributes": {"use_v2_format": True}} for each in calls]
        columns = [_multiplied(3, 4, 1, 2, name), _multiplied(2, 4, 1, 4, name)]
        yield from variations("ordinary", [*calls, *v2, *columns])
        yield from _of_products(calls, lambda m, k, n, kind=name: _multiplied(m, k, n, 1, kind))
    yield from variations("sizes", [_multiplied(1025, 8, 1, 4), _multiplied(33, 1, 17, 1)])
    wrong = [{"input": [3, 39]}, {"input": [40]}, {"qzeros": [4, 4]}, {"scales": [3, 24], "qzeros": [3, 3]}]
    yield from _refused(calls[0], wrong, "qweight")
    yield from _refused(calls[1], [{"g_idx": [47]}], "qzeros")


def _of_products(calls: list[dict[str, Any]], sized: Any) -> Iterator[Sample]:
    yield from in_every_layout(calls[:2])
    yield from in_layouts_at_once(calls[:2])
    for n in (0, 1, 7, 17, 65):
        yield from variations("sizes", [sized(n, 2, 1), sized(3, 2, n), *([sized(3, n, 1)] if n else [])])
    positive = {"input": {"fill": "uniform", "low": 0.5, "high": 1.5}}
    yield from variations("positive", [{**each, "generator": positive} for each in calls])
    large = {"input": {"fill": "uniform", "low": 50.0, "high": 150.0}, "scales": {"fill": "full", "value": 2.0**-4}}
    yield from variations("large", [{**calls[0], "generator": large}])
    yield from variations("special", [{**calls[0], "generator": {"input": "special"}}])


def _of_awq(rows: int, depth: int, columns: int, groups: int, kind: str = "float16") -> dict[str, Any]:
    shapes = {"input": [rows, depth], "qweight": [depth, columns], "scales": [groups, columns * PACKED]}
    return {"shapes": {**shapes, "qzeros": [groups, columns]}, "dtypes": [kind, "int32", kind, "int32"]}


def awq_gemm_samples() -> Iterator[Sample]:
    yield Sample(case_set="ordinary", case=_of_awq(3, 36, 3, 4), tier=Tier.SMOKE)
    for name in _SCALES:
        calls = [_of_awq(3, 36, 3, 4, name), _of_awq(17, 10, 5, 1, name), _of_awq(2, 1024, 2, 8, name)]
        yield from variations("ordinary", [*calls, _of_awq(1, 9, 9, 9, name), _of_awq(2, 8, 1, 4, name)])
        yield from _of_products(calls, lambda m, k, n, kind=name: _of_awq(m, k, n, 1, kind))
    yield from variations("sizes", [_of_awq(1025, 65, 1, 5), _of_awq(33, 1, 17, 1)])
    wrong = [{"input": [3, 35]}, {"input": [36]}, {"qzeros": [4, 4]}, {"scales": [5, 24], "qzeros": [5, 3]}]
    yield from _refused(calls[0], wrong, "qweight")
