"""Operators on packed 4-bit weights of AWQ and GPTQ: dequantize_awq, dequantize_gptq, gptq_gemm and awq_gemm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from optest.operators.calls import CALM_SIZES, call, data_fill, reshaped
from optest.operators.describe import attribute, composed, in_module, ulp
from optest.operators.samples import error_samples, in_every_layout, in_layouts_at_once, variations
from optest.operators.shapes import Attributes, Outputs, Specs, first_size, index_range, optional_spec
from optest.spec import Interval, OperatorDescriptor, Sample, Tier, UnfitArguments, dtype
from optest.spec.declared_shapes import match_declaration

# Number of 4-bit weights in an int32.
PACKED = 8
_SCALES = ("float16", "bfloat16", "float32")
_INT32 = Interval(low=float(dtype("int32").min_int), high=float(dtype("int32").max_int))
_SCALE = Interval(low=2.0**-10, high=1.0)

_ZERO = attribute(
    "use_v2_format: bool = False",
    "Use zero points as stored; else add 1 to them, as in the first format of GPTQ.",
)
# error
_PRODUCT = "4√k·Σ|t| for k + 2 terms, plus rounding of the weights to the dtype: min(4√Σt² + Σ|t|/4, Σ|t|) times its "

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
        description="(weight - zero) * scale of AWQ's packed weights. qweight is rows x columns / 8 of int32, each of "
        "which holds eight columns of 4 bits in the order 0, 2, 4, 6, 1, 3, 5, 7 from the lowest; zeros are packed "
        "alike. scales (groups x columns) and zeros have one row per group; all groups have equally many rows.",
    ),
    OperatorDescriptor(
        name="dequantize_gptq",
        signature="qweight, qzeros, scales, g_idx? -> out",
        attributes=(_ZERO,),
        dtype_variants=tuple(
            ("int32", "int32", name, *group_index) for name in _SCALES for group_index in ((), ("int32",))
        ),
        domain="dequantize_gptq_domain",
        generator={"qweight": "randint", "qzeros": "randint", "scales": "uniform", "g_idx": "randint"},
        rule=ulp(0.5, "one product, correctly rounded: IEEE 754-2019 §5.4.1"),
        description="(weight − zero) · scale of GPTQ's packed weights. qweight is rows / 8 x columns of int32, each of "
        "which holds eight rows of 4 bits from the lowest; scales are groups x columns and qzeros groups x columns / "
        "8, eight columns in an int32 from the lowest. g_idx is the group of each row; without it all groups have "
        "equally many rows, in order.",
    ),
    OperatorDescriptor(
        name="gptq_gemm",
        signature="input, qweight, qzeros, scales, g_idx? -> out",
        attributes=(_ZERO,),
        dtype_variants=tuple(
            (name, "int32", "int32", name, *group_index) for name in _SCALES for group_index in ((), ("int32",))
        ),
        domain="gptq_gemm_domain",
        generator={"qweight": "randint", "qzeros": "randint", "scales": "uniform", "g_idx": "randint"},
        sum_length="..shapes:length_of_dim",
        rule=composed(_PRODUCT),
        description="input @ dequantize_gptq(qweight, qzeros, scales, g_idx). Kernels may round the weights to the "
        "dtype before the product; they accumulate in float32.",
    ),
    OperatorDescriptor(
        name="awq_gemm",
        signature="input, qweight, scales, qzeros -> out",
        dtype_variants=tuple((name, "int32", name, "int32") for name in _SCALES),
        domain={"qweight": _INT32, "qzeros": _INT32, "scales": _SCALE},
        generator={"qweight": "randint", "qzeros": "randint", "scales": "uniform"},
        sum_length="..shapes:length_of_dim",
        rule=composed(_PRODUCT),
        description="input @ dequantize_awq(qweight, scales, qzeros). Kernels may round the weights to the dtype "
        "before the product; they accumulate in float32.",
    ),
)


def infer_dequantize_awq(specs: Specs, _attributes: Attributes) -> Outputs:
    declared = "qweight: int32[rows, columns], scales: T[groups, 8*columns], zeros: int32[groups, columns]"
    n, outputs = match_declaration(specs, f"{declared} -> T[rows, 8*columns]")
    _require_groups(n.groups, n.rows)
    return outputs


def _require_groups(groups: int, rows: int) -> None:
    """Raise UnfitArguments unless `groups` divide the rows of weights."""
    if not groups or rows % groups:
        raise UnfitArguments(f"scales has {groups} rows, expected a divisor of {rows}, the rows of weights")


def _awq(rows: int, columns: int, groups: int, scale: str = "float16", generator: Any = None) -> dict[str, Any]:
    """Return a dequantize_awq call with `columns` int32 in each row of weights."""
    shapes: dict[str, Any] = {
        "qweight": (rows, columns),
        "scales": (groups, columns * PACKED),
        "zeros": (groups, columns),
    }
    return call(dtypes=("int32", scale, "int32"), generator=generator, **shapes)


def dequantize_awq_samples() -> Iterator[Sample]:
    yield Sample(case_set="ordinary", case=_awq(8, 5, 2), tier=Tier.SMOKE)
    # Each of the eight weights is 1 once (the highest in a negative int32), so that a wrong order is visible.
    single_weights = {"qweight": data_fill([[1 << 4 * i] for i in range(7)] + [[-(1 << 28)]]), "zeros": "zeros"}
    # All bits 0 and all bits 1: weights 0 and 15 with zero points 0 and 15.
    ends = {"qweight": data_fill([[0, -1], [-1, 0]]), "zeros": data_fill([[-1, -1], [0, -1]])}
    for name in _SCALES:
        calls = [_awq(8, 5, 2, name), _awq(16, 4, 1, name), _awq(6, 17, 6, name)]
        yield from variations("ordinary", calls)
        yield from in_every_layout(calls[:1])
        yield from in_layouts_at_once(calls[1:2])
        sizes = [_awq(n * 4, 3, 4, name) for n in CALM_SIZES] + [_awq(4, n, 2, name) for n in CALM_SIZES]
        yield from variations("sizes", sizes)
        yield from variations("bits", [_awq(8, 1, 1, name, single_weights), _awq(2, 2, 2, name, ends)])
        yield from variations("special", [_awq(8, 5, 2, name, {"scales": "special"})])
    yield from variations("sizes", [_awq(4100, 17, 4), _awq(1, 1, 1), _awq(6, 1, 3), _awq(1, 4, 1)])
    kinds = ("int32", "float16", "int32")
    yield from error_samples(
        _awq(8, 5, 3),
        call(qweight=(8, 5), scales=(2, 39), zeros=(2, 5), dtypes=kinds),
        call(qweight=(8, 5), scales=(2, 40), zeros=(1, 5), dtypes=kinds),
        call(qweight=(8, 5), scales=(2, 40), zeros=(2, 5), dtypes=("int64", "float16", "int32")),
    )


def infer_dequantize_gptq(specs: Specs, _attributes: Attributes) -> Outputs:
    declared = "qweight: int32[rows, width], qzeros: int32[groups, columns], scales: T[groups, width]"
    n, outputs = match_declaration(specs, f"{declared}, g_idx?: index[8*rows] -> T[8*rows, width]")
    if n.width != PACKED * n.columns:
        raise UnfitArguments(f"qzeros has {n.columns} columns, expected {n.width / PACKED:g}, those of scales / 8")
    if optional_spec(specs, 3) is None:
        # g_idx may assign rows to groups freely.
        _require_groups(n.groups, PACKED * n.rows)
    return outputs


def infer_gptq_gemm(specs: Specs, attributes: Attributes) -> Outputs:
    return _infer_product(specs, infer_dequantize_gptq(specs[1:], attributes))


def infer_awq_gemm(specs: Specs, attributes: Attributes) -> Outputs:
    return _infer_product(specs, infer_dequantize_awq(specs[1:], attributes))


def _infer_product(specs: Specs, weights: Outputs) -> Outputs:
    """Return the output spec of input @ weights, given the specs of a call and of its dequantised weights."""
    # Weights first, so that an error names input as the tensor that does not fit.
    return match_declaration([*weights, specs[0]], "weights: T[depth, width], input: T[rows, depth] -> T[rows, width]")[
        1
    ]


def dequantize_gptq_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """Return the ranges of packed weights and zeros, scales, and group indices."""
    return {"qweight": _INT32, "qzeros": _INT32, "scales": _SCALE, "g_idx": index_range(first_size(specs, 2))}


def gptq_gemm_domain(specs: Specs, attributes: Attributes) -> Mapping[str, Interval]:
    """Return the ranges of dequantize_gptq, whose specs follow that of input."""
    return dequantize_gptq_domain(specs[1:], attributes)


def _gptq(
    rows: int, columns: int, groups: int, kind: str = "float16", *, group_of: bool = False, **options: Any
) -> Any:
    """Return a dequantize_gptq call with `rows` and `columns` of int32 weights, and g_idx if `group_of`."""
    shapes = {"qweight": [rows, columns * PACKED], "qzeros": [groups, columns], "scales": [groups, columns * PACKED]}
    dtypes = ["int32", "int32", kind]
    if group_of:
        shapes["g_idx"], dtypes = [rows * PACKED], [*dtypes, "int32"]
    return {"shapes": shapes, "dtypes": dtypes, **options}


def dequantize_gptq_samples() -> Iterator[Sample]:
    yield Sample(case_set="ordinary", case=_gptq(5, 3, 4), tier=Tier.SMOKE)
    bits = [[1 << 4 * i for i in range(7)] + [-(1 << 28)]]
    single_weights = {"qweight": data_fill(bits), "qzeros": "zeros"}
    ends = {"qweight": data_fill([[0, -1] * 4, [-1, 0] * 4]), "qzeros": data_fill([[-1], [0]])}
    for name in _SCALES:
        calls = [_gptq(5, 3, 4, name), _gptq(6, 5, 2, name, group_of=True), _gptq(3, 2, 24, name)]
        v2 = [{**case, "attributes": {"use_v2_format": True}} for case in calls]
        yield from variations("ordinary", [*calls, *v2])
        yield from in_every_layout(calls[:2])
        yield from in_layouts_at_once(calls[:2])
        sizes = [_gptq(n, 2, 4, name) for n in CALM_SIZES] + [_gptq(2, n, 2, name) for n in CALM_SIZES]
        yield from variations("sizes", sizes)
        yield from variations(
            "bits", [_gptq(1, 1, 1, name, generator=single_weights), _gptq(2, 1, 2, name, generator=ends)]
        )
        yield from variations("special", [_gptq(5, 3, 2, name, generator={"scales": "special"})])
    yield from variations("sizes", [_gptq(520, 17, 4), _gptq(1, 1, 1), _gptq(65, 1, 65), _gptq(1, 2, 8)])
    wrong = [{"scales": [3, 24], "qzeros": [3, 3]}, {"qzeros": [4, 4]}, {"scales": [4, 23]}, {"qweight": [5, 23]}]
    yield from _wrong_shape_samples(calls[0], wrong, "qweight")
    yield from _wrong_shape_samples(calls[1], [{"g_idx": [47]}], "qzeros")


def _wrong_shape_samples(ordinary: dict[str, Any], wrong: list[dict[str, Any]], integer: str) -> Iterator[Sample]:
    """Yield calls to refuse: `ordinary` with each mapping of `wrong` shapes, and with the input `integer` as int64."""
    yield from error_samples(*(reshaped(ordinary, **shapes) for shapes in wrong))
    dtypes = dict(zip(ordinary["shapes"], ordinary["dtypes"], strict=True))
    yield from error_samples({**ordinary, "dtypes": list({**dtypes, integer: "int64"}.values())})


def _gptq_gemm(
    rows: int, depth: int, columns: int, groups: int, kind: str = "float16", **options: Any
) -> dict[str, Any]:
    """Return a gptq_gemm call with `depth` and `columns` of int32 weights."""
    case = _gptq(depth, columns, groups, kind, **options)
    shapes = {"input": [rows, depth * PACKED], **case["shapes"]}
    return {**case, "shapes": shapes, "dtypes": [kind, *case["dtypes"]]}


def gptq_gemm_samples() -> Iterator[Sample]:
    yield Sample(case_set="ordinary", case=_gptq_gemm(3, 5, 3, 4), tier=Tier.SMOKE)
    for name in _SCALES:
        calls = [_gptq_gemm(3, 5, 3, 4, name), _gptq_gemm(17, 6, 5, 2, name, group_of=True)]
        calls += [_gptq_gemm(2, 128, 2, 8, name), _gptq_gemm(1, 3, 9, 24, name)]
        v2 = [{**case, "attributes": {"use_v2_format": True}} for case in calls]
        columns = [_gptq_gemm(3, 4, 1, 2, name), _gptq_gemm(2, 4, 1, 4, name)]
        yield from variations("ordinary", [*calls, *v2, *columns])
        yield from _gemm_samples(calls, lambda m, k, n, kind=name: _gptq_gemm(m, k, n, 1, kind))
    yield from variations("sizes", [_gptq_gemm(1025, 8, 1, 4), _gptq_gemm(33, 1, 17, 1)])
    wrong = [{"input": [3, 39]}, {"input": [40]}, {"qzeros": [4, 4]}, {"scales": [3, 24], "qzeros": [3, 3]}]
    yield from _wrong_shape_samples(calls[0], wrong, "qweight")
    yield from _wrong_shape_samples(calls[1], [{"g_idx": [47]}], "qzeros")


def _gemm_samples(calls: list[dict[str, Any]], sized: Any) -> Iterator[Sample]:
    """Yield the case sets of a product with packed weights; `sized(rows, depth, columns)` builds calls."""
    yield from in_every_layout(calls[:2])
    yield from in_layouts_at_once(calls[:2])
    for n in (0, 1, 7, 17, 65):
        yield from variations("sizes", [sized(n, 2, 1), sized(3, 2, n), *([sized(3, n, 1)] if n else [])])
    positive = {"input": {"fill": "uniform", "low": 0.5, "high": 1.5}}
    yield from variations("positive", [{**case, "generator": positive} for case in calls])
    large = {"input": {"fill": "uniform", "low": 50.0, "high": 150.0}, "scales": {"fill": "full", "value": 2.0**-4}}
    yield from variations("large", [{**calls[0], "generator": large}])
    yield from variations("special", [{**calls[0], "generator": {"input": "special"}}])


def _awq_gemm(rows: int, depth: int, columns: int, groups: int, kind: str = "float16") -> dict[str, Any]:
    """Return an awq_gemm call with `columns` of int32 weights."""
    shapes = {"input": [rows, depth], "qweight": [depth, columns], "scales": [groups, columns * PACKED]}
    return {"shapes": {**shapes, "qzeros": [groups, columns]}, "dtypes": [kind, "int32", kind, "int32"]}


def awq_gemm_samples() -> Iterator[Sample]:
    yield Sample(case_set="ordinary", case=_awq_gemm(3, 36, 3, 4), tier=Tier.SMOKE)
    for name in _SCALES:
        calls = [_awq_gemm(3, 36, 3, 4, name), _awq_gemm(17, 10, 5, 1, name), _awq_gemm(2, 1024, 2, 8, name)]
        yield from variations("ordinary", [*calls, _awq_gemm(1, 9, 9, 9, name), _awq_gemm(2, 8, 1, 4, name)])
        yield from _gemm_samples(calls, lambda m, k, n, kind=name: _awq_gemm(m, k, n, 1, kind))
    yield from variations("sizes", [_awq_gemm(1025, 65, 1, 5), _awq_gemm(33, 1, 17, 1)])
    wrong = [{"input": [3, 35]}, {"input": [36]}, {"qzeros": [4, 4]}, {"scales": [5, 24], "qzeros": [5, 3]}]
    yield from _wrong_shape_samples(calls[0], wrong, "qweight")
