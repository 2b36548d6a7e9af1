"""The operators quantize, dequantize and per_token_quant_int8: descriptors, shape inference and samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from optest.operators.calls import LARGE_SIZE, MAIN_FLOATS, SIZES, call, data_fill, full, normal, uniform
from optest.operators.describe import attribute, composed, exact, in_module, ulp
from optest.operators.samples import error_samples, in_every_layout, in_layouts_at_once, variations
from optest.operators.shapes import (
    Attributes,
    Outputs,
    Specs,
    dense,
    normalize_dim,
    optional_spec,
    require_float,
    require_spec,
)
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
from optest.spec.declared_shapes import match_declaration

_HALVES = ("float16", "bfloat16")
_SCALED = (("float32", "float32"), *((half, scale) for half in _HALVES for scale in ("float32", half)))
# Dtypes of quantized values.
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "int4", "uint4")
_ZERO_POINTS = (*INTEGERS, "int64")
QUANTIZED = (*_SCALED, *((*pair, zero_point) for pair in _SCALED for zero_point in _ZERO_POINTS))
DEQUANTIZED = tuple(
    variant
    for name in INTEGERS
    for scale in ("float32", *_HALVES)
    for variant in ((name, scale), *((name, scale, zero) for zero in dict.fromkeys((name, "int32", "int64"))))
)
_AXIS = attribute("axis|dim: int = 1", "Dimension with one scale per index, if there are several scales.")

DESCRIPTORS = in_module(
    __name__,
    OperatorDescriptor(
        name="quantize",
        aliases=("QuantizeLinear: x, y_scale, y_zero_point? -> y", "quantize_per_tensor", "quantize_per_channel"),
        attributes=(
            _AXIS,
            attribute(
                "dtype|output_dtype: dtype = None",
                "Dtype of the output; None is that of zero_point, or uint8 without zero_point.",
                choices=INTEGERS,
            ),
            attribute("quant_min: int = None", "Smallest output; None is that of the dtype."),
            attribute("quant_max: int = None", "Largest output; None is that of the dtype."),
        ),
        dtype_variants=QUANTIZED,
        alternatives="quantize_alternatives",
        domain="quantize_domain",
        generator={"scale": "uniform", "zero_point": "randint"},
        rule=exact(
            "definition of ONNX QuantizeLinear; OpenCL C 3.0 §7.4 for the quotient",
            "any integer to which a quotient within 3 ulp of float32 rounds (by division, or by the inverse of the "
            "scale), or a quotient rounded to the dtype of a 16-bit scale; at an exact tie only the even one",
        ),
        description="round(input / scale) with ties to even, plus zero_point, saturated. One scale (0-d or of one "
        "element) for the tensor, or one per index along axis. Outputs are plain integers.",
    ),
    OperatorDescriptor(
        name="dequantize",
        aliases=("DequantizeLinear: x, x_scale, x_zero_point? -> y",),
        attributes=(
            _AXIS,
            attribute(
                "dtype|output_dtype: dtype = None",
                "Dtype of the output; None is that of scale.",
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
            "integers beyond 24 bits add |input| + |zero_point| + |input − zero_point|, each times scale",
        ),
        description="(input − zero_point) · scale, with parameters for the tensor or per index along axis, as in "
        "quantize.",
    ),
    OperatorDescriptor(
        name="per_token_quant_int8",
        signature="input -> out, scale",
        attributes=(
            attribute(
                "eps: float = 1e-10", "Lower limit of the maximum of a row; with 0, a row of zeros has the scale 0."
            ),
        ),
        dtype_variants=tuple((name,) for name in MAIN_FLOATS),
        alternatives="per_token_quant_int8_alternatives",
        may_refuse="per_token_quant_int8_may_be_refused",
        rule=composed("|scale|·5; either integer if the quotient, which is off by 11·|q|, is half-way between two"),
        description="Each row divided by scale = max(|x|, eps) / 127 and rounded to the nearest int8: dynamic "
        "symmetric quantisation, as in SGLang's kernel of this name and, with eps=0, vLLM's scaled_int8_quant. scale "
        "is float32, with one column.",
    ),
    signature="input, scale, zero_point? -> out",
)

# Dtypes in which torch stores zero points for every dtype of quantized values.
_WIDE_ZERO_POINTS = ("int32", "int64")
# Limit of generated zero points for dtypes of 16 bits and more.
_LARGEST_ZERO_POINT = 1024.0


def infer_quantize(specs: Specs, attributes: Attributes) -> Outputs:
    spec, scale = require_spec(specs, 0, "input"), require_spec(specs, 1, "scale")
    require_float(spec, "input")
    result = _output_dtype(specs, attributes)
    quantized_range(result, attributes)
    _require_parameters(spec, scale, optional_spec(specs, 2), result, attributes)
    return (dense(result, spec.shape),)


def infer_dequantize(specs: Specs, attributes: Attributes) -> Outputs:
    spec, scale = require_spec(specs, 0, "input"), require_spec(specs, 1, "scale")
    if spec.dtype.name not in INTEGERS:
        raise UnfitArguments(f"input is {spec.dtype}, expected one of {', '.join(INTEGERS)}")
    _require_parameters(spec, scale, optional_spec(specs, 2), spec.dtype, attributes)
    return (dense(dtype(attributes.get("dtype") or scale.dtype), spec.shape),)


def _output_dtype(specs: Specs, attributes: Attributes) -> DType:
    """Return the dtype of the output: the attribute dtype, else that of zero_point, else uint8, as in ONNX."""
    zero_point, name = optional_spec(specs, 2), attributes.get("dtype")
    if name is not None:
        return dtype(name)
    if zero_point is None:
        return dtype("uint8")
    if zero_point.dtype.name not in INTEGERS:
        raise UnfitArguments(f"zero_point is {zero_point.dtype}, which no output can have; set the attribute dtype")
    return zero_point.dtype


def _require_parameters(
    spec: TensorSpec, scale: TensorSpec, zero_point: TensorSpec | None, quantized: DType, attributes: Attributes
) -> None:
    """Raise UnfitArguments unless scale and zero_point fit the tensor, the quantized dtype and each other."""
    require_float(scale, "scale")
    channel_dim(spec, scale, attributes)
    if zero_point is None:
        return
    if zero_point.dtype.name not in (quantized.name, *_WIDE_ZERO_POINTS):
        raise UnfitArguments(f"zero_point is {zero_point.dtype}, expected {quantized}, int32 or int64")
    if zero_point.elements != scale.elements or zero_point.rank > 1:
        raise UnfitArguments(
            f"zero_point is {format_shape(zero_point.shape)}, expected {format_shape(scale.shape)}, as scale"
        )


def channel_dim(spec: TensorSpec, scale: TensorSpec, attributes: Attributes) -> int | None:
    """Return the dimension with one scale per index; None if one scale (0-d or of one element) is for all.

    Raises:
        UnfitArguments: unless scale has one entry, or as many as input has along axis.
    """
    if scale.rank > 1:
        raise UnfitArguments(f"scale is {format_shape(scale.shape)}, expected a scalar or 1 dimension")
    if scale.elements == 1:
        return None
    dim = normalize_dim(attributes.get("axis", 1), spec.rank, "axis")
    if not spec.rank or spec.shape[dim] != scale.shape[0]:
        size = spec.shape[dim] if spec.rank else 1
        raise UnfitArguments(f"scale has {scale.shape[0]} entries, expected 1, or {size} for dimension {dim}")
    return dim


def quantized_range(result: DType, attributes: Attributes) -> tuple[int, int]:
    """Return the smallest and the largest quantized value.

    Raises:
        UnfitArguments: if they are not in order or not in the range of the dtype.
    """
    low, high = attributes.get("quant_min"), attributes.get("quant_max")
    low, high = result.min_int if low is None else low, result.max_int if high is None else high
    if not result.min_int <= low <= high <= result.max_int:
        raise UnfitArguments(
            f"quant_min and quant_max are {low} and {high}, expected to be in order and in the range of {result}, "
            f"{result.min_int} to {result.max_int}"
        )
    return low, high


def quantize_domain(specs: Specs, attributes: Attributes) -> Mapping[str, Interval]:
    """Return ranges of scales, and of zero points in the middle of the output's range."""
    # Normal values divided by these scales exceed 8 bits now and then.
    scale = Interval(low=1 / 64, high=1 / 4)
    zero_point, name = optional_spec(specs, 2), attributes.get("dtype")
    result = dtype(name) if name is not None else zero_point.dtype if zero_point is not None else dtype("uint8")
    if not result.is_integer:
        return {"scale": scale}
    middle = (result.min_int + result.max_int + 1) // 2
    reach = min((result.max_int - result.min_int) // 4, int(_LARGEST_ZERO_POINT))
    return {"scale": scale, "zero_point": Interval(low=float(middle - reach), high=float(middle + reach))}


def dequantize_domain(specs: Specs, _attributes: Attributes) -> Mapping[str, Interval]:
    """Return ranges of scales, and of zero points over the whole range of a narrow dtype."""
    spec = specs[0]
    scale = Interval(low=2.0**-10, high=1.0)
    if spec is None or not spec.dtype.is_integer:
        return {"scale": scale}
    # The difference from the input then needs more bits than the dtype has.
    low = max(float(spec.dtype.min_int), -_LARGEST_ZERO_POINT)
    return {"scale": scale, "zero_point": Interval(low=low, high=min(float(spec.dtype.max_int), _LARGEST_ZERO_POINT))}


# Dtypes of input, scale and zero point.
Names = tuple[str, str, str]


def _tensorwise(
    names: Names, shape: tuple[int, ...] = (5, 37), generator: Any = None, **attributes: Any
) -> dict[str, Any]:
    """Return a call with one scale and one zero point."""
    return call(attributes, dtypes=names, generator=generator, input=shape, scale=(), zero_point=())


def _channelwise(
    names: Names, shape: tuple[int, ...], size: int, generator: Any = None, **attributes: Any
) -> dict[str, Any]:
    """Return a call with `size` scales and zero points, for axis 1 unless set in `attributes`."""
    return call(attributes, dtypes=names, generator=generator, input=shape, scale=(size,), zero_point=(size,))


def _with_either_scale(names: Names, shape: tuple[int, ...], size: int) -> Iterator[dict[str, Any]]:
    """Yield the call with one scale, and with one per channel."""
    yield _tensorwise(names, shape)
    yield _channelwise(names, shape, size)


def _every_axis(names: Names) -> Iterator[dict[str, Any]]:
    """Yield calls along each axis, from either end."""
    yield from (_channelwise(names, (5, 5, 5), 5, axis=axis) for axis in (0, 1, 2, -1, -2, -3))


def _few_channels(names: Names) -> Iterator[dict[str, Any]]:
    """Yield calls with one dimension, with one channel, and with a last dimension of 1."""
    yield _channelwise(names, (9,), 9, axis=0)
    yield _channelwise(names, (7, 9), 1, axis=1)
    yield _channelwise(names, (2, 9, 1), 9, axis=1)


def _no_channels(names: Names) -> Iterator[dict[str, Any]]:
    """Yield a scalar call, and one without elements."""
    yield _tensorwise(names, ())
    yield _channelwise(names, (0, 4), 4)


def _wrong_parameter_samples(names: Names, *, without_zero_point: tuple[str, ...]) -> Iterator[Sample]:
    """Yield calls with scales or zero points of wrong sizes; `without_zero_point` are dtypes of input and scale."""
    shapes: tuple[tuple[int, tuple[int, ...], int], ...] = ((1, (3, 4), 3), (2, (3, 4), 4), (0, (1, 4), 3))
    calls = [
        call({"axis": axis}, dtypes=without_zero_point, input=shape, scale=(size,)) for axis, shape, size in shapes
    ]
    yield from error_samples(*calls, call(dtypes=names, input=(3, 4), scale=(4,), zero_point=(3,)))


def _deep_and_large(deep: Names, names: Names) -> Iterator[Sample]:
    """Yield calls with 4 dimensions, and with many elements."""
    for axis in (1, 3):
        yield from variations("attributes", [_channelwise(deep, (2, 3, 5, 3), 3, axis=axis)])
    yield from variations("sizes", [_channelwise(names, (17, 4099), 17, axis=0)])
    yield from variations("sizes", [_channelwise(names, (257, 4099), 4099)], tier=Tier.FULL)


def quantize_samples() -> Iterator[Sample]:
    names = ("float32", "float32", "int8")
    yield Sample(case_set="ordinary", case=_tensorwise(names), tier=Tier.SMOKE)
    for source in MAIN_FLOATS:
        for zero_point in ("int8", "uint8"):
            dtypes = (source, "float32", zero_point)
            yield from variations(
                "ordinary", [*_with_either_scale(dtypes, (5, 37), 37), *_with_either_scale(dtypes, (3, 4, 33), 4)]
            )
    for variant in QUANTIZED:
        attributes = {"dtype": "int8"} if variant[-1] == "int64" else {}  # int64 is no output dtype
        yield Sample(case_set="dtypes", case=_variant_call(variant, attributes))
    for result in INTEGERS:
        kinds = ("float32", "float32", "int32")
        yield Sample(case_set="dtypes", case=call({"dtype": result}, dtypes=kinds[:2], input=(4, 9), scale=()))
        yield Sample(case_set="dtypes", case=_tensorwise(kinds, (4, 9), dtype=result))
    yield from in_every_layout([_channelwise(names, (5, 7), 5, axis=0)])
    for n in SIZES:
        yield from variations("sizes", _with_either_scale(("float32", "float32", "uint8"), (3, n), n))
    calls = [*_every_axis(names), *_few_channels(names), _tensorwise(names, (7,), axis=5), *_no_channels(names)]
    calls.append(call({"dtype": "int8"}, input=(5, 37), scale=()))
    for low, high in ((-127, 127), (-8, 7), (0, 15)):
        calls.append(_tensorwise(("float32", "float32", "int32"), quant_min=low, quant_max=high, dtype="int8"))
    yield from variations("attributes", calls)
    # Quotients that are multiples of 1/2. An odd zero point that is added before rounding changes the even neighbour.
    for source in MAIN_FLOATS:
        for zero_point, value in (("int8", 0), ("int8", 3), ("int8", -1), ("uint8", 129), ("uint8", 128), ("int32", 7)):
            halves_apart = {"fill": "arange", "start": -30, "step": 0.25}
            fills = {"input": halves_apart, "scale": full(0.5), "zero_point": full(value)}
            yield from variations("ties", [_tensorwise((source, "float32", zero_point), (5, 48), fills)])
    # Each channel has its own distance between ties.
    channels = {
        "input": {"fill": "arange", "start": -16, "step": 0.125},
        "scale": data_fill([0.25, 0.5, 1.0, 2.0]),
        "zero_point": full(5),
    }
    yield from variations("ties", [_channelwise(names, (4, 64), 4, channels, axis=0)])
    # Far beyond the range on both sides, so that wrapping and wrong limits are visible.
    for result, reach in (("int8", 40.0), ("uint8", 80.0), ("int16", 1e4), ("uint16", 2e4), ("int32", 1e10)):
        fills = {"input": uniform(-reach, reach), "scale": full(1 / 16 if reach < 1e9 else 1.0)}
        yield from variations("saturation", [_tensorwise(("float32", "float32", result), generator=fills)])
    for result in ("int8", "uint8", "int32"):
        fills = {"input": {"fill": "data", "values": [1e30, -1e30, 3e38, -3e38, 1e12, "inf", "-inf", -2e9]}}
        yield from variations("saturation", [_tensorwise(("float32", "float32", result), (8,), fills)])
    yield from _wrong_parameter_samples(names, without_zero_point=())
    halves = ("float16", "float32", "int8")
    yield from in_layouts_at_once([_channelwise(halves, (5, 7), 5, axis=0)])
    yield from _deep_and_large(halves, names)
    for low, high in ((0, 15), (-8, 0)):
        limits = {"quant_min": low, "quant_max": high, "dtype": "int8"}
        fills = {"input": uniform(-12.0, 12.0), "scale": full(0.5)}
        bounded = call(limits, dtypes=("float32", "float32"), generator=fills, input=(5, 37), scale=())
        yield from variations("attributes", [bounded])
    fills = {"input": {"fill": "arange", "start": -12.0, "step": 1 / 64}, "scale": full(0.1)}
    yield from variations("attributes", [_tensorwise(("float16", "float16", "int8"), (16, 97), fills)])


def _variant_call(variant: tuple[str, ...], attributes: Mapping[str, Any], generator: Any = None) -> dict[str, Any]:
    """Return a per-channel call with the dtypes `variant`, without a zero point if there are two."""
    shapes: dict[str, Any] = {"input": (4, 9), "scale": (9,), "zero_point": (9,)}
    return call(attributes, dtypes=variant, generator=generator, **dict(list(shapes.items())[: len(variant)]))


def dequantize_samples() -> Iterator[Sample]:
    names = ("int8", "float32", "int8")
    for name, scale in (("float32", 2.0**-132), ("float16", 2.0**-20)):
        # Subnormal products, which must not be flushed to 0.
        small = _tensorwise(("int8", name, "int8"), generator={"scale": full(scale), "zero_point": full(3)})
        yield from variations("attributes", [small])
    yield Sample(case_set="ordinary", case=_tensorwise(names), tier=Tier.SMOKE)
    for name in ("int8", "uint8", "int32"):
        dtypes = (name, "float32", name)
        yield from variations(
            "ordinary", [*_with_either_scale(dtypes, (5, 37), 37), *_with_either_scale(dtypes, (3, 4, 33), 4)]
        )
    for variant in DEQUANTIZED:
        fills = {"input": "randn"}  # small integers, too, so that some products are in the range of float16
        yield Sample(case_set="dtypes", case=_variant_call(variant, {}, fills))
    yield from in_every_layout([_channelwise(names, (5, 7), 5, axis=0)])
    for n in SIZES:
        yield from variations("sizes", _with_either_scale(("uint8", "float32", "uint8"), (3, n), n))
    calls = [*_every_axis(names)]
    for result in MAIN_FLOATS:
        calls.append(_channelwise(names, (5, 37), 37, dtype=result))
        calls.append(call({"dtype": result}, dtypes=("uint8", "float32"), input=(5, 37), scale=()))
    yield from variations("attributes", [*calls, *_few_channels(names), *_no_channels(names)])
    # Both ends of the range with either end as zero point: the difference needs more bits than the dtype has.
    for name, low, high in (("int8", -128, 127), ("uint8", 0, 255), ("int16", -(2**15), 2**15 - 1), ("uint4", 0, 15)):
        for zero_point in (low, high):
            ends = {"input": {"fill": "data", "values": [low, high, 0, 1]}, "zero_point": full(zero_point)}
            yield from variations("extremes", [_tensorwise((name, "float32", name), (4,), ends)])
    large = {"input": {"fill": "data", "values": [-(2**31), 2**31 - 1, 2**24 + 1, 16777219]}, "scale": full(0.1)}
    yield from variations("extremes", [call(dtypes=("int32", "float32"), generator=large, input=(4,), scale=())])
    # float16 holds integers up to 2048: a kernel that converts the input first rounds these.
    beyond = {"input": {"fill": "data", "values": [2049, 70_001, -70_001, 4097]}, "scale": full(2.0**-8)}
    yield from variations("extremes", [call(dtypes=("int32", "float16"), generator=beyond, input=(4,), scale=())])
    yield from _wrong_parameter_samples(names, without_zero_point=("int8", "float32"))
    for output in ({}, {"dtype": "float16"}):
        yield from in_layouts_at_once([_channelwise(names, (5, 7), 5, axis=0, **output)])
    yield from _deep_and_large(names, names)
    # The difference is small, but neither operand fits 16 bits.
    beyond = {"input": {"fill": "data", "values": [70_001, 70_003, -1, 0]}, "zero_point": full(70_000)}
    yield from variations("extremes", [_tensorwise(("int32", "float32", "int64"), (4,), beyond)])
    wide = _tensorwise(("int8", "float16", "int8"), dtype="float32")
    yield from variations("attributes", [wide], tier=Tier.FULL)


def infer_per_token_quant_int8(specs: Specs, _attributes: Attributes) -> Outputs:
    return match_declaration(
        specs, "input: [*rows, n] -> I[*rows, n], S[*rows, 1]", I=dtype("int8"), S=dtype("float32")
    )[1]


def _row_call(*shape: int, generator: Any = None, **attributes: Any) -> dict[str, Any]:
    """Return a per_token_quant_int8 call for input of `shape`."""
    return call(attributes, generator=generator, input=shape)


def per_token_quant_int8_samples() -> Iterator[Sample]:
    calls = [_row_call(5, 48), _row_call(3, 37), _row_call(2, 3, 130), _row_call(4, 64, eps=0.0)]
    yield Sample(case_set="ordinary", case=calls[0], tier=Tier.SMOKE)
    yield from variations("ordinary", calls, dtypes=MAIN_FLOATS)
    yield from in_every_layout(calls[:2])
    for name in MAIN_FLOATS:
        yield from in_layouts_at_once(calls[1:3], dtype=name)
    yield from variations("sizes", [_row_call(3, n) for n in SIZES], dtypes=MAIN_FLOATS)
    rows = [_row_call(n, 17) for n in (0, 1, 33, 129, LARGE_SIZE)] + [_row_call(2, 1, 2, 1, 2, 5)]
    yield from variations("sizes", [*rows, _row_call(37), _row_call(1, 1), _row_call(2, 4099), _row_call(0, 3, 0)])
    # Rows of zeros between others; largest magnitudes that are negative, first or last, and far above the rest.
    edges = [[0.0] * 4, [1.0, -2.0, 0.5, 0.25], [0.0] * 4, [-8.0, 1.0, 2.0, 3.0], [0.125, 0.5, 0.75, -100.0]]
    drawn: list[Any] = [full(-3.5), normal(0.0, 1e-6), normal(0.0, 300.0), uniform(-9.0, -1.0), normal(9.0, 1.0)]
    for eps in (0.0, 1e-10):
        yield from variations("special", [_row_call(5, 4, generator=data_fill(edges), eps=eps)], dtypes=MAIN_FLOATS)
        cases = [_row_call(4, 48, generator=fill, eps=eps) for fill in ("zeros", *drawn)]
        yield from variations("special", cases, dtypes=MAIN_FLOATS)
    yield from variations("epsilon", [_row_call(4, 48, eps=eps) for eps in (8.0, 1e-4)], dtypes=MAIN_FLOATS)
    yield from error_samples(call(input=()))
