"""Torch calls of the reduction and normalization operators."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from optest.torch.operators.calls import Attributes, Tensors, TorchCall


def _over_dims(function: Callable[..., Any], all_dims: Any = None) -> TorchCall:
    """Return a call of a function that accepts several dimensions; ``all_dims`` is its value of ``dim`` for all."""

    def call(tensors: Tensors, attributes: Attributes) -> Any:
        return function(tensors[0], dim=attributes.get("dim") or all_dims, keepdim=attributes.get("keepdim", False))

    return call


def _extreme(function: Callable[..., Any]) -> TorchCall:
    """Return a call of ``torch.max`` or ``torch.min``: of all elements, or values and indices along ``dim``."""

    def call(tensors: Tensors, attributes: Attributes) -> Any:
        if attributes.get("dim") is None:
            # Without a dimension torch refuses keepdim, as the operator does: it must see it.
            return function(tensors[0], **({"keepdim": True} if attributes.get("keepdim") else {}))
        return tuple(function(tensors[0], dim=attributes["dim"], keepdim=attributes.get("keepdim", False)))

    return call


def _arg_extreme(function: Callable[..., Any]) -> TorchCall:
    def call(tensors: Tensors, attributes: Attributes) -> Any:
        return function(tensors[0], dim=attributes.get("dim"), keepdim=attributes.get("keepdim", False))

    return call


def _dims(attributes: Attributes) -> dict[str, Any]:
    # An empty tuple of dimensions means all of them.
    return {"dim": attributes.get("dim") or None, "keepdim": attributes.get("keepdim", False)}


def _dtype(attributes: Attributes) -> torch.dtype | None:
    name = attributes.get("dtype")
    return None if name is None else getattr(torch, name)


def _prod(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """Return the product over any number of dimensions; torch accepts one or all, so several are flattened to one."""
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
    for index in sorted(x % source.ndim for x in dim) if keepdim else ():
        product = product.unsqueeze(index)
    return product


def _cumsum(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    """Return the cumulative sum; ONNX's ``reverse`` flips the input, ``exclusive`` shifts it by one element."""
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
    with warnings.catch_warnings():
        # NaN is the specified result of too few elements.
        warnings.filterwarnings("ignore", message="var.*degrees of freedom")
        return torch.var(tensors[0], correction=attributes.get("correction", 1.0), **_dims(attributes))


def _logsumexp(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source = tensors[0]
    # torch's logsumexp requires dimensions.
    dims = attributes.get("dim") or tuple(range(source.ndim))
    if not dims:
        return torch.logsumexp(source, 0)
    return torch.logsumexp(source, dims, keepdim=attributes.get("keepdim", False))


def _layer_norm(tensors: Tensors, attributes: Attributes) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Return the layer norm and, if ``statistics`` is set, the standardised input and the standard deviation."""
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
    with warnings.catch_warnings():
        # torch warns that it does not fuse a call with several dtypes; only its result matters here.
        warnings.filterwarnings("ignore", message="Mismatch dtype")
        return functional.rms_norm(source, tuple(attributes["normalized_shape"]), weight, attributes.get("eps"))


def _cross_entropy(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, target, weight = (*tensors, None)[:3]
    # torch accepts only int64.
    target = target.long() if target.dtype == torch.int32 else target
    names = ("ignore_index", "reduction", "label_smoothing")
    options = {name: attributes[name] for name in names if name in attributes}
    return functional.cross_entropy(source, target, weight, **options)


def _group_norm(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, weight, bias = (*tensors, None, None)[:3]
    return functional.group_norm(source, attributes["num_groups"], weight, bias, attributes.get("eps", 1e-5))


def _batch_norm(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, mean, variance, weight, bias = (*tensors, None, None, None, None)[:5]
    training = attributes.get("training", False)
    # torch would update the running statistics in place.
    mean, variance = (None, None) if training else (mean, variance)
    return functional.batch_norm(source, mean, variance, weight, bias, training, eps=attributes.get("eps", 1e-5))


CALLS: dict[str, TorchCall] = {
    "sum": lambda tensors, attributes: torch.sum(tensors[0], **_dims(attributes), dtype=_dtype(attributes)),
    "mean": _over_dims(torch.mean),
    "prod": _prod,
    "cumsum": _cumsum,
    "dot": lambda tensors, _: torch.dot(tensors[0], tensors[1]),
    "var": _var,
    "norm": lambda tensors, attributes: torch.linalg.vector_norm(
        tensors[0], ord=attributes.get("p", 2.0), **_dims(attributes)
    ),
    "logsumexp": _logsumexp,
    "max": _extreme(torch.max),
    "min": _extreme(torch.min),
    "amax": _over_dims(torch.amax, ()),
    "amin": _over_dims(torch.amin, ()),
    "argmax": _arg_extreme(torch.argmax),
    "argmin": _arg_extreme(torch.argmin),
    "all": _over_dims(torch.all),
    "any": _over_dims(torch.any),
    "softmax": lambda tensors, attributes: torch.softmax(tensors[0], dim=attributes.get("dim", -1)),
    "log_softmax": lambda tensors, attributes: torch.log_softmax(tensors[0], dim=attributes.get("dim", -1)),
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "normalize": lambda tensors, attributes: functional.normalize(
        tensors[0], p=attributes.get("p", 2.0), dim=attributes.get("dim", 1), eps=attributes.get("eps", 1e-12)
    ),
    "cross_entropy": _cross_entropy,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
}
