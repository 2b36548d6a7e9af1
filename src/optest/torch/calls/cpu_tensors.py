"""A case's inputs as tensors of the reference's own, in their dtypes or in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from optest.torch.tensors import to_read

__all__ = ["WIDE", "copied", "on_cpu", "to_read", "wide", "widened"]

WIDE = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64),
    **dict.fromkeys((torch.complex32, torch.complex64), torch.complex128),
}
"""What the reference computes in, by the dtype of the case."""


def on_cpu(inputs: Sequence[Any]) -> list[torch.Tensor]:
    """Tensors with the same strides in memory of their own, so that a call may change them."""
    return [copied(to_read(array)) for array in inputs]


def widened(inputs: Sequence[Any]) -> list[torch.Tensor]:
    """The inputs in float64 or complex128 with the same strides; other dtypes stay as they are."""
    return [wide(to_read(array)) for array in inputs]


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """One tensor as :func:`widened` has it, in memory of its own."""
    kind = WIDE.get(tensor.dtype)
    if kind is None:
        return copied(tensor)
    return _storage(tensor).to(kind).as_strided(tensor.shape, tensor.stride())


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with the same strides in memory of its own."""
    return _storage(tensor).clone().as_strided(tensor.shape, tensor.stride())


def _storage(tensor: torch.Tensor) -> torch.Tensor:
    """All elements from the first to the last in memory, gaps too."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.as_strided((span if tensor.numel() else 0,), (1,))
