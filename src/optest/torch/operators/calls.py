"""What a torch call of an operator looks like, and what several of them need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

__all__ = ["Attributes", "Tensors", "TorchCall", "factor"]

Tensors = Sequence[Any]
"""At the places of the operator's signature, None for one left out."""
Attributes = Mapping[str, Any]
TorchCall = Callable[[Tensors, Attributes], Any]
"""Returns a tensor, or a sequence of them for an operator with several outputs."""


def factor(value: float, result: torch.dtype) -> float | int:
    """torch takes whole factors of integer results as int alone."""
    return value if result.is_floating_point or result.is_complex else int(value)
