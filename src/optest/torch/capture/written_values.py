"""Values of a tensor as they are written into a file: so short that reading them back gives the same bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from optest.numerics import round_to
from optest.spec import dtype as dtype_called

__all__ = ["shortest", "value_text", "written"]


def written(tensor: torch.Tensor, dtype: str) -> Any:
    """The nested list of a tensor of real numbers, of which ``dtype`` holds every one."""
    values = tensor.tolist()
    if not tensor.dtype.is_floating_point:
        return values
    distinct = {value: shortest(value, dtype) for value in tensor.flatten().tolist() if value}
    return _replaced(values, distinct)


def _replaced(values: Any, by: dict[float, float]) -> Any:
    if isinstance(values, list):
        return [_replaced(each, by) for each in values]
    return by.get(values, values)


def shortest(value: float, dtype: str) -> float:
    """The number with the fewest digits that is ``value`` when it is rounded to ``dtype``."""
    if not math.isfinite(value):
        return value
    kind = dtype_called(dtype)
    for digits in range(1, 17):
        found = float(f"{value:.{digits}g}")
        if math.isfinite(found) and float(round_to(np.array([found]), kind)[0]) == value:
            return found
    return value


def value_text(value: Any) -> str:
    """A number as notes have it: ``-inf``, ``0.0``, ``-3.4e+38``; ``true`` and ``false`` of a mask that is bool."""
    if isinstance(value, torch.Tensor) and value.dtype is torch.bool:
        return "true" if bool(value) else "false"
    found = float(value) + 0.0  # without a sign of zero
    return f"{found:.3g}" if abs(found) >= 1e6 and math.isfinite(found) else repr(found)
