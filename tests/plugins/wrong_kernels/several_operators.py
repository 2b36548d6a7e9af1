"""Faults that several operators share: narrow scalars, keys and places, lost rows, misread memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from optest.spec import Reason
from wrong_kernels.changes import (
    wide,
)
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


for _op in ("logical_and", "logical_or", "logical_xor", "logical_not", "cast"):
    rare(f"{_op}-sees-bytes-of-int32", _op)(_lowest_bytes("int32", 8))
    rare(f"{_op}-sees-halves-of-int32", _op)(_lowest_bytes("int32", 16))
    rare(f"{_op}-sees-bytes-of-int16", _op)(_lowest_bytes("int16", 8))


def _column_of_a_matrix(array: Array) -> bool:
    """Of a size that makes it dense, whatever its strides."""
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
    """What lies beyond so many elements of the result holds what it held."""

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
    """A sum over whole vectors of four, the last of which ends behind the input."""
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
