"""Wrong softmax and norms: shifts, one pass, eps, statistics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from optest.numerics import dtype_of, round_to
from wrong_kernels.changes import (
    half,
    ignoring,
    narrowed_attributes,
    read_as_dense,
    single,
    wide,
    with_input,
)
from wrong_kernels.registry import Array, Call, fault, rare


def _normalized(call: Call, centre: bool = True, eps: float | None = None, one_pass: bool = False) -> Array | None:
    dims = tuple(range(-len(call.attribute("normalized_shape")), 0))
    x = single(call[0])
    if not x.size or (call.case.descriptor.name == "layer_norm" and call.attribute("statistics")):
        return None
    mean = x.mean(dims, keepdims=True)
    variance = (x * x).mean(dims, keepdims=True) - mean * mean if one_pass else x.var(dims, keepdims=True)
    added = np.float32(call.attribute("eps") if eps is None else eps)
    out = (x - mean * centre) / np.sqrt(variance + added)
    for place, operation in ((1, np.multiply), (2, np.add)):
        if call[place] is not None:
            out = operation(out, single(call[place]))
    return out


def _first_block(row: Array) -> Array:
    largest = row[..., :256].max(-1, keepdims=True)
    return np.exp((row - largest).astype(np.float32))


def _row(call: Call) -> Array | None:
    if call.inputs[0].dtype != np.float32 or not call.inputs[0].ndim:
        return None
    dim = call.case.attributes.get("dim", -1)
    row = np.moveaxis(call[0], dim[0] if isinstance(dim, tuple) else -1 if dim is None else dim, -1)
    return row if row.shape[-1] > 256 and row.ndim == 2 and row.shape[0] == 1 else None


@fault("softmax-without-shift", "softmax")
def _(call: Call) -> Array | None:
    if not call[0].ndim:
        return None
    terms = np.exp(single(call[0]))
    return terms / terms.sum(call.dim, keepdims=True)


@fault("softmax-over-the-last-always", "softmax")
def _(call: Call) -> Array:
    return call.with_attributes(dim=-1)


@fault("softmax-with-terms-in-16-bits", "softmax")
def _(call: Call) -> Array | None:
    if not call[0].ndim or not call[0].size:
        return None
    x = single(call[0])
    terms = half(np.exp(x - x.max(call.dim, keepdims=True)))
    return terms / terms.sum(call.dim, keepdims=True)


@fault("layer-norm-without-eps", "layer_norm")
def _(call: Call) -> Array | None:
    return _normalized(call, eps=0.0) if call[0].dtype != np.float64 else None


@fault("layer-norm-in-one-pass", "layer_norm")
def _(call: Call) -> Array | None:
    return _normalized(call, one_pass=True) if call[0].dtype != np.float64 else None


@fault("layer-norm-without-centre", "layer_norm")
def _(call: Call) -> Array | None:
    return _normalized(call, centre=False) if call[0].dtype != np.float64 else None


@fault("log-softmax-as-log-of-softmax", "log_softmax")
def _(call: Call) -> Array | None:
    if not call[0].ndim or not call[0].size or call[0].dtype == np.float64:
        return None
    x = single(call[0])
    terms = np.exp(x - x.max(call.dim, keepdims=True))
    return np.log(terms / terms.sum(call.dim, keepdims=True))


rare("rms-norm-takes-eps-as-float32", "rms_norm")(narrowed_attributes("eps"))


@rare("causal-softmax-masks-with-a-number", "causal_softmax")
def _(call: Call) -> Array | None:
    source = wide(call.inputs[0])
    if not source.size or call.inputs[0].dtype == np.float16:
        return None
    rows, columns = source.shape[-2:]
    masked = np.where(np.triu(np.ones((rows, columns), bool), columns - rows + 1), -1e9, source)
    shares = np.exp(masked - masked.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


@rare("layer-norm-statistics-read-as-dense", "layer_norm")
def _(call: Call) -> Sequence[Array] | None:
    if not call.attribute("statistics"):
        return None
    return [call.right[0], *call.with_inputs(read_as_dense(call), *call.inputs[1:])[1:]]


@rare("layer-norm-statistics-of-wide-weights", "layer_norm")
def _(call: Call) -> Sequence[Array] | None:
    mixed = len({argument.spec.dtype for argument in call.case.inputs}) > 1
    return [*call.right[:2], wide(call.right[2]) * 2] if mixed and call.attribute("statistics") else None


@rare("softmax-shifts-by-the-first-block", "softmax")
@rare("causal-softmax-shifts-by-the-first-block", "causal_softmax")
def _(call: Call) -> Array | None:
    row = _row(call)
    if row is None:
        return None
    terms = _first_block(row)
    return np.reshape(terms / terms.sum(-1, keepdims=True), call.right[0].shape)


@rare("log-softmax-shifts-by-the-first-block", "log_softmax")
def _(call: Call) -> Array | None:
    row = _row(call)
    if row is None:
        return None
    largest = row[..., :256].max(-1, keepdims=True)
    return np.reshape(row - largest - np.log(_first_block(row).sum(-1, keepdims=True)), call.right[0].shape)


@rare("softmax-begins-its-maximum-at-minus-10000", "softmax")
def _(call: Call) -> Array | None:
    source = wide(call.inputs[0])
    if not source.ndim or not source.size:
        return None
    terms = np.exp(source - np.maximum(source.max(call.dim, keepdims=True), -1e4))
    return terms / terms.sum(call.dim, keepdims=True)


@rare("logsumexp-shifts-by-the-first-block", "logsumexp")
def _(call: Call) -> Array | None:
    row = _row(call)
    if row is None or call.attribute("dim") is None:
        return None
    return np.reshape(np.log(_first_block(row).sum(-1)) + row[..., :256].max(-1), call.right[0].shape)


def _default_for_0(call: Call) -> Sequence[Array] | None:
    return call.with_attributes(eps=1e-5) if call.attribute("eps") == 0 else None


for _op in ("layer_norm", "rms_norm", "group_norm", "batch_norm"):
    rare(f"{_op.replace('_', '-')}-takes-eps-of-0-for-none", _op)(_default_for_0)


@rare("softmax-takes-minus-infinity-as-minus-100", "softmax")
def _(call: Call) -> Sequence[Array] | None:
    x = call.inputs[0]
    return call.with_inputs(np.where(np.isneginf(wide(x)), x.dtype.type(-100), x)) if call.is_float else None


@rare("batch-norm-looks-for-channels-in-the-last-dimension", "batch_norm")
def _(call: Call) -> Array | None:
    x = call.inputs[0]
    if x.ndim < 3 or x.shape[1] != x.shape[-1]:
        return None
    return np.swapaxes(with_input(call, 0, np.swapaxes(x, 1, -1))[0], 1, -1)


rare("batch-norm-trains-by-running-statistics", "batch_norm")(
    lambda call: call.with_attributes(training=False) if call.attribute("training") and call[1] is not None else None
)


@rare("batch-norm-trains-from-squares", "batch_norm")
def _(call: Call) -> Array | None:
    x, weight, bias = single(call[0]), call[3], call[4]
    if not call.attribute("training") or not x.size:
        return None
    dims, channel = (0, *range(2, x.ndim)), (-1, *(1,) * (x.ndim - 2))
    mean = x.mean(dims, keepdims=True)
    variance = np.maximum((x * x).mean(dims, keepdims=True) - mean * mean, 0)
    out = (x - mean) / np.sqrt(variance + np.float32(call.attribute("eps")))
    out = out if weight is None else out * single(weight).reshape(channel)
    return out if bias is None else out + single(bias).reshape(channel)


@fault("add-rms-norm-forgets-the-residual", "add_rms_norm")
def _(call: Call) -> Sequence[Array]:
    return [call.right[0], call[0]]


@rare("add-rms-norm-normalizes-by-the-input-alone", "add_rms_norm")
def _(call: Call) -> Sequence[Array] | None:
    if not call[0].size:
        return None
    dims = tuple(range(-len(call.attribute("normalized_shape")), 0))
    sizes = [np.sqrt((wide(each) ** 2).mean(dims, keepdims=True)) for each in (call.right[1], call[0])]
    return [wide(call.right[0]) * sizes[0] / sizes[1], call.right[1]]


@fault("add-rms-norm-has-no-eps", "add_rms_norm")
def _(call: Call) -> Sequence[Array]:
    return call.with_attributes(eps=0.0)


@fault("add-rms-norm-keeps-the-normalized-row", "add_rms_norm")
def _(call: Call) -> Sequence[Array]:
    return [call.right[0], call.right[0]]


@fault("add-rms-norm-adds-behind-the-norm", "add_rms_norm")
def _(call: Call) -> Sequence[Array]:
    normalized = call.with_inputs(call[0], np.zeros_like(call[0]), *call.inputs[2:])[0]
    return [normalized + wide(call[1]), call.right[1]]


@rare("add-rms-norm-rounds-before-the-weight", "add_rms_norm")
def _(call: Call) -> Sequence[Array] | None:
    """Round before the multiplication by the weight, as transformers and vLLM do."""
    if not call.is_16_bit or call[2] is None:
        return None
    row, total = call.with_inputs(*call.inputs[:2], np.ones_like(call[2]))
    return [wide(round_to(row, dtype_of(call[0].dtype))) * wide(call[2]), total]


@rare("add-rms-norm-sums-squares-in-16-bits", "add_rms_norm")
def _(call: Call) -> Sequence[Array] | None:
    if not call.is_16_bit or call[0].ndim != 2 or len(call.attribute("normalized_shape")) != 1 or call[2] is None:
        return None
    kind, total = dtype_of(call[0].dtype), wide(call.right[1])
    square = round_to((total * total).mean(-1, keepdims=True), kind)
    return [total / np.sqrt(wide(square) + (call.attribute("eps") or 2.0**-23)) * wide(call[2]), call.right[1]]


@fault("normalize-divides-by-the-square", "normalize")
def _(call: Call) -> Array | None:
    norm = np.linalg.norm(wide(call[0]), axis=call.dim, keepdims=True) if call[0].size else None
    return None if norm is None or call.attribute("p") != 2 else wide(call.right[0]) / norm


rare("normalize-ignores-p", "normalize")(ignoring("p"))
rare("normalize-adds-no-eps", "normalize")(lambda call: call.with_attributes(eps=0.0))


@fault("cross-entropy-sums", "cross_entropy")
def _(call: Call) -> Sequence[Array] | None:
    return call.with_attributes(reduction="sum") if call.attribute("reduction") == "mean" else None


@rare("cross-entropy-counts-what-is-ignored", "cross_entropy")
def _(call: Call) -> Array | None:
    ignored = np.mean(call[1] == call.attribute("ignore_index")) if call[1].size else 0.0
    return wide(call.right[0]) * (1 - ignored) if ignored and call.attribute("reduction") == "mean" else None


@rare("cross-entropy-divides-by-the-number", "cross_entropy")
def _(call: Call) -> Array | None:
    if call[2] is None or call.attribute("reduction") != "mean":
        return None
    return wide(call.right[0]) * wide(call[2])[call[1]].mean()


@rare("cross-entropy-without-shift", "cross_entropy")
def _(call: Call) -> Array | None:
    if call[0].ndim != 2 or call.attribute("reduction") != "none" or not call[0].size or call[2] is not None:
        return None
    x, target = single(call[0]), np.clip(call[1], 0, None)[:, None]
    return np.log(np.exp(x).sum(1)) - np.take_along_axis(x, target, 1)[:, 0]
