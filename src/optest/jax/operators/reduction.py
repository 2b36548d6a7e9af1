"""The JAX calls of the reduction and the normalization family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from optest.jax.operators.calls import Attributes, JaxCall, Specs, Tensors, lacks
from optest.operators.shapes import normalize_dim

__all__ = ["CALLS"]


def _over_axes(function: Callable[..., Any]) -> JaxCall:
    """Of functions that take several dimensions; none at all are every one in the catalogue."""
    return JaxCall(
        lambda tensors, attributes: function(
            tensors[0], axis=attributes.get("dim") or None, keepdims=attributes.get("keepdim", False)
        )
    )


def _accumulated(function: Callable[..., Any]) -> JaxCall:
    """Of functions that add integers up in int64; left to itself JAX takes unsigned ones to uint64."""

    def call(tensors: Tensors, attributes: Attributes) -> Any:
        (source,), axis = tensors, attributes.get("dim")
        axis = None if axis == () else axis
        return function(source, axis=axis, dtype=_dtype(source, attributes), keepdims=attributes.get("keepdim", False))

    return JaxCall(call)


def _dtype(source: Any, attributes: Attributes) -> Any:
    is_inexact = jnp.issubdtype(source.dtype, jnp.inexact)
    return attributes.get("dtype") or (source.dtype if is_inexact else jnp.int64)


def _cumsum(tensors: Tensors, attributes: Attributes) -> Any:
    (source,), axis = tensors, attributes["dim"]
    kind = _dtype(source, attributes)
    if attributes.get("reverse"):
        return lax.cumsum(source.astype(kind), normalize_dim(axis, source.ndim), reverse=True)
    return jnp.cumsum(source, axis=axis, dtype=kind)


def _extreme(values: Callable[..., Any], places: Callable[..., Any]) -> JaxCall:
    def call(tensors: Tensors, attributes: Attributes) -> Any:
        (source,), axis = tensors, attributes.get("dim")
        if axis is None:
            return values(source)
        keepdims = attributes.get("keepdim", False)
        return values(source, axis=axis, keepdims=keepdims), places(source, axis=axis, keepdims=keepdims)

    return JaxCall(call, _keeps_without_axis)


def _keeps_without_axis(_: Specs, attributes: Attributes) -> str | None:
    has_both = attributes.get("dim") is None and attributes.get("keepdim", False)
    return "JAX keeps dimensions without an axis, too, and refuses nothing" if has_both else None


def _place(function: Callable[..., Any]) -> JaxCall:
    return JaxCall(
        lambda tensors, attributes: function(
            tensors[0], axis=attributes.get("dim"), keepdims=attributes.get("keepdim", False)
        )
    )


def _var(tensors: Tensors, attributes: Attributes) -> Any:
    return jnp.var(
        tensors[0],
        axis=attributes.get("dim") or None,
        correction=attributes.get("correction", 1.0),
        keepdims=attributes.get("keepdim", False),
    )


def _norm(tensors: Tensors, attributes: Attributes) -> Any:
    return jnp.linalg.vector_norm(
        tensors[0],
        axis=attributes.get("dim") or None,
        keepdims=attributes.get("keepdim", False),
        ord=attributes.get("p", 2.0),
    )


CALLS: dict[str, JaxCall] = {
    "sum": _accumulated(jnp.sum),
    "prod": _accumulated(jnp.prod),
    "cumsum": JaxCall(_cumsum, lacks("jnp.cumsum", exclusive=False)),
    "mean": _over_axes(jnp.mean),
    "dot": JaxCall(lambda tensors, _: jnp.dot(tensors[0], tensors[1])),
    "var": JaxCall(_var),
    "norm": JaxCall(_norm),
    "logsumexp": _over_axes(jax.nn.logsumexp),
    "max": _extreme(jnp.max, jnp.argmax),
    "min": _extreme(jnp.min, jnp.argmin),
    "amax": _over_axes(jnp.max),
    "amin": _over_axes(jnp.min),
    "argmax": _place(jnp.argmax),
    "argmin": _place(jnp.argmin),
    "all": _over_axes(jnp.all),
    "any": _over_axes(jnp.any),
    "softmax": JaxCall(lambda tensors, attributes: jax.nn.softmax(tensors[0], axis=attributes.get("dim", -1))),
    "log_softmax": JaxCall(lambda tensors, attributes: jax.nn.log_softmax(tensors[0], axis=attributes.get("dim", -1))),
}
