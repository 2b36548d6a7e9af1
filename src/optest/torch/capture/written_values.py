"""Values of a tensor as they are written into a file: so short that reading them back gives the same bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from optest.numerics import round_to
from optest.spec import dtype as dtype_called

__all__ = ["shortest", "value_text", "words_of_mask", "written"]


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


# What can be said of a mask in words: where it changes from one value to another.


def words_of_mask(values: torch.Tensor) -> str:
    """``causal (0.0 up to the diagonal, -inf above)``; the two values alone where there is no such order, else ""."""
    found = values.unique()
    if len(found) != 2:
        return ""
    low, high = found
    both = f"{value_text(high)} and {value_text(low)}"
    if values.dim() < 2:
        return both
    last = values.reshape(-1, *values.shape[-2:])
    if not bool((last == last[:1]).all()):
        return f"{both}, the same in every row" if _is_same_in_every_row(values) else both
    return _words_of_matrix(last[0], high, low) or both


def _is_same_in_every_row(values: torch.Tensor) -> bool:
    return bool((values == values[..., :1, :]).all())


def _words_of_matrix(matrix: torch.Tensor, high: torch.Tensor, low: torch.Tensor) -> str:
    """Of a matrix with two values; "" where it has no order that has a name."""
    rows, columns = matrix.shape
    if _is_same_in_every_row(matrix):
        return f"{value_text(high)} and {value_text(low)}, the same in every row"
    column = torch.arange(columns, device=matrix.device)
    offsets = column - torch.arange(rows, device=matrix.device)[:, None]
    first, final = 1 - rows, columns - 1
    for value, other in ((high, low), (low, high)):
        inside = offsets[matrix == value]
        start, end = int(inside.min()), int(inside.max())
        if not torch.equal(matrix == value, (offsets >= start) & (offsets <= end)):
            continue
        here, there = value_text(value), value_text(other)
        if start == first:
            order = f"{here} up to {_diagonal(end)}, {there} above"
            return f"causal ({order})" if end == columns - rows else order
        if end != final:
            return f"a band ({here} from {_diagonal(start)} to {_diagonal(end)}, {there} elsewhere)"
    return ""


def _diagonal(offset: int) -> str:
    return f"diagonal {offset}" if offset else "the diagonal"
