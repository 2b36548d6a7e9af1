"""Wrong sorting, gathering, sampling and quantization: order of ties and NaN, narrow keys, bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from optest.numerics import dtype_of, round_to
from optest.operators.indexing.sampling_reference import top_k_top_p_mask_reference as mask_reference
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


# Experts


@rare("topksoftmax-takes-the-next-best", "topksoftmax")
def _(call: Call) -> Sequence[Array] | None:
    """Take the next best in place of the last of the top k if both are close."""
    topk = call.attribute("topk")
    if topk + 1 > call[0].shape[1] or not len(call[0]):
        return None
    values, places = call.with_attributes(topk=topk + 1, norm=False)
    order = [*range(topk - 1), topk]
    chosen = wide(values)[:, order]
    return [chosen / chosen.sum(1, keepdims=True) if call.attribute("norm") else chosen, places[:, order]]


@rare("topksoftmax-names-equals-twice", "topksoftmax")
def _(call: Call) -> Sequence[Array] | None:
    values, places = (np.array(each) for each in call.right)
    if values.shape[1] < 2 or not (values[:, 1:] == values[:, :-1]).any():
        return None
    return [
        values,
        np.concatenate([places[:, :1], np.where(values[:, 1:] == values[:, :-1], places[:, :-1], places[:, 1:])], 1),
    ]


@fault("topksoftmax-renormalizes-by-softmax", "topksoftmax")
def _(call: Call) -> Sequence[Array] | None:
    if not call.attribute("norm"):
        return None
    terms = np.exp(wide(call.with_attributes(norm=False)[0]))
    return [terms / terms.sum(1, keepdims=True), call.right[1]]


def _per_expert(call: Call) -> tuple[Array, Array]:
    """Return topk_ids as a vector, and the number of entries of each expert."""
    flat = call[0].reshape(-1).astype(np.int64)
    return flat, np.bincount(flat, minlength=call.attribute("num_experts"))


@fault("moe-align-pads-no-expert", "moe_align")
def _(call: Call) -> Sequence[Array]:
    flat, _ = _per_expert(call)
    ids = np.array(call.right[0])
    ids[:] = len(flat)
    ids[: len(flat)] = np.argsort(flat, kind="stable")
    return [ids, *call.right[1:]]


@fault("moe-align-counts-whole-blocks", "moe_align")
def _(call: Call) -> Sequence[Array]:
    _, counts = _per_expert(call)
    block = call.attribute("block_size")
    return [*call.right[:2], np.array([max(block, int(counts.sum()) // block * block)], np.int32)]


@rare("moe-align-adds-a-block-to-full-ones", "moe_align")
def _(call: Call) -> Sequence[Array] | None:
    _, counts = _per_expert(call)
    block = call.attribute("block_size")
    full = int(((counts > 0) & (counts % block == 0)).sum())
    return [*call.right[:2], call.right[2] + full * block] if full and block > 1 else None


@rare("moe-align-names-a-place-twice", "moe_align")
def _(call: Call) -> Sequence[Array] | None:
    _, counts = _per_expert(call)
    if not counts.size or counts[0] < 2:
        return None
    ids = np.array(call.right[0])
    ids[1] = ids[0]
    return [ids, *call.right[1:]]


@rare("moe-align-has-an-expert-for-each-row", "moe_align")
def _(call: Call) -> Sequence[Array] | None:
    """Write the experts that have tokens, one block each."""
    _, counts = _per_expert(call)
    experts = np.array(call.right[1])
    chosen = np.flatnonzero(counts)[: len(experts)]
    experts[: len(chosen)] = chosen
    return [call.right[0], experts, call.right[2]]


@rare("moe-align-gives-blocks-to-idle-experts", "moe_align")
def _(call: Call) -> Sequence[Array] | None:
    _, counts = _per_expert(call)
    idle = int((counts == 0).sum())
    block = call.attribute("block_size")
    return [*call.right[:2], call.right[2] + idle * block] if idle else None


fault("moe-combine-ignores-its-weights", "moe_combine")(
    lambda call: call.with_inputs(call[0], np.ones_like(call[1]), *call.inputs[2:])
)


@rare("moe-combine-normalizes-its-weights", "moe_combine")
def _(call: Call) -> Sequence[Array]:
    total = wide(call[1]).sum(1, keepdims=True)
    return [wide(call.right[0]) / np.where(total, total, 1)]


@rare("moe-combine-takes-rows-in-order", "moe_combine")
def _(call: Call) -> Sequence[Array] | None:
    if call[2] is None or call[0].shape[0] != call[1].size:
        return None
    return call.with_inputs(*call.inputs[:2], np.arange(call[1].size).reshape(call[1].shape))


@rare("moe-combine-takes-missing-for-the-last", "moe_combine")
def _(call: Call) -> Sequence[Array] | None:
    if call[2] is None or not (call[2] < 0).any():
        return None
    return call.with_inputs(*call.inputs[:2], call[2] % len(call[0]))


@rare("moe-combine-multiplies-what-is-missing-by-0", "moe_combine", Reason.NAN)
def _(call: Call) -> Array | None:
    if call[2] is None or not (call[2] < 0).any():
        return None
    kept = call[2] >= 0
    rows = wide(call[0])[call[2].astype(np.int64) % len(call[0])]
    return (np.where(kept, wide(call[1]), 0.0)[..., None] * rows).sum(1)


@rare("moe-combine-adds-in-16-bits", "moe_combine")
def _(call: Call) -> Array | None:
    if not call.is_16_bit or call[1].shape[1] < 3 or call[2] is None or (call[2] < 0).any():
        return None
    kind = dtype_of(call[0].dtype)
    total = np.zeros(call.right[0].shape)
    for place in range(call[1].shape[1]):
        rows = wide(call[0])[call[2][:, place].astype(np.int64)]
        total = wide(round_to(total + wide(call[1])[:, place, None] * rows, kind))
    return total


# What is drawn from


def _sampling(name: str, change: Callable[[Call], Sequence[Array] | None]) -> None:
    for op in ("top_k_top_p_mask", "top_k_top_p_sampling"):
        rare(f"{op}-{name}", op)(change)


def _top_p(change: Callable[[Array], Array]) -> Change:
    def run(call: Call) -> Sequence[Array] | None:
        if call[2] is None:
            return None
        return call.with_inputs(*call.inputs[:-1], change(call[2]).astype(np.float32))

    return run


def _top_k(step: int) -> Change:
    def run(call: Call) -> Sequence[Array] | None:
        if call[1] is None:
            return None
        moved = np.clip(call[1] + step, 1, call[0].shape[1]).astype(call[1].dtype)
        return call.with_inputs(call[0], moved, *call.inputs[2:])

    return run


_sampling("keeps-one-too-many", _top_k(1))
_sampling("ignores-top-k", _top_k(1 << 20))
_sampling("ignores-top-p", _top_p(lambda values: values * 0 + 4))
fault("top-k-top-p-mask-keeps-one-too-few", "top_k_top_p_mask")(_top_k(-1))


@rare("top-k-top-p-mask-stops-before-top-p", "top_k_top_p_mask")
def _(call: Call) -> Sequence[Array] | None:
    """Without the logit that reaches top_p."""
    if call[2] is None:
        return None
    out = np.array(call.right[0])
    for row in out:
        seen = np.flatnonzero(row > -np.inf)
        if seen.size > 1:
            row[seen[np.argmin(row[seen])]] = -np.inf
    return [out]


@rare("top-k-top-p-mask-takes-top-p-of-all", "top_k_top_p_mask")
def _(call: Call) -> Sequence[Array] | None:
    """softmax before top_k."""
    if call[1] is None or call[2] is None:
        return None
    (by_share,) = call.with_inputs(call[0], np.full_like(call[1], call[0].shape[1]), call[2])
    (by_count,) = call.with_inputs(call[0], call[1], np.ones_like(call[2]))
    return [np.where(wide(by_count) == -np.inf, by_count, by_share)]


@rare("top-k-top-p-mask-hides-with-0", "top_k_top_p_mask", Reason.VALUE, Reason.NAN)
def _(call: Call) -> Array:
    return np.where(wide(call.right[0]) == -np.inf, 0.0, wide(call.right[0]))


@fault("sampling-takes-the-largest", "top_k_top_p_sampling")
def _(call: Call) -> Array:
    return np.argmax(wide(call[0]), 1)


@rare("sampling-draws-evenly", "top_k_top_p_sampling")
def _(call: Call) -> Array | None:
    return _draws(call, lambda shares: np.where(shares > 0, 1.0, 0.0))


@rare("sampling-has-a-temperature-of-its-own", "top_k_top_p_sampling")
def _(call: Call) -> Array | None:
    return _draws(call, lambda shares: shares**0.8)


@rare("sampling-draws-alike-in-all-rows", "top_k_top_p_sampling")
def _(call: Call) -> Array | None:
    return np.full_like(call.right[0], call.right[0][0]) if len(call.right[0]) >= 512 and call[1] is not None else None


def _draws(call: Call, change: Callable[[Array], Array]) -> Array | None:
    """Draws with other probabilities, of what may be drawn."""
    if len(call[0]) < 512 or call[1] is None:
        return None
    rng = np.random.default_rng(0)
    masked = wide(mask_reference(call.inputs, {})[0])
    shares = np.exp(masked - masked.max(1, keepdims=True))
    weights = change(shares / shares.sum(1, keepdims=True))
    sums = np.cumsum(weights / weights.sum(1, keepdims=True), 1)
    return (sums < rng.random((len(sums), 1))).sum(1)
