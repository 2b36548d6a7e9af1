"""Building blocks of faults: narrower numbers, wrong reads, lost tails, and outputs that are wrong in one element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from wrong_kernels.registry import Array, Call, Change

__all__ = [
    "as_it_lies",
    "cut",
    "half",
    "ignoring",
    "is_dense",
    "kept",
    "narrowed_attributes",
    "over_one_dim",
    "read_as_dense",
    "single",
    "sums_in",
    "truncated",
    "wide",
    "with_input",
    "wrong_where",
]


def wide(array: Array) -> Array:
    return np.asarray(array).astype(np.float64)


def single(array: Array) -> Array:
    return np.asarray(array).astype(np.float32)


def half(array: Array) -> Array:
    """Rounded to 11 bits of precision, of any range."""
    return cut(single(array), 13)


def cut(array: Array, bits: int) -> Array:
    """float32 with so many of its last bits rounded away."""
    words = np.ascontiguousarray(array, np.float32).view(np.uint32)
    step = np.uint32(1 << bits)
    rounded = (words + step // np.uint32(2)) & ~(step - np.uint32(1))
    return np.where(np.isfinite(array), rounded.view(np.float32).reshape(np.shape(array)), array)


def truncated(call: Call, place: int = 0) -> Array | None:
    """Return the right output, truncated to 16 bits in place of rounding; None for other dtypes."""
    if not call.is_16_bit:
        return None
    exact = wide(call.with_attributes()[place])
    rounded = call.right[place]
    above = np.abs(wide(rounded)) > np.abs(exact)
    one_less = (rounded.view(np.uint16) - np.uint16(1)).view(rounded.dtype)
    return np.where(above & np.isfinite(exact) & (wide(rounded) != 0), one_less, rounded)


def is_dense(array: Array) -> bool:
    return bool(array.flags["C_CONTIGUOUS"])


def as_it_lies(array: Array) -> Array | None:
    """Return the elements in the order of memory; None if that is the row-major order."""
    if array.ndim < 2 or array.size < 2 or min(array.strides) <= 0 or is_dense(array):
        return None
    order = np.argsort([-stride for stride in array.strides], kind="stable")
    return None if list(order) == list(range(array.ndim)) else array.transpose(order).ravel()


def read_as_dense(call: Call, place: int = 0) -> Array:
    """Return the input as a kernel reads it that ignores strides."""
    argument, array = call.case.inputs[place], call.inputs[place]
    spec = argument.spec
    if spec.is_dense or not array.size:
        return array
    strides = spec.strides or tuple(np.array(array.strides) // array.itemsize)
    storage = np.zeros(spec.storage_elements, array.dtype)
    offsets = np.full(spec.shape, spec.offset, np.int64)
    for axis, (size, stride) in enumerate(zip(spec.shape, strides, strict=True)):
        offsets += (np.arange(size) * stride).reshape([-1 if i == axis else 1 for i in range(len(spec.shape))])
    storage[offsets.reshape(-1)] = array.reshape(-1)
    return np.resize(storage[spec.offset :], array.size).reshape(array.shape)


def ignoring(*names: str) -> Change:
    """Return a change that uses the defaults of the attributes ``names``."""

    def change(call: Call) -> Sequence[Array]:
        return call.with_attributes(**{name: call.case.descriptor.attribute(name).default for name in names})

    return change


def narrowed_attributes(*names: str) -> Change:
    """Numbers beside float64 tensors are taken as float32."""

    def change(call: Call) -> Sequence[Array] | None:
        if not call.inputs or call.inputs[0].dtype != np.float64:
            return None
        stated = {name: call.case.attributes.get(name) for name in names}
        return call.with_attributes(
            **{name: float(np.float32(value)) for name, value in stated.items() if value is not None}
        )

    return change


def with_input(call: Call, index: int, array: Array) -> Sequence[Array]:
    """Return the reference's outputs with another array as the input at ``index``."""
    return call.with_inputs(*call.inputs[:index], array, *call.inputs[index + 1 :])


def sums_in(call: Call, step: Callable[[Array], Array]) -> Array:
    """Return the sum over one dimension, in order, with ``step`` applied to each partial sum."""
    values = np.moveaxis(single(call[0]), call.dim, 0)
    total = np.zeros(values.shape[1:], np.float32)
    for row in values:
        total = step(total + row)
    return total


def over_one_dim(call: Call) -> bool:
    dim = call.case.attributes.get("dim")
    return call.is_float and call[0].ndim > 0 and (isinstance(dim, int) or (isinstance(dim, tuple) and len(dim) == 1))


def kept(call: Call, out: Array) -> Array:
    return np.expand_dims(out, call.dim) if call.case.attributes.get("keepdim") else out


def wrong_where(condition: Callable[[Call], Any]) -> Change:
    """Return a change of the last element of the first output, for calls with ``condition``."""

    def change(call: Call) -> Sequence[Array] | None:
        out = np.array(call.right[0], order="C")
        if not out.size or not condition(call):
            return None
        flat = out.reshape(-1)
        if out.dtype == np.bool_:
            flat[-1] = not flat[-1]
        elif np.isfinite(wide(flat[-1])):
            other = np.asarray(wide(flat[-1]) * 0.5 + 3).astype(out.dtype)
            flat[-1] = other if other != flat[-1] else np.zeros((), out.dtype)  # 6 would stay 6
        else:
            flat[-1] = np.zeros((), out.dtype)
        return [out, *call.right[1:]]

    return change
