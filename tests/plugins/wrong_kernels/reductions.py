"""Wrong reductions: accumulators, tails, NaN, ties, whole tensors, truth of integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from optest.spec import Reason
from wrong_kernels.changes import (
    as_it_lies,
    ignoring,
    kept,
    over_one_dim,
    read_as_dense,
    single,
    sums_in,
    wide,
)
from wrong_kernels.registry import Array, Call, Change, fault, rare


def _dims(call: Call) -> tuple[int, ...]:
    dims = call.attribute("dim")
    return tuple(range(call.inputs[0].ndim)) if dims is None else tuple(np.atleast_1d(dims).tolist())


def _counted_in_bytes(call: Call) -> Array | None:
    return call.right[0] & 0xFF if call.inputs[0].dtype == np.bool_ and call.right[0].dtype == np.int64 else None


def _by_lanes(call: Call) -> Array | None:
    """Of equal elements that of the first of 32 lanes, not the first."""
    values = wide(call.inputs[0])
    if call.attribute("dim") is not None or values.size < 33 or np.isnan(values).any():
        return None
    extreme = values.reshape(-1)[np.asarray(call.right[0]).reshape(-1)[0]]
    places = np.flatnonzero(values == extreme)
    return np.reshape(places[np.argmin(places % 32)], call.right[0].shape)


def _whole(call: Call) -> bool:
    return call.attribute("dim") is None and call.is_float and call.inputs[0].size > 0


fault("sum-ignores-keepdim", "sum", Reason.SHAPE)(ignoring("keepdim"))


fault("var-ignores-correction", "var")(ignoring("correction"))


fault("norm-ignores-p", "norm")(ignoring("p"))


@fault("sum-accumulates-in-16-bits", "sum")
def _(call: Call) -> Array | None:
    if not call.is_16_bit or not over_one_dim(call):
        return None
    dtype = call[0].dtype
    return kept(call, sums_in(call, lambda total: total.astype(dtype).astype(np.float32)))


@fault("sum-drops-the-tail-of-a-row", "sum")
def _(call: Call) -> Array | None:
    if not over_one_dim(call):
        return None
    values = np.moveaxis(wide(call[0]), call.dim, -1)
    size = values.shape[-1]
    return kept(call, values[..., : size - size % 4 if size > 4 else size].sum(-1))


@fault("sum-reads-dense", "sum")
def _(call: Call) -> Array:
    return call.with_inputs(read_as_dense(call))


@fault("mean-divides-by-one-less", "mean")
def _(call: Call) -> Array:
    count = max(1, call[0].size // max(1, call.right[0].size))
    return wide(call.right[0]) * count / max(1, count - 1)


@fault("prod-drops-the-last", "prod")
def _(call: Call) -> Array | None:
    if not over_one_dim(call) or not call[0].size:
        return None
    return kept(call, np.delete(wide(call[0]), -1, call.dim).prod(call.dim))


@fault("cumsum-leaves-itself-out", "cumsum")
def _(call: Call) -> Array | None:
    if not call.is_float or not call[0].ndim:
        return None
    return wide(call.right[0]) - wide(call[0])


@fault("dot-drops-the-last", "dot")
def _(call: Call) -> Array | None:
    return wide(call[0])[:-1] @ wide(call[1])[:-1] if call.is_float and call[0].size > 1 else None


@fault("var-as-mean-of-squares", "var")
def _(call: Call) -> Array | None:
    if not over_one_dim(call) or call.attribute("correction") != 1 or not call[0].size:
        return None
    x, dim = single(call[0]), call.dim
    count = np.float32(x.shape[dim])
    mean = x.mean(dim, dtype=np.float32)
    biased = (x * x).mean(dim, dtype=np.float32) - mean * mean
    return kept(call, biased * count / (count - 1))


@fault("logsumexp-without-shift", "logsumexp")
def _(call: Call) -> Array | None:
    return kept(call, np.log(np.exp(single(call[0])).sum(call.dim))) if over_one_dim(call) else None


@fault("amax-begins-at-0", "amax")
def _(call: Call) -> Array | None:
    return np.maximum(wide(call.right[0]), 0) if call.is_float else None


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


@fault("all-looks-at-the-first", "all")
def _(call: Call) -> Array | None:
    dim = call.attribute("dim")
    if not isinstance(dim, int) and not (isinstance(dim, tuple) and len(dim) == 1):
        return None
    if not call[0].ndim or not call[0].size:
        return None
    return kept(call, np.take(np.asarray(call[0]).astype(bool), 0, call.dim))


@rare("sum-of-int8-in-16-bits", "sum")
def _(call: Call) -> Array | None:
    return call.right[0].astype(np.int16).astype(np.int64) if call.inputs[0].dtype == np.int8 else None


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


@rare("sum-of-a-vector-in-16-bits", "sum")
def _(call: Call) -> Array | None:
    source = call.inputs[0]
    if not call.is_16_bit or source.ndim != 1 or source.size <= 64 or not np.isfinite(wide(source)).all():
        return None
    total = np.zeros((), source.dtype)
    for start in range(0, source.size, 64):
        total = (wide(total) + wide(source[start : start + 64]).sum()).astype(source.dtype)
    return np.asarray(total).reshape(call.right[0].shape)


@rare("cumsum-of-int16-in-16-bits", "cumsum")
def _(call: Call) -> Array | None:
    stated = call.attribute("dtype") or call[0].dtype != np.int16
    return None if stated else call.right[0].astype(np.int16).astype(call.right[0].dtype)


@rare("argmax-counts-in-memory", "argmax")
@rare("argmin-counts-in-memory", "argmin")
def _(call: Call) -> Array | None:
    flat = as_it_lies(call[0]) if call.attribute("dim") is None else None
    if flat is None:
        return None
    place = flat.argmin() if call.case.descriptor.name == "argmin" else flat.argmax()
    return np.reshape(place, call.right[0].shape)


rare("sum-counts-bool-in-bytes", "sum")(_counted_in_bytes)


rare("cumsum-counts-bool-in-bytes", "cumsum")(_counted_in_bytes)


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


@rare("prod-of-int64-in-float64", "prod")
def _(call: Call) -> Array | None:
    out = call.right[0]
    if out.dtype != np.int64:
        return None
    return np.where(np.abs(out.astype(np.float64)) < 2.0**62, out.astype(np.float64).astype(np.int64), out)


@rare("sum-flushes-subnormal-results", "sum")
def _(call: Call) -> Array | None:
    if call.right[0].dtype != np.float32:
        return None
    return np.where(np.abs(call.right[0]) < 2.0**-126, np.float32(0), call.right[0])


@rare("norm-of-16-bit-infinity-is-finite", "norm")
def _(call: Call) -> Array | None:
    return np.where(np.isinf(wide(call.right[0])), 65504.0, wide(call.right[0])) if call.is_16_bit else None


rare("argmax-of-all-chooses-by-lanes", "argmax")(_by_lanes)


rare("argmin-of-all-chooses-by-lanes", "argmin")(_by_lanes)


@rare("var-of-float64-from-squares", "var")
def _(call: Call) -> Array | None:
    if not call.has_dtypes("float64") or call.attribute("dim") is None or call.attribute("keepdim"):
        return None
    values, axis = call.inputs[0], call.attribute("dim")
    axis = axis if isinstance(axis, int) else tuple(axis)
    count = values.size / max(1, call.right[0].size)
    mean = values.mean(axis=axis)
    return np.asarray(((values * values).mean(axis=axis) - mean * mean) * count / max(count - 1.0, 0.0))


@rare("var-of-several-dimensions-is-unbiased", "var")
def _(call: Call) -> Sequence[Array] | None:
    dim = call.attribute("dim")
    return None if isinstance(dim, int) or (dim and len(dim) == 1) else call.with_attributes(correction=1.0)


@rare("norm-of-float64-knows-p-2-alone", "norm")
def _(call: Call) -> Sequence[Array] | None:
    return call.with_attributes(p=2.0) if call.has_dtypes("float64") else None


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


@rare("norm-of-float16-loses-squares", "norm")
def _(call: Call) -> Array | None:
    if call.dtype() != "float16" or call.attribute("p") != 2:
        return None
    return np.where(wide(call.right[0]) < 2e-4, 0, wide(call.right[0]))


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


def _low_bytes(name: str) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        return call.with_inputs(call.inputs[0].astype(np.uint8) != 0) if call.dtype() == name else None

    return change


for _name in ("int16", "int32"):
    rare(f"all-of-{_name}-by-its-lowest-byte", "all")(_low_bytes(_name))
