"""Faults that several operators share: narrow scalars, keys and places, lost rows, misread memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from optest.spec import Reason
from wrong_kernels.changes import wide, with_input
from wrong_kernels.registry import Array, Call, Change, memory, rare

_strided = np.lib.stride_tricks.as_strided


def _narrow_scalar(dtype: type, within: type) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        if all(array.ndim for array in call.inputs) or not any(array.ndim for array in call.inputs):
            return None
        narrowed = [
            array.astype(within).astype(dtype) if array.ndim == 0 and array.dtype == dtype else array
            for array in call.inputs
        ]
        return call.with_inputs(*narrowed)

    return change


for _op in ("add", "sub", "mul", "div", "pow", "eq", "lt", "maximum", "where"):
    rare(f"{_op}-takes-scalars-as-float32", _op)(_narrow_scalar(np.float64, np.float32))


for _op in ("add", "sub", "mul", "eq", "minimum", "where"):
    rare(f"{_op}-takes-scalars-as-int32", _op)(_narrow_scalar(np.int64, np.int32))


def _rows_lost(call: Call) -> Sequence[Array] | None:
    if call.inputs[0].ndim < 2 or max(out.shape[0] if out.ndim else 0 for out in call.right) <= 65_535:
        return None
    changed = [np.array(out) for out in call.right]
    for out in changed:
        out[65_535:] = np.zeros((), out.dtype)
    return changed


for _op in (
    "sum", "mean", "prod", "var", "norm", "logsumexp", "amax", "amin", "max", "min", "argmax", "argmin", "all", "any",
    "cumsum", "softmax", "log_softmax", "causal_softmax", "layer_norm", "rms_norm", "group_norm", "batch_norm",
    "sort", "topk", "gather", "embedding", "rope", "swiglu",
):  # fmt: skip
    rare(f"{_op}-loses-rows-beyond-16-bits", _op)(_rows_lost)


def _narrow_place(call: Call) -> Sequence[Array] | None:
    *values, places = call.right
    return None if places.dtype != np.int64 else [*values, places & 0xFFFF]


for _op in ("argmax", "argmin", "max", "min", "sort", "topk"):
    rare(f"{_op}-keeps-places-in-16-bits", _op)(_narrow_place)


def _narrow_keys(dtype: type, within: type) -> Change:
    """Elements are compared in a narrower type, and come out whole."""

    def change(call: Call) -> Sequence[Array] | None:
        source = call.inputs[0]
        if source.dtype != dtype or not source.ndim or not source.size:
            return None
        outputs = call.with_inputs(source.astype(within))
        places = outputs[-1]
        if len(outputs) == 1:
            return outputs if np.issubdtype(np.asarray(places).dtype, np.integer) else None
        dim = call.dim
        kept = places if places.ndim == source.ndim else np.expand_dims(places, dim)
        return [np.take_along_axis(source, kept, dim).reshape(places.shape), places]

    return change


for _op in ("argmax", "argmin", "max", "min", "sort", "topk"):
    rare(f"{_op}-compares-float64-as-float32", _op)(_narrow_keys(np.float64, np.float32))
    rare(f"{_op}-compares-int64-as-float64", _op)(_narrow_keys(np.int64, np.float64))
    rare(f"{_op}-compares-int32-as-float32", _op)(_narrow_keys(np.int32, np.float32))


def _lowest_bytes(name: str, bits: int) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        if any(array.dtype.name != name for array in call.inputs) or call.right[0].dtype != np.bool_:
            return None
        return call.with_inputs(*[array.astype(f"uint{bits}").astype(array.dtype) for array in call.inputs])

    return change


for _op in ("any", "logical_and", "logical_or", "logical_xor", "logical_not", "cast"):
    rare(f"{_op}-sees-bytes-of-int32", _op)(_lowest_bytes("int32", 8))
    rare(f"{_op}-sees-halves-of-int32", _op)(_lowest_bytes("int32", 16))
    rare(f"{_op}-sees-bytes-of-int16", _op)(_lowest_bytes("int16", 8))


def _column_of_a_matrix(array: Array) -> bool:
    """Return whether the array is one column of a matrix with wider rows."""
    return bool(array.ndim > 1 and array.shape[-1] == 1 and array.size > 1 and array.strides[-2] > array.itemsize)


def _as_if_dense(array: Array) -> Array:
    sizes = [array.itemsize * int(np.prod(array.shape[axis + 1 :])) for axis in range(array.ndim)]
    return _strided(array, strides=sizes)


def _reading(*, where: Callable[[Array], bool], how: Callable[[Array], Array]) -> Change:
    """Inputs of a form are read in another way; what lies there is the memory of the call."""

    def change(call: Call) -> Sequence[Array] | None:
        if not any(map(where, call.inputs)):
            return None
        return call.with_inputs(*(np.array(how(each)) if where(each) else each for each in call.inputs))

    return change


for _op in ("relu", "add", "exp", "softmax", "sum", "gather", "matmul", "concat", "embedding"):
    rare(f"{_op}-of-columns-read-as-dense", _op)(_reading(where=_column_of_a_matrix, how=_as_if_dense))


def _repeats_by_its_strides(array: Array) -> bool:
    """By a stride of 0, though behind a size of 1 alone."""
    return array.ndim > 1 and array.size > 1 and 0 in array.strides and min(array.strides) >= 0


def _first_element(array: Array) -> Array:
    return np.broadcast_to(array.reshape(-1)[:1].reshape((1,) * array.ndim), array.shape)


for _op in ("mul", "tanh", "amax", "linear", "where"):
    rare(f"{_op}-takes-any-stride-of-0-for-a-scalar", _op)(
        _reading(
            where=lambda each: _repeats_by_its_strides(each) and all(
                size == 1 or stride for size, stride in zip(each.shape, each.strides, strict=True)
            ),
            how=_first_element,
        )
    )  # fmt: skip


def _of_another_shape(call: Call) -> Sequence[Array] | None:
    if all(each.size or 0 not in each.strides for each in call.inputs):
        return None
    return [np.zeros((1, *out.shape), out.dtype) for out in call.right]


for _op in ("gelu", "prod", "permute"):
    rare(f"{_op}-of-nothing-with-strides-of-0", _op, Reason.SHAPE)(_of_another_shape)


def _stopping(elements: int) -> Change:
    """Return a change that leaves 0 in the elements of each output behind the first ``elements``."""

    def change(call: Call) -> Sequence[Array] | None:
        if call.right[0].size <= elements:
            return None
        outputs = [np.array(out, order="C") for out in call.right]
        for out in outputs:
            out.reshape(-1)[elements:] = 0
        return outputs

    return change


def _of_first_rows(rows: int, axis: int) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        shape = call.inputs[0].shape
        if len(shape) < 2 or shape[axis] <= rows or shape[axis] not in call.right[0].shape:
            return None
        out = np.array(call.right[0])
        out[(slice(None),) * call.right[0].shape.index(shape[axis]) + (slice(rows, None),)] = 0
        return [out, *call.right[1:]]

    return change


for _op in ("add", "eq", "logical_and", "neg", "relu", "where", "clone", "transpose", "concat", "broadcast_to"):
    rare(f"{_op}-stops-after-a-million", _op)(_stopping(1 << 20))


for _op in ("relu", "mul", "softmax", "sum", "slice", "pad", "flip", "rms_norm", "split"):
    rare(f"{_op}-of-65535-rows", _op)(_of_first_rows(65_535, 0))


def _rounded_up(call: Call) -> Sequence[Array] | None:
    """Return the result of a kernel that reads whole vectors of four, beyond the end of the input."""
    array = call.inputs[0]
    missing = -array.size % 4
    if array.ndim != 1 or not missing or not array.flags.c_contiguous or array.dtype != np.float32:
        return None
    whole = np.array(_strided(array, (array.size + missing,), array.strides))
    return call.with_inputs(whole, *(np.pad(each, (0, missing)) for each in call.inputs[1:]))


for _op in ("sum", "mean", "dot", "max"):
    memory(f"{_op}-reads-behind-its-input", _op)(_rounded_up)


def _whole_beside_half(call: Call) -> Sequence[Array] | None:
    kinds = [each.dtype.name for each in call.inputs]
    if sorted(kinds) not in (["float16", "int32"], ["bfloat16", "int32"]):
        return None
    return call.with_inputs(*(np.trunc(wide(each)).astype(each.dtype) for each in call.inputs))


for _op in ("add", "mul", "lt", "maximum", "concat"):
    rare(f"{_op}-of-int32-and-half-in-whole-numbers", _op)(_whole_beside_half)


def _each_output(change: Callable[[Array], None]) -> Change:
    def run(call: Call) -> Sequence[Array]:
        outputs = [np.array(out, order="C") for out in call.right]
        for out in outputs:
            change(out)
        return outputs

    return run


def _without_tail_of_1024(out: Array) -> None:
    if out.size > 1024:
        out.reshape(-1)[out.size - out.size % 1024 :] = 0


def _without_columns_beyond_256(out: Array) -> None:
    if out.ndim and out.shape[-1] > 256:
        out[..., out.shape[-1] - out.shape[-1] % 256 :] = 0


def _without_negative_zero(out: Array) -> None:
    if out.dtype.kind in "fc":
        out[...] = out + out.dtype.type(0)


def _without_nan(out: Array) -> None:
    if out.dtype.kind == "f":
        out[np.isnan(out)] = 0


def _of_24_bits(out: Array) -> None:
    if out.dtype in (np.float64, np.int64, np.uint64):
        out[...] = out.astype(np.float32).astype(out.dtype)


def _without_imaginary_part(out: Array) -> None:
    if out.dtype == np.complex128:
        out.imag = 0


def _without_subnormals(out: Array) -> None:
    if out.dtype.kind == "f":
        out[np.abs(wide(out)) < 2.0**-126] = 0


_MOVEMENT = "broadcast_to concat flip pad permute reshape roll slice split tile transpose tril triu"
for _name, _ops, _change in (
    (
        "drops-a-tail-of-1024",
        "abs bitwise_and bitwise_not bitwise_or bitwise_xor cast ceil clip cos div elu erf expm1 floor floor_divide "
        "fmod ge gt hardswish le leaky_relu log log1p logical_not logical_or logical_xor lt maximum minimum ne pow "
        "reciprocal remainder round rsqrt sigmoid sign sin softplus sqrt sub tanh trunc",
        _without_tail_of_1024,
    ),
    (
        "drops-columns-beyond-256",
        "quantize dequantize embedding gather index_select slice",
        _without_columns_beyond_256,
    ),
    ("loses-negative-zero", f"{_MOVEMENT} embedding gather index_select topk sort", _without_negative_zero),
    ("loses-nan", f"{_MOVEMENT} relu leaky_relu sigmoid silu exp max_pool2d", _without_nan),
    ("carries-float32", _MOVEMENT, _of_24_bits),
    ("loses-imaginary-parts", _MOVEMENT, _without_imaginary_part),
    ("flushes-subnormal-results", "add neg", _without_subnormals),
):
    for _op in _ops.split():
        rare(f"{_op}-{_name}", _op)(_each_output(_change))


def _16_bit_indices(call: Call) -> Sequence[Array]:
    return call.with_inputs(call.inputs[0], call.inputs[1].astype(np.int64) & 0xFFFF, *call.inputs[2:])


for _op in ("embedding", "gather", "index_select"):
    rare(f"{_op}-has-indices-of-16-bits", _op)(_16_bit_indices)


for _op in ("embedding", "gather", "index_select", "scatter_add"):
    rare(f"{_op}-accepts-indices-outside", _op, Reason.NOT_REFUSED)(lambda _: None)


def _unsigned_bytes_with_a_sign(call: Call) -> Sequence[Array] | None:
    if any(each.dtype != np.uint8 for each in call.inputs):
        return None
    with_sign = call.with_inputs(*(each.view(np.int8) for each in call.inputs))
    return [np.asarray(each).astype(out.dtype) for each, out in zip(with_sign, call.right, strict=True)]


for _op in ("floor_divide", "fmod", "gt", "lt", "maximum", "sign"):
    rare(f"{_op}-of-uint8-with-a-sign", _op)(_unsigned_bytes_with_a_sign)


def _by_difference(compare: Callable[..., Array]) -> Change:
    def change(call: Call) -> Array | None:
        one, other = call.inputs
        return compare(one - other, 0) if one.dtype == other.dtype and one.dtype.kind == "i" else None

    return change


for _op, _compare in (("ge", np.greater_equal), ("gt", np.greater), ("le", np.less_equal), ("lt", np.less)):
    rare(f"{_op}-subtracts", _op)(_by_difference(_compare))


def _compared_as(dtype: type) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        if any(each.dtype.kind not in "iu" for each in call.inputs):
            return None
        return call.with_inputs(*(each.astype(dtype) for each in call.inputs))

    return change


for _op in ("eq", "le"):
    rare(f"{_op}-of-integers-as-float64", _op)(_compared_as(np.float64))
for _op in ("lt", "ne"):
    rare(f"{_op}-of-integers-as-float32", _op)(_compared_as(np.float32))


def _negative_dims_as_0(call: Call) -> Sequence[Array] | None:
    dim = call.attribute("dim")
    dims = dim if isinstance(dim, tuple) else (dim,)
    if dim is None or min(dims) >= 0:
        return None
    first = tuple(max(each, 0) for each in dims)
    try:
        outputs = call.with_attributes(dim=first if isinstance(dim, tuple) else first[0])
    except (ValueError, IndexError):
        return None
    pairs = zip(outputs, call.right, strict=False)
    return [np.resize(each, out.shape).astype(out.dtype) for each, out in pairs]


for _op in ("argmax", "argmin", "concat", "gather", "index_select", "slice"):
    rare(f"{_op}-takes-negative-dims-as-0", _op)(_negative_dims_as_0)


def _bias_needs_a_weight(call: Call) -> Sequence[Array] | None:
    places = len(call.case.descriptor.tensors.inputs)
    if call[places - 2] is not None or call[places - 1] is None:
        return None
    return with_input(call, len(call.inputs) - 1, np.zeros_like(call.inputs[-1]))


for _op in ("batch_norm", "group_norm", "layer_norm"):
    rare(f"{_op}-ignores-a-bias-without-weight", _op)(_bias_needs_a_weight)


def _along(axis: int) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        array, scale = call.inputs[:2]
        return call.with_attributes(axis=axis) if scale.size > 1 and array.shape[axis] == scale.size else None

    return change


for _op in ("quantize", "dequantize"):
    rare(f"{_op}-scales-along-the-first-axis", _op)(_along(0))
    rare(f"{_op}-scales-along-the-last-axis", _op)(_along(-1))
