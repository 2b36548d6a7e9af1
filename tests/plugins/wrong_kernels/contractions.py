"""Wrong products, convolutions and pooling: operands, accumulators, tails, padding, batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from optest.operators.arrays import spec_of
from optest.operators.pooling.pooling import windows_of
from optest.spec import Reason
from wrong_kernels.changes import (
    half,
    ignoring,
    narrowed_attributes,
    read_as_dense,
    single,
    wide,
    with_input,
)
from wrong_kernels.registry import Array, Call, Change, fault, rare


def _same_shape(call: Call, outputs: Sequence[Array]) -> Sequence[Array] | None:
    return outputs if outputs[0].shape == call.case.outputs[0].shape else None


def _batches_wrap(call: Call) -> Sequence[Array] | None:
    """Use the result's batch index, modulo the operand's number of batches, for each operand."""
    left, right, out = call[0], call[1], call.right[0]
    if min(left.ndim, right.ndim) < 3 or not out.size:
        return None
    left, right, result = (each.reshape(-1, *each.shape[-2:]) for each in (left, right, np.array(out, order="C")))
    for batch in range(len(result)):
        result[batch] = wide(left[batch % len(left)]) @ wide(right[batch % len(right)])
    return [result.reshape(out.shape)] if out.dtype == np.float32 else None


def _volume(name: str, axis: int, beyond: int) -> None:
    @rare(name, "conv3d")
    def _(call: Call) -> Array | None:
        out = np.array(call.right[0])
        if out.shape[axis] <= beyond:
            return None
        np.moveaxis(out, axis, 0)[beyond:] = 0
        return out


fault("gemm-ignores-trans-a-of-squares", "gemm")(
    lambda call: call.with_attributes(trans_a=False) if call[0].shape[0] == call[0].shape[1] else None
)


fault("gemm-ignores-beta", "gemm")(ignoring("beta"))


fault("matmul-accepts-misfits", "matmul", Reason.NOT_REFUSED)(lambda _: None)


@fault("matmul-cuts-operands", "matmul")
def _(call: Call) -> Array | None:
    return call.with_inputs(half(call[0]), half(call[1])) if call[0].dtype == np.float32 else None


@fault("matmul-accumulates-in-16-bits", "matmul")
def _(call: Call) -> Array | None:
    if not call.is_16_bit or call[0].ndim != 2 or call[1].ndim != 2 or call[0].dtype != call[1].dtype:
        return None
    total = np.zeros((call[0].shape[0], call[1].shape[1]), call[0].dtype)
    for k in range(call[0].shape[1]):
        total = (single(total) + np.outer(single(call[0][:, k]), single(call[1][k]))).astype(total.dtype)
    return wide(total)


@fault("matmul-drops-the-tail-of-k", "matmul")
def _(call: Call) -> Array | None:
    if not call.is_float or call[0].ndim != 2 or call[1].ndim != 2:
        return None
    k = call[0].shape[1] - call[0].shape[1] % 8
    return wide(call[0])[:, :k] @ wide(call[1])[:k]


@fault("gemm-multiplies-c-by-0", "gemm", Reason.NAN)
def _(call: Call) -> Array | None:
    if call.attribute("beta") != 0 or call[2] is None or not call.is_float:
        return None
    return wide(call.right[0]) + 0.0 * wide(call[2])


@fault("linear-forgets-bias", "linear")
def _(call: Call) -> Array | None:
    return call.with_inputs(call.inputs[0], call.inputs[1], 0 * wide(call.inputs[2])) if len(call.inputs) == 3 else None


@fault("bmm-takes-the-first-of-the-batch", "bmm")
def _(call: Call) -> Array | None:
    if not call[1].shape[0]:
        return None
    return call.with_inputs(call.inputs[0], np.broadcast_to(call.inputs[1][:1], call.inputs[1].shape))


@fault("conv2d-flips-the-kernel", "conv2d")
def _(call: Call) -> Array:
    return call.with_inputs(call.inputs[0], np.flip(call.inputs[1], (2, 3)), *call.inputs[2:])


@fault("conv1d-drops-the-last-tap", "conv1d")
def _(call: Call) -> Array:
    weight = np.array(call.inputs[1])
    weight[..., -1] = 0
    return call.with_inputs(call.inputs[0], weight, *call.inputs[2:])


rare("gemm-takes-factors-as-float32", "gemm")(narrowed_attributes("alpha", "beta"))


@rare("gemm-takes-a-column-of-c-for-a-row", "gemm")
def _(call: Call) -> Sequence[Array] | None:
    out = call.right[0]
    if len(call.inputs) < 3 or call.inputs[2].shape != (out.shape[0], 1) or out.shape[0] != out.shape[1]:
        return None
    return call.with_inputs(*call.inputs[:2], call.inputs[2].T)


@rare("gemm-of-a-batch-multiplies-c-by-0", "gemm")
def _(call: Call) -> Array | None:
    unread = call[0].ndim == 3 and call.attribute("beta") == 0 and call[2] is not None
    return wide(call.right[0]) + 0.0 * wide(call[2]) if unread else None


@rare("gemm-of-a-batch-beyond-a-tile", "gemm")
def _(call: Call) -> Array | None:
    out = np.array(call.right[0])
    if out.ndim != 3 or max(out.shape[1:]) <= 32:
        return None
    out[:, 32:] = 0
    return out


@rare("conv3d-of-single-taps-forgets-stride", "conv3d")
def _(call: Call) -> Array | None:
    taps, stride = call[1].shape[2:], call.attribute("stride")
    if max(taps) > 1 or max(stride) == 1:
        return None
    dense = call.with_attributes(stride=(1,))[0]
    return dense[tuple(slice(size) for size in call.right[0].shape)]


@rare("conv3d-of-each-channel-alone", "conv3d")
def _(call: Call) -> Array | None:
    return wide(call.right[0]) * 2 if call.attribute("groups") == call[0].shape[-4] > 1 else None


@rare("matmul-takes-a-row-for-a-column", "matmul")
def _(call: Call) -> Sequence[Array] | None:
    left, right = call.inputs
    if right.ndim == 1 and left.ndim == 2 and left.shape[0] == left.shape[1]:
        return call.with_inputs(left.T, right)
    if left.ndim == 1 and right.ndim > 1 and right.shape[-1] == right.shape[-2]:
        return call.with_inputs(left, right.swapaxes(-1, -2))
    return None


@rare("einsum-of-two-takes-the-first-of-what-one-has-alone", "einsum")
def _(call: Call) -> Sequence[Array] | None:
    sides, _, kept = str(call.attribute("equation")).replace(" ", "").partition("->")
    left, *others = sides.split(",")
    if not kept or len(others) != 1 or not left.isalpha():
        return None
    alone = [place for place, label in enumerate(left) if label not in others[0] + kept]
    return call.with_inputs(np.take(call.inputs[0], [0], alone[0]), call.inputs[1]) if alone else None


@rare("matmul-adds-pairs-of-uint8-in-16-bits", "matmul")
def _(call: Call) -> Array | None:
    left, right = (each.astype(np.int64) for each in call.inputs)
    if call.dtype() != "uint8" or call.attribute("out_dtype") is None or left.ndim != 2 or right.ndim != 2:
        return None
    pairs = (left[:, k : k + 2] @ right[k : k + 2] for k in range(0, left.shape[1], 2))
    return sum((np.minimum(each, 65_535) for each in pairs), np.zeros(call.right[0].shape, np.int64))


rare("matmul-of-batches-modulo", "matmul")(_batches_wrap)


@fault("max-pool-pads-with-0", "max_pool2d")
def _(call: Call) -> Array | None:
    padding = call.attribute("padding")
    if not any(padding):
        return None
    top, left, bottom, right = padding * (4 // len(padding))
    widths = [(0, 0)] * (call[0].ndim - 2) + [(top, bottom), (left, right)]
    padded = np.pad(call.inputs[0], widths)
    return _same_shape(call, call.referred([padded], {**call.case.attributes, "padding": (0,)}))


fault("avg-pool-ignores-count-include-pad", "avg_pool2d")(ignoring("count_include_pad"))


@rare("max-pool-begins-at-the-lowest-number", "max_pool2d")
def _(call: Call) -> Array | None:
    out = call.right[0]
    return np.maximum(out, np.finfo(np.float32).min) if out.dtype == np.float32 else None


@rare("max-pool-of-int16-pads-with-0", "max_pool2d")
def _(call: Call) -> Array | None:
    return np.maximum(call.right[0], 0) if call[0].dtype == np.int16 and max(call.attribute("padding")) else None


def _batched_as_dense(place: int) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        if call[0].ndim != 3 or len(call.inputs) <= place:
            return None
        inputs = list(call.inputs)
        inputs[place] = read_as_dense(call, place)
        return call.with_inputs(*inputs)

    return change


for _place in range(3):
    rare(f"gemm-of-a-batch-reads-{'abc'[_place]}-as-dense", "gemm")(_batched_as_dense(_place))


def _sides_exchanged(dims: int) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        padding = call.attribute("padding")
        if not isinstance(padding, tuple) or len(padding) != 2 * dims or padding[:dims] == padding[dims:]:
            return None
        return call.with_attributes(padding=padding[dims:] + padding[:dims])

    return change


for _op, _dims in (("conv1d", 1), ("conv2d", 2), ("conv3d", 3), ("max_pool2d", 2), ("avg_pool2d", 2)):
    rare(f"{_op.replace('_', '-')}-pads-after-what-is-before", _op)(_sides_exchanged(_dims))


def _small_floats(call: Call) -> Any:
    out = call.right[0]
    if not call.inputs[0].dtype.name.startswith("float8") or out.dtype.name.startswith("float8"):
        return None
    return wide(out.astype(call.inputs[0].dtype))


def _pairs_of_lowest(call: Call) -> Array | None:
    both = all(array.dtype == np.int8 and (array == -128).any() for array in call.inputs[:2])
    return call.right[0] - 1 if both and call.right[0].dtype == np.int32 else None


for _op in ("matmul", "bmm", "gemm", "linear"):
    rare(f"{_op}-of-float8-gives-float8", _op)(_small_floats)


for _op in ("matmul", "bmm", "gemm", "linear", "conv1d", "conv2d", "conv3d"):
    rare(f"{_op}-adds-pairs-in-16-bits", _op)(_pairs_of_lowest)


_volume("conv3d-beyond-16-planes", -3, 16)
_volume("conv3d-beyond-16-rows", -2, 16)
_volume("conv3d-beyond-16-channels", -4, 16)


@rare("avg-pool2d-counts-what-lies-beyond-the-padding", "avg_pool2d")
def _(call: Call) -> Array | None:
    if not call.attribute("count_include_pad") or call.attribute("divisor_override") is not None:
        return None
    walk = windows_of(spec_of(call.inputs[0]), call.case.attributes)
    counts = np.multiply.outer(*(np.array(walk.counts(axis, with_padding=True)) for axis in (0, 1)))
    return wide(call.right[0]) * counts / walk.elements


@rare("bmm-ends-at-3e38", "bmm")
def _(call: Call) -> Array | None:
    return np.clip(call.right[0], -3e38, 3e38) if call.right[0].dtype == np.float32 else None


@rare("conv1d-adds-its-bias-along-the-last-axis", "conv1d")
def _(call: Call) -> Array | None:
    bias = call[2]
    if bias is None or call.right[0].shape[-1] != bias.size:
        return None
    return wide(with_input(call, 2, np.zeros_like(bias))[0]) + wide(bias)


@rare("linear-adds-its-bias-along-rows", "linear")
def _(call: Call) -> Array | None:
    bias = call[2]
    if bias is None or bias.ndim != 1 or call.right[0].shape != bias.shape * 2:
        return None
    return wide(with_input(call, 2, np.zeros_like(bias))[0]) + wide(bias)[:, None]


@rare("gemm-adds-a-row-as-a-column", "gemm")
def _(call: Call) -> Sequence[Array] | None:
    c, rows = call[2], call.right[0].shape[-2]
    return with_input(call, 2, c[:, None]) if c is not None and c.shape == (rows,) else None


@rare("gemm-ignores-trans-b-of-squares", "gemm")
def _(call: Call) -> Sequence[Array] | None:
    return call.with_attributes(trans_b=False) if call[1].shape[-1] == call[1].shape[-2] else None


@rare("einsum-sums-repeated-labels-apart", "einsum")
def _(call: Call) -> Array | None:
    return wide(call.inputs[0]).sum() if len(call.inputs) == 1 and not call.right[0].ndim else None


# Products of experts


def _offsets(change: Callable[[Array, Call], Array]) -> Change:
    """Other ends of the experts, held within the rows."""

    def run(call: Call) -> Sequence[Array] | None:
        if not call[2].size:
            return None
        ends = np.clip(change(call[2].astype(np.int64), call), 0, len(call[0]))
        return call.with_inputs(*call.inputs[:2], np.maximum.accumulate(ends).astype(call[2].dtype))

    return run


fault("grouped-matmul-has-experts-of-one-size", "grouped_matmul")(
    _offsets(lambda ends, call: -(-len(call[0]) // len(ends)) * np.arange(1, len(ends) + 1))
)
rare("grouped-matmul-ends-a-row-late", "grouped_matmul")(_offsets(lambda ends, _: np.append(ends[:-1] + 1, ends[-1])))
rare("grouped-matmul-misses-the-last-tile", "grouped_matmul")(
    _offsets(lambda ends, _: np.append(ends[:-1], ends[-1] // 16 * 16 if ends[-1] > 16 else ends[-1]))
)
fault("grouped-matmul-takes-the-next-expert", "grouped_matmul")(
    lambda call: call.with_inputs(call[0], np.roll(call[1], 1, 0), call[2])
)


@rare("grouped-matmul-loses-experts-behind-an-empty-one", "grouped_matmul")
def _(call: Call) -> Array | None:
    sizes = np.diff(call[2], prepend=0)
    empty = np.flatnonzero(sizes == 0)
    if not empty.size:
        return None
    out = np.array(wide(call.right[0]))
    out[call[2][empty[0]] :] = 0
    return out


@rare("grouped-matmul-takes-square-matrices-as-transposed", "grouped_matmul")
def _(call: Call) -> Sequence[Array] | None:
    if call[1].shape[1] != call[1].shape[2]:
        return None
    return call.with_inputs(call[0], np.swapaxes(call[1], 1, 2), call[2])
