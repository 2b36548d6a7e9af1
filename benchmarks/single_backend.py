"""An honest backend beside torch: operators in plain NumPy, computed in float32 and rounded once.

Independent of the references, which compute in float64: sums are NumPy's pairwise ones or those of BLAS, functions
those of NumPy in single precision, formulas as kernels have them. float64 inputs are computed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from optest.backends import BackendDriver, backend_manager
from optest.backends.arguments import at_their_places
from optest.numerics import numpy_dtype, round_to, widen
from optest.spec import TestCase

__all__ = ["KERNELS", "SingleBackend", "register"]

Array = Any
Kernel = Callable[[Sequence[Array], Mapping[str, Any]], Array]

NAME = "numpy-single"


class SingleBackend(BackendDriver):
    name = NAME
    kind = "cpu"
    isolated = False

    def unsupported(self, case: TestCase) -> str | None:
        if case.descriptor.name not in KERNELS:
            return "no kernel in single precision"
        if case.expects_error is not None:
            return "arguments are not checked"
        if len(case.outputs) > 1:
            return "one output alone"
        floats = [entry.is_float and entry.bits in (16, 32, 64) for entry in case.dtypes]
        if not all(floats) or len(set(case.dtypes)) > 1:
            return "floats of one dtype alone"
        return None

    def run(self, case: TestCase, inputs: Sequence[Array]) -> Sequence[Array]:
        real = np.float64 if case.dtypes[0].bits == 64 else np.float32
        operands = [None if each is None else widen(each).astype(real) for each in at_their_places(case, list(inputs))]
        with np.errstate(all="ignore"):
            out = np.asarray(KERNELS[case.descriptor.name](operands, case.attributes))
        spec = case.outputs[0]
        if out.dtype == numpy_dtype(spec.dtype):
            return [out]
        return [round_to(out.astype(np.float64), spec.dtype)]


def register() -> None:
    """Make the backend known under its name."""
    backend_manager.register(SingleBackend(), replace=True)


# Elementwise


def _of_one(function: Callable[[Array], Array]) -> Kernel:
    return lambda x, _: function(x[0])


def _of_two(function: Callable[[Array, Array], Array]) -> Kernel:
    return lambda x, _: function(x[0], x[1])


def _scaled(function: Callable[[Array, Array], Array]) -> Kernel:
    return lambda x, a: function(x[0], x[1] if a["alpha"] == 1 else x[0].dtype.type(a["alpha"]) * x[1])


def _sigmoid(x: Array) -> Array:
    """exp never overflows: its argument is never above 0."""
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
    """None for all of them, and for a scalar, which has none."""
    dim = a["dim"]
    return None if dim is None or dim == () or not x.ndim else dim


def _over(function: Callable[..., Array]) -> Kernel:
    return lambda x, a: function(x[0], axis=_axes(x[0], a), keepdims=a["keepdim"])


def _sum(x: Sequence[Array], a: Mapping[str, Any]) -> Array:
    """In float64 where that is asked for."""
    return np.sum(
        x[0], axis=_axes(x[0], a), keepdims=a["keepdim"], dtype="float64" if a["dtype"] == "float64" else None
    )


def _mean(x: Array, axis: Any, keepdims: bool = True) -> Array:
    """NaN of nothing."""
    total = np.sum(x, axis=axis, keepdims=keepdims)
    axes = range(x.ndim) if axis is None else np.atleast_1d(axis)
    return total / x.dtype.type(np.prod([x.shape[each] for each in axes]))


def _logsumexp(x: Sequence[Array], a: Mapping[str, Any]) -> Array:
    axes = _axes(x[0], a)
    top = np.max(x[0], axis=axes, keepdims=True, initial=-np.inf)
    finite = np.where(np.isfinite(top), top, 0)
    total = np.sum(np.exp(x[0] - finite), axis=axes, keepdims=True)
    out = np.log(total) + finite
    return out if a["keepdim"] else np.squeeze(out, axes)


def _exponentials(x: Array, a: Mapping[str, Any]) -> tuple[Array, Array]:
    """Shifted arguments and the sum of their exponentials."""
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
    """Centred in a first pass, squares in a second one."""
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
    weight, bias = (None if each is None else each.reshape(channels) for each in x[1:3])
    return _affine(_normalized(grouped, 2, a["eps"]).reshape(shape), weight, bias)


# Contractions


def _gemm(x: Sequence[Array], a: Mapping[str, Any]) -> Array:
    left = x[0].swapaxes(-1, -2) if a["trans_a"] else x[0]
    right = x[1].swapaxes(-1, -2) if a["trans_b"] else x[1]
    out = left.dtype.type(a["alpha"]) * (left @ right)
    return out if x[2] is None or a["beta"] == 0 else out + left.dtype.type(a["beta"]) * x[2]


def _linear(x: Sequence[Array], _: Mapping[str, Any]) -> Array:
    out = x[0] @ x[1].T
    return out if x[2] is None else out + x[2]


KERNELS: dict[str, Kernel] = {
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
    "matmul": _of_two(np.matmul),
    "bmm": _of_two(np.matmul),
    "gemm": _gemm,
    "linear": _linear,
}
