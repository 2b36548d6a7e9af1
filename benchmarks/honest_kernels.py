"""Honest backends in addition to torch: operators in plain NumPy, computed in float32 and rounded once.

They are independent of the references, which compute in float64: sums are NumPy's pairwise ones or those of BLAS,
functions those of NumPy in single precision, formulas as kernels have them. float64 inputs are computed in float64.
Three more backends add the same terms in other orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from optest.backends import BackendDriver, backend_manager
from optest.backends.arguments import in_signature_order
from optest.numerics import numpy_dtype, round_to, widen
from optest.spec import TestCase

__all__ = ["BACKENDS", "NumpyKernels", "register"]

Array = Any
Kernel = Callable[[Sequence[Array], Mapping[str, Any]], Array]
Product = Callable[[Array, Array], Array]
_CHUNK = 64


class NumpyKernels(BackendDriver):
    """Kernels in single precision, by the name of their operator."""

    kind = "cpu"
    isolated = False

    def __init__(self, name: str, kernels: Mapping[str, Kernel]) -> None:
        self.name = name
        self.kernels = kernels

    def unsupported(self, case: TestCase) -> str | None:
        if case.descriptor.name not in self.kernels:
            return "no kernel in single precision"
        if case.expects_error is not None:
            return "arguments are not checked"
        if len(case.outputs) > 1:
            return "only one output"
        floats = [entry.is_float and entry.bits in (16, 32, 64) for entry in case.dtypes]
        if not all(floats) or len(set(case.dtypes)) > 1:
            return "only floats of one dtype"
        return None

    def run(self, case: TestCase, inputs: Sequence[Array]) -> Sequence[Array]:
        real = np.float64 if case.dtypes[0].bits == 64 else np.float32
        operands = [None if x is None else widen(x).astype(real) for x in in_signature_order(case, list(inputs))]
        with np.errstate(all="ignore"):
            out = np.asarray(self.kernels[case.descriptor.name](operands, case.attributes))
        spec = case.outputs[0]
        if out.dtype == numpy_dtype(spec.dtype):
            return [out]
        return [round_to(out.astype(np.float64), spec.dtype)]


def register() -> None:
    """Register the backends of :data:`BACKENDS` by their names."""
    for name, kernels in BACKENDS.items():
        backend_manager.register(NumpyKernels(name, kernels), replace=True)


# Elementwise


def _of_one(function: Callable[[Array], Array]) -> Kernel:
    return lambda x, _: function(x[0])


def _of_two(function: Callable[[Array, Array], Array]) -> Kernel:
    return lambda x, _: function(x[0], x[1])


def _scaled(function: Callable[[Array, Array], Array]) -> Kernel:
    return lambda x, a: function(x[0], x[1] if a["alpha"] == 1 else x[0].dtype.type(a["alpha"]) * x[1])


def _sigmoid(x: Array) -> Array:
    # The argument of exp is never above 0, so that it never overflows.
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + e), e / (1 + e))


def _softplus(x: Sequence[Array], a: Mapping[str, Any]) -> Array:
    beta = x[0].dtype.type(a["beta"])
    z = x[0] * beta
    return np.where(z > a["threshold"], x[0], (np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))) / beta)


def _elu(x: Sequence[Array], a: Mapping[str, Any]) -> Array:
    return np.where(x[0] > 0, x[0], x[0].dtype.type(a["alpha"]) * np.expm1(np.minimum(x[0], 0)))


def _leaky_relu(x: Sequence[Array], a: Mapping[str, Any]) -> Array:
    return np.where(x[0] > 0, x[0], x[0].dtype.type(a["negative_slope"]) * x[0])


def _silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


# Sums


def _axes(x: Array, a: Mapping[str, Any]) -> Any:
    """Return the reduced axes; None for all of them, and for a scalar."""
    dim = a["dim"]
    return None if dim is None or dim == () or not x.ndim else dim


def _over(function: Callable[..., Array]) -> Kernel:
    return lambda x, a: function(x[0], axis=_axes(x[0], a), keepdims=a["keepdim"])


def _sum(x: Sequence[Array], a: Mapping[str, Any]) -> Array:
    """Return the sum, added up in float64 if the call has that dtype."""
    return np.sum(
        x[0], axis=_axes(x[0], a), keepdims=a["keepdim"], dtype="float64" if a["dtype"] == "float64" else None
    )


def _mean(x: Array, axis: Any, keepdims: bool = True) -> Array:
    """Return the mean; NaN if there is no element."""
    total = np.sum(x, axis=axis, keepdims=keepdims)
    axes = range(x.ndim) if axis is None else np.atleast_1d(axis)
    return total / x.dtype.type(np.prod([x.shape[axis] for axis in axes]))


def _logsumexp(x: Sequence[Array], a: Mapping[str, Any]) -> Array:
    axes = _axes(x[0], a)
    top = np.max(x[0], axis=axes, keepdims=True, initial=-np.inf)
    finite = np.where(np.isfinite(top), top, 0)
    total = np.sum(np.exp(x[0] - finite), axis=axes, keepdims=True)
    out = np.log(total) + finite
    return out if a["keepdim"] else np.squeeze(out, axes)


def _exponentials(x: Array, a: Mapping[str, Any]) -> tuple[Array, Array]:
    """Return the arguments less their maximum, and the sum of their exponentials."""
    axes = _axes(x, a)
    shifted = x - x.max(axes, keepdims=True, initial=-np.inf)
    return shifted, np.exp(shifted).sum(axes, keepdims=True)


def _softmax(x: Sequence[Array], a: Mapping[str, Any]) -> Array:
    shifted, total = _exponentials(x[0], a)
    return np.exp(shifted) / total


def _log_softmax(x: Sequence[Array], a: Mapping[str, Any]) -> Array:
    shifted, total = _exponentials(x[0], a)
    return shifted - np.log(total)


def _normalized(x: Array, axes: Any, eps: float) -> Array:
    """Return normalised values, centred in a first pass and squared in a second one."""
    centred = x - _mean(x, axes)
    return centred / np.sqrt(_mean(np.square(centred), axes) + x.dtype.type(eps))


def _layer_norm(x: Sequence[Array], a: Mapping[str, Any]) -> Array:
    axes = tuple(range(-len(a["normalized_shape"]), 0))
    return _affine(_normalized(x[0], axes, a["eps"]), x[1], x[2])


def _affine(y: Array, weight: Array | None, bias: Array | None) -> Array:
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _group_norm(x: Sequence[Array], a: Mapping[str, Any]) -> Array:
    shape = x[0].shape
    groups = a["num_groups"]
    grouped = x[0].reshape(shape[0], groups, int(np.prod(shape[1:])) // groups)
    channels = (-1, *(1,) * (len(shape) - 2))
    weight, bias = (None if parameter is None else parameter.reshape(channels) for parameter in x[1:3])
    return _affine(_normalized(grouped, 2, a["eps"]).reshape(shape), weight, bias)


# Contractions


def _contractions(product: Product) -> dict[str, Kernel]:
    """Return the kernels that add up products, for one way to multiply matrices."""

    def matmul(x: Sequence[Array], _: Mapping[str, Any]) -> Array:
        left, right = x[0], x[1]
        out = product(np.atleast_2d(left), right[:, None] if right.ndim == 1 else right)
        out = out[..., 0, :] if left.ndim == 1 else out
        return out[..., 0] if right.ndim == 1 else out

    def gemm(x: Sequence[Array], a: Mapping[str, Any]) -> Array:
        left = x[0].swapaxes(-1, -2) if a["trans_a"] else x[0]
        right = x[1].swapaxes(-1, -2) if a["trans_b"] else x[1]
        out = left.dtype.type(a["alpha"]) * product(left, right)
        return out if x[2] is None or a["beta"] == 0 else out + left.dtype.type(a["beta"]) * x[2]

    def linear(x: Sequence[Array], _: Mapping[str, Any]) -> Array:
        return _affine(product(np.atleast_2d(x[0]), x[1].T).reshape(*x[0].shape[:-1], -1), None, x[2])

    return {"matmul": matmul, "bmm": matmul, "gemm": gemm, "linear": linear}


def _reordered(product: Product) -> dict[str, Kernel]:
    """Return the contractions and the sum, which is a product with ones, for one way to multiply matrices."""

    def sum_(x: Sequence[Array], a: Mapping[str, Any]) -> Array:
        shape = _sum(x, a).shape
        axes = _axes(x[0], a)
        reduced = range(x[0].ndim) if axes is None else [axis % x[0].ndim for axis in np.atleast_1d(axes)]
        kept = [axis for axis in range(x[0].ndim) if axis not in reduced]
        depth = math.prod(x[0].shape[axis] for axis in reduced)
        rows = x[0].transpose([*kept, *reduced]).reshape(math.prod(shape), depth)
        rows = rows.astype("float64") if a["dtype"] == "float64" else rows
        return product(rows, np.ones((depth, 1), rows.dtype)).reshape(shape)

    return {**_contractions(product), "sum": sum_}


def _chunked(left: Array, right: Array) -> Array:
    total = left[..., :0] @ right[..., :0, :]
    for k in range(0, left.shape[-1], _CHUNK):
        total = total + left[..., k : k + _CHUNK] @ right[..., k : k + _CHUNK, :]
    return total


def _permuted(left: Array, right: Array) -> Array:
    order = np.random.default_rng(0).permutation(left.shape[-1])
    return left[..., order] @ right[..., order, :]


def _sequential(left: Array, right: Array) -> Array:
    total = left[..., :0] @ right[..., :0, :]
    for k in range(left.shape[-1]):
        total = total + left[..., k : k + 1] * right[..., k : k + 1, :]
    return total


def _online_softmax(x: Sequence[Array], a: Mapping[str, Any]) -> Array:
    """Keep a running maximum and sum over chunks, as flash attention does."""
    if not x[0].ndim:
        return _softmax(x, a)
    rows = np.moveaxis(x[0], a["dim"], -1)
    top = np.full((*rows.shape[:-1], 1), -np.inf, rows.dtype)
    total = np.zeros_like(top)
    for start in range(0, rows.shape[-1], _CHUNK):
        part = rows[..., start : start + _CHUNK]
        higher = np.maximum(top, part.max(-1, keepdims=True))
        total = total * np.exp(top - higher) + np.exp(part - higher).sum(-1, keepdims=True)
        top = higher
    return np.moveaxis(np.exp(rows - top) / total, -1, a["dim"])


def _merged_layer_norm(x: Sequence[Array], a: Mapping[str, Any]) -> Array:
    """Merge means and squares of chunks in pairs (Chan et al.), and normalise as many kernels do: x·r - mean·r."""
    dims = len(a["normalized_shape"])
    rows = x[0].reshape(*x[0].shape[: x[0].ndim - dims], math.prod(a["normalized_shape"]))
    real = rows.dtype.type
    count, mean = 0, np.zeros((*rows.shape[:-1], 1), rows.dtype)
    squares = np.zeros_like(mean)
    for start in range(0, rows.shape[-1], _CHUNK):
        part = rows[..., start : start + _CHUNK]
        size = part.shape[-1]
        part_mean = part.mean(-1, keepdims=True)
        delta, both = part_mean - mean, count + size
        squares += np.square(part - part_mean).sum(-1, keepdims=True) + delta * delta * real(count * size / both)
        mean += delta * real(size / both)
        count = both
    scaled = (rows - mean) * (real(1) / np.sqrt(squares / real(max(1, count)) + real(a["eps"])))
    return _affine(scaled.reshape(x[0].shape), x[1], x[2])


_KERNELS: dict[str, Kernel] = {
    "add": _scaled(np.add),
    "sub": _scaled(np.subtract),
    "mul": _of_two(np.multiply),
    "maximum": _of_two(np.maximum),
    "minimum": _of_two(np.minimum),
    "eq": _of_two(np.equal),
    "ne": _of_two(np.not_equal),
    "lt": _of_two(np.less),
    "le": _of_two(np.less_equal),
    "gt": _of_two(np.greater),
    "ge": _of_two(np.greater_equal),
    "neg": _of_one(np.negative),
    "abs": _of_one(np.abs),
    "exp": _of_one(np.exp),
    "log": _of_one(np.log),
    "log1p": _of_one(np.log1p),
    "expm1": _of_one(np.expm1),
    "sqrt": _of_one(np.sqrt),
    "rsqrt": _of_one(lambda x: 1 / np.sqrt(x)),
    "reciprocal": _of_one(lambda x: 1 / x),
    "sin": _of_one(np.sin),
    "cos": _of_one(np.cos),
    "tanh": _of_one(np.tanh),
    "floor": _of_one(np.floor),
    "ceil": _of_one(np.ceil),
    "trunc": _of_one(np.trunc),
    "relu": _of_one(lambda x: np.maximum(x, 0)),
    "leaky_relu": _leaky_relu,
    "sigmoid": _of_one(_sigmoid),
    "silu": _of_one(_silu),
    "softplus": _softplus,
    "elu": _elu,
    "sum": _sum,
    "mean": _over(_mean),
    "amax": _over(np.max),
    "amin": _over(np.min),
    "logsumexp": _logsumexp,
    "dot": _of_two(np.dot),
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    **_contractions(np.matmul),
}
BACKENDS: dict[str, dict[str, Kernel]] = {
    "numpy-single": _KERNELS,
    "numpy-chunked": {**_reordered(_chunked), "softmax": _online_softmax, "layer_norm": _merged_layer_norm},
    "numpy-permuted": _reordered(_permuted),
    "numpy-sequential": _reordered(_sequential),
}
