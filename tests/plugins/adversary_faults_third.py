"""More of :mod:`adversary_faults`: what a third stranger got past the case sets.

Blocks that know their own maximum alone, zeros that are skipped, squares, matrices that stand apart, places counted in
memory, two types that meet, dimensions in the middle, padding on one side, NaNs with a sign or a payload.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from adversary_faults import fault
from sixty_faults import Array, Call, Change, wide

from optest.operators.attention.attention_reference import scaled_dot_product_attention_reference as attend


def _last_changed(out: Array) -> Array:
    changed = np.array(out, order="C")
    last = changed.reshape(-1)[-1:]
    last[...] = np.where(last == 0, np.ones_like(last), np.zeros_like(last))
    changed.reshape(-1)[-1:] = last
    return changed


def _wrong_where(condition: Callable[[Call], bool]) -> Change:
    """The last element of the first output, where the condition holds."""

    def change(call: Call) -> Sequence[Array] | None:
        if not call.right[0].size or not condition(call):
            return None
        return [_last_changed(call.right[0]), *call.right[1:]]

    return change


def _dense(array: Array) -> bool:
    return bool(array.flags.c_contiguous)


# The largest of the first block in place of that of all


def _first_block(row: Array) -> Array:
    largest = row[..., :256].max(-1, keepdims=True)
    return np.exp((row - largest).astype(np.float32))


def _row(call: Call) -> Array | None:
    if call.inputs[0].dtype != np.float32 or not call.inputs[0].ndim:
        return None
    dim = call.case.attributes.get("dim", -1)
    row = np.moveaxis(call[0], dim[0] if isinstance(dim, tuple) else -1 if dim is None else dim, -1)
    return row if row.shape[-1] > 256 and row.ndim == 2 and row.shape[0] == 1 else None


@fault("softmax-shifts-by-the-first-block", "softmax")
@fault("causal-softmax-shifts-by-the-first-block", "causal_softmax")
def _(call: Call) -> Array | None:
    row = _row(call)
    if row is None:
        return None
    terms = _first_block(row)
    return np.reshape(terms / terms.sum(-1, keepdims=True), call.right[0].shape)


@fault("log-softmax-shifts-by-the-first-block", "log_softmax")
def _(call: Call) -> Array | None:
    row = _row(call)
    if row is None:
        return None
    largest = row[..., :256].max(-1, keepdims=True)
    return np.reshape(row - largest - np.log(_first_block(row).sum(-1, keepdims=True)), call.right[0].shape)


@fault("logsumexp-shifts-by-the-first-block", "logsumexp")
def _(call: Call) -> Array | None:
    row = _row(call)
    if row is None or call.attribute("dim") is None:
        return None
    return np.reshape(np.log(_first_block(row).sum(-1)) + row[..., :256].max(-1), call.right[0].shape)


@fault("attention-shifts-by-the-first-keys", "scaled_dot_product_attention")
def _(call: Call) -> Array | None:
    if len(call.inputs) > 3 or call[1].shape[-2] <= 256 or call.attribute("is_causal") or call.attribute("enable_gqa"):
        return None
    query, key, value = (wide(each) for each in call.inputs)
    scale = call.attribute("scale")
    scores = query @ key.swapaxes(-1, -2) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    terms = np.exp((scores - scores[..., :256].max(-1, keepdims=True)).astype(np.float32))
    return np.asarray(terms / terms.sum(-1, keepdims=True) @ value)


# 0 times NaN or infinity


def _zeros_meet_specials(zeros: int, specials: int) -> Callable[[Call], bool]:
    def holds(call: Call) -> bool:
        if not call.is_float or len(call.inputs) < 2:
            return False
        return not wide(call.inputs[zeros]).any() and not np.isfinite(wide(call.inputs[specials])).all()

    return holds


for _op in ("matmul", "bmm", "gemm", "linear", "einsum", "conv1d", "conv2d", "conv3d"):
    fault(f"{_op}-skips-zeros", _op)(_wrong_where(_zeros_meet_specials(0, 1)))
    fault(f"{_op}-skips-zeros-of-the-second", _op)(_wrong_where(_zeros_meet_specials(1, 0)))


# Squares, whose shape tells nothing


@fault("matmul-takes-a-row-for-a-column", "matmul")
def _(call: Call) -> Sequence[Array] | None:
    left, right = call.inputs
    if right.ndim == 1 and left.ndim == 2 and left.shape[0] == left.shape[1]:
        return call.with_inputs(left.T, right)
    if left.ndim == 1 and right.ndim > 1 and right.shape[-1] == right.shape[-2]:
        return call.with_inputs(left, right.swapaxes(-1, -2))
    return None


def _unmoved(call: Call) -> Array | None:
    return np.array(call[0]) if call[0].shape == call.right[0].shape else None


fault("transpose-leaves-squares", "transpose")(_unmoved)
fault("permute-leaves-cubes", "permute")(_unmoved)


@fault("broadcast-repeats-a-row-as-a-column", "broadcast_to")
def _(call: Call) -> Array | None:
    size = call.right[0].shape
    if call[0].ndim != 1 or len(size) != 2 or size[0] != size[1] or size[0] != len(call[0]):
        return None
    return np.broadcast_to(call[0][:, None], size)


@fault("concat-joins-the-second-twice", "concat")
def _(call: Call) -> Sequence[Array] | None:
    alike = len(call.inputs) > 2 and call.inputs[1].shape == call.inputs[2].shape and call.inputs[1].size
    return call.with_inputs(*call.inputs[:2], call.inputs[1], *call.inputs[3:]) if alike else None


@fault("split-exchanges-halves", "split")
def _(call: Call) -> Sequence[Array] | None:
    halves = len(call.right) == 2 and call.right[0].shape == call.right[1].shape
    return call.right[::-1] if halves else None


# Memory: matrices that stand apart, places that are counted as they lie


def _apart(array: Array) -> bool:
    if array.ndim < 3 or _dense(array) or array.size < 2 or min(array.strides) <= 0:
        return False
    inner = array[(0,) * (array.ndim - 2)]
    return _dense(inner) and inner.size > 1 and array.strides[-3] != inner.nbytes and array.shape[-3] > 1


for _op in ("add", "mul", "softmax", "sum", "cumsum", "matmul", "bmm", "layer_norm", "sort", "clone", "flip", "gelu"):
    fault(f"{_op}-takes-matrices-as-adjacent", _op)(
        _wrong_where(lambda call: any(_apart(array) for array in call.inputs))
    )


def _as_it_lies(array: Array) -> Array | None:
    if array.ndim < 2 or array.size < 2 or min(array.strides) <= 0 or _dense(array):
        return None
    order = np.argsort([-stride for stride in array.strides], kind="stable")
    return None if list(order) == list(range(array.ndim)) else array.transpose(order).ravel()


@fault("argmax-counts-in-memory", "argmax")
@fault("argmin-counts-in-memory", "argmin")
def _(call: Call) -> Array | None:
    flat = _as_it_lies(call[0]) if call.attribute("dim") is None else None
    if flat is None:
        return None
    place = flat.argmin() if call.case.descriptor.name == "argmin" else flat.argmax()
    return np.reshape(place, call.right[0].shape)


@fault("roll-in-memory", "roll")
def _(call: Call) -> Array | None:
    flat = None if call.attribute("dims") else _as_it_lies(call[0])
    return None if flat is None else np.roll(flat, call.attribute("shifts")).reshape(call[0].shape)


# Two types that meet


def _both_as(first: str, second: str, within: type) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        if sorted(array.dtype.name for array in call.inputs) != [first, second]:
            return None
        return call.with_inputs(*(array.astype(within) for array in call.inputs))

    return change


for _op in ("eq", "ne"):
    fault(f"{_op}-of-int32-and-int64-in-32-bits", _op)(_both_as("int32", "int64", np.int32))
    fault(f"{_op}-of-int8-and-uint8-in-8-bits", _op)(_both_as("int8", "uint8", np.uint8))


def _widened(call: Call) -> Sequence[Array] | None:
    scalars = [array.dtype for array in call.inputs if not array.ndim]
    tensors = [array for array in call.inputs if array.ndim]
    if not scalars or not tensors or not call.right[0].ndim or scalars[0] == tensors[0].dtype:
        return None
    return [_last_changed(call.right[0])]  # a wider dtype would be rounded here, and is a wrong one anyhow


for _op in ("add", "mul", "maximum", "remainder"):
    fault(f"{_op}-is-widened-by-a-scalar", _op)(_widened)

# Dimensions in the middle, in front, and stretched


def _long_dim(at: Callable[[int, int], bool], size: int) -> Change:
    def holds(call: Call) -> bool:
        dim, rank = call.case.attributes.get("dim"), call.inputs[0].ndim
        dim = dim[0] if isinstance(dim, tuple) and len(dim) == 1 else dim
        return isinstance(dim, int) and rank > 1 and at(dim % rank, rank) and call.inputs[0].shape[dim] > size

    return _wrong_where(holds)


_MIDDLE = "softmax log_softmax sum mean cumsum prod sort topk argmax max amax concat gather scatter_add any norm var"
for _op in _MIDDLE.split():
    fault(f"{_op}-of-a-long-middle", _op)(_long_dim(lambda dim, rank: 0 < dim < rank - 1, 256))
for _op in ("sort", "topk", "concat", "gather", "scatter_add", "any", "all"):
    fault(f"{_op}-of-a-long-front", _op)(_long_dim(lambda dim, rank: dim == 0, 1024))


def _middle_is_stretched(call: Call) -> bool:
    out = call.right[0].shape
    return any(len(out) == 3 and array.shape == (out[0], 1, out[2]) and out[1] > 1 for array in call.inputs)


for _op in ("add", "mul", "where", "maximum", "eq", "div", "bitwise_and", "logical_or"):
    fault(f"{_op}-stretches-no-middle", _op)(_wrong_where(_middle_is_stretched))


def _stretched(dtype: str) -> Callable[[Call], bool]:
    def holds(call: Call) -> bool:
        shapes = {array.shape for array in call.inputs if array.ndim}
        return len(shapes) > 1 and call.inputs[-1].dtype.name == dtype

    return holds


for _op, _name in (
    ("where", "float16"),
    ("where", "bool"),
    ("maximum", "bfloat16"),
    ("maximum", "int64"),
    ("mul", "bool"),
):
    fault(f"{_op}-stretches-no-{_name}", _op)(_wrong_where(_stretched(_name)))


def _beyond(dtype: str, elements: int) -> Callable[[Call], bool]:
    return lambda call: call.inputs[0].dtype.name == dtype and call.inputs[0].size > elements


for _op in ("add", "sum", "softmax", "gelu", "layer_norm", "sort", "exp", "mean"):
    fault(f"{_op}-of-float64-beyond-a-tile", _op)(_wrong_where(_beyond("float64", 4096)))
for _op in ("add", "gelu", "silu", "mul", "sort"):
    fault(f"{_op}-of-bfloat16-beyond-a-tile", _op)(_wrong_where(_beyond("bfloat16", 4096)))
for _op in ("amax", "argmax", "cumsum", "sort", "max"):
    fault(f"{_op}-of-long-int64", _op)(_wrong_where(_beyond("int64", 4096)))


def _output_beyond(dim: int, size: int) -> Callable[[Call], bool]:
    return lambda call: call.right[0].ndim > 1 and call.right[0].shape[dim] > size


for _op in ("matmul", "linear", "bmm", "einsum"):
    fault(f"{_op}-of-many-columns", _op)(_wrong_where(_output_beyond(-1, 512)))
for _op in ("gemm", "bmm"):
    fault(f"{_op}-of-many-rows", _op)(_wrong_where(_output_beyond(-2, 512)))
for _op in ("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "conv1d", "conv3d"):
    fault(f"{_op.replace('_', '-')}-of-many-channels", _op)(
        _wrong_where(lambda call: call.right[0].ndim > 2 and call.right[0].shape[1] in range(65, 100))
    )

# Attributes


def _sides_exchanged(dims: int) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        padding = call.attribute("padding")
        if not isinstance(padding, tuple) or len(padding) != 2 * dims or padding[:dims] == padding[dims:]:
            return None
        return call.with_attributes(padding=padding[dims:] + padding[:dims])

    return change


for _op, _dims in (("conv1d", 1), ("conv2d", 2), ("conv3d", 3), ("max_pool2d", 2), ("avg_pool2d", 2)):
    fault(f"{_op.replace('_', '-')}-pads-after-what-is-before", _op)(_sides_exchanged(_dims))


def _default_for_0(call: Call) -> Sequence[Array] | None:
    return call.with_attributes(eps=1e-5) if call.attribute("eps") == 0 else None


for _op in ("layer_norm", "rms_norm", "group_norm", "batch_norm"):
    fault(f"{_op.replace('_', '-')}-takes-eps-of-0-for-none", _op)(_default_for_0)


@fault("pad-with-infinity-is-finite", "pad")
def _(call: Call) -> Sequence[Array] | None:
    value = call.attribute("value")
    return call.with_attributes(value=math.copysign(60000.0, value)) if math.isinf(value) and call.is_float else None


@fault("random-sample-rounds-the-random-value", "random_sample")
def _(call: Call) -> Sequence[Array] | None:
    value = float(np.float16(call.attribute("random_value")))
    return call.with_attributes(random_value=value) if call.is_16_bit else None


@fault("cast-saturates-no-infinity", "cast")
def _(call: Call) -> Sequence[Array] | None:
    if not call.attribute("saturate") or not np.isinf(wide(call[0])).any():
        return None
    return call.with_attributes(saturate=False)


# Values


@fault("sort-puts-negative-nan-first", "sort")
def _(call: Call) -> Sequence[Array] | None:
    keys = wide(call[0]) if call.is_float else np.zeros(())
    lowest = np.isnan(keys) & np.signbit(keys)
    if not lowest.any() or call.attribute("descending"):
        return None
    order = np.argsort(np.where(lowest, -np.inf, keys), axis=call.attribute("dim"), kind="stable")
    return [np.take_along_axis(call[0], order, call.attribute("dim")), order]


@fault("cast-rounds-the-bits-of-nan", "cast")
def _(call: Call) -> Array | None:
    if call[0].dtype != np.float32 or str(call.attribute("dtype")) != "bfloat16" or not np.isnan(call[0]).any():
        return None
    bits = np.array(call[0]).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF).astype(np.uint16)
    return np.where(np.isnan(call[0]), rounded.view(call.right[0].dtype), call.right[0])


def _by_turned_keys(call: Call, down: bool) -> Array | None:
    if call[0].dtype.kind not in "iu" or not call[0].ndim or not down:
        return None
    turned = (np.zeros((), call[0].dtype) - call[0]).astype(call[0].dtype)
    return np.argsort(turned, axis=call.attribute("dim"), kind="stable")


@fault("sort-turns-the-keys-of-integers", "sort")
def _(call: Call) -> Sequence[Array] | None:
    order = _by_turned_keys(call, call.attribute("descending"))
    return None if order is None else [np.take_along_axis(call[0], order, call.attribute("dim")), order]


@fault("topk-turns-the-keys-of-integers", "topk")
def _(call: Call) -> Sequence[Array] | None:
    order = _by_turned_keys(call, call.attribute("largest"))
    if order is None:
        return None
    order = np.take(order, range(call.attribute("k")), call.attribute("dim"))
    return [np.take_along_axis(call[0], order, call.attribute("dim")), order]


def _counted_in_bytes(call: Call) -> Array | None:
    return call.right[0] & 0xFF if call.inputs[0].dtype == np.bool_ and call.right[0].dtype == np.int64 else None


fault("sum-counts-bool-in-bytes", "sum")(_counted_in_bytes)
fault("cumsum-counts-bool-in-bytes", "cumsum")(_counted_in_bytes)


@fault("any-of-uint8-gives-its-largest", "any")
def _(call: Call) -> Array | None:
    dim = call.attribute("dim")
    if call[0].dtype != np.uint8 or not call[0].ndim or not call[0].size:
        return None
    return np.max(call[0], axis=dim, keepdims=call.attribute("keepdim"))


@fault("all-of-uint8-is-a-product", "all")
def _(call: Call) -> Array | None:
    if call[0].dtype != np.uint8 or not call[0].ndim:
        return None
    product = np.prod(call[0], axis=call.attribute("dim"), keepdims=call.attribute("keepdim"), dtype=np.uint8)
    return np.asarray(product != 0).astype(np.uint8)


@fault("prod-of-int64-in-float64", "prod")
def _(call: Call) -> Array | None:
    out = call.right[0]
    if out.dtype != np.int64:
        return None
    return np.where(np.abs(out.astype(np.float64)) < 2.0**62, out.astype(np.float64).astype(np.int64), out)


@fault("sum-flushes-subnormal-results", "sum")
def _(call: Call) -> Array | None:
    if call.right[0].dtype != np.float32:
        return None
    return np.where(np.abs(call.right[0]) < 2.0**-126, np.float32(0), call.right[0])


@fault("dequantize-flushes-subnormal-results", "dequantize")
def _(call: Call) -> Array | None:
    if call.right[0].dtype != np.float32:
        return None
    return np.where(np.abs(call.right[0]) < 2.0**-126, np.float32(0), call.right[0])


@fault("norm-of-16-bit-infinity-is-finite", "norm")
def _(call: Call) -> Array | None:
    return np.where(np.isinf(wide(call.right[0])), 65504.0, wide(call.right[0])) if call.is_16_bit else None


@fault("attention-loses-nan-of-unseen-values", "scaled_dot_product_attention")
def _(call: Call) -> Sequence[Array] | None:
    values = wide(call[2])
    if not np.isnan(values).any() or call[3] is None:
        return None
    cleaned = [call[0], call[1], np.where(np.isnan(values), 0.0, values).astype(call[2].dtype), call[3]]
    return attend(cleaned, dict(call.case.attributes))


@fault("attention-loses-nan-of-values", "scaled_dot_product_attention")
def _(call: Call) -> Sequence[Array] | None:
    values = wide(call[2])
    if not np.isnan(values).any() or call[3] is not None:
        return None
    return call.with_inputs(call[0], call[1], np.where(np.isnan(values), 0.0, values).astype(call[2].dtype))


@fault("random-sample-draws-no-nan", "random_sample")
def _(call: Call) -> Sequence[Array] | None:
    logits = wide(call[0])
    if not np.isnan(logits).any():
        return None
    return call.with_inputs(np.where(np.isnan(logits), -np.inf, logits).astype(call[0].dtype))


def _small_floats(call: Call) -> Any:
    out = call.right[0]
    if not call.inputs[0].dtype.name.startswith("float8") or out.dtype.name.startswith("float8"):
        return None
    return wide(out.astype(call.inputs[0].dtype))


def _pairs_of_lowest(call: Call) -> Array | None:
    both = all(array.dtype == np.int8 and (array == -128).any() for array in call.inputs[:2])
    return call.right[0] - 1 if both and call.right[0].dtype == np.int32 else None


for _op in ("matmul", "bmm", "gemm", "linear"):
    fault(f"{_op}-of-float8-gives-float8", _op)(_small_floats)
for _op in ("matmul", "bmm", "gemm", "linear", "conv1d", "conv2d", "conv3d"):
    fault(f"{_op}-adds-pairs-in-16-bits", _op)(_pairs_of_lowest)


@fault("floor-divide-floors-the-quotient-by-infinity", "floor_divide")
def _(call: Call) -> Array | None:
    if not call.is_float:
        return None
    a, b = wide(call[0]), wide(call[1])
    return np.where(np.isfinite(a) & np.isinf(b), np.floor(a / b), wide(call.right[0]))


@fault("remainder-by-infinity-keeps-the-dividend", "remainder")
def _(call: Call) -> Array | None:
    if not call.is_float:
        return None
    a, b = np.broadcast_arrays(wide(call[0]), wide(call[1]))
    return np.where(np.isfinite(a) & np.isinf(b), a, wide(call.right[0]))
