"""Shapes, dtypes and sensible inputs of quantization and its inverse; standard library only."""

from __future__ import annotations

from collections.abc import Mapping

from optest.operators.shapes import Attributes, Specs, dense, given, normalize_dim
from optest.spec import DType, Interval, TensorSpec, UnfitArguments, dtype, format_shape

__all__ = [
    "INTEGERS",
    "channel_dim",
    "dequantize_domain",
    "infer_dequantize",
    "infer_quantize",
    "quantize_domain",
    "quantized_range",
]

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "int4", "uint4")
"""What values are quantized to."""
_WIDE_ZERO_POINTS = ("int32", "int64")
"""What torch keeps zero points in, whatever the dtype of the quantized values."""
_LARGEST_ZERO_POINT = 1024.0


def infer_quantize(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec, scale = given(specs, 0, "input"), given(specs, 1, "scale")
    _require_float(spec, "input")
    result = _result(specs, attributes)
    quantized_range(result, attributes)
    _require_parameters(spec, scale, _zero_point(specs), result, attributes)
    return (dense(result, spec.shape),)


def infer_dequantize(specs: Specs, attributes: Attributes) -> tuple[TensorSpec, ...]:
    spec, scale = given(specs, 0, "input"), given(specs, 1, "scale")
    if spec.dtype.name not in INTEGERS:
        raise UnfitArguments(f"input is {spec.dtype}, but should be one of {', '.join(INTEGERS)}")
    _require_parameters(spec, scale, _zero_point(specs), spec.dtype, attributes)
    return (dense(dtype(attributes.get("dtype") or scale.dtype), spec.shape),)


def _zero_point(specs: Specs) -> TensorSpec | None:
    return specs[2] if len(specs) > 2 else None


def _result(specs: Specs, attributes: Attributes) -> DType:
    """The stated dtype, else that of the zero point, else uint8: as in ONNX."""
    zero_point, stated = _zero_point(specs), attributes.get("dtype")
    if stated is not None:
        return dtype(stated)
    if zero_point is None:
        return dtype("uint8")
    if zero_point.dtype.name not in INTEGERS:
        raise UnfitArguments(f"zero_point is {zero_point.dtype}, which is no result; state the attribute dtype")
    return zero_point.dtype


def _require_float(spec: TensorSpec, name: str) -> None:
    if not spec.dtype.is_float:
        raise UnfitArguments(f"{name} is {spec.dtype}, but should be a float")


def _require_parameters(
    spec: TensorSpec, scale: TensorSpec, zero_point: TensorSpec | None, quantized: DType, attributes: Attributes
) -> None:
    _require_float(scale, "scale")
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
    zero_point, stated = _zero_point(specs), attributes.get("dtype")
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
