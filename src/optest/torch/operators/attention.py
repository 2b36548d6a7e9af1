"""The torch calls of the attention family; rope is composed of torch's elementwise operators, in float32 and wider."""

from __future__ import annotations

import torch
from torch.nn import functional

from optest.torch.operators.calls import Attributes, Tensors, TorchCall

__all__ = ["CALLS"]


def _attention(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    query, key, value, mask = (*tensors, None)[:4]
    return functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=attributes.get("is_causal", False),
        scale=attributes.get("scale"),
        enable_gqa=attributes.get("enable_gqa", False),
    )


def _rope(tensors: Tensors, attributes: Attributes) -> torch.Tensor:
    source, cos, sin, positions = (*tensors, None)[:4]
    within = torch.promote_types(source.dtype, torch.float32)
    x, cos, sin = source.to(within), cos.to(within), sin.to(within)
    if positions is not None:
        cos, sin = cos[positions.long()], sin[positions.long()]
    size = attributes.get("rotary_embedding_dim") or source.shape[-1]
    if size > source.shape[-1]:
        raise ValueError(f"{size} elements are rotated, but input has {source.shape[-1]}")
    if cos.dim() > 2:
        between = (cos.shape[0], *(1,) * (source.dim() - 3), *cos.shape[1:])
        cos, sin = cos.reshape(between), sin.reshape(between)
    part, rest = x[..., :size], x[..., size:]
    if attributes.get("interleaved"):
        first, second = part[..., 0::2], part[..., 1::2]
    else:
        first, second = part[..., : size // 2], part[..., size // 2 :]
    pair = (first * cos - second * sin, second * cos + first * sin)
    turned = torch.stack(pair, dim=-1).flatten(-2) if attributes.get("interleaved") else torch.cat(pair, dim=-1)
    return torch.cat((turned, rest), dim=-1).to(source.dtype)


CALLS: dict[str, TorchCall] = {
    "scaled_dot_product_attention": _attention,
    "rope": _rope,
}
