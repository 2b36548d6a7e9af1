"""More of :mod:`adversary_faults`: what a second stranger got past the case sets, mostly of operators added last.

Batches and statistics that are not dense, places beyond 8 and 16 bits, the ends of integer types, volumes beyond a
tile, conversions between types that are seldom asked together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from adversary_faults import fault
from sixty_faults import Array, Call, Change, read_as_dense, wide

from optest.numerics import numpy_dtype
from optest.spec import dtype

# Random samples, sorted integers and positions: places and numbers that need every bit


@fault("random-sample-keeps-places-in-16-bits", "random_sample")
def _(call: Call) -> Array:
    return np.asarray(int(call.right[0]) & 0xFFFF, call.right[0].dtype)


@fault("random-sample-keeps-places-in-7-bits", "random_sample")
def _(call: Call) -> Array | None:
    return call.right[0] & np.uint8(0x7F) if call.right[0].dtype == np.uint8 else None


@fault("random-sample-masks-with-a-number", "random_sample")
def _(call: Call) -> Sequence[Array]:
    logits = wide(call[0])
    return call.with_inputs(np.where(np.isneginf(logits), -1e4, logits).astype(call[0].dtype))


@fault("random-sample-compares-float64-as-float32", "random_sample")
def _(call: Call) -> Sequence[Array] | None:
    return call.with_inputs(call[0].astype(np.float32).astype(np.float64)) if call[0].dtype == np.float64 else None


def _narrow_positions(within: type) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        if call[3] is None:
            return None
        places = call[3].astype(within).astype(np.int64) % len(call[1])
        return call.with_inputs(*call.inputs[:3], places)

    return change


for _within in (np.int8, np.uint8, np.int16, np.uint16):
    fault(f"rope-takes-positions-as-{_within.__name__}", "rope")(_narrow_positions(_within))


def _sorted_with_sign(dtype: str) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        if call[0].dtype != dtype:
            return None
        values, places = call.with_inputs(call[0].astype(dtype[1:]))
        return [values.astype(dtype), places]

    return change


def _clipped_with_sign(dtype: str) -> Change:
    def change(call: Call) -> Array | None:
        low, high = call.attribute("min"), call.attribute("max")
        if call.right[0].dtype != dtype or low is None or high is None:
            return None
        return np.clip(call[0].astype(dtype[1:]).astype(object), int(low), int(high)).astype(dtype)

    return change


for _dtype in ("uint16", "uint32", "uint64"):
    fault(f"sort-of-{_dtype}-with-a-sign", "sort")(_sorted_with_sign(_dtype))
    fault(f"clip-of-{_dtype}-with-a-sign", "clip")(_clipped_with_sign(_dtype))

# The ends of integer types


def _saturated(op: str, dtype: str, exact: Callable[[Call], Array]) -> None:
    def change(call: Call) -> Array | None:
        if call.right[0].dtype != dtype:
            return None
        limits = np.iinfo(dtype)
        return np.clip(np.asarray(exact(call), object), limits.min, limits.max).astype(dtype)

    fault(f"{op}-of-{dtype}-saturates", op)(change)


def _objects(call: Call) -> list[Array]:
    return [np.asarray(each).astype(object) for each in call.inputs]


def _sum(call: Call) -> Array:
    left, right = _objects(call)
    return left + int(call.attribute("alpha")) * right


def _magnitude(call: Call) -> Array:
    return np.abs(_objects(call)[0])


for _dtype in ("int16", "uint16", "uint32", "uint64"):
    _saturated("add", _dtype, _sum)
for _dtype in ("int32", "int64"):
    _saturated("abs", _dtype, _magnitude)


@fault("cumsum-of-int16-in-16-bits", "cumsum")
def _(call: Call) -> Array | None:
    stated = call.attribute("dtype") or call[0].dtype != np.int16
    return None if stated else call.right[0].astype(np.int16).astype(call.right[0].dtype)


@fault("max-pool-of-int16-pads-with-0", "max_pool2d")
def _(call: Call) -> Array | None:
    return np.maximum(call.right[0], 0) if call[0].dtype == np.int16 and max(call.attribute("padding")) else None


@fault("add-of-unsigned-ignores-alpha", "add")
def _(call: Call) -> Sequence[Array] | None:
    return call.with_attributes(alpha=1.0) if call.right[0].dtype in (np.uint16, np.uint32, np.uint64) else None


@fault("mul-of-uint16-spoils-the-tail", "mul")
def _(call: Call) -> Array | None:
    out = np.array(call.right[0], order="C")
    if out.dtype != np.uint16 or not out.size:
        return None
    flat = out.reshape(-1)
    flat[flat.size - flat.size % 4 :] ^= np.uint16(1)
    return out


# Conversions


def _cast_with_sign(source: str, target: str) -> None:
    @fault(f"cast-from-{source}-to-{target}-with-a-sign", "cast")
    def _(call: Call) -> Array | None:
        asked = call[0].dtype == source and call.case.outputs[0].dtype.name == target
        return wide(call[0].astype(source[1:])) if asked else None


for _dtype in ("uint16", "uint32", "uint64"):
    _cast_with_sign(_dtype, "float32")
    _cast_with_sign(_dtype, "bfloat16")


@fault("cast-to-int4-saturates", "cast")
def _(call: Call) -> Array | None:
    target = call.case.outputs[0].dtype
    if target.name != "int4" or call.is_float:
        return None
    return np.clip(call[0].astype(np.int64), -8, 7).astype(numpy_dtype(target))


@fault("pad-takes-its-value-as-bfloat16", "pad")
def _(call: Call) -> Sequence[Array] | None:
    if call[0].dtype != np.float32 or not call.attribute("value"):
        return None
    return call.with_attributes(value=float(np.float32(call.attribute("value")).astype(numpy_dtype(dtype("bfloat16")))))


@fault("clone-loses-nan-of-float8", "clone")
def _(call: Call) -> Array | None:
    values = wide(call[0]) if call.case.inputs[0].spec.dtype.bits == 8 and call.is_float else None
    return None if values is None else np.where(np.isnan(values), 0.0, values)


# Batches, statistics and volumes


def _batched_as_dense(place: int) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        if call[0].ndim != 3 or len(call.inputs) <= place:
            return None
        inputs = list(call.inputs)
        inputs[place] = read_as_dense(call, place)
        return call.with_inputs(*inputs)

    return change


for _place in range(3):
    fault(f"gemm-of-a-batch-reads-{'abc'[_place]}-as-dense", "gemm")(_batched_as_dense(_place))


@fault("gemm-of-a-batch-multiplies-c-by-0", "gemm")
def _(call: Call) -> Array | None:
    unread = call[0].ndim == 3 and call.attribute("beta") == 0 and call[2] is not None
    return wide(call.right[0]) + 0.0 * wide(call[2]) if unread else None


@fault("gemm-of-a-batch-beyond-a-tile", "gemm")
def _(call: Call) -> Array | None:
    out = np.array(call.right[0])
    if out.ndim != 3 or max(out.shape[1:]) <= 32:
        return None
    out[:, 32:] = 0
    return out


@fault("layer-norm-statistics-read-as-dense", "layer_norm")
def _(call: Call) -> Sequence[Array] | None:
    if not call.attribute("statistics"):
        return None
    return [call.right[0], *call.with_inputs(read_as_dense(call), *call.inputs[1:])[1:]]


@fault("layer-norm-statistics-of-wide-weights", "layer_norm")
def _(call: Call) -> Sequence[Array] | None:
    mixed = len({argument.spec.dtype for argument in call.case.inputs}) > 1
    return [*call.right[:2], wide(call.right[2]) * 2] if mixed and call.attribute("statistics") else None


def _volume(name: str, axis: int, beyond: int) -> None:
    @fault(name, "conv3d")
    def _(call: Call) -> Array | None:
        out = np.array(call.right[0])
        if out.shape[axis] <= beyond:
            return None
        np.moveaxis(out, axis, 0)[beyond:] = 0
        return out


_volume("conv3d-beyond-16-planes", -3, 16)
_volume("conv3d-beyond-16-rows", -2, 16)
_volume("conv3d-beyond-16-channels", -4, 16)


@fault("conv3d-of-single-taps-forgets-stride", "conv3d")
def _(call: Call) -> Array | None:
    taps, stride = call[1].shape[2:], call.attribute("stride")
    if max(taps) > 1 or max(stride) == 1:
        return None
    dense = call.with_attributes(stride=(1,))[0]
    return dense[tuple(slice(size) for size in call.right[0].shape)]


@fault("conv3d-of-each-channel-alone", "conv3d")
def _(call: Call) -> Array | None:
    return wide(call.right[0]) * 2 if call.attribute("groups") == call[0].shape[-4] > 1 else None
