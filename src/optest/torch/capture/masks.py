"""What can be said of a mask in words: where it changes from one value to another."""

from __future__ import annotations

import torch

from optest.torch.capture.written_values import value_text

__all__ = ["words_of_mask"]


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
