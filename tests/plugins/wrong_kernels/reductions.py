"""Wrong reductions: accumulators, tails, NaN, ties, whole tensors, truth of integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optest.spec import Reason
from wrong_kernels.changes import (
    ignoring,
    kept,
    over_one_dim,
    read_as_dense,
    single,
    sums_in,
    wide,
)
from wrong_kernels.registry import Array, Call, Change, fault, rare


def _counted_in_bytes(call: Call) -> Array | None:
    return call.right[0] & 0xFF if call.inputs[0].dtype == np.bool_ and call.right[0].dtype == np.int64 else None


fault("sum-ignores-keepdim", "sum", Reason.SHAPE)(ignoring("keepdim"))


fault("norm-ignores-p", "norm")(ignoring("p"))


@fault("sum-accumulates-in-16-bits", "sum")
def _(call: Call) -> Array | None:
    if not call.is_16_bit or not over_one_dim(call):
        return None
    dtype = call[0].dtype
    return kept(call, sums_in(call, lambda total: total.astype(dtype).astype(np.float32)))


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


@rare("sum-of-int8-in-16-bits", "sum")
def _(call: Call) -> Array | None:
    return call.right[0].astype(np.int16).astype(np.int64) if call.inputs[0].dtype == np.int8 else None


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


rare("sum-counts-bool-in-bytes", "sum")(_counted_in_bytes)


rare("cumsum-counts-bool-in-bytes", "cumsum")(_counted_in_bytes)


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


@rare("norm-of-float16-loses-squares", "norm")
def _(call: Call) -> Array | None:
    if call.dtype() != "float16" or call.attribute("p") != 2:
        return None
    return np.where(wide(call.right[0]) < 2e-4, 0, wide(call.right[0]))


def _low_bytes(name: str) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        return call.with_inputs(call.inputs[0].astype(np.uint8) != 0) if call.dtype() == name else None

    return change


for _name in ("int16", "int32"):
    rare(f"all-of-{_name}-by-its-lowest-byte", "all")(_low_bytes(_name))


@rare("all-is-false-of-nothing", "all")
def _(call: Call) -> Array | None:
    return np.zeros_like(call.right[0]) if not call.inputs[0].size else None


@rare("all-takes-nan-as-false", "all")
def _(call: Call) -> Sequence[Array] | None:
    return call.with_inputs(np.where(np.isnan(wide(call[0])), 0, call[0])) if call.is_float else None


@rare("prod-wraps-in-its-own-dtype", "prod")
def _(call: Call) -> Array | None:
    if call.inputs[0].dtype.kind not in "iu" or call.right[0].dtype.kind not in "iu":
        return None
    axis, kind = call.attribute("dim"), call.inputs[0].dtype
    out = np.prod(call.inputs[0], axis, dtype=kind, keepdims=call.attribute("keepdim")) if call[0].ndim else call[0]
    return np.asarray(out).astype(call.right[0].dtype)


@rare("dot-of-integers-in-32-bits", "dot")
def _(call: Call) -> Array | None:
    if call.inputs[0].dtype.kind not in "iu":
        return None
    return np.clip((wide(call[0]) * wide(call[1])).sum(), -(2.0**31), 2.0**31 - 1).astype(call.right[0].dtype)


rare("norm-of-order-0-counts-all", "norm")(
    lambda call: call.with_inputs(np.ones_like(call[0])) if call.attribute("p") == 0 else None
)
rare("norm-of-order-minus-infinity-is-the-largest", "norm")(
    lambda call: call.with_attributes(p=float("inf")) if call.attribute("p") == float("-inf") else None
)
