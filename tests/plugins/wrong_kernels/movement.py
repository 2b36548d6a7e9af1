"""Wrong movement: squares, order, halves, values that fill."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from optest.numerics import numpy_dtype
from optest.spec import dtype
from wrong_kernels.changes import (
    as_it_lies,
    ignoring,
    narrowed_attributes,
    wide,
)
from wrong_kernels.registry import Array, Call, fault, rare


def _unmoved(call: Call) -> Array | None:
    return np.array(call[0]) if call[0].shape == call.right[0].shape else None


fault("tril-ignores-diagonal", "tril")(ignoring("diagonal"))


fault("pad-ignores-value", "pad")(ignoring("value"))


@fault("transpose-reshapes", "transpose")
def _(call: Call) -> Array:
    return np.ascontiguousarray(call.inputs[0]).reshape(call.right[0].shape)


@fault("flip-the-first-of-several", "flip")
def _(call: Call) -> Sequence[Array] | None:
    return call.with_attributes(dims=call.attribute("dims")[:1]) if len(call.attribute("dims")) > 1 else None


@fault("roll-the-other-way", "roll")
def _(call: Call) -> Sequence[Array]:
    return call.with_attributes(shifts=tuple(-each for each in call.attribute("shifts")))


@fault("concat-swaps-the-last-two", "concat")
def _(call: Call) -> Sequence[Array] | None:
    shapes = {argument.spec.shape for argument in call.case.inputs}
    if len(shapes) != 1 or len(call.inputs) < 2:
        return None
    return call.with_inputs(*call.inputs[:-2], call.inputs[-1], call.inputs[-2])


rare("pad-takes-its-value-as-float32", "pad")(narrowed_attributes("value"))


@rare("pad-takes-its-value-as-bfloat16", "pad")
def _(call: Call) -> Sequence[Array] | None:
    if call[0].dtype != np.float32 or not call.attribute("value"):
        return None
    return call.with_attributes(value=float(np.float32(call.attribute("value")).astype(numpy_dtype(dtype("bfloat16")))))


@rare("clone-loses-nan-of-float8", "clone")
def _(call: Call) -> Array | None:
    values = wide(call[0]) if call.case.inputs[0].spec.dtype.bits == 8 and call.is_float else None
    return None if values is None else np.where(np.isnan(values), 0.0, values)


rare("transpose-leaves-squares", "transpose")(_unmoved)


rare("permute-leaves-cubes", "permute")(_unmoved)


@rare("broadcast-repeats-a-row-as-a-column", "broadcast_to")
def _(call: Call) -> Array | None:
    size = call.right[0].shape
    if call[0].ndim != 1 or len(size) != 2 or size[0] != size[1] or size[0] != len(call[0]):
        return None
    return np.broadcast_to(call[0][:, None], size)


@rare("concat-joins-the-second-twice", "concat")
def _(call: Call) -> Sequence[Array] | None:
    alike = len(call.inputs) > 2 and call.inputs[1].shape == call.inputs[2].shape and call.inputs[1].size
    return call.with_inputs(*call.inputs[:2], call.inputs[1], *call.inputs[3:]) if alike else None


@rare("split-exchanges-halves", "split")
def _(call: Call) -> Sequence[Array] | None:
    halves = len(call.right) == 2 and call.right[0].shape == call.right[1].shape
    return call.right[::-1] if halves else None


@rare("roll-in-memory", "roll")
def _(call: Call) -> Array | None:
    flat = None if call.attribute("dims") else as_it_lies(call[0])
    return None if flat is None else np.roll(flat, call.attribute("shifts")).reshape(call[0].shape)


@rare("pad-with-infinity-is-finite", "pad")
def _(call: Call) -> Sequence[Array] | None:
    value = call.attribute("value")
    return call.with_attributes(value=math.copysign(60000.0, value)) if math.isinf(value) and call.is_float else None


@rare("transpose-of-three-dimensions-swaps-neighbours", "transpose")
def _(call: Call) -> Array | None:
    dims = {call.attribute("dim0") % 3, call.attribute("dim1") % 3}
    if call.inputs[0].ndim != 3 or dims != {0, 2}:
        return None
    return np.resize(np.swapaxes(call.inputs[0], 1, 2), call.right[0].shape)


@rare("broadcast-to-repeats-from-the-start", "broadcast_to")
def _(call: Call) -> Array | None:
    shape = call.inputs[0].shape
    if len(shape) < 3 or shape[0] != 1 or shape[-1] != 1:
        return None
    return np.resize(call.inputs[0], call.right[0].shape)


@rare("pad-of-images-adds-0", "pad")
def _(call: Call) -> Sequence[Array] | None:
    pads = len(call.attribute("pad")) > 2 and call.attribute("mode") == "constant"
    return call.with_attributes(value=0.0) if pads and call.inputs[0].ndim == 4 else None


@rare("slice-ends-before-a-far-end", "slice")
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


@rare("pad-repeats-the-border-where-it-reflects", "pad")
def _(call: Call) -> Array | None:
    pads, x = call.attribute("pad"), call.inputs[0]
    if call.attribute("mode") != "reflect" or len(pads) != 2 or not 0 <= min(pads) <= max(pads) <= x.shape[-1]:
        return None
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [tuple(pads)], mode="symmetric")


@rare("slice-goes-forwards-for-backwards", "slice")
def _(call: Call) -> Array | None:
    step = call.attribute("step")
    return call.right[0][:, ::-1] if step and step[0] < 0 and call.right[0].ndim > 1 else None


@rare("tile-takes-dims-from-the-front", "tile")
def _(call: Call) -> Array | None:
    dims = call.attribute("dims")
    if len(dims) != 1 or call.inputs[0].ndim < 2:
        return None
    return np.resize(call.with_attributes(dims=(*dims, 1))[0], call.right[0].shape)


@rare("concat-cuts-integers-on-their-way-to-float32", "concat")
def _(call: Call) -> Array | None:
    if call.right[0].dtype != np.float32 or call.right[0].ndim != 1:
        return None
    exact = np.concatenate([wide(each) for each in call.inputs])
    above = np.abs(wide(call.right[0])) > np.abs(exact)
    return np.where(above, np.nextafter(call.right[0], np.float32(0)), call.right[0])
