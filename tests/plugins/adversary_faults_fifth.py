"""More of :mod:`adversary_faults`: what a fifth stranger got past the case sets, much of it from issue trackers.

Forms for which libraries have a kernel of their own, and that nobody asked; lanes behind the last element that count
as 0; vectors alone; pairs of special values in tensors of one shape; sizes between two blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from adversary_faults import fault
from sixty_faults import Array, Call, Change, wide

Form = Callable[[Call], Any]


def _wrong(out: Array) -> Array:
    out = np.asarray(out)
    return ~out if out.dtype == np.bool_ else (out == 0).astype(out.dtype)


def _unknown(form: Form) -> Change:
    """A kernel that yields what happens to stand there where a call has this form."""

    def change(call: Call) -> Sequence[Array] | None:
        return [_wrong(out) for out in call.right] if form(call) else None

    return change


def _shape(call: Call, place: int = 0) -> tuple[int, ...]:
    given = call[place]
    return () if given is None else tuple(given.shape)


def _dtype(call: Call, place: int = 0) -> str:
    return str(call[place].dtype.name)


def _is_dense(array: Array) -> bool:
    return bool(array.flags["C_CONTIGUOUS"])


def _pair(call: Call, name: str) -> tuple[int, ...]:
    """What an attribute of a convolution or pooling states for each dimension."""
    stated = call.attribute(name)
    count = len(_shape(call, 1)) - 2 if call.case.descriptor.name.startswith("conv") else 2
    return tuple(stated) * count if len(stated) == 1 else tuple(stated)


# Elements: five dimensions, channels as many as columns, scalars, dimensions that are swapped

_BINARY = (
    "add",
    "sub",
    "mul",
    "eq",
    "ge",
    "bitwise_and",
    "logical_xor",
    "floor_divide",
    "fmod",
    "minimum",
    "remainder",
)


def _swapped(call: Call) -> bool:
    return any(each.ndim == 3 and each.size and not _is_dense(each) for each in call.inputs)


def _channels_like_columns(call: Call) -> bool:
    left, right = _shape(call), _shape(call, 1)
    return len(left) == 4 and right[1:] == (1, 1) and right[0] == left[3] > 1


for _op in _BINARY:
    fault(f"{_op}-of-three-dimensions-out-of-order", _op)(_unknown(_swapped))
for _op in ("add", "mul", "pow"):
    fault(f"{_op}-adds-channels-to-columns", _op)(_unknown(_channels_like_columns))
    fault(f"{_op}-broadcasts-four-dimensions", _op)(
        _unknown(lambda call: len(_shape(call)) == 5 and _shape(call) != _shape(call, 1))
    )
fault("add-scales-no-scalar", "add")(_unknown(lambda call: _shape(call, 1) == () and call.attribute("alpha") != 1))
fault("add-has-65535-rows", "add")(_unknown(lambda call: call.right[0].ndim == 2 and len(call.right[0]) > 65_535))
fault("where-has-one-row-of-conditions", "where")(
    _unknown(lambda call: len(_shape(call)) == 2 and _shape(call)[0] == 1 < call.right[0].shape[0])
)


@fault("eq-compares-bits-of-one-shape", "eq")
def _(call: Call) -> Array | None:
    if {_dtype(call), _dtype(call, 1)} != {"float32"} or not _shape(call) or _shape(call) != _shape(call, 1):
        return None
    one, other = (np.ascontiguousarray(each).view(np.int32) for each in call.inputs)
    return one == other


@fault("gt-takes-a-scalar-as-an-integer", "gt")
def _(call: Call) -> Array | None:
    left, right = call.inputs
    return None if right.ndim or left.dtype != np.int32 or right.dtype != np.float32 else left > int(right)


@fault("relu-makes-nan-0-behind-the-last-vector", "relu")
def _(call: Call) -> Array | None:
    if not call.is_float or call.inputs[0].size % 8 == 0:
        return None
    out = np.array(call.right[0]).reshape(-1)
    tail = out[out.size // 8 * 8 :]
    tail[np.isnan(wide(tail))] = 0
    return out.reshape(call.right[0].shape)


# Extremes and truth: lanes that count as 0, whole vectors, the last places


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
    fault(f"{_op}-of-columns-counts-lanes-as-0", _op)(_lanes_count_as_0(_choose, -2))


def _beyond_a_block(choose: Any) -> Change:
    def change(call: Call) -> Array | None:
        source = call.inputs[0]
        is_long = source.ndim == 1 and source.size > 512 and call.attribute("dim") is None
        return choose(call.right[0], np.zeros((), source.dtype)) if is_long and call.is_float else None

    return change


for _op, _choose in (("amax", np.maximum), ("amin", np.minimum), ("max", np.maximum), ("min", np.minimum)):
    fault(f"{_op}-of-a-long-vector-counts-lanes-as-0", _op)(_beyond_a_block(_choose))


@fault("amin-of-uint8-starts-at-127", "amin")
def _(call: Call) -> Array | None:
    return np.minimum(call.right[0], np.uint8(127)) if _dtype(call) == "uint8" else None


@fault("max-of-int8-starts-at-0", "max")
def _(call: Call) -> Sequence[Array] | None:
    return [np.maximum(call.right[0], np.int8(0)), *call.right[1:]] if _dtype(call) == "int8" else None


for _op in ("max", "min"):

    @fault(f"{_op}-of-int64-by-float64", _op)
    def _(call: Call) -> Array | None:
        if _dtype(call) != "int64" or call.attribute("dim") is not None:
            return None
        return call.right[0].astype(np.float64).astype(np.int64)


for _op in ("argmax", "argmin"):
    fault(f"{_op}-counts-on-in-one-column", _op)(
        _unknown(lambda call: len(_shape(call)) == 2 and _shape(call)[1] == 1 and _shape(call)[0] > 32_767)
    )
for _op in ("all", "any"):

    @fault(f"{_op}-sees-1024-elements", _op)
    def _(call: Call) -> Sequence[Array] | None:
        return call.with_inputs(call.inputs[0][:1024]) if len(_shape(call)) == 1 and _shape(call)[0] > 1024 else None


def _low_bytes(name: str) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        return call.with_inputs(call.inputs[0].astype(np.uint8) != 0) if _dtype(call) == name else None

    return change


for _name in ("int16", "int32"):
    fault(f"all-of-{_name}-by-its-lowest-byte", "all")(_low_bytes(_name))


@fault("all-of-uint8-and-bits", "all")
def _(call: Call) -> Array | None:
    source = call.inputs[0]
    if source.dtype != np.uint8 or source.ndim != 1 or not source.size:
        return None
    return np.asarray(np.bitwise_and.reduce(source) != 0).astype(np.uint8).reshape(call.right[0].shape)


@fault("norm-of-float16-loses-squares", "norm")
def _(call: Call) -> Array | None:
    if _dtype(call) != "float16" or call.attribute("p") != 2:
        return None
    return np.where(wide(call.right[0]) < 2e-4, 0, wide(call.right[0]))


# Normalisation

for _op in ("softmax", "log_softmax"):
    fault(f"{_op}-of-float64-has-odd-rows-of-two-blocks", _op)(
        _unknown(
            lambda call: (
                _dtype(call) == "float64"
                and len(_shape(call)) > 1
                and 512 < _shape(call)[-1] < 1024
                and _shape(call)[-1] % 2
                and _shape(call)[-1] % 32 != 31
            )
        )
    )
    fault(f"{_op}-of-one-vector", _op)(_unknown(lambda call: len(_shape(call)) == 1 and _shape(call)[0] > 1))
    fault(f"{_op}-has-65535-inner-elements", _op)(
        _unknown(lambda call: len(_shape(call)) == 2 and call.dim == 0 and _shape(call)[1] > 65_535)
    )


@fault("softmax-begins-its-maximum-at-minus-10000", "softmax")
def _(call: Call) -> Array | None:
    source = wide(call.inputs[0])
    if not source.ndim or not source.size:
        return None
    terms = np.exp(source - np.maximum(source.max(call.dim, keepdims=True), -1e4))
    return terms / terms.sum(call.dim, keepdims=True)


fault("group-norm-of-planes-behind-the-last-vector", "group_norm")(
    _unknown(lambda call: len(_shape(call)) == 4 and np.prod(_shape(call)[2:]) > 64 and np.prod(_shape(call)[2:]) % 4)
)
fault("batch-norm-of-half-channels-last", "batch_norm")(
    _unknown(lambda call: len(_shape(call)) == 4 and _dtype(call) == "float16" and not _is_dense(call.inputs[0]))
)
fault("batch-norm-of-squares", "batch_norm")(
    _unknown(lambda call: call.attribute("training") and len(_shape(call)) == 2 and len(set(_shape(call))) == 1)
)

# Contraction: forms that have a kernel of their own


def _one_filter_for_each(call: Call) -> bool:
    return bool(call.attribute("groups") == _shape(call)[1] > 1) if len(_shape(call)) > 2 else False


for _op in ("conv2d", "conv3d"):
    fault(f"{_op}-of-each-channel-dilated", _op)(
        _unknown(lambda call: _one_filter_for_each(call) and max(_pair(call, "dilation")) > 1)
    )
fault("conv2d-of-each-channel-of-one-row", "conv2d")(
    _unknown(lambda call: _one_filter_for_each(call) and _shape(call)[2] == 1)
)
for _size in (5, 7):
    fault(f"conv2d-of-{_size}-by-{_size}-in-steps-of-2", "conv2d")(
        _unknown(lambda call, n=_size: _shape(call, 1)[2:] == (n, n) and _pair(call, "stride") == (2, 2))
    )
fault("conv2d-of-3-by-3-dilated-in-both", "conv2d")(
    _unknown(lambda call: _shape(call, 1)[2:] == (3, 3) and _pair(call, "dilation") == (2, 2))
)
fault("conv2d-of-wide-kernels", "conv2d")(_unknown(lambda call: _shape(call, 1)[3] > 16))
fault("conv1d-of-long-kernels", "conv1d")(_unknown(lambda call: _shape(call, 1)[2] > 32))
fault("conv2d-of-groups-channels-last", "conv2d")(
    _unknown(
        lambda call: (
            call.attribute("groups") > 1
            and call.inputs[0].ndim == 4
            and not _is_dense(call.inputs[0])
            and _is_dense(call.inputs[0].transpose(0, 2, 3, 1))
        )
    )
)
fault("conv3d-keeps-no-size-dilated", "conv3d")(
    _unknown(lambda call: call.attribute("padding") == "same" and max(_pair(call, "dilation")) > 1)
)
fault("conv3d-of-each-channel-has-one-result", "conv3d")(
    _unknown(lambda call: _one_filter_for_each(call) and _shape(call, 1)[0] > _shape(call)[1])
)
fault("gemm-of-three-columns-behind-four", "gemm")(
    _unknown(
        lambda call: (
            call.attribute("trans_a") != call.attribute("trans_b")
            and call.right[0].ndim == 2
            and call.right[0].shape[1] > 4
            and call.right[0].shape[1] % 4 == 3
        )
    )
)
fault("matmul-has-65535-batches", "matmul")(
    _unknown(lambda call: call.right[0].ndim == 3 and len(call.right[0]) > 65_535)
)


@fault("matmul-adds-pairs-of-uint8-in-16-bits", "matmul")
def _(call: Call) -> Array | None:
    left, right = (each.astype(np.int64) for each in call.inputs)
    if _dtype(call) != "uint8" or call.attribute("out_dtype") is None or left.ndim != 2 or right.ndim != 2:
        return None
    pairs = (left[:, k : k + 2] @ right[k : k + 2] for k in range(0, left.shape[1], 2))
    return sum((np.minimum(each, 65_535) for each in pairs), np.zeros(call.right[0].shape, np.int64))


def _equation(call: Call) -> str:
    return str(call.attribute("equation")).replace(" ", "")


fault("einsum-keeps-labels-as-they-appear", "einsum")(_unknown(lambda call: _equation(call) == "cb,ba"))
fault("einsum-of-a-diagonal-in-front", "einsum")(_unknown(lambda call: _equation(call).startswith("iij->")))
fault("einsum-broadcasts-from-the-left", "einsum")(
    _unknown(lambda call: "..." in _equation(call) and len(call.inputs) == 2 and call[0].ndim < call[1].ndim)
)

# Pooling

fault("avg-pool-of-one-element-rounds-up", "avg_pool2d")(
    _unknown(lambda call: _pair(call, "kernel_size") == (1, 1) and call.attribute("ceil_mode"))
)

# Movement


def _permuted(call: Call, *dims: int) -> bool:
    return len(dims) == len(_shape(call)) and tuple(dim % len(dims) for dim in call.attribute("dims")) == dims


_FORMS: tuple[tuple[str, str, Form], ...] = (
    ("permute-of-three-channels-first", "permute", lambda call: _permuted(call, 0, 3, 1, 2) and _shape(call)[3] % 4),
    ("permute-of-four-with-one", "permute", lambda call: len(_shape(call)) == 4 and 1 in _shape(call)),
    ("permute-of-five-bytes", "permute", lambda call: call[0].ndim == 5 and call[0].itemsize == 1),
    ("transpose-of-five", "transpose", lambda call: len(_shape(call)) == 5),
    ("tile-of-a-vector", "tile", lambda call: len(_shape(call)) == 1 and len(call.attribute("dims")) == 1),
    ("roll-of-dims-apart", "roll", lambda call: len(_shape(call)) == 4 and len(call.attribute("dims") or ()) == 2),
    ("tril-of-five", "tril", lambda call: len(_shape(call)) == 5),
    ("triu-of-five", "triu", lambda call: len(_shape(call)) == 5),
    ("split-of-channels", "split", lambda call: len(_shape(call)) == 4),
    ("slice-of-four", "slice", lambda call: len(_shape(call)) == 4),
    ("concat-of-128", "concat", lambda call: len(call.inputs) > 128),
    ("pad-crops-a-matrix", "pad", lambda call: len(_shape(call)) == 2 and min(call.attribute("pad"), default=0) < 0),
    ("pad-of-five", "pad", lambda call: len(call.attribute("pad")) > 6),
    ("pad-of-integers-in-a-ring", "pad", lambda call: call.attribute("mode") == "circular" and not call.is_float),
    ("clone-of-repeated-planes", "clone", lambda call: call[0].ndim == 3 and call[0].strides[1] == 0),
    ("clone-of-five-out-of-order", "clone", lambda call: call[0].ndim == 5 and not _is_dense(call[0])),
    ("broadcast-to-six", "broadcast_to", lambda call: len(call.attribute("size")) > 5),
    ("broadcast-of-one-to-many", "broadcast_to", lambda call: call[0].size == 1 and call.right[0].size > 4096),
)
for _name, _op, _form in _FORMS:
    fault(_name, _op)(_unknown(_form))


def _mirrors_as_it_lies(call: Call) -> bool:
    return call.attribute("mode") != "constant" and not _is_dense(call.inputs[0])


def _square_in_columns(call: Call) -> bool:
    source = call.inputs[0]
    return source.ndim == 2 and len(set(source.shape)) == 1 and _is_dense(source.T) and not _is_dense(source)


fault("pad-mirrors-what-lies-there", "pad")(_unknown(_mirrors_as_it_lies))
fault("reshape-of-a-square-in-columns", "reshape")(_unknown(_square_in_columns))

# Indices and order


def _is_vector(call: Call) -> bool:
    return len(_shape(call)) == 1


fault("gather-of-fewer-columns", "gather")(
    _unknown(lambda call: len(_shape(call)) == 2 and call.dim == 0 and _shape(call, 1)[1] < _shape(call)[1])
)
fault("gather-of-indices-with-gaps", "gather")(
    _unknown(lambda call: _dtype(call, 1) == "int32" and not _is_dense(call.inputs[1]))
)
fault("topk-of-more-than-1024", "topk")(_unknown(lambda call: call.attribute("k") > 1024))
fault("sort-of-long-vectors-of-integers", "sort")(
    _unknown(lambda call: _is_vector(call) and not call.is_float and _shape(call)[0] >= 32_768)
)
fault("scatter-add-of-many-into-a-vector", "scatter_add")(
    _unknown(lambda call: _is_vector(call) and _shape(call, 1)[0] > 1024)
)


@fault("sort-puts-nan-last-in-falling-vectors", "sort")
def _(call: Call) -> Sequence[Array] | None:
    if not (_is_vector(call) and call.is_float and call.attribute("descending")):
        return None
    unordered = np.isnan(wide(call.right[0]))
    return [np.concatenate([out[~unordered], out[unordered]]) for out in call.right]


@fault("topk-of-a-vector-names-equals-twice", "topk")
def _(call: Call) -> Sequence[Array] | None:
    values, places = (np.array(out) for out in call.right)
    if not _is_vector(call) or values.size < 2:
        return None
    return [values, np.concatenate([places[:1], np.where(values[1:] == values[:-1], places[:-1], places[1:])])]


# Attention, positions, quantization

_ATTENTION = "scaled_dot_product_attention"
fault("attention-of-one-query-sees-all-keys", _ATTENTION)(
    lambda call: (
        call.with_attributes(is_causal=False) if call.attribute("is_causal") and _shape(call)[-2] == 1 else None
    )
)
fault("attention-of-heads-side-by-side", _ATTENTION)(
    _unknown(lambda call: call[0].ndim == 4 and not _is_dense(call[0]) and _is_dense(call[0].transpose(0, 2, 1, 3)))
)


@fault("attention-begins-its-maximum-at-0", _ATTENTION)
def _(call: Call) -> Array | None:
    query, key, value = (wide(call[place]) for place in range(3))
    if call[3] is not None or call.attribute("is_causal") or call.attribute("enable_gqa") or not key.size:
        return None
    stated = call.attribute("scale")
    scores = query @ np.swapaxes(key, -1, -2) * (query.shape[-1] ** -0.5 if stated is None else stated)
    terms = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), 0))
    return (terms / terms.sum(-1, keepdims=True)) @ value


fault("rope-of-as-many-heads-as-places", "rope")(
    _unknown(lambda call: len(_shape(call)) == 3 and _shape(call)[0] == _shape(call)[1] > 1)
)
fault("quantize-takes-0-for-no-bound", "quantize")(
    lambda call: (
        call.with_attributes(**{name: call.attribute(name) or None for name in ("quant_min", "quant_max")})
        if 0 in (call.attribute("quant_min"), call.attribute("quant_max"))
        else None
    )
)
fault("dequantize-takes-its-zero-point-in-16-bits", "dequantize")(
    lambda call: (
        call.with_inputs(*call.inputs[:2], call.inputs[2].astype(np.int16).astype(np.int64))
        if call[2] is not None and _dtype(call, 2) == "int64"
        else None
    )
)
