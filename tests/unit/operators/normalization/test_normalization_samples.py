"""What the samples of normalisations find out: one fault in a kernel at a time, and none in honest ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from sample_questions import questions, wrong_answers

from optest.numerics import dtype_of, round_to, widen
from optest.operators import operators
from optest.operators.normalization.softmax_reference import seen
from optest.registry import load_object

Array = np.ndarray[Any, Any]
Inputs = Sequence[Any]
Attributes = Mapping[str, Any]
Kernel = Callable[[Inputs, Attributes], Any]

f4 = np.float32
AFFINE = ("layer_norm", "group_norm", "batch_norm")
NORMS = ("layer_norm", "rms_norm", "group_norm", "batch_norm")
SOFTMAXES = ("softmax", "log_softmax", "causal_softmax")


def by_reference(name: str, **changed: Any) -> Kernel:
    """The reference under other attributes."""
    hook = load_object(str(operators.get(name).reference))
    return lambda inputs, attributes: hook(inputs, {**attributes, **changed})[0]


def eps_of(inputs: Inputs, attributes: Attributes) -> float:
    stated = attributes["eps"]
    return float(stated if stated is not None else 2.0**-52 if inputs[0].dtype == np.float64 else 2.0**-23)


def with_eps(name: str, change: Callable[[float], float]) -> Kernel:
    hook = by_reference(name)
    return lambda inputs, attributes: hook(inputs, {**attributes, "eps": change(eps_of(inputs, attributes))})


def with_inputs(name: str, change: Callable[..., Sequence[Any]]) -> Kernel:
    """The reference of changed inputs, which are at their places."""
    hook = by_reference(name)

    def call(inputs: Inputs, attributes: Attributes) -> Any:
        places = [*inputs, *[None] * (len(operators.get(name).tensors.inputs) - len(inputs))]
        return hook(change(*places), attributes)

    return call


def single(array: Any) -> Array:
    """In the arithmetic of a right kernel."""
    array = np.asarray(array)
    return array if array.dtype == np.float64 else widen(array).astype(f4)


def dense(array: Any) -> Any:
    """Storage read as if it were dense."""
    if array is None or array.base is None or not array.size:
        return array
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    return np.resize(base.ravel(), array.shape) if base.dtype == array.dtype else array


def rows_of(inputs: Inputs, attributes: Attributes) -> tuple[Array, tuple[int, ...]]:
    """layer_norm's and rms_norm's input as rows, with its shape."""
    x = np.asarray(inputs[0])
    width = int(np.prod(attributes["normalized_shape"]))
    return x.reshape(x.size // max(width, 1), width), x.shape


def affine(y: Array, shape: tuple[int, ...], weight: Any, bias: Any = None) -> Array:
    y = y.reshape(shape)
    y = y if weight is None else y * single(weight)
    return np.asarray(y if bias is None else y + single(bias))


Formula = Callable[[Array, float], Array]


def layer_norm_by(formula: Formula) -> Kernel:
    def call(inputs: Inputs, attributes: Attributes) -> Any:
        rows, shape = rows_of(inputs, attributes)
        weight, bias = (*inputs, None, None)[1:3]
        return affine(formula(single(rows), attributes["eps"]), shape, weight, bias)

    return call


def with_statistics(change: Callable[..., tuple[Array, Array]]) -> Kernel:
    """layer_norm with a right result, and something done to what stands beside it."""
    hook = load_object(str(operators.get("layer_norm").reference))

    def call(inputs: Inputs, attributes: Attributes) -> Any:
        found = hook(inputs, attributes)
        return (found[0], *change(*found[1:], (*inputs, None)[1])) if attributes["statistics"] else found[0]

    return call


def rms_norm_by(formula: Formula) -> Kernel:
    def call(inputs: Inputs, attributes: Attributes) -> Any:
        rows, shape = rows_of(inputs, attributes)
        return affine(formula(single(rows), eps_of(inputs, attributes)), shape, (*inputs, None)[1])

    return call


def two_pass(x: Array, eps: float) -> Array:
    n = x.dtype.type(max(x.shape[-1], 1))
    centred = x - x.sum(-1, keepdims=True) / n
    return np.asarray(centred / np.sqrt((centred * centred).sum(-1, keepdims=True) / n + x.dtype.type(eps)))


def from_squares(x: Array, eps: float) -> Array:
    n = x.dtype.type(max(x.shape[-1], 1))
    mean = x.sum(-1, keepdims=True) / n
    square = (x * x).sum(-1, keepdims=True) / n
    return np.asarray((x - mean) / np.sqrt(np.maximum(square - mean * mean, 0) + x.dtype.type(eps)))


def unbiased(x: Array, eps: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    n = max(x.shape[-1] - 1, 1)
    return np.asarray(centred / np.sqrt((centred * centred).sum(-1, keepdims=True) / n + eps))


def eps_outside(x: Array, eps: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return np.asarray(centred / (np.sqrt((centred * centred).mean(-1, keepdims=True)) + eps))


def without_last(x: Array, eps: float) -> Array:
    """Statistics that miss the last element, as by an off-by-one bound."""
    part = x[..., :-1] if x.shape[-1] > 1 else x
    mean = part.mean(-1, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(((part - mean) ** 2).mean(-1, keepdims=True) + eps))


def sums_in_16_bits(x: Array, eps: float) -> Array:
    """Statistics by sums that are rounded to float16 after each block of 8."""
    n = max(x.shape[-1], 1)

    def mean_of(values: Array) -> Array:
        total = np.zeros((*values.shape[:-1], 1))
        for start in range(0, values.shape[-1], 8):
            total = round_to(total + values[..., start : start + 8].sum(-1, keepdims=True), _HALF).astype(float)
        return np.asarray(total / n)

    centred = x - mean_of(x)
    return np.asarray(centred / np.sqrt(mean_of(centred * centred) + eps))


_HALF = dtype_of(np.dtype(np.float16))


def rms(x: Array, eps: float) -> Array:
    return np.asarray(x * (x.dtype.type(1) / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(eps))))


def softmax_by(formula: Callable[[Array], Array]) -> Kernel:
    """A kernel of the last axis for softmax and log_softmax."""

    def call(inputs: Inputs, attributes: Attributes) -> Any:
        x = single(inputs[0])
        if not x.size:
            return x
        row = x.reshape(x.shape or (1,))
        moved = np.moveaxis(row, attributes["dim"], -1)
        return np.moveaxis(formula(moved), -1, attributes["dim"]).reshape(x.shape)

    return call


def shares(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def logarithms(x: Array) -> Array:
    d = x - x.max(-1, keepdims=True)
    return np.asarray(d - np.log(np.exp(d).sum(-1, keepdims=True)))


def without_shift(x: Array) -> Array:
    e = np.exp(x)
    return np.asarray(e / e.sum(-1, keepdims=True))


def without_tail(x: Array) -> Array:
    """The sum misses what does not fill a block of 16."""
    e = np.exp(x - x.max(-1, keepdims=True))
    whole = x.shape[-1] - x.shape[-1] % 16
    return np.asarray(e / (e[..., :whole] if whole else e).sum(-1, keepdims=True))


def in_16_bits(x: Array) -> Array:
    e = round_to(np.exp(x - x.max(-1, keepdims=True)).astype(float), _HALF).astype(float)
    return np.asarray(e / e.sum(-1, keepdims=True))


def over_two_dims(inputs: Inputs, attributes: Attributes) -> Any:
    """Rows of different softmaxes that share a sum: the first element's."""
    y = np.array(by_reference("softmax")(inputs, attributes))
    return y * (1.0 + 1e-4 * (np.arange(y.size).reshape(y.shape) == y.size - 1))


def causal_by(mask_of: Callable[[int, int], Array], *, fill: float = -np.inf) -> Kernel:
    def call(inputs: Inputs, attributes: Attributes) -> Any:
        x = single(inputs[0])
        if not x.size:
            return x
        mask = mask_of(x.shape[-2], x.shape[-1])
        return shares(np.where(mask, x, x.dtype.type(fill)))

    return call


def causal_by_product(inputs: Inputs, attributes: Attributes) -> Any:
    """What is not seen is multiplied by 0 after a softmax of what is there."""
    x = single(inputs[0])
    if not x.size:
        return x
    mask = seen(x.shape[-2], x.shape[-1])
    e = np.exp(x - x.max(-1, keepdims=True)) * mask
    return e / e.sum(-1, keepdims=True)


def causal_by_addition(inputs: Inputs, attributes: Attributes) -> Any:
    """A large negative number is added to what is not seen, whatever stands there."""
    x = single(inputs[0])
    return shares(x + np.where(seen(*x.shape[-2:]), 0.0, -10000.0).astype(x.dtype)) if x.size else x


def group_by(change: Callable[..., Any]) -> Kernel:
    """Changes of the groups: ``change(inputs, attributes) -> (inputs, attributes)``."""
    hook = by_reference("group_norm")
    return lambda inputs, attributes: hook(*change(list(inputs), dict(attributes)))


def interleaved(inputs: list[Any], attributes: dict[str, Any]) -> Any:
    """Every G-th channel makes a group, in place of neighbours."""
    x, groups = inputs[0], attributes["num_groups"]
    order = np.argsort(np.arange(x.shape[1]) % groups, kind="stable")
    back = np.argsort(order)
    picked = [x[:, order], *[None if each is None else each[order] for each in inputs[1:]]]
    return np.asarray(by_reference("group_norm")(picked, attributes))[:, back]


def channels_last(inputs: Inputs, attributes: Attributes) -> Any:
    """The channel is looked for in the last dimension where that fits."""
    x = np.asarray(inputs[0])
    if x.ndim < 3 or x.shape[1] != x.shape[-1]:
        return by_reference("batch_norm")(inputs, attributes)
    return np.swapaxes(by_reference("batch_norm")([np.swapaxes(x, 1, -1), *inputs[1:]], attributes), 1, -1)


def training_unbiased(inputs: Inputs, attributes: Attributes) -> Any:
    if not attributes["training"] or not inputs[0].size:
        return by_reference("batch_norm")(inputs, attributes)
    n = inputs[0].size / inputs[0].shape[1]
    bare = by_reference("batch_norm", eps=attributes["eps"] * (n - 1) / n)([inputs[0], None, None], attributes)
    y = bare * np.sqrt((n - 1) / n)
    weight, bias = (*inputs, None, None, None, None)[3:5]
    shape = (-1, *(1,) * (y.ndim - 2))
    y = y if weight is None else y * widen(weight).reshape(shape)
    return y if bias is None else y + widen(bias).reshape(shape)


def training_from_squares(inputs: Inputs, attributes: Attributes) -> Any:
    if not attributes["training"] or not inputs[0].size:
        return by_reference("batch_norm")(inputs, attributes)
    x = single(inputs[0])
    moved = np.moveaxis(x, 1, 0)
    y = np.moveaxis(from_squares(moved.reshape(len(moved), -1), attributes["eps"]).reshape(moved.shape), 0, 1)
    weight, bias = (*inputs, None, None, None, None)[3:5]
    shape = (-1, *(1,) * (y.ndim - 2))
    y = y if weight is None else y * single(weight).reshape(shape)
    return y if bias is None else y + single(bias).reshape(shape)


def folded(inputs: Inputs, attributes: Attributes) -> Any:
    """Honest: batch_norm as x·scale + shift in float32."""
    x, mean, variance, weight, bias = (*inputs, None, None, None, None)[:5]
    if attributes["training"]:
        return by_reference("batch_norm")(inputs, attributes)
    x, mean, variance = single(x), single(mean), single(variance)
    scale = (x.dtype.type(1) if weight is None else single(weight)) / np.sqrt(
        variance + x.dtype.type(attributes["eps"])
    )
    shift = (x.dtype.type(0) if bias is None else single(bias)) - mean * scale
    shape = (-1, *(1,) * (x.ndim - 2))
    return x * scale.reshape(shape) + shift.reshape(shape)


FAULTS: dict[str, tuple[str, Kernel]] = {
    **{
        f"{name}: {what}": (name, kernel)
        for name in NORMS
        for what, kernel in (
            ("ten times eps", with_eps(name, lambda eps: 10.0 * eps)),
            ("no eps", with_eps(name, lambda eps: 0.0)),
            ("eps ignored", with_eps(name, lambda eps: 1e-5)),
            ("eps as 1e-6", with_eps(name, lambda eps: 1e-6)),
            ("storage read as dense", with_inputs(name, lambda *places: [dense(places[0]), *places[1:]])),
            ("weight read as dense", with_inputs(name, lambda *p: [*p[:-2], *map(dense, p[-2:])])),
        )
    },
    **{
        f"{name}: {what}": (name, kernel)
        for name in AFFINE
        for what, kernel in (
            ("bias ignored", with_inputs(name, lambda *p: [*p[:-1], None])),
            ("weight ignored", with_inputs(name, lambda *p: [*p[:-2], None, p[-1]])),
            ("bias without weight ignored", with_inputs(name, lambda *p: [*p[:-1], None if p[-2] is None else p[-1]])),
            (
                "weight and bias exchanged",
                with_inputs(name, lambda *p: [*p[:-2], p[-1], p[-2]] if p[-1] is not None and p[-2] is not None else p),
            ),
            ("the first weight for all", with_inputs(name, lambda *p: [*p[:-2], _first_of(p[-2]), p[-1]])),
        )
    },
    "layer_norm: 1/std for std": ("layer_norm", with_statistics(lambda z, std, weight: (z, 1.0 / std))),
    "layer_norm: std of n - 1": (
        "layer_norm",
        with_statistics(lambda z, std, weight: (z, std * np.sqrt(z.shape[-1] / max(z.shape[-1] - 1, 1)))),
    ),
    "layer_norm: standardization times weight": (
        "layer_norm",
        with_statistics(lambda z, std, weight: (z if weight is None else z * widen(weight), std)),
    ),
    "layer_norm: from squares": ("layer_norm", layer_norm_by(from_squares)),
    "layer_norm: unbiased": ("layer_norm", layer_norm_by(unbiased)),
    "layer_norm: eps outside the root": ("layer_norm", layer_norm_by(eps_outside)),
    "layer_norm: statistics without the last": ("layer_norm", layer_norm_by(without_last)),
    "layer_norm: sums in 16 bits": ("layer_norm", layer_norm_by(sums_in_16_bits)),
    "layer_norm: no mean": ("layer_norm", layer_norm_by(rms)),
    "layer_norm: last dimension alone": (
        "layer_norm",
        lambda i, a: affine(
            layer_norm_by(two_pass)([i[0]], {**a, "normalized_shape": a["normalized_shape"][-1:]}),
            np.shape(i[0]),
            *(*i, None, None)[1:3],
        ),
    ),
    "layer_norm: over the first dimension": (
        "layer_norm",
        lambda i, a: affine(two_pass(single(i[0]).T, a["eps"]).T, np.shape(i[0]), *(*i, None, None)[1:3]),
    ),
    "rms_norm: the mean taken off": ("rms_norm", rms_norm_by(two_pass)),
    "rms_norm: eps outside the root": (
        "rms_norm",
        rms_norm_by(lambda x, eps: x / (np.sqrt((x * x).mean(-1, keepdims=True)) + eps)),
    ),
    "rms_norm: the sum of squares": (
        "rms_norm",
        rms_norm_by(lambda x, eps: x / np.sqrt((x * x).sum(-1, keepdims=True) + eps)),
    ),
    "rms_norm: squares in float16": (
        "rms_norm",
        rms_norm_by(
            lambda x, eps: (
                x / np.sqrt(round_to((x * x).astype(float), _HALF).astype(float).mean(-1, keepdims=True) + eps)
            )
        ),
    ),
    "rms_norm: 1 + weight": (
        "rms_norm",
        lambda i, a: by_reference("rms_norm")([i[0]], a) * (1.0 if (*i, None)[1] is None else 1.0 + widen(i[1])),
    ),
    "rms_norm: default eps of 16 bits": (
        "rms_norm",
        lambda i, a: by_reference("rms_norm")(
            i, {**a, "eps": 2.0**-10 if a["eps"] is None and i[0].dtype == np.float16 else a["eps"]}
        ),
    ),
    "rms_norm: weight before its time": (
        "rms_norm",
        lambda i, a: by_reference("rms_norm")([i[0] if (*i, None)[1] is None else single(i[0]) * single(i[1])], a),
    ),
    "group_norm: one group": ("group_norm", by_reference("group_norm", num_groups=1)),
    "group_norm: interleaved groups": ("group_norm", lambda i, a: interleaved([*i], dict(a)) if i[0].size else i[0]),
    "group_norm: statistics of the first sample": (
        "group_norm",
        lambda i, a: _by_first_sample(i, a),
    ),
    "group_norm: of channels": (
        "group_norm",
        lambda i, a: by_reference("group_norm", num_groups=i[0].shape[1] or 1)(i, a),
    ),
    "batch_norm: by the batch": ("batch_norm", by_reference("batch_norm", training=True)),
    "batch_norm: by running statistics in training": (
        "batch_norm",
        lambda i, a: by_reference("batch_norm", training=(*i, None, None)[1] is None)(i, a),
    ),
    "batch_norm: mean and variance exchanged": (
        "batch_norm",
        with_inputs("batch_norm", lambda x, m, v, w, b: [x, v, None if m is None else np.abs(widen(m)), w, b]),
    ),
    "batch_norm: the variance as a deviation": (
        "batch_norm",
        with_inputs(
            "batch_norm", lambda x, m, v, w, b: [x, m, None if v is None else widen(v).astype(float) ** 2, w, b]
        ),
    ),
    "batch_norm: the channel in the last dimension": ("batch_norm", channels_last),
    "batch_norm: unbiased in training": ("batch_norm", training_unbiased),
    "batch_norm: from squares in training": ("batch_norm", training_from_squares),
    "softmax: without the shift": ("softmax", softmax_by(without_shift)),
    "softmax: sum without its tail": ("softmax", softmax_by(without_tail)),
    "softmax: exp in 16 bits": ("softmax", softmax_by(in_16_bits)),
    "softmax: along the last dimension": ("softmax", by_reference("softmax", dim=-1)),
    "softmax: over everything": (
        "softmax",
        lambda i, a: by_reference("softmax", dim=0)([np.ravel(i[0])], a).reshape(np.shape(i[0])),
    ),
    "softmax: logarithms": ("softmax", softmax_by(logarithms)),
    "softmax: one element": ("softmax", over_two_dims),
    "softmax: zeros for nan": ("softmax", lambda i, a: np.nan_to_num(by_reference("softmax")(i, a))),
    "softmax: -inf as -65504": (
        "softmax",
        softmax_by(lambda x: shares(np.where(np.isneginf(x), x.dtype.type(-100.0), x))),
    ),
    "softmax: absolute maximum": ("softmax", softmax_by(lambda x: without_shift(x - np.abs(x).max(-1, keepdims=True)))),
    "log_softmax: of softmax": ("log_softmax", softmax_by(lambda x: np.log(shares(x)))),
    "log_softmax: with a guard": ("log_softmax", softmax_by(lambda x: np.log(shares(x) + x.dtype.type(1e-7)))),
    "log_softmax: without the shift": (
        "log_softmax",
        softmax_by(lambda x: x - np.log(np.exp(x).sum(-1, keepdims=True))),
    ),
    "log_softmax: to base 2": ("log_softmax", lambda i, a: by_reference("log_softmax")(i, a) / np.log(2.0)),
    "log_softmax: along the last dimension": ("log_softmax", by_reference("log_softmax", dim=-1)),
    "log_softmax: sum without its tail": ("log_softmax", softmax_by(lambda x: np.log(without_tail(x)))),
    "causal_softmax: of everything": ("causal_softmax", causal_by(lambda r, c: np.ones((r, c), bool))),
    "causal_softmax: one column less": ("causal_softmax", causal_by(lambda r, c: np.tri(r, c, c - r - 1, dtype=bool))),
    "causal_softmax: one column more": ("causal_softmax", causal_by(lambda r, c: np.tri(r, c, c - r + 1, dtype=bool))),
    "causal_softmax: aligned to the left": ("causal_softmax", causal_by(lambda r, c: np.tri(r, c, dtype=bool))),
    "causal_softmax: from above": ("causal_softmax", causal_by(lambda r, c: ~np.tri(r, c, c - r - 1, dtype=bool))),
    "causal_softmax: masked by -100": ("causal_softmax", causal_by(seen, fill=-100.0)),
    "causal_softmax: masked by a product": ("causal_softmax", causal_by_product),
    "causal_softmax: masked by addition": ("causal_softmax", causal_by_addition),
}


def _first_of(weight: Any) -> Any:
    return weight if weight is None or not weight.size else np.full_like(weight, weight.reshape(-1)[0])


def _by_first_sample(inputs: Inputs, attributes: Attributes) -> Any:
    x = np.asarray(inputs[0])
    if len(x) < 2 or not x.size:
        return by_reference("group_norm")(inputs, attributes)
    repeated = np.concatenate([x[:1], x[:1]] + [x[:1]] * (len(x) - 2))
    return by_reference("group_norm")([repeated, *inputs[1:]], attributes)


def answering(kernel: Kernel) -> Kernel:
    """A kernel that crashes is not what these faults are about, and found by any call.

    Statistics that a kernel of one output does not give are right, so that its own fault has to show.
    """

    def call(inputs: Inputs, attributes: Attributes) -> Any:
        try:
            found = kernel(inputs, attributes)
            if attributes.get("statistics") and not isinstance(found, tuple):
                return (found, *load_object(str(operators.get("layer_norm").reference))(inputs, attributes)[1:])
            return found
        except (ValueError, IndexError, TypeError) as error:
            raise RuntimeError("the fault itself is faulty") from error

    return call


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str) -> None:
    operator, kernel = FAULTS[fault]
    assert wrong_answers(operator, answering(kernel), first=True), "no sample notices"


def groups_folded(inputs: Inputs, attributes: Attributes) -> Any:
    """group_norm as x·scale + shift in float32."""
    x, weight, bias = single(inputs[0]), *(*inputs, None, None)[1:3]
    if not x.size:
        return x
    rows = x.reshape(len(x) * attributes["num_groups"], -1)
    t = x.dtype.type
    mean = rows.sum(-1, keepdims=True) / t(rows.shape[-1])
    variance = ((rows - mean) ** 2).sum(-1, keepdims=True) / t(rows.shape[-1])
    each = x.shape[1] // attributes["num_groups"]
    spread = (len(x), x.shape[1], *(1,) * (x.ndim - 2))
    mean, r = (
        np.repeat(v, each, axis=1).reshape(spread) for v in (mean, t(1) / np.sqrt(variance + t(attributes["eps"])))
    )
    channel = (1, -1, *(1,) * (x.ndim - 2))
    scale = r if weight is None else single(weight).reshape(channel) * r
    return x * scale + ((t(0) if bias is None else single(bias).reshape(channel)) - mean * scale)


def trained_folded(inputs: Inputs, attributes: Attributes) -> Any:
    """batch_norm in training as x·scale + shift in float32."""
    if not attributes["training"]:
        return folded(inputs, attributes)
    x, t = single(inputs[0]), single(inputs[0]).dtype.type
    if not x.size:
        return x
    dims = (0, *range(2, x.ndim))
    count = t(x.size / x.shape[1])
    mean = x.sum(dims) / count
    centred = x - mean.reshape(-1, *(1,) * (x.ndim - 2))
    variance = (centred * centred).sum(dims) / count
    weight, bias = (*inputs, None, None, None, None)[3:5]
    return folded([x, mean, variance, weight, bias], {**attributes, "training": False})


def layer_norm_with_statistics(inputs: Inputs, attributes: Attributes) -> Any:
    """All three outputs in the arithmetic of float32."""
    out = layer_norm_by(two_pass)(inputs, attributes)
    if not attributes["statistics"]:
        return out
    rows, shape = rows_of(inputs, attributes)
    x = single(rows)
    t = x.dtype.type
    centred = x - (x.sum(-1, keepdims=True) / t(x.shape[-1]))
    std = np.sqrt((centred * centred).sum(-1) / t(x.shape[-1]) + t(attributes["eps"]))
    lead = shape[: len(shape) - len(attributes["normalized_shape"])]
    return out, layer_norm_by(two_pass)(inputs[:1], attributes), std.reshape(lead)


HONEST: dict[str, tuple[str, Kernel]] = {
    "group_norm in float32": ("group_norm", groups_folded),
    "batch_norm in float32, trained": ("batch_norm", trained_folded),
    **{name: (name, by_reference(name)) for name in (*NORMS, *SOFTMAXES)},
    "layer_norm in float32": ("layer_norm", layer_norm_with_statistics),
    "rms_norm in float32": ("rms_norm", rms_norm_by(rms)),
    "batch_norm in float32": ("batch_norm", folded),
    "softmax in float32": ("softmax", softmax_by(shares)),
    "log_softmax in float32": ("log_softmax", softmax_by(logarithms)),
    "causal_softmax in float32": ("causal_softmax", causal_by(seen)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kernel", HONEST)
def test_honest_kernels_raise_no_alarm(kernel: str) -> None:
    operator, function = HONEST[kernel]
    assert wrong_answers(operator, answering(function)) == []


@pytest.mark.parametrize("name", [*NORMS, *SOFTMAXES])
def test_samples_are_of_the_named_sets_and_few_enough(name: str) -> None:
    descriptor = operators.get(name)
    sets = {sample.case_set for sample in load_object(str(descriptor.samples))()}
    assert sets == set(descriptor.case_sets)
    assert 100 <= len(questions(name)) <= 260
