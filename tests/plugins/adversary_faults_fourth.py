"""More of :mod:`adversary_faults`: what a fourth stranger got past the case sets.

Integers that a float holds no more, truth in the lowest byte, the last half gap below an overflow, whole tensors, for
which there is a kernel of its own, and sums that are converted last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from adversary_faults import fault
from sixty_faults import Array, Call, Change, wide


def _of(call: Call, *names: str) -> bool:
    return [array.dtype.name for array in call.inputs] == list(names)


# Integers on their way through a float


@fault("div-of-int32-by-float32", "div")
def _(call: Call) -> Array | None:
    mode = call.attribute("rounding_mode")
    if mode is None or not _of(call, "int32", "int32"):
        return None
    quotient = call.inputs[0].astype(np.float32) / call.inputs[1].astype(np.float32)
    return np.asarray((np.floor if mode == "floor" else np.trunc)(quotient).astype(np.int64))


@fault("cast-of-int64-to-float32-by-float64", "cast")
def _(call: Call) -> Array | None:
    if not _of(call, "int64") or call.right[0].dtype != np.float32:
        return None
    return call.inputs[0].astype(np.float64).astype(np.float32)


def _sign_lost(target: str) -> Change:
    def change(call: Call) -> Array | None:
        if not _of(call, "int8") or call.right[0].dtype.name != target:
            return None
        return call.inputs[0].astype(np.uint8).astype(target)

    return change


for _name in ("uint16", "uint32", "uint64"):
    fault(f"cast-of-int8-to-{_name}-without-its-sign", "cast")(_sign_lost(_name))


# Whatever is not 0 is true


def _lowest_bytes(name: str, bits: int) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        if any(array.dtype.name != name for array in call.inputs) or call.right[0].dtype != np.bool_:
            return None
        return call.with_inputs(*[array.astype(f"uint{bits}").astype(array.dtype) for array in call.inputs])

    return change


for _op in ("logical_and", "logical_or", "logical_xor", "logical_not", "cast"):
    fault(f"{_op}-sees-bytes-of-int32", _op)(_lowest_bytes("int32", 8))
    fault(f"{_op}-sees-halves-of-int32", _op)(_lowest_bytes("int32", 16))
    fault(f"{_op}-sees-bytes-of-int16", _op)(_lowest_bytes("int16", 8))


# Around the overflow


def _early(source: str, target: str, largest: float) -> Change:
    def change(call: Call) -> Array | None:
        if not _of(call, source) or call.case.outputs[0].dtype.name != target:
            return None
        values = wide(call.inputs[0])
        return np.where(np.abs(values) > largest, np.copysign(np.inf, values), wide(call.right[0]))

    return change


for _source, _target, _largest in (
    ("float32", "float16", 65504.0),
    ("float32", "bfloat16", 2.0**128 - 2.0**120),
    ("float64", "float32", 2.0**128 - 2.0**104),
):
    fault(f"cast-to-{_target}-overflows-early", "cast")(_early(_source, _target, _largest))


@fault("cast-saturates-nan", "cast")
def _(call: Call) -> Array | None:
    if not call.attribute("saturate"):
        return None
    right = wide(call.right[0])
    return np.where(np.isnan(right), 448.0, right)


# Whole tensors


def _whole(call: Call) -> bool:
    return call.attribute("dim") is None and call.is_float and call.inputs[0].size > 0


def _without_nan(least: float) -> Change:
    def change(call: Call) -> Sequence[Array] | None:
        if not _whole(call):
            return None
        values = wide(call.inputs[0])
        return call.with_inputs(np.where(np.isnan(values), least, values).astype(call.inputs[0].dtype))

    return change


for _op, _least in (("max", -np.inf), ("amax", -np.inf), ("argmax", -np.inf)):
    fault(f"{_op}-of-all-drops-nan", _op)(_without_nan(_least))
for _op, _least in (("min", np.inf), ("amin", np.inf), ("argmin", np.inf)):
    fault(f"{_op}-of-all-drops-nan", _op)(_without_nan(_least))


def _from(start: float, choose: np.ufunc) -> Change:
    return lambda call: np.asarray(choose(wide(call.right[0]), start)) if _whole(call) else None


for _op in ("max", "amax"):
    fault(f"{_op}-of-all-starts-at-0", _op)(_from(0.0, np.maximum))
    fault(f"{_op}-of-all-starts-at-the-lowest-number", _op)(_from(-65504.0, np.maximum))
for _op in ("min", "amin"):
    fault(f"{_op}-of-all-starts-at-0", _op)(_from(0.0, np.minimum))


def _by_lanes(call: Call) -> Array | None:
    """Of equal elements that of the first of 32 lanes, not the first."""
    values = wide(call.inputs[0])
    if call.attribute("dim") is not None or values.size < 33 or np.isnan(values).any():
        return None
    extreme = values.reshape(-1)[np.asarray(call.right[0]).reshape(-1)[0]]
    places = np.flatnonzero(values == extreme)
    return np.reshape(places[np.argmin(places % 32)], call.right[0].shape)


fault("argmax-of-all-chooses-by-lanes", "argmax")(_by_lanes)
fault("argmin-of-all-chooses-by-lanes", "argmin")(_by_lanes)


# What float64 loses too


@fault("var-of-float64-from-squares", "var")
def _(call: Call) -> Array | None:
    if not _of(call, "float64") or call.attribute("dim") is None or call.attribute("keepdim"):
        return None
    values, axis = call.inputs[0], call.attribute("dim")
    axis = axis if isinstance(axis, int) else tuple(axis)
    count = values.size / max(1, call.right[0].size)
    mean = values.mean(axis=axis)
    return np.asarray(((values * values).mean(axis=axis) - mean * mean) * count / max(count - 1.0, 0.0))


@fault("group-norm-knows-no-volumes", "group_norm")
def _(call: Call) -> Array | None:
    return np.zeros(call.right[0].shape) if call.inputs[0].ndim == 5 else None


# Where a dimension lies


@fault("transpose-of-three-dimensions-swaps-neighbours", "transpose")
def _(call: Call) -> Array | None:
    dims = {call.attribute("dim0") % 3, call.attribute("dim1") % 3}
    if call.inputs[0].ndim != 3 or dims != {0, 2}:
        return None
    return np.resize(np.swapaxes(call.inputs[0], 1, 2), call.right[0].shape)


@fault("broadcast-to-repeats-from-the-start", "broadcast_to")
def _(call: Call) -> Array | None:
    shape = call.inputs[0].shape
    if len(shape) < 3 or shape[0] != 1 or shape[-1] != 1:
        return None
    return np.resize(call.inputs[0], call.right[0].shape)


def _channels_repeated(call: Call) -> Sequence[Array] | None:
    """A number for each channel is taken for one for each column."""
    left, right = call.inputs
    if left.ndim != 4 or right.ndim != 3 or right.shape[1:] != (1, 1):
        return None
    return call.with_inputs(left, np.resize(right, left.shape[1:]))


for _op in ("add", "mul", "div", "maximum"):
    fault(f"{_op}-takes-channels-for-columns", _op)(_channels_repeated)


# Two things at once


def _is_bool(mask: Array | None) -> bool:
    return mask is not None and mask.dtype == np.bool_


@fault("attention-ignores-scale-beside-a-mask", "scaled_dot_product_attention")
def _(call: Call) -> Sequence[Array] | None:
    return None if call[3] is None else call.with_attributes(scale=None)


@fault("attention-scales-a-mask", "scaled_dot_product_attention")
def _(call: Call) -> Sequence[Array] | None:
    scale, mask = call.attribute("scale"), call[3]
    if scale is None or mask is None or mask.dtype == np.bool_:
        return None
    return call.with_inputs(*call.inputs[:3], (wide(mask) * scale).astype(mask.dtype))


def _wrong_where(condition: Callable[[Call], bool]) -> Change:
    """Everything negated, where the condition holds."""
    return lambda call: -wide(call.right[0]) if condition(call) else None


for _name, _condition in {
    "grouped-heads-and-scale": lambda call: call.attribute("enable_gqa") and call.attribute("scale") is not None,
    "grouped-heads-and-a-bool-mask": lambda call: call.attribute("enable_gqa") and _is_bool(call[3]),
    "one-query-of-grouped-heads": lambda call: call.attribute("enable_gqa") and call[0].shape[-2] == 1,
    "one-query-and-a-mask": lambda call: call[3] is not None and call[0].shape[-2] == 1,
    "wider-values-and-a-mask": lambda call: call[3] is not None and call[0].shape[-1] != call[2].shape[-1],
    "wider-values-and-causal": lambda call: call.attribute("is_causal") and call[0].shape[-1] != call[2].shape[-1],
}.items():
    fault(f"attention-is-wrong-for-{_name}", "scaled_dot_product_attention")(_wrong_where(_condition))


@fault("var-of-several-dimensions-is-unbiased", "var")
def _(call: Call) -> Sequence[Array] | None:
    dim = call.attribute("dim")
    return None if isinstance(dim, int) or (dim and len(dim) == 1) else call.with_attributes(correction=1.0)


@fault("norm-of-float64-knows-p-2-alone", "norm")
def _(call: Call) -> Sequence[Array] | None:
    return call.with_attributes(p=2.0) if _of(call, "float64") else None


@fault("pad-of-images-adds-0", "pad")
def _(call: Call) -> Sequence[Array] | None:
    pads = len(call.attribute("pad")) > 2 and call.attribute("mode") == "constant"
    return call.with_attributes(value=0.0) if pads and call.inputs[0].ndim == 4 else None


@fault("einsum-of-two-takes-the-first-of-what-one-has-alone", "einsum")
def _(call: Call) -> Sequence[Array] | None:
    sides, _, kept = str(call.attribute("equation")).replace(" ", "").partition("->")
    left, *others = sides.split(",")
    if not kept or len(others) != 1 or not left.isalpha():
        return None
    alone = [place for place, label in enumerate(left) if label not in others[0] + kept]
    return call.with_inputs(np.take(call.inputs[0], [0], alone[0]), call.inputs[1]) if alone else None
