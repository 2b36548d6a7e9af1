"""quantize, dequantize and per_token_quant_int8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, SIZES, call, data, full, normal, uniform
from optest.operators.describe import attribute, composed, exact, in_module, ulp
from optest.operators.samples import in_every_layout, in_layouts_at_once, refused, variations
from optest.operators.shapes import Attributes, Outputs, Specs, dense, given, normalize_dim, optional, require_float
from optest.spec import (
    DType,
    Interval,
    OperatorDescriptor,
    Sample,
    TensorSpec,
    Tier,
    UnfitArguments,
    dtype,
    format_shape,
)
from optest.spec.declared_shapes import fitted

_HALVES = ("float16", "bfloat16")
_SCALED = (("float32", "float32"), *((half, scale) for half in _HALVES for scale in ("float32", half)))
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "int4", "uint4")
"""What values are quantized to."""
_ZERO_POINTS = (*INTEGERS, "int64")
QUANTIZED = (*_SCALED, *((*pair, zero_point) for pair in _SCALED for zero_point in _ZERO_POINTS))
DEQUANTIZED = tuple(
    variant
    for name in INTEGERS
    for scale in ("float32", *_HALVES)
    for variant in ((name, scale), *((name, scale, each) for each in dict.fromkeys((name, "int32", "int64"))))
)
_AXIS = attribute("axis|dim: int = 1", "Dimension that several scales are for.")

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="quantize",
        aliases=("QuantizeLinear: x, y_scale, y_zero_point? -> y", "quantize_per_tensor", "quantize_per_channel"),
        attributes=(
            _AXIS,
            attribute(
                "dtype|output_dtype: dtype = None",
                "Dtype of the result; without one that of zero_point, without that uint8.",
                choices=INTEGERS,
            ),
            attribute("quant_min: int = None", "Smallest result; that of the dtype."),
            attribute("quant_max: int = None", "Largest result; that of the dtype."),
        ),
        dtype_variants=QUANTIZED,
        alternatives="quantize_alternatives",
        domain="quantize_domain",
        generator={"scale": "uniform", "zero_point": "randint"},
        rule=exact(
            "definition of ONNX QuantizeLinear; OpenCL C 3.0 §7.4 for the quotient",
            "or every integer that a quotient within 3 ulp of float32 rounds to (by division, or by the inverse "
            "of the scale), or one that is rounded to the dtype of a scale of 16 bits; at an exact tie only the "
            "even one",
        ),
        description="round(input / scale) with ties to even, plus zero_point, saturated. One scale, 0-d or of one "
        "element, for the tensor, or one for each index along axis. Results are plain integers.",
    ),
    OperatorDescriptor(
        name="dequantize",
        aliases=("DequantizeLinear: x, x_scale, x_zero_point? -> y",),
        attributes=(
            _AXIS,
            attribute(
                "dtype|output_dtype: dtype = None",
                "Dtype of the result; without one that of scale.",
                choices=("float32", *_HALVES),
            ),
        ),
        dtype_variants=DEQUANTIZED,
        terms="dequantize_terms",
        domain="dequantize_domain",
        generator={"input": "randint", "scale": "uniform", "zero_point": "randint"},
        rule=ulp(
            0.5,
            "one product, correctly rounded: IEEE 754-2019 §5.4.1",
            "integers beyond 24 bits: |input| + |zero_point| + |input − zero_point|, each times scale, more",
        ),
        description="(input − zero_point) · scale, for the tensor or for each index along axis, as quantize has them.",
    ),
    OperatorDescriptor(
        name="per_token_quant_int8",
        signature="input -> out, scale",
        attributes=(attribute("eps: float = 1e-10", "The least maximum; with 0, a row of zeros has the scale 0."),),
        dtype_variants=tuple((name,) for name in MAIN_FLOATS),
        alternatives="per_token_quant_int8_alternatives",
        may_refuse="per_token_quant_int8_may_be_refused",
        rule=composed("|scale|·5; either integer where the quotient, which is off by 11·|q|, is half-way between two"),
        description="Each row divided by scale = max(|x|, eps) / 127 and rounded to the nearest int8: dynamic "
        "symmetric quantisation, as SGLang's kernel of this name and, with eps=0, vLLM's scaled_int8_quant. scale is "
        "float32, with one column.",
    ),
    signature="input, scale, zero_point? -> out",
)

_WIDE_ZERO_POINTS = ("int32", "int64")
"""What torch keeps zero points in, whatever the dtype of the quantized values."""
_LARGEST_ZERO_POINT = 1024.0


def infer_quantize(specs: Specs, attributes: Attributes) -> Outputs:
    spec, scale = given(specs, 0, "input"), given(specs, 1, "scale")
    require_float(spec, "input")
    result = _result(specs, attributes)
    quantized_range(result, attributes)
    _require_parameters(spec, scale, optional(specs, 2), result, attributes)
    return (dense(result, spec.shape),)


def infer_dequantize(specs: Specs, attributes: Attributes) -> Outputs:
    spec, scale = given(specs, 0, "input"), given(specs, 1, "scale")
    if spec.dtype.name not in INTEGERS:
        raise UnfitArguments(f"input is {spec.dtype}, but should be one of {', '.join(INTEGERS)}")
    _require_parameters(spec, scale, optional(specs, 2), spec.dtype, attributes)
    return (dense(dtype(attributes.get("dtype") or scale.dtype), spec.shape),)


def _result(specs: Specs, attributes: Attributes) -> DType:
    """The stated dtype, else that of the zero point, else uint8: as in ONNX."""
    zero_point, stated = optional(specs, 2), attributes.get("dtype")
    if stated is not None:
        return dtype(stated)
    if zero_point is None:
        return dtype("uint8")
    if zero_point.dtype.name not in INTEGERS:
        raise UnfitArguments(f"zero_point is {zero_point.dtype}, which is no result; state the attribute dtype")
    return zero_point.dtype


def _require_parameters(
    spec: TensorSpec, scale: TensorSpec, zero_point: TensorSpec | None, quantized: DType, attributes: Attributes
) -> None:
    require_float(scale, "scale")
    channel_dim(spec, scale, attributes)
    if zero_point is None:
        return
    if zero_point.dtype.name not in (quantized.name, *_WIDE_ZERO_POINTS):
        raise UnfitArguments(f"zero_point is {zero_point.dtype}, but should be {quantized} or int32 or int64")
    if zero_point.elements != scale.elements or zero_point.rank > 1:
        raise UnfitArguments(
            f"zero_point is {format_shape(zero_point.shape)}, but should be {format_shape(scale.shape)}, as scale"
        )


def channel_dim(spec: TensorSpec, scale: TensorSpec, attributes: Attributes) -> int | None:
    """The dimension that has a scale for each index; None where one scale, 0-d or of one element, serves all.

    Raises:
        UnfitArguments: unless scale has one entry, or as many as the input has along ``axis``.
    """
    if scale.rank > 1:
        raise UnfitArguments(f"scale is {format_shape(scale.shape)}, but should be a scalar or have one dimension")
    if scale.elements == 1:
        return None
    dim = normalize_dim(attributes.get("axis", 1), spec.rank, "axis")
    if not spec.rank or spec.shape[dim] != scale.shape[0]:
        size = spec.shape[dim] if spec.rank else 1
        raise UnfitArguments(f"scale has {scale.shape[0]} entries, but should have 1, or {size} for dimension {dim}")
    return dim


def quantized_range(result: DType, attributes: Attributes) -> tuple[int, int]:
    """The smallest and the largest quantized value.

    Raises:
        UnfitArguments: if they are not in order or not in the range of the dtype.
    """
    low, high = attributes.get("quant_min"), attributes.get("quant_max")
    low, high = result.min_int if low is None else low, result.max_int if high is None else high
    if not result.min_int <= low <= high <= result.max_int:
        raise UnfitArguments(
            f"quant_min and quant_max are {low} and {high}, but should be in order and in the range of {result}, "
            f"{result.min_int} to {result.max_int}"
        )
    return low, high


def quantize_domain(specs: Specs, attributes: Attributes) -> Mapping[str, Interval]:
    """Scales that take normal values beyond 8 bits now and then, and zero points in the middle of the range."""
    scale = Interval(low=1 / 64, high=1 / 4)
    zero_point, stated = optional(specs, 2), attributes.get("dtype")
    result = dtype(stated) if stated is not None else zero_point.dtype if zero_point is not None else dtype("uint8")
    if not result.is_integer:
        return {"scale": scale}
    middle = (result.min_int + result.max_int + 1) // 2
    reach = min((result.max_int - result.min_int) // 4, int(_LARGEST_ZERO_POINT))
    return {"scale": scale, "zero_point": Interval(low=float(middle - reach), high=float(middle + reach))}


def dequantize_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """Zero points over the whole range of a narrow dtype, so that the difference needs more bits than it has."""
    spec = specs[0]
    scale = Interval(low=2.0**-10, high=1.0)
    if spec is None or not spec.dtype.is_integer:
        return {"scale": scale}
    low = max(float(spec.dtype.min_int), -_LARGEST_ZERO_POINT)
    return {"scale": scale, "zero_point": Interval(low=low, high=min(float(spec.dtype.max_int), _LARGEST_ZERO_POINT))}


Names = tuple[str, str, str]
"""Dtypes of input, scale and zero point."""


def _by_tensor(
    names: Names, shape: tuple[int, ...] = (5, 37), generator: Any = None, **attributes: Any
) -> dict[str, Any]:
    """One scale and one zero point for the tensor."""
    return call(attributes, dtypes=names, generator=generator, input=shape, scale=(), zero_point=())


def _by_channel(
    names: Names, shape: tuple[int, ...], size: int, generator: Any = None, **attributes: Any
) -> dict[str, Any]:
    """A scale and a zero point for each index of an axis, which is dimension 1 if none is stated."""
    return call(attributes, dtypes=names, generator=generator, input=shape, scale=(size,), zero_point=(size,))


def _either(names: Names, shape: tuple[int, ...], size: int) -> Iterator[dict[str, Any]]:
    yield _by_tensor(names, shape)
    yield _by_channel(names, shape, size)


def _every_axis(names: Names) -> Iterator[dict[str, Any]]:
    yield from (_by_channel(names, (5, 5, 5), 5, axis=axis) for axis in (0, 1, 2, -1, -2, -3))


def _few_channels(names: Names) -> Iterator[dict[str, Any]]:
    yield _by_channel(names, (9,), 9, axis=0)
    yield _by_channel(names, (7, 9), 1, axis=1)
    yield _by_channel(names, (2, 9, 1), 9, axis=1)


def _no_channels(names: Names) -> Iterator[dict[str, Any]]:
    yield _by_tensor(names, ())
    yield _by_channel(names, (0, 4), 4)


def _refused(names: Names, *, stated: tuple[str, ...]) -> Iterator[Sample]:
    """``stated`` are the dtypes of calls without a zero point."""
    shapes: tuple[tuple[int, tuple[int, ...], int], ...] = ((1, (3, 4), 3), (2, (3, 4), 4), (0, (1, 4), 3))
    calls = [call({"axis": axis}, dtypes=stated, input=shape, scale=(size,)) for axis, shape, size in shapes]
    yield from refused(*calls, call(dtypes=names, input=(3, 4), scale=(4,), zero_point=(3,)))


def _deep_and_large(deep: Names, names: Names) -> Iterator[Sample]:
    for axis in (1, 3):
        yield from variations("attributes", [_by_channel(deep, (2, 3, 5, 3), 3, axis=axis)])
    yield from variations("sizes", [_by_channel(names, (17, 4099), 17, axis=0)])
    yield from variations("sizes", [_by_channel(names, (257, 4099), 4099)], tier=Tier.FULL)


def quantize_samples() -> Iterator[Sample]:
    names = ("float32", "float32", "int8")
    yield Sample(case_set="ordinary", case=_by_tensor(names), tier=Tier.SMOKE)
    for source in MAIN_FLOATS:
        for zero_point in ("int8", "uint8"):
            each = (source, "float32", zero_point)
            yield from variations("ordinary", [*_either(each, (5, 37), 37), *_either(each, (3, 4, 33), 4)])
    for variant in QUANTIZED:
        stated = {"dtype": "int8"} if variant[-1] == "int64" else {}
        yield Sample(case_set="dtypes", case=_of_variant(variant, stated))
    for result in INTEGERS:
        kinds = ("float32", "float32", "int32")
        yield Sample(case_set="dtypes", case=call({"dtype": result}, dtypes=kinds[:2], input=(4, 9), scale=()))
        yield Sample(case_set="dtypes", case=_by_tensor(kinds, (4, 9), dtype=result))
    yield from in_every_layout([_by_channel(names, (5, 7), 5, axis=0)])
    for n in SIZES:
        yield from variations("sizes", _either(("float32", "float32", "uint8"), (3, n), n))
    attributes = [*_every_axis(names), *_few_channels(names), _by_tensor(names, (7,), axis=5), *_no_channels(names)]
    attributes.append(call({"dtype": "int8"}, input=(5, 37), scale=()))
    for low, high in ((-127, 127), (-8, 7), (0, 15)):
        attributes.append(_by_tensor(("float32", "float32", "int32"), quant_min=low, quant_max=high, dtype="int8"))
    yield from variations("attributes", attributes)
    # Quotients that are multiples of a half, with even and odd zero points: added before, they would move the tie.
    for source in MAIN_FLOATS:
        for zero_point, value in (("int8", 0), ("int8", 3), ("int8", -1), ("uint8", 129), ("uint8", 128), ("int32", 7)):
            halves_apart = {"fill": "arange", "start": -30, "step": 0.25}
            fills = {"input": halves_apart, "scale": full(0.5), "zero_point": full(value)}
            yield from variations("ties", [_by_tensor((source, "float32", zero_point), (5, 48), fills)])
    channels = {
        "input": {"fill": "arange", "start": -16, "step": 0.125},
        "scale": data([0.25, 0.5, 1.0, 2.0]),
        "zero_point": full(5),
    }
    yield from variations("ties", [_by_channel(names, (4, 64), 4, channels, axis=0)])
    # Far beyond the range on both sides, so that whatever wraps or stops at the wrong number shows.
    for result, reach in (("int8", 40.0), ("uint8", 80.0), ("int16", 1e4), ("uint16", 2e4), ("int32", 1e10)):
        fills = {"input": uniform(-reach, reach), "scale": full(1 / 16 if reach < 1e9 else 1.0)}
        yield from variations("saturation", [_by_tensor(("float32", "float32", result), generator=fills)])
    for result in ("int8", "uint8", "int32"):
        fills = {"input": {"fill": "data", "values": [1e30, -1e30, 3e38, -3e38, 1e12, "inf", "-inf", -2e9]}}
        yield from variations("saturation", [_by_tensor(("float32", "float32", result), (8,), fills)])
    yield from _refused(names, stated=())
    halves = ("float16", "float32", "int8")
    yield from in_layouts_at_once([_by_channel(halves, (5, 7), 5, axis=0)])
    yield from _deep_and_large(halves, names)
    for low, high in ((0, 15), (-8, 0)):
        limits = {"quant_min": low, "quant_max": high, "dtype": "int8"}
        fills = {"input": uniform(-12.0, 12.0), "scale": full(0.5)}
        bounded = call(limits, dtypes=("float32", "float32"), generator=fills, input=(5, 37), scale=())
        yield from variations("attributes", [bounded])
    fills = {"input": {"fill": "arange", "start": -12.0, "step": 1 / 64}, "scale": full(0.1)}
    yield from variations("attributes", [_by_tensor(("float16", "float16", "int8"), (16, 97), fills)])


def _of_variant(variant: tuple[str, ...], attributes: Mapping[str, Any], generator: Any = None) -> dict[str, Any]:
    shapes: dict[str, Any] = {"input": (4, 9), "scale": (9,), "zero_point": (9,)}
    stated = dict(list(shapes.items())[: len(variant)])
    return call(attributes, dtypes=variant, generator=generator, **stated)


def dequantize_samples() -> Iterator[Sample]:
    names = ("int8", "float32", "int8")
    for name, scale in (("float32", 2.0**-132), ("float16", 2.0**-20)):
        # Products below the smallest normal number, which are not 0.
        small = _by_tensor(("int8", name, "int8"), generator={"scale": full(scale), "zero_point": full(3)})
        yield from variations("attributes", [small])
    yield Sample(case_set="ordinary", case=_by_tensor(names), tier=Tier.SMOKE)
    for name in ("int8", "uint8", "int32"):
        each = (name, "float32", name)
        yield from variations("ordinary", [*_either(each, (5, 37), 37), *_either(each, (3, 4, 33), 4)])
    for variant in DEQUANTIZED:
        fills = {"input": "randn"}  # of every number of bits, so that some products are in the range of float16
        yield Sample(case_set="dtypes", case=_of_variant(variant, {}, fills))
    yield from in_every_layout([_by_channel(names, (5, 7), 5, axis=0)])
    for n in SIZES:
        yield from variations("sizes", _either(("uint8", "float32", "uint8"), (3, n), n))
    attributes = [*_every_axis(names)]
    for result in MAIN_FLOATS:
        attributes.append(_by_channel(names, (5, 37), 37, dtype=result))
        attributes.append(call({"dtype": result}, dtypes=("uint8", "float32"), input=(5, 37), scale=()))
    yield from variations("attributes", [*attributes, *_few_channels(names), *_no_channels(names)])
    # The ends of the range against the other end as zero point: the difference has more bits than the dtype.
    for name, low, high in (("int8", -128, 127), ("uint8", 0, 255), ("int16", -(2**15), 2**15 - 1), ("uint4", 0, 15)):
        for zero_point in (low, high):
            ends = {"input": {"fill": "data", "values": [low, high, 0, 1]}, "zero_point": full(zero_point)}
            yield from variations("extremes", [_by_tensor((name, "float32", name), (4,), ends)])
    large = {"input": {"fill": "data", "values": [-(2**31), 2**31 - 1, 2**24 + 1, 16777219]}, "scale": full(0.1)}
    yield from variations("extremes", [call(dtypes=("int32", "float32"), generator=large, input=(4,), scale=())])
    beyond = {"input": {"fill": "data", "values": [2049, 70_001, -70_001, 4097]}, "scale": full(2.0**-8)}
    yield from variations("extremes", [call(dtypes=("int32", "float16"), generator=beyond, input=(4,), scale=())])
    yield from _refused(names, stated=("int8", "float32"))
    for stated in ({}, {"dtype": "float16"}):
        yield from in_layouts_at_once([_by_channel(names, (5, 7), 5, axis=0, **stated)])
    yield from _deep_and_large(names, names)
    beyond = {"input": {"fill": "data", "values": [70_001, 70_003, -1, 0]}, "zero_point": full(70_000)}
    yield from variations("extremes", [_by_tensor(("int32", "float32", "int64"), (4,), beyond)])
    wide = _by_tensor(("int8", "float16", "int8"), dtype="float32")
    yield from variations("attributes", [wide], tier=Tier.FULL)


def infer_per_token_quant_int8(specs: Specs, _attributes: Attributes) -> Outputs:
    return fitted(specs, "input: [*rows, n] -> I[*rows, n], S[*rows, 1]", I=dtype("int8"), S=dtype("float32"))[1]


def _rows(*shape: int, generator: Any = None, **attributes: Any) -> dict[str, Any]:
    return call(attributes, generator=generator, input=shape)


def per_token_quant_int8_samples() -> Iterator[Sample]:
    calls = [_rows(5, 48), _rows(3, 37), _rows(2, 3, 130), _rows(4, 64, eps=0.0)]
    yield Sample(case_set="ordinary", case=calls[0], tier=Tier.SMOKE)
    yield from variations("ordinary", calls, dtypes=MAIN_FLOATS)
    yield from in_every_layout(calls[:2])
    for name in MAIN_FLOATS:
        yield from in_layouts_at_once(calls[1:3], dtype=name)
    yield from variations("sizes", [_rows(3, n) for n in SIZES], dtypes=MAIN_FLOATS)
    rows = [_rows(n, 17) for n in (0, 1, 33, 129, LARGE_SIZE)] + [_rows(2, 1, 2, 1, 2, 5)]
    yield from variations("sizes", [*rows, _rows(37), _rows(1, 1), _rows(2, 4099), _rows(0, 3, 0)])
    # Rows of zeros between others; the largest magnitude is negative, first and last, and far above the rest.
    edges = [[0.0] * 4, [1.0, -2.0, 0.5, 0.25], [0.0] * 4, [-8.0, 1.0, 2.0, 3.0], [0.125, 0.5, 0.75, -100.0]]
    drawn: list[Any] = [full(-3.5), normal(0.0, 1e-6), normal(0.0, 300.0), uniform(-9.0, -1.0), normal(9.0, 1.0)]
    for eps in (0.0, 1e-10):
        yield from variations("special", [_rows(5, 4, generator=data(edges), eps=eps)], dtypes=MAIN_FLOATS)
        several = [_rows(4, 48, generator=fill, eps=eps) for fill in ("zeros", *drawn)]
        yield from variations("special", several, dtypes=MAIN_FLOATS)
    yield from variations("epsilon", [_rows(4, 48, eps=each) for each in (8.0, 1e-4)], dtypes=MAIN_FLOATS)
    yield from refused(call(input=()))
