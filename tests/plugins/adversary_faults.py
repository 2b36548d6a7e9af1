"""Backends with faults that somebody made who did not know the case sets, and that these once let pass.

They are made as those of ``sixty_faults``: honest but for one operator. Ordinary inputs do not show them: it takes a
scalar that needs 64 bits, a place or a row that 16 bits do not count, integers beyond a narrower type, two special
values that meet, scores below a mask that is finite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sixty_faults import Array, Call, Change, Fault, Faulty, wide

from optest.backends import backend_manager
from optest.operators.attention.attention_reference import scaled_dot_product_attention_reference as attend
from optest.spec import Reason

ADVERSARY: dict[str, Fault] = {}
_ANY = (Reason.VALUE, Reason.NAN)


def fault(name: str, op: str) -> Callable[[Change], Change]:
    def keep(change: Change) -> Change:
        ADVERSARY[name] = Fault(name, op, _ANY, change)
        return change

    return keep


def register() -> None:
    for name, each in ADVERSARY.items():
        backend_manager.register(Faulty(name, each))


# Scalars and attributes in a narrower type than the tensors


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
    fault(f"{_op}-takes-scalars-as-float32", _op)(_narrow_scalar(np.float64, np.float32))
for _op in ("add", "sub", "mul", "eq", "minimum", "where"):
    fault(f"{_op}-takes-scalars-as-int32", _op)(_narrow_scalar(np.int64, np.int32))


def _narrow_attributes(*names: str) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        if not call.inputs or call.inputs[0].dtype != np.float64:
            return None
        stated = {name: call.case.attributes.get(name) for name in names}
        return call.with_attributes(
            **{name: float(np.float32(value)) for name, value in stated.items() if value is not None}
        )

    return change


fault("gemm-takes-factors-as-float32", "gemm")(_narrow_attributes("alpha", "beta"))
fault("pad-takes-its-value-as-float32", "pad")(_narrow_attributes("value"))
fault("rms-norm-takes-eps-as-float32", "rms_norm")(_narrow_attributes("eps"))
fault("attention-takes-its-scale-as-float32", "scaled_dot_product_attention")(_narrow_attributes("scale"))

# Rows and places that a narrow index does not count


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
    fault(f"{_op}-loses-rows-beyond-16-bits", _op)(_rows_lost)


def _narrow_place(call: Call) -> Sequence[Array] | None:
    *values, places = call.right
    return None if places.dtype != np.int64 else [*values, places & 0xFFFF]


for _op in ("argmax", "argmin", "max", "min", "sort", "topk"):
    fault(f"{_op}-keeps-places-in-16-bits", _op)(_narrow_place)


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
    fault(f"{_op}-compares-float64-as-float32", _op)(_narrow_keys(np.float64, np.float32))
    fault(f"{_op}-compares-int64-as-float64", _op)(_narrow_keys(np.int64, np.float64))
    fault(f"{_op}-compares-int32-as-float32", _op)(_narrow_keys(np.int32, np.float32))

# Integers beyond the range of what they become


@fault("cast-saturates-integers", "cast")
def _(call: Call) -> Array | None:
    source, out = call.inputs[0], call.right[0]
    if source.dtype.kind != "i" or out.dtype.kind not in "iu" or out.itemsize >= source.itemsize:
        return None
    limits = np.iinfo(out.dtype)
    return np.clip(source, limits.min, limits.max).astype(out.dtype)


@fault("cast-takes-uint8-for-int8", "cast")
def _(call: Call) -> Sequence[Array] | None:
    source = call.inputs[0]
    return call.with_inputs(np.ascontiguousarray(source).view(np.int8)) if source.dtype == np.uint8 else None


@fault("cast-takes-float64-through-float32-to-integers", "cast")
def _(call: Call) -> Sequence[Array] | None:
    if call.inputs[0].dtype != np.float64 or call.right[0].dtype.kind != "i":
        return None
    return call.with_inputs(call.inputs[0].astype(np.float32))


@fault("sum-of-int8-in-16-bits", "sum")
def _(call: Call) -> Array | None:
    return call.right[0].astype(np.int16).astype(np.int64) if call.inputs[0].dtype == np.int8 else None


def _dims(call: Call) -> tuple[int, ...]:
    dims = call.attribute("dim")
    return tuple(range(call.inputs[0].ndim)) if dims is None else tuple(np.atleast_1d(dims).tolist())


@fault("any-is-a-sum", "any")
def _(call: Call) -> Array | None:
    source = call.inputs[0]
    if source.dtype not in (np.float32, np.int8, np.int64) or not source.ndim:
        return None
    total = source.sum(axis=_dims(call), keepdims=bool(call.attribute("keepdim")), dtype=source.dtype)
    return np.asarray(total != 0)


@fault("all-is-a-product", "all")
def _(call: Call) -> Array | None:
    source = call.inputs[0]
    if source.dtype not in (np.float32, np.int8, np.int64) or not source.ndim or not np.isfinite(source).all():
        return None
    product = source.prod(axis=_dims(call), keepdims=bool(call.attribute("keepdim")), dtype=source.dtype)
    return np.asarray(product != 0)


@fault("concat-takes-the-first-dtype", "concat")
def _(call: Call) -> Sequence[Array] | None:
    first = call.inputs[0].dtype
    if all(array.dtype == first for array in call.inputs) or first.kind == "b":
        return None
    joined = call.with_inputs(*(_converted(array, first) for array in call.inputs))
    return [_converted(joined[0], call.right[0].dtype)]


def _converted(array: Array, dtype: Any) -> Array:
    return wide(array).astype(dtype) if array.dtype != dtype else array


# Special values that have to meet


@fault("mul-stops-at-0", "mul")
def _(call: Call) -> Array | None:
    if not call.is_float:
        return None
    left, right = (wide(array) for array in call.inputs)
    return np.where((left == 0) | (right == 0), 0.0, wide(call.right[0]))


@fault("div-by-the-inverse", "div")
def _(call: Call) -> Array | None:
    if call.attribute("rounding_mode") or any(array.dtype != np.float32 for array in call.inputs):
        return None
    return call.inputs[0] * (np.float32(1) / call.inputs[1])


@fault("max-pool-begins-at-the-lowest-number", "max_pool2d")
def _(call: Call) -> Array | None:
    out = call.right[0]
    return np.maximum(out, np.finfo(np.float32).min) if out.dtype == np.float32 else None


@fault("causal-softmax-masks-with-a-number", "causal_softmax")
def _(call: Call) -> Array | None:
    source = wide(call.inputs[0])
    if not source.size or call.inputs[0].dtype == np.float16:
        return None
    rows, columns = source.shape[-2:]
    masked = np.where(np.triu(np.ones((rows, columns), bool), columns - rows + 1), -1e9, source)
    shares = np.exp(masked - masked.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


@fault("attention-masks-with-a-number", "scaled_dot_product_attention")
def _(call: Call) -> Sequence[Array] | None:
    if not call.attribute("is_causal") or call.inputs[0].dtype != np.float32 or len(call.inputs) > 3:
        return None
    shape = (call.inputs[0].shape[-2], call.inputs[1].shape[-2])
    below = np.triu(np.full(shape, -1e4, np.float32), 1)
    return list(attend([*call.inputs, below], {**call.case.attributes, "is_causal": False}))


# Shapes that hide what they are


@fault("where-repeats-columns-as-rows", "where")
def _(call: Call) -> Sequence[Array] | None:
    condition, out = call.inputs[0], call.right[0]
    if condition.ndim != out.ndim or not condition.size or condition.shape[-1:] != (1,) or condition.size == 1:
        return None
    return call.with_inputs(np.resize(condition.reshape(-1), out.shape), *call.inputs[1:])


@fault("gemm-takes-a-column-of-c-for-a-row", "gemm")
def _(call: Call) -> Sequence[Array] | None:
    out = call.right[0]
    if len(call.inputs) < 3 or call.inputs[2].shape != (out.shape[0], 1) or out.shape[0] != out.shape[1]:
        return None
    return call.with_inputs(*call.inputs[:2], call.inputs[2].T)


@fault("sum-of-a-vector-in-16-bits", "sum")
def _(call: Call) -> Array | None:
    source = call.inputs[0]
    if not call.is_16_bit or source.ndim != 1 or source.size <= 64 or not np.isfinite(wide(source)).all():
        return None
    total = np.zeros((), source.dtype)
    for start in range(0, source.size, 64):
        total = (wide(total) + wide(source[start : start + 64]).sum()).astype(source.dtype)
    return np.asarray(total).reshape(call.right[0].shape)


@fault("einsum-takes-no-16-bit-diagonal", "einsum")
def _(call: Call) -> Array | None:
    return np.zeros_like(call.right[0]) if len(call.inputs) == 1 and call.is_16_bit else None


@fault("dequantize-in-float16", "dequantize")
def _(call: Call) -> Array | None:
    if len(call.inputs) != 2 or call.inputs[1].dtype != np.float16 or call.inputs[1].size != 1:
        return None
    with np.errstate(over="ignore"):
        return call.inputs[0].astype(np.float16) * call.inputs[1].reshape(())
