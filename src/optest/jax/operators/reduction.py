"""JAX calls of reductions and normalizations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from optest.jax.operators.calls import Attributes, Gap, JaxCall, Specs, Tensors, lacks, no_gap
from optest.operators.shapes import normalize_dim


def _axes(attributes: Attributes) -> dict[str, Any]:
    dim = attributes.get("dim")
    # An empty dim means all dimensions in the operator, none in JAX.
    return {"axis": None if dim == () else dim, "keepdims": attributes.get("keepdim", False)}


def _over_axes(function: Callable[..., Any], gap: Gap = no_gap) -> JaxCall:
    return JaxCall(lambda tensors, attributes: function(tensors[0], **_axes(attributes)), gap)


def _accumulated(function: Callable[..., Any]) -> JaxCall:
    """Wrap a reduction that accumulates integers in int64; JAX would accumulate unsigned ones in uint64."""
    return JaxCall(
        lambda tensors, attributes: function(tensors[0], dtype=_dtype(tensors[0], attributes), **_axes(attributes))
    )


def _dtype(source: Any, attributes: Attributes) -> Any:
    # None for floats: JAX accumulates 16-bit floats in float32 only if it gets no dtype.
    is_inexact = jnp.issubdtype(source.dtype, jnp.inexact)
    return attributes.get("dtype") or (None if is_inexact else jnp.int64)


def _cumsum(tensors: Tensors, attributes: Attributes) -> Any:
    (source,), axis = tensors, attributes["dim"]
    kind = _dtype(source, attributes)
    if attributes.get("reverse"):
        return lax.cumsum(source.astype(kind or source.dtype), normalize_dim(axis, source.ndim), reverse=True)
    return jnp.cumsum(source, axis=axis, dtype=kind)


def _is_bool(specs: Specs, _: Attributes) -> str | None:
    is_uint8 = specs[0] is not None and specs[0].dtype.name == "uint8"
    return "JAX's result is bool, the operator's uint8" if is_uint8 else None


def _extreme(values: Callable[..., Any], indices: Callable[..., Any]) -> JaxCall:
    """Return a call of ``values`` without ``dim``, and of ``values`` and ``indices`` with it."""

    def call(tensors: Tensors, attributes: Attributes) -> Any:
        if attributes.get("dim") is None:
            return values(tensors[0])
        axes = _axes(attributes)
        return values(tensors[0], **axes), indices(tensors[0], **axes)

    return JaxCall(call, _keeps_without_axis)


def _keeps_without_axis(_: Specs, attributes: Attributes) -> str | None:
    has_both = attributes.get("dim") is None and attributes.get("keepdim", False)
    return "JAX accepts keepdims without an axis, the operator does not" if has_both else None


CALLS: dict[str, JaxCall] = {
    "sum": _accumulated(jnp.sum),
    "prod": _accumulated(jnp.prod),
    "cumsum": JaxCall(_cumsum, lacks("jnp.cumsum", exclusive=False)),
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
    "max": _extreme(jnp.max, jnp.argmax),
    "min": _extreme(jnp.min, jnp.argmin),
    "amax": _over_axes(jnp.max),
    "amin": _over_axes(jnp.min),
    "argmax": _over_axes(jnp.argmax),
    "argmin": _over_axes(jnp.argmin),
    "all": _over_axes(jnp.all, _is_bool),
    "any": _over_axes(jnp.any, _is_bool),
    "softmax": JaxCall(lambda tensors, attributes: jax.nn.softmax(tensors[0], axis=attributes.get("dim", -1))),
    "log_softmax": JaxCall(lambda tensors, attributes: jax.nn.log_softmax(tensors[0], axis=attributes.get("dim", -1))),
}
