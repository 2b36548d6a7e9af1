"""The torch calls of the reduction family."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from optest.torch.operators.calls import Attributes, Tensors, TorchCall

__all__ = ["CALLS"]


def _over_dims(function: Callable[..., Any]) -> TorchCall:
    """For functions that take several dimensions, or None for all."""

    def call(tensors: Tensors, attributes: Attributes) -> Any:
        return function(tensors[0], dim=attributes.get("dim") or None, keepdim=attributes.get("keepdim", False))

    return call


def _over_named_dims(function: Callable[..., Any]) -> TorchCall:
    """For functions to which no dimension at all is ()."""

    def call(tensors: Tensors, attributes: Attributes) -> Any:
        return function(tensors[0], attributes.get("dim") or (), keepdim=attributes.get("keepdim", False))

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
    "amax": _over_named_dims(torch.amax),
    "amin": _over_named_dims(torch.amin),
    "argmax": _place(torch.argmax),
    "argmin": _place(torch.argmin),
    "all": _over_dims(torch.all),
    "any": _over_dims(torch.any),
}
