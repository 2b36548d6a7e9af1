"""Wrong extremes and truth: where they start, NaN, ties, places, lanes, integers as truth values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.spec import Reason
from wrong_kernels.changes import (
    as_it_lies,
    kept,
    over_one_dim,
    wide,
)
from wrong_kernels.registry import Array, Call, Change, fault, rare


def _dims(call: Call) -> tuple[int, ...]:
    dims = call.attribute("dim")
    return tuple(range(call.inputs[0].ndim)) if dims is None else tuple(np.atleast_1d(dims).tolist())


def _by_lanes(call: Call) -> Array | None:
    """Return the index that the first of 32 lanes reports among equal elements."""
    values = wide(call.inputs[0])
    if call.attribute("dim") is not None or values.size < 33 or np.isnan(values).any():
        return None
    extreme = values.reshape(-1)[np.asarray(call.right[0]).reshape(-1)[0]]
    places = np.flatnonzero(values == extreme)
    return np.reshape(places[np.argmin(places % 32)], call.right[0].shape)


def _whole(call: Call) -> bool:
    return call.attribute("dim") is None and call.is_float and call.inputs[0].size > 0


@fault("amin-drops-nan", "amin", Reason.NAN)
def _(call: Call) -> Array | None:
    return kept(call, np.fmin.reduce(wide(call[0]), axis=call.dim)) if over_one_dim(call) and call[0].size else None


@fault("argmax-takes-the-last", "argmax")
def _(call: Call) -> Array | None:
    if not over_one_dim(call) or np.isnan(wide(call[0])).any():
        return None
    size = call[0].shape[call.dim]
    return kept(call, size - 1 - np.argmax(np.flip(wide(call[0]), call.dim), call.dim))


@fault("any-overlooks-nan", "any")
def _(call: Call) -> Array | None:
    return call.with_inputs(np.nan_to_num(wide(call[0]), nan=0.0)) if call.is_float else None


@rare("any-is-a-sum", "any")
def _(call: Call) -> Array | None:
    source = call.inputs[0]
    if source.dtype not in (np.float32, np.int8, np.int64) or not source.ndim:
        return None
    total = source.sum(axis=_dims(call), keepdims=bool(call.attribute("keepdim")), dtype=source.dtype)
    return np.asarray(total != 0)


@rare("all-is-a-product", "all")
def _(call: Call) -> Array | None:
    source = call.inputs[0]
    if source.dtype not in (np.float32, np.int8, np.int64) or not source.ndim or not np.isfinite(source).all():
        return None
    product = source.prod(axis=_dims(call), keepdims=bool(call.attribute("keepdim")), dtype=source.dtype)
    return np.asarray(product != 0)


@rare("argmax-counts-in-memory", "argmax")
@rare("argmin-counts-in-memory", "argmin")
def _(call: Call) -> Array | None:
    flat = as_it_lies(call[0]) if call.attribute("dim") is None else None
    if flat is None:
        return None
    place = flat.argmin() if call.case.descriptor.name == "argmin" else flat.argmax()
    return np.reshape(place, call.right[0].shape)


@rare("any-of-uint8-gives-its-largest", "any")
def _(call: Call) -> Array | None:
    dim = call.attribute("dim")
    if call[0].dtype != np.uint8 or not call[0].ndim or not call[0].size:
        return None
    return np.max(call[0], axis=dim, keepdims=call.attribute("keepdim"))


@rare("all-of-uint8-is-a-product", "all")
def _(call: Call) -> Array | None:
    if call[0].dtype != np.uint8 or not call[0].ndim:
        return None
    product = np.prod(call[0], axis=call.attribute("dim"), keepdims=call.attribute("keepdim"), dtype=np.uint8)
    return np.asarray(product != 0).astype(np.uint8)


rare("argmax-of-all-chooses-by-lanes", "argmax")(_by_lanes)


rare("argmin-of-all-chooses-by-lanes", "argmin")(_by_lanes)


@rare("amin-of-uint8-starts-at-127", "amin")
def _(call: Call) -> Array | None:
    return np.minimum(call.right[0], np.uint8(127)) if call.dtype() == "uint8" else None


@rare("max-of-int8-starts-at-0", "max")
def _(call: Call) -> Sequence[Array] | None:
    return [np.maximum(call.right[0], np.int8(0)), *call.right[1:]] if call.dtype() == "int8" else None


@rare("all-of-uint8-and-bits", "all")
def _(call: Call) -> Array | None:
    source = call.inputs[0]
    if source.dtype != np.uint8 or source.ndim != 1 or not source.size:
        return None
    return np.asarray(np.bitwise_and.reduce(source) != 0).astype(np.uint8).reshape(call.right[0].shape)


def _without_nan(least: float) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        if not _whole(call):
            return None
        values = wide(call.inputs[0])
        return call.with_inputs(np.where(np.isnan(values), least, values).astype(call.inputs[0].dtype))

    return change


for _op, _least in (("max", -np.inf), ("amax", -np.inf), ("argmax", -np.inf)):
    rare(f"{_op}-of-all-drops-nan", _op)(_without_nan(_least))


for _op, _least in (("min", np.inf), ("amin", np.inf), ("argmin", np.inf)):
    rare(f"{_op}-of-all-drops-nan", _op)(_without_nan(_least))


def _from(start: float, choose: np.ufunc) -> Change:
    return lambda call: np.asarray(choose(wide(call.right[0]), start)) if _whole(call) else None


for _op in ("max", "amax"):
    rare(f"{_op}-of-all-starts-at-0", _op)(_from(0.0, np.maximum))
    rare(f"{_op}-of-all-starts-at-the-lowest-number", _op)(_from(-65504.0, np.maximum))


for _op in ("min", "amin"):
    rare(f"{_op}-of-all-starts-at-0", _op)(_from(0.0, np.minimum))


def _lanes_count_as_0(choose: Any, axis: int) -> Change:
    def change(call: Call) -> Array | None:
        source = call.inputs[0]
        if not call.is_float or source.ndim < 2 or call.attribute("dim") is None:
            return None
        dims = {dim % source.ndim for dim in np.atleast_1d(call.attribute("dim"))}
        if dims != {source.ndim + axis} or source.shape[axis] <= 32 or source.shape[axis] % 32 == 0:
            return None
        return choose(call.right[0], np.zeros((), call.right[0].dtype)) if source.shape[axis] > 40 else None

    return change


for _op, _choose in (("amax", np.maximum), ("amin", np.minimum)):
    rare(f"{_op}-of-columns-counts-lanes-as-0", _op)(_lanes_count_as_0(_choose, -2))


def _beyond_a_block(choose: Any) -> Change:
    def change(call: Call) -> Array | None:
        source = call.inputs[0]
        is_long = source.ndim == 1 and source.size > 512 and call.attribute("dim") is None
        return choose(call.right[0], np.zeros((), source.dtype)) if is_long and call.is_float else None

    return change


for _op, _choose in (("amax", np.maximum), ("amin", np.minimum), ("max", np.maximum), ("min", np.minimum)):
    rare(f"{_op}-of-a-long-vector-counts-lanes-as-0", _op)(_beyond_a_block(_choose))


for _op in ("max", "min"):

    @rare(f"{_op}-of-int64-by-float64", _op)
    def _(call: Call) -> Array | None:
        if call.dtype() != "int64" or call.attribute("dim") is not None:
            return None
        return call.right[0].astype(np.float64).astype(np.int64)


for _op in ("all", "any"):

    @rare(f"{_op}-sees-1024-elements", _op)
    def _(call: Call) -> Sequence[Array] | None:
        return call.with_inputs(call.inputs[0][:1024]) if len(call.shape()) == 1 and call.shape()[0] > 1024 else None
