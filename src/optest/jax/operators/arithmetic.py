"""JAX calls of elementwise operators, reductions, contractions and pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from optest.jax.operators.calls import (
    CALLS,
    Attributes,
    Gap,
    JaxCall,
    Specs,
    Tensors,
    computes,
    first_gap,
    lacks,
    no_gap,
    of_rank,
    takes_no,
    unsupported_if,
)
from optest.operators.shapes import for_each_dim, normalize_dim, promote_tensors
from optest.spec import Kind, UnfitArguments, dtype

_WHOLE = (Kind.BOOL, Kind.INT, Kind.UINT)


def _of_all(function: Callable[..., Any], gap: Gap = no_gap) -> JaxCall:
    return JaxCall(lambda tensors, _: function(*tensors), gap)


def _other_promotion(specs: Specs, _: Attributes) -> str | None:
    """Return a reason if JAX promotes the operands to another dtype than the operator."""
    # JAX promotes 0-d arrays like others; the operator only if their category is higher.
    operands = [spec for spec in specs if spec is not None]
    try:
        ours = promote_tensors(operands).name
    except UnfitArguments:
        return None  # the case expects an error
    theirs = jnp.result_type(*(spec.dtype.name for spec in operands)).name
    both = " and ".join(dict.fromkeys(spec.dtype.name for spec in operands))
    return None if ours == theirs else f"JAX promotes {both} to {theirs}, the operator to {ours}"


def _result_is_float64(specs: Specs, _: Attributes) -> str | None:
    """Return a reason if the operands are integers, one of them int64."""
    operands = [spec.dtype for spec in specs if spec is not None]
    if any(kind.is_inexact for kind in operands) or all(kind.name != "int64" for kind in operands):
        return None
    return "JAX converts int64 to float64, the operator to float32"


def _other_bounds(specs: Specs, attributes: Attributes) -> str | None:
    (source,), bounds = specs, [attributes.get(name) for name in ("min", "max")]
    if bounds == [None, None]:
        return "jnp.clip accepts a call without bounds, the operator does not"
    if source is None or source.dtype.is_inexact or all(bound is None or bound == bound // 1 for bound in bounds):
        return None
    return "jnp.clip converts integers to float64 if a bound has a fraction, the operator to float32"


@computes("clip", _other_bounds)
def _jax_clip(tensors: Tensors, attributes: Attributes) -> Any:
    # A float bound would make the result of integers a float.
    (source,) = tensors
    bounds = [attributes.get(name) for name in ("min", "max")]
    if not jnp.issubdtype(source.dtype, jnp.inexact):
        bounds = [int(bound) if bound is not None and bound == bound // 1 else bound for bound in bounds]
    return jnp.clip(source, *bounds)


def _of_same_name(module: Any, names: str) -> dict[str, Callable[..., Any]]:
    return {name: getattr(module, name) for name in names.split()}


_PLAIN: dict[str, Callable[..., Any]] = {
    **_of_same_name(jnp, "abs floor ceil trunc logical_not logical_and logical_or logical_xor bitwise_not"),
    **_of_same_name(jax.nn, "relu selu silu"),
    "neg": jnp.negative,
    "hardswish": jax.nn.hard_swish,
}
# Functions that return floats also for integers.
_INEXACT: dict[str, Callable[[Any], Any]] = {
    **_of_same_name(jnp, "exp log log1p expm1 sqrt reciprocal sin cos tanh"),
    **_of_same_name(special, "erf erfinv digamma"),
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    **_of_same_name(jnp, "floor_divide remainder fmod logaddexp maximum minimum bitwise_and bitwise_or bitwise_xor"),
    "mul": jnp.multiply,
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
}


# Reductions


def _axes(attributes: Attributes) -> dict[str, Any]:
    dim = attributes.get("dim")
    # An empty dim means all dimensions in the operator, none in JAX.
    return {"axis": None if dim == () else dim, "keepdims": attributes.get("keepdim", False)}


def _over_axes(function: Callable[..., Any], gap: Gap = no_gap) -> JaxCall:
    return JaxCall(lambda tensors, attributes: function(tensors[0], **_axes(attributes)), gap)


def _accumulated(function: Callable[..., Any]) -> JaxCall:
    """Wrap a reduction that accumulates integers in int64; JAX would accumulate unsigned ones in uint64."""
    return JaxCall(
        lambda tensors, attributes: function(tensors[0], dtype=_jax_dtype(tensors[0], attributes), **_axes(attributes))
    )


def _jax_dtype(source: Any, attributes: Attributes) -> Any:
    # None for floats: JAX accumulates 16-bit floats in float32 only if it gets no dtype.
    is_inexact = jnp.issubdtype(source.dtype, jnp.inexact)
    return attributes.get("dtype") or (None if is_inexact else jnp.int64)


@computes("cumsum", lacks("jnp.cumsum", exclusive=False))
def _jax_cumsum(tensors: Tensors, attributes: Attributes) -> Any:
    (source,), axis = tensors, attributes["dim"]
    kind = _jax_dtype(source, attributes)
    if attributes.get("reverse"):
        return lax.cumsum(source.astype(kind or source.dtype), normalize_dim(axis, source.ndim), reverse=True)
    return jnp.cumsum(source, axis=axis, dtype=kind)


_RETURNS_BOOL = unsupported_if(
    "JAX's result is bool, the operator's uint8",
    lambda specs, _: specs[0] is not None and specs[0].dtype.name == "uint8",
)


def _jax_extreme(values: Callable[..., Any], indices: Callable[..., Any]) -> JaxCall:
    """Return a call of ``values`` without ``dim``, and of ``values`` and ``indices`` with it."""

    def call(tensors: Tensors, attributes: Attributes) -> Any:
        if attributes.get("dim") is None:
            return values(tensors[0])
        axes = _axes(attributes)
        return values(tensors[0], **axes), indices(tensors[0], **axes)

    accepts_more = unsupported_if(
        "JAX accepts keepdims without an axis, the operator does not",
        lambda _, attributes: attributes.get("dim") is None and attributes.get("keepdim", False),
    )
    return JaxCall(call, accepts_more)


# Contractions, attention and pooling


def _no_addend(name: str, index: int, label: str) -> Gap:
    """Reject cases with input ``index``: the JAX function cannot add it before it rounds the product."""

    def gap(specs: Specs, _: Attributes) -> str | None:
        return f"{name} adds no {label}" if len(specs) > index and specs[index] is not None else None

    return gap


def _jax_gemm(tensors: Tensors, attributes: Attributes) -> Any:
    """Multiply matrices with leading batch dimensions, transposed by ``trans_a`` and ``trans_b``."""
    a, b = tensors[:2]
    batch = tuple(range(a.ndim - 2))
    left = a.ndim - 2 if attributes.get("trans_a") else a.ndim - 1
    right = b.ndim - 1 if attributes.get("trans_b") else b.ndim - 2
    dims = (((left,), (right,)), (batch, batch))
    return lax.dot_general(a, b, dims, preferred_element_type=attributes.get("out_dtype"))


@computes("linear", _no_addend("lax.dot_general", 2, "bias"), of_rank("lax.dot_general", 1, "weight", 2))
def _jax_linear(tensors: Tensors, attributes: Attributes) -> Any:
    source, weight = tensors[:2]
    dims = (((source.ndim - 1,), (1,)), ((), ()))
    return lax.dot_general(source, weight, dims, preferred_element_type=attributes.get("out_dtype"))


def _sides(padding: Any, rank: int) -> list[tuple[int, int]]:
    """Return (before, after) padding of each dimension; ``padding`` has 1, ``rank`` or 2·``rank`` values.

    Of 2·``rank`` values, those before come first, then those after.
    """
    values = for_each_dim(padding, rank)
    return [(values[dim], values[dim + rank] if len(values) == 2 * rank else values[dim]) for dim in range(rank)]


def _jax_convolution(rank: int) -> JaxCall:
    def convolve(tensors: Tensors, attributes: Attributes) -> Any:
        source, weight = tensors[:2]
        padding = attributes.get("padding", 0)
        is_batch = source.ndim == rank + 2
        out = lax.conv_general_dilated(
            source if is_batch else source[None],
            weight,
            window_strides=for_each_dim(attributes.get("stride", 1), rank),
            padding=padding.upper() if isinstance(padding, str) else _sides(padding, rank),
            rhs_dilation=for_each_dim(attributes.get("dilation", 1), rank),
            feature_group_count=attributes.get("groups", 1),
            preferred_element_type=attributes.get("out_dtype"),
        )
        return out if is_batch else out[0]

    return JaxCall(convolve, _no_addend("lax.conv_general_dilated", 2, "bias"))


_ATTENTION = "jax.nn.dot_product_attention"


def _jax_attention_gap(specs: Specs, attributes: Attributes) -> str | None:
    """Return why JAX's attention refuses the case, or accepts it although the operator refuses it; else None."""
    query, key, value, mask = (*specs, None)[:4]
    if query is None or key is None or value is None:
        return None
    if attributes.get("softcap"):
        return f"{_ATTENTION} has no softcap"
    if query.dtype.name == "float16" and jax.default_backend() == "cpu":
        return f"{_ATTENTION} takes no float16 on a CPU"
    if mask is not None and attributes.get("is_causal", False):
        return f"{_ATTENTION} accepts a mask together with is_causal, the operator does not"
    if query.rank not in (3, 4):
        return f"{_ATTENTION} takes 3 or 4 dimensions; query has {query.rank}"
    if key.shape != value.shape or query.shape[:-3] != key.shape[:-3]:
        return f"{_ATTENTION} needs key and value of equal shape, and does not broadcast batches"
    if query.shape[-3] != key.shape[-3] and not attributes.get("enable_gqa", False):
        return f"{_ATTENTION} shares heads also without enable_gqa, the operator does not"
    return None


@computes("scaled_dot_product_attention", _jax_attention_gap)
def _jax_attention(tensors: Tensors, attributes: Attributes) -> Any:
    # JAX's layout is [batch, tokens, heads, size], the operator's [batch, heads, tokens, size].
    query, key, value, mask = (*tensors, None)[:4]
    if mask is not None:
        mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    is_choice = mask is not None and mask.dtype == jnp.bool_
    sides = tuple(attributes.get("window_size", (-1, -1)))
    # JAX has no open end; 2**30 is beyond the last key.
    window = None if sides == (-1, -1) else tuple(side if side >= 0 else 1 << 30 for side in sides)
    out = jax.nn.dot_product_attention(
        *(jnp.swapaxes(x, -3, -2) for x in (query, key, value)),
        bias=None if is_choice else mask,
        mask=mask if is_choice else None,
        scale=attributes.get("scale"),
        is_causal=attributes.get("is_causal", False),
        local_window_size=window,
    )
    return jnp.swapaxes(out, -3, -2)


@computes("max_pool2d", lacks("lax.reduce_window", ceil_mode=False))
def _jax_max_pool2d(tensors: Tensors, attributes: Attributes) -> Any:
    (source,) = tensors
    window = for_each_dim(attributes["kernel_size"], 2)
    before = source.ndim - 2
    lowest = -jnp.inf if jnp.issubdtype(source.dtype, jnp.inexact) else jnp.iinfo(source.dtype).min
    return lax.reduce_window(
        source,
        np.asarray(lowest, source.dtype),
        lax.max,
        (1,) * before + window,
        (1,) * before + for_each_dim(attributes.get("stride") or window, 2),
        [(0, 0)] * before + _sides(attributes.get("padding", 0), 2),
        window_dilation=(1,) * before + for_each_dim(attributes.get("dilation", 1), 2),
    )


CALLS.update(
    {
        **{name: _of_all(function) for name, function in _PLAIN.items()},
        **{name: _of_all(function, _result_is_float64) for name, function in _INEXACT.items()},
        **{name: _of_all(function, _other_promotion) for name, function in _BINARY.items()},
        "sign": _of_all(jnp.sign, takes_no("jnp.sign", Kind.BOOL)),
        "pow": _of_all(
            jnp.power,
            first_gap(
                unsupported_if(
                    "jnp.power treats a 0-d integer exponent as a constant, which must not be negative",
                    lambda specs, _: (
                        all(x is not None and not x.dtype.is_inexact for x in specs)
                        and specs[-1] is not None
                        and not specs[-1].rank
                    ),
                ),
                _other_promotion,
            ),
        ),
        "rsqrt": _of_all(lax.rsqrt, takes_no("lax.rsqrt", *_WHOLE)),
        "sigmoid": _of_all(jax.nn.sigmoid, takes_no("jax.nn.sigmoid", *_WHOLE)),
        "add": _of_all(jnp.add, first_gap(lacks("jnp.add", alpha=1.0), _other_promotion)),
        "sub": _of_all(jnp.subtract, first_gap(lacks("jnp.subtract", alpha=1.0), _other_promotion)),
        "div": _of_all(
            jnp.true_divide,
            first_gap(lacks("jnp.true_divide", rounding_mode=None), _result_is_float64, _other_promotion),
        ),
        "round": JaxCall(lambda tensors, attributes: jnp.round(tensors[0], attributes.get("decimals", 0))),
        "where": _of_all(jnp.where, lambda specs, attributes: _other_promotion(specs[1:], attributes)),
        "cast": JaxCall(
            lambda tensors, attributes: tensors[0].astype(attributes["dtype"]),
            first_gap(
                lacks("astype", saturate=False),
                unsupported_if(
                    "JAX converts negative floats to 0 in an unsigned dtype, the operator wraps them",
                    lambda specs, attributes: (
                        specs[0] is not None
                        and specs[0].dtype.is_inexact
                        and dtype(attributes["dtype"]).kind is Kind.UINT
                    ),
                ),
            ),
        ),
        "gelu": JaxCall(
            lambda tensors, attributes: jax.nn.gelu(tensors[0], approximate=attributes.get("approximate") == "tanh")
        ),
        "leaky_relu": JaxCall(
            lambda tensors, attributes: jax.nn.leaky_relu(tensors[0], attributes.get("negative_slope", 0.01))
        ),
        "elu": JaxCall(lambda tensors, attributes: jax.nn.elu(tensors[0], attributes.get("alpha", 1.0))),
        "softplus": _of_all(jax.nn.softplus, lacks("jax.nn.softplus", beta=1.0, threshold=20.0)),
        "sum": _accumulated(jnp.sum),
        "prod": _accumulated(jnp.prod),
        "mean": _over_axes(jnp.mean),
        "dot": JaxCall(lambda tensors, _: jnp.dot(tensors[0], tensors[1])),
        "var": JaxCall(
            lambda tensors, attributes: jnp.var(
                tensors[0], correction=attributes.get("correction", 1.0), **_axes(attributes)
            )
        ),
        "norm": JaxCall(
            lambda tensors, attributes: jnp.linalg.vector_norm(
                tensors[0], ord=attributes.get("p", 2.0), **_axes(attributes)
            )
        ),
        "logsumexp": _over_axes(jax.nn.logsumexp),
        "max": _jax_extreme(jnp.max, jnp.argmax),
        "min": _jax_extreme(jnp.min, jnp.argmin),
        "amax": _over_axes(jnp.max),
        "amin": _over_axes(jnp.min),
        "argmax": _over_axes(jnp.argmax),
        "argmin": _over_axes(jnp.argmin),
        "all": _over_axes(jnp.all, _RETURNS_BOOL),
        "any": _over_axes(jnp.any, _RETURNS_BOOL),
        "softmax": JaxCall(lambda tensors, attributes: jax.nn.softmax(tensors[0], axis=attributes.get("dim", -1))),
        "log_softmax": JaxCall(
            lambda tensors, attributes: jax.nn.log_softmax(tensors[0], axis=attributes.get("dim", -1))
        ),
        "matmul": JaxCall(
            lambda tensors, attributes: jnp.matmul(*tensors[:2], preferred_element_type=attributes.get("out_dtype"))
        ),
        "bmm": JaxCall(_jax_gemm, of_rank("lax.dot_general", 0, "input", 3)),
        "gemm": JaxCall(
            _jax_gemm, first_gap(_no_addend("lax.dot_general", 2, "c"), lacks("lax.dot_general", alpha=1.0))
        ),
        "einsum": JaxCall(lambda tensors, attributes: jnp.einsum(attributes["equation"], *tensors)),
        "conv1d": _jax_convolution(1),
        "conv2d": _jax_convolution(2),
        "conv3d": _jax_convolution(3),
    }
)
