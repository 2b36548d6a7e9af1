"""What a torch call of an operator looks like, and what several of them need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

Tensors = Sequence[Any]
"""At the places of the operator's signature, None for one left out."""
Attributes = Mapping[str, Any]
TorchCall = Callable[[Tensors, Attributes], Any]
"""Returns a tensor, or a sequence of them for an operator with several outputs."""


def factor(value: float, result: torch.dtype) -> float | int:
    """torch takes whole factors of integer results as int alone."""
    return value if result.is_floating_point or result.is_complex else int(value)


# Padding that differs at both ends of a dimension: torch's convolutions and poolings have none, so it goes before.


def has_two_sides(padding: Any, rank: int) -> bool:
    """Whether ``padding`` is what comes before each of ``rank`` dimensions, then what comes after."""
    return isinstance(padding, (tuple, list)) and len(padding) == 2 * rank


def padded(source: torch.Tensor, padding: Sequence[int], rank: int, value: float = 0.0) -> torch.Tensor:
    """``source`` with ``value`` around its last ``rank`` dimensions."""
    last_first = [each for dim in reversed(range(rank)) for each in (padding[dim], padding[dim + rank])]
    return functional.pad(source, last_first, value=value)
