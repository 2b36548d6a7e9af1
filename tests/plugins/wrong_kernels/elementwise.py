"""Wrong kernels of elementwise operators and activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optest.spec import Reason
from wrong_kernels.changes import (
    cut,
    half,
    ignoring,
    read_as_dense,
    single,
    wide,
)
from wrong_kernels.registry import Array, Call, Change, fault, memory, rare


def without_bound(ignored: str, other: str) -> Change:
    return lambda call: call.with_attributes(**{ignored: None}) if call.attribute(other) is not None else None


def _objects(call: Call) -> list[Array]:
    return [np.asarray(each).astype(object) for each in call.inputs]


def _sum(call: Call) -> Array:
    left, right = _objects(call)
    return left + int(call.attribute("alpha")) * right


def _magnitude(call: Call) -> Array:
    return np.abs(_objects(call)[0])


def _start(array: Any) -> int:
    return int(np.asarray(array.base).ctypes.data)


@fault("add-reads-dense", "add")
def _(call: Call) -> Array:
    return call.with_inputs(read_as_dense(call, 0), read_as_dense(call, 1))


@fault("sub-swaps-operands", "sub")
def _(call: Call) -> Array:
    return call.with_inputs(call.inputs[1], call.inputs[0])


@fault("mul-integers-through-float32", "mul")
def _(call: Call) -> Array | None:
    if call.right[0].dtype.kind not in "i" or call.right[0].itemsize < 4:
        return None
    product = single(call[0]) * single(call[1])
    info = np.iinfo(call.right[0].dtype)
    return np.clip(product.astype(np.float64), info.min, float(info.max) * (1 - 2**-24)).astype(call.right[0].dtype)


@fault("div-by-rounded-reciprocal", "div")
def _(call: Call) -> Array | None:
    if not call.is_16_bit or call.attribute("rounding_mode"):
        return None
    return single(call[0]) * half(1 / single(call[1]))


@fault("div-is-approximate", "div")
def _(call: Call) -> Array | None:
    if not call.is_float or call.attribute("rounding_mode"):
        return None
    return wide(call.right[0]) * (1 + 2.0**-20)


@fault("pow-by-exp-and-log", "pow")
def _(call: Call) -> Array | None:
    if not call.is_float or not call.case.outputs[0].dtype.is_float:
        return None
    return np.exp(wide(call[1]) * np.log(wide(call[0])))


@fault("eq-allows-a-little", "eq")
def _(call: Call) -> Array | None:
    if not call.is_float or call[0].dtype.itemsize < 4:
        return None
    return call.right[0] | (np.abs(wide(call[0]) - wide(call[1])) <= 1e-6 * np.abs(wide(call[0])))


@fault("lt-is-le", "lt")
def _(call: Call) -> Array:
    return call.right[0] | (wide(call[0]) == wide(call[1]))


@fault("ge-is-not-lt", "ge")
def _(call: Call) -> Array:
    return call.right[0] | np.isnan(wide(call[0])) | np.isnan(wide(call[1]))


@fault("abs-drops-nan", "abs", Reason.NAN)
def _(call: Call) -> Array | None:
    return np.where(np.isnan(wide(call[0])), 0, wide(call.right[0])) if call.is_float else None


@fault("exp-overflows-early", "exp")
def _(call: Call) -> Array | None:
    return np.where(wide(call[0]) > 80, np.inf, wide(call.right[0])) if call[0].dtype == np.float32 else None


@fault("exp-in-16-bits", "exp")
def _(call: Call) -> Array | None:
    return half(np.exp(single(call[0]))) if call[0].dtype == np.float32 else None


@fault("log1p-as-log-of-a-sum", "log1p")
def _(call: Call) -> Array | None:
    return np.log(np.float32(1) + single(call[0])) if call[0].dtype == np.float32 else None


@fault("expm1-as-exp-minus-1", "expm1")
def _(call: Call) -> Array | None:
    return np.exp(single(call[0])) - np.float32(1) if call[0].dtype == np.float32 else None


@fault("rsqrt-with-one-step", "rsqrt")
def _(call: Call) -> Array | None:
    if call[0].dtype != np.float32:
        return None
    x = single(call[0])
    guess = cut(single(call.right[0]), 14)
    return np.where(x > 0, guess * (np.float32(1.5) - np.float32(0.5) * x * guess * guess), call.right[0])


@fault("sin-reduces-in-float32", "sin")
def _(call: Call) -> Array | None:
    if call[0].dtype != np.float32:
        return None
    x, turn = single(call[0]), np.float32(2 * np.pi)
    return np.sin(x - np.round(x / turn) * turn)


@fault("erf-of-a-handbook", "erf")
def _(call: Call) -> Array | None:
    """Abramowitz and Stegun 7.1.26, good to 1.5e-7 absolutely."""
    if call[0].dtype != np.float32:
        return None
    x = np.abs(wide(call[0]))
    t = 1 / (1 + 0.3275911 * x)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.where(np.isnan(x), np.nan, np.sign(wide(call[0])) * (1 - poly * np.exp(-x * x)))


@fault("floor-truncates", "floor")
def _(call: Call) -> Array | None:
    return np.trunc(wide(call[0])) if call.is_float else None


@fault("ceil-adds-1", "ceil")
def _(call: Call) -> Array | None:
    return np.trunc(wide(call[0])) + (wide(call[0]) > 0) if call.is_float else None


fault("round-ignores-decimals", "round")(ignoring("decimals"))


@fault("maximum-drops-nan", "maximum", Reason.NAN)
def _(call: Call) -> Array | None:
    return np.fmax(wide(call[0]), wide(call[1])) if call.is_float else None


@fault("where-swaps-branches", "where")
def _(call: Call) -> Array:
    return call.with_inputs(call.inputs[0], call.inputs[2], call.inputs[1])


fault("clip-ignores-max", "clip")(without_bound("max", "min"))


fault("clip-ignores-min", "clip")(without_bound("min", "max"))


@rare("mul-stops-at-0", "mul")
def _(call: Call) -> Array | None:
    if not call.is_float:
        return None
    left, right = (wide(array) for array in call.inputs)
    return np.where((left == 0) | (right == 0), 0.0, wide(call.right[0]))


@rare("div-by-the-inverse", "div")
def _(call: Call) -> Array | None:
    if call.attribute("rounding_mode") or any(array.dtype != np.float32 for array in call.inputs):
        return None
    return call.inputs[0] * (np.float32(1) / call.inputs[1])


@rare("add-of-unsigned-ignores-alpha", "add")
def _(call: Call) -> Sequence[Array] | None:
    return call.with_attributes(alpha=1.0) if call.right[0].dtype in (np.uint16, np.uint32, np.uint64) else None


@rare("mul-of-uint16-spoils-the-tail", "mul")
def _(call: Call) -> Array | None:
    out = np.array(call.right[0], order="C")
    if out.dtype != np.uint16 or not out.size:
        return None
    flat = out.reshape(-1)
    flat[flat.size - flat.size % 4 :] ^= np.uint16(1)
    return out


@rare("div-of-int32-by-float32", "div")
def _(call: Call) -> Array | None:
    mode = call.attribute("rounding_mode")
    if mode is None or not call.has_dtypes("int32", "int32"):
        return None
    quotient = call.inputs[0].astype(np.float32) / call.inputs[1].astype(np.float32)
    return np.asarray((np.floor if mode == "floor" else np.trunc)(quotient).astype(np.int64))


@rare("eq-compares-bits-of-one-shape", "eq")
def _(call: Call) -> Array | None:
    if {call.dtype(), call.dtype(1)} != {"float32"} or not call.shape() or call.shape() != call.shape(1):
        return None
    one, other = (np.ascontiguousarray(each).view(np.int32) for each in call.inputs)
    return one == other


@rare("gt-takes-a-scalar-as-an-integer", "gt")
def _(call: Call) -> Array | None:
    left, right = call.inputs
    return None if right.ndim or left.dtype != np.int32 or right.dtype != np.float32 else left > int(right)


@memory("add-reads-before-its-input", "add")
def _(call: Call) -> Array | None:
    array = call.inputs[0]
    if array.ndim != 1 or array.size < 2 or array.shape != call.inputs[1].shape or array.dtype.kind != "f":
        return None
    before = np.ndarray((1,), array.dtype, buffer=array.base, offset=array.ctypes.data - _start(array) - array.itemsize)
    return call.right[0] + 0 * before


def _clipped_with_sign(dtype: str) -> Change:
    def change(call: Call) -> Array | None:
        low, high = call.attribute("min"), call.attribute("max")
        if call.right[0].dtype != dtype or low is None or high is None:
            return None
        return np.clip(call[0].astype(dtype[1:]).astype(object), int(low), int(high)).astype(dtype)

    return change


for _dtype in ("uint8", "uint16", "uint32", "uint64"):
    rare(f"clip-of-{_dtype}-with-a-sign", "clip")(_clipped_with_sign(_dtype))


def _saturated(op: str, dtype: str, exact: Callable[[Call], Array]) -> None:
    def change(call: Call) -> Array | None:
        if call.right[0].dtype != dtype:
            return None
        limits = np.iinfo(dtype)
        return np.clip(np.asarray(exact(call), object), limits.min, limits.max).astype(dtype)

    rare(f"{op}-of-{dtype}-saturates", op)(change)


for _dtype in ("int16", "uint16", "uint32", "uint64"):
    _saturated("add", _dtype, _sum)


for _dtype in ("int32", "int64"):
    _saturated("abs", _dtype, _magnitude)


def _both_as(first: str, second: str, within: type) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        if sorted(array.dtype.name for array in call.inputs) != [first, second]:
            return None
        return call.with_inputs(*(array.astype(within) for array in call.inputs))

    return change


for _op in ("eq", "ne"):
    rare(f"{_op}-of-int32-and-int64-in-32-bits", _op)(_both_as("int32", "int64", np.int32))
    rare(f"{_op}-of-int8-and-uint8-in-8-bits", _op)(_both_as("int8", "uint8", np.uint8))


def _channels_repeated(call: Call) -> Sequence[Array] | None:
    """Read a number per channel as one per column."""
    left, right = call.inputs
    if left.ndim != 4 or right.ndim != 3 or right.shape[1:] != (1, 1):
        return None
    return call.with_inputs(left, np.resize(right, left.shape[1:]))


for _op in ("add", "mul", "div", "maximum"):
    rare(f"{_op}-takes-channels-for-columns", _op)(_channels_repeated)


def _of_floats(compute: Callable[..., Array]) -> Change:
    """Return a change of calls with float inputs and output; ``compute`` gets the inputs and the right output."""

    def change(call: Call) -> Array | None:
        if not call.is_float or not call.case.outputs[0].dtype.is_float:
            return None
        return compute(*map(wide, call.inputs), wide(call.right[0]))

    return change


for _name, _op, _compute in (
    ("abs-by-the-root-of-the-square", "abs", lambda x, _: np.sqrt(single(x) * single(x))),
    ("abs-keeps-negative-zero", "abs", lambda x, _: np.where(x < 0, -x, x)),
    ("neg-subtracts-from-0", "neg", lambda x, _: 0.0 - x),
    ("trunc-through-int64", "trunc", lambda x, _: np.trunc(x).astype(np.int64)),
    ("reciprocal-of-infinity-is-nan", "reciprocal", lambda x, right: np.where(np.isinf(x), np.nan, right)),
    ("sin-of-infinity-is-0", "sin", lambda x, right: np.where(np.isinf(x), 0.0, right)),
    ("pow-of-negative-zero-has-no-sign", "pow", lambda a, b, right: np.where((a == 0) & (b < 0), np.inf, right)),
):
    rare(_name, _op)(_of_floats(_compute))


@rare("pow-of-minus-1-to-odd-negative-powers-is-1", "pow")
def _(call: Call) -> Array | None:
    a, b = call.inputs
    if call.right[0].dtype.kind not in "iu" or a.dtype.kind != "i" or b.dtype.kind != "i":
        return None
    return np.where(b < 0, np.abs(a) == 1, call.right[0]).astype(call.right[0].dtype)


@rare("where-multiplies-by-its-condition", "where")
def _(call: Call) -> Array | None:
    condition, a, b = call.inputs
    return condition * a + ~condition * b if call.right[0].dtype in (np.float32, np.float64) else None


@rare("clip-takes-min-last", "clip")
def _(call: Call) -> Array | None:
    low, high = call.attribute("min"), call.attribute("max")
    return np.maximum(np.minimum(wide(call[0]), high), low) if call.is_float and None not in (low, high) else None


@fault("logaddexp-without-shift", "logaddexp")
def _(call: Call) -> Array | None:
    if call.right[0].dtype != np.float32:
        return None
    return np.log(np.exp(single(call[0])) + np.exp(single(call[1])))


@rare("logaddexp-rounds-1-plus-exp", "logaddexp")
def _(call: Call) -> Array | None:
    if call.right[0].dtype != np.float32:
        return None
    a, b = single(call[0]), single(call[1])
    return np.where(
        np.isfinite(a - b), np.maximum(a, b) + np.log(np.float32(1) + np.exp(-np.abs(a - b))), call.right[0]
    )


@rare("logaddexp-of-infinities", "logaddexp")
def _(call: Call) -> Array:
    a, b = wide(call[0]), wide(call[1])
    return np.where(np.isinf(a) & (a == b), np.nan, call.right[0])


@fault("erfinv-stops-at-the-tail", "erfinv")
def _(call: Call) -> Array | None:
    return np.clip(wide(call.right[0]), -2.0, 2.0) if call.is_float else None


@rare("erfinv-of-1-is-finite", "erfinv")
def _(call: Call) -> Array | None:
    ends = np.isinf(wide(call.right[0]))
    return np.where(ends, np.copysign(3.8, wide(call.right[0])), wide(call.right[0])) if call.is_float else None


@fault("digamma-knows-nothing-below-0", "digamma")
def _(call: Call) -> Array:
    return np.where(wide(call[0]) < 0, np.nan, wide(call.right[0]))


@rare("digamma-is-the-logarithm-from-10-on", "digamma")
def _(call: Call) -> Array:
    x = wide(call[0])
    return np.where(x > 10, np.log(x), wide(call.right[0]))


@rare("digamma-has-one-sign-at-0", "digamma")
def _(call: Call) -> Array:
    return np.where(wide(call[0]) == 0, -np.inf, wide(call.right[0]))
