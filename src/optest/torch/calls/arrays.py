"""What a call yields as arrays: tensors, and whatever else a function of torch may return."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from optest.numerics import Array
from optest.torch.tensors import from_torch

__all__ = ["as_array"]


def as_array(leaf: Any) -> Array:
    """A tensor of any device or layout, a bool, a number or a word as an array; words as their bytes.

    Raises:
        KeyError: for a tensor of a dtype that optest does not know.
    """
    if isinstance(leaf, torch.Tensor):
        dense = leaf.to_dense() if leaf.layout is not torch.strided else leaf
        return from_torch(dense.dequantize() if dense.is_quantized else dense)
    if isinstance(leaf, (bool, float, complex)):
        return np.asarray(leaf)
    if isinstance(leaf, int):
        return np.asarray(leaf, dtype=np.int64 if -(2**63) <= leaf < 2**63 else np.float64)
    return np.frombuffer(str(leaf).encode(), dtype=np.uint8)
