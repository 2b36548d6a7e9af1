"""JAX calls of contractions, attention and pooling."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from optest.jax.operators.calls import Attributes, Gap, JaxCall, Specs, Tensors, first_gap, lacks, of_rank
from optest.operators.shapes import for_each_dim


def _no_addend(name: str, index: int, label: str) -> Gap:
    """Reject cases with input ``index``: the JAX function cannot add it before it rounds the product."""

    def gap(specs: Specs, _: Attributes) -> str | None:
        return f"{name} adds no {label}" if len(specs) > index and specs[index] is not None else None

    return gap


def _matmul(tensors: Tensors, attributes: Attributes) -> Any:
    return jnp.matmul(tensors[0], tensors[1], preferred_element_type=attributes.get("out_dtype"))


def _gemm(tensors: Tensors, attributes: Attributes) -> Any:
    """Multiply matrices with leading batch dimensions, transposed by ``trans_a`` and ``trans_b``."""
    a, b = tensors[:2]
    batch = tuple(range(a.ndim - 2))
    left = a.ndim - 2 if attributes.get("trans_a") else a.ndim - 1
    right = b.ndim - 1 if attributes.get("trans_b") else b.ndim - 2
    dims = (((left,), (right,)), (batch, batch))
    return lax.dot_general(a, b, dims, preferred_element_type=attributes.get("out_dtype"))


def _linear(tensors: Tensors, attributes: Attributes) -> Any:
    source, weight = tensors[:2]
    dims = (((source.ndim - 1,), (1,)), ((), ()))
    return lax.dot_general(source, weight, dims, preferred_element_type=attributes.get("out_dtype"))


def _sides(padding: Any, rank: int) -> list[tuple[int, int]]:
    """Return (before, after) padding of each dimension; ``padding`` has 1, ``rank`` or 2·``rank`` values."""
    values = for_each_dim(padding, rank)
    return [(values[dim], values[dim + rank] if len(values) == 2 * rank else values[dim]) for dim in range(rank)]


def _convolution(rank: int) -> JaxCall:
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


def _attention(tensors: Tensors, attributes: Attributes) -> Any:
    # JAX's layout is [batch, tokens, heads, size], the operator's [batch, heads, tokens, size].
    query, key, value, mask = (*tensors, None)[:4]
    if mask is not None:
        mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
    is_choice = mask is not None and mask.dtype == jnp.bool_
    out = jax.nn.dot_product_attention(
        *(jnp.swapaxes(x, -3, -2) for x in (query, key, value)),
        bias=None if is_choice else mask,
        mask=mask if is_choice else None,
        scale=attributes.get("scale"),
        is_causal=attributes.get("is_causal", False),
        local_window_size=_window(attributes),
    )
    return jnp.swapaxes(out, -3, -2)


def _window(attributes: Attributes) -> tuple[int, int] | None:
    # JAX has no open end; 2**30 is beyond the last key.
    left, right = attributes.get("window_size", (-1, -1))
    return None if (left, right) == (-1, -1) else (left if left >= 0 else 1 << 30, right if right >= 0 else 1 << 30)


def _attention_gap(specs: Specs, attributes: Attributes) -> str | None:
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


def _max_pool2d(tensors: Tensors, attributes: Attributes) -> Any:
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


CALLS: dict[str, JaxCall] = {
    "matmul": JaxCall(_matmul),
    "bmm": JaxCall(_gemm, of_rank("lax.dot_general", 0, "input", 3)),
    "gemm": JaxCall(_gemm, first_gap(_no_addend("lax.dot_general", 2, "c"), lacks("lax.dot_general", alpha=1.0))),
    "linear": JaxCall(
        _linear, first_gap(_no_addend("lax.dot_general", 2, "bias"), of_rank("lax.dot_general", 1, "weight", 2))
    ),
    "einsum": JaxCall(lambda tensors, attributes: jnp.einsum(attributes["equation"], *tensors)),
    "conv1d": _convolution(1),
    "conv2d": _convolution(2),
    "conv3d": _convolution(3),
    "scaled_dot_product_attention": JaxCall(_attention, _attention_gap),
    "max_pool2d": JaxCall(_max_pool2d, lacks("lax.reduce_window", ceil_mode=False)),
}
