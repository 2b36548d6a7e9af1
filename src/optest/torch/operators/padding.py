"""Padding that differs at both ends of a dimension: torch's convolutions and poolings have none, so it goes before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

__all__ = ["has_two_sides", "padded"]


def has_two_sides(padding: Any, rank: int) -> bool:
    """Whether ``padding`` is what comes before each of ``rank`` dimensions, then what comes after."""
    return isinstance(padding, (tuple, list)) and len(padding) == 2 * rank


def padded(source: torch.Tensor, padding: Sequence[int], rank: int, value: float = 0.0) -> torch.Tensor:
    """``source`` with ``value`` around its last ``rank`` dimensions."""
    last_first = [each for dim in reversed(range(rank)) for each in (padding[dim], padding[dim + rank])]
    return functional.pad(source, last_first, value=value)
