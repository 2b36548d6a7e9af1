"""Wrong kernels for the calls of ``width_calls.py``, which ``wrong_variants.py`` judges beside those of the tests.

They rely on what those calls look like: two dimensions, no special values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from wrong_kernels.changes import cut, half, single, wide
from wrong_kernels.registry import Array, Call, Change, fault


def kernel(op: str, name: str) -> Callable[[Change], Change]:
    return fault(f"{op}: {name}", op, tags=())


def _in_16_bits(call: Call, array: Array) -> Array:
    """Rounded to the call's own 16 bits."""
    return single(single(array).astype(call[0].dtype))


# Of any operator: the first output is changed


def _first(change: Callable[[Array], None]) -> Change:
    def run(call: Call) -> Sequence[Array]:
        out = np.array(call.right[0], order="C")
        change(out)
        return [out, *call.right[1:]]

    return run


def _flip_bit(out: Array) -> None:
    words = out.reshape(-1).view(f"u{out.dtype.itemsize}")
    words[words.size // 2] ^= 1


def _enlarge(out: Array) -> None:
    flat = out.reshape(-1)
    flat[-1] = (1.5 * wide(flat[-1])).astype(out.dtype)


def _repeat_vector(out: Array) -> None:
    flat = out.reshape(-1)
    left = flat.size % 8
    if left and flat.size > 16:
        flat[-left:] = flat[-left - 8 : -8]


one_bit = _first(_flip_bit)
"""The last bit of the middle element is the other one."""
one_half_too_large = _first(_enlarge)
"""The last element is half as large again."""
tail_of_8_wrong = _first(_repeat_vector)
"""Elements beyond the last full vector are those of the vector before."""


# Movement


kernel("neg", "0 stays +0")(lambda call: 0.0 - wide(call[0]))
kernel("abs", "-0 stays -0")(lambda call: np.where(wide(call[0]) < 0, -wide(call[0]), wide(call[0])))
kernel("slice", "begins one later")(
    lambda call: call.with_attributes(start=(1,), end=call.attribute("end") if call[0].shape[1] % 2 else (-2,))
)
kernel("reshape", "column-major")(lambda call: np.reshape(call[0], call.right[0].shape, order="F"))
kernel("permute", "not moved")(lambda call: np.reshape(call[0], call.right[0].shape))
kernel("tile", "repeats elements")(lambda call: np.repeat(np.repeat(call[0], 2, 0), 2, 1))
for _name in ("gather", "index_select"):
    kernel(_name, "indices from 1")(lambda call: call.with_inputs(call[0], np.maximum(call[1] - 1, 0)))
kernel("concat", "swaps operands")(lambda call: np.concatenate([call.inputs[1], call.inputs[0]], 1))
kernel("where", "takes the first operand alone")(lambda call: np.broadcast_to(call[1], call.right[0].shape))


# Exact


@kernel("lt", "of operands in 16 bits")
def _(call: Call) -> Array:
    return half(single(call[0])) < half(single(call[1]))


kernel("floor", "rounds to nearest")(lambda call: np.rint(wide(call[0])))
kernel("trunc", "floors")(lambda call: np.floor(wide(call[0])))
kernel("sign", "without 0")(lambda call: np.where(wide(call[0]) < 0, -1.0, 1.0))
kernel("minimum", "is the maximum")(lambda call: np.maximum(wide(call[0]), wide(call[1])))
kernel("clip", "ends in 16 bits")(lambda call: np.clip(wide(call[0]), -0.5, 0.7498))
kernel("argmin", "takes the last")(
    lambda call: call[0].shape[1] - 1 - np.argmin(np.flip(wide(call[0]), 1), 1),
)
kernel("max", "index from 1")(lambda call: [call.right[0], call.right[1] + 1])
kernel("amax", "drops the last")(lambda call: wide(call[0])[:, :-1].max(1))
kernel("max_pool2d", "windows begin one later")(
    lambda call: call.with_inputs(np.roll(call.inputs[0], -1, 3)),
)
kernel("all", "looks at the first")(lambda call: np.asarray(call[0])[:, 0] != 0)
kernel("logical_and", "is or")(lambda call: (wide(call[0]) != 0) | (wide(call[1]) != 0))


@kernel("cast", "truncates")
def _(call: Call) -> Array | None:
    """Towards 0, where the result has fewer bits."""
    to = call.case.outputs[0].dtype
    if not to.is_float or to.bits >= call.case.inputs[0].spec.dtype.bits:
        return None
    exact, right = wide(call[0]), call.right[0]
    above = np.abs(wide(right)) > np.abs(exact)
    return np.where(above, (right.view(np.uint16) - np.uint16(1)).view(right.dtype), right)


kernel("cast", "to integers rounds")(
    lambda call: np.rint(wide(call[0])) if call.right[0].dtype == np.int32 else None,
)


# Elementwise functions


@kernel("exp", "of a 16-bit argument")
def _(call: Call) -> Array | None:
    """x·log2(e) rounded to 11 bits before 2 to its power, as on a half unit."""
    return np.exp2(half(single(call[0]) * np.float32(np.log2(np.e))))


@kernel("exp", "fast")
def _(call: Call) -> Array | None:
    """2^x with a straight line between powers of two (Schraudolph)."""
    y = wide(call[0]) * np.log2(np.e)
    whole = np.floor(y)
    return 2.0**whole * (1 + y - whole)


@kernel("log", "of 11 bits")
def _(call: Call) -> Array:
    return np.log(wide(half(single(call[0]))))


@kernel("reciprocal", "one Newton step from 8 bits")
def _(call: Call) -> Array:
    x = single(call[0])
    guess = cut(np.float32(1) / x, 16)
    return guess * (2 - x * guess)


@kernel("sigmoid", "hard")
def _(call: Call) -> Array:
    return np.clip(wide(call[0]) / 6 + 0.5, 0, 1)


@kernel("gelu", "by a sigmoid")
def _(call: Call) -> Array:
    """x·sigmoid(1.702 x)"""
    x = wide(call[0])
    return x / (1 + np.exp(-1.702 * x))


@kernel("softplus", "without log1p")
def _(call: Call) -> Array:
    return np.log(np.float32(1) + np.exp(single(call[0])))


@kernel("elu", "without expm1")
def _(call: Call) -> Array:
    x = single(call[0])
    return np.where(x > 0, x, np.exp(np.minimum(x, 0)) - np.float32(1))


@kernel("silu", "with the sigmoid in 16 bits")
def _(call: Call) -> Array:
    x = single(call[0])
    return x * half(1 / (1 + np.exp(-x)))


@kernel("tanh", "by a quotient of exponentials")
def _(call: Call) -> Array:
    e = np.exp(single(call[0]) * 2)
    return (e - 1) / (e + 1)


@kernel("mul", "of operands of 8 bits")
def _(call: Call) -> Array:
    return cut(single(call[0]), 16) * cut(single(call[1]), 16)


# Sums and contractions


def _rows_and_columns(call: Call) -> tuple[Array, Array]:
    """The factors of matmul, bmm, linear and dot, in float32."""
    left, right = single(call[0]), single(call[1])
    return (left, right.T) if call.case.descriptor.name == "linear" else (left, right)


@kernel("matmul", "one product dropped")
def _(call: Call) -> Array:
    left, right = _rows_and_columns(call)
    return wide(left)[:, 1:] @ wide(right)[1:]


@kernel("matmul", "one product twice")
def _(call: Call) -> Array:
    left, right = wide(call[0]), wide(call[1])
    return left @ right + left[:, :1] * right[:1]


@kernel("matmul", "split sums in 16 bits")
def _(call: Call) -> Array | None:
    """Parts of 256 products are stored in 16 bits before they are added."""
    if not call.is_16_bit or call[0].shape[1] <= 256:
        return None
    left, right = _rows_and_columns(call)
    starts = range(0, left.shape[1], 256)
    parts = [_in_16_bits(call, left[:, k : k + 256] @ right[k : k + 256]) for k in starts]
    return np.sum([wide(part) for part in parts], axis=0)


@kernel("bmm", "operands of 8 bits")
def _(call: Call) -> Array | None:
    """float32 on a bfloat16 unit."""
    if call[0].dtype != np.float32:
        return None
    return wide(cut(single(call[0]), 16)) @ wide(cut(single(call[1]), 16))


@kernel("linear", "bias twice")
def _(call: Call) -> Array:
    return call.with_inputs(call.inputs[0], call.inputs[1], 2 * wide(call.inputs[2]))


@kernel("gemm", "alpha for beta")
def _(call: Call) -> Array:
    return call.with_attributes(beta=call.attribute("alpha"))


@kernel("einsum", "second operand by rows")
def _(call: Call) -> Array:
    other = np.ascontiguousarray(call.inputs[1])
    return call.with_inputs(call.inputs[0], np.reshape(other, other.shape[::-1]).T)


@kernel("mean", "the last is left out")
def _(call: Call) -> Array:
    values = wide(call[0])
    return values[:, :-1].sum(1) / values.shape[1]


@kernel("cumsum", "begins anew every 1,024")
def _(call: Call) -> Array | None:
    values = wide(call[0])
    if values.shape[1] <= 1024:
        return None
    parts = [np.cumsum(values[:, k : k + 1024], 1) for k in range(0, values.shape[1], 1024)]
    return np.concatenate(parts, 1)


@kernel("cumsum", "in 16 bits")
def _(call: Call) -> Array | None:
    if not call.is_16_bit or call[0].shape[1] > 4096:
        return None
    total = np.zeros(call[0].shape[0], np.float32)
    columns = []
    for column in single(call[0]).T:
        total = _in_16_bits(call, total + column)
        columns.append(total)
    return np.stack(columns, 1)


@kernel("avg_pool2d", "divides by one less")
def _(call: Call) -> Array | None:
    count = int(np.prod(call.attribute("kernel_size")))
    return wide(call.right[0]) * count / (count - 1) if count > 1 else None


@kernel("conv1d", "groups of channels forgotten")
def _(call: Call) -> Array | None:
    """The second half of the input channels is not read."""
    if call[0].shape[1] < 2:
        return None
    x = np.array(call.inputs[0])
    x[:, x.shape[1] // 2 :] = 0
    return call.with_inputs(x, *call.inputs[1:])


# Composed


def _exponentials(call: Call) -> Array:
    x = single(call[0])
    return np.exp(x - x.max(-1, keepdims=True))


@kernel("softmax", "sum in 16 bits")
def _(call: Call) -> Array | None:
    if not call.is_16_bit or call[0].shape[1] > 4096:
        return None
    terms = _exponentials(call)
    total = np.zeros((terms.shape[0], 1), np.float32)
    for k in range(terms.shape[1]):
        total = _in_16_bits(call, total + terms[:, k : k + 1])
    return terms / total


@kernel("softmax", "over all")
def _(call: Call) -> Array:
    terms = np.exp(wide(call[0]) - wide(call[0]).max())
    return terms / terms.sum()


@kernel("log_softmax", "one key left out")
def _(call: Call) -> Array:
    x = wide(call[0])
    return x - np.log(np.exp(x[:, :-1]).sum(1, keepdims=True))


@kernel("causal_softmax", "one key too many")
def _(call: Call) -> Array | None:
    x = wide(call[0])
    rows, columns = x.shape
    if columns <= rows:
        return None
    seen = np.arange(columns) <= np.arange(rows)[:, None] + columns - rows + 1
    terms = np.where(seen, np.exp(x), 0)
    return terms / terms.sum(1, keepdims=True)


@kernel("logsumexp", "without the maximum")
def _(call: Call) -> Array:
    x = wide(call[0])
    return np.log(np.exp(x - x.max(1, keepdims=True)).sum(1))


@kernel("var", "divides by n")
def _(call: Call) -> Sequence[Array] | None:
    return call.with_attributes(correction=0.0) if call[0].shape[1] > 1 else None


@kernel("layer_norm", "eps × 10")
def _(call: Call) -> Sequence[Array]:
    return call.with_attributes(eps=10 * call.attribute("eps"))


@kernel("layer_norm", "divides by n - 1")
def _(call: Call) -> Array | None:
    x = wide(call[0])
    if x.shape[1] < 2:
        return None
    spread = np.sqrt(x.var(1, ddof=1, keepdims=True) + call.attribute("eps"))
    return (x - x.mean(1, keepdims=True)) / spread * wide(call[1]) + wide(call[2])


@kernel("rms_norm", "subtracts the mean")
def _(call: Call) -> Sequence[Array]:
    x = wide(call[0])
    return call.with_inputs(x - x.mean(1, keepdims=True), call.inputs[1])


@kernel("group_norm", "one group")
def _(call: Call) -> Sequence[Array]:
    return call.with_attributes(num_groups=1)


@kernel("batch_norm", "running statistics in training")
def _(call: Call) -> Sequence[Array] | None:
    return call.with_attributes(training=False) if call.attribute("training") else None


@kernel("batch_norm", "eps outside of the root")
def _(call: Call) -> Array | None:
    if call.attribute("training"):
        return None
    x, *channels = map(wide, call.inputs)
    mean, variance, weight, bias = (each.reshape(-1, 1) for each in channels)
    return (x - mean) / (np.sqrt(variance) + call.attribute("eps")) * weight + bias


def _attention(call: Call, scale: float, step: Callable[[Array], Array] = lambda weights: weights) -> Array:
    query, key, value = (single(each) for each in call.inputs[:3])
    scores = query @ key.swapaxes(-1, -2) * np.float32(scale)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return step(weights / weights.sum(-1, keepdims=True)) @ value


@kernel("scaled_dot_product_attention", "scaled by 1 / d")
def _(call: Call) -> Array:
    return _attention(call, 1 / call[0].shape[-1])


@kernel("scaled_dot_product_attention", "weights of 8 bits")
def _(call: Call) -> Array:
    return _attention(call, call[0].shape[-1] ** -0.5, lambda weights: cut(weights, 16))


@kernel("scaled_dot_product_attention", "last key not seen")
def _(call: Call) -> Sequence[Array] | None:
    if call.inputs[1].shape[2] < 2:
        return None
    return call.with_inputs(call.inputs[0], call.inputs[1][:, :, :-1], call.inputs[2][:, :, :-1])


@kernel("norm", "without the root")
def _(call: Call) -> Array:
    p = call.attribute("p")
    return (np.abs(wide(call[0])) ** p).sum(1)


@kernel("prod", "starts from the second")
def _(call: Call) -> Array:
    return wide(call[0])[:, 1:].prod(1)


# Where another answer may be as right


def _quotients(call: Call) -> Array:
    return wide(call[0]) / wide(call[1])


kernel("floor_divide", "truncates")(lambda call: np.trunc(_quotients(call)))
kernel("floor_divide", "rounds to nearest")(lambda call: np.rint(_quotients(call)))
kernel("div", "floor is a ceiling")(
    lambda call: np.ceil(_quotients(call)) if call.attribute("rounding_mode") else None,
)
kernel("div", "floor is exact")(lambda call: _quotients(call) if call.attribute("rounding_mode") else None)
kernel("remainder", "has the sign of C")(lambda call: np.fmod(wide(call[0]), wide(call[1])))
kernel("fmod", "has the sign of the divisor")(lambda call: np.mod(wide(call[0]), wide(call[1])))
kernel("remainder", "a divisor too much")(lambda call: wide(call.right[0]) + wide(call[1]))


@kernel("round", "half away from 0")
def _(call: Call) -> Array | None:
    x = wide(call[0])
    return None if call.attribute("decimals") else np.sign(x) * np.floor(np.abs(x) + 0.5)


@kernel("round", "decimals truncated")
def _(call: Call) -> Array | None:
    factor = 10.0 ** call.attribute("decimals")
    return np.trunc(wide(call[0]) * factor) / factor if call.attribute("decimals") else None


@kernel("topk", "a smaller one for the last")
def _(call: Call) -> Array | None:
    """The k-th place has the value that follows it."""
    x, k = wide(call[0]), call.attribute("k")
    if x.shape[1] <= k:
        return None
    order = np.argsort(-x, 1, kind="stable")
    chosen = np.concatenate([order[:, : k - 1], order[:, k : k + 1]], 1)
    return [np.take_along_axis(x, chosen, 1), chosen]


kernel("topk", "indices from 1")(lambda call: [call.right[0], call.right[1] + 1])


@kernel("topk", "each half for itself")
def _(call: Call) -> Array | None:
    """The second half of the row is not merged."""
    x, k = wide(call[0]), call.attribute("k")
    front = x[:, : x.shape[1] // 2]
    if front.shape[1] < k:
        return None
    order = np.argsort(-front, 1, kind="stable")[:, :k]
    return [np.take_along_axis(front, order, 1), order]


@kernel("sort", "two neighbours exchanged")
def _(call: Call) -> Sequence[Array]:
    outputs = [np.array(each) for each in call.right]
    for each in outputs:
        each[:, [0, 1]] = each[:, [1, 0]]
    return outputs


@kernel("sort", "values of another row")
def _(call: Call) -> Sequence[Array]:
    return [call.right[0][::-1], call.right[1]]


@kernel("sort", "tiles not merged")
def _(call: Call) -> Sequence[Array] | None:
    x = wide(call[0])
    if x.shape[1] <= 1024:
        return None
    parts = [np.argsort(x[:, k : k + 1024], 1, kind="stable") + k for k in range(0, x.shape[1], 1024)]
    order = np.concatenate(parts, 1)
    return [np.take_along_axis(x, order, 1), order]


def _steps(call: Call) -> Array:
    """What quantize rounds: float64 quotients, before the zero point."""
    return wide(call[0]) / wide(call[1])


def _quantized(call: Call, steps: Array) -> Array:
    return np.clip(steps + wide(call[2]), -128, 127)


kernel("quantize", "truncates")(lambda call: _quantized(call, np.trunc(_steps(call))))
kernel("quantize", "half away from 0")(
    lambda call: _quantized(call, np.sign(_steps(call)) * np.floor(np.abs(_steps(call)) + 0.5)),
)
kernel("quantize", "zero point ignored")(lambda call: np.clip(np.rint(_steps(call)), -128, 127))
kernel("quantize", "zero point subtracted")(lambda call: np.clip(np.rint(_steps(call)) - wide(call[2]), -128, 127))
kernel("quantize", "wraps")(lambda call: (np.rint(_steps(call)) + wide(call[2]) + 128) % 256 - 128)
kernel("quantize", "ends at ±127")(lambda call: np.clip(wide(call.right[0]), -127, 127))
