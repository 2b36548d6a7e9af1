"""The torch calls of the reduction and the normalization family."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from optest.torch.operators.calls import Attributes, Tensors, TorchCall


def _over_dims(function: Callable[..., Any], every: Any = None) -> TorchCall:
    """For functions that take several dimensions, or ``every`` for all."""

    def call(tensors: Tensors, attributes: Attributes) -> Any:
        return function(tensors[0], dim=attributes.get("dim") or every, keepdim=attributes.get("keepdim", False))

    return call


def _extreme(function: Callable[..., Any]) -> TorchCall:
    def call(tensors: Tensors, attributes: Attributes) -> Any:
        if attributes.get("dim") is None:
            return function(tensors[0], **({"keepdim": True} if attributes.get("keepdim") else {}))  # torch refuses it
        return tuple(function(tensors[0], dim=attributes["dim"], keepdim=attributes.get("keepdim", False)))

    return call


def _place(function: Callable[..., Any]) -> TorchCall:
    def call(tensors: Tensors, attributes: Attributes) -> Any:
        return function(tensors[0], dim=attributes.get("dim"), keepdim=attributes.get("keepdim", False))

    return call


def _sum(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    keepdim = attributes.get("keepdim", False)
    return torch.sum(tensors[0], dim=attributes.get("dim") or None, keepdim=keepdim, dtype=_dtype(attributes))


def _dtype(attributes: Attributes) -> torch.dtype | None:
    name = attributes.get("dtype")
    return None if name is None else getattr(torch, name)


def _prod(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """torch takes one dimension or none: several are put into one, in front."""
    source, dim, keepdim = tensors[0], attributes.get("dim"), attributes.get("keepdim", False)
    if isinstance(dim, tuple) and len(dim) == 1:
        (dim,) = dim
    if isinstance(dim, int):
        return torch.prod(source, dim=dim, keepdim=keepdim, dtype=_dtype(attributes))
    if not dim:
        product = torch.prod(source, dtype=_dtype(attributes))
        return product.reshape((1,) * source.ndim) if keepdim else product
    rows = source.movedim(dim, tuple(range(len(dim)))).flatten(0, len(dim) - 1)
    product = torch.prod(rows, dim=0, dtype=_dtype(attributes))
    for place in sorted(each % source.ndim for each in dim) if keepdim else ():
        product = product.unsqueeze(place)
    return product


def _cumsum(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """ONNX's ways are put together: flipped for ``reverse``, one element late for ``exclusive``."""
    source, dim = tensors[0], attributes["dim"]
    if not (attributes.get("reverse") or attributes.get("exclusive")):
        return torch.cumsum(source, dim=dim, dtype=_dtype(attributes))
    row = source.reshape(source.shape or (1,))
    if attributes.get("reverse"):
        row = row.flip(dim)
    if attributes.get("exclusive"):
        size = row.shape[dim]
        row = torch.cat([torch.zeros_like(row.narrow(dim, 0, min(size, 1))), row], dim).narrow(dim, 0, size)
    total = torch.cumsum(row, dim=dim, dtype=_dtype(attributes))
    return (total.flip(dim) if attributes.get("reverse") else total).reshape(source.shape)


def _var(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    with warnings.catch_warnings():  # NaN of too few elements is what is asked for
        warnings.filterwarnings("ignore", message="var.*degrees of freedom")
        return torch.var(
            tensors[0],
            dim=attributes.get("dim") or None,
            correction=attributes.get("correction", 1.0),
            keepdim=attributes.get("keepdim", False),
        )


def _norm(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    return torch.linalg.vector_norm(
        tensors[0],
        ord=attributes.get("p", 2.0),
        dim=attributes.get("dim") or None,
        keepdim=attributes.get("keepdim", False),
    )


def _logsumexp(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """torch wants the dimensions named."""
    source = tensors[0]
    dims = attributes.get("dim") or tuple(range(source.ndim))
    if not dims:
        return torch.logsumexp(source, 0)
    return torch.logsumexp(source, dims, keepdim=attributes.get("keepdim", False))


def _layer_norm(tensors: Tensors, attributes: Attributes) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Statistics are put together from torch's mean and variance, in float32 and wider."""
    source, weight, bias = (*tensors, None, None)[:3]
    shape, eps = tuple(attributes["normalized_shape"]), attributes.get("eps", 1e-5)
    out = functional.layer_norm(source, shape, weight, bias, eps)
    if not attributes.get("statistics"):
        return out
    dims = tuple(range(-len(shape), 0))
    wide = source.to(torch.promote_types(source.dtype, torch.float32))
    variance, mean = torch.var_mean(wide, dims, correction=0, keepdim=True)
    std = torch.sqrt(variance + eps)
    standardization = ((wide - mean) / std).to(source.dtype)
    return out, standardization, std.to(source.dtype).reshape(source.shape[: source.dim() - len(shape)])


def _rms_norm(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, weight = (*tensors, None)[:2]
    with warnings.catch_warnings():  # that a mixed call is not fused is nothing to warn of here
        warnings.filterwarnings("ignore", message="Mismatch dtype")
        return functional.rms_norm(source, tuple(attributes["normalized_shape"]), weight, attributes.get("eps"))


def _add_rms_norm(tensors: Tensors, attributes: Attributes) -> tuple[torch.Tensor, torch.Tensor]:
    """torch has no such operator: it is put together from a sum and rms_norm, in float32 and wider."""
    source, other, weight = (*tensors, None)[:3]
    if (source.shape, source.dtype) != (other.shape, other.dtype):
        raise ValueError(f"{source.dtype} {tuple(source.shape)} and {other.dtype} {tuple(other.shape)} are not alike")
    total = source + other
    wide = torch.promote_types(source.dtype, torch.float32)
    row = total.to(wide), None if weight is None else weight.to(wide)
    return _rms_norm(row, attributes).to(source.dtype), total


def _cross_entropy(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, target, weight = (*tensors, None)[:3]
    target = target.long() if target.dtype == torch.int32 else target  # torch takes int64 alone
    stated = {name: attributes[name] for name in ("ignore_index", "reduction", "label_smoothing") if name in attributes}
    return functional.cross_entropy(source, target, weight, **stated)


def _group_norm(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, weight, bias = (*tensors, None, None)[:3]
    return functional.group_norm(source, attributes["num_groups"], weight, bias, attributes.get("eps", 1e-5))


def _batch_norm(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """Training would update the running statistics in place, so that it is not given any."""
    source, mean, variance, weight, bias = (*tensors, None, None, None, None)[:5]
    training = attributes.get("training", False)
    mean, variance = (None, None) if training else (mean, variance)
    return functional.batch_norm(source, mean, variance, weight, bias, training, eps=attributes.get("eps", 1e-5))


def _causal_softmax(tensors: Tensors, _attributes: Attributes) -> torch.Tensor:
    source = tensors[0]
    rows, columns = source.shape[-2:]
    if columns < rows:
        raise ValueError(f"there are {columns} columns, expected {rows} or more")
    unseen = torch.ones(rows, columns, dtype=torch.bool, device=source.device).triu(columns - rows + 1)
    return torch.softmax(source.masked_fill(unseen, float("-inf")), dim=-1)


CALLS: dict[str, TorchCall] = {
    "sum": _sum,
    "mean": _over_dims(torch.mean),
    "prod": _prod,
    "cumsum": _cumsum,
    "dot": lambda tensors, _: torch.dot(tensors[0], tensors[1]),
    "var": _var,
    "norm": _norm,
    "logsumexp": _logsumexp,
    "max": _extreme(torch.max),
    "min": _extreme(torch.min),
    "amax": _over_dims(torch.amax, ()),
    "amin": _over_dims(torch.amin, ()),
    "argmax": _place(torch.argmax),
    "argmin": _place(torch.argmin),
    "all": _over_dims(torch.all),
    "any": _over_dims(torch.any),
    "softmax": lambda tensors, attributes: torch.softmax(tensors[0], dim=attributes.get("dim", -1)),
    "log_softmax": lambda tensors, attributes: torch.log_softmax(tensors[0], dim=attributes.get("dim", -1)),
    "causal_softmax": _causal_softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "add_rms_norm": _add_rms_norm,
    "normalize": lambda tensors, attributes: functional.normalize(
        tensors[0], p=attributes.get("p", 2.0), dim=attributes.get("dim", 1), eps=attributes.get("eps", 1e-12)
    ),
    "cross_entropy": _cross_entropy,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
}
