"""`optest check` with default settings finds faulty elementwise kernels of every kind."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from elementwise_kernels import (
    Array,
    Attributes,
    Fault,
    Inputs,
    Right,
    asked,
    asked_of,
    changed,
    fitting,
    instead,
    is_found,
    on_integers,
    reference,
    with_attributes,
)

from optest.numerics import bits, dtype_of, numpy_dtype, round_to, widen
from optest.operators import operators
from optest.registry import load_object
from optest.spec import RuleClass, dtype

ELEMENTWISE = tuple(
    each.name
    for each in operators
    if each.category in ("elementwise", "comparison", "logic", "bitwise", "conversion", "activation")
)
TWO_INPUTS = tuple(name for name in ELEMENTWISE if len(operators.get(name).tensors.inputs) == 2 and name != "swiglu")
ROUNDED = tuple(
    name
    for name in ELEMENTWISE
    if (rule := operators.get(name).rule) is not None
    and rule.kind is RuleClass.ULP
    and name not in ("floor_divide", "remainder", "round")
)


# What any kernel may suffer from.


def last_element_missing(_: Inputs, __: Attributes, right: Right) -> Right:
    out = np.array(right[0])
    if out.size:
        flat = out.reshape(-1)
        flat[-1] = flat[0] if out.size > 1 and flat[-1] != flat[0] else np.logical_not(flat[-1])
    return [out]


def tail_missing(tile: int) -> Fault:
    """What lies behind the last whole tile is not computed."""

    def fault(_: Inputs, __: Attributes, right: Right) -> Right:
        out = np.array(right[0]).reshape(-1)
        if out.size > tile and out.size % tile:
            out[out.size // tile * tile :] = np.zeros((), out.dtype)
        return [out.reshape(right[0].shape)]

    return fault


def first_of_a_wide_block_twice(_: Inputs, __: Attributes, right: Right) -> Right:
    out = np.array(right[0]).reshape(-1)
    if out.size >= 128:
        out[127] = out[126]
    return [out.reshape(right[0].shape)]


def read_as_dense(operator: str) -> Fault:
    """Inputs are read from the start of their storage, whatever their strides."""

    def fault(inputs: Inputs, attributes: Attributes, right: Right) -> Right:
        flat = []
        for each in inputs:
            base = each
            while getattr(base, "base", None) is not None and isinstance(base.base, np.ndarray):
                base = base.base
            storage = base.view(each.dtype).reshape(-1) if base.dtype.itemsize else each
            flat.append(np.resize(storage, each.shape) if not each.flags.c_contiguous else each)
        try:
            return [fitting(reference(operator, flat, attributes), right[0])]
        except Exception:
            return right

    return fault


def broadcast_as_flat(operator: str) -> Fault:
    """A smaller operand is repeated as it lies in memory."""

    def fault(inputs: Inputs, attributes: Attributes, right: Right) -> Right:
        shape = right[0].shape
        flat = [each if each.shape == shape else np.resize(each, shape) for each in inputs]
        try:
            return [fitting(reference(operator, flat, attributes), right[0])]
        except Exception:
            return right

    return fault


def no_fault(_: Inputs, __: Attributes, right: Right) -> Right:
    return right


@pytest.mark.parametrize("operator", ELEMENTWISE)
def test_the_reference_raises_no_alarm(operator: str) -> None:
    assert asked_of(operator)
    assert not is_found(operator, no_fault)


COMMON: dict[str, Callable[[str], Fault]] = {
    "last element missing": lambda _: last_element_missing,
    "tail of 16 missing": lambda _: tail_missing(16),
    "tail of 1024 missing": lambda _: tail_missing(1024),
    "one lane twice": lambda _: first_of_a_wide_block_twice,
    "read as dense": read_as_dense,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMON)
@pytest.mark.parametrize("operator", ELEMENTWISE)
def test_faults_of_any_kernel_are_found(operator: str, name: str) -> None:
    assert is_found(operator, COMMON[name](operator))


@pytest.mark.parametrize("operator", TWO_INPUTS)
def test_a_broadcast_operand_that_is_read_as_it_lies_is_found(operator: str) -> None:
    assert is_found(operator, broadcast_as_flat(operator))


# Roundings.


def truncating(operator: str, name: str) -> Fault:
    """The result is cut to 16 bits, not rounded."""

    def fault(inputs: Inputs, attributes: Attributes, right: Right) -> Right:
        out = right[0]
        if dtype_of(out.dtype).name != name:
            return right
        exact = reference(operator, inputs, attributes)
        rounded = widen(out)
        with np.errstate(all="ignore"):
            beyond = np.isfinite(rounded) & (np.abs(rounded) > np.abs(exact))
        codes = bits(out).copy()
        codes[beyond] -= 1
        return [codes.view(out.dtype).reshape(out.shape)]

    return fault


def ulps_off(operator: str, count: float) -> Fault:
    """Every float32 result is off by a multiple of the ceiling."""
    rule = operators.get(operator).rule
    assert rule is not None
    share = 1.0 + count * max(rule.ulp, 1.0) * 2.0**-23

    def spoil(out: Array, _: Inputs) -> Array:
        return out * share if out.dtype.kind == "f" else out

    def fault(inputs: Inputs, attributes: Attributes, right: Right) -> Right:
        return changed(spoil)(inputs, attributes, right) if right[0].dtype == np.float32 else right

    return fault


def through_16_bits(operator: str, name: str) -> Fault:
    """float32 operands are computed with in 16 bits."""

    def fault(inputs: Inputs, attributes: Attributes, right: Right) -> Right:
        if any(each.dtype != np.float32 for each in inputs) or right[0].dtype != np.float32:
            return right
        narrow = [round_to(each, dtype(name)) for each in inputs]
        return [fitting(round_to(reference(operator, narrow, attributes), dtype(name)), right[0])]

    return fault


@pytest.mark.slow
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("operator", ROUNDED)
def test_a_truncating_kernel_is_found(operator: str, name: str) -> None:
    assert is_found(operator, truncating(operator, name))


@pytest.mark.parametrize("operator", ROUNDED)
def test_eight_times_the_ceiling_is_found(operator: str) -> None:
    assert is_found(operator, ulps_off(operator, 8.0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("operator", [*ROUNDED, "remainder", "floor_divide", "maximum", "clip", "relu"])
def test_operands_of_16_bits_are_found(operator: str, name: str) -> None:
    assert is_found(operator, through_16_bits(operator, name))


# Faults of one operator.


def flushed(values: Array) -> Array:
    return np.where(np.abs(values) < 2.0**-126, 0.0, values)


def _saturated(kind: Any, value: Array) -> Array:
    limits = np.iinfo(kind)
    return np.clip(value, limits.min, limits.max)


def _nan_as(number: float) -> Callable[[Array, Inputs], Array]:
    return lambda out, _: np.where(np.isnan(out), number, out) if out.dtype.kind == "f" else out


def _without_nan(maximum: bool) -> Callable[..., Any]:
    return lambda a, b: np.fmax(a, b) if maximum else np.fmin(a, b)


def _isclose(inputs: Inputs, _: Attributes, right: Right) -> Right:
    a, b = (widen(each).astype(np.float64) for each in inputs)
    with np.errstate(all="ignore"):
        return [np.isclose(a, b, rtol=1e-6, atol=0.0) if right[0].dtype == bool else right[0]]


def _compared(function: Callable[[Array, Array], Any], kind: str) -> Fault:
    """A comparison whose operands are converted first."""

    def fault(inputs: Inputs, _: Attributes, right: Right) -> Right:
        if any(each.dtype.kind not in "iu" for each in inputs):
            return right
        with np.errstate(all="ignore"):
            return [np.asarray(function(*(each.astype(kind) for each in inputs)))]

    return fault


def _by_difference(sign: Callable[[Array], Array]) -> Fault:
    def fault(inputs: Inputs, _: Attributes, right: Right) -> Right:
        if inputs[0].dtype != inputs[1].dtype or inputs[0].dtype.kind not in "i":
            return right
        with np.errstate(all="ignore"):
            return [np.asarray(sign(inputs[0] - inputs[1]))]

    return fault


def _bits_equal(inputs: Inputs, _: Attributes, right: Right) -> Right:
    a, b = inputs
    return [np.asarray(bits(a) == bits(b))] if a.dtype == b.dtype and a.dtype != bool else right


def _low_byte(*names: str) -> Fault:
    """Only the lowest byte decides whether a number is true."""

    def fault(inputs: Inputs, _: Attributes, right: Right) -> Right:
        if any(each.dtype.kind not in "iu" for each in inputs):
            return right
        truths = [(each & np.array(255).astype(each.dtype)) != 0 for each in inputs]
        return [np.asarray(load_object(f"numpy:{names[0]}")(*truths))]

    return fault


def _as_whole(function: str) -> Fault:
    """Floats lose their fraction before they are asked whether they are 0."""

    def fault(inputs: Inputs, _: Attributes, right: Right) -> Right:
        with np.errstate(all="ignore"):
            truths = [np.trunc(widen(each).astype(np.float64)) != 0 for each in inputs]
        return [np.asarray(load_object(f"numpy:{function}")(*truths))]

    return fault


def _naive_remainder(a: Array, b: Array) -> Array:
    return a - b * np.floor(a / b)


def _arithmetic_where(inputs: Inputs, _: Attributes, right: Right) -> Right:
    condition, a, b = inputs
    if right[0].dtype not in (np.float32, np.float64):
        return right
    with np.errstate(all="ignore"):
        return [np.asarray(condition * a + (~condition) * b).astype(right[0].dtype)]


def _min_then_max(x: Array, stated: Attributes) -> Array:
    low, high = stated["min"], stated["max"]
    found = x if high is None else np.minimum(x, high)
    return found if low is None else np.maximum(found, low)


def _half_away(x: Array, stated: Attributes) -> Array:
    ten = 10.0 ** stated["decimals"]
    return np.copysign(np.floor(np.abs(x * ten) + 0.5), x) / ten


def _double_rounded_cast(inputs: Inputs, attributes: Attributes, right: Right) -> Right:
    """float64 goes through float32 on its way to 16 bits; float32 through float16 to float8."""
    source, out = inputs[0], right[0]
    target = dtype(attributes["dtype"])
    if source.dtype != np.float32 or target.bits != 8 or not target.is_float or attributes["saturate"]:
        return right
    return [round_to(round_to(source, dtype("float16")), target).reshape(out.shape)]


def _through_float32(inputs: Inputs, attributes: Attributes, right: Right) -> Right:
    """What 16 bits do not hold is rounded to float32 first."""
    target = dtype(attributes["dtype"])
    if inputs[0].dtype not in (np.float64, np.int32, np.int64) or target.bits != 16 or not target.is_float:
        return right
    with np.errstate(all="ignore"):
        return [round_to(inputs[0].astype(np.float32), target)]


def _nearest_cast(inputs: Inputs, attributes: Attributes, right: Right) -> Right:
    if dtype_of(inputs[0].dtype).is_float and dtype(attributes["dtype"]).is_integer:
        return [np.rint(widen(inputs[0])).astype(right[0].dtype)]
    return right


def _saturating_cast(inputs: Inputs, attributes: Attributes, right: Right) -> Right:
    target = dtype(attributes["dtype"])
    if inputs[0].dtype.kind not in "iu" or not target.is_integer:
        return right
    return [np.clip(inputs[0].astype(np.int64), target.min_int, min(target.max_int, 2**63 - 1)).astype(right[0].dtype)]


def _truncating_cast(inputs: Inputs, attributes: Attributes, right: Right) -> Right:
    if inputs[0].dtype != np.float32 or attributes["dtype"] != "bfloat16":
        return right
    return [(inputs[0].view(np.uint32) >> 16).astype(np.uint16).view(numpy_dtype(dtype("bfloat16")))]


def _bool_of_low_bits(inputs: Inputs, attributes: Attributes, right: Right) -> Right:
    if inputs[0].dtype.kind not in "iu" or attributes["dtype"] != "bool":
        return right
    return [(inputs[0].astype(np.int64) & 0xFFFFFFFF) != 0]


def _bool_of_fractions(inputs: Inputs, attributes: Attributes, right: Right) -> Right:
    if not dtype_of(inputs[0].dtype).is_float or attributes["dtype"] != "bool":
        return right
    return [np.trunc(widen(inputs[0])) != 0]


def _polynomial_sine(x: Array) -> Array:
    """Reduced by a 2π of float32."""
    turn = x.dtype.type(2 * math.pi)
    return np.sin(x - turn * np.rint(x / turn))


def _erf(values: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(values)


def _unsigned_reinterpreted(function: str) -> Fault:
    """uint8 is read as int8."""

    def fault(inputs: Inputs, attributes: Attributes, right: Right) -> Right:
        if any(each.dtype != np.uint8 for each in inputs):
            return right
        return [
            np.asarray(reference(function, [each.view(np.int8) for each in inputs], attributes)).astype(right[0].dtype)
        ]

    return fault


TABLE: dict[str, dict[str, Fault]] = {
    "add": {
        "alpha ignored": with_attributes("add", alpha=1.0),
        "alpha on the wrong operand": asked(lambda a, b, stated: stated["alpha"] * a + b, attributes=True),
        "saturates": on_integers(lambda kind, a, b: _saturated(kind, a + b)),
        "subtracts": instead("sub"),
        "multiplies": instead("mul"),
        "flushes subnormal numbers": changed(lambda out, _: flushed(out) if out.dtype.kind == "f" else out),
        "int64 through float64": on_integers(lambda _, a, b: a.astype(float) + b.astype(float)),
        "NaN as 0": changed(_nan_as(0.0)),
        "float64 in float32": asked(lambda a, b: a.astype(np.float32) + b.astype(np.float32)),
    },
    "sub": {
        "alpha ignored": with_attributes("sub", alpha=1.0),
        "alpha on both": asked(lambda a, b, stated: stated["alpha"] * (a - b), attributes=True),
        "operands swapped": asked(lambda a, b: b - a),
        "integers swapped": on_integers(lambda _, a, b: b - a),
        "saturates": on_integers(lambda kind, a, b: _saturated(kind, a - b)),
        "absolute difference": on_integers(lambda _, a, b: np.abs(a - b)),
        "adds": instead("add"),
    },
    "mul": {
        "saturates": on_integers(lambda kind, a, b: _saturated(kind, a * b)),
        "high half": on_integers(lambda kind, a, b: (a * b) >> (8 * kind.itemsize // 2)),
        "adds": instead("add"),
        "zero times anything is zero": asked(lambda a, b: np.where((a == 0) | (b == 0), 0, a * b)),
        "uint8 as int8": _unsigned_reinterpreted("maximum"),
        "float64 in float32": asked(lambda a, b: a.astype(np.float32) * b.astype(np.float32)),
    },
    "div": {
        "operands swapped": asked(lambda a, b: b / a),
        "rounding_mode ignored": with_attributes("div", rounding_mode=None),
        "trunc for floor": with_attributes("div", rounding_mode=lambda mode: mode and "trunc"),
        "floor for trunc": with_attributes("div", rounding_mode=lambda mode: mode and "floor"),
        "rounds to nearest": changed(lambda out, _: out),
        "approximate reciprocal": asked(lambda a, b: a * (1 / b).astype(np.float16).astype(np.float32)),
        "epsilon added": asked(lambda a, b: a / (b + np.float32(1e-6))),
        "0 for a zero divisor": asked(lambda a, b: np.where(b == 0, 0, a / b)),
        "no negative zero divisor": asked(lambda a, b: a / np.where(b == 0, 0.0, b)),
        "integers divided as integers": asked(lambda a, b: np.trunc(a / b)),
    },
    "floor_divide": {
        "truncates": asked(lambda a, b: np.trunc(a / b)),
        "integers truncate": on_integers(lambda _, a, b: np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))),
        "rounds to nearest": asked(lambda a, b: np.rint(a / b)),
        "true division": asked(lambda a, b: a / b),
        "operands swapped": asked(lambda a, b: np.floor(b / a)),
        "step below whole quotients": asked(lambda a, b: np.floor(a / b * (1 - np.float32(2.0**-20)))),
        "0 for a zero divisor": asked(lambda a, b: np.where(b == 0, 0, np.floor(a / b))),
        "uint8 as int8": _unsigned_reinterpreted("floor_divide"),
    },
    "remainder": {
        "sign of the dividend": asked(np.fmod),
        "integers with the sign of the dividend": on_integers(lambda _, a, b: np.fmod(a, b)),
        "always positive": asked(lambda a, b: np.abs(np.remainder(a, b))),
        "without fmod": asked(_naive_remainder),
        "operands swapped": asked(lambda a, b: np.remainder(b, a)),
        "NaN for an infinite divisor": asked(lambda a, b: np.where(np.isinf(b), np.nan, np.remainder(a, b))),
        "0 for a zero divisor": asked(lambda a, b: np.where(b == 0, 0, np.remainder(a, b))),
        "the divisor itself for multiples": asked(
            lambda a, b: np.where(np.remainder(a, b) == 0, b, np.remainder(a, b))
        ),
    },
    "fmod": {
        "sign of the divisor": asked(np.remainder),
        "integers with the sign of the divisor": on_integers(lambda _, a, b: np.remainder(a, b)),
        "by the quotient": asked(lambda a, b: a - np.trunc(a / b) * b),
        "operands swapped": asked(lambda a, b: np.fmod(b, a)),
        "NaN for an infinite divisor": asked(lambda a, b: np.where(np.isinf(b), np.nan, np.fmod(a, b))),
        "0 for a zero divisor": asked(lambda a, b: np.where(b == 0, 0, np.fmod(a, b))),
        "uint8 as int8": _unsigned_reinterpreted("fmod"),
    },
    "pow": {
        "exp and log": asked(lambda a, b: np.exp(b * np.log(a))),
        "of the magnitude": asked(lambda a, b: np.exp2(b * np.log2(np.abs(a)))),
        "operands swapped": asked(lambda a, b: np.power(b, a)),
        "NaN to the 0 is NaN": asked(lambda a, b: np.where(np.isnan(a), np.nan, np.power(a, b))),
        "1 to NaN is NaN": asked(lambda a, b: np.where(np.isnan(b), np.nan, np.power(a, b))),
        "0 to the 0 is 0": asked(lambda a, b: np.where((a == 0) & (b == 0), 0, np.power(a, b))),
        "-1 to infinity is NaN": asked(lambda a, b: np.where((a == -1) & np.isinf(b), np.nan, np.power(a, b))),
        "no sign of -0": asked(lambda a, b: np.where((a == 0) & (b < 0), np.inf, np.power(a, b))),
        "negative integer powers as 1": on_integers(lambda _, a, b: np.where(b < 0, 1, np.power(a, np.maximum(b, 0)))),
        "-1 to odd negative powers is 1": on_integers(
            lambda _, a, b: np.where(b < 0, np.abs(a) == 1, np.power(a, np.maximum(b, 0)))
        ),
        "integers through float32": on_integers(lambda _, a, b: np.power(a.astype("f4"), b.astype("f4"))),
        "integers saturate": on_integers(
            lambda kind, a, b: np.clip(np.power(a.astype(float), b), 0, np.iinfo(kind).max)
        ),
    },
    "eq": {
        "isclose": _isclose,
        "bits": _bits_equal,
        "through float32": _compared(np.equal, "f4"),
        "through float64": _compared(np.equal, "f8"),
        "ne": instead("ne"),
        "NaN equals NaN": changed(
            lambda out, ins: out | (np.isnan(widen(ins[0]).astype(float)) & np.isnan(widen(ins[1]).astype(float)))
        ),
    },
    "ne": {"through float32": _compared(np.not_equal, "f4"), "eq": instead("eq")},
    "lt": {
        "difference": _by_difference(lambda d: d < 0),
        "le": instead("le"),
        "operands swapped": instead("gt"),
        "not ge, which NaN tells": changed(lambda out, ins: ~reference("ge", ins, {})),
        "through float32": _compared(np.less, "f4"),
        "uint8 as int8": _unsigned_reinterpreted("lt"),
    },
    "le": {
        "difference": _by_difference(lambda d: d <= 0),
        "lt": instead("lt"),
        "not gt, which NaN tells": changed(lambda out, ins: ~reference("gt", ins, {})),
        "through float64": _compared(np.less_equal, "f8"),
    },
    "gt": {
        "difference": _by_difference(lambda d: d > 0),
        "ge": instead("ge"),
        "not le, which NaN tells": changed(lambda out, ins: ~reference("le", ins, {})),
        "uint8 as int8": _unsigned_reinterpreted("gt"),
    },
    "ge": {
        "difference": _by_difference(lambda d: d >= 0),
        "gt": instead("gt"),
        "not lt, which NaN tells": changed(lambda out, ins: ~reference("lt", ins, {})),
    },
    "logical_and": {
        "low byte": _low_byte("logical_and"),
        "or": instead("logical_or"),
        "bitwise": instead("bitwise_and"),
        "fractions lost": _as_whole("logical_and"),
        "NaN is false": changed(lambda out, ins: out & ~np.isnan(widen(ins[0]).astype(float))),
    },
    "logical_or": {
        "low byte": _low_byte("logical_or"),
        "and": instead("logical_and"),
        "fractions lost": _as_whole("logical_or"),
        "exclusive": instead("logical_xor"),
    },
    "logical_xor": {
        "ne": instead("ne"),
        "or": instead("logical_or"),
        "bitwise": instead("bitwise_xor"),
        "fractions lost": _as_whole("logical_xor"),
    },
    "logical_not": {
        "low byte": _low_byte("logical_not"),
        "fractions lost": _as_whole("logical_not"),
        "negative numbers are false": changed(lambda out, ins: ~(widen(ins[0]) > 0)),
        "NaN is false": changed(lambda out, ins: out | np.isnan(widen(ins[0]).astype(float))),
    },
    "bitwise_and": {"or": instead("bitwise_or"), "logical": instead("logical_and")},
    "bitwise_or": {"and": instead("bitwise_and"), "xor": instead("bitwise_xor"), "adds": instead("add")},
    "bitwise_xor": {
        "or": instead("bitwise_or"),
        "low half": on_integers(lambda kind, a, b: (a ^ b) & (2 ** (4 * kind.itemsize) - 1)),
    },
    "bitwise_not": {"logical": instead("logical_not"), "negates": on_integers(lambda _, a: -a)},
    "neg": {
        "0 - x": asked(lambda x: np.float32(0) - x),
        "absolute value": asked(lambda x: -np.abs(x)),
        "integers saturate": on_integers(lambda kind, x: _saturated(kind, -x)),
        "flushes subnormal numbers": asked(lambda x: -flushed(x)),
    },
    "abs": {
        "x < 0 ? -x : x": asked(lambda x: np.where(x < 0, -x, x)),
        "integers saturate": on_integers(lambda kind, x: _saturated(kind, np.abs(x))),
        "square root of the square": asked(lambda x: np.sqrt(x * x)),
        "positive part": asked(lambda x: np.maximum(x, 0)),
    },
    "sign": {
        "1 for 0": asked(lambda x: np.where(x >= 0, 1, np.where(x < 0, -1, 0))),
        "NaN stays": asked(np.sign),
        "x / |x|": asked(lambda x: x / np.abs(x)),
        "uint8 as int8": _unsigned_reinterpreted("sign"),
        "bit of the sign": asked(lambda x: np.copysign(1, x)),
    },
    "exp": {
        "powers of two with a rounded factor": asked(lambda x: np.exp2(x * np.float32(1.4427))),
        "by squaring": asked(lambda x: (1 + x / 1024) ** 1024),
        "clamped at 80": asked(lambda x: np.exp(np.minimum(x, 80))),
        "0 below -80": asked(lambda x: np.where(x < -80, 0, np.exp(x))),
        "0 for NaN": changed(_nan_as(0.0)),
        "expm1": instead("expm1"),
        "approximate argument": asked(lambda x: np.exp(x.astype(np.float16).astype(np.float32))),
    },
    "log": {
        "base 2": asked(np.log2),
        "base 10": asked(np.log10),
        "epsilon added": asked(lambda x: np.log(x + np.float32(1e-7))),
        "of the magnitude": asked(lambda x: np.log(np.abs(x))),
        "clamped": asked(lambda x: np.log(np.maximum(x, 1e-30))),
        "through base 2 in float16": asked(lambda x: np.log2(x) * np.float32(np.float16(math.log(2)))),
        "-infinity for negative numbers": asked(lambda x: np.where(x < 0, -np.inf, np.log(x))),
    },
    "log1p": {
        "log(1 + x)": asked(lambda x: np.log(1 + x)),
        "log": instead("log"),
        "x near 0": asked(lambda x: np.where(np.abs(x) < 0.01, x, np.log1p(x))),
        "-inf below -1": asked(lambda x: np.where(x < -1, -np.inf, np.log1p(x))),
    },
    "expm1": {
        "exp(x) - 1": asked(lambda x: np.exp(x) - 1),
        "exp": instead("exp"),
        "x near 0": asked(lambda x: np.where(np.abs(x) < 0.01, x, np.expm1(x))),
        "tanh form, which overflows": asked(lambda x: 2 * np.tanh(x / 2) / (1 - np.tanh(x / 2))),
    },
    "sqrt": {
        "power": asked(lambda x: np.exp(np.float32(0.5) * np.log(x))),
        "of the magnitude": asked(lambda x: np.sqrt(np.abs(x))),
        "0 for negative numbers": asked(lambda x: np.sqrt(np.maximum(x, 0))),
        "x times rsqrt": asked(lambda x: x * (1 / np.sqrt(x))),
        "epsilon added": asked(lambda x: np.sqrt(x + np.float32(1e-6))),
    },
    "rsqrt": {
        "fast inverse square root": asked(lambda x: 1 / np.sqrt(x) * np.float32(1.0017)),
        "one Newton step short": asked(lambda x: 1 / np.sqrt(x) * np.float32(1 - 5e-6)),
        "epsilon added": asked(lambda x: 1 / np.sqrt(x + np.float32(1e-6))),
        "sqrt": instead("sqrt"),
        "0 for 0": asked(lambda x: np.where(x == 0, 0, 1 / np.sqrt(x))),
    },
    "reciprocal": {
        "of 16 bits": asked(lambda x: (1 / x).astype(np.float16).astype(np.float32)),
        "one Newton step short": asked(lambda x: 1 / x * np.float32(1 - 5e-6)),
        "0 for 0": asked(lambda x: np.where(x == 0, 0, 1 / x)),
        "no sign of 0": asked(lambda x: np.abs(1 / x) * np.sign(x) + (x == 0) * np.inf),
        "no sign of infinity lost": asked(lambda x: np.where(np.isinf(x), np.nan, 1 / x)),
    },
    "sin": {
        "reduced in float32": asked(_polynomial_sine),
        "cos": instead("cos"),
        "degrees": asked(lambda x: np.sin(np.deg2rad(x))),
        "absolute error near 0": asked(lambda x: np.sin(x + np.float32(1e-6)) - np.float32(1e-6)),
        "of 16 bits": asked(lambda x: np.sin(x.astype(np.float16).astype(np.float32))),
        "0 for infinity": asked(lambda x: np.where(np.isinf(x), 0, np.sin(x))),
    },
    "cos": {
        "reduced in float32": asked(
            lambda x: np.cos(x - np.float32(2 * math.pi) * np.rint(x / np.float32(2 * math.pi)))
        ),
        "sin": instead("sin"),
        "by shifting": asked(lambda x: np.sin(x + np.float32(math.pi / 2))),
    },
    "tanh": {
        "by exp": asked(lambda x: (np.exp(x) - np.exp(-x)) / (np.exp(x) + np.exp(-x))),
        "by sigmoid": asked(lambda x: 2 / (1 + np.exp(-2 * x)) - 1),
        "clamped at 3": asked(lambda x: np.tanh(np.clip(x, -3, 3))),
        "rational": asked(lambda x: np.clip(x * (27 + x * x) / (27 + 9 * x * x), -1, 1)),
        "x near 0": asked(lambda x: np.where(np.abs(x) < 0.02, x, np.tanh(x))),
    },
    "erf": {
        "tanh form": asked(lambda x: np.tanh(np.float32(1.1283791) * x * (1 + np.float32(0.0895) * x * x))),
        "absolute error": asked(lambda x: _erf(x) + 1.5e-7),
        "erfc": asked(lambda x: 1 - _erf(x)),
        "1 - erfc, which cancels": asked(lambda x: 1 - (1 - _erf(x)).astype(np.float32)),
        "argument scaled": asked(lambda x: _erf(x / math.sqrt(2))),
    },
    "floor": {
        "truncates": asked(np.trunc),
        "through int32": asked(lambda x: np.floor(x).astype(np.int32)),
        "ceil": instead("ceil"),
        "rounds": asked(np.rint),
        "floor(x + small)": asked(lambda x: np.floor(x + np.float32(1e-5))),
    },
    "ceil": {
        "floor + 1": asked(lambda x: np.floor(x) + 1),
        "through int32": asked(lambda x: np.ceil(x).astype(np.int32)),
        "away from zero": asked(lambda x: np.copysign(np.ceil(np.abs(x)), x)),
    },
    "round": {
        "halves away from zero": asked(_half_away, attributes=True),
        "floor(x + 0.5)": asked(lambda x: np.floor(x + np.float32(0.5))),
        "truncates": asked(np.trunc),
        "decimals ignored": with_attributes("round", decimals=0),
        "decimals of the other sign": with_attributes("round", decimals=lambda d: -d),
        "through int32": asked(lambda x: np.rint(x).astype(np.int32)),
    },
    "trunc": {
        "floor": instead("floor"),
        "rounds": instead("round"),
        "through int32": asked(lambda x: np.trunc(x).astype(np.int32)),
        "through int64": asked(lambda x: np.trunc(x).astype(np.int64)),
    },
    "maximum": {
        "NaN lost": asked(_without_nan(True)),
        "x > y ? x : y": asked(lambda a, b: np.where(a > b, a, b)),
        "minimum": instead("minimum"),
        "uint8 as int8": _unsigned_reinterpreted("maximum"),
        "of magnitudes": asked(lambda a, b: np.where(np.abs(a) > np.abs(b), a, b)),
        "int64 through float64": on_integers(lambda _, a, b: np.maximum(a.astype(float), b.astype(float))),
    },
    "minimum": {
        "NaN lost": asked(_without_nan(False)),
        "x < y ? x : y": asked(lambda a, b: np.where(a < b, a, b)),
        "maximum": instead("maximum"),
        "int32 through float32": on_integers(lambda _, a, b: np.minimum(a.astype("f4"), b.astype("f4"))),
    },
    "where": {
        "branches swapped": lambda inputs, _, right: [
            fitting(reference("where", [inputs[0], *inputs[:0:-1]], {}), right[0])
        ],
        "by arithmetic": _arithmetic_where,
        "always the first": lambda inputs, _, right: [fitting(np.broadcast_to(inputs[1], right[0].shape), right[0])],
        "condition of the first row": lambda inputs, _, right: [
            fitting(reference("where", [inputs[0][:1] if inputs[0].ndim else inputs[0], *inputs[1:]], {}), right[0])
            if inputs[0].ndim and inputs[0].shape[0] and inputs[0].shape == right[0].shape
            else right[0]
        ],
        "negative zero lost": lambda _, __, right: [
            right[0] + right[0].dtype.type(0) if right[0].dtype.kind == "f" else right[0]
        ],
    },
    "clip": {
        "min ignored": with_attributes("clip", min=lambda value: None if value is None else -1e30),
        "max ignored": with_attributes("clip", max=lambda value: None if value is None else 1e30),
        "min wins over max": asked(_min_then_max, attributes=True),
        "NaN becomes a bound": changed(_nan_as(0.0)),
        "bounds exclusive": asked(
            lambda x, stated: np.where(x >= (stated["max"] or 0), (stated["max"] or 0) - np.float32(1e-3), x),
            attributes=True,
        ),
        "uint8 as int8": _unsigned_reinterpreted("clip"),
    },
    "cast": {
        "rounds to nearest": _nearest_cast,
        "saturates": _saturating_cast,
        "truncates to bfloat16": _truncating_cast,
        "rounds twice to float8": _double_rounded_cast,
        "rounds twice to 16 bits": _through_float32,
        "bool of the low word": _bool_of_low_bits,
        "bool of whole numbers": _bool_of_fractions,
        "saturate ignored": with_attributes("cast", saturate=False),
        "always saturates": with_attributes("cast", saturate=True),
        "flushes subnormal numbers": changed(
            lambda out, _: np.where(np.abs(out) < 2.0**-14, 0, out) if out.dtype == np.float64 else out
        ),
    },
}
del TABLE["div"]["rounds to nearest"], TABLE["mul"]["uint8 as int8"]

SPECIFIC = [(operator, name) for operator, faults in TABLE.items() for name in faults]


@pytest.mark.parametrize(("operator", "name"), SPECIFIC)
def test_faults_of_the_operator_are_found(operator: str, name: str) -> None:
    assert is_found(operator, TABLE[operator][name])
