"""`optest check` with default settings finds faulty quantization of every kind, and lets right kernels be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from faulty_kernels import Fault, finds, found_by, read_as_dense, unexpected

from optest.numerics import dtype_of, numpy_dtype, round_to, widen
from optest.spec import dtype

Array = np.ndarray[Any, Any]
Inputs, Attributes, Right = Sequence[Any], Mapping[str, Any], list[Any]
FLOAT = np.float32


def along(parameter: Array, array: Array, axis: int) -> Array:
    wide = widen(parameter)
    if parameter.size == 1:
        return wide.reshape(())
    return wide.reshape([-1 if each == axis % array.ndim else 1 for each in range(array.ndim)])


def half_away(values: Array) -> Array:
    return np.copysign(np.floor(np.abs(values) + FLOAT(0.5)), values)


def divided(x: Array, scale: Array) -> Array:
    return x / scale


def by_inverse(x: Array, scale: Array) -> Array:
    return x * (FLOAT(1) / scale)


def quantizing(
    *,
    quotient: Callable[[Array, Array], Array] = divided,
    rounding: Callable[[Array], Array] = np.rint,
    added_before: bool = False,
    wraps: bool = False,
    without_zero_point: bool = False,
    axis: int | None = None,
    low: int = 0,
    high: int = 0,
    limits: bool = True,
) -> Fault:
    """A kernel in float32 that is right unless told otherwise; ``low`` and ``high`` move the limits."""

    def kernel(inputs: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
        array, scale, zero_point = (*inputs, None)[:3]
        if scale.size > 1 and axis is not None and array.shape[axis] != scale.size:
            return right
        where = attributes["axis"] if axis is None else axis
        result = dtype_of(right[0].dtype)
        x, s = widen(array).astype(FLOAT), along(scale, array, where).astype(FLOAT)
        z = np.zeros((), np.int64) if zero_point is None or without_zero_point else along(zero_point, array, where)
        with np.errstate(all="ignore"):
            q = quotient(x, s)
            if added_before:
                rounded = rounding(q + z.astype(FLOAT)).astype(np.float64)
            else:
                rounded = rounding(q).astype(np.float64) + z.astype(np.float64)
        if wraps:
            whole = np.clip(rounded, -(2.0**62), 2.0**62).astype(np.int64)
            wrapped = (whole - result.min_int) % (2**result.bits) + result.min_int
            return [wrapped.astype(numpy_dtype(result))]
        least, most = attributes["quant_min"], attributes["quant_max"]
        least = result.min_int if least is None or not limits else least
        most = result.max_int if most is None or not limits else most
        return [np.clip(rounded, least + low, most + high).astype(np.int64).astype(numpy_dtype(result))]

    return kernel


def truncated(values: Array) -> Array:
    return np.trunc(values)


QUANTIZE: dict[str, Fault] = {
    "half away from zero": quantizing(rounding=half_away),
    "half up": quantizing(rounding=lambda values: np.floor(values + FLOAT(0.5))),
    "truncated": quantizing(rounding=truncated),
    "floor": quantizing(rounding=np.floor),
    "zero point added before rounding": quantizing(added_before=True),
    "wraps": quantizing(wraps=True),
    "smallest value never": quantizing(low=1),
    "largest value never": quantizing(high=-1),
    "limits ignored": quantizing(limits=False),
    "zero point ignored": quantizing(without_zero_point=True),
    "first axis": quantizing(axis=0),
    "last axis": quantizing(axis=-1),
    "multiplied by scale": quantizing(quotient=lambda x, scale: x * scale),
    "quotient in 16 bits": quantizing(quotient=lambda x, scale: (x / scale).astype(np.float16).astype(FLOAT)),
    "inverse in 16 bits": quantizing(quotient=lambda x, scale: x * (FLOAT(1) / scale).astype(np.float16).astype(FLOAT)),
    "first scale for all": quantizing(quotient=lambda x, scale: x / scale.reshape(-1)[0] if scale.size else x),
    "last element missing": lambda inputs, attributes, right: _last_missing(right),
    "tail of 16 missing": lambda inputs, attributes, right: _without_tail(right, 16),
    "tail of 256 missing": lambda inputs, attributes, right: _without_tail(right, 256),
}


def _last_missing(right: Right) -> Right:
    for each in right:
        if each.size:
            each.reshape(-1)[-1] = 0
    return right


def _without_tail(right: Right, tile: int) -> Right:
    for each in right:
        if each.ndim and each.shape[-1] > tile:
            each[..., each.shape[-1] // tile * tile :] = 0
    return right


def dequantizing(
    *,
    difference: Callable[[Array, Array, Any], Array] = lambda q, z, _: (q - z).astype(FLOAT),
    product: Callable[[Array, Array], Array] = lambda d, s: d * s,
    without_zero_point: bool = False,
    axis: int | None = None,
) -> Fault:
    def kernel(inputs: Inputs, attributes: Attributes, right: Right) -> Sequence[Any]:
        array, scale, zero_point = (*inputs, None)[:3]
        if scale.size > 1 and axis is not None and array.shape[axis] != scale.size:
            return right
        where = attributes["axis"] if axis is None else axis
        s = along(scale, array, where).astype(FLOAT)
        z = np.zeros((), np.int64) if zero_point is None or without_zero_point else along(zero_point, array, where)
        with np.errstate(all="ignore"):
            found = product(difference(widen(array).astype(np.int64), z.astype(np.int64), widen(array).dtype), s)
        return [round_to(np.broadcast_to(found, array.shape).astype(np.float64), dtype_of(right[0].dtype))]

    return kernel


def in_its_dtype(q: Array, z: Array, kind: Any) -> Array:
    return np.asarray((q - z).astype(kind).astype(FLOAT))


def as_unsigned(q: Array, z: Array, kind: Any) -> Array:
    return np.asarray((q % 2 ** (8 * np.dtype(kind).itemsize) - z).astype(FLOAT))


def cut(values: Array) -> Array:
    """Float32 without its last bits."""
    return (np.asarray(values, FLOAT).view(np.uint32) & np.uint32(0xFFFFF000)).view(FLOAT)


DEQUANTIZE: dict[str, Fault] = {
    "difference in the dtype": dequantizing(difference=in_its_dtype),
    "zero point ignored": dequantizing(without_zero_point=True),
    "zero point added": dequantizing(difference=lambda q, z, _: (q + z).astype(FLOAT)),
    "divided by scale": dequantizing(product=lambda d, s: d / s),
    "first axis": dequantizing(axis=0),
    "last axis": dequantizing(axis=-1),
    "product cut": dequantizing(product=lambda d, s: cut(d * s)),
    "scale in bfloat16": dequantizing(product=lambda d, s: d * round_to(s, dtype("bfloat16")).astype(FLOAT)),
    "one ulp too large": dequantizing(product=lambda d, s: d * s * FLOAT(1.0000001)),
    "as unsigned": dequantizing(difference=as_unsigned),
    "last element missing": lambda inputs, attributes, right: _last_missing(right),
    "tail of 16 missing": lambda inputs, attributes, right: _without_tail(right, 16),
    "tail of 256 missing": lambda inputs, attributes, right: _without_tail(right, 256),
}


@pytest.mark.parametrize("operator", ["quantize", "dequantize"])
def test_the_reference_raises_no_alarm(operator: str) -> None:
    assert unexpected(operator) == []


@pytest.mark.parametrize("name", QUANTIZE)
def test_faults_of_quantize_are_found(name: str) -> None:
    assert finds("quantize", QUANTIZE[name])


@pytest.mark.parametrize("name", DEQUANTIZE)
def test_faults_of_dequantize_are_found(name: str) -> None:
    assert finds("dequantize", DEQUANTIZE[name])


@pytest.mark.parametrize("operator", ["quantize", "dequantize"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_layout_that_is_ignored_is_found(operator: str, place: int) -> None:
    found = found_by(operator, read_as_dense(operator, place))
    assert len([name for name in found if "/layouts/" in name]) >= 2, found


@pytest.mark.parametrize("quotient", [divided, by_inverse])
def test_float32_kernels_that_divide_or_multiply_by_the_inverse_are_right(
    quotient: Callable[[Array, Array], Array],
) -> None:
    assert unexpected("quantize", quantizing(quotient=quotient)) == []


def test_float32_kernels_that_dequantize_are_right() -> None:
    assert unexpected("dequantize", dequantizing()) == []
    converted = dequantizing(difference=lambda q, z, _: q.astype(FLOAT) - z.astype(FLOAT))
    assert unexpected("dequantize", converted) == []
