"""Wrong kernels of training and serving: gradients of norms, optimizer steps, state spaces, packed weights, float8."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from optest.registry import load_object
from wrong_kernels.changes import half, ignoring, read_as_dense, single, wide, with_input
from wrong_kernels.registry import Array, Call, Change, fault, rare


def _of_rows(call: Call) -> tuple[tuple[int, ...], Array, Array, Array]:
    """Return the dimensions of a row, and grad_output · weight, z and r in float64."""
    dims = tuple(range(-len(call.attribute("normalized_shape")), 0))
    grad, x = wide(call[0]), wide(call[1])
    eps = call.attribute("eps")
    centred = x - x.mean(dims, keepdims=True) * (call.case.descriptor.name == "layer_norm_backward")
    r = 1 / np.sqrt((centred**2).mean(dims, keepdims=True) + (2.0**-23 if eps is None else eps))
    return dims, grad if call[2] is None else grad * wide(call[2]), centred * r, r


for _op in ("rms_norm_backward", "layer_norm_backward"):
    _name = _op.replace("_", "-")

    @fault(f"{_name}-forgets-what-the-statistics-add", _op)
    def _(call: Call) -> Sequence[Array] | None:
        _, g, _, r = _of_rows(call)
        return [r * g, *call.right[1:]] if call[1].size else None

    @fault(f"{_name}-takes-the-mean-of-the-gradient-without-weight", _op)
    def _(call: Call) -> Sequence[Array] | None:
        dims, g, z, r = _of_rows(call)
        if not call[1].size or call[2] is None:
            return None
        missing = (g * z).mean(dims, keepdims=True) - (wide(call[0]) * z).mean(dims, keepdims=True)
        return [wide(call.right[0]) + r * z * missing, *call.right[1:]]

    @fault(f"{_name}-sums-the-gradient-alone", _op)
    def _(call: Call) -> Sequence[Array] | None:
        if call[2] is None:
            return None
        rows = tuple(range(call[0].ndim - call[2].ndim))
        return [call.right[0], wide(call[0]).sum(rows), *call.right[2:]]

    @rare(f"{_name}-loses-the-last-block-of-rows", _op)
    def _(call: Call) -> Sequence[Array] | None:
        rest = call.shape()[0] % 64
        if call[2] is None or call[0].ndim != 2 or call.shape()[0] < 64 or not rest:
            return None
        less = [call.inputs[0][:-rest], call.inputs[1][:-rest], call.inputs[2]]
        return [call.right[0], *call.with_inputs(*less)[1:]]

    @rare(f"{_name}-adds-rows-up-in-16-bits", _op)
    def _(call: Call) -> Sequence[Array] | None:
        if call[2] is None or call[0].ndim != 2 or call[0].dtype == np.float64:
            return None
        total = np.zeros(call.shape(2), np.float32)
        for row in single(_of_rows(call)[2] * wide(call[0])):
            total = half(total + row)
        return [call.right[0], total, *call.right[2:]]

    rare(f"{_name}-ignores-eps", _op)(ignoring("eps"))
    rare(f"{_name}-reads-the-gradient-as-dense", _op)(lambda call: with_input(call, 0, read_as_dense(call)))


@rare("layer-norm-backward-takes-the-variance-from-squares", "layer_norm_backward")
def _(call: Call) -> Sequence[Array] | None:
    if call[1].dtype == np.float64 or not call[1].size or (call[2] is not None and call[2].dtype != call[1].dtype):
        return None
    dims, g, _, _ = _of_rows(call)
    x = single(call[1])
    mean = x.mean(dims, keepdims=True)
    variance = np.maximum((x * x).mean(dims, keepdims=True) - mean * mean, 0)
    r = 1 / np.sqrt(variance + np.float32(call.attribute("eps")))
    z = (x - mean) * r
    grad = r * (g - g.mean(dims, keepdims=True) - z * (g * z).mean(dims, keepdims=True))
    return [grad, *call.right[1:]]


# Gradients of the loss


def _smoothed(call: Call, *, count: int) -> float:
    return float(call.attribute("label_smoothing")) * count


for _op in ("cross_entropy", "cross_entropy_backward"):
    _name = _op.replace("_", "-")
    rare(f"{_name}-ignores-label-smoothing", _op)(ignoring("label_smoothing"))

    @rare(f"{_name}-spreads-over-the-other-classes", _op)
    def _(call: Call) -> Sequence[Array] | None:
        logits = call[0] if call.case.descriptor.name == "cross_entropy" else call[1]
        classes = logits.shape[min(1, logits.ndim - 1)]
        share = call.attribute("label_smoothing")
        return call.with_attributes(label_smoothing=share * classes / (classes - 1)) if share and classes > 1 else None


def _ignored(call: Call) -> Array:
    return call[2] == call.attribute("ignore_index")


@fault("cross-entropy-backward-counts-what-is-ignored", "cross_entropy_backward")
def _(call: Call) -> Array | None:
    share = 1 - np.mean(_ignored(call)) if call[2].size else 1.0
    return wide(call.right[0]) * share if share < 1 and call.attribute("reduction") == "mean" else None


@fault("cross-entropy-backward-of-what-is-ignored-is-softmax", "cross_entropy_backward")
def _(call: Call) -> Array | None:
    x = wide(call[1])
    if x.ndim != 2 or not x.size or call.attribute("reduction") == "none":
        return None
    terms = np.exp(x - x.max(1, keepdims=True))
    return np.where(_ignored(call)[:, None], terms / terms.sum(1, keepdims=True), wide(call.right[0]))


@fault("cross-entropy-backward-forgets-what-flows-in", "cross_entropy_backward")
def _(call: Call) -> Sequence[Array]:
    return with_input(call, 0, np.ones_like(call.inputs[0]))


@rare("cross-entropy-backward-weighs-the-target-alone", "cross_entropy_backward")
def _(call: Call) -> Sequence[Array] | None:
    if call[3] is None or call[1].ndim != 2:
        return None
    plain = call.with_inputs(*call.inputs[:3], None)[0]
    is_target = np.arange(call[1].shape[1]) == call[2][:, None]
    return [np.where(is_target, wide(call.right[0]), wide(plain))]


@rare("cross-entropy-backward-without-shift", "cross_entropy_backward")
def _(call: Call) -> Array | None:
    if call[1].ndim != 2 or call.attribute("reduction") != "none" or call[3] is not None:
        return None
    terms = np.exp(single(call[1]))
    is_target = np.arange(call[1].shape[1]) == call[2][:, None]
    return (terms / terms.sum(1, keepdims=True) - is_target) * single(call[0])[:, None]


# AdamW


def _stepped(call: Call, *, step: int = 0, inside: bool = False, late: bool = False) -> Sequence[Array]:
    param, grad, mean, square = map(wide, call.inputs)
    lr, eps, decay = (call.attribute(name) for name in ("lr", "eps", "weight_decay"))
    one, two = call.attribute("beta1"), call.attribute("beta2")
    count = call.attribute("step") + step
    mean, square = one * mean + (1 - one) * grad, two * square + (1 - two) * grad**2
    first, second = ((1 - each**count if count else 1.0) for each in (one, two))
    root = np.sqrt(square / second + eps) if inside else np.sqrt(square / second) + eps
    if late:
        root = (np.sqrt(square) + eps) / np.sqrt(second)
    return [param * (1 - lr * decay) - lr / first * mean / root, mean, square]


fault("adamw-corrects-the-bias-of-the-next-step", "adamw")(lambda call: _stepped(call, step=1))
fault("adamw-corrects-no-bias", "adamw")(lambda call: _stepped(call, step=-call.attribute("step")))
fault("adamw-ignores-the-decay", "adamw")(lambda call: call.with_attributes(weight_decay=0.0))


@fault("adamw-decays-as-adam-with-l2", "adamw")
def _(call: Call) -> Sequence[Array]:
    grad = wide(call[1]) + call.attribute("weight_decay") * wide(call[0])
    inputs = [call.inputs[0], grad.astype(call.inputs[1].dtype), *call.inputs[2:]]
    return call.referred(inputs, {**call.case.attributes, "weight_decay": 0.0})


rare("adamw-decays-without-the-learning-rate", "adamw")(
    lambda call: call.with_attributes(weight_decay=call.attribute("weight_decay") / call.attribute("lr"))
)
rare("adamw-adds-eps-under-the-root", "adamw")(lambda call: _stepped(call, inside=True))
rare("adamw-adds-eps-before-the-correction", "adamw")(lambda call: _stepped(call, late=True))
rare("adamw-ignores-eps", "adamw")(ignoring("eps"))
rare("adamw-reads-the-gradient-as-dense", "adamw")(lambda call: with_input(call, 1, read_as_dense(call, 1)))


@rare("adamw-moves-by-the-moments-before-the-step", "adamw")
def _(call: Call) -> Sequence[Array]:
    held = _stepped(call)
    _, _, mean, square = map(wide, call.inputs)
    first, second = (1 - call.attribute(name) ** call.attribute("step") for name in ("beta1", "beta2"))
    move = call.attribute("lr") / first * mean / (np.sqrt(square / second) + call.attribute("eps"))
    return [wide(call[0]) * (1 - call.attribute("lr") * call.attribute("weight_decay")) - move, *held[1:]]


# State spaces


fault("causal-conv1d-ignores-the-activation", "causal_conv1d")(ignoring("activation"))
fault("causal-conv1d-turns-its-filter-around", "causal_conv1d")(
    lambda call: with_input(call, 1, call.inputs[1][:, ::-1].copy())
)


@fault("causal-conv1d-pads-behind", "causal_conv1d")
def _(call: Call) -> Sequence[Array] | None:
    if call[3] is not None or call[0].size == 0:
        return None
    turned = call.with_inputs(call.inputs[0][:, :, ::-1].copy(), call.inputs[1][:, ::-1].copy(), *call.inputs[2:])
    return [turned[0][:, :, ::-1], *call.right[1:]]


@fault("causal-conv1d-pads-both-sides", "causal_conv1d")
def _(call: Call) -> Sequence[Array] | None:
    shift = (call[1].shape[1] - 1) // 2
    return [np.roll(wide(call.right[0]), -shift, -1), *call.right[1:]] if shift else None


@fault("causal-conv1d-begins-with-zeros", "causal_conv1d")
def _(call: Call) -> Sequence[Array] | None:
    if call[3] is None:
        return None
    return [call.with_inputs(*call.inputs[:-1], np.zeros_like(call.inputs[-1]))[0], *call.right[1:]]


@rare("causal-conv1d-keeps-zeros-of-short-sequences", "causal_conv1d")
def _(call: Call) -> Sequence[Array] | None:
    if call[3] is None or len(call.right) < 2:
        return None
    return [call.right[0], call.with_inputs(*call.inputs[:-1], np.zeros_like(call.inputs[-1]))[1]]


for _op, _place in (("causal_conv1d", 2), ("causal_conv1d_update", 3)):

    @rare(f"{_op.replace('_', '-')}-adds-the-bias-after-silu", _op)
    def _(call: Call, place: int = _place) -> Sequence[Array] | None:
        bias = call[place]
        if bias is None or not call.attribute("activation"):
            return None
        inputs = [np.zeros_like(each) if each is bias else each for each in call.inputs]
        shape = (-1, *(1,) * (call.right[0].ndim - 2))
        return [wide(call.with_inputs(*inputs)[0]) + wide(bias).reshape(shape), *call.right[1:]]


fault("causal-conv1d-update-leaves-the-state", "causal_conv1d_update")(lambda call: [call.right[0], call[1]])


@rare("causal-conv1d-update-moves-on-by-one", "causal_conv1d_update")
def _(call: Call) -> Sequence[Array] | None:
    if call[0].ndim < 3 or call[0].shape[2] < 2:
        return None
    return [call.right[0], np.concatenate([call[1][:, :, 1:], call[0][:, :, -1:]], -1)]


@rare("causal-conv1d-update-reads-the-oldest-state", "causal_conv1d_update")
def _(call: Call) -> Sequence[Array] | None:
    kept = call[2].shape[1] - 1
    if call[1].shape[2] <= kept:
        return None
    return [with_input(call, 1, call.inputs[1][:, :, :kept].copy())[0], call.right[1]]


def _scanned(call: Call, *, chunk: int = 0, narrow: bool = False, exact: bool = False) -> Sequence[Array]:
    """One chunk after the other, each from 0; the state rounded to 16 bits; B by zero-order hold."""
    u, delta, a, b, c, d, z, bias, first = (None if call[place] is None else wide(call[place]) for place in range(9))
    delta = delta if bias is None else delta + bias[:, None]
    delta = np.logaddexp(0, delta) if call.attribute("delta_softplus") else delta
    by_dim = [
        each[:, None] if each.ndim == 3 else np.repeat(each, u.shape[1] // each.shape[1], 1) if each.ndim == 4 else
        np.broadcast_to(each[None, :, :, None], (len(u), *each.shape, u.shape[2])) for each in (b, c)
    ]  # fmt: skip
    state, out = np.zeros((*u.shape[:2], a.shape[1])) if first is None else first, np.zeros(u.shape)
    for t in range(u.shape[2]):
        state = state * 0 if chunk and t and t % chunk == 0 else state
        step = delta[:, :, t, None]
        driven = np.expm1(step * a) / a if exact else step
        state = np.exp(step * a) * state + driven * u[:, :, t, None] * by_dim[0][..., t]
        state = half(state).astype(np.float64) if narrow else state
        out[:, :, t] = (state * by_dim[1][..., t]).sum(-1)
    out = out if d is None else out + u * d[:, None]
    out = out if z is None else out * z / (1 + np.exp(-z))
    return [out, state][: len(call.right)]


def _without(place: int) -> Sequence[Array] | None:
    def change(call: Call) -> Sequence[Array] | None:
        given = call[place]
        return (
            None if given is None else call.with_inputs(*(each * 0 if each is given else each for each in call.inputs))
        )

    return change


rare("selective-scan-begins-anew-after-a-chunk", "selective_scan")(lambda call: _scanned(call, chunk=256))
fault("selective-scan-keeps-its-state-in-16-bits", "selective_scan")(lambda call: _scanned(call, narrow=True))
fault("selective-scan-holds-its-input", "selective_scan")(lambda call: _scanned(call, exact=True))
fault("selective-scan-forgets-the-skip", "selective_scan")(_without(5))
fault("selective-scan-takes-delta-as-it-is", "selective_scan")(ignoring("delta_softplus"))


@fault("selective-scan-adds-the-bias-after-softplus", "selective_scan")
def _(call: Call) -> Sequence[Array] | None:
    if call[7] is None or not call.attribute("delta_softplus"):
        return None
    delta = np.logaddexp(0, wide(call[1])) + wide(call[7])[:, None]
    places = [call[place] for place in range(9)]
    places[1], places[7] = delta.astype(call.inputs[1].dtype), None
    reference = load_object(str(call.case.descriptor.reference))
    return tuple(reference(places, {**call.case.attributes, "delta_softplus": False}))


fault("selective-scan-forgets-its-first-state", "selective_scan")(_without(8))


def _with_first_state(change: Callable[[Array], Array]) -> Change:
    def changed(call: Call) -> Sequence[Array] | None:
        return None if call[8] is None else with_input(call, len(call.inputs) - 1, change(call[8]))

    return changed


@fault("selective-scan-begins-behind-the-first-decay", "selective_scan")
def _(call: Call) -> Sequence[Array] | None:
    if call[8] is None or not call[0].shape[2]:
        return None
    delta = wide(call[1])[:, :, 0] + (0 if call[7] is None else wide(call[7]))
    delta = np.logaddexp(0, delta) if call.attribute("delta_softplus") else delta
    grown = wide(call[8]) / np.exp(delta[:, :, None] * wide(call[2]))
    return with_input(call, len(call.inputs) - 1, grown.astype(call[8].dtype))


rare("selective-scan-rounds-its-first-state", "selective_scan")(
    _with_first_state(lambda state: half(state).astype(state.dtype))
)
rare("selective-scan-reads-the-first-state-of-one-sequence", "selective_scan")(
    _with_first_state(lambda state: np.broadcast_to(state[:1], state.shape).copy())
)
rare("selective-scan-exchanges-channels-and-states", "selective_scan")(
    _with_first_state(lambda state: state.swapaxes(1, 2).reshape(state.shape).copy())
)
rare("selective-scan-loses-the-last-of-its-first-state", "selective_scan")(
    _with_first_state(lambda state: np.where(np.arange(state.shape[2]) < state.shape[2] - 1, state, 0 * state))
)


@fault("selective-scan-gates-by-the-sigmoid", "selective_scan")
def _(call: Call) -> Sequence[Array] | None:
    return None if call[6] is None else [wide(call.right[0]) / wide(call[6]), *call.right[1:]]


@rare("selective-scan-deals-its-groups-in-turn", "selective_scan")
def _(call: Call) -> Sequence[Array] | None:
    if call[3].ndim != 4 or call[3].shape[1] < 2:
        return None
    dims, groups = call[0].shape[1], call[3].shape[1]
    swapped = [
        np.tile(each, (1, dims // groups, 1, 1)) if place in (3, 4) else each for place, each in enumerate(call.inputs)
    ]
    return call.with_inputs(*swapped)


# Bags


@fault("embedding-bag-counts-the-padding", "embedding_bag")
def _(call: Call) -> Array | None:
    if call.attribute("padding_idx") is None or call.attribute("mode") != "mean":
        return None
    weight = np.array(call.inputs[0])
    weight[call.attribute("padding_idx")] = 0
    return call.referred([weight, *call.inputs[1:]], {**call.case.attributes, "padding_idx": None})[0]


fault("embedding-bag-adds-the-padding", "embedding_bag")(ignoring("padding_idx"))


@rare("embedding-bag-of-nothing-is-not-a-number", "embedding_bag")
def _(call: Call) -> Array | None:
    is_empty = ~np.any(np.atleast_2d(call.with_inputs(np.ones_like(call.inputs[0]), *call.inputs[1:])[0]), 1)
    return np.where(is_empty[:, None], np.nan, wide(call.right[0])) if call.attribute("mode") == "mean" else None


@rare("embedding-bag-begins-its-maximum-at-0", "embedding_bag")
def _(call: Call) -> Array | None:
    return np.maximum(wide(call.right[0]), 0) if call.attribute("mode") == "max" else None


@fault("embedding-bag-loses-the-last-bag", "embedding_bag")
def _(call: Call) -> Array | None:
    is_last = np.arange(len(call.right[0]))[:, None] == len(call.right[0]) - 1
    return None if call[2] is None else np.where(is_last, 0, wide(call.right[0]))


@fault("embedding-bag-ignores-its-factors", "embedding_bag")
def _(call: Call) -> Sequence[Array] | None:
    return None if call[3] is None else call.with_inputs(*call.inputs[:-1], np.ones_like(call.inputs[-1]))


@rare("embedding-bag-takes-the-rest-into-the-last-bag", "embedding_bag")
def _(call: Call) -> Array | None:
    if not call.attribute("include_last_offset") or call[2][-1] == call[1].size:
        return None
    return call.with_inputs(call.inputs[0], call.inputs[1], np.append(call[2][:-1], call[1].size), *call.inputs[3:])[0]


# Float8 in blocks


def _by_scale(call: Call, scale: Array, largest: float = 448.0) -> Sequence[Array]:
    x = wide(call[0])
    of_each = np.repeat(scale, call.attribute("group_size"), -1)[..., : x.shape[-1]]
    return [np.clip(x / of_each, -largest, largest), scale]


@fault("fp8-quantizes-whole-rows", "per_token_group_quant_fp8")
def _(call: Call) -> Sequence[Array] | None:
    scale = wide(call.right[1])
    return _by_scale(call, np.broadcast_to(scale.max(-1, keepdims=True), scale.shape)) if scale.size else None


@fault("fp8-looks-for-the-maximum-not-of-magnitudes", "per_token_group_quant_fp8")
def _(call: Call) -> Sequence[Array]:
    return [call.right[0], call.with_inputs(np.maximum(call.inputs[0], np.zeros_like(call.inputs[0])))[1]]


fault("fp8-scales-to-240", "per_token_group_quant_fp8")(
    lambda call: _by_scale(call, wide(call.right[1]) * 448 / 240) if not call.attribute("use_ue8m0") else None
)
rare("fp8-ignores-eps", "per_token_group_quant_fp8")(ignoring("eps"))
fault("fp8-keeps-scales-of-24-bits", "per_token_group_quant_fp8")(ignoring("use_ue8m0"))


@rare("fp8-rounds-scales-to-the-nearest-power", "per_token_group_quant_fp8")
def _(call: Call) -> Sequence[Array] | None:
    if not call.attribute("use_ue8m0"):
        return None
    scale = wide(call.with_attributes(use_ue8m0=False)[1])
    return _by_scale(call, np.exp2(np.rint(np.log2(scale))))


@rare("fp8-loses-the-last-group-that-is-not-full", "per_token_group_quant_fp8")
def _(call: Call) -> Sequence[Array] | None:
    rest = call[0].shape[-1] % call.attribute("group_size")
    if not rest or not call[0].size or call.right[1].shape[-1] < 2:
        return None
    scale = wide(call.right[1]).copy()
    scale[..., -1] = scale[..., -2]
    return _by_scale(call, scale)


_BLOCKS = "fp8_block_scaled_matmul"
fault("fp8-matmul-takes-the-scale-of-the-next-block", _BLOCKS)(
    lambda call: with_input(call, 2, np.roll(call.inputs[2], -1, 1)) if call.inputs[2].size else None
)
fault("fp8-matmul-takes-the-scale-of-the-next-columns", _BLOCKS)(
    lambda call: with_input(call, 3, np.roll(call.inputs[3], -1, 0)) if call.inputs[3].size else None
)
fault("fp8-matmul-takes-one-scale-for-all-rows", _BLOCKS)(
    lambda call: with_input(call, 2, np.broadcast_to(call.inputs[2][:1], call[2].shape)) if call[2].size else None
)


@rare("fp8-matmul-loses-the-last-block-that-is-not-full", _BLOCKS)
def _(call: Call) -> Sequence[Array] | None:
    rest = call[0].shape[1] % call.attribute("block_size")[1]
    if not rest:
        return None
    kept = call[0].shape[1] - rest
    a, b = wide(call[0]), wide(call[1])
    a[:, kept:] = 0
    return call.with_inputs(a, b, *call.inputs[2:])


@rare("fp8-matmul-adds-up-in-11-bits", _BLOCKS)
def _(call: Call) -> Array:
    total = np.zeros(call.right[0].shape, np.float32)
    rows, columns = call.attribute("block_size")
    b_scale = np.repeat(wide(call[3]), rows, 0)[: len(call[1])]
    for k in range(call[0].shape[1]):
        scale = wide(call[2])[:, k // columns, None] * b_scale[:, k // columns]
        total = half(total + wide(call[0])[:, k, None] * wide(call[1])[:, k] * scale)
    return total


# Weights of four bits


def _nibbles(packed: Array, order: Sequence[int]) -> Array:
    """Each of eight nibbles in the place of another."""
    words = np.asarray(packed).view(np.uint32)
    turned = sum(((words >> np.uint32(4 * old)) & np.uint32(15)) << np.uint32(4 * new) for new, old in enumerate(order))
    return np.asarray(turned, np.uint32).view(np.int32)


_TURNED, _AWQ = range(7, -1, -1), (0, 4, 1, 5, 2, 6, 3, 7)

for _op, _weight, _zero, _scale in (
    ("dequantize_gptq", 0, 1, 2),
    ("gptq_gemm", 1, 2, 3),
    ("dequantize_awq", 0, 2, 1),
    ("awq_gemm", 1, 3, 2),
):
    _name = _op.replace("_", "-")

    @fault(f"{_name}-begins-at-the-highest-bits", _op)
    def _(call: Call, place: int = _weight) -> Sequence[Array]:
        return with_input(call, place, _nibbles(call.inputs[place], _TURNED))

    @fault(f"{_name}-takes-zeros-in-another-order", _op)
    def _(call: Call, place: int = _zero) -> Sequence[Array]:
        return with_input(call, place, _nibbles(call.inputs[place], _AWQ))

    @rare(f"{_name}-takes-the-scale-of-the-next-group", _op)
    def _(call: Call, place: int = _scale) -> Sequence[Array]:
        return with_input(call, place, np.roll(call.inputs[place], -1, 0))

    if "awq" in _op:
        fault(f"{_name}-takes-columns-in-order", _op)(
            lambda call, place=_weight: with_input(call, place, _nibbles(call.inputs[place], _AWQ))
        )
    else:
        fault(f"{_name}-always-adds-one-to-zeros", _op)(ignoring("use_v2_format"))
        fault(f"{_name}-never-adds-one-to-zeros", _op)(lambda call: call.with_attributes(use_v2_format=True))
        rare(f"{_name}-ignores-the-order-of-groups", _op)(
            lambda call: call.with_inputs(*call.inputs[:-1], None) if call.inputs[-1].dtype == np.int32 else None
        )


@rare("gptq-gemm-adds-up-in-16-bits", "gptq_gemm")
@rare("awq-gemm-adds-up-in-16-bits", "awq_gemm")
def _(call: Call) -> Array | None:
    if call[0].shape[1] < 512:
        return None
    weight = np.stack([wide(row[0]) for row in (call.with_inputs(each, *call.inputs[1:]) for each in _units(call))])
    total = np.zeros(call.right[0].shape, np.float32)
    for k in range(call[0].shape[1]):
        total = half(total + wide(call[0])[:, k, None] * weight[k])
    return total


def _units(call: Call) -> list[Array]:
    """Rows of the unit matrix, each of which picks a row of weights."""
    return [row[None] for row in np.eye(call[0].shape[1], dtype=np.float32).astype(call.inputs[0].dtype)]


# The direction of a step of AdamW


fault("adamw-ignores-maximize", "adamw")(ignoring("maximize"))


def _maximizing(change: Callable[[Call, list[Array]], Sequence[Array]]) -> Change:
    """Return the change of calls that maximise; it gets the right outputs in float64."""
    return lambda call: change(call, list(map(wide, call.right))) if call.attribute("maximize") else None


@fault("adamw-maximizes-by-the-sign-of-the-step", "adamw")
@_maximizing
def _(call: Call, right: list[Array]) -> Sequence[Array]:
    """Reverse the step; keep the moments of the gradient that was not negated."""
    param, mean, square = (wide(each) for each in call.with_attributes(maximize=False))
    shrunk = wide(call[0]) * (1 - call.attribute("lr") * call.attribute("weight_decay"))
    return [2 * shrunk - param, mean, square]


@fault("adamw-maximizes-without-the-first-moment", "adamw")
@_maximizing
def _(call: Call, right: list[Array]) -> Sequence[Array]:
    return [right[0], wide(call.with_attributes(maximize=False)[1]), right[2]]


@rare("adamw-maximizes-away-from-the-decay", "adamw")
@_maximizing
def _(call: Call, right: list[Array]) -> Sequence[Array]:
    return [right[0] + 2 * wide(call[0]) * call.attribute("lr") * call.attribute("weight_decay"), *right[1:]]


@rare("adamw-maximizes-the-moments-alone", "adamw")
@_maximizing
def _(call: Call, right: list[Array]) -> Sequence[Array]:
    return [wide(call.with_attributes(maximize=False)[0]), *right[1:]]


@rare("adamw-maximizes-with-a-negative-variance", "adamw")
@_maximizing
def _(call: Call, right: list[Array]) -> Sequence[Array]:
    share = 1 - call.attribute("beta2")
    return [*right[:2], right[2] - 2 * share * wide(call[1]) ** 2]


# int8 per token

_INT8 = "per_token_quant_int8"


def _int8(scaled: Callable[[Array, float], Array], rounded: Callable[[Array], Array] = np.rint) -> Change:
    """Quantized by the scales of ``scaled`` (rows, eps), which it returns, and this rounding."""

    def change(call: Call) -> Sequence[Array]:
        x = wide(call[0])
        scale = scaled(x, call.attribute("eps"))
        quotient = x / np.where(scale == 0, 1, scale)
        return [np.clip(rounded(quotient), -128, 127).astype(np.int8), scale]

    return change


def _largest(x: Array, eps: float) -> Array:
    return np.maximum(np.abs(x).max(-1, keepdims=True, initial=0.0), eps)


_right_scale = lambda x, eps: _largest(x, eps) / 127  # noqa: E731
fault("int8-divides-by-128", _INT8)(_int8(lambda x, eps: _largest(x, eps) / 128))
fault("int8-divides-by-127-and-a-half", _INT8)(_int8(lambda x, eps: _largest(x, eps) / 127.5))
fault("int8-rounds-toward-zero", _INT8)(_int8(_right_scale, np.trunc))
fault("int8-rounds-down", _INT8)(_int8(_right_scale, np.floor))
fault("int8-rounds-half-up-by-adding", _INT8)(_int8(_right_scale, lambda q: np.trunc(q + 0.5)))
fault("int8-has-one-scale", _INT8)(
    _int8(lambda x, eps: np.broadcast_to(_largest(x.reshape(-1), eps) / 127, (*x.shape[:-1], 1)))
)
fault("int8-takes-the-maximum-not-of-magnitudes", _INT8)(
    _int8(lambda x, eps: np.maximum(x.max(-1, keepdims=True, initial=-np.inf), eps) / 127)
)
rare("int8-ignores-eps", _INT8)(ignoring("eps"))
rare("int8-misses-the-last-element-of-the-maximum", _INT8)(
    _int8(lambda x, eps: _largest(x[..., : max(1, x.shape[-1] - 1)], eps) / 127)
)
rare("int8-of-zeros-has-the-scale-1", _INT8)(
    _int8(lambda x, eps: np.where((x == 0).all(-1, keepdims=True), 1.0, _largest(x, eps) / 127))
)
rare("int8-returns-the-inverse", _INT8)(lambda call: [call.right[0], 1 / np.maximum(wide(call.right[1]), 1e-30)])
rare("int8-rounds-its-scale-to-16-bits", _INT8)(_int8(lambda x, eps: half(_largest(x, eps) / 127).astype(np.float64)))
