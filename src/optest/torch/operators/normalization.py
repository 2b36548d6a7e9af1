"""The torch calls of the normalization family."""

from __future__ import annotations

import warnings

import torch
from torch.nn import functional

from optest.torch.operators.calls import Attributes, Tensors, TorchCall

__all__ = ["CALLS"]


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
        raise ValueError(f"there are {columns} columns, but should be {rows} or more")
    unseen = torch.ones(rows, columns, dtype=torch.bool, device=source.device).triu(columns - rows + 1)
    return torch.softmax(source.masked_fill(unseen, float("-inf")), dim=-1)


CALLS: dict[str, TorchCall] = {
    "softmax": lambda tensors, attributes: torch.softmax(tensors[0], dim=attributes.get("dim", -1)),
    "log_softmax": lambda tensors, attributes: torch.log_softmax(tensors[0], dim=attributes.get("dim", -1)),
    "causal_softmax": _causal_softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
}
