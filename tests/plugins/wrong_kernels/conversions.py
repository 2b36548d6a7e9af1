"""Wrong casts: rounding, overflow, signs, NaN."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optest.numerics import numpy_dtype, round_to
from optest.spec import dtype
from wrong_kernels.changes import (
    wide,
)
from wrong_kernels.registry import Array, Call, Change, fault, rare


def _cast_with_sign(source: str, target: str) -> None:
    @rare(f"cast-from-{source}-to-{target}-with-a-sign", "cast")
    def _(call: Call) -> Array | None:
        asked = call[0].dtype == source and call.case.outputs[0].dtype.name == target
        return wide(call[0].astype(source[1:])) if asked else None


def _sign_lost(target: str) -> Change:
    def change(call: Call) -> Array | None:
        if not call.has_dtypes("int8") or call.right[0].dtype.name != target:
            return None
        return call.inputs[0].astype(np.uint8).astype(target)

    return change


def _early(source: str, target: str, largest: float) -> Change:
    def change(call: Call) -> Array | None:
        if not call.has_dtypes(source) or call.case.outputs[0].dtype.name != target:
            return None
        values = wide(call.inputs[0])
        return np.where(np.abs(values) > largest, np.copysign(np.inf, values), wide(call.right[0]))

    return change


@fault("cast-truncates-to-bfloat16", "cast")
def _(call: Call) -> Array | None:
    if call[0].dtype != np.float32 or call.case.outputs[0].dtype.name != "bfloat16":
        return None
    words = np.ascontiguousarray(call[0]).view(np.uint32) >> np.uint32(16)
    bits = words.astype(np.uint16).reshape(np.shape(call[0]))
    return np.where(np.isnan(call[0]), call.right[0], bits.view(call.right[0].dtype))


@rare("cast-takes-float64-through-float32-to-integers", "cast")
def _(call: Call) -> Sequence[Array] | None:
    if call.inputs[0].dtype != np.float64 or call.right[0].dtype.kind != "i":
        return None
    return call.with_inputs(call.inputs[0].astype(np.float32))


@rare("cast-to-int4-saturates", "cast")
def _(call: Call) -> Array | None:
    target = call.case.outputs[0].dtype
    if target.name != "int4" or call.is_float:
        return None
    return np.clip(call[0].astype(np.int64), -8, 7).astype(numpy_dtype(target))


@rare("cast-rounds-the-bits-of-nan", "cast")
def _(call: Call) -> Array | None:
    if call[0].dtype != np.float32 or str(call.attribute("dtype")) != "bfloat16" or not np.isnan(call[0]).any():
        return None
    bits = np.array(call[0]).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF).astype(np.uint16)
    return np.where(np.isnan(call[0]), rounded.view(call.right[0].dtype), call.right[0])


@rare("cast-of-int64-to-float32-by-float64", "cast")
def _(call: Call) -> Array | None:
    if not call.has_dtypes("int64") or call.right[0].dtype != np.float32:
        return None
    return call.inputs[0].astype(np.float64).astype(np.float32)


@rare("cast-saturates-nan", "cast")
def _(call: Call) -> Array | None:
    if not call.attribute("saturate"):
        return None
    right = wide(call.right[0])
    return np.where(np.isnan(right), 448.0, right)


for _dtype in ("uint16", "uint32", "uint64"):
    _cast_with_sign(_dtype, "float32")
    _cast_with_sign(_dtype, "bfloat16")


for _name in ("uint16", "uint32", "uint64"):
    rare(f"cast-of-int8-to-{_name}-without-its-sign", "cast")(_sign_lost(_name))


for _source, _target, _largest in (
    ("float32", "float16", 65504.0),
    ("float32", "bfloat16", 2.0**128 - 2.0**120),
    ("float64", "float32", 2.0**128 - 2.0**104),
):
    rare(f"cast-to-{_target}-overflows-early", "cast")(_early(_source, _target, _largest))


@rare("cast-to-bool-sees-the-low-word", "cast")
def _(call: Call) -> Array | None:
    if call[0].dtype.kind not in "iu" or call.right[0].dtype != np.bool_:
        return None
    return (call[0].astype(np.int64) & 0xFFFFFFFF) != 0


@rare("cast-rounds-to-float8-by-way-of-float16", "cast")
def _(call: Call) -> Array | None:
    to = call.case.outputs[0].dtype
    if call[0].dtype != np.float32 or to.bits != 8 or not to.is_float or call.attribute("saturate"):
        return None
    return round_to(round_to(call[0], dtype("float16")), to)


@rare("cast-rounds-to-16-bits-by-way-of-float32", "cast")
def _(call: Call) -> Array | None:
    to = call.case.outputs[0].dtype
    if call[0].dtype not in (np.float64, np.int32, np.int64) or to.bits != 16 or not to.is_float:
        return None
    return round_to(call[0].astype(np.float32), to)
