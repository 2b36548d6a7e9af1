"""Type of a torch call of an operator, and helpers of several calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional

# In the order of the operator's signature, None for an optional tensor that is missing.
Tensors = Sequence[Any]
Attributes = Mapping[str, Any]
# Returns a tensor, or a sequence of them for an operator with several outputs.
TorchCall = Callable[[Tensors, Attributes], Any]


def factor(value: float, result: torch.dtype) -> float | int:
    """Return ``value`` as an int if the result's dtype is integer, which torch requires."""
    return value if result.is_floating_point or result.is_complex else int(value)


def has_two_sides(padding: Any, rank: int) -> bool:
    """Return whether ``padding`` holds sizes before each of ``rank`` dimensions, then sizes after each."""
    return isinstance(padding, (tuple, list)) and len(padding) == 2 * rank


def padded(source: torch.Tensor, padding: Sequence[int], rank: int, value: float = 0.0) -> torch.Tensor:
    """Return ``source`` with ``value`` around its last ``rank`` dimensions, as :func:`has_two_sides` orders sizes.

    torch's convolutions and poolings cannot pad both sides differently, so calls pad first.
    """
    last_first = [size for dim in reversed(range(rank)) for size in (padding[dim], padding[dim + rank])]
    return functional.pad(source, last_first, value=value)
