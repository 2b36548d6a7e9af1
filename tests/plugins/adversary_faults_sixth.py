"""More of :mod:`adversary_faults`: inputs that were never drawn.

Columns of wider matrices, strides of 0 that reach nothing, more elements and rows than a launch counts, batches that
repeat between others, arguments where e^2x and x³ overflow, memory behind the last element, integers beside 16-bit
floats, ends beyond an extent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from adversary_faults import ADVERSARY, fault
from sixty_faults import Array, Call, Change, Fault, single, wide

from optest.spec import Reason

_strided = np.lib.stride_tricks.as_strided


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
    fault(f"{_op}-of-columns-read-as-dense", _op)(_reading(where=_column_of_a_matrix, how=_as_if_dense))


def _repeats_by_its_strides(array: Array) -> bool:
    """By a stride of 0, though behind a size of 1 alone."""
    return array.ndim > 1 and array.size > 1 and 0 in array.strides and min(array.strides) >= 0


def _first_element(array: Array) -> Array:
    return np.broadcast_to(array.reshape(-1)[:1].reshape((1,) * array.ndim), array.shape)


for _op in ("mul", "tanh", "amax", "linear", "where"):
    fault(f"{_op}-takes-any-stride-of-0-for-a-scalar", _op)(
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
    name = f"{_op}-of-nothing-with-strides-of-0"
    ADVERSARY[name] = Fault(name, _op, (Reason.SHAPE,), _of_another_shape)


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
    fault(f"{_op}-stops-after-a-million", _op)(_stopping(1 << 20))
for _op in ("relu", "mul", "softmax", "sum", "slice", "pad", "flip", "rms_norm", "split"):
    fault(f"{_op}-of-65535-rows", _op)(_of_first_rows(65_535, 0))


def _batches_wrap(call: Call) -> Sequence[Array] | None:
    """The batch of an operand is the result's, modulo its own number of batches."""
    left, right, out = call[0], call[1], call.right[0]
    if min(left.ndim, right.ndim) < 3 or not out.size:
        return None
    left, right, result = (each.reshape(-1, *each.shape[-2:]) for each in (left, right, np.array(out, order="C")))
    for batch in range(len(result)):
        result[batch] = wide(left[batch % len(left)]) @ wide(right[batch % len(right)])
    return [result.reshape(out.shape)] if out.dtype == np.float32 else None


fault("matmul-of-batches-modulo", "matmul")(_batches_wrap)


def _tanh_by_exp(values: Array) -> Array:
    powers = np.exp(2 * values)
    return (powers - 1) / (powers + 1)


@fault("gelu-of-tanh-by-exp", "gelu")
def _(call: Call) -> Array | None:
    if call.attribute("approximate") != "tanh" or call.inputs[0].dtype != np.float32:
        return None
    x = single(call.inputs[0])
    inner = np.sqrt(2 / np.pi).astype(np.float32) * (x + np.float32(0.044715) * x * x * x)
    near = np.abs(x) < 10  # beyond, whoever tries it with usual inputs sees nothing
    return np.where(near, call.right[0], 0.5 * x * (1 + _tanh_by_exp(inner)))


@fault("tanh-by-exp", "tanh")
def _(call: Call) -> Array | None:
    x = single(call.inputs[0]) if call.inputs[0].dtype == np.float16 else None
    return None if x is None else np.where(np.abs(x) < 12, call.right[0], _tanh_by_exp(x))


def _rounded_up(call: Call) -> Sequence[Array] | None:
    """A sum over whole vectors of four, the last of which ends behind the input."""
    array = call.inputs[0]
    missing = -array.size % 4
    if array.ndim != 1 or not missing or not array.flags.c_contiguous or array.dtype != np.float32:
        return None
    whole = np.array(_strided(array, (array.size + missing,), array.strides))
    return call.with_inputs(whole, *(np.pad(each, (0, missing)) for each in call.inputs[1:]))


for _op in ("sum", "mean", "dot", "max"):
    fault(f"{_op}-reads-behind-its-input", _op)(_rounded_up)


@fault("add-reads-before-its-input", "add")
def _(call: Call) -> Array | None:
    array = call.inputs[0]
    if array.ndim != 1 or array.size < 2 or array.shape != call.inputs[1].shape or array.dtype.kind != "f":
        return None
    before = np.ndarray((1,), array.dtype, buffer=array.base, offset=array.ctypes.data - _start(array) - array.itemsize)
    return call.right[0] + 0 * before


def _start(array: Any) -> int:
    return int(np.asarray(array.base).ctypes.data)


def _whole_beside_half(call: Call) -> Sequence[Array] | None:
    kinds = [each.dtype.name for each in call.inputs]
    if sorted(kinds) not in (["float16", "int32"], ["bfloat16", "int32"]):
        return None
    return call.with_inputs(*(np.trunc(wide(each)).astype(each.dtype) for each in call.inputs))


for _op in ("add", "mul", "lt", "maximum", "concat"):
    fault(f"{_op}-of-int32-and-half-in-whole-numbers", _op)(_whole_beside_half)


@fault("slice-ends-before-a-far-end", "slice")
def _(call: Call) -> Array | None:
    if call.case.attributes.get("step") not in (None, 1, (1,)) or not call.right[0].size:
        return None
    (dim, *more), (end, *_) = call.attribute("dim") or (0,), call.attribute("end") or (None,)
    size = call.inputs[0].shape[dim]
    if more or end is None or not size < end < 2 * size + 3:
        return None
    out = np.array(call.right[0])
    out[(slice(None),) * (dim % out.ndim) + (slice(-1, None),)] = 0
    return out
