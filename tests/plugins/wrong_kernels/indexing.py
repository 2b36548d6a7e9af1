"""Wrong sorting, gathering, sampling and quantization: order of ties and NaN, narrow keys, bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optest.spec import Reason
from wrong_kernels.changes import (
    ignoring,
    wide,
)
from wrong_kernels.registry import Array, Call, Change, fault, rare


def _fits(out: Array, index: Array, dim: int) -> bool:
    others = [size for axis, size in enumerate(out.shape) if axis != dim % out.ndim]
    return others == [size for axis, size in enumerate(index.shape) if axis != dim % out.ndim]


def _by_turned_keys(call: Call, down: bool) -> Array | None:
    if call[0].dtype.kind not in "iu" or not call[0].ndim or not down:
        return None
    turned = (np.zeros((), call[0].dtype) - call[0]).astype(call[0].dtype)
    return np.argsort(turned, axis=call.attribute("dim"), kind="stable")


def _is_vector(call: Call) -> bool:
    return len(call.shape()) == 1


fault("sort-ignores-descending", "sort")(ignoring("descending"))


fault("topk-ignores-largest", "topk")(ignoring("largest"))


@fault("scatter-add-overwrites", "scatter_add")
def _(call: Call) -> Array | None:
    if not call.inputs[0].ndim:
        return None
    out = np.array(call.inputs[0])
    index, source = call.inputs[1], call.inputs[2]
    cut_source = source[tuple(slice(size) for size in index.shape)]
    np.put_along_axis(out, np.asarray(index, np.int64), cut_source, call.dim) if _fits(out, index, call.dim) else None
    return out


@rare("random-sample-keeps-places-in-16-bits", "random_sample")
def _(call: Call) -> Array:
    return np.asarray(int(call.right[0]) & 0xFFFF, call.right[0].dtype)


@rare("random-sample-keeps-places-in-7-bits", "random_sample")
def _(call: Call) -> Array | None:
    return call.right[0] & np.uint8(0x7F) if call.right[0].dtype == np.uint8 else None


@rare("random-sample-masks-with-a-number", "random_sample")
def _(call: Call) -> Sequence[Array]:
    logits = wide(call[0])
    return call.with_inputs(np.where(np.isneginf(logits), -1e4, logits).astype(call[0].dtype))


@rare("random-sample-compares-float64-as-float32", "random_sample")
def _(call: Call) -> Sequence[Array] | None:
    return call.with_inputs(call[0].astype(np.float32).astype(np.float64)) if call[0].dtype == np.float64 else None


@rare("random-sample-rounds-the-random-value", "random_sample")
def _(call: Call) -> Sequence[Array] | None:
    value = float(np.float16(call.attribute("random_value")))
    return call.with_attributes(random_value=value) if call.is_16_bit else None


@rare("sort-puts-negative-nan-first", "sort")
def _(call: Call) -> Sequence[Array] | None:
    keys = wide(call[0]) if call.is_float else np.zeros(())
    lowest = np.isnan(keys) & np.signbit(keys)
    if not lowest.any() or call.attribute("descending"):
        return None
    order = np.argsort(np.where(lowest, -np.inf, keys), axis=call.attribute("dim"), kind="stable")
    return [np.take_along_axis(call[0], order, call.attribute("dim")), order]


@rare("sort-turns-the-keys-of-integers", "sort")
def _(call: Call) -> Sequence[Array] | None:
    order = _by_turned_keys(call, call.attribute("descending"))
    return None if order is None else [np.take_along_axis(call[0], order, call.attribute("dim")), order]


@rare("topk-turns-the-keys-of-integers", "topk")
def _(call: Call) -> Sequence[Array] | None:
    order = _by_turned_keys(call, call.attribute("largest"))
    if order is None:
        return None
    order = np.take(order, range(call.attribute("k")), call.attribute("dim"))
    return [np.take_along_axis(call[0], order, call.attribute("dim")), order]


@rare("random-sample-draws-no-nan", "random_sample")
def _(call: Call) -> Sequence[Array] | None:
    logits = wide(call[0])
    if not np.isnan(logits).any():
        return None
    return call.with_inputs(np.where(np.isnan(logits), -np.inf, logits).astype(call[0].dtype))


@rare("sort-puts-nan-last-in-falling-vectors", "sort")
def _(call: Call) -> Sequence[Array] | None:
    if not (_is_vector(call) and call.is_float and call.attribute("descending")):
        return None
    unordered = np.isnan(wide(call.right[0]))
    return [np.concatenate([out[~unordered], out[unordered]]) for out in call.right]


@rare("topk-of-a-vector-names-equals-twice", "topk")
def _(call: Call) -> Sequence[Array] | None:
    values, places = (np.array(out) for out in call.right)
    if not _is_vector(call) or values.size < 2:
        return None
    return [values, np.concatenate([places[:1], np.where(values[1:] == values[:-1], places[:-1], places[1:])])]


@rare("dequantize-in-float16", "dequantize")
def _(call: Call) -> Array | None:
    if len(call.inputs) != 2 or call.inputs[1].dtype != np.float16 or call.inputs[1].size != 1:
        return None
    with np.errstate(over="ignore"):
        return call.inputs[0].astype(np.float16) * call.inputs[1].reshape(())


@rare("dequantize-flushes-subnormal-results", "dequantize")
def _(call: Call) -> Array | None:
    if call.right[0].dtype != np.float32:
        return None
    return np.where(np.abs(call.right[0]) < 2.0**-126, np.float32(0), call.right[0])


rare("quantize-takes-0-for-no-bound", "quantize")(
    lambda call: (
        call.with_attributes(**{name: call.attribute(name) or None for name in ("quant_min", "quant_max")})
        if 0 in (call.attribute("quant_min"), call.attribute("quant_max"))
        else None
    )
)


rare("dequantize-takes-its-zero-point-in-16-bits", "dequantize")(
    lambda call: (
        call.with_inputs(*call.inputs[:2], call.inputs[2].astype(np.int16).astype(np.int64))
        if call[2] is not None and call.dtype(2) == "int64"
        else None
    )
)


def _sorted_with_sign(dtype: str) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        if call[0].dtype != dtype:
            return None
        values, places = call.with_inputs(call[0].astype(dtype[1:]))
        return [values.astype(dtype), places]

    return change


for _dtype in ("uint16", "uint32", "uint64"):
    rare(f"sort-of-{_dtype}-with-a-sign", "sort")(_sorted_with_sign(_dtype))


@rare("embedding-makes-its-padding-row-zeros", "embedding")
def _(call: Call) -> Array | None:
    table, index = call.inputs
    if call.attribute("padding_idx") is None:
        return None
    return np.where(
        (index == call.attribute("padding_idx") % len(table))[..., None], table.dtype.type(0), call.right[0]
    )


fault("index-add-ignores-alpha", "index_add")(ignoring("alpha"))


@rare("index-add-counts-a-repeated-index-once", "index_add")
def _(call: Call) -> Sequence[Array] | None:
    index = np.atleast_1d(call[1])
    if not call[0].ndim or len(np.unique(index)) == len(index):
        return None
    _, first = np.unique(index, return_index=True)
    return call.with_inputs(call[0], index[first], np.take(call[2], first, call.dim))


@fault("index-copy-adds", "index_copy")
def _(call: Call) -> Array | None:
    return wide(call[0]) + wide(call.right[0]) if call.is_float else None


@fault("scatter-adds", "scatter")
def _(call: Call) -> Array | None:
    return wide(call[0]) + wide(call.right[0]) if call.is_float else None


@fault("take-counts-along-rows", "take")
def _(call: Call) -> Sequence[Array] | None:
    return call.with_inputs(call[0].T, call[1]) if call[0].ndim > 1 else None


@rare("take-has-zeros-for-negative-indices", "take")
def _(call: Call) -> Array:
    return np.where(call[1] < 0, np.zeros((), call[0].dtype), call.right[0])


@fault("kthvalue-counts-from-the-largest", "kthvalue")
def _(call: Call) -> Sequence[Array] | None:
    size = call[0].shape[call.dim] if call[0].ndim else 0
    return call.with_attributes(k=size + 1 - call.attribute("k")) if size else None


@fault("kthvalue-ignores-keepdim", "kthvalue", Reason.SHAPE)
def _(call: Call) -> Sequence[Array] | None:
    return call.with_attributes(keepdim=False) if call.attribute("keepdim") and call[0].ndim else None


@rare("kthvalue-puts-nan-first", "kthvalue")
def _(call: Call) -> Sequence[Array] | None:
    if not call.is_float or not np.isnan(wide(call[0])).any():
        return None
    lowest = np.where(np.isnan(wide(call[0])), -np.inf, wide(call[0])).astype(call[0].dtype)
    return call.with_inputs(lowest)


fault("topksoftmax-ignores-norm", "topksoftmax")(ignoring("norm"))


@rare("topksoftmax-takes-softmax-of-the-chosen", "topksoftmax")
def _(call: Call) -> Sequence[Array] | None:
    return call.with_attributes(norm=True) if not call.attribute("norm") else None


fault("topkrouter-ignores-its-factor", "topkrouter")(ignoring("routed_scaling_factor"))


@fault("topkrouter-shares-have-the-bias", "topkrouter")
def _(call: Call) -> Sequence[Array]:
    scores = 1 / (1 + np.exp(-wide(call[0]))) + wide(call[1])
    chosen = np.take_along_axis(scores, call.right[1].astype(np.int64), -1)
    return [call.attribute("routed_scaling_factor") * chosen / chosen.sum(-1, keepdims=True), call.right[1]]


@rare("topkrouter-chooses-from-all-groups", "topkrouter")
def _(call: Call) -> Sequence[Array]:
    return call.with_attributes(topk_group=call.attribute("n_group"))


@fault("dequantize-awq-unpacks-in-order", "dequantize_awq")
def _(call: Call) -> Array:
    return call.right[0].reshape(len(call[0]), -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]].reshape(call.right[0].shape)


@fault("dequantize-awq-has-zeros-of-8", "dequantize_awq")
def _(call: Call) -> Sequence[Array]:
    return call.with_inputs(call[0], call[1], np.full(call[2].shape, -0x77777778, np.int32))
